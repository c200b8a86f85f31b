"""Functions of ``Value``s that micrograd does not have: the name, the function and the derivative of each.

``mlaot.micrograd.math`` offers them as functions, for programs with ``math.sqrt(v)``. ``Value`` has them as methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Function(NamedTuple):
    """``y = compute(x)``, and the derivative ``slope(x, y)``."""

    compute: Callable[[float], float]
    slope: Callable[[float, float], float]


def _sign(x: float) -> float:
    return math.copysign(1.0, x) if x else 0.0


def _sigmoid(x: float) -> float:
    e = math.exp(-abs(x))  # at most 1: nothing overflows
    return (1.0 if x >= 0 else e) / (1 + e)


# By the names of mlaot's ops.
FUNCTIONS = {
    "abs": Function(abs, lambda x, y: _sign(x)),
    "acos": Function(math.acos, lambda x, y: -1 / math.sqrt(1 - x * x)),
    "asin": Function(math.asin, lambda x, y: 1 / math.sqrt(1 - x * x)),
    "atan": Function(math.atan, lambda x, y: 1 / (1 + x * x)),
    "cos": Function(math.cos, lambda x, y: -math.sin(x)),
    "cosh": Function(math.cosh, lambda x, y: math.sinh(x)),
    "erf": Function(math.erf, lambda x, y: 2 / math.sqrt(math.pi) * math.exp(-x * x)),
    "exp": Function(math.exp, lambda x, y: y),
    "expm1": Function(math.expm1, lambda x, y: y + 1),
    "log": Function(math.log, lambda x, y: 1 / x),
    "log1p": Function(math.log1p, lambda x, y: 1 / (1 + x)),
    "sigmoid": Function(_sigmoid, lambda x, y: y * (1 - y)),
    "sin": Function(math.sin, lambda x, y: math.cos(x)),
    "sinh": Function(math.sinh, lambda x, y: math.cosh(x)),
    "sqrt": Function(math.sqrt, lambda x, y: 0.5 / y),
    "tan": Function(math.tan, lambda x, y: 1 + y * y),
    "tanh": Function(math.tanh, lambda x, y: 1 - y * y),
}
