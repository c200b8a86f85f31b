"""The function ``fit``, an entry over whole data sets: ``train_step`` on one batch of the examples after the other.

    train_step: x [batch, 3], label [batch], lr    =>    fit: x [examples, 3], label [examples], lr

The examples lie along the first axis ``batch``. A model without such an axis has them along the only named one that an
input begins with, or along the fixed one that all its inputs begin with: a batch is exactly so large then. Inputs that
begin otherwise go into every step as they are.

One example after the other goes by the entry ``fit_next``, where there is one: each step also starts the next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from mlaot.errors import MlaotError
from mlaot.ir.module import FIT_BEGIN, FIT_NEXT
from mlaot.ir.types import DTYPES
from mlaot.lower.extents import shown
from mlaot.lower.program import Entry, Module, Port

BATCH = 32  # unless the caller says otherwise

# The keyword-only arguments of fit, besides the inputs of train_step.
OPTIONS = ("batch", "epochs", "shuffle", "seed", "callback")


@dataclass(frozen=True)
class Fit:
    """The entry ``fit`` of a module, the extent of ``train_step`` that a batch has, and the dim ``examples``.

    Where no batches can be formed, ``refusal`` says why. ``ahead``: the bytes of each value that a step computes for
    the next one; ``begins``: the inputs of ``train_step`` that ``fit_begin`` reads, and ``fit_next`` of the next one.
    """

    entry: Entry
    rows: int | str
    examples: str
    refusal: str = ""
    ahead: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()

    @property
    def batch(self) -> int:
        """The default size of a batch."""
        return self.rows if isinstance(self.rows, int) else BATCH

    def added_to(self, module: Module) -> Module:
        """The module with ``fit`` among its entries."""
        dims, entries = (*module.dims, self.examples), (*module.entries, self.entry)
        return module if self.refusal else replace(module, dims=dims, entries=entries)


def make_fit(module: Module) -> Fit | None:
    """What ``fit`` is in a module that has ``train_step``."""
    steps = [entry for entry in module.entries if entry.name == "train_step"]
    if not steps:
        return None
    (step,) = steps
    for port in step.inputs:
        if port.name in OPTIONS:
            raise MlaotError(f"{module.name}: an input that trains cannot be called {port.name!r}: fit has that")
    examples = "examples"
    while examples in module.dims:
        examples += "_"
    rows, refusal = rows_of(step)
    inputs = tuple(with_examples(port, rows, examples) for port in step.inputs)
    # The bounds of a step are checked once the size of a batch is known.
    fit = Fit(replace(step, name="fit", inputs=inputs, extents=()), rows, examples, refusal)
    begin, following = (next((e for e in module.entries if e.name == name), None) for name in (FIT_BEGIN, FIT_NEXT))
    if begin is None or following is None:
        return fit
    places = {port.name: i for i, port in enumerate(step.inputs)}
    same = [port.name for port in following.inputs[: len(places)]] == list(places)
    assert same, "bug in mlaot: fit_next reads other inputs"
    ahead = tuple(prod(map(int, port.shape)) * DTYPES[port.dtype].itemsize for port in begin.outputs)
    return replace(fit, ahead=ahead, begins=tuple(places[port.name] for port in begin.inputs))


def rows_of(step: Entry) -> tuple[int | str, str]:
    """The extent of the axis that the examples lie along, and why there are no batches, if so."""
    arrays = [port for port in step.inputs if port.shape]
    first = {port.shape[0] for port in arrays}
    named = sorted(e for e in first if isinstance(e, str) and e.isidentifier())
    if "batch" in first:
        rows: int | str = "batch"
    elif len(named) == 1:
        (rows,) = named
    elif len(first) == 1 and all(isinstance(e, int) for e in first):
        (rows,) = first
    else:
        found = ", ".join(map(shape_text, arrays))
        return "batch", f"its inputs begin with no common axis: {found}" if found else "it has no arrays as inputs"
    if isinstance(rows, str):
        for port in arrays:
            others = port.shape[1:] if port.shape[0] == rows else port.shape
            if any(re.search(rf"\b{rows}\b", str(extent)) for extent in others):
                return rows, f"{rows} is not only the first axis of {shape_text(port)}"
    return rows, ""


def shape_text(port: Port) -> str:
    """``x[batch, 784]``"""
    return f"{port.name}[{', '.join(map(shown, port.shape))}]"


def with_examples(port: Port, rows: int | str, examples: str) -> Port:
    """An input of ``fit``."""
    return replace(port, shape=(examples, *port.shape[1:])) if port.shape[:1] == (rows,) else port
