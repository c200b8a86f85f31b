"""Random decision trees of any shape, for the tests of several folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.ops.trees import Forest, forest

Array = np.ndarray[Any, Any]
THRESHOLDS = (-np.inf, -0.5, 0.0, 0.5, 0.1, np.inf)  # 0.1 is no float32


def random_forest(
    rng: np.random.Generator,
    depths: Sequence[int],
    *,
    features: int = 5,
    targets: int | None = None,
    full: bool = False,
    mixed_nan: bool = True,
    own_target: bool = False,
) -> Forest:
    """A tree of at most each depth, unbalanced unless ``full``; ``targets`` None: leaves of one number.

    ``own_target``: each tree adds to one target only.
    """
    nodes: list[Any] = []
    leaves: list[Array] = []

    def grow(depth: int, target: int) -> int:
        if depth == 0 or (not full and rng.random() < 0.2):
            value = rng.normal(size=targets or 1)
            leaves.append(np.where(np.arange(targets) == target, value, 0.0) if own_target else value)
            return ~(len(leaves) - 1)
        at = len(nodes)
        nodes.append(None)
        threshold = float(rng.choice(THRESHOLDS)) if rng.random() < 0.3 else float(rng.normal())
        children = grow(depth - 1, target), grow(depth - 1, target)
        nodes[at] = (int(rng.integers(features)), threshold, *children, mixed_nan and bool(rng.random() < 0.5))
        return at

    roots = [grow(depth, int(rng.integers(targets or 1))) for depth in depths]
    columns = [np.array([node[i] for node in nodes]) for i in range(5)] if nodes else [np.zeros(0, int)] * 5
    values = np.array(leaves) if targets is not None else np.array(leaves)[:, 0]
    return forest(*columns[:4], columns[4].astype(bool), roots, values)


def awkward_rows(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, *, nan: bool = True) -> Array:
    """Normal numbers among thresholds, infinities and nan."""
    x = rng.normal(size=shape).astype(dtype)
    special = np.array([*THRESHOLDS, -0.0, *([np.nan] if nan else [])], dtype)
    return np.where(rng.random(shape) < 0.4, rng.choice(special, shape), x)
