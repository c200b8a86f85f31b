"""Call PEP 517 hooks of a project, each in a process of its own with the packages of this environment.

The lines of a hook are passed on as soon as it prints them: stderr to stderr, and stdout to a ``Note``. So only the
program that failed reports a failure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlaot.build.cache import CACHE_VARIABLE, OFF
from mlaot.errors import MlaotError
from mlaot.settings import FILE
from mlaot.settings.tables import read_pyproject
from mlaot.stages import COMPILING, Show, State, follow, has_bar, write_states

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
CHATTER = "*** "  # prefix of scikit-build-core's progress lines
# What ninja and make print of each file: [3/5] Building C object .., [ 60%] Building C object ..
COUNTED = re.compile(r"\[ *(\d+)(?:/(\d+)|%)\] (?:Building|Compiling|Linking) .*?([^/ ]*?)(?:\.o)?$")
QUIET = {"setuptools": {"quiet": "true"}}  # options that keep backends from listing each file that they copy
Note = Callable[[str], None]


def call_hook(
    project: Path, hook: str, out: Path, note: Note, *, options: Mapping[str, str] | None = None, cache: bool = True
) -> Path:
    """Let ``build_wheel`` or ``build_sdist`` write a file into ``out``; ``note`` gets the lines that it prints.

    ``options`` are the options of -C. The hook reports its progress, also by the lines of ninja and make. Without
    ``cache`` no object of an earlier build is used. A hook that fails has printed its error, so only ``SystemExit`` is
    raised.
    """
    build = read_pyproject(project).get("build-system", {})
    backend = build.get("build-backend", "setuptools.build_meta:__legacy__")
    paths = [str((project / path).resolve()) for path in build.get("backend-path", [])]
    options = {**QUIET.get(backend.partition(".")[0], {}), **(options or {})}
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        answer = Path(folder, "answer")
        question = json.dumps([backend, paths, hook, [str(out.resolve()), options], str(answer)])
        command = [sys.executable, "-P", "-u", "-c", CALL_HOOK, question]
        state = Path(folder, "state")
        with follow(state) as environ:
            environ |= {} if cache else {CACHE_VARIABLE: OFF}
            status, complained, printed = run_hook(command, project, environ, note, write_states(state))
        if status and not complained:
            raise MlaotError(
                f"{backend} ended with status {status}{'; its output is above' if printed else ' and no message'}"
            )
        if status:
            raise SystemExit(1)
        return out / answer.read_text(encoding="utf-8")


def run_hook(
    command: list[str], folder: Path, environ: Mapping[str, str], note: Note, show: Show
) -> tuple[int, bool, bool]:
    """Run a process and pass on its lines; return its exit status, and whether it printed on stderr and on stdout."""

    def note_compiled(line: str) -> None:
        if file := COUNTED.match(line):
            show(State(name=COMPILING, number=int(file[1]), total=int(file[2] or 100), detail=file[3]))
        if not (file and has_bar()):  # which shows it
            note(line)

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
        with ThreadPoolExecutor(1) as pool:
            printed = pool.submit(pass_on, process.stdout, note_compiled)
            complained = pass_on(process.stderr, lambda line: print(line, file=sys.stderr, flush=True))
    return process.returncode, complained, printed.result()


def pass_on(lines: Iterable[str], note: Note) -> bool:
    """Pass each line on to ``note``, except those without news for the user; tell whether any line was passed on."""
    any_passed = False
    for line in lines:
        if not line.startswith(CHATTER):
            note(line.rstrip())
            any_passed |= bool(line.strip())
    return any_passed


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
