"""Operators that make, move, split and join arrays, and that compute with shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.padding import pad as pad_traced
from mlaot.frontend.numpy.shaping import divide_dims
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.dims import Expr, Unequal, assign, names, product, quotient
from mlaot.onnx import assumed
from mlaot.onnx.counting import counted, counted_shape, cut_counted, is_counted
from mlaot.onnx.importer import Use, multiples, unify
from mlaot.onnx.protos import as_weight
from mlaot.onnx.registry import operator, operators
from mlaot.onnx.values import (
    Computed,
    Refined,
    Unsupported,
    as_traced,
    constant_value,
    extent_value,
    extents,
    integers,
    is_constant,
    is_fixed,
    is_symbolic,
    lift,
    numpy_dtype,
    require_constant,
    shape_vector,
)

SHAPE = "its second input, the shape,"
SIZES = "its second input, the sizes,"
FAR = 2**40  # beyond the diagonals of any array
OPEN_END = 10**9  # what exporters write for "to the end" differs; no open dimension is as large
CONSTANTS = {
    "value": None,
    "sparse_value": None,
    **dict.fromkeys(("value_float", "value_floats"), np.float32),
    **dict.fromkeys(("value_int", "value_ints"), np.int64),
    **dict.fromkeys(("value_string", "value_strings"), np.str_),
}

operators(
    {
        "Shape": lambda x, *, start=0, end=None: shape_vector(list(x.shape)[start:end]),
        "Size": lambda x: product(tuple(x.shape)),
        "Transpose": lambda x, *, perm=None: np.transpose(x, perm),
    },
    symbolic=True,
)


@operator("Constant")
def constant(use: Use) -> Any:
    for name, dtype in CONSTANTS.items():
        value = use.attribute(name)
        if value is not None:
            return weight_of(use, np.asarray(value, dtype))
    raise MlaotError("the constant has no value")


def weight_of(use: Use, value: Any) -> Any:
    """Convert a large constant of numbers to a weight, like an initializer."""
    if value.dtype.kind == "f" and value.ndim > 1 and not use.importer.path:
        return as_weight(value, use.importer.new_name(use.node.output[0]))
    return value


@operator("Reshape", symbolic=True)
def reshape(use: Use, x: Any, shape: Any = None, *, allowzero: bool = False) -> Any:
    if shape is not None and constant_value(shape) is None:
        return assumed.reshape(use, lift(x), shape)
    wanted = use.attribute("shape") if shape is None else integers(shape, SHAPE)
    if not allowzero:
        wanted = [x.shape[i] if isinstance(e, int) and e == 0 else e for i, e in enumerate(wanted)]
    target = _without_unknown(x.shape, wanted)
    if -1 in [e for e in target if isinstance(e, int)]:
        _settle_unknown(tuple(x.shape), target)
    return np.reshape(_fit(use, x, target), target)


def _without_unknown(old: Any, new: Any) -> tuple[Any, ...]:
    """Return a shape without -1; named dims on both sides cancel."""
    if -1 not in [e for e in new if isinstance(e, int)]:
        return tuple(new)
    at = next(i for i, e in enumerate(new) if isinstance(e, int) and e == -1)
    rest, left = [e for i, e in enumerate(new) if i != at], list(old)
    for extent in [e for e in rest if isinstance(e, Expr) and e in left]:
        if extent in left:
            left.remove(extent)
            rest.remove(extent)
    divisor = int(np.prod(rest, dtype=np.int64)) if is_fixed(*rest) else 0
    if divisor <= 0:
        return tuple(new)
    return tuple(product(tuple(left)) // divisor if i == at else e for i, e in enumerate(new))


def _settle_unknown(old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Request a new import if -1 is a whole size only for multiples of open dims, as when windows divide an image."""
    total, rest = product(old), product(tuple(e for e in new if not isinstance(e, int) or e != -1))
    if divide_dims(total, rest) is None:
        decide = sorted(names(rest))
        meant = multiples(decide, lambda own: divide_dims(assign(total, own), assign(rest, own)) is not None)
        if meant:
            raise Refined(f"cannot reshape {list(old)} to {list(new)}", meant)


