"""The identity with a gradient of zero."""

from __future__ import annotations

from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import Op, no_gradient, same_type

stop_gradient: Op = Op(
    "stop_gradient",
    same_type,
    lambda x: x,
    no_gradient,
    ELEMENTWISE,
    lambda args: args[0],
    exact=True,
    doc="x, through which no gradient passes",
)
