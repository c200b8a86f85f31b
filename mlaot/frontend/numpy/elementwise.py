"""Elementwise functions that NumPy builds on its ufuncs: rounding, clipping, choosing, comparing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.gamma import i0 as bessel_i0
from mlaot.frontend.trace.promotion import as_node, broadcast_node, broadcast_shape, cast, like, promote
from mlaot.frontend.trace.protocols import implements
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ir.types import boolean, f64
from mlaot.ops import comparison as cmp


@implements("clip")
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low = a_min if min is None else min
    high = a_max if max is None else max
    x = as_tensor(a)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@implements("round", "around")
def round_(a: Any, decimals: int = 0) -> Any:
    x = as_node(a)
    y = Tensor(x)
    if x.type.dtype is boolean:
        if decimals:
            raise MlaotError(f"round of {x.type} to {decimals} decimals is not defined; cast with x.astype(...) first")
        return np.rint(y)
    if x.type.dtype.kind != "f":
        return y if decimals >= 0 else Tensor(cast(as_node(round_(y.astype(np.float64), decimals)), x.type.dtype))
    if decimals == 0:
        return np.rint(y)
    scale = _power_of_ten(abs(decimals))
    return np.rint(y * scale) / scale if decimals > 0 else np.rint(y / scale) * scale


def _power_of_ten(n: int) -> float:
    """Return a power of ten as NumPy's rounding computes it: beyond 1e9 by products."""
    power = 10.0 ** min(n, 9)
    for _ in range(n - 9):
        power *= 10.0
    return power


@implements("fix")
def fix(x: Any) -> Any:
    return np.trunc(as_tensor(x))


@implements("nan_to_num")
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    node = as_node(x)
    if node.type.dtype.kind != "f":
        return Tensor(node)
    limits = np.finfo("float32" if node.type.dtype.name == "bf16" else node.type.dtype.numpy)
    top = float(limits.max) if node.type.dtype.name != "bf16" else 3.3895313892515355e38
    y = as_tensor(Tensor(node))
    y = np.where(np.isnan(y), Tensor(like(node, nan)), y)
    high = Tensor(like(node, top if posinf is None else posinf))
    low = Tensor(like(node, -top if neginf is None else neginf))
    return np.where(y == np.inf, high, np.where(y == -np.inf, low, y))


@implements("isclose")
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    x, y = (as_tensor(v) for v in (a, b))
    y = y if y.node.type.dtype.kind == "f" else y.astype(np.float64)
    near = np.abs(x - y) <= atol + rtol * np.abs(y)
    is_near = (near & np.isfinite(y)) | (x == y)
    return is_near | (np.isnan(x) & np.isnan(y)) if equal_nan else is_near


@implements("isneginf")
def isneginf(x: Any) -> Any:
    return np.equal(as_tensor(x), -np.inf)


@implements("isposinf")
def isposinf(x: Any) -> Any:
    return np.equal(as_tensor(x), np.inf)


@implements("isreal")
def isreal(x: Any) -> Any:
    return np.ones_like(as_tensor(x), dtype=bool)


@implements("sinc")
def sinc(x: Any) -> Any:
    y = as_tensor(x)
    y = np.pi * (y if y.node.type.dtype.kind == "f" else y.astype(np.float64))
    zero = y == 0
    safe = np.where(zero, 1.0, y)
    return np.where(zero, 1.0, np.sin(safe) / safe)


@implements("isin")
def isin(element: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    x, y = promote(element, test_elements)
    wide = np.expand_dims(Tensor(x), -1)
    is_in = np.any(wide == np.ravel(Tensor(y)), axis=-1)
    return ~is_in if invert else is_in


@implements("where")
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise MlaotError("where(condition) alone: the shape of its result depends on the data; give three arguments")
    a, b = promote(x, y)
    mask = as_node(np.not_equal(as_tensor(condition), 0)) if as_node(condition).type.dtype is not boolean else None
    mask = as_node(condition) if mask is None else mask
    shape = broadcast_shape([mask.type.shape, a.type.shape, b.type.shape])
    return Tensor(cmp.where(*[broadcast_node(n, shape) for n in (mask, a, b)]))


@implements("select")
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = where(condition, choice, result)
    return result


@implements("iscomplexobj")
def iscomplexobj(x: Any) -> bool:
    return False


@implements("isrealobj")
def isrealobj(x: Any) -> bool:
    return True


@implements("real", "real_if_close")
def real(val: Any, tol: float = 100) -> Any:
    return as_tensor(val)


@implements("imag")
def imag(val: Any) -> Any:
    return np.zeros_like(as_tensor(val))


@implements("angle")
def angle(z: Any, deg: bool = False) -> Any:
    """Return 0, or half a turn for negative numbers."""
    turned = np.arctan2(0, as_tensor(z))
    return turned * (180 / np.pi) if deg else turned


@implements("i0")
def i0(x: Any) -> Any:
    node = as_node(x)
    return Tensor(bessel_i0(node if node.type.dtype.kind == "f" else cast(node, f64)))


@implements("allclose")
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return a traced bool, where NumPy returns a bool of Python."""
    return np.all(isclose(a, b, rtol, atol, equal_nan))


@implements("array_equal")
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Return a traced bool, where NumPy returns a bool of Python. It is False for different shapes."""
    x, y = (as_tensor(v) for v in (a1, a2))
    return _all_equal(x, y, equal_nan) if x.shape == y.shape else as_tensor(False)


@implements("array_equiv")
def array_equiv(a1: Any, a2: Any) -> Any:
    """Return a traced bool, where NumPy returns a bool of Python.

    It is False if the shapes cannot be broadcast together.
    """
    x, y = (as_tensor(v) for v in (a1, a2))
    try:
        broadcast_shape([x.shape, y.shape])
    except MlaotError:
        return as_tensor(False)
    return _all_equal(x, y, False)


def _all_equal(x: Any, y: Any, equal_nan: bool) -> Any:
    same = x == y
    return np.all(same | (np.isnan(x) & np.isnan(y)) if equal_nan else same)


@implements("piecewise")
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Compute each function for all elements, and select the last one whose condition holds."""
    v = as_tensor(x)
    is_one = not isinstance(condlist, list | tuple) or not (np.ndim(condlist[0]) or v.ndim == 0)
    conditions = [as_tensor(c).astype(bool) for c in ([condlist] if is_one else condlist)]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise MlaotError(
            f"piecewise: expected {len(conditions)} functions, one for each condition, or one more, got {len(funclist)}"
        )
    default = funclist[len(conditions)] if len(funclist) > len(conditions) else 0
    result = np.zeros_like(v)
    untouched = as_tensor(True)
    for condition in conditions:
        untouched = untouched & ~condition
    for condition, function in zip([*conditions, untouched], [*funclist[: len(conditions)], default], strict=True):
        value = function(v, *args, **kw) if callable(function) else function
        result = np.where(condition, Tensor(cast(as_node(value), v.node.type.dtype)), result)
    return result
