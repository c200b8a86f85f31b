"""Program to the extension module: everything of a compiled model but its kernels.

``render_interface`` gives the files that Python sees: the module's C, its header, the stable-ABI header, the typed stub
and the weights. The templates walk tables; this file prepares the tables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod

from ..errors import MlaotError
from ..render import render, template_text
from .program import Entry, Module, Port, Slot

# Weights up to this size are written as text, larger ones are embedded by the assembler.
TEXT_LIMIT = 64 * 1024

# Dtypes as the C tables, the user and safetensors call them, and their bytes.
DTYPES = {
    "f32": ("F32", "float32", 4),
    "f64": ("F64", "float64", 8),
    "i32": ("I32", "int32", 4),
    "i64": ("I64", "int64", 8),
    "u8": ("U8", "uint8", 1),
    "bool": ("BOOL", "bool", 1),
}

ISA_LEVELS = {"base": 1, "v3": 3, "v4": 4}

# Entries that return a Python float.
SCALAR_ENTRIES = ("loss", "train_step")

# What a module has besides its entries, in Python or in C.
RESERVED = (
    *("backward", "set_input", "zero_grad", "data", "grad", "save", "load", "info", "selftest"),
    *("parameters", "gradients", "flat_parameters", "flat_gradients"),
    *("new", "make", "dealloc", "traverse", "attribute", "exec", "clear", "free"),
)


@dataclass(frozen=True)
class Method:
    """A function of the module and of Model, as C and Python see it."""

    name: str
    signature: str
    doc: str
    lines: tuple[str, ...]
    flags: str = "METH_O"
    parameters: str = "PyObject *argument"
    arguments: str = "argument"
    entry: str = ""
    held: str = ""


def render_interface(module: Module) -> dict[str, str | bytes]:
    """The files of a module but for its kernels, by name."""
    check(module)
    stem = module.name.rpartition(".")[2]
    weights, initial_at, scalars_at = pack_weights(module)
    context = {
        "module": module.name,
        "stem": stem,
        "training": bool(module.slots),
        "verbs": any(entry.name == "accumulate" for entry in module.entries),
        "split": any(entry.name == "accumulate" and entry.split for entry in module.entries),
        "module_doc": c_text(f"{module.name}: a model compiled by mlaot."),
        "model_doc": model_doc(module),
    }
    prototypes = [f"{stem}_{kernel}_{isa}" for isa in module.isas for kernel in kernel_names(module)]
    module_text = render(
        "nn.c.j2",
        **context,
        **tables(module, stem),
        methods=methods(module),
        initial_at=initial_at,
        initial_bytes=len(module.initial),
        scalars_at=scalars_at,
        scalars=len(scalar_offsets(module)),
        scalar_runs=len(scalar_runs(module)),
        weights_text=weights_text(weights) if len(weights) <= TEXT_LIMIT else (),
    )
    dim_list = "the values of " + ", ".join(module.dims) if module.dims else "not used"
    header = render("nn.h.j2", **context, prototypes=prototypes, dim_list=dim_list, guard=f"{stem.upper()}_H")
    return {
        f"{stem}.c": module_text,
        f"{stem}.h": header,
        "mlaot_abi3.h": template_text("mlaot_abi3.h"),
        f"{stem}.pyi": render_stub(module, context),
        "weights.bin": weights,
    }


def check(module: Module) -> None:
    """Refuse what the user can mend; assert what lowering promised."""
    for entry in module.entries:
        if entry.name in RESERVED:
            raise MlaotError(f"{module.name}: an entry cannot be called {entry.name!r}: every module has that already")
        for port in entry.inputs:
            if port.name == "out":
                raise MlaotError(f"{module.name}: an input of {entry.name} cannot be called 'out': results go there")
            assert port.default is None or port.shape == (), f"bug in mlaot: {port.name} has a default but is no scalar"
        if entry.name == "accumulate":
            assert module.slots, "bug in mlaot: the entry accumulate needs parameters"
        if entry.name in SCALAR_ENTRIES:
            shapes = [port.shape for port in entry.outputs]
            assert shapes == [()], f"bug in mlaot: {entry.name} does not give one number"
    assert bool(module.slots) == (module.state_bytes > 0), "bug in mlaot: state without parameters, or the reverse"
    assert len(module.initial) <= module.state_bytes, "bug in mlaot: the start of the state is longer than the state"
    assert "base" in module.isas, "bug in mlaot: every module has the isa 'base'"


# ------------------------------------------------------------------------------------------------------------- weights


def pack_weights(module: Module) -> tuple[bytes, int, int]:
    """The weights file, and where in it the start of the state and the scalar table lie (constants lie at 0)."""
    initial_at = round_up(len(module.constants))
    scalars_at = round_up(initial_at + len(module.initial))
    table = b"".join(value.to_bytes(4, "little", signed=True) for run in scalar_runs(module) for value in run)
    data = module.constants.ljust(initial_at, b"\0") + module.initial
    data = data.ljust(scalars_at, b"\0") + table
    return data.ljust(max(round_up(len(data)), 64), b"\0"), initial_at, scalars_at


def round_up(size: int) -> int:
    """The next multiple of 64."""
    return (size + 63) & ~63


def weights_text(weights: bytes) -> list[str]:
    """Lines of a C array of 64-bit words."""
    words = [f"0x{int.from_bytes(weights[i : i + 8], 'little'):x}u," for i in range(0, len(weights), 8)]
    return [" ".join(words[i : i + 5]) for i in range(0, len(words), 5)]


def scalar_offsets(module: Module) -> list[int]:
    """Element offsets in the flat parameters of the source model's scalar parameters, in its own order."""
    offsets = module.info.get("scalars", ())
    assert isinstance(offsets, tuple | list)
    if not offsets:
        return []
    region = flat_region(module)
    size = DTYPES[module.slots[0].dtype][2]
    assert region["dtype"] != "U8", "bug in mlaot: a scalar model has parameters of several types"
    return [(int(offset) - int(region["parameters_at"])) // size for offset in offsets]


def scalar_runs(module: Module) -> list[tuple[int, int, int]]:
    """The same, run by run: the first scalar of a run, its element offset, and the step from one to the next."""
    runs: list[tuple[int, int, int]] = []
    length = 0
    for i, element in enumerate(scalar_offsets(module)):
        if length == 1:
            first, start, _ = runs[-1]
            runs[-1] = first, start, element - start
            length = 2
        elif length and element == runs[-1][1] + runs[-1][2] * length:
            length += 1
        else:
            runs.append((i, element, 0))
            length = 1
    return runs


# -------------------------------------------------------------------------------------------------------------- tables


def tables(module: Module, stem: str) -> dict[str, object]:
    """The tables of the C file, row by row as C initialisers."""
    ports = [port for entry in module.entries for port in (*entry.inputs, *entry.outputs)]
    ranks = [len(port.shape) for port in ports] + [len(slot.shape) for slot in module.slots]
    kernels = kernel_names(module)
    dims = module.dims if "batch" in module.dims else (*module.dims, "batch")
    isas = sorted(module.isas, key=lambda isa: ISA_LEVELS[isa])
    return {
        "dims": dims,
        "dim_names": ", ".join(f'"{dim}"' for dim in dims),
        "unused": " ".join(f"(void){dim};" for dim in dims),
        "batch": -1 - dims.index("batch"),
        # At least 2, since gcc warns of arrays of one element that a loop walks.
        "max_rank": max([2, *ranks]),
        "max_inputs": max([2, *(len(entry.inputs) for entry in module.entries)]),
        "max_outputs": max([2, *(len(entry.outputs) for entry in module.entries)]),
        "entries": [entry_row(module, entry) for entry in module.entries],
        "entry_names": ", ".join(f"ENTRY_{entry.name.upper()}" for entry in module.entries),
        "kernels": kernels,
        "isas": [
            {
                "name": isa,
                "level": ISA_LEVELS[isa],
                "guard": i == 1,  # all after `base` are of x86-64
                "end_guard": 0 < i == len(isas) - 1,
                "kernels": [f"{stem}_{kernel}_{isa}" for kernel in kernels],
            }
            for i, isa in enumerate(isas)
        ],
        "info": c_lines(json.dumps(describe(module))),
        "slots": [slot_row(slot) for slot in module.slots],
        "tensors": c_lines(tensors_head(module)) if module.slots else (),
        "state_bytes": module.state_bytes,
        "flat": flat_region(module) if module.slots else {},
    }


def kernel_names(module: Module) -> list[str]:
    """The kernels of one instruction set, in the order of the function table."""
    names = []
    for entry in module.entries:
        names += [f"{entry.name}_forward", f"{entry.name}_backward"] if entry.split else [entry.name]
    return names


def entry_row(module: Module, entry: Entry) -> dict[str, object]:
    """An entry for the template."""
    return {
        "name": entry.name,
        "ident": entry.name.upper(),
        "ports": [port_row(module, port) for port in (*entry.inputs, *entry.outputs)],
        "inputs": len(entry.inputs),
        "outputs": len(entry.outputs),
        "tile": entry.tile,
        "scalar": "true" if entry.name in SCALAR_ENTRIES else "false",
        "kernel": kernel_names(module).index(f"{entry.name}_forward" if entry.split else entry.name),
        "workspace": entry.workspace,
        "work": entry.work,
    }


def port_row(module: Module, port: Port) -> str:
    """A port as a C initialiser."""
    extents = [extent if isinstance(extent, int) else -1 - module.dims.index(extent) for extent in port.shape]
    shape = ", ".join(str(extent) for extent in extents or [0])
    default = "false, 0" if port.default is None else f"true, {float(port.default)!r}"
    c_name = DTYPES[port.dtype][0]
    return f'{{"{port.name}", {c_name}, {len(port.shape)}, {{{shape}}}, {port.limit or 0}, {default}}}'


def slot_row(slot: Slot) -> str:
    """A parameter as a C initialiser."""
    c_name, _, size = DTYPES[slot.dtype]
    shape = ", ".join(str(extent) for extent in slot.shape) or "0"
    strides = ", ".join(str(stride * size) for stride in slot.strides) or "0"
    return (
        f'{{"{c_text(slot.name)}", {c_name}, {len(slot.shape)}, {{{shape}}}, {{{strides}}}, '
        f"{slot.offset}, {slot.gradient_offset}}}"
    )


def flat_region(module: Module) -> dict[str, int | str]:
    """Where all parameters lie together, padding included, and their gradients in the same order."""
    slots = module.slots
    start = min(slot.offset for slot in slots)
    end = max(slot.offset + extent(slot) for slot in slots)
    distances = {slot.gradient_offset - slot.offset for slot in slots}
    assert len(distances) == 1, "bug in mlaot: gradients do not lie in the order of their parameters"
    (distance,) = distances
    assert distance >= end - start, "bug in mlaot: parameters and gradients overlap"
    assert end + distance <= module.state_bytes, "bug in mlaot: the state is shorter than its slots"
    same = len({slot.dtype for slot in slots}) == 1
    c_name, _, size = DTYPES[slots[0].dtype if same else "u8"]
    return {"dtype": c_name, "count": (end - start) // size, "parameters_at": start, "gradients_at": start + distance}


def extent(slot: Slot) -> int:
    """The bytes from a slot's first number to the end of its last."""
    if 0 in slot.shape:
        return 0
    steps = sum((n - 1) * stride for n, stride in zip(slot.shape, slot.strides, strict=True))
    return (steps + 1) * DTYPES[slot.dtype][2]


def tensors_head(module: Module) -> str:
    """The JSON head of a safetensors file, padded so that the data start on a multiple of 8."""
    head: dict[str, object] = {}
    at = 0
    for slot in module.slots:
        c_name, _, size = DTYPES[slot.dtype]
        end = at + prod(slot.shape) * size
        head[slot.name] = {"dtype": c_name, "shape": list(slot.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(head, separators=(",", ":"))
    return text.ljust((len(text) + 7) // 8 * 8)


def describe(module: Module) -> dict[str, object]:
    """What ``info()`` says, but for the instruction set in use."""
    info = {key: value for key, value in module.info.items() if key != "scalars"}
    info["name"] = module.name
    info["entries"] = {
        entry.name: {
            "inputs": {port.name: type_text(port.dtype, port.shape) for port in entry.inputs},
            "outputs": {port.name: type_text(port.dtype, port.shape) for port in entry.outputs},
        }
        for entry in module.entries
        if entry.name != "accumulate"
    }
    info["parameters"] = {slot.name: type_text(slot.dtype, slot.shape) for slot in module.slots}
    info["parameter_count"] = sum(prod(slot.shape) for slot in module.slots)
    info["bytes"] = {"constants": len(module.constants), "state": module.state_bytes}
    info["isas"] = list(module.isas)
    return info


def type_text(dtype: str, shape: tuple[int | str, ...]) -> str:
    """``float32[batch, 784]``"""
    extents = ", ".join(str(extent) for extent in shape)
    return DTYPES[dtype][1] + (f"[{extents}]" if shape else "")


# ------------------------------------------------------------------------------------------------------------- methods


def methods(module: Module) -> list[Method]:
    """The functions of the module, which are also the methods of Model."""
    verbs = any(entry.name == "accumulate" for entry in module.entries)
    found = [entry_method(entry, verbs) for entry in module.entries if entry.name != "accumulate"]
    for entry in module.entries:
        if entry.name == "accumulate":
            found += verb_methods(entry)
    if module.slots:
        path = "path: str | bytes | PathLike[Any]"
        found += [
            no_argument_method("zero_grad", "Set all gradients to zero."),
            one_argument_method("save", path, "None", "Write the parameters as safetensors."),
            one_argument_method("load", path, "None", "Read the parameters from safetensors."),
        ]
    if scalar_offsets(module):
        found += [
            one_argument_method("data", "i: int", "float", "Scalar parameter number i of the source model."),
            one_argument_method("grad", "i: int", "float", "The gradient of scalar parameter number i."),
        ]
    return found


FAST = {
    "flags": "METH_FASTCALL | METH_KEYWORDS",
    "parameters": "PyObject *const *args, Py_ssize_t count, PyObject *names",
    "arguments": "args, count, names",
}


def entry_method(entry: Entry, verbs: bool) -> Method:
    """The method of an entry; forward and loss also work on what set_input() stored."""
    held = {"forward": "forward_held", "loss": "loss_held"}.get(entry.name, "") if verbs else ""
    takes_out = bool(entry.outputs) and entry.name not in SCALAR_ENTRIES
    ports = ", ".join(plain_port(port) for port in entry.inputs)
    typed = ", ".join(typed_port(port) for port in entry.inputs)
    result = result_type(entry)
    optional = ", ".join(f"{port.name}=..." for port in entry.inputs) if held else ports
    lines = [f"def {entry.name}({typed}) -> {result}: ..."]
    if takes_out:
        typed = f"{typed}, *, " if typed else "*, "
        lines = [
            f"def {entry.name}({typed}out: None = None) -> {result}: ...",
            f"def {entry.name}({typed}out: _Out) -> _Out: ...",
        ]
    if held:
        lines.append(f"def {entry.name}() -> {result}: ...")
    types = entry_types(entry)
    lines[0] = lines[0].removesuffix(" ...")
    documented = (lines[0], f'    """{types}"""', *lines[1:])
    if len(lines) > 1:
        documented = tuple(text for line in documented for text in (["@overload", line] if line[0] == "d" else [line]))
    tail = ", *, out=None" if takes_out else ""
    doc = c_text(f"{entry.doc}\n\n{types}" if entry.doc else types)
    signature = f", /, {optional}{tail}" if optional else ", /" + tail
    return Method(entry.name, signature, doc, documented, entry=entry.name.upper(), held=held, **FAST)


def entry_types(entry: Entry) -> str:
    """``x: float32[batch, 784] -> y: float32[batch, 10]``"""
    inputs = ", ".join(f"{port.name}: {type_text(port.dtype, port.shape)}" for port in entry.inputs)
    outputs = ", ".join(f"{port.name}: {type_text(port.dtype, port.shape)}" for port in entry.outputs)
    return f"{inputs} -> {outputs or None}"


def plain_port(port: Port) -> str:
    """A parameter of the text signature."""
    return port.name if port.default is None else f"{port.name}={float(port.default)!r}"


def typed_port(port: Port) -> str:
    """A parameter of the stub."""
    return f"{port.name}: _Data" if port.default is None else f"{port.name}: float = {float(port.default)!r}"


def result_type(entry: Entry) -> str:
    """What an entry returns, in the stub."""
    if entry.name in SCALAR_ENTRIES:
        return "float"
    many = len(entry.outputs)
    return "None" if many == 0 else "Array" if many == 1 else f"tuple[{', '.join(['Array'] * many)}]"


def verb_methods(accumulate: Entry) -> list[Method]:
    """set_input() and backward(); forward() and loss() are found among the entries."""
    names = ", ".join(port.name for port in accumulate.inputs)
    typed = ", ".join(typed_port(port) for port in accumulate.inputs)
    return [
        Method(
            "set_input",
            f", /, {names}",
            "Keep a copy of the inputs for forward(), loss() and backward().",
            (f"def set_input({typed}) -> None: ...",),
            **FAST,
        ),
        no_argument_method("backward", "Add the gradients of what forward() computed to `gradients`."),
    ]


def no_argument_method(name: str, doc: str) -> Method:
    """A method without arguments."""
    return Method(name, ", /", doc, (f"def {name}() -> None: ...",), "METH_NOARGS", "PyObject *unused", "unused")


def one_argument_method(name: str, argument: str, result: str, doc: str) -> Method:
    """A method with one positional argument."""
    return Method(name, f", {argument.partition(':')[0]}, /", doc, (f"def {name}({argument}, /) -> {result}: ...",))


def model_doc(module: Module) -> str:
    """The docstring of Model."""
    return "An instance with parameters of its own." if module.slots else "An instance with memory of its own."


def render_stub(module: Module, context: dict[str, object]) -> str:
    """The typed stub."""
    functions = [line for method in methods(module) for line in method.lines]
    return render("nn.pyi.j2", **context, functions=functions, methods=[as_method(line) for line in functions])


def as_method(line: str) -> str:
    """A line of a function of the stub as one of a method."""
    if not line.startswith("def "):
        return line
    return line.replace("()", "(self)", 1) if "()" in line.partition(" -> ")[0] else line.replace("(", "(self, ", 1)


# ------------------------------------------------------------------------------------------------------------------ C


def c_text(text: str) -> str:
    """Text for the inside of a C string literal."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(char if " " <= char <= "~" else "".join(f"\\{byte:03o}" for byte in char.encode()) for char in text)


def c_lines(text: str) -> list[str]:
    """A long text as C string literals, one a line."""
    return [f'"{c_text(text[i : i + 72])}"' for i in range(0, len(text), 72)]
