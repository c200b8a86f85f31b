"""The entry ``prepare_weights``, which transforms weights in memory when a module is first used.

    for each 3x3 filter g of a convolution:    u = G g G^T        a kernel: lanes along the filters

The transformed weights of a convolution in tiles are 16/9 (F2) or 4 (F4) times as large as its weights, so a wheel has
the weights. (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016, section 4.1.) All instances of a
module read one ``u``. It is computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mlaot.ir import Type
from mlaot.ir.dims import dim
from mlaot.ir.module import PREPARE, Transformed
from mlaot.lower.builder import elements
from mlaot.lower.layout import row_major_strides
from mlaot.lower.program import Buffer, Entry, Kernel, Param, Procedure
from mlaot.lower.winograd import transform
from mlaot.nest.expressions import Array, Index, Var, cast
from mlaot.nest.statements import Body, Nest, Store, around
from mlaot.ops.winograd import BLOCK, WEIGHTS
from mlaot.schedule.machine import LINE

OPERATIONS = 5  # of an element of u, about
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Prepared:
    """Memory of the state that the filters of a convolution become, for tiles of m x m results."""

    source: Buffer
    target: Buffer
    m: int


def stored_filters(made_of: Transformed) -> Numbers:
    """Return filters as a module stores them, [groups, 9, ``BLOCK``], so that a group is read in one piece."""
    return made_of.weights.reshape(9, -1, BLOCK).swapaxes(0, 1)


def filters_buffer(name: str, type_: Type, filters: Numbers) -> Buffer:
    """Return memory for filters as they are stored."""
    strides = row_major_strides(filters.shape, type_.dtype.itemsize, dense=True)
    return Buffer(name, type_.dtype.name, filters.shape, strides, "constant", dense=True)


def transformed_buffer(name: str, type_: Type) -> Buffer:
    """Return memory for transformed filters, [places, blocks, blocks, ``BLOCK``, ``BLOCK``].

    The places of a filter are written together. They are an odd number of cache lines apart, so that they are in
    different sets of the caches.
    """
    line = LINE // type_.dtype.itemsize
    _, *inner = row_major_strides(type_.shape, type_.dtype.itemsize, dense=True)
    plane = (prod(map(int, type_.shape[1:])) // line | 1) * line
    return Buffer(name, type_.dtype.name, type_.shape, (plane, *inner), "state")


def prepare_procedure(prepared: Sequence[Prepared], offsets: Mapping[Buffer, int], doc: str) -> Procedure:
    """Return the entry that makes all prepared weights; ``offsets`` are the offsets of their buffers."""
    kernels = tuple(map(_kernel, prepared))
    work = sum(OPERATIONS * int(elements(each.target)) for each in prepared)
    entry = Entry(PREPARE, (), (), "0", str(work), doc=doc)
    return Procedure(entry, kernels, (), len(kernels), {id(buffer): at for buffer, at in offsets.items()})


def _kernel(prepared: Prepared) -> Kernel:
    m, source, target = prepared.m, prepared.source, prepared.target
    u, g = (Array(name, b.dtype, elements(b)) for name, b in (("u", target), ("g", source)))
    group, lane = Index(dim("i0")), Index(dim("j"))
    filters = [cast(g[group * (9 * BLOCK) + lane + k * BLOCK], "f64") for k in range(9)]

    def store(i: int, j: int, value: Var) -> Body:
        place = group * BLOCK + lane + Index((i * (m + 2) + j) * target.strides[0])
        return (Store(u, place, cast(value, target.dtype)),)

    loops = [("i0", source.shape[0]), ("j", BLOCK)]
    body = around(loops, transform(WEIGHTS[m], filters, store, "f64"), parallel=True)
    nest = Nest("transform_weights", (u, g), body, (f"u = G g G^T for tiles of {m}x{m} results",))
    return Kernel(nest, (Param("u", target, True), Param("g", source, False)))
