"""Expressions of a loop nest: immutable values, typed by dtype and lanes, equal if they have the same structure.

    x[i * 64 + j]         Load(x, Index(i * 64 + j))
    exp(x0 - m)           Call("exp", (Call("sub", (x0, m)),))

An index is a polynomial in variables and dims (``mlaot/ir/dims.py``), so that it is simplified when it is built, and
indices are compared, substituted and bounded as values. An index that is no polynomial is bound to a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mlaot.ir.dims import Dim, assign, dim, names
from mlaot.ir.types import DTYPES

HALVES = ("f16", "bf16")  # dtypes in memory only; computed with as f32
WORD = 32  # bits of a word that holds several numbers
FULL_VECTOR = 0  # lanes: as many as a vector of the machine has


class ValueType(NamedTuple):
    """The type of a value: ``lanes`` numbers of a dtype.

    ``index`` counts elements, ``m32`` is a truth value in 32 bits.
    """

    dtype: str
    lanes: int = 1

    def __str__(self) -> str:
        return self.dtype if self.lanes == 1 else f"{self.dtype}x{self.lanes or ''}"


INDEX = ValueType("index")
BOOL = ValueType("bool")


def round_up(size: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that is at least ``size``."""
    return -(-size // unit) * unit


@dataclass(frozen=True, slots=True)
class Panels:
    """The layout of a matrix whose columns are cut into panels of ``width``, each panel stored row by row.

    A kernel that computes ``width`` columns of a product reads its panel as one ascending stream (the packed block B~
    of Goto and van de Geijn, 2008). The last panel is padded with zeros. With rows = 2, columns = 3 and width = 2,
    element (row, column) is the number ``rc``::

        memory: 00 01 10 11 | 02 -- 12 --
                panel 0       panel 1
    """

    rows: int
    columns: int
    width: int

    @property
    def size(self) -> int:
        """Elements of the matrix."""
        return self.rows * self.columns

    @property
    def padded_size(self) -> int:
        """Elements of the panels in memory, with the zeros behind the columns."""
        return self.rows * round_up(self.columns, self.width)

    def place(self, index: int) -> int:
        """Return the offset in memory of element ``row * columns + column``."""
        row, column = divmod(index, self.columns)
        panel, place = divmod(column, self.width)
        return (panel * self.rows + row) * self.width + place

    def __str__(self) -> str:
        return f"panels({self.rows}, {self.columns}, {self.width})"


@dataclass(frozen=True, slots=True)
class Array:
    """Memory of ``size`` elements, the padding behind rows included.

    ``space`` is ``param`` for the caller's memory, ``local`` for the nest's own, and ``table`` for constant ``values``.
    Until the schedule resolves ``panels``, an index into such an array is that of the element in the row-major matrix.
    """

    name: str
    dtype: str
    size: Dim
    space: str = "param"
    values: tuple[int, ...] = ()
    panels: Panels | None = None

    def __getitem__(self, index: int | Dim | Expr) -> Load:
        return Load(self, as_index(index), ValueType(self.dtype))


class Operators:
    """Arithmetic on expressions by Python's operators."""

    __slots__ = ()

    def __add__(self: Expr, other: Expr | int) -> Expr:  # type: ignore[misc]
        return arithmetic("add", self, other)

    def __sub__(self: Expr, other: Expr | int) -> Expr:  # type: ignore[misc]
        return arithmetic("sub", self, other)

    def __mul__(self: Expr, other: Expr | int) -> Expr:  # type: ignore[misc]
        return arithmetic("mul", self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Operators):
    """A number. Two constants are equal if their bits are."""

    value: float | int
    type: ValueType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.type == other.type and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.type))


