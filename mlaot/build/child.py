"""Trace models in a process of its own: ``python -m mlaot.build.child [--python] <project> <out> [<digests>]``.

The user's code runs here and nowhere else. Every failure ends in one line ``mlaot: ...``, the last on stderr, which
names the user's file and line if there is one.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import threading
import time
import traceback
from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from mlaot.attributes import did_you_mean_module
from mlaot.build import checksums
from mlaot.build.sources import digest, drop_bystanders, is_own, is_users, record_reads
from mlaot.errors import MlaotError, building, line_of
from mlaot.isolation import isolate, watch_interrupts
from mlaot.settings import FILE, SOURCES, ModelSettings, Settings
from mlaot.settings.reading import load_settings
from mlaot.settings.tables import read_pyproject
from mlaot.stages import report_progress

PYTHON = "--python"
# Files that name extension modules which another build tool makes.
BUILD_SCRIPTS = ("CMakeLists.txt", "meson.build", "setup.py", "setup.cfg", "Cargo.toml")
SEPARATE_MODULE = "declare the model in a module that imports nothing of the package, such as one beside it"


def main(arguments: Sequence[str]) -> int:
    """Write the generated files of ``<project>`` to ``<out>``, and digests of the files read to ``<digests>``.

    The SBOM contains these digests too, with paths that do not depend on where the project lies. With ``--python`` the
    models are also written as plain Python.
    """
    python, arguments = arguments[0] == PYTHON, [path for path in arguments if path != PYTHON]
    project, out, *digest_files = map(Path, arguments)
    started = time.time_ns()

    def note(read: Sequence[Path]) -> None:
        models = load_settings(project).models
        sources = drop_bystanders(read, [model.declared.partition(":")[0] for model in models if ":" in model.declared])
        digests = {source: digest(source, started) for source in sources}
        for path in digest_files:
            path.write_text(json.dumps({str(source): value for source, value in digests.items()}), encoding="utf-8")
        relative = {
            display_path(source, project): value or checksums.digest(source) for source, value in digests.items()
        }
        (out / SOURCES).write_text(json.dumps(relative, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    kinds = ("c", "python") if python else ("c",)
    return emit(project, out, lambda: (load_settings(project), None), note if digest_files else None, kinds)


def display_path(path: Path, project: Path) -> str:
    """Return a file's path relative to the project, or its name if it lies elsewhere."""
    root = project.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def emit(
    project: Path,
    out: Path,
    find: Callable[[], tuple[Settings, ModelSettings | None]],
    note: Callable[[Sequence[Path]], None] | None = None,
    kinds: Sequence[str] = ("c",),
) -> int:
    """Write the generated files of a whole project or of one of its models to ``out``.

    ``find`` loads the settings and selects the model. ``note`` receives the files that tracing read. ``kinds`` contains
    ``c``, ``python`` or both.
    """
    settings = None
    with watch_interrupts() as interrupted:
        try:
            settings, model = find()
            reading = record_reads(project, out) if note else nullcontext(list[Path]())
            with isolate(), tracing(settings, project), reading as read:
                from mlaot import generate as generator

                if "c" not in kinds:
                    generator.generate_python(settings, [model] if model else settings.models, out)
                elif model is None:
                    generator.generate(settings, project, out, python="python" in kinds)
                else:
                    generator.generate_module(settings, model, project, out)
            if note:
                note(read)
        except BaseException as error:
            if interrupted:
                raise
            complain(error, project, settings)
            return 1
    return 0


@contextmanager
def tracing(settings: Settings, project: Path) -> Iterator[None]:
    """Prepare imports for tracing, and report warnings and progress.

    The source folder comes first on ``sys.path``. Stand-ins replace extension modules that are not built yet. The
    compiler and its dependencies are imported before, so that no file of the project can replace them.
    """
    importlib.import_module("mlaot.generate")
    source = str((project / settings.source).resolve())
    finders = [UnbuiltModuleFinder({model.module for model in settings.models}), SourceFinder(source)]
    foreign = ForeignExtensionFinder(project, source)
    sys.path.insert(0, source)
    sys.meta_path[:] = [*finders, *sys.meta_path, foreign]
    try:
        with building(project), report_progress():
            yield
    finally:
        for finder in (*finders, foreign):
            sys.meta_path.remove(finder)
        sys.path.remove(source)


class SourceFinder(importlib.abc.MetaPathFinder):
    """Find the project's own modules in its source folder, even if an editable install points elsewhere."""

    def __init__(self, source: str) -> None:
        self.source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, [self.source] if path is None else path)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return None
        if not is_users(Path(spec.loader.path), Path(self.source)):
            return None
        spec.loader = UncachedLoader(fullname, spec.loader.path)
        return spec


