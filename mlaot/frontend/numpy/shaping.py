"""NumPy's functions that rearrange, join, split and repeat arrays without arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.promotion import (
    apply,
    as_node,
    broadcast_node,
    broadcast_shape,
    dtype_of,
    full,
    normal_axes,
    normal_axis,
    numpy_dtype,
    result_type,
)
from mlaot.frontend.trace.protocols import implements, is_traced
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ir import Dim, Node
from mlaot.ir import dims as dims_
from mlaot.ir.dims import Expr, Unequal
from mlaot.ir.types import i64
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st


def a_shape(shape: Any) -> tuple[Dim, ...]:
    """Return the shape that an int, a dim, or a sequence of them stands for."""
    parts = tuple(shape) if isinstance(shape, tuple | list | np.ndarray) else (shape,)
    dims: list[Dim] = []
    for part in parts:
        if isinstance(part, Expr):
            dims.append(part)
        elif hasattr(part, "__index__") and not is_traced(part):
            dims.append(int(part))
        else:
            raise MlaotError(f"a shape must be made of integers and dims, got {part!r}")
    return tuple(dims)


@implements("reshape")
def reshape(a: Any, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    x = as_node(a)
    if order not in ("C", None):
        raise MlaotError(f"reshape with order={order!r} cannot be traced; only 'C' can; use np.transpose")
    new = a_shape(shape if shape is not None else newshape)
    return Tensor(st.reshape(x, shape=complete(x, new)))


def complete(x: Node, new: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shape ``new`` with the size that -1 stands for."""
    if new.count(-1) > 1:
        raise MlaotError("reshape: only one size can be -1")
    if -1 not in new:
        return new
    rest = dims_.product(tuple(d for d in new if d != -1))
    size = divide_dims(dims_.product(x.type.shape), rest)
    if size is None:
        raise MlaotError(f"cannot reshape {x.type} to {list(new)}")
    return tuple(size if d == -1 else d for d in new)


def divide_dims(total: Dim, part: Dim) -> Dim | None:
    """Return ``total / part``, or None if there is a remainder."""
    if isinstance(part, int):
        if part == 0:
            return None
        quotient: Dim = total // part
        return quotient if quotient * part == total else None
    if not isinstance(total, Expr) or len(part.terms) != 1:
        return 0 if total == 0 else None
    (atoms, factor) = part.terms[0]
    terms: Dim = 0
    for monomial, coefficient in total.terms:
        left = list(monomial)
        for atom in atoms:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % factor:
            return None
        term: Dim = coefficient // factor
        for atom in left:
            term = Expr((((atom,), 1),)) * term
        terms = term + terms
    return terms


@implements("ravel")
def ravel(a: Any, order: Any = "C") -> Any:
    return reshape(a, -1, order)


@implements("transpose", "permute_dims")
def transpose(a: Any, axes: Any = None) -> Any:
    x = as_node(a)
    rank = x.type.rank
    order = tuple(reversed(range(rank))) if axes is None else tuple(axes)
    perm = tuple(normal_axis(i, rank) for i in order)
    if sorted(perm) != list(range(rank)):
        raise MlaotError(f"cannot transpose {x.type} by the axes {list(order)}")
    return Tensor(permute(x, perm))


def permute(x: Node, perm: tuple[int, ...]) -> Node:
    return x if perm == tuple(range(len(perm))) else st.transpose(x, perm=perm)


@implements("matrix_transpose", "linalg.matrix_transpose")
def matrix_transpose(x: Any) -> Any:
    return np.swapaxes(as_tensor(x), -1, -2)


@implements("swapaxes")
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    x = as_node(a)
    perm = list(range(x.type.rank))
    i, j = normal_axis(axis1, len(perm)), normal_axis(axis2, len(perm))
    perm[i], perm[j] = j, i
    return Tensor(permute(x, tuple(perm)))


def _axis_list(axis: Any, rank: int) -> list[int]:
    """Return axes as non-negative numbers, in the order given."""
    axes = [normal_axis(a, rank) for a in (axis if isinstance(axis, tuple | list | range) else (axis,))]
    if len(set(axes)) < len(axes):
        raise MlaotError(f"an axis is named twice in {axis}")
    return axes


