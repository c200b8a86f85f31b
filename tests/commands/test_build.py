"""``mlaot build``: what is said is said once and as it happens, and nothing is left of a build that failed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .conftest import Cli, complaint, edit

BACKENDS = ("mlaot.build", "setuptools.build_meta")


@pytest.fixture
def project(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``mlaot init`` writes, for one instruction set, with a print in the model."""
    monkeypatch.chdir(tmp_path)
    cli("init", "digits")
    with open("digits/pyproject.toml", "a") as file:
        file.write('weights = "file"\n\n[tool.mlaot]\nisa = ["base"]\n')
    edit(tmp_path / "digits" / "src" / "model.py", ("net = ", "print('traced here')\nnet = "))
    return tmp_path / "digits"


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_model_prints_is_shown(project: Path, cli: Cli, backend: str) -> None:
    edit(project / "pyproject.toml", ("mlaot.build", backend))
    result = cli("build", project, "--out", "wheels/here")
    assert result.status == 0, result
    begun, printed, *_, made = result.out.splitlines()
    assert (begun, printed) == ("mlaot: model:classify -> digits.nn", "traced here")
    assert made.startswith("digits-0.1.0-cp311-abi3-")
    assert "copying" not in result.out and "***" not in result.out  # what other tools say of each of their steps
    (wheel,) = os.listdir("wheels/here")
    with zipfile.ZipFile(Path("wheels/here", wheel)) as file:
        assert {"digits/nn.weights", "digits/__pyinstaller/hook-digits.nn.py"} <= set(file.namelist())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_is_told_once(project: Path, cli: Cli, backend: str) -> None:
    edit(project / "pyproject.toml", ("mlaot.build", backend))
    edit(project / "src" / "model.py", ("return net(point)", "return net(pint)"))
    result = cli("build", project, "--out", "wheels/here")
    line = "src/model.py:30: NameError: name 'pint' is not defined"
    assert complaint(result) == f"mlaot: {line}"
    assert "traced here" in result.out and line not in result.out
    assert not Path("wheels").exists()


def test_an_earlier_wheel_stays(project: Path, cli: Cli) -> None:
    (project / "src" / "model.py").write_text("1 / 0\n")
    Path("dist").mkdir()
    assert complaint(cli("build", project)) == "mlaot: src/model.py:1: ZeroDivisionError: division by zero"
    assert os.listdir("dist") == []  # it was there before
    Path("dist/digits-0.0.whl").touch()
    cli("build", project)
    assert os.listdir("dist") == ["digits-0.0.whl"]


def test_a_backend_without_a_word(project: Path, cli: Cli) -> None:
    (project / "silent.py").write_text("import os\n\ndef build_wheel(*arguments):\n    os._exit(3)\n")
    edit(project / "pyproject.toml", ('"mlaot.build"', '"silent"\nbackend-path = ["."]'))
    assert complaint(cli("build", project)) == "mlaot: silent ended with status 3 and no message"


def test_a_backend_that_complains_on_stdout(project: Path, cli: Cli) -> None:
    """As ninja does of what it runs, while scikit-build-core ends its own lines on stderr."""
    code = "import sys\n\ndef build_wheel(*arguments):\n    print('a.c: error', file=sys.stdout)\n    "
    (project / "loud.py").write_text(f"{code}print(file=sys.stderr)\n    sys.exit(1)\n")
    edit(project / "pyproject.toml", ('"mlaot.build"', '"loud"\nbackend-path = ["."]'))
    result = cli("build", project)
    assert (result.status, result.out) == (1, "a.c: error\n")
    assert result.err == "\nmlaot: loud ended with status 1; its output is above\n"


NINJA = """\
import time
from pathlib import Path

def build_wheel(folder, *arguments):
    for line in ("1/5] Generating a.h", "3/5] Building C object nn.dir/nn_v3.c.o", " 80%] Linking C library nn.so"):
        print(f"[{line}", flush=True)
    while not Path("seen").exists():
        time.sleep(0.001)
    Path(folder, "a.whl").touch()
    return "a.whl"
"""


@pytest.mark.parametrize("stderr", ["a pipe", "a terminal"])
def test_what_ninja_counts_is_the_progress(project: Path, stderr: str) -> None:
    (project / "ninja.py").write_text(NINJA)
    edit(project / "pyproject.toml", ('"mlaot.build"', '"ninja"\nbackend-path = ["."]'))
    if stderr == "a terminal":
        pytest.importorskip("rich")
    read, write = pty.openpty() if stderr == "a terminal" else os.pipe()
    verbose = ["-v"] if stderr == "a pipe" else []
    command = [sys.executable, "-m", "mlaot", "build", *verbose]
    environ = os.environ | {"MLAOT_PATIENCE": "0.01", "COLUMNS": "100", "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=project, env=environ, stdout=subprocess.PIPE, stderr=write)
    os.close(write)
    said = b""
    while b"compiling 80 of 100 (nn.so), stage 8 of 10" not in said:
        said += os.read(read, 10000)
    (project / "seen").touch()
    printed, _ = process.communicate()
    os.close(read)
    lines = printed.splitlines()
    assert process.returncode == 0 and lines[0] == b"[1/5] Generating a.h" and lines[-1].startswith(b"a.whl  0 B")
    assert len(lines) == (2 if stderr == "a terminal" else 4)  # a bar is there instead
