"""Rotary positions (Su et al., 2021): the angle by which each pair of numbers of a head is rotated at a position.

The angle of a pair is its wave times the position. Models for longer texts than in their first training rescale the
waves in different ways. The numbers come from files. If they are invalid, the waves are too, which ``Config.problem``
reports.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

Waves = np.ndarray[Any, Any]  # radians of each pair from one position to the next
MOST = 2**16  # numbers of a head


@np.errstate(all="ignore")
def plain(base: float, turned: int) -> Waves:
    """Return the waves of the first ``turned`` numbers of a head, which are rotated."""
    turned = max(0, min(turned, MOST))
    return np.float64(base) ** -(np.arange(0, turned, 2) / max(turned, 1))


@np.errstate(all="ignore")
def linear(waves: Waves, factor: float | Waves) -> Waves:
    """Divide the waves by one factor, or each by its own."""
    return waves / factor


@np.errstate(all="ignore")
def llama3(waves: Waves, factor: float, low: float, high: float, original: float) -> Waves:
    """Divide waves with fewer than ``low`` turns in the original context by the factor, and others by less."""
    turns = original * waves / (2 * pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return linear(waves, factor) * (1 - kept) + waves * kept


@np.errstate(all="ignore")
def yarn(
    waves: Waves, base: float, factor: float, original: float, fast: float = 32, slow: float = 1, *, whole: bool = True
) -> Waves:
    """Divide waves by a factor that increases linearly between two pairs, given by their turns in the original context.

    This is YaRN (Peng et al., 2023). With ``whole`` the two pairs are rounded to whole numbers.
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
    """Return the factor by which LongRoPE multiplies queries and keys (Ding et al., 2024)."""
    return float(np.sqrt(1 + np.log(factor) / np.log(original))) if factor > 1 else 1.0


@np.errstate(all="ignore")
def magnitude(factor: float, weight: float = 1.0) -> float:
    """Return the factor by which YaRN multiplies queries and keys."""
    return float(1 + 0.1 * weight * np.log(factor)) if factor > 1 else 1.0


def half_apart(weight: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Reorder the rows of heads so that the numbers of a pair, which are neighbours, are half a head apart."""
    return weight.reshape(-1, size // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