@implements("moveaxis")
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    x = as_node(a)
    sources, targets = _axis_list(source, x.type.rank), _axis_list(destination, x.type.rank)
    if len(sources) != len(targets):
        raise MlaotError("moveaxis: `source` and `destination` must name equally many axes")
    perm = [i for i in range(x.type.rank) if i not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        perm.insert(target, origin)
    return Tensor(permute(x, tuple(perm)))


@implements("rollaxis")
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    rank = as_tensor(a).ndim
    at, to = normal_axis(axis, rank), start + rank if start < 0 else start
    return moveaxis(a, at, to - 1 if at < to else to)


@implements("expand_dims")
def expand_dims(a: Any, axis: Any) -> Any:
    x = as_node(a)
    axes = normal_axes(axis, x.type.rank + (len(axis) if isinstance(axis, tuple | list) else 1))
    shape = list(x.type.shape)
    for i in axes:
        shape.insert(i, 1)
    return Tensor(st.reshape(x, shape=tuple(shape)))


@implements("squeeze")
def squeeze(a: Any, axis: Any = None) -> Any:
    x = as_node(a)
    shape = x.type.shape
    axes = normal_axes(axis, x.type.rank) if axis is not None else tuple(i for i, d in enumerate(shape) if d == 1)
    if any(shape[i] != 1 for i in axes):
        raise MlaotError(f"squeeze of {x.type}: an axis of {axes} is not 1 long")
    return Tensor(st.reshape(x, shape=tuple(d for i, d in enumerate(shape) if i not in axes)))


@implements("broadcast_to")
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    return Tensor(broadcast_node(as_node(array), a_shape(shape)))


@implements("broadcast_arrays")
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    nodes = [as_node(a) for a in args]
    shape = broadcast_shape([n.type.shape for n in nodes])
    return tuple(Tensor(broadcast_node(n, shape)) for n in nodes)


def _at_least(rank: int, shaped: Callable[[tuple[Dim, ...]], tuple[Dim, ...]]) -> Callable[..., Any]:
    def function(*arys: Any) -> Any:
        arrays = []
        for a in arys:
            x = as_tensor(a)
            arrays.append(x if x.ndim >= rank else reshape(x, shaped(x.shape)))
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    return function


atleast_1d = implements("atleast_1d")(_at_least(1, lambda s: (1,)))
atleast_2d = implements("atleast_2d")(_at_least(2, lambda s: (1,) * (2 - len(s)) + s))
atleast_3d = implements("atleast_3d")(_at_least(3, lambda s: {0: (1, 1, 1), 1: (1, *s, 1), 2: (*s, 1)}[len(s)]))


@implements("copy")
def copy(a: Any, *args: Any, **options: Any) -> Any:
    return as_tensor(a)


# Joining.


@implements("concatenate", "concat")
def concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = None) -> Any:
    nodes = _of_one_type(arrays, dtype)
    if axis is None:
        nodes, axis = [as_node(ravel(Tensor(n))) for n in nodes], 0
    if any(n.type.rank != nodes[0].type.rank for n in nodes):
        raise MlaotError(f"cannot concatenate {' and '.join(str(n.type) for n in nodes)}: their ranks differ")
    at = normal_axis(axis, nodes[0].type.rank)
    for i, (size, *sizes) in enumerate(zip(*[n.type.shape for n in nodes], strict=True)):
        other = next((s for s in sizes if s != size), size)
        if i != at and other != size:
            types = " and ".join(str(n.type) for n in nodes)
            raise Unequal(f"cannot concatenate {types} along axis {at}", size, other)
    return Tensor(nodes[0] if len(nodes) == 1 else st.concat(*nodes, axis=at))


def _of_one_type(arrays: Any, dtype: Any) -> list[Node]:
    parts = list(as_tensor(arrays)) if is_traced(arrays) else list(arrays)
    if not parts:
        raise MlaotError("need at least one array")
    kind = dtype_of(dtype) if dtype is not None else result_type(*[np.asarray(a) if _number(a) else a for a in parts])
    return [as_node(a, kind) for a in parts]


def _number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


@implements("stack")
def stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = None) -> Any:
    nodes = _of_one_type(arrays, dtype)
    if any(n.type.shape != nodes[0].type.shape for n in nodes):
        raise MlaotError(f"cannot stack {' and '.join(str(n.type) for n in nodes)}: their shapes differ")
    return Tensor(st.stack(*nodes, axis=normal_axis(axis, nodes[0].type.rank + 1)))


def _list(tup: Any) -> list[Any]:
    return list(as_tensor(tup)) if is_traced(tup) else list(tup)


@implements("hstack")
def hstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    parts = [atleast_1d(a) for a in _list(tup)]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1, dtype=dtype)


