"""Dispatch of NumPy's functions to traced arrays: one table from names to implementations.

``@implements("concatenate")`` registers the traced implementation of ``np.concatenate``: a function with NumPy's
arguments, composed of ops. NumPy passes on a call with a traced array (``__array_ufunc__``, ``__array_function__``).
Outside of tracing, NumPy itself computes with the arrays of parameters.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, cast

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Node, Type

Implementation = Callable[..., Any]
# The tables that mlaot/frontend/numpy fills: a trace knows no function by itself.
FUNCTIONS: dict[str, Implementation] = {}  # NumPy's functions of traced arrays, by name
UFUNCS: dict[str, Implementation] = {}  # NumPy's and SciPy's ufuncs: functions of the ufunc and its arguments
UFUNC_METHODS: dict[tuple[str, str], Implementation] = {}  # by the names of the ufunc and of the method
ARRAY_METHODS: dict[str, Implementation] = {}  # what arrays do that no function of NumPy does
NAMESPACE: dict[str, Any] = {}  # everything that a model reaches as an attribute of mlaot

IN_PLACE = "an array of a model cannot be written in place; use x = x.at[...].set(value), mlaot.where or np.concatenate"
SHAPE = "the shape of its result depends on the data"
NO_RULE = "mlaot has no rule for it"
ALGEBRA = (
    "models have no decompositions and no solvers; compute it with NumPy where the matrix is constant, or pass it in"
)
# What to use instead, by the end of a function's name.
HINTS = {
    "nonzero": f"{SHAPE}; use mlaot.where(condition, a, b)",
    "flatnonzero": f"{SHAPE}; use mlaot.where(condition, a, b)",
    "argwhere": f"{SHAPE}; use mlaot.where(condition, a, b)",
    "extract": f"{SHAPE}; use mlaot.where(condition, a, b)",
    "compress": f"{SHAPE}; use mlaot.where(condition, a, b)",
    "unique": f"{SHAPE}; use np.sort",
    "unique_values": f"{SHAPE}; use np.sort",
    "intersect1d": f"{SHAPE}; use np.isin",
    "union1d": f"{SHAPE}; use np.concatenate",
    "setdiff1d": f"{SHAPE}; use np.isin",
    "bincount": f"{SHAPE}; use mlaot.one_hot(x, classes).sum(axis=0)",
    "may_share_memory": "traced arrays have no memory",
    "shares_memory": "traced arrays have no memory",
    "copyto": IN_PLACE,
    "put": IN_PLACE,
    "putmask": IN_PLACE,
    "place": IN_PLACE,
    "fill_diagonal": IN_PLACE,
    "vectorize": "use mlaot.vmap",
    "random": "use mlaot.random",
    "at": "it writes in place; use x = x.at[index].add(values), or set, max, min",
    "reduceat": "use mlaot.scatter with a mode",
    "reduce": "use mlaot.scan",
    "accumulate": "use mlaot.scan",
    "fft": "models have no FFT; it is the product with the constant matrices np.fft.fft(np.eye(n)).real and .imag",
    "linalg": ALGEBRA,
    "expm": ALGEBRA,
    "polyfit": "for constant places x it is the product np.linalg.pinv(np.vander(x, degree + 1)) @ y",
    "histogram2d": "use np.histogram of each, or mlaot.one_hot and a product",
    "betaln": "use gammaln(a) + gammaln(b) - gammaln(a + b)",
    "beta": "use gamma(a) * gamma(b) / gamma(a + b)",
    "convolve2d": "use mlaot.nn.functional.conv2d with the kernel turned round",
    "convolve": "use np.convolve, or mlaot.nn.functional.conv2d",
    "gaussian_filter": "use mlaot.nn.functional.conv2d with the constant weights of a Gaussian",
    "lfilter": "use mlaot.scan",
}


def implements(*names: str) -> Callable[[Implementation], Implementation]:
    """Register a function in the table under NumPy's ``names``."""

    def enter(function: Implementation) -> Implementation:
        for name in names:
            assert name not in FUNCTIONS, f"np.{name} is implemented twice"
            FUNCTIONS[name] = function
        return function

    return enter


def _binary(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    ufunc = getattr(np, name)
    return lambda self, other: ufunc(self, other), lambda self, other: ufunc(other, self)


def _unary(name: str) -> Callable[[Any], Any]:
    ufunc = getattr(np, name)
    return lambda self: ufunc(self)


_transpose, _reshape, _swapaxes, _imag = (cast(Any, f) for f in (np.transpose, np.reshape, np.swapaxes, np.imag))


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)
    return lambda self, *args, **options: function(self, *args, **options)


