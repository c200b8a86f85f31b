"""C identifiers for what users have named. They have a namespace of their own, so any name can be given to anything.

A named dim ``tokens`` is ``n_tokens`` in C, and ``batch``, which is mlaot's own, stays ``batch``. An array keeps the
name that it has unless C, a header, or mlaot's own C could have it; then it begins with ``x_``. The C of mlaot has no
name that begins with ``n_``, ``u_`` or ``x_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlaot.ir import Graph, Node, Subgraph, TupleType, Type
from mlaot.ir.dims import Dim, Expr, dim, names, parse, substitute

BATCH = "batch"
KEYWORDS = re.compile(
    # C, to C23, as gcc, clang and MSVC extend it
    r"alignas|alignof|asm|auto|bool|break|case|cdecl|char|const|constexpr|continue|default|do|double|else|enum|extern"
    r"|false|far|float|for|fortran|goto|huge|if|inline|int|interrupt|long|near|nullptr|pascal|register|restrict|return"
    r"|short|signed|sizeof|static|static_assert|struct|switch|thread_local|true|typedef|typeof|typeof_unqual|union"
    r"|unsigned|void|volatile|while"
    # C++, from which the header of a C library may be included
    r"|and|and_eq|bitand|bitor|catch|char16_t|char32_t|char8_t|class|co_await|co_return|co_yield|compl|concept"
    r"|const_cast|consteval|constinit|decltype|delete|dynamic_cast|explicit|export|friend|mutable|namespace|new|noexcept"
    r"|not|not_eq|operator|or|or_eq|private|protected|public|reinterpret_cast|requires|static_cast|template|this|throw"
    r"|try|typeid|typename|using|virtual|wchar_t|xor|xor_eq"
    # macros in lower case: predefined ones, and those of headers
    r"|arm|assert|complex|errno|hppa|i386|imaginary|interface|linux|m68k|mips|noreturn|math_errhandling|offsetof|ppc|pixel|small|sparc"
    r"|stderr|stdin|stdout|sun|unix|vax|vector|win32|L_ctermid|L_cuserid|L_tmpnam|P_tmpdir"
)
# What else could be a macro: it has no lower-case letter, but for one capital with digits, such as the weights W and
# W1. `I` is a macro of complex.h.
MACRO = re.compile(r"I|(?![A-Z][0-9]*$)[^a-z]+")
# The shapes of mlaot's own names in kernels; tests hold them against the C.
OWN = re.compile(
    r"v\d+.*|[ik]\d*|[abcehprstx]\d+|round\d+|[abce]\d+(_\d+)+|d_.*|table\d+|[fiu]\d+v?|\w+_t"
    r"|\w+_[fiu](8|16|32|64)v?|[nux]_.*|_.*|NAME|INLINE"
    r"|j|e|p|row|column|acc|now|best|best_all|bests|places|one|two|left|right|root|child|start|end|last|inside|is_after|dot|dots|sums|tile|rest"
    r"|work|dim|dims|arrays|threads|batch|halo|pitch|tree_\w+|begin|share|share_\w+|first_from|least"
    r"|feature|threshold|threefry|normal_quantile|f32_of_bits"
)


def dim_name(name: str) -> str:
    """A named dim as C calls it; two dims never have one name."""
    if name == BATCH:
        return name
    return f"n_{name}" if name.isascii() else f"u_{name.encode('punycode').decode().replace('-', '_')}"


def array_name(name: str) -> str:
    """An array as C calls it; two may have one name, which are for their place to tell apart."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"x_{clean}" if not clean or clean[0].isdigit() or is_taken(clean) else clean


def is_taken(name: str) -> bool:
    """Whether C, a header or mlaot's C may have a name."""
    return any(pattern.fullmatch(name) for pattern in (KEYWORDS, MACRO, OWN))


def c_expression(text: int | str | Dim) -> str:
    """An extent, or its text, in C."""
    extent = parse(text) if isinstance(text, str) else text
    return str(renamed(extent, {name: dim(dim_name(name)) for name in names(extent)}))


def with_c_dims(graph: Graph) -> Graph:
    """The graph with its dims as C calls them; itself where none has another name there."""
    known = c_dims(graph)
    return graph if known.keys() <= {BATCH} else copy_of(graph, known)


def c_dims(graph: Graph) -> dict[str, Dim]:
    """The named dims of a graph as C calls them."""
    return {name: dim(dim_name(name)) for name in dims_of(graph)}


def dims_of(graph: Graph) -> set[str]:
    """The named dims of a graph's inputs, from which a call learns them."""
    return {name for node in graph.inputs.values() for extent in node.type.shape for name in names(extent)}


def renamed(value: Any, known: Mapping[str, Dim]) -> Any:
    """An attribute of a node with other names for its dims."""
    if isinstance(value, Expr):
        return substitute(value, known)
    if isinstance(value, Type):
        return value.with_shape(renamed(value.shape, known))
    if isinstance(value, TupleType):
        return TupleType(renamed(value.items, known))
    if isinstance(value, tuple):
        return tuple(renamed(each, known) for each in value)
    if isinstance(value, Subgraph):
        return Subgraph(copy_of(value.graph, known))
    return value


def copy_of(graph: Graph, known: Mapping[str, Dim]) -> Graph:
    """A graph of its own, with other names for its dims."""
    new = Graph(graph.name)
    copies: dict[Node, Node] = {}
    for key, node in graph.inputs.items():
        notes = {note: value for note, value in node.attrs.items() if note not in ("name", "type")}
        copies[node] = new.input(key, renamed(node.type, known), **notes)
    for node in graph.nodes():
        if node not in copies:
            attrs = {key: renamed(value, known) for key, value in node.attrs.items()}
            copies[node] = new.copy(node, [copies[a.find()] for a in node.args], attrs)
    new.outputs = {key: copies[node.find()] for key, node in graph.outputs.items()}
    new.writes = {key: copies[node.find()] for key, node in graph.writes.items()}
    return new
