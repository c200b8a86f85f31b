"""Arguments and attributes for the ops that move, pick, order, accumulate and count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mlaot.ir.types import f32, i64
from mlaot.ops.indexing import MODES

if TYPE_CHECKING:
    from .samples import Sample

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
Make = Callable[[Generator], "Iterator[Sample]"]
SHAPES: tuple[tuple[int, ...], ...] = (
    (1,),
    (5,),
    (17,),
    (1, 1),
    (2, 3),
    (5, 1),
    (7, 9),
    (2, 3, 4),
    (3, 1, 2),
    (2, 2, 2, 3),
)
EMPTY: tuple[tuple[int, ...], ...] = ((0,), (0, 3), (2, 0, 3))


def sample(*args: Any, **attrs: Any) -> Sample:
    from .samples import Sample  # which collects these

    return Sample(tuple(np.asarray(a) for a in args), attrs)


def _each_axis(**attrs: tuple[Any, ...]) -> Make:
    """Along every axis of every shape, with every combination of the attributes' values."""

    def make(rng: Generator) -> Iterator[Sample]:
        for shape in (*SHAPES, *EMPTY):
            for axis, values in product(range(len(shape)), product(*attrs.values())):
                yield sample(rng.normal(size=shape), axis=axis, **dict(zip(attrs, values, strict=True)))

    return make


