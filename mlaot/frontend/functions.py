"""Functions of mlaot beside NumPy's: for plain arrays, parameters and traced arrays alike.

Whatever NumPy has too is NumPy's own function for plain arrays: ``mlaot.where`` is ``np.where``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import indexing, numerics, padding, products, reductions, shaping
from mlaot.frontend.control import scan as scan
from mlaot.frontend.padding import pad as pad
from mlaot.frontend.promotion import apply, as_node, cast, normal_axis, result_type, spread
from mlaot.frontend.protocols import FUNCTIONS, namespace, run
from mlaot.frontend.shaping import a_shape
from mlaot.frontend.tensor import Tensor, any_traced, dtype_of, is_traced, plain
from mlaot.frontend.trace import current
from mlaot.frontend.trees import tree_ensemble as tree_ensemble
from mlaot.frontend.ufuncs import UFUNCS
from mlaot.ir.types import BY_NUMPY, bf16, f16, f32, f64, i64, round_bf16
from mlaot.ops import OPS
from mlaot.ops.barrier import stop_gradient as _barrier
from mlaot.ops.sparse import sparse as _sparse

FAMILIES = (indexing, numerics, padding, products, reductions, shaping)  # importing them fills the table

# Elementwise functions that NumPy does not have.


def _float(name: str) -> Callable[[Any], Any]:
    """A function of floating-point numbers: integers become f64, as SciPy's do."""

    def function(x: Any) -> Any:
        if not any_traced(x):
            array = np.asarray(plain(x))
            kind = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
            return np.asarray(OPS[name].reference(array.astype(kind))).astype(kind)[()]
        node = as_node(x)
        return Tensor(apply(name, node if node.type.dtype.kind == "f" else cast(node, f64)))

    function.__name__ = name
    function.__doc__ = f"``{name}``, element by element."
    return function


erf = _float("erf")
erfc = _float("erfc")
erfinv = _float("erfinv")
sigmoid = _float("sigmoid")


def _special(name: str) -> Callable[..., Any]:
    """A ufunc of ``scipy.special``."""

    def function(*args: Any) -> Any:
        import scipy.special

        ufunc = getattr(scipy.special, name)
        return inspect.unwrap(ufunc)(*map(_itself, args))  # the ufunc itself where SciPy looks for array namespaces

    function.__name__ = name
    return function


def _itself(value: Any) -> Any:
    return value if is_traced(value) else plain(value)


def relu(x: Any) -> Any:
    """``max(x, 0)``."""
    if not any_traced(x):
        return np.maximum(plain(x), 0)
    return Tensor(apply("relu", as_node(x)))


def gelu(x: Any, approximate: bool = False) -> Any:
    """``x * Phi(x)`` by erf, or by its approximation with tanh."""
    if approximate:
        return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


def silu(x: Any) -> Any:
    """``x * sigmoid(x)``."""
    return x * sigmoid(x)


def softplus(x: Any) -> Any:
    """``log(1 + exp(x))``, without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _largest(x: Any, axis: Any) -> Any:
    """The maximum, 0 where it is infinite: what exponents are shifted by; no part of the gradient."""
    top = stop_gradient(np.max(x, axis=axis, keepdims=True))
    return np.where(np.isfinite(top), top, np.zeros((), _numpy_dtype(top)))


def _numpy_dtype(x: Any) -> Any:
    return "float32" if x.dtype is bf16 else x.dtype


def _once_rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of several operations that computes halves in float32 and rounds its result alone."""

    @wraps(function)
    def call(x: Any, axis: Any = -1) -> Any:
        x = _as_array(x)
        kind = result_type(x)
        if kind not in (f16, bf16):
            return function(x, axis)
        return astype(function(astype(x, f32), axis), kind)

    return call


@_once_rounded
def softmax(x: Any, axis: Any = -1) -> Any:
    """``exp(x - max) / sum(exp(x - max))`` along ``axis``; the sum, at least 1, is divided by as a reciprocal."""
    x = _as_array(x)
    e = np.exp(x - stop_gradient(np.max(x, axis=axis, keepdims=True)))
    return e * (1.0 / np.sum(e, axis=axis, keepdims=True))


