"""The hooks of PEP 517 and 660 over scikit-build-core, which ``mlaot.build`` offers to build front ends.

Each hook reads ``[tool.mlaot]``, and starts a child process that writes the C into ``build/mlaot/c``. Meanwhile it
imports the packer. Then it compiles the C into ``build/mlaot/lib`` and lets scikit-build-core pack the result. Two
tables hold what a project would otherwise write into ``[tool.scikit-build]``. An sdist carries the C, in ``_mlaot``, so
that a build from it traces nothing.

``-C mlaot.platform=TAG`` makes a wheel for another platform with zig, which also compiles if a machine has no compiler.
A wheel for the platform ``any`` holds plain Python. ``-C mlaot.abi=TAG`` makes a wheel for another stable ABI than this
interpreter's.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from scikit_build_core.errors import ScikitBuildError

from mlaot.build.budget import check_wheel
from mlaot.build.checksums import verify_checksums, write_checksums
from mlaot.build.metadata import write_metadata
from mlaot.build.module import build_module, build_runtime, copy_module, copy_sessions
from mlaot.build.platforms import (
    ABI3,
    ANY,
    Platform,
    is_python,
    module_suffix,
    parse_abi,
    parse_platform,
    this_platform,
)
from mlaot.build.pyinstaller import hook_files
from mlaot.build.requirements import check_requirements, imports_of
from mlaot.build.toolchain import (
    ZIG,
    Toolchain,
    check_interpreter,
    compiler_name,
    describe_compiler,
    find_toolchain,
    own_abi,
)
from mlaot.build.wheel_entries import LARGE, add_entries
from mlaot.checked_json import read_json
from mlaot.errors import MlaotError, writing
from mlaot.settings import FILE, FROZEN, Settings
from mlaot.settings.reading import load_settings
from mlaot.settings.tables import read_pyproject
from mlaot.stages import PACKING, report_progress, stage

if TYPE_CHECKING:
    from scikit_build_core import build as backend

GENERATED = Path("build/mlaot/c")
COMPILED = Path("build/mlaot/lib")
DIGESTS = Path("build/mlaot/digests.json")
EDITABLE = Path("build/mlaot/editable")
OPTIONS_REFUSED = 7  # the exit status of scikit-build-core for options that it cannot use
ConfigSettings = dict[str, str | list[str]]
Context = importlib.metadata.DistributionFinder.Context
EVERYTHING = Context()

# Configuration of scikit-build-core that the running hook fills in: pyproject.toml overrides the first, not the second.
config: dict[str, dict[str, Any]] = {"default": {}, "override": {}}


def default_config() -> dict[str, Any]:
    """Entry point ``scikit-build-core.config.default``: return what pyproject.toml may override."""
    return config["default"]


def override_config() -> dict[str, Any]:
    """Entry point ``scikit-build-core.config.override``: return what pyproject.toml may not override."""
    return config["override"]


class EntryPoints(importlib.metadata.DistributionFinder):
    """Declare the two entry points to this process while a hook runs.

    If mlaot's installed metadata declared them, every build in the environment would ask for them, even of projects
    without mlaot. Besides, scikit-build-core, which builds mlaot, rejects group names with a hyphen, although its own
    group names have one.
    """

    def find_distributions(self, context: Context = EVERYTHING) -> Iterator[importlib.metadata.Distribution]:
        if context.name in (None, ConfigDistribution.NAME):
            yield ConfigDistribution()

    def find_spec(self, *arguments: object) -> None:
        return None


class ConfigDistribution(importlib.metadata.Distribution):
    """A distribution that holds nothing but entry points."""

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


def get_requires_for_build_wheel(config_settings: ConfigSettings | None = None) -> list[str]:
    """Return what tracing needs, and zig if it is to compile."""
    with hook_environment(config_settings) as build:
        return [*backend.get_requires_for_build_wheel(build.options), *requires(build)]


def get_requires_for_build_editable(config_settings: ConfigSettings | None = None) -> list[str]:
    """Return the same as for a wheel."""
    with hook_environment(config_settings) as build:
        return [*backend.get_requires_for_build_editable(build.options), *requires(build)]


def get_requires_for_build_sdist(config_settings: ConfigSettings | None = None) -> list[str]:
    """Return what tracing needs, if the sdist carries the generated C."""
    with hook_environment(config_settings) as build:
        tracing_needs = tracing_requires(build.settings) if build.settings.sdist == "frozen" else ()
        return [*backend.get_requires_for_build_sdist(build.options), *tracing_needs]


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: ConfigSettings | None = None) -> str:
    """Write the metadata without tracing."""
    with hook_environment(config_settings) as build:
        return backend.prepare_metadata_for_build_wheel(metadata_directory, build.options)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: ConfigSettings | None = None) -> str:
    """Write the metadata without tracing."""
    with hook_environment(config_settings) as build:
        return backend.prepare_metadata_for_build_editable(metadata_directory, build.options)


def build_wheel(
    wheel_directory: str, config_settings: ConfigSettings | None = None, metadata_directory: str | None = None
) -> str:
    """Trace, write the C, compile it, pack the wheel."""
    with hook_environment(config_settings, trace=True) as build:
        large = prepare(build)
        return pack(build, large, wheel_directory, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: ConfigSettings | None = None, metadata_directory: str | None = None
) -> str:
    """Build as for a wheel, but leave the project's Python files in place.

    At import, a module warns if its model was edited since.
    """
    with hook_environment(config_settings, trace=True) as build:
        large = prepare(build)
        include = config["override"]["wheel"]["force-include"]
        if not is_frozen(Path()):
            shutil.rmtree(EDITABLE, ignore_errors=True)
            watch_sources(Path(), build.settings, EDITABLE)
            include |= {path.as_posix(): path.name for path in EDITABLE.iterdir()}
        config["override"]["wheel"]["force-include"] = {
            hide_from_imports(Path(path)): name for path, name in include.items()
        }
        name = backend.build_editable(wheel_directory, build.options, metadata_directory)
        add_entries(Path(wheel_directory, name), large, {})
        return name


def build_sdist(sdist_directory: str, config_settings: ConfigSettings | None = None) -> str:
    """Trace and pack the C. A build from the sdist then needs a C compiler, and nothing that tracing needs."""
    with hook_environment(config_settings) as build:
        if build.settings.sdist == "frozen" and not is_frozen(Path()):
            check_project(build.options)
            generate_files(Path(), build.settings)
            config["override"]["sdist"] = {"force-include": {GENERATED.as_posix(): FROZEN.as_posix()}}
        return backend.build_sdist(sdist_directory, build.options)


def build_wheels(wheel_directory: str, targets: Sequence[tuple[Platform | None, str]]) -> Iterator[str]:
    """Build wheels for several platforms and stable ABIs, tracing once; yield each file's name when it is written.

    The cache of objects keeps the kernels from being compiled for each ABI.
    """
    python = any(is_python(platform) for platform, _ in targets)
    for n, (platform, abi) in enumerate(targets):
        platform_option = {"mlaot.platform": platform.tag} if platform else {}
        with hook_environment({"mlaot.abi": abi, **platform_option}, trace=n == 0, python=python) as build:
            large = prepare(build)
            name = pack(build, large, wheel_directory)
        yield name


def pack(build: Build, large: Mapping[str, Path], wheel_directory: str, metadata_directory: str | None = None) -> str:
    """Pack the wheel, add its large files, and check its size."""
    with stage(PACKING):
        name = backend.build_wheel(wheel_directory, build.options, metadata_directory)
        wheel = Path(wheel_directory, name)
        imports = imports_of(build.settings.models, c_folder())
        hooks = {} if is_python(build.platform) else hook_files(build.settings, wheel, set(large), imports)
        add_entries(wheel, large, hooks)
    check_wheel(build.settings, c_folder(), Path(wheel_directory, name))
    return name


class Build(NamedTuple):
    """The arguments of a hook: the project's settings, scikit-build-core's options, the wheel's ABI and platform.

    ``platform`` is the target of zig, or ``any``, or None if the machine's own compiler is used. ``wait_for_trace``
    blocks until the child process has written the files; it is None if no child process runs.
    """

    settings: Settings
    options: ConfigSettings
    abi: str
    platform: Platform | None
    wait_for_trace: Callable[[], None] | None


@contextmanager
def hook_environment(
    config_settings: ConfigSettings | None, *, trace: bool = False, python: bool = False
) -> Iterator[Build]:
    """Run a hook in the current folder: configure scikit-build-core, and turn errors into one line.

    With ``trace`` a child process traces the models meanwhile, unless an sdist brought the C. It also writes them as
    plain Python if ``python`` is true or the platform is ``any``.
    """
    global backend
    entry_points = EntryPoints()
    sys.meta_path.append(entry_points)
    try:
        with one_line_errors():
            if os.environ.get("SKBUILD_NO_ENTRYPOINT_CONFIG", "0").lower() not in ("", "0", "false", "off", "no"):
                raise MlaotError("mlaot.build cannot work while SKBUILD_NO_ENTRYPOINT_CONFIG is set; unset it")
            settings = load_settings(Path())
            abi, requested, options = split_options(config_settings or {})
            python = python or is_python(requested)
            will_trace = trace and not is_frozen(Path())
            tracing = start_tracing(Path(), settings, python=python) if will_trace else nullcontext()
            with tracing as wait_for_trace:
                from scikit_build_core import build as backend  # reads pyproject.toml, with worse messages

                # Without a compiler, pip installs zig if asked to; the wheel's tag says so from the start.
                platform = requested or (None if compiler_name() else this_platform())
                config.update(scikit_build_settings(settings, abi, platform))
                yield Build(settings, options, abi, platform, wait_for_trace)
    except ExceptionGroup as error:
        fail(f"{FILE}: {'; '.join(error_lines(error))}")
    except AssertionError as error:  # raised by scikit-build-core; the hooks have no assertions
        fail(f"{FILE}: {error}")
    except ScikitBuildError as error:
        fail(str(error))
    except SystemExit as error:
        if error.code == OPTIONS_REFUSED:
            fail("scikit-build-core refuses an option, of -C, SKBUILD_* or [tool.scikit-build]; its message is above")
        raise
    finally:
        config.update(default={}, override={})
        sys.meta_path.remove(entry_points)


def error_lines(group: BaseExceptionGroup[Any]) -> Iterator[str]:
    """Yield a line for each mistake that scikit-build-core reports in [project] and [tool.scikit-build]."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from error_lines(error)
        else:
            yield " ".join([*str(error).split(), *getattr(error, "__notes__", ())])


