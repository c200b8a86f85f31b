"""Products whose parts are read apart are split by gate, where elementwise work is all that follows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, verify
from mlaot.ir.module import Module
from mlaot.ir.types import f32, f64
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.frozen.split_gates import split_gates

UNITS = 16


def parts(x: Node, *sizes: int) -> list[Node]:
    starts = np.cumsum([0, *sizes])
    return [st.part(x, x.type.rank - 1, int(start), size) for start, size in zip(starts, sizes, strict=False)]


def combined(x: Node) -> Node:
    """Two gates."""
    first, second = parts(x, UNITS, UNITS)
    return ew.mul(ew.exp(first), ew.tanh(second))


def module(follow: Callable[[Node], Node], *, trains: bool = False, spec: str = "ac,bc->ab") -> Module:
    """What follows from a product of two inputs with weights."""
    graph, rng = Graph("forward"), np.random.default_rng(0)
    value = rng.normal(size=(2 * UNITS, 3) if "bc" in spec else (3, 2 * UNITS)).astype(np.float32)
    h, w = graph.input("h", f32[2, 3]), graph.input("w", f32[value.shape], parameter=True)
    graph.outputs["y"] = follow(red.contract(h, w, spec=spec))
    return Module("m", {"forward": graph}, {"w": value}, trains)


def split(made: Module) -> str:
    """The text after the pass, which changes no bit."""
    graph = made.graphs["forward"]
    h = np.random.default_rng(1).normal(size=(2, 3))

    def value() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        held = {name: made.parameters[name] for name in graph.inputs if name in made.parameters}
        return evaluate(graph, {"h": h, **held, **{n: np.ones(32) for n in graph.inputs if n == "b"}})["y"]

    before = value()
    split_gates(made)
    verify(graph, "gates")
    np.testing.assert_allclose(value(), before, rtol=1e-14)
    return str(graph)


@pytest.mark.parametrize("spec", ["ac,bc->ab", "ac,cb->ab"])
def test_gates_of_a_product_and_of_what_is_added(spec: str) -> None:
    def follow(x: Node) -> Node:
        bias = st.broadcast(x.graph.input("b", f32[32]), shape=(2, 32), axes=(1,))
        half = st.broadcast(x.graph.constant(0.5, f32), shape=(2, 32), axes=())
        return combined(ew.mul(ew.add(x, bias), half))

    assert (
        split(module(follow, spec=spec))
        == """\
graph forward:
  v0 = input(name=h) : f32[2,3]
  v1 = input(name=folded0, parameter=True) : f32[3,2,16]
  v2 = contract(v0, v1, spec=ac,cdb->adb) : f32[2,2,16]
  v3 = slice(v2, start=(0, 0, 0), size=(2, 1, 16), step=(1, 1, 1)) : f32[2,1,16]
  v4 = reshape(v3, shape=(2, 16)) : f32[2,16]
  v5 = input(name=b) : f32[32]
  v6 = broadcast(v5, shape=(2, 32), axes=(1,)) : f32[2,32]
  v7 = slice(v6, start=(0, 0), size=(2, 16), step=(1, 1)) : f32[2,16]
  v8 = add(v4, v7) : f32[2,16]
  v9 = const(value=0.5) : f32[]
  v10 = broadcast(v9, shape=(2, 16), axes=()) : f32[2,16]
  v11 = mul(v8, v10) : f32[2,16]
  v12 = exp(v11) : f32[2,16]
  v13 = slice(v2, start=(0, 1, 0), size=(2, 1, 16), step=(1, 1, 1)) : f32[2,1,16]
  v14 = reshape(v13, shape=(2, 16)) : f32[2,16]
  v15 = slice(v6, start=(0, 16), size=(2, 16), step=(1, 1)) : f32[2,16]
  v16 = add(v14, v15) : f32[2,16]
  v17 = mul(v16, v10) : f32[2,16]
  v18 = tanh(v17) : f32[2,16]
  v19 = mul(v12, v18) : f32[2,16]
  return y=v19"""
    )


UNCHANGED: dict[str, Callable[[Node], Node]] = {
    "read as a whole too": lambda x: st.concat(combined(x), ew.exp(x), axis=1),
    "of unequal size": lambda x: st.concat(*[ew.exp(p) for p in parts(x, 20, 12)], axis=1),
    "not at a multiple of its size": lambda x: ew.exp(st.part(x, 1, 8, 16)),
    "less than a vector": lambda x: ew.mul(*[ew.exp(p) for p in parts(x, 8, 8)]),
    "not only elementwise": lambda x: red.sum_(parts(x, 16, 16)[1], axes=(1,)),
    "of another dtype": lambda x: combined(ew.cast(x, dtype=f64)),
}


@pytest.mark.parametrize("follow", UNCHANGED.values(), ids=UNCHANGED)
def test_what_stays(follow: Callable[[Node], Node]) -> None:
    made = module(follow)
    before = str(made.graphs["forward"])
    assert split(made) == before


def test_what_trains_stays() -> None:
    made = module(combined, trains=True)
    before = str(made.graphs["forward"])
    assert split(made) == before
