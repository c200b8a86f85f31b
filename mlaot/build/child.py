"""Tracing, in a process of its own: ``python -m mlaot.build.child <project> <out> [<digests>]``.

The user's code runs here and nowhere else. Whatever goes wrong ends in one line ``mlaot: ...``, the last on stderr,
with the user's file and line where there is one.
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
from mlaot.build import sums
from mlaot.build.sources import digest, is_own, is_users, watched, without_bystanders
from mlaot.errors import MlaotError, building, line_of
from mlaot.interpreter import interrupts, undisturbed
from mlaot.settings import FILE, SOURCES, Model, Settings
from mlaot.settings.reading import load_settings
from mlaot.settings.tables import read_pyproject
from mlaot.stages import reported

# Where extension modules are named that something else makes.
BUILD_FILES = ("CMakeLists.txt", "meson.build", "setup.py", "setup.cfg", "Cargo.toml")
APART = "declare the model in a module that imports nothing of the package, such as one beside it"


def main(arguments: Sequence[str]) -> int:
    """Write the generated files of ``<project>`` to ``<out>``, and to ``<digests>`` digests of what the models read.

    The SBOM gets them, too, by paths that are the same everywhere.
    """
    project, out, *digests = map(Path, arguments)
    started = time.time_ns()

    def note(read: Sequence[Path]) -> None:
        models = load_settings(project).models
        sources = without_bystanders(
            read, [model.declared.partition(":")[0] for model in models if ":" in model.declared]
        )
        found = {source: digest(source, started) for source in sources}
        for path in digests:
            path.write_text(json.dumps({str(source): said for source, said in found.items()}), encoding="utf-8")
        relative = {shown(source, project): said or sums.digest(source) for source, said in found.items()}
        (out / SOURCES).write_text(json.dumps(relative, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    return emit(project, out, lambda: (load_settings(project), None), note if digests else None)


def shown(path: Path, project: Path) -> str:
    """A file's path in the project, or its name where it lies elsewhere."""
    root = project.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def emit(
    project: Path,
    out: Path,
    find: Callable[[], tuple[Settings, Model | None]],
    note: Callable[[Sequence[Path]], None] | None = None,
) -> int:
    """Write the generated files to ``out``: those of a whole project, or of one model of it.

    ``note`` is called with the files that tracing read.
    """
    settings = None
    with interrupts() as interrupted:
        try:
            settings, model = find()
            reading = watched(project, out) if note else nullcontext(list[Path]())
            with undisturbed(), tracing(settings, project), reading as read:
                from mlaot.generate import generate, generate_module

                if model is None:
                    generate(settings, project, out)
                else:
                    generate_module(settings, model, project, out)
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
    """The source folder first on ``sys.path``, stand-ins for the extension modules, and warnings.

    The compiler and what it needs are loaded before, so that no file of the project is taken for a part of them.
    """
    importlib.import_module("mlaot.generate")
    source = str((project / settings.source).resolve())
    finders = [NotYetBuilt({model.module for model in settings.models}), FromSource(source)]
    others = MadeBeside(project, source)
    sys.path.insert(0, source)
    sys.meta_path[:] = [*finders, *sys.meta_path, others]
    try:
        with building(project), reported():
            yield
    finally:
        for finder in (*finders, others):
            sys.meta_path.remove(finder)
        sys.path.remove(source)


class FromSource(importlib.abc.MetaPathFinder):
    """Finds the project's own modules in its source folder, before an editable install leads elsewhere."""

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
        spec.loader = Uncached(fullname, spec.loader.path)
        return spec


class Uncached(importlib.machinery.SourceFileLoader):
    """Reads no ``__pycache__``, where an edit of the same second and size goes unnoticed."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError


class NotYetBuilt(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules being built, so that ``from .nn import Model`` in the package does not end its first build."""

    mend = ""

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
            said = {"being_built": module.__name__, "mend": self.mend, "__module__": module.__name__}
            stand_in = StandIn(name, (), said)
            setattr(module, name, stand_in)
            return stand_in

        module.__dict__["__getattr__"] = __getattr__


class MadeBeside(NotYetBuilt):
    """Finds, behind all others, the project's own extension modules, which its build tool makes at another time.

    Those are what a build file names and no file is there for: a slip in an import is an error as ever.
    """

    mend = f"; {APART}"

    def __init__(self, project: Path, source: str) -> None:
        self.project, self.source = project, Path(source)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_ours = any(is_users(Path(folder), self.source) for folder in path or ())
        return importlib.util.spec_from_loader(fullname, self) if is_ours and self.is_named(fullname) else None

    def is_named(self, fullname: str) -> bool:
        """Whether a build file of the project has the name of the module, or setuptools' table the whole of it."""
        files = (self.project / name for name in BUILD_FILES)
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
        name = re.escape(fullname.rpartition(".")[2])
        return any(re.search(rf"\b{name}\b", text) for text in texts) or fullname in extensions(self.project)


