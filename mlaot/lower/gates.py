"""Products with several gates of the same units, as in recurrent layers: one kernel computes and combines them.

    v2 = contract(h, w, spec=ad,dbc->abc) : f32[n,4,128]
    v3 = sigmoid(v2[:, 0])                                   one tile: 4 sums of each unit, then v3, v4, v5
    v4 = tanh(v2[:, 1])
    v5 = mul(v3, v4)

If every reader of a product takes one gate, one index of its last axis but one, all gates are in one register tile, and
the group's other nodes have the shape of one gate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mlaot.ir import Node
from mlaot.ir.types import i32
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import VECTORS, is_stored
from mlaot.ops.quantized import contract_bytes
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import MAX_GATES


def weights_of(node: Node) -> int:
    """Return the operand whose last two axes are those of the result, with all other axes summed, or -1."""
    if node.op not in (red.contract, contract_bytes) or node.type.rank < 2:
        return -1
    *labels, out = red.parse_spec(node.attrs["spec"])
    for i in (1, 0):
        own = [c for c in labels[i] if c in out]
        if own == [*out[-2:]] and labels[i].endswith(out[-2:]) and not set(own) & set(labels[1 - i]):
            dtype = i32 if node.op is contract_bytes else node.type.dtype
            return i if node.arg(i).type.dtype is dtype and is_stored(node.arg(i)) else -1
    return -1


def gates_of(node: Node, used: Mapping[Node, Sequence[Node]], roots: Collection[Node]) -> int:
    """Return the number of gates of a product, or 0 if it is read in any other way."""
    if weights_of(node) < 0 or node.type.dtype.name not in VECTORS or node in roots or not used[node]:
        return 0
    count, units = node.type.shape[-2:]
    if not isinstance(count, int) or not isinstance(units, int):
        return 0
    if not 2 <= count <= MAX_GATES or units * node.type.dtype.itemsize < LINE:
        return 0
    views = [u for s in used[node] for u in used[s]]
    return count if all(used[s] for s in used[node]) and all(gate(u, node) is not None for u in views) else 0


def gate(view: Node, node: Node) -> int | None:
    """Return the index of the gate that a view, the reshape of a slice, selects; None for any other view."""
    shape = node.type.shape
    if view.op is not st.reshape or view.arg(0).op is not st.slice_ or view.arg(0).arg(0) is not node:
        return None
    start, size, step = (view.arg(0).attrs[key] for key in ("start", "size", "step"))
    is_one = size == (*shape[:-2], 1, shape[-1]) and set(step) == {1} and isinstance(start[-2], int)
    return start[-2] if is_one and view.type.shape == (*shape[:-2], shape[-1]) else None