def split_options(config_settings: ConfigSettings) -> tuple[str, Platform | None, ConfigSettings]:
    """Return the ABI and platform of ``-C mlaot.abi=TAG -C mlaot.platform=TAG``, and the backend's options."""
    backend_options = {key: value for key, value in config_settings.items() if not key.startswith("mlaot.")}
    tags = {"mlaot.abi": "", "mlaot.platform": ""}
    for key in config_settings.keys() - backend_options.keys():
        if key not in tags:
            raise MlaotError(f"unknown option -C {key}; expected {' or '.join(tags)}")
        tag = config_settings[key]
        if not isinstance(tag, str) or "," in tag:
            kind = key.partition(".")[2]
            raise MlaotError(f"option -C {key}: expected one {kind}, got {tag!r}; mlaot wheel makes several")
        tags[key] = tag
    abi, platform = tags.values()
    return (parse_abi(abi) if abi else own_abi()), (parse_platform(platform) if platform else None), backend_options


def scikit_build_settings(settings: Settings, abi: str, platform: Platform | None) -> dict[str, dict[str, Any]]:
    """Return the two tables for scikit-build-core. Unlike ``-C`` options, tables can express structure."""
    py_api = "py3" if is_python(platform) else "cp311" if abi == ABI3 else "cp315t"
    tags = {}
    if platform is not None and is_python(platform):
        tags["tags"] = [f"py3-none-{platform.tag}"]
    elif platform or abi != own_abi():
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        tags["tags"] = [f"{abi}-{platform.tag if platform else here}"]
    return {
        "default": {
            "cmake": {"version": ">=3.15"},  # unused, but scikit-build-core would search CMakeLists.txt for it
            "wheel": {"py-api": py_api, "reproducible": True, "packages": list(settings.packages(Path()))},
        },
        "override": {"wheel": {"cmake": False, "platlib": not is_python(platform), **tags}},
    }