def extensions(project: Path) -> list[str]:
    """The extension modules that ``[[tool.setuptools.ext-modules]]`` of the project lists."""
    file = project / FILE
    tool = read_pyproject(project).get("tool", {}) if file.is_file() else {}
    return [module.get("name", "") for module in tool.get("setuptools", {}).get("ext-modules", ())]


class StandIn(ABCMeta):
    """A name of a module being built: a class, to be imported, inherited from and named in annotations; no more."""

    being_built: str
    mend: str

    def refuse(cls, *args: object, **kwargs: object) -> NoReturn:
        raise MlaotError(f"{cls.being_built}.{cls.__name__} is used while {cls.being_built} is being built{cls.mend}")

    __call__ = __getitem__ = __iter__ = refuse


def complain(error: BaseException, project: Path, settings: Settings | None) -> None:
    """Print what the user needs to know; a traceback only where mlaot's own code is to blame."""
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
    """The error with the user's file and line in front, in one line unless it is a ``MlaotError`` of several."""
    where = user_line(error, frames, project)
    if isinstance(error.__cause__, MlaotError):  # NumPy's words for what a traced array refused
        error = error.__cause__
    if isinstance(error, MlaotError):
        file = where.partition(":")[0]
        return error.message if file and file in error.message else f"{where or error.place}{error.message}"
    if isinstance(error, SyntaxError):
        return f"{where}{type(error).__name__}: {error.msg}"
    try:
        text = " ".join(str(error).split())
    except Exception:  # a user's own class of errors may have none
        text = ""
    if isinstance(error, ModuleNotFoundError) and error.name and settings is not None:
        return f"{where}{text}{missing_hint(error.name, project, settings)}"
    return f"{where}{type(error).__name__}: {text}" if text else f"{where}{type(error).__name__}"


def missing_hint(name: str, project: Path, settings: Settings) -> str:
    """Where to list a package; nothing for a module of the project itself."""
    top = name.partition(".")[0]
    source = project / settings.source
    if (source / top).exists() or (source / f"{top}.py").exists():
        in_package = source.joinpath(*name.split(".")[:-1]).is_dir() and "." in name
        return did_you_mean_module(name, settings) or f"; if the build makes it, {APART}" * in_package
    if any(model.module.startswith(f"{top}.") for model in settings.models):
        return f"; {top!r} is what this build makes, and the model cannot use it"
    if settings.backend != "mlaot.build":
        return f"; add it to `requires` in [build-system] of {FILE}"
    listed = {re.split(r"[^\w.-]", item, maxsplit=1)[0].replace("-", "_").lower() for item in settings.requires}
    if top.lower() in listed:
        return f"; `requires` in [tool.mlaot] of {FILE} has it: without build isolation, install it yourself"
    return f"; add it to `requires` in [tool.mlaot] of {FILE}"


def user_line(error: BaseException, frames: Sequence[traceback.FrameSummary], project: Path) -> str:
    """``model.py:14: `` for the innermost line of the project's own code, or nothing."""
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    for filename, lineno in reversed(places):
        if is_users(Path(filename), project):
            with building(project):
                return line_of(filename, lineno)
    return ""


def is_unexpected(error: BaseException, frames: Sequence[traceback.FrameSummary], project: Path) -> bool:
    """Whether mlaot's own code, and not the user's, raised this or called the library that did.

    ``mlaot.micrograd`` is such a library: it refuses what micrograd refuses, with micrograd's errors.
    """
    if isinstance(error, MlaotError | SyntaxError):
        return False
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").startswith("mlaot")
    for frame in reversed(frames):
        if is_users(Path(frame.filename), project):
            return False
        if frame.name in ("__getattr__", "__iter__", "__len__"):  # they raise what Python asks of them
            continue
        if is_own(Path(frame.filename)) and "micrograd" not in Path(frame.filename).parts[-2:]:
            return True
    return False


if __name__ == "__main__":
    status = main(sys.argv[1:])
    is_waited_for = any(not t.daemon for t in threading.enumerate() if t is not threading.current_thread())
    if status or is_waited_for:  # nothing that a user's library prints at exit comes after the line, no thread goes on
        sys.stdout.flush()
        os._exit(status)
