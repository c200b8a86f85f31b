"""The C library of a module: a public header, and the C between the header and the kernels.

    size_t digits_nn_forward_workspace(int64_t batch);
    int digits_nn_forward(const digits_nn *model, int64_t batch, const float *x, float *out, void *workspace);

The named dims of an entry become parameters. A call makes the same checks as a call from Python, and uses only memory
that the caller provides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mlaot.binding.extents import Extents, expressions
from mlaot.binding.literals import c_type
from mlaot.binding.methods import HIDDEN, entry_types, range_lines
from mlaot.errors import MlaotError
from mlaot.ir.dims import Dim, assign, names, parse
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import SEEN
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import array_name, c_expression, dim_name
from mlaot.lower.program import Entry, ExtensionModule, Port
from mlaot.printing.c_files import public_files
from mlaot.render import render, template_text, with_runtime
from mlaot.schedule.machine import whole_lines


@dataclass(frozen=True)
class Array:
    """A port as a parameter with its ``name`` in C. An input that is a single number is passed by value."""

    port: Port
    name: str
    is_output: bool

    @property
    def ctype(self) -> str:
        """The C type of the elements."""
        return c_type(self.port.dtype)

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return DTYPES[self.port.dtype].itemsize

    @property
    def is_number(self) -> bool:
        """Whether it is passed by value."""
        return not self.port.shape and not self.is_output

    @property
    def parameter(self) -> str:
        """``const float *x``"""
        if self.is_number:
            return f"{self.ctype} {self.name}"
        return f"{self.ctype} *{self.name}" if self.is_output else f"const {self.ctype} *{self.name}"

    @property
    def pointer(self) -> str:
        """The C expression of the pointer that kernels get."""
        return f"(char *){'&' * self.is_number}{self.name}"


def render_library(module: ExtensionModule, shared: dict[str, Any]) -> dict[str, str | bytes]:
    """Return the files of a module's C library by name.

    ``shared`` holds the names that the templates of its parts need.
    """
    prefix, top = module.prefix, module.name.partition(".")[0]
    assert prefix != module.stem, f"bug in mlaot: {module.name} is in no package"
    if counted := [count.dim for entry in module.entries for count in entry.counts]:
        raise MlaotError(
            f"{module.name}: the length {counted[0]} is counted in a call, which functions for C cannot tell; give the"
            " file's output a fixed shape, or leave out c_library"
        )
    if any(entry.refusals for entry in module.entries):
        raise MlaotError(
            f"{module.name}: an input decides a shape, which functions for C cannot refuse; make it a constant of the"
            " file, or leave out c_library"
        )
    functions = library_functions(module)
    context = {
        **shared,
        "module": module.name,
        "prefix": prefix,
        "upper": prefix.upper(),
        "package": top,
        "target": f"{top}::{prefix.removeprefix(f'{top}_')}",
        "functions": functions,
        "checks": " ".join(condition for function in functions for condition in function["refused"]),
        "stateful": bool(module.slots),
        "state_bytes": whole_lines(module.state_bytes),
        "isa_names": ", ".join(f'"{isa}"' for isa in module.isas),
        "has_half": any(array.port.dtype == "f16" for f in functions for array in f["arrays"]),
    }
    check_names(module, functions)
    return {
        f"{module.stem}_c.c": with_runtime(render("nn_c.c.j2", **context)),
        **{
            name: render(f"library/{template}.j2", **context)
            for name, template in zip(public_files(module.name), ("nn.h", "Targets.cmake", "Config.cmake"), strict=True)
        },
    }


def library_functions(module: ExtensionModule) -> list[dict[str, Any]]:
    """Describe the entries that C can call: all but those that only functions of the Python module use."""
    hidden = {*HIDDEN, *(("accumulate", "update") if module.phases is not None else ())}
    extents = Extents(module)
    return [library_function(module, extents, entry) for entry in module.entries if entry.name not in hidden]


def library_function(module: ExtensionModule, extents: Extents, entry: Entry) -> dict[str, Any]:
    """Describe an entry for the templates."""
    assert not entry.split, f"bug in mlaot: the entry {entry.name} runs in two halves"
    solved = {name for port in entry.inputs for extent in expressions(port.shape) for name in names(extent)}
    dims = {name: dim_name(name) for name in extents.dims if name in solved}
    taken = words_of("nn_c.c.j2") | set(dims.values())
    inputs = [Array(port, unique(port.name, taken), False) for port in entry.inputs]
    outputs = [Array(port, unique(port.name, taken), True) for port in entry.outputs]

    def given_dims(extent: int | str) -> str:
        absent = names(parse(extent)) - dims.keys()
        return c_expression(assign(parse(extent), dict.fromkeys(absent, 1)))

    sizes = [f"int64_t {name}" for name in dims.values()]
    arrays = [*inputs, *outputs]
    state = ["void *state"] if module.slots else []
    bounds = extents.bounds(entry)
    least = {extents.dims[bound.extent]: bound.least for bound in bounds if bound.extent < len(extents.dims)}
    checked = [extents.all[bound.extent] for bound in bounds if bound.extent >= len(extents.dims)]
    rows = [
        (i, " * ".join([str(array.itemsize), *(f"({given_dims(extent)})" for extent in array.port.shape[1:])]))
        for i, array in enumerate(arrays)
        if entry.tile and array.port.shape[:1] == (entry.rows,)
    ]
    text = text_place(module, extents, entry)
    return {
        "name": f"{module.prefix}_{entry.name}",
        "entry": entry.name,
        "rule": f"// {f' {entry.name}':->117}",
        "doc": [*comment(entry.doc), *comment(entry_types(in_places(entry))), *notes(arrays, dims, least)],
        "sizes": ", ".join(sizes) or "void",
        "parameters": [
            f"const {module.prefix} *model",
            *state,
            *sizes,
            *(array.parameter for array in arrays),
            "void *workspace",
        ],
        "arrays": arrays,
        "dims": [dims.get(name, str(text["context"]) if text and name == SEEN else "1") for name in extents.dims],
        "text": text,
        "refused": [
            "!dims_fit(_values)",
            *(f"{dim_name(name)} < {n}" for name, n in least.items() if n > 0),
            *(f"!extent_fits({c_expression(extent)})" for extent in checked),
            *dict.fromkeys(f"!{array_fits(array)}" for array in arrays if expressions(array.port.shape)),
        ],
        "indices": [array for array in inputs if array.port.ranges],
        "ranges": [searched(module, array, range_) for array in inputs for range_ in array.port.ranges],
        "tile": entry.tile,
        "rows_dim": dim_name(entry.rows) if entry.tile else "",
        "rows_at": extents.dims.index(entry.rows) if entry.tile else 0,
        "rows": rows,
        "row_bytes": " + ".join(size for i, size in rows if i >= len(inputs)) or "0",
        "workspace": c_expression(entry.workspace),
        "kernel": kernel_number(module, entry),
    }


def text_place(module: ExtensionModule, extents: Extents, entry: Entry) -> dict[str, object]:
    """Describe how the entry that reads texts keeps its position in a text; nothing for other entries."""
    if module.generation is None or entry.name != module.generation.entry:
        return {}
    return {
        "place_at": next(slot.offset for slot in module.slots if slot.name == "place"),
        "context": module.generation.context,
        "count": c_expression(entry.inputs[0].shape[0]),
        "seen": extents.dims.index(SEEN) if SEEN in extents.dims else -1,
    }


def words_of(template: str) -> set[str]:
    """Return the identifiers in the C of a template."""
    text = re.sub(r"@\{.*?\}@|@%.*?%@|//.*|\"[^\"\n]*\"", " ", template_text(template))
    return set(re.findall(r"\b[A-Za-z]\w*", text))


def kernel_number(module: ExtensionModule, entry: Entry) -> int:
    """Return the index of an entry's kernel in the tables."""
    before = module.entries[: module.entries.index(entry)]
    return sum(2 if other.split else 1 for other in before)


