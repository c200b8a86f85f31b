"""How NumPy's functions reach traced arrays: one table from names to implementations.

``@implements("concatenate")`` enters the traced meaning of ``np.concatenate``: a function with NumPy's arguments, over
ops. NumPy hands a call with a traced array over (``__array_ufunc__``, ``__array_function__``); for parameters outside
of tracing NumPy itself computes with their arrays.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
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
    from mlaot.frontend.ufuncs import METHODS, ufunc_call

    if not _anything_traced(inputs, options):
        return getattr(ufunc, method)(*plain(inputs), **plain(options))
    name = ufunc.__name__
    if method == "__call__":
        if name in FUNCTIONS:
            return run(f"np.{name}", FUNCTIONS[name], inputs, options)
        return run(f"np.{name}", lambda *args: ufunc_call(ufunc, *args), inputs, options)
    return run(f"np.{name}.{method}", METHODS.get((name, method)), inputs, options)


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
        if name.removeprefix("np.") not in error.message:
            error.args = (f"{name}: {error.message}",)
        raise


def _anything_traced(args: Any, options: dict[str, Any]) -> bool:
    return any(map(_traced_within, (*args, *options.values())))


def _traced_within(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_traced_within, value))
    return is_traced(value)


def refuse_array(value: Any) -> NoReturn:
    """Somebody wants the numbers of a traced array: say who, and what to use instead."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("mlaot"):
        frame = frame.f_back
    caller = ""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("numpy", "scipy"):
        caller, frame = f"{frame.f_globals['__name__']}.{frame.f_code.co_name}", frame.f_back
    import mlaot

    name = caller.rpartition(".")[2]
    library = "scipy.special" if caller.startswith("scipy.special") else caller.partition(".")[0]
    if library.startswith("scipy") and hasattr(mlaot, name):
        raise MlaotError(f"{library}.{name} makes a NumPy array of its argument; use mlaot.{name}")
    who = f"{library}.{name}" if caller else "np.array or np.asarray"
    raise MlaotError(
        f"{who} needs the numbers of {value!r}, which are not known while tracing; "
        "a list of traced arrays becomes one by np.stack"
    )


def namespace() -> dict[str, Any]:
    """The functions of the table by name: those of NumPy themselves, which know traced arrays."""
    found: dict[str, Any] = {}
    for name in FUNCTIONS:
        if hasattr(np, name):
            found[name] = getattr(np, name)
    from mlaot.frontend.ufuncs import UFUNCS

    return found | {name: getattr(np, name) for name in UFUNCS if hasattr(np, name)}


def loaded(module: str) -> Any:
    """A module, if somebody has imported it."""
    return sys.modules.get(module)
