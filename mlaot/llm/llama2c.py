"""A checkpoint of llama2.c: seven numbers of 32 bits, then all weights in float32 (its ``export.py``, version 0)."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.llm import rotary
from mlaot.llm.decoder import Config

Array = np.ndarray[Any, Any]
NUMBERS = 7  # width, hidden, layers, heads, groups, tokens (negative where not tied), context
# Behind the first norms; each of all layers, before the next.
PARTS = ("query", "key", "value", "attended", "norm2", "gate", "down", "up")


def read_checkpoint(path: Path) -> tuple[Config, dict[str, Array]]:
    """Return the configuration of a file's model, and its weights by the names of ``Config.shapes``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MlaotError(f"cannot read {path}: {error.strerror}") from None
    if len(data) < 4 * NUMBERS:
        raise MlaotError(f"{path}: expected a checkpoint of llama2.c, got {len(data)} bytes")
    width, hidden, layers, heads, groups, tokens, context = map(int, np.frombuffer(data, "<i4", NUMBERS))
    if heads < 1 or width % heads:
        raise MlaotError(f"{path}: expected a checkpoint of llama2.c; its width {width} does not have {heads} heads")
    size = width // heads
    waves = tuple(rotary.plain(1e4, size).tolist())
    config = Config(abs(tokens), width, layers, heads, groups, size, hidden, context, 1e-5, waves, tied=tokens > 0)
    if problem := config.problem():
        raise MlaotError(f"{path}: expected a checkpoint of llama2.c; {problem}")
    shapes = config.shapes()
    names = ["embedding", *(f"blocks.{i}.norm1.weight" for i in range(layers))]
    names += [f"blocks.{i}.{part}.weight" for part in PARTS for i in range(layers)] + ["norm.weight"]
    tables = context * size  # of cosines and sines, which nobody reads
    wanted = 4 * (NUMBERS + sum(prod(shapes[name]) for name in names) + tables)
    wanted += 0 if config.tied else 4 * prod(shapes["head"])
    if len(data) != wanted:
        raise MlaotError(f"{path}: expected {wanted:,} bytes of a model as its first numbers say, got {len(data):,}")
    numbers, weights, place = np.frombuffer(data, "<f4", offset=4 * NUMBERS), dict[str, Array](), 0
    for name in names if config.tied else [*names, "head"]:
        place += tables if name == "head" else 0
        count = prod(shapes[name])
        weights[name] = numbers[place : place + count].reshape(shapes[name]).astype(np.float32)
        place += count
    for name in [f"blocks.{i}.{part}.weight" for part in ("query", "key") for i in range(layers)]:
        weights[name] = rotary.half_apart(weights[name], size)
    return config, weights
