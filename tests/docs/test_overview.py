"""The picture at the top of the README is up to date."""

from __future__ import annotations

from . import make_overview


def test_drawing_is_up_to_date() -> None:
    stale = f"docs/overview.svg is out of date; run {make_overview.COMMAND}"
    assert make_overview.PAGE.read_text(encoding="utf-8") == make_overview.drawing(), stale
