"""Find the distances of all pairs: sums of squared or absolute differences. Reassociates.

    v2 = broadcast(x, shape=(b, j, i), axes=(0, 2))
    v3 = broadcast(w, shape=(b, j, i), axes=(1, 2))
    v4 = sub(v2, v3)                                    =>    v6 = contract_differences(x, w, spec=ac,bc->ab, power=2)
    v5 = mul(v4, v4)
    v6 = sum(v5, axes=(2,))

The kernel of products computes them in registers, with vectors along the pairs, and later work in its epilogue. The
sums remain sums of differences, since expanded squares of two distant points would cancel. Other readers of the
differences compute these again, so they change no bit of the sums.
"""

from __future__ import annotations

from string import ascii_lowercase

from mlaot.ir import Graph, Node
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops.kinds import VECTORS
from mlaot.passes.base import pass_over
from mlaot.passes.raising.contract import operand_of
from mlaot.passes.rewrite import rewrite


@pass_over("graphs", after=("entries", "contract"))
def pairwise(graph: Graph) -> None:
    """Apply the rule of this file to every sum."""
    rewrite(graph, {red.sum_: (distances_of,)})


def distances_of(node: Node) -> Node | None:
    """sum(square(broadcast(x) - broadcast(w))) => contract_differences(x, w, power=2), and so on"""
    term, axes = node.arg(0), node.attrs["axes"]
    if node.type.dtype.name not in VECTORS:
        return None
    is_square = term.op is ew.mul or (term.op is ew.pow_ and term.attrs["exponent"] == 2)
    if not (is_square or term.op is ew.abs_):
        return None
    if term.arg(0).op is not ew.sub or any(a.find() is not term.arg(0) for a in term.args):
        return None
    difference, labels = term.arg(0), ascii_lowercase[: term.type.rank]
    (a, a_labels), (b, b_labels) = (operand_of(difference.arg(i), labels) for i in (0, 1))
    out = "".join(c for i, c in enumerate(labels) if i not in axes)
    shared, either = {*a_labels} & {*b_labels}, {*a_labels} | {*b_labels}
    if not {*labels} - {*out} <= shared or not {*out} <= either or {*out} <= shared:  # the last: of rows, no pairs
        return None
    return red.contract_differences(a, b, spec=f"{a_labels},{b_labels}->{out}", power=2 if is_square else 1)
