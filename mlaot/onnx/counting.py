"""Lengths that the data decide: a dim that is counted when the model runs, of at most what its operator gives."""

from __future__ import annotations

from typing import Any

from mlaot.frontend.trace.context import needed
from mlaot.frontend.trace.promotion import as_node
from mlaot.ir import Dim
from mlaot.ir.counts import dims_in
from mlaot.ir.dims import dim, names, quotient
from mlaot.onnx.importer import Use
from mlaot.onnx.protos import identifier
from mlaot.onnx.values import Unsupported, as_traced, extent_value
from mlaot.ops.counting import count

OF_DATA = (
    "how many elements it gives depends on the data; declare the output with a fixed shape, or export the "
    "model with a mask instead"
)


def counted(use: Use, number: Any, most: Dim, axis: int, what: str, output: int = 0) -> Dim:
    """Return the length of an axis of an output, a computed ``number`` of at most ``most``.

    If the file or the settings say that it is a fixed one, calls with another number are refused.
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
    known = next((c for c in importer.counts.values() if c.arg(0) is node.find()), None)
    if known is not None:
        return known.attrs["dim"]  # type: ignore[no-any-return]
    while name in importer.counts:
        name += "_"
    most = importer.most.get(name, most)
    length = importer.meant.get(name, dim(name))
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


def at_most(use: Use, axis: int) -> int | None:
    """Return what the file or the settings say of the length of an axis of the output: what it is, or is at most."""
    name, extent = _named(use, axis, 0)
    return extent if isinstance(extent, int) else use.importer.most.get(name)


def _named(use: Use, axis: int, output: int) -> tuple[str, Dim | None]:
    """Return the name of a length, and what the file or the settings say that it is."""
    declared, inputs = use.declared(output), [node.type for node in needed().root.graph.inputs.values()]
    extent = declared.shape[axis] if declared is not None and declared.rank > axis else None
    name = str(extent)
    if extent is not None and name.isidentifier() and name not in dims_in(tuple(inputs)):
        return name, extent
    name = identifier(f"{use.node.output[output] or use.node.name}_{axis}")
    return name, use.importer.pinned.get(name, extent)
