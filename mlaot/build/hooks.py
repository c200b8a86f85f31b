"""The hooks of PEP 517 and 660 over scikit-build-core, which ``mlaot.build`` has for build frontends.

Each hook reads ``[tool.mlaot]``, lets a child process write the C into ``build/mlaot/c`` while it imports what packs
wheels, compiles it into ``build/mlaot/lib`` and lets scikit-build-core pack what is there, with two tables of what a
project would otherwise write into ``[tool.scikit-build]``. An sdist carries the C, in ``_mlaot``: nothing is traced
there.

``-C mlaot.platform=TAG`` makes a wheel for another platform; so does zig where a machine has no compiler.
``-C mlaot.abi=TAG`` makes one for another stable ABI of Python than the one of this interpreter.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from scikit_build_core.errors import ScikitBuildError

from mlaot.build.budget import hold_wheel
from mlaot.build.module import build_module
from mlaot.build.platforms import ABI3, Platform, module_suffix, parse_abi, parse_platform, this_platform
from mlaot.build.pyinstaller import hooks
from mlaot.build.sbom import sbom, sbom_path
from mlaot.build.store import LARGE, store
from mlaot.build.sums import check_sums, write_sums
from mlaot.build.toolchain import (
    ZIG,
    Compiler,
    Toolchain,
    check_interpreter,
    compiler_name,
    describe_compiler,
    find_toolchain,
    own_abi,
)
from mlaot.errors import MlaotError, writing
from mlaot.settings import FILE, Settings
from mlaot.settings.reading import load_settings
from mlaot.settings.tables import read_pyproject
from mlaot.stages import reported, stage
from mlaot.stored import read_json

if TYPE_CHECKING:
    from scikit_build_core import build as backend

FROZEN = Path("_mlaot")
GENERATED = Path("build/mlaot/c")
COMPILED = Path("build/mlaot/lib")
DIGESTS = Path("build/mlaot/digests.json")
EDITABLE = Path("build/mlaot/editable")
REFUSED = 7  # the exit status of scikit-build-core for options that it cannot use
Options = dict[str, str | list[str]]
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
        "entry_points.txt": "[scikit-build-core.config.default]\nmlaot = mlaot.build.hooks:default_config\n"
        "[scikit-build-core.config.override]\nmlaot = mlaot.build.hooks:override_config\n",
    }

    def read_text(self, filename: str) -> str | None:
        return self.FILES.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(__file__).parent / path


def get_requires_for_build_wheel(config_settings: Options | None = None) -> list[str]:
    """What tracing needs, and zig where it is to compile."""
    with door(config_settings) as build:
        return [*backend.get_requires_for_build_wheel(build.options), *requires(build)]


def get_requires_for_build_editable(config_settings: Options | None = None) -> list[str]:
    """As for a wheel."""
    with door(config_settings) as build:
        return [*backend.get_requires_for_build_editable(build.options), *requires(build)]


def get_requires_for_build_sdist(config_settings: Options | None = None) -> list[str]:
    """What tracing needs, if the sdist carries the generated C."""
    with door(config_settings) as build:
        needed = tracing_requires(build.settings) if build.settings.sdist == "frozen" else ()
        return [*backend.get_requires_for_build_sdist(build.options), *needed]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Options | None = None) -> str:
    """Nothing is traced for it."""
    with door(config_settings) as build:
        return backend.prepare_metadata_for_build_wheel(metadata_directory, build.options)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Options | None = None) -> str:
    """Nothing is traced for it."""
    with door(config_settings) as build:
        return backend.prepare_metadata_for_build_editable(metadata_directory, build.options)


def build_wheel(
    wheel_directory: str, config_settings: Options | None = None, metadata_directory: str | None = None
) -> str:
    """Trace, write the C, compile it, pack the wheel."""
    with door(config_settings, trace=True) as build:
        large = prepare(build)
        return pack(build, large, wheel_directory, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Options | None = None, metadata_directory: str | None = None
) -> str:
    """The same with the project's Python files left in place; a module says when its model was edited since."""
    with door(config_settings, trace=True) as build:
        large = prepare(build)
        include = config["override"]["wheel"]["force-include"]
        if not is_frozen(Path()):
            shutil.rmtree(EDITABLE, ignore_errors=True)
            watch_sources(Path(), build.settings, EDITABLE)
            include |= {path.as_posix(): path.name for path in EDITABLE.iterdir()}
        config["override"]["wheel"]["force-include"] = {baked(Path(path)): name for path, name in include.items()}
        name = backend.build_editable(wheel_directory, build.options, metadata_directory)
        store(Path(wheel_directory, name), large, {})
        return name


