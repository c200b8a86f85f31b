"""What a kernel computes and moves, as expressions of the dims: what a profile and a report tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlaot.ir.dims import Dim, assign, names, product
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import dim_name, with_own_dims
from mlaot.lower.program import Cost, Kernel, Program


def costs(program: Program) -> tuple[Cost, ...]:
    """Return the cost of each distinct kernel, in their order."""
    return tuple(cost_of(kernel, program.module.dims, entry.name) for kernel, entry in program.distinct.values())


def cost_of(kernel: Kernel, dims: Iterable[str], entry: str = "") -> Cost:
    """Return what one run of a kernel costs, with texts for people; a dim that is not in ``dims`` counts as 1.

    Such a dim is the variable of a loop around the kernel. The expressions have the names of dims in C.
    """
    in_c = {dim_name(name): name for name in dims}

    def known(extent: Dim) -> Dim:
        return assign(extent, dict.fromkeys(names(extent) - in_c.keys(), 1))

    operations: Dim = 0
    contraction = kernel.contraction
    if contraction is not None:
        points = product(tuple(known(axis.size) for axis in (*contraction.out, *contraction.summed)))
        operations = points * (2 if len(contraction.operands) > 1 else 1)
    buffers = dict.fromkeys(param.buffer for param in kernel.params)
    sizes = [product(tuple(map(known, b.shape))) * DTYPES[b.dtype].itemsize for b in buffers]
    doc = tuple(with_own_dims(line, in_c.values()) for line in kernel.doc)
    return Cost(entry, title(kernel, doc), kernel.origin, kernel.line, doc, operations, sum(sizes, start=0))


def title(kernel: Kernel, lines: Sequence[str]) -> str:
    """Return the ops of a kernel and the type of the last: ``contract, add, relu : f64[batch,4]``."""
    ops = dict.fromkeys(line.partition(" = ")[2].partition("(")[0] for line in lines)
    type_ = lines[-1].rpartition(" : ")[2] if lines else ""
    shown = ", ".join(op for op in ops if op not in ("", "rounded"))
    return f"{shown} : {type_}" if shown else (lines[-1] if lines else kernel.template)
