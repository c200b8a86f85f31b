"""Store frozen float32 weights of dense layers in 8 or 4 bits, with a scale for each group of neighbours along the sum.

    v1 = input(name=w) : f32[784,64]            v1 = input(name=folded0) : i32[25,8,64]
    v2 = contract(v0, v1) : f32[b,64]    =>     v2 = input(name=folded1) : f32[25,64], stored as bf16
                                                v3 = reshape(pad(v0)) : f32[b,25,32]
                                                v4 = max(abs(v3)) : f32[b,25]
                                                v5 = quantize(v3 * (32767 / v4)) : i16[b,25,32]
                                                v6 = contract_groups(v5, v1, v2, v4 / 32767) : f32[b,64]

The pass changes results. With ``weights_dtype = "int8"`` or ``"int4"``, a weight is the nearest of -128..127, or -8..7,
times the scale. Scales are bfloat16, which has the range of float32. They are rounded before the weights are divided by
them, so their rounding costs no accuracy. (llama.cpp's Q8_0 and Q4_0 have the same groups.) The other operand is
rounded in the same groups: to 16 bits with int8, and to 8 bits with int4. The error of this rounding is at most 1/50
and 1/15 of that of the weights. The sum of a group is a sum of integers. With int4 it begins with the correction in
``quantized.py``:

    v6 = sum(v5) * -8 : i32[b,25]
    v7 = contract_groups(v5, v1, v2, v4 / 127, v6) : f32[b,64]

A table of which rows are read is stored in this form too, once if it is also the weight of a product. The rows that are
read are converted to floats:

    v1 = input(name=w) : f32[1000,64]            v1 = input(name=folded0) : i32[2,8,1000]
    v2 = gather(v1, v0) : f32[n,64]       =>     v2 = gather_groups(v1, scales, v0) : f32[n,64]

A step that trains adapters also uses the transpose of a weight, and many rows. It recomputes the weight from its
integers, in memory of the step:

    v1 = input(name=w) : f32[64,784]             v3 = reshape(right_shift(left_shift(v1, 24 ..), 24) * v2) : f32[784,64]
    v4 = contract(v0, v1) : f32[b,784]    =>     v4 = contract(v0, v3) : f32[b,784]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Graph, Node, Type
from mlaot.ir.module import Module, gradient_of
from mlaot.ir.types import bf16, f32, i32, round_bf16
from mlaot.nest.expressions import WORD
from mlaot.ops import bits as bit
from mlaot.ops import elementwise as ew
from mlaot.ops import indexing as ix
from mlaot.ops import quantized as q8
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array, fill
from mlaot.ops.grouped import grouped_product
from mlaot.ops.kinds import is_free
from mlaot.ops.nests.gathers import field_flips, field_ups
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import IsFixed, add_weight, check_frozen, fixed_by, fixed_values, split_product
from mlaot.schedule.tuning import GROUP_WEIGHTS, GROUPED_COLUMNS, GROUPED_ELEMENTS, PADDING_GROWTH

BITS = {"int8": 8, "int4": 4}
TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Grouped:
    """A matrix in groups of its first axis: the names of its words and of its scales, and its number of rows.

    With ``is_turned`` it is the transpose of the weight.
    """

    words: str
    shape: tuple[int, ...]
    scales: str
    rows: int
    bits: int
    is_turned: bool = False

    def inputs(self, graph: Graph) -> tuple[Node, Node]:
        """Return words and scales in a graph."""
        scales = Type(f32, (self.shape[0], self.shape[2]))
        return (
            graph.input(self.words, Type(i32, self.shape), parameter=True),
            graph.input(self.scales, scales, parameter=True),
        )


@pass_over("module", after=("freeze", "quantize", "legalize"), when=lambda options: options.weights_dtype in BITS)
def group_weights(module: Module) -> None:
    """Store the weights of products of all entries in the bits that ``weights_dtype`` asks for."""
    check_frozen(module, "weights_dtype")
    if not module.is_frozen:
        return
    dtype, is_fixed = module.options.weights_dtype, fixed_by(module)
    steps = [graph for graph in module.graphs.values() if module.trained and _trains(module, graph)]
    grouped: dict[str, Grouped] = {}  # by the weight that it stands for
    for graph in [graph for graph in module.graphs.values() if graph not in steps]:
        layers = {node: parts for node in graph.nodes() if (parts := split_dense(node, is_fixed)) is not None}
        values = fixed_values(module.slots, graph, [w for _, w in layers.values()])
        for (node, (x, w)), value in zip(layers.items(), values, strict=True):
            if np.isfinite(value).all():
                groups = _group(module, value, BITS[dtype])
                words, scales = groups.inputs(graph)
                graph.forward(node, grouped_product(x, words, scales, groups.bits))
                root, is_turned = _root(w)
                if root.op is st.input_:
                    grouped[root.attrs["name"]] = replace(groups, is_turned=is_turned)
    for graph in steps:
        _compute_anew(graph, grouped)
    for graph in module.graphs.values():
        _group_tables(module, graph, grouped, BITS[dtype])
    for graph in module.graphs.values():
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


def is_table(node: Node, is_fixed: IsFixed) -> bool:
    """Tell whether a node reads rows of a large frozen matrix whose rows are whole groups."""
    if node.op is not ix.gather or node.attrs["lead"] or node.arg(0).op is not st.input_ or not is_fixed(node.arg(0)):
        return False
    table = node.arg(0).type
    if table.rank != 2 or table.dtype is not f32:
        return False
    count, width = table.shape
    if not isinstance(count, int) or not isinstance(width, int):
        return False
    return width % GROUP_WEIGHTS == 0 and count >= GROUPED_COLUMNS and count * width >= GROUPED_ELEMENTS


def round_groups(w: Array, bits: int) -> tuple[Array, Array]:
    """Round a matrix to integers times a scale for each group of rows and each column; return both.

    The number of a group that is farthest from 0 becomes an end of the range, -8 or 7, whichever has the smaller sum of
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


