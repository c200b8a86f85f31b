"""What is written from the settings' fields is up to date."""

from __future__ import annotations

import tomllib

import pytest

from mlaot.settings import TABLES
from mlaot.settings.keys import fits, keys_of, schema_of, spelled

from . import make_settings

STALE = "is out of date; run python -m tests.docs.make_settings"
KEYS = [key for kind in TABLES for key in keys_of(kind).values()]


def test_page_is_up_to_date() -> None:
    text = make_settings.PAGE.read_text(encoding="utf-8")
    assert make_settings.page(text) == text, f"docs/settings.md {STALE}"


def test_stored_schema_is_up_to_date() -> None:
    assert make_settings.SCHEMA.read_text(encoding="utf-8") == make_settings.schema(), f"settings.schema.json {STALE}"


@pytest.mark.parametrize("key", KEYS, ids=[key.name for key in KEYS])
def test_example_is_allowed_and_not_the_default(key: make_settings.Key) -> None:
    line = make_settings.example(key).strip("`")
    value = tomllib.loads(line)[spelled(key)]
    assert fits(value, schema_of(key))
    assert value != (list(key.default) if isinstance(key.default, tuple) else key.default)


@pytest.mark.parametrize("key", KEYS, ids=[key.name for key in KEYS])
def test_key_says_what_it_is_in_one_line(key: make_settings.Key) -> None:
    for text in (key.metadata["doc"], key.metadata["expected"]):
        assert text and "\n" not in text and not text.endswith(".")
