"""Control flow: loops and branches against the same thing written in Python, their gradients, their batching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.evaluate import bind, evaluate
from mlaot.ir import Graph, Node, Subgraph, Type, dim, verify
from mlaot.ir.types import bf16, boolean, f16, f32, f64, i64
from mlaot.ops import OPS
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill
from mlaot.ops.bits import bitwise_or
from mlaot.ops.control import cond, results, save_carries, scan, while_
from mlaot.transforms.batch import batch
from mlaot.transforms.differentiate import differentiate

Array = np.ndarray[Any, Any]
Make = Callable[[list[Node]], Sequence[Node]]
rng = np.random.default_rng(5)


def body(types: Sequence[Type], results: Make, name: str = "body") -> Subgraph:
    return Subgraph.of(name, types, lambda graph, args: results(args))


def rnn_step(args: list[Node]) -> list[Node]:
    """consts w, b; carry h; slice x: tanh(w h + x) * b, and the sum of its squares as a result of each round."""
    w, b, h, x = args
    moved = ew.mul(ew.tanh(ew.add(red.contract(w, h, spec="ab,b->a"), x)), b)
    return [moved, red.sum_(ew.mul(moved, moved), axes=(0,))]


def rnn(length: int, reverse: bool, *, saves: bool = True) -> tuple[Graph, dict[str, Array]]:
    types = (f64[3, 3], f64[3], f64[3], f64[length, 3])
    step = body((*types[:3], f64[3]), rnn_step)
    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("wbhx", types, strict=True)]
    attrs = {"consts": 2, "carries": 1, "length": length, "reverse": reverse}
    found = results(scan(*args, body=save_carries(step, 2, 1) if saves else step, **attrs))
    graph.outputs = {"h": found[0], "y": found[1]}
    return graph, {name: rng.normal(size=t.shape) for name, t in zip("wbhx", types, strict=True)}


def rnn_in_python(w: Array, b: Array, h: Array, x: Array, reverse: bool) -> tuple[Array, Array]:
    ys = np.zeros(len(x))
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        h = np.tanh(w @ h + x[i]) * b
        ys[i] = (h * h).sum()
    return h, ys


def newton(bound: int) -> tuple[Graph, dict[str, Array]]:
    """x by Newton's method for sqrt(a), counting the rounds."""
    types = (f64[()], f64[()], i64[()])
    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("axn", types, strict=True)]

    def far(values: list[Node]) -> list[Node]:
        a, x, _ = values
        return [cmp.greater(ew.abs_(ew.sub(ew.mul(x, x), a)), fill(x, 1e-3, x.type))]

    def step(values: list[Node]) -> list[Node]:
        a, x, n = values
        return [ew.mul(fill(x, 0.5, x.type), ew.add(x, ew.div(a, x))), ew.add(n, fill(n, 1, n.type))]

    found = results(while_(*args, condition=body(types, far), body=body(types, step), consts=1, bound=bound))
    graph.outputs = {"x": found[0], "n": found[1]}
    return graph, {"a": np.array(7.0), "x": np.array(3.0), "n": np.array(0)}


def branches(types: Sequence[Type]) -> dict[str, Subgraph]:
    return {
        "then": body(types, lambda v: [ew.mul(v[0], v[1]), v[0]], "then"),
        "otherwise": body(types, lambda v: [ew.exp(v[0]), ew.neg(v[0])], "otherwise"),
    }


def choice() -> tuple[Graph, dict[str, Array]]:
    graph = Graph("f")
    p, a, b = graph.input("p", Type(boolean)), graph.input("a", f64[3]), graph.input("b", f64[3])
    found = results(cond(p, a, b, **branches((f64[3], f64[3]))))
    graph.outputs = {"u": found[0], "v": found[1]}
    return graph, {"p": np.array(True), "a": rng.normal(size=3), "b": rng.normal(size=3)}


def loss_of(graph: Graph) -> Node:
    """A number that depends on every output of floats in a way of its own."""
    total = None
    for i, node in enumerate(graph.outputs.values()):
        if node.type.dtype.kind == "f":
            weight = graph.constant(np.random.default_rng(i).normal(size=node.type.shape), node.type.dtype)
            bent = ew.mul(ew.mul(node, node), weight)
            part = red.sum_(bent, axes=tuple(range(node.type.rank)))
            total = part if total is None else ew.add(total, part)
    assert total is not None
    return total


