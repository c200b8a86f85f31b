"""Find the pass after which an answer is wrong, for ``mlaot bisect``.

The graphs are evaluated in float64 after each pass that changed them, always on the same inputs. Their results are
compared with the first graph of the entry: that of ``forward`` is the declared model. Inputs are eighths between -2 and
2, which every floating-point dtype can hold, and the integers 0 and 1, which are valid indices of nearly every axis.

The error of an answer, relative to its largest element, may be half of the digits of its dtype. Weights that are folded
at build time are rounded, and their sums may cancel, while a wrong rule gives a far larger error. The fuzzers derive a
tighter bound, as they must tell faults from rounding in the model's own dtypes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Traced
from mlaot.ir import Graph, TupleType, Type
from mlaot.ir.dims import names, substitute
from mlaot.ir.module import Module
from mlaot.ops.base import Array
from mlaot.settings.options import DEFAULTS, Options
from mlaot.transforms.batch import draws

ROWS = 3  # examples of a batch
SIZES = (ROWS, 2, 1, 4, 8)  # of named dims, tried in this order
HALF = {"f16": 5, "bf16": 4, "f32": 12, "f64": 26}  # half of the bits of a significand
ROUNDING_PASSES = {
    "quantize": "quantize",
    "group_weights": "weights_dtype",
    "half_weights": "weights_dtype",
}  # passes that round, by the settings that ask for it
WRONG = (MlaotError, AssertionError, ValueError, LookupError, TypeError, ZeroDivisionError)
Answers = dict[str, Array]


@dataclass(frozen=True)
class Fault:
    """The pass ``step`` after which an answer is wrong, and a description of the error."""

    step: str
    entry: str
    output: str
    what: str

    def __str__(self) -> str:
        return f"wrong after {self.step}: {self.entry} gives another {self.output}, {self.what}"


@dataclass
class PassChecker:
    """Check a module after each pass; raise ``FaultFound`` after the first pass that makes it wrong."""

    size: int
    traced: Traced
    first: dict[str, Answers] = field(default_factory=dict)
    seen: dict[str, object] = field(default_factory=dict)
    compared: int = 0
    is_batched: bool = False

    def __call__(self, step: str, module: Module) -> None:
        self.is_batched |= step == "add_batch" or not self.traced.per_example
        is_one = not self.is_batched
        rounds = step in ROUNDING_PASSES and getattr(module.options, ROUNDING_PASSES[step])
        for name, graph in module.graphs.items():
            state = id(graph), tuple(map(id, graph.nodes())), tuple(map(id, graph.roots()))
            if self.seen.get(name) == state or (is_one and any(map(draws, graph.nodes()))):
                continue
            self.seen[name] = state
            answers = self.answers(step, name, graph, module, is_one)
            expected = self.first.get(name) or (self.first.get("model") if name == "forward" else None)
            if expected is not None and not rounds:
                self.compare(step, name, graph, expected, answers)
            self.first[name] = answers if expected is None or rounds else expected

    def answers(self, step: str, name: str, graph: Graph, module: Module, is_one: bool) -> Answers:
        """Evaluate a graph. A graph that is declared on one example is evaluated for each example of a batch."""
        inputs = {key: random_input(key, node.type, self.size, is_one) for key, node in graph.inputs.items()}
        slots = {key: value for key, value in module.slots.items() if key in graph.inputs}
        dims = dict.fromkeys({n for node in graph.nodes() for n in dims_of(node.type)}, self.size)
        try:
            if not is_one:
                return evaluate(graph, inputs | slots, wide=True, dims=dims | {"batch": ROWS})
            rows = [{key: value[i] for key, value in inputs.items()} | slots for i in range(ROWS)]
            per_row = [evaluate(graph, row, wide=True, dims=dims) for row in rows]
            return {key: np.stack([answer[key] for answer in per_row]) for key in per_row[0]}
        except WRONG as error:
            if not self.first:
                raise
            raise FaultFound(Fault(step, name, "answer", f"none at all ({error})")) from error

    def compare(self, step: str, name: str, graph: Graph, expected: Answers, answers: Answers) -> None:
        """Raise ``FaultFound`` for the first output whose error is larger than its dtype allows."""
        self.compared += 1
        for key, value in answers.items():
            reference = expected.get(key)
            if reference is None:
                continue
            if reference.ndim == value.ndim + 1:  # all examples have one answer
                reference = reference[0]
            node = graph.outputs.get(key) or graph.writes[key.removeprefix("write ")]
            off = difference(reference, value)
            if off > 2.0 ** -HALF.get(node.find().type.dtype.name, 60):
                what = f"off by {off:.3g} of the largest element" if np.isfinite(off) else "of another shape or kind"
                raise FaultFound(Fault(step, name, key, what))


class FaultFound(Exception):
    """Signal the first fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def bisect(name: str, traced: Callable[[], Traced], options: Options = DEFAULTS, sample: Any = None) -> Fault | int:
    """Return the first fault of a model's passes, or if there is none, the number of graphs compared."""
    wrong: Exception | None = None
    for size in SIZES:
        watch = PassChecker(size, traced())
        try:
            passes.run(name, watch.traced, options, sample=sample, watch=watch)
        except FaultFound as stopped:
            return stopped.fault
        except WRONG as error:
            if watch.first:
                raise
            wrong = error  # the sizes of these dims do not fit
            continue
        return watch.compared
    raise MlaotError(f"{name} cannot be evaluated for dims of {', '.join(map(str, SIZES))}: {wrong}")


def difference(expected: Array, actual: Array) -> float:
    """Return the largest difference relative to the largest element, or infinity if shapes or nans differ."""
    if expected.shape != actual.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        same = (expected == actual) | ((expected != expected) & (actual != actual))
        if same.all():
            return 0.0
        a, b = expected.astype(np.float64), actual.astype(np.float64)
        differences = np.where(same, 0.0, np.abs(a - b))
        largest = np.abs(a[np.isfinite(a)]).max(initial=0)
    share = differences.max() / max(largest, np.finfo(np.float64).tiny)
    return float(share) if np.isfinite(share) else float("inf")


def random_input(name: str, type_: Type | TupleType, size: int, is_one: bool) -> Array:
    """Return random numbers for an input, which depend only on its name.

    With ``is_one`` for each of ``ROWS`` examples.
    """
    assert isinstance(type_, Type)
    dims: Mapping[str, int] = {n: ROWS if n == "batch" else size for n in dims_of(type_)}
    shape = ((ROWS,) if is_one else ()) + tuple(substitute(d, dims) for d in type_.shape)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = rng.integers(-16, 17, shape) / 8
    return type_.dtype.array(values if type_.dtype.kind == "f" else values > 0)


def dims_of(type_: Type | TupleType) -> set[str]:
    """Return the named dims of a type."""
    items = type_.items if isinstance(type_, TupleType) else (type_,)
    return {n for item in items for d in item.shape for n in names(d)}
