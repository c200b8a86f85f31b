"""Program to the extension module: everything of a compiled model but its kernels.

``render_interface`` gives the files that Python sees: the module's C, its header, the stable-ABI header, the typed stub
and the weights. The templates walk tables; this file prepares the tables.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from mlaot.binding.c_library import render_library
from mlaot.binding.extents import Extents, shown
from mlaot.binding.fit import Fit, make_fit
from mlaot.binding.methods import (
    HIDDEN,
    KINDS,
    c_text,
    gives_numbers,
    is_scalar,
    methods,
    model_doc,
    render_stub,
    type_text,
)
from mlaot.errors import MlaotError
from mlaot.ir.indices import IndexRange
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry, Module, Port, Slot
from mlaot.printing.identifiers import c_expression, dim_name
from mlaot.render import render, template_text
from mlaot.schedule.machine import LINE, MACHINES, condition, whole_lines
from mlaot.settings import WEIGHTS

# Weights up to this size are written as text, larger ones are embedded by the assembler.
TEXT_LIMIT = 64 * 1024
# Unless settings say so, larger ones go into a file of their own.
INSIDE_LIMIT = 64 << 20
DIGEST_BYTES = 64  # such a file begins with the SHA-256 of the rest, in hexadecimal

# What a module has besides its entries, and the names that its stub uses.
RESERVED = (
    *("backward", "set_input", "zero_grad", "data", "grad", "save", "load", "info", "selftest", "Model", "Array"),
    *("InferenceSession", "run", "get_inputs", "get_outputs", "get_providers"),
    *("fit", "set_threads", "parameters", "gradients", "flat_parameters", "flat_gradients", "buffers"),
    *(
        "Any",
        "Buffer",
        "Callable",
        "EllipsisType",
        "Iterator",
        "Mapping",
        "MappingProxyType",
        "PathLike",
        "Protocol",
        "Sequence",
        "SupportsIndex",
        "TypeAlias",
        "TypeVar",
    ),
    *(
        "bool",
        "bytes",
        "dict",
        "final",
        "float",
        "int",
        "memoryview",
        "object",
        "overload",
        "property",
        "slice",
        "str",
        "tuple",
    ),
)


@dataclass(frozen=True)
class Attribute:
    """An attribute of the module and of Model: its type in the stub, its docstring, and the C that makes it."""

    name: str
    type: str
    doc: str
    make: str


PARAMETERS = (
    Attribute(
        "parameters",
        "MappingProxyType[str, Array]",
        "Name -> Array that looks into this model's parameters.",
        "make_mapping(self, PARAMETER, false)",
    ),
)
TRAINED = (
    Attribute(
        "gradients",
        "MappingProxyType[str, Array]",
        "Name -> Array that looks into this model's gradients.",
        "make_mapping(self, PARAMETER, true)",
    ),
    Attribute(
        "flat_parameters",
        "Array",
        "All parameters as they lie in memory, padding included.",
        "make_flat(self, PARAMETERS_AT)",
    ),
    Attribute(
        "flat_gradients",
        "Array",
        "All gradients as they lie in memory, padding included.",
        "make_flat(self, GRADIENTS_AT)",
    ),
)
BUFFERS = (
    Attribute(
        "buffers",
        "MappingProxyType[str, Array]",
        "Name -> Array that looks into this model's buffers: state that is not trained.",
        "make_mapping(self, BUFFER, false)",
    ),
)


def render_interface(module: Module, *, c_library: bool = False) -> dict[str, str | bytes]:
    """The files of a module but for its kernels, by name; ``c_library``: with those of a library for C."""
    check(module)
    stem = module.stem
    parts, initial_at, scalars_at = weights_parts(module)
    weights_bytes = sum(map(len, parts))
    weights_digest = digest(parts)
    is_file = module.weights == "file" or (module.weights == "auto" and weights_bytes > INSIDE_LIMIT)
    weights_file = f"{stem}.weights" if is_file else ""
    trains = any(slot.gradient_offset >= 0 for slot in module.slots)
    fit = make_fit(module)
    context = {
        "module": module.name,
        "stem": stem,
        "prefix": module.prefix,
        "stateful": bool(module.slots),
        "threads": module.threads,
        "trains": trains,
        "attributes": (
            *(PARAMETERS if of_kind(module, "parameter") else ()),
            *(TRAINED if trains else ()),
            *(BUFFERS if of_kind(module, "buffer") else ()),
        ),
        "verbs": any(entry.name == "accumulate" for entry in module.entries),
        "named": any(entry.named for entry in module.entries),
        "refuses": any(entry.refusals for entry in module.entries),
        "converts": any(port.converts for entry in module.entries for port in entry.inputs),
        "split": any(entry.name == "accumulate" and entry.split for entry in module.entries),
        "fit": fit,
        "session": session(module),
        "module_doc": c_text(f"{module.name}: a model compiled by mlaot."),
        "model_doc": model_doc(module),
        "version": c_text(module.version),
    }
    found = methods(module, fit, bool(scalar_offsets(module)))
    prototypes = [f"{module.prefix}_{kernel}_{isa}" for isa in module.isas for kernel in kernel_names(module)]
    data = {
        **tables(module, fit),
        "initial_at": initial_at,
        "initial_bytes": len(module.initial),
        "scalars_at": scalars_at,
        "scalars": len(scalar_offsets(module)),
        "scalar_runs": len(scalar_runs(module)),
        "weights_text": weights_text(b"".join(parts)) if weights_bytes <= TEXT_LIMIT and not is_file else (),
        "weights_bytes": weights_bytes,
        "weights_file": weights_file,
        "weights_digest": weights_digest,
        "digest_bytes": len(weights_digest),
    }
    dim_list = "the values of " + ", ".join(module.dims) if module.dims else "not used"
    header = render("nn.h.j2", **context, prototypes=prototypes, dim_list=dim_list, guard=f"{stem.upper()}_H")
    return {
        f"{stem}.c": render("nn.c.j2", **context, **data, methods=found),
        f"{stem}.h": header,
        "mlaot_abi3.h": template_text("mlaot_abi3.h"),
        f"{stem}.pyi": render_stub(found, context),
        weights_file or WEIGHTS: b"".join((weights_digest.encode() if is_file else b"", *parts)),
        **(render_library(module, context | data | tables(module, None)) if c_library else {}),
    }


# -------------------------------------------------------------------------------------------------------------- checks


def check(module: Module) -> None:
    """Refuse what the user can mend; assert what lowering promised."""
    for entry in module.entries:
        check_entry(module, entry)
    name, count = Counter(kernel_names(module)).most_common(1)[0]
    if count > 1:
        raise MlaotError(f"{module.name}: several entries lead to a kernel called {name!r}; rename one")
    if module.slots:
        check_state(module)
    else:
        assert module.state_bytes == 0, "bug in mlaot: state without slots"
    assert any(not MACHINES[isa].needs for isa in module.isas), "bug in mlaot: a module that not every CPU can run"


def check_entry(module: Module, entry: Entry) -> None:
    """An entry's name and ports."""
    name = entry.name
    if name in RESERVED:
        raise MlaotError(f"{module.name}: an entry cannot be called {name!r}: every module has that already")
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name) or name.startswith("__"):
        raise MlaotError(f"{module.name}: an entry cannot be called {name!r}: expected an identifier of ASCII letters")
    for port in entry.inputs:
        if port.name == "out":
            raise MlaotError(f"{module.name}: an input of {name} cannot be called 'out': results go there")
        if port.name in ("self", "module"):
            raise MlaotError(f"{module.name}: an input of {name} cannot be called {port.name!r}: methods have that")
        assert port.default is None or port.shape == (), f"bug in mlaot: {port.name} has a default but is no scalar"
    for port in (*entry.inputs, *entry.outputs):
        assert port.dtype != "bf16", f"bug in mlaot: {name}: {port.name} is bfloat16, which no buffer can be"
    if name == "accumulate":
        assert of_kind(module, "parameter"), "bug in mlaot: the entry accumulate needs parameters"
    if name in ("loss", "train_step"):
        assert is_scalar(entry), f"bug in mlaot: {name} does not give one number"