def check_gradient(graph: Graph, inputs: dict[str, Array], loss: Node) -> None:
    """Along a random direction for each input, against central differences."""
    names = [name for name, value in inputs.items() if value.dtype.kind == "f"]
    gradients = differentiate(loss, [graph.inputs[name] for name in names])
    graph.outputs = {"loss": loss} | dict(zip(names, gradients, strict=True))
    verify(graph, "differentiate")
    found = evaluate(graph, inputs)
    for name in names:
        direction = rng.normal(size=inputs[name].shape)
        moved = (inputs | {name: inputs[name] + h * direction} for h in (1e-5, -1e-5))
        ahead, behind = (float(evaluate(graph, m)["loss"]) for m in moved)
        expected, actual = (ahead - behind) / 2e-5, float((found[name] * direction).sum())
        assert abs(actual - expected) <= 1e-6 * max(1.0, abs(expected)), f"by {name}: {actual}, {expected}"


def check_batching(graph: Graph, inputs: dict[str, Array], many: Callable[[str, Array], Array]) -> None:
    """With each input batched or not, against a loop over the examples."""
    for some in list(product((True, False), repeat=len(inputs)))[:-1]:
        shared = [name for name, batched in zip(inputs, some, strict=True) if not batched]
        batched = batch(graph, dim("batch"), shared)
        verify(batched, "batch")
        given = {k: v if k in shared else np.stack([v, many(k, v), many(k, v)]) for k, v in inputs.items()}
        found = evaluate(batched, given)
        loop = [evaluate(graph, {k: v if k in shared else v[i] for k, v in given.items()}) for i in range(3)]
        for name, value in found.items():
            np.testing.assert_allclose(value, np.stack([one[name] for one in loop]), rtol=1e-12, err_msg=f"{shared}")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_scan_is_a_loop(length: int, reverse: bool) -> None:
    graph, inputs = rnn(length, reverse)
    verify(graph, "trace")
    found = evaluate(graph, inputs)
    h, ys = rnn_in_python(**inputs, reverse=reverse)
    np.testing.assert_allclose(found["h"], h)
    np.testing.assert_allclose(found["y"], ys)
    assert found["y"].shape == (length,)


def test_scan_without_xs_counts_its_length() -> None:
    graph = Graph("f")
    n = dim("n")
    x = graph.input("x", f32[n])
    double = body((f32[n],), lambda v: [ew.add(v[0], v[0])])
    node = scan(x, body=double, consts=0, carries=1, length=n, reverse=False)
    graph.outputs["y"] = results(node)[0]
    assert str(node.type) == "(f32[n])"
    found = evaluate(graph, {"x": [1.0, 2.0, 3.0]})["y"]
    assert found.tolist() == [8.0, 16.0, 24.0] and found.dtype == np.float32


def test_references_take_subgraphs_as_functions() -> None:
    double = bind(body((f32[2],), lambda v: [ew.add(v[0], v[0])]))
    found = OPS["scan"].reference(np.ones(2, np.float32), body=double, consts=0, carries=1, length=3, reverse=False)
    assert found[0].tolist() == [8.0, 8.0]


def test_wide_evaluation_reaches_into_subgraphs() -> None:
    graph = Graph("f")
    x = graph.input("x", f32[()])
    third = body((f32[()],), lambda v: [ew.div(v[0], fill(v[0], 3.0, v[0].type))])
    graph.outputs["y"] = results(scan(x, body=third, consts=0, carries=1, length=2, reverse=False))[0]
    assert evaluate(graph, {"x": 1.0}, wide=True)["y"] == 1 / 3 / 3
    assert evaluate(graph, {"x": 1.0})["y"].dtype == np.float32


@pytest.mark.parametrize("bound", [0, 2, 20])
def test_while_runs_until_the_condition_or_the_bound(bound: int) -> None:
    graph, inputs = newton(bound)
    verify(graph, "trace")
    found = evaluate(graph, inputs)
    x, n = 3.0, 0
    while abs(x * x - 7.0) > 1e-3 and n < bound:
        x, n = 0.5 * (x + 7.0 / x), n + 1
    assert found["x"] == x and found["n"] == n
    assert n == min(bound, 2)


