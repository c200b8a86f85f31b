"""``.data`` read in a build: where it meets a Value the graph has the value, without its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot import passes
from mlaot.errors import MlaotError, building
from mlaot.evaluate import evaluate
from mlaot.loading import trace
from mlaot.micrograd import Value, declare

ROWS = np.array([[1.0, -2.0, 0.5], [-3.0, 4.0, 4.0], [0.25, 0.5, 900.0]])


@pytest.fixture
def build(tmp_path: Path) -> Iterator[None]:
    with building(tmp_path):
        yield


def softmax(x: list[Value]) -> list[Value]:
    """As programs have it that shift by the largest number."""
    most = max(v.data for v in x)
    exps = [(v - most).exp() for v in x]
    total = sum(exps)
    return [e / total for e in exps]


def from_the_smallest(x: list[Value]) -> list[Value]:
    least = min([v.data for v in x])
    return [v - least for v in x]


PROGRAMS: dict[Callable[[list[Value]], list[Value]], Callable[[Any], Any]] = {
    softmax: lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True),
    from_the_smallest: lambda x: x - x.min(1, keepdims=True),
    lambda x: [v - v.data for v in x]: lambda x: 0 * x,
    lambda x: [x[0].data - x[1], 1 / x[1] * x[2].data, x[0] / x[1].data]: lambda x: np.stack(
        [x[:, 0] - x[:, 1], x[:, 2] / x[:, 1], x[:, 0] / x[:, 1]], 1
    ),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_numbers_of_the_moment_are_no_constants(program: Callable[[list[Value]], list[Value]], build: None) -> None:
    x = [Value(0.3 * i) for i in range(3)]
    graph = passes.run("m", declare(program(x), inputs={"x": x}).trace()).graphs["forward"]
    (found,) = evaluate(graph, {"x": ROWS}).values()
    np.testing.assert_allclose(found, PROGRAMS[program](ROWS), rtol=1e-12, atol=1e-15)


def test_no_gradient_passes(build: None) -> None:
    """Neither eagerly nor compiled."""
    x = [Value(0.5), Value(2.0)]
    (x[0] * x[1].data + (x[0] - max(v.data for v in x))).backward()
    assert x[0].grad == 3.0 and x[1].grad == 0.0
    w = Value(3.0)
    loss = w * w.data
    module = passes.run("m", declare(loss, inputs={}, parameters={"w": w}, loss=loss).trace())
    found = list(evaluate(module.graphs["train_step"], {"w": np.array(3.0), "lr": np.array(1.0)}).values())
    assert found == [9.0, 0.0]  # the loss, and w - d(w * 3) / dw


def test_reads_are_numbers(build: None) -> None:
    a, b = Value(1.5), Value(2)
    assert a.data == 1.5 and isinstance(a.data, float) and isinstance(b.data, int) and f"{a.data} {b.data}" == "1.5 2"
    assert a.data * 2 == 3.0 and 1 / b.data == 0.5 and sorted([b.data, a.data]) == [1.5, 2] and {a.data: 1} == {1.5: 1}
    assert Value(a.data)._prev == ()


def test_outside_of_a_build_they_are_plain() -> None:
    assert type(Value(1.5).data) is float and (Value(2.0) - Value(1.0).data)._prev[1]._prev == ()


def test_one_term_has_the_form_of_many(build: None) -> None:
    """The first position attends to itself alone."""
    scores = [[Value(0.0) for _ in range(4)] for _ in range(4)]
    out = [v for t, row in enumerate(scores) for v in softmax(row[: t + 1])]
    traced = trace(declare(out, inputs={"x": scores}))
    assert sum(node.op.name == "maximum" for node in traced.graph.nodes()) == 4


COMPUTED: dict[str, Callable[[list[Value]], Any]] = {
    "product": lambda x: x[0] * (x[1].data * 2),
    "mean": lambda x: x[0] - sum(v.data for v in x) / len(x),
    "chain": lambda x: x[0] + (1 - abs(-(x[1] * 3).data)) ** 2,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_from_an_input_is_no_constant(name: str, build: None) -> None:
    x = [Value(0.5), Value(2.0)]
    out = COMPUTED[name](x)
    with pytest.raises(
        MlaotError, match=r"\.data of .*the input 'x' is computed with, and the result, .*is combined with a Value"
    ) as error:
        declare(out, inputs={"x": x}).trace()
    assert error.value.place.startswith("test_reads.py:")


def test_what_is_computed_from_parameters_or_not_used_is_let_be(build: None) -> None:
    x, w = Value(0.5), Value(2.0)
    _ = w * (x.data * 2)
    graph = passes.run("m", declare(x * (w.data * 2), inputs={"x": x}, parameters=[w]).trace()).graphs["forward"]
    (found,) = evaluate(graph, {"x": np.array([3.0])}).values()
    assert found == [12.0]
