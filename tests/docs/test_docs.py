"""The documentation runs: every page in a folder of its own, its blocks from top to bottom.

``python`` blocks are executed and ``pycon`` blocks are doctests, all in one namespace for a page. ``toml`` blocks must
be valid. In ``console`` blocks the commands ``$ mlaot ..`` and ``$ python ..`` are run, and what they print is compared
where the page shows it; ``...`` stands for anything. ``diff`` blocks are changes of mlaot: ``+++ FILE``, then the lines
that go, stay and come, ``@@`` where others lie between. They are made in a copy, with which later commands run. A
comment in front of a block says more:

    <!-- file: model.py -->     the block is the content of that file
    <!-- build: . -->           the block tells how to build and install the project in that folder; here it is compiled
    <!-- status: 1 -->          the commands of the block end with that exit status
    <!-- not run -->            the block is left alone
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlaot import cli
from mlaot.settings.reading import load_settings

from .. import projects

PAGES = sorted([projects.ROOT / "README.md", projects.ROOT / "CONTRIBUTING.md", *(projects.ROOT / "docs").glob("*.md")])
BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
PACKAGES = {"sklearn.md": ("skl2onnx", "pandas")}  # what a page needs besides the extra `test`
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
COPIED = ("mlaot", "templates", "tests", "docs")  # what a change of mlaot is tried on
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    note: str
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["note"] or "", found["language"], found["text"], text.count("\n", 0, found.start("text")) + 1)
        for found in BLOCK.finditer(text)
    ]


def hunks(block: Block) -> Iterator[tuple[str, str, str]]:
    """For each place that a change is made in: the file, and its lines before and after."""
    for part in re.split(r"^\+\+\+ ", block.text, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        for hunk in re.split(r"^@@.*\n", text, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            old, new = ("".join(x[1:] if x.strip() else "\n" for x in lines if x[0] != sign) for sign in "+-")
            yield name, old, new


class Reader:
    """Someone who does what a page says."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.site = folder / "site"
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.has_copy = False

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        word, _, rest = block.note.partition(": ")
        if word == "file":
            path = self.folder / rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif word == "build":
            projects.build((self.folder / rest).resolve(), self.site)
            importlib.invalidate_caches()  # the folder may be new since something was imported
        elif word == "not run":
            pass
        elif block.language == "python":
            # The line breaks in front make line numbers those of the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(self.page), "exec"), self.namespace)
        elif block.language == "pycon":
            self.check_session(block)
        elif block.language == "diff":
            self.change(block)
        elif block.language == "console":
            self.check_commands(block, int(rest) if word == "status" else 0)
        if block.language == "toml":
            check_settings(block, self.folder / "toml")

    def check_session(self, block: Block) -> None:
        """A doctest."""
        parser, said = doctest.DocTestParser(), list[str]()
        test = parser.get_doctest(block.text, self.namespace, self.page.name, str(self.page), block.line - 1)
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(test, out=said.append, clear_globs=False)
        self.namespace.update(test.globs)
        assert not runner.failures, "".join(said)

    def change(self, block: Block) -> None:
        """Change a copy of mlaot."""
        if not self.has_copy:
            for name in COPIED:
                shutil.copytree(projects.ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(projects.ROOT / "pyproject.toml", self.folder)
            self.has_copy = True
        for name, old, new in hunks(block):
            path = self.folder / name
            text = path.read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{self.page.name}, line {block.line}: not once in {name}:\n{old}"
            path.write_text(text.replace(old, new), encoding="utf-8")

    def run(self, *arguments: str, environ: dict[str, str], status: int) -> str:
        """What Python prints; with the copy of mlaot if there is one, whatever is installed."""
        if self.has_copy:
            own = {
                "PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path]),
                "PYTEST_DEBUG_TEMPROOT": str(self.folder),
            }
            arguments, environ = ("-S", *arguments), own | environ
        return projects.run(*arguments, cwd=self.folder, site=self.site, environ=environ, status=status)

    def check_commands(self, block: Block, status: int) -> None:
        """Commands and their output."""
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, wanted = part.partition("\n")
            words = shlex.split(command, comments=True)
            environ = dict(words.pop(0).split("=") for word in list(words) if re.match(r"[A-Z_]+=", word))
            if words[0] not in ("python", "mlaot"):
                continue
            arguments = words[1:] if words[0] == "python" else ["-m", "mlaot", *words[1:]]
            got = self.run(*arguments, environ=environ, status=status)
            assert not wanted.strip() or doctest.OutputChecker().check_output(wanted, got, FLAGS), f"{command}\n{got}"


def check_settings(block: Block, folder: Path) -> None:
    """A pyproject.toml as mlaot reads it, or a part of one."""
    parsed = tomllib.loads(block.text)
    if "project" in parsed and "mlaot" in parsed.get("tool", {}):
        for name in ("src", "model"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(block.text, encoding="utf-8")
        for name in ("model.onnx", "LICENSE", "model/LICENSE", "model/README.md"):
            (folder / name).touch()  # for patterns
        load_settings(folder)


@pytest.fixture
def reader_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # pytest in a page's commands is none of this run's
    monkeypatch.delitem(sys.modules, "model", raising=False)  # of another test
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        if str(tmp_path) in f"{getattr(module, '__file__', '')} {getattr(module, '__path__', '')}":
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_page_runs(page: Path, reader_folder: Path) -> None:
    """Every block of the page does what it says."""
    for package in PACKAGES.get(page.name, ()):
        pytest.importorskip(package)
    reader = Reader(page, reader_folder)
    for block in blocks(page):
        reader.follow(block)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_that_are_not_run_exist(page: Path) -> None:
    """Those of mlaot: with the options that the page gives them."""
    for block in blocks(page):
        if block.language == "console" and block.note == "not run":
            for command in re.findall(r"^\$ (?:[A-Z_]+=\S+ )?mlaot (.*)$", block.text, re.MULTILINE):
                cli.parser().parse_args(shlex.split(command, comments=True))


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    """Files that a page links to, or names as `path/file.py`, exist."""
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        assert (page.parent / target).exists(), target
    for name in re.findall(r"`((?:mlaot|templates|tests|examples|benchmarks|docs)/[\w./-]+\.\w+)`", text):
        assert (projects.ROOT / name).exists(), name


def test_changes_touch_few_files() -> None:
    """What CONTRIBUTING.md says of them, those that it adds included; without tests."""
    text = (projects.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    touched: dict[str, set[str]] = {}
    for block in blocks(projects.ROOT / "CONTRIBUTING.md"):
        heading = re.findall(r"^## (.*)$", "\n".join(text.splitlines()[: block.line]), re.MULTILINE)[-1:]
        names = [name for name, *_ in hunks(block)] if block.language == "diff" else [block.note.partition("file: ")[2]]
        files = {name for name in names if name and not name.startswith("tests/")}
        touched.setdefault(heading[0], set()).update(files)
    assert {heading: files for heading, files in touched.items() if files} == {
        "Add an op": {
            *("mlaot/ops/transcendental.py", "templates/vector/exp10.c.j2", "mlaot/frontend/numpy/special.py"),
            "mlaot/ops/indexing.py",  # for an op of another kind
        },
        "Add a pass": {"mlaot/passes/__init__.py", "mlaot/passes/algebra/absolute_values.py"},
        "Add a kernel": {"mlaot/ops/indexing.py", "mlaot/ops/nests/gathers.py"},
        "Add a reduction": {"mlaot/nest/reductions.py", "mlaot/ops/reduction.py"},
        "Add a layer": {"mlaot/nn/functional/activations.py", "mlaot/nn/stateless.py"},
        "Add an operator of ONNX": {"mlaot/onnx/ops/microsoft_attention.py"},
        "Add an instruction set": {"mlaot/schedule/machine.py", "templates/vector/floor.c.j2"},
        "Add a setting": {"mlaot/settings/options.py", "mlaot/passes/algebra/causal_blocks.py"},
    }


def test_readme_marks_its_commands() -> None:
    """Behind each mark stands one fenced command, of one line."""
    text = (projects.ROOT / "README.md").read_text(encoding="utf-8")
    for mark in ("main job", "tests"):
        (found,) = re.findall(rf"^<!-- {mark} -->\n```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert len(found.splitlines()) == 1, found
