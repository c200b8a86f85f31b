"""Raising: scalar networks, however written, become the graphs that tensor models of them give."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Declaration, Traced
from mlaot.frontend.trace.tensor import parameters
from mlaot.ir.module import Module
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.micrograd import MLP, Dot, Label, Max, Value, cross_entropy, declare
from mlaot.micrograd.losses import stable_softmax
from mlaot.report.passes import report

from ...compiled import Library, State

Array = np.ndarray[Any, Any]


def leaves(count: int) -> list[Value]:
    return [Value(0.0) for _ in range(count)]


def weights(*shape: int) -> Any:
    """Nested lists of values with random data."""
    if len(shape) == 1:
        return [Value(random.uniform(-1, 1)) for _ in range(shape[0])]
    return [weights(*shape[1:]) for _ in range(shape[0])]


def raised(declared: Declaration) -> Module:
    return passes.run("m", declared.trace())


def ops(declared: Declaration, entry: str = "forward") -> Counter[str]:
    """How many nodes of each op an entry has, without inputs and constants."""
    found = Counter(node.op.name for node in raised(declared).graphs[entry].nodes())
    return Counter({k: n for k, n in found.items() if k not in ("input", "const", "broadcast")})


def scalar_work(declared: Declaration) -> list[str]:
    """Arithmetic on single numbers of the network: none should be left."""
    found = []
    for node in raised(declared).graphs["forward"].nodes():
        single = all(d == 1 or str(d) == "batch" for d in node.type.shape)
        if single and node.op.name in ("mul", "add", "relu", "exp", "item", "stack"):
            found.append(f"{node.op.name} : {node.type}")
    return found


def matrix_vector(w: Any, b: Any, x: list[Value], order: Callable[[list[Any]], list[Any]] = list) -> list[Value]:
    """``w @ x + b`` spelt out, the terms of each sum in some order."""
    out = []
    for row, bias in zip(w, b, strict=True):
        terms = order([wi * xi for wi, xi in zip(row, x, strict=True)] + [bias])
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        out.append(total)
    return out


def shuffled(terms: list[Any]) -> list[Any]:
    random.shuffle(terms)
    return terms


@pytest.mark.parametrize("order", [list, shuffled, lambda t: t[::-1]], ids=["straight", "shuffled", "reversed"])
def test_a_network_by_hand(order: Callable[[list[Any]], list[Any]]) -> None:
    w1, b1, w2, b2, x = weights(7, 5), weights(7), weights(3, 7), weights(3), leaves(5)
    hidden = [v.relu() for v in matrix_vector(w1, b1, x, order)]
    named = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    declared = declare(matrix_vector(w2, b2, hidden, order), inputs={"x": x}, parameters=named)
    assert ops(declared) == {"contract": 2, "add": 2, "relu": 1}
    assert scalar_work(declared) == []
    shapes = {k: v.shape for k, v in raised(declared).parameters.items()}
    assert shapes == {"w1": (7, 5), "b1": (7,), "w2": (3, 7), "b2": (3,)}


@pytest.mark.parametrize("sizes", [(4, [3]), (64, [32, 10]), (2, [16, 16, 1]), (3, [1, 4]), (5, [5, 5, 5])], ids=str)
def test_mlp(sizes: tuple[int, list[int]]) -> None:
    net, x = MLP(*sizes), leaves(sizes[0])
    declared = declare(net(x), inputs={"x": x}, parameters=net)
    layers = len(sizes[1])
    if 1 not in sizes[1][:-1]:  # a layer of one input is an outer product
        assert ops(declared)["contract"] == layers
    if 1 not in sizes[1]:
        assert ops(declared) == +Counter({"contract": layers, "add": layers, "relu": layers - 1})
        assert scalar_work(declared) == []


def test_dot_nodes() -> None:
    w, x = weights(4, 6), leaves(6)
    assert ops(declare([Dot(row, x) for row in w], inputs={"x": x}, parameters={"w": w})) == {"contract": 1}


def test_tied_weights() -> None:
    """One matrix for two layers, and used transposed."""
    w, x = weights(4, 4), leaves(4)
    zero = weights(4)
    once = [v.relu() for v in matrix_vector(w, zero, x)]
    twice = matrix_vector(list(zip(*w, strict=True)), zero, once)
    declared = declare(twice, inputs={"x": x}, parameters={"w": w, "b": zero})
    assert ops(declared)["contract"] == 2 and scalar_work(declared) == []
    assert sorted(v.size for v in raised(declared).parameters.values()) == [4, 16]


def test_skip_connection() -> None:
    w, b, x = weights(6, 6), weights(6), leaves(6)
    out = [xi + v.relu() for xi, v in zip(x, matrix_vector(w, b, x), strict=True)]
    declared = declare(out, inputs={"x": x}, parameters={"w": w, "b": b})
    assert ops(declared) == {"contract": 1, "add": 2, "relu": 1} and scalar_work(declared) == []


def test_summed_output() -> None:
    """The ten dots stay a matrix product under a sum of them."""
    w1, b1, w2, b2, x = weights(8, 6), weights(8), weights(10, 8), weights(10), leaves(6)
    hidden = [v.relu() for v in matrix_vector(w1, b1, x)]
    out = matrix_vector(w2, b2, hidden)
    declared = declare(sum(out[1:], out[0]), inputs={"x": x}, parameters={"w1": w1, "b1": b1, "w2": w2, "b2": b2})
    found = ops(declared)
    assert found["contract"] == 2 and found["relu"] == 1 and found["item"] == 0, found


def test_two_heads() -> None:
    w1, b1, w2, b2, w3, b3 = weights(8, 6), weights(8), weights(3, 8), weights(3), weights(4, 8), weights(4)
    x = leaves(6)
    hidden = [v.relu() for v in matrix_vector(w1, b1, x)]
    heads = matrix_vector(w2, b2, hidden) + [v.tanh() for v in matrix_vector(w3, b3, hidden)]
    named = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "w3": w3, "b3": b3}
    declared = declare(heads, inputs={"x": x}, parameters=named)
    assert ops(declared)["contract"] == 3 and scalar_work(declared) == []


def test_softmax_and_cross_entropy() -> None:
    net, x, y = MLP(6, [8, 4]), leaves(6), leaves(4)
    logits = net(x)
    assert isinstance(logits, list)
    loss = cross_entropy(logits, y)
    declared = declare(stable_softmax(logits), inputs={"x": x, "y": Label(y)}, parameters=net, loss=loss)
    once = dict.fromkeys(("relu", "max", "sub", "exp", "sum", "div", "mul"), 1)
    assert ops(declared) == {"contract": 2, "add": 2, **once}
    assert ops(declared, "loss")["contract"] == 2


def test_a_big_network_raises_in_time() -> None:
    net, x = MLP(100, [50, 10]), leaves(100)
    declared = declare(net(x), inputs={"x": x}, parameters=net)
    assert ops(declared) == {"contract": 2, "add": 2, "relu": 1}


def tensor_mlp(net: MLP, dtype: str) -> Declaration:
    """The tensor model of a network, with the parameters' names that raising gives."""
    arrays = {}
    for i, layer in enumerate(net.layers):
        arrays[f"layers.{i}.neurons.w"] = np.array([[w.data for w in n.w] for n in layer.neurons], dtype)
        arrays[f"layers.{i}.neurons.b"] = np.array([n.b.data for n in layer.neurons], dtype)
    w = parameters(arrays)
    width = len(net.layers[0].neurons[0].w)

    def forward(x):  # type: ignore[no-untyped-def]
        for i in range(len(net.layers)):
            x = w[f"layers.{i}.neurons.w"] @ x + w[f"layers.{i}.neurons.b"]
            if i < len(net.layers) - 1:
                x = np.maximum(x, 0)
        return x

    forward.__annotations__ = {"x": (mlaot.f32 if dtype == "float32" else mlaot.f64)[width]}
    declared = mlaot.model(forward)
    assert isinstance(declared, Declaration)
    return declared


