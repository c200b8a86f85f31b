"""Gradients of convolutions are convolutions: no product of all windows is stored. Reassociates.

    v2 = contract(dy, w, spec=bohw,ockl->bchwkl)              v2 = window(pad(dy))
    v3 = fold(v2, axes=(2, 3), shape=..)            =>        v3 = flip(w)
                                                              v4 = contract(v2, v3, spec=bohwkl,ockl->bchw)

    v2 = window(pad(x, interior=(0, 0, 1, 1)))                v2 = flip(window(pad(dy), strides=(2, 2)))
    v3 = contract(dy, v2, spec=..)                  =>        v3 = contract(v2, x, spec=..)

With strides, there are zeros between the elements of dy, whose products ``spread_convolution`` removes. With a
transposed convolution there are zeros between the elements of x, whose products the second rule removes. The gradient
of padding before a convolution is sliced off, and is not computed at all.

    v2 = contract(window(pad(dy, low=(0, 0, 2))), w)          v2 = contract(window(pad(dy, low=(0, 0, 1))), w)
    v3 = slice(v2, start=(0, 0, 1), ..)             =>
"""

from __future__ import annotations

from mlaot.ir import Dim, Graph, Node
from mlaot.ops import Op
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.training import microbatch


def convolve_gradient(node: Node) -> Node | None:
    """fold(contract(dy, w)) => contract(window(pad(dy)), flip(w))"""
    inner, axes = node.arg(0), node.attrs["axes"]
    if inner.op is not red.contract or not _is_worth(node):
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
    if windows is None:
        return None
    result = red.contract(
        windows, st.flip(w, [w_labels.index(c) for c in taps]), spec=f"{dy_labels}{taps},{w_labels}->{out[:rank]}"
    )
    return result if result.type == node.type else None


def _is_worth(node: Node) -> bool:
    """Tell whether products with zeros between the elements of dy can be avoided, or there are none.

    In microbatches, the products of all windows fit the caches, so that adding them is faster than such a convolution.
    """
    strides, dilations = node.attrs["strides"], node.attrs["dilations"]
    is_spread = any(s != 1 for s in strides)
    is_spared = all(s == 1 or d == 1 for s, d in zip(strides, dilations, strict=True))
    return not is_spread or (is_spared and node.graph.name != microbatch.NAME)


def _windows(dy: Node, axes: list[int], node: Node) -> Node | None:
    """Return the windows of padded ``dy``: for each folded element, the elements of ``dy`` that it contributed to.

    With K taps and dilation d, y[p] = sum_k x[p + k d] w[k], so dx[p] = sum_k dy[p - k d] w[k]. With (K - 1) d zeros in
    front of dy and j = K - 1 - k, that is sum_j padded[p + j d] w[K - 1 - j]: a window times the flipped weights.
    With a stride s, dy has s - 1 zeros between its elements.
    """
    sizes, dilations = node.attrs["sizes"], node.attrs["dilations"]
    pads: dict[str, list[Dim]] = {key: [0] * dy.type.rank for key in ("low", "high", "interior")}
    for i, axis in enumerate(axes):
        between = node.attrs["strides"][i] - 1
        pads["low"][axis], pads["interior"][axis] = (sizes[i] - 1) * dilations[i], between
        spread = (dy.type.shape[axis] - 1) * (between + 1) + 1
        pads["high"][axis] = node.type.shape[node.attrs["axes"][i]] - spread
        if between != 0 and not isinstance(pads["high"][axis], int):
            return None  # how many zeros follow the last element is not known
    zero = node.graph.constant(0, dy.type.dtype)
    padded = st.pad(dy, zero, **{key: tuple(values) for key, values in pads.items()})
    return st.window(padded, axes=tuple(axes), sizes=sizes, strides=(1,) * len(axes), dilations=dilations)


