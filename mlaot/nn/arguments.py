"""How the functions of this package read and check their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from mlaot.errors import MlaotError, did_you_mean
from mlaot.frontend.trace.context import current, inner_part, part
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.protocols import any_traced, is_traced
from mlaot.frontend.trace.tensor import Held, Tensor
from mlaot.ir.dims import Expr
from mlaot.ir.types import bf16, round_bf16

Array = Any  # a NumPy array, a parameter, or a traced array
# How an argument that is an array, or several, is annotated.
REQUIRED, OPTIONAL, PAIR = "Array", "Array | None", "tuple[Array, Array] | None"
# What other arguments must be, by their annotation; a number that need not be whole may be traced.
EXPECTED: dict[str, tuple[type | tuple[type, ...], str]] = {
    "int": (int, "a whole number"),
    "float": ((int, float, Tensor, Held), "a number"),
    "bool": ((bool, int), "True or False"),
    "str": (str, "a word"),
}
SPATIAL = {1: "l", 2: "h, w", 3: "d, h, w"}
SIZES = ("int | Sequence[int]", "Sequence[int]")
P = ParamSpec("P")
R = TypeVar("R")
# What PyTorch, NumPy or Keras call an argument, and what to do about it.
RENAMED = {"axis": "dim", "keepdims": "keepdim", "x": "input", "learning_rate": "lr", "rate": "p", "prob": "p"}
NEEDLESS = {
    "inplace": "nothing is changed in place here; leave it out",
    "device": "modules run on the CPU; leave it out",
    "requires_grad": "parameters are trained unless they are frozen; leave it out",
}


def checked(called: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function or method that accepts each argument in several forms, and names the argument in errors.

    An array may be given as a list or a number. A list or number is converted to the dtype of the first argument if
    that is a floating-point dtype; integers of a required argument keep their dtype, as they may be labels. If one
    array is traced, all become traced. A numeric option may be a NumPy scalar. An option that need not be a whole
    number may also be traced.
    """
    signature = inspect.signature(called)
    kinds = {name: p.annotation for name, p in signature.parameters.items() if p.kind is not p.VAR_POSITIONAL}
    arrays = [name for name, kind in kinds.items() if kind in (REQUIRED, OPTIONAL, PAIR)]
    method = next(iter(kinds), "") == "self"

    @wraps(called)
    def call(*args: Any, **options: Any) -> Any:
        name = type(args[0]).__name__ if method else called.__name__
        binding = bound(name, signature, args, options)
        values = {key: value for key, value in binding.arguments.items() if value is not None}
        for key in binding.arguments.keys() - values.keys():
            if kinds.get(key) in (REQUIRED, *EXPECTED, *SIZES):
                raise MlaotError(f"{name}: {key}: expected {_expected(kinds[key])}, got None")
        like = values.get(arrays[0]) if arrays else None
        traced = any_traced(*[values.get(key) for key in arrays])
        converted: dict[tuple[int, str], Any] = {}  # one array passed twice stays one

        def as_array(value: Any, key: str) -> Any:
            mark = (id(value), kinds[key])
            if mark not in converted:
                array = _as_array(value, like, kinds[key] != REQUIRED, f"{name}: {key}")
                converted[mark] = Tensor(as_node(array)) if traced and not is_traced(array) else array
            return converted[mark]

        for key, value in values.items():
            if key not in arrays:
                binding.arguments[key] = _option(value, kinds.get(key), f"{name}: {key}")
            elif kinds[key] == PAIR:
                if not isinstance(value, list | tuple) or len(value) != 2:
                    raise MlaotError(f"{name}: {key}: expected a pair of arrays, got {shown(value)}")
                binding.arguments[key] = tuple(as_array(part, key) for part in value)
            else:
                binding.arguments[key] = as_array(value, key)
        trace = current()
        if method or trace is None:
            return called(*binding.args, **binding.kwargs)
        with part(trace.graph.origin if trace.in_layer else inner_part(called.__name__)):
            return called(*binding.args, **binding.kwargs)

    return call


def _option(value: Any, kind: Any, name: str) -> Any:
    value, kind = number_of(value), str(kind).removesuffix(" | None")
    if kind in SIZES:
        sizes = (value,) if isinstance(value, int) and kind != "Sequence[int]" else value
        fits = isinstance(sizes, list | tuple) and all(is_static(size) or isinstance(size, Expr) for size in sizes)
    else:
        fits = kind not in EXPECTED or isinstance(value, EXPECTED[kind][0])
    if not fits:
        raise MlaotError(f"{name}: expected {_expected(kind)}, got {shown(value)}")
    return value


def _expected(kind: str) -> str:
    return EXPECTED[kind][1] if kind in EXPECTED else "whole numbers" if kind in SIZES else "an array"


def shown(value: Any) -> str:
    """Return a value as an error message shows it: at most 80 characters, on one line."""
    text = f"an array {list(value.shape)}" if hasattr(value, "shape") and value.ndim else repr(value)
    return " ".join(text[:80].split())


def number_of(value: Any) -> Any:
    """Convert a NumPy scalar to a number of Python, which leaves the dtype of an array it is combined with alone.

    Anything else is returned as it is.
    """
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value


