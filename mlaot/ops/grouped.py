"""A product with weights of 8 or 4 bits in groups, and with numbers that are rounded in the same groups."""

from __future__ import annotations

import numpy as np

from mlaot.ir import Node
from mlaot.ir.types import f32, i8, i16, i32
from mlaot.nest.expressions import WORD
from mlaot.ops import elementwise as ew
from mlaot.ops import quantized as q8
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill

NUMBERS = {8: i16, 4: i8}  # of the other operand, by the bits of a weight


def grouped_product(x: Node, words: Node, scales: Node, bits: int) -> Node:
    """Multiply rows with words [groups, words of a group, columns] whose fields have ``scales`` [groups, columns]."""
    groups, count, _ = words.type.shape
    assert isinstance(groups, int) and isinstance(count, int), f"bug in mlaot: weights of {words.type}"
    fields, dtype = WORD // bits, NUMBERS[bits]
    levels = np.iinfo(dtype.numpy).max
    grouped = _in_groups(x, groups, count * fields)
    last = grouped.type.rank - 1
    largest = red.max_(ew.abs_(grouped), axes=(last,))
    inverse = st.broadcast(
        ew.div(fill(largest, levels, largest.type), largest), shape=grouped.type.shape, axes=tuple(range(last))
    )
    numbers = q8.quantize(ew.mul(grouped, inverse), dtype=dtype)
    row_scale = ew.mul(largest, fill(largest, 1 / levels, largest.type))
    shape = (*grouped.type.shape[:-1], count, fields)
    starts = []
    if bits == 4:
        total = red.sum_(ew.cast(numbers, dtype=i32), axes=(last,))
        starts.append(ew.mul(total, fill(total, -8, total.type)))
    return q8.contract_groups(st.reshape(numbers, shape=shape), words, scales, row_scale, *starts, bits=bits)


def _in_groups(x: Node, groups: int, size: int) -> Node:
    """Split the last axis of a value into groups; zeros fill up the last one."""
    shape, rank = x.type.shape, x.type.rank
    assert isinstance(shape[-1], int), f"bug in mlaot: {x} is multiplied with weights"
    rest, none = groups * size - shape[-1], (0,) * rank
    if rest:
        x = st.pad(x, x.graph.constant(0.0, f32), low=none, high=(*none[1:], rest), interior=none)
    return st.reshape(x, shape=(*shape[:-1], groups, size))
