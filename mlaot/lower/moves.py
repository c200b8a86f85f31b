"""Kernels that only move elements: gathers, their gradients, stacks and concatenations, as scalar loops over tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlaot.ir import Dim, Node
from mlaot.ir.dims import product
from mlaot.lower.emit import Emitter
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access, linear
from mlaot.lower.program import Buffer, Copy
from mlaot.ops import structure as st

Table = tuple[str, tuple[int, ...]]


def move_kernel(group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]]) -> Copy:
    """The kernel of a group of kind "move"."""
    emit = Emitter(group, accesses, stores)
    (node,) = group.nodes
    write = {st.take: _take, st.put_add: _put_add, st.stack: _join, st.concat: _join}[node.op]
    tables: list[Table] = []
    body: list[str] = []
    lead = node.attrs.get("lead", node.attrs.get("axis", 0))
    at = [f"i{i}" for i in range(lead)]
    for buffer in stores[node]:
        body += write(emit, node, at, buffer, tables)
    loops = tuple((v, str(d)) for v, d in zip(at, node.type.shape, strict=False))
    return Copy(group.dtype, emit.params, tuple(dict.fromkeys(tables)), (), loops, tuple(body), emit.doc())


def _offsets(shape: Sequence[Dim], strides: Sequence[Dim]) -> np.ndarray[Any, Any]:
    """The element offset of each element of the static axes of a buffer, in row-major order."""
    total = np.zeros(1, np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        assert isinstance(extent, int) and isinstance(stride, int), "bug in mlaot: a gather along a named dim"
        total = (total[:, None] + np.arange(extent) * stride).reshape(-1)
    return total


def _table(tables: list[Table], values: np.ndarray[Any, Any]) -> str:
    """C text of the n-th entry of a table; an arithmetic progression needs none."""
    steps = np.unique(np.diff(values)) if values.size > 1 else np.array([1])
    if len(steps) == 1:
        return linear([("e", int(steps[0]))], int(values[0])) if values.size else "0"
    entries = tuple(int(v) for v in values)
    name = next((name for name, known in tables if known == entries), f"table{len({n for n, _ in tables})}")
    tables.append((name, entries))
    return f"{name}[e]"


def _count(shape: Sequence[Dim]) -> int:
    size = product(tuple(shape))
    assert isinstance(size, int), "bug in mlaot: a gather along a named dim"
    return size


def _base(at: Sequence[str], strides: Sequence[Dim], offset: Dim = 0) -> str:
    text = linear([*zip(at, strides, strict=False)], offset)
    return "" if text == "0" else f"{text} + "


def _take(emit: Emitter, node: Node, at: Sequence[str], out: Buffer, tables: list[Table]) -> list[str]:
    access, lead = emit.access(node.arg(0)), len(at)
    source = _offsets(node.arg(0).type.shape[lead:], access.strides[lead:])[node.attrs["indices"].array.reshape(-1)]
    target = _offsets(out.shape[lead:], out.strides[lead:])
    read = f"{emit.buffer(access.buffer)}[{_base(at, access.strides, access.offset)}{_table(tables, source)}]"
    write = f"{emit.buffer(out, written=True)}[{_base(at, out.strides)}{_table(tables, target)}]"
    return [f"for (ptrdiff_t e = 0; e < {source.size}; e++) {{", f"    {write} = {read};", "}"]


def _put_add(emit: Emitter, node: Node, at: Sequence[str], out: Buffer, tables: list[Table]) -> list[str]:
    access, lead = emit.access(node.arg(0)), len(at)
    every = _offsets(out.shape[lead:], out.strides[lead:])
    target = every[node.attrs["indices"].array.reshape(-1)]
    source = _offsets(node.arg(0).type.shape[lead:], access.strides[lead:])
    base = _base(at, out.strides)
    name = emit.buffer(out, written=True)
    read = f"{emit.buffer(access.buffer)}[{_base(at, access.strides, access.offset)}{_table(tables, source)}]"
    return [
        f"for (ptrdiff_t e = 0; e < {every.size}; e++) {{",
        f"    {name}[{base}{_table(tables, every)}] = 0;",
        "}",
        f"for (ptrdiff_t e = 0; e < {target.size}; e++) {{",
        f"    {name}[{base}{_table(tables, target)}] += {read};",
        "}",
    ]


def _join(emit: Emitter, node: Node, at: Sequence[str], out: Buffer, tables: list[Table]) -> list[str]:
    """Stack (an element each) and concat (a row each), along the last axis."""
    lead, lines, start = len(at), [], 0
    name = emit.buffer(out, written=True)
    assert out.strides[-1] == 1 and lead == len(out.shape) - 1, "bug in mlaot: joined along an inner axis"
    for a in node.args:
        access = emit.access(a.find())
        shape = a.find().type.shape[lead:]
        count = _count(shape)
        read = f"{emit.buffer(access.buffer)}[{_base(at, access.strides, access.offset)}"
        if node.op is st.stack:
            lines.append(f"{name}[{_base(at, out.strides)}{start}] = {read}0];")
        else:
            stride = linear([("e", access.strides[lead])])
            lines.append(f"for (ptrdiff_t e = 0; e < {count}; e++) {{")
            lines += [f"    {name}[{_base(at, out.strides)}{start} + e] = {read}{stride}];", "}"]
        start += count
    return lines
