"""Layers that pad the spatial axes: with a constant, the border, a reflection, or the opposite end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mlaot.nn import functional as F
from mlaot.nn.arguments import SPATIAL, Array, check_spatial, tuple_of
from mlaot.nn.module import Layer

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d"]
__all__ += ["ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d"]
__all__ += ["ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]


AROUND = {"constant": "a number", "reflect": "a reflection", "replicate": "the border", "circular": "the other end"}


class _Pad(Layer):
    """Base class.

    ``padding`` is one amount, or two for each axis from the last to the first: (left, right, top, bottom).
    """

    n: ClassVar[int]
    mode: ClassVar[str]

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__(**attributes)
        if hasattr(cls, "n"):
            cls.__doc__ = f"Put {AROUND[cls.mode]} around the spatial axes of [(n,) c, {SPATIAL[cls.n]}]."

    def __init__(self, padding: int | Sequence[int]) -> None:
        least = -(1 << 62) if self.mode == "constant" else 0
        self.padding = tuple_of(padding, 2 * self.n, f"{type(self).__name__}: padding", least)

    def forward(self, input: Array) -> Array:
        check_spatial(input, self.n, type(self).__name__)
        return F.pad(input, self.padding, self.mode)


class _ConstantPad(_Pad, mode="constant"):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Array) -> Array:
        check_spatial(input, self.n, type(self).__name__)
        return F.pad(input, self.padding, self.mode, self.value)


# fmt: off
class CircularPad1d(_Pad, n=1, mode="circular"): ...
class CircularPad2d(_Pad, n=2, mode="circular"): ...
class CircularPad3d(_Pad, n=3, mode="circular"): ...
class ConstantPad1d(_ConstantPad, n=1): ...
class ConstantPad2d(_ConstantPad, n=2): ...
class ConstantPad3d(_ConstantPad, n=3): ...
class ReflectionPad1d(_Pad, n=1, mode="reflect"): ...
class ReflectionPad2d(_Pad, n=2, mode="reflect"): ...
class ReflectionPad3d(_Pad, n=3, mode="reflect"): ...
class ReplicationPad1d(_Pad, n=1, mode="replicate"): ...
class ReplicationPad2d(_Pad, n=2, mode="replicate"): ...
class ReplicationPad3d(_Pad, n=3, mode="replicate"): ...
class ZeroPad1d(_Pad, n=1, mode="constant"): ...
class ZeroPad2d(_Pad, n=2, mode="constant"): ...
class ZeroPad3d(_Pad, n=3, mode="constant"): ...
# fmt: on
