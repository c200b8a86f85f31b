"""Functions that draw: by the distribution of what they give, on plain arrays; and what they do to gradients."""

from __future__ import annotations

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError, nn
from mlaot.frontend.numpy import random
from mlaot.frontend.trace.context import training
from mlaot.nn import functional as F

from .test_nn import traced


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    random.seed(1)
    x = np.random.default_rng(0).normal(size=(400, 50)).astype(np.float32)
    for p in (0.1, 0.4):
        y = F.alpha_dropout(x, p, training=True)
        assert y.dtype == np.float32
        assert np.mean(y) == pytest.approx(0, abs=0.03) and np.var(y) == pytest.approx(1, abs=0.05)
        numbers, counts = np.unique(y, return_counts=True)
        assert counts.max() / y.size == pytest.approx(p, abs=0.02) and numbers[counts.argmax()] < -0.5
    with training():
        whole = nn.FeatureAlphaDropout(0.5)(np.ones((40, 10, 3), np.float32))
    assert np.all(whole == whole[:, :, :1]) and len(np.unique(whole)) == 2
    assert np.mean(whole == whole.max()) == pytest.approx(0.5, abs=0.1)
    with pytest.raises(MlaotError, match="probability from 0 to 1"):
        F.alpha_dropout(x, 1.5, training=True)


def test_slopes() -> None:
    random.seed(2)
    x = np.full((100, 100), -2.0, np.float32)
    slopes = F.rrelu(x, 0.2, 0.6, training=True) / x
    assert 0.2 <= slopes.min() < 0.21 and 0.59 < slopes.max() <= 0.6 and slopes.mean() == pytest.approx(0.4, abs=0.01)
    assert np.all(F.rrelu(-x, training=True) == -x) and np.all(F.rrelu(x, 0.2, 0.6) == np.float32(0.4) * x)
    with training():
        assert len(np.unique(nn.RReLU()(x))) > 1000
    with pytest.raises(MlaotError, match="expected lower of at most upper"):
        F.rrelu(x, 0.5, 0.25)


def test_gumbel_softmax() -> None:
    """A class is the largest as often as the softmax of its logit says."""
    random.seed(3)
    logits = np.broadcast_to(np.log(np.array([0.5, 0.3, 0.2], np.float32)), (4000, 3))
    soft = F.gumbel_softmax(logits, tau=0.5)
    assert soft.dtype == np.float32 and np.allclose(soft.sum(1), 1, atol=1e-5) and len(np.unique(soft)) > 9000
    hard = F.gumbel_softmax(logits, hard=True)
    assert np.allclose(hard, hard.round(), atol=1e-6) and np.allclose(hard.sum(1), 1)
    for drawn in (soft, hard):
        shares = np.bincount(drawn.argmax(1), minlength=3) / 4000
        np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.03)
    columns = F.gumbel_softmax(logits.T, hard=True, dim=0)
    assert np.allclose(columns.sum(0), 1)


def test_gradient_of_gumbel_softmax() -> None:
    """That of a one-hot result is that of the soft one, which sums to 0 along the classes."""
    weight = np.arange(12.0).reshape(4, 3)
    gradient = mlaot.grad(lambda x: np.sum(F.gumbel_softmax(x, tau=2.0, hard=True) * weight))
    (found,) = traced(gradient, [np.zeros((4, 3))], [(4, 3)])
    assert np.all(found != 0) and np.allclose(found.sum(1), 0)
