"""Eliminate dead code of loops and branches. Bit-exact.

    v3 = scan(w, b, h, x, body=.., consts=2, carries=1) : (f32[3], f32[9], f32[9,3])
    v4 = result(v3, index=0)
        =>
    v3 = scan(w, h, x, body=.., consts=1, carries=1) : (f32[3])
    v4 = result(v3, index=0)

Results that nothing reads, carries that only feed themselves, and operands that no subgraph uses are dead. Examples are
the saved carries of a loop that is not differentiated, and unused gradients of one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mlaot.ir import Graph, Node, Subgraph
from mlaot.ops import Op
from mlaot.ops.control import cond, result, scan, while_
from mlaot.passes.base import pass_over

Replacement = tuple[Node, list[int]]  # the smaller node, and the indices of the old results that it keeps


@pass_over("graphs", after=("entries",))
def dead_code(graph: Graph) -> None:
    """Drop unread results, carries and operands of every control-flow node, users before their arguments."""
    done: set[Node] = set()
    while (node := next((n for n in reversed(graph.nodes()) if n.op in RULES and n not in done), None)) is not None:
        readers = [n for n in graph.nodes() if n.op is result and n.arg(0) is node]
        better, kept = RULES[node.op](node, sorted({n.attrs["index"] for n in readers}))
        done |= {node, better}
        for reader in readers if better is not node else ():
            graph.forward(reader, result(better, index=kept.index(reader.attrs["index"])))


def _scan(node: Node, read: Sequence[int]) -> Replacement:
    body, consts, carries = (node.attrs[key] for key in ("body", "consts", "carries"))
    ys = [i for i in read if i >= carries]
    live = {i for i in read if i < carries}
    while True:
        small = _keep_results(body, [*sorted(live), *ys])
        used = _used_inputs(small)
        fed = {i for i in range(carries) if consts + i in used}
        if fed <= live:
            break
        live |= fed
    kept = [i for i in range(len(node.args)) if i in used or i - consts in live]
    attrs = {"body": _keep_inputs(small, kept), "consts": sum(i < consts for i in kept), "carries": len(live)}
    return node.graph.add(scan, [node.args[i] for i in kept], {**node.attrs, **attrs}), [*sorted(live), *ys]


def _while(node: Node, read: Sequence[int]) -> Replacement:
    body, consts = node.attrs["body"], node.attrs["consts"]
    condition = _keep_results(node.attrs["condition"], [0])
    live = set(read)
    while True:
        small = _keep_results(body, sorted(live))
        used = _used_inputs(small) | _used_inputs(condition)
        fed = {i - consts for i in used if i >= consts}
        if fed <= live:
            break
        live |= fed
    kept = [i for i in range(len(node.args)) if i in used or i - consts in live]
    attrs = {
        "condition": _keep_inputs(condition, kept),
        "body": _keep_inputs(small, kept),
        "consts": sum(i < consts for i in kept),
    }
    return node.graph.add(while_, [node.args[i] for i in kept], {**node.attrs, **attrs}), sorted(live)


def _cond(node: Node, read: Sequence[int]) -> Replacement:
    branches = {key: _keep_results(node.attrs[key], read) for key in ("then", "otherwise")}
    kept = sorted(set().union(*map(_used_inputs, branches.values())))
    small = {key: _keep_inputs(branch, kept) for key, branch in branches.items()}
    return node.graph.add(cond, [node.args[0], *[node.args[i + 1] for i in kept]], {**node.attrs, **small}), list(read)


RULES: dict[Op, Callable[[Node, Sequence[int]], Replacement]] = {scan: _scan, while_: _while, cond: _cond}


def _keep_results(body: Subgraph, outputs: Iterable[int]) -> Graph:
    """Copy ``body`` with only the results ``outputs``, and eliminate nodes that they do not depend on."""
    copy = body.copy()
    copy.outputs = {f"r{i}": copy.outputs[f"r{i}"] for i in outputs}
    dead_code(copy)
    return copy


def _used_inputs(graph: Graph) -> set[int]:
    """Return the positions of the inputs that the graph needs."""
    needed = set(graph.nodes())
    return {i for i, node in enumerate(graph.inputs.values()) if node in needed}


def _keep_inputs(graph: Graph, kept: Sequence[int]) -> Subgraph:
    """Make a subgraph of ``graph`` with the inputs at the positions ``kept``."""
    names = list(graph.inputs)
    graph.inputs = {names[i]: graph.inputs[names[i]] for i in kept}
    return Subgraph(graph)
