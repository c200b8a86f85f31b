"""Round products that are terms of sums, so that results do not depend on other readers. The pass is bit-exact.

    v2 = mul(v0, v1)                      v2 = mul(v0, v1)
    v3 = add(v2, v4)             =>       v3 = add(rounded(v2), v4)

Compilers contract a product and a sum to one operation that rounds once, but not if the product is stored as well. So
one more output would change the last bit of another output. Sums in contractions are always contracted and are left
alone. Deterministic modules are compiled without contraction.
"""

from __future__ import annotations

from mlaot.ir import Graph, Node, Type
from mlaot.ir.rename import copy_graph
from mlaot.lower.identifiers import c_dims
from mlaot.ops import comparison, rounding
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops.kinds import VECTORS
from mlaot.passes.rewrite import rewrite
from mlaot.passes.subgraphs import everywhere

# Ops whose last operation is no product, and whose first is no sum.
PLAIN = {
    *(ew.div, ew.sqrt, ew.abs_, ew.sign, ew.relu, ew.step, ew.maximum, ew.minimum, ew.cast, ew.copy, ew.is_equal),
    *(ew.rounded, comparison.where, rounding.floor, rounding.ceil, rounding.trunc, rounding.round_),
    *(rounding.round_f16, rounding.round_bf16),
}
NO_PRODUCTS = {*PLAIN, ew.add, ew.sub, ew.neg}
NO_SUMS = {*PLAIN, ew.mul, ew.neg}


def ends_with_product(node: Node) -> bool:
    """Tell whether the last operation of an elementwise node may be a product."""
    node = node.arg(0) if node.op is ew.neg else node
    is_float = isinstance(node.type, Type) and node.type.dtype.name in VECTORS
    return is_float and node.op.elementwise and node.op not in NO_PRODUCTS


def round_first(node: Node) -> Node | None:
    """add(mul(x, y), z) => add(rounded(mul(x, y)), z), and so on for all that may begin with a sum"""
    sums = node.op is red.sum_ or (node.op.elementwise and node.op not in NO_SUMS)
    args = [a.find() for a in node.args]
    if not sums or not any(map(ends_with_product, args)):
        return None
    return node.op(*[ew.rounded(a) if ends_with_product(a) else a for a in args], **node.attrs)


def round_products(graph: Graph) -> Graph:
    """Copy a graph with the C names of its dims, and round the products that are terms of sums."""
    result = copy_graph(graph, c_dims(graph))
    everywhere(lambda each: rewrite(each, {None: (round_first,)}), result)
    return result
