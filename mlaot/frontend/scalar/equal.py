"""A union-find of equal values, which Max Bernstein's second post leaves to its readers.

A value that was made equal to another one is forwarded to it. ``find`` follows the links to the representative of all
equal values. Nothing else of a value changes, and nothing is deleted. The links are in one table with weak references,
which drops a link when its value is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from mlaot.errors import MlaotError

forwarded: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def find(value: Any) -> Any:
    """Return the representative of all values that ``value`` was made equal to, or ``value`` if there are none."""
    while (other := forwarded.get(value)) is not None:
        value = other
    return value


def representatives(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the representatives of values, in their order."""
    return tuple(map(find, values)) if forwarded else tuple(values)


def make_equal_to(value: Any, other: Any) -> None:
    """Replace ``value`` by ``other`` in all later uses.

    A constant can be made equal to the same constant only, as in the post.
    """
    value, other = find(value), find(other)
    if value is other:
        return
    if value._prev or value._op:
        forwarded[value] = other
    elif value.data != other.data:
        raise MlaotError(f"make_equal_to: a constant, {value.data}, is made equal to {other.data}")
