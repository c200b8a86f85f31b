"""Python's ``math`` for numbers and ``Value``s: ``from mlaot.micrograd import math`` where a program imports it."""

from __future__ import annotations

import math as _math
from collections.abc import Callable
from typing import Any

from mlaot.frontend.scalar.engine import Value
from mlaot.frontend.scalar.functions import FUNCTIONS


def _function(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return getattr(x, name)() if isinstance(x, Value) else getattr(_math, name)(x)

    function.__name__ = name
    return function


def pow(x: Any, y: Any) -> Any:
    """Return ``x`` to the power of a number ``y``."""
    return x**y if isinstance(x, Value) else _math.pow(x, y)


def fabs(x: Any) -> Any:
    """Return the absolute value."""
    return abs(x) if isinstance(x, Value) else _math.fabs(x)


def __getattr__(name: str) -> Any:
    """Return the function of a name; where Values have none, it is Python's, which takes numbers."""
    return _function(name) if name in FUNCTIONS and hasattr(_math, name) else getattr(_math, name)
