"""Declare a key of a TOML table as a field of a dataclass, with its type, its check and its documentation.

Its reading, its check, its JSON Schema and its line in docs/settings.md follow from the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import Any

SCHEMA_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "str": {"type": "string"},
    "tuple[str, ...]": {"type": "array", "items": {"type": "string"}},
    "int | None": {"type": "integer"},
    "float | None": {"type": "number"},
    "tuple[str, ...] | None": {"type": "array", "items": {"type": "string"}},
}


def key(
    doc: str,
    *,
    example: Any,
    expected: str,
    default: Any = MISSING,
    otherwise: str = "",
    spelling: str = "",
    **schema: Any,
) -> Any:
    """Declare a field that is a key of TOML.

    ``doc`` is its line in the documentation, and ``expected`` the description of the value in errors. A key without
    ``default`` is required, unless ``otherwise`` describes the behaviour without it. ``spelling`` is the key if it
    differs from the field's name. ``schema`` has the keywords of JSON Schema for the value, besides its type.
    """
    texts = {"doc": doc, "expected": expected, "otherwise": otherwise, "spelling": spelling}
    return field(default=default, metadata={**texts, "example": example, "schema": schema})


def spelled(key: Field[Any]) -> str:
    """Return the key of a field in TOML."""
    return str(key.metadata["spelling"] or key.name)


def flag(doc: str, *, default: bool = False, otherwise: str = "") -> Any:
    """Declare a key that is true or false."""
    return key(doc, default=default, otherwise=otherwise, expected="true or false", example=not default)


def choice(doc: str, words: Sequence[str], *, default: str, example: str, otherwise: str = "") -> Any:
    """Declare a key that is one of a few words."""
    *first, last = map(repr, words)
    expected = f"{', '.join(first)} or {last}" if first else last
    return key(doc, default=default, otherwise=otherwise, expected=expected, example=example, enum=words)


def limit(doc: str, expected: str, example: float, minimum: int = 0) -> Any:
    """Declare a key that is a limit, a number. Without the key there is no limit."""
    return key(doc, default=None, otherwise="no limit", expected=expected, example=example, minimum=minimum)


def keys_of(kind: Any) -> dict[str, Field[Any]]:
    """Return the fields of a dataclass that are keys of its table, its own fields first."""
    keys = [key for key in fields(kind) if key.metadata]
    return {spelled(key): key for key in sorted(keys, key=lambda key: key.name not in kind.__annotations__)}


def schema_of(key: Field[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a key's value."""
    return {**SCHEMA_TYPES[str(key.type)], **key.metadata["schema"]}


def is_required(key: Field[Any]) -> bool:
    """Tell whether the key is required."""
    return key.default is MISSING and not key.metadata["otherwise"]


# The keywords of JSON Schema that keys use. ``True`` is no integer in TOML.
PYTHON_TYPES = {"array": (list,), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,)}
CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda value, name: type(value) in PYTHON_TYPES[name],
    "const": lambda value, only: bool(value == only),
    "enum": lambda value, words: value in words,
    "pattern": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "minimum": lambda value, bound: bool(value >= bound),
    "exclusiveMinimum": lambda value, bound: bool(value > bound),
    "maximum": lambda value, bound: bool(value <= bound),
    "items": lambda values, schema: all(fits(value, schema) for value in values),
    "contains": lambda values, schema: any(fits(value, schema) for value in values),
}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Tell whether a value fits a JSON Schema, checking its type first."""
    return all(CHECKS[word](value, argument) for word, argument in schema.items())
