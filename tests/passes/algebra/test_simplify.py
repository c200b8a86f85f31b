"""Each rule of ``simplify``: the text before and after, what it leaves alone, and bits that do not change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, dim, verify
from mlaot.ir.types import f32, f64, i8, i16, i64, u8
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.indexing import gather
from mlaot.ops.quantized import quantize
from mlaot.ops.rounding import round_
from mlaot.ops.sorting import argsort
from mlaot.ops.trees import tree_ensemble
from mlaot.passes.algebra.simplify import RULES, simplify

from ...ops.forests import awkward_rows, random_forest
from ...ops.test_c import special

Array = np.ndarray[Any, Any]
Build = Callable[[Node, Node], Node]


def simplified(build: Build, shape: tuple[Any, ...] = (4,)) -> str:
    """The lines of the graph after the pass, without the inputs' and the name's."""
    graph = graph_of(build, shape)
    simplify(graph)
    verify(graph, "simplify")
    lines = str(graph).splitlines()[1:]
    return "\n".join(line.strip() for line in lines if " = input(" not in line)


def graph_of(build: Build, shape: tuple[Any, ...] = (4,)) -> Graph:
    graph = Graph("f")
    x, y = graph.input("x", f64[shape]), graph.input("y", f64[shape])
    graph.outputs["r"] = build(x, y)
    return graph


def cast_f32(x: Node) -> Node:
    return ew.cast(x, dtype=f32)


def step(x: Node) -> Node:
    return ew.cast(ew.step(x), dtype=i8)


def number(value: float) -> Build:
    return lambda x, y: full_like(x, value)


FIRES: dict[str, tuple[Build, str]] = {
    "x * 1": (lambda x, y: ew.mul(x, full_like(x, 1.0)), "return r=v0"),
    "1 * x": (lambda x, y: ew.mul(full_like(x, 1.0), x), "return r=v0"),
    "x / 1": (lambda x, y: ew.div(x, full_like(x, 1.0)), "return r=v0"),
    "x - 0": (lambda x, y: ew.sub(x, full_like(x, 0.0)), "return r=v0"),
    "x + -0": (lambda x, y: ew.add(x, full_like(x, -0.0)), "return r=v0"),
    "-(0) + x": (lambda x, y: ew.add(ew.neg(full_like(x, 0.0)), x), "return r=v0"),
    "x * -1": (lambda x, y: ew.mul(x, full_like(x, -1.0)), "v1 = neg(v0) : f64[4]\nreturn r=v1"),
    "x + -y": (lambda x, y: ew.add(x, ew.neg(y)), "v2 = sub(v0, v1) : f64[4]\nreturn r=v2"),
    "-y + x": (lambda x, y: ew.add(ew.neg(y), x), "v2 = sub(v0, v1) : f64[4]\nreturn r=v2"),
    "x + y * -1": (
        lambda x, y: ew.add(x, ew.mul(y, full_like(y, -1.0))),
        "v2 = sub(v0, v1) : f64[4]\nreturn r=v2",
    ),
    "x - -y": (lambda x, y: ew.sub(x, ew.neg(y)), "v2 = add(v0, v1) : f64[4]\nreturn r=v2"),
    "--x": (lambda x, y: ew.neg(ew.neg(x)), "return r=v0"),
    "quantize(round(x))": (
        lambda x, y: quantize(round_(x), dtype=u8),
        "v1 = quantize(v0, dtype=u8) : u8[4]\nreturn r=v1",
    ),
    "quantize(round(x) + 3)": (
        lambda x, y: quantize(ew.add(round_(x), full_like(x, 3.0)), dtype=u8),
        "v1 = quantize(v0, dtype=u8, zero=3) : u8[4]\nreturn r=v1",
    ),
    "quantize(round(x) + 0.5)": (
        lambda x, y: quantize(ew.add(round_(x), full_like(x, 0.5)), dtype=u8),
        "v1 = round(v0) : f64[4]\nv2 = const(value=0.5) : f64[]\nv3 = broadcast(v2, shape=(4,), axes=()) : f64[4]\n"
        "v4 = add(v1, v3) : f64[4]\nv5 = quantize(v4, dtype=u8) : u8[4]\nreturn r=v5",
    ),
    "relu(relu(x))": (lambda x, y: ew.relu(ew.relu(x)), "v1 = relu(v0) : f64[4]\nreturn r=v1"),
    "maximum(x, 0)": (lambda x, y: ew.maximum(x, full_like(x, 0.0)), "v1 = relu(v0) : f64[4]\nreturn r=v1"),
    "x**1": (lambda x, y: ew.pow_(x, exponent=1.0), "return r=v0"),
    "x**0": (
        lambda x, y: ew.pow_(x, exponent=0.0),
        "v0 = const(value=1.0) : f64[]\nv1 = broadcast(v0, shape=(4,), axes=()) : f64[4]\nreturn r=v1",
    ),
    "x**-1": (
        lambda x, y: ew.pow_(x, exponent=-1.0),
        "v0 = const(value=1.0) : f64[]\nv1 = broadcast(v0, shape=(4,), axes=()) : f64[4]\n"
        "v3 = div(v1, v2) : f64[4]\nreturn r=v3",
    ),
    "cast to itself": (lambda x, y: ew.cast(x, dtype=f64), "return r=v0"),
    "cast back": (
        lambda x, y: ew.cast(ew.cast(cast_f32(x), dtype=f64), dtype=f32),
        "v1 = cast(v0, dtype=f32) : f32[4]\nreturn r=v1",
    ),
    "cast on": (
        lambda x, y: ew.cast(ew.cast(step(x), dtype=i16), dtype=f32),
        "v1 = step(v0) : f64[4]\nv2 = cast(v1, dtype=i8) : i8[4]\nv3 = cast(v2, dtype=f32) : f32[4]\nreturn r=v3",
    ),
    "add(x)": (lambda x, y: ew.add(x), "return r=v0"),
    "sum over nothing": (lambda x, y: red.sum_(x, axes=()), "return r=v0"),
    "broadcast to itself": (lambda x, y: st.broadcast(x, shape=(4,), axes=(0,)), "return r=v0"),
    "broadcast twice": (
        lambda x, y: st.broadcast(st.broadcast(x, shape=(4, 3), axes=(0,)), shape=(2, 4, 3), axes=(1, 2)),
        "v1 = broadcast(v0, shape=(2, 4, 3), axes=(1,)) : f64[2,4,3]\nreturn r=v1",
    ),
    "exp(broadcast(x))": (
        lambda x, y: ew.exp(st.broadcast(x, shape=(3, 4), axes=(1,))),
        "v1 = exp(v0) : f64[4]\nv2 = broadcast(v1, shape=(3, 4), axes=(1,)) : f64[3,4]\nreturn r=v2",
    ),
    "f(reshape(x), reshape(y))": (
        lambda x, y: ew.sub(*(st.reshape(n, shape=(4, 1)) for n in (x, y))),
        "v2 = sub(v0, v1) : f64[4]\nv3 = reshape(v2, shape=(4, 1)) : f64[4,1]\nreturn r=v3",
    ),
    "transpose twice": (
        lambda x, y: st.transpose(st.transpose(st.broadcast(x, shape=(3, 4), axes=(1,)), perm=(1, 0)), perm=(1, 0)),
        "v1 = broadcast(v0, shape=(3, 4), axes=(1,)) : f64[3,4]\nreturn r=v1",
    ),
    "reshape twice": (lambda x, y: st.reshape(st.reshape(x, shape=(2, 2)), shape=(4,)), "return r=v0"),
    "argsort(x)[:2]": (
        lambda x, y: st.slice_(argsort(x, axis=0, descending=True), start=(0,), size=(2,), step=(1,)),
        "v1 = argsort(v0, axis=0, descending=True, places=(0, 2)) : i64[4]\n"
        "v2 = slice(v1, start=(0,), size=(2,), step=(1,)) : i64[2]\nreturn r=v2",
    ),
    "argsort(x)[1:3]": (
        lambda x, y: st.slice_(argsort(x, axis=0), start=(1,), size=(2,), step=(1,)),
        "v1 = argsort(v0, axis=0, places=(1, 3)) : i64[4]\n"
        "v2 = slice(v1, start=(1,), size=(2,), step=(1,)) : i64[2]\nreturn r=v2",
    ),
    "argsort(x)[3:]": (
        lambda x, y: st.slice_(argsort(x, axis=0), start=(3,), size=(1,), step=(1,)),
        "v1 = argsort(v0, axis=0, places=(3, 4)) : i64[4]\n"
        "v2 = slice(v1, start=(3,), size=(1,), step=(1,)) : i64[1]\nreturn r=v2",
    ),
    "take of everything": (lambda x, y: st.take(x, indices=st.indices(np.arange(4)), lead=0), "return r=v0"),
    "take of everything as a matrix": (
        lambda x, y: st.take(x, indices=st.indices(np.arange(4).reshape(2, 2)), lead=0),
        "v1 = reshape(v0, shape=(2, 2)) : f64[2,2]\nreturn r=v1",
    ),
}

STAYS: dict[str, Build] = {
    "x - [0, 0, -0, -0]": lambda x, y: ew.sub(x, x.graph.constant(np.array([0.0, 0.0, -0.0, -0.0]), f64)),
    "maximum(x, [0, -0, 0, 0])": lambda x, y: ew.maximum(x, x.graph.constant(np.array([0.0, -0.0, 0.0, 0.0]), f64)),
    "x * 0": lambda x, y: ew.mul(x, full_like(x, 0.0)),
    "x + 0": lambda x, y: ew.add(x, full_like(x, 0.0)),
    "x - -0": lambda x, y: ew.sub(x, full_like(x, -0.0)),
    "x - x": lambda x, y: ew.sub(x, x),
    "cast that rounds": lambda x, y: ew.cast(ew.cast(x, dtype=f32), dtype=f64),
    "cast that saturates": lambda x, y: ew.cast(ew.cast(ew.cast(ew.sign(x), dtype=i8), dtype=f32), dtype=u8),
    "x / x": lambda x, y: ew.div(x, x),
    "0 / x": lambda x, y: ew.div(full_like(x, 0.0), x),
    "0 - x": lambda x, y: ew.sub(full_like(x, 0.0), x),
    "maximum(x, -0)": lambda x, y: ew.maximum(x, full_like(x, -0.0)),
    "maximum(x, 1)": lambda x, y: ew.maximum(x, full_like(x, 1.0)),
    "minimum(x, 0)": lambda x, y: ew.minimum(x, full_like(x, 0.0)),
    "x == x": lambda x, y: ew.is_equal(x, x),
    "x * y / y": lambda x, y: ew.div(ew.mul(x, y), y),
    "x + y - y": lambda x, y: ew.sub(ew.add(x, y), y),
    "log(exp(x))": lambda x, y: ew.log(ew.exp(x)),
    "x**0.5 * x**0.5": lambda x, y: ew.mul(ew.pow_(x, exponent=0.5), ew.pow_(x, exponent=0.5)),
    "x**2": lambda x, y: ew.pow_(x, exponent=2.0),
    "f(reshape(x), y) of another shape": lambda x, y: ew.exp(st.reshape(x, shape=(2, 2))),
    "argsort(x)[1:]": lambda x, y: st.slice_(argsort(x, axis=0), start=(1,), size=(3,), step=(1,)),
    "argsort(x)[:3]": lambda x, y: st.slice_(argsort(x, axis=0), start=(0,), size=(3,), step=(1,)),
    "argsort(x)[::2]": lambda x, y: st.slice_(argsort(x, axis=0), start=(0,), size=(2,), step=(2,)),
    "take in another order": lambda x, y: st.take(x, indices=st.indices([1, 0, 2, 3]), lead=0),
    "take of a part": lambda x, y: st.take(x, indices=st.indices([0, 1]), lead=0),
    "x * nan": lambda x, y: ew.mul(x, full_like(x, float("nan"))),
}


@pytest.mark.parametrize("name", FIRES)
def test_rule_fires(name: str) -> None:
    build, after = FIRES[name]
    assert simplified(build) == after


@pytest.mark.parametrize("name", STAYS)
def test_what_is_false_for_some_bits_stays(name: str) -> None:
    graph = graph_of(STAYS[name])
    before = str(graph)
    simplify(graph)
    assert str(graph) == before


@pytest.mark.parametrize("name", [*FIRES, *STAYS])
def test_simplify_is_bit_exact(name: str) -> None:
    """On special values, each with each: the same bits before and after; one nan is as good as another."""
    build = FIRES[name][0] if name in FIRES else STAYS[name]
    values = special(f64)
    pairs = np.array(list(product(values, values)))
    x, y = np.resize(pairs[:, 0], (len(pairs) // 4, 4)), np.resize(pairs[:, 1], (len(pairs) // 4, 4))
    for row in range(0, len(x), 3):
        graph = graph_of(build)
        inputs = {"x": x[row], "y": y[row]}
        before = evaluate(graph, inputs)["r"]
        simplify(graph)
        after = evaluate(graph, inputs)["r"]
        same = (before == after) & (np.signbit(before) == np.signbit(after)) | np.isnan(before) & np.isnan(after)
        if "maximum" in name:  # NumPy's own maximum(0, -0) may be either
            same |= (before == 0) & (after == 0)
        assert same.all(), f"{inputs}: {before} became {after}"


def test_the_first_of_many_are_chosen() -> None:
    def build(start: int) -> Build:
        return lambda x, y: st.slice_(argsort(x, axis=0, descending=True), start=(start,), size=(2,), step=(1,))

    first = "v1 = argsort(v0, axis=0, descending=True, count=2) : i64[2]\nreturn r=v1"
    assert simplified(build(0), (100,)) == first
    further = (
        "v1 = argsort(v0, axis=0, descending=True, count=3) : i64[3]\n"
        "v2 = slice(v1, start=(1,), size=(2,), step=(1,)) : i64[2]\nreturn r=v2"
    )
    assert simplified(build(1), (150,)) == further
    assert "places=(30, 32)" in simplified(build(30), (99,))
    assert "places=(0, 2)" in simplified(build(0), (8,))


def test_trees_read_rows_as_they_are_given() -> None:
    """Of float32, though results are float64; not where a cast rounds."""
    found = random_forest(np.random.default_rng(0), [3], mixed_nan=True)
    wide, narrow = Graph("f"), Graph("g")
    x, y = wide.input("x", f32[4, 5]), narrow.input("y", f64[4, 5])
    wide.outputs["r"] = tree_ensemble(ew.cast(x, dtype=f64), forest=found, aggregate="sum")
    narrow.outputs["r"] = tree_ensemble(ew.cast(y, dtype=f32), forest=found, aggregate="sum")
    given = awkward_rows(np.random.default_rng(1), (4, 5), np.float32)
    before = evaluate(wide, {"x": given})["r"]
    for graph in (wide, narrow):
        simplify(graph)
        verify(graph, "simplify")
    assert wide.outputs["r"].find().arg(0) is x and narrow.outputs["r"].find().arg(0).op is ew.cast
    after = evaluate(wide, {"x": given})["r"]
    assert before.dtype == after.dtype == np.float64 and before.tobytes() == after.tobytes()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("places, taps, stride, dilation, first", [(7, 3, 2, 1, 0), (5, 2, 1, 3, 4), (1, 4, 1, 2, 1)])
def test_frames_by_indices_are_windows(
    places: int, taps: int, stride: int, dilation: int, first: int, transposed: bool
) -> None:
    index = first + stride * np.arange(places)[:, None] + dilation * np.arange(taps)
    index = index.T if transposed else index
    graph = Graph("f")
    x = graph.input("x", f64[20, 3])
    graph.outputs["r"] = gather(x, graph.constant(index, i64), lead=0)
    given = np.random.default_rng(0).normal(size=(20, 3))
    simplify(graph)
    verify(graph, "simplify")
    ops = {node.op for node in graph.nodes()}
    assert gather not in ops and (st.window in ops or places == 1)
    np.testing.assert_array_equal(evaluate(graph, {"x": given})["r"], given[index])


@pytest.mark.parametrize("index", [[0, 2, 3], [[0, 1], [1, 3]], [[0, 1], [0, 1]], [3, 2, 1], [-1, 0], [8, 20]])
def test_other_indices_are_gathered(index: Any) -> None:
    """Those out of steps, in steps of none or back, from the end, and those that a gather moves inside."""
    graph = Graph("f")
    x = graph.input("x", f64[20, 3])
    graph.outputs["r"] = gather(x, graph.constant(np.array(index), i64), lead=0)
    simplify(graph)
    assert graph.outputs["r"].find().op is gather


def test_rows_in_steps_are_a_slice() -> None:
    graph = Graph("f")
    x = graph.input("x", f64[20, 3])
    graph.outputs["r"] = gather(x, graph.constant(np.arange(3, 18, 4), i64), lead=0)
    simplify(graph)
    assert "slice(v0, start=(3, 0), size=(4, 3), step=(4, 1))" in str(graph)


def test_constants_go_right() -> None:
    after = simplified(lambda x, y: ew.maximum(full_like(x, 2.0), x))
    assert after == (
        "v1 = const(value=2.0) : f64[]\nv2 = broadcast(v1, shape=(4,), axes=()) : f64[4]\n"
        "v3 = maximum(v0, v2) : f64[4]\nreturn r=v3"
    )


def test_named_dims_are_no_obstacle() -> None:
    assert simplified(lambda x, y: ew.mul(x, full_like(x, 1.0)), (dim("batch"), 3)) == "return r=v0"


def test_rules_say_their_law() -> None:
    for rule in {r for some in RULES.values() for r in some}:
        assert "=>" in (rule.__doc__ or ""), rule.__name__


def test_one_is_one_in_every_type() -> None:
    graph = Graph("f")
    x = graph.input("x", f32[2])
    graph.outputs["r"] = ew.mul(x, full_like(x, 1.0))
    simplify(graph)
    assert graph.outputs["r"].find() is x
