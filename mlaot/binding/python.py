"""The plain Python form of a program: one file with the functions, the kernels and the weights of the compiled module.

The files of ``templates/python`` are the runtime. It is the same for every model, without the parts that a model does
not need. This file prepares the table that the runtime walks, as Python literals.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from mlaot.binding.extents import Extents, longest_row, shown
from mlaot.binding.fit import Fit, make_fit
from mlaot.binding.interface import attributes, check
from mlaot.binding.methods import Method, gives_numbers, is_scalar, methods, model_doc
from mlaot.binding.state import (
    base_of,
    flat_region,
    has_gradients,
    in_file,
    needed,
    saved,
    scalar_offsets,
    scalar_runs,
    state_name,
    tensors_head,
)
from mlaot.binding.tables import describe, onnx_ports
from mlaot.binding.weights import Vectorizers, rows_of, steps_of, vectorizers_of
from mlaot.errors import MlaotError
from mlaot.ir.dims import Dim, dim, parse
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP, PHASES, PREPARE, READ_TEXTS, SEEN, Generation
from mlaot.ir.rename import rename_dims
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import dim_name
from mlaot.lower.program import Entry, ExtensionModule, Golden, Port, Program, Slot
from mlaot.printing.python.file import python_kernels
from mlaot.printing.python.printer import docstring
from mlaot.printing.python.source import definitions, renamed
from mlaot.printing.python.spelling import index_text
from mlaot.probe.beside import PLAIN_PYTHON
from mlaot.render import render
from mlaot.schedule.machine import whole_lines
from mlaot.tokenizers.packing import pack
from mlaot.tokenizers.rows import Rows
from mlaot.tokenizers.text_steps import TextStep
from mlaot.tokenizers.vectorizer import Vectorizer

FASTER = (FIT_BEGIN, FIT_STEP, FIT_END, READ_TEXTS)  # entries that only make others faster
# The tables of characters that a packed tokenizer has itself.
UNICODE = ("combining", "decompositions", "compositions")
AUTOMATON = ("mlaot.tokenizers.automaton", "Automaton")
VECTORIZER, TEXT_STEPS = "mlaot.tokenizers.vectorizer", "mlaot.tokenizers.text_steps"
ROWS, FRAMES = "mlaot.tokenizers.rows", "mlaot.tokenizers.frames"
# What serves the methods that are no entries; of the others the line of their body.
SERVERS = {
    "set_input": "_set_input",
    "fit": "_fit",
    "run": "_run_session",
    "generate": "_generate",
    "generate_all": "_generate_all",
    "encode": "_encode",
}
BODIES = {
    "backward": "_backward(self)",
    "zero_grad": "_zero_grad(self)",
    "profile": 'raise NotImplementedError("plain Python has no kernels to time; cProfile times its functions")',
    "save": "_save(self, path)",
    "load": "_load(self, path)",
    "set_threads": "return _set_threads(n)",
    "data": "return _scalar(self, i, _PARAMETERS_AT)",
    "grad": "return _scalar(self, i, _GRADIENTS_AT)",
    "get_inputs": "return _described(_SESSION_INPUTS)",
    "get_outputs": "return _described(_SESSION_OUTPUTS)",
    "get_providers": 'return ["CPUExecutionProvider"]',
    "rewind": "_rewind(self, length)",
    "decode": "return _decode(tokens)",
}
ATTRIBUTES = {
    "parameters": '_slots(self, "parameter")',
    "gradients": '_slots(self, "parameter", gradients=True)',
    "flat_parameters": "_flat(self, _PARAMETERS_AT)",
    "flat_gradients": "_flat(self, _GRADIENTS_AT)",
    "buffers": '_slots(self, "buffer")',
}


@dataclass(frozen=True)
class PythonMethod:
    """A method for the template: its signature after ``self``, its docstring, and its body or the function it calls."""

    name: str
    signature: str
    doc: list[str]
    server: str
    body: str


def render_python(program: Program) -> str:
    """Return the file of a module in plain Python."""
    module = program.module
    entries = tuple(entry for entry in module.entries if entry.name not in FASTER)
    module = replace(module, entries=entries)
    check(module)
    procedures = tuple(p for p in program.procedures if p.entry.name not in FASTER)
    kernels = python_kernels(Program(module, procedures))
    fit = make_fit(module)
    served = module if fit is None else fit.added_to(module)
    extents = Extents(served)
    dims = {name: dim_name(name) for name in extents.dims}
    functions = methods(module, fit, bool(scalar_offsets(module)))
    anew = [method.name for method in functions if not method.in_module]
    public = [*(a.name for a in attributes(module)), *(method.name for method in functions)]
    text = render(
        "python/module.py.j2",
        module=module.name,
        module_doc=f"{module.name}: {PLAIN_PYTHON}.",
        repr=repr,
        number=int,
        version=repr(module.version) if module.version else "",
        has_state=bool(module.slots),
        has_gradients=has_gradients(module),
        is_prepared=module.is_prepared,
        scalars=bool(scalar_offsets(module)),
        verbs=module.phases is not None,
        fit=fit,
        fit_refusal=repr(fit.refusal) if fit else "",
        session="file_names" in module.info,
        **text_parts(module),
        frames=list(map(frame_text, rows_of(module))),
        vectorizers=[list(map(vectorizer_text, port)) for port in vectorizers_of(module)],
        vectorizer_definitions=definitions([(VECTORIZER, name) for name in ("Vectorizer", "rows")], ()),
        has_steps=bool(steps_of(module)),
        step_definitions=definitions([AUTOMATON, *((TEXT_STEPS, name) for name in ("TextStep", "Column", "made"))], ()),
        kernels=kernels.texts,
        dims=tuple(dims.values()),
        named=dims,
        parameters=", ".join(dims.values()),
        extents=", ".join(f"{shown(extent)!r}: {index(extent, dims)}" for extent in extents.all),
        entries=[entry_text(extents, entry, dims, vectorizers_of(module), rows_of(module)) for entry in served.entries],
        known={"_PHASES": PHASES, "_FIT": "fit", "_PREPARE": PREPARE},
        names=[entry.name for entry in served.entries],
        constants=constants(module, fit),
        slots=[slot_text(slot) for slot in saved(module)],
        golden=[golden_text(module, extents, dims, call) for call in module.golden if call.entry not in FASTER],
        info=[repr(line) for line in lines_of(json.dumps(describe(module)), 108)],
        weights=weights_text(module.constants),
        initial=weights_text(module.initial),
        model_doc=model_doc(module),
        attribute_slots=slots_of(module),
        attributes=attributes(module),
        attribute_values=ATTRIBUTES,
        methods=[python_method(method) for method in functions],
        frozen=repr(
            f"the weights of {module.name} are frozen; for others build it with frozen = false in its table"
            " [tool.mlaot.models.<name>]"
        ),
        public=[name for name in public if name not in anew],
        of_new_models=anew,
    )
    check_names(module, text, public)
    return text


def check_names(module: ExtensionModule, text: str, public: Iterable[str]) -> None:
    """Raise ``MlaotError`` for an entry that has the name of something that the file defines."""
    defined = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for name in public:
        if name in defined:
            raise MlaotError(
                f"{module.name}: an entry cannot be called {name!r}: the module in Python has that attribute"
            )


def entry_text(
    extents: Extents, entry: Entry, dims: dict[str, str], known: Sequence[Vectorizers], rows: Sequence[Rows]
) -> str:
    """Format an entry of the table.

    ``known`` lists the vectorizers of all inputs, and ``rows`` what makes rows of tokens.
    """
    kernel = {"fit": "train_step"}.get(entry.name, entry.name)
    parts = ("_forward", "_backward") if entry.split else ("",)
    solves = [
        (s.input, s.axis, shown(extents.all[s.extent]), extents.dims[s.dim] if s.dim >= 0 else None)
        for s in extents.solves(entry)
    ]
    fields = {
        "inputs": tuple_text(port_text(port, known, rows_text(entry, port, rows)) for port in entry.inputs),
        "outputs": tuple_text(port_text(port, known) for port in entry.results),
        "run": tuple_text(f"_{kernel}{part}_python" for part in parts),
        "workspace": f"lambda {', '.join(dims.values())}: {index(parse(entry.workspace), dims)}",
        "solves": repr(tuple(solves)),
        "bounds": repr(tuple((shown(extents.all[b.extent]), b.least) for b in extents.bounds(entry))),
        "is_scalar": str(is_scalar(entry)),
        "gives_numbers": str(gives_numbers(entry)),
        "is_named": str(entry.named),
        "counts": repr(
            tuple(
                (count.dim, written(parse(count.most)), tuple((shown(need), 0) for need in count.needs))
                for count in entry.counts
            )
        ),
        "refusals": repr(entry.refusals),
    }
    given = [f"        {name}={value},\n" for name, value in fields.items() if value not in ("()", "False")]
    return f'_Entry(\n        "{entry.name}",\n{"".join(given)}    )'


def tuple_text(items: Iterable[str]) -> str:
    """Format a tuple of texts."""
    items = tuple(items)
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def rows_text(entry: Entry, port: Port, rows: Sequence[Rows]) -> tuple[str, ...]:
    """Format the fields of a port whose numbers are tokens of texts."""
    if port.rows is None:
        return ()
    most = longest_row(entry, port)
    return (f"frame=_FRAMES[{rows.index(port.rows)}], tokens={len(port.rows.tokenizer.tokens)}, longest={most}",)


def port_text(port: Port, known: Sequence[Vectorizers], of_rows: Sequence[str] = ()) -> str:
    """Format a port of the table.

    ``known`` lists the vectorizers of all inputs; ``of_rows`` is the result of ``rows_text``.
    """
    more = [f"default={float(port.default)!r}"] if port.default is not None else []
    more += ["converts=True"] if port.converts else []
    more += [f"strings={port.strings!r}"] if port.strings else []
    more += ["further=True"] if port.further else []
    more += ["is_map=True"] if port.map else []
    more += [f"dates={port.dates!r}, tick={port.tick}"] if port.dates else []
    more += [f"vectorizers=_VECTORIZERS[{known.index(port.vectorizers)}]"] if port.vectorizers else []
    more += [f"{name}={step_text(step)}" for name, step in (("made", port.made), ("then", port.then)) if step]
    more += of_rows
    more += [f"ranges={tuple_text(map(range_text, port.ranges))}"] if port.ranges else []
    more += [f"room={written(parse(port.room))!r}"] if port.room else []
    shape = tuple(written(parse(extent)) for extent in port.shape)
    return f"_Port({', '.join([repr(port.name), repr(port.dtype), repr(shape), *more])})"


def step_text(step: TextStep) -> str:
    """Format a step of texts, and the steps whose results it takes."""
    of = tuple_text(step_text(of) if isinstance(of, TextStep) else repr(of) for of in step.of)
    rows = tuple_text(
        f"(_automaton_Automaton({a.width}, {a.first!r}, {a.pages}, {a.classes!r}, {a.table}), {starts})"
        for a, starts in step.patterns
    )
    return f"_text_steps_TextStep({step.kind!r}, {of}, {step.texts}, {step.numbers}, {rows}, {step.dtype!r})"


def range_text(range_: IndexRange) -> str:
    """Format the range of indices."""
    box = tuple(None if s is None else (written(s[0]), written(s[1]), s[2]) for s in range_.box)
    return f"_Range({written(range_.size)!r}, {range_.wraps}, {range_.ignored}, {box!r})"


def written(extent: Dim) -> int | str:
    """Format an extent as in a shape."""
    return extent if isinstance(extent, int) else shown(extent)


def index(extent: Dim, dims: dict[str, str]) -> str:
    """Format an extent as an expression of the dims."""
    return index_text(rename_dims(extent, {name: dim(own) for name, own in dims.items()}))[0]


def constants(module: ExtensionModule, fit: Fit | None) -> dict[str, object]:
    """Return the other constants of the runtime by name."""
    result: dict[str, object] = {}
    if module.slots or module.is_prepared:
        result["_STATE_BYTES"] = whole_lines(module.state_bytes)
    if module.slots:
        files = in_file(module)
        result["_TENSORS"] = repr(tensors_head(saved(module), base_of(module)))
        result["_FILE_TENSORS"] = "_TENSORS" if files == saved(module) else repr(tensors_head(files, base_of(module)))
        result |= {"_NEEDED_SLOTS": needed(module), "_FILE_SLOTS": len(files), "_BASE": repr(base_of(module))}
    if has_gradients(module):
        region = flat_region(module)
        dtype = str(region["dtype"]).lower()
        result |= {"_FLAT_DTYPE": repr(dtype), "_FLAT_COUNT": region["count"]}
        result |= {"_PARAMETERS_AT": region["parameters_at"], "_GRADIENTS_AT": region["gradients_at"]}
    if scalar_offsets(module):
        result |= {"_SCALARS": len(scalar_offsets(module)), "_SCALAR_RUNS": tuple(scalar_runs(module))}
    if fit is not None and not fit.refusal:
        result |= {"_FIT_BATCH": fit.batch, "_FIT_ROWS": repr(fit.rows), "_FIT_EXAMPLES": repr(fit.examples)}
    if "file_names" in module.info:
        result |= session_constants(module)
    if module.generation is not None:
        result |= text_constants(module, module.generation)
    return result


def text_constants(module: ExtensionModule, generation: Generation) -> dict[str, object]:
    """Return the constants that reading a text needs."""
    at = {slot.name: slot.offset for slot in module.slots}
    return {
        **{"_TEXT_ENTRY": repr(generation.entry), "_TEXT_CONTEXT": generation.context},
        **{"_TEXT_TOKENS": generation.tokens, "_TEXT_SLIDES": generation.slides, "_TEXT_ENDS": generation.ends},
        **{"_TEXT_REREADS": generation.rereads, "_TEXT_SEEN": repr(dim_name(SEEN))},
        **{"_TEXT_PLACE_AT": at["place"], "_TEXT_LENGTH_AT": at["length"], "_TEXT_TOKENS_AT": at["text"]},
    }


def text_parts(module: ExtensionModule) -> dict[str, object]:
    """Return the values that the templates of texts and tokens need."""
    generation, tokenizer = module.generation, b"" if module.generation is None else module.generation.tokenizer
    packed = {tokenizer, *(pack(rows.tokenizer) for rows in rows_of(module))} - {b""}
    if len(packed) > 1 or (generation is not None and rows_of(module)):
        raise MlaotError(f"{module.name}: a module in plain Python has one tokenizer, of what it reads or writes")
    fields = ("busy", "drawn", "ended", "how", "left", "length", "model", "stops")
    return {
        "has_text": generation is not None,
        "texts": 1 if generation is None else generation.texts,
        "generation_slots": tuple(f"_{field}" for field in (*fields, *(("first", "held") if tokenizer else ()))),
        "tokenizer": base64_text(b"".join(packed)),
        "definitions": tokenizer_text(bool(rows_of(module))) if packed else (),
        "unicode": UNICODE,
    }


def tokenizer_text(has_rows: bool = False) -> list[str]:
    """Return the definitions that unpack a tokenizer, given those of its character tables."""
    given = {renamed(("mlaot.tokenizers.unicode", name)) for name in UNICODE}
    roots = [("mlaot.tokenizers.unpacking", name) for name in ("unpack", *UNICODE)]
    return definitions([*roots, *([(ROWS, "Rows"), (ROWS, "END"), (FRAMES, "Frame")] if has_rows else [])], given)


def frame_text(rows: Rows) -> str:
    """Format the frame of texts: the tokens before and after each of them."""
    values = (f"{each.name}={getattr(rows.frame, each.name)!r}" for each in fields(rows.frame))
    return f"_frames_Frame({', '.join(values)})"


def vectorizer_text(vectorizer: Vectorizer) -> dict[str, object]:
    """Describe a vectorizer for the template: its fields, and its terms in order as lines of text."""
    names = [each.name for each in fields(vectorizer) if each.name not in ("places", "stop_words")]
    kept = {name: repr(getattr(vectorizer, name)) for name in names}
    kept["stop_words"] = f"frozenset({sorted(vectorizer.stop_words)})"
    terms = [repr(term) for term in sorted(vectorizer.places, key=vectorizer.places.__getitem__)]
    return {
        "fields": ", ".join(f"{name}={value}" for name, value in kept.items()),
        "terms": [f"{', '.join(terms[i : i + 8])}," for i in range(0, len(terms), 8)],
    }


def session_constants(module: ExtensionModule) -> dict[str, object]:
    """Return the constants of a session: the file's names, and its inputs and outputs in JSON."""
    names = module.info["file_names"]
    assert isinstance(names, dict)
    (entry,) = (entry for entry in module.entries if entry.name == "forward")
    result: dict[str, object] = {}
    for kind, ports in (("INPUTS", entry.asked), ("OUTPUTS", entry.results)):
        result[f"_FILE_{kind}"] = tuple(names[port.name] for port in ports)
        result[f"_SESSION_{kind}"] = repr(onnx_ports(ports, names))
    return result


