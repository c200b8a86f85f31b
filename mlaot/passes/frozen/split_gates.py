"""Give the gates of a recurrent layer, equal parts of the last axis of a product with weights, an axis of their own.

    v2 = contract(h, w, spec=ac,bc->ab) : f32[n,256]             v2 = contract(h, w', spec=ad,dbc->abc) : f32[n,2,128]
    v3 = add(v2, x)                                              v3 = add(v2[:, 0], x[:, :128])
    v4 = sigmoid(v3[:, :128])                              =>    v4 = sigmoid(v3)
    v5 = tanh(v3[:, 128:])                                       v5 = add(v2[:, 1], x[:, 128:])
    v6 = mul(v4, v5)                                             v6 = mul(v4, tanh(v5))

The weights are rearranged at build time with the gate before the unit, so that one kernel computes all gates of some
units and the elementwise work on them (``lower/gates.py``). The pass applies only to frozen weights, and only if all
readers of the gates are elementwise. It is bit-exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from mlaot.ir import Graph, Node, topological, users
from mlaot.ir.module import Module
from mlaot.ir.types import i32
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.control import scan
from mlaot.ops.kinds import VECTORS, is_elementwise, vector_dtype
from mlaot.ops.quantized import contract_bytes
from mlaot.passes.base import pass_over
from mlaot.passes.frozen.freeze import add_weight
from mlaot.passes.subgraphs import Loop
from mlaot.schedule.machine import LINE
from mlaot.schedule.tuning import MAX_GATES

Array = np.ndarray[Any, Any]
Place = Callable[[Node, Array], Node | None]  # returns the input that holds the rearranged value of a weight


@pass_over("module", after=("freeze", "hoist_invariants", "quantize"))
def split_gates(module: Module) -> None:
    """Split the gates of every product with weights, in the graphs of a module and in the bodies of their loops."""
    if not module.is_frozen:
        return
    for graph in module.graphs.values():
        frozen = module.parameters.keys() - module.trained
        weights = {n: module.parameters[name] for name, n in graph.inputs.items() if name in frozen}

        def place(weight: Node, value: Array, graph: Graph = graph) -> Node:
            type_ = weight.type.with_shape(value.shape)
            return graph.input(add_weight(module, value), type_, parameter=True)

        for node in [n for n in graph.nodes() if n.op is scan]:
            graph.forward(node, _split_in_loop(node, weights, place))
        split(graph, weights, place)


def split(graph: Graph, weights: Mapping[Node, Array], place: Place) -> None:
    """Split the gates of the products in ``graph`` with ``weights``."""
    done: set[Node] = set()
    for node in _contractions(graph, done):
        done.add(node)
        used = graph.users()
        i = 0 if node.arg(0) in weights else 1
        members: dict[Node, None] = {}
        slices = _slices(node, used, set(graph.roots()), members) if _is_product(node, i, weights) else None
        units = slices[0].attrs["size"][-1] if slices else 0
        if not slices or not all(_is_part(s, units) and _is_combined(s, used) for s in slices):
            continue
        new = _split_product(node, i, units, weights[node.arg(i)], place)
        if new is None:
            continue
        done.add(new)
        parts: dict[tuple[Node, int], Node] = {}
        for s in slices:
            number = s.attrs["start"][-1] // units
            for x in members:
                parts[x, number] = parts.get((x, number)) or _part_of_gate(x, number, node, new, parts)
            graph.forward(s, parts[s.arg(0), number])


def _contractions(graph: Graph, done: set[Node]) -> Iterator[Node]:
    """Yield the contractions that are not ``done``, including new ones, while the graph changes."""
    while pending := [n for n in graph.nodes() if n.op in (red.contract, contract_bytes) and n not in done]:
        for node in pending:
            if node in graph.users():
                yield node


def _is_product(node: Node, i: int, weights: Mapping[Node, Array]) -> bool:
    """Tell whether the last axis of the result is an axis of the weights, whose other axes are all summed."""
    *labels, out = red.parse_spec(node.attrs["spec"])
    return (
        node.arg(i) in weights
        and node.type.dtype.name in VECTORS
        and node.arg(i).type.dtype is (i32 if node.op is contract_bytes else node.type.dtype)
        and out != ""
        and [c for c in labels[i] if c in out] == [out[-1]]
        and out[-1] not in labels[1 - i]
    )


def _slices(
    product: Node, used: Mapping[Node, Sequence[Node]], roots: set[Node], members: dict[Node, None]
) -> list[Node] | None:
    """Find the slices that are the only readers of a product and of elementwise work on it (``members``)."""
    slices: dict[Node, None] = {}
    reached, stack = {product}, [product]
    while stack:
        node = stack.pop()
        for user in used[node]:
            if user.op is st.slice_:
                slices[user] = None
            elif not is_elementwise(user) or user.type != node.type or vector_dtype(user) is None:
                return None
            elif user not in reached:
                reached.add(user)
                stack.append(user)
    if not slices or roots & reached:
        return None
    members |= dict.fromkeys(topological(reached, reached))
    return list(slices)


def _is_part(node: Node, units: int) -> bool:
    """Tell whether a slice is one of equal parts of the last axis, each at least a vector long."""
    x, (start, size, step) = node.arg(0).type, (node.attrs[key] for key in ("start", "size", "step"))
    length = x.shape[-1]
    if not all(isinstance(d, int) for d in (length, start[-1], size[-1])):
        return False
    return bool(
        set(step) == {1}
        and (*size[:-1],) == x.shape[:-1]
        and size[-1] == units >= LINE // x.dtype.itemsize
        and start[-1] % units == 0 == length % units
        and 2 <= length // units <= MAX_GATES
    )


def _is_combined(node: Node, used: Mapping[Node, Sequence[Node]]) -> bool:
    """Tell whether only elementwise work of the slice's shape reads it."""
    return bool(used[node]) and all(u.type == node.type and vector_dtype(u) is not None for u in used[node])