def requires(build: Build) -> tuple[str, ...]:
    """Return what pip must install for a wheel."""
    return (*tracing_requires(build.settings), *([ZIG] if build.platform and not is_python(build.platform) else ()))


def tracing_requires(settings: Settings) -> tuple[str, ...]:
    """Return what tracing needs; nothing if the sdist brought the C."""
    return () if is_frozen(Path()) else settings.tracing_packages


def check_project(options: ConfigSettings) -> None:
    """Let scikit-build-core report its errors before tracing starts, which can take minutes.

    Print its output only if it fails: the last line must be the child's.
    """
    # scikit-build-core lacks the hook if its settings depend on whether a build failed.
    if not hasattr(backend, "prepare_metadata_for_build_wheel"):
        return
    output = io.StringIO()
    try:
        with redirect_stdout(output), tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
            backend.prepare_metadata_for_build_wheel(folder, options)
    except BaseException:
        print(output.getvalue(), end="")
        raise


def prepare(build: Build) -> dict[str, Path]:
    """Make the files that mlaot adds to a wheel, and pass all but the large ones to scikit-build-core.

    Return the large files by their names in the wheel.
    """
    python = is_python(build.platform)
    if build.platform is None and build.abi == own_abi():
        check_interpreter()
    toolchain = None if python else find_toolchain(build.platform)
    compiler = None if toolchain is None else describe_compiler(toolchain, build.settings)
    if is_frozen(Path()) and python:
        raise MlaotError(f"the sdist has C in {FROZEN}, but no Python; delete that folder to trace the model again")
    if is_frozen(Path()):
        verify_checksums(FROZEN)
        print(f"mlaot: compiling the C in {FROZEN} of the sdist; delete that folder to trace the model again")
    elif build.wait_for_trace:
        check_project(build.options)
        build.wait_for_trace()
    generated = c_folder()
    check_requirements(read_pyproject(Path())["project"], build.settings.models, generated)
    if toolchain is None:
        files = copy_models(build.settings, generated)
    else:
        files = compile_models(build.settings, generated, toolchain, build.abi)
    folder, abi = build_folder(Path()) / "metadata", "py3-none" if python else build.abi
    metadata = write_metadata(build.settings, generated, compiler, abi, folder)
    large = {name: path for name, path in files.items() if path.stat().st_size > LARGE}
    small = {path.as_posix(): name for name, path in files.items() if name not in large}
    small |= {path.as_posix(): "${SKBUILD_METADATA_DIR}/" + name for name, path in metadata.items()}
    config["override"]["wheel"]["force-include"] = small
    return large


