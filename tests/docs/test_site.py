"""The pages make a site: each has a place, links lead to headings, what is generated is up to date, and it builds."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from .. import projects
from . import make_index, make_messages, make_terminal
from .test_docs import PAGES

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)#([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    texts = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in texts}


def test_every_page_has_one_place() -> None:
    """What README.md and others are called on the site, ``docs/site/hooks.py`` says."""
    settings = (projects.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    places = re.findall(r"^ +- .+: (\S+\.md)$", settings.partition("\nnav:\n")[2], re.MULTILINE)
    outside = ["readme.md", "changelog.md", "versions.md", "security.md", "contributing.md"]
    assert Counter(places) == Counter([page.name for page in (projects.ROOT / "docs").glob("*.md")] + outside)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_to_headings(page: Path) -> None:
    """Those that name one; ``test_docs.py`` looks for the files."""
    for target, anchor in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_figures_are_up_to_date(request: pytest.FixtureRequest) -> None:
    check(make_index.PAGE, make_index.page(make_index.PAGE.read_text(encoding="utf-8")), make_index.COMMAND, request)


def test_messages_are_up_to_date(request: pytest.FixtureRequest) -> None:
    text = make_messages.PAGE.read_text(encoding="utf-8")
    check(make_messages.PAGE, make_messages.page(text), make_messages.COMMAND, request)


def test_terminal_is_up_to_date(request: pytest.FixtureRequest) -> None:
    session = make_terminal.SESSION.read_text(encoding="utf-8")
    check(make_terminal.PICTURE, make_terminal.drawing(session), make_terminal.COMMAND, request)


def test_terminal_shows_the_quick_start() -> None:
    """Its model and what is typed are those of README.md, whose answers ``test_docs.py`` checks."""
    session, files = make_terminal.SESSION.read_text(encoding="utf-8"), make_terminal.quick_start()
    assert f"$ cat model.py\n{files['model.py']}$ " in session
    assert re.findall(r"^>>> (.*)$", session, re.MULTILINE) == make_terminal.typed_lines(files[">>>"])[:-1]
    assert session.endswith("[0, 1, 1, 0]\n")


def check(path: Path, wanted: str, command: str, request: pytest.FixtureRequest) -> None:
    """What a script writes is there, or is written."""
    if request.config.getoption("--update-golden"):
        path.write_text(wanted, encoding="utf-8")
    stale = f"docs/{path.name} is out of date; run {command}, or pytest --update-golden"
    assert path.read_text(encoding="utf-8") == wanted, stale


@pytest.mark.skipif(not find_spec("material"), reason="MkDocs Material is not installed")
def test_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=projects.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tour" / "index.html").exists()
    assert '<label for="__tabbed_' in (tmp_path / "settings" / "index.html").read_text(encoding="utf-8")
    assert not re.search("<th[^>]*></th>", (tmp_path / "readme" / "index.html").read_text(encoding="utf-8"))
