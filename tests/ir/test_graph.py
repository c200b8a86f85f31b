"""Nodes and graphs: text form, hash-consing, union-find, deep chains, and what verify refuses."""

from __future__ import annotations

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.ir import Graph, Literal, Type, dim, topological, users, verify
from mlaot.ir.types import DTYPES, DType, bf16, boolean, f32, f64, holds_all, i8, i64, u8, u64
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Op


def small() -> Graph:
    graph = Graph("forward")
    x = graph.input("x", f32[dim("batch"), 64])
    graph.outputs["y"] = ew.relu(ew.add(x, x))
    return graph


def test_text_form() -> None:
    graph = small()
    p = graph.input("p", f32[3], parameter=True)
    graph.writes["p"] = ew.neg(p)
    assert (
        str(graph)
        == """\
graph forward:
  v0 = input(name=x) : f32[batch,64]
  v1 = add(v0, v0) : f32[batch,64]
  v2 = relu(v1) : f32[batch,64]
  v3 = input(name=p, parameter=True) : f32[3]
  v4 = neg(v3) : f32[3]
  return y=v2
  write p=v4"""
    )


def test_types_print() -> None:
    assert str(f32[2, 3]) == "f32[2,3]" and str(Type(f64)) == "f64[]" and str(f32[dim("n") * 2]) == "f32[n * 2]"
    assert f32[3] == Type(f32, (3,)) and f32[3] != f64[3]


def test_equal_nodes_are_one() -> None:
    graph = Graph("f")
    x, y = (graph.input(n, f32[4]) for n in "xy")
    assert ew.add(x, y) is ew.add(x, y) and ew.add(x, y) is not ew.add(y, x)
    assert red.sum_(x, axes=(0,)) is red.sum_(x, axes=(0,))
    assert ew.pow_(x, exponent=2.0) is not ew.pow_(x, exponent=3.0)
    assert graph.input("x", f32[4]) is x
    assert st.take(x, indices=st.indices([0, 1]), lead=0) is st.take(x, indices=st.indices(np.array([0, 1])), lead=0)
    assert st.take(x, indices=st.indices([0, 1]), lead=0) is not st.take(x, indices=st.indices([1, 0]), lead=0)


def test_constants_are_told_apart_by_their_bits() -> None:
    graph = Graph("f")
    nan = float("nan")
    assert graph.constant(0.0, f64) is not graph.constant(-0.0, f64)
    assert graph.constant(nan, f64) is graph.constant(nan, f64)
    assert graph.constant(1.0, f64) is not graph.constant(1.0, f32)
    assert graph.constant(1, f64) is graph.constant(1.0, f64) is graph.constant(True, f64)
    assert graph.constant(1, i64) is not graph.constant(1, f64)
    assert graph.constant([1.0, 2.0], f64) is not graph.constant([[1.0, 2.0]], f64)
    assert graph.constant(0.1, f32) is graph.constant(np.float32(0.1), f32)
    assert len({Literal(v, f64) for v in (0.0, -0.0, nan, -nan, 1.0)}) == 5


def test_literals_keep_their_numbers() -> None:
    array = np.array([1.0, 2.0])
    literal = Literal(array, f64)
    array[0] = 5.0
    assert literal.array.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError):
        literal.array[0] = 3.0


def test_find_follows_links_and_add_uses_representatives() -> None:
    graph = Graph("f")
    a, b, c = (graph.input(n, f32[2]) for n in "abc")
    used = ew.neg(a)
    graph.forward(a, b)
    graph.forward(b, c)
    assert a.find() is b.find() is c and used.arg(0) is c
    assert ew.neg(a) is not used and ew.neg(a) is ew.neg(c)
    graph.forward(a, c)
    assert c.forwarded is None


def test_forward_to_itself_is_nothing() -> None:
    graph = Graph("f")
    a, b = (graph.input(n, f32[2]) for n in "ab")
    graph.forward(a, b)
    graph.forward(b, a)
    assert a.find() is b and b.forwarded is None


def test_forward_refuses_another_type() -> None:
    graph = Graph("f")
    with pytest.raises(AssertionError, match="bug in mlaot"):
        graph.forward(graph.input("a", f32[2]), graph.input("b", f32[3]))


