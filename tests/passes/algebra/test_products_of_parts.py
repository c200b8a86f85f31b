"""Products with all parts of one tensor are joined; others stay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph
from mlaot.ir.types import f64
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.algebra.products_of_parts import products_of_parts


def graph_of(cuts: list[int], axis: int = 0, spec: str = "ac,bc->ab") -> Graph:
    graph = Graph("f")
    h, w = graph.input("h", f64[3, 4]), graph.input("w", f64[6, 4] if axis == 0 else f64[4, 6])
    for i, (start, end) in enumerate(itertools.pairwise(cuts)):
        graph.outputs[f"y{i}"] = red.contract(h, st.part(w, axis, start, end - start), spec=spec)
    return graph


@pytest.mark.parametrize(
    ("cuts", "axis", "spec", "products"),
    [
        ([0, 2, 6], 0, "ac,bc->ab", 1),
        ([0, 1, 2, 6], 1, "ac,cb->ba", 1),
        ([0, 2, 5], 0, "ac,bc->ab", 2),  # not all of it
        ([1, 3, 6], 0, "ac,bc->ab", 2),
        ([0, 6], 0, "ac,bc->ab", 1),
    ],
)
def test_products(cuts: list[int], axis: int, spec: str, products: int) -> None:
    graph, plain = graph_of(cuts, axis, spec), graph_of(cuts, axis, spec)
    products_of_parts.function(graph)
    assert sum(node.op is red.contract for node in graph.nodes()) == products
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=node.type.shape) for name, node in graph.inputs.items()}  # type: ignore[arg-type]
    for name, value in evaluate(plain, inputs).items():
        np.testing.assert_allclose(evaluate(graph, inputs)[name], value, rtol=1e-13)


def test_what_is_summed_stays() -> None:
    """Parts along the label that is summed are no parts of one product."""
    graph = Graph("f")
    h, w = graph.input("h", f64[3, 2]), graph.input("w", f64[6, 4])
    for i in range(3):
        graph.outputs[f"y{i}"] = red.contract(h, st.part(w, 0, 2 * i, 2), spec="ac,cb->ab")
    products_of_parts.function(graph)
    assert sum(node.op is red.contract for node in graph.nodes()) == 3
