"""Control flow: ops whose attributes are subgraphs, and the projection of their results.

    scan(*consts, *carries, *xs; body)      body(consts, carries, slices of xs) -> carries, slices of ys
    while(*consts, *carries; condition, body)      condition(consts, carries) -> bool, body(consts, carries) -> carries
    cond(pred, *operands; then, otherwise)      then(operands) -> results

Each returns a tuple, which ``result`` reads. A ``scan`` that may be differentiated returns the incoming value of each
carry as a further y (``save_carries``). The backward pass is a scan in the other direction, which starts each round
from these values. A batching rule of these ops returns the list of results, each with a flag that says whether it is
batched, in place of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Dim, DType, Graph, Node, Subgraph, TupleType, Type
from mlaot.ir.types import bf16, boolean, f16, f32
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.base import Array, Op, Transforms, fill, full_like, lift
from mlaot.ops.bits import bitwise_and
from mlaot.ops.comparison import where
from mlaot.ops.indexing import mark_unchecked
from mlaot.ops.reduction import max_

Function = Callable[..., tuple[Array, ...]]  # a subgraph as references call it
Value = tuple[Node, bool]
Cotangents = tuple[Node | None, ...]


def constants_of(node: Node, i: int) -> list[tuple[Graph, Node]]:
    """Return the inputs of subgraphs that are argument ``i`` of a control-flow node in every round."""
    if node.op is cond and i > 0:
        bodies, i = [node.attrs["then"], node.attrs["otherwise"]], i - 1
    elif node.op is while_ and i < node.attrs["consts"]:
        bodies = [node.attrs["condition"], node.attrs["body"]]
    elif node.op is scan and i < node.attrs["consts"]:
        bodies = [node.attrs["body"]]
    else:
        return []
    return [(body.graph, list(body.graph.inputs.values())[i]) for body in bodies]


def uses(graph: Graph, value: Node) -> list[tuple[Node, int]]:
    """List every node that reads a value, also in subgraphs, with the argument's number (-1 for a root)."""
    readers: list[tuple[Node, int]] = []
    value = value.find()
    for node in dict.fromkeys(graph.users().get(value, ())):
        for i, a in enumerate(node.args):
            if a.find() is not value:
                continue
            inner = constants_of(node, i)
            readers += [use for body, parameter in inner for use in uses(body, parameter)] if inner else [(node, i)]
    return readers + [(root, -1) for root in graph.roots() if root is value]


def _items(node: Node) -> tuple[Type, ...]:
    assert isinstance(node.type, TupleType), f"bug in mlaot: {node} has one result"
    return node.type.items


def results(node: Node) -> list[Node]:
    """Return every result of a node with several."""
    return [result(node, index=i) for i in range(len(_items(node)))]


def _result_type(t: Any, index: int) -> Type:
    assert isinstance(t, TupleType), f"bug in mlaot: a result of {t}"
    return t.items[index]


def _vjp_result(ct: Node, out: Node, t: Node, index: int) -> tuple[Cotangents]:
    """Pass the cotangent to this result; the others get none."""
    return (tuple(ct if i == index else None for i in range(len(_items(t)))),)