class UncachedLoader(importlib.machinery.SourceFileLoader):
    """Load a module without ``__pycache__``, which would miss an edit within the same second that keeps the size."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError


class UnbuiltModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find the modules being built, so that ``from .nn import Model`` in the package does not fail its first build."""

    hint = ""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.modules else None

    def exec_module(self, module: ModuleType) -> None:
        def __getattr__(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            members = {"being_built": module.__name__, "hint": self.hint, "__module__": module.__name__}
            stand_in = StandIn(name, (), members)
            setattr(module, name, stand_in)
            return stand_in

        module.__dict__["__getattr__"] = __getattr__


class ForeignExtensionFinder(UnbuiltModuleFinder):
    """Find the project's extension modules that another build tool makes; the last of all finders.

    A module is taken for one if a build file names it and no file of it exists. A misspelt import remains an error.
    """

    hint = f"; {SEPARATE_MODULE}"

    def __init__(self, project: Path, source: str) -> None:
        self.project, self.source = project, Path(source)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_ours = any(is_users(Path(folder), self.source) for folder in path or ())
        return importlib.util.spec_from_loader(fullname, self) if is_ours and self.is_named(fullname) else None

    def is_named(self, fullname: str) -> bool:
        """Tell whether a build file has the module's name, or setuptools' table its full name."""
        files = (self.project / name for name in BUILD_SCRIPTS)
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
        name = re.escape(fullname.rpartition(".")[2])
        return any(re.search(rf"\b{name}\b", text) for text in texts) or fullname in extensions(self.project)


def extensions(project: Path) -> list[str]:
    """Return the extension modules that ``[[tool.setuptools.ext-modules]]`` of the project lists."""
    file = project / FILE
    tool = read_pyproject(project).get("tool", {}) if file.is_file() else {}
    return [module.get("name", "") for module in tool.get("setuptools", {}).get("ext-modules", ())]


class StandIn(ABCMeta):
    """A class in place of a name of a module being built: it can be imported, subclassed and used in annotations."""

    being_built: str
    hint: str

    def refuse(cls, *args: object, **kwargs: object) -> NoReturn:
        raise MlaotError(f"{cls.being_built}.{cls.__name__} is used while {cls.being_built} is being built{cls.hint}")

    __call__ = __getitem__ = __iter__ = refuse


def complain(error: BaseException, project: Path, settings: Settings | None) -> None:
    """Print the error for the user, with a traceback only if mlaot's own code raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    line = explain(error, frames, project, settings)
    if is_unexpected(error, frames, project):
        traceback.print_exception(error)
        if isinstance(error, AssertionError) and "bug in mlaot" not in line:
            line = f"bug in mlaot: {line}"
    sys.stdout.flush()
    print(f"mlaot: {line}", file=sys.stderr, flush=True)


def explain(
    error: BaseException, frames: Sequence[traceback.FrameSummary], project: Path, settings: Settings | None
) -> str:
    """Return the user's file and line, then the error on the same line.

    Only a ``MlaotError`` may have several lines.
    """
    where = user_line(error, frames, project)
    if isinstance(error.__cause__, MlaotError):  # NumPy wraps the error of a traced array
        error = error.__cause__
    if isinstance(error, MlaotError):
        file = where.partition(":")[0]
        return error.message if file and file in error.message else f"{where or error.place}{error.message}"
    if isinstance(error, SyntaxError):
        return f"{where}{type(error).__name__}: {error.msg}"
    try:
        text = " ".join(str(error).split())
    except Exception:  # a user's own class of errors may have a broken __str__
        text = ""
    if isinstance(error, ModuleNotFoundError) and error.name and settings is not None:
        return f"{where}{text}{missing_hint(error.name, project, settings)}"
    return f"{where}{type(error).__name__}: {text}" if text else f"{where}{type(error).__name__}"


def missing_hint(name: str, project: Path, settings: Settings) -> str:
    """Say where to list a missing package; return nothing for a module of the project itself."""
    top = name.partition(".")[0]
    source = project / settings.source
    if (source / top).exists() or (source / f"{top}.py").exists():
        in_package = source.joinpath(*name.split(".")[:-1]).is_dir() and "." in name
        return did_you_mean_module(name, settings) or f"; if the build makes it, {SEPARATE_MODULE}" * in_package
    if any(model.module.startswith(f"{top}.") for model in settings.models):
        return f"; {top!r} is what this build makes, and the model cannot use it"
    if settings.backend != "mlaot.build":
        return f"; add it to `requires` in [build-system] of {FILE}"
    listed = {re.split(r"[^\w.-]", item, maxsplit=1)[0].replace("-", "_").lower() for item in settings.requires}
    if top.lower() in listed:
        return f"; `requires` in [tool.mlaot] of {FILE} has it: without build isolation, install it yourself"
    return f"; add it to `requires` in [tool.mlaot] of {FILE}"


def user_line(error: BaseException, frames: Sequence[traceback.FrameSummary], project: Path) -> str:
    """Return ``model.py:14: `` for the innermost line of the project's own code, or nothing."""
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    for filename, lineno in reversed(places):
        if is_users(Path(filename), project):
            with building(project):
                return line_of(filename, lineno)
    return ""


MICROGRAD = {("frontend", "scalar", f"{name}.py") for name in ("data", "engine", "graph", "losses", "nn")}


def is_unexpected(error: BaseException, frames: Sequence[traceback.FrameSummary], project: Path) -> bool:
    """Tell whether mlaot's own code, not the user's, raised the error or called the library that did.

    ``mlaot.micrograd`` counts as such a library: it refuses what micrograd refuses, with micrograd's errors.
    """
    if isinstance(error, MlaotError | SyntaxError):
        return False
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").startswith("mlaot")
    for frame in reversed(frames):
        if is_users(Path(frame.filename), project):
            return False
        if frame.name in ("__getattr__", "__iter__", "__len__"):  # required by Python's protocols
            continue
        if is_own(Path(frame.filename)) and Path(frame.filename).parts[-3:] not in MICROGRAD:
            return True
    return False


if __name__ == "__main__":
    status = main(sys.argv[1:])
    is_waited_for = any(not t.daemon for t in threading.enumerate() if t is not threading.current_thread())
    if status or is_waited_for:  # no thread continues, and no exit handler prints after the last line
        sys.stdout.flush()
        os._exit(status)