def program_text(module: Module) -> str:
    return str(lower(module))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(64, [32, 10]), (5, [7, 3]), (9, [4, 4, 4])], ids=str)
def test_the_raised_program_is_that_of_the_tensor_model(sizes: tuple[int, list[int]], dtype: str) -> None:
    net, x = MLP(*sizes), leaves(sizes[0])
    scalar = declare(net(x), inputs={"x": x}, parameters=net, dtype=dtype)
    assert program_text(raised(scalar)) == program_text(raised(tensor_mlp(net, dtype)))


# Whole networks, compiled, against the eager values.


def compiled_outputs(declared: Declaration, inputs: dict[str, Array], folder: Path) -> Array:
    program = lower(raised(declared))
    library = Library({"m": program}, "base", folder)
    batch = len(next(iter(inputs.values())))
    return library.call("m", "forward", inputs, {"batch": batch}, State(program))["out"]


def eager(outputs: list[Any], x: list[Any], rows: Array) -> Array:
    """The outputs by micrograd itself."""
    found = []
    for row in rows:
        for leaf, value in zip(x, row, strict=True):
            leaf.data = float(value)
        found.append([_recomputed(v, {}) for v in outputs])
    return np.array(found)


def _recomputed(root: Any, known: dict[int, float]) -> float:
    """The value of a node of either micrograd from its leaves."""
    from mlaot.frontend.scalar.declare import topological

    for v in topological([root]):
        args = [known[id(p)] for p in v._prev]
        if not args:
            known[id(v)] = v.data
        elif v._op == "+":
            known[id(v)] = args[0] + args[-1]
        elif v._op == "*":
            known[id(v)] = args[0] * args[-1]
        elif v._op == "ReLU":
            known[id(v)] = max(args[0], 0.0)
        elif v._op == "max":
            known[id(v)] = max(args)
        else:
            assert v._op.startswith("**"), v._op
            known[id(v)] = args[0] ** float(v._op[2:])
    return known[id(root)]