def _batch_result(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> Node:
    raise AssertionError("bug in mlaot: the batched results of a node are its batching rule's")


result: Op = Op(
    "result",
    _result_type,
    lambda t, index: t[index],
    _vjp_result,  # type: ignore[arg-type]
    batch=_batch_result,
    doc="one of the results of an op that has several",
)


def _check(op: str, what: str, expected: Sequence[Type], got: Sequence[Type], giver: str) -> None:
    """Check the types of the operands against those of a subgraph."""
    if len(expected) != len(got):
        many = "carries" if what == "carry" else f"{what}s"
        raise MlaotError(f"{op}: expected {len(expected)} {many}, but {giver} {len(got)}")
    for i, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a != b:
            mend = "; cast one of them with x.astype(...)" if a.shape == b.shape else ""
            raise MlaotError(f"{op}: the {what} {i} is {a} but {giver} {b}{mend}")


def _one(conditions: Sequence[Type]) -> str:
    """Suggest how to make one bool of several."""
    several = len(conditions) == 1 and conditions[0].dtype is boolean
    return "; end it with .any() or .all(), or choose element by element with mlaot.where" if several else ""


def _or_zeros(ct: Node | None, like: Node) -> Node:
    return full_like(like, 0.0) if ct is None else ct


def _is_float(node: Node) -> bool:
    return node.type.dtype.kind == "f"


# -- scan --


def _scan_type(*types: Type, body: Subgraph, consts: int, carries: int, length: Dim, reverse: bool) -> Any:
    slices = []
    for i, x in enumerate(types[consts + carries :]):
        if not x.rank or x.shape[0] != length:
            raise MlaotError(f"scan: expected a first dimension of {length} for xs {i}, got {x}")
        slices.append(x.with_shape(x.shape[1:]))
    _check("scan", "operand", (*types[: consts + carries], *slices), body.inputs, "the body takes")
    _check("scan", "carry", types[consts : consts + carries], body.outputs[:carries], "the body gives")
    stacked = [y.with_shape((length, *y.shape)) for y in body.outputs[carries:]]
    return TupleType((*types[consts : consts + carries], *stacked))


def _scan_reference(
    *arrays: Array, body: Function, consts: int, carries: int, length: int, reverse: bool
) -> tuple[Array, ...]:
    fixed, carry, xs = arrays[:consts], arrays[consts : consts + carries], arrays[consts + carries :]
    if length == 0:
        shapes = body(*fixed, *carry, *[np.zeros(x.shape[1:], x.dtype) for x in xs])[carries:]
        return (*carry, *[np.zeros((0, *y.shape), y.dtype) for y in shapes])
    rounds = []
    for i in reversed(range(length)) if reverse else range(length):
        outputs = body(*fixed, *carry, *[x[i] for x in xs])
        carry = outputs[:carries]
        rounds.append(outputs[carries:])
    return (*carry, *[np.stack(ys) for ys in zip(*(reversed(rounds) if reverse else rounds), strict=True)])


def saved_carries(body: Subgraph, consts: int, carries: int) -> list[int | None]:
    """Return for each carry the result of ``body`` that is its incoming value, or None."""
    outputs = [node.find() for node in body.graph.outputs.values()]
    inputs = list(body.graph.inputs.values())[consts : consts + carries]
    return [outputs.index(c, carries) if c in outputs[carries:] else None for c in inputs]


def save_carries(body: Subgraph, consts: int, carries: int) -> Subgraph:
    """Add the incoming value of each carry to the ys of ``body``."""
    missing = [consts + i for i, place in enumerate(saved_carries(body, consts, carries)) if place is None]

    def results(graph: Graph, args: list[Node]) -> list[Node]:
        return [*body.inline(graph, args), *[args[i] for i in missing]]

    return Subgraph.of(body.graph.name, body.inputs, results) if missing else body


def _vjp_scan(
    ct: Cotangents, out: Node, *args: Node, body: Subgraph, consts: int, carries: int, length: Dim, reverse: bool
) -> tuple[Node | None, ...]:
    """Scan in the other direction, and recompute each round from the saved carries.

    The consts of this scan are those of ``out``. Its carries are the cotangents of the carries and the sums of the
    cotangents of the consts. Its xs are the saved carries, the xs, and the cotangents of the ys. Its ys are the
    cotangents of the xs.
    """
    keeping = save_carries(body, consts, carries)
    attrs = {"consts": consts, "carries": carries, "length": length, "reverse": reverse}
    forward = out if keeping is body else out.graph.add(scan, args, {"body": keeping, **attrs})
    ys = [i for i in range(carries, len(body.outputs)) if ct[i] is not None]
    live = {i for i in range(carries) if ct[i] is not None}
    while True:
        back, cotangents = _backward_body(body, consts, carries, sorted(live), ys)
        reached = {i for i in range(carries) if cotangents[consts + i] is not None}
        if reached <= live:
            break
        live |= reached
    starts = [c if (c := ct[i]) is not None else fill(out, 0.0, body.outputs[i]) for i in sorted(live)]
    summed = [args[i].type for i in range(consts) if cotangents[i] is not None]
    sums = [fill(out, 0.0, _sum_type(t)) for t in summed]
    kept = [result(forward, index=i) for i in saved_carries(keeping, consts, carries)]
    operands = [*args[:consts], *starts, *sums, *kept, *args[consts + carries :], *[ct[i] for i in ys]]
    counts = {"consts": consts, "carries": len(starts) + len(sums), "length": length, "reverse": not reverse}
    totals = iter(results(out.graph.add(scan, operands, {"body": back, **counts})))  # type: ignore[arg-type]
    of_carries = {consts + i: next(totals) for i in sorted(live)}
    of_consts = iter([_cast(next(totals), t.dtype) for t in summed])
    of_xs = [None if c is None else next(totals) for c in cotangents[consts + carries :]]
    return (
        *[None if c is None else next(of_consts) for c in cotangents[:consts]],
        *[of_carries.get(i) for i in range(consts, consts + carries)],
        *of_xs,
    )


def _backward_body(
    body: Subgraph, consts: int, carries: int, live: list[int], ys: list[int]
) -> tuple[Subgraph, list[Node | None]]:
    """Differentiate one round of a scan; return this body, and the cotangent of each input of ``body``.

    ``live`` are the carries that have a cotangent, ``ys`` the indices of further results that have one.
    """
    graph = Graph(f"backward of {body.graph.name}")
    inputs = [graph.input(f"c{i}", t) for i, t in enumerate(body.inputs[:consts])]
    arriving = [graph.input(f"d{i}", body.outputs[i]) for i in live]
    sums = {i: graph.input(f"s{i}", _sum_type(t)) for i, t in enumerate(body.inputs[:consts]) if t.dtype.kind == "f"}
    inputs += [graph.input(f"x{i}", t) for i, t in enumerate(body.inputs[consts:], consts)]
    arriving += [graph.input(f"d{i}", body.outputs[i]) for i in ys]
    values = body.inline(graph, inputs)
    wanted = [n for n in inputs if _is_float(n)]
    arrived = dict(zip(wanted, Transforms.pullback([values[i] for i in (*live, *ys)], arriving, wanted), strict=True))
    cotangents = [arrived.get(node) for node in inputs]
    outputs = [_or_zeros(cotangents[consts + i], inputs[consts + i]) for i in live]
    for i, total in sums.items():
        if (part := cotangents[i]) is None:
            del graph.inputs[f"s{i}"]
        else:
            outputs.append(ew.add(total, _cast(part, total.type.dtype)))
    outputs += [c for c in cotangents[consts + carries :] if c is not None]
    graph.outputs = {f"r{i}": node for i, node in enumerate(outputs)}
    return Subgraph(graph), cotangents


def _sum_type(t: Type) -> Type:
    """Return the dtype of a sum over rounds.

    It is single precision for half precision, in which the sum would stop growing.
    """
    return Type(f32, t.shape) if t.dtype in (f16, bf16) else t


def _cast(value: Node, dtype: DType) -> Node:
    return value if value.type.dtype is dtype else ew.cast(value, dtype=dtype)


def _batch_scan(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> list[Value]:
    """Scan batched values: xs and ys are ``[length, dim, ..]``; a carry that depends on them is batched too."""
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    flags = list(batched)
    while True:
        body, result_flags = _batch_body(node.attrs["body"], flags, flags[consts : consts + carries], dim)
        if result_flags[:carries] == flags[consts : consts + carries]:
            break
        flags[consts : consts + carries] = result_flags[:carries]
    first = [_lift_if(a, b, want, dim) for a, b, want in zip(args, batched, flags, strict=True)][: consts + carries]
    xs = [_swap(a) if b else a for a, b in zip(args[consts + carries :], batched[consts + carries :], strict=True)]
    many = results(args[0].graph.add(scan, [*first, *xs], {**node.attrs, "body": body}))
    pairs = enumerate(zip(many, result_flags, strict=True))
    return [(_swap(r) if b and i >= carries else r, b) for i, (r, b) in pairs]


scan: Op = Op(
    "scan",
    _scan_type,
    _scan_reference,  # type: ignore[arg-type]
    _vjp_scan,
    batch=_batch_scan,  # type: ignore[arg-type]
    doc="a subgraph over the slices along a first axis, carrying values on",
)


# -- while --


def _while_type(*types: Type, condition: Subgraph, body: Subgraph, consts: int, bound: Dim) -> Any:
    _check("while", "operand", types, condition.inputs, "the condition takes")
    _check("while", "operand", types, body.inputs, "the body takes")
    _check("while", "carry", types[consts:], body.outputs, "the body gives")
    if condition.outputs != (Type(boolean),):
        raise MlaotError(
            "while: expected a condition that gives bool[],"
            f" got {_types_text(condition.outputs)}{_one(condition.outputs)}"
        )
    return TupleType(types[consts:])


def _while_reference(*arrays: Array, condition: Function, body: Function, consts: int, bound: int) -> tuple[Array, ...]:
    fixed, carry = arrays[:consts], arrays[consts:]
    for _ in range(bound):
        if not condition(*fixed, *carry)[0]:
            break
        carry = body(*fixed, *carry)
    return carry


def _vjp_while(
    ct: Cotangents, out: Node, *args: Node, condition: Subgraph, body: Subgraph, consts: int, bound: Dim
) -> tuple[Node | None, ...]:
    """Differentiate a scan of ``bound`` rounds, which keep the carries once the condition is false."""

    def one_round(graph: Graph, values: list[Node]) -> list[Node]:
        keep = Subgraph.of("keep", body.inputs, lambda _, same: same[consts:])
        operands = [*condition.inline(graph, values), *values]
        return results(graph.add(cond, operands, {"then": body, "otherwise": keep}))

    carries = len(args) - consts
    rounds = save_carries(Subgraph.of(body.graph.name, body.inputs, one_round), consts, carries)
    attrs: dict[str, Any] = {"body": rounds, "consts": consts, "carries": carries, "length": bound, "reverse": False}
    return _vjp_scan((*ct, *[None] * carries), out.graph.add(scan, args, attrs), *args, **attrs)


def _batch_while(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> list[Value]:
    """Loop until every example is done."""
    consts, flags = node.attrs["consts"], list(batched)
    while True:
        condition, (varies,) = _batch_body(node.attrs["condition"], flags, (), dim)
        body, result_flags = _batch_body(node.attrs["body"], flags, flags[consts:], dim)
        if result_flags == flags[consts:]:
            break
        flags[consts:] = result_flags
    operands = [_lift_if(a, b, want, dim) for a, b, want in zip(args, batched, flags, strict=True)]
    attrs = {**node.attrs, "condition": condition, "body": body}
    if varies:
        return _until_all_are_done(operands, result_flags, dim, **attrs)
    return list(zip(results(args[0].graph.add(while_, operands, attrs)), result_flags, strict=True))


def _until_all_are_done(
    operands: list[Node],
    batched: Sequence[bool],
    dim: Dim,
    condition: Subgraph,
    body: Subgraph,
    consts: int,
    bound: int,
) -> list[Value]:
    """Loop until every example is done; examples that are done keep their carries.

    Its carries are those of ``body``, then a flag for each example that is not done, then for each example the last
    values of carries that all examples share, from when it was done. The shared carries continue for the other
    examples.
    """
    n, graph = len(batched), operands[0].graph
    shared = [i for i, b in enumerate(batched) if not b]

    def anyone(graph: Graph, values: list[Node]) -> list[Node]:
        return [max_(values[consts + n], axes=(0,))]

    def masked(graph: Graph, values: list[Node]) -> list[Node]:
        before, active, kept = values[: consts + n], values[consts + n], values[consts + n + 1 :]
        advanced = body.inline(graph, before)
        triples = zip(batched, advanced, before[consts:], strict=True)
        after = [_select(active, new, old) if b else new for b, new, old in triples]
        going = bitwise_and(active, condition.inline(graph, [*before[:consts], *after])[0])
        snapshots = [_select(active, lift(advanced[i], dim), old) for i, old in zip(shared, kept, strict=True)]
        return [*after, going, *snapshots]

    starts = [*operands, condition.inline(graph, operands)[0], *[lift(operands[consts + i], dim) for i in shared]]
    types = [a.type for a in starts]
    attrs = {
        "condition": Subgraph.of(condition.graph.name, types, anyone),
        "body": Subgraph.of(body.graph.name, types, masked),
    }
    outcomes = results(graph.add(while_, starts, {**attrs, "consts": consts, "bound": bound}))
    return [(outcomes[n + 1 + shared.index(i)] if i in shared else outcomes[i], True) for i in range(n)]


while_: Op = Op(
    "while",
    _while_type,
    _while_reference,  # type: ignore[arg-type]
    _vjp_while,
    batch=_batch_while,  # type: ignore[arg-type]
    doc="a subgraph as long as a condition holds, at most `bound` times",
)


# -- cond --


def _cond_type(pred: Type, *types: Type, then: Subgraph, otherwise: Subgraph) -> Any:
    if pred != Type(boolean):
        raise MlaotError(f"cond: expected a condition of type bool[], got {pred}{_one([pred])}")
    _check("cond", "operand", types, then.inputs, "'then' takes")
    _check("cond", "operand", types, otherwise.inputs, "'otherwise' takes")
    _check("cond", "result", then.outputs, otherwise.outputs, "'otherwise' gives")
    return TupleType(then.outputs)


def _cond_reference(pred: Array, *arrays: Array, then: Function, otherwise: Function) -> tuple[Array, ...]:
    return then(*arrays) if pred else otherwise(*arrays)


def _vjp_cond(
    ct: Cotangents, out: Node, pred: Node, *operands: Node, then: Subgraph, otherwise: Subgraph
) -> tuple[Node | None, ...]:
    """Differentiate both branches; the condition selects one of them again."""
    active = [i for i, c in enumerate(ct) if c is not None]
    first, second = (_pull_back_branch(branch, active) for branch in (then, otherwise))
    live = [i for i, both in enumerate(zip(first[1], second[1], strict=True)) if any(c is not None for c in both)]
    branches = {}
    for key, (graph, cotangents) in (("then", first), ("otherwise", second)):
        inputs = list(graph.inputs.values())
        graph.outputs = {f"r{i}": _or_zeros(cotangents[i], inputs[i]) for i in live}
        branches[key] = Subgraph(graph)
    gradients = results(out.graph.add(cond, [pred, *operands, *[ct[i] for i in active]], branches))  # type: ignore[list-item]
    places = dict(zip(live, gradients, strict=True))
    return (None, *[places.get(i) for i in range(len(operands))])


def _pull_back_branch(branch: Subgraph, active: list[int]) -> tuple[Graph, list[Node | None]]:
    """Differentiate a branch by its ``active`` results; return a graph and the cotangent of each operand."""
    graph = Graph(f"backward of {branch.graph.name}")
    inputs = [graph.input(f"x{i}", t) for i, t in enumerate(branch.inputs)]
    arriving = [graph.input(f"d{i}", branch.outputs[i]) for i in active]
    values = branch.inline(graph, inputs)
    wanted = [n for n in inputs if _is_float(n)]
    arrived = dict(zip(wanted, Transforms.pullback([values[i] for i in active], arriving, wanted), strict=True))
    return graph, [arrived.get(n) for n in inputs]


def _batch_cond(node: Node, args: Sequence[Node], batched: Sequence[bool], dim: Dim) -> list[Value]:
    """Keep a cond if all examples share its condition, and else compute both branches and select."""
    branches = (node.attrs["then"], node.attrs["otherwise"])
    if batched[0]:
        operands = map(mark_unchecked, args[1:])  # both branches read theirs, the one that is not chosen too
        inputs = list(zip(operands, batched[1:], strict=True))
        both = (Transforms.batch_into(args[0].graph, branch.graph, inputs, dim) for branch in branches)
        pairs = ([_lift_if(value, b, True, dim) for value, b in values] for values in both)
        return [(_select(args[0], a, b), True) for a, b in zip(*pairs, strict=True)]
    flags = [_batch_body(branch, batched[1:], (), dim)[1] for branch in branches]
    want = [a or b for a, b in zip(*flags, strict=True)]
    then, otherwise = (_batch_body(branch, batched[1:], want, dim)[0] for branch in branches)
    return list(zip(results(cond(*args, then=then, otherwise=otherwise)), want, strict=True))


cond: Op = Op(
    "cond",
    _cond_type,
    _cond_reference,  # type: ignore[arg-type]
    _vjp_cond,
    batch=_batch_cond,  # type: ignore[arg-type]
    doc="one of two subgraphs",
)


# -- what the batching rules share --


def _batch_body(body: Subgraph, flags: Sequence[bool], want: Sequence[bool], dim: Dim) -> tuple[Subgraph, list[bool]]:
    """Batch the inputs of ``body`` that ``flags`` names; return the batched body, and flags of its batched results.

    The first results are also batched if ``want`` says so.
    """
    graph = Graph(body.graph.name)
    inputs = [
        (graph.input(name, type_.with_shape((dim, *type_.shape)) if batched else type_), batched)
        for name, type_, batched in zip(body.graph.inputs, body.inputs, flags, strict=True)
    ]
    outputs = Transforms.batch_into(graph, body.graph, inputs, dim)
    result_flags = [b or (i < len(want) and want[i]) for i, (_, b) in enumerate(outputs)]
    values = [_lift_if(value, b, f, dim) for (value, b), f in zip(outputs, result_flags, strict=True)]
    graph.outputs = {f"r{i}": value for i, value in enumerate(values)}
    return Subgraph(graph), result_flags


def _lift_if(value: Node, batched: bool, want: bool, dim: Dim) -> Node:
    return lift(value, dim) if want and not batched else value


def _swap(value: Node) -> Node:
    """Swap the first two axes: ``[length, dim, ..]`` and ``[dim, length, ..]``."""
    return st.transpose(value, perm=(1, 0, *range(2, value.type.rank)))


def _select(active: Node, a: Node, b: Node) -> Node:
    """Select each example's ``a`` where it is ``active``, else its ``b``."""
    mask = active if a.type.rank == 1 else st.broadcast(active, shape=a.type.shape, axes=(0,))
    return where(mask, a, b)


def _types_text(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types)) or "nothing"
