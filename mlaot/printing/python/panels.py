"""Places of elements of a matrix in panels, which for C the schedule of a machine resolves.

w[k * 50 + j, panels of 16]    =>    w[j // 16 * 1024 + k * 16 + j % 16]
"""

from __future__ import annotations

from mlaot.ir.dims import Dim
from mlaot.ir.dims import Expr as Polynomial
from mlaot.nest.expressions import INDEX, Call, Expr, Index, Panels, as_index


def place_in_panels(index: Expr, panels: Panels) -> Expr:
    """Return the place in memory of the element with number ``index`` in the row-major matrix."""
    row, column = _row_and_column(index, panels.columns)
    panel, rest = _divide(column, panels.width)
    return panel * (panels.rows * panels.width) + row * panels.width + rest


def _row_and_column(index: Expr, columns: int) -> tuple[Expr, Expr]:
    """Return the row and the column of an element. Terms that are multiples of a row's length belong to the row."""
    if not isinstance(index, Index):
        return _divide(index, columns)
    row, column = _multiples(index.value, columns)
    return Index(row), Index(column)


def _multiples(value: Dim, unit: int) -> tuple[Dim, Dim]:
    """Return the multiples of ``unit`` among the terms of a polynomial, divided by it, and the other terms."""
    if isinstance(value, int):
        return divmod(value, unit)
    quotient: Dim = 0
    rest: Dim = 0
    for monomial, factor in value.terms:
        term = Polynomial(((monomial, 1),)) if monomial else 1
        quotient, rest = quotient + term * (factor // unit), rest + term * (factor % unit)
    return quotient, rest


def _divide(value: Expr, unit: int) -> tuple[Expr, Expr]:
    """Return the quotient and the remainder of an index, which is not negative."""
    if isinstance(value, Index) and isinstance(value.value, int):
        quotient, rest = divmod(value.value, unit)
        return Index(quotient), Index(rest)
    return Call("div", (value, as_index(unit)), INDEX), Call("mod", (value, as_index(unit)), INDEX)
