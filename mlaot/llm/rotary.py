"""Rotary positions (Su et al., 2021): the angle by which each pair of numbers of a head turns at a position.

A pair's angle is its wave times the position. Models that read longer texts than they were first trained on rescale
the waves, each in its way. The numbers come from files: where they make no sense, so do the waves, which
``Config.problem`` says.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

Waves = np.ndarray[Any, Any]  # radians of each pair from one position to the next
MOST = 2**16  # numbers of a head


@np.errstate(all="ignore")
def plain(base: float, turned: int) -> Waves:
    """Return the waves of the first ``turned`` numbers of a head."""
    turned = max(0, min(turned, MOST))
    return np.float64(base) ** -(np.arange(0, turned, 2) / max(turned, 1))


@np.errstate(all="ignore")
def linear(waves: Waves, factor: float | Waves) -> Waves:
    """Turn every pair more slowly, by one factor or by its own."""
    return waves / factor


@np.errstate(all="ignore")
def llama3(waves: Waves, factor: float, low: float, high: float, original: float) -> Waves:
    """Turn those more slowly that turn less than ``low`` times in the original context, and others by degrees."""
    turns = original * waves / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return linear(waves, factor) * (1 - kept) + waves * kept


@np.errstate(all="ignore")
def yarn(
    waves: Waves, base: float, factor: float, original: float, fast: float = 32, slow: float = 1, *, whole: bool = True
) -> Waves:
    """Turn pairs more slowly, the more so the later they are, between two that turn so often in the original context.

    Peng et al., 2023. ``whole``: the two are rounded to whole pairs.
    """
    turned, turns = 2 * len(waves), np.array([fast, slow])
    first, last = turned * np.log(original / (turns * 2 * pi)) / (2 * np.log(base))
    if whole:
        first, last = np.floor(first), np.ceil(last)
    first, last = np.maximum(first, 0), np.minimum(last, turned - 1)
    kept = 1 - np.clip((np.arange(len(waves)) - first) / np.maximum(last - first, 0.001), 0, 1)
    rescaled: Waves = linear(waves, factor) * (1 - kept) + waves * kept
    return rescaled


@np.errstate(all="ignore")
def long_magnitude(factor: float, original: float) -> float:
    """Return by how much LongRoPE scales queries and keys (Ding et al., 2024)."""
    return float(np.sqrt(1 + np.log(factor) / np.log(original))) if factor > 1 else 1.0


@np.errstate(all="ignore")
def magnitude(factor: float, weight: float = 1.0) -> float:
    """Return by how much YaRN scales queries and keys."""
    return float(1 + 0.1 * weight * np.log(factor)) if factor > 1 else 1.0


def half_apart(weight: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Move the rows of heads so that pairs that turn together, which are neighbours, lie half a head apart."""
    return weight.reshape(-1, size // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
