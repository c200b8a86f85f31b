"""Real wheels, built once for the whole run: the compiler, the build backend and pip as a user meets them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlaot.probe.beside import load_file

from ..build.conftest import Project, Python, make_environment, own_wheel, shared

__all__ = ["Project", "Python", "make_environment", "own_wheel", "shared"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
HERE = Path(__file__).parent
PROJECTS = {
    "xor": EXAMPLES / "xor",
    "train": EXAMPLES / "digits" / "train",
    "serve": EXAMPLES / "digits" / "serve",
    "zoo": HERE / "zoo",
    "gates": EXAMPLES / "c",
}
WHEEL = ("-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index")
Wheel = Callable[[str], Path]
Site = Callable[[str], Path]


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One worker of pytest-xdist at a time."""
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def copy_project(source: Path, target: Path) -> Project:
    """A project's files, without what an earlier build left."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("build", "__pycache__"))
    return Project(target)


@pytest.fixture(scope="session")
def builder(own_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """An interpreter with mlaot's own wheel."""
    return make_environment(tmp_path_factory.mktemp("builder") / "venv", own_wheel)


@pytest.fixture(scope="session")
def wheel(builder: Python, shared: Path) -> Wheel:
    """``wheel("xor")``: the wheel of a project of ``PROJECTS``."""

    def build(name: str) -> Path:
        folder = shared / f"wheel-{name}"
        with alone(shared / f"wheel-{name}.lock"):
            if not folder.exists():
                project = copy_project(PROJECTS[name], shared / f"project-{name}")
                unfinished = shared / f"unfinished-{name}"
                builder.check(*WHEEL, "-w", unfinished, ".", cwd=project.path)
                unfinished.rename(folder)
        (made,) = folder.glob("*.whl")
        return made

    return build


@pytest.fixture(scope="session")
def site(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """``site("xor")``: a folder for ``sys.path`` with the wheel unpacked."""
    base = tmp_path_factory.mktemp("sites")

    def unpack(name: str) -> Path:
        if not (base / name).exists():
            with zipfile.ZipFile(wheel(name)) as file:
                file.extractall(base / name)
        return base / name

    return unpack


def load(site: Path, name: str) -> ModuleType:
    """A module of an unpacked wheel, without a trace in ``sys.modules``."""
    path = site.joinpath(*name.split(".")).with_suffix(".abi3.so")
    return load_file(name, path)


@pytest.fixture(scope="session")
def serving(site: Site) -> ModuleType:
    """The frozen digits."""
    return load(site("serve"), "digits.nn")


@pytest.fixture(scope="session")
def training(site: Site) -> ModuleType:
    """The digits that train; tests take a ``Model()`` of their own."""
    return load(site("train"), "digits_train.nn")


def alone_python(*command: str | Path, **environ: str) -> str:
    """What an interpreter prints that sees neither the user's packages nor the current folder."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=os.environ | environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def answers(site: Site, *interpreter: str | Path, **environ: str) -> dict[str, Any]:
    """The numbers of session.py; ``interpreter`` may have an emulator in front, and brings no packages."""
    sites = [site(name) for name in ("xor", "train", "serve")]
    data = EXAMPLES / "digits" / "digits.csv.gz"
    found: dict[str, Any] = json.loads(
        alone_python(*interpreter, "-I", "-S", HERE / "session.py", data, *sites, **environ)
    )
    return found


def python_of(minor: int) -> Path | None:
    """The real binary, no launcher script, of a CPython 3.``minor`` of this machine."""
    if minor == sys.version_info.minor:
        return Path(sys.executable).resolve()
    found = [shutil.which(f"python3.{minor}")]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
        found = [*map(str, Path(root, "versions").glob(f"3.{minor}.*/bin/python3.{minor}")), *found]
    for path in filter(None, found):
        code = "import sys; print(sys.implementation.name, sys.version_info[1], sys.executable)"
        told = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        match told.stdout.split(maxsplit=2):
            case ["cpython", version, executable] if version == str(minor):
                return Path(executable.strip()).resolve()
    return None


def last_words(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why something failed: last on stderr, and no traceback of mlaot above it."""
    assert result.returncode != 0, result.stdout + result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("mlaot: ")]
    assert len(lines) == 1 and lines == result.stderr.rstrip().splitlines()[-1:], result.stderr
    return lines[0].removeprefix("mlaot: ")