def cut_convolution(node: Node) -> Node | None:
    """slice(contract(window(pad(dy)), w)) => contract(window(pad(dy)), w), with less padding, and strides for steps"""
    product = node.arg(0)
    if product.op is not red.contract or any(s < 1 for s in node.attrs["step"]):
        return None
    (labels, windows), (w_labels, _), out = convolved(product)
    if windows.op is not st.window or windows.arg(0).op is not st.pad:
        return None
    padded, attrs = windows.arg(0), windows.attrs
    pads = {key: [*padded.attrs[key]] for key in ("low", "high")}
    strides = [*attrs["strides"]]
    for i, c in enumerate(out):
        start, size, step = (node.attrs[key][i] for key in ("start", "size", "step"))
        behind = product.type.shape[i] - 1 - start - (size - 1) * step
        if (start, behind, step) == (0, 0, 1):
            continue
        axis = labels.find(c)
        if axis not in attrs["axes"] or c in w_labels or strides[attrs["axes"].index(axis)] != 1:
            return None
        strides[attrs["axes"].index(axis)] = step
        pads["low"][axis] -= start
        pads["high"][axis] -= behind
        if not all(isinstance(values[axis], int) and values[axis] >= 0 for values in pads.values()):
            return None
    smaller = st.pad(*padded.args, **padded.attrs | {key: tuple(values) for key, values in pads.items()})
    windows_ = st.window(smaller, **attrs | {"strides": tuple(strides)})
    return red.contract(*[windows_ if a.find() is windows else a for a in product.args], **product.attrs)


def windows_of_gradient(node: Node) -> Node | None:
    """contract(dy, window(pad(x))) => contract(window(pad(dy)), x), where x is spread: for dw of a transposed one

    With s - 1 zeros between the elements of x and ``low`` in front, dw[k] = sum_p dy[p] padded[p + k], of which those
    with p + k = low + s m count: sum_m x[m] dy[s m + low - k].
    """
    (labels, windows), (dy_labels, dy), out = convolved(node)
    if windows.op is not st.window or windows.arg(0).op is not st.pad or number(windows.arg(0).arg(1)) != 0:
        return None
    padded, attrs = windows.arg(0), windows.attrs
    rank, x = padded.type.rank, padded.arg(0)
    places, taps = [labels[a] for a in attrs["axes"]], labels[rank:]
    is_gradient = all(c in dy_labels and c not in out for c in places) and all(c in out for c in taps)
    is_plain = {*attrs["strides"], *attrs["dilations"]} == {1} and not {*taps} & {*dy_labels}
    interior = [padded.attrs["interior"][a] for a in attrs["axes"]]
    others = [padded.attrs[key][a] for key in ("low", "high") for a in range(rank) if a not in attrs["axes"]]
    if not (is_gradient and is_plain and any(interior)) or any(others) or len({*dy_labels}) < len(dy_labels):
        return None
    pads: dict[str, list[Dim]] = {key: [0] * dy.type.rank for key in ("low", "high", "interior")}
    axes = tuple(dy_labels.index(c) for c in places)
    for axis, size, own in zip(axes, attrs["sizes"], attrs["axes"], strict=True):
        for key in ("low", "high"):
            pads[key][axis] = size - 1 - padded.attrs[key][own]
    if not all(isinstance(d, int) and d >= 0 for key in ("low", "high") for d in pads[key]):
        return None
    zero = node.graph.constant(0, dy.type.dtype)
    around = st.pad(dy, zero, **{key: tuple(values) for key, values in pads.items()})
    strides = tuple(d + 1 for d in interior)
    windows_ = st.window(around, axes=axes, sizes=attrs["sizes"], strides=strides, dilations=attrs["dilations"])
    turned = st.flip(windows_, [dy.type.rank + i for i in range(len(axes))])
    result = red.contract(turned, x, spec=f"{dy_labels}{taps},{labels[:rank]}->{out}")
    return result if result.type == node.type else None


def convolved(node: Node) -> tuple[tuple[str, Node], tuple[str, Node], str]:
    """Return the operands of a contraction with their labels, windows first, and the labels of the result."""
    first, second, out = red.parse_spec(node.attrs["spec"])
    operands = (first, node.arg(0)), (second, node.arg(1))
    return (*(operands if node.arg(0).op is st.window else operands[::-1]), out)


@pass_over("graphs", after=("entries", "contract"))
def transposed_convolution(graph: Graph) -> None:
    """Apply the rules of this file."""
    rules: dict[Op | None, tuple[Rule, ...]] = {
        st.fold: (convolve_gradient,),
        st.slice_: (cut_convolution,),
        red.contract: (windows_of_gradient,),
    }
    rewrite(graph, rules)
