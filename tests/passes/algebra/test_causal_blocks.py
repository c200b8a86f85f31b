"""Attention with a known mask is computed in blocks of rows; what a mask does not certainly hide stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.nn import functional as F

from ...compiled import AVAILABLE, Library

T, HEADS, WIDTH = 96, 2, 8
CAUSAL = np.tril(np.ones((T, T), bool))
BAND = CAUSAL & ~np.tril(np.ones((T, T), bool), -20)  # the last 20 only; the first columns are hidden too
PADDED = np.arange(T) < np.where(np.arange(T) < 48, 24, 60)[:, None]
HALVES = np.where(np.arange(T)[:, None] < 40, False, CAUSAL)  # rows that see nothing
ADDED = np.where(CAUSAL, np.linspace(-1, 1, T, dtype=np.float32), np.float32(-np.inf))


def by_softmax(mask: Any, hidden: float = -np.inf) -> Callable[..., Any]:
    return lambda q, k, v: mlaot.softmax(np.where(mask, q @ np.swapaxes(k, -1, -2) * 0.3, hidden)) @ v


def centred(x: Any) -> Any:
    return x - np.sum(x, axis=-1, keepdims=True)


def masked_again(q: Any, k: Any, v: Any) -> Any:
    """As scalars are raised: exponentials of hidden scores are those of the first column, and are masked themselves."""
    scores = q @ np.swapaxes(k, -1, -2)
    exps = np.exp(np.where(CAUSAL, scores, scores[..., :1]) * 0.3)
    shares = exps / np.where(CAUSAL, exps, 0.0).sum(axis=-1, keepdims=True)
    return np.where(CAUSAL, shares, 0.0) @ v


def masked_by_another(q: Any, k: Any, v: Any) -> Any:
    """What a row sees depends on the values, too."""
    scores = q @ np.swapaxes(k, -1, -2)
    shares = mlaot.softmax(np.where(CAUSAL, scores, -np.inf))
    return np.where(scores > 0, shares, 0.0) @ v


def masked_otherwise(q: Any, k: Any, v: Any) -> Any:
    """The largest score is one that a row may see; weights have more columns."""
    scores = q @ np.swapaxes(k, -1, -2)
    largest = np.where(CAUSAL, scores, -np.inf).max(axis=-1, keepdims=True)
    return np.where(np.tri(T, k=30, dtype=bool), np.exp((scores - largest) * 0.1), 0.0) @ v


def given(mask: Any) -> Callable[..., Any]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# Attention, and how many blocks it is to be computed in.
CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), 3),
    "softmax": (by_softmax(CAUSAL), 3),
    "band": (given(BAND), 3),
    "padded": (given(PADDED), 3),
    "rows_that_see_nothing": (given(HALVES), 3),
    "added": (given(ADDED), 3),
    "masked_again": (masked_again, 3),
    "masked_by_another": (masked_by_another, 3),
    "masked_otherwise": (masked_otherwise, 1),
    "other_column": (lambda q, k, v: np.where(CAUSAL, (s := q @ np.swapaxes(k, -1, -2)) * s[..., -1:], 0.0) @ v, 1),
    "a_part_is_masked": (lambda q, k, v: np.where(BAND, np.where(CAUSAL, q @ np.swapaxes(k, -1, -2), 1.0), 0.0) @ v, 3),
    "all": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), 1),
    "upper": (given(CAUSAL.T.copy()), 1),
    "finite": (by_softmax(CAUSAL, hidden=-1e9), 1),
    "shifted": (lambda q, k, v: (mlaot.softmax(np.where(CAUSAL, q @ np.swapaxes(k, -1, -2), -np.inf)) + 1.0) @ v, 1),
    "centred": (lambda q, k, v: centred(np.where(CAUSAL, q @ np.swapaxes(k, -1, -2), 0.0)) @ v, 1),
}


def model_of(name: str) -> Any:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return CASES[name][0](q, k, v)

    attend.__annotations__ = dict.fromkeys("qkv", mlaot.f32[HEADS, T, WIDTH])
    return mlaot.model(attend)


@pytest.mark.parametrize("name", CASES)
def test_in_how_many_blocks(name: str) -> None:
    graph = passes.run("m", trace(model_of(name))).graphs["forward"]
    assert [n.op.name for n in graph.nodes()].count("contract") == 2 * CASES[name][1], str(graph)


def test_weights_that_are_read_elsewhere_stay_whole() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        weights = mlaot.softmax(np.where(CAUSAL, q @ np.swapaxes(k, -1, -2), -np.inf))
        return weights @ v, weights

    attend.__annotations__ = dict.fromkeys("qkv", mlaot.f32[T, WIDTH])
    graph = passes.run("m", trace(mlaot.model(attend))).graphs["forward"]
    assert [n.op.name for n in graph.nodes()].count("contract") == 2


@pytest.mark.parametrize("isa", [AVAILABLE[0], AVAILABLE[-1]])
def test_values_are_those_of_numpy(isa: str, tmp_path: Path) -> None:
    models = {name: model_of(name) for name in CASES}
    programs = {name: lower(passes.run("m", trace(model))) for name, model in models.items()}
    library = Library(programs, isa, tmp_path)
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=(2, HEADS, T, WIDTH)).astype(np.float32) for name in "qkv"}
    for name, model in models.items():
        found = library.call(name, "forward", inputs, {"batch": 2})
        expected = np.stack([model(*[inputs[key][i] for key in "qkv"]) for i in range(2)])
        np.testing.assert_allclose(next(iter(found.values())), expected, rtol=2e-4, atol=1e-4, err_msg=name)


def test_scores_take_the_room_of_a_block() -> None:
    sizes = {}
    for name in ("causal", "all"):
        (procedure,) = lower(passes.run("m", trace(model_of(name)))).procedures
        sizes[name] = max(int(np.prod([d for d in b.shape if isinstance(d, int)])) for b, _ in procedure.offsets)
    assert sizes["causal"] <= sizes["all"] // 3
