"""Types: an element type and a shape, printed ``f32[batch,784]``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlaot.ir.dims import Dim


@dataclass(frozen=True)
class DType:
    """An element type. ``f32[batch, 784]`` makes a ``Type``."""

    name: str
    numpy: str
    itemsize: int
    kind: str  # f: floating point, i: integer, b: bool

    def __getitem__(self, shape: Dim | tuple[Dim, ...]) -> Type:
        return Type(self, shape if isinstance(shape, tuple) else (shape,))

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


f32 = DType("f32", "float32", 4, "f")
f64 = DType("f64", "float64", 8, "f")
i32 = DType("i32", "int32", 4, "i")
i64 = DType("i64", "int64", 8, "i")
u8 = DType("u8", "uint8", 1, "i")
boolean = DType("bool", "bool", 1, "b")
DTYPES = {d.name: d for d in (f32, f64, i32, i64, u8, boolean)}
BY_NUMPY = {d.numpy: d for d in DTYPES.values()}


@dataclass(frozen=True)
class Type:
    """What a node's value is: ``dtype`` and ``shape``; a scalar has the shape ``()``."""

    dtype: DType
    shape: tuple[Dim, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def with_shape(self, shape: tuple[Dim, ...]) -> Type:
        return Type(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__


class Literal:
    """A constant array, compared by its bits: ``0.0`` is not ``-0.0``, ``1`` is not ``1.0``, and nan is itself."""

    __slots__ = ("array", "key")

    def __init__(self, value: object, dtype: DType) -> None:
        self.array = np.array(value, dtype=dtype.numpy)  # a copy that keeps rank 0
        self.array.setflags(write=False)
        self.key = (dtype.name, self.array.shape, self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        if self.array.ndim == 0:
            return repr(self.array.item())
        return f"<{self.array.size} numbers>" if self.array.size > 8 else str(self.array.tolist())
