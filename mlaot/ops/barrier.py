"""The identity that no gradient passes."""

from __future__ import annotations

from mlaot.ops.base import Op, batch_elementwise, no_gradient, same_type

stop_gradient: Op = Op(
    "stop_gradient",
    same_type,
    lambda x: x,
    no_gradient,
    batch_elementwise,
    lambda args: args[0],
    doc="x, through which no gradient passes",
)