@implements("vstack")
def vstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return concatenate([atleast_2d(a) for a in _list(tup)], 0, dtype=dtype)


@implements("dstack")
def dstack(tup: Any) -> Any:
    return concatenate([atleast_3d(a) for a in _list(tup)], 2)


@implements("column_stack")
def column_stack(tup: Any) -> Any:
    parts = [as_tensor(a) for a in _list(tup)]
    return concatenate([reshape(p, (-1, 1)) if p.ndim < 2 else p for p in parts], 1)


@implements("append")
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate([arr, values], axis)


@implements("block")
def block(arrays: Any) -> Any:
    """Join nested lists of blocks, the innermost lists along the last axis."""
    if not isinstance(arrays, list):
        return as_tensor(arrays)
    depth, inner = 0, arrays
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]

    def rank_of(part: Any) -> int:
        return max(map(rank_of, part)) if isinstance(part, list) else as_tensor(part).ndim

    rank = max(rank_of(arrays), depth)

    def joined(part: Any, level: int) -> Any:
        if not isinstance(part, list):
            x = as_tensor(part)
            return reshape(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([joined(p, level - 1) for p in part], -level)

    return joined(arrays, depth)


# Cutting.


@implements("split")
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    size = _size(ary, axis)
    if isinstance(indices_or_sections, int | np.integer) and (
        not isinstance(size, int) or size % int(indices_or_sections)
    ):
        raise MlaotError(f"split of {size} elements into {indices_or_sections} equal parts; use np.array_split")
    return array_split(ary, indices_or_sections, axis)


def _size(x: Any, axis: int) -> Dim:
    node = as_node(x)
    return node.type.shape[normal_axis(axis, node.type.rank)]


@implements("array_split")
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = as_tensor(ary)
    at = normal_axis(axis, x.ndim)
    size = x.shape[at]
    if isinstance(indices_or_sections, int | np.integer):
        if not isinstance(size, int):
            raise MlaotError(f"array_split of the named dim {size} into parts; give the indices to cut at")
        each, more = divmod(size, int(indices_or_sections))
        ends = list(np.cumsum([each + 1] * more + [each] * (int(indices_or_sections) - more)))[:-1]
    else:
        ends = list(indices_or_sections)
    cuts = [0, *[int(e) for e in ends], None]
    return [x[(slice(None),) * at + (slice(a, b),)] for a, b in pairwise(cuts)]


@implements("hsplit")
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 1 if as_tensor(ary).ndim > 1 else 0)


@implements("vsplit")
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 0)


@implements("dsplit")
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 2)


@implements("unstack")
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    return tuple(moveaxis(x, axis, 0))


# Reversing, rolling, repeating.


