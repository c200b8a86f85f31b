"""The functions of a compiled module, as C and Python see them: tables of methods, docstrings, the typed stub."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlaot.binding.extents import shown
from mlaot.binding.fit import Fit
from mlaot.binding.literals import c_text
from mlaot.binding.state import KINDS, has_gradients, in_file
from mlaot.ir.indices import Span, bounds_text
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP, INTERMEDIATES, PHASES, PREPARE, READ_TEXTS, Generation
from mlaot.ir.ports import Port, Shape
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry, ExtensionModule
from mlaot.render import render

HIDDEN = (PHASES, FIT_BEGIN, FIT_STEP, FIT_END, PREPARE, READ_TEXTS)  # entries that other functions run

NUMBERS = {"f": "float", "i": "int", "u": "int", "b": "bool"}


@dataclass(frozen=True)
class Method:
    """A function of the module and of ``Model``.

    ``signature`` lists the parameters after the object. ``convention`` is the calling convention: ``FAST``, ``NAMED``,
    ``ONE`` or ``NONE`` in templates/runtime/types.h. ``is_entry`` is true if the method calls the entry of its name.
    ``in_module`` is false if the function of this name in the module does something else than call the method of the
    module's own instance.
    """

    name: str
    signature: str
    doc: str
    lines: tuple[str, ...]
    convention: str = "ONE"
    is_entry: bool = False
    in_module: bool = True


PROFILE = Method(
    "profile",
    ", /, *args, **named",
    "Time the kernels of a call on one thread: of a function of this module or instance, which is the first argument,"
    " or else of forward().\n\n"
    "The result is a Chrome trace, which Perfetto opens once json.dump has written it. A kernel is an event among its"
    " traceEvents, with its microseconds (dur) and the part of the model (cat). The args of the event are the line of"
    " the model's code, what the kernel computes, how often it ran (rounds), and the operations and bytes of one run.",
    ("def profile(*args: Any, **named: Any) -> dict[str, Any]: ...",),
    "FAST",
)


def methods(module: ExtensionModule, fit: Fit | None, scalars: bool) -> list[Method]:
    """Return the functions of the module, which are also the methods of ``Model``.

    ``scalars`` is true for scalar models.
    """
    phases = module.phases
    functions = [entry_method(entry, phases is not None) for entry in module.entries if entry.name not in HIDDEN]
    if fit is not None:
        functions.append(fit_method(fit))
    if phases is not None:
        functions += verb_methods(phases)
    if has_gradients(module):
        functions.append(no_argument_method("zero_grad", "Set all gradients to zero."))
    if module.slots:
        path, kept = "path: str | bytes | PathLike[Any]", kinds_text(module)
        functions += [
            one_argument_method("save", path, "None", f"Write {kept} as safetensors."),
            one_argument_method("load", path, "None", f"Read {kept} from safetensors."),
        ]
    if "file_names" in module.info:
        functions += session_methods()
    if module.generation is not None:
        functions += text_methods(module.generation)
    doc = "How many threads a call may use; 0 or None: as many as there are CPUs. Returns how many that makes."
    functions.append(one_argument_method("set_threads", "n: int | None", "int", doc))
    if module.options.profile:
        functions.append(PROFILE)
    if scalars:
        functions += [
            one_argument_method("data", "i: int", "float", "Scalar parameter number i of the source model."),
            one_argument_method("grad", "i: int", "float", "The gradient of scalar parameter number i."),
        ]
    return functions


def kinds_text(module: ExtensionModule) -> str:
    """Return ``the parameters, the buffers and the optimizer's state``"""
    present = {slot.kind for slot in in_file(module)}
    *first, last = [text for kind, text in KINDS.items() if kind in present]
    return f"{', '.join(first)} and {last}" if first else last


def gives_numbers(entry: Entry) -> bool:
    """Tell whether an entry returns results without axes as Python numbers.

    Losses do so, and the user's own entries.
    """
    return entry.name not in ("forward", PHASES, "update", INTERMEDIATES)


def is_scalar(entry: Entry) -> bool:
    """Tell whether an entry returns a single Python number."""
    is_number = [port.shape for port in entry.results] == [()] and not entry.results[0].is_text
    return gives_numbers(entry) and not entry.named and is_number


