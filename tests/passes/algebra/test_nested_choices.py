"""Choices inside of choices by the same condition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, verify
from mlaot.ir.types import f64
from mlaot.ops import elementwise as ew
from mlaot.ops.base import full_like
from mlaot.ops.comparison import greater, where
from mlaot.passes.algebra.nested_choices import nested_choices


def choices(make: Callable[[Node, Node], Node | tuple[Node, ...]]) -> int:
    """How many choices the graph of a function of x and y has after the pass, which must compute the same."""
    graph = Graph("f")
    made = make(graph.input("x", f64[4, 9]), graph.input("y", f64[4, 9]))
    graph.outputs = {f"z{i}": z for i, z in enumerate(made if isinstance(made, tuple) else (made,))}
    values = np.array([-np.inf, -800.0, -1.5, -0.0, 0.0, 2.5, 900.0, np.inf, np.nan])
    arrays = {name: np.resize(values[::step], (4, 9)) for name, step in (("x", 1), ("y", -2))}
    before = evaluate(graph, arrays)
    nested_choices(graph)
    verify(graph, "nested_choices")
    for name, value in evaluate(graph, arrays).items():
        np.testing.assert_array_equal(value, before[name])
    return sum(node.op is where for node in graph.nodes())


def positive(x: Node) -> Node:
    return greater(x, full_like(x, 0))


def test_the_inner_choice_is_known() -> None:
    zero = 0.0
    assert choices(lambda x, y: where(positive(x), y, ew.exp(where(positive(x), full_like(x, zero), x)))) == 1
    assert choices(lambda x, y: where(positive(x), ew.exp(where(positive(x), y, x)), y)) == 1
    assert choices(lambda x, y: where(positive(x), y, ew.mul(y, where(positive(x), x, ew.exp(x))))) == 1


def test_another_condition_stays() -> None:
    assert choices(lambda x, y: where(positive(x), y, ew.exp(where(positive(y), y, x)))) == 2


def test_what_others_read_is_computed_once() -> None:
    def twice(x: Node, y: Node) -> tuple[Node, ...]:
        inner = ew.exp(where(positive(x), full_like(x, 0), x))
        return where(positive(x), y, inner), inner

    assert choices(twice) == 2
