"""The gradient of a convolution by its input is a convolution: no product of all windows is stored. Reassociates.

    v2 = contract(dy, w, spec=bohw,ockl->bchwkl)              v2 = window(pad(dy))
    v3 = fold(v2, axes=(2, 3), shape=..)            =>        v3 = flip(w)
                                                              v4 = contract(v2, v3, spec=bohwkl,ockl->bchw)

Only for strides of 1: with others, most elements of the new windows are zeros.
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Node
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import rewrite


def convolve_gradient(node: Node) -> Node | None:
    """fold(contract(dy, w)) => contract(window(pad(dy)), flip(w))"""
    inner, axes = node.arg(0), node.attrs["axes"]
    if inner.op is not red.contract or any(s != 1 for s in node.attrs["strides"]):
        return None
    first, second, out = red.parse_spec(inner.attrs["spec"])
    rank = node.type.rank
    places, taps = "".join(out[a] for a in axes), out[rank:]
    operands = [(first, inner.arg(0)), (second, inner.arg(1))]
    if set(places) <= set(second) and not set(places) & set(first):
        operands.reverse()
    (dy_labels, dy), (w_labels, w) = operands
    if not set(places) <= set(dy_labels) or set(places) & set(w_labels):
        return None
    if not set(taps) <= set(w_labels) or set(taps) & set(dy_labels):
        return None
    windows = _windows(dy, [dy_labels.index(c) for c in places], node)
    result = red.contract(
        windows, _flip(w, [w_labels.index(c) for c in taps]), spec=f"{dy_labels}{taps},{w_labels}->{out[:rank]}"
    )
    return result if result.type == node.type else None


def _windows(dy: Node, axes: list[int], node: Node) -> Node:
    """Take the windows of padded ``dy``: for each folded element, those of ``dy`` that it contributed to.

    With K taps and dilation d, y[p] = sum_k x[p + k d] w[k], so dx[p] = sum_k dy[p - k d] w[k]. With (K - 1) d zeros in
    front of dy and j = K - 1 - k, that is sum_j padded[p + j d] w[K - 1 - j]: a window times the flipped weights.
    """
    sizes, dilations = node.attrs["sizes"], node.attrs["dilations"]
    low: list[Dim] = [0] * dy.type.rank
    high: list[Dim] = [0] * dy.type.rank
    for axis, folded, size, dilation in zip(axes, node.attrs["axes"], sizes, dilations, strict=True):
        low[axis] = (size - 1) * dilation
        high[axis] = node.type.shape[folded] - dy.type.shape[axis]
    zero = node.graph.constant(0, dy.type.dtype)
    padded = st.pad(dy, zero, low=tuple(low), high=tuple(high), interior=(0,) * dy.type.rank)
    return st.window(padded, axes=tuple(axes), sizes=sizes, strides=(1,) * len(axes), dilations=dilations)


def _flip(w: Node, axes: list[int]) -> Node:
    shape = w.type.shape
    start = tuple(d - 1 if i in axes else 0 for i, d in enumerate(shape))
    step = tuple(-1 if i in axes else 1 for i in range(len(shape)))
    return st.slice_(w, start=start, size=shape, step=step)


@pass_over("graphs", after=("entries", "contract"))
def transposed_convolution(graph: Graph) -> None:
    """Apply the rule of this file."""
    rewrite(graph, {st.fold: (convolve_gradient,)})
