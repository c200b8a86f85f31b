"""What lowering expects of a graph."""

from __future__ import annotations

from mlaot.ir import Graph
from mlaot.ir.types import f32
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
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
