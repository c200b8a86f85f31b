"""Unroll windows of a few elements in microbatches: pooling becomes elementwise work. Bit-exact but for -0.

    v1 = window(x, axes=(2, 3), sizes=(2, 2), ..)         v1 = slice(x, start=(0, 0, 0, 0), step=(1, 1, 2, 2))
    v2 = max(v1, axes=(4, 5))                       =>    v2 = maximum(maximum(maximum(v1, ..), ..), ..)

    v5 = fold(v4, axes=(2, 3), ..)                        v5 = window(v3, axes=(2, 3), ..)
    v6 = mul(v3, v5)                                =>    v6 = fold(mul(v5, v4), axes=(2, 3), ..)

A fold whose windows are side by side only places elements. The rules move it last, where it copies nothing.
"""

from __future__ import annotations

from itertools import product
from math import prod

from mlaot.ir import Graph, Node
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.kinds import REDUCTIONS
from mlaot.ops.views import is_side_by_side
from mlaot.passes.base import pass_over
from mlaot.passes.rewrite import Rule, rewrite
from mlaot.passes.training import microbatch
from mlaot.schedule.tuning import POOLED_WINDOW


def unroll_window(node: Node) -> Node | None:
    """reduce(f(window(x), ..)) => combine(f(slice(x), ..), f(slice(x), ..), ..)"""
    if not node.op.repeats:
        return None
    axes, shape = node.attrs["axes"], node.arg(0).type.shape
    sizes = [shape[a] for a in axes]
    if axes != tuple(range(len(shape) - len(axes), len(shape))) or not all(isinstance(d, int) for d in sizes):
        return None
    if not _has_window(node.arg(0), len(axes)) or prod(sizes) > POOLED_WINDOW:
        return None
    result: Node | None = None
    for place in product(*[range(d) for d in sizes]):
        part = _at(node.arg(0), place)
        if part is None:
            return None
        result = part if result is None else OPS[node.op.repeats](result, part)
    return result


def _has_window(node: Node, count: int) -> bool:
    if node.op is st.window:
        return len(node.attrs["axes"]) == count
    return node.op.elementwise and any(_has_window(a.find(), count) for a in node.args)


def _at(node: Node, place: tuple[int, ...]) -> Node | None:
    """Compute elementwise work on windows for one place in each of them."""
    kept = node.type.shape[: -len(place)]
    if node.op is st.window and len(node.attrs["axes"]) == len(place):
        start, step = [0] * len(kept), [1] * len(kept)
        attrs = [node.attrs[key] for key in ("axes", "strides", "dilations")]
        for axis, stride, dilation, k in zip(*attrs, place, strict=True):
            start[axis], step[axis] = k * dilation, stride
        return st.slice_(node.arg(0), start=tuple(start), size=kept, step=tuple(step))
    if node.op is st.broadcast and all(a < len(kept) for a in node.attrs["axes"]):
        inner = node.arg(0)
        return inner if inner.type.shape == kept else st.broadcast(inner, shape=kept, axes=node.attrs["axes"])
    if not node.op.elementwise:
        return None
    args = [_at(a.find(), place) for a in node.args]
    operands = [a for a in args if a is not None]
    return node.op(*operands, **node.attrs) if len(operands) == len(args) else None


def fold_last(node: Node) -> Node | None:
    """f(x, fold(y)) => fold(f(window(x), y)) for windows side by side"""
    if not node.op.elementwise or node.op is st.one_hot:
        return None
    fold = next((a.find() for a in node.args if a.find().op is st.fold), None)
    if fold is None or not is_side_by_side(fold):
        return None
    attrs = {key: value for key, value in fold.attrs.items() if key != "shape"}
    args = [a.find() for a in node.args]
    same = [a.op is st.fold and a.attrs == fold.attrs for a in args]
    windows = [a.arg(0) if s else st.window(a, **attrs) for a, s in zip(args, same, strict=True)]
    return st.fold(node.op(*windows, **node.attrs), **fold.attrs)


def window_first(node: Node) -> Node | None:
    """window(step(x)) => step(window(x)), which its readers compute"""
    inner = node.arg(0)
    return ew.step(st.window(inner.arg(0), **node.attrs)) if inner.op is ew.step else None


@pass_over("graphs", after=("entries",))
def unroll_windows(graph: Graph) -> None:
    """Apply the rules of this file to the graph of a microbatch."""
    if graph.name == microbatch.NAME:
        anywhere: dict[object, tuple[Rule, ...]] = {None: (fold_last,), st.window: (window_first,)}
        rewrite(graph, {**anywhere, **dict.fromkeys(REDUCTIONS, (unroll_window,))})  # type: ignore[dict-item]
