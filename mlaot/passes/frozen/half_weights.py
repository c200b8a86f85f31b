"""Frozen float32 weights that only products read are stored in 16 bits and converted as they are loaded.

    v1 = input(name=w) : f32[64,10]                v1 = input(name=w) : f32[64,10], stored as f16
    v2 = contract(v0, v1) : f32[b,10]      =>      v2 = contract(v0, v1) : f32[b,10]

Tables of which rows are gathered are also stored in 16 bits, and the rows are converted after the gather.

    v1 = input(name=w) : f32[1000,10]              v1 = input(name=w) : f16[1000,10]
    v2 = gather(v1, v0) : f32[b,10]        =>      v2 = gather(v1, v0) : f16[b,10]
                                                   v3 = cast(v2) : f32[b,10]

With a ``weights_dtype`` of 16 bits, the pass changes results: it rounds the weights once, at build time. Otherwise it
is bit-exact: it stores in 16 bits only weights whose numbers 16 bits can hold, such as those of a float16 network or of
a quantized one. Constant operands of products are converted to weights first.
"""

from __future__ import annotations

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Graph, Node, Type
from mlaot.ir.module import Module
from mlaot.ir.types import BY_NUMPY, DType, bf16, f32
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array
from mlaot.ops.control import uses
from mlaot.ops.indexing import gather
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import add_weight, check_frozen
from mlaot.schedule.tuning import NARROW_ELEMENTS

HALVES: dict[str, DType] = {"float16": BY_NUMPY["float16"], "bfloat16": bf16}


@pass_over("module", after=("freeze", "quantize", "legalize"))
def half_weights(module: Module) -> None:
    """Round weights to a ``weights_dtype`` of 16 bits, or without one store in 16 bits those that fit exactly."""
    check_frozen(module, "weights_dtype")
    if not module.is_frozen:
        return
    graphs = list(module.graphs.values())
    for graph in graphs:
        _name_constants(module, graph)
    trained = module.trained
    for name, value in module.parameters.items():
        reads = [use for graph in graphs if name in graph.inputs for use in uses(graph, graph.inputs[name])]
        is_factor = all(node.op is red.contract and i >= 0 for node, i in reads)
        is_table = all(node.op is gather and i == 0 and node.graph in graphs for node, i in reads)
        is_alone = is_factor or is_table
        if name in trained or value.dtype != np.float32 or value.ndim == 0 or not reads or not is_alone:
            continue
        dtype = HALVES.get(module.options.weights_dtype) or _exact_half(value)
        if dtype is None:
            continue
        module.parameters[name], module.narrow[name] = _round(module, name, value, dtype), dtype
        for node, _ in reads if is_table else ():
            _gather_narrow(node, dtype)


def _exact_half(value: Array) -> DType | None:
    """Return the dtype of 16 bits that holds all numbers of a weight."""
    if value.size < NARROW_ELEMENTS:
        return None
    sample = value.ravel()[:NARROW_ELEMENTS]  # enough to refuse most weights
    return next((d for d in HALVES.values() if _holds(d, sample) and _holds(d, value)), None)


def _holds(dtype: DType, value: Array) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(dtype.array(value).astype(np.float32), value)


def _round(module: Module, name: str, value: Array, dtype: DType) -> Array:
    """Round the values of a weight to ``dtype``; they stay float32."""
    with np.errstate(over="ignore"):
        rounded = dtype.array(value).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise MlaotError(
            f"{module.name}: weight {name} has numbers that {module.options.weights_dtype} cannot hold;"
            " use bfloat16, or leave out the key 'weights_dtype'"
        )
    return rounded


def _gather_narrow(node: Node, dtype: DType) -> None:
    """gather(w, i) => cast(gather(w as it is stored, i))"""
    graph, table = node.graph, node.arg(0)
    name = table.attrs["name"]
    if graph.inputs[name] is table:
        del graph.inputs[name]
    stored = graph.input(name, Type(dtype, table.type.shape), parameter=True)
    graph.forward(node, ew.cast(gather(stored, *node.args[1:], **node.attrs), dtype=f32))


def _name_constants(module: Module, graph: Graph) -> None:
    """Convert constant arrays that only products read to weights, since only weights are stored in 16 bits."""
    for node in graph.nodes():
        is_array = node.op is st.const and node.type.shape != () and node.type.dtype is f32
        if is_array and all(user.op is red.contract and i >= 0 for user, i in uses(graph, node)):
            name = add_weight(module, node.attrs["value"].array)
            graph.forward(node, graph.input(name, node.type, parameter=True))