@pytest.mark.parametrize("pred", [False, True])
def test_cond_takes_one_branch(pred: bool) -> None:
    graph, inputs = choice()
    verify(graph, "trace")
    found = evaluate(graph, inputs | {"p": np.array(pred)})
    a, b = inputs["a"], inputs["b"]
    assert found["u"].tolist() == (a * b if pred else np.exp(a)).tolist()
    assert found["v"].tolist() == (a if pred else -a).tolist()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_gradient_of_scan(length: int, reverse: bool, saves: bool) -> None:
    graph, inputs = rnn(length, reverse, saves=saves)
    check_gradient(graph, inputs, loss_of(graph))
    scans = [node for node in graph.nodes() if node.op is scan]
    assert len(scans) == (2 if saves else 3), "the forward scan that saves its carries is not run twice"


def test_gradient_of_scan_by_one_of_its_results() -> None:
    graph, inputs = rnn(3, False)
    check_gradient(graph, inputs, red.sum_(graph.outputs["y"], axes=(0,)))
    graph, inputs = rnn(3, False)
    check_gradient(graph, inputs, red.sum_(graph.outputs["h"], axes=(0,)))


def test_gradient_of_a_scan_with_integers() -> None:
    """A counter, an index and a mask go through the body; only what is real has a gradient."""
    types = (f64[3], i64[()], f64[()], boolean[()], i64[()])

    def step(values: list[Node]) -> list[Node]:
        c, n, h, m, k = values
        picked = st.item(ew.mul(c, c), index=1)
        scaled = ew.mul(h, ew.mul(picked, ew.cast(ew.add(n, k), dtype=f64)))
        return [ew.add(n, k), cmp.where(m, scaled, h), scaled]

    graph = Graph("f")
    given = (f64[3], i64[()], f64[()], boolean[4], i64[4])
    args = [graph.input(name, t) for name, t in zip("cnhmk", given, strict=True)]
    found = results(
        scan(*args, body=save_carries(body(types, step), 1, 2), consts=1, carries=2, length=4, reverse=False)
    )
    graph.outputs = {"n": found[0], "h": found[1], "y": found[2]}
    inputs = {
        **{"c": rng.normal(size=3), "n": np.array(1), "h": np.array(0.7)},
        **{"m": np.array([True, False, True, True]), "k": np.array([1, -1, 2, 1])},
    }
    assert evaluate(graph, inputs)["n"] == 4
    check_gradient(graph, inputs, loss_of(graph))


def test_gradient_of_half_precision_is_summed_in_single() -> None:
    for half in (f16, bf16):
        graph = Graph("f")
        w, h, x = (graph.input(name, t) for name, t in (("w", Type(half)), ("h", Type(half)), ("x", half[5000])))
        step = body((Type(half),) * 3, lambda v: [v[1], ew.mul(v[0], v[2])])
        ys = results(scan(w, h, x, body=step, consts=1, carries=1, length=5000, reverse=False))[1]
        graph.outputs["dw"] = differentiate(red.sum_(ys, axes=(0,)), [w])[0]
        assert graph.outputs["dw"].type.dtype is half
        assert evaluate(graph, {"w": 1.0, "h": 0.0, "x": np.ones(5000)})["dw"] == half.array(5000.0)


def test_second_gradient_of_scan() -> None:
    graph, inputs = rnn(3, False)
    first = differentiate(loss_of(graph), list(graph.inputs.values()))
    graph.outputs = {f"d{i}": node for i, node in enumerate(first)}
    check_gradient(graph, inputs, loss_of(graph))


def test_second_gradient_of_while_and_cond() -> None:
    for graph, inputs in (newton(4), choice()):
        wanted = [node for node in graph.inputs.values() if node.type.dtype is f64]
        first = differentiate(loss_of(graph), wanted)
        graph.outputs = {f"d{i}": node for i, node in enumerate(first)}
        check_gradient(graph, inputs, loss_of(graph))


@pytest.mark.parametrize("bound", [0, 1, 6])
def test_gradient_of_while(bound: int) -> None:
    graph, inputs = newton(bound)
    check_gradient(graph, inputs, loss_of(graph))


