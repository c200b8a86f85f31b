"""What the functions of this package share: how arguments are read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.promotion import as_node
from mlaot.frontend.tensor import Tensor, is_traced
from mlaot.ir.types import bf16, round_bf16

Array = Any  # a NumPy array, a parameter, or a traced array


def tuple_of(value: Any, n: int, name: str) -> tuple[Any, ...]:
    """``value`` once an axis: one number stands for all."""
    if isinstance(value, int | np.integer):
        return (int(value),) * n
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) not in (1, n):
        raise MlaotError(f"{name}: expected a number or {n} of them, got {value!r}")
    return tuple(value) * (n // len(value))


def is_static(size: Any) -> bool:
    """Whether a dim is a number, not a name such as ``batch``."""
    return isinstance(size, int | np.integer)


def static(size: Any, name: str) -> int:
    """A dim that must be a number."""
    if not is_static(size):
        raise MlaotError(f"{name} depends on the size of an axis that has no fixed size ({size}); give it a number")
    return int(size)


def check_spatial(x: Array, n: int, name: str) -> None:
    """``x`` is one example [channel, *spatial] or a batch of them."""
    if x.ndim not in (n + 1, n + 2):
        axes = "dhw"[3 - n :]
        raise MlaotError(
            f"{name}: expected [batch, channel, {', '.join(axes)}] or one example of it, "
            f"got {x.ndim} dimensions {list(x.shape)}"
        )


def channels_first(values: Array, ndim: int, axis: int = 1) -> Array:
    """A vector with one number a channel, shaped to meet an array of ``ndim`` dimensions."""
    return np.reshape(values, (1,) * axis + (-1,) + (1,) * (ndim - axis - 1))


def as_like(values: Array, like: Array) -> Array:
    """``values`` in the dtype of ``like``."""
    if isinstance(values, np.ndarray) and like.dtype is bf16:
        return Tensor(as_node(values, bf16)) if is_traced(like) else round_bf16(values)
    return values if values.dtype == like.dtype else values.astype(like.dtype)


def check_choice(value: str, choices: Sequence[str], name: str) -> None:
    """An option that is a word."""
    if value not in choices:
        raise MlaotError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
