"""Sorts of values, and searches for places, where nothing else wants the order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mlaot
from mlaot.evaluate import evaluate
from mlaot.ir import parse
from mlaot.loading import trace
from mlaot.passes import run
from mlaot.passes.algebra.sorted_values import sorted_values

HEAD = "graph f:\n  v0 = input(name=x) : f32[4,9]\n"
ORDER = f"{HEAD}  v1 = argsort(v0, axis=1) : i64[4,9]\n"
VALUES = f"{ORDER}  v2 = gather(v0, v1, lead=1) : f32[4,9]\n"


def after(text: str) -> str:
    graph = parse(text)
    before = evaluate(graph, x := {"x": np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)})
    sorted_values(graph)
    for key, value in evaluate(graph, x).items():
        np.testing.assert_array_equal(value, before[key])
    return str(graph)


def test_values_are_sorted_themselves() -> None:
    assert after(f"{VALUES}  return y=v2\n") == f"{HEAD}  v1 = sort(v0, axis=1) : f32[4,9]\n  return y=v1"


def test_of_sorted_values_the_places_that_are_read_are_searched() -> None:
    both = (
        "  v3 = slice(v2, start=(0, 4), size=(4, 1), step=(1, 1)) : f32[4,1]\n"
        "  v4 = take(v2, indices=[5, 2], lead=1) : f32[4,2]\n  return y=v3, z=v4\n"
    )
    assert "sort(v0, axis=1, places=(2, 6))" in after(VALUES + both)


def test_an_axis_that_is_moved_is_sorted_where_it_is() -> None:
    text = (
        f"{HEAD}  v1 = argsort(v0, axis=0, descending=True) : i64[4,9]\n"
        "  v2 = transpose(v1, perm=(1, 0)) : i64[9,4]\n  v3 = transpose(v0, perm=(1, 0)) : f32[9,4]\n"
        "  v4 = gather(v3, v2, lead=1) : f32[9,4]\n  v5 = transpose(v4, perm=(1, 0)) : f32[4,9]\n"
        "  v6 = slice(v5, start=(1, 0), size=(2, 9), step=(1, 1)) : f32[2,9]\n  return y=v6\n"
    )
    found = after(text)
    assert "sort(v0, axis=0, descending=True, places=(1, 3))" in found
    assert "gather" not in found


def test_places_of_the_order_are_places_of_the_values() -> None:
    text = (
        f"{HEAD}  v1 = argsort(v0, axis=1, places=(4, 6)) : i64[4,9]\n"
        "  v2 = slice(v1, start=(0, 4), size=(4, 2), step=(1, 1)) : i64[4,2]\n"
        "  v3 = gather(v0, v2, lead=1) : f32[4,2]\n  return y=v3\n"
    )
    assert "sort(v0, axis=1, places=(4, 6))" in after(text)


@pytest.mark.parametrize(
    "rest",
    [
        f"{VALUES}  return y=v2, z=v1\n",
        f"{VALUES}  v3 = add(v1, v1) : i64[4,9]\n  return y=v2, z=v3\n",
        f"{ORDER}  v2 = exp(v0) : f32[4,9]\n  v3 = gather(v2, v1, lead=1) : f32[4,9]\n  return y=v3\n",
        f"{HEAD}  v1 = argsort(v0, axis=1, count=2) : i64[4,2]\n"
        "  v2 = gather(v0, v1, lead=1) : f32[4,2]\n  return y=v2\n",
        f"{ORDER}  v2 = slice(v1, start=(1, 0), size=(3, 9), step=(1, 1)) : i64[3,9]\n"
        "  v3 = slice(v0, start=(1, 0), size=(3, 9), step=(1, 1)) : f32[3,9]\n"
        "  v4 = gather(v3, v2, lead=1) : f32[3,9]\n  return y=v4\n",
    ],
    ids=["the order is a result", "the order is read", "other values", "a heap finds few", "other rows"],
)
def test_an_order_stays_that_something_else_wants(rest: str) -> None:
    assert "argsort" in after(rest)


@pytest.mark.parametrize(
    "rest",
    [
        "  v3 = slice(v2, start=(0, 0), size=(4, 7), step=(1, 1)) : f32[4,7]\n  return y=v3\n",
        "  v3 = slice(v2, start=(0, 4), size=(4, 1), step=(1, 1)) : f32[4,1]\n  return y=v3, z=v2\n",
        "  v3 = slice(v2, start=(0, 4), size=(4, 1), step=(1, 1)) : f32[4,1]\n  v4 = exp(v2) : f32[4,9]\n"
        "  return y=v3, z=v4\n",
        "  v3 = slice(v2, start=(1, 0), size=(2, 9), step=(1, 1)) : f32[2,9]\n  return y=v3\n",
    ],
    ids=["most are read", "all are a result", "all are read", "rows are cut"],
)
def test_all_is_sorted_that_is_read(rest: str) -> None:
    found = after(VALUES + rest)
    assert "sort(v0, axis=1) :" in found
    assert "places" not in found


FUNCTIONS: dict[str, Callable[..., object]] = {
    "sort": lambda x: np.sort(x, axis=0),
    "descending": lambda x: -np.sort(-x),
    "median": lambda x: np.median(x, axis=1),
    "quantile": lambda x: np.quantile(x, (0.2, 0.7), axis=0),
    "an element": lambda x: np.sort(x, axis=0)[3],
    "elements": lambda x: np.sort(x)[:, [3, 5, -2]],
    "partition": lambda x: np.partition(x, 5)[:, :5],
    "smallest": lambda x: mlaot.top_k(x, 5, largest=False)[0],
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_numpy_want_no_order(function: Callable[..., object]) -> None:
    def model(x: mlaot.f32[30, 40]) -> object:
        return function(x)

    graph = run("m", trace(mlaot.model(model))).graphs["forward"]
    assert " sort(" in str(graph)
    assert "argsort" not in str(graph)
