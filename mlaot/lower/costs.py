"""What a kernel computes and moves, as expressions of the dims: what a profile and a report tell of it."""

from __future__ import annotations

from collections.abc import Iterable

from mlaot.ir.dims import Dim, assign, names, product
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Cost, Kernel, Procedure


def costs(procedures: Iterable[Procedure], dims: Iterable[str]) -> tuple[Cost, ...]:
    """Return the cost of each kernel, once, in the order of the entries, where a dim that is not in ``dims`` is 1."""
    known, found = {*dims}, dict[int, Cost]()
    for procedure in procedures:
        for kernel in procedure.kernels:
            if id(kernel) not in found:
                found[id(kernel)] = cost_of(kernel, known, procedure.entry.name)
    return tuple(found.values())


def cost_of(kernel: Kernel, dims: set[str], entry: str = "") -> Cost:
    """Return what one run of a kernel costs; a dim that is not in ``dims``, such as that of a loop around it, is 1."""

    def known(extent: Dim) -> Dim:
        return assign(extent, dict.fromkeys(names(extent) - dims, 1))

    operations: Dim = 0
    contraction = kernel.contraction
    if contraction is not None:
        points = product(tuple(known(axis.size) for axis in (*contraction.out, *contraction.summed)))
        operations = points * (2 if len(contraction.operands) > 1 else 1)
    buffers = dict.fromkeys(param.buffer for param in kernel.params)
    sizes = [product(tuple(map(known, b.shape))) * DTYPES[b.dtype].itemsize for b in buffers]
    return Cost(entry, title(kernel), kernel.origin, kernel.line, kernel.doc, operations, sum(sizes, start=0))


def title(kernel: Kernel) -> str:
    """Return the ops of a kernel and the type of the last: ``contract, add, relu : f64[batch,4]``."""
    lines = kernel.doc
    ops = dict.fromkeys(line.partition(" = ")[2].partition("(")[0] for line in lines)
    type_ = lines[-1].rpartition(" : ")[2] if lines else ""
    shown = ", ".join(op for op in ops if op not in ("", "rounded"))
    return f"{shown} : {type_}" if shown else (lines[-1] if lines else kernel.template)
