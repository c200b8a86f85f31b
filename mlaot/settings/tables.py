"""Read pyproject.toml, and check its tables: every mistake of the user's is a ``MlaotError`` of one line.

``reading.py`` makes ``Settings`` of the tables; what the keys are, their dataclasses say (``keys.py``), so that a new
setting changes nothing here. Before a check a value is ``Any``: it is whatever the user wrote. Callers that need no
settings call ``read_pyproject`` alone. The texts of the errors are compared by ``tests/build/settings_errors.txt``.
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
from mlaot.settings.keys import fits, keys_of, schema_of


def read_pyproject(project: Path) -> dict[str, Any]:
    """Return the content of the project's pyproject.toml, of which nothing is checked but that it is TOML."""
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
    """Return the values of all keys of ``kind``, a dataclass whose fields they are, after checking each.

    ``where``: how messages name the table. ``besides``: keys that are allowed too, and that the caller reads.
    ``defaults`` come before those of the fields, such as what ``[tool.mlaot]`` says for all models.
    """
    keys = keys_of(kind)
    check_keys(check_table(table, where), (*keys, *besides), where)
    values = {}
    for name, key in keys.items():
        if name in table:
            if not fits(table[name], schema_of(key)):
                raise value_error(key, where, table[name])
            values[name] = tuple(table[name]) if isinstance(table[name], list) else table[name]
        elif name in defaults or key.default is not MISSING:
            values[name] = defaults.get(name, key.default)
        else:
            raise MlaotError(f"no key {name!r} in {where} of {FILE}; expected {key.metadata['expected']}")
    return values


def table_of(model: str, *below: str) -> str:
    """Return how messages name the table of a model, or one below that: ``[tool.mlaot.models.nn]``."""
    name = model if re.fullmatch(r"[\w-]+", model) else repr(model)
    return f"[{'.'.join(('tool.mlaot.models', name, *below))}]"


def check_table(value: Any, where: str) -> dict[str, Any]:
    """Return ``value`` if it is a table, else refuse it."""
    if isinstance(value, dict):
        return value
    raise MlaotError(f"{where} of {FILE} must be a table, got {value!r}")


def check_keys(table: Iterable[str], keys: tuple[str, ...], where: str) -> None:
    """Refuse a table with a key that is not among ``keys``; say in which other table it would be one, if in any."""
    for key in table:
        if key not in keys:
            home = next((home for kind, home in TABLES.items() if key in keys_of(kind)), None)
            hint = home and f"; it belongs in {home}"
            hint = hint or did_you_mean(key, keys) or f"; the keys are {', '.join(keys)}"
            raise MlaotError(f"unknown key {key!r} in {where} of {FILE}{hint}")


def value_error(key: Field[Any], where: str, got: Any) -> MlaotError:
    """Return the error for a value that is not what the key expects; the caller raises it."""
    schema = schema_of(key)
    choices = schema.get("enum") or schema.get("items", {}).get("enum", ())
    bad = [word for word in (got if isinstance(got, list) else [got]) if isinstance(word, str) and word not in choices]
    hint = did_you_mean(bad[0], choices) if bad else ""
    return MlaotError(f"key {key.name!r} in {where} of {FILE} must be {key.metadata['expected']}; got {got!r}{hint}")
