"""A release can be made: versions agree, the changelog has a section, the recipe asks for what pyproject.toml does."""

from __future__ import annotations

import tomllib

import pytest

from . import release_notes


def test_notes_are_the_section_of_the_version() -> None:
    text = "# Changes\n\n## 0.2.0 (2027-01-01)\n\n* one\n  line\n* two\n\n## 0.1.0\n\nold\n"
    assert release_notes.notes("0.2.0", text) == "* one line\n* two\n"
    assert release_notes.notes("0.1.0", text) == "old\n"
    for version in ("0.1", "0.3.0", ".*"):
        with pytest.raises(SystemExit, match="no section"):
            release_notes.notes(version, text)


def test_this_version_can_be_released() -> None:
    version = release_notes.project_version()
    release_notes.check(version)
    assert release_notes.notes(version, (release_notes.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    with pytest.raises(SystemExit, match=r"pyproject\.toml: expected version 9"):
        release_notes.check("9")


def test_recipe_needs_what_the_project_needs() -> None:
    project = tomllib.loads((release_notes.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (release_notes.ROOT / "packaging/conda/mlaot/recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("\n  run:\n")[2].partition("\n\n")[0]
    listed = [line.strip("- ").replace(" ", "") for line in run.splitlines()]
    assert listed[0] == "python>=${{python_min}}"
    assert sorted(listed[1:]) == sorted(project["dependencies"])