class Traceable:
    """The interface of an array of a model: a ``Tensor``, a ``Parameter`` or a ``Buffer``."""

    @property
    def type(self) -> Type:
        """The dtype and the shape."""
        raise NotImplementedError

    @property
    def is_traced(self) -> bool:
        """Tell whether ``value`` stands for a node of the graph being traced."""
        raise NotImplementedError

    def local_node(self) -> Node:
        """Return the array as a node of the current graph."""
        raise NotImplementedError

    def plain(self) -> Any:
        """Replace parameters and buffers by their arrays, also in lists, tuples and dicts."""
        raise NotImplementedError


class Operators(Traceable):
    """Python's operators and the methods of NumPy's arrays, implemented by NumPy's functions."""

    __array_priority__ = 1000
    __hash__ = object.__hash__

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract")
    __mul__, __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide")
    __mod__, __rmod__ = _binary("remainder")
    __divmod__, __rdivmod__ = _binary("divmod")
    __pow__, __rpow__ = _binary("power")
    __matmul__, __rmatmul__ = _binary("matmul")
    __and__, __rand__ = _binary("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__ = _binary("left_shift")
    __rshift__, __rrshift__ = _binary("right_shift")
    __lt__, _ = _binary("less")
    __le__, _ = _binary("less_equal")
    __gt__, _ = _binary("greater")
    __ge__, _ = _binary("greater_equal")
    __eq__, _ = _binary("equal")
    __ne__, _ = _binary("not_equal")
    del _
    __neg__ = _unary("negative")
    __pos__ = _unary("positive")
    __abs__ = _unary("absolute")
    __invert__ = _unary("invert")

    all = _method("all")
    any = _method("any")
    argmax = _method("argmax")
    argmin = _method("argmin")
    argpartition = _method("argpartition")
    argsort = _method("argsort")
    clip = _method("clip")
    conj = conjugate = _method("conjugate")
    copy = _method("copy")
    cumprod = _method("cumprod")
    cumsum = _method("cumsum")
    diagonal = _method("diagonal")
    dot = _method("dot")
    flatten = _method("ravel")
    max = _method("max")
    mean = _method("mean")
    min = _method("min")
    prod = _method("prod")
    ravel = _method("ravel")
    repeat = _method("repeat")
    round = _method("round")
    squeeze = _method("squeeze")
    std = _method("std")
    sum = _method("sum")
    swapaxes = _method("swapaxes")
    take = _method("take")
    trace = _method("trace")
    var = _method("var")

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return ARRAY_METHODS["astype"](self, dtype)

    def transpose(self, *axes: Any) -> Any:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return _transpose(self, order)

    def reshape(self, *shape: Any, order: Any = "C") -> Any:
        return _reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def item(self, *args: Any) -> Any:
        return np.asarray(self).item(*args)

    def tolist(self) -> Any:
        return np.asarray(self).tolist()

    def sort(self, *args: Any, **options: Any) -> None:
        raise MlaotError("sort: an array of a model cannot be sorted in place; use np.sort(x)")

    def partition(self, *args: Any, **options: Any) -> None:
        raise MlaotError("partition: an array of a model cannot be sorted in place; use np.partition(x, kth)")

    @property
    def T(self) -> Any:
        return _transpose(self)

    @property
    def mT(self) -> Any:
        return _swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return _imag(self)

    @property
    def at(self) -> At:
        """Updates by ``set``, ``add``, ``max`` or ``min``: ``x.at[index].set(values)`` returns a changed copy."""
        return At(self)

    def __getitem__(self, index: Any) -> Any:
        return ARRAY_METHODS["get"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        refuse_library(library_caller())
        raise MlaotError(
            "x[...] = value: an array of a model cannot be written in place; use x = x.at[...].set(value), "
            "mlaot.where or np.concatenate"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return call_function(function, args, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return sys.modules["mlaot"]  # which is loaded: this module is a part of it


class At:
    """The value of ``x.at``, which must be indexed."""

    def __init__(self, array: Any, index: Any = None) -> None:
        self._array = array
        self._index = index

    def __getitem__(self, index: Any) -> At:
        return At(self._array, index)

    def set(self, values: Any) -> Any:
        return self._update(values, "set")

    def add(self, values: Any) -> Any:
        return self._update(values, "add")

    def max(self, values: Any) -> Any:
        return self._update(values, "max")

    def min(self, values: Any) -> Any:
        return self._update(values, "min")

    def _update(self, values: Any, mode: str) -> Any:
        return ARRAY_METHODS["update"](self._array, self._index, values, mode)


def is_traced(value: Any) -> bool:
    """Tell whether ``value`` stands for a node of the graph being traced."""
    return isinstance(value, Traceable) and value.is_traced


def any_traced(*values: Any) -> bool:
    """Tell whether a value, or any element of a list, is traced."""
    return any(any_traced(*v) if isinstance(v, list | tuple) else is_traced(v) for v in values)


def plain(value: Any) -> Any:
    """Return ``value`` with parameters and buffers replaced by their arrays, also in lists, tuples and dicts."""
    if isinstance(value, Traceable):
        return value.plain()
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a NumPy function: ``concatenate``, ``linalg.norm``."""
    module = getattr(function, "__module__", "") or ""
    inner = module.partition(".")[2] if module.startswith(("numpy.linalg", "numpy.fft")) else ""
    return f"{inner}.{function.__name__}" if inner else function.__name__


def call_function(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call ``np.function(*args, **options)`` with a traced argument, a parameter or a buffer."""
    if not anything_traced(args, options):
        return function(*plain(args), **plain(options))
    name = name_of(function)
    return run(f"np.{name}", FUNCTIONS.get(name), args, options)


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call ``np.ufunc(*inputs, **options)``, or one of the ufunc's methods."""
    if not anything_traced(inputs, options):
        return getattr(ufunc, method)(*plain(inputs), **plain(options))
    name = ufunc.__name__
    library = "np" if getattr(np, name, None) is ufunc else "scipy.special"
    if method != "__call__":
        return run(f"np.{name}.{method}", UFUNC_METHODS.get((name, method)), inputs, options)
    implementation = partial(UFUNCS[name], ufunc) if name in UFUNCS else FUNCTIONS.get(name)
    return run(f"{library}.{name}", implementation, inputs, options)


def run(name: str, implementation: Implementation | None, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call an implementation, with the function's name in its errors."""
    options = {k: v for k, v in options.items() if v is not np._NoValue}
    if options.get("out") is not None:
        raise MlaotError(f"{name} with out=: {IN_PLACE}")
    chooses = options.get("where", True) is not True
    if chooses and (implementation is None or "where" not in inspect.signature(implementation).parameters):
        raise MlaotError(f"{name} with where=: it cannot be traced; use mlaot.where")
    options = {k: v for k, v in options.items() if k != "out" and (k != "where" or chooses)}
    if implementation is None:
        raise MlaotError(f"{name} cannot be traced: {hint(name) or NO_RULE}")
    try:
        inspect.signature(implementation).bind(*args, **options)
    except TypeError as error:
        raise MlaotError(f"{name} cannot be traced: {error}") from None
    try:
        return implementation(*args, **options)
    except MlaotError as error:
        if not re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", error.message):
            error.args = (f"{name}: {error.message}",)
        raise


def hint(name: str) -> str:
    """Return a hint at what to use instead of a function, found by the name of the function or of its module."""
    return next((HINTS[part] for part in reversed(name.split(".")) if part in HINTS), "")


def anything_traced(args: Any, options: dict[str, Any]) -> bool:
    return any(map(_traced_within, (*args, *options.values())))


def _traced_within(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_traced_within, value))
    return is_traced(value)


def library_caller() -> str:
    """Return the name of the NumPy or SciPy function that the user called: ``scipy.special.softmax``."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("mlaot"):
        frame = frame.f_back
    module = name = ""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("numpy", "scipy"):
        module, name, frame = frame.f_globals["__name__"], frame.f_code.co_qualname, frame.f_back
    if not name:
        return ""
    return f"scipy.special.{name}" if module.startswith("scipy.special") else f"{module.partition('.')[0]}.{name}"


def refuse_array(value: Any) -> NoReturn:
    """Raise an error for a function that reads the numbers of a traced array, with a hint at what to use instead."""
    who = library_caller()
    refuse_library(who)
    if advice := hint(who):
        raise MlaotError(f"{who} cannot be traced: {advice}")
    raise MlaotError(
        f"{who or 'np.array or np.asarray'} needs the numbers of {value!r}, which are not known while tracing; "
        "x.astype(dtype) casts, a list of traced arrays becomes one by np.stack, a constant array is indexed by "
        "mlaot.take(array, x, axis=0)"
    )


def refuse_library(caller: str) -> None:
    """Raise an error for a Python function of SciPy that accepts only NumPy arrays."""
    name = caller.rpartition(".")[2]
    if caller.startswith("scipy") and name in NAMESPACE:
        axis = ", whose axis is -1 unless given" if name.endswith("softmax") else ""
        raise MlaotError(f"{caller} works on the numbers of NumPy arrays and cannot be traced; use mlaot.{name}{axis}")
