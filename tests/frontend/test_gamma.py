"""The gamma functions and i0 between their special values, and their gradients, against SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import mlaot

from .tracing import run

RANGES = ((-0.5, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 8.0), (7.0, 35.0), (30.0, 171.0), (-3.0, 0.0), (-9.0, -0.5))


def spread(low: float, high: float, dtype: Any) -> Any:
    """Numbers of a range, its ends among them, but integers below 1, where the functions have poles."""
    x = np.linspace(low, high, 4001, dtype=dtype)
    return x[(x > 0) | (np.abs(x - np.round(x)) > 1e-3)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["gamma", "gammaln", "psi", "i0"])
def test_values(name: str, dtype: Any) -> None:
    """Within some units of the last place; of 1, next to zeros and where the distance from a pole counts."""
    function = getattr(scipy.special, name)
    compared = 0
    for low, high in RANGES:
        if dtype is np.float32 and high > (80 if name == "i0" else 40):
            continue
        x = spread(low, high, dtype)
        wide = function(x.astype(np.float64))
        with np.errstate(all="ignore"):
            found = run(function, x)
        assert found.dtype == dtype
        far = 20 if low < -0.5 and name in ("gamma", "psi") else 0  # rounding of x is multiplied by its size
        near = 12 + far * np.abs(x / np.maximum(np.abs(x - np.round(x)), 1e-3)) if far else 12.0
        unit = np.finfo(dtype).eps * np.maximum(np.abs(wide), 0 if name in ("gamma", "i0") else 1)
        assert np.all(np.abs(found - wide) <= near * unit), (low, high)
        compared += x.size
    assert compared > 15_000


def test_gradients() -> None:
    x = np.concatenate([spread(-3.2, 20.0, np.float64)[::40], [1.0, 2.0, 2.5, 7.5, 1e-3]])
    digamma, gamma = scipy.special.psi(x), scipy.special.gamma(x)
    slopes = {"gammaln": digamma, "gamma": digamma * gamma, "psi": scipy.special.polygamma(1, x)}
    for name, expected in (slopes | {"i0": scipy.special.i1(x)}).items():
        found = run(mlaot.grad(lambda v, name=name: np.sum(getattr(scipy.special, name)(v))), x)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