def build_sdist(sdist_directory: str, config_settings: Options | None = None) -> str:
    """Trace and freeze: who builds from the sdist needs a C compiler, and nothing of what tracing needs."""
    with door(config_settings) as build:
        if build.settings.sdist == "frozen" and not is_frozen(Path()):
            check_project(build.options)
            generate_files(Path(), build.settings)
            config["override"]["sdist"] = {"force-include": {GENERATED.as_posix(): FROZEN.as_posix()}}
        return backend.build_sdist(sdist_directory, build.options)


def build_wheels(wheel_directory: str, platforms: Sequence[Platform | None], abis: Sequence[str]) -> Iterator[str]:
    """Wheels for several platforms and stable ABIs, of a model that is traced once; each file's name when it is there.

    The cache of objects keeps the kernels from being compiled for each ABI.
    """
    for n, (platform, abi) in enumerate(product(platforms, abis)):
        given = {"mlaot.platform": platform.tag} if platform else {}
        with door({"mlaot.abi": abi, **given}, trace=n == 0) as build:
            large = prepare(build)
            name = pack(build, large, wheel_directory)
        yield name


def pack(build: Build, large: Mapping[str, Path], wheel_directory: str, metadata_directory: str | None = None) -> str:
    """The wheel with its large files, if it is no larger than it may be."""
    with stage("packing the wheel"):
        name = backend.build_wheel(wheel_directory, build.options, metadata_directory)
        wheel = Path(wheel_directory, name)
        store(wheel, large, hooks(build.settings, wheel, set(large)))
    hold_wheel(build.settings, generated_c(), Path(wheel_directory, name))
    return name


class Build(NamedTuple):
    """What a hook is called for: the project's settings, scikit-build-core's options, the wheel's ABI and platform.

    ``platform`` is what zig is to compile for, None where this machine's own compiler does. ``traced`` waits for the C,
    where a child process is about to write it.
    """

    settings: Settings
    options: Options
    abi: str
    platform: Platform | None
    traced: Callable[[], None] | None


@contextmanager
def door(config_settings: Options | None, *, trace: bool = False) -> Iterator[Build]:
    """Around each hook: the project in the current folder, scikit-build-core told of it, one-line errors.

    With ``trace`` the models are traced meanwhile, unless an sdist brought the C.
    """
    global backend
    entry_points = EntryPoints()
    sys.meta_path.append(entry_points)
    try:
        if os.environ.get("SKBUILD_NO_ENTRYPOINT_CONFIG", "0").lower() not in ("", "0", "false", "off", "no"):
            raise MlaotError("mlaot.build cannot work while SKBUILD_NO_ENTRYPOINT_CONFIG is set; unset it")
        settings = load_settings(Path())
        abi, own, options = split_options(config_settings or {})
        with tracing(Path(), settings) if trace and not is_frozen(Path()) else nullcontext() as traced:
            from scikit_build_core import build as backend  # reads the pyproject.toml itself, and with less grace

            # Where there is no compiler, pip installs zig when it is asked to; the wheel's tag says so from the start.
            platform = own or (None if compiler_name() else this_platform())
            config.update(scikit_build_settings(settings, abi, platform))
            with reported():
                yield Build(settings, options, abi, platform, traced)
    except MlaotError as error:
        stop(str(error))
    except ExceptionGroup as error:
        stop(f"{FILE}: {'; '.join(complaints(error))}")
    except AssertionError as error:  # scikit-build-core's: there is none in the hooks themselves
        stop(f"{FILE}: {error}")
    except ScikitBuildError as error:
        stop(str(error))
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