def test_gradient_of_while_does_not_run_past_the_end() -> None:
    """Rounds behind the last would take the root of a negative number: its nan must not reach the gradient."""
    types = (f64[()], f64[()])
    graph = Graph("f")
    x, n = (graph.input(name, Type(f64)) for name in "xn")
    going = body(types, lambda v: [cmp.greater(v[1], fill(v[1], 0.0, v[1].type))])
    step = body(types, lambda v: [ew.mul(v[0], ew.sqrt(v[1])), ew.sub(v[1], fill(v[1], 1.0, v[1].type))])
    graph.outputs["y"] = results(while_(x, n, condition=going, body=step, consts=0, bound=5))[0]
    check_gradient(graph, {"x": np.array(2.0), "n": np.array(1.5)}, graph.outputs["y"])


@pytest.mark.parametrize("pred", [False, True])
def test_gradient_of_cond(pred: bool) -> None:
    graph, inputs = choice()
    check_gradient(graph, inputs | {"p": np.array(pred)}, loss_of(graph))


def test_batched_scan_is_a_loop() -> None:
    for length, reverse in ((0, False), (3, False), (2, True)):
        graph, inputs = rnn(length, reverse)
        check_batching(graph, inputs, lambda _, value: rng.normal(size=value.shape))


def test_batching_a_scan_leaves_a_counter_alone() -> None:
    types = (i64[()], f64[2], f64[2])

    def step(v: list[Node]) -> list[Node]:
        n, h, x = v
        return [ew.add(n, fill(n, 1, n.type)), ew.add(h, x), n]

    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("nhx", (i64[()], f64[2], f64[3, 2]), strict=True)]
    found = results(scan(*args, body=body(types, step), consts=0, carries=2, length=3, reverse=False))
    graph.outputs = {"n": found[0], "h": found[1], "y": found[2]}
    batched = batch(graph, dim("batch"), ["n", "h"])
    node = next(node for node in batched.nodes() if node.op is scan)
    assert str(node.type) == "(i64[], f64[batch,2], i64[3])"
    inputs = {"n": np.array(5), "h": rng.normal(size=2), "x": rng.normal(size=(3, 2))}
    check_batching(graph, inputs, lambda _, v: rng.normal(size=v.shape) if v.dtype.kind == "f" else v + 1)


def test_batched_while_is_a_loop() -> None:
    graph, inputs = newton(6)
    check_batching(graph, inputs, lambda name, value: value + (rng.integers(4) if name == "n" else rng.uniform(0, 30)))


def test_batched_while_with_one_condition_needs_no_mask() -> None:
    types = (i64[()], f64[()])
    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("nx", types, strict=True)]
    few = body(types, lambda v: [cmp.less(v[0], fill(v[0], 3, v[0].type))])
    step = body(types, lambda v: [ew.add(v[0], fill(v[0], 1, v[0].type)), ew.mul(v[1], v[1])])
    graph.outputs["y"] = results(while_(*args, condition=few, body=step, consts=0, bound=9))[1]
    batched = batch(graph, dim("batch"), ["n"])
    node = next(node for node in batched.nodes() if node.op is while_)
    assert str(node.type) == "(i64[], f64[batch])" and "where" not in str(batched)
    assert evaluate(batched, {"n": 0, "x": [1.0, 2.0]})["y"].tolist() == [1.0, 256.0]


def test_batched_cond_is_a_loop() -> None:
    graph, inputs = choice()
    check_batching(graph, inputs, lambda _, value: rng.normal(size=value.shape) > 0 if value.dtype == bool else -value)
    assert any(node.op is cond for node in batch(graph, dim("batch"), ["p"]).nodes())
    assert not any(node.op is cond for node in batch(graph, dim("batch"), ["a"]).nodes())


def test_gradient_of_what_was_batched() -> None:
    for make in (lambda: rnn(3, False), lambda: newton(4), choice):
        graph, inputs = make()
        batched = batch(graph, 2, [])
        two = {k: np.stack([v, v if v.dtype.kind in "ib" else v + 0.5]) for k, v in inputs.items()}
        check_gradient(batched, two, loss_of(batched))