def check_state(module: Module) -> None:
    """The layout of the state: parameters, the other slots, gradients."""
    assert len(module.initial) <= module.state_bytes, "bug in mlaot: the start of the state is longer than the state"
    names = Counter(state_name(slot) for slot in module.slots)
    assert max(names.values()) == 1, f"bug in mlaot: several slots are called {names.most_common(1)[0][0]}"
    end = max((slot.offset + extent(slot) for slot in of_kind(module, "parameter")), default=0)
    for slot in module.slots:
        is_parameter = slot.kind == "parameter"
        assert slot.kind in KINDS, f"bug in mlaot: {slot.name} is of an unknown kind {slot.kind!r}"
        assert is_parameter or slot.gradient_offset < 0, f"bug in mlaot: {slot.name}: only parameters have gradients"
        inside = slot.offset + extent(slot) <= len(module.initial)
        assert inside or slot.offset >= len(module.initial), f"bug in mlaot: {slot.name} has half a start"
        assert is_parameter or slot.offset >= end, f"bug in mlaot: {slot.name} does not lie after the parameters"


# ------------------------------------------------------------------------------------------------------------- weights


def weights_parts(module: Module) -> tuple[list[bytes | bytearray], int, int]:
    """What makes up the weights, one after the other, and where the start of the state and the scalar table lie.

    Constants lie at 0.
    """
    table = b"".join(value.to_bytes(4, "little", signed=True) for run in scalar_runs(module) for value in run)
    initial_at = whole_lines(len(module.constants))
    scalars_at = initial_at + whole_lines(len(module.initial))
    parts: list[bytes | bytearray] = []
    for part in (module.constants, module.initial, table):
        parts += [part, bytes(-len(part) % LINE)]
    return parts if any(parts) else [bytes(LINE)], initial_at, scalars_at


