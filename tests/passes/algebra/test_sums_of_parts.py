"""Sums of values with zeros around them become concatenations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mlaot
from mlaot import optim, passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type, dim, verify
from mlaot.ir.subgraph import subgraphs
from mlaot.ir.types import f64
from mlaot.loading import trace
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.passes.algebra.sums_of_parts import sums_of_parts

BATCH = dim("batch")


def padded(x: Node, low: int, high: int, *, axis: int = 1, value: float = 0.0, interior: int = 0) -> Node:
    """``x`` with values around it along an axis."""
    numbers = [tuple(n if i == axis else 0 for i in range(2)) for n in (low, high, interior)]
    fill = x.graph.constant(value, x.type.dtype)
    return st.pad(x, fill, low=numbers[0], high=numbers[1], interior=numbers[2])


def joined(make: Callable[..., Node | tuple[Node, ...]], *columns: int) -> Graph:
    """The graph of a function of arrays of so many columns after the pass, which must compute the same."""
    graph = Graph("f")
    args = [graph.input(f"x{i}", Type(f64[1].dtype, (BATCH, n))) for i, n in enumerate(columns)]
    made = make(*args)
    graph.outputs = {f"y{i}": y for i, y in enumerate(made if isinstance(made, tuple) else (made,))}
    rng = np.random.default_rng(0)
    arrays = {f"x{i}": rng.standard_normal((3, n)) for i, n in enumerate(columns)}
    expected = evaluate(graph, arrays)
    sums_of_parts(graph)
    verify(graph, "sums_of_parts")
    for name, value in evaluate(graph, arrays).items():
        np.testing.assert_array_equal(value, expected[name])
    return graph


def count(graph: Graph) -> dict[str, int]:
    """How many nodes of the ops in question a graph has, in its loops, too."""
    found = dict.fromkeys(("pad", "add", "concat"), 0)
    for node in graph.nodes():
        if node.op.name in found:
            found[node.op.name] += 1
        for body in subgraphs(node.attrs).values():
            found = {name: n + count(body.graph)[name] for name, n in found.items()}
    return found


def test_parts_in_any_order_are_joined() -> None:
    graph = joined(lambda a, b, c: ew.add(ew.add(padded(b, 2, 1), padded(c, 5, 0)), padded(a, 0, 4)), 2, 3, 1)
    assert count(graph) == {"pad": 0, "add": 0, "concat": 1}


def test_what_is_missing_stays_zero() -> None:
    graph = joined(lambda a, b: ew.add(padded(a, 1, 5), padded(b, 3, 2)), 2, 3)
    assert count(graph) == {"pad": 1, "add": 0, "concat": 1}
    graph = joined(lambda a, b: ew.add(padded(a, 0, 5), padded(b, 3, 1)), 2, 3)
    assert count(graph) == {"pad": 2, "add": 1, "concat": 0}


def test_parts_at_one_place_are_added() -> None:
    graph = joined(lambda a, b, c: ew.add(ew.add(padded(a, 0, 3), padded(c, 2, 0)), padded(b, 0, 3)), 2, 2, 3)
    assert count(graph) == {"pad": 0, "add": 1, "concat": 1}


def test_parts_that_overlap_stay_apart() -> None:
    graph = joined(lambda a, b, c: ew.add(ew.add(padded(a, 0, 3), padded(b, 0, 1)), padded(c, 2, 0)), 2, 4, 3)
    assert count(graph) == {"pad": 1, "add": 1, "concat": 1}
    graph = joined(lambda a, b, c: ew.add(ew.add(padded(a, 1, 1), padded(b, 1, 0)), padded(c, 1, 1)), 0, 1, 0)
    assert count(graph)["add"] >= 1


def test_many_parts_of_one_value() -> None:
    """The gradient of a value of which each column was read alone."""

    def columns(*args: Node) -> Node:
        total = padded(args[0], 0, len(args) - 1)
        for i, x in enumerate(args[1:], 1):
            total = ew.add(total, padded(x, i, len(args) - 1 - i))
        return total

    assert count(joined(columns, *[1] * 1500)) == {"pad": 0, "add": 0, "concat": 1}


def test_other_terms_stay() -> None:
    graph = joined(lambda a, b, c: ew.add(padded(a, 0, 2), ew.add(c, padded(b, 2, 0))), 2, 2, 4)
    assert count(graph) == {"pad": 0, "add": 1, "concat": 1}


def test_sums_share_parts() -> None:
    """The gates of a GRU: its two products have all gradients but one in common."""

    def shared(a: Node, b: Node, c: Node) -> tuple[Node, ...]:
        both = ew.add(padded(a, 0, 4), padded(b, 2, 2))
        return ew.add(both, padded(c, 4, 0)), ew.add(both, padded(ew.exp(c), 4, 0))

    assert count(joined(shared, 2, 2, 2)) == {"pad": 0, "add": 0, "concat": 2}


def test_other_paddings_stay() -> None:
    for options in ({"value": 1.0}, {"axis": 0}):
        low, high = (0, 0) if options.get("axis") == 0 else (0, 2)
        graph = joined(lambda a, b, o=options, n=(low, high): ew.add(padded(a, *n, **o), padded(b, 2, 0)), 4 - high, 2)
        assert count(graph)["pad"] >= 1 and count(graph)["concat"] == 0
    graph = joined(lambda a, b: ew.add(padded(a, 0, 1, interior=1), padded(b, 4, 0)), 2, 0)
    assert count(graph)["concat"] == 0


def test_a_recurrent_layer_is_trained_without_padding() -> None:
    weight, time = np.random.default_rng(0).normal(size=(3, 6)), 4

    def forward(x: Any) -> Any:
        def step(h: Any, now: Any) -> Any:
            gates = h @ parameters["w"] + now
            h = np.tanh(gates[:, :3]) * mlaot.sigmoid(gates[:, 3:])
            return h, ()

        return mlaot.scan(step, mlaot.zeros((BATCH, 3), np.float64), x)[0]

    parameters = {"w": mlaot.Parameter("w", weight)}
    forward.__annotations__ = {"x": mlaot.f64[time, BATCH, 6]}

    def loss(out: Any, target: Any) -> Any:
        return ((out - target) ** 2).mean()

    loss.__annotations__ = {"target": mlaot.f64[BATCH, 3]}
    module = passes.run("m", trace(mlaot.model(loss=loss, optimizer=optim.SGD(lr=0.1), parameters=parameters)(forward)))
    assert count(module.graphs["train_step"])["pad"] == 0
