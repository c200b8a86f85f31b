"""Operators that move, cut, join and index arrays, and that compute with shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import onnx

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.padding import pad as pad_
from mlaot.frontend.trace.protocols import is_traced
from mlaot.ir.dims import Expr, product
from mlaot.onnx import assumed
from mlaot.onnx.importer import Use, constant
from mlaot.onnx.registry import operator
from mlaot.onnx.values import (
    Unsupported,
    extents,
    integers,
    is_known,
    is_symbolic,
    kind_of,
    known,
    lifted,
    numpy_dtype,
    of_dims,
    traced,
    wanted,
)


@operator("Constant")
def constant_(use: Use) -> Any:
    makers: dict[str, Callable[[Any], Any]] = {
        "value": lambda v: v,
        "sparse_value": lambda v: v,
        "value_float": lambda v: np.array(v, np.float32),
        "value_floats": lambda v: np.array(v, np.float32),
        "value_int": lambda v: np.array(v, np.int64),
        "value_ints": lambda v: np.array(v, np.int64),
        "value_string": lambda v: np.array(v.decode()),
        "value_strings": lambda v: np.array([s.decode() for s in v], np.str_),
    }
    for name, make in makers.items():
        found = use.attribute(name)
        if found is not None:
            return _weight(use, make(found))
    raise MlaotError("the constant has no value")


def _weight(use: Use, value: Any) -> Any:
    """A large constant of numbers is a weight, as an initializer would be."""
    if value.dtype.kind == "f" and value.ndim > 1 and not use.importer.path:
        tensor = onnx.numpy_helper.from_array(value)
        return constant(tensor, weight_name=use.importer.new_name(use.node.output[0]))
    return value


@operator("Shape", symbolic=True)
def shape(use: Use, x: Any) -> Any:
    start, end = use.attribute("start", 0), use.attribute("end")
    return of_dims(list(x.shape)[start:end])


@operator("Size", symbolic=True)
def size(use: Use, x: Any) -> Any:
    return product(tuple(x.shape))


@operator("Reshape", symbolic=True)
def reshape(use: Use, x: Any, shape: Any = None) -> Any:
    if shape is not None and known(shape) is None:
        return assumed.reshaped(use, lifted(x), shape)
    given = use.attribute("shape") if shape is None else integers(shape, "its second input, the shape,")
    if not use.attribute("allowzero", 0):
        given = [x.shape[i] if isinstance(e, int) and e == 0 else e for i, e in enumerate(given)]
    target = _without_unknown(x.shape, given)
    return np.reshape(_fitting(use, x, target), target)


def _without_unknown(old: Any, new: Any) -> tuple[Any, ...]:
    """A shape without -1; named dims on both sides cancel."""
    if -1 not in [e for e in new if isinstance(e, int)]:
        return tuple(new)
    at = next(i for i, e in enumerate(new) if isinstance(e, int) and e == -1)
    rest, left = [e for i, e in enumerate(new) if i != at], list(old)
    for extent in [e for e in rest if isinstance(e, Expr)]:
        if extent in left:
            left.remove(extent)
            rest.remove(extent)
    if all(isinstance(e, int) for e in rest):
        divisor = int(np.prod(rest, dtype=np.int64))
        if divisor > 0:
            return tuple(product(tuple(left)) // divisor if i == at else e for i, e in enumerate(new))
    return tuple(new)


def _fitting(use: Use, x: Any, shape: tuple[Any, ...]) -> Any:
    """``x`` with as many elements as ``shape`` has: calls are checked for the open axis that decides it."""
    if -1 in [e for e in shape if isinstance(e, int)] or product(tuple(x.shape)) == product(shape):
        return x
    for i, extent in enumerate(x.shape):
        others = [-1 if j == i else e for j, e in enumerate(x.shape)]
        needed = _without_unknown(shape, others)[i]
        fits = needed != -1 and product((*x.shape[:i], needed, *x.shape[i + 1 :])) == product(shape)
        if fits and isinstance(extent, Expr):
            return _cut(use, x, i, needed, f"axis {i}, which is reshaped,")
    return x


def _cut(use: Use, x: Any, axis: int, length: Any, what: str) -> Any:
    """``x`` with an open axis as long as it must be, which calls are checked for."""
    use.settle(x.shape[axis], length, what)
    return x[(*[slice(None)] * axis, slice(0, length))]


@operator("Flatten")
def flatten(use: Use, x: Any) -> Any:
    axis = use.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return np.reshape(x, (product(tuple(x.shape[:axis])), product(tuple(x.shape[axis:]))))


@operator("Transpose", symbolic=True)
def transpose(use: Use, x: Any) -> Any:
    return np.transpose(x, use.attribute("perm"))


@operator("Squeeze", symbolic=True)
def squeeze(use: Use, x: Any, axes: Any = None) -> Any:
    if axes is not None and known(axes) is None:
        return _with_axes(use, x, axes, x.ndim, lambda some: [e for i, e in enumerate(x.shape) if i not in some])
    found = use.attribute("axes") if axes is None else integers(axes, "its axes")
    found = _squeezed(use, x) if found is None else found
    axes = tuple(i + x.ndim if i < 0 else i for i in found)
    opened = [i for i in axes if 0 <= i < x.ndim and not isinstance(x.shape[i], int)]
    for i in opened:
        use.require_equal(x.shape[i], 1, f"axis {i}, which is removed,")
    if opened:
        x = x[tuple(slice(0, 1) if i in opened else slice(None) for i in range(x.ndim))]
    return np.squeeze(x, axis=axes)


def _squeezed(use: Use, x: Any) -> list[int]:
    """All axes of one element; whether open ones are among them says the shape that the file declares."""
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
    if axes is not None and known(axes) is None:
        target = assumed.declared_shape(use, "its axes")
        rank = len(target)
        return _with_axes(use, x, axes, rank, lambda some: [] if _removed(target, some) != x.shape else target)
    found = use.attribute("axes") if axes is None else integers(axes, "its axes")
    return np.expand_dims(x, tuple(found))


def _removed(shape: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    return tuple(extent for i, extent in enumerate(shape) if i not in axes)


def _with_axes(use: Use, x: Any, axes: Any, rank: int, shape: Callable[[tuple[int, ...]], Sequence[Any]]) -> Any:
    """Squeeze and Unsqueeze by computed axes: the same elements, whichever of those that make the shape they are."""
    target = assumed.declared_shape(use, "its axes")
    choices = [holds for some, holds in assumed.subsets(axes, rank) if tuple(shape(some)) == target]
    if not choices:
        raise Unsupported("its axes are computed when the model runs, and none make the declared shape")
    use.require(reduce(np.logical_or, choices), f"its axes must make {list(target)}")
    return np.reshape(x, target)


@operator("Concat", symbolic=True)
def concat(use: Use, *values: Any) -> Any:
    parts, joined = _of_one_kind(values), use.attribute("axis", 1)
    for axis in range(parts[0].ndim):
        given = [part.shape[axis] for part in parts]
        fixed = [extent for extent in given if isinstance(extent, int)]
        if fixed and len(fixed) < len(given) and axis != joined % parts[0].ndim:
            what = f"axis {axis}, which is {fixed[0]} long in others,"
            opened = [isinstance(extent, Expr) for extent in given]
            parts = [_cut(use, p, axis, fixed[0], what) if o else p for p, o in zip(parts, opened, strict=True)]
    return np.concatenate(parts, axis=joined)


def _of_one_kind(values: Any) -> list[Any]:
    """Expressions of dims and computed integers do not go together."""
    if any(known(v) is None for v in values):
        return [lifted(v) for v in values]
    return list(values)


@operator("Split")
def split(use: Use, x: Any, sizes: Any = None) -> Any:
    axis = use.attribute("axis", 0)
    what = "its second input, the sizes,"

    def parts() -> list[Any]:
        return [assumed.declared_shape(use, what, i)[axis] for i in range(len(use.node.output))]

    given = use.attribute("split") if sizes is None else assumed.settled_integers(use, sizes, what, parts)
    if given is None:
        count, length = use.attribute("num_outputs", len(use.node.output)), x.shape[axis]
        if not isinstance(length, int):
            raise Unsupported(f"an axis of {length} elements cannot be split evenly; pin the dimension in [..dims]")
        part = -(-length // count)
        given = [min(part, max(length - i * part, 0)) for i in range(count)]
    ends = np.cumsum(given)
    if isinstance(x.shape[axis], int) and (len(ends) and ends[-1] != x.shape[axis]):
        raise MlaotError(f"parts of {list(given)} do not make {x.shape[axis]}")
    return tuple(np.split(x, [int(e) for e in ends[:-1]], axis=axis))


@operator("Slice", symbolic=True)
def slice_(use: Use, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    if use.opset < 10:
        begin, end, at = use.attribute("starts"), use.attribute("ends"), use.attribute("axes")
        by = None
    elif any(value is not None and known(value) is None for value in (starts, ends, axes, steps)):
        return assumed.sliced(use, lifted(x), *(lifted(value) for value in (starts, ends, axes, steps)))
    else:
        begin, end = integers(starts, "where it starts"), integers(ends, "where it ends")
        at = None if axes is None else integers(axes, "its axes")
        by = None if steps is None else integers(steps, "its steps")
    at = list(range(len(begin))) if at is None else [a % x.ndim for a in at]
    by = [1] * len(begin) if by is None else by
    index: list[Any] = [slice(None)] * x.ndim
    for axis, first, last, step in zip(at, begin, end, by, strict=True):
        if step == 0:
            raise MlaotError("a step is 0")
        index[axis] = _slice(x.shape[axis], first, last, step)
    return x[tuple(index)]


def _slice(length: Any, first: Any, last: Any, step: int) -> slice:
    """ONNX's ends as Python's: far beyond means to the end."""
    if isinstance(length, int) and isinstance(first, int) and isinstance(last, int):
        first, last = (v + length if v < 0 else v for v in (first, last))
        if step > 0:
            return slice(max(first, 0), max(last, 0), step)
        # Unlike Python, a start in front of the first element means that element.
        first, last = max(min(first, length - 1), 0), max(last, -1)
        return slice(first, None if last < 0 else last, step) if length else slice(0, 0)
    far = 10**9  # what exporters write for "to the end" differs; no open dimension is as large
    if isinstance(first, Expr) and first == length:
        first = far
    if isinstance(last, Expr) and last == length:
        last = far
    if step > 0:
        return slice(first or None, None if isinstance(last, int) and last >= far else last, step)
    start = None if isinstance(first, int) and (first >= far or first == -1) else first
    return slice(start, None if isinstance(last, int) and last <= -far else last, step)


@operator("Expand", symbolic=True)
def expand(use: Use, x: Any, shape: Any) -> Any:
    if known(shape) is None:
        return assumed.expanded(use, lifted(x), shape)
    return _broadcast(x, integers(shape, "its second input, the shape,"))


def _broadcast(x: Any, target: list[Any]) -> Any:
    if not all(isinstance(extent, int) for extent in target):
        x = traced(x)
    rank = max(x.ndim, len(target))
    old, new = [1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(target)) + list(target)
    return _spread(x, tuple(b if a == 1 else a for a, b in zip(old, new, strict=True)))


def _spread(x: Any, shape: tuple[Any, ...]) -> Any:
    """``np.broadcast_to``, which knows no named dimensions where the array is a constant."""
    return np.broadcast_to(x if all(isinstance(extent, int) for extent in shape) else traced(x), shape)


@operator("Tile")
def tile(use: Use, x: Any, repeats: Any, axis: Any = None) -> Any:
    if use.opset < 6:
        counts = [1] * x.ndim
        counts[integers(axis, "its axis")[0]] = integers(repeats, "the number of tiles")[0]
    else:
        counts = assumed.settled_integers(use, repeats, "the number of tiles", lambda: _tiles(use, x))
    return np.tile(x, counts)


def _tiles(use: Use, x: Any) -> list[Any]:
    """How many tiles make the declared shape."""
    target = assumed.declared_shape(use, "the number of tiles")
    if 0 in x.shape or not all(isinstance(e, int) for e in (*target, *x.shape)):
        raise Unsupported("the number of tiles is computed when the model runs; it must be constant")
    return [int(a) // int(b) for a, b in zip(target, x.shape, strict=True)]


@operator("ConstantOfShape", symbolic=True)
def constant_of_shape(use: Use, shape: Any) -> Any:
    value = use.attribute("value", np.zeros(1, np.float32))
    target = partial(assumed.declared_shape, use, "the shape")
    extents = tuple(assumed.settled_integers(use, shape, "the shape", target))
    if all(isinstance(e, int) for e in extents):
        _check_size(extents)
        return np.full(extents, value.reshape(()))
    return _broadcast(F.astype(traced(value.reshape(())), value.dtype), list(extents))


def _check_size(extents: Any) -> None:
    """A damaged file may ask for any amount of memory."""
    if any(e < 0 for e in extents):
        raise MlaotError(f"an array cannot have the shape {list(extents)}")
    if float(np.prod([float(e) for e in extents])) > 2**31:
        raise MlaotError(f"a constant of the shape {list(extents)} is too large")


@operator("Range", symbolic=True)
def range_(use: Use, start: Any, limit: Any, delta: Any) -> Any:
    if is_symbolic(start) or is_symbolic(limit) or is_symbolic(delta) or not is_known(start, limit, delta):
        ends = [extents(value) for value in (start, limit, delta)]
        start, limit, delta = (lifted(value) for value in (start, limit, delta))
        if any(end is None for end in ends):
            return _computed_range(use, start, limit, delta)
        (first,), (last,), (step,) = (integers(end, "the range") for end in ends)
        return F.arange(first, last, step, dtype=delta.dtype)
    first, last, step = (
        wanted(v, what).reshape(())
        for v, what in zip((start, limit, delta), ("its start", "its limit", "its step"), strict=True)
    )
    if step == 0:
        raise MlaotError("the step is 0")
    count = max(int(np.ceil((float(last) - float(first)) / float(step))), 0)
    _check_size((count,))
    return (first + np.arange(count).astype(first.dtype) * step).astype(first.dtype)


def _computed_range(use: Use, start: Any, limit: Any, delta: Any) -> Any:
    (count,) = assumed.declared_shape(use, "the range")
    start, limit, delta = (np.reshape(value, ()) for value in (start, limit, delta))
    wide = [F.astype(value, np.float64) for value in (start, limit, delta)]
    number = np.maximum(np.ceil((wide[1] - wide[0]) / wide[2]), 0.0)
    use.require(np.equal(number, float(int(count))), f"the range must have {count} elements")
    return start + F.astype(np.arange(int(count)), start.dtype) * delta


@operator("EyeLike")
def eye_like(use: Use, x: Any) -> Any:
    to = use.attribute("dtype")
    dtype = numpy_dtype(to) if to is not None else np.dtype(x.dtype)
    rows, columns = x.shape
    if isinstance(rows, int) and isinstance(columns, int):
        return np.eye(rows, columns, use.attribute("k", 0)).astype(dtype)
    return F.astype(F.eye(rows, columns, use.attribute("k", 0)), dtype)


@operator("Trilu")
def trilu(use: Use, x: Any, k: Any = None) -> Any:
    if k is not None and known(k) is None:
        rows, columns = x.shape[-2:]
        apart = np.arange(columns).reshape(1, -1) - np.arange(rows).reshape(-1, 1)
        kept = apart >= np.reshape(k, ()) if use.attribute("upper", 1) else apart <= np.reshape(k, ())
        return np.where(kept, x, np.zeros((), x.dtype))
    diagonal = 0 if k is None else max(min(int(integers(k, "the diagonal")[0]), FAR), -FAR)
    return np.triu(x, diagonal) if use.attribute("upper", 1) else np.tril(x, diagonal)


@operator("Gather", symbolic=True)
def gather(use: Use, x: Any, indices: Any) -> Any:
    axis = use.attribute("axis", 0)
    return _take(x, indices, axis)


def _take(x: Any, indices: Any, axis: int) -> Any:
    found = known(indices)
    if found is not None:
        length = x.shape[axis]
        if isinstance(length, int) and found.size and (found.min() < -length or found.max() >= length):
            raise MlaotError(f"index {found.min() if found.min() < -length else found.max()} of {length} elements")
        return np.take(x, found, axis=axis)
    return np.take(traced(lifted(x)), indices, axis=axis)  # NumPy asks the array alone whether it is traced


@operator("GatherElements")
def gather_elements(use: Use, x: Any, indices: Any) -> Any:
    axis = use.attribute("axis", 0) % x.ndim
    cut = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape))
    return np.take_along_axis(x[cut], indices, axis=axis)


@operator("GatherND")
def gather_nd(use: Use, x: Any, indices: Any) -> Any:
    lead = use.attribute("batch_dims", 0)
    depth = indices.shape[-1]
    parts = [indices[..., i] for i in range(depth)]
    x = traced(x) if any(map(is_traced, parts)) else x  # NumPy asks the array alone whether it is traced
    if lead == 0:
        return x[tuple(parts)]
    grid: list[Any] = []
    for axis in range(lead):
        where = F.arange(x.shape[axis])
        grid.append(where.reshape([-1 if i == axis else 1 for i in range(parts[0].ndim)]))
    return x[(*grid, *parts)]


FAR = 2**40  # beyond the diagonals of any array
REDUCTIONS = {"none": "set", "add": "add", "max": "max", "min": "min"}


def _updated(x: Any, index: tuple[Any, ...], updates: Any, mode: str) -> Any:
    if is_known(x, updates, *index) and not any(map(is_traced, (x, updates, *index))):
        result = np.array(x)
        at = {"none": None, "add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}[mode]
        if at is None:
            result[index] = updates
        else:
            at.at(result, index, updates)
        return result
    from mlaot.frontend.numpy.indexing import update

    if mode == "mul":
        return _multiplied(traced(x), index, updates)
    return update(traced(x), index, updates, REDUCTIONS[mode])


def _multiplied(x: Any, index: tuple[Any, ...], factors: Any) -> Any:
    """Elements times factors, one after the other, since a place can be named again."""
    from mlaot.frontend.numpy.indexing import update

    size = int(np.prod([int(extent) for extent in x.shape]))
    places = traced(np.arange(size).reshape(x.shape))[index]

    def step(carry: Any, given: Any) -> Any:
        place, factor = given
        return update(carry, (place,), carry[place] * factor, "set"), ()

    found, _ = F.scan(step, np.ravel(x), (np.ravel(places), np.ravel(factors)))
    return np.reshape(found, x.shape)


@operator("Scatter", "ScatterElements")
def scatter_elements(use: Use, x: Any, indices: Any, updates: Any) -> Any:
    axis = use.attribute("axis", 0) % x.ndim
    index = []
    for i, n in enumerate(indices.shape):
        where = F.arange(n).reshape([-1 if j == i else 1 for j in range(x.ndim)])
        index.append(indices if i == axis else _spread(where, indices.shape))
    return _updated(x, tuple(index), updates, use.string("reduction", "none"))


@operator("ScatterND")
def scatter_nd(use: Use, x: Any, indices: Any, updates: Any) -> Any:
    parts = tuple(indices[..., i] for i in range(indices.shape[-1]))
    return _updated(x, parts, updates, use.string("reduction", "none"))


@operator("TensorScatter")
def tensor_scatter(use: Use, past: Any, update: Any, indices: Any = None) -> Any:
    axis = use.attribute("axis", -2) % past.ndim
    batch, steps, length = past.shape[0], update.shape[axis], past.shape[axis]
    start = F.zeros((batch,), np.int64) if indices is None else indices
    where = np.reshape(start, (-1, 1)) + F.arange(steps)
    where = where % length if use.string("mode", "linear") == "circular" else where
    moved, fresh = np.moveaxis(past, axis, 1), np.moveaxis(update, axis, 1)
    rows = _spread(F.arange(batch).reshape(-1, 1), (batch, steps))
    return np.moveaxis(_updated(moved, (rows, where), fresh, "none"), 1, axis)


@operator("Pad")
def pad(use: Use, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    if pads is not None and known(pads) is None:
        at = list(range(x.ndim)) if axes is None else [a % x.ndim for a in integers(axes, "its axes")]
        return assumed.padded(use, x, pads, value, at, use.string("mode", "constant"))
    amounts = use.attribute("pads", use.attribute("paddings")) if pads is None else integers(pads, "its second input")
    fill = use.attribute("value", 0.0) if pads is None else value
    at = list(range(x.ndim)) if axes is None else [a % x.ndim for a in integers(axes, "its axes")]
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(at):
        low[axis], high[axis] = amounts[i], amounts[i + len(at)]
    return padded(x, low, high, use.string("mode", "constant"), fill)


def padded(x: Any, low: list[int], high: list[int], mode: str, fill: Any = None) -> Any:
    """``x`` with more elements, or fewer, on both sides of each axis."""
    if any(v < 0 for v in (*low, *high)):
        x = x[tuple(slice(max(-a, 0), min(b, 0) or None) for a, b in zip(low, high, strict=True))]
        low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
    if not any(low) and not any(high):
        return x
    if mode == "constant":
        number = 0 if fill is None else fill
        found = known(number)
        number = number if found is None else found.reshape(()).item()
        if known(x) is not None and not is_traced(x):
            return np.pad(x, list(zip(low, high, strict=True)), constant_values=number)
        return pad_(x, tuple(low), tuple(high), value=number)
    return np.pad(x, list(zip(low, high, strict=True)), mode=mode)  # type: ignore[call-overload]


@operator("DepthToSpace")
def depth_to_space(use: Use, x: Any) -> Any:
    b = use.attribute("blocksize")
    n, c, h, w = x.shape
    if use.string("mode", "DCR") == "DCR":
        y = np.transpose(np.reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = np.transpose(np.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return np.reshape(y, (n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(use: Use, x: Any) -> Any:
    b = use.attribute("blocksize")
    n, c, h, w = x.shape
    y = np.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if use.string("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return np.reshape(np.transpose(y, order), (n, c * b * b, h // b, w // b))


@operator("OneHot")
def one_hot(use: Use, indices: Any, depth: Any, values: Any) -> Any:
    axis = use.attribute("axis", -1)
    depths = assumed.settled_integers(use, depth, "the depth", lambda: [assumed.declared_shape(use, "the depth")[axis]])
    count = int(depths[0])
    # Numbers with a fraction stay what they are, towards zero: nan and infinities are no index.
    places = np.trunc(F.astype(indices, np.float64)) if kind_of(indices) == "f" else indices
    places = np.where(places < 0, places + count, places)
    rank = indices.ndim + 1
    shape = [-1 if i == axis % rank else 1 for i in range(rank)]
    hot = np.equal(np.expand_dims(places, axis), np.arange(count).astype(places.dtype).reshape(shape))
    return np.where(hot, values[1], values[0])


@operator("ReverseSequence")
def reverse_sequence(use: Use, x: Any, lengths: Any) -> Any:
    time, batch = use.attribute("time_axis", 0), use.attribute("batch_axis", 1)
    y = np.moveaxis(x, (batch, time), (0, 1))
    steps = np.arange(y.shape[1]).reshape(1, -1)
    count = np.reshape(lengths, (-1, 1))
    where = np.where(steps < count, count - 1 - steps, steps)
    where = np.reshape(where, (*where.shape, *[1] * (y.ndim - 2)))
    return np.moveaxis(np.take_along_axis(y, np.broadcast_to(where, y.shape), axis=1), (0, 1), (batch, time))


@operator("CenterCropPad")
def center_crop_pad(use: Use, x: Any, shape: Any) -> Any:
    axes = use.attribute("axes", list(range(x.ndim)))

    def target() -> list[Any]:
        whole = assumed.declared_shape(use, "the shape")
        return [whole[axis] for axis in axes]

    low, high = [0] * x.ndim, [0] * x.ndim
    for axis, size in zip(axes, assumed.settled_integers(use, shape, "the shape", target), strict=True):
        more = size - x.shape[axis]
        low[axis % x.ndim] = more // 2 if more >= 0 else -((-more) // 2)
        high[axis % x.ndim] = more - low[axis % x.ndim]
    return padded(x, low, high, "constant")
