"""What a front end hands to the compiler: one graph for one example (or a batch), and the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlaot.ir import Graph

PARAMETERS = "parameters"  # the flat input that holds every scalar parameter of a scalar model


@dataclass
class Traced:
    """The graph ``model`` with its outputs and, to train, an output ``loss``.

    ``parameters`` by input name; ``scalars`` names the elements of the flat input of a scalar model. ``per_example``:
    the graph is for one example and gets the dimension ``batch``. ``arguments``: inputs of ``forward``, needed or not.
    """

    graph: Graph
    parameters: dict[str, np.ndarray[Any, Any]]
    scalars: list[str] = field(default_factory=list)
    per_example: bool = True
    learning_rate: float = 0.1
    counts: dict[str, int] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        return "loss" in self.graph.outputs


@dataclass(frozen=True)
class Declaration:
    """A declared model: ``trace()`` gives its graph. Made by ``mlaot.micrograd.declare`` and ``mlaot.model``."""

    trace: Callable[[], Traced]