def unique(name: str, taken: set[str]) -> str:
    """Return a name for a parameter that is no word of C or C++, and that no dim and no other parameter has."""
    free = array_name(name)
    while free in taken:
        free += "_"
    taken.add(free)
    return free


def comment(text: str) -> list[str]:
    """Format text as lines of a ``//`` comment, without a backslash at the end, which would continue the comment."""
    return [line.rstrip("\\ ") for line in text.splitlines()]


def in_places(entry: Entry) -> Entry:
    """Replace the strings of an entry by their indices, and its texts by rows of terms, as C has them."""
    inputs = tuple(replace(port, strings=(), vectorizers=(), rows=None, made=None) for port in entry.inputs)
    return replace(entry, inputs=inputs, outputs=tuple(replace(port, strings=(), then=None) for port in entry.outputs))


def notes(arrays: Iterable[Array], dims: dict[str, str], least: dict[str, int]) -> list[str]:
    """Describe the preconditions of a call besides shapes, and the parameters that had to be renamed."""
    rename_dims = [(array.port.name, array.name) for array in arrays] + list(dims.items())
    return [
        *(f"{dims[name]}: at least {n}." for name, n in least.items() if n > 0),
        *(f"{line}." for a in arrays for line in range_lines(replace(a.port, name=a.name))),
        *(f"{a.name}: {a.port.default} unless given, in Python." for a in arrays if a.port.default is not None),
        *(f"{new}: {old} in Python." for old, new in rename_dims if old != new),
        *(f"{a.name}: places of strings, {unknown(a.port)}." for a in arrays if a.port.strings),
        *(f"{a.name}: rows of terms of texts, count << 32 | place." for a in arrays if a.port.vectorizers),
        *(f"{a.name}: rows of tokens of texts, type << 32 | token, -1 behind the end." for a in arrays if a.port.rows),
    ]