@implements("flip")
def flip(m: Any, axis: Any = None) -> Any:
    x = as_tensor(m)
    axes = normal_axes(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


@implements("flipud")
def flipud(m: Any) -> Any:
    return flip(m, 0)


@implements("fliplr")
def fliplr(m: Any) -> Any:
    return flip(m, 1)


@implements("rot90")
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    if k % 4 == 0:
        return as_tensor(m)
    if k % 4 == 2:
        return flip(m, tuple(axes))
    return flip(swapaxes(m, *axes), axes[0]) if k % 4 == 1 else swapaxes(flip(m, axes[0]), *axes)


@implements("roll")
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    x = as_tensor(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    shifts, axes = np.broadcast_arrays(shift, axis)
    for by, at in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        i = normal_axis(at, x.ndim)
        size = x.shape[i]
        if isinstance(size, int):
            by = by % size if size else 0
        if by:
            lead = (slice(None),) * i
            x = concatenate([x[(*lead, slice(-by, None))], x[(*lead, slice(None, -by))]], i)
    return x


@implements("repeat")
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x = as_tensor(a)
    if is_traced(repeats):
        raise MlaotError("the shape of its result depends on the data: `repeats` must be an integer")
    if axis is None:
        x, axis = ravel(x), 0
    at = normal_axis(axis, x.ndim)
    counts = np.asarray(repeats)
    if counts.size > 1:
        return np.take(x, np.repeat(np.arange(len(counts)), counts), at)
    n, size = int(counts.reshape(())), x.shape[at]
    wide = broadcast_to(expand_dims(x, at + 1), (*x.shape[: at + 1], n, *x.shape[at + 1 :]))
    return reshape(wide, (*x.shape[:at], size * n, *x.shape[at + 1 :]))


@implements("tile")
def tile(A: Any, reps: Any) -> Any:
    times = a_shape(reps)
    x = as_tensor(A)
    times = (1,) * (x.ndim - len(times)) + times
    x = reshape(x, (1,) * (len(times) - x.ndim) + x.shape)
    wide = reshape(x, tuple(d for size in x.shape for d in (1, size)))
    wide = broadcast_to(wide, tuple(d for pair in zip(times, x.shape, strict=True) for d in pair))
    return reshape(wide, tuple(size * n for n, size in zip(times, x.shape, strict=True)))


@implements("resize")
def resize(a: Any, new_shape: Any) -> Any:
    flat, shape = ravel(a), a_shape(new_shape)
    total, size = dims_.product(shape), flat.shape[0]
    if not isinstance(total, int) or not isinstance(size, int):
        raise MlaotError("resize of a named dim cannot be traced; use np.tile")
    if size == 0:
        return np.zeros_like(flat, shape=shape)
    return reshape(flat[np.arange(total) % size], shape)


# Triangles and diagonals.


def _triangle(x: Tensor, k: int) -> Node:
    """Return a mask that is True on and below diagonal ``k``. The mask of a vector is square."""
    shape = x.shape[-2:] if x.ndim > 1 else x.shape * 2
    row, column = (apply(st.iota, shape=shape, axis=i, dtype=i64) for i in range(2))
    return cmp.less_equal(column, ew.add(row, full(shape, k, i64)))


@implements("tril")
def tril(m: Any, k: int = 0) -> Any:
    x = as_tensor(m)
    return np.where(Tensor(_triangle(x, k)), x, np.zeros((), numpy_dtype(x)))


@implements("triu")
def triu(m: Any, k: int = 0) -> Any:
    x = as_tensor(m)
    return np.where(Tensor(_triangle(x, k - 1)), np.zeros((), numpy_dtype(x)), x)


@implements("diagonal", "linalg.diagonal")
def diagonal(a: Any, offset: int = 0, axis1: int | None = None, axis2: int | None = None) -> Any:
    return _diagonal(a, offset, 0 if axis1 is None else axis1, 1 if axis2 is None else axis2)


def _diagonal(a: Any, offset: int, axis1: int, axis2: int) -> Any:
    x = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        size: Dim = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    elif rows == columns:
        size = rows - abs(offset)
    else:
        raise MlaotError(f"diagonal of {x.node.type}: which dim is shorter is not known")
    start = max(offset, 0) + max(-offset, 0) * columns
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    end = start + (size - 1) * (columns + 1) + 1 if size != 0 else start
    return Tensor(cut(flat.node, flat.ndim - 1, start, size, columns + 1 if isinstance(columns, int) else None, end))


def cut(x: Node, axis: int, start: Dim, size: Dim, step: int | None, end: Dim) -> Node:
    """Return ``size`` elements along an axis."""
    if step is None:
        raise MlaotError(f"diagonal of {x.type} along named dims cannot be traced; use np.tril and np.triu")
    rank = x.type.rank
    starts = tuple(start if i == axis else 0 for i in range(rank))
    sizes = tuple(size if i == axis else x.type.shape[i] for i in range(rank))
    steps = tuple(step if i == axis else 1 for i in range(rank))
    return st.slice_(x, start=starts, size=sizes, step=steps)


@implements("trace", "linalg.trace")
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements("diag")
def diag(v: Any, k: int = 0) -> Any:
    x = as_tensor(v)
    return diagflat(x, k) if x.ndim == 1 else _diagonal(x, k, 0, 1)


@implements("diagflat")
def diagflat(v: Any, k: int = 0) -> Any:
    x = ravel(v)
    padded = np.pad(x, (max(k, 0), max(-k, 0)))
    n = padded.shape[0]
    row, column = (Tensor(apply(st.iota, shape=(n, n), axis=i, dtype=i64)) for i in range(2))
    shifted = np.pad(x, (max(-k, 0), max(k, 0)))  # element i stands in row i
    return np.where(column - row == k, np.reshape(shifted, (n, 1)), np.zeros((), numpy_dtype(x)))


@implements("shape")
def shape_(a: Any) -> Any:
    return as_tensor(a).shape


@implements("ndim")
def ndim(a: Any) -> Any:
    return as_tensor(a).ndim


@implements("size")
def size(a: Any, axis: Any = None) -> Any:
    return as_tensor(a).size if axis is None else _size(a, axis)


@implements("result_type")
def result_type_(*arrays_and_dtypes: Any) -> Any:
    return Tensor(full((), 0, result_type(*arrays_and_dtypes))).dtype
