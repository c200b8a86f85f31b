"""Products with rows that are mostly zeros: a list of what is not zero, then a row of the matrix for each of it.

    const ptrdiff_t end = nonzeros_u8(pixels + i0 * 784, 784, t0);
    for (ptrdiff_t e = 0; e < end; e++) {
        const ptrdiff_t row = t0[e];
        const f32v x0 = splat_f32v((float)pixels[i0 * 784 + row]);
        a0 += x0 * load_f32v(w + row * 64);                                     sparse_dot
        store_f32v(w + row * 64, load_f32v(w + row * 64) + x0 * b0);            sparse_add
    }

As many columns as there are registers for go along; each is added up in the order of the row, on every CPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mlaot.ir import Node
from mlaot.ir.types import Type, i32
from mlaot.lower.emit import C_TYPES, Emitter
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access, linear, work_buffer
from mlaot.lower.plain import indices, loop, nest
from mlaot.lower.program import Buffer, Plain, Sparse
from mlaot.ops.sparse import sparse_dot
from mlaot.schedule.contraction import lanes_of
from mlaot.schedule.machine import LINE
from mlaot.schedule.machine import Machine as Isa
from mlaot.schedule.tuning import SPARSE_SPARE_REGISTERS

REST = (None, "{rest}")  # of a vector: all of it, a part


def sparse_kernel(group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> Sparse:
    """The kernel of a node ``sparse_dot`` or ``sparse_add``, which writes the first of its buffers."""
    emit = Emitter(group, accesses, stores)
    (node,) = group.nodes
    out, axis, is_dot = stores[node][0], node.attrs["axis"], node.op is sparse_dot
    x, matrix = (node.arg(0), node.arg(1)) if is_dot else (node.arg(1), node.arg(0))
    length, columns, lead = matrix.type.shape[axis], matrix.type.shape[1 - axis], indices(x.type.shape[:-1])
    assert isinstance(length, int) and isinstance(columns, int), "bug in mlaot: a sparse product without fixed sizes"
    place = ["{j}", "{j}"]
    place[axis] = "row"
    at, along = [*lead, "{j}"], len(lead)
    before: tuple[str, ...] = ()
    name = emit.buffer(out, written=True)
    if is_dot:
        held, moved = emit.access(matrix), Access(out, out.strides)
    else:
        held, moved = Access(out, out.strides), emit.access(node.arg(2))
        if emit.accesses.get(matrix) != held:
            whole = indices(matrix.type.shape)
            target = f"{name}[{linear([*zip(whole, out.strides, strict=True)])}]"
            before = tuple(nest(whole, matrix.type.shape, [f"{target} = {emit.value(matrix, whole)};"]))
    rows = emit.access(x)
    listed = emit.buffer(work_buffer("list", Type(i32, (length + LINE // 4,))), written=True)
    start, source = linear([*zip(lead, rows.strides[:-1], strict=True)], rows.offset), emit.buffer(rows.buffer)
    value = f"{source}[{rows.index([*lead, 'row'])}]"
    if rows.strides[-1] == 1:
        pointer = source if start == "0" else f"{source} + {start}"
        found = [f"const ptrdiff_t end = nonzeros_{rows.buffer.dtype}({pointer}, {length}, {listed});"]
    else:
        test = [f"{listed}[end] = (int32_t)row;", f"end += {value} != 0;"]
        found = ["ptrdiff_t end = 0;", *loop("row", length, test)]
    value = value if rows.buffer.dtype == emit.dtype else f"({C_TYPES[emit.dtype]}){value}"
    loads = [emit.load(held, place, 1 - axis, rest) for rest in REST]
    dense = [""] * 2 if is_dot else [emit.load(moved, at, along, rest) for rest in REST]
    written = (at, along) if is_dot else (place, 1 - axis)
    stored = [emit.store(out, written[0], "@", written[1], rest) for rest in REST]
    loops = tuple((v, str(d)) for v, d in zip(lead, x.type.shape, strict=False) if v != "0")
    of_matrix, of_dense, of_sums = [(full, part) for full, part in (loads, dense, stored)]
    lines = (before, loops, tuple(found))
    return Sparse(emit.dtype, emit.params, *lines, listed, value, columns, of_matrix, of_dense, of_sums, emit.doc())


def loops_of(kernel: Sparse, isa: Isa) -> Plain:
    """The kernel on one instruction set: a block of columns after the other."""
    lanes, vector = lanes_of(kernel.dtype, isa), f"{kernel.dtype}v"
    starts = range(0, kernel.columns, lanes)
    blocks = -(-len(starts) // (isa.registers - SPARSE_SPARE_REGISTERS))
    body = list(kernel.found)
    for i in range(blocks):
        block = starts[i * len(starts) // blocks : (i + 1) * len(starts) // blocks]
        lines = _block(kernel, block, lanes, vector)
        body += lines if blocks == 1 else ["{", *[f"    {line}" for line in lines], "}"]
    return Plain(kernel.dtype, kernel.params, (), kernel.before, kernel.loops, tuple(body), kernel.doc)


def _block(kernel: Sparse, starts: Sequence[int], lanes: int, vector: str) -> list[str]:
    """Some columns of all rows that are listed."""

    def put(texts: tuple[str, str], j: int) -> str:
        rest = kernel.columns - j
        text = texts[0] if rest >= lanes else texts[1].replace("{rest}", str(rest))
        return tidy(text.replace("{j}", str(j)))

    if kernel.dense[0]:
        before = [f"const {vector} b{k} = {put(kernel.dense, j)};" for k, j in enumerate(starts)]
        steps = [
            put(kernel.stores, j).replace("@", f"{put(kernel.matrix, j)} + x0 * b{k}") for k, j in enumerate(starts)
        ]
        after = []
    else:
        before = [f"{vector} a{k} = splat_{vector}(0);" for k in range(len(starts))]
        steps = [f"a{k} += x0 * {put(kernel.matrix, j)};" for k, j in enumerate(starts)]
        after = [put(kernel.stores, j).replace("@", f"a{k}") for k, j in enumerate(starts)]
    row = [f"const ptrdiff_t row = {kernel.listed}[e];", f"const {vector} x0 = splat_{vector}({kernel.value});"]
    return [*before, *loop("e", "end", [*row, *steps]), *after]


def tidy(text: str) -> str:
    """``(i) * 4`` as ``i * 4``, and nothing is added to a pointer."""
    return re.sub(r" \+ 0(?=[,)\]]| \+)", "", re.sub(r"(?<!\w)\((\w+)\) \*", r"\1 *", text))
