"""Arrays in nested dicts, lists and tuples, flattened to a list of leaves and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlaot.errors import MlaotError


@dataclass(frozen=True)
class Leaf:
    """The place of one array."""


LEAF = Leaf()


def flatten(value: Any) -> tuple[list[Any], Any]:
    """Return the leaves of ``value`` in order, and its structure: its containers with a ``Leaf`` for each array."""
    leaves: list[Any] = []
    return leaves, _structure(value, leaves)


def _structure(value: Any, leaves: list[Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key: _structure(part, leaves) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return _like(value, [_structure(part, leaves) for part in value])
    leaves.append(value)
    return LEAF


def _like(container: Any, parts: list[Any]) -> Any:
    if isinstance(container, list):
        return parts
    return type(container)(*parts) if hasattr(container, "_fields") else tuple(parts)


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """Put ``leaves`` in the places of the leaves of ``structure``."""
    return _fill(structure, iter(leaves))


def _fill(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    if isinstance(structure, Mapping):
        return {key: _fill(part, leaves) for key, part in structure.items()}
    if isinstance(structure, tuple | list):
        return _like(structure, [_fill(part, leaves) for part in structure])
    return structure


def map_leaves(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply ``function`` to the leaves at the same position in ``trees``."""
    parts = [flatten(tree) for tree in trees]
    if any(structure != parts[0][1] for _, structure in parts):
        raise MlaotError(f"expected one structure of arrays, got {' and '.join(str(s) for _, s in parts)}")
    return unflatten(parts[0][1], [function(*leaves) for leaves in zip(*[p[0] for p in parts], strict=True)])
