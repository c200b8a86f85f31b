"""Identifiers in C and Python for names that users choose: a namespace of their own, so no name clashes.

A named dim ``tokens`` is ``n_tokens`` in C, except ``batch``, which is mlaot's own name. An array keeps its name unless
C, a header, Python, or mlaot's own C could have that name; in that case it gets the prefix ``x_``. No name of mlaot's
own C begins with ``n_``, ``u_`` or ``x_``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlaot.ir import Graph, TupleType
from mlaot.ir.dims import Dim, dim, names, parse
from mlaot.ir.rename import copy_graph, rename_dims
from mlaot.ir.subgraph import subgraphs

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
    # Python, and the functions of it that kernels call
    r"|False|None|True|as|async|await|def|del|elif|except|finally|from|global|import|in|is|lambda|nonlocal|pass|raise"
    r"|with|yield|abs|max|min|range|zip"
)
# Names that could be macros: without a lower-case letter, except one capital with digits, such as the weights W and
# W1. `I` is a macro of complex.h.
MACRO = re.compile(r"I|(?![A-Z][0-9]*$)[^a-z]+")
# The shapes of mlaot's own names in kernels; tests hold them against the C.
OWN = re.compile(
    r"v\d+.*|[ik]\d*|[abcehprstx]\d+|round\d+|[abce]\d+(_\d+)+|d_.*|table\d+|[fiu]\d+v?|\w+_t"
    r"|\w+_[fiu](8|16|32|64)v?|[nux]_.*|_.*|NAME|INLINE"
    r"|j|e|p|row|column|acc|now|best|best_all|bests|places|one|two|left|right|root|child|start|end|last|inside|is_after"
    r"|next|stop|earlier|behind|here|before|is_kept|is_moved|dot|dots|parts|sums|tile|rest"
    r"|block|panel|(first|second|third|pivot)_place|(one|two|three|pivot|now|other)(_key|_index|_value|_bits)?|is_(up|further|over)"
    r"|split|depth|pending|keys|elements|part|rank|draw|place"
    r"|work|dim|dims|arrays|threads|batch|halo|pitch|tree_\w+|begin\d*|end\d+|share|share_\w+|first_from|least"
    r"|i\d+_end|first|[ijk]\d*_first|square\d+(_\d+)?|feature|threshold|(word|part|scale|row_scale)\d+(_\d+)?|threefry|normal_quantile|f32_of_bits"
)


def dim_name(name: str) -> str:
    """Return the C name of a named dim, which is unique."""
    if name == BATCH:
        return name
    return f"n_{name}" if name.isascii() else f"u_{name.encode('punycode').decode().replace('-', '_')}"


def with_own_dims(text: str, dims: Iterable[str]) -> str:
    """Replace the C names of named dims by the user's names in a text about arrays."""
    own = {dim_name(name): name for name in dims}
    return re.sub(r"\w+", lambda word: own.get(word[0], word[0]), text)


def array_name(name: str) -> str:
    """Return the C name of an array. Two arrays may get the same name, which their function must then make unique."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"x_{clean}" if not clean or clean[0].isdigit() or is_taken(clean) else clean


def is_taken(name: str) -> bool:
    """Tell whether C, a header, Python or mlaot's C may have a name."""
    return any(pattern.fullmatch(name) for pattern in (KEYWORDS, MACRO, OWN))


def c_expression(text: int | str | Dim) -> str:
    """Return an extent, or its text, in C."""
    extent = parse(text) if isinstance(text, str) else text
    return str(rename_dims(extent, {name: dim(dim_name(name)) for name in names(extent)}))


def with_c_dims(graph: Graph) -> Graph:
    """Return a graph whose dims have their C names: the graph itself if they have them already."""
    names_in_c = c_dims(graph)
    return graph if names_in_c.keys() <= {BATCH} else copy_graph(graph, names_in_c)


def c_dims(graph: Graph) -> dict[str, Dim]:
    """Return the C names of the named dims of a graph, by the dims' names."""
    return {name: dim(dim_name(name)) for name in dims_of(graph) | dims_inside(graph)}


def dims_of(graph: Graph) -> set[str]:
    """Return the named dims of a graph's inputs, which give a call their values."""
    return {name for node in graph.inputs.values() for extent in node.type.shape for name in names(extent)}


def dims_inside(graph: Graph) -> set[str]:
    """Return the named dims of all values of a graph, including those in loops and branches."""
    found: set[str] = set()
    for node in graph.nodes():
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        found |= {n for d in (*(d for t in types for d in t.shape), node.attrs.get("dim", 0)) for n in names(d)}
        for body in subgraphs(node.attrs).values():
            found |= dims_inside(body.graph)
    return found
