"""A module under compilation: named entry graphs over shared parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from mlaot.ir.dims import dim
from mlaot.ir.graph import Graph
from mlaot.ir.indices import IndexRange
from mlaot.ir.types import DType
from mlaot.settings.options import DEFAULTS, Options
from mlaot.tokenizers.text_steps import TextStep


@dataclass(frozen=True)
class Product:
    """A product with frozen weights. ``shape`` is the number of terms of each sum, and the number of channels."""

    weight: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Quantized(Product):
    """A product that is computed with 8-bit integers.

    ``error`` is the root mean square error of the rounded weights, relative to the root mean square of the weights.
    ``range`` is the range of the activations, or None if each call computes it.
    """

    error: float
    range: tuple[float, float] | None


@dataclass(frozen=True)
class Transformed:
    """The 3x3 filters, [3, 3, ..], from which Winograd's transform for tiles of m x m results makes a parameter."""

    weights: np.ndarray[Any, Any]
    m: int


@dataclass(frozen=True)
class Generation:
    """The generation of texts of at most ``context`` tokens, out of ``tokens`` different ones.

    ``entry`` reads the next tokens of a text, whose state is in the buffers ``text``, ``length`` and ``place``. It
    stores data of tokens by their positions, or else ``rereads`` a text from its beginning to go back. The tokens
    ``ends`` end an answer. ``tokenizer`` is its packed tables, if there is one. The dim ``SEEN`` of the entry is
    ``place`` plus the number of tokens that a call reads. If ``texts`` is above 1, the entry ``READ_TEXTS`` reads one
    token of each of up to this many texts.
    """

    entry: str
    context: int
    tokens: int
    slides: bool
    ends: tuple[int, ...]
    tokenizer: bytes
    rereads: bool = False
    texts: int = 1


@dataclass
class Module:
    """A module under compilation: ``graphs`` by entry name, and ``parameters`` by input name.

    ``parameters`` are the initial values, or the frozen weights. ``state`` has further slots: ``buffers`` of the model
    (running statistics, caches), and the optimizer's state, whose names start with ``optimizer.``. A gradient slot is
    an input named ``gradient(NAME)``.

    ``scalars`` gives the place of each scalar parameter of a scalar model: the parameter's name and the flat index in
    it. ``named`` are the arrays that the user declared of these, each a view of one parameter. ``per_example``: the
    model was declared on one example, so no row of a batch depends on another. ``docs`` has a line on each entry.
    ``options`` are the settings for passes and lowering. ``declared`` are the entries before optimization,
    ``declared_slots`` their inputs.

    ``narrow`` are the weights that are stored in 16 bits, by input name. ``grouped`` counts the bytes saved by weights
    that are stored in groups, by the name of their words. ``sample`` has inputs by name, from which ranges are
    measured. ``quantized`` are the products that are computed with 8-bit integers, and ``unquantized`` those that would
    be slower. ``dicts`` names the entries whose outputs are a dict. ``ranges`` has, by entry and input, the indices
    that a caller may pass. ``folded`` counts the weights that passes have added, and ``hashed`` the parameters in
    ``by_value``. ``transformed`` has the sources of parameters that take more room than their sources. ``proof`` has
    the rewrites of the pass ``egraph``, one on each line. ``adapters`` are the parameters that are trained while the
    others are constants. ``labels`` has, by entry and output, the strings whose indices the output holds, and ``steps``
    the step that makes strings of its numbers.
    """

    name: str
    graphs: dict[str, Graph]
    parameters: dict[str, np.ndarray[Any, Any]]
    trains: bool
    learning_rate: float = 0.1
    scalars: tuple[tuple[str, int], ...] = ()
    named: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)
    per_example: bool = False
    info: dict[str, object] = field(default_factory=dict)
    state: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    dicts: frozenset[str] = frozenset()
    options: Options = DEFAULTS
    narrow: dict[str, DType] = field(default_factory=dict)
    grouped: dict[str, int] = field(default_factory=dict)
    declared: dict[str, Graph] = field(default_factory=dict)
    declared_slots: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    sample: Mapping[str, np.ndarray[Any, Any]] | None = None
    quantized: list[Quantized] = field(default_factory=list)
    unquantized: list[Product] = field(default_factory=list)
    folded: int = 0
    hashed: int = 0
    by_value: dict[object, list[str]] = field(default_factory=dict)
    ranges: dict[str, dict[str, tuple[IndexRange, ...]]] = field(default_factory=dict)
    transformed: dict[str, Transformed] = field(default_factory=dict)
    proof: list[str] = field(default_factory=list)
    generation: Generation | None = None
    adapters: frozenset[str] = frozenset()
    labels: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    steps: Mapping[tuple[str, str], TextStep] = field(default_factory=dict)

    def named_by_value(self, value: np.ndarray[Any, Any]) -> list[str]:
        """Return the names of the constant parameters that equal this array bit for bit."""
        for name in islice(self.parameters, self.hashed, None):
            self.by_value.setdefault(_key(self.parameters[name]), []).append(name)
        self.hashed = len(self.parameters)
        key = _key(value)
        names = [name for name in self.by_value.get(key, ()) if name not in self.adapters]
        return [name for name in names if _key(self.parameters.get(name)) == key]

    @property
    def slots(self) -> dict[str, np.ndarray[Any, Any]]:
        """All slots that a graph may read from the module: parameters, then the further state."""
        return {**self.parameters, **self.state}

    @property
    def trained(self) -> dict[str, np.ndarray[Any, Any]]:
        """The parameters that training changes."""
        names = self.adapters or self.parameters
        return {name: self.parameters[name] for name in self.parameters if name in names} if self.trains else {}

    @property
    def is_frozen(self) -> bool:
        """Whether weights that no entry writes are constants."""
        return bool(self.adapters) or (self.options.frozen and not self.trains)

    @property
    def is_stateful(self) -> bool:
        """Whether an instance has its own memory, as an entry writes it or weights can be replaced."""
        return not self.options.frozen or any(graph.writes for graph in self.graphs.values())


def _key(value: np.ndarray[Any, Any] | None) -> object:
    """Return a key that is the same for arrays that are equal bit for bit."""
    if value is None:
        return None
    return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).data).digest()


PHASES = "phases"  # the entry that forward() and backward() run one half each of, after set_input()
# The entries by which fit() takes one example after the other: what a block of them begins with, a step, its end.
FIT_BEGIN, FIT_STEP, FIT_END = "fit_begin", "fit_step", "fit_end"
PREPARE = "prepare_weights"  # the entry that makes what is `transformed`, once for all instances
READ_TEXTS = "read_texts"  # the entry that reads the next token of each of several texts
TEXTS = dim("texts")  # how many these are
SEEN = "seen"  # the dim of the entry that reads texts which no input has: how much of a text a call sees
INTERMEDIATES = "intermediates"  # the entry that gives what the model has tapped
RANDOM = "random"  # the slot of what random numbers are drawn from
BASE = "base"  # in the info: the digest of the weights beside which adapters are trained
OPTIMIZER = "optimizer."  # how the names of an optimizer's slots start


def gradient_of(name: str) -> str:
    """Return the name of the slot that holds the gradient of a parameter."""
    return f"gradient({name})"


def texts_of(name: str) -> str:
    """Return the name of the slot that holds, for each of several texts, the content of a slot for one text."""
    return f"texts({name})"