def test_what_cannot_be_raised_is_right(tmp_path: Path) -> None:
    """Loose expressions of different structures, terms reused across them."""
    x, w = leaves(4), weights(5)
    a = x[0] * w[0] + x[1] ** 2
    b = (a * x[2]).relu() + w[1] * x[3] * a
    c = Max(a, b) * w[2] - x[0] / (x[1] * x[1] + 1.0)
    outputs = [a, b, c, x[2], w[3], Value(2.5), a]
    rows = np.random.default_rng(0).normal(size=(5, 4))
    found = compiled_outputs(declare(outputs, inputs={"x": x}, parameters=w), {"x": rows}, tmp_path)
    np.testing.assert_allclose(found, eager(outputs, x, rows), rtol=1e-13)


def test_networks_of_the_micrograd_package(tmp_path: Path) -> None:
    """Its ``_prev`` is a set: arguments come in any order, and x + x has one."""
    engine, nn = pytest.importorskip("micrograd.engine"), pytest.importorskip("micrograd.nn")
    net = nn.MLP(6, [8, 3])
    x = [engine.Value(0.0) for _ in range(6)]
    outputs = [*net(x), x[0] + x[0], x[1] * x[1]]
    rows = np.random.default_rng(0).normal(size=(3, 6))
    declared = declare(outputs, inputs={"x": x}, parameters=net)
    np.testing.assert_allclose(compiled_outputs(declared, {"x": rows}, tmp_path), eager(outputs, x, rows), rtol=1e-12)
    plain = declare(net(x), inputs={"x": x}, parameters=net)
    assert ops(plain) == {"contract": 2, "add": 2, "relu": 1}


def test_a_report_counts_nodes_after_every_pass() -> None:
    net, x = MLP(4, [3]), leaves(4)
    steps: list[str] = []
    passes.run("m", declare(net(x), inputs={"x": x}, parameters=net).trace(), watch=lambda step, _: steps.append(step))
    assert steps == ["trace", *[step.name for step in passes.PIPELINE]]
    lines = report(declare(net(x), inputs={"x": x}, parameters=net), "m")
    assert lines[1].split()[:2] == ["trace", "model"] and "mul 12" in lines[1]
    assert "mul" not in next(line for line in reversed(lines) if line.split()[1] == "forward")


def test_dump_prints_graphs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = MLP(2, [2]), leaves(2)
    monkeypatch.setenv("MLAOT_DUMP", "legalize")
    passes.run("m", declare(net(x), inputs={"x": x}, parameters=net).trace())
    text = capsys.readouterr().err
    assert re.search(r"# after legalize\ngraph forward:\n", text) and text.count("# after") == 1


def test_a_loop_of_rules_is_named() -> None:
    from mlaot.ir import Graph, Node
    from mlaot.ir.types import f64
    from mlaot.ops import elementwise as ew
    from mlaot.passes.rewrite import rewrite

    def there(node: Node) -> Node:
        """exp(x) => log(x)"""
        return ew.log(node.arg(0))

    def back(node: Node) -> Node:
        """log(x) => exp(x)"""
        return ew.exp(node.arg(0))

    graph = Graph("f")
    graph.outputs["y"] = ew.exp(graph.input("x", f64[2]))
    with pytest.raises(AssertionError, match=r"there.*back|back.*there"):
        rewrite(graph, {ew.exp: (there,), ew.log: (back,)})


def test_a_traced_model_needs_known_ops() -> None:
    x = Value(0.5)
    strange = Value(1.0, (x,), "bessel")
    with pytest.raises(MlaotError, match="'bessel'"):
        declare(strange, inputs={"x": x}).trace()
    assert isinstance(declare(x.exp(), inputs={"x": x}).trace(), Traced)


def test_a_bare_graph_takes_its_labelled_leaves() -> None:
    a, b = Value(0.0, (), "input"), Value(0.0, (), "input")
    traced = trace([a * b + 2, a - b])
    assert traced.graph.inputs["x"].type.shape == (2,)
    found = evaluate(traced.graph, {"x": np.array([3.0, 4.0])})
    assert found["out"].tolist() == [14.0, -1.0]


def test_a_bare_graph_without_labels_is_refused() -> None:
    with pytest.raises(MlaotError, match="has no inputs"):
        trace(Value(1.0) * 2)


def test_a_labelled_leaf_that_is_not_declared_is_refused() -> None:
    x = Value(0.0)
    with pytest.raises(MlaotError, match="not among the declared inputs"):
        declare(x + Value(0.0, (), "input"), inputs={"x": x}).trace()