def nested() -> tuple[Graph, dict[str, Array]]:
    """A scan in whose body there is a cond of a while."""
    scalar = f64[()]
    small = body((scalar, scalar), lambda v: [cmp.less(v[1], fill(v[1], 10.0, v[1].type))])
    grow = body((scalar, scalar), lambda v: [ew.mul(v[1], v[0])])

    def loop(v: list[Node]) -> list[Node]:
        return results(while_(*v, condition=small, body=grow, consts=1, bound=4))

    def step(v: list[Node]) -> list[Node]:
        k, h, x = v
        positive = cmp.greater(x, fill(x, 0.0, x.type))
        then, otherwise = body((scalar, scalar), loop), body((scalar, scalar), lambda w: [ew.mul(w[1], w[1])])
        moved = cond(positive, k, ew.add(h, x), then=then, otherwise=otherwise)
        return [results(moved)[0], h]

    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("khx", (scalar, scalar, f64[4]), strict=True)]
    each = body((scalar, scalar, scalar), step)
    found = results(scan(*args, body=each, consts=1, carries=1, length=4, reverse=False))
    graph.outputs = {"h": found[0], "y": found[1]}
    return graph, {"k": np.array(1.7), "h": np.array(0.9), "x": np.array([0.6, -3.0, 1.0, -8.0])}


def test_nested_control_flow() -> None:
    graph, inputs = nested()
    verify(graph, "trace")
    h = 0.9
    for x in inputs["x"]:
        h, rounds = h + x, 0
        if x > 0:
            while h < 10 and rounds < 4:
                h, rounds = h * 1.7, rounds + 1
        else:
            h = h * h
    assert evaluate(graph, inputs)["h"] == h
    check_batching(graph, inputs, lambda name, value: value * rng.uniform(0.9, 1.1, value.shape))
    check_gradient(graph, inputs, loss_of(graph))


def test_subgraphs_are_equal_by_structure() -> None:
    square = body((f64[3],), lambda v: [ew.mul(v[0], v[0])])
    again = Graph("square")
    x = again.input("x", f64[3])
    again.outputs["y"] = ew.mul(x, x)
    assert square == Subgraph(again) and hash(square) == hash(Subgraph(again))
    assert square != body((f32[3],), lambda v: [ew.mul(v[0], v[0])])
    assert square != body((f64[3], f64[3]), lambda v: [ew.mul(v[0], v[0])])
    assert square != body((f64[3],), lambda v: [ew.mul(v[0], v[0]), v[0]])
    tens = [np.full(10, c) for c in (1.0, 1.0, 1.0 + 1e-15, -0.0, 0.0)]
    plus = [body((f64[10],), lambda v, c=c: [ew.add(v[0], v[0].graph.constant(c, f64))]) for c in tens]
    assert plus[0] == plus[1] and len(set(plus)) == 4
    loops = [body((f64[10],), lambda v, p=p: [results(cond_of(v[0], p))[0]]) for p in plus]
    assert loops[0] == loops[1] and len(set(loops)) == 4, "the constants of inner subgraphs count"
    graph = Graph("f")
    x = graph.input("x", f64[10])
    assert cond_of(x, plus[0]) is cond_of(x, plus[1]) is not cond_of(x, plus[2])


def cond_of(x: Node, branch: Subgraph) -> Node:
    return cond(x.graph.constant(True, boolean), x, then=branch, otherwise=branch)


