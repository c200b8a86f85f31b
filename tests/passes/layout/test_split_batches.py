"""Batches of products that a reshape has merged are read where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Dim, Graph, Node, dim
from mlaot.loading import trace
from mlaot.ops import structure as st
from mlaot.ops.kinds import is_view
from mlaot.passes.layout.split_batches import parts_of

T, WIDTH = 7, 16
BATCH = dim("batch")


def attention(batch: Any, heads: int) -> Any:
    """Return attention as PyTorch writes it: time first, and an axis of examples times heads."""

    def model(x: Any) -> Any:
        rows = np.transpose(x, (1, 0, 2)) + 1.0
        q, k, v = (np.reshape(part, (T, -1, WIDTH)).transpose(1, 0, 2) for part in np.split(rows, 3, axis=-1))
        scores = np.matmul(q * 0.25, k.transpose(0, 2, 1))
        e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        return np.matmul(e / np.sum(e, axis=-1, keepdims=True), v)

    model.__annotations__ = {"x": mlaot.f32[batch, T, 3 * heads * WIDTH]}
    return mlaot.model(model)


def copying_reshapes(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes() if n.op is st.reshape and not is_view(n)]


@pytest.mark.parametrize("batch", [4, mlaot.dim("batch")])
def test_attention_of_batches_and_heads_copies_nothing(batch: Any) -> None:
    module = passes.run("m", trace(attention(batch, 2)))
    graph = module.graphs["forward"]
    assert not copying_reshapes(graph), graph
    x = np.random.default_rng(0).standard_normal((4, T, 96)).astype(np.float32)
    x = x[None] if batch == 4 else x  # examples of several rows have a dim for how many they are, too
    expected = evaluate(module.declared["forward"], {"x": x})["out"]
    np.testing.assert_allclose(evaluate(graph, {"x": x})["out"], expected, rtol=1e-5, atol=1e-6)


def test_reductions_and_elementwise_work_are_of_one_shape() -> None:
    """So that a softmax between the products is one kernel."""
    graph = passes.run("m", trace(attention(4, 2))).graphs["forward"]
    shapes = {n.arg(0).type.shape for n in graph.nodes() if n.op.reduces and n.op.name in ("sum", "max")}
    assert shapes == {(BATCH, 4, 2, T, T)}


def refined(source: tuple[Dim, ...], target: tuple[Dim, ...], axis: int) -> tuple[Dim, ...] | None:
    """Return what an axis of a reshape of a transposed value consists of."""
    graph = Graph("f")
    x = graph.input("x", mlaot.ir.Type(mlaot.ir.types.f32, source[::-1]))
    seen = st.transpose(x, perm=tuple(reversed(range(len(source)))))
    return parts_of(st.reshape(seen, shape=target), axis)


def test_parts_of_an_axis() -> None:
    assert refined((7, 4, 32), (7, 8, 16), 1) == (4, 2)
    assert refined((7, BATCH, 32), (7, 2 * BATCH, 16), 1) == (BATCH, 2)
    assert refined((2, 3, 4), (6, 4), 0) == (2, 3)
    assert refined((2, 3, 4), (6, 4), 1) is None  # one axis as it was
    assert refined((4, 6), (6, 4), 0) is None  # no axes that both shapes are made of
