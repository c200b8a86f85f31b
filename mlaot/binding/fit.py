"""The function ``fit``, which runs ``train_step`` on one batch of a data set after another.

    train_step: x [batch, 3], label [batch], lr    =>    fit: x [examples, 3], label [examples], lr

The examples lie along the first axis ``batch``. In a model without such an axis they lie along the only named axis that
an input begins with. Otherwise they lie along a fixed axis that all inputs begin with, whose size is then the size of a
batch. Every step gets all other inputs unchanged.

If there is an entry ``fit_step``, training on one example at a time works in blocks: ``fit_begin`` on a block of
examples, ``fit_step`` on each of them, and ``fit_end`` on the block (passes/training/delayed_updates.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from mlaot.binding.extents import shown
from mlaot.errors import MlaotError
from mlaot.ir.dims import names, parse
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Entry, ExtensionModule, Port

BATCH = 32  # unless the caller says otherwise

# The keyword-only arguments of fit, besides the inputs of train_step.
OPTIONS = ("batch", "epochs", "shuffle", "seed", "progress", "callback")


@dataclass(frozen=True)
class Fit:
    """The entry ``fit`` of a module, the extent ``rows`` of ``train_step`` that a batch has, and the dim ``examples``.

    If no batches can be formed, ``refusal`` says why. The other fields are for blocks. ``block`` is the number of
    examples of a block. ``ahead`` and ``like`` are the sizes in bytes of one example's factors, for each weight that is
    updated late. ``block_inputs`` are the inputs of ``train_step`` that the entries on a whole block read, and
    ``step_inputs`` those that the entry on one example reads.
    """

    entry: Entry
    rows: int | str
    examples: str
    refusal: str = ""
    block: int = 0
    ahead: tuple[int, ...] = ()
    like: tuple[int, ...] = ()
    block_inputs: tuple[int, ...] = ()
    step_inputs: tuple[int, ...] = ()

    @property
    def batch(self) -> int:
        """The default size of a batch."""
        return self.rows if isinstance(self.rows, int) else BATCH

    def added_to(self, module: ExtensionModule) -> ExtensionModule:
        """Return the module with ``fit`` among its entries."""
        dims, entries = (*module.dims, self.examples), (*module.entries, self.entry)
        return module if self.refusal else replace(module, dims=dims, entries=entries)


def make_fit(module: ExtensionModule) -> Fit | None:
    """Return the entry ``fit`` of a module, or None if it has no ``train_step``."""
    steps = [entry for entry in module.entries if entry.name == "train_step"]
    if not steps:
        return None
    (step,) = steps
    for port in step.inputs:
        if port.name in OPTIONS:
            raise MlaotError(
                f"{module.name}: an input that trains cannot be called {port.name!r}: fit has such an argument"
            )
    examples = "examples"
    while examples in module.dims:
        examples += "_"
    rows, refusal = rows_of(step)
    inputs = tuple(with_examples(port, rows, examples) for port in step.inputs)
    # The bounds of a step are checked once the size of a batch is known.
    fit = Fit(replace(step, name="fit", inputs=inputs, extents=()), rows, examples, refusal)
    by_name = {entry.name: entry for entry in module.entries}
    if FIT_STEP not in by_name:
        return fit
    places = {port.name: i for i, port in enumerate(step.inputs)}
    begin, one, end = (by_name[name] for name in (FIT_BEGIN, FIT_STEP, FIT_END))
    block, ones = ([places[port.name] for port in entry.inputs if port.name in places] for entry in (begin, one))
    products = len(begin.outputs) // 2
    assert len(end.inputs) == len(block) + products, "bug in mlaot: fit_end reads other inputs than fit_begin"
    assert len(one.inputs) == len(ones) + 3 * products, "bug in mlaot: fit_step reads other products"
    bytes_ = [prod(map(int, port.shape[1:])) * DTYPES[port.dtype].itemsize for port in begin.outputs]
    size = int(begin.outputs[0].shape[0])
    return replace(
        fit,
        block=size,
        ahead=tuple(bytes_[0::2]),
        like=tuple(bytes_[1::2]),
        block_inputs=tuple(block),
        step_inputs=tuple(ones),
    )


def rows_of(step: Entry) -> tuple[int | str, str]:
    """Return the extent of the axis of the examples, and if no batches can be formed, the reason."""
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
        shapes = ", ".join(map(shape_text, arrays))
        return "batch", f"its inputs begin with no common axis: {shapes}" if shapes else "it has no arrays as inputs"
    if isinstance(rows, str):
        for port in arrays:
            inner = port.shape[1:] if port.shape[0] == rows else port.shape
            if any(rows in names(parse(extent)) for extent in inner):
                return rows, f"{rows} is not only the first axis of {shape_text(port)}"
    return rows, ""


def shape_text(port: Port) -> str:
    """Return ``x[batch, 784]``"""
    return f"{port.name}[{', '.join(map(shown, port.shape))}]"


def with_examples(port: Port, rows: int | str, examples: str) -> Port:
    """Return an input of ``fit``. If a part of each batch holds indices, the range is checked on all examples."""
    if port.shape[:1] != (rows,):
        return port
    ranges = tuple(replace(range_, box=range_.box and (None, *range_.box[1:])) for range_ in port.ranges)
    return replace(port, shape=(examples, *port.shape[1:]), ranges=ranges)