def entry_method(entry: Entry, verbs: bool) -> Method:
    """Return the method of an entry. ``forward`` and ``loss`` may also be called without inputs after ``set_input``."""
    held = verbs and entry.name in ("forward", "loss")
    takes_out = bool(entry.results) and not is_scalar(entry)
    ports = ", ".join(plain_port(port) for port in entry.asked)
    typed = ", ".join(typed_port(port) for port in entry.asked)
    result = result_type(entry)
    optional = ", ".join(f"{port.name}=..." for port in entry.asked) if held else ports
    lines = [f"def {entry.name}({typed}) -> {result}: ..."]
    if takes_out:
        typed = f"{typed}, *, " if typed else "*, "
        lines = [
            f"def {entry.name}({typed}out: None = None) -> {result}: ...",
            f"def {entry.name}({typed}out: _Out) -> _Out: ...",
        ]
    if held and entry.asked:
        lines.append(f"def {entry.name}() -> {result}: ...")
    ranges = [f"{line}." for port in entry.asked for line in range_lines(port)]
    types = entry_types(entry)
    lines[0] = lines[0].removesuffix(" ...")
    documented = (lines[0], f'    """{" ".join([f"{types}.", *ranges]) if ranges else types}"""', *lines[1:])
    if len(lines) > 1:
        documented = tuple(text for line in documented for text in (["@overload", line] if line[0] == "d" else [line]))
    tail = ", *, out=None" if takes_out else ""
    doc = "\n\n".join(text for text in (entry.doc, types, "\n".join(ranges)) if text)
    signature = f", /, {optional}{tail}" if optional else ", /" + tail
    return Method(entry.name, signature, doc, documented, "FAST", is_entry=True)


def entry_types(entry: Entry) -> str:
    """Return ``x: float32[batch, 784] -> y: float32[batch, 10]``"""
    inputs, outputs = (
        ", ".join(f"{port.name}: {port_text(port)}" for port in ports) for ports in (entry.asked, entry.results)
    )
    return f"{inputs} -> {outputs or None}".lstrip()


def range_lines(port: Port) -> list[str]:
    """Return ``label: values from 0 to 9``, or for a part of an input ``x[:, 0]: values from 0 to 11``."""
    lines = [f"{port.name}: dates, or their numbers as {port.dates} has them"] if port.dates else []
    for range_ in () if port.strings else port.ranges:
        spans = ", ".join(map(span_text, range_.box))
        is_unsigned, last = port.dtype[0] == "u", shown(range_.size - 1)
        first = shown(-1 * range_.size) if range_.wraps and not is_unsigned else "0"
        ignored = None if is_unsigned and (range_.ignored or 0) < 0 else range_.ignored
        lines.append(f"{port.name}{f'[{spans}]' if spans else ''}: {bounds_text(first, last, ignored)}")
    return lines


def span_text(span: Span | None) -> str:
    """Format a part of an axis as an index of Python."""
    if span is None:
        return ":"
    start, count, step = span
    if count == 1:
        return shown(start)
    return f"{shown(start)}:{shown(start + (count - 1) * step + 1)}" + (f":{step}" if step != 1 else "")


def dtype_text(dtype: str) -> str:
    """Return the user's name of a dtype: ``float32``."""
    return "bfloat16" if dtype == "bf16" else DTYPES[dtype].numpy


def port_text(port: Port) -> str:
    """Return ``float32[batch, 784]``, or ``str[batch]``."""
    if port.map:
        return f"dict[{'str' if port.strings else dtype_text(port.dtype)}, {dtype_text(port.map)}]"
    text = type_text(port.dtype, port.seen)
    return text.replace(dtype_text(port.dtype), "str", 1) if port.is_text else text


def type_text(dtype: str, shape: Shape) -> str:
    """Return ``float32[batch, 784]``"""
    extents = ", ".join(map(shown, shape))
    return dtype_text(dtype) + (f"[{extents}]" if shape else "")


def plain_port(port: Port) -> str:
    """Return a parameter of the text signature."""
    return port.name if port.default is None else f"{port.name}={float(port.default)!r}"


