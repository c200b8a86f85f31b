"""Initial values of parameters: PyTorch's distributions, as functions of a shape that return an array.

``rng`` is a NumPy generator or a seed. Without it the numbers come from a default generator, which starts with the same
seed in every process, so that a build can be repeated. ``seed(n)`` restarts the default generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir.types import DType
from mlaot.nn.absent import absent
from mlaot.nn.arguments import check_choice

__all__ = ["calculate_gain", "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_"]
__all__ += ["seed", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_"]

Random = np.random.Generator | int | None
Shape = int | Sequence[int]
NdArray = np.ndarray[Any, Any]
DEFAULT_SEED = 1337
LINEAR = ("linear", *[f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)])
GAINS = {"sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75} | dict.fromkeys(LINEAR, 1.0)

_default = np.random.default_rng(DEFAULT_SEED)


def seed(value: int) -> None:
    """Restart the default generator with a seed."""
    global _default
    _default = np.random.default_rng(value)


def generator(rng: Random = None) -> np.random.Generator:
    """Return the generator that ``rng`` stands for: itself, a new one with that seed, or for None the default one."""
    return _default if rng is None else np.random.default_rng(rng)


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's dtype for a dtype of NumPy or mlaot; float32 by default."""
    chosen = np.dtype(np.float32 if dtype is None else dtype.numpy if isinstance(dtype, DType) else dtype)
    if chosen.kind != "f":
        raise MlaotError(f"parameters: expected a floating-point dtype, got {chosen}")
    return chosen


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the recommended gain of weights before a nonlinearity (He et al., 2015).

    ``param`` is the slope of "leaky_relu", by default 0.01.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    check_choice(nonlinearity, (*GAINS, "leaky_relu"), "calculate_gain: nonlinearity")
    return GAINS[nonlinearity]


def uniform_(shape: Shape, a: float = 0.0, b: float = 1.0, rng: Random = None, dtype: Any = None) -> NdArray:
    """Draw from the uniform distribution from ``a`` to ``b``."""
    return np.asarray(generator(rng).uniform(a, b, shape), float_dtype(dtype))


def normal_(shape: Shape, mean: float = 0.0, std: float = 1.0, rng: Random = None, dtype: Any = None) -> NdArray:
    """Draw from the normal distribution."""
    return np.asarray(generator(rng).normal(mean, std, shape), float_dtype(dtype))


def trunc_normal_(
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    rng: Random = None,
    dtype: Any = None,
) -> NdArray:
    """Draw from the normal distribution, and draw numbers outside of ``a`` to ``b`` again."""
    if not a < b or mean < a - 2 * std or mean > b + 2 * std:
        raise MlaotError(f"trunc_normal_: expected a < b within two std of the mean, got a={a}, b={b}, mean={mean}")
    source = generator(rng)
    values = np.asarray(source.normal(mean, std, shape))
    while (outside := (values < a) | (values > b)).any():
        values[outside] = source.normal(mean, std, int(outside.sum()))
    return values.astype(float_dtype(dtype))


def constant_(shape: Shape, val: float, dtype: Any = None) -> NdArray:
    """Return an array of ``val``."""
    return np.full(shape, val, float_dtype(dtype))


def zeros_(shape: Shape, dtype: Any = None) -> NdArray:
    """Return an array of zeros."""
    return np.zeros(shape, float_dtype(dtype))


def ones_(shape: Shape, dtype: Any = None) -> NdArray:
    """Return an array of ones."""
    return np.ones(shape, float_dtype(dtype))


def xavier_uniform_(shape: Sequence[int], gain: float = 1.0, rng: Random = None, dtype: Any = None) -> NdArray:
    """Draw uniformly within ``gain * sqrt(6 / (inputs + outputs))`` (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(shape)))
    return uniform_(shape, -bound, bound, rng, dtype)


def xavier_normal_(shape: Sequence[int], gain: float = 1.0, rng: Random = None, dtype: Any = None) -> NdArray:
    """Draw normally with ``std = gain * sqrt(2 / (inputs + outputs))`` (Glorot and Bengio, 2010)."""
    return normal_(shape, 0.0, gain * math.sqrt(2.0 / sum(fans(shape))), rng, dtype)


def kaiming_uniform_(
    shape: Sequence[int],
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    rng: Random = None,
    dtype: Any = None,
) -> NdArray:
    """Draw uniformly within ``gain * sqrt(3 / fan)`` (He et al., 2015)."""
    bound = math.sqrt(3.0) * _kaiming_std(shape, a, mode, nonlinearity)
    return uniform_(shape, -bound, bound, rng, dtype)


def kaiming_normal_(
    shape: Sequence[int],
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    rng: Random = None,
    dtype: Any = None,
) -> NdArray:
    """Draw normally with ``std = gain / sqrt(fan)`` (He et al., 2015)."""
    return normal_(shape, 0.0, _kaiming_std(shape, a, mode, nonlinearity), rng, dtype)


def orthogonal_(shape: Sequence[int], gain: float = 1.0, rng: Random = None, dtype: Any = None) -> NdArray:
    """Return a matrix with orthonormal rows or columns, whichever are fewer, times ``gain`` (Saxe et al., 2014).

    Axes after the first are one axis of the matrix.
    """
    if len(shape) < 2:
        raise MlaotError(f"orthogonal_: expected two axes or more, got {list(shape)}")
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(generator(rng).normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))  # so that q is uniformly distributed (Mezzadri, 2007)
    values = np.reshape(q if rows >= columns else q.T, shape) * gain
    return np.asarray(values, float_dtype(dtype))


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """Return the fan-in and fan-out of a weight [out, in, *k]: inputs of each output, and outputs of each input."""
    if len(shape) < 2:
        raise MlaotError(f"expected a weight of two axes or more, [out, in, *k], got {list(shape)}")
    taps = math.prod(shape[2:])
    return shape[1] * taps, shape[0] * taps


def _kaiming_std(shape: Sequence[int], a: float, mode: str, nonlinearity: str) -> float:
    check_choice(mode, ("fan_in", "fan_out"), "kaiming: mode")
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(shape)[mode == "fan_out"])


def __getattr__(name: str) -> Any:
    absent(__name__, name, __all__, {"mlaot.nn.init": __all__})
