"""Split axes of products that a reshape has merged, if reading the merged axis needs a copy. Bit-exact.

    v1 = slice(qkv) : f32[7,4,32]                          v1 = slice(qkv) : f32[7,4,32]
    v2 = reshape(v1, shape=(7, 8, 16))                     v2 = reshape(v1, shape=(7, 4, 2, 16))
    v3 = contract(v2, k, spec=abd,cbd->bac)       =>       v3 = contract(v2, k, spec=abed,cbed->beac)
                                                           v4 = reshape(v3, shape=(8, 7, 7))

Attention is often written as ``x.reshape(time, batch * heads, width)``. The merged axis would need two strides, those
of examples and of heads, which only two axes can have. The same holds for windows whose positions and elements a
reshape merges.
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Node
from mlaot.ir.dims import quotient
from mlaot.ops import Op
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import regroup
from mlaot.ops.kinds import is_view
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Shape = tuple[Dim, ...]


def split_batch(node: Node) -> Node | None:
    """contract(reshape(x), y) => reshape(contract(split(x), split(y)))"""
    *operands, out = red.parse_spec(node.attrs["spec"])
    args = [a.find() for a in node.args]
    for label in dict.fromkeys("".join(operands)):
        reading = [i for i, labels in enumerate(operands) if label in labels]
        found = [parts_of(args[i], operands[i].index(label)) for i in reading]
        parts = next(filter(None, found), None)
        fresh = [c for c in LETTERS if not any(c in labels for labels in operands)]
        if parts is None or len(fresh) < len(parts) - 1:
            continue
        several = label + "".join(fresh[: len(parts) - 1])
        split_args = list(args)
        for i in reading:
            split_args[i] = split(args[i], operands[i].index(label), parts)
        spec = f"{','.join(labels.replace(label, several) for labels in operands)}->{out.replace(label, several)}"
        result = red.contract(*split_args, spec=spec)
        return st.reshape(result, shape=node.type.shape) if label in out else result
    return None


def parts_of(x: Node, axis: int) -> Shape | None:
    """Return the extents of the axes that a copying reshape merges into an axis of ``x``, or None."""
    if x.op is st.transpose:
        return parts_of(x.arg(0), x.attrs["perm"][axis])
    if x.op.elementwise:
        return next(filter(None, (parts_of(a.find(), axis) for a in x.args)), None)
    if x.op is not st.reshape or is_view(x):
        return None
    parts = _refine(x.arg(0).type.shape, x.type.shape)
    return parts[axis] if parts is not None and len(parts[axis]) > 1 else None


def split(x: Node, axis: int, parts: Shape) -> Node:
    """Return ``x`` with several axes in place of one, without the reshape that merged them."""
    shape = (*x.type.shape[:axis], *parts, *x.type.shape[axis + 1 :])
    more = len(parts) - 1
    if x.op is st.transpose:
        perm = x.attrs["perm"]
        moved = [p + more * (p > perm[axis]) for p in perm]
        moved[axis : axis + 1] = range(perm[axis], perm[axis] + more + 1)
        return st.transpose(split(x.arg(0), perm[axis], parts), perm=tuple(moved))
    if x.op is st.broadcast and axis not in x.attrs["axes"]:
        return st.broadcast(x.arg(0), shape=shape, axes=tuple(a + more * (a > axis) for a in x.attrs["axes"]))
    if x.op.elementwise and parts_of(x, axis):
        return x.op(*[split(a.find(), axis, parts) for a in x.args], **x.attrs)
    return st.reshape(x.arg(0) if x.op is st.reshape and not is_view(x) else x, shape=shape)


def _refine(source: Shape, target: Shape) -> list[Shape] | None:
    """Return the extents that each axis of a reshape consists of, so that the reshape only splits axes."""
    groups = regroup(source, target)
    if groups is None:
        return None
    parts: list[Shape] = [() for _ in target]
    for before, after in groups:
        left, right = [source[i] for i in before], [(i, target[i]) for i in after]
        while left and right:
            (axis, wanted), extent = right[0], left[0]
            if wanted == extent:
                step, left, right = extent, left[1:], right[1:]
            elif (rest := quotient(wanted, extent)) is not None:
                step, left, right = extent, left[1:], [(axis, rest), *right[1:]]
            elif (rest := quotient(extent, wanted)) is not None:
                step, left, right = wanted, [rest, *left[1:]], right[1:]
            else:
                return None
            parts[axis] = (*parts[axis], step)
    return parts


RULES: dict[Op | None, tuple[Rule, ...]] = {red.contract: (split_batch,)}


@pass_over("graphs", after=("contract",))
def split_batches(graph: Graph) -> None:
    """Apply the rule of this file to every product."""
    rewrite(graph, RULES)
