"""Control flow: ``cond``, ``scan``, ``while_loop``, ``fori_loop``, with JAX's conventions.

When traced, each is one node whose branches and bodies are subgraphs. On plain arrays they run as ordinary Python.
Carries, operands and results are arrays, or dicts, lists and tuples of arrays. Other arrays that the functions use are
captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace import tree
from mlaot.frontend.trace.context import current, needed, tracing
from mlaot.frontend.trace.draws import drawn, folded
from mlaot.frontend.trace.promotion import apply, as_node, is_weak, result_type
from mlaot.frontend.trace.protocols import any_traced
from mlaot.frontend.trace.subtrace import Subtrace, subtrace
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Dim, Node, Subgraph, Type
from mlaot.ir.dims import Expr
from mlaot.ir.types import i64
from mlaot.ops import control as ctl
from mlaot.ops import structure as st
from mlaot.ops.control import results, save_carries
from mlaot.ops.elementwise import add

Function = Callable[..., Any]
Step = Callable[[list[Any], list[Any]], list[Any]]  # the new carries, for the carries and what else comes in


def cond(pred: Any, then: Function, otherwise: Function, *operands: Any) -> Any:
    """Return ``then(*operands)`` if ``pred`` is true, and else ``otherwise(*operands)``.

    Both must return results of the same structure, shapes and dtypes. ``pred`` is a bool scalar. If it is known while
    tracing, only its branch is traced.
    """
    if not any_traced(pred):
        return then(*operands) if pred else otherwise(*operands)
    leaves, structure = tree.flatten(operands)
    nodes = {i: as_node(leaf) for i, leaf in enumerate(leaves) if not is_weak(leaf)}

    def traced(branch: Function, name: str) -> tuple[Subtrace, list[Any]]:
        results: list[Any] = []

        def call(*arguments: Any) -> Any:
            replaced = dict(zip(nodes, arguments, strict=True))
            result = branch(*tree.unflatten(structure, [replaced.get(i, leaf) for i, leaf in enumerate(leaves)]))
            results.extend(tree.flatten(result)[0])
            return result

        types = [node.type for node in nodes.values()]
        return subtrace(call, types, name, read_only="a branch of mlaot.cond"), results

    first, second = traced(then, "then"), traced(otherwise, "otherwise")
    if first[0].structure != second[0].structure:
        shapes = f"{_show(first[0].structure)} from 'then' and {_show(second[0].structure)} from 'otherwise'"
        raise MlaotError(f"cond: expected one structure of results, got {shapes}")
    order = list(_follow(first[0].structure, tree.unflatten(second[0].structure, list(range(len(second[1]))))))
    _agree(first, second, order)
    captured, (graphs) = _share_captured(first[0], second[0])
    graphs[1].outputs = {str(i): graphs[1].outputs[str(place)] for i, place in enumerate(order)}
    attrs = {"then": Subgraph(graphs[0]), "otherwise": Subgraph(graphs[1])}
    node = ctl.cond(as_node(pred), *captured, *nodes.values(), **attrs)
    return tree.unflatten(first[0].structure, _tensors(node))


def scan(f: Function, init: Any, xs: Any = None, length: Any = None, reverse: bool = False) -> tuple[Any, Any]:
    """Compute ``carry, y = f(carry, x)`` for each ``x`` along the first axis of ``xs``.

    Return the last carry, and the stacked ys. Without ``xs``, ``x`` is None and ``length`` is the number of rounds.
    With ``reverse`` the scan goes from the last ``x`` to the first.
    """
    carries, structure = tree.flatten(init)
    items, items_structure = tree.flatten(xs)
    rounds = _rounds(items, length)
    ys: list[Any] = []

    def step(carry: list[Any], slices: list[Any]) -> list[Any]:
        result = f(tree.unflatten(structure, carry), tree.unflatten(items_structure, slices))
        if not isinstance(result, tuple) or len(result) != 2:
            raise MlaotError(f"scan: expected the function to return (carry, y), got {_kind(result)}")
        leaves, ys_structure = tree.flatten(result[1])
        ys[:] = [ys_structure]
        return [*_leaves_like("scan", structure, result[0]), *leaves]

    run = _plain_scan if current() is None else _traced_scan
    outputs = run(step, carries, items, rounds, reverse)
    return tree.unflatten(structure, outputs[: len(carries)]), tree.unflatten(ys[0], outputs[len(carries) :])


def _plain_scan(step: Step, carry: list[Any], items: list[Any], rounds: int, reverse: bool) -> list[Any]:
    n, ys_of_rounds = len(carry), []
    arrays = [np.asarray(item) for item in items]
    if rounds == 0:
        ys = step(carry, [np.zeros(a.shape[1:], a.dtype) for a in arrays])[n:]
        return [*carry, *[np.zeros((0, *np.shape(y)), np.asarray(y).dtype) for y in ys]]
    start = drawn()
    for i in reversed(range(rounds)) if reverse else range(rounds):
        with folded(np.int64(i), start):
            outputs = step(carry, [a[i] for a in arrays])
        _check_shapes("scan", carry, outputs[:n])
        carry = outputs[:n]
        ys_of_rounds.append([np.asarray(y) for y in outputs[n:]])
    return [*carry, *[np.stack(ys) for ys in zip(*(reversed(ys_of_rounds) if reverse else ys_of_rounds), strict=True)]]


def _traced_scan(step: Step, init: list[Any], items: list[Any], rounds: Dim, reverse: bool) -> list[Any]:
    xs = [as_node(item) for item in items]
    slices = [x.type.with_shape(x.type.shape[1:]) for x in xs]
    carries = _carries(init, step, slices)
    n = len(carries)

    def body(*arguments: Any) -> list[Any]:
        with folded(arguments[-1]):
            outputs = step(list(arguments[:n]), list(arguments[n:-1]))
        return [*_like(outputs[:n], carries), *outputs[n:]]

    types = [*[c.type for c in carries], *slices, Type(i64)]
    traced = subtrace(body, types, "body", read_only="the body of mlaot.scan")
    if not _forgets_round(traced):
        xs.append(apply(st.iota, shape=(rounds,), axis=0, dtype=i64))
    consts = _local(traced.captured)
    subgraph = save_carries(Subgraph(traced.graph), len(consts), n)
    attrs = {"consts": len(consts), "carries": n, "length": rounds, "reverse": bool(reverse)}
    return _tensors(apply(ctl.scan, *consts, *carries, *xs, body=subgraph, **attrs))[: len(traced.types)]


def while_loop(condition: Function, body: Function, init: Any, bound: Any = None) -> Any:
    """Compute ``carry = body(carry)`` as long as ``condition(carry)``, at most ``bound`` times.

    Return the last carry.
    """
    if isinstance(bound, bool) or not (hasattr(bound, "__index__") or isinstance(bound, Expr)) or any_traced(bound):
        got = "none" if bound is None else repr(bound)
        raise MlaotError(f"while_loop: expected bound=, an integer that limits its rounds, got {got}")
    carries, structure = tree.flatten(init)

    def test(carry: list[Any]) -> Any:
        return condition(tree.unflatten(structure, carry))

    def step(carry: list[Any], _: list[Any]) -> list[Any]:
        return _leaves_like("while_loop", structure, body(tree.unflatten(structure, carry)))

    if current() is None:
        return tree.unflatten(structure, _plain_while(test, step, carries, bound))
    return tree.unflatten(structure, _traced_while(test, step, carries, bound))


def _plain_while(test: Function, step: Step, carry: list[Any], bound: int) -> list[Any]:
    start = drawn()
    for i in range(bound):
        with folded(np.int64(i), start):
            if not test(carry):
                break
            new = step(carry, [])
        _check_shapes("while_loop", carry, new)
        carry = new
    return carry


def _traced_while(test: Function, step: Step, init: list[Any], bound: Dim) -> list[Any]:
    carries = _carries(init, step, [])
    n, where = len(carries), "mlaot.while_loop"

    def condition(*values: Any) -> Any:
        with folded(values[n]):
            return test(list(values[:n]))

    def body(*values: Any) -> list[Any]:
        with folded(values[n]):
            return _like(step(list(values[:n]), []), carries)

    types = [*[c.type for c in carries], Type(i64)]
    first, second = (subtrace(f, types, f.__name__, read_only=where) for f in (condition, body))
    if not _forgets_round(first, second):
        carries.append(as_node(0, i64))
        second.graph.outputs[str(n)] = add(second.arguments[n], second.graph.constant(1, i64))
    consts, graphs = _share_captured(first, second)
    subgraphs = {"condition": Subgraph(graphs[0]), "body": Subgraph(graphs[1])}
    return _tensors(apply(ctl.while_, *consts, *carries, **subgraphs, consts=len(consts), bound=bound))[:n]


def _forgets_round(*traced: Subtrace) -> bool:
    """Drop the round's number, the last argument, from functions that draw no random numbers and so do not read it."""
    if any(part.arguments[-1] in part.graph.nodes() for part in traced):
        return False
    for part in traced:
        part.arguments = part.arguments[:-1]
        part.taking(part.captured)
    return True