def digest(parts: Iterable[bytes | bytearray]) -> str:
    """The SHA-256 of all parts together."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


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
    size = DTYPES[of_kind(module, "parameter")[0].dtype].itemsize
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


# ------------------------------------------------------------------------------------------------------------- session

# What ONNX calls arrays of a dtype.
ONNX_NAMES = {
    **{"f16": "float16", "f32": "float", "f64": "double", "bool": "bool"},
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}


def session(module: Module) -> dict[str, object]:
    """What a session has to know: the names, types and shapes that the file has; nothing for models of no file."""
    names = module.info.get("file_names")
    if not isinstance(names, dict):
        return {}
    (entry,) = (entry for entry in module.entries if entry.name == "forward")

    def described(ports: Iterable[Port]) -> list[str]:
        found = [
            {"name": names[p.name], "shape": list(p.shape), "type": f"tensor({ONNX_NAMES[p.dtype]})"} for p in ports
        ]
        return c_lines(json.dumps(found))

    return {
        "ports": [{"name": c_text(names[port.name])} for port in (*entry.inputs, *entry.results)],
        "inputs": "\n    ".join(described(entry.inputs)),
        "outputs": "\n    ".join(described(entry.results)),
        "named": entry.named,
        "many": len(entry.results) > 1,
    }


# -------------------------------------------------------------------------------------------------------------- tables


def tables(module: Module, fit: Fit | None) -> dict[str, object]:
    """The tables of the C file, row by row as C initialisers."""
    ports = [port for entry in module.entries for port in (*entry.inputs, *entry.outputs)]
    ranks = [len(port.shape) for port in ports] + [len(slot.shape) for slot in module.slots]
    kernels = kernel_names(module)
    whole = module if fit is None else fit.added_to(module)
    needs = {isa: m.condition(words=module.words) for isa, m in MACHINES.items() if isa in module.isas}
    extents = Extents(whole)
    dims = extents.dims
    return {
        "dims": list(map(dim_name, dims)),
        "expressions": list(enumerate(map(c_expression, extents.all)))[len(dims) :],
        "indexed": indexed(whole),
        "extent_names": [f'"{shown(extent)}"' for extent in extents.all],
        "degrees": ", ".join(map(str, extents.degrees)),
        "unused": " ".join(f"(void){dim_name(name)};" for name in dims),
        "batch": extents.number("batch"),
        # At least 2, since gcc warns of arrays of one element that a loop walks.
        "max_rank": max([2, *ranks]),
        "max_inputs": max([2, *(len(entry.inputs) for entry in module.entries)]),
        "max_outputs": max([2, *(len(entry.outputs) for entry in module.entries)]),
        "entries": [entry_row(module, extents, entry) for entry in whole.entries],
        "entry_names": ", ".join(f"ENTRY_{entry.name}" for entry in whole.entries),
        "rows": extents.number(fit.rows) if fit is not None and not fit.refusal else 0,
        "examples": extents.number(fit.examples) if fit is not None and not fit.refusal else 0,
        "kernels": kernels,
        "words": module.words,
        "registers": max([1, *(len(condition.bits) for condition in needs.values())]),
        "isas": [
            {
                "name": isa,
                "needs": needs[isa],
                "condition": condition(isa, module.isas),
                "kernels": [f"{module.prefix}_{kernel}_{isa}" for kernel in kernels],
            }
            for isa in needs
        ],
        "info": c_lines(json.dumps(describe(module))),
        "golden": golden_rows(module, dims),
        "samples": max([1, *(len(output) - 1 for call in module.golden for output in call.outputs)]),
        "slots": [slot_row(slot) for slot in saved(module)],
        "tensors": c_lines(tensors_head(module)) if module.slots else (),
        "state_bytes": module.state_bytes,
        "flat": flat_region(module) if any(slot.gradient_offset >= 0 for slot in module.slots) else {},
    }


def indexed(module: Module) -> list[dict[str, object]]:
    """The dtypes that indices of callers have, for the template."""
    names = sorted({port.dtype for entry in module.entries for port in entry.inputs if port.ranges})
    ctypes = {"f16": "uint16_t", "f32": "float", "f64": "double"}
    return [
        {
            "name": name,
            "tag": c_dtype(name),
            "ctype": ctypes.get(name, f"{'u' * (name[0] == 'u')}int{name[1:]}_t"),
            "is_float": name in ctypes,
        }
        for name in names
    ]


def golden_rows(module: Module, dims: tuple[str, ...]) -> list[dict[str, object]]:
    """The golden calls: values of the dims, where their answers begin, and these as lines of C, an output each."""
    rows, at = [], 0
    for call in module.golden:
        known = dict(zip(module.dims, call.dims, strict=True))
        lines = [line for output in call.outputs for line in textwrap.wrap(", ".join(map(repr, output)) + ",", 116)]
        rows.append({"entry": call.entry, "dims": [known.get(name, 1) for name in dims], "at": at, "lines": lines})
        at += sum(map(len, call.outputs))
    return rows


def kernel_names(module: Module) -> list[str]:
    """The kernels of one instruction set, in the order of the function table."""
    names = []
    for entry in module.entries:
        names += [f"{entry.name}_forward", f"{entry.name}_backward"] if entry.split else [entry.name]
    return names


def entry_row(module: Module, extents: Extents, entry: Entry) -> dict[str, object]:
    """An entry for the template; C has no empty tables, hence the zeros."""
    solves = [f"{{{s.input}, {s.axis}, {s.extent}, {s.dim}}}" for s in extents.solves(entry)]
    bounds = [f"{{{bound.extent}, {bound.least}}}" for bound in extents.bounds(entry)]
    kernel = {"fit": "train_step"}.get(entry.name, f"{entry.name}_forward" if entry.split else entry.name)
    return {
        "name": entry.name,
        "ports": port_rows(module, extents, entry) or ["{0}"],
        "ranges": [range_row(extents, range_) for port in entry.inputs for range_ in port.ranges],
        "inputs": len(entry.inputs),
        "outputs": len(entry.results),
        "refusals": [c_text(text) for text in entry.refusals],
        "solves": ", ".join(solves) or "{0}",
        "solve_count": len(solves),
        "bounds": ", ".join(bounds) or "{0}",
        "bound_count": len(bounds),
        "tile": entry.tile,
        "scalar": "true" if is_scalar(entry) else "false",
        "numbers": "true" if gives_numbers(entry) else "false",
        "named": entry.named,
        "kernel": kernel_names(module).index(kernel),
        "workspace": c_expression(entry.workspace),
        "work": c_expression(entry.work),
    }


def port_rows(module: Module, extents: Extents, entry: Entry) -> list[str]:
    """The ports of an entry, inputs first."""
    rows, at = [], 0
    none = ", NULL, 0" if indexed(module) else ""
    for port in (*entry.inputs, *entry.results):
        ranges = f", ranges_of_{entry.name} + {at}, {len(port.ranges)}" if port.ranges else none
        rows.append(port_row(extents, port, ranges))
        at += len(port.ranges)
    return rows


def port_row(extents: Extents, port: Port, ranges: str) -> str:
    """A port as a C initialiser, at whose end stands where its ``ranges`` are."""
    shape = ", ".join(str(extents.number(extent)) for extent in port.shape or [0])
    default = "false, 0" if port.default is None else f"true, {float(port.default)!r}"
    converts = "true" if port.converts else "false"
    return f'{{"{port.name}", {c_dtype(port.dtype)}, {len(port.shape)}, {{{shape}}}, {default}, {converts}{ranges}}}'


def range_row(extents: Extents, range_: IndexRange) -> str:
    """A range of indices as a C initialiser."""
    spans = [(0, 0, 0) if s is None else (*[extents.number(str(n)) for n in s[:2]], s[2]) for s in range_.box]
    box = ", ".join(f"{{{', '.join(map(str, span))}}}" for span in spans) or "{0}"
    wraps, ignores = str(range_.wraps).lower(), str(range_.ignored is not None).lower()
    return f"{{{extents.number(str(range_.size))}, {wraps}, {ignores}, {range_.ignored or 0}, {{{box}}}}}"


def slot_row(slot: Slot) -> str:
    """A slot as a C initialiser."""
    size = DTYPES[slot.dtype].itemsize
    shape = ", ".join(str(extent) for extent in slot.shape) or "0"
    strides = ", ".join(str(stride * size) for stride in slot.strides) or "0"
    return (
        f'{{"{c_text(state_name(slot))}", {slot.kind.upper()}, {c_dtype(slot.dtype)}, {len(slot.shape)}, '
        f"{{{shape}}}, {{{strides}}}, {slot.offset}, {slot.gradient_offset}}}"
    )


def c_dtype(dtype: str) -> str:
    """A dtype as the C tables and safetensors call it: ``F32``."""
    return dtype.upper()


def of_kind(module: Module, kind: str) -> list[Slot]:
    """The slots of one kind."""
    return [slot for slot in module.slots if slot.kind == kind]


def saved(module: Module) -> list[Slot]:
    """The slots in the order of a file: parameters, buffers, the optimizer's state."""
    return [slot for kind in KINDS for slot in of_kind(module, kind)]


