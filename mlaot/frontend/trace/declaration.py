"""What a front end hands to the compiler: graphs for one example (or a batch), parameters, buffers, an optimizer."""

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
    """How parameters are updated: functions over arrays, plain or traced, by name."""

    lr: Any

    def init(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the state to start from."""

    def update(
        self, parameters: dict[str, Any], gradients: dict[str, Any], state: dict[str, Any], lr: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the new parameters and the new state."""


@dataclass
class Traced:
    """The graph ``model`` with its outputs and, to train, an output ``loss``; ``training``: the same traced for the
    training step, where that differs (dropout, normalization); ``entries``: the user's further functions by name.

    Inputs that are parameters or buffers have the note ``parameter``; a graph's ``writes`` are new values of buffers.
    ``parameters`` are trained (frozen where there is no loss), ``buffers`` are further state, both by input name;
    ``constants`` are weights that stay as they are while others are trained.
    ``named`` are the arrays that the user declared of the parameters of a scalar model: by name the numbers of their
    elements in the flat input ``PARAMETERS``. ``per_example``: the graphs are for one example
    and get the dimension ``batch``. ``arguments``: inputs of ``forward``, needed or not. Without an ``optimizer`` the
    update is stochastic gradient descent with ``learning_rate``. ``docs``: what the user says of an entry, in a line.
    ``taps``: nodes of the graph that ``mlaot.tap`` named, which none but the entry ``intermediates`` gives.
    ``refusals``: the graph's last output is a number that says which of these is wrong with the inputs, 0 for none.
    ``dicts``: those of ``forward`` and the entries whose outputs are a dict.
    ``file_names``: what the file that the model comes from calls the inputs and outputs of ``forward``. ``info``: what
    ``info()`` tells besides. ``generation``: how texts are generated, if they are. ``labels``: by entry and output, the
    strings whose places the output holds, which callers get; an input has them in its note ``strings``. ``steps``: by
    entry and output, what makes strings of its numbers; an input that is made has its step in its note ``made``.
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
    """A declared model: ``trace()`` gives its graph. Made by ``mlaot.micrograd.declare`` and ``mlaot.model``.

    ``place``: the line of the user's code where it is, as ``model.py:12: ``, for errors of no other line.
    ``references``: others that compute the same, by name, each a function of inputs by name that gives the outputs.
    ``sample``: inputs by name whose ranges count where nothing else says them.
    """

    trace: Callable[[], Traced]
    place: str = ""
    references: Mapping[str, Reference] = field(default_factory=dict)
    sample: Mapping[str, Any] | None = None
