"""``build-backend = "mlaot.build"``: PEP 517 and 660 hooks over scikit-build-core.

Each hook reads ``[tool.mlaot]``, lets a child process write the C into ``build/mlaot/c`` and hands over to
scikit-build-core, with two tables of what a project would otherwise write into ``[tool.scikit-build]``. An sdist
carries the C, in ``_mlaot``: nothing is traced there.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from scikit_build_core.errors import ScikitBuildError

from mlaot.build.sums import check_sums, write_sums
from mlaot.build.toolchain import check_interpreter, find_compiler
from mlaot.errors import MlaotError, writing
from mlaot.settings import FILE, Settings, load_settings

if TYPE_CHECKING:
    from scikit_build_core import build as backend

FROZEN = Path("_mlaot")
GENERATED = Path("build/mlaot/c")
REFUSED = 7  # the exit status of scikit-build-core for options that it cannot use
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
        prepare(settings, config_settings, metadata_directory)
        with compile_errors():
            wheel = backend.build_wheel(wheel_directory, config_settings, metadata_directory)
        check_wheel(Path(wheel_directory, wheel), settings)
        return wheel


def build_editable(wheel_directory: str, config_settings: Options = None, metadata_directory: str | None = None) -> str:
    """The same with the project's Python files left in place; an edited model needs another install."""
    with door() as settings:
        prepare(settings, config_settings, metadata_directory)
        with compile_errors():
            return backend.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Options = None) -> str:
    """Trace and freeze: who builds from the sdist needs a C compiler, and nothing of what tracing needs."""
    with door() as settings:
        if not is_frozen(Path()):
            check_project(config_settings)
            generate_files(Path(), settings)
            config["override"]["sdist"] = {"force-include": {GENERATED.as_posix(): FROZEN.as_posix()}}
        return backend.build_sdist(sdist_directory, config_settings)


@contextmanager
def door() -> Iterator[Settings]:
    """Around each hook: the settings of the project in the current folder, scikit-build-core told, one-line errors."""
    global backend
    entry_points = EntryPoints()
    sys.meta_path.append(entry_points)
    try:
        if os.environ.get("SKBUILD_NO_ENTRYPOINT_CONFIG", "0").lower() not in ("", "0", "false", "off", "no"):
            raise MlaotError("mlaot.build cannot work while SKBUILD_NO_ENTRYPOINT_CONFIG is set; unset it")
        settings = load_settings(Path())
        from scikit_build_core import build as backend  # reads the pyproject.toml itself, and with less grace

        config.update(scikit_build_settings(settings))
        yield settings
    except MlaotError as error:
        stop(str(error))
    except ExceptionGroup as error:
        stop(f"{FILE}: {'; '.join(complaints(error))}")
    except AssertionError as error:  # scikit-build-core's: there is none in the hooks themselves
        stop(f"{FILE}: {error}")
    except ScikitBuildError as error:
        hint = " (in a build without isolation: pip install cmake ninja)"
        stop(f"{error}{hint * str(error).startswith('Could not find')}")
    except OSError as error:
        stop(f"the build failed: {error}")
    except SystemExit as error:
        if error.code == REFUSED:
            stop("scikit-build-core refuses an option, of -C, SKBUILD_* or [tool.scikit-build]; its message is above")
        raise
    finally:
        config.update(default={}, override={})
        sys.meta_path.remove(entry_points)


def complaints(group: BaseExceptionGroup[Any]) -> Iterator[str]:
    """What scikit-build-core says of [project] and [tool.scikit-build], a line for each mistake."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from complaints(error)
        else:
            yield " ".join([*str(error).split(), *getattr(error, "__notes__", ())])


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
                "define": {"MLAOT_PACKAGES": ";".join(settings.missing_packages(Path()))},
            },
            "wheel": {"cmake": True},
        },
    }


def tracing_requires(settings: Settings) -> tuple[str, ...]:
    """Nothing where the sdist brought the C along."""
    return () if is_frozen(Path()) else settings.requires


def check_project(config_settings: Options) -> None:
    """What scikit-build-core finds wrong it shall say before the model is traced, which can take minutes."""
    if hasattr(backend, "prepare_metadata_for_build_wheel"):  # not where settings depend on whether a build failed
        with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
            backend.prepare_metadata_for_build_wheel(folder, config_settings)


def prepare(settings: Settings, config_settings: Options, metadata_directory: str | None) -> None:
    """Before CMake starts: an interpreter and a compiler that can do it, and the C files."""
    check_interpreter()
    if not chooses_compiler(config_settings):
        find_compiler()
    if metadata_directory is None:
        check_project(config_settings)
    if is_frozen(Path()):
        check_sums(FROZEN)
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
    with writing(GENERATED.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / ".gitignore").write_text("*\n")
    for model in settings.models:
        print(f"mlaot: {model.model} -> {model.module}", flush=True)
    unfinished = target.with_name(f"c.{os.getpid()}")
    try:
        # -P: the current folder, which need not be the source folder, stays off sys.path.
        command = [sys.executable, "-P", "-m", "mlaot.build.child", str(project.resolve()), str(unfinished.resolve())]
        # A fixed hash seed: the same model is the same C, also where its code walks a set.
        status = subprocess.run(command, check=False, env=os.environ | {"PYTHONHASHSEED": "0"}).returncode
        if status < 0:
            raise MlaotError(
                f"tracing was killed by signal {-status}" + (", perhaps for want of memory" * (status == -9))
            )
        if status == 1:
            sys.stdout.flush()
            raise SystemExit(status)  # the child has said why, in its last line
        if status or not unfinished.is_dir():
            raise MlaotError(f"tracing ended with status {status} and no word; the model must not call os._exit")
        with writing(GENERATED):
            write_sums(unfinished)
            shutil.rmtree(target, ignore_errors=True)
            unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def check_wheel(wheel: Path, settings: Settings) -> None:
    """Settings of scikit-build-core can keep files out; a wheel without its modules would fail where it is used."""
    with zipfile.ZipFile(wheel) as file:
        names = [f"/{name}" for name in file.namelist() if name.endswith((".so", ".pyd"))]
    for model in settings.models:
        path = model.module.replace(".", "/")
        if not any(f"/{path}." in name for name in names):
            wheel.unlink()
            raise MlaotError(
                f"the wheel would lack {path}.abi3.so; what in [tool.scikit-build] of {FILE} keeps it out?"
            )


@contextmanager
def compile_errors() -> Iterator[None]:
    """CMake and the compiler have said what is wrong at length; end with one line all the same."""
    try:
        yield
    except SystemExit as error:
        if error.code != 1:
            raise
        given = (
            f" with {name}={os.environ[name]!r}" for name in ("CMAKE_ARGS", "CMAKE_GENERATOR") if name in os.environ
        )
        stop(f"the generated C could not be built{''.join(given)}; CMake's own messages are above")


def stop(message: str) -> NoReturn:
    """End the hook: the line comes last, where pip shows it."""
    sys.stdout.flush()
    raise SystemExit(f"mlaot: {message}") from None