def unknown(port: Port) -> str:
    """Describe the indices that stand for strings that a model does not know."""
    return (
        f"from {len(port.strings)} on for unknown ones" if port.further else f"{len(port.strings)} for an unknown one"
    )


def array_fits(array: Array) -> str:
    """Return the C expression that says whether an array is not too large."""
    shape = array.port.shape
    return f"array_fits({array.itemsize}, {len(shape)}, (const int128[]){{{', '.join(map(c_expression, shape))}}})"


def factor(extent: Dim | str) -> str:
    """Format an extent as a factor in C."""
    text = c_expression(extent)
    return f"({text})" if " " in text else text


def searched(module: ExtensionModule, array: Array, range_: IndexRange) -> dict[str, Any]:
    """Describe the elements of an input that are indices, for the range check in C: their places and their range."""
    dtype, shape = DTYPES[array.port.dtype], array.port.shape
    if dtype.name == "f16":
        where = f"{module.name}: an input of float16 numbers is made of indices"
        raise MlaotError(f"{where}, which functions for C cannot check; declare {array.port.name} as integers")
    loops, terms = [], []
    for axis, span in enumerate(range_.box or [None] * len(shape)):
        start, count, step = span or (0, shape[axis], 1)
        behind = "".join(f" * {factor(extent)}" for extent in shape[axis + 1 :])
        offset = f"_{axis}" + (f" * {step}" if step != 1 else "")
        place = offset if start == 0 else f"({c_expression(start)} + {offset})"
        if count != 1:
            loops.append((f"_{axis}", c_expression(count)))
        terms.append((factor(start) if count == 1 else place) + behind)
    is_signed = dtype.kind != "u"
    ignored = range_.ignored if is_signed or (range_.ignored or 0) >= 0 else None
    return {
        "loops": loops,
        "element": array.name if array.is_number else f"{array.name}[{' + '.join(terms)}]",
        "ctype": "double" if dtype.kind == "f" else "int64_t" if is_signed else "uint64_t",
        "low": f"-{factor(range_.size)}" if range_.wraps and is_signed else "0",
        "high": c_expression(range_.size),
        "ignored": ignored,
    }


def check_names(module: ExtensionModule, functions: list[dict[str, Any]]) -> None:
    """Check that no two functions of the library have the same name."""
    symbols = [f"{module.prefix}_{name}" for name in ("select", "isa", "message", "state_init", "share", "share_apart")]
    for function in functions:
        symbols += [str(function["name"]), f"{function['name']}_workspace"]
    symbols += [f"{module.prefix}_{entry.name}_{isa}" for entry in module.entries for isa in module.isas]
    name, count = Counter(symbols).most_common(1)[0]
    if count > 1:
        raise MlaotError(f"{module.name}: the C library would have several functions called {name}; rename an entry")
