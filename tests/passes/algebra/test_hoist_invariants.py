"""What leaves a loop, what stays in it, and that no value changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.model import Model
from mlaot.ir import Graph, Node, Subgraph, Type, dim, verify
from mlaot.ir.types import f32, f64, i64
from mlaot.loading import trace
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill
from mlaot.ops.control import results, save_carries, scan
from mlaot.ops.indexing import gather
from mlaot.passes.algebra.dead_code import dead_code
from mlaot.passes.algebra.hoist_invariants import hoist_invariants
from mlaot.passes.subgraphs import everywhere

Make = Callable[[list[Node]], Sequence[Node]]
LENGTH = 5


def loop(
    made: Make, *, reverse: bool = False, length: Any = LENGTH, saves: bool = False, **operands: tuple[str, Any]
) -> Graph:
    """A scan by the name ``f``; operands are ``name=("const" | "carry" | "x", type)``, in this order."""
    graph = Graph("f")
    args = [graph.input(name, t) for name, (_, t) in operands.items()]
    kinds = [kind for kind, _ in operands.values()]
    slices = [t.with_shape(t.shape[1:]) if kind == "x" else t for kind, t in operands.values()]
    consts, carries = kinds.count("const"), kinds.count("carry")
    body = Subgraph.of("body", slices, lambda _, values: made(values))
    if saves:
        body = save_carries(body, consts, carries)
    attrs = {"consts": consts, "carries": carries, "length": length, "reverse": reverse}
    found = results(scan(*args, body=body, **attrs))
    graph.outputs = {f"r{i}": node for i, node in enumerate(found)}
    return graph


def hoisted(graph: Graph, sizes: dict[str, int] | None = None) -> str:
    """The text after the pass and a ``prune``; the values stay."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for name, node in graph.inputs.items():
        shape = [d if isinstance(d, int) else (sizes or {})[str(d)] for d in node.type.shape]
        made = rng.normal(size=shape) if node.type.dtype.kind == "f" else rng.integers(0, 3, shape)
        inputs[name] = made.astype(node.type.dtype.numpy)
    before = evaluate(graph, inputs)
    hoist_invariants(graph)
    verify(graph, "hoist")
    dead_code(graph)
    verify(graph, "prune")
    for name, value in evaluate(graph, inputs).items():
        np.testing.assert_allclose(value, before[name], rtol=1e-12, atol=1e-12, err_msg=name)
    return re.sub(r"(graph body \d)\(.*\)", r"\1", re.sub(r"name=a\d", "name=A", str(graph)))


W, H, X = ("const", f64[3, 3]), ("carry", f64[3]), ("x", f64[LENGTH, 3])


def product(w: Node, x: Node) -> Node:
    return red.contract(w, x, spec="ab,b->a")


def test_a_product_of_inputs_is_one_product() -> None:
    graph = loop(
        lambda v: [ew.tanh(ew.add(v[2], ew.add(product(v[0], v[3]), v[1])))], w=W, b=("const", f64[3]), h=H, x=X
    )
    assert (
        hoisted(graph)
        == """\
graph f:
  v0 = input(name=h) : f64[3]
  v1 = input(name=w) : f64[3,3]
  v2 = input(name=x) : f64[5,3]
  v3 = contract(v1, v2, spec=ab,nb->na) : f64[5,3]
  v4 = input(name=b) : f64[3]
  v5 = broadcast(v4, shape=(5, 3), axes=(1,)) : f64[5,3]
  v6 = add(v3, v5) : f64[5,3]
  v7 = scan(v0, v6, body=<body 1: 4 nodes>, consts=0, carries=1, length=5, reverse=False) : (f64[3])
  v8 = result(v7, index=0) : f64[3]
  return r0=v8
    graph body 1:
      v0 = input(name=A) : f64[3]
      v1 = input(name=A) : f64[3]
      v2 = add(v0, v1) : f64[3]
      v3 = tanh(v2) : f64[3]
      return r0=v3"""
    )


def test_what_no_round_changes_is_computed_once() -> None:
    def made(v: list[Node]) -> list[Node]:
        w, h = v
        return [ew.mul(h, red.sum_(ew.exp(w), axes=(1,)))]

    text = hoisted(loop(made, w=W, h=H))
    assert "exp" in text.split("graph body")[0] and "exp" not in text.split("graph body")[1]


def test_a_carry_that_stays_is_a_constant() -> None:
    text = hoisted(loop(lambda v: [v[0], ew.mul(v[1], ew.exp(v[0]))], a=H, b=H))
    assert "carries=1" in text and "exp" in text.split("graph body")[0] and "r0=v0" in text


