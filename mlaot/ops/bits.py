"""Bit operations on integers, logic on bools, and the bits of a number taken for another dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DType, Type
from mlaot.ir.types import DTYPES
from mlaot.ops import integers
from mlaot.ops.base import Array, Op, batch_elementwise, no_gradient
from mlaot.ops.conversion import C_NAMES, HALVES
from mlaot.ops.dtypes import DISCRETE, INTEGERS, one_type
from mlaot.ops.elementwise import C, function

NARROW = ("i8", "i16", "u8", "u16")  # C computes these as int


def _logic(symbol: str) -> C:
    """``a & b``: bits, truth values and masks alike."""

    def expression(args: Sequence[str], t: str) -> str:
        text = f" {symbol} ".join(args)
        return f"({C_NAMES[t]})({text})" if t in NARROW else text

    return expression


def _not(args: Sequence[str], t: str) -> str:
    (x,) = args
    if t == "bool":
        return f"!{x}"
    return f"({C_NAMES[t]})~{x}" if t in NARROW else f"~{x}"


def _bitwise(
    name: str, doc: str, reference: Callable[..., Array], c: C, kinds: str = DISCRETE, commutative: bool = False
) -> Op:
    return Op(name, one_type(name, kinds), reference, no_gradient, batch_elementwise, c, commutative, doc=doc)


bitwise_and = _bitwise("bitwise_and", "and, bit by bit", np.bitwise_and, _logic("&"), commutative=True)
bitwise_or = _bitwise("bitwise_or", "or, bit by bit", np.bitwise_or, _logic("|"), commutative=True)
bitwise_xor = _bitwise("bitwise_xor", "exclusive or, bit by bit", np.bitwise_xor, _logic("^"), commutative=True)
bitwise_not = _bitwise("bitwise_not", "every bit turned round", np.invert, _not)
left_shift = _bitwise(
    "left_shift", "x times 2 to the y; 0 from the width on", integers.left_shift, function("left_shift"), INTEGERS
)
right_shift = _bitwise(
    "right_shift",
    "x by 2 to the y, rounded down; 0 or -1 from the width on",
    integers.right_shift,
    function("right_shift"),
    INTEGERS,
)


def _bitcast_type(x: Type, dtype: DType) -> Type:
    if dtype.itemsize != x.dtype.itemsize or dtype.kind == "b":
        raise MlaotError(f"the bits of {x.dtype} cannot be taken for {dtype}; the dtypes must be of one size")
    return Type(dtype, x.shape)


def _bitcast_reference(x: Array, dtype: DType) -> Array:
    x = np.asarray(x)
    if dtype.itemsize == 2 and x.dtype.itemsize == 4:  # bfloat16, whose stand-in is float32
        x = (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if dtype.name == "bf16":
        return np.asarray(x.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return x.view(dtype.numpy)


def _bitcast(args: Sequence[str], t: str, dtype: DType) -> str:
    (x,) = args
    own, target = DTYPES[t], dtype.name
    if own.kind != "f" and dtype.kind != "f":
        return f"({C_NAMES[target]}){x}"
    if dtype.itemsize == 2:  # halves are bits in C
        return f"({'uint16_t' if target in HALVES else C_NAMES[target]}){x}"
    if own is dtype:
        return x
    bits = f"u{own.itemsize * 8}"
    if dtype.kind == "f":
        return f"{target}_of_bits({f'(uint{bits[1:]}_t){x}'})"
    return f"({C_NAMES[target]}){bits}_bits({x})"


bitcast: Op = Op(
    "bitcast",
    _bitcast_type,
    _bitcast_reference,
    no_gradient,
    batch_elementwise,
    _bitcast,
    doc="the bits of x taken for another dtype of the same size",
)