def split_options(config_settings: Options) -> tuple[str, Platform | None, Options]:
    """The ABI and the platform that ``-C mlaot.abi=TAG -C mlaot.platform=TAG`` say, and the options of others."""
    others = {key: value for key, value in config_settings.items() if not key.startswith("mlaot.")}
    tags = {"mlaot.abi": "", "mlaot.platform": ""}
    for key in config_settings.keys() - others.keys():
        if key not in tags:
            raise MlaotError(f"unknown option -C {key}; there are {' and '.join(tags)}")
        tag = config_settings[key]
        if not isinstance(tag, str) or "," in tag:
            kind = key.partition(".")[2]
            raise MlaotError(f"option -C {key}: expected one {kind}, got {tag!r}; mlaot wheel makes several")
        tags[key] = tag
    abi, platform = tags.values()
    return (parse_abi(abi) if abi else own_abi()), (parse_platform(platform) if platform else None), others


def scikit_build_settings(settings: Settings, abi: str, platform: Platform | None) -> dict[str, dict[str, Any]]:
    """The two tables for scikit-build-core. Unlike a ``-C`` option, they can say what has structure."""
    py_api = "cp311" if abi == ABI3 else "cp315t"
    tags = {}
    if platform or abi != own_abi():
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        tags["tags"] = [f"{abi}-{platform.tag if platform else here}"]
    return {
        "default": {
            "cmake": {"version": ">=3.15"},  # none is run, but scikit-build-core would look for one in CMakeLists.txt
            "wheel": {"py-api": py_api, "reproducible": True, "packages": list(settings.packages(Path()))},
        },
        "override": {"wheel": {"cmake": False, "platlib": True, **tags}},
    }


def requires(build: Build) -> tuple[str, ...]:
    """What pip is to install for a wheel."""
    return (*tracing_requires(build.settings), *([ZIG] if build.platform else ()))


def tracing_requires(settings: Settings) -> tuple[str, ...]:
    """Nothing where the sdist brought the C along."""
    return () if is_frozen(Path()) else settings.needed


def check_project(options: Options) -> None:
    """What scikit-build-core finds wrong it shall say at once: tracing can take minutes.

    It says nothing else: what the child says last is to be the last line.
    """
    if not hasattr(backend, "prepare_metadata_for_build_wheel"):  # where settings depend on whether a build failed
        return
    said = io.StringIO()
    try:
        with redirect_stdout(said), tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
            backend.prepare_metadata_for_build_wheel(folder, options)
    except BaseException:
        print(said.getvalue(), end="")
        raise


def prepare(build: Build) -> dict[str, Path]:
    """The files that mlaot adds to a wheel, made and told to scikit-build-core; but for large ones, which it gives."""
    if build.platform is None and build.abi == own_abi():
        check_interpreter()
    toolchain = find_toolchain(build.platform)
    compiler = describe_compiler(toolchain, build.settings)
    if is_frozen(Path()):
        check_sums(FROZEN)
        print(f"mlaot: compiling the C that the sdist brought in {FROZEN}; delete that folder to trace the model again")
    elif build.traced:
        check_project(build.options)
        build.traced()
    generated = generated_c()
    files = compile_models(build.settings, generated, toolchain, build.abi)
    bill = write_sbom(build.settings, generated, compiler, build.abi)
    files["${SKBUILD_METADATA_DIR}/" + sbom_path(build.settings.name)] = bill
    large = {name: path for name, path in files.items() if path.stat().st_size > LARGE}
    others = {path.as_posix(): name for name, path in files.items() if name not in large}
    config["override"]["wheel"]["force-include"] = others
    return large


