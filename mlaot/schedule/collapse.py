"""Collapse nested loops over consecutive elements to one loop.

    for i in parallel(0, 16):                               for j in parallel_vector(0, 400):
        for j in range(0, 25):                      =>          y[j] = x[j] * 0.9
            y[i * 25 + j] = x[i * 25 + j] * 0.9

Rows that are too short for vectors become long, and arrays of any shape share a kernel. Every index must move in a
round of the outer loop as far as in all rounds of the inner loop. So each round computes the same as before, and no
bits change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlaot.ir.dims import Dim, dim, product, step_of
from mlaot.ir.dims import names as names_of
from mlaot.nest.expressions import BOOL, INDEX, NO_LANES, Array, Call, Expr, Index, Load, is_float, map_parts
from mlaot.nest.statements import (
    Body,
    For,
    Let,
    Nest,
    Statement,
    Store,
    all_expressions,
    map_expressions,
    rounds_of,
    substitute_body,
    walk,
    written_arrays,
)
from mlaot.schedule.tuning import COLLAPSED_ELEMENTS, SIZED_ELEMENTS

ELEMENTS = "elements"  # how many a kernel for arrays of any shape is given


def collapse(body: Body) -> Body:
    """Collapse nested loops if that computes the same elements."""
    return tuple(_collapse_loop(s) for s in body)


def generalize_size(nest: Nest) -> tuple[Nest, Mapping[str, int]]:
    """Replace the fixed number of elements of a nest that is one loop by ``ELEMENTS``; return the nest and the number.

    Arrays of all shapes, such as the parameters of an optimizer, then share a kernel.
    """
    if nest.is_tiled or not nest.body:
        return nest, {}
    *before, loop = collapse(nest.body)
    if not (isinstance(loop, For) and loop.parallel and loop.vector and all(isinstance(s, Let) for s in before)):
        return nest, {}
    size = rounds_of(loop)
    if size is None or size < SIZED_ELEMENTS:
        return nest, {}
    arrays: dict[str, Array] = {}
    for array, index in _places(loop.body):
        step = step_of(index.value, loop.var.name) if isinstance(index, Index) else None
        if not isinstance(step, int) or not isinstance(array.size, int):
            return nest, {}
        if step:
            arrays[array.name] = replace(array, size=dim(ELEMENTS) * step + (array.size - size * step))
    params = tuple(arrays.get(a.name, a) for a in nest.params)
    body = _with_arrays(loop.body, arrays)
    return replace(nest, params=params, body=(*before, replace(loop, high=Index(dim(ELEMENTS)), body=body))), {
        ELEMENTS: size
    }


def _places(body: Body) -> list[tuple[Array, Expr]]:
    """Return the arrays that a body reads or writes, each with the index of an element."""
    stored = [(s.array, s.index) for s in walk(body) if isinstance(s, Store)]
    return [*stored, *((x.array, x.index) for x in all_expressions(body) if isinstance(x, Load))]


def _with_arrays(body: Body, arrays: Mapping[str, Array]) -> Body:
    """Replace the arrays of a loop over elements by others of the same names."""

    def change(x: Expr) -> Expr:
        part = map_parts(x, change)
        return replace(part, array=arrays.get(part.array.name, part.array)) if isinstance(part, Load) else part

    statements = map_expressions(body, change)
    return tuple(replace(s, array=arrays.get(s.array.name, s.array)) if isinstance(s, Store) else s for s in statements)


def _collapse_loop(s: Statement) -> Statement:
    """Collapse the loops inside of a statement, then the statement with the only loop inside of it."""
    if not isinstance(s, For) or s.tiled or not s.body:
        return s
    s = replace(s, body=collapse(s.body))
    if rounds_of(s) == 1 and s.low == Index(0) and len(s.body) == 1 and isinstance(s.body[0], For):
        return substitute_body(s.body, {s.var.name: Index(0)})[0]
    *before, inner = s.body
    if not isinstance(inner, For) or not _can_collapse(s, before, inner):
        return s
    assert isinstance(inner.high, Index) and isinstance(s.high, Index)
    size = product((s.high.value, inner.high.value))
    everything = (*before, *substitute_body(inner.body, {s.var.name: Index(0)}))
    is_long = not isinstance(size, int) or size >= COLLAPSED_ELEMENTS
    is_vector = inner.vector or (is_long and s.parallel and _suits_vectors(everything, inner.var.name))
    return replace(inner, high=Index(size), body=everything, parallel=s.parallel, vector=is_vector)


def _can_collapse(outer: For, before: list[Statement], inner: For) -> bool:
    """Tell whether both loops run upwards from 0, compute each element in the same way, and do nothing else."""
    if any(loop.low != Index(0) or loop.step != 1 or loop.down or loop.tiled for loop in (outer, inner)):
        return False
    if not isinstance(outer.high, Index) or not isinstance(inner.high, Index):
        return False
    if not outer.parallel and (inner.parallel or inner.vector):
        return False
    statements = [*before, *inner.body]
    if not all(isinstance(s, Let) for s in before) or not all(isinstance(s, Let | Store) for s in inner.body):
        return False
    loads = {x.array.name for x in all_expressions(before) if isinstance(x, Load)}
    indices = {x for x in all_expressions(statements) if isinstance(x, Index)}
    names = (outer.var.name, inner.var.name)
    return loads.isdisjoint(written_arrays(inner.body)) and all(
        _moves_along(x, names, inner.high.value) for x in indices
    )


def _moves_along(x: Index, names: tuple[str, str], extent: Dim) -> bool:
    """Tell whether one round of the outer loop moves an index as far as all rounds of the inner one do."""
    outer, inner = (step_of(x.value, name) for name in names)
    is_linear = (names_of(outer) | names_of(inner)).isdisjoint(names)
    return is_linear and outer == product((inner, extent))


def _suits_vectors(body: Body, name: str) -> bool:
    """Tell whether all numbers are floats of one dtype, and every array is read along the loop or at one element."""
    parts = list(all_expressions(body))
    types = {part.type.dtype for part in parts if part.type not in (INDEX, BOOL)}
    types |= {s.array.dtype for s in body if isinstance(s, Store)} | {
        x.array.dtype for x in parts if isinstance(x, Load)
    }
    if len(types) != 1 or not is_float(*types) or any(isinstance(x, Call) and x.name in NO_LANES for x in parts):
        return False
    return all(isinstance(x, Index) and step_of(x.value, name) in (0, 1) for _, x in _places(body))
