"""Products with concatenations of what lies in memory are taken apart; others stay whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, verify
from mlaot.ir.module import Module
from mlaot.ir.types import f32, f64
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.nn import functional as F
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import rounding
from mlaot.ops import structure as st
from mlaot.passes.algebra.concat_products import concat_products
from mlaot.passes.algebra.legalize import legalize

from ...compiled import AVAILABLE, Library


def parted(graph: Graph) -> str:
    """The text after the pass, which changes no value beyond rounding."""
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=node.type.shape) for name, node in graph.inputs.items()}  # type: ignore[arg-type]
    before = evaluate(graph, inputs)
    concat_products(graph)
    verify(graph, "concat_products")
    for name, value in evaluate(graph, inputs).items():
        np.testing.assert_allclose(value, before[name], rtol=1e-12, atol=1e-12)
    return str(graph)


def cached(spec: str, query: tuple[int, ...], *, axis: int = 0, stored: bool = True) -> Graph:
    """A product of a computed query with a cache of 4 rows and a computed one."""
    graph = Graph("f")
    q, cache, new = graph.input("q", f64[query]), graph.input("cache", f64[4, 3]), graph.input("new", f64[1, 3])
    whole = st.concat(cache if stored else ew.exp(cache), ew.tanh(new), axis=axis)
    graph.outputs["y"] = red.contract(ew.exp(q), whole, spec=spec)
    return graph


def test_along_a_kept_label_the_products_are_concatenated() -> None:
    assert (
        parted(cached("ab,cb->ac", (2, 3)))
        == """\
graph f:
  v0 = input(name=q) : f64[2,3]
  v1 = exp(v0) : f64[2,3]
  v2 = input(name=cache) : f64[4,3]
  v3 = contract(v1, v2, spec=ab,cb->ac) : f64[2,4]
  v4 = input(name=new) : f64[1,3]
  v5 = tanh(v4) : f64[1,3]
  v6 = contract(v1, v5, spec=ab,cb->ac) : f64[2,1]
  v7 = concat(v3, v6, axis=1) : f64[2,5]
  return y=v7"""
    )


def test_along_a_summed_label_the_products_are_added() -> None:
    assert (
        parted(cached("ac,cb->ab", (2, 5)))
        == """\
graph f:
  v0 = input(name=q) : f64[2,5]
  v1 = exp(v0) : f64[2,5]
  v2 = slice(v1, start=(0, 0), size=(2, 4), step=(1, 1)) : f64[2,4]
  v3 = input(name=cache) : f64[4,3]
  v4 = contract(v2, v3, spec=ac,cb->ab) : f64[2,3]
  v5 = slice(v1, start=(0, 4), size=(2, 1), step=(1, 1)) : f64[2,1]
  v6 = input(name=new) : f64[1,3]
  v7 = tanh(v6) : f64[1,3]
  v8 = contract(v5, v7, spec=ac,cb->ab) : f64[2,3]
  v9 = add(v4, v8) : f64[2,3]
  return y=v9"""
    )


def test_what_stays() -> None:
    computed = cached("ab,cb->ac", (2, 3), stored=False)
    before = str(computed)
    assert parted(computed) == before
    graph = Graph("f")  # one product with weights is better than two
    x, w = graph.input("x", f64[2, 3]), graph.input("w", f64[6, 4])
    graph.outputs["y"] = red.contract(st.concat(x, ew.exp(x), axis=1), w, spec="ab,bc->ac")
    before = str(graph)
    assert parted(graph) == before
    graph = cached("cb,cb->cb", (5, 3))  # the label of both and of the result
    before = str(graph)
    assert parted(graph) == before


def decoder(heads: int, before: int, width: int) -> Any:
    def step(x: Any, keys: Any, values: Any) -> Any:
        q, k, v = (np.swapaxes(np.reshape(np.tanh(x * s), (1, heads, width)), 0, 1) for s in (0.5, 0.25, 1.0))
        k, v = np.concatenate([keys, k], 1), np.concatenate([values, v], 1)
        return F.scaled_dot_product_attention(q, k, v)

    cache = mlaot.f32[heads, before, width]
    step.__annotations__ = {"x": mlaot.f32[heads * width], "keys": cache, "values": cache}
    return mlaot.model(step)


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("before", [0, 1, 21])
def test_attention_copies_no_cache(isa: str, before: int, tmp_path: Path) -> None:
    model = decoder(2, before, 24)
    program = lower(passes.run("m", trace(model)))
    (procedure,) = program.procedures
    assert not any("concat" in line for k in procedure.kernels for line in k.doc), str(procedure)
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 48), "keys": (3, 2, before, 24), "values": (3, 2, before, 24)}
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found = Library({"m": program}, isa, tmp_path).call("m", "forward", inputs, {"batch": 3})
    expected = np.stack([model(*[inputs[name][i] for name in shapes]) for i in range(3)])
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("isa", [AVAILABLE[0], AVAILABLE[-1]])
def test_parts_are_written_into_the_whole(isa: str, tmp_path: Path) -> None:
    """Along every axis, of odd sizes, seen through views, read by others, twice, one inside of another."""
    graph = Graph("forward")
    x = graph.input("x", f32[3, 5, 7])
    a, b = ew.exp(x), ew.tanh(ew.mul(x, x))
    total = red.sum_(ew.mul(a, a), axes=(2,))

    def turned(node: Node) -> Node:
        return st.transpose(ew.sqrt(ew.exp(node)), perm=(1, 0, 2))

    graph.outputs = {
        "first": ew.copy(st.concat(a, b, axis=0)),
        "middle": st.concat(ew.add(a, b), ew.sub(a, b), x, axis=1),
        "last": red.sum_(st.concat(ew.mul(a, b), ew.neg(b), axis=2), axes=(0,)),
        "twice": st.concat(total, total, axis=1),
        "partly": st.concat(
            ew.cast(st.slice_(total, start=(0, 0), size=(3, 2), step=(1, 1)), dtype=f32), total, axis=1
        ),
        "inner": st.concat(st.concat(ew.log(a), a, axis=0), ew.abs_(b), axis=0),
        "turned": st.concat(turned(x), turned(ew.neg(x)), axis=1),
        "stack": st.stack(ew.relu(x), ew.abs_(x), axis=1),
        "behind": st.stack(rounding.floor(x), rounding.ceil(x), axis=3),
        "products": st.concat(red.contract(a, b, spec="abc,abd->acd"), red.contract(b, b, spec="abc,abd->acd"), axis=2),
    }

    legalize(graph)
    library = Library({"m": lower(Module("m", {"forward": graph}, {}, False))}, isa, tmp_path)
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)}
    found = library.call("m", "forward", inputs)
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_allclose(found[name], expected, rtol=2e-5, atol=1e-5, err_msg=name)