def compile_models(settings: Settings, generated: Path, toolchain: Toolchain, abi: str) -> dict[str, Path]:
    """Compile each model. Files by their name in the wheel: modules, stubs, packages that the project lacks."""
    platform = toolchain.platform
    folder = COMPILED / (platform.tag if platform else "here")
    shutil.rmtree(folder, ignore_errors=True)
    for model in settings.models:
        library = folder.joinpath(*model.package.split("."), f"{model.stem}{module_suffix(abi, platform)}")
        build_module(settings, model, generated, library, toolchain, abi)
    for package in settings.missing_packages(Path()):
        (folder / package / "__init__.py").touch()
    made = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in made}


def write_sbom(settings: Settings, generated: Path, compiler: Compiler, abi: str) -> Path:
    """The wheel's bill of materials."""
    project = read_pyproject(Path())["project"]
    path = build_folder(Path()) / sbom_path(settings.name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(sbom(project, settings.models, generated, compiler, abi), encoding="utf-8")
    return path


def generated_c() -> Path:
    """The folder of the C in the current project: what the sdist brought, or what was traced."""
    return FROZEN if is_frozen(Path()) else GENERATED


def is_frozen(project: Path) -> bool:
    """Whether this is an unpacked sdist, with the C in it."""
    return (project / FROZEN / "CMakeLists.txt").is_file()


def build_folder(project: Path) -> Path:
    """The folder of what a build makes; git and sdists leave it alone."""
    folder = project / GENERATED.parent
    with writing(GENERATED.parent):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    return folder


def generate_files(project: Path, settings: Settings) -> Path:
    """Trace the models and write the C. The folder appears whole or not at all."""
    with tracing(project, settings) as traced:
        traced()
    return project / GENERATED


@contextmanager
def tracing(project: Path, settings: Settings) -> Iterator[Callable[[], None]]:
    """A child process that does that, while the caller does something else.

    What is yielded waits for it. Whoever leaves without ends the child.
    """
    target = build_folder(project) / GENERATED.name
    for model in settings.models:
        print(f"mlaot: {model.declared} -> {model.module}", flush=True)
    unfinished = target.with_name(f"c.{os.getpid()}")
    # -P: the current folder, which need not be the source folder, stays off sys.path.
    paths = [str(path.resolve()) for path in (project, unfinished, project / DIGESTS)]
    command = [sys.executable, "-P", "-m", "mlaot.build.child", *paths]
    # A fixed hash seed: the same model is the same C, also where its code walks a set.
    child = subprocess.Popen(command, env=os.environ | {"PYTHONHASHSEED": "0"})

    def traced() -> None:
        status = child.wait()  # which says itself what it is at
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

    try:
        yield traced
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        shutil.rmtree(unfinished, ignore_errors=True)


def baked(path: Path) -> str:
    """A file under a name that no import takes: an editable install gets a copy, not a way to the build's folder."""
    return path.replace(path.with_name(f"{path.name}~")).as_posix()


def watch_sources(project: Path, settings: Settings, site: Path) -> None:
    """Write into ``site``, for an editable install, what warns at import of a module whose model was edited since."""
    name = f"_mlaot_{settings.name}"  # sorted after the names of what finds the modules: the last finder is asked first
    modules = [model.module for model in settings.models]
    digests = read_json(project / DIGESTS, {str: object}, str(DIGESTS))
    command = f"pip install -e {shlex.quote(str(project.resolve()))}"
    code = (Path(__file__).parent / "stale.py").read_text(encoding="utf-8")
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{name}.py").write_text(f"{code}\n\nwatch({modules!r}, {digests!r}, {command!r})\n", encoding="utf-8")
    (site / f"{name}.pth").write_text(f"import {name}\n", encoding="utf-8")


def stop(message: str) -> NoReturn:
    """End the hook: the line comes last, where pip shows it."""
    sys.stdout.flush()
    raise SystemExit(f"mlaot: {message}") from None
