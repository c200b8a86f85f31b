"""A project of ``mlaot init``, and two wheels of it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mlaot.cli import main

from ..build.conftest import own_wheel, shared

__all__ = ["own_wheel", "shared"]


class Result(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """``cli("init", "digits")``: the command in this process."""

    def run(*arguments: str | Path) -> Result:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else 1
        return Result(status, *capsys.readouterr())

    return run


def start(*arguments: str | Path, cwd: Path, **environ: str) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "mlaot", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=os.environ | environ, stdout=pipe, stderr=pipe, text=True)


def complaint(result: Result, status: int = 1) -> str:
    """The one line on stderr of a command that failed."""
    assert result.status == status, result
    (line,) = result.err.splitlines()
    return line


def wheel_of(project: Path) -> Path:
    """Build the wheel as a user does, with the packages of this interpreter."""
    out = project / "dist"
    command = ["pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(out), "."]
    done = subprocess.run([sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


def edit(path: Path, *changes: tuple[str, str]) -> None:
    """Replace texts that are in a file."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture(scope="session")
def wheels(shared: Path) -> tuple[Path, Path]:
    """Of the project ``small`` as it starts, and of a later version: other weights, one function more."""
    with open(shared / "commands.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        projects = [shared / "commands" / name / "small" for name in ("old", "new")]
        if not (shared / "commands").exists():
            for project in projects:
                assert main(["init", str(project)]) == 0
                with open(project / "pyproject.toml", "a") as file:
                    file.write('\n[tool.mlaot]\nisa = ["base", "v3"]\n')
            edit(projects[1] / "pyproject.toml", ('"0.1.0"', '"0.2.0"'))
            edit(projects[1] / "src" / "model.py", ("default_rng(1)", "default_rng(2)"))
            with open(projects[1] / "src" / "model.py", "a") as file:
                file.write("\n\n@classify.entry\ndef best(point: mlaot.f32[2]):\n    return classify(point).argmax()\n")
            for project in projects:
                wheel_of(project)
        old, new = (next((project / "dist").glob("*.whl")) for project in projects)
        return old, new


@pytest.fixture(scope="session")
def wheel(wheels: tuple[Path, Path]) -> Path:
    """The wheel of the project as it starts."""
    return wheels[0]
