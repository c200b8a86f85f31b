"""Gradients of what NumPy builds on other functions, against differences: with nan among the numbers, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.special
import scipy.stats

import mlaot

from .tracing import run

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
HOLES = np.where(np.arange(12).reshape(3, 4) % 5 == 1, np.nan, X)
view = np.lib.stride_tricks.sliding_window_view
norm = scipy.stats.norm
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "nanstd": (lambda v: np.nanstd(v, axis=1).sum(), HOLES),
    "nanvar": (lambda v: np.nanvar(v, axis=0, ddof=1)[2], HOLES),
    "nanmedian": (lambda v: (np.nanmedian(v, axis=1) ** 2).sum(), HOLES),
    "nanquantile": (lambda v: (np.nanquantile(v, 0.3, axis=1) ** 2).sum(), HOLES),
    "nancumprod": (lambda v: np.nancumprod(v, axis=1).sum(), HOLES),
    "maximum.accumulate": (lambda v: (np.maximum.accumulate(v, 1) * Y).sum(), X),
    "divide.accumulate": (lambda v: np.divide.accumulate(v, 1)[:, :3].sum(), X),
    "sliding_window_view": (lambda v: (view(v, 2, 1) ** 2 * Y[:, :3, None]).sum(), X),
    "apply_along_axis": (lambda v: (np.apply_along_axis(np.cumsum, 0, v) ** 2).sum(), X),
    "piecewise": (lambda v: np.piecewise(v, [v < 0, v >= 0], [lambda t: t * t, np.exp]).sum(), X),
    "unwrap": (lambda v: (np.unwrap(v * 4) ** 2).sum(), X),
    "ediff1d": (lambda v: (np.ediff1d(v) ** 2).sum(), X),
    "histogram": (lambda v: (np.histogram(np.abs(X), 3, weights=v)[0] ** 2).sum(), X),
    "histogram_bin_edges": (lambda v: (np.histogram_bin_edges(v, 3) ** 2).sum(), X),
    "where": (lambda v: np.std(v, where=Y > 0) + np.prod(v, where=Y > 0) + np.max(v, where=Y > 0, initial=-9.0), X),
    "frexp": (lambda v: np.frexp(v)[0].sum(), X),
    "cdist": (lambda v: scipy.spatial.distance.cdist(v, v).sum(), X),
    "cdf": (lambda v: norm.cdf(v, v[0], 2).sum(), X),
    "logpdf": (lambda v: norm.logpdf(v, 0.3, 2).sum() + norm.pdf(v).sum() + norm.sf(v).sum(), X),
    "ppf": (lambda v: norm.ppf(scipy.special.expit(v)).sum(), X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name: str) -> None:
    function, x = FUNCTIONS[name]
    found, step = run(mlaot.grad(function), x), 1e-6
    assert np.all(np.isfinite(found))
    for place in zip(*np.nonzero(~np.isnan(x)), strict=True):
        up, down = x.copy(), x.copy()
        up[place], down[place] = up[place] + step, down[place] - step
        slope = (function(up) - function(down)) / (2 * step)
        assert found[place] == pytest.approx(slope, rel=1e-5, abs=1e-6)
    assert not np.any(found[np.isnan(x)])
