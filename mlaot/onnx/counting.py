"""Lengths that the data decide: dims that are counted when the model runs, bounded by their operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.frontend.trace.context import needed
from mlaot.frontend.trace.promotion import as_node
from mlaot.ir import Dim
from mlaot.ir.counts import Count, dims_in, most_of
from mlaot.ir.dims import dim, largest, names, quotient
from mlaot.onnx.importer import Use
from mlaot.onnx.protos import identifier
from mlaot.onnx.values import Computed, Unsupported, as_traced, extent_value
from mlaot.ops.counting import count

FAR = 10**9  # what stands for the end of any axis
MOST = 64  # lengths of a model: what waits for one is in a block of its own
OF_DATA = (
    "how many elements it gives depends on the data; declare the output with a fixed shape, or export the "
    "model with a mask instead"
)


def counted(use: Use, number: Any, most: Dim | None, axis: int, what: str, output: int = 0) -> Dim:
    """Return the length of an axis of an output: a computed ``number`` of at most ``most``, or the length in settings.

    If the file or the settings fix the length, calls with another number fail.
    """
    importer, name, extent = use.importer, *_named(use, axis, output)
    if isinstance(extent, int):
        use.require(as_traced(number) == extent, f"the file's shape needs {extent} {what}")
        return extent
    node, trace = as_node(number), needed()
    if node.op.name == "const":
        return int(node.attrs["value"].array)
    if trace.parent is not None:
        raise Unsupported(f"{OF_DATA}; in a loop or branch it cannot be counted")
    if node in importer.lengths:
        return importer.lengths[node]
    while name in importer.counts:
        name += "_"
    most = importer.most.get(name, most)
    if most is None:
        raise Computed(
            f"how many {what} there are is computed when the model runs, and the file gives its output no shape; make"
            f" it constant, or say how many at most: {name} = {{ most = 100 }} in [..dims]"
        )
    if len(importer.counts) == MOST:
        raise Unsupported(f"the data decide more than {MOST} lengths before it; give some a size in [..dims]")
    importer.lengths[node] = length = importer.meant.get(name, dim(name))
    if name not in names(length):  # what the model does with it needs it to be that
        use.require(as_traced(number) == extent_value(length), f"{name} must be {length}")
        return length
    factor = quotient(length, dim(name))
    if not isinstance(factor, int):
        raise Unsupported(f"{OF_DATA}; {name} cannot be {length}")
    if factor > 1:
        number = as_traced(number)
        use.require(number % factor == 0, f"{name} must be a multiple of {factor}")
        node, most = as_node(number // factor), most // factor
    importer.counts[name] = trace.graph.add(count, (node,), {"dim": dim(name), "most": most})
    return length


def is_counted(use: Use, extent: Dim) -> bool:
    """Tell whether an extent depends on a count."""
    return not names(extent).isdisjoint(use.importer.counts)


def at_most(use: Use, axis: int) -> int | None:
    """Return the length of an axis of the output in the file or the settings, or its bound there."""
    name, extent = _named(use, axis, 0)
    return extent if isinstance(extent, int) else use.importer.most.get(name)


def _named(use: Use, axis: int, output: int) -> tuple[str, Dim | None]:
    """Return the name of a length, and its value in the file or the settings."""
    declared, inputs = use.declared(output), [node.type for node in needed().root.graph.inputs.values()]
    extent = declared.shape[axis] if declared is not None and declared.rank > axis else None
    name = str(extent)
    if extent is not None and name.isidentifier() and name not in dims_in(tuple(inputs)):
        return name, extent
    name = identifier(f"{use.node.output[output] or use.node.name}_{axis}")
    return name, use.importer.pinned.get(name, extent)


def cut_counted(use: Use, x: Any, axis: int, first: Any, last: Any, step: int) -> Any:
    """Slice along an axis as NumPy does, with a counted number of elements."""
    length = x.shape[axis]
    size, ends = extent_value(length), []
    low, high = (np.int64(0), size) if step > 0 else (np.int64(-1), size - 1)
    for i, end in enumerate(F.astype(end, np.int64) for end in (first, last)):
        from_start = np.where(end < 0, end + size, end)
        ends.append(np.minimum(np.maximum(from_start, np.int64(0) if i == 0 else low), high))
    span = ends[1] - ends[0] if step > 0 else ends[0] - ends[1]
    number = np.maximum((span + (abs(step) - 1)) // abs(step), 0)
    most = _fewest(use, [length, *_span(first, last, step)])
    count = counted(use, number, most, axis, f"elements along axis {axis}")
    return np.take(x, ends[0] + F.arange(count) * step, axis=axis)


def _span(first: Any, last: Any, step: int) -> list[int]:
    """Return the bound of a slice's number of elements that follows from its ends, if there is one."""
    ends = [as_node(end) for end in (first, last)]
    if any(end.op.name != "const" for end in ends):
        return []
    low, high = (int(end.attrs["value"].array) for end in ends)
    low, high = (low, high) if step > 0 else (high, low)
    count = max(-(-(high - low) // abs(step)), 0)
    return [count] if (low < 0) == (high < 0) and count < FAR else []


def _fewest(use: Use, extents: Sequence[Dim]) -> Dim:
    """Return the smallest of some extents, by their bounds."""
    most = most_of(Count(name, node.attrs["most"], node) for name, node in use.importer.counts.items())
    bounds = [(largest(extent, most), extent) for extent in extents]
    fixed = [pair for pair in bounds if isinstance(pair[0], int)]
    return min(fixed, key=lambda pair: int(pair[0]))[1] if fixed else extents[0]


def counted_shape(use: Use, sizes: Any, own: Sequence[Dim]) -> list[Dim]:
    """Return the extents of the output, given by a computed vector; extents in ``own`` that are not 1 are kept."""
    rank, shape = max(int(sizes.shape[0]), len(own)), list[Dim]()
    kept, first = [*[1] * (rank - len(own)), *own], rank - int(sizes.shape[0])
    for axis, extent in enumerate(kept):
        size = F.astype(sizes[axis - first], np.int64) if axis >= first else extent_value(extent)
        if extent == 1:
            extent = counted(use, np.maximum(size, 0), None, axis, f"elements along axis {axis}")
        else:
            use.require(np.equal(size, 1) | np.equal(size, extent_value(extent)), f"axis {axis} must be {extent}")
        shape.append(extent)
    return shape