def test_a_carry_that_no_round_reads() -> None:
    """It is no sum that could be added up behind the loop."""
    assert "add" in hoisted(loop(lambda v: [ew.add(v[1], ew.exp(v[1]))], h=H, x=X))


def test_results_that_are_inputs_need_no_loop() -> None:
    def made(v: list[Node]) -> list[Node]:
        w, h, x = v
        return [ew.mul(h, x), x, st.transpose(w, perm=(1, 0)), st.slice_(x, start=(1,), size=(2,), step=(1,))]

    text = hoisted(loop(made, w=W, h=H, x=X))
    assert "(f64[3])" in text and "r1=v" in text


def test_products_that_only_results_need() -> None:
    def made(v: list[Node]) -> list[Node]:
        w, h, x = v
        h = ew.tanh(ew.add(h, x))
        return [h, ew.exp(ew.add(product(w, h), ew.mul(h, x)))]

    assert (
        hoisted(loop(made, reverse=True, w=W, h=H, x=X))
        == """\
graph f:
  v0 = input(name=h) : f64[3]
  v1 = input(name=x) : f64[5,3]
  v2 = scan(v0, v1, body=<body 1: 5 nodes>, consts=0, carries=1, length=5, reverse=True) : \
(f64[3], f64[5,3], f64[5,3])
  v3 = result(v2, index=0) : f64[3]
  v4 = input(name=w) : f64[3,3]
  v5 = result(v2, index=1) : f64[5,3]
  v6 = contract(v4, v5, spec=ab,nb->na) : f64[5,3]
  v7 = result(v2, index=2) : f64[5,3]
  v8 = add(v6, v7) : f64[5,3]
  v9 = exp(v8) : f64[5,3]
  return r0=v3, r1=v9
    graph body 1:
      v0 = input(name=A) : f64[3]
      v1 = input(name=A) : f64[3]
      v2 = add(v0, v1) : f64[3]
      v3 = tanh(v2) : f64[3]
      v4 = mul(v3, v1) : f64[3]
      return r0=v3, r1=v3, r2=v4"""
    )


def test_sums_over_the_rounds_of_outer_products() -> None:
    def made(v: list[Node]) -> list[Node]:
        h, total, bias, x = v
        outer = red.contract(h, x, spec="a,b->ab")
        return [ew.tanh(ew.add(h, x)), ew.add(total, outer), ew.add(bias, h)]

    assert (
        hoisted(loop(made, h=H, total=("carry", f64[3, 3]), bias=H, x=X))
        == """\
graph f:
  v0 = input(name=h) : f64[3]
  v1 = input(name=x) : f64[5,3]
  v2 = scan(v0, v1, body=<body 1: 4 nodes>, consts=0, carries=1, length=5, reverse=False) : (f64[3], f64[5,3])
  v3 = result(v2, index=0) : f64[3]
  v4 = input(name=total) : f64[3,3]
  v5 = result(v2, index=1) : f64[5,3]
  v6 = contract(v5, v1, spec=ca,cb->ab) : f64[3,3]
  v7 = add(v4, v6) : f64[3,3]
  v8 = input(name=bias) : f64[3]
  v9 = sum(v5, axes=(0,)) : f64[3]
  v10 = add(v8, v9) : f64[3]
  return r0=v3, r1=v7, r2=v10
    graph body 1:
      v0 = input(name=A) : f64[3]
      v1 = input(name=A) : f64[3]
      v2 = add(v0, v1) : f64[3]
      v3 = tanh(v2) : f64[3]
      return r0=v3, r1=v0"""
    )


def stays(made: Make, **operands: tuple[str, Any]) -> bool:
    graph = loop(made, **operands)
    before = str(graph)
    hoisted(graph)
    return str(graph) == before


def test_what_stays() -> None:
    square, narrow = ("carry", f64[3, 3]), ("carry", Type(f64))
    # A sum whose operands would take more room than the sum.
    assert stays(lambda v: [ew.add(v[0], red.contract(v[1], v[1], spec="ab,ab->")), ew.tanh(v[1])], s=narrow, h=square)
    # A sum that is read in the loop, or of each round.
    assert stays(lambda v: [ew.add(v[0], v[1]), ew.tanh(v[0])], s=H, x=H)
    assert stays(lambda v: [ew.add(v[0], v[1]), ew.add(v[0], v[1])], s=H, x=X)
    # Products of carries, and elementwise work on inputs.
    assert stays(lambda v: [product(v[0], v[1])], w=W, h=H)
    assert stays(lambda v: [ew.mul(v[0], ew.exp(v[1]))], h=H, x=X)


