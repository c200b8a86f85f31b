"""Convolve elements that have zeros between them without the products with these zeros. Reassociates.

    v1 = pad(x, 0, low=(0, 0, 2), high=(0, 0, 2), interior=(0, 0, 1))
    v2 = window(v1, axes=(2,), sizes=(4,))
    v3 = contract(v2, w, spec=nchk,ock->noh)
        =>
    v1 = pad(x, 0, low=(0, 0, 1), high=(0, 0, 1))
    v2 = window(v1, axes=(2,), sizes=(2,))
    v3 = contract(v2, phases(w), spec=nchk,ocks->nohs)
    v4 = slice(reshape(v3))

Transposed convolutions and gradients of strided ones are of this kind. Let s be the distance of the elements. Of s
neighbouring results, each sums other elements of the window: the first w[s - 1], w[2 s - 1] and so on, and the last
w[0], w[s] and so on. They become s further channels of one convolution with windows that are s times smaller (Shi et
al., 2016, "Is the deconvolution layer the same as a convolutional layer?"). Some results before the first one may have
to be sliced off. For s = 2 there are none, as windows of the second phase begin an element later.

A single padded element is treated as if it had neighbours beyond the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from string import ascii_letters

from mlaot.ir import Dim, Node
from mlaot.ir.module import Module
from mlaot.ops import Op
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import regroup
from mlaot.passes.algebra.simplify import number
from mlaot.passes.algebra.transposed_convolution import convolved
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import fixed_by, store
from mlaot.passes.layout.blocks import pad_axis
from mlaot.passes.raising.contract import canonical_labels
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.subgraphs import everywhere


@pass_over("module", after=("transposed_convolution", "blocked_layout"))
def spread_convolution(module: Module) -> None:
    """Apply the rule of this file to every graph. Frozen weights are stored in their new form."""
    for graph in module.graphs.values():
        made: dict[Node, _Interleaved] = {}

        def convolution(node: Node, made: dict[Node, _Interleaved] = made) -> Node | None:
            """contract(window(pad(x)), w) => slice(reshape(contract(window(pad(x)), phases(w))))"""
            return _in_phases(node, made)

        def elementwise(node: Node, made: dict[Node, _Interleaved] = made) -> Node | None:
            """f(slice(reshape(x)), y) => slice(reshape(f(x, y))), where y is the same for neighbours"""
            return _before_interleaving(node, made)

        rules: dict[Op | None, tuple[Rule, ...]] = {red.contract: (convolution,), None: (elementwise,)}
        everywhere(partial(rewrite, rules=rules), graph)
        if not made:
            continue
        if module.is_frozen:
            is_fixed = fixed_by(module)
            products = (each.value for each in made.values() if each.value.op is red.contract)
            weights = (w for product in products if product.graph is graph for w in product.args)
            store(module, graph, [w for w in weights if w.args and is_fixed(w)])
        rewrite(graph, {red.contract: (canonical_labels,)})


@dataclass(frozen=True)
class _Interleaved:
    """Results in order of phases. ``inner`` has the labels of ``out``, and ``phases`` the phases' labels by position.

    ``start`` and ``shape`` give the needed part, with the phases of each position next to each other.
    """

    value: Node
    inner: str
    out: str
    phases: dict[str, str]
    start: tuple[Dim, ...]
    shape: tuple[Dim, ...]

    def node(self) -> Node:
        """Return the value with the axes of ``out`` alone."""
        long = "".join(c + self.phases.get(c, "") for c in self.out)
        value = st.in_order(self.value, [self.inner.index(c) for c in long])
        extents = dict(zip(long, value.type.shape, strict=True))
        merged = tuple(extents[c] * (extents[self.phases[c]] if c in self.phases else 1) for c in self.out)
        value = st.reshape(value, shape=merged)
        if merged == self.shape:
            return value
        return st.slice_(value, start=self.start, size=self.shape, step=(1,) * len(self.out))


def _before_interleaving(node: Node, made: dict[Node, _Interleaved]) -> Node | None:
    args = [a.find() for a in node.args]
    like = next((made[a] for a in args if a in made), None) if node.op.elementwise else None
    if like is None:
        return None
    places = {like.out.index(c) for c in like.phases}
    values = []
    for a in args:
        if a in made and replace(made[a], value=like.value) == like:
            values.append(made[a].value)
        elif a.op is st.broadcast and not places.intersection(a.attrs["axes"]):
            axes = tuple(like.inner.index(like.out[i]) for i in a.attrs["axes"])
            values.append(st.broadcast(a.arg(0), shape=like.value.type.shape, axes=axes))
        else:
            return None
    better = replace(like, value=node.op(*values, **node.attrs))
    result = better.node()
    made[result] = better
    return result


@dataclass(frozen=True)
class _Axis:
    """A spread axis of the padded value: position and tap labels of its windows, and their new sizes and padding."""

    axis: int
    place: str
    tap: str
    distance: int
    before: int  # results that are cut off again
    size: int  # of a window, of elements alone
    low: int
    high: int
    is_shifted: bool  # the windows of the second of two phases begin an element later, so that nothing is cut off


def _in_phases(node: Node, made: dict[Node, _Interleaved]) -> Node | None:
    (labels, windows), (w_labels, w), out = convolved(node)
    windows = _of_split(windows)
    axes = _spread_axes(labels, windows, w_labels, out)
    if axes is None:
        return None
    free = iter(c for c in ascii_letters if c not in labels + w_labels)
    phases = {each.place: next(free) for each in axes}
    for each in axes:
        w, at = _phases(w, w_labels.index(each.tap), each), w_labels.index(each.tap)
        w_labels = w_labels[: at + 1] + phases[each.place] + w_labels[at + 1 :]
    if out[-1] in phases:  # vectors are neighbours of one phase
        at = min(map(out.index, phases))
        inner = out[:at] + "".join(phases.values()) + out[at:]
    else:
        inner = "".join(c + phases.get(c, "") for c in out)
    labels += "".join(phases[each.place] for each in axes if each.is_shifted)
    product = red.contract(_windows_of_elements(windows, axes), w, spec=f"{labels},{w_labels}->{inner}")
    start = tuple(next((each.before for each in axes if each.place == c and not each.is_shifted), 0) for c in out)
    made_of = _Interleaved(product, inner, out, phases, start, node.type.shape)
    result = made_of.node()
    made[result] = made_of
    return result


def _of_split(windows: Node) -> Node:
    """window(reshape(pad(x))) => window(pad(reshape(x))), where axes that are not padded are split, as into groups"""
    split = windows.arg(0) if windows.op is st.window else windows
    if split is windows or split.op is not st.reshape or split.arg(0).op is not st.pad:
        return windows
    padded = split.arg(0)
    pads: dict[str, list[Dim]] = {key: [] for key in ("low", "high", "interior")}
    shape: list[Dim] = []
    for before, after in regroup(padded.type.shape, split.type.shape) or [([], [])]:
        if len(before) != 1 or not after:
            return windows
        here = {key: padded.attrs[key][before[0]] for key in pads}
        if len(after) > 1 and any(d != 0 for d in here.values()):
            return windows
        shape += [split.type.shape[i] for i in after] if len(after) > 1 else [padded.arg(0).type.shape[before[0]]]
        for key, values in pads.items():
            values += [here[key]] * len(after)
    x = st.reshape(padded.arg(0), shape=tuple(shape))
    around = st.pad(x, padded.arg(1), **{key: tuple(values) for key, values in pads.items()})
    return st.window(around, **windows.attrs)


def _spread_axes(labels: str, windows: Node, w_labels: str, out: str) -> list[_Axis] | None:
    """Return the axes with zeros between the elements, if all of these are convolved with the weights."""
    padded = windows.arg(0) if windows.op is st.window else windows
    if padded is windows or padded.op is not st.pad or number(padded.arg(1)) != 0:
        return None
    attrs = windows.attrs
    axes, count = [], len(attrs["axes"])
    for axis, between in enumerate(padded.attrs["interior"]):
        i = attrs["axes"].index(axis) if axis in attrs["axes"] else -1
        low, high = (padded.attrs[key][axis] for key in ("low", "high"))
        if i >= 0 and padded.arg(0).type.shape[axis] == 1 != windows.type.shape[axis]:
            between = attrs["sizes"][i] - 1  # a single element is as far from the next one as one likes
        if between == 0:
            continue
        if i < 0:
            return None
        place, tap, size = labels[axis], labels[len(labels) - count + i], attrs["sizes"][i]
        is_dense = attrs["strides"][i] == 1 == attrs["dilations"][i]
        is_convolved = place in out and tap in w_labels and place not in w_labels and tap not in out
        if not (is_dense and is_convolved and all(isinstance(d, int) for d in (between, size, low, high))):
            return None
        s = between + 1
        before = (s - 1 - low) % s
        fewer = -(-size // s)
        new_high = -((size - 1 - high) // s) + fewer - 1
        is_shifted = (s, before) == (2, 1) and (low + high - size) % 2 == 0
        axes.append(_Axis(axis, place, tap, s, before, fewer, (low + before) // s, new_high, is_shifted))
    return axes or None


def _windows_of_elements(windows: Node, axes: list[_Axis]) -> Node:
    padded, attrs = windows.arg(0), windows.attrs
    pads: dict[str, list[Dim]] = {key: [*padded.attrs[key]] for key in ("low", "high", "interior")}
    sizes = [*attrs["sizes"]]
    for each in axes:
        pads["low"][each.axis], pads["high"][each.axis], pads["interior"][each.axis] = each.low, each.high, 0
        sizes[attrs["axes"].index(each.axis)] = each.size
    x = padded.arg(0)
    if any(d != 0 for values in pads.values() for d in values):
        x = st.pad(x, padded.arg(1), **{key: tuple(values) for key, values in pads.items()})
    x = st.window(x, **{**attrs, "sizes": tuple(sizes)})
    shifted = tuple(each.axis for each in axes if each.is_shifted)
    ones = (1,) * len(shifted)
    return st.window(x, axes=shifted, sizes=(2,) * len(shifted), strides=ones, dilations=ones) if shifted else x


def _phases(w: Node, axis: int, each: _Axis) -> Node:
    """Split the taps along an axis into [elements, phases], with zeros behind the last tap.

    The phases are in the order of the results: backwards, or with the second one first if it begins a result later.
    """
    shape = w.type.shape
    split = (*shape[:axis], each.size, each.distance, *shape[axis + 1 :])
    w = st.reshape(pad_axis(w, axis, each.size * each.distance), shape=split)
    return w if each.is_shifted else st.flip(w, [axis + 1])