def _argsort(rng: Generator) -> Iterator[Sample]:
    """All of an axis, and the first ones, also of one that is longer than the blocks passed over, with ties."""
    yield from _each_axis(descending=(False, True))(rng)
    for x in (np.arange(500.0), rng.permutation(500) - 250.0, rng.integers(-3, 3, 500).astype(float)):
        yield from (sample(x, axis=0, descending=descending) for descending in (False, True))
    long = rng.integers(0, 30, (3, 70)).astype(float)
    for x, descending in product((rng.normal(size=(3, 4)), long, long.T.copy()), (False, True)):
        for axis, extent in enumerate(x.shape):
            for count in {1, 2, extent - 1, extent}:
                yield sample(x, axis=axis, descending=descending, count=count)
            for places in {(0, extent), (1, 2), (extent // 2, extent // 2 + 2), (extent - 1, extent)}:
                yield sample(x, axis=axis, descending=descending, places=places)


def _sort(rng: Generator) -> Iterator[Sample]:
    """Rows that vectors do not fill, that a network sorts alone, and that are split."""
    yield from _each_axis(descending=(False, True))(rng)
    for extent, descending in product((15, 33, 300, 1001), (False, True)):
        x = rng.permutation(2 * extent).reshape(2, extent) / 7
        yield sample(x, axis=1, descending=descending)
        yield sample(x, axis=1, descending=descending, places=(extent // 3, extent // 3 + 2))


def _arg(rng: Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        for axis in range(len(shape)):
            yield sample(rng.normal(size=shape), axis=axis)
    long = rng.integers(-9, 9, (2, 3, 75)).astype(float)  # blocks of which some are passed over, with ties
    yield sample(long, axis=2)
    for place in (0, 40, 74):  # nan before, between and behind the extremes
        long = long.copy()
        long[:, place % 3, place] = np.nan
        yield sample(long, axis=2)


def _prod(rng: Generator) -> Iterator[Sample]:
    for shape in (*SHAPES, *EMPTY):
        rank = len(shape)
        for axes in {(), (0,), (rank - 1,), tuple(range(rank)), (0, rank - 1) if rank > 1 else (0,)}:
            x = rng.normal(size=shape)
            yield sample(x, axes=axes)
            yield sample(np.where(rng.random(shape) < 0.3, 0, x), axes=axes)


def _cumprod(rng: Generator) -> Iterator[Sample]:
    for some in _each_axis(reverse=(False, True), exclusive=(False, True))(rng):
        (x,) = some.args
        yield some
        yield sample(np.where(rng.random(x.shape) < 0.3, 0, x), **some.attrs)


def _recurrence(rng: Generator) -> Iterator[Sample]:
    for some in _each_axis(reverse=(False, True))(rng):
        yield sample(*some.args, rng.normal(size=some.args[0].shape), **some.attrs)


def _slice(rng: Generator) -> Iterator[Sample]:
    for shape in (*SHAPES, *EMPTY):
        for _ in range(5):
            runs = [_run(rng, n) for n in shape]
            start, size, step = (tuple(v) for v in zip(*runs, strict=True))
            yield sample(rng.normal(size=shape), start=start, size=size, step=step)


def _run(rng: Generator, n: int) -> tuple[int, int, int]:
    """The start, size and step of what some Python slice of ``n`` elements picks."""
    a, b = (int(i) for i in rng.integers(-1, n + 2, 2))
    step = int(rng.choice([-3, -2, -1, 1, 1, 2, 3]))
    picked = range(n)[slice(a, b, step)] or range(n)[::step]
    return (picked[0] if picked else 0, len(picked), step)


def _pad(rng: Generator) -> Iterator[Sample]:
    for shape in (*SHAPES, *EMPTY):
        for _ in range(3):
            low, high, interior = (tuple(int(i) for i in rng.integers(0, 4, len(shape))) for _ in range(3))
            if all(n or a + b >= i for n, a, b, i in zip(shape, low, high, interior, strict=True)):
                yield sample(rng.normal(size=shape), rng.normal(), low=low, high=high, interior=interior)


def _windows(rng: Generator) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    for shape in ((1,), (7,), (12,), (5, 6), (2, 9, 8), (0, 6), (2, 6, 7, 3)):
        for _ in range(4):
            axes = tuple(int(a) for a in rng.permutation([a for a, n in enumerate(shape) if n])[: rng.integers(1, 3)])
            sizes = tuple(int(rng.integers(1, min(shape[a], 4) + 1)) for a in axes)
            widest = [(shape[a] - 1) // max(k - 1, 1) for a, k in zip(axes, sizes, strict=True)]
            dilations = tuple(int(rng.integers(1, max(2, min(w, 3) + 1))) for w in widest)
            strides = tuple(int(s) for s in rng.integers(1, 4, len(axes)))
            yield shape, {"axes": axes, "sizes": sizes, "strides": strides, "dilations": dilations}


def _window(rng: Generator) -> Iterator[Sample]:
    for shape, attrs in _windows(rng):
        yield sample(rng.normal(size=shape), **attrs)


def _fold(rng: Generator) -> Iterator[Sample]:
    for shape, attrs in _windows(rng):
        positions = list(shape)
        for a, k, stride, dilation in zip(*attrs.values(), strict=True):
            positions[a] = (shape[a] - (k - 1) * dilation - 1) // stride + 1
        yield sample(rng.normal(size=(*positions, *attrs["sizes"])), **attrs, shape=shape)


# x, leading axes, the shape of the indices behind them
INDEXED: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (
    *(((5,), 0, ()), ((5,), 0, (3,)), ((1,), 0, (4,)), ((7, 3), 0, (4,)), ((7, 3), 0, (2, 3)), ((4, 5), 1, ())),
    *(((4, 5), 1, (6,)), ((2, 5, 3), 1, (4,)), ((2, 3, 5), 2, (2, 2)), ((3, 4, 2, 2), 1, (5,)), ((6,), 0, (0,))),
    *(((0, 4), 1, (3,)), ((3, 0), 0, (2,))),
)


def _indices(rng: Generator, shape: tuple[int, ...], n: int) -> Array:
    """Some from the end, some out of range."""
    return rng.integers(-n - 2, n + 2, shape)


def _gather(rng: Generator) -> Iterator[Sample]:
    for shape, lead, many in INDEXED * 3:
        indices = _indices(rng, (*shape[:lead], *many), shape[lead])
        yield sample(rng.normal(size=shape), indices, lead=lead)


def _scatter(rng: Generator) -> Iterator[Sample]:
    for mode in MODES:
        for shape, lead, many in INDEXED * 2:
            indices = _indices(rng, (*shape[:lead], *many), shape[lead])
            updates = rng.normal(size=(*indices.shape, *shape[lead + 1 :]))
            yield sample(rng.normal(size=shape), indices, updates, lead=lead, mode=mode)


def _iota(rng: Generator) -> Iterator[Sample]:
    for shape in (*SHAPES, *EMPTY):
        for axis, dtype in product(range(len(shape)), (f32, i64)):
            yield sample(shape=shape, axis=axis, dtype=dtype)


def _random_bits(rng: Generator) -> Iterator[Sample]:
    for site, shape in enumerate(((), *SHAPES, *EMPTY)):
        yield sample(rng.integers(0, 1 << 32, 2, np.uint32), shape=shape, site=site)


def _stack(rng: Generator) -> Iterator[Sample]:
    for i, shape in enumerate(((), *SHAPES, *EMPTY)):
        for axis in range(len(shape) + 1):
            yield sample(*[rng.normal(size=shape) for _ in range(1 + i % 4)], axis=axis)


def _concat(rng: Generator) -> Iterator[Sample]:
    for i, shape in enumerate((*SHAPES, *EMPTY)):
        for axis in range(len(shape)):
            shapes = [(*shape[:axis], shape[axis] + k, *shape[axis + 1 :]) for k in range(1 + i % 3)]
            yield sample(*[rng.normal(size=s) for s in shapes], axis=axis)


def _tree_ensemble(rng: Generator) -> Iterator[Sample]:
    from .forests import random_forest

    for i, shape in enumerate(((5,), (3, 5), (2, 3, 5), (40, 6), (0, 5))):
        for aggregate in ("sum", "min", "max"):
            found = random_forest(rng, [i % 3, 3, 2], targets=(None, 1, 2)[i % 3])
            yield sample(rng.normal(size=shape), forest=found, aggregate=aggregate)


# m, maps [n, C, h, w] (some will be without n, or with a further axis), low, high: whole tiles and parts of tiles
MAPS = (
    *((2, (1, 1, 4, 4), (0, 0), (0, 0)), (2, (2, 1, 6, 4), (1, 1), (1, 1)), (2, (1, 2, 5, 9), (1, 1), (1, 1))),
    *((2, (1, 1, 1, 1), (1, 1), (1, 1)), (2, (1, 1, 3, 17), (0, 2), (2, 0)), (2, (0, 1, 4, 5), (1, 0), (1, 1))),
    *((4, (1, 1, 6, 6), (0, 0), (0, 0)), (4, (2, 1, 8, 4), (1, 1), (1, 1)), (4, (1, 2, 5, 9), (1, 1), (1, 1))),
    *((4, (1, 1, 1, 1), (1, 1), (1, 1)), (4, (1, 1, 3, 13), (0, 2), (2, 0))),
)


def _winograd_input(rng: Generator) -> Iterator[Sample]:
    for i, (m, (n, *maps), low, high) in enumerate(MAPS):
        images = ((n,), (), (2, n))[i % 3]
        yield sample(rng.normal(size=(*images, *maps, 16)), m=m, low=low, high=high)


def _winograd_output(rng: Generator) -> Iterator[Sample]:
    for i, (m, (n, blocks, *size), _, _) in enumerate(MAPS):
        images, tiles = ((n,), (), (2, n))[i % 3], [-(-d // m) for d in size]
        yield sample(rng.normal(size=((m + 2) ** 2, *images, *tiles, blocks, 16)), m=m, size=tuple(size))


# x, columns, axis: rows that are whole vectors or not, several blocks of columns, none at all
SPARSE = (((5,), 3, 0), ((3, 20), 70, 1), ((2, 2, 9), 1, 0), ((4, 33), 200, 1), ((2, 7), 450, 0), ((0, 4), 5, 1))


def _mostly_zeros(rng: Generator, shape: tuple[int, ...]) -> Array:
    return np.where(rng.random(shape) < 0.3, rng.normal(size=shape), 0.0)


def _sparse_dot(rng: Generator) -> Iterator[Sample]:
    for shape, columns, axis in SPARSE:
        sizes = (columns, shape[-1]) if axis else (shape[-1], columns)
        yield sample(_mostly_zeros(rng, shape), rng.normal(size=sizes), axis=axis)


def _sparse_add(rng: Generator) -> Iterator[Sample]:
    for shape, columns, axis in SPARSE:
        sizes = (columns, shape[-1]) if axis else (shape[-1], columns)
        g = rng.normal(size=(*shape[:-1], columns))
        yield sample(rng.normal(size=sizes), _mostly_zeros(rng, shape), g, axis=axis)


SAMPLES: dict[str, Make] = {
    "prod": _prod,
    "argmax": _arg,
    "argmin": _arg,
    "cumsum": _each_axis(reverse=(False, True), exclusive=(False, True)),
    "cumprod": _cumprod,
    "linear_recurrence": _recurrence,
    "argsort": _argsort,
    "sort": _sort,
    "slice": _slice,
    "pad": _pad,
    "window": _window,
    "fold": _fold,
    "gather": _gather,
    "scatter": _scatter,
    "iota": _iota,
    "random_bits": _random_bits,
    "stack": _stack,
    "concat": _concat,
    "tree_ensemble": _tree_ensemble,
    "winograd_input": _winograd_input,
    "winograd_output": _winograd_output,
    "sparse_dot": _sparse_dot,
    "sparse_add": _sparse_add,
}