def _fit(use: Use, x: Any, shape: tuple[Any, ...]) -> Any:
    """Cut ``x`` to as many elements as ``shape`` has; each call checks the open axis that decides it."""
    if -1 in [e for e in shape if isinstance(e, int)] or product(tuple(x.shape)) == product(shape):
        return x
    for i, extent in enumerate(x.shape):
        needed = _without_unknown(shape, [-1 if j == i else e for j, e in enumerate(x.shape)])[i]
        fits = needed != -1 and product((*x.shape[:i], needed, *x.shape[i + 1 :])) == product(shape)
        if fits and isinstance(extent, Expr):
            return _cut(use, x, i, needed, f"axis {i}, which is reshaped,")
    for i, extent in enumerate(shape):
        others = product((*shape[:i], *shape[i + 1 :]))
        needed = None if others == 0 else quotient(product(tuple(x.shape)), others)
        if isinstance(extent, Expr) and needed is not None and unify(extent, needed):
            raise Unequal(f"axis {i} of the result must be {needed}, not {extent}", extent, needed)
    return x


def _cut(use: Use, x: Any, axis: int, length: Any, what: str) -> Any:
    """Cut an open axis to its required length, which each call checks."""
    use.settle(x.shape[axis], length, what)
    return x[(*[slice(None)] * axis, slice(0, length))]


@operator("Flatten")
def flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return np.reshape(x, (product(tuple(x.shape[:axis])), product(tuple(x.shape[axis:]))))


@operator("Squeeze", symbolic=True)
def squeeze(use: Use, x: Any, axes: Any = None) -> Any:
    if axes is not None and constant_value(axes) is None:
        return _by_computed_axes(use, x, axes, x.ndim, lambda removed: _removed(x.shape, removed))
    named = use.attribute("axes") if axes is None else integers(axes, "its axes")
    removed = tuple(i + x.ndim if i < 0 else i for i in (_ones(use, x) if named is None else named))
    is_open = [i in removed and not isinstance(extent, int) for i, extent in enumerate(x.shape)]
    for i in np.flatnonzero(is_open).tolist():
        use.require_equal(x.shape[i], 1, f"axis {i}, which is removed,")
    if any(is_open):
        x = x[tuple(slice(0, 1) if each else slice(None) for each in is_open)]
    return np.squeeze(x, axis=removed)


def _ones(use: Use, x: Any) -> list[int]:
    """Return all axes of one element. The shape that the file declares tells which open axes are such."""
    ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    opened = [i for i, extent in enumerate(x.shape) if isinstance(extent, Expr)]
    declared = use.declared()
    if not opened or (declared is not None and declared.shape == _removed(x.shape, ones)):
        return ones
    if declared is not None and len(declared.shape) == x.ndim - len(ones) - len(opened):
        return [*ones, *opened]
    raise Unsupported(f"it names no axes, and whether {x.shape[opened[0]]} is 1 is not known; pin it in [..dims]")


@operator("Unsqueeze", symbolic=True)
def unsqueeze(use: Use, x: Any, axes: Any = None) -> Any:
    if axes is None or constant_value(axes) is not None:
        return np.expand_dims(x, tuple(use.attribute("axes") if axes is None else integers(axes, "its axes")))
    target = assumed.declared_shape(use, "its axes")
    return _by_computed_axes(
        use, x, axes, len(target), lambda added: target if _removed(target, added) == x.shape else ()
    )