def fori_loop(lower: Any, upper: Any, body: Function, init: Any) -> Any:
    """Compute ``carry = body(i, carry)`` for each i from ``lower`` to ``upper - 1``; return the last carry.

    Both bounds must be known while tracing.
    """
    if any_traced(lower, upper):
        raise MlaotError("fori_loop: expected bounds that are known while tracing; use mlaot.while_loop(.., bound=..)")
    rounds = upper - lower
    if not isinstance(rounds, Expr):
        rounds = max(int(rounds), 0)
    if current() is None:
        numbers: Any = lower + np.arange(rounds)
    else:
        numbers = Tensor(apply(st.iota, shape=(rounds,), axis=0, dtype=i64)) + lower
    return scan(lambda carry, i: (body(i, carry), None), init, numbers)[0]


def _rounds(items: Sequence[Any], length: Any) -> Any:
    """Return the length of a scan, given by its xs or by ``length``."""
    shapes = [item.shape if hasattr(item, "shape") else np.shape(item) for item in items]
    if any(not shape for shape in shapes):
        raise MlaotError("scan: expected xs with an axis to scan along, got a scalar")
    lengths = list(dict.fromkeys([*[shape[0] for shape in shapes], *([] if length is None else [length])]))
    if not lengths:
        raise MlaotError("scan: expected xs or length=, got neither")
    if len(lengths) > 1:
        raise MlaotError(f"scan: expected xs of one length, got {' and '.join(map(str, lengths))}")
    if any_traced(*lengths) or not (hasattr(lengths[0], "__index__") or isinstance(lengths[0], Expr)):
        raise MlaotError(f"scan: expected a length that is known while tracing, got {lengths[0]!r}")
    return lengths[0]


