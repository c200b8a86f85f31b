"""The result of a front end: graphs for one example (or a batch), parameters, buffers, an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mlaot.ir import Graph, Node
from mlaot.ir.module import Generation
from mlaot.tokenizers.text_steps import TextStep

PARAMETERS = "all parameters"  # the flat input that holds every scalar parameter of a scalar model
Arrays = dict[str, np.ndarray[Any, Any]]
Reference = Callable[[Arrays], Arrays]


class Optimizer(Protocol):
    """An optimizer, which updates parameters: its functions take arrays, plain or traced, by name."""

    lr: Any

    def init(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the initial state."""

    def update(
        self, parameters: dict[str, Any], gradients: dict[str, Any], state: dict[str, Any], lr: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the new parameters and the new state."""


@dataclass
class Traced:
    """The graphs of a traced model, and the data that belong to them.

    ``model`` is the graph with the model's outputs, and with an output ``loss`` if it trains. ``training`` is the graph
    of the training step, if that differs (dropout, normalization). ``entries`` are the user's further functions by
    name.

    Inputs that are parameters or buffers have the note ``parameter``. The ``writes`` of a graph are new values of
    buffers. ``parameters`` are trained, or constant if there is no loss, and ``buffers`` are further state, both by
    input name. ``constants`` are weights that stay constant while others are trained. ``named`` are the arrays that the
    user declared for the parameters of a scalar model: by name, the numbers of their elements in the flat input
    ``PARAMETERS``.

    With ``per_example`` the graphs are for one example, and get the dimension ``batch``. ``arguments`` are the inputs
    of ``forward``, used or not. Without an ``optimizer`` the update is stochastic gradient descent with
    ``learning_rate``. ``docs`` has the user's description of each entry, one line. ``taps`` are the nodes that
    ``mlaot.tap`` named; only the entry ``intermediates`` returns them. If there are ``refusals``, the graph's last
    output is the number of the one that applies to the inputs, or 0 for none. ``dicts`` names the entries whose outputs
    are a dict.

    ``file_names`` has the names of the inputs and outputs of ``forward`` in the file that the model comes from.
    ``info`` is added to the result of ``info()``. ``generation`` says how texts are generated. ``labels`` has, by entry
    and output, the strings whose indices the output holds; callers get the strings. An input has them in its note
    ``strings``. ``steps`` has, by entry and output, the step that makes strings of its numbers. An input that a step
    makes has it in its note ``made``.
    """

    graph: Graph
    parameters: Arrays
    named: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)
    per_example: bool = True
    learning_rate: float = 0.1
    counts: dict[str, int] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    training: Graph | None = None
    buffers: Arrays = field(default_factory=dict)
    entries: dict[str, Graph] = field(default_factory=dict)
    optimizer: Optimizer | None = None
    docs: dict[str, str] = field(default_factory=dict)
    taps: dict[str, Node] = field(default_factory=dict)
    dicts: frozenset[str] = frozenset()
    file_names: dict[str, str] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    info: dict[str, object] = field(default_factory=dict)
    generation: Generation | None = None
    constants: Arrays = field(default_factory=dict)
    labels: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    steps: dict[tuple[str, str], TextStep] = field(default_factory=dict)

    @property
    def declared(self) -> Arrays:
        """Return the parameters by the names that the user gave them."""
        flat = self.parameters.get(PARAMETERS)
        return self.parameters if flat is None else {name: flat[ids] for name, ids in self.named.items()}

    @property
    def trains(self) -> bool:
        return "loss" in self.graph.outputs


@dataclass(frozen=True)
class Declaration:
    """A declared model, whose ``trace()`` returns its graph. ``mlaot.model`` and ``mlaot.micrograd.declare`` make it.

    ``place`` is the line of the declaration, as ``model.py:12: ``, for errors without a line of their own.
    ``references`` are other implementations by name: functions from inputs by name to the outputs. ``sample`` has
    inputs by name; their ranges are used for inputs without known ranges.
    """

    trace: Callable[[], Traced]
    place: str = ""
    references: Mapping[str, Reference] = field(default_factory=dict)
    sample: Mapping[str, Any] | None = None
