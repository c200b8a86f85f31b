"""Find the contractions: sums of products that a matrix kernel computes. Reassociates.

    v2 = broadcast(w, shape=(b, j, i), axes=(1, 2))
    v3 = broadcast(x, shape=(b, j, i), axes=(0, 2))
    v4 = mul(v2, v3)                                    =>    v5 = contract(x, w, spec=ac,bc->ab)
    v5 = sum(v4, axes=(2,))

A sum of products in which both factors vary along every kept axis is no contraction, as a row kernel is equally fast.
Transposed and broadcast operands are absorbed into the labels, which are then renamed in order of the result, so that
equal contractions are one node.
"""

from __future__ import annotations

from string import ascii_lowercase

from mlaot.ir import Graph, Node
from mlaot.ir.types import bf16, f16
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite


def sum_of_products(node: Node) -> Node | None:
    """sum(broadcast(x) * broadcast(w)) => contract(x, w)"""
    product, axes = node.arg(0), node.attrs["axes"]
    if product.op is not ew.mul or _is_half(node):
        return None
    labels = ascii_lowercase[: product.type.rank]
    (a, a_labels), (b, b_labels) = (operand_of(product.arg(i), labels) for i in (0, 1))
    out = "".join(c for i, c in enumerate(labels) if i not in axes)
    summed = set(labels) - set(out)
    if not (summed <= set(a_labels) and summed <= set(b_labels)) or set(out) <= set(a_labels) & set(b_labels):
        return None
    product_labels = "".join(c for c in out if c in a_labels or c in b_labels)
    result = red.contract(a, b, spec=f"{a_labels},{b_labels}->{product_labels}")
    if product_labels == out:
        return result
    return st.broadcast(result, shape=node.type.shape, axes=tuple(out.index(c) for c in product_labels))


def sum_of_sums(node: Node) -> Node | None:
    """sum(sum(x)) => sum(x), over the axes of both"""
    inner = node.arg(0)
    if inner.op is not red.sum_ or _is_half(node):
        return None
    return red.sum_(inner.arg(0), axes=red.both_axes(inner, node))


def sum_of_multiples(node: Node) -> Node | None:
    """sum(sum(x) * s) => sum(x) * s, over the axes of both, where s is one number"""
    product = node.arg(0)
    if product.op is not ew.mul or product.type.dtype.kind != "f" or _is_half(node):
        return None
    for x, s in ((product.arg(0), product.arg(1)), (product.arg(1), product.arg(0))):
        if x.op is red.sum_ and s.op is st.broadcast and s.arg(0).type.rank == 0:
            total = red.sum_(x, axes=node.attrs["axes"])
            return ew.mul(total, st.broadcast(s.arg(0), shape=total.type.shape, axes=()))
    return None


def _is_half(node: Node) -> bool:
    """Tell whether each op rounds to 16 bits: a product inside a contraction would not be rounded."""
    return node.type.dtype in (f16, bf16)


def operand_of(node: Node, labels: str) -> tuple[Node, str]:
    """Return the value that a factor broadcasts, and its labels."""
    while node.op is st.broadcast and node.arg(0).type.rank > 0:
        node, labels = node.arg(0), "".join(labels[a] for a in node.attrs["axes"])
    return node, labels


def absorb_transpose(node: Node) -> Node | None:
    """contract(transpose(a), b) => contract(a, b) with other labels"""
    first, second, out = red.parse_spec(node.attrs["spec"])
    operands, labels = [node.arg(0), node.arg(1)], [first, second]
    if not any(operand.op is st.transpose for operand in operands):
        return None
    for i, operand in enumerate(operands):
        if operand.op is st.transpose:
            reordered = [""] * len(labels[i])
            for position, p in enumerate(operand.attrs["perm"]):
                reordered[p] = labels[i][position]
            operands[i], labels[i] = operand.arg(0), "".join(reordered)
    return red.contract(*operands, spec=f"{labels[0]},{labels[1]}->{out}")


def transposed_result(node: Node) -> Node | None:
    """transpose(contract(a, b)) => contract(a, b) with the result's labels moved"""
    inner = node.arg(0)
    if inner.op is not red.contract:
        return None
    first, second, out = red.parse_spec(inner.attrs["spec"])
    reordered = "".join(out[p] for p in node.attrs["perm"])
    return red.contract(inner.arg(0), inner.arg(1), spec=f"{first},{second}->{reordered}")


def canonical_labels(node: Node) -> Node | None:
    """Put the operand with the result's first label first; name labels by the result, then the sum"""
    first, second, out = red.parse_spec(node.attrs["spec"])
    operands = [(first, node.arg(0)), (second, node.arg(1))]
    order = [tuple(out.index(c) for c in labels if c in out) for labels, _ in operands]
    if min(order[1], default=99) < min(order[0], default=99):
        operands.reverse()
    seen = dict.fromkeys(out + operands[0][0] + operands[1][0])
    names = dict(zip(seen, ascii_lowercase, strict=False))
    spec = ",".join("".join(names[c] for c in labels) for labels, _ in operands) + "->" + "".join(names[c] for c in out)
    if spec == node.attrs["spec"] and operands[0][1] is node.arg(0):
        return None
    return red.contract(operands[0][1], operands[1][1], spec=spec)


RULES: dict[Op | None, tuple[Rule, ...]] = {
    red.sum_: (sum_of_products, sum_of_sums, sum_of_multiples),
    st.transpose: (transposed_result,),
    red.contract: (absorb_transpose, canonical_labels),
}


@pass_over("graphs", after=("raise_tensors",))
def contract(graph: Graph) -> None:
    """Apply the rules of this file to a fixed point."""
    rewrite(graph, RULES)