def state_name(slot: Slot) -> str:
    """What a file calls a slot."""
    return f"optimizer.{slot.name}" if slot.kind == "optimizer" else slot.name


def flat_region(module: Module) -> dict[str, int | str]:
    """Where all parameters lie together, padding included, and their gradients in the same order."""
    slots = of_kind(module, "parameter")
    start = min(slot.offset for slot in slots)
    end = max(slot.offset + extent(slot) for slot in slots)
    distances = {slot.gradient_offset - slot.offset for slot in slots}
    assert len(distances) == 1, "bug in mlaot: gradients do not lie in the order of their parameters"
    (distance,) = distances
    assert start + distance >= max(slot.offset + extent(slot) for slot in module.slots), "bug in mlaot: slots overlap"
    assert end + distance <= module.state_bytes, "bug in mlaot: the state is shorter than its slots"
    same = len({slot.dtype for slot in slots}) == 1
    dtype = slots[0].dtype if same else "u8"
    return {
        "dtype": c_dtype(dtype),
        "count": (end - start) // DTYPES[dtype].itemsize,
        "parameters_at": start,
        "gradients_at": start + distance,
    }


def extent(slot: Slot) -> int:
    """The bytes from a slot's first number to the end of its last."""
    if 0 in slot.shape:
        return 0
    steps = sum((n - 1) * stride for n, stride in zip(slot.shape, slot.strides, strict=True))
    return (steps + 1) * DTYPES[slot.dtype].itemsize


