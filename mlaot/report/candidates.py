"""Candidate calls for golden vectors: sizes of the open dims, and how the inputs are drawn.

A sample gives both. Otherwise sizes are searched that meet the model's conditions, and give at least two elements along
each axis of its values. Sizes of dims differ, so that confused dims give wrong answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import ceil, log2, prod

import numpy as np

from mlaot.evaluate import learn_dims
from mlaot.ir import Dim, Graph, TupleType
from mlaot.ir.dims import names, parse, substitute
from mlaot.ir.module import SEEN, Module
from mlaot.ir.ports import Draw, Port, draw_of
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry
from mlaot.ops.base import Array, conditions
from mlaot.report.sizes import EQUAL, Sizes, fitting_sizes

Draws = tuple[Draw, ...]

ROWS = (17, 4, 1)  # of a batch: what no row activates is not checked; the first only where calls are light
OTHERS = 5  # the first of the other dims, each of which is longer by two than the one before
TRIES = 100  # sizes of the dims whose inputs are made, of which an entry may refuse most
MAX_OPERATIONS = 1_000_000_000  # of all evaluations; the smallest call must do where it takes more
LIGHT = MAX_OPERATIONS // 64  # operations of a call with many rows
NODE = 5_000  # operations that would take NumPy as long as a node of any size
CONTENT = 1 << 14  # bytes of a sample that a golden vector carries; of more only the range of the numbers counts
VARIANTS = ((0, 1, 256), (1, 1, 64), (2, 16, 8), (3, 0.25, 8))  # seeds, factors of what is drawn, how many integers


def candidates(entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...]) -> Iterator[tuple[Sizes, Draws]]:
    """Yield calls to try, the most informative first: each size with the first draw, then each size with the second."""
    sample = {name: array for name, array in (module.sample or {}).items() if name in graph.inputs}
    waiting: list[tuple[Sizes, Iterator[Draws]]] = []
    for sizes in _light_first(entry, graph, _sizes(entry, graph, module, dims, sample)):
        waiting.append((sizes, _draws(entry, sizes, sample)))
        for other, draws in waiting:
            yield from ((other, drawn) for drawn in islice(draws, 1))
    for other, draws in waiting:
        yield from ((other, drawn) for drawn in draws)


def cost(entry: Entry, graph: Graph, sizes: Sizes) -> int:
    """Return the number of NumPy's operations that take as long as an evaluation."""
    return substitute(parse(entry.work), sizes) + NODE * len(graph.nodes())


def _draws(entry: Entry, sizes: Sizes, sample: Mapping[str, Array]) -> Iterator[Draws]:
    """Yield ways to draw the inputs, each once."""
    tried: list[Draws] = []
    for seed, factor, most in VARIANTS:
        drawn = tuple(_draw(port, sizes, sample.get(port.name), seed, factor, most) for port in entry.inputs)
        if drawn not in tried:
            tried.append(drawn)
            yield drawn


def _draw(port: Port, sizes: Sizes, array: Array | None, seed: int, factor: float, most: int) -> Draw:
    """Return the draw of an input: the first numbers of a sample, numbers in its range, or a default.

    Arrays of integers without a known range are first drawn as bytes.
    """
    draw, is_float = draw_of(port.dtype), port.dtype in ("f64", "f32", "f16", "bf16")
    if port.shape and not is_float and port.dtype != "bool" and not port.ranges:
        draw = Draw(0, min(most, np.iinfo(DTYPES[port.dtype].numpy).max + 1))
    if array is not None and array.size and port.default is None and not port.takes_texts:
        shape = tuple(substitute(parse(extent), sizes) for extent in port.shape)
        if array.ndim == len(shape) and 0 < prod(shape) * array.itemsize <= CONTENT:
            part = array[tuple(map(slice, shape))]
            if part.shape == shape:
                return Draw(0, 0, content=np.ascontiguousarray(part).tobytes())
        draw = _range_of(array, is_float=is_float)
    if not is_float:
        return replace(draw, seed=seed)
    return Draw(draw.low * factor, draw.width * factor, seed)


def _range_of(array: Array, *, is_float: bool) -> Draw:
    """Return the range of a sample's numbers, widened to powers of two, so that drawn numbers are exact."""
    low, high = float(array.min()), float(array.max())
    if not is_float:
        return Draw(low, high - low + 1) if high - low < 2**31 else draw_of("i64")
    most = max(abs(low), abs(high))
    width = 2.0 ** min(max(ceil(log2(most)), -8), 12) if 0 < most < np.inf else 1.0
    return Draw(0, width) if low >= 0 else Draw(-width, 2 * width)


def _sizes(
    entry: Entry, graph: Graph, module: Module, dims: tuple[str, ...], arrays: Mapping[str, Array]
) -> Iterator[Sizes]:
    """Yield sizes of the dims to try: those of the sample, first with few of its rows, then sizes that all differ."""
    equal = [dict.fromkeys(dims, size) for size in EQUAL]
    if SEEN in dims:  # as many as there are tokens, which are not changed apart
        yield from equal
        return
    leading = {str(port.shape[0]) for port in entry.inputs if port.shape}
    rows = leading & set(dims) if len(leading) == 1 else set()
    others = [name for name in dims if name not in rows]
    apart = dict.fromkeys(rows, ROWS[0]) | {name: OTHERS + 2 * i for i, name in enumerate(others)}
    apart = {name: apart[name] for name in dims}
    starts: list[Sizes] = []
    if arrays:
        shapes = {name: (graph.inputs[name].type, array.shape) for name, array in arrays.items()}
        sample = apart | learn_dims({name: pair for name, pair in shapes.items() if pair[0].rank == len(pair[1])}, {})
        sample = {name: sample[name] for name in dims}
        starts = [sample | {name: min(sample[name], few) for name in rows} for few in ROWS] + [sample]
    starts += [apart | dict.fromkeys(rows, few) for few in ROWS]
    needed = dict.fromkeys((*conditions(graph), *conditions(module.graphs[entry.name])))
    known = [condition for condition in needed if names(condition) <= apart.keys()]
    extents = [d for d in _open_extents(graph) if names(d) <= apart.keys()]
    tried: list[Sizes] = []
    for least in (2, 1, 0):  # of values without elements little can be proven
        wanted = [*known, *(d - least for d in extents if least and names(d) - (rows if least == 2 else set()))]
        for sizes in islice(fitting_sizes([*starts, *equal], wanted), TRIES):
            if sizes not in tried:
                tried.append(sizes)
                yield sizes


def _open_extents(graph: Graph) -> list[Dim]:
    """List the extents of a graph's values that have named dims."""
    types = [
        t for node in graph.nodes() for t in (node.type.items if isinstance(node.type, TupleType) else (node.type,))
    ]
    return list(dict.fromkeys(d for t in types for d in t.shape if names(d)))


def _light_first(entry: Entry, graph: Graph, sizes: Iterable[Sizes]) -> Iterator[Sizes]:
    """Yield the sizes whose calls are short; if none is used, then the size with the shortest of the other calls."""
    heavy: list[tuple[int, Sizes]] = []
    for each in sizes:
        operations = cost(entry, graph, each)
        if operations <= (LIGHT if ROWS[0] in each.values() else MAX_OPERATIONS):
            yield each
        else:
            heavy.append((operations, each))
    if heavy:
        yield min(heavy, key=lambda pair: pair[0])[1]