def test_loops_in_loops() -> None:
    """The product of the inner loop leaves both."""

    def inner(v: list[Node]) -> list[Node]:
        w, h, x = v
        return [ew.tanh(ew.add(h, product(w, x)))]

    def outer(v: list[Node]) -> list[Node]:
        w, h, xs = v
        body = Subgraph.of("inner", [f64[3, 3], f64[3], f64[3]], lambda _, values: inner(values))
        return results(scan(w, h, xs, body=body, consts=1, carries=1, length=4, reverse=False))

    graph = loop(outer, w=W, h=H, xs=("x", f64[LENGTH, 4, 3]))
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=node.type.shape) for name, node in graph.inputs.items()}  # type: ignore[arg-type]
    before = evaluate(graph, inputs)
    everywhere(hoist_invariants, graph)
    assert "contract" in str(graph).split("graph body")[0] and str(graph).count("contract") == 1
    np.testing.assert_allclose(evaluate(graph, inputs)["r0"], before["r0"], rtol=1e-12)


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_all_at_once(length: int, reverse: bool) -> None:
    """A batch along a named dim, indices into a table, linear functions of products."""
    n = dim("n")

    def made(v: list[Node]) -> list[Node]:
        w, table, h, total, x, k = v
        row = gather(table, k, lead=0)
        h = ew.tanh(ew.add(h, red.contract(ew.neg(w), row, spec="ab,nb->na")))
        part = ew.neg(red.contract(h, x, spec="na,nb->ab"))
        return [h, ew.add(total, ew.add(part, st.transpose(part, perm=(1, 0)))), red.sum_(h, axes=(0,)), x]

    operands = {"w": W, "table": W, "h": ("carry", f64[n, 3]), "total": ("carry", f64[3, 3])}
    xs = {"x": ("x", f64[length, n, 3]), "k": ("x", i64[length, n])}
    hoisted(loop(made, reverse=reverse, length=length, **operands, **xs), {"n": 2})


def test_the_gradient_of_a_recurrent_network_has_one_product_a_round() -> None:
    rng = np.random.default_rng(0)
    w = mlaot.parameters({k: rng.normal(size=(8, 8)).astype(np.float32) for k in ("of_input", "of_state", "out")})

    def net(x: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            h = np.tanh(x @ w["of_input"] + h @ w["of_state"])
            return h, h @ w["out"]

        return mlaot.scan(step, np.zeros(8, np.float32), x)[1]

    net.__annotations__ = {"x": mlaot.f32[6, 8]}

    def loss(y: Any, t: Any) -> Any:
        return np.mean((y - t) ** 2)

    loss.__annotations__ = {"y": mlaot.f32[6, 8], "t": mlaot.f32[6, 8]}
    model: Model = mlaot.model(net, loss=loss)
    graph = passes.run("m", trace(model)).graphs["train_step"]
    loops = [n for n in graph.nodes() if n.op is scan]
    assert [n.attrs["carries"] for n in loops] == [1, 1]  # no second forward pass, no gradients summed up in a loop
    for n in loops:
        inside = n.attrs["body"].graph.nodes()
        assert [m.op.name for m in inside].count("contract") == 1, str(graph)


def test_the_sum_of_a_cast_product() -> None:
    total = ("carry", f32[3, 3])

    def made(v: list[Node]) -> list[Node]:
        h, s, x = v
        outer = ew.cast(red.contract(h, x, spec="a,b->ab"), dtype=f32)
        return [ew.tanh(ew.add(h, x)), ew.add(s, outer)]

    graph = loop(made, h=H, s=total, x=X)
    text = str(graph)
    assert "cast" in text
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.normal(size=node.type.shape).astype(node.type.dtype.numpy) for name, node in graph.inputs.items()
    }  # type: ignore[arg-type]
    before = evaluate(graph, inputs)
    hoist_invariants(graph)
    np.testing.assert_allclose(evaluate(graph, inputs)["r1"], before["r1"], rtol=1e-5, atol=1e-6)


def test_a_start_that_is_not_zero_is_added() -> None:
    graph = loop(lambda v: [ew.add(v[0], v[1])], s=H, x=X)
    assert "add(v0, v2)" in hoisted(graph)
    graph = Graph("f")
    x = graph.input("x", f64[LENGTH, 3])
    body = Subgraph.of("body", [f64[3], f64[3]], lambda _, v: [ew.add(v[0], v[1])])
    zeros = fill(x, 0.0, f64[3])
    graph.outputs = {"s": results(scan(zeros, x, body=body, consts=0, carries=1, length=LENGTH, reverse=False))[0]}
    assert "add" not in hoisted(graph)
