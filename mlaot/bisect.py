"""After which pass the answer is wrong: what ``mlaot bisect`` does.

The graphs are evaluated in float64 after each pass that changed them, on inputs that are the same every time, and
compared with the first graph of that entry: ``forward`` with the declared model, ``train_step`` and others with what
they are when they are made. Inputs are eighths between -2 and 2, which every dtype of floating-point numbers holds,
and the integers 0 and 1, which are indices of nearly everything.

An answer may be off by half of the digits of its dtype, as a share of its largest element: weights that are folded
at build are rounded, and sums of them may cancel, while a wrong rule is far off. A derived bound, as the fuzzers have
it, tells faults from roundings where kernels compute in the model's own dtypes; in float64 none is needed.
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
HALF = {"f16": 5, "bf16": 4, "f32": 12, "f64": 26}  # bits of a number that are half of its digits
ROUNDS = {"quantize": "quantize", "half_weights": "weights_dtype"}  # passes that round, where these settings ask
WRONG = (MlaotError, AssertionError, ValueError, LookupError, TypeError, ZeroDivisionError)
Answers = dict[str, Array]


@dataclass(frozen=True)
class Fault:
    """The pass ``step`` after which an answer is wrong, and how."""

    step: str
    entry: str
    output: str
    what: str

    def __str__(self) -> str:
        return f"wrong after {self.step}: {self.entry} gives another {self.output}, {self.what}"


@dataclass
class Watch:
    """Looks at a module after each pass; raises ``Found`` after the first that is wrong."""

    size: int
    traced: Traced
    first: dict[str, Answers] = field(default_factory=dict)
    seen: dict[str, object] = field(default_factory=dict)
    compared: int = 0
    is_batched: bool = False

    def __call__(self, step: str, module: Module) -> None:
        self.is_batched |= step == "add_batch" or not self.traced.per_example
        is_one = not self.is_batched
        rounds = step in ROUNDS and getattr(module.options, ROUNDS[step])
        for name, graph in module.graphs.items():
            state = id(graph), tuple(map(id, graph.nodes())), tuple(map(id, graph.roots()))
            if self.seen.get(name) == state or (is_one and any(map(draws, graph.nodes()))):
                continue
            self.seen[name] = state
            answers = self.answers(step, name, graph, module, is_one)
            known = self.first.get(name) or (self.first.get("model") if name == "forward" else None)
            if known is not None and not rounds:
                self.compare(step, name, graph, known, answers)
            self.first[name] = answers if known is None or rounds else known

    def answers(self, step: str, name: str, graph: Graph, module: Module, is_one: bool) -> Answers:
        """What a graph gives; a model that is declared on one example gives it for each of some."""
        given = {key: made(key, node.type, self.size, is_one) for key, node in graph.inputs.items()}
        held = {key: value for key, value in module.slots.items() if key in graph.inputs}
        known = dict.fromkeys({n for node in graph.nodes() for n in dims_of(node.type)}, self.size)
        try:
            if not is_one:
                return evaluate(graph, given | held, wide=True, dims=known | {"batch": ROWS})
            rows = [{key: value[i] for key, value in given.items()} | held for i in range(ROWS)]
            found = [evaluate(graph, row, wide=True, dims=known) for row in rows]
            return {key: np.stack([answer[key] for answer in found]) for key in found[0]}
        except WRONG as error:
            if not self.first:
                raise
            raise Found(Fault(step, name, "answer", f"none at all ({error})")) from error

    def compare(self, step: str, name: str, graph: Graph, known: Answers, answers: Answers) -> None:
        """The first output that is further off than its dtype allows is a fault."""
        self.compared += 1
        for key, value in answers.items():
            wanted = known.get(key)
            if wanted is None:
                continue
            if wanted.ndim == value.ndim + 1:  # all examples have one answer
                wanted = wanted[0]
            node = graph.outputs.get(key) or graph.writes[key.removeprefix("write ")]
            off = difference(wanted, value)
            if off > 2.0 ** -HALF.get(node.find().type.dtype.name, 60):
                share = f"off by {off:.3g} of the largest element" if np.isfinite(off) else "of another shape or kind"
                raise Found(Fault(step, name, key, share))


class Found(Exception):
    """A fault was found."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def bisect(name: str, traced: Callable[[], Traced], options: Options = DEFAULTS, sample: Any = None) -> Fault | int:
    """The first fault of a model's passes, else how many graphs were compared."""
    wrong: Exception | None = None
    for size in SIZES:
        watch = Watch(size, traced())
        try:
            passes.run(name, watch.traced, options, sample=sample, watch=watch)
        except Found as found:
            return found.fault
        except WRONG as error:
            if watch.first:
                raise
            wrong = error  # these dims do not go together
            continue
        return watch.compared
    raise MlaotError(f"{name} cannot be evaluated for dims of {', '.join(map(str, SIZES))}: {wrong}")


def difference(wanted: Array, found: Array) -> float:
    """The largest difference as a share of the largest element; infinite for other shapes, integers and nans."""
    if wanted.shape != found.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        same = (wanted == found) | ((wanted != wanted) & (found != found))
        if same.all():
            return 0.0
        a, b = wanted.astype(np.float64), found.astype(np.float64)
        apart = np.where(same, 0.0, np.abs(a - b))
        largest = np.abs(a[np.isfinite(a)]).max(initial=0)
    share = apart.max() / max(largest, np.finfo(np.float64).tiny)
    return float(share) if np.isfinite(share) else float("inf")


def made(name: str, type_: Type | TupleType, size: int, is_one: bool) -> Array:
    """Numbers for an input, the same for its name; for each of ``ROWS`` examples where the graph takes one."""
    assert isinstance(type_, Type)
    known: Mapping[str, int] = {n: ROWS if n == "batch" else size for n in dims_of(type_)}
    shape = ((ROWS,) if is_one else ()) + tuple(substitute(d, known) for d in type_.shape)
    numbers = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = numbers.integers(-16, 17, shape) / 8
    return type_.dtype.array(drawn if type_.dtype.kind == "f" else drawn > 0)


def dims_of(type_: Type | TupleType) -> set[str]:
    """The named dims of a type."""
    items = type_.items if isinstance(type_, TupleType) else (type_,)
    return {n for item in items for d in item.shape for n in names(d)}
