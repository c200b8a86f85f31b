"""float16 and bfloat16 are stored narrow and computed in float32."""

from __future__ import annotations

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import DType, Graph, Type, verify
from mlaot.ir.types import bf16, boolean, f16, f32
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.comparison import where
from mlaot.passes.algebra.port_dtypes import port_dtypes
from mlaot.passes.algebra.upcast import upcast


def test_each_op_of_a_chain_rounds() -> None:
    graph = Graph("f")
    a, b = (graph.input(n, f16[4]) for n in "ab")
    graph.outputs["y"] = ew.add(ew.mul(a, b), a)
    upcast(graph)
    verify(graph, "widen")
    assert str(graph) == "\n".join(
        [
            "graph f:",
            "  v0 = input(name=a) : f16[4]",
            "  v1 = cast(v0, dtype=f32) : f32[4]",
            "  v2 = input(name=b) : f16[4]",
            "  v3 = cast(v2, dtype=f32) : f32[4]",
            "  v4 = mul(v1, v3) : f32[4]",
            "  v5 = round_f16(v4) : f32[4]",
            "  v6 = add(v5, v1) : f32[4]",
            "  v7 = cast(v6, dtype=f16) : f16[4]",
            "  return y=v7",
        ]
    )


def test_what_is_padded_and_repeated_is_widened_before() -> None:
    graph = Graph("f")
    x = graph.input("x", f16[4])
    padded = st.pad(x, graph.constant(0, f16), low=(1,), high=(1,), interior=(0,))
    seen = st.window(padded, axes=(0,), sizes=(3,), strides=(1,), dilations=(1,))
    graph.outputs["y"] = red.sum_(seen, axes=(1,))
    upcast(graph)
    verify(graph, "widen")
    assert [f"{n.op.name} {n.type}" for n in graph.nodes() if n.op.name in ("cast", "pad", "window")][-4:] == [
        "cast f32[]",
        "pad f32[6]",
        "window f32[4,3]",
        "cast f16[4]",
    ]


def test_chains_stay_wide_behind_views_and_choices() -> None:
    graph = Graph("f")
    a, choice = graph.input("a", f16[4]), graph.input("choice", boolean[4, 2])
    b = st.broadcast(ew.exp(a), shape=(4, 2), axes=(0,))
    graph.outputs["y"] = ew.mul(where(choice, b, st.broadcast(a, shape=(4, 2), axes=(0,))), b)
    upcast(graph)
    verify(graph, "widen")
    casts = [n for n in graph.nodes() if n.op is ew.cast and n.type.dtype is f16]
    assert casts == [graph.outputs["y"].find()]


def test_moves_stay_narrow() -> None:
    graph = Graph("f")
    a = graph.input("a", bf16[2, 4])
    graph.outputs["y"] = st.concat(st.transpose(a, perm=(1, 0)), st.transpose(a, perm=(1, 0)), axis=1)
    before = str(graph)
    upcast(graph)
    assert str(graph) == before


def test_what_is_computed_is_repeated_and_chosen_wide() -> None:
    graph = Graph("f")
    x, chosen = graph.input("x", f16[2, 4]), graph.input("chosen", boolean[2, 4])
    total = st.broadcast(red.sum_(ew.exp(x), axes=(1,)), shape=(2, 4), axes=(0,))
    graph.outputs["y"] = where(chosen, total, x)
    upcast(graph)
    verify(graph, "widen")
    assert str(graph) == "\n".join(
        [
            "graph f:",
            "  v0 = input(name=chosen) : bool[2,4]",
            "  v1 = input(name=x) : f16[2,4]",
            "  v2 = cast(v1, dtype=f32) : f32[2,4]",
            "  v3 = exp(v2) : f32[2,4]",
            "  v4 = round_f16(v3) : f32[2,4]",
            "  v5 = sum(v4, axes=(1,)) : f32[2]",
            "  v6 = round_f16(v5) : f32[2]",
            "  v7 = broadcast(v6, shape=(2, 4), axes=(0,)) : f32[2,4]",
            "  v8 = where(v0, v7, v2) : f32[2,4]",
            "  v9 = cast(v8, dtype=f16) : f16[2,4]",
            "  return y=v9",
        ]
    )


