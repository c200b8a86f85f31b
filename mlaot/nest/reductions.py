"""Reductions: the function that combines two values, and its identity element. All other modules use these tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import Const, Expr, ValueType, call, const


@dataclass(frozen=True)
class Reduction:
    """A reduction and its functions.

    ``function`` combines two numbers, ``of_bools`` two truth values, and ``of_lanes`` the lanes of a vector.

    ``identity`` is the identity element. A dtype that cannot hold it has the nearest number instead.
    """

    function: str
    of_bools: str
    of_lanes: str
    identity: float


REDUCTIONS: Mapping[str, Reduction] = {
    "sum": Reduction("add", "or", "sum_lanes", 0.0),
    "prod": Reduction("mul", "and", "prod_lanes", 1.0),
    "max": Reduction("max", "or", "max_lanes", -inf),
    "min": Reduction("min", "and", "min_lanes", inf),
}
BY_FUNCTION: Mapping[str, Reduction] = {r.function: r for r in REDUCTIONS.values()}
BY_LANES: Mapping[str, Reduction] = {r.of_lanes: r for r in REDUCTIONS.values()}


def combine(name: str, a: Expr, b: Expr) -> Expr:
    """Combine two values by a reduction's function."""
    reduction = REDUCTIONS[name]
    return call(reduction.of_bools if a.type.dtype == "bool" else reduction.function, a, b)


def identity(name: str, dtype: str) -> Const:
    """Return the identity element of a reduction for values of a dtype."""
    value, numpy = REDUCTIONS[name].identity, np.dtype(DTYPES[dtype].numpy)
    if numpy.kind == "f":
        return const(value, ValueType(dtype))
    low, high = (0, 1) if numpy.kind == "b" else (np.iinfo(numpy).min, np.iinfo(numpy).max)
    return Const(int(low if value < low else high if value > high else value), ValueType(dtype))
