"""Build a project behind each door in each way, use what comes out, write the table of docs/doors.md.

    python -m tests.docs.make_doors [--only meson] [--keep FOLDER]

The project is examples/digits/serve as a package. Wheels are installed into an environment with nothing in it, no mlaot
and no NumPy, and imported from another folder when the sources are gone; the answers must be those of the model. What
is isolated asks the package index for all but mlaot, which is built from this checkout. With uv installed, its builds
have a column too. Needs git, which meson needs for an sdist, and a few minutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..build.conftest import Project, Python, build_own_wheel, make_environment, pinned
from ..build.doors import DOORS, PAGE
from ..projects import EXAMPLES

MODEL = EXAMPLES / "digits" / "serve"
BEGIN, END = "<!-- seconds -->\n", "<!-- end -->"
ROWS = np.random.default_rng(0).uniform(0, 16, (4, 64)).astype(np.float32)
GIT = ("git", "-c", "user.name=doors", "-c", "user.email=doors@localhost")
USE = "import json, sys; from digits import nn; print([nn.forward(row).tolist() for row in json.load(sys.stdin)])"
BARE = "import importlib.util as i; print([name for name in ('mlaot', 'numpy', 'jinja2') if i.find_spec(name)])"
Ways = dict[str, Callable[["Trial"], Python]]


@dataclass
class Trial:
    """One project, to be built in one way."""

    folder: Path
    own_wheel: Path
    tools: Python
    environ: Mapping[str, str]

    @property
    def project(self) -> Project:
        """The project's folder."""
        return Project(self.folder / "project")

    def pip(self, command: str, *arguments: str | Path, isolated: bool = True, python: Python | None = None) -> None:
        """Run pip in the project's folder, for ``python`` if it has none of its own."""
        offline = () if isolated else ("--no-build-isolation", "--no-index")
        target = ("--python", python.executable) if python else ()
        words = ("-m", "pip", *target, command, "-q", "--no-deps", *offline, *arguments)
        self.tools.check(*words, cwd=self.project.path, **self.environ)

    def empty(self) -> Python:
        """An environment with nothing in it."""
        venv.create(self.folder / "empty", symlinks=True)
        python = Python(self.folder / "empty" / "bin" / "python")
        assert python.check("-c", BARE, cwd=self.folder) == "[]\n"
        return python

    def installed(self) -> Python:
        """Where the wheel is all there is."""
        (wheel,) = self.folder.glob("out/*.whl")
        self.project.path.rename(self.folder / "gone")
        self.project.path.mkdir()  # for pip to run in
        python = self.empty()
        self.pip("install", wheel, isolated=False, python=python)
        return python


def wheel(trial: Trial, *, isolated: bool) -> Python:
    """``pip wheel .``"""
    trial.pip("wheel", ".", "-w", trial.folder / "out", isolated=isolated)
    return trial.installed()


def sdist(trial: Trial, *, isolated: bool) -> Python:
    """``python -m build --sdist``, then ``pip wheel`` of what it makes."""
    words = ["-m", "build", "--sdist", *([] if isolated else ["--no-isolation"]), "-o", trial.folder / "sdist"]
    trial.tools.check(*words, cwd=trial.project.path, **trial.environ)
    (archive,) = trial.folder.glob("sdist/*.tar.gz")
    trial.pip("wheel", archive, "-w", trial.folder / "out", isolated=isolated)
    return trial.installed()


def editable(trial: Trial, *, isolated: bool) -> Python:
    """``pip install -e .``; without isolation into the environment that has the tools."""
    python = trial.empty() if isolated else make_environment(trial.folder / "tools", trial.own_wheel)
    trial.pip("install", "-e", ".", isolated=isolated, python=python)
    return python


def uv(trial: Trial) -> Python:
    """``uv build``: an sdist, and a wheel of it."""
    trial.tools.check("-m", "uv", "build", "-q", "-o", trial.folder / "out", cwd=trial.project.path, **trial.environ)
    return trial.installed()