def typed_port(port: Port) -> str:
    """Return a parameter of the stub."""
    if port.map:
        return f"{port.name}: dict[{'str | bytes' if port.strings else 'int'}, Any]"
    if port.strings or port.takes_texts:
        return f"{port.name}: str | bytes | Sequence[Any] | _Strings"
    if port.dates:
        return f"{port.name}: Any"
    if port.converts:
        return f"{port.name}: _Data | _Convertible"
    return f"{port.name}: _Data" if port.default is None else f"{port.name}: float = {float(port.default)!r}"


def result_type(entry: Entry) -> str:
    """Return the type of an entry's result in the stub."""
    types = [port_type(port, entry) for port in entry.results]
    if entry.named:
        return f"dict[str, {' | '.join(dict.fromkeys(types))}]"
    return f"tuple[{', '.join(types)}]" if len(types) > 1 else (*types, "None")[0]


def port_type(port: Port, entry: Entry) -> str:
    """Return the type of one output in the stub."""
    if port.is_text:
        return "list[" * len(port.seen) + "str" + "]" * len(port.seen)
    return "Array" if port.shape or not gives_numbers(entry) else number_type(port)


def number_type(port: Port) -> str:
    """Return the Python type of a result without axes."""
    return NUMBERS[DTYPES[port.dtype].kind]


def verb_methods(phases: Entry) -> list[Method]:
    """Return ``set_input()`` and ``backward()``. ``forward()`` and ``loss()`` are among the entries."""
    names = ", ".join(port.name for port in phases.inputs)
    typed = ", ".join(typed_port(port) for port in phases.inputs)
    return [
        Method(
            "set_input",
            f", /, {names}",
            "Keep a copy of the inputs for forward(), loss() and backward().",
            (f"def set_input({typed}) -> None: ...",),
            "FAST",
        ),
        no_argument_method("backward", "Add the gradients of what forward() computed to `gradients`."),
    ]


def fit_method(fit: Fit) -> Method:
    """Return the method ``fit``."""
    ports = ", ".join(plain_port(port) for port in fit.entry.inputs)
    typed = ", ".join(typed_port(port) for port in fit.entry.inputs)
    batch = fit.batch
    ranges = "".join(f"{line}.\n" for port in fit.entry.inputs for line in range_lines(port))
    doc = (
        "train_step on one batch of the examples after the other, a last smaller one included, for some epochs; the "
        f"mean loss of the last.\n\n{entry_types(fit.entry)}\n\n{ranges}"
        "shuffle: each epoch takes the examples in an order of its own, which depends on seed alone.\n"
        "progress: print on stderr the epoch, the mean loss so far and the seconds left.\n"
        "callback(done, total, loss): the examples done of all epochs', and the mean loss of this epoch so far; about "
        "every 0.1 s and at the end of each epoch. It may use the model; an exception ends the training."
    )
    line = (
        f"def fit({typed}, *, batch: int = {batch}, epochs: int = 1, shuffle: bool = True, seed: int = 0, "
        "progress: bool = False, callback: Callable[[int, int, float], object] | None = None) -> float: ..."
    )
    signature = f", /, {ports}, *, batch={batch}, epochs=1, shuffle=True, seed=0, progress=False, callback=None"
    return Method("fit", signature, doc, (line,), "FAST")


def session_methods() -> list[Method]:
    """Return the methods of an onnxruntime session, for programs that used one."""
    run = Method(
        "run",
        ", /, output_names, input_feed, run_options=None",
        "The outputs of these names (None: all) as a list, for inputs by their names in the file. They are arrays of"
        " NumPy where one of the inputs is. The options are not looked at.",
        (
            "def run(output_names: Sequence[str] | None, input_feed: Mapping[str, _Data], "
            "run_options: object = None) -> list[Any]: ...",
        ),
        "NAMED",
    )
    kinds = {"inputs": "The inputs", "outputs": "The outputs"}
    return [
        run,
        *[
            replace(
                no_argument_method(f"get_{kind}", f"{what} of the file: their name, shape and type."),
                lines=(f"def get_{kind}() -> list[Any]: ...",),
            )
            for kind, what in kinds.items()
        ],
        replace(
            no_argument_method("get_providers", "What computes: the CPU."),
            lines=("def get_providers() -> list[str]: ...",),
        ),
    ]


