"""Comparisons, predicates of floats, and selection between two values.

Truth values are 0 and 1 in C. In vectors they are masks, 0 or -1 in each lane, as comparisons of vectors return.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Node, Type
from mlaot.ir.types import boolean
from mlaot.nest.expressions import HALVES, Expr, call, compare, const, select
from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import Array, Op, full_like, no_gradient
from mlaot.ops.dtypes import ANY, FLOATS, NUMBERS, one_type
from mlaot.ops.elementwise import C

COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}  # as nests call them


def _comparison(
    name: str, reference: np.ufunc, symbol: str, kinds: str = NUMBERS, commutative: bool = False, doc: str = ""
) -> Op:
    """Return the op ``a symbol b``. Except for ``not_equal``, it is false where either is nan."""

    def c(args: Sequence[Expr]) -> Expr:
        assert args[0].type.dtype not in HALVES, f"bug in mlaot: {args[0].type} is compared as f32"
        return compare(COMPARISONS[symbol], *args)

    rule = one_type(name, kinds, boolean)
    doc = doc or f"a {symbol} b; false where either is nan"
    return Op(name, rule, reference, no_gradient, ELEMENTWISE, c, commutative, doc=doc)


def _question(name: str, doc: str, reference: np.ufunc, c: C) -> Op:
    """Return an op that is a predicate of a float."""
    return Op(name, one_type(name, FLOATS, boolean), reference, no_gradient, ELEMENTWISE, c, doc=doc)


equal = _comparison("equal", np.equal, "==", ANY, commutative=True)
not_equal = _comparison("not_equal", np.not_equal, "!=", ANY, commutative=True, doc="a != b; true where either is nan")
less = _comparison("less", np.less, "<")
less_equal = _comparison("less_equal", np.less_equal, "<=")
greater = _comparison("greater", np.greater, ">")
greater_equal = _comparison("greater_equal", np.greater_equal, ">=")

isnan = _question("isnan", "whether x is nan", np.isnan, lambda args: compare("ne", args[0], args[0]))
isinf = _question(
    "isinf",
    "whether x is infinite",
    np.isinf,
    lambda args: compare("eq", call("abs", args[0]), const(np.inf, args[0].type)),
)
isfinite = _question(
    "isfinite",
    "whether x is neither infinite nor nan",
    np.isfinite,
    lambda args: compare("lt", call("abs", args[0]), const(np.inf, args[0].type)),
)
signbit = _question(
    "signbit",
    "whether the sign of x is minus; true of -0",
    np.signbit,
    lambda args: compare("lt", call("copysign", const(1.0, args[0].type), args[0]), const(0, args[0].type)),
)


def _where_type(condition: Type, a: Type, b: Type) -> Type:
    if condition.dtype is not boolean or condition.shape != a.shape or a != b:
        raise MlaotError(f"where takes a bool and two values of one type, all of one shape, got {condition}, {a}, {b}")
    return a


def _where_reference(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


def _vjp_where(ct: Node, out: Node, condition: Node, a: Node, b: Node) -> tuple[Node | None, ...]:
    none = full_like(ct, 0.0)
    return None, where(condition, ct, none), where(condition, none, ct)


where: Op = Op(
    "where",
    _where_type,
    _where_reference,
    _vjp_where,
    ELEMENTWISE,
    lambda args: select(*args),
    exact=True,
    doc="a where the condition is true, else b",
)


def is_zero(x: Node) -> Node:
    """Tell where x is 0 or -0."""
    return equal(x, full_like(x, 0.0))