def _group(module: Module, value: Array, bits: int) -> Grouped:
    """Store a matrix in groups."""
    rounded, scales = round_groups(value, bits)
    words = q8.pack_fields(rounded, bits).reshape(len(scales), -1, value.shape[1])
    name, scale_name = add_weight(module, words), add_weight(module, scales)
    module.grouped[name] = value.nbytes - words.nbytes - scales.nbytes
    module.narrow[scale_name] = bf16
    return Grouped(name, words.shape, scale_name, len(value), bits)


def _group_tables(module: Module, graph: Graph, grouped: dict[str, Grouped], bits: int) -> None:
    """Read the rows of tables from groups, which are those of products with the same weight if there are any."""
    is_fixed = fixed_by(module)
    reads = [node for node in graph.nodes() if is_table(node, is_fixed)]
    values = fixed_values(module.slots, graph, [node.arg(0) for node in reads])
    for node, value in zip(reads, values, strict=True):
        name = node.arg(0).attrs["name"]
        if name not in grouped and np.isfinite(value).all():
            grouped[name] = replace(_group(module, np.ascontiguousarray(value.T), bits), is_turned=True)
        if name in grouped and grouped[name].is_turned:
            words, scale = grouped[name].inputs(graph)
            graph.forward(node, q8.gather_groups(words, scale, node.arg(1), bits=grouped[name].bits))


def _trains(module: Module, graph: Graph) -> bool:
    """Tell whether a graph changes parameters, or adds to their gradients."""
    return any(name in graph.writes or gradient_of(name) in graph.writes for name in module.trained)


def _root(w: Node) -> tuple[Node, bool]:
    """Return the matrix that transposes are of, and whether it is transposed."""
    is_turned = False
    while w.op is st.transpose:
        is_turned ^= tuple(w.attrs["perm"]) == (1, 0)
        w = w.arg(0)
    return w, is_turned


def _compute_anew(graph: Graph, grouped: Mapping[str, Grouped]) -> None:
    """Let products read matrices that are recomputed from groups in place of the weights."""
    for node in [node for node in graph.nodes() if node.op is red.contract]:
        args = list(node.args)
        for i, a in enumerate(node.args):
            root, is_turned = _root(a.find())
            if root.op is st.input_ and (groups := grouped.get(root.attrs["name"])) is not None:
                value = _ungroup(graph, groups)
                args[i] = st.transpose(value, perm=(1, 0)) if is_turned is not groups.is_turned else value
        graph.forward(node, graph.add(node.op, args, node.attrs))


def _ungroup(graph: Graph, groups: Grouped) -> Node:
    """Recompute the matrix that groups represent, with rows along the sum."""
    bits, (count, words, columns) = groups.bits, groups.shape
    weights, scale = groups.inputs(graph)
    shape = (count, words, WORD // bits, columns)
    if flips := field_flips(bits):
        weights = bit.bitwise_xor(weights, fill(weights, flips, weights.type))
    fields = st.broadcast(weights, shape=shape, axes=(0, 1, 3))
    ups = st.broadcast(graph.constant(np.array(field_ups(bits)), i32), shape=shape, axes=(2,))
    numbers = bit.right_shift(bit.left_shift(fields, ups), fill(fields, WORD - bits, fields.type))
    values = ew.mul(ew.cast(numbers, dtype=f32), st.broadcast(scale, shape=shape, axes=(0, 3)))
    return st.part(st.reshape(values, shape=(count * GROUP_WEIGHTS, columns)), 0, 0, groups.rows)