def slot_text(slot: Slot) -> str:
    """Format a slot of the table."""
    size = DTYPES[slot.dtype].itemsize
    strides = tuple(stride * size for stride in slot.strides)
    fields = (state_name(slot), slot.kind, slot.dtype, slot.shape, strides, slot.offset, slot.gradient_offset)
    return f"_Slot({', '.join(map(repr, fields))})"


def golden_text(module: ExtensionModule, extents: Extents, dims: dict[str, str], call: Golden) -> str:
    """Format a golden call: values of the dims, how inputs are drawn, and the bounds and sums of the outputs."""
    values = dict(zip(module.dims, call.dims, strict=True))
    draws = tuple((draw.low, draw.width, draw.seed, draw.content) for draw in call.draws)
    return repr((call.entry, tuple(values.get(name, 1) for name in extents.dims), draws, call.outputs))


def weights_text(content: bytes | bytearray) -> str:
    """Format weights as lines of base64, with padding to whole cache lines."""
    return base64_text(bytes(content).ljust(whole_lines(len(content)), b"\0"))


def base64_text(content: bytes) -> str:
    """Format bytes as lines of base64."""
    return "\n".join(lines_of(base64.b64encode(content).decode(), 120))


def lines_of(text: str, width: int) -> list[str]:
    """Cut a long text into lines."""
    return [text[i : i + width] for i in range(0, len(text), width)]


def slots_of(module: ExtensionModule) -> tuple[str, ...]:
    """Return the names of the attributes that a ``Model`` object has."""
    state = ("_memory", "_process", "_turn") if module.slots else ()
    held = ("_held",) if module.phases is not None else ()
    return ("__weakref__", *state, *held, *(f"_{attribute.name}" for attribute in attributes(module)))


def python_method(method: Method) -> PythonMethod:
    """Describe a method for the template."""
    server = "_call_entry" if method.is_entry else SERVERS.get(method.name, "")
    return PythonMethod(
        method.name,
        method.signature,
        docstring(method.doc.split("\n")),
        server,
        "" if server else BODIES[method.name],
    )
