"""Indices that are computed: which read each element in its order, so that a gather by them is a reshape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, dim
from mlaot.ir.types import DType, f32, i32, i64
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.base import full_like
from mlaot.ops.indexing import gather
from mlaot.passes.algebra.places import reads_all_in_order
from mlaot.passes.algebra.simplify import simplify

n, m = dim("n"), dim("m")


def counted(graph: Graph, axis: int, dtype: DType = i64, shape: Any = (n, m)) -> Node:
    return graph.add(st.iota, (), {"shape": shape, "axis": axis, "dtype": dtype})


def times(x: Node, of: Any) -> Node:
    """As exporters have it: the size as an array, reshaped and broadcast."""
    size = st.stack(x.graph.add(st.size, (), {"dim": of, "dtype": x.type.dtype}), axis=0)
    return ew.mul(st.broadcast(st.reshape(size, shape=()), shape=x.type.shape, axes=()), x)


def rows(graph: Graph) -> Node:
    return ew.add(times(counted(graph, 0), m), counted(graph, 1))


IN_ORDER: dict[str, Callable[[Graph], Node]] = {
    "rows": rows,
    "columns first": lambda g: ew.add(counted(g, 1), times(counted(g, 0), m)),
    "one row": lambda g: counted(g, 0, shape=(n * m,)),
    "with units": lambda g: st.broadcast(rows(g), shape=(n, 1, 1, m), axes=(0, 3)),
    "three": lambda g: ew.add(rows(g), full_like(rows(g), 0)),
}
OTHERS: dict[str, Callable[[Graph], Node]] = {
    "transposed": lambda g: ew.add(times(counted(g, 1), n), counted(g, 0)),
    "the other size": lambda g: ew.add(times(counted(g, 0), n), counted(g, 1)),
    "one behind": lambda g: ew.add(rows(g), full_like(rows(g), 1)),
    "one axis": lambda g: counted(g, 1),
    "squares": lambda g: ew.mul(counted(g, 0), counted(g, 0)),
    "as int32": lambda g: ew.add(times(counted(g, 0, i32), m), counted(g, 1, i32)),
    "twice": lambda g: ew.add(rows(g), counted(g, 1)),
    "a part": lambda g: counted(g, 0, shape=(n,)),
}


@pytest.mark.parametrize("name", [*IN_ORDER, *OTHERS])
def test_gather_in_order(name: str) -> None:
    graph = Graph("f")
    index = {**IN_ORDER, **OTHERS}[name](graph)
    assert reads_all_in_order(index, n * m) == (name in IN_ORDER)
    graph.input("y", f32[n, m])
    graph.outputs["r"] = gather(graph.input("x", f32[n * m, 3]), index, lead=0)
    given = {"x": np.arange(60, dtype=np.float32).reshape(20, 3), "y": np.zeros((4, 5), np.float32)}
    (expected,) = evaluate(graph, given).values()
    simplify(graph)
    assert ("gather" in str(graph)) == (name in OTHERS)
    np.testing.assert_array_equal(next(iter(evaluate(graph, given).values())), expected)