@dataclass(frozen=True, slots=True)
class Var(Operators):
    """The value of a variable that a statement binds."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Index(Operators):
    """A number of elements: a polynomial in the names of index variables and dims."""

    value: Dim

    @property
    def type(self) -> ValueType:
        return INDEX


@dataclass(frozen=True, slots=True)
class Load(Operators):
    """Elements of an array: lane i holds the element at ``index + i * step``.

    Lanes from ``count`` on are 0 and not read.

    With ``padded`` the row along which lanes run ends in padding, so a whole vector may be read past its last element.
    """

    array: Array
    index: Expr
    type: ValueType
    step: Dim = 1
    count: Expr | None = None
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Call(Operators):
    """A call of an operator or a function by its name."""

    name: str
    args: tuple[Expr, ...]
    type: ValueType


Expr = Const | Var | Index | Load | Call


def as_index(value: int | Dim | Expr) -> Expr:
    """Return ``value`` as an expression of type ``index``."""
    if isinstance(value, Var) and value.type == INDEX:
        return Index(dim(value.name))
    return value if isinstance(value, Const | Var | Index | Load | Call) else Index(value)


def const(value: float, type_: ValueType) -> Const:
    """Return a number of a type, the same in all lanes."""
    return Const(float(value) if type_.dtype.startswith(("f", "bf")) else int(value), type_)


def is_float(dtype: str) -> bool:
    """Tell whether C has operators for values of a dtype, and rounds their results."""
    return dtype in ("f32", "f64")


def arithmetic(name: str, a: Expr, b: Expr | int) -> Expr:
    """Return the sum, difference or product of two values of one type. For two polynomials it is a polynomial."""
    if isinstance(b, int):
        b = Index(b) if a.type == INDEX else const(b, a.type)
    if a.type == b.type == INDEX:
        a, b = as_index(a), as_index(b)
        if isinstance(a, Index) and isinstance(b, Index):
            return Index(POLYNOMIALS[name](a.value, b.value))
    return Call(name, (a, b), a.type)


POLYNOMIALS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a + b * -1,
    "mul": lambda a, b: a * b,
}


def mask_of(type_: ValueType) -> ValueType:
    """Return the type of a comparison: a truth value, or a vector of masks as wide as the compared numbers."""
    if type_.lanes == 1:
        return BOOL
    return type_ if type_.dtype.startswith("m") else ValueType(f"m{8 * DTYPES[type_.dtype].itemsize}", type_.lanes)


def compare(name: str, a: Expr, b: Expr) -> Expr:
    """Compare two values: ``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge``."""
    return Call(name, (a, b), mask_of(a.type))


def cast(x: Expr, dtype: str) -> Expr:
    """Convert ``x`` to another dtype, as ``mlaot/ops/conversion.py`` defines it."""
    if x.type.dtype == dtype:
        return x
    return Call("cast", (x,), ValueType(dtype, x.type.lanes))


def splat(x: Expr, lanes: int) -> Expr:
    """Repeat ``x`` in every lane."""
    if lanes == 1:
        return x
    if isinstance(x, Const):
        return replace(x, type=ValueType(x.type.dtype, lanes))
    return Call("splat", (x,), ValueType(x.type.dtype, lanes))


def least(a: Expr, b: int | Dim | Expr) -> Expr:
    """Return the smaller one of two indices."""
    return Call("least", (a, as_index(b)), INDEX)


def most(a: Expr, b: int | Dim | Expr) -> Expr:
    """Return the larger one of two indices."""
    return Call("most", (a, as_index(b)), INDEX)


def lanes_left(left: Expr, lanes: int) -> Expr:
    """Return how many of ``lanes`` are active if ``left`` elements are left: none to all."""
    return most(Index(0), least(left, lanes))


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Return ``a`` where the condition holds, and else ``b``."""
    return Call("select", (condition, a, b), a.type)


def call(name: str, *args: Expr) -> Expr:
    """Call a function whose result has the type of its last argument.

    An associative function of two arguments takes more: calls nest to the left.
    """
    arity = 2 if name in ASSOCIATIVE else len(args)
    result, rest = Call(name, args[:arity], args[-1].type), args[arity:]
    for arg in rest:
        result = Call(name, (result, arg), arg.type)
    return result


ASSOCIATIVE = ("add", "mul", "max", "min", "and", "or", "xor")
# Calls of an instruction or a few. Others are functions that take tens of them.
CHEAP_CALLS = {
    *(
        *ASSOCIATIVE,
        "sub",
        "div",
        "neg",
        "abs",
        "sqrt",
        "sign",
        "copysign",
        "relu",
        "step",
        "greater",
        "lesser",
        "is_equal",
        "not",
        "select",
    ),
    *(
        "cast",
        "bitcast",
        "convert",
        "left_shift",
        "right_shift",
        "rounded",
        "held",
        "round_f16",
        "round_bf16",
        "floor",
        "ceil",
        "trunc",
        "round",
        "nearest_inside",
    ),
    *("isnan", "least", "most", "mod", "remainder", "floor_divide", "even", "odd"),
    *("splat_word", "dot4", "dot4_pairs", "dot2", "halves", "nibbles"),
}
NO_LANES = ("normal_quantile", "threefry")  # functions without vector forms
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def children(x: Expr) -> tuple[Expr, ...]:
    """Return the direct parts of ``x``."""
    if isinstance(x, Call):
        return x.args
    if isinstance(x, Load):
        return (x.index,) if x.count is None else (x.index, x.count)
    return ()


def subexpressions(x: Expr) -> Iterator[Expr]:
    """Yield ``x`` and everything inside it."""
    stack = [x]
    while stack:
        top = stack.pop()
        yield top
        stack += children(top)


def variables(x: Expr) -> set[str]:
    """Return the names of the variables and dims that ``x`` depends on."""
    used: set[str] = set()
    stack = [x]
    while stack:
        part = stack.pop()
        if isinstance(part, Index):
            used |= names(part.value)
        elif isinstance(part, Var):
            used.add(part.name)
        else:
            stack += children(part)
            if isinstance(part, Load):
                used |= names(part.step)
    return used


def map_parts(x: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return ``x`` with ``change`` applied to each of its direct parts."""
    if isinstance(x, Call):
        args = tuple(map(change, x.args))
        if args == x.args:
            return x
        if x.name in POLYNOMIALS and x.type == INDEX:
            return arithmetic(x.name, *args)
        return Call(x.name, args, x.type)
    if isinstance(x, Load):
        index, count = change(x.index), None if x.count is None else change(x.count)
        same = index is x.index and count is x.count
        return x if same else Load(x.array, index, x.type, x.step, count, x.padded)
    return x


def substitute(x: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace variables of ``x`` by ``values``."""
    if isinstance(x, Var):
        return values.get(x.name, x)
    if isinstance(x, Index):
        return _substitute_index(x, values)
    return map_parts(x, lambda part: substitute(part, values))


def _substitute_index(x: Index, values: Mapping[str, Expr]) -> Expr:
    """Replace variables of a polynomial by ``values``, which are of type ``index``."""
    dims: dict[str, Dim] = {}
    for name in names(x.value):
        if name in values:
            value = as_index(values[name])
            assert isinstance(value, Index), f"bug in mlaot: {name} of an index becomes {value}"
            dims[name] = value.value
    return Index(assign(x.value, dims)) if dims else x
