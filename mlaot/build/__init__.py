"""``build-backend = "mlaot.build"``: PEP 517 and 660 hooks over scikit-build-core.

Each hook reads ``[tool.mlaot]``, lets a child process write the C into ``build/mlaot/c`` and hands over to
scikit-build-core, with two tables of what a project would otherwise write into ``[tool.scikit-build]``. An sdist
carries the C, in ``_mlaot``: nothing is traced there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from scikit_build_core import build as backend
from scikit_build_core.errors import ScikitBuildError

from mlaot.build.toolchain import check_interpreter, find_compiler
from mlaot.errors import MlaotError
from mlaot.settings import Settings, load_settings

FROZEN = Path("_mlaot")
GENERATED = Path("build/mlaot/c")
DIGESTS = Path("build/mlaot/digests.json")
EDITABLE = Path("build/mlaot/editable")
Options = dict[str, str | list[str]] | None
Context = importlib.metadata.DistributionFinder.Context
EVERYTHING = Context()

# What scikit-build-core is told, filled by the hook that runs: below the project's own pyproject.toml, and above it.
config: dict[str, dict[str, Any]] = {"default": {}, "override": {}}


def default_config() -> dict[str, Any]:
    """Entry point ``scikit-build-core.config.default``: what the project's own pyproject.toml may change."""
    return config["default"]


def override_config() -> dict[str, Any]:
    """Entry point ``scikit-build-core.config.override``: what it may not."""
    return config["override"]


class EntryPoints(importlib.metadata.DistributionFinder):
    """Declares the two entry points to this process while a hook runs.

    Declared by mlaot's installed metadata, they would be asked for in every build of the environment, also other
    people's; and scikit-build-core, which builds mlaot, refuses group names with a hyphen, although its own have one.
    """

    def find_distributions(self, context: Context = EVERYTHING) -> Iterator[importlib.metadata.Distribution]:
        if context.name in (None, ConfigDistribution.NAME):
            yield ConfigDistribution()

    def find_spec(self, *arguments: object) -> None:
        return None


class ConfigDistribution(importlib.metadata.Distribution):
    """A distribution of nothing but entry points."""

    NAME = "mlaot-build-config"
    FILES: ClassVar = {
        "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n",
        "entry_points.txt": "[scikit-build-core.config.default]\nmlaot = mlaot.build:default_config\n"
        "[scikit-build-core.config.override]\nmlaot = mlaot.build:override_config\n",
    }

    def read_text(self, filename: str) -> str | None:
        return self.FILES.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(__file__).parent / path


def get_requires_for_build_wheel(config_settings: Options = None) -> list[str]:
    """What tracing needs, and cmake and ninja where the machine lacks them."""
    with door() as settings:
        return [*backend.get_requires_for_build_wheel(config_settings), *tracing_requires(settings)]


def get_requires_for_build_editable(config_settings: Options = None) -> list[str]:
    """As for a wheel."""
    with door() as settings:
        return [*backend.get_requires_for_build_editable(config_settings), *tracing_requires(settings)]


def get_requires_for_build_sdist(config_settings: Options = None) -> list[str]:
    """What tracing needs: the sdist carries the generated C."""
    with door() as settings:
        return [*backend.get_requires_for_build_sdist(config_settings), *tracing_requires(settings)]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Options = None) -> str:
    """Nothing is traced for it."""
    with door():
        return backend.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Options = None) -> str:
    """Nothing is traced for it."""
    with door():
        return backend.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Options = None, metadata_directory: str | None = None) -> str:
    """Trace, write the C, compile it, pack the wheel."""
    with door() as settings:
        prepare(settings, config_settings)
        with compile_errors():
            return backend.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Options = None, metadata_directory: str | None = None) -> str:
    """The same with the project's Python files left in place; a module says when its model was edited since."""
    with door() as settings:
        prepare(settings, config_settings)
        if not is_frozen(Path()):
            shutil.rmtree(EDITABLE, ignore_errors=True)
            watch_sources(Path(), settings, EDITABLE)
            config["override"]["cmake"]["define"]["MLAOT_EDITABLE"] = EDITABLE.resolve().as_posix()
        with compile_errors():
            return backend.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Options = None) -> str:
    """Trace and freeze: who builds from the sdist needs a C compiler, and nothing of what tracing needs."""
    with door() as settings:
        if not is_frozen(Path()):
            generate_files(Path(), settings)
            config["override"]["sdist"] = {"force-include": {GENERATED.as_posix(): FROZEN.as_posix()}}
        return backend.build_sdist(sdist_directory, config_settings)