def _split_product(node: Node, i: int, units: int, value: Array, place: Place) -> Node | None:
    """Compute the product with the gates along an axis of their own, the last but one."""
    *labels, out = red.parse_spec(node.attrs["spec"])
    axis = labels[i].index(out[-1])
    gate = next(c for c in ascii_lowercase if c not in node.attrs["spec"])
    rows = np.moveaxis(value, axis, -1)
    weight = place(node.arg(i), np.ascontiguousarray(rows.reshape(*rows.shape[:-1], -1, units)))
    if weight is None:
        return None
    labels[i] = labels[i][:axis] + labels[i][axis + 1 :] + gate + out[-1]
    operands = [weight if j == i else node.arg(j) for j in (0, 1)]
    spec = f"{labels[0]},{labels[1]}->{out[:-1]}{gate}{out[-1]}"
    return node.op(*operands, **{**node.attrs, "spec": spec})


def _part_of_gate(x: Node, number: int, node: Node, new: Node, parts: Mapping[tuple[Node, int], Node]) -> Node:
    """Compute one gate of ``node``, or of elementwise work ``x`` on it; ``parts`` holds those of arguments."""
    shape = (*x.type.shape[:-1], new.type.shape[-1])
    if x is node:
        return st.reshape(st.part(new, new.type.rank - 2, number, 1), shape=shape)
    args = []
    for a in [a.find() for a in x.args]:
        if (a, number) in parts:
            args.append(parts[a, number])
        elif a.op is st.broadcast and a.type.rank - 1 not in a.attrs["axes"]:
            args.append(st.broadcast(a.arg(0), shape=shape, axes=a.attrs["axes"]))
        else:
            args.append(st.part(a, a.type.rank - 1, int(new.type.shape[-1]) * number, new.type.shape[-1]))
    return x.op(*args, **x.attrs)


def _split_in_loop(node: Node, weights: Mapping[Node, Array], place: Place) -> Node:
    """Split the gates of the products in a loop's body; only the loop's constants are weights."""
    loop = Loop.of(node)
    loop_weights = {n: weights[a] for n, a in loop.consts.items() if a in weights}
    used = users(loop.body.nodes())

    def in_body(weight: Node, value: Array) -> Node | None:
        new = place(loop.consts[weight], value) if len(used[weight]) == 1 else None
        return None if new is None else loop.add(new)

    split(loop.body, loop_weights, in_body)
    return loop.rebuild() if loop_weights else node
