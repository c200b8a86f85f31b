"""Activation functions, element by element or along one axis.

Each function returns an array of the shape and dtype of its input, except ``glu``. Of a formula with two branches, both
are computed, and the one that is not selected gets a harmless argument: it neither overflows nor makes a gradient nan.
A comparison with nan is false, so a nan takes the last branch, which passes it on.
"""

from __future__ import annotations

import math

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as functions
from mlaot.frontend.numpy import erf, stop_gradient
from mlaot.nn.arguments import Array, channels_first, check_choice, static

__all__ = ["celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu"]
__all__ += ["log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softmax"]
__all__ += ["softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold"]

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def relu(input: Array) -> Array:
    """Compute ``max(x, 0)``, with gradient 0 at 0."""
    return functions.relu(input)


def sigmoid(input: Array) -> Array:
    """Compute ``1 / (1 + exp(-x))`` without overflow."""
    return functions.sigmoid(input)


def tanh(input: Array) -> Array:
    """Compute the hyperbolic tangent."""
    return np.tanh(input)


def leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """Compute ``x``, or ``negative_slope * x`` where x is negative."""
    return np.where(input > 0, input, input * negative_slope)


def elu(input: Array, alpha: float = 1.0) -> Array:
    """Compute ``x``, or ``alpha * (exp(x) - 1)`` where x is negative (Clevert et al., 2016)."""
    return np.where(input > 0, input, np.expm1(_negative_part(input)) * alpha)


def selu(input: Array) -> Array:
    """Compute ``elu`` with the scale and alpha that keep mean 0 and variance 1 (Klambauer et al., 2017)."""
    return elu(input, SELU_ALPHA) * SELU_SCALE


def celu(input: Array, alpha: float = 1.0) -> Array:
    """Compute ``x``, or ``alpha * (exp(x / alpha) - 1)`` where x is negative (Barron, 2017)."""
    return np.where(input > 0, input, np.expm1(_negative_part(input) / alpha) * alpha)


def gelu(input: Array, approximate: str = "none") -> Array:
    """Compute ``x * Phi(x)`` with the normal distribution's Phi (Hendrycks and Gimpel, 2016).

    ``approximate`` is "none" for the exact function, or "tanh" for the approximation by a hyperbolic tangent.
    """
    check_choice(approximate, ("none", "tanh"), "gelu: approximate")
    if approximate == "tanh":
        inner = (input + input * input * input * 0.044715) * math.sqrt(2 / math.pi)
        return input * 0.5 * (np.tanh(inner) + 1.0)
    return input * 0.5 * (erf(input * math.sqrt(0.5)) + 1.0)


def silu(input: Array) -> Array:
    """Compute ``x * sigmoid(x)``."""
    return input * sigmoid(input)


def mish(input: Array) -> Array:
    """Compute ``x * tanh(softplus(x))`` (Misra, 2019).

    It is computed as ``x * n / (n + 2)`` with ``n = e * (e + 2)`` and ``e = exp(x)``.
    """
    e = np.exp(np.minimum(input, 20.0))
    n = e * (e + 2.0)
    return input * (n / (n + 2.0))


def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """Compute ``log(1 + exp(beta * x)) / beta``, or ``x`` where ``beta * x`` is above ``threshold``."""
    scaled = input * beta
    return np.where(scaled > threshold, input, functions.softplus(scaled) / beta)


def softsign(input: Array) -> Array:
    """Compute ``x / (1 + abs(x))``."""
    return input / (np.abs(input) + 1.0)


