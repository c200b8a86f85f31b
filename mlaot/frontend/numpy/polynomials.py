"""Polynomials of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from mlaot.frontend.trace.promotion import like
from mlaot.ir import Node
from mlaot.ops import elementwise as ew


def horner(coefficients: Sequence[float], x: Node) -> Node:
    """Evaluate a polynomial by Horner's scheme; ``coefficients`` begin with the highest power."""
    total = like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = ew.add(ew.mul(total, x), like(x, coefficient))
    return total