def _removed(shape: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    return tuple(extent for i, extent in enumerate(shape) if i not in axes)


def _by_computed_axes(use: Use, x: Any, axes: Any, rank: int, shape: Callable[[tuple[int, ...]], Sequence[Any]]) -> Any:
    """Apply Squeeze or Unsqueeze with computed axes. All axes that give the declared shape give the same elements."""
    target = assumed.declared_shape(use, "its axes")
    choices = [holds for subset, holds in assumed.subsets(axes, rank) if tuple(shape(subset)) == target]
    if not choices:
        raise Computed("its axes are computed when the model runs, and none make the declared shape")
    use.require(reduce(np.logical_or, choices), f"its axes must make {list(target)}")
    return np.reshape(x, target)


@operator("Concat", symbolic=True)
def concat(use: Use, *values: Any, axis: int = 1) -> Any:
    # Expressions of dims and computed integers do not go together.
    parts = list(values) if is_constant(*values) else [lift(value) for value in values]
    for other in range(parts[0].ndim):
        lengths = [part.shape[other] for part in parts]
        fixed = [extent for extent in lengths if isinstance(extent, int)]
        if fixed and len(fixed) < len(lengths) and other != axis % parts[0].ndim:
            what = f"axis {other}, which is {fixed[0]} long in others,"
            pairs = zip(parts, lengths, strict=True)
            parts = [_cut(use, p, other, fixed[0], what) if isinstance(e, Expr) else p for p, e in pairs]
    return np.concatenate(parts, axis=axis)


@operator("Split", symbolic=True)
def split(use: Use, x: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int = 0) -> Any:
    sizes = lift(sizes)

    def parts() -> list[Any]:
        return [assumed.declared_shape(use, SIZES, i)[axis] for i in range(len(use.node.output))]

    lengths = use.attribute("split") if sizes is None else assumed.integers_or_declared(use, sizes, SIZES, parts)
    length = x.shape[axis]
    if lengths is None:
        if not isinstance(length, int):
            raise Unsupported(f"an axis of {length} elements cannot be split evenly; pin the dimension in [..dims]")
        count = num_outputs or len(use.node.output)
        part = -(-length // count)
        lengths = [min(part, max(length - i * part, 0)) for i in range(count)]
    ends = np.cumsum(lengths)
    if isinstance(length, int) and (len(ends) and ends[-1] != length):
        raise MlaotError(f"parts of {list(lengths)} do not make {length}")
    return tuple(np.split(x, [int(e) for e in ends[:-1]], axis=axis))


@operator("Slice", symbolic=True)
def slice_(use: Use, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    at = by = None
    if use.opset < 10:
        begin, end, at = use.attribute("starts"), use.attribute("ends"), use.attribute("axes")
    elif not is_constant(starts, ends, axes, steps):
        if use.importer.is_counting and is_constant(axes, steps):
            return _slice_counted(use, lift(x), lift(starts), lift(ends), axes, steps)
        return assumed.slice_(use, lift(x), *(lift(value) for value in (starts, ends, axes, steps)))
    else:
        begin, end = integers(starts, "where it starts"), integers(ends, "where it ends")
        at = None if axes is None else integers(axes, "its axes")
        by = None if steps is None else integers(steps, "its steps")
    index: list[Any] = [slice(None)] * x.ndim
    cuts: list[tuple[int, Any, Any, int]] = []
    at, by = range(len(begin)) if at is None else [a % x.ndim for a in at], by or [1] * len(begin)
    for axis, first, last, step in zip(at, begin, end, by, strict=True):
        if step == 0:
            raise MlaotError("a step is 0")
        index[axis] = _slice(x.shape[axis], first, last, step)
        is_whole = (index[axis].start, index[axis].stop, abs(step)) == (None, None, 1)
        if is_counted(use, x.shape[axis]) and not is_whole:
            index[axis] = slice(None)
            cuts.append((axis, first, last, step))
    for axis, first, last, step in cuts:
        x = cut_counted(use, lift(x), axis, extent_value(first), extent_value(last), step)
    is_open = any(isinstance(end, Expr) for cut in index for end in (cut.start, cut.stop))
    return as_traced(x)[tuple(index)] if is_open and not is_symbolic(x) else x[tuple(index)]


def _slice(length: Any, first: Any, last: Any, step: int) -> slice:
    """Convert ONNX's ends of slices to Python's; an end far beyond the axis is the end of the axis."""
    if is_fixed(length, first, last):
        first, last = (v + length if v < 0 else v for v in (first, last))
        if step > 0:
            return slice(max(first, 0), max(last, 0), step)
        # Unlike Python, a start in front of the first element means that element.
        first, last = max(min(first, length - 1), 0), max(last, -1)
        return slice(first, None if last < 0 else last, step) if length else slice(0, 0)
    first, last = (OPEN_END if isinstance(v, Expr) and v == length else v for v in (first, last))
    if step > 0:
        return slice(first or None, None if isinstance(last, int) and last >= OPEN_END else last, step)
    start = None if isinstance(first, int) and (first >= OPEN_END or first == -1) else first
    return slice(start, None if isinstance(last, int) and last <= -OPEN_END else last, step)


def _slice_counted(use: Use, x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    """Slice by computed ends, with a counted number of elements."""
    at = range(starts.shape[0]) if axes is None else [a % x.ndim for a in integers(axes, "its axes")]
    by = [1] * len(at) if steps is None else integers(steps, "its steps")
    for i, (axis, step) in enumerate(zip(at, by, strict=True)):
        x = cut_counted(use, x, axis, starts[i], ends[i], step)
    return x


@operator("Expand", symbolic=True)
def expand(use: Use, x: Any, shape: Any) -> Any:
    if constant_value(shape) is None:
        if use.importer.is_counting:
            return _broadcast(x, counted_shape(use, shape, tuple(x.shape)))
        return assumed.expand(use, lift(x), shape)
    return _broadcast(x, integers(shape, SHAPE))


def _broadcast(x: Any, target: list[Any]) -> Any:
    if not is_fixed(*target):
        x = as_traced(x)
    rank = max(x.ndim, len(target))
    old, new = [1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(target)) + list(target)
    if any(is_fixed(a, b) and 1 not in (a, b) and a != b for a, b in zip(old, new, strict=True)):
        raise MlaotError(f"an array {list(x.shape)} cannot be expanded to {list(target)}")
    return spread(x, tuple(b if a == 1 else a for a, b in zip(old, new, strict=True)))


def spread(x: Any, shape: tuple[Any, ...]) -> Any:
    """Broadcast like ``np.broadcast_to``, also a constant to named dimensions."""
    return np.broadcast_to(x if is_fixed(*shape) else as_traced(x), shape)


@operator("Tile")
def tile(use: Use, x: Any, repeats: Any, axis: Any = None) -> Any:
    what = "the number of tiles"
    if use.opset < 6:
        counts = [1] * x.ndim
        counts[integers(axis, "its axis")[0]] = integers(repeats, what)[0]
        return np.tile(x, counts)

    def tiles() -> list[Any]:
        """Return the numbers of tiles that give the declared shape."""
        target = assumed.declared_shape(use, what)
        if 0 in x.shape or not is_fixed(*target, *x.shape):
            raise Computed("the number of tiles is computed when the model runs; it must be constant")
        return [int(a) // int(b) for a, b in zip(target, x.shape, strict=True)]

    return np.tile(x, assumed.integers_or_declared(use, repeats, what, tiles))


@operator("ConstantOfShape", symbolic=True)
def constant_of_shape(use: Use, shape: Any, *, value: Any = None) -> Any:
    number = np.zeros((), np.float32) if value is None else value.reshape(())
    target = partial(assumed.declared_shape, use, "the shape")
    if use.importer.is_counting and constant_value(shape) is None:
        lengths = tuple(counted_shape(use, shape, ()))
    else:
        lengths = tuple(assumed.integers_or_declared(use, shape, "the shape", target))
    if is_fixed(*lengths):
        _check_size(lengths)
        return np.full(lengths, number)
    return _broadcast(F.astype(as_traced(number), number.dtype), list(lengths))


def _check_size(lengths: Any) -> None:
    """Raise an error for an array of absurd size, as a damaged file may ask for any amount of memory."""
    if any(e < 0 for e in lengths):
        raise MlaotError(f"an array cannot have the shape {list(lengths)}")
    if float(np.prod([float(e) for e in lengths])) > 2**31:
        raise MlaotError(f"a constant of the shape {list(lengths)} is too large")


@operator("Range", symbolic=True)
def range_(use: Use, *ends: Any) -> Any:
    if any(map(is_symbolic, ends)) or not is_constant(*ends):
        computed, (start, limit, delta) = [extents(end) for end in ends], [lift(end) for end in ends]
        if any(end is None for end in computed):
            return _computed_range(use, start, limit, delta)
        (first,), (last,), (step,) = (integers(end, "the range") for end in computed)
        return F.arange(first, last, step, dtype=delta.dtype)
    names = ("its start", "its limit", "its step")
    first, last, step = (require_constant(end, name).reshape(()) for end, name in zip(ends, names, strict=True))
    if step == 0:
        raise MlaotError("the step is 0")
    count = max(int(np.ceil((float(last) - float(first)) / float(step))), 0)
    _check_size((count,))
    return (first + np.arange(count).astype(first.dtype) * step).astype(first.dtype)


def _computed_range(use: Use, *ends: Any) -> Any:
    start, limit, delta = (np.reshape(end, ()) for end in ends)
    first, last, step = (F.astype(end, np.float64) for end in (start, limit, delta))
    number = np.maximum(np.ceil((last - first) / step), 0.0)
    if use.importer.is_counting:
        length = counted(use, F.astype(number, np.int64), None, 0, "elements")
        return start + F.astype(F.arange(length), start.dtype) * delta
    (count,) = assumed.declared_shape(use, "the range")
    use.require(np.equal(number, float(int(count))), f"the range must have {count} elements")
    return start + F.astype(np.arange(int(count)), start.dtype) * delta


@operator("EyeLike")
def eye_like(x: Any, *, dtype: Any = None, k: int = 0) -> Any:
    to = np.dtype(x.dtype) if dtype is None else numpy_dtype(dtype)
    rows, columns = x.shape
    if is_fixed(rows, columns):
        return np.eye(rows, columns, k).astype(to)
    return F.astype(F.eye(rows, columns, k), to)


@operator("Trilu")
def trilu(x: Any, k: Any = None, *, upper: bool = True) -> Any:
    if k is not None and constant_value(k) is None:
        rows, columns = x.shape[-2:]
        diagonals = F.arange(columns) - np.expand_dims(F.arange(rows), 1)
        kept = diagonals >= np.reshape(k, ()) if upper else diagonals <= np.reshape(k, ())
        return np.where(kept, x, np.zeros((), x.dtype))
    diagonal = 0 if k is None else max(min(int(integers(k, "the diagonal")[0]), FAR), -FAR)
    return np.triu(x, diagonal) if upper else np.tril(x, diagonal)


@operator("Pad", symbolic=True)
def pad(use: Use, x: Any, pads: Any = None, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    x = lift(x)
    if axes is not None and constant_value(axes) is None:
        pads, axes = assumed.pads_of_all(lift(pads), axes, x.ndim), None
    at = list(range(x.ndim)) if axes is None else [a % x.ndim for a in integers(axes, "its axes")]
    if pads is None:
        amounts, value = use.attribute("pads", use.attribute("paddings")), use.attribute("value", 0.0)
    elif constant_value(pads) is None:
        return assumed.pad(use, x, pads, value, at, mode)
    else:
        amounts = integers(pads, "its second input")
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(at):
        low[axis], high[axis] = amounts[i], amounts[i + len(at)]
    return pad_by(x, low, high, mode, value)


def pad_by(x: Any, low: list[int], high: list[int], mode: str, fill: Any = None) -> Any:
    """Add elements to both ends of each axis, or remove some."""
    if not is_fixed(*low, *high):
        return _pad_open(x, low, high, mode, fill)
    if any(v < 0 for v in (*low, *high)):
        x = x[tuple(slice(max(-a, 0), min(b, 0) or None) for a, b in zip(low, high, strict=True))]
        low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
    if not any(low) and not any(high):
        return x
    both = list(zip(low, high, strict=True))
    if mode != "constant":
        return np.pad(x, both, mode=mode)  # type: ignore[call-overload]
    array = constant_value(fill)
    number = 0 if fill is None else fill if array is None else array.reshape(()).item()
    if constant_value(x) is not None and not is_traced(x):
        return np.pad(x, both, constant_values=number)
    return pad_traced(x, tuple(low), tuple(high), value=number)


def _pad_open(x: Any, low: list[Any], high: list[Any], mode: str, fill: Any) -> Any:
    """Pad both ends by amounts that contain named dims."""
    if mode != "constant":
        raise Unsupported(f"how much it adds in mode {mode!r} depends on an open dimension; give that a size")
    number = as_traced(np.zeros((), x.dtype) if fill is None else np.reshape(fill, ()).astype(x.dtype))
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        ends = [np.broadcast_to(number, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in (before, after)]
        x = np.concatenate([ends[0], x, ends[1]], axis=axis) if (before, after) != (0, 0) else x
    return x


@operator("CenterCropPad")
def center_crop_pad(use: Use, x: Any, shape: Any, *, axes: Any = None) -> Any:
    at = range(x.ndim) if axes is None else axes

    def target() -> list[Any]:
        declared = assumed.declared_shape(use, "the shape")
        return [declared[axis] for axis in at]

    low, high = [0] * x.ndim, [0] * x.ndim
    for axis, size in zip(at, assumed.integers_or_declared(use, shape, "the shape", target), strict=True):
        more = size - x.shape[axis]
        low[axis % x.ndim] = more // 2 if more >= 0 else -((-more) // 2)
        high[axis % x.ndim] = more - low[axis % x.ndim]
    return pad_by(x, low, high, "constant")


@operator("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int = 1, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b, deep = blocksize, c // (blocksize * blocksize)
    if mode == "DCR":
        y = np.transpose(np.reshape(x, (n, b, b, deep, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = np.transpose(np.reshape(x, (n, deep, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return np.reshape(y, (n, deep, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int = 1, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = np.transpose(np.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return np.reshape(y, (n, c * b * b, h // b, w // b))
