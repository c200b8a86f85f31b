"""Which values are equal to which: a union-find beside the values, as Max Bernstein's second post leaves it to readers.

A value that was made equal to another one is forwarded to it. ``find`` follows the links to the representative of all
that are equal; nothing else of a value changes, and nothing is deleted. The links are in one table that holds its
values weakly: a link goes with the value that it starts from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from mlaot.errors import MlaotError

forwarded: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def find(value: Any) -> Any:
    """Return the representative of all values that ``value`` was made equal to: itself, where there are none."""
    while (other := forwarded.get(value)) is not None:
        value = other
    return value


def representatives(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the representatives of values, in their order."""
    return tuple(map(find, values)) if forwarded else tuple(values)


def make_equal_to(value: Any, other: Any) -> None:
    """Let ``other`` stand for ``value`` wherever that is used, from now on.

    A constant stands for itself, as in the post: it can be equal to the same constant only.
    """
    value, other = find(value), find(other)
    if value is other:
        return
    if value._prev or value._op:
        forwarded[value] = other
    elif value.data != other.data:
        raise MlaotError(f"make_equal_to: a constant, {value.data}, is made equal to {other.data}")
