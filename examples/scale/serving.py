"""A model that serves while its weights change. No engine is needed here; ``serve`` has the server around it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIXELS = 64  # a row: bytes


@dataclass(frozen=True)
class Loaded:
    """A model and the name of its weights, which belong together."""

    model: Any
    name: str


def load(module: Any, weights: Path | None) -> Loaded:
    """Return a new model with the weights of a file, or with those that the wheel was built with."""
    model = module.Model()
    if weights:
        model.load(weights)
    digest = hashlib.sha256(b"".join(bytes(memoryview(array)) for array in model.parameters.values()))
    return Loaded(model, digest.hexdigest()[:12])


class Serving:
    """What serves now: ``loaded``."""

    def __init__(self, module: Any, weights: Path | None) -> None:
        self.module, self.weights = module, weights
        self.loaded = load(module, weights)

    def reload(self) -> None:
        """Read the weights again, into a second model, then serve with that. If they are bad, nothing changes."""
        self.loaded = load(self.module, self.weights)

    def answer(self, rows: list[bytes]) -> list[tuple[list[float], str]]:
        """Answer a batch with one model, whatever is assigned meanwhile, and name its weights."""
        loaded = self.loaded
        x = memoryview(b"".join(rows)).cast("B", (len(rows), PIXELS))
        return [(row, loaded.name) for row in loaded.model.forward(x).tolist()]
