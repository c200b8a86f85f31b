"""What lowering expects of a graph."""

from __future__ import annotations

from mlaot.ir import Graph
from mlaot.ir.types import f32, u8
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.kinds import is_view
from mlaot.ops.sorting import argsort, sort
from mlaot.passes.algebra.legalize import legalize


def product(rows: int, cut: bool) -> str:
    """w times a column of x, or a row."""
    graph = Graph("g")
    w, x = graph.input("w", f32[rows, 16]), graph.input("x", f32[16, 2] if cut else f32[2, 16])
    vector = (
        st.slice_(x, start=(0, 1), size=(16, 1), step=(1, 1))
        if cut
        else st.slice_(x, start=(1, 0), size=(1, 16), step=(1, 1))
    )
    graph.outputs["y"] = red.contract(w, st.reshape(vector, shape=(16,)), spec="ab,b->a")
    legalize(graph)
    return str(graph)


def test_a_column_is_gathered_for_a_large_matrix() -> None:
    assert "copy" in product(64, cut=True)
    assert "copy" not in product(4, cut=True)
    assert "copy" not in product(64, cut=False)


def order(axis: int, extent: int) -> str:
    """The order along an axis of three, the others being of 2 and 3."""
    graph = Graph("g")
    shape = [2, 3]
    shape.insert(axis, extent)
    graph.outputs["y"] = argsort(graph.input("x", f32[tuple(shape)]), axis=axis, descending=True)
    legalize(graph)
    return str(graph)


def test_a_long_axis_is_sorted_as_a_row() -> None:
    assert (
        "v1 = transpose(v0, perm=(0, 2, 1)) : f32[2,3,99]\n  v2 = copy(v1) : f32[2,3,99]\n"
        "  v3 = argsort(v2, axis=2, descending=True) : i64[2,3,99]\n  v4 = transpose(v3, perm=(0, 2, 1)) : i64[2,99,3]"
    ) in order(1, 99)
    assert "transpose(v3, perm=(2, 0, 1)) : i64[99,2,3]" in order(0, 99)
    assert "transpose" not in order(2, 99) + order(0, 8)


def test_values_are_sorted_as_rows_that_lie_in_memory() -> None:
    graph = Graph("g")
    x = graph.input("x", f32[3, 4])
    graph.outputs["y"] = sort(st.transpose(x, perm=(1, 0)), axis=1)
    legalize(graph)
    assert "v2 = copy(v1) : f32[4,3]\n  v3 = sort(v2, axis=1) : f32[4,3]\n" in str(graph)


def test_values_of_few_bits_are_sorted_as_wider_ones() -> None:
    graph = Graph("g")
    graph.outputs["y"] = sort(graph.input("x", u8[3, 4]), axis=1, descending=True)
    legalize(graph)
    assert "v1 = cast(v0, dtype=i32) : i32[3,4]\n  v2 = sort(v1, axis=1, descending=True) : i32[3,4]" in str(graph)
    assert "return y=v3" in str(graph)


def test_a_value_is_copied_once_whatever_its_axes_of_one_element() -> None:
    """As by a group normalization of one image, which reads it for the mean and beside the mean."""

    graph = Graph("g")
    x = st.transpose(graph.input("x", f32[16, 24, 8]), perm=(1, 0, 2))
    values = [ew.exp(st.reshape(x, shape=shape)) for shape in ((1, 24, 128), (24, 1, 128), (24, 128))]
    graph.outputs = {str(i): value for i, value in enumerate(values)}
    legalize(graph)
    assert sum(node.op is st.reshape and not is_view(node) for node in graph.nodes()) == 1
