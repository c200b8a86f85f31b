"""Types: an element type and a shape, printed ``f32[batch,784]``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir.dims import Dim, extent


@dataclass(frozen=True)
class DType:
    """An element type. ``f32[batch, 784]`` makes a ``Type``.

    ``numpy`` is the dtype that the references compute with. It is float32 for bfloat16, which NumPy does not have.
    """

    name: str
    numpy: str
    itemsize: int
    kind: str  # f: floating point, i: signed integer, u: unsigned integer, b: bool

    def __getitem__(self, shape: Dim | tuple[Dim, ...]) -> Type:
        return Type(self, tuple(map(extent, shape if isinstance(shape, tuple) else (shape,))))

    def array(self, value: object) -> np.ndarray[Any, Any]:
        """Copy ``value`` into an array of this dtype, which keeps its shape, also rank 0."""
        array = np.array(value, dtype=self.numpy)
        return round_bf16(array) if self.name == "bf16" else array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The attribute by which NumPy converts ``mlaot.f32`` to its own float32; there is none for bfloat16."""
        if self.name == "bf16":
            raise AttributeError("NumPy has no bfloat16")
        return np.dtype(self.numpy)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def round_bf16(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 numbers to the nearest bfloat16, ties to even."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(array), np.asarray(array, np.float32), rounded.view(np.float32))


f16 = DType("f16", "float16", 2, "f")
bf16 = DType("bf16", "float32", 2, "f")
f32 = DType("f32", "float32", 4, "f")
f64 = DType("f64", "float64", 8, "f")
i8 = DType("i8", "int8", 1, "i")
i16 = DType("i16", "int16", 2, "i")
i32 = DType("i32", "int32", 4, "i")
i64 = DType("i64", "int64", 8, "i")
u8 = DType("u8", "uint8", 1, "u")
u16 = DType("u16", "uint16", 2, "u")
u32 = DType("u32", "uint32", 4, "u")
u64 = DType("u64", "uint64", 8, "u")
boolean = DType("bool", "bool", 1, "b")
DTYPES = {d.name: d for d in (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean)}
BY_NUMPY = {d.numpy: d for d in DTYPES.values() if d is not bf16}
DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}  # of the significand, in bits


def holds_all(wide: DType, narrow: DType) -> bool:
    """Tell whether a dtype can hold every value of another one, so that conversion is exact."""
    if wide == narrow or narrow.kind == "b":
        return True
    if wide.kind == "b" or (narrow.kind == "f" and (wide.kind != "f" or wide.itemsize == narrow.itemsize)):
        return False
    first, second = (DIGITS.get(d.name, 8 * d.itemsize - (d.kind == "i")) for d in (wide, narrow))
    return first >= second and (wide.kind != "u" or narrow.kind == "u")


@dataclass(frozen=True)
class Type:
    """The type of a node's value: ``dtype`` and ``shape``. A scalar has the shape ``()``."""

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


@dataclass(frozen=True)
class TupleType:
    """The type of a node with several results, each of which an op ``result`` reads."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"

    __repr__ = __str__


KEPT = 1 << 20  # bytes of a constant; larger ones are compared by a digest


class Literal:
    """A constant array, compared by its bits: ``0.0`` is not ``-0.0``, ``1`` is not ``1.0``, and nan equals itself."""

    __slots__ = ("array", "dtype", "key")

    def __init__(self, value: object, dtype: DType) -> None:
        self.array = dtype.array(value)
        self.dtype = dtype
        self.array.setflags(write=False)
        bits = np.ascontiguousarray(self.array)
        is_short = bits.nbytes <= KEPT
        self.key = (dtype.name, self.array.shape, bits.tobytes() if is_short else hashlib.sha256(bits.data).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        if self.array.ndim == 0:
            return repr(self.array.item())
        return f"<{self.array.size} numbers>" if self.array.size > 8 else str(self.array.tolist())
