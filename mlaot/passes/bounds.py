"""Bound the values of a graph by their ops: without a sample it is known that a tanh is between -1 and 1.

    v2 = sigmoid(v0)                     0..1
    v3 = tanh(v1)                       -1..1
    v4 = mul(v2, v3)                    -1..1
    v5 = add(mul(sub(1, v2), v3), mul(v2, v4))      -1..1, a point between two numbers

Interval arithmetic (Moore, Interval Analysis, 1966) over the few ops of recurrent layers; all others are unbounded. A
rounding to float32 may step over a bound by its own error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite

from mlaot.ir import Node
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops import transcendental as tr
from mlaot.ops.comparison import where
from mlaot.passes.algebra.simplify import number
from mlaot.passes.subgraphs import Loop

Range = tuple[float, float]
ANY: Range = (-inf, inf)
FIXED = {ew.tanh: (-1.0, 1.0), tr.sigmoid: (0.0, 1.0)}
MOVES = (st.slice_, st.reshape, st.transpose, st.broadcast, ew.copy)  # their elements are all their argument's
SUMS = (ew.add, ew.sub)  # as many as a graph has of integers stay far within the range of float32
ROUNDS = 3  # in which a carry reaches its bounds, if it has any


def bounds(nodes: Iterable[Node], known: Mapping[Node, Range]) -> dict[Node, Range]:
    """Bound nodes, which come after their arguments, where ``known`` bounds hold."""
    found = dict(known)
    for node in nodes:
        if node not in found:
            found[node] = _bound(node, found)
    return found


def is_finite(node: Node) -> bool:
    """Tell whether a value has no infinities or nan for any input, such as sums of integers and constants."""
    open_, seen = [node.find()], set[Node]()
    while open_:
        node = open_.pop()
        if node in seen or node.type.dtype.kind != "f":
            continue
        seen.add(node)
        value = number(node)
        is_integer = node.op is ew.cast and node.arg(0).type.dtype.kind != "f"
        is_kept = isfinite(value) if value is not None else is_integer or node.op in (*MOVES, *SUMS, st.pad, st.window)
        if not is_kept or node.type.dtype.name not in ("f32", "f64"):
            return False
        open_ += [a.find() for a in node.args]
    return True


def carry_bounds(loop: Loop) -> dict[Node, Range]:
    """Bound all values of a loop's body in every round.

    The bounds of a carry include its start and the result of any round.
    """
    outer = bounds(loop.node.graph.nodes(), {})
    carries = list(loop.others)[: loop.node.attrs["carries"]]
    known = {n: outer[a] for n, a in loop.others.items()}
    open_ = dict.fromkeys(carries, ROUNDS)
    while True:
        found = bounds(loop.body.nodes(), known)
        after = [found[n.find()] for n in loop.body.outputs.values()]
        wider = {n: _hull(known[n], y) for n, y in zip(carries, after, strict=False) if _hull(known[n], y) != known[n]}
        if not wider:
            return found
        for n, range_ in wider.items():
            open_[n] -= 1
            known[n] = range_ if open_[n] else ANY


def _bound(node: Node, found: Mapping[Node, Range]) -> Range:
    args = [a.find() for a in node.args]
    ranges = [found.get(a, ANY) for a in args]
    if node.op in FIXED:
        return FIXED[node.op]
    if node.op is st.const and (value := number(node)) is not None:
        return value, value
    if node.op in MOVES:
        return ranges[0]
    if node.op is where:
        return _hull(*ranges[1:])
    if node.op is ew.add and (parts := _blend(args)) is not None:
        share, *between = parts
        if found.get(share) == (0.0, 1.0):
            return _hull(*(found.get(x, ANY) for x in between))
    if len(args) == 2 and node.op in (ew.add, ew.sub, ew.mul):
        return _arithmetic(node, *ranges)
    return ANY


def _arithmetic(node: Node, a: Range, b: Range) -> Range:
    if node.op is ew.mul:
        ends = [x * y if x and y else 0.0 for x in a for y in b]
        return min(ends), max(ends)
    return (a[0] + b[0], a[1] + b[1]) if node.op is ew.add else (a[0] - b[1], a[1] - b[0])


def _blend(args: list[Node]) -> tuple[Node, Node, Node] | None:
    """Return z, x and y of ``(1 - z) * x + z * y``, in any order of its operands."""
    if len(args) != 2 or any(a.op is not ew.mul or len(a.args) != 2 for a in args):
        return None
    for first, second in (args, args[::-1]):
        for i in (0, 1):
            rest, x = first.arg(i), first.arg(1 - i)
            if rest.op is ew.sub and number(rest.arg(0)) == 1 and rest.arg(1) in (second.arg(0), second.arg(1)):
                z = rest.arg(1)
                return z, x, second.arg(1) if second.arg(0) is z else second.arg(0)
    return None


def _hull(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])