def test_a_cast_of_the_model_itself_rounds() -> None:
    """astype(f16).astype(f32) is what it says."""
    graph = Graph("f")
    x = graph.input("x", f32[3])
    graph.outputs["y"] = ew.cast(ew.cast(ew.exp(x), dtype=f16), dtype=f32)
    upcast(graph)
    found = evaluate(graph, {"x": np.array([0.1, 1.0, 2.0], np.float32)})["y"]
    assert (found == np.exp(np.array([0.1, 1.0, 2.0], np.float32)).astype(np.float16).astype(np.float32)).all()


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_no_arithmetic_is_left_narrow(dtype: DType) -> None:
    """Whatever the op, numbers are narrow only where they are moved, stored or cast; and they come out right."""
    graph = Graph("f")
    x, w = graph.input("x", dtype[3, 4]), graph.input("w", dtype[4, 2])
    product = red.contract(x, w, spec="ab,bc->ac")
    graph.outputs = {
        "sum": red.sum_(ew.tanh(product), axes=(1,)),
        "most": OPS["argmax"](product, axis=1),
        "less": OPS["less"](product, ew.neg(product)),
        "running": OPS["cumsum"](product, axis=0),
    }
    rng = np.random.default_rng(0)
    inputs = {k: dtype.array(rng.normal(size=n.type.shape)) for k, n in graph.inputs.items()}
    exact = evaluate(graph, inputs, wide=True)
    upcast(graph)
    verify(graph, "widen")
    for node in graph.nodes():
        if node.type.dtype is dtype:
            assert node.op.name in ("input", "cast"), node
    found = evaluate(graph, inputs)
    eps = 2.0**-10 if dtype is f16 else 2.0**-7
    for key, value in found.items():
        assert np.abs(value.astype(np.float64) - exact[key]).max() <= 2 * eps * np.abs(exact[key]).max()
    assert graph.outputs["sum"].find().type == Type(dtype, (3,))


def test_ports_of_bfloat16_are_float32() -> None:
    graph = Graph("f")
    w, x, n = graph.input("w", bf16[4], parameter=True), graph.input("x", bf16[4]), graph.input("n", f32[4])
    graph.outputs = {"y": ew.add(w, x), "n": n}
    port_dtypes(graph)
    verify(graph, "port_dtypes")
    assert {k: v.type.dtype for k, v in graph.inputs.items()} == {"w": bf16, "x": f32, "n": f32}
    assert list(graph.inputs) == ["w", "x", "n"]
    assert graph.outputs["y"].find().type == f32[4]


def test_counting_is_wide() -> None:
    graph = Graph("f")
    graph.outputs["y"] = graph.add(OPS["iota"], (), {"shape": (5,), "axis": 0, "dtype": f16})
    upcast(graph)
    assert [node.op.name for node in graph.nodes()] == ["iota", "cast"]
    assert evaluate(graph, {})["y"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_every_op_rounds_as_if_it_were_alone(dtype: DType) -> None:
    """Whatever is computed behind it or stored beside it."""
    graph = Graph("f")
    a, b = (graph.input(n, dtype[4]) for n in "ab")
    total = ew.add(a, b)
    graph.outputs = {"floor": OPS["floor"](total), "equal": OPS["equal"](total, a), "rest": ew.sub(total, a)}
    inputs = {"a": dtype.array([1, 2048, 0.1, 3]), "b": dtype.array([-1e-4, 1, 1e-3, 4097])}
    expected = evaluate(graph, inputs)
    upcast(graph)
    verify(graph, "widen")
    found = evaluate(graph, inputs)
    assert all((found[k] == expected[k]).all() for k in found)