def bound(
    name: str, signature: inspect.Signature, args: Sequence[Any], options: Mapping[str, Any], more: Sequence[str] = ()
) -> inspect.BoundArguments:
    """Bind arguments to their names.

    ``more`` lists the names that ``**`` of the signature accepts. If it is empty, ``**`` accepts any name.
    """
    names = [*signature.parameters, *more]
    is_open = not more and any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for option in options:
        if option not in names and not is_open:
            hint = did_you_mean(option, names)
            if RENAMED.get(option) in names:
                hint = f"; did you mean {RENAMED[option]!r}?"
            hint = f": {NEEDLESS[option]}" if option in NEEDLESS else hint or f"; it has {', '.join(_public(names))}"
            raise MlaotError(f"{name} has no argument {option!r}{hint}")
    try:
        return signature.bind(*args, **options)
    except TypeError as error:
        raise MlaotError(f"{name}: {error}; its arguments are {', '.join(_public(names))}") from None


def _public(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in ("self", "shared")]


def _as_array(value: Any, like: Any, optional: bool, name: str) -> Any:
    """Return an array unchanged; convert a list or a number to an array."""
    if hasattr(value, "dtype") and not isinstance(value, np.generic):
        return value
    if any_traced(value):
        return Tensor(as_node(value))
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise MlaotError(f"{name}: expected an array or a list of numbers, got {shown(value)}")
    if getattr(getattr(like, "dtype", None), "kind", "") == "f" and array.dtype.kind in ("iuf" if optional else "f"):
        array = as_like(array, like)
    if isinstance(array, np.ndarray):
        array.flags.writeable = False  # nobody would see what is written to it
    return array


def by_rank(function: Callable[Concatenate[int, P], R]) -> tuple[Callable[P, R], Callable[P, R], Callable[P, R]]:
    """Return ``name1d``, ``name2d`` and ``name3d`` of a function ``name`` that takes the number of spatial axes first.

    In their docstrings, the names of the axes replace ``*spatial``.
    """
    one, two, three = (_of_rank(function, n) for n in (1, 2, 3))
    return one, two, three


def _of_rank(function: Callable[Concatenate[int, P], R], n: int) -> Callable[P, R]:
    def ranked(*args: P.args, **options: P.kwargs) -> R:
        return function(n, *args, **options)

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]
    vars(ranked)["__signature__"] = signature.replace(parameters=parameters)
    ranked.__name__ = ranked.__qualname__ = f"{function.__name__.strip('_')}{n}d"
    ranked.__module__, ranked.__doc__ = function.__module__, (function.__doc__ or "").replace("*spatial", SPATIAL[n])
    return ranked


def tuple_of(value: Any, n: int, name: str, least: int = 0) -> tuple[Any, ...]:
    """Return one number for each axis, each at least ``least``; a single number stands for all axes."""
    values = (value,) if isinstance(value, int | np.integer) else value
    if not isinstance(values, list | tuple) or len(values) not in (1, n) or not all(map(is_static, values)):
        raise MlaotError(f"{name}: expected a number or {n} of them, got {shown(value)}")
    if any(each < least for each in values):
        raise MlaotError(f"{name}: expected at least {least}, got {shown(value)}")
    return tuple(map(int, values)) * (n // len(values))


def is_static(size: Any) -> bool:
    """Tell whether a dim is a number, not a name such as ``batch``."""
    return isinstance(size, int | np.integer)


def static(size: Any, name: str) -> int:
    """Return a dim that must be a number."""
    if not is_static(size):
        raise MlaotError(f"{name} depends on {size}, the size of an open axis; give it a number")
    return int(size)


def check_spatial(x: Array, n: int, name: str) -> None:
    """Check that ``x`` is one example [channel, *spatial] or a batch of them."""
    if x.ndim not in (n + 1, n + 2):
        axes = "dhw"[3 - n :]
        raise MlaotError(
            f"{name}: expected [batch, channel, {', '.join(axes)}] or one example of it, "
            f"got {x.ndim} dimensions {list(x.shape)}"
        )


def channels_first(values: Array, ndim: int, axis: int = 1) -> Array:
    """Reshape a vector with one number for each channel to meet an array of ``ndim`` dimensions."""
    return np.reshape(values, (1,) * axis + (-1,) + (1,) * (ndim - axis - 1))


def check_shape(values: Array | None, shape: Sequence[Any], name: str) -> None:
    """Check that a weight or bias has the expected shape; None passes."""
    if values is not None and tuple(values.shape) != tuple(shape):
        raise MlaotError(f"{name}: expected shape {list(shape)}, got {list(values.shape)}")


def check_broadcast(values: Array, shape: Sequence[Any], name: str) -> None:
    """Check that a weight or mask can be broadcast to ``shape``."""
    own = (1,) * (len(shape) - values.ndim) + tuple(values.shape)
    if len(own) != len(shape) or any(size not in (1, full) for size, full in zip(own, shape, strict=True)):
        raise MlaotError(f"{name}: shape {list(values.shape)} cannot be broadcast to {list(shape)}")


def as_like(values: Array, like: Array) -> Array:
    """Cast ``values`` to the dtype of ``like``."""
    if isinstance(values, np.ndarray) and like.dtype is bf16:
        return Tensor(as_node(values, bf16)) if is_traced(like) else round_bf16(values)
    return values if values.dtype == like.dtype else values.astype(like.dtype)


def check_choice(value: str, choices: Sequence[str], name: str) -> None:
    """Check an option that is one of several words."""
    if value not in choices:
        raise MlaotError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {shown(value)}")