def compile_models(settings: Settings, generated: Path, toolchain: Toolchain, abi: str) -> dict[str, Path]:
    """Compile each model; return modules, stubs and missing packages by their names in the wheel."""
    platform = toolchain.platform
    folder = COMPILED / (platform.tag if platform else "here")
    shutil.rmtree(folder, ignore_errors=True)
    suffix = module_suffix(abi, platform)
    if settings.runtime:
        library = folder / f"{settings.runtime.replace('.', '/')}{suffix}"
        build_runtime(settings.runtime, generated, library, toolchain, abi)
    for model in settings.models:
        library = folder.joinpath(*model.package.split("."), f"{model.stem}{suffix}")
        build_module(settings, model, generated, library, toolchain, abi)
    return files_below(folder, settings)


def copy_models(settings: Settings, generated: Path) -> dict[str, Path]:
    """Check the models in plain Python; return modules, stubs and missing packages by their names in the wheel."""
    folder = COMPILED / ANY
    shutil.rmtree(folder, ignore_errors=True)
    for model in settings.models:
        copy_module(settings, model, generated, folder.joinpath(*model.package.split("."), f"{model.stem}.py"))
    return files_below(folder, settings)


def files_below(folder: Path, settings: Settings) -> dict[str, Path]:
    """Add missing packages and the package of sessions to a folder with modules.

    Return its files by name.
    """
    for package in settings.missing_packages(Path()):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / "__init__.py").touch()
    copy_sessions(settings, c_folder(), folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def c_folder() -> Path:
    """Return the folder of the C in the current project: the sdist's, or that of the last trace."""
    return FROZEN if is_frozen(Path()) else GENERATED


def is_frozen(project: Path) -> bool:
    """Tell whether the project is an unpacked sdist with the C in it."""
    return (project / FROZEN / "CMakeLists.txt").is_file()


def build_folder(project: Path) -> Path:
    """Make the folder of build results, which git and sdists ignore."""
    folder = project / GENERATED.parent
    with writing(GENERATED.parent):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    return folder


def generate_files(project: Path, settings: Settings) -> Path:
    """Trace the models and write the C. The folder appears complete or not at all."""
    with start_tracing(project, settings) as wait_for_trace:
        wait_for_trace()
    return project / GENERATED


@contextmanager
def start_tracing(project: Path, settings: Settings, *, python: bool = False) -> Iterator[Callable[[], None]]:
    """Start a child process that traces the models, and yield a function that waits for it.

    With ``python`` the process also writes them as plain Python. Leaving the context kills the process if it still
    runs.
    """
    target = build_folder(project) / GENERATED.name
    for model in settings.models:
        print(f"mlaot: {model.declared} -> {model.module}", flush=True)
    unfinished = target.with_name(f"c.{os.getpid()}")
    # -P: the current folder, which need not be the source folder, stays off sys.path.
    paths = [str(path.resolve()) for path in (project, unfinished, project / DIGESTS)]
    command = [sys.executable, "-P", "-m", "mlaot.build.child", *(["--python"] if python else []), *paths]
    # A fixed hash seed: the same model is the same C, also where its code walks a set.
    child = subprocess.Popen(command, env=os.environ | {"PYTHONHASHSEED": "0"})

    def wait_for_trace() -> None:
        status = child.wait()  # the child reports its progress itself
        if status < 0:
            raise MlaotError(
                f"tracing was killed by signal {-status}" + (", perhaps because memory ran out" * (status == -9))
            )
        if status == 1:
            sys.stdout.flush()
            raise SystemExit(status)  # the child has printed why in its last line
        if status or not unfinished.is_dir():
            raise MlaotError(f"tracing ended with status {status} and no message; the model must not call os._exit")
        with writing(GENERATED):
            write_checksums(unfinished)
            shutil.rmtree(target, ignore_errors=True)
            unfinished.rename(target)

    try:
        yield wait_for_trace
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        shutil.rmtree(unfinished, ignore_errors=True)


def hide_from_imports(path: Path) -> str:
    """Rename a file so that no import finds it, and return its path.

    An editable install then packs a copy instead of leading to the build's folder.
    """
    return path.replace(path.with_name(f"{path.name}~")).as_posix()


def watch_sources(project: Path, settings: Settings, site: Path) -> None:
    """Write into ``site`` a module that warns, at import of a compiled module, if its model was edited since."""
    name = f"_mlaot_{settings.name}"  # the last .pth file by name puts its finder first
    modules = [model.module for model in settings.models]
    digests = read_json(project / DIGESTS, {str: object}, str(DIGESTS))
    command = f"pip install -e {shlex.quote(str(project.resolve()))}"
    code = (Path(__file__).parent / "stale.py").read_text(encoding="utf-8")
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{name}.py").write_text(f"{code}\n\nwatch({modules!r}, {digests!r}, {command!r})\n", encoding="utf-8")
    (site / f"{name}.pth").write_text(f"import {name}\n", encoding="utf-8")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the build in one line on errors that the user can mend, and report progress of slow stages."""
    try:
        with report_progress():
            yield
    except MlaotError as error:
        fail(str(error))
    except OSError as error:
        fail(f"the build failed: {error}")


def fail(message: str) -> NoReturn:
    """End the hook with the message as the last line, which pip shows."""
    sys.stdout.flush()
    raise SystemExit(f"mlaot: {message}") from None
