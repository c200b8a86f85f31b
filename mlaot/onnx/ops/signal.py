"""Fourier transforms as products with matrices, and their windows and filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.padding import pad
from mlaot.frontend.trace.control import cond
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Array, Computed, Unsupported, as_traced, constant_value, dtype_of, integers, numpy_dtype

LONGEST = 512  # transforms that are one product with a matrix; longer ones are made of shorter ones
LARGEST = 4096  # the same where a length has no factors
WINDOWS: dict[str, tuple[float, ...]] = {  # coefficients of cosines
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def _declared(use: Use, axis: int, what: str) -> int:
    """Return a size of the result that the file declares, as the operand that decides it is computed by the model."""
    message = f"{what} is computed when the model runs; it must be constant, or the output's shape declared"
    return assumed.declared_extent(use, axis, Computed(message))


def _size(use: Use, value: Any, axis: int, what: str) -> int:
    if constant_value(value) is not None:
        return int(integers(value, what)[0])
    size = _declared(use, axis, what)
    use.require(np.all(np.equal(value, size)), f"{what} must be {size}")
    return size


@operator(*WINDOWS, since=17)
def window(use: Use, size: Any, *, periodic: bool = True) -> Any:
    count = _size(use, size, 0, "the size")
    if count < 0:
        raise MlaotError(f"a window of {count} elements")
    steps = max(count if periodic else count - 1, 1)
    at = np.arange(count) * (2 * np.pi / steps)
    terms = WINDOWS[use.op]
    values = sum(c * np.cos(i * at) for i, c in enumerate(terms))
    return np.asarray(values).astype(numpy_dtype(use.attribute("output_datatype", onnx.TensorProto.FLOAT)))


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(use: Use, bands: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    count = _size(use, bands, 1, "the number of bands")
    if constant_value(length) is None:
        rows = _declared(use, 0, "the length")
        use.require(np.all(np.equal(np.floor_divide(length, 2) + 1, rows)), f"the length must make {rows} rows")
    else:
        rows = int(integers(length, "the length")[0]) // 2 + 1
    length, rate, low, high = (np.reshape(_as_float64(v), ()) for v in (length, rate, low, high))
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    hertz = 700 * (10 ** ((np.arange(count + 2) * ((last - first) / (count + 2)) + first) / 2595) - 1)
    places = np.floor((length + 1) * hertz / rate)
    left, middle, right = places[:-2], places[1:-1], places[2:]
    at = np.arange(rows, dtype=np.float64).reshape(-1, 1)
    rising = np.where(middle == left, 1.0, (at - left) / np.where(middle == left, 1.0, middle - left))
    falling = (right - at) / np.where(right == middle, 1.0, right - middle)
    result = np.where((at >= left) & (at <= middle), rising, 0.0)
    result = np.where((at >= middle) & (at < right), falling, result)
    kind = use.attribute("output_datatype", onnx.TensorProto.FLOAT)
    return result.astype(numpy_dtype(kind)) if constant_value(result) is not None else F.astype(result, dtype_of(kind))


def _as_float64(value: Any) -> Any:
    number = constant_value(value)
    return F.astype(value, np.float64) if number is None else number.astype(np.float64)


@operator("DFT", since=17)
def dft_17(use: Use, x: Any, length: Any = None, *, axis: int = 1) -> Any:
    return _dft(use, x, length, axis % x.ndim)


@operator("DFT", since=20)
def dft(use: Use, x: Any, length: Any = None, axis: Any = None) -> Any:
    if axis is None or constant_value(axis) is not None:
        return _dft(use, x, length, (-2 if axis is None else int(integers(axis, "the axis")[0])) % x.ndim)
    return _along_any(use, x, length, axis)


def _along_any(use: Use, x: Any, length: Any, axis: Any) -> Any:
    """Transform along a computed axis, with a branch for each axis that gives the declared shape."""
    type_ = use.declared()
    if type_ is None or (constant_value(length) is None and length is not None):
        raise Computed("the axis is computed when the model runs; it must be constant")
    signal = as_traced(x)
    fitting = [a for a in range(x.ndim - 1) if _shape(use, x, length, a) == type_.shape]
    if not fitting:
        raise MlaotError(f"no axis of {list(x.shape)} gives {list(type_.shape)}")
    at = np.reshape(axis, ())
    at = np.where(at < 0, at + x.ndim, at)
    use.require(np.any(np.equal(at, np.array(fitting))), f"the axis must be one of {fitting}")

    def branch(left: list[int]) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            if len(left) == 1:
                return _dft(use, value, length, left[0])
            return cond(at == left[0], branch(left[:1]), branch(left[1:]), value)

        return run

    return branch(fitting)(signal)


def _kind(use: Use) -> tuple[bool, bool]:
    """Tell whether a transform is inverse, and whether its spectrum is one-sided."""
    return use.attribute("inverse", False), use.attribute("onesided", False)


def _shape(use: Use, x: Any, length: Any, axis: int) -> tuple[Any, ...]:
    size, (back, half) = _length(use, x, length, axis), _kind(use)
    count = size // 2 + 1 if half and not back else size
    return (*x.shape[:axis], count, *x.shape[axis + 1 : -1], 1 if half and back else 2)


def _length(use: Use, x: Any, length: Any, axis: int) -> int:
    size, (back, half) = x.shape[axis], _kind(use)
    if length is not None:
        if constant_value(length) is None and half and not back:
            raise Computed("the length is computed when the model runs; it must be constant")
        count = _size(use, length, axis, "the length")
        if count < 1:
            raise MlaotError(f"a transform of {count} elements")
        return count
    if not isinstance(size, int):
        raise Unsupported(f"a transform along an open dimension {size}; pin it in [..dims]")
    return 2 * (size - 1) if half and back else size


def _dft(use: Use, x: Any, length: Any, axis: int) -> Any:
    """Transform along ``axis``; the last one has the parts of complex numbers."""
    if axis >= x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise MlaotError(f"expected [.., 1] or [.., 2] and an axis before the last, got {list(x.shape)} and {axis}")
    size, (back, half) = _length(use, x, length, axis), _kind(use)
    y = _cut(np.moveaxis(x, axis, -2), size // 2 + 1 if back and half else size)
    is_short = size <= LONGEST
    z = _times(y, _matrix(size, y.shape[-1], back, half)) if is_short else _long(y, size, back, half)
    return np.moveaxis(z, -2, axis)


def _cut(y: Any, size: int) -> Any:
    """Cut the axis before the last to ``size`` elements, or pad it with zeros."""
    length = y.shape[-2]
    if not isinstance(length, int):
        raise Unsupported(f"a transform along an open dimension {length}; pin it in [..dims]")
    if length < size:
        return pad(y, 0, (*[0] * (y.ndim - 2), size - length, 0))
    return y[..., :size, :] if length > size else y


def _matrix(size: int, parts: int, back: bool, half: bool) -> Array:
    """Return the transform as a matrix [elements, parts, elements, parts]."""
    count = size // 2 + 1 if back and half else size
    basis = np.eye(count, dtype=np.complex128)
    basis = np.stack([basis, 1j * basis], axis=1)[:, :parts]
    if half:
        table = np.fft.irfft(basis, size) if back else np.fft.fft(basis)[..., : size // 2 + 1]
    else:
        table = np.fft.ifft(basis) if back else np.fft.fft(basis)
    return table[..., None] if half and back else np.stack([table.real, table.imag], axis=-1)


def _times(y: Any, matrix: Array) -> Any:
    """Multiply [.., n, c] by [n, c, m, d]."""
    rows, parts, columns, out = matrix.shape
    flat = np.reshape(y, (*y.shape[:-2], rows * parts))
    product = np.matmul(flat, matrix.reshape(rows * parts, columns * out).astype(y.dtype))
    return np.reshape(product, (*y.shape[:-2], columns, out))


def _long(y: Any, size: int, back: bool, half: bool) -> Any:
    real = y[..., 0]
    imaginary = y[..., 1] if y.shape[-1] == 2 else None
    if back and half:  # the other half is its mirror image
        count = size - real.shape[-1]
        real = np.concatenate([real, np.flip(real[..., 1 : count + 1], axis=-1)], axis=-1)
        if imaginary is not None:
            # Of the first and of the middle one only the real part counts.
            inner = imaginary[..., 1 : count + 1]
            ends = np.zeros_like(imaginary[..., :1])
            middle = [] if size % 2 else [ends]
            imaginary = np.concatenate([ends, inner, *middle, -np.flip(inner, axis=-1)], axis=-1)
    re, im = _compose(real, imaginary, size, 1.0 if back else -1.0)
    if back:
        re, im = re * (1.0 / size), im * (1.0 / size)
    if half:
        if back:
            return np.expand_dims(re, -1)
        re, im = re[..., : size // 2 + 1], im[..., : size // 2 + 1]
    return np.stack([re, im], axis=-1)


def _compose(real: Any, imaginary: Any, size: int, sign: float) -> tuple[Any, Any]:
    """Return both parts of the undivided sums: along the columns of a rectangle, twiddle factors, along the rows."""
    p = next((d for d in range(math.isqrt(size), 1, -1) if size % d == 0), 1)
    q = size // p
    if size <= LONGEST or p == 1:
        if size > LARGEST:
            raise Unsupported(f"a transform of {size} elements, a prime; pad it to a length with factors")
        return _product(real, imaginary, _turns(np.outer(np.arange(size), np.arange(size)), size, sign))
    rectangle = (*real.shape[:-1], p, q)
    a, b = (None if v is None else np.swapaxes(np.reshape(v, rectangle), -1, -2) for v in (real, imaginary))
    a, b = _compose(a, b, p, sign)  # [.., q, p]
    turn, lean = (t.astype(a.dtype) for t in _turns(np.outer(np.arange(q), np.arange(p)), size, sign))
    a, b = a * turn - b * lean, a * lean + b * turn
    a, b = (np.swapaxes(v, -1, -2) for v in (a, b))
    a, b = _compose(a, b, q, sign)  # [.., p, q]
    flat = (*real.shape[:-1], size)
    return np.reshape(np.swapaxes(a, -1, -2), flat), np.reshape(np.swapaxes(b, -1, -2), flat)


def _turns(powers: Array, size: int, sign: float) -> tuple[Array, Array]:
    angle = (powers % size) * (2 * np.pi / size)
    return np.cos(angle), sign * np.sin(angle)


def _product(real: Any, imaginary: Any, turns: tuple[Array, Array]) -> tuple[Any, Any]:
    c, s = (t.astype(real.dtype) for t in turns)
    if imaginary is None:
        return np.matmul(real, c), np.matmul(real, s)
    return np.matmul(real, c) - np.matmul(imaginary, s), np.matmul(real, s) + np.matmul(imaginary, c)


@operator("STFT", since=17)
def stft(use: Use, x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: bool = True) -> Any:
    if window is not None:
        return _stft(use, x, step, window, window.shape[0], onesided)
    if length is None or constant_value(length) is not None:
        size = x.shape[1] if length is None else int(integers(length, "the length")[0])
        return _stft(use, x, step, None, size, onesided)
    rows, number = _declared(use, 2, "the length"), np.reshape(length, ())
    sizes = [n for n in ((2 * rows - 2, 2 * rows - 1) if onesided else (rows,)) if 1 <= n <= x.shape[1]]
    transforms = [(np.equal(number, n), partial(_stft, use, x, step, None, n, onesided)) for n in sizes]
    return assumed.choose(use, "the length", transforms)


def _stft(use: Use, x: Any, step: Any, window: Any, size: Any, onesided: bool) -> Any:
    """Transform frames of ``size`` elements."""
    if not isinstance(size, int) or size < 1:
        raise MlaotError(f"frames of {size} elements")
    if constant_value(x) is not None:
        x = as_traced(x)
    parts, frames = x.shape[2], _frames(use, x, size, step)
    weights = constant_value(window)
    if size > LONGEST:
        frames = np.swapaxes(frames, -1, -2)
        return _long(frames if window is None else frames * np.reshape(window, (-1, 1)), size, False, onesided)
    if window is not None and weights is None:
        frames = frames * window
    matrix = _matrix(size, parts, False, onesided)
    if weights is not None:
        matrix = matrix * np.asarray(weights, np.float64)[:, None, None, None]
    columns = matrix.shape[2]
    weight = matrix.transpose(1, 0, 2, 3).reshape(parts, size, columns * 2).astype(x.dtype)
    product = np.einsum("bfcn,cnk->bfk", frames, weight)
    return np.reshape(product, (*product.shape[:2], columns, 2))


def _frames(use: Use, x: Any, size: int, step: Any) -> Any:
    """Return windows of the signal, as [batch, frames, parts, size]."""
    if constant_value(step) is not None:
        hop = int(integers(step, "the step")[0])
        if hop < 1:
            raise MlaotError(f"frames {hop} apart")
        return F.window(x, (1,), (size,), (hop,), (1,))
    count, room = _declared(use, 1, "the step"), x.shape[1] - size
    each: Any = np.reshape(step, ()).astype(np.int64)
    use.require((each > 0) & np.equal(room // np.maximum(each, 1) + 1, count), f"the step must make {count} frames")
    begin = np.arange(count).reshape(-1, 1) * each
    return np.moveaxis(np.take(x, begin + np.arange(size), axis=1), 2, 3)
