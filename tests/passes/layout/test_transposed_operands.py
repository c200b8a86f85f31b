"""Operands of products stored the other way round: what is computed stays, and lanes run along the columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.nest.statements import For, walk
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.layout.transposed_operands import adjacent, values_transposed
from mlaot.schedule.contraction import contraction_of

from ...compiled import AVAILABLE, Library

HEADS, WIDTH, KEYS = 3, 24, 37


def scores(rows: int, *, shift: float = 0.5) -> Any:
    """Attention scores between heads that lie side by side in rows, as a projection leaves them."""

    def model(q: Any, k: Any) -> Any:
        heads = [np.reshape(x + shift, (-1, HEADS, WIDTH)).transpose(1, 0, 2) for x in (q, k)]
        return np.matmul(heads[0], heads[1].transpose(0, 2, 1))

    model.__annotations__ = {"q": mlaot.f32[rows, HEADS * WIDTH], "k": mlaot.f32[KEYS, HEADS * WIDTH]}
    return mlaot.model(model)


def graph_of(declared: Any) -> Graph:
    return passes.run("m", trace(declared)).graphs["forward"]


def copies(graph: Graph) -> int:
    return sum(node.op is ew.copy for node in graph.nodes() if node not in graph.roots())


def test_only_where_many_rows_read_them() -> None:
    assert copies(graph_of(scores(40))) == 1
    assert copies(graph_of(scores(4))) == 0


def times_weights(columns: int) -> Any:
    """Rows of 40 numbers times frozen weights; the places of the rows come last."""
    w = np.random.default_rng(0).normal(size=(columns, 40)).astype(np.float32)

    @mlaot.model
    def model(x: mlaot.f32[3, 33, 40]) -> Any:
        return np.einsum("bpk,nk->bnp", x, w)

    return model


def test_what_meets_frozen_weights_stays() -> None:
    """Their own columns lie along the lanes, however many there are."""
    assert [copies(graph_of(times_weights(columns))) for columns in (4, 16, 96)] == [0, 0, 0]


def test_what_callers_give_is_no_weight() -> None:
    @mlaot.model
    def products(a: mlaot.f32[32, 64], b: mlaot.f32[24, 64]) -> Any:
        return a @ b.T

    assert copies(graph_of(products)) == 1


def test_weights_and_columns_that_lie_side_by_side_stay() -> None:
    w = mlaot.Parameter("w", np.ones((64, 64), np.float32))

    @mlaot.model
    def weights(x: mlaot.f32[32, 64]) -> Any:
        return x @ w.T

    @mlaot.model
    def columns(a: mlaot.f32[32, 64], b: mlaot.f32[64, 48]) -> Any:
        return (a + 1) @ (b + 1)

    @mlaot.model
    def filters(x: mlaot.f32[20, 100], w: mlaot.f32[20, 30, 20]) -> Any:
        return np.einsum("cpk,cok->op", mlaot.window(x + 1, (1,), (20,)), w)

    assert copies(graph_of(weights)) == copies(graph_of(columns)) == copies(graph_of(filters)) == 0


@pytest.mark.parametrize("isa", AVAILABLE)
def test_it_computes_the_same(isa: str, tmp_path: Path) -> None:
    modules = {rows: passes.run("m", trace(scores(rows))) for rows in (16, 40)}
    programs = {str(rows): lower(module) for rows, module in modules.items()}
    library = Library(programs, isa, tmp_path)
    rng = np.random.default_rng(0)
    for rows, module in modules.items():
        q, k = (rng.normal(size=(1, n, HEADS * WIDTH)).astype(np.float32) for n in (rows, KEYS))
        expected = evaluate(module.graphs["forward"], {"q": q, "k": k}, wide=True)
        found = library.call(str(rows), "forward", {"q": q, "k": k}, {"batch": 1})
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5)
        kernels = [kernel for p in programs[str(rows)].procedures for kernel in p.kernels]
        nests = [kernel.nest for kernel in kernels if kernel.nest.name == "rows"]
        (turned,) = [nest for nest in nests if any(isinstance(s, For) and s.step > 1 for s in walk(nest.body))]
        assert "copy" in turned.doc[0] and sum(isinstance(s, For) for s in walk(turned.body)) == 5
        (product,) = [contraction_of(kernel.nest) for kernel in kernels if kernel.nest.is_tiled]
        assert product.lanes == "j" and all(axis.name != "j" for axis in product.summed)


def test_weights_that_are_trained_on_many_rows() -> None:
    """They are copied at each step, for the pass that reads them along the sum."""

    def products(rows: int) -> list[Node]:
        w = mlaot.Parameter("w", np.ones((32, 64), np.float32))
        batch = mlaot.dim("batch")

        def model(x: Any) -> Any:
            return np.tanh(np.tanh(x) @ w.T)

        model.__annotations__ = {"x": mlaot.f32[batch, rows, 64]}
        module = passes.run("m", trace(mlaot.model(loss=lambda y: np.sum(y * y, axis=(1, 2)), parameters=[w])(model)))
        return [n for n in module.graphs["train_step"].nodes() if n.op is red.contract]

    assert any(a.find().op is ew.copy for n in products(64) for a in n.args)
    assert not any(a.find().op is ew.copy for n in products(8) for a in n.args)


def test_gradients_of_products_need_none() -> None:
    w = mlaot.Parameter("w", np.ones((32, 64), np.float32))
    batch = mlaot.dim("batch")

    def model(x: Any) -> Any:
        return np.tanh(x @ w.T)

    model.__annotations__ = {"x": mlaot.f32[batch, 64]}
    module = passes.run("m", trace(mlaot.model(loss=lambda y: np.sum(y * y, axis=1))(model)))
    for graph in module.graphs.values():
        products = [n for n in graph.nodes() if n.op is red.contract]
        assert not any(a.find().op is ew.copy for n in products for a in n.args)


def test_a_reshape_to_a_scalar_lies_along_no_axis() -> None:
    """Random graphs have them: products of arrays of one element."""
    graph = Graph("m")
    x = graph.input("x", Type(mlaot.f32, (1,)))
    scalar = st.reshape(x, shape=())
    assert adjacent(scalar) is None and adjacent(x) == 0
    graph.outputs = {"y": red.contract(scalar, x, spec=",a->a")}
    assert values_transposed(graph.outputs["y"]) is None
    np.testing.assert_array_equal(evaluate(graph, {"x": np.float32([3])})["y"], [9])


def values(steps: int, heads: int, width: int) -> Any:
    """The second product of attention: rows of values lie as far apart as all heads together are wide."""

    def model(weights: Any, v: Any) -> Any:
        rows = np.reshape(v + 1, (steps, heads, width)).transpose(1, 0, 2)
        return np.matmul(weights + 1, rows)

    model.__annotations__ = {"weights": mlaot.f32[heads, 32, steps], "v": mlaot.f32[steps, heads * width]}
    return mlaot.model(model)


def test_rows_that_fall_into_few_sets_of_the_cache_are_copied() -> None:
    """Of 64 rows that lie 4,096 bytes apart a cache of 4,096 bytes a way keeps few; of 60 others all."""
    assert copies(graph_of(values(64, 64, 16))) == 1
    assert copies(graph_of(values(60, 65, 16))) == copies(graph_of(values(4, 64, 16))) == 0


VIEWS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], tuple[int, ...], int]] = {
    "steps in both": (lambda x, y: x[:, ::2] @ y[:, ::2], (12, 32), (16, 38), 1),
    "columns backwards": (lambda x, y: x @ y[:, ::-1], (12, 16), (16, 19), 1),
    "sums in steps": (lambda x, y: x @ y[:, ::2].T, (12, 16), (19, 32), 1),
    "rows and columns in steps": (lambda x, y: x[:, ::3].T @ y[:, ::3], (16, 36), (16, 57), 1),
    "squared distances": (lambda x, y: ((x[:, None, ::2] - y[None, :, ::2]) ** 2).sum(-1), (12, 32), (19, 32), 1),
    "few rows": (lambda x, y: x[:, ::2] @ y[:, ::2], (3, 32), (16, 38), 0),
    "rows in steps": (lambda x, y: x[::2] @ y, (24, 16), (16, 19), 0),
    "results across": (lambda x, y: np.einsum("dae,bde->bea", x, y[:, :, :8]), (16, 12, 8), (12, 16, 9), 0),
}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_products_of_views_have_vectors(isa: str, tmp_path: Path) -> None:
    """Where no axis suits the lanes, one operand is copied, if several rows of the other read it."""
    modules = {}
    for name, (function, *shapes, _) in VIEWS.items():

        def model(x: Any, y: Any, function: Callable[[Any, Any], Any] = function) -> Any:
            return function(x, y)

        model.__annotations__ = {k: mlaot.f32[shape] for k, shape in zip("xy", shapes, strict=True)}
        modules[name.replace(" ", "_")] = passes.run("m", trace(mlaot.model(model)))
    programs = {name: lower(module) for name, module in modules.items()}
    library = Library(programs, isa, tmp_path)
    rng = np.random.default_rng(0)
    for (name, module), (_, *shapes, count) in zip(modules.items(), VIEWS.values(), strict=True):
        inputs = {k: rng.normal(size=(1, *shape)).astype(np.float32) for k, shape in zip("xy", shapes, strict=True)}
        expected = evaluate(module.graphs["forward"], inputs, wide=True)
        found = library.call(name, "forward", inputs, {"batch": 1})
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=name)
        assert copies(module.graphs["forward"]) == count, name
        kernels = [kernel for p in programs[name].procedures for kernel in p.kernels]
        assert (name == "few_rows") == any(kernel.template == "plain" for kernel in kernels), name
