"""Gradients of a batch in microbatches of a fixed number of examples, which fill the vectors. Reassociates.

    losses = model(x)                       v4, v5 = scan(w, x, 0, 0.0, zeros; of (batch + 15) // 16 rounds)
    loss = sum(losses) / batch        =>      rows = start + iota(16)
    dw = gradient of loss                     losses = model(gather(x, min(rows, batch - 1)))
                                              part = sum(where(rows < batch, losses, 0)) / batch
                                              r0, r1, r2 = start + 16, loss + part, dw + gradient of part

This is for models declared on one example that slide windows over it. Their rows are too short to fill a vector, and
the values of a microbatch fit the caches. Other models are fast as one product over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlaot.ir import Dim, Graph, Node, Subgraph, Type, dim
from mlaot.ir.module import Module
from mlaot.ir.subgraph import inline, subgraphs
from mlaot.ir.types import i64
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill, full_like
from mlaot.ops.comparison import less, where
from mlaot.ops.control import results, scan
from mlaot.ops.indexing import gather
from mlaot.ops.kinds import VECTORS
from mlaot.schedule.tuning import EXAMPLES_TILE
from mlaot.transforms.differentiate import differentiate

BATCH = dim("batch")
NAME = "tile"  # of the graph of a round


def fits(graph: Graph) -> bool:
    """Tell whether a model declared on one example is trained in microbatches."""
    nodes = graph.nodes()
    fixed = all(isinstance(n.type, Type) and all(isinstance(d, int) for d in n.type.shape) for n in nodes)
    plain = not any(n.op.draws or subgraphs(n.attrs) for n in nodes)
    floats = all(n.type.dtype.name in VECTORS for n in nodes if n.op is st.input_ and n.attrs.get("parameter"))
    return fixed and plain and floats and not graph.writes and any(n.op is st.window for n in nodes)


def gradients(module: Module, tile: Graph, inputs: Mapping[str, Node]) -> tuple[Node, dict[str, Node]]:
    """Compute the mean loss of a batch, and its gradient with respect to each parameter.

    ``tile`` is the model on ``EXAMPLES_TILE`` examples, and ``inputs`` are the inputs of the batch.
    """
    graph = next(iter(inputs.values())).graph
    read = set(tile.nodes())
    used = [name for name, node in tile.inputs.items() if node in read]
    trained = [name for name in module.trained if name in used]
    consts = [inputs[name] for name in used]

    def round_(body: Graph, args: list[Node]) -> list[Node]:
        values = dict(zip(used, args, strict=False))
        start, total, *sums = args[len(used) :]
        rows = ew.add(st.broadcast(start, shape=(EXAMPLES_TILE,), axes=()), body.add(st.iota, (), _iota()))
        count = st.broadcast(_size(body, Type(i64)), shape=(EXAMPLES_TILE,), axes=())
        places = ew.minimum(rows, ew.sub(count, full_like(rows, 1)))
        operands = {k: v if k in module.slots else gather(v, places, lead=0) for k, v in values.items()}
        unread = {k: fill(start, 0, n.type) for k, n in tile.inputs.items() if k not in operands}
        losses = dict(zip(tile.outputs, inline(tile, [(operands | unread)[k] for k in tile.inputs], body), strict=True))
        loss = losses["loss"]
        valid = where(less(rows, count), loss, full_like(loss, 0))
        part = ew.div(red.sum_(valid, axes=(0,)), _size(body, total.type))
        parts = differentiate(part, [values[name] for name in trained])
        following = ew.add(start, full_like(start, EXAMPLES_TILE))
        return [following, ew.add(total, part), *[ew.add(s, g) for s, g in zip(sums, parts, strict=True)]]

    loss_type = tile.outputs["loss"].find().type.with_shape(())
    starts = [fill(consts[0], 0, Type(i64)), fill(consts[0], 0, loss_type)]
    starts += [full_like(inputs[name], 0) for name in trained]
    operands = [*consts, *starts]
    body = Subgraph.of(NAME, [node.type for node in operands], round_)
    attrs = {"body": body, "consts": len(consts), "carries": len(starts), "reverse": False}
    length: Dim = (BATCH + (EXAMPLES_TILE - 1)) // EXAMPLES_TILE
    _, loss, *sums = results(graph.add(scan, operands, {**attrs, "length": length}))
    return loss, {**{k: full_like(inputs[k], 0) for k in module.trained}, **dict(zip(trained, sums, strict=True))}


def _iota() -> dict[str, object]:
    return {"shape": (EXAMPLES_TILE,), "axis": 0, "dtype": i64}


def _size(graph: Graph, type_: Type) -> Node:
    return graph.add(st.size, (), {"dim": BATCH, "dtype": type_.dtype})
