"""How NumPy's functions reach traced arrays: one table from names to implementations.

``@implements("concatenate")`` enters the traced meaning of ``np.concatenate``: a function with NumPy's arguments, over
ops. NumPy hands a call with a traced array over (``__array_ufunc__``, ``__array_function__``); for parameters outside
of tracing NumPy itself computes with their arrays.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NoReturn

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.tensor import is_traced, plain

Implementation = Callable[..., Any]
FUNCTIONS: dict[str, Implementation] = {}

IN_PLACE = "an array of a model cannot be written in place; use x = x.at[...].set(value), mlaot.where or np.concatenate"
SHAPE = "the shape of its result depends on the data"
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
    "array_equal": "its result is a Python bool; use (a == b).all()",
    "array_equiv": "its result is a Python bool; use (a == b).all()",
    "allclose": "its result is a Python bool; use np.isclose(a, b).all()",
    "may_share_memory": "traced arrays have no memory",
    "shares_memory": "traced arrays have no memory",
    "copyto": IN_PLACE,
    "put": IN_PLACE,
    "putmask": IN_PLACE,
    "place": IN_PLACE,
    "fill_diagonal": IN_PLACE,
    "apply_along_axis": "use mlaot.vmap",
    "vectorize": "use mlaot.vmap",
    "random": "use mlaot.random",
}


def implements(*names: str) -> Callable[[Implementation], Implementation]:
    """Enter a function into the table under NumPy's ``names``."""

    def enter(function: Implementation) -> Implementation:
        for name in names:
            assert name not in FUNCTIONS, f"np.{name} is implemented twice"
            FUNCTIONS[name] = function
        return function

    return enter


def name_of(function: Callable[..., Any]) -> str:
    """``concatenate``, ``linalg.norm``."""
    module = getattr(function, "__module__", "") or ""
    inner = module.partition(".")[2] if module.startswith(("numpy.linalg", "numpy.fft")) else ""
    return f"{inner}.{function.__name__}" if inner else function.__name__


def call_function(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``np.function(*args, **options)`` of arrays of which one is traced or a parameter."""
    if not _anything_traced(args, options):
        return function(*plain(args), **plain(options))
    name = name_of(function)
    return run(f"np.{name}", FUNCTIONS.get(name), args, options)


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``np.ufunc(*inputs, **options)``, or one of the ufunc's methods."""
    from mlaot.frontend.ufuncs import METHODS, UFUNCS, ufunc_call

    if not _anything_traced(inputs, options):
        return getattr(ufunc, method)(*plain(inputs), **plain(options))
    name = ufunc.__name__
    library = "np" if getattr(np, name, None) is ufunc else "scipy.special"
    if method != "__call__":
        return run(f"np.{name}.{method}", METHODS.get((name, method)), inputs, options)
    known = FUNCTIONS.get(name) or (partial(ufunc_call, ufunc) if name in UFUNCS else None)
    return run(f"{library}.{name}", known, inputs, options)


def run(name: str, implementation: Implementation | None, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call an implementation; its errors name the function."""
    options = {k: v for k, v in options.items() if v is not np._NoValue}
    if options.get("out") is not None:
        raise MlaotError(f"{name} with out=: {IN_PLACE}")
    if options.get("where", True) is not True:
        raise MlaotError(f"{name} with where=: it cannot be traced; use mlaot.where")
    options = {k: v for k, v in options.items() if k not in ("out", "where")}
    if implementation is None:
        raise MlaotError(f"{name} cannot be traced: {HINTS.get(name.rpartition('.')[2], 'mlaot has no rule for it')}")
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


def _anything_traced(args: Any, options: dict[str, Any]) -> bool:
    return any(map(_traced_within, (*args, *options.values())))


def _traced_within(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_traced_within, value))
    return is_traced(value)


def library_caller() -> str:
    """The function of NumPy or SciPy that the user called and that calls mlaot now: ``scipy.special.softmax``."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("mlaot"):
        frame = frame.f_back
    module = name = ""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("numpy", "scipy"):
        module, name, frame = frame.f_globals["__name__"], frame.f_code.co_name, frame.f_back
    if not name:
        return ""
    return f"scipy.special.{name}" if module.startswith("scipy.special") else f"{module.partition('.')[0]}.{name}"


def refuse_array(value: Any) -> NoReturn:
    """Somebody wants the numbers of a traced array: say who, and what to use instead."""
    who = library_caller()
    refuse_library(who)
    raise MlaotError(
        f"{who or 'np.array or np.asarray'} needs the numbers of {value!r}, which are not known while tracing; "
        "a list of traced arrays becomes one by np.stack, a constant array is indexed by mlaot.take(array, x, axis=0)"
    )


def refuse_library(caller: str) -> None:
    """A Python function of SciPy that works on NumPy arrays alone."""
    from mlaot.frontend.functions import names

    name = caller.rpartition(".")[2]
    if caller.startswith("scipy") and name in names():
        axis = ", whose axis is -1 unless given" if name.endswith("softmax") else ""
        raise MlaotError(f"{caller} works on the numbers of NumPy arrays and cannot be traced; use mlaot.{name}{axis}")


def namespace() -> dict[str, Any]:
    """The functions of the table by name."""
    from mlaot.frontend.ufuncs import UFUNCS

    found = {name: _function(name, function) for name, function in FUNCTIONS.items() if hasattr(np, name)}
    return found | {name: getattr(np, name) for name in UFUNCS if hasattr(np, name)}


def _function(name: str, implementation: Implementation) -> Callable[..., Any]:
    """``np.name``, for which any argument may be traced: NumPy asks some alone, ``np.take`` only the array."""
    function = getattr(np, name)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if _anything_traced(args, options):
            return run(f"mlaot.{name}", implementation, args, options)
        return function(*plain(args), **plain(options))

    return call