def _carries(init: list[Any], step: Step, slices: Sequence[Any]) -> list[Node]:
    """Convert the initial carries to nodes. Numbers of Python take the dtype of the first round's result."""
    strong = {i: as_node(leaf) for i, leaf in enumerate(init) if not is_weak(leaf)}
    if len(strong) == len(init):
        return list(strong.values())
    dtypes: list[Any] = []

    def first_round(*arguments: Any) -> tuple[()]:
        replaced = dict(zip(strong, arguments, strict=False))
        new = step([replaced.get(i, leaf) for i, leaf in enumerate(init)], list(arguments[len(strong) :]))
        dtypes.extend(result_type(old, new) for old, new in zip(init, new, strict=False))
        return ()

    root = needed().root
    sites = root.sites
    subtrace(first_round, [*[n.type for n in strong.values()], *slices], read_only="a loop")
    root.sites = sites
    return [strong[i] if i in strong else as_node(leaf, dtypes[i]) for i, leaf in enumerate(init)]


def _like(new_carries: Sequence[Any], carries: Sequence[Node]) -> list[Any]:
    """Convert numbers of Python among new carries to the dtypes of the old carries."""
    pairs = zip(new_carries, carries, strict=True)
    return [Tensor(as_node(new, old.type.dtype)) if is_weak(new) else new for new, old in pairs]


def _agree(first: tuple[Subtrace, list[Any]], second: tuple[Subtrace, list[Any]], order: Sequence[int]) -> None:
    """Convert numbers of Python that one branch returns to the dtypes of the other branch's results."""
    for i, place in enumerate(order):
        a, b = first[1][i], second[1][place]
        kind = result_type(a, b)
        for (traced, _), key, value in ((first, str(i), a), (second, str(place), b)):
            if is_weak(value):
                with tracing(traced.trace):
                    traced.graph.outputs[key] = as_node(value, kind)


def _share_captured(first: Subtrace, second: Subtrace) -> tuple[list[Node], tuple[Any, Any]]:
    """Make two functions capture the same nodes; return these nodes and the two graphs."""
    captured = tuple(dict.fromkeys((*first.captured, *second.captured)))
    return _local(captured), (first.taking(captured), second.taking(captured))


def _local(nodes: Sequence[Node]) -> list[Node]:
    return [needed().local(node) for node in nodes]


def _tensors(node: Node) -> list[Any]:
    return [Tensor(item) for item in results(node)]


def _leaves_like(name: str, structure: Any, carry: Any) -> list[Any]:
    """Return the leaves of a new carry in the order of the old carry."""
    own = tree.flatten(carry)[1]
    if own != structure:
        raise MlaotError(f"{name}: expected a carry like the first, {_show(structure)}, got {_show(own)}")
    return list(_follow(structure, carry))


def _follow(structure: Any, value: Any) -> Iterator[Any]:
    if structure is tree.LEAF:
        yield value
    elif isinstance(structure, Mapping):
        for key, part in structure.items():
            yield from _follow(part, value[key])
    elif structure is not None:
        for part, inner in zip(structure, value, strict=True):
            yield from _follow(part, inner)


def _check_shapes(name: str, old: Sequence[Any], new: Sequence[Any]) -> None:
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if np.shape(a) != np.shape(b):
            raise MlaotError(f"{name}: the carry {i} has the shape {np.shape(a)} but the body gives {np.shape(b)}")


def _show(structure: Any) -> str:
    """Format a structure with a star for each array."""
    if isinstance(structure, Mapping):
        return "{" + ", ".join(f"{key!r}: {_show(part)}" for key, part in structure.items()) + "}"
    if isinstance(structure, list):
        return f"[{', '.join(map(_show, structure))}]"
    if isinstance(structure, tuple):
        return f"({', '.join(map(_show, structure))}{',' * (len(structure) == 1)})"
    return "None" if structure is None else "*"


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