def text_methods(generation: Generation) -> list[Method]:
    """Return the methods of a module that generates texts. ``generate`` of the module itself begins a new text."""
    prompt, piece, stop = ("str | Sequence[int]", "str", "str | Sequence[str]")
    if not generation.tokenizer:
        prompt, piece, stop = ("Sequence[int]", "int", "int | Sequence[int]")
    options = {
        **{"max_tokens": ("int | None", "None"), "temperature": ("float", "1.0"), "top_k": ("int", "0")},
        **{"top_p": ("float", "1.0"), "min_p": ("float", "0.0"), "repetition_penalty": ("float", "1.0")},
        **{"stop": (stop, "()"), "seed": ("int | None", "None")},
    }
    typed = ", ".join(f"{name}: {kind} = {default}" for name, (kind, default) in options.items())
    plain = ", ".join(f"{name}={default}" for name, (_, default) in options.items())
    generate = Method(
        "generate",
        f", /, prompt, *, {plain}",
        "Go on with the text behind the prompt: an iterator of pieces, each chosen when asked for.\n\n"
        "max_tokens: at most so many; by default until the text ends, or its context. temperature: 0 takes the"
        " likeliest token, others draw among the top_k likeliest (0: all), those that together have the share top_p,"
        " and those at least min_p times as likely as the first. repetition_penalty: over 1 makes tokens of the text"
        " less likely. stop: what ends the answer, and is no part of it. seed: the same one gives the same answer.",
        (f"def generate(prompt: {prompt}, *, {typed}) -> Iterator[{piece}]: ...",),
        "FAST",
        in_module=False,
    )
    texts = []
    if generation.texts > 1:
        texts = [
            Method(
                "generate_all",
                f", /, prompts, *, {plain}",
                f"Begin a text with each prompt, {generation.texts} at once: an iterator of the number of a prompt with"
                " a piece of what follows it. Each text is that of generate(prompt, seed=seed + number), with the same"
                " options.",
                (f"def generate_all(prompts: Sequence[{prompt}], *, {typed}) -> Iterator[tuple[int, {piece}]]: ...",),
                "FAST",
            )
        ]
    rewind = one_argument_method("rewind", "length: int", "None", "Forget all of the text but its first tokens.")
    if not generation.tokenizer:
        return [generate, *texts, rewind]
    encode = Method(
        "encode",
        ", /, text, *, special=True, begin=True, end=False",
        "The tokens of a text. special: what is written as a special token is one. begin: those that texts begin with"
        " come first. end: those that the tokenizer puts behind whole texts come last.",
        ("def encode(text: str, *, special: bool = True, begin: bool = True, end: bool = False) -> list[int]: ...",),
        "FAST",
    )
    decode = one_argument_method("decode", "tokens: Sequence[int]", "str", "The text of tokens.")
    return [generate, *texts, rewind, encode, decode]


def no_argument_method(name: str, doc: str) -> Method:
    """Return a method without arguments."""
    return Method(name, ", /", doc, (f"def {name}() -> None: ...",), "NONE")


def one_argument_method(name: str, argument: str, result: str, doc: str) -> Method:
    """Return a method with one positional argument."""
    return Method(name, f", {argument.partition(':')[0]}, /", doc, (f"def {name}({argument}, /) -> {result}: ...",))


def module_doc(module: ExtensionModule) -> str:
    """Return the docstring of the module."""
    return c_text(f"{module.name}: a model compiled by mlaot.")


def model_doc(module: ExtensionModule) -> str:
    """Return the docstring of Model."""
    present = {slot.kind for slot in module.slots}
    own = "parameters" if "parameter" in present else "buffers" if "buffer" in present else "memory"
    return f"An instance with {own} of its own."


def render_stub(methods: list[Method], context: dict[str, object]) -> str:
    """Return the typed stub."""
    lines = [line for method in methods for line in method.lines]
    return render("nn.pyi.j2", **context, functions=lines, methods=[as_method(line) for line in lines])


def as_method(line: str) -> str:
    """Return a line of a function of the stub as one of a method."""
    if not line.startswith("def "):
        return line
    return line.replace("()", "(self)", 1) if "()" in line.partition(" -> ")[0] else line.replace("(", "(self, ", 1)
