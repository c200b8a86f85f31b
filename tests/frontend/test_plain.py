"""Outside of tracing, parameters behave as the NumPy arrays that they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot

W = np.random.default_rng(0).normal(size=(3, 4))


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w.T,
        lambda w: w.transpose(1, 0),
        lambda w: w.reshape(2, 6),
        lambda w: w.reshape((6, 2)),
        lambda w: w.mean(),
        lambda w: w.mean(axis=0, keepdims=True),
        lambda w: w.sum(axis=1, keepdims=True),
        lambda w: w.max(axis=-1),
        lambda w: np.mean(w, axis=1),
        lambda w: np.exp(w) @ w.T,
    ],
)
def test_a_parameter_is_its_array(use: Callable[[Any], Any]) -> None:
    found = use(mlaot.Parameter("w", W))
    assert isinstance(found, np.ndarray | np.floating)
    np.testing.assert_array_equal(found, use(W))


def test_a_model_runs_on_plain_arrays() -> None:
    w = mlaot.Parameter("w", W)

    @mlaot.model
    def net(x: mlaot.f64[4]) -> Any:  # type: ignore[valid-type]
        return mlaot.softmax(np.maximum(x @ w.T, 0))

    x = np.ones((5, 4))
    z = np.maximum(x @ W.T, 0)
    e = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(net(x), e / e.sum(1, keepdims=True), rtol=1e-15)
