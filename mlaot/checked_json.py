"""Read JSON that another process or another program wrote, and check its shape before it is used.

The files are the metadata of modules, bills of materials, digests and notes of a build, and the files of language
models. Users and other programs may have damaged them. Damage raises one ``MlaotError`` here, and never a ``KeyError``
later. A shape says which keys and types there are; callers check the values. ``tests/fuzz/stored.py`` damages the
files. ``mlaot-tuned.json`` has a reader of its own, ``settings/tuned.py``, whose errors say how to make the file again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError

MAX_BYTES = 64 << 20
# A type (``object``: anything), ``[shape]`` for a list, ``{"a": shape, "b?": shape}`` for an object with the key a and
# maybe b, ``{str: shape}`` for one with any keys. Keys that a shape does not name are let through.
Shape = Any
NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number with a point",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def read_json(path: Path, shape: Shape, what: str) -> Any:
    """Return the content of a JSON file, which must have ``shape``. ``what`` is the name of the file in errors."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MlaotError(f"cannot read {what}: {error.strerror}") from None
    return parse_json(content, shape, what)


def parse_json(content: bytes | str, shape: Shape, what: str) -> Any:
    """Return the value of a JSON text, which must have ``shape``. ``what`` is the name of the text in errors."""
    if len(content) > MAX_BYTES:
        raise MlaotError(f"{what} is larger than {MAX_BYTES >> 20} MiB")
    try:
        value = json.loads(content)
    except RecursionError:
        raise MlaotError(f"{what} is nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError
        raise MlaotError(f"{what} is not valid JSON: {error}") from None
    if wrong := mismatch(value, shape):
        raise MlaotError(f"{what} is damaged: {wrong}")
    return value


def mismatch(value: Any, shape: Shape, place: str = "") -> str:
    """Describe the first part of a value that does not have its shape; return an empty string if all have."""
    at = place or "the whole"
    if shape is object:
        return ""
    if isinstance(shape, type):
        is_right = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        return "" if is_right else f"expected {at} to be {NAMES[shape]}, got {type(value).__name__}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"expected {at} to be a list, got {type(value).__name__}"
        problems = (mismatch(item, shape[0], f"{place}[{i}]") for i, item in enumerate(value))
        return next(filter(None, problems), "")
    if not isinstance(value, dict):
        return f"expected {at} to be an object, got {type(value).__name__}"
    if str in shape:
        return next(filter(None, (mismatch(item, shape[str], f"{place}.{key!r}") for key, item in value.items())), "")
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if name in value and (wrong := mismatch(value[name], inner, f"{place}.{name}".lstrip("."))):
            return wrong
        if name not in value and name == key:
            return f"no {f'{place}.{name}'.lstrip('.')}"
    return ""