def test_text_form() -> None:
    graph, _ = rnn(4, True)
    assert (
        str(graph)
        == """\
graph f:
  v0 = input(name=w) : f64[3,3]
  v1 = input(name=b) : f64[3]
  v2 = input(name=h) : f64[3]
  v3 = input(name=x) : f64[4,3]
  v4 = scan(v0, v1, v2, v3, body=<body 1: 10 nodes>, consts=2, carries=1, length=4, reverse=True) \
: (f64[3], f64[4], f64[4,3])
  v5 = result(v4, index=0) : f64[3]
  v6 = result(v4, index=1) : f64[4]
  return h=v5, y=v6
    graph body 1(a0, a1, a2, a3):
      v0 = input(name=a0) : f64[3,3]
      v1 = input(name=a2) : f64[3]
      v2 = contract(v0, v1, spec=ab,b->a) : f64[3]
      v3 = input(name=a3) : f64[3]
      v4 = add(v2, v3) : f64[3]
      v5 = tanh(v4) : f64[3]
      v6 = input(name=a1) : f64[3]
      v7 = mul(v5, v6) : f64[3]
      v8 = mul(v7, v7) : f64[3]
      v9 = sum(v8, axes=(0,)) : f64[]
      return r0=v7, r1=v9, r2=v1"""
    )
    lines = [line.strip() for line in str(nested()[0]).splitlines() if "graph" in line]
    assert lines == [
        "graph f:",
        "graph body 1(a0, a1, a2):",
        "graph body 1.1(a0, a1):",
        "graph body 1.1.1(a0, a1):",
        "graph body 1.1.2(a0, a1):",
        "graph body 1.2(a0, a1):",
    ]


def refused(text: str, op: str, *types: Type, **attrs: Any) -> None:
    with pytest.raises(MlaotError) as error:
        OPS[op].type_rule(*types, **attrs)
    assert text in str(error.value), str(error.value)


def test_types_say_what_they_got() -> None:
    same = body((f32[4], f32[4]), lambda v: v)
    wider = body((f32[4], f32[4]), lambda v: [v[0], ew.cast(v[1], dtype=f64)])
    one = body((f32[4], f32[4]), lambda v: v[:1])
    yes = body((f32[4], f32[4]), lambda v: [v[0].graph.constant(True, boolean)])
    loop: dict[str, Any] = {"consts": 0, "carries": 2, "length": 3, "reverse": False}
    refused("scan: the carry 1 is f32[4] but the body gives f64[4]", "scan", f32[4], f32[4], body=wider, **loop)
    refused("scan: expected 2 carries, but the body gives 1", "scan", f32[4], f32[4], body=one, **loop)
    refused("scan: the operand 1 is f32[5] but the body takes f32[4]", "scan", f32[4], f32[5], body=same, **loop)
    refused("scan: expected 3 operands, but the body takes 2", "scan", f32[4], f32[4], f32[3], body=same, **loop)
    loop["carries"] = 1
    refused("a first dimension of 3 for xs 0, got f32[2,4]", "scan", f32[4], f32[2, 4], body=same, **loop)
    bound = {"consts": 0, "bound": 9}
    refused(
        "while: expected a condition that gives bool[], got f32[4]",
        "while",
        f32[4],
        f32[4],
        condition=one,
        body=same,
        **bound,
    )
    refused(
        "while: the carry 1 is f32[4] but the body gives f64[4]",
        "while",
        f32[4],
        f32[4],
        condition=yes,
        body=wider,
        **bound,
    )
    pred = Type(boolean)
    refused(
        "cond: the result 1 is f32[4] but 'otherwise' gives f64[4]",
        "cond",
        pred,
        f32[4],
        f32[4],
        then=same,
        otherwise=wider,
    )
    refused(
        "cond: expected a condition of type bool[], got f32[]",
        "cond",
        Type(f32),
        f32[4],
        f32[4],
        then=same,
        otherwise=same,
    )


def test_an_example_that_is_done_stays_done() -> None:
    """The counter that all share goes on, and the condition would be true again at 4."""
    types = (i64[()], i64[()], f64[()])

    def going(v: list[Node]) -> list[Node]:
        limit, n, _ = v
        return [bitwise_or(cmp.less(n, limit), cmp.equal(n, fill(n, 4, n.type)))]

    step = body(types, lambda v: [ew.add(v[1], fill(v[1], 1, v[1].type)), ew.add(v[2], v[2])])
    graph = Graph("f")
    args = [graph.input(name, t) for name, t in zip("lnx", types, strict=True)]
    found = results(while_(*args, condition=body(types, going), body=step, consts=1, bound=9))
    graph.outputs = {"n": found[0], "x": found[1]}
    batched = batch(graph, dim("batch"), ["n"])
    values = evaluate(batched, {"l": [2, 6, 0], "n": 0, "x": [1.0, 1.0, 1.0]})
    assert values["n"].tolist() == [2, 6, 0] and values["x"].tolist() == [4.0, 64.0, 1.0]
