"""One-hot rows times frozen tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Declaration
from mlaot.settings.options import Options

RNG = np.random.default_rng(0)
W = RNG.standard_normal((5, 8)).astype(np.float32)
B = RNG.standard_normal(8).astype(np.float32)
batch = mlaot.dim("batch")


def declared(w: Any = W, classes: int = 5, turned: bool = False) -> Declaration:
    """gelu(one_hot(x) w + b), the one-hot rows written as comparisons; labels may be anything."""
    table, bias = mlaot.Parameter("w", w), mlaot.Parameter("b", B)

    @mlaot.model
    def net(x: mlaot.i32[batch, 3]):  # type: ignore[no-untyped-def, name-defined]
        hot = (np.arange(classes, dtype=np.int32) == x[:, :, None]).astype(np.float32)
        return mlaot.gelu(hot @ (table.T if turned else table) + bias)

    return net  # type: ignore[no-any-return]


def ops(net: Declaration, **options: Any) -> tuple[list[str], Any]:
    """The ops of the optimized graph, and what it gives for some labels."""
    module = passes.run("m.nn", net.trace(), Options(**options))
    graph = module.graphs["forward"]
    x = np.array([[0, 4, 2], [-1, 5, 3]], np.int32)
    (found,) = evaluate(graph, {**module.slots, "x": x}).values()
    hot = np.arange(5) == x[:, :, None]
    expected = mlaot.gelu(hot @ W.astype(np.float64) + B)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return [node.op.name for node in graph.nodes()], module


def test_a_table_of_what_is_computed() -> None:
    found, module = ops(declared())
    assert "gather" in found
    assert not {"contract", "erf", "add"} & set(found)
    assert (6, 8) in [value.shape for value in module.parameters.values()]


def test_the_table_the_other_way_round() -> None:
    found, _ = ops(declared(np.ascontiguousarray(W.T), turned=True))
    assert "erf" in found or "gather" in found  # right in any case


@pytest.mark.parametrize("options", [{"frozen": False}])
def test_not_with_weights_that_can_be_replaced(options: dict[str, Any]) -> None:
    found, _ = ops(declared(), **options)
    assert "contract" in found and "gather" not in found


def test_not_where_zero_times_a_weight_is_not_zero() -> None:
    w = W.copy()
    w[1, 2] = np.inf
    module = passes.run("m.nn", declared(w).trace())
    names = [node.op.name for node in module.graphs["forward"].nodes()]
    assert "contract" in names and "gather" not in names


def test_a_large_table_stays_alone() -> None:
    """How many rows will be read is open; what is computed from 4,000 rows would take as much as they do."""
    rows = RNG.standard_normal((4000, 128)).astype(np.float32)

    @mlaot.model
    def net(x: mlaot.i64[batch]):  # type: ignore[no-untyped-def, name-defined]
        found = mlaot.take(mlaot.Parameter("rows", rows), x, axis=0)
        return found / np.sqrt((found * found).sum(axis=1, keepdims=True))

    module = passes.run("m.nn", net.trace())
    assert [value.shape for value in module.slots.values()] == [(4000, 128)]
    (found,) = evaluate(module.graphs["forward"], {**module.slots, "x": np.array([3, 1])}).values()
    np.testing.assert_allclose(found, rows[[3, 1]] / np.linalg.norm(rows[[3, 1]], axis=1)[:, None], rtol=1e-5)