def uv_editable(trial: Trial) -> Python:
    """``uv pip install -e .``"""
    python = trial.empty()
    words = ("-m", "uv", "pip", "install", "-q", "--no-deps", "--python", python.executable, "-e", ".")
    trial.tools.check(*words, cwd=trial.project.path, **trial.environ)
    return python


WAYS: Ways = {
    "wheel": lambda trial: wheel(trial, isolated=True),
    "sdist, wheel": lambda trial: sdist(trial, isolated=True),
    "editable": lambda trial: editable(trial, isolated=True),
    "wheel, not isolated": lambda trial: wheel(trial, isolated=False),
    "sdist, wheel, not isolated": lambda trial: sdist(trial, isolated=False),
    "editable, not isolated": lambda trial: editable(trial, isolated=False),
}
UV_WAYS: Ways = {"uv build": uv, "uv, editable": uv_editable}
# Rebuilds at import, by programs that have gone with the environment of the build.
NO_WAY = {("meson", "editable"), ("meson", "uv, editable")}


def write_project(files: Mapping[str, str], project: Project) -> None:
    """The project of a door, in a git repository."""
    for name, text in files.items():
        project.write(name, text)
    project.write("src/digits/__init__.py", "from . import nn\n")
    project.write("src/digits/model.py", (MODEL / "model.py").read_text() + "\n\nbuild = digits\n")
    shutil.copy(MODEL / "weights.safetensors", project.path / "src" / "digits")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "digits"]):
        subprocess.run([*GIT, *command], cwd=project.path, check=True)


def expected() -> np.ndarray:
    """What the model answers, by NumPy."""
    spec = importlib.util.spec_from_file_location("model", MODEL / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return np.array([module.digits(row) for row in ROWS])


def answers(python: Python, folder: Path) -> np.ndarray:
    """What the installed module answers, used from an empty folder."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    command = [str(python.executable), "-c", USE]
    done = subprocess.run(command, cwd=elsewhere, input=json.dumps(ROWS.tolist()), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))


def measure(folder: Path, doors: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Of each door, seconds of each way."""
    own_wheel = build_own_wheel(folder / "own")
    tools = make_environment(folder / "tools", own_wheel)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # ninja, for one
    environ = pinned(own_wheel, folder) | {"PATH": programs}
    wanted = expected()
    for door in doors:
        cells = []
        for way, build in ways().items():
            if (door, way) in NO_WAY:
                cells.append("-")
                continue
            trial = Trial(folder / door / way, own_wheel, tools, environ)
            write_project(DOORS[door], trial.project)
            begin = time.perf_counter()
            python = build(trial)
            seconds = time.perf_counter() - begin
            np.testing.assert_allclose(answers(python, trial.folder), wanted, rtol=1e-5)
            print(f"{door}: {way}: {seconds:.1f} s", flush=True)
            cells.append(f"{seconds:.0f}")
        yield door, cells


def ways() -> Ways:
    """All that can be tried here."""
    return WAYS | (UV_WAYS if importlib.util.find_spec("uv") else {})


def read_table() -> dict[str, list[str]]:
    """The rows of the page's table, by door."""
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return {door: cells for door, *cells in rows}


def write_table(table: Mapping[str, list[str]]) -> None:
    """Write the rows that there are into the page."""
    rows = {"door": [*ways()], "---": ["--:"] * len(ways())} | {door: table[door] for door in DOORS if door in table}
    lines = (f"| {' | '.join([door, *cells])} |\n" for door, cells in rows.items())
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + "".join(lines) + END + rest.partition(END)[2], encoding="utf-8")


def main() -> None:
    """A row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=DOORS, help="one door; the table's other rows stay")
    parser.add_argument("--keep", type=Path, help="a new folder to build in, which stays")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlaot-doors-") as temporary:
        folder = options.keep.resolve() if options.keep else Path(temporary)
        folder.mkdir(exist_ok=True)
        for door, cells in measure(folder, [options.only] if options.only else DOORS):
            write_table(read_table() | {door: cells})


if __name__ == "__main__":
    main()
