"""Projects to build, and interpreters to build them with.

The compiler proper is not under test here: the wheel of mlaot that these tests install has ``fake_generate.py`` in the
place of ``mlaot/generate.py`` and ``mlaot/report/passes.py``. Each virtual environment borrows the packages of the
interpreter that runs pytest, so that none needs pip.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("fake_generate.py")
FAKED = ("mlaot/generate.py", "mlaot/report/passes.py")

PYPROJECT = """\
[build-system]
requires = [{requires}]
build-backend = "{backend}"

[project]
name = "digits"
version = "1.0"

[tool.mlaot.models.nn]
model = "{model}"
"""


@dataclass
class Project:
    """A project's folder."""

    path: Path

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def files(self) -> set[str]:
        return {path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file()}


@dataclass
class Python:
    """An interpreter in an environment of its own."""

    executable: Path

    def run(self, *arguments: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CC", "CFLAGS", "LDFLAGS")}
        command = [str(self.executable), *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, env=env | environ, capture_output=True, text=True, check=False)

    def check(self, *arguments: str | Path, cwd: Path, **environ: str) -> str:
        result = self.run(*arguments, cwd=cwd, **environ)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def hook(self, project: Project, hook: str, *arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
        """Call one hook of the project's backend, as a frontend would."""
        named = re.search(r'^build-backend = "(.*)"$', (project.path / "pyproject.toml").read_text(), re.MULTILINE)
        backend = named[1] if named else "mlaot.build"
        code = f"import {backend} as b; print('returned', b.{hook}(*{arguments!r}), flush=True)"
        return self.run("-P", "-c", code, cwd=project.path, **environ)

    def wheel(self, project: Project, hook: str = "build_wheel", **environ: str) -> Path:
        """The path of the wheel that ``build_wheel`` makes, or another hook."""
        out = project.path.parent / "wheels"
        out.mkdir(exist_ok=True)
        result = self.hook(project, hook, str(out), **environ)
        assert result.returncode == 0, result.stdout + result.stderr
        return out / result.stdout.splitlines()[-1].removeprefix("returned ")

    def install_editable(self, project: Project) -> None:
        """What ``pip install -e`` comes to, in a third of its time. Each backend has a test where pip does it."""
        site = site_packages(self.executable.parents[1])
        with zipfile.ZipFile(self.wheel(project, "build_editable")) as file:
            file.extractall(site)
            for name in file.namelist():  # byte code of a file of the same second and size would be believed
                Path(cache_from_source(str(site / name))).unlink(missing_ok=True)


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    """The last line on stderr of something that failed without a traceback."""
    assert result.returncode != 0, result.stdout + result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    return result.stderr.rstrip().splitlines()[-1]


def site_packages(environment: Path) -> Path:
    """Where a virtual environment has its packages."""
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def make_environment(path: Path, *wheels: Path) -> Python:
    """A virtual environment with ``wheels`` unpacked into it and everything else borrowed."""
    venv.create(path, symlinks=True)
    executable = path / "bin" / "python"
    site = site_packages(path)
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    return Python(executable)


def build_own_wheel(folder: Path) -> Path:
    """mlaot's own wheel, built from this checkout into a new folder."""
    options = ["-q", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT), "-w", str(folder)]
    subprocess.run(command, check=True, cwd=folder.parent)
    return next(folder.glob("mlaot-*.whl"))


def pinned(wheel: Path, folder: Path) -> dict[str, str]:
    """Environment variables with which an isolated build takes this wheel of mlaot; a file for it is in ``folder``."""
    constraints = folder / "constraints.txt"
    constraints.write_text(f"mlaot @ {wheel.as_uri()}\n")
    return dict.fromkeys(("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "UV_BUILD_CONSTRAINT"), str(constraints))


@pytest.fixture(scope="session")
def shared(shared_folder: Path) -> Iterator[Path]:
    """A folder that the workers of pytest-xdist share, held by one of them at a time."""
    folder = shared_folder / "shared"
    folder.mkdir(exist_ok=True)
    yield folder


@pytest.fixture(scope="session")
def own_wheel(shared: Path) -> Path:
    """mlaot's own wheel, built from this checkout."""
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out = shared / "own"
        if not out.exists():
            build_own_wheel(out)
    return next(out.glob("mlaot-*.whl"))


@pytest.fixture(scope="session")
def fake_wheel(own_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same wheel with the fake ``generate``."""
    path = tmp_path_factory.mktemp("fake") / own_wheel.name
    with zipfile.ZipFile(own_wheel) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if name not in ("mlaot/__init__.py", *FAKED):
                new.writestr(name, old.read(name))
        new.writestr("mlaot/__init__.py", "")
        for name in FAKED:
            new.writestr(name, FAKE.read_text())
    return path


@pytest.fixture(scope="session")
def python(fake_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """An interpreter with mlaot; tests must not install anything into it."""
    return make_environment(tmp_path_factory.mktemp("python") / "venv", fake_wheel)


@pytest.fixture
def no_zig(tmp_path: Path) -> str:
    """A PYTHONPATH on which zig is not installed, wherever it is."""
    made = Project(tmp_path / "no_zig")
    made.write("sitecustomize.py", "import sys\nsys.modules['ziglang'] = None\n")
    return str(made.path)


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., Python]:
    """Makes fresh environments: ``environment(wheel, ...)``."""
    return lambda *wheels: make_environment(tmp_path / f"venv{len(list(tmp_path.iterdir()))}", *wheels)


def smallest_project(path: Path) -> Project:
    """pyproject.toml and model.py."""
    made = Project(path)
    made.write("pyproject.toml", PYPROJECT.format(requires='"mlaot"', backend="mlaot.build", model="model:digits"))
    made.write("model.py", "digits = 42\n")
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The smallest project, the test's own."""
    return smallest_project(tmp_path / "project")