@_once_rounded
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """``log(softmax(x))``, without its underflow."""
    x = _as_array(x)
    shifted = x - _largest(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def logsumexp(x: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """``log(sum(b * exp(x)))``, without overflow; what has no weight counts for nothing, be it infinite."""
    x = _as_float(x, *([] if b is None else [_as_array(b)]))
    top = _largest(x, axis)
    e = np.exp(x - top)
    if b is not None:
        b = _as_array(b)
        e = np.where(b == 0, np.zeros((), _numpy_dtype(e)), b * e)
    total = np.log(np.sum(e, axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis=axis)


def _as_float(x: Any, *others: Any) -> Any:
    """An array in the dtype that SciPy computes it in, together with others: integers become f64."""
    x = _as_array(x)
    kinds = [result_type(v) for v in (x, *others)]
    kind = result_type(*[k if k.kind == "f" else f64 for k in kinds])
    return x if kinds[0] is kind else astype(x, kind)


def _as_array(x: Any) -> Any:
    return x if is_traced(x) else np.asarray(plain(x))


def stop_gradient(x: Any) -> Any:
    """``x``, through which no gradient passes."""
    if not any_traced(x):
        return plain(x)
    return Tensor(_barrier(as_node(x)))


def sparse(x: Any) -> Any:
    """``x``, of which most elements are zero: matrix products pass over the zeros, and so do their gradients.

    It is the values that count, not how they are stored. Where most are not zero it costs time; what is zero adds
    nothing to a product even where the matrix holds an infinity or nan.
    """
    if not any_traced(x):
        return plain(x)
    return Tensor(_sparse(as_node(x)))


# Dtypes and shapes.


def astype(x: Any, dtype: Any) -> Any:
    """``x`` in another dtype; from floating point to integers saturates, nan becomes 0."""
    kind = dtype_of(dtype)
    if is_traced(x):
        return Tensor(cast(as_node(x), kind))
    array = np.asarray(plain(x))
    known = BY_NUMPY.get(str(array.dtype))
    if known is None or array.dtype.kind != "f" or kind.kind == "f":
        return round_bf16(array.astype("float32")) if kind is bf16 else array.astype(kind.numpy)
    return OPS["cast"].reference(array, dtype=kind)


def quantize(x: Any, dtype: Any) -> Any:
    """The nearest number of 8 bits, ``uint8`` or ``int8``, of a half the even one; for nan the smallest there is."""
    kind = dtype_of(dtype)
    if is_traced(x):
        return Tensor(apply("quantize", as_node(x), dtype=kind))
    return OPS["quantize"].reference(np.asarray(plain(x)), dtype=kind)


def one_hot(label: Any, classes: int, dtype: Any = f64) -> Any:
    """1 where the class is ``label``, else 0, along a new last axis.

    A label outside ``0..classes-1`` is an error where a caller gives it, and gives zeros where the model computes it.
    """
    kind = dtype_of(dtype)
    if not any_traced(label):
        return (np.asarray(indexing.in_range(label, classes))[..., None] == np.arange(classes)).astype(kind.numpy)
    return Tensor(apply("one_hot", as_node(label), classes=classes, dtype=kind))


def _shaped(name: str, value: Any) -> Callable[..., Any]:
    def function(shape: Any, dtype: Any = f64) -> Any:
        return filled(shape, value, dtype)

    function.__name__ = name
    function.__doc__ = f"An array of ``{value}``; its shape may have named dims."
    return function


def filled(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array of one value; its shape may have named dims."""
    size = a_shape(shape)
    if current() is None or (all(isinstance(d, int) for d in size) and not any_traced(fill_value)):
        if not all(isinstance(d, int) for d in size):
            raise MlaotError(f"the shape {list(size)} has named dims, which have no size outside of a model")
        return np.full(size, plain(fill_value), None if dtype is None else dtype_of(dtype).numpy)
    node = as_node(fill_value, None if dtype is None else dtype_of(dtype))
    return Tensor(spread(node, size))


zeros = _shaped("zeros", 0)
ones = _shaped("ones", 1)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """``np.arange``, whose end may be a named dim: ``mlaot.arange(x.shape[1])``."""
    if stop is None:
        start, stop = 0, start
    if not _is_dim(start, stop, step):
        return np.arange(start, stop, step, dtype=None if dtype is None else np.dtype(dtype_of(dtype).numpy))
    if any_traced(start, stop, step):
        raise MlaotError("arange: the shape of its result depends on the data")
    if not isinstance(step, int) or step < 1:
        raise MlaotError(f"arange over a named dim goes in steps of a positive integer, got {step!r}")
    count = (stop - start + (step - 1)) // step
    numbers = apply("iota", shape=(count,), axis=0, dtype=dtype_of(dtype) if dtype is not None else i64)
    found = Tensor(numbers) if step == 1 else Tensor(numbers) * step
    return found if isinstance(start, int) and start == 0 else astype(found + start, found.dtype)


def _is_dim(*values: Any) -> bool:
    return any(not isinstance(v, bool | int | float | np.generic) for v in values)


def eye(n: Any, m: Any = None, k: int = 0, dtype: Any = f64) -> Any:
    """``np.eye``, also of named dims."""
    columns = n if m is None else m
    if isinstance(n, int) and isinstance(columns, int):
        return np.eye(n, columns, k, dtype_of(dtype).numpy)
    row, column = (Tensor(apply("iota", shape=(n, columns), axis=i, dtype=i64)) for i in range(2))
    return astype(column - row == k, dtype)


# Windows, gather, scatter.


def window(x: Any, axes: Any, sizes: Any, strides: Any = 1, dilations: Any = 1) -> Any:
    """Sliding windows of ``x`` along ``axes``: their positions take the axes' places, their elements come last."""
    names, attrs = _window_attrs(np.ndim(x), axes, sizes, strides, dilations)
    return _op("window", x, axes=names, **attrs)


def fold(y: Any, axes: Any, sizes: Any, strides: Any = 1, dilations: Any = 1, *, shape: Any) -> Any:
    """The transpose of ``window``: every element of every window added to its place in an array of ``shape``."""
    size = a_shape(shape)
    names, attrs = _window_attrs(len(size), axes, sizes, strides, dilations)
    return _op("fold", y, axes=names, **attrs, shape=size)


def _window_attrs(rank: int, axes: Any, sizes: Any, strides: Any, dilations: Any) -> tuple[Any, dict[str, Any]]:
    names = tuple(normal_axis(a, rank) for a in (axes if isinstance(axes, Sequence) else (axes,)))
    given = {"sizes": sizes, "strides": strides, "dilations": dilations}
    return names, {k: tuple(map(int, v if isinstance(v, Sequence) else (v,) * len(names))) for k, v in given.items()}


def _op(name: str, *args: Any, **attrs: Any) -> Any:
    """An op by its name, of plain arrays at once."""
    if not any_traced(*args):
        return OPS[name].reference(*[np.asarray(plain(a)) for a in args], **attrs)
    return run(name, lambda: Tensor(apply(name, *map(as_node, args), **attrs)), (), {})


def gather(x: Any, indices: Any, lead: int = 0) -> Any:
    """The rows of ``x`` that ``indices`` name, behind ``lead`` axes that both share.

    An index out of range is clamped; one that a caller gives to a module is an error.
    """
    return _op("gather", x, indices, lead=lead)


def scatter(x: Any, indices: Any, updates: Any, lead: int = 0, mode: str = "set") -> Any:
    """``x`` with the rows that ``indices`` name set to ``updates``, or to the sum, maximum or minimum with them
    (``mode`` "add", "max", "min"); the last of several wins.

    An update out of range is dropped; an index that a caller gives to a module is an error there.
    """
    if not any_traced(x, indices, updates):
        array = np.asarray(plain(x))
        return _op("scatter", array, indices, np.asarray(plain(updates), array.dtype), lead=lead, mode=mode)
    node, places = as_node(x), as_node(indices)
    new = as_node(updates, node.type.dtype)
    shape = (*places.type.shape, *node.type.shape[lead + 1 :])
    return _op("scatter", Tensor(node), Tensor(places), Tensor(spread(new, shape)), lead=lead, mode=mode)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Any:
    """A copy of ``arr`` with ``values`` where ``np.take_along_axis`` reads."""
    if not any_traced(arr, indices, values):
        new = np.array(plain(arr))
        np.put_along_axis(new, plain(indices), plain(values), axis)
        return new
    return run("put_along_axis", lambda: indexing.put_along(as_node(arr), as_node(indices), values, axis), (), {})


def top_k(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """The ``k`` largest (or smallest) elements along ``axis``, in order, and their indices; nan is the largest."""
    x = _as_array(x)
    at = normal_axis(axis, x.ndim)
    order = _op("argsort", x, axis=at, descending=largest)
    first = order[(*[slice(None)] * at, slice(0, k))]
    return np.take_along_axis(x, first, at), first


# The ufuncs of scipy.special that can be traced; SciPy looks here for those of an array API namespace.
SPECIAL = SimpleNamespace(
    **{name: _special(name) for name in UFUNCS if not hasattr(np, name)}
    | {"erf": erf, "erfc": erfc, "erfinv": erfinv, "expit": sigmoid},
)
OWN: dict[str, Any] = {
    "arange": arange,
    "astype": astype,
    "asarray": lambda x, dtype=None, **_: _as_array(x) if dtype is None else astype(x, dtype),
    "eye": eye,
    "fold": fold,
    "full": filled,
    "gather": gather,
    "gelu": gelu,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "one_hot": one_hot,
    "ones": ones,
    "put_along_axis": put_along_axis,
    "relu": relu,
    "scatter": scatter,
    "sigmoid": sigmoid,
    "silu": silu,
    "softmax": softmax,
    "softplus": softplus,
    "sparse": sparse,
    "stop_gradient": stop_gradient,
    "top_k": top_k,
    "tree_ensemble": tree_ensemble,
    "window": window,
    "zeros": zeros,
} | vars(SPECIAL)

CONSTANTS: dict[str, Any] = {
    "pi": np.pi,
    "e": np.e,
    "inf": np.inf,
    "nan": np.nan,
    "newaxis": None,
    "special": SPECIAL,
    "linalg": SimpleNamespace(**{n[7:]: getattr(np.linalg, n[7:], None) for n in FUNCTIONS if n.startswith("linalg.")}),
    "finfo": np.finfo,
    "iinfo": np.iinfo,
    "isdtype": getattr(np, "isdtype", None),
    **{d.numpy: d for d in BY_NUMPY.values()},  # mlaot.float32 is mlaot.f32, so that mlaot.float32[3] is a type, too
    "bfloat16": bf16,
}


@cache
def names() -> dict[str, Any]:
    """Everything that is reached as an attribute of mlaot: NumPy's functions and constants, and mlaot's own."""
    return CONSTANTS | namespace() | OWN


def attribute(name: str) -> Any:
    """An attribute of mlaot, or None."""
    return names().get(name)
