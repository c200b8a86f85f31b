"""Random numbers, such as ``mlaot.random.normal(shape)``, which are the same on every machine.

``mlaot.frontend.trace.draws`` draws the 32-bit words that the numbers are made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.conversion import astype
from mlaot.frontend.numpy.shaping import a_shape
from mlaot.frontend.trace.context import is_training
from mlaot.frontend.trace.draws import draw_words, entry, folded, state
from mlaot.frontend.trace.promotion import as_node, dtype_of
from mlaot.frontend.trace.protocols import NAMESPACE, is_traced
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Dim
from mlaot.ir.types import f32
from mlaot.ops import random as rand


def seed(number: int) -> None:
    """Set the seed: from now on for plain NumPy use, and for a module from its import on."""
    if not 0 <= int(number) < 1 << 64:
        raise MlaotError(f"a seed must be an integer in 0..2**64-1, got {number}")
    state.array = np.array([int(number) & 0xFFFFFFFF, int(number) >> 32, 0], np.uint32)


def bits(shape: Any = ()) -> Any:
    """Draw random 32-bit words."""
    return draw_words(a_shape(shape))


def uniform(shape: Any = (), low: Any = 0.0, high: Any = 1.0, dtype: Any = f32) -> Any:
    """Draw numbers uniformly from ``[low, high)``.

    They are made of multiples of 2**-24 from one word, or for f64 of 2**-53 from two words.
    """
    size, kind = a_shape(shape), dtype_of(dtype)
    if kind.kind != "f":
        raise MlaotError(f"uniform: expected a floating-point dtype, got {kind}; use mlaot.random.integers")
    unit = _unit64(size) if kind.name == "f64" else _unit32(size)
    if kind.name not in ("f32", "f64"):
        unit = astype(unit, kind)
    if type(low) is float and type(high) is float and (low, high) == (0.0, 1.0):
        return unit
    return low + (high - low) * unit


def _unit32(shape: tuple[Dim, ...]) -> Any:
    return (draw_words(shape) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _unit64(shape: tuple[Dim, ...]) -> Any:
    words = draw_words((2, *shape))
    high, low = words[0] >> np.uint32(5), words[1] >> np.uint32(6)
    return (high.astype(np.float64) * 67108864.0 + low.astype(np.float64)) * 2.0**-53


def normal(shape: Any = (), mean: Any = 0.0, std: Any = 1.0, dtype: Any = f32) -> Any:
    """Draw normally distributed numbers by the inverse of the distribution function: the same bits on every machine."""
    size, kind = a_shape(shape), dtype_of(dtype)
    if kind.name == "f64":
        numbers = _quantile(_unit64(size) + 2.0**-54)
    else:
        numbers = astype(_quantile((astype(draw_words(size), "float64") + 0.5) * 2.0**-32), kind)
    if type(mean) is float and type(std) is float and (mean, std) == (0.0, 1.0):
        return numbers
    return mean + std * numbers


def _quantile(p: Any) -> Any:
    if isinstance(p, Tensor):
        return Tensor(rand.normal_quantile(as_node(p)))
    return rand.normal_quantile.reference(p)


def bernoulli(p: Any = 0.5, shape: Any = None) -> Any:
    """True with probability ``p``."""
    size = shape if shape is not None else np.shape(p)
    return uniform(size) < p


def integers(low: int, high: int, shape: Any = (), dtype: Any = "int64") -> Any:
    """Draw integers from ``low..high-1``.

    If the length of the range is no power of two, probabilities are equal to within 2**-32 of the length.
    """
    if not 0 < high - low <= 1 << 32:
        raise MlaotError(f"integers: expected 0 < high - low <= 2**32, got low={low} and high={high}")
    words = draw_words(a_shape(shape)).astype(np.uint64)
    return astype(astype(words * np.uint64(high - low) >> np.uint64(32), "int64") + low, dtype)


def dropout(x: Any, rate: float, training: bool | None = None) -> Any:
    """Set elements of ``x`` to 0 with probability ``rate`` and scale up the others, in training only."""
    if not 0 <= rate < 1:
        raise MlaotError(f"dropout: expected a rate in [0, 1), got {rate}")
    if rate == 0 or not (is_training() if training is None else training):
        return x
    keep = uniform(np.shape(x)) >= rate
    return x * (astype(keep, x.dtype) * (1.0 / (1.0 - rate)))


def permutation(n: Any) -> Any:
    """Return the numbers 0..n-1, or the rows of an array, in random order."""
    size = n if not (is_traced(n) or isinstance(n, np.ndarray)) else n.shape[0]
    order = np.argsort(draw_words((size,)), kind="stable")
    return order if size is n else NAMESPACE["take"](n, order, axis=0)


def choice(a: Any, shape: Any = ()) -> Any:
    """Draw elements of ``a`` or of ``range(a)``, all with the same probability."""
    size = a if isinstance(a, int) else a.shape[0]
    if not isinstance(size, int):
        raise MlaotError(f"choice from the named dim {size} cannot be traced")
    picked = integers(0, size, shape)
    return picked if isinstance(a, int) else NAMESPACE["take"](a, picked, axis=0)


__all__ = [
    "bernoulli",
    "bits",
    "choice",
    "dropout",
    "entry",
    "folded",
    "integers",
    "normal",
    "permutation",
    "seed",
    "uniform",
]