@contextmanager
def door() -> Iterator[Settings]:
    """Around each hook: the settings of the project in the current folder, scikit-build-core told, one-line errors."""
    entry_points = EntryPoints()
    sys.meta_path.append(entry_points)
    try:
        if os.environ.get("SKBUILD_NO_ENTRYPOINT_CONFIG", "0").lower() not in ("", "0", "false", "off", "no"):
            raise MlaotError("mlaot.build cannot work while SKBUILD_NO_ENTRYPOINT_CONFIG is set; unset it")
        settings = load_settings(Path())
        config.update(scikit_build_settings(settings))
        yield settings
    except MlaotError as error:
        stop(str(error))
    finally:
        config.update(default={}, override={})
        sys.meta_path.remove(entry_points)


def scikit_build_settings(settings: Settings) -> dict[str, dict[str, Any]]:
    """The two tables for scikit-build-core. Unlike a ``-C`` option, they can say what has structure."""
    folder = FROZEN if is_frozen(Path()) else GENERATED
    return {
        "default": {
            "cmake": {"version": ">=3.18", "build-type": "Release", "python-hints": os.name == "nt"},
            "install": {"strip": False},  # the linker does it; strip would break what was cross-compiled
            "wheel": {"py-api": "cp311", "reproducible": True, "packages": list(settings.packages(Path()))},
        },
        "override": {
            "cmake": {
                "source-dir": folder.as_posix(),
                "define": {"MLAOT_PACKAGES": ";".join(settings.missing_packages(Path())), "MLAOT_EDITABLE": ""},
            },
        },
    }


def tracing_requires(settings: Settings) -> tuple[str, ...]:
    """Nothing where the sdist brought the C along."""
    return () if is_frozen(Path()) else settings.requires


def prepare(settings: Settings, config_settings: Options) -> None:
    """Before CMake starts: an interpreter and a compiler that can do it, and the C files."""
    check_interpreter()
    if not chooses_compiler(config_settings):
        find_compiler()
    if is_frozen(Path()):
        print(f"mlaot: compiling the C that the sdist brought in {FROZEN}; delete that folder to trace the model again")
    else:
        generate_files(Path(), settings)


def is_frozen(project: Path) -> bool:
    """Whether this is an unpacked sdist, with the C in it."""
    return (project / FROZEN / "CMakeLists.txt").is_file()


def chooses_compiler(config_settings: Options) -> bool:
    """Whether the user told CMake which compiler to take; ours to check is only the one it would find by itself."""
    told = [os.environ.get("CMAKE_ARGS", ""), os.environ.get("CMAKE_TOOLCHAIN_FILE", ""), repr(config_settings)]
    return os.name == "nt" or any("CMAKE_C_COMPILER" in text or "toolchain" in text.lower() for text in told)


def generate_files(project: Path, settings: Settings) -> Path:
    """Let a child process trace the models and write the C. The folder appears whole or not at all."""
    target = project / GENERATED
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / ".gitignore").write_text("*\n")
    for model in settings.models:
        print(f"mlaot: {model.model} -> {model.module}", flush=True)
    unfinished = target.with_name(f"c.{os.getpid()}")
    try:
        # -P: the current folder, which need not be the source folder, stays off sys.path.
        paths = [str(path.resolve()) for path in (project, unfinished, project / DIGESTS)]
        command = [sys.executable, "-P", "-m", "mlaot.build.child", *paths]
        # A fixed hash seed: the same model is the same C, also where its code walks a set.
        status = subprocess.run(command, check=False, env=os.environ | {"PYTHONHASHSEED": "0"}).returncode
        if status < 0:
            raise MlaotError(
                f"tracing was killed by signal {-status}" + (", perhaps for want of memory" * (status == -9))
            )
        if status:
            sys.stdout.flush()
            raise SystemExit(status)  # the child has said why, in its last line
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def watch_sources(project: Path, settings: Settings, site: Path) -> None:
    """Write into ``site``, for an editable install, what warns at import of a module whose model was edited since."""
    name = f"_mlaot_{settings.name}"  # sorted after the names of what finds the modules: the last finder is asked first
    modules = [model.module for model in settings.models]
    digests = json.loads((project / DIGESTS).read_text(encoding="utf-8"))
    command = f"pip install -e {shlex.quote(str(project.resolve()))}"
    code = (Path(__file__).parent / "stale.py").read_text(encoding="utf-8")
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{name}.py").write_text(f"{code}\n\nwatch({modules!r}, {digests!r}, {command!r})\n", encoding="utf-8")
    (site / f"{name}.pth").write_text(f"import {name}\n", encoding="utf-8")


@contextmanager
def compile_errors() -> Iterator[None]:
    """CMake and the compiler have said what is wrong at length; end with one line all the same."""
    try:
        yield
    except ScikitBuildError as error:
        stop(f"{error} (in a build without isolation: pip install cmake ninja)")
    except SystemExit as error:
        if error.code != 1:
            raise
        stop("the generated C could not be built; CMake's own messages are above")


def stop(message: str) -> NoReturn:
    """End the hook: the line comes last, where pip shows it."""
    sys.stdout.flush()
    raise SystemExit(f"mlaot: {message}") from None
