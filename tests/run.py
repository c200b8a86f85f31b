"""Every check of the project, from bare Python: ruff, and if it finds nothing, pytest with mypy beside it.

    python tests/run.py               # all
    python tests/run.py tests/build   # further arguments go to pytest

The tools live in .venv-test, which is made on the first run and refreshed when pyproject.toml changes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-test"


def start(*command: str | Path, output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start one command in the root of the project; what it prints goes to ``output``, or to the terminal."""
    path = os.pathsep.join([str(bin_folder()), os.environ.get("PATH", "")])  # cmake and ninja of the environment
    words, env = [str(word) for word in command], os.environ | {"PATH": path}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # several processes import the same
    return subprocess.Popen(words, cwd=ROOT, env=env, stdout=output, stderr=output)


def run(*command: str | Path) -> None:
    """Run one command; end with its status where it fails."""
    print("$", *command, flush=True)
    if status := start(*command).wait():
        raise SystemExit(status)


def run_both(quiet: Sequence[str | Path], command: Sequence[str | Path]) -> None:
    """Run two commands at once; print the output of ``quiet`` after that of ``command``. End where one fails."""
    print("$", *command, flush=True)
    with tempfile.TemporaryFile() as output, start(*quiet, output=output) as beside, start(*command) as process:
        statuses = process.wait(), beside.wait()
        output.seek(0)
        print("$", *quiet, f"\n{output.read().decode()}", end="", flush=True)
    if any(statuses):
        raise SystemExit(next(filter(None, statuses)))


def bin_folder() -> Path:
    """Where the environment's programs are."""
    return ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")


def environment() -> Path:
    """The interpreter of the test environment, with this checkout installed in place."""
    python = bin_folder() / ("python.exe" if os.name == "nt" else "python")
    content = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "CMakeLists.txt").read_bytes() + sys.version.encode()
    if not is_noted("installed", content):
        venv.create(ENVIRONMENT, clear=True, with_pip=True, symlinks=os.name != "nt")
        run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--editable", ".[test]")
        note("installed", content)
        note("modules", module_names())
    if not is_noted("modules", module_names()):  # an editable install finds those that there were when it was made
        run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--editable", ".")
        note("modules", module_names())
    return python


def module_names() -> bytes:
    """The files of the package."""
    return "\n".join(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "mlaot").rglob("*.py"))).encode()


def is_noted(name: str, content: bytes) -> bool:
    """Whether the environment was made for this content."""
    stamp = ENVIRONMENT / name
    return stamp.is_file() and stamp.read_text() == hashlib.sha256(content).hexdigest()


def note(name: str, content: bytes) -> None:
    """Remember for which content the environment was made."""
    (ENVIRONMENT / name).write_text(hashlib.sha256(content).hexdigest())


def main() -> None:
    """ruff; then mypy and pytest, since mypy has no work for a second core."""
    python = environment()
    run(python, "-m", "ruff", "check", ".")
    # One worker more than the two cores that there are at least: tests wait for processes of theirs.
    tests: list[str | Path] = [python, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", *sys.argv[1:]]
    run_both([python, "-m", "mypy"], tests)


if __name__ == "__main__":
    main()