def test_a_deep_chain_is_no_problem() -> None:
    graph = Graph("f")
    x = graph.input("x", Type(f64))
    node = x
    for _ in range(50_000):
        node = ew.add(ew.neg(node), x)
    graph.outputs["y"] = node
    assert len(graph.nodes()) == 100_001
    verify(graph, "nothing")
    assert str(graph).count("\n") == 100_002


def test_order_is_arguments_first_and_follows_the_outputs() -> None:
    graph = Graph("f")
    x = graph.input("x", f32[2])
    a, b = ew.neg(x), ew.exp(x)
    graph.outputs = {"b": b, "a": a}
    assert graph.nodes() == [x, b, a] and topological([a]) == [x, a]
    assert users([x, a, b]) == {x: [a, b], a: [], b: []}
    double = ew.add(a, a)
    assert users([a, double])[a] == [double, double]


def test_verify_finds_a_cycle_through_forwarded() -> None:
    graph = small()
    y = graph.outputs["y"]
    y.forwarded = graph.nodes()[1]
    graph.nodes()[1].forwarded = y
    with pytest.raises(AssertionError, match=r"after mypass.*cycle through forwarded"):
        verify(graph, "mypass")


def test_verify_finds_a_loop_of_arguments() -> None:
    """x => x + 0 forwards a node to its own user."""
    graph = Graph("f")
    x = graph.input("x", f32[2])
    y = ew.exp(x)
    z = ew.neg(y)
    graph.outputs["z"] = z
    y.forwarded = z
    with pytest.raises(AssertionError, match="cycle"):
        verify(graph, "mypass")


def test_verify_finds_a_wrong_type() -> None:
    graph = small()
    graph.outputs["y"].type = f32[3]
    with pytest.raises(AssertionError, match=r"bug in mlaot: after mypass, graph forward: .*should be f32\[batch,64\]"):
        verify(graph, "mypass")


def test_verify_finds_a_stale_argument_of_another_type() -> None:
    graph = Graph("f")
    x, y = graph.input("x", f32[2]), graph.input("y", f32[3])
    graph.outputs["z"] = ew.neg(x)
    x.forwarded = y  # past Graph.forward, which would refuse
    with pytest.raises(AssertionError, match="should be"):
        verify(graph, "mypass")


def test_verify_finds_a_node_of_another_graph() -> None:
    graph, other = small(), small()
    graph.outputs["z"] = other.outputs["y"]
    with pytest.raises(AssertionError, match="belongs to another graph"):
        verify(graph, "mypass")


def test_verify_finds_bad_writes() -> None:
    graph = small()
    graph.writes["p"] = graph.outputs["y"]
    with pytest.raises(AssertionError, match="which is no input"):
        verify(graph, "mypass")
    graph.input("p", f32[3], parameter=True)
    with pytest.raises(AssertionError, match=r"written to 'p', a f32\[3\]"):
        verify(graph, "mypass")


def test_an_op_is_defined_once() -> None:
    with pytest.raises(AssertionError, match="op 'add' is defined twice"):
        Op("add", OPS["add"].type_rule, OPS["add"].reference)


def test_a_type_error_is_the_users() -> None:
    graph = Graph("f")
    with pytest.raises(MlaotError, match="operands must have one type"):
        ew.add(graph.input("a", f32[2]), graph.input("b", f32[3]))


@pytest.mark.parametrize("wide", DTYPES.values())
@pytest.mark.parametrize("narrow", DTYPES.values())
def test_a_dtype_holds_all_of_another(wide: DType, narrow: DType) -> None:
    """As NumPy says, which takes integers of 64 bits for safe in float64 and has no bfloat16."""
    if "bf16" in (wide.name, narrow.name):
        expected = wide == narrow or ((narrow in (boolean, i8, u8) or wide in (f32, f64)) and narrow.kind in "biu")
        expected |= narrow is bf16 and wide in (f32, f64)
        expected &= not (narrow.kind in "iu" and narrow.itemsize > 1 and wide is bf16)
    else:
        expected = np.can_cast(narrow.numpy, wide.numpy, "safe") and not (narrow in (i64, u64) and wide.kind == "f")
    assert holds_all(wide, narrow) == expected, (wide, narrow)
