"""``mlaot doctor``: tell whether a wheel can be built on this machine, and what to do if not."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mlaot.commands.output import Data, add_json, report, size, table
from mlaot.commands.project import FOLDER
from mlaot.errors import MlaotError
from mlaot.settings import FILE
from mlaot.settings.reading import load_settings
from mlaot.settings.tables import read_pyproject

HELP = "tell whether a wheel can be built here"
DESCRIPTION = """\
Look at everything that building a wheel takes: Python, packages, compiler,
folders, and the project. Lines say `ok`, `fetched` (pip will get it for the
build, and nothing else will), `optional` or `missing`.
The exit status is 0 if a wheel can be built here, 1 if something is missing.
"""
EXAMPLES = """\
  mlaot doctor                this machine, and the project in this folder
  mlaot doctor digits         and the project in that one
  CC=clang mlaot doctor       with another compiler
"""


@dataclass(frozen=True)
class Check:
    """A check. ``status`` is ok, fetched, optional or missing; ``found`` says what is there, or what is wrong."""

    what: str
    status: str
    found: str


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("project", nargs="?", default=".", help=FOLDER)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Make all checks, one line each."""
    folder = Path(options.project)
    if not folder.is_dir():
        raise MlaotError(f"no folder {folder}; expected one with a {FILE}")
    checks = list(examine(folder))
    can_build = all(check.status != "missing" for check in checks)
    report({"can_build": can_build, "checks": [asdict(check) for check in checks]}, show, options)
    return 0 if can_build else 1


def show(data: Data) -> None:
    """Print the checks and the verdict."""
    table(("what", "status", "found"), [(c["what"], c["status"], c["found"]) for c in data["checks"]])
    print(verdict(data))


def verdict(data: Data) -> str:
    """Say whether a wheel can be built here, and by pip only if zig must be fetched."""
    if not data["can_build"]:
        return "No wheel can be built here: see `missing` above."
    if any(check["status"] == "fetched" for check in data["checks"]):
        return "A wheel can be built here by pip, which fetches zig; `mlaot build` fetches nothing: install it first."
    return "A wheel can be built here."


def examine(folder: Path) -> Iterator[Check]:
    """Yield a check of each thing that a build needs, in the order of use."""
    yield check("python", interpreter)
    yield Check("mlaot", "ok", importlib.metadata.version("mlaot"))
    yield from packages()
    yield optional("pip", "pip", "no pip here; another tool that builds wheels does as well (python -m ensurepip)")
    yield from compilers(folder)
    yield check("temporary folder", temporary_folder)
    yield Check("cache", "ok", cache())
    if folder != Path() or (folder / FILE).exists():
        yield check("project", lambda: project(folder))


def check(what: str, look: Callable[[], str]) -> Check:
    """Report what ``look`` returns, or, if it raises a ``MlaotError``, what is missing."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # hide a compiler's long output
            return Check(what, "ok", look())
    except MlaotError as error:
        return Check(what, "missing", str(error))


def interpreter() -> str:
    """Describe the interpreter that runs this."""
    from mlaot.build.toolchain import check_interpreter, is_free_threaded

    check_interpreter()
    lock = "without" if is_free_threaded() else "with"
    return f"{platform.python_implementation()} {platform.python_version()} {lock} the GIL, {sys.executable}"


def packages() -> Iterator[Check]:
    """Check the packages that mlaot's own metadata requires."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires("mlaot") or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            name, advice = requirement.name, f"pip install '{requirement.name}{requirement.specifier}'"
            try:
                version = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                yield Check(name, "missing", f"not installed: {advice}")
            else:
                fits = requirement.specifier.contains(version, prereleases=True)
                yield (
                    Check(name, "ok", version) if fits else Check(name, "missing", f"{version} is installed: {advice}")
                )


def optional(what: str, package: str, without: str) -> Check:
    """Check a package that is useful but not required."""
    try:
        return Check(what, "ok", importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return Check(what, "optional", without)


def compilers(folder: Path) -> Iterator[Check]:
    """Try this machine's own compiler, and zig, which replaces it and compiles for other machines."""
    from mlaot.build.toolchain import ZIG, compiler_name, has_zig

    own = compiler_name() is not None
    result = check("compiler", compiler)
    if not own and not has_zig() and fetches_zig(folder):
        result = Check("compiler", "fetched", f"none here, pip gets zig from the package index (pip install '{ZIG}')")
    yield result
    yield optional("zig", "ziglang", f"makes wheels for other platforms (pip install '{ZIG}')")
    if own and result.status == "ok":
        yield check("cpu", instruction_sets)


def fetches_zig(folder: Path) -> bool:
    """Tell whether pip fetches zig for a build: zig compiles for this platform, and the backend is mlaot's own."""
    from mlaot.build.platforms import this_platform

    try:
        this_platform()
        return not (folder / FILE).is_file() or load_settings(folder).backend == "mlaot.build"
    except MlaotError:
        return False


def compiler() -> str:
    """Describe the compiler that a build would use, after a trial."""
    from mlaot.build.toolchain import find_toolchain

    command, _ = find_toolchain()
    process = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
    version = next(iter(process.stdout.splitlines()), "its version is unknown")
    return f"{shlex.join([shutil.which(command[0]) or command[0], *command[1:]])}: {version}"


def instruction_sets() -> str:
    """Return the instruction sets of which a wheel's code runs on this machine."""
    from mlaot.build.toolchain import find_compiler
    from mlaot.schedule.machine import MACHINES
    from mlaot.tune import machines_here

    try:
        machines = machines_here(MACHINES, find_compiler())
    except OSError:  # the library cannot be loaded
        return f"{platform.machine()}; the compiler is one for other machines"
    return f"{platform.machine()}: {', '.join(machine.name for machine in machines)}"


def temporary_folder() -> str:
    """Describe the folder of temporary files."""
    try:
        with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
            return f"{tempfile.gettempdir()}, {size(shutil.disk_usage(folder).free)} free"
    except OSError as error:
        raise MlaotError(f"no file can be made: {error}; set TMPDIR to a folder that can be written") from None


def cache() -> str:
    """Describe the cache of compiled objects, and its size."""
    from mlaot.build.cache import CACHE_VARIABLE, OFF, cache_folder

    folder = cache_folder()
    if folder is None:
        return f"none: {CACHE_VARIABLE} is {OFF}"
    sizes = [path.stat().st_size for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    return f"{folder}, {size(sum(sizes))} in {len(sizes)} objects"


def project(folder: Path) -> str:
    """Describe the project in a folder, and check that a build can write the C into it."""
    if "mlaot" not in read_pyproject(folder).get("tool", {}):
        return f"none of mlaot: no [tool.mlaot] in {FILE}"
    settings = load_settings(folder)
    if not os.access(folder, os.W_OK):
        raise MlaotError("the C goes into the folder build, but this folder cannot be written")
    models = ", ".join(f"{model.module} from {model.declared}" for model in settings.models)
    return f"{settings.name}: {models}"
