"""Call PEP 517 hooks of a project, each in a process of its own with the packages of this environment.

The lines of a hook are passed on as it prints them: stderr to stderr, stdout to a ``Note``. So a failure is reported
once, by what failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlaot.build.cache import CACHE_VARIABLE, OFF
from mlaot.errors import MlaotError
from mlaot.settings import FILE
from mlaot.settings.tables import read_pyproject

CALL_HOOK = """\
import importlib, json, pathlib, sys
backend, paths, hook, arguments, answer = json.loads(sys.argv[1])
sys.path[:0] = paths
module, _, path = backend.partition(":")
hooks = importlib.import_module(module)
for name in filter(None, path.split(".")):
    hooks = getattr(hooks, name)
pathlib.Path(answer).write_text(getattr(hooks, hook)(*arguments), encoding="utf-8")
"""
SLOW = 2  # seconds after which progress is displayed
CHATTER = "*** "  # prefix of scikit-build-core's progress lines
QUIET = {"setuptools": {"quiet": "true"}}  # options that keep backends from listing each file that they copy
Note = Callable[[str], None]


def call_hook(
    project: Path, hook: str, out: Path, note: Note, *, options: Mapping[str, str] | None = None, cache: bool = True
) -> Path:
    """Let ``build_wheel`` or ``build_sdist`` write a file into ``out``; ``note`` gets the lines that it prints.

    ``options`` are those of -C. Without ``cache`` no object of an earlier build is used. A hook that fails has printed
    why, and only ``SystemExit`` is raised.
    """
    build = read_pyproject(project).get("build-system", {})
    backend = build.get("build-backend", "setuptools.build_meta:__legacy__")
    paths = [str((project / path).resolve()) for path in build.get("backend-path", [])]
    options = {**QUIET.get(backend.partition(".")[0], {}), **(options or {})}
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        answer = Path(folder, "answer")
        question = json.dumps([backend, paths, hook, [str(out.resolve()), options], str(answer)])
        command = [sys.executable, "-P", "-u", "-c", CALL_HOOK, question]
        status, complained = run_hook(command, project, {} if cache else {CACHE_VARIABLE: OFF}, note)
        if status and not complained:
            raise MlaotError(f"{backend} ended with status {status} and no word")
        if status:
            raise SystemExit(1)
        return out / answer.read_text(encoding="utf-8")


def run_hook(command: list[str], folder: Path, environ: Mapping[str, str], note: Note) -> tuple[int, bool]:
    """Run a process and pass on its lines; return its exit status, and whether it printed on stderr."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        printed = threading.Thread(target=pass_on, args=(process.stdout, note))
        printed.start()
        complained = pass_on(process.stderr, lambda line: print(line, file=sys.stderr, flush=True))
        printed.join()
    return process.returncode, complained


def pass_on(lines: Iterable[str], note: Note) -> bool:
    """Pass each line on to ``note``, except chatter; tell whether any line was passed on."""
    any_passed = False
    for line in lines:
        if not line.startswith(CHATTER):
            note(line.rstrip())
            any_passed = True
    return any_passed


@contextmanager
def progress(title: str) -> Iterator[Note]:
    """Yield a function that prints a line; on a terminal with rich, also show that a slow build still runs."""
    display = spinner(title) if sys.stdout.isatty() else None
    if display is None:
        yield lambda line: print(line, flush=True)
        return
    timer = threading.Timer(SLOW, display.start)
    timer.start()
    try:
        yield lambda line: display.console.print(line, markup=False, highlight=False, soft_wrap=True)
    finally:
        timer.cancel()
        timer.join()
        display.stop()


def spinner(title: str) -> Any:
    """Return a line with a title and the elapsed time, not yet displayed; None without rich."""
    try:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    display = Progress(*columns, transient=True)
    display.add_task(title, total=None)
    return display


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist below ``folder``, and return its own folder."""
    try:
        with tarfile.open(sdist) as file:
            file.extractall(folder, filter="data")
    except FileNotFoundError:
        raise MlaotError(f"no file {sdist}; expected an sdist") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise MlaotError(f"{sdist} is no sdist, or a damaged one: {why}") from None
    match list(folder.iterdir()):
        case [Path() as only] if (only / FILE).is_file():
            return only
    raise MlaotError(f"{sdist} is no sdist: expected one folder with a {FILE} in it")