def tensors_head(module: Module) -> str:
    """The JSON head of a safetensors file, padded so that the data start on a multiple of 8."""
    head: dict[str, object] = {}
    at = 0
    for slot in saved(module):
        end = at + prod(slot.shape) * DTYPES[slot.dtype].itemsize
        head[state_name(slot)] = {"dtype": c_dtype(slot.dtype), "shape": list(slot.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(head, separators=(",", ":"))
    return text.ljust((len(text) + 7) // 8 * 8)


def describe(module: Module) -> dict[str, object]:
    """What ``info()`` says, but for the instruction sets."""
    info = {key: value for key, value in module.info.items() if key not in ("scalars", "file_names")}
    info["name"] = module.name
    info["dims"] = list(module.dims)
    info["entries"] = {
        entry.name: {
            "inputs": {port.name: type_text(port.dtype, port.shape) for port in entry.inputs},
            "outputs": {port.name: type_text(port.dtype, port.shape) for port in entry.results},
        }
        for entry in module.entries
        if entry.name not in HIDDEN
    }
    for key, kind in (("parameters", "parameter"), ("buffers", "buffer"), ("optimizer_state", "optimizer")):
        info[key] = {slot.name: type_text(slot.dtype, slot.shape) for slot in of_kind(module, kind)}
    info["parameter_count"] = sum(prod(slot.shape) for slot in of_kind(module, "parameter"))
    info["bytes"] = {"constants": len(module.constants), "state": module.state_bytes}
    info["deterministic"] = module.deterministic
    return info


def c_lines(text: str) -> list[str]:
    """A long text as C string literals, one a line."""
    return [f'"{c_text(text[i : i + 72])}"' for i in range(0, len(text), 72)]
