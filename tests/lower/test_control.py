"""Loops and branches in C: against the oracle, forwards, backwards, batched, nested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Type, dim
from mlaot.ir.module import Module
from mlaot.ir.types import f32, f64, i64
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill
from mlaot.ops.control import cond, result, results, scan, while_
from mlaot.passes.algebra.dead_code import dead_code
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.subgraphs import everywhere
from mlaot.transforms.batch import batch
from mlaot.transforms.differentiate import differentiate

from ..compiled import AVAILABLE, Library
from ..ops.test_control import body, rnn

Array = np.ndarray[Any, Any]
Case = tuple[Graph, list[dict[str, Array]], dict[str, int]]
X = np.array([0.5, -1.0, 2.0])


def recurrences() -> dict[str, Case]:
    """A recurrent network, its gradients, and three of it at once."""
    found: dict[str, Case] = {}
    for length in (0, 1, 4):
        for reverse in (False, True):
            name = f"{length}_{'backwards' if reverse else 'forwards'}"
            graph, inputs = rnn(length, reverse)
            found[f"rnn_{name}"] = graph, [inputs], {}
            graph, inputs = rnn(length, reverse)
            h = graph.outputs["h"]
            loss = ew.add(red.sum_(graph.outputs["y"], axes=(0,)), red.sum_(ew.mul(h, h), axes=(0,)))
            for key, gradient in zip("wbhx", differentiate(loss, [graph.inputs[k] for k in "wbhx"]), strict=True):
                graph.outputs[f"d{key}"] = gradient
            found[f"gradients_{name}"] = graph, [inputs], {}
            graph, inputs = rnn(length, reverse)
            many = {k: v if k in "wb" else np.stack([v, 2 * v, -v]) for k, v in inputs.items()}
            found[f"batch_{name}"] = batch(graph, dim("batch"), ("w", "b")), [many], {"batch": 3}
    return found


def doubling() -> Case:
    """While n < 5: x * 1.5, n + 1; four rounds at most."""
    graph = Graph("f")
    x, n = graph.input("x", f64[3]), graph.input("n", Type(i64))
    condition = body((f64[3], Type(i64)), lambda a: [cmp.less(a[1], a[1].graph.constant(5, i64))], "condition")
    step = body(
        (f64[3], Type(i64)),
        lambda a: [ew.mul(a[0], fill(a[0], 1.5, f64[3])), ew.add(a[1], a[1].graph.constant(1, i64))],
    )
    loop = while_(x, n, condition=condition, body=step, consts=0, bound=4)
    graph.outputs = {"x": result(loop, index=0), "n": result(loop, index=1)}
    return graph, [{"x": X, "n": np.asarray(n)} for n in (-3, 3, 9)], {}


def branches() -> Case:
    """Different values by the sign of p; one of the results is an operand as it is."""
    graph = Graph("f")
    x, p = graph.input("x", f64[3]), graph.input("p", Type(f64))
    then = body((f64[3], Type(f64)), lambda a: [ew.exp(a[0]), a[1]])
    otherwise = body((f64[3], Type(f64)), lambda a: [a[0], ew.mul(a[1], a[1])])
    chosen = cond(cmp.less(p, graph.constant(0.0, f64)), x, p, then=then, otherwise=otherwise)
    graph.outputs = {"a": result(chosen, index=0), "b": result(chosen, index=1)}
    return graph, [{"x": X, "p": np.asarray(p)} for p in (-3.0, 3.0)], {}


def swapping() -> Case:
    """Carries that change places, and a slice of a transposed array as x."""
    graph = Graph("f")
    a, b, x = graph.input("a", f32[4]), graph.input("b", f32[4]), graph.input("x", f32[4, 5])
    step = body((f32[4], f32[4], f32[4]), lambda v: [v[1], ew.add(v[0], v[2]), v[0]])
    found = results(scan(a, b, st.transpose(x, perm=(1, 0)), body=step, consts=0, carries=2, length=5, reverse=False))
    graph.outputs = dict(zip(("a", "b", "y"), found, strict=True))
    rng = np.random.default_rng(1)
    return graph, [{k: rng.normal(size=n.type.shape).astype("f4") for k, n in graph.inputs.items()}], {}  # type: ignore[arg-type]


def backwards_slice() -> Case:
    """A scalar carry and slices of a view that starts inside of its array."""
    graph = Graph("f")
    x = graph.input("x", f64[17])
    part = st.slice_(x, start=(11,), size=(3,), step=(-2,))
    step = body((Type(f64), Type(f64)), lambda v: [ew.mul(v[1], v[0]), v[1]])
    start = graph.constant(2.0, f64)
    found = results(scan(start, part, body=step, consts=0, carries=1, length=3, reverse=True))
    graph.outputs = dict(zip(("last", "seen"), found, strict=True))
    return graph, [{"x": np.arange(1.0, 18.0)}], {}


def nested() -> Case:
    """A loop in a loop, over a named dim, with a branch inside."""
    graph = Graph("f")
    length = dim("n")
    x, start = graph.input("x", f64[length, 3]), graph.input("start", f64[3])
    grow = body((f64[3],), lambda a: [ew.mul(a[0], fill(a[0], 1.25, f64[3]))], "grow")
    keep = body((f64[3],), lambda a: [a[0]], "keep")

    def inner(args: list[Any]) -> list[Any]:
        total, value = args
        positive = cmp.greater(red.sum_(total, axes=(0,)), total.graph.constant(0.0, f64))
        (chosen,) = results(cond(positive, total, then=grow, otherwise=keep))
        return [ew.add(chosen, fill(chosen, 0.5, f64[3])), value]

    def outer(args: list[Any]) -> list[Any]:
        carry, row = args
        attrs = {"body": body((f64[3], Type(f64)), inner, "inner"), "consts": 0, "carries": 1, "reverse": False}
        total, seen = results(scan(ew.add(carry, row), row, **attrs, length=3))
        return [total, red.sum_(seen, axes=(0,))]

    attrs = {"body": body((f64[3], f64[3]), outer, "outer"), "consts": 0, "carries": 1, "reverse": False}
    graph.outputs = dict(zip(("total", "sums"), results(scan(start, x, **attrs, length=length)), strict=True))
    return graph, [{"x": np.outer([-1.0, 1.0, 0.5, -2.0], X), "start": -X}], {"n": 4}


def read_again() -> Case:
    """A carry whose kernel computes its new value in one stage and reads the old one again in the next."""
    graph = Graph("f")
    h, x = graph.input("h", f64[20]), graph.input("x", f64[3, 20])

    def step(args: list[Any]) -> list[Any]:
        below = ew.sub(args[0], st.broadcast(red.max_(args[0], axes=(0,)), shape=(20,), axes=()))
        new = ew.mul(below, below)
        total = red.sum_(ew.add(new, args[1]), axes=(0,))
        return [new, ew.div(below, st.broadcast(total, shape=(20,), axes=()))]

    loop = scan(h, x, body=body((f64[20], f64[20]), step), consts=0, carries=1, length=3, reverse=False)
    graph.outputs = dict(zip(("last", "seen"), results(loop), strict=True))
    rng = np.random.default_rng(2)
    return graph, [{"h": rng.normal(size=20), "x": rng.normal(size=(3, 20))}], {}


def cases() -> dict[str, Case]:
    named = {"while": doubling(), "cond": branches(), "swapping": swapping(), "nested": nested()}
    named |= {"backwards_slice": backwards_slice(), "read_again": read_again()}
    return recurrences() | named


def programs(full: bool) -> dict[str, Program]:
    found = {}
    for name, (graph, _, _) in cases().items():
        if full:
            dead_code(graph)
        everywhere(legalize, graph)
        found[name] = lower(Module("m", {"forward": graph}, {}, False))
    return found


@pytest.mark.parametrize("full", [False, True], ids=["as it is", "pruned"])
@pytest.mark.parametrize("isa", [AVAILABLE[0], AVAILABLE[-1]])
def test_control_flow_is_the_oracle(isa: str, full: bool, tmp_path: Path) -> None:
    library = Library(programs(full), isa, tmp_path)
    for name, (graph, several, dims) in cases().items():
        for inputs in several:
            actual = library.call(name, "forward", inputs, dims)
            for key, expected in evaluate(graph, inputs).items():
                tolerance = 1e-5 if expected.dtype == np.float32 else 1e-12
                what = f"{name}: {key}"
                np.testing.assert_allclose(actual[key], expected, rtol=tolerance, atol=tolerance, err_msg=what)
