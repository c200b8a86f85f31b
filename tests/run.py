"""Every check of the project, from bare Python: ruff, mypy, pytest, in this order, until one fails.

    python tests/run.py               # all
    python tests/run.py tests/build   # further arguments go to pytest

The tools live in .venv-test, which is made on the first run and refreshed when pyproject.toml changes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-test"


def run(*command: str | Path) -> None:
    """Run one command in the root of the project; end with its status where it fails."""
    print("$", *command, flush=True)
    path = os.pathsep.join([str(bin_folder()), os.environ.get("PATH", "")])  # cmake and ninja of the environment
    status = subprocess.run(
        [str(word) for word in command], cwd=ROOT, env=os.environ | {"PATH": path}, check=False
    ).returncode
    if status:
        raise SystemExit(status)


def bin_folder() -> Path:
    """Where the environment's programs are."""
    return ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")


def environment() -> Path:
    """The interpreter of the test environment, with this checkout installed in place."""
    python = bin_folder() / ("python.exe" if os.name == "nt" else "python")
    stamp = ENVIRONMENT / "installed"
    content = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "CMakeLists.txt").read_bytes() + sys.version.encode()
    wanted = hashlib.sha256(content).hexdigest()
    if not stamp.is_file() or stamp.read_text() != wanted:
        venv.create(ENVIRONMENT, clear=True, with_pip=True, symlinks=os.name != "nt")
        run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--editable", ".[test]")
        stamp.write_text(wanted)
    return python


def main() -> None:
    """ruff, mypy, pytest."""
    python = environment()
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "mypy")
    # One worker more than the two cores that there are at least: tests wait for processes of theirs.
    run(python, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", *sys.argv[1:])


if __name__ == "__main__":
    main()
