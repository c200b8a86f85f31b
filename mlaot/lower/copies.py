"""The kernel that copies a value to another buffer."""

from __future__ import annotations

from mlaot.lower.builder import elements
from mlaot.lower.layout import Access
from mlaot.lower.program import Buffer, Kernel, Param
from mlaot.nest.expressions import Array, Load, ValueType
from mlaot.nest.statements import Nest, Store
from mlaot.ops.nests.target import indices, loop_names, place, rows


def copy_kernel(source: Access, target: Buffer) -> Kernel:
    """Return the kernel that copies all elements of a value to a buffer."""
    names = loop_names(target.shape)
    at = indices(names)
    to, x = (Array(name, b.dtype, elements(b)) for name, b in (("to", target), ("x", source.buffer)))
    value = Load(x, place(at, source.strides, source.offset), ValueType(x.dtype))
    body = rows(names, target.shape, (Store(to, place(at, target.strides), value),), target.strides, parallel=True)
    params = Param("to", target, True), Param("x", source.buffer, False)
    return Kernel(Nest("copy", (to, x), body, ("copy",)), params)
