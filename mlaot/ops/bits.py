"""Bit operations on integers, logic on bools, and reinterpretation of bits as another dtype."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DType, Type
from mlaot.nest.expressions import Call, ValueType
from mlaot.ops import integers
from mlaot.ops.axes import ELEMENTWISE
from mlaot.ops.base import Array, Op, no_gradient
from mlaot.ops.dtypes import DISCRETE, INTEGERS, one_type
from mlaot.ops.elementwise import C, function


def _bitwise(
    name: str, doc: str, reference: Callable[..., Array], c: C, kinds: str = DISCRETE, commutative: bool = False
) -> Op:
    return Op(name, one_type(name, kinds), reference, no_gradient, ELEMENTWISE, c, commutative, doc=doc)


bitwise_and = _bitwise("bitwise_and", "and, bit by bit", np.bitwise_and, function("and"), commutative=True)
bitwise_or = _bitwise("bitwise_or", "or, bit by bit", np.bitwise_or, function("or"), commutative=True)
bitwise_xor = _bitwise("bitwise_xor", "exclusive or, bit by bit", np.bitwise_xor, function("xor"), commutative=True)
bitwise_not = _bitwise("bitwise_not", "every bit turned round", np.invert, function("not"))
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


bitcast: Op = Op(
    "bitcast",
    _bitcast_type,
    _bitcast_reference,
    no_gradient,
    ELEMENTWISE,
    lambda args, dtype: Call("bitcast", tuple(args), ValueType(dtype.name, args[0].type.lanes)),
    doc="the bits of x taken for another dtype of the same size",
)
