"""Training runs that PyTorch and mlaot do alike: start weights, batches and optimizers.

``make_curves.py`` runs them with the one, ``test_curves.py`` with the other. Weights and batches are made from nothing
but integers, so only losses need to be kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..nn.cases import COMMON_OPTIMIZERS, numbers, seed_of, words

Array = np.ndarray[Any, Any]
Batch = tuple[Array, Array]

STEPS = 100
NORMALIZED_STEPS = 20
MORE: list[tuple[str, dict[str, Any]]] = [
    ("RMSprop", {"lr": 0.005, "momentum": 0.9, "weight_decay": 0.05}),
    ("Lion", {"lr": 0.01}),
    ("Lion", {"lr": 0.02, "betas": (0.8, 0.95), "weight_decay": 0.1}),
]
DIVERGES = ("RMSprop", {"lr": 0.1, "momentum": 0.9})  # and so shows rounding
MLP_OPTIMIZERS = [case for case in COMMON_OPTIMIZERS if "maximize" not in case[1] and case != DIVERGES] + MORE


def weight(name: str, shape: tuple[int, ...]) -> Array:
    """The start of a parameter; the scale of a normalization, the only vector called weight, is near 1."""
    values = numbers(shape, seed_of(name))
    if len(shape) > 1:
        return values / math.sqrt(math.prod(shape[1:]))
    return 1 + values / 8 if name.endswith("weight") else values / 16


def classes(shape: tuple[int, ...], limit: int, seed: int) -> Array:
    return (words(shape, seed) % np.uint64(limit)).astype(np.int64)


def images(step: int, batch: int = 8) -> Batch:
    """Noisy pictures of ten coarse patterns, pixels from 0 to 1."""
    labels = classes((batch,), 10, step)
    patterns = np.kron((numbers((10, 7, 7), 1) + 2) / 4, np.ones((4, 4)))
    noise = (numbers((batch, 28, 28), 100 + step) + 2) / 4
    return (0.5 * patterns[labels] + 0.5 * noise)[:, None], labels


def sequences(step: int) -> Batch:
    """[8, 12, 3] numbers; the class says which of the three sums is largest."""
    x = numbers((8, 12, 3), 200 + step)
    return x, x.sum(1).argmax(1)


def tokens(step: int) -> Batch:
    """[4, 10] tokens and the next of each: a walk through 17 tokens with a few stumbles."""
    rows = [classes((4,), 17, 300 + step)]
    stumbles = words((10, 4), 400 + step) % np.uint64(8) == 0
    for stumble in stumbles:
        rows.append((rows[-1] * 3 + 5 + stumble) % 17)
    walk = np.stack(rows, axis=1)
    return walk[:, :-1], walk[:, 1:]


def points(step: int, batch: int = 16) -> Batch:
    """Points of six numbers; the class is the largest of the first four."""
    x = numbers((batch, 6), 500 + step)
    return x, x[:, :4].argmax(1)


def small_images(step: int) -> Batch:
    """[6, 2, 6, 6] numbers; the class says which quarter of the first channel has the largest sum."""
    x = numbers((6, 2, 6, 6), 600 + step)
    quarters = x[:, 0].reshape(6, 2, 3, 2, 3).sum((2, 4)).reshape(6, 4)
    return x, quarters.argmax(1)


# Name, batches, optimizer and its options; a schedule and a limit for the norm of the gradients are set by both sides.
NETWORKS: dict[str, tuple[Callable[[int], Batch], str, dict[str, Any]]] = {
    "lenet": (images, "SGD", {"lr": 0.02, "momentum": 0.9}),
    "lstm": (sequences, "Adam", {"lr": 0.01}),
    "transformer": (tokens, "AdamW", {"lr": 0.01}),
    "convolutions": (small_images, "RMSprop", {"lr": 0.003}),
    "gru": (sequences, "Adagrad", {"lr": 0.05}),
    "normalized": (small_images, "SGD", {"lr": 0.1, "momentum": 0.5}),
}
NETWORKS |= {f"mlp.{i}": (points, name, options) for i, (name, options) in enumerate(MLP_OPTIMIZERS)}
CLIP_TRANSFORMER = 1.0
COSINE_STEPS = 150
