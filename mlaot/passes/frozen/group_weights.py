"""Store frozen float32 weights of dense layers in 8 or 4 bits, with a scale for each group of neighbours along the sum.

    v1 = input(name=w) : f32[784,64]            v1 = input(name=folded0) : i32[25,8,64]
    v2 = contract(v0, v1) : f32[b,64]    =>     v2 = input(name=folded1) : f32[25,64], stored as bf16
                                                v3 = reshape(pad(v0)) : f32[b,25,32]
                                                v4 = max(abs(v3)) : f32[b,25]
                                                v5 = quantize(v3 * (32767 / v4)) : i16[b,25,32]
                                                v6 = contract_groups(v5, v1, v2, v4 / 32767) : f32[b,64]

Changes results. With ``weights_dtype = "int8"`` or ``"int4"``, a weight is the nearest of -128..127, or -8..7, times
the scale. Scales are bfloat16, which has float32's range; they are rounded before the weights are divided by them, so
that costs nothing. (llama.cpp's Q8_0 and Q4_0 have the same groups.) The other operand is rounded to 16 bits in the
same groups, which moves results by a fiftieth of what int8 weights do, or less; the sum of a group is one of integers.
"""

from __future__ import annotations

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Node, Type
from mlaot.ir.module import Module
from mlaot.ir.types import bf16, f32, i16, i32, round_bf16
from mlaot.nest.expressions import WORD
from mlaot.ops import elementwise as ew
from mlaot.ops import quantized as q8
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array, fill
from mlaot.ops.kinds import is_free
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import IsFixed, add_weight, check_frozen, fixed_by, fixed_values, split_product
from mlaot.schedule.tuning import GROUP_WEIGHTS, GROUPED_COLUMNS, GROUPED_ELEMENTS, PADDING_GROWTH

BITS = {"int8": 8, "int4": 4}
LEVELS = 2**15 - 1  # of the numbers of 16 bits
TINY = np.finfo(np.float32).tiny


@pass_over("module", after=("freeze", "quantize", "legalize"), when=lambda options: options.weights_dtype in BITS)
def group_weights(module: Module) -> None:
    """Store the weights of products of all entries in the bits that ``weights_dtype`` asks for."""
    check_frozen(module, "weights_dtype")
    if not module.is_frozen:
        return
    dtype, is_fixed = module.options.weights_dtype, fixed_by(module)
    for graph in module.graphs.values():
        layers = {node: parts for node in graph.nodes() if (parts := split_dense(node, is_fixed)) is not None}
        values = fixed_values(module.slots, graph, [w for _, w in layers.values()])
        for (node, (x, _)), value in zip(layers.items(), values, strict=True):
            if np.isfinite(value).all():
                graph.forward(node, _product(module, x, value, BITS[dtype]))
        kept = {*graph.nodes(), *[graph.inputs[name] for name in graph.writes]}
        graph.inputs = {k: node for k, node in graph.inputs.items() if k not in module.slots or node.find() in kept}
    if not module.grouped:
        raise MlaotError(
            f"{module.name}: weights_dtype = {dtype!r}, but no dense layer has {GROUPED_COLUMNS} outputs and"
            f" {GROUPED_ELEMENTS:,} frozen float32 weights, or more; leave the key out"
        )


def split_dense(node: Node, is_fixed: IsFixed) -> tuple[Node, Node] | None:
    """Return the operands of a dense layer as rows and a matrix with columns last; None for other nodes."""
    parts = split_product(node, is_fixed) if node.op is red.contract and node.type.dtype is f32 else None
    if parts is None:
        return None
    x, w, labels, weight_labels, out = parts
    summed, columns = ([c for c in weight_labels if (c in out) is kept] for kept in (False, True))
    if len(weight_labels) != 2 or len(columns) != 1 or columns[0] in labels or labels[-1:] != summed[0]:
        return None
    if out != labels[:-1] + columns[0] or is_free(x):
        return None
    w = w if weight_labels[0] == summed[0] else st.transpose(w, perm=(1, 0))
    count, width = w.type.shape
    if not isinstance(count, int) or not isinstance(width, int):
        return None
    is_full = count + -count % GROUP_WEIGHTS <= PADDING_GROWTH * count
    return (x, w) if is_full and width >= GROUPED_COLUMNS and count * width >= GROUPED_ELEMENTS else None


def round_groups(w: Array, bits: int) -> tuple[Array, Array]:
    """Round a matrix to integers times a scale for each group of rows and each column; return both.

    The number of a group that is farthest from 0 becomes an end of the range, -8 or 7: the one with the smaller sum of
    squared errors.
    """
    groups = np.pad(w, ((0, -len(w) % GROUP_WEIGHTS), (0, 0))).reshape(-1, GROUP_WEIGHTS, w.shape[1])
    farthest = np.take_along_axis(groups, np.abs(groups).argmax(axis=1)[:, None], axis=1)
    ends = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def rounded(scales: Array) -> Array:
        return np.clip(np.rint(groups / scales), *ends)

    def error(scales: Array) -> Array:
        wide = scales.astype(np.float64)  # in which squares do not overflow
        return np.asarray(((groups - rounded(scales) * wide) ** 2).sum(axis=1, keepdims=True))

    low, high = (np.where(s == 0, TINY, s) for s in (round_bf16(farthest / np.float32(end)) for end in ends))
    scales = np.where(error(low) <= error(high), low, high)
    return rounded(scales).astype(np.int8).reshape(-1, w.shape[1]), scales[:, 0]


def _product(module: Module, x: Node, value: Array, bits: int) -> Node:
    """Compute a dense layer with weights of few bits."""
    graph = x.graph
    rounded, scales = round_groups(value, bits)
    fields = WORD // bits
    words = q8.pack_fields(rounded, bits).reshape(len(scales), -1, value.shape[1])
    name, scale_name = add_weight(module, words), add_weight(module, scales)
    module.grouped[name] = value.nbytes - words.nbytes - scales.nbytes
    module.narrow[scale_name] = bf16
    weights = graph.input(name, Type(i32, words.shape), parameter=True)
    scale = graph.input(scale_name, Type(f32, scales.shape), parameter=True)
    grouped = _in_groups(x, len(scales))
    last = grouped.type.rank - 1
    largest = red.max_(ew.abs_(grouped), axes=(last,))
    inverse = st.broadcast(
        ew.div(fill(largest, LEVELS, largest.type), largest), shape=grouped.type.shape, axes=tuple(range(last))
    )
    numbers = q8.quantize(ew.mul(grouped, inverse), dtype=i16)
    row_scale = ew.mul(largest, fill(largest, 1 / LEVELS, largest.type))
    shape = (*grouped.type.shape[:-1], GROUP_WEIGHTS // fields, fields)
    return q8.contract_groups(st.reshape(numbers, shape=shape), weights, scale, row_scale, bits=bits)


def _in_groups(x: Node, groups: int) -> Node:
    """Split the last axis of a value into groups; zeros fill up the last one."""
    shape, rank = x.type.shape, x.type.rank
    assert isinstance(shape[-1], int), f"bug in mlaot: {x} is multiplied with weights"
    rest, none = groups * GROUP_WEIGHTS - shape[-1], (0,) * rank
    if rest:
        x = st.pad(x, x.graph.constant(0.0, f32), low=none, high=(*none[1:], rest), interior=none)
    return st.reshape(x, shape=(*shape[:-1], groups, GROUP_WEIGHTS))
