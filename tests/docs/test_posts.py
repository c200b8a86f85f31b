"""The pictures of docs/posts.md are up to date."""

from __future__ import annotations

import pytest

from . import make_posts


def test_pictures_are_up_to_date(request: pytest.FixtureRequest) -> None:
    for file, picture in make_posts.pictures().items():
        if request.config.getoption("--update-golden"):
            file.write_text(picture, encoding="utf-8")
        stale = f"docs/{file.name} is out of date; run {make_posts.COMMAND}, or pytest --update-golden"
        assert file.read_text(encoding="utf-8") == picture, stale
