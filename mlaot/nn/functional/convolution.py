"""Convolution: the input's sliding windows times the kernel, summed in one ``einsum``.

Shapes are PyTorch's: an input is [n, c, *spatial], or [c, *spatial] for one example. A kernel is [o, c / groups, *k],
and the kernel of a transposed convolution is [c, o / groups, *k]. A transposed convolution puts ``stride - 1`` zeros
between the elements of the input, and convolves the result with the flipped kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import window
from mlaot.frontend.numpy.padding import pad
from mlaot.nn.arguments import Array, by_rank, check_shape, check_spatial, static, tuple_of

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def conv(
    n: int,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """Convolve [(n,) c, *spatial] with kernels [o, c / groups, *k]: [(n,) o, *positions].

    ``padding`` is a number of zeros at both ends of each axis, "valid" for none, or "same", which keeps the size.
    """
    name = f"conv{n}d"
    check_spatial(input, n, name)
    strides, dilations = tuple_of(stride, n, f"{name}: stride", 1), tuple_of(dilation, n, f"{name}: dilation", 1)
    _check_rank(name, weight, n, groups)
    _check_weight(name, input, weight, n, groups, weight.shape[1] * groups, weight.shape[0])
    if isinstance(padding, str) and padding == "same" and set(strides) != {1}:
        raise MlaotError(f"{name}: padding 'same' needs stride 1, got {stride}")
    expected = f"{name}: padding ('same' and 'valid' are known too)"
    amounts = padding_amounts(padding, weight.shape[2:], dilations, expected)
    return correlate(pad_spatial(input, amounts), weight, bias, strides, dilations, groups)


def conv_transpose(
    n: int,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    """Compute the transposed convolution of [(n,) c, *spatial] with kernels [c, o / groups, *k].

    The size of an output axis is ``(size - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1``.
    """
    name = f"conv_transpose{n}d"
    check_spatial(input, n, name)
    strides, dilations = tuple_of(stride, n, f"{name}: stride", 1), tuple_of(dilation, n, f"{name}: dilation", 1)
    paddings = tuple_of(padding, n, f"{name}: padding")
    extras = tuple_of(output_padding, n, f"{name}: output_padding")
    _check_rank(name, weight, n, groups)
    inner, outer, *kernel = weight.shape
    _check_weight(name, input, weight, n, groups, inner, inner)
    if any(e >= max(s, d) for e, s, d in zip(extras, strides, dilations, strict=True)):
        raise MlaotError(f"{name}: output_padding {output_padding} must be smaller than stride or dilation")
    # The transpose of a convolution with padding p has padding d * (k - 1) - p (Dumoulin and Visin, 2016).
    reach = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    amounts = [(r - p, r - p + e) for r, p, e in zip(reach, paddings, extras, strict=True)]
    spread = pad_spatial(input, amounts, tuple(s - 1 for s in strides))
    mirrored = weight[(slice(None), slice(None), *[slice(None, None, -1)] * n)]
    grouped = np.swapaxes(np.reshape(mirrored, (groups, inner // groups, outer, *kernel)), 1, 2)
    flipped = np.reshape(grouped, (groups * outer, inner // groups, *kernel))
    return correlate(spread, flipped, bias, (1,) * n, dilations, groups)


conv1d, conv2d, conv3d = by_rank(conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = by_rank(conv_transpose)


def padding_amounts(padding: Any, kernel: tuple[int, ...], dilation: Any, name: str) -> list[tuple[int, int]]:
    """Return how far to pad before and after each spatial axis.

    "same" keeps the size of an axis. Of an odd amount, the larger half comes after the elements.
    """
    n = len(kernel)
    if isinstance(padding, str) and padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, tuple_of(dilation, n, "dilation"), strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    if isinstance(padding, str) and padding == "valid":
        return [(0, 0)] * n
    return [(p, p) for p in tuple_of(padding, n, name)]


def pad_spatial(
    x: Array, amounts: list[tuple[int, int]], interior: tuple[int, ...] | None = None, value: float = 0.0
) -> Array:
    """Pad the last axes with ``value``: the amounts at their ends, and ``interior`` times between neighbours.

    A negative amount cuts elements off.
    """
    none = (0,) * (x.ndim - len(amounts))
    low, high = [none + tuple(max(pair[side], 0) for pair in amounts) for side in (0, 1)]
    between = none + (interior or (0,) * len(amounts))
    if any((*low, *high, *between)):
        x = pad(x, low, high, between, value)
    if all(before >= 0 and after >= 0 for before, after in amounts):
        return x
    return x[(..., *[slice(max(-before, 0), min(after, 0) or None) for before, after in amounts])]


def correlate(
    x: Array, weight: Array, bias: Array | None, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int
) -> Array:
    """Multiply windows of x [(n,) c, *spatial] by weight [o, c / groups, *k], and sum over c and k.

    The result is [(n,) o, *positions].
    """
    n = len(strides)
    lead, kernel, out = x.shape[: -n - 1], weight.shape[2:], weight.shape[0]
    check_shape(bias, (out,), "convolution: bias")
    batch, group, positions, taps = "n"[: len(lead)], "g"[: groups > 1], "xyz"[:n], "uvw"[:n]
    if group:
        x = np.reshape(x, (*lead, groups, weight.shape[1], *x.shape[-n:]))
        weight = np.reshape(weight, (groups, out // groups, *weight.shape[1:]))
    windows = window(x, tuple(range(x.ndim - n, x.ndim)), kernel, strides, dilations)
    spec = f"{batch}{group}c{positions}{taps},{group}oc{taps}->{batch}{group}o{positions}"
    y = np.einsum(spec, windows, weight, optimize=True)
    if group:
        y = np.reshape(y, (*lead, out, *y.shape[-n:]))
    return y if bias is None else y + np.reshape(bias, (out,) + (1,) * n)


def _check_rank(name: str, weight: Array, n: int, groups: int) -> None:
    if groups < 1:
        raise MlaotError(f"{name}: groups: expected at least 1, got {groups}")
    if weight.ndim != n + 2:
        raise MlaotError(f"{name}: expected a kernel of {n + 2} dimensions, got {list(weight.shape)}")


def _check_weight(name: str, x: Array, weight: Array, n: int, groups: int, inner: int, divided: int) -> None:
    channels = static(x.shape[-n - 1], name)
    if channels != inner or divided % groups or inner % groups:
        raise MlaotError(
            f"{name}: a kernel {list(weight.shape)} in {groups} group(s) does not fit an input with {channels} channels"
        )