def hardtanh(input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """Clamp x to the range from ``min_val`` to ``max_val``. At both limits the gradient is 0."""
    low, high = (int(min_val), int(max_val)) if input.dtype.kind in "iu" else (min_val, max_val)
    return np.where(input <= low, low, np.where(input >= high, high, input))


def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    """Compute ``x``, or 0 where ``abs(x)`` is at most ``lambd``."""
    return np.where(np.abs(input) <= lambd, 0.0, input)


def softshrink(input: Array, lambd: float = 0.5) -> Array:
    """Move ``x`` towards 0 by ``lambd``; where ``abs(x)`` is at most ``lambd``, the result is 0."""
    if isinstance(lambd, int | float) and not lambd >= 0:
        raise MlaotError(f"softshrink: expected lambd of at least 0, got {lambd}")
    return np.where(input > lambd, input - lambd, np.where(input < -lambd, input + lambd, input * 0.0))


def tanhshrink(input: Array) -> Array:
    """Compute ``x - tanh(x)``."""
    return input - np.tanh(input)


def threshold(input: Array, threshold: float, value: float) -> Array:
    """Compute ``x``, or ``value`` where x is at most ``threshold``."""
    return np.where(input <= threshold, value, input)


def relu6(input: Array) -> Array:
    """Clamp x to the range from 0 to 6. The gradient is 0 at 0, and 1/2 at 6, where PyTorch's is 0."""
    return np.minimum(relu(input), 6 if input.dtype.kind in "iu" else 6.0)


def hardsigmoid(input: Array) -> Array:
    """Compute ``relu6(x + 3) / 6``, with the gradient of ``relu6``."""
    return relu6(input + 3.0) / 6.0


def hardswish(input: Array) -> Array:
    """Compute ``x * relu6(x + 3) / 6``, with the gradient of ``relu6``."""
    return input * relu6(input + 3.0) / 6.0


def logsigmoid(input: Array) -> Array:
    """Compute ``-log(1 + exp(-x))``."""
    return -functions.softplus(-input)


def prelu(input: Array, weight: Array) -> Array:
    """Compute ``x``, or ``weight * x`` where x is negative (He et al., 2015).

    ``weight`` is [1], or [c] with a slope for each channel (axis 1) of the input.
    """
    if weight.ndim != 1:
        raise MlaotError(f"prelu: expected one slope, or one per channel, got {list(weight.shape)}")
    if weight.shape[0] != 1 and (input.ndim < 2 or input.shape[1] != weight.shape[0]):
        raise MlaotError(f"prelu: {weight.shape[0]} slopes do not fit the channels (axis 1) of {list(input.shape)}")
    slopes = channels_first(weight, input.ndim) if weight.shape[0] != 1 else weight
    return np.where(input > 0, input, _negative_part(input) * slopes)


def glu(input: Array, dim: int = -1) -> Array:
    """Split the axis ``dim`` into halves a and b, and compute ``a * sigmoid(b)`` (Dauphin et al., 2017)."""
    size = static(input.shape[dim], "glu")
    if size % 2:
        raise MlaotError(f"glu: axis {dim} of {list(input.shape)} cannot be halved")
    before = (slice(None),) * (dim % input.ndim)
    return input[(*before, slice(0, size // 2))] * sigmoid(input[(*before, slice(size // 2, size))])


def softmax(input: Array, dim: int = -1) -> Array:
    """Compute ``exp(x) / sum(exp(x))`` along ``dim``.

    The maximum is subtracted first, so nothing overflows. The reciprocal of the sum multiplies each element.
    """
    return functions.softmax(input, dim)


def softmin(input: Array, dim: int = -1) -> Array:
    """Compute ``softmax(-x)`` along ``dim``."""
    return functions.softmax(-input, dim)


def log_softmax(input: Array, dim: int = -1) -> Array:
    """Compute ``x - log(sum(exp(x)))`` along ``dim``."""
    shifted = input - stop_gradient(np.max(input, axis=dim, keepdims=True))
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def _negative_part(x: Array) -> Array:
    """Select 0 where ``x`` is positive, else ``x``.

    nan is kept. Unlike that of ``minimum``, the gradient at 0 is 1 and not a half.
    """
    return np.where(x > 0, 0.0, x)
