"""The drawing of the packages is up to date."""

from __future__ import annotations

import pytest

from . import make_packages


def test_drawing_is_up_to_date(request: pytest.FixtureRequest) -> None:
    drawing = make_packages.drawing()
    if request.config.getoption("--update-golden"):
        make_packages.PAGE.write_text(drawing, encoding="utf-8")
    stale = f"docs/packages.svg is out of date; run {make_packages.COMMAND}, or pytest --update-golden"
    assert make_packages.PAGE.read_text(encoding="utf-8") == drawing, stale
