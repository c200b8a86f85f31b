"""Read pyproject.toml, and check its tables. Every mistake of the user raises a ``MlaotError`` of one line.

``reading.py`` converts the tables to ``Settings``. The dataclasses define the keys (``keys.py``), so that a new setting
changes nothing here. An unchecked value has the type ``Any``, as the user may have written anything. Callers that need
no settings call only ``read_pyproject``. ``tests/build/settings_errors.txt`` has the texts of the errors.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError, did_you_mean
from mlaot.settings import FILE, TABLES
from mlaot.settings.keys import fits, keys_of, schema_of, spelled


def read_pyproject(project: Path) -> dict[str, Any]:
    """Return the content of the project's pyproject.toml, and check only that it is TOML."""
    try:
        text = (project / FILE).read_text(encoding="utf-8")
        if text.startswith("\ufeff"):
            raise MlaotError(f"{FILE} begins with a byte order mark; save it as UTF-8 without one")
        return dict(tomllib.loads(text))
    except FileNotFoundError:
        raise MlaotError(f"no {FILE} in {project}") from None
    except OSError as error:
        raise MlaotError(f"cannot read {FILE}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise MlaotError(f"{FILE} is not UTF-8: byte 0x{byte:02x} at {error.start}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise MlaotError(f"{FILE} is not valid TOML: {error}") from None


def read_table(kind: Any, table: Any, where: str, besides: Iterable[str] = (), **defaults: Any) -> dict[str, Any]:
    """Return the values of all keys of ``kind``, checked, by the names of their fields.

    ``defaults`` are the defaults that the fields cannot know. The caller itself reads the keys ``besides``.
    """
    keys = keys_of(kind)
    check_keys(check_table(table, where), (*keys, *besides), where)
    values = {}
    for name, key in keys.items():
        if name in table:
            if not fits(table[name], schema_of(key)):
                raise value_error(key, where, table[name])
            values[key.name] = tuple(table[name]) if isinstance(table[name], list) else table[name]
        elif name in defaults or key.default is not MISSING:
            values[key.name] = defaults.get(name, key.default)
        else:
            raise MlaotError(f"no key {name!r} in {where} of {FILE}; expected {key.metadata['expected']}")
    return values


def table_of(model: str, *below: str) -> str:
    """Return the name in messages of the table of a model, or of a table below it: ``[tool.mlaot.models.nn]``."""
    name = model if re.fullmatch(r"[\w-]+", model) else repr(model)
    return f"[{'.'.join(('tool.mlaot.models', name, *below))}]"


def check_table(value: Any, where: str) -> dict[str, Any]:
    """Return ``value`` if it is a table; raise ``MlaotError`` if not."""
    if isinstance(value, dict):
        return value
    raise MlaotError(f"{where} of {FILE} must be a table, got {value!r}")


def check_keys(table: Iterable[str], keys: tuple[str, ...], where: str) -> None:
    """Raise if a table has an unknown key."""
    for key in table:
        if key not in keys:
            table_name = next((table_name for kind, table_name in TABLES.items() if key in keys_of(kind)), None)
            hint = table_name and f"; it belongs in {table_name}"
            hint = hint or did_you_mean(key, keys) or f"; the keys are {', '.join(keys)}"
            raise MlaotError(f"unknown key {key!r} in {where} of {FILE}{hint}")


def value_error(key: Field[Any], where: str, value: Any) -> MlaotError:
    """Return the error for a value that the key does not allow."""
    schema = schema_of(key)
    words = schema.get("enum") or schema.get("items", {}).get("enum", ())
    items = value if isinstance(value, list) else [value]
    unknown = [item for item in items if isinstance(item, str) and item not in words]
    hint = did_you_mean(unknown[0], words) if unknown else ""
    expected = key.metadata["expected"]
    return MlaotError(f"key {spelled(key)!r} in {where} of {FILE} must be {expected}; got {value!r}{hint}")
