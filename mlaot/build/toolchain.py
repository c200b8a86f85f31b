"""The C compiler: find it, describe it, and compile the C of one model into an extension module.

The build (``hooks.py``, ``setuptools.py``, ``module.py``) finds the compiler before it generates anything, so that the
error of a machine without a compiler comes at once. ``mlaot tune``, ``mlaot doctor`` and the ONNX backend use the
compiler too, for kernels without a module around them. zig, which pip can install, is the compiler for all other
platforms, and for a machine that has no compiler.

A wheel must have the same bytes wherever it is built. The flags of each file are the same as with CMake; ``unit_flags``
in ``printing/cmake.py`` defines them. They come after the user's CFLAGS, so that they win. Anything else that changes
an object must be part of its key in the cache. A folder or a time must not change an object.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mlaot.build.cache import make_cached
from mlaot.build.checksums import digest
from mlaot.build.platforms import ABI3, ABI3T, Platform, python_exports, python_library, this_platform
from mlaot.errors import MlaotError
from mlaot.printing.cmake import COMMON_FLAGS, contraction, unit_flags
from mlaot.schedule.machine import Machine, isas_for
from mlaot.settings import WEIGHTS, Settings
from mlaot.stages import COMPILING, stage

ZIG = "ziglang>=0.17,<0.18"  # as a requirement; its options change between versions
TRIAL = """\
#ifdef __cplusplus
#error this compiles C++; CC must be a C compiler
#endif
#include <stddef.h>
#include <string.h>
size_t mlaot_trial(const char *s) { return strlen(s); }
"""
MACROS = ("-dM", "-E", "-x", "c", os.devnull)  # make gcc and clang print their predefined macros
TIMEOUT = 300  # seconds for a few lines; zig is slow the first time
HEADERS = "; install the C library's headers (Debian: apt install libc6-dev, Alpine: apk add musl-dev)"


def own_abi() -> str:
    """Return the stable ABI of this interpreter, which is the default ABI of wheels."""
    return ABI3T if is_free_threaded() and sys.version_info >= (3, 15) else ABI3


def check_interpreter() -> None:
    """Raise ``MlaotError`` for an interpreter without a stable ABI that extension modules can use."""
    if sys.implementation.name != "cpython":
        raise MlaotError(
            f"a compiled model needs CPython; {sys.executable} is {sys.implementation.name}: build with another Python"
        )
    if is_free_threaded() and sys.version_info < (3, 15):
        raise MlaotError(
            f"a compiled model needs CPython with the GIL, or free-threaded CPython 3.15 or later; {sys.executable} is"
            f" free-threaded 3.{sys.version_info.minor}: build with another Python"
        )


def is_free_threaded() -> bool:
    """Tell whether this interpreter is a build without the global lock."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class Toolchain(NamedTuple):
    """The ``command`` that compiles. ``platform`` is the target of zig, or None for this machine's own compiler."""

    command: list[str]
    platform: Platform | None = None


def find_toolchain(platform: Platform | None = None, environ: Mapping[str, str] = os.environ) -> Toolchain:
    """Return the compiler for a platform.

    For None it is this machine's own compiler, or zig if the machine has none.
    """
    own = compiler_name(environ)
    if (platform is None and own) or not (own or has_zig()):
        return Toolchain(find_compiler(environ))
    platform = platform or this_platform()
    if not has_zig():
        raise MlaotError(f"a wheel for {platform.tag} is compiled by zig, which is not installed: pip install '{ZIG}'")
    (folder,) = importlib.util.find_spec("ziglang").submodule_search_locations  # type: ignore[union-attr, misc]
    zig = str(Path(folder, "zig.exe" if os.name == "nt" else "zig"))
    return Toolchain([zig, "cc", "-target", platform.target, "-fno-sanitize=undefined"], platform)


def has_zig() -> bool:
    """Tell whether the package ziglang is installed."""
    return importlib.util.find_spec("ziglang") is not None


def compiler_name(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return ``$CC``, else the first of cc, gcc and clang on ``PATH``, untested; None if there is none.

    Compilers of Windows are not considered: they lack the C extensions that kernels use, or python3.lib to link.
    """
    if os.name == "nt":
        return None
    names = (name for name in ("cc", "gcc", "clang") if shutil.which(name, path=environ.get("PATH")))
    return environ.get("CC") or next(names, None)


def find_compiler(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of this machine's own C compiler, after trying it on a few lines of C."""
    name = compiler_name(environ)
    if name is None:
        raise MlaotError(
            "no C compiler: looked for $CC, cc, gcc and clang on PATH; install one (Debian: apt install gcc"
            " libc6-dev, Fedora: dnf install gcc, macOS: xcode-select --install), set CC, or let pip install one:"
            f" pip install '{ZIG}'"
        )
    command = split_variable(environ, "CC") if environ.get("CC") else [name]
    if not command or shutil.which(command[0], path=environ.get("PATH")) is None:
        raise MlaotError(f"no C compiler: CC is {name!r}, which is not on PATH")
    try_compiler(command, environ)
    return command


def try_compiler(command: list[str], environ: Mapping[str, str]) -> None:
    """Compile and link a few lines, and print the macros: not every program that ``$CC`` may name is a compiler."""
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        source = Path(folder, "trial.c")
        source.write_text(TRIAL)
        user, link = split_variable(environ, "CFLAGS"), split_variable(environ, "LDFLAGS")
        arguments = [*command, *user, "-fPIC", "-shared", str(source), *link, "-o", f"{folder}/trial.so"]
        try:
            run(arguments, environ, TIMEOUT)
            if not Path(folder, "trial.so").is_file():
                raise MlaotError("it made no library of a few lines of C, and gave no error; mlaot needs gcc or clang")
            if "#define " not in run([*command, *user, *MACROS], environ, TIMEOUT):
                raise MlaotError(f"it does not list its macros with {shlex.join(MACROS)}; mlaot needs gcc or clang")
        except MlaotError as error:
            flags = "".join(f" with {name}={environ[name]!r}" for name in ("CFLAGS", "LDFLAGS") if environ.get(name))
            text = str(error).replace(f"{folder}/", "")
            hint = HEADERS if "string.h" in text else ""
            raise MlaotError(f"the C compiler {shlex.join(command)!r} does not work{flags}: {text}{hint}") from None


def compile_module(
    folder: Path,
    stem: str,
    isas: Iterable[str],
    library: Path,
    toolchain: Toolchain,
    *,
    deterministic: bool = False,
    abi: str = ABI3,
    archive: Path | None = None,
) -> None:
    """Compile ``folder/<stem>*.c`` into ``library``, the extension module, with the same flags as with CMake.

    Weights that are not embedded are copied beside it. ``archive`` is the path of a static library to write as well,
    which holds the same kernels, the weights, and the C interface in place of Python's.
    """
    command, environ = toolchain.command, os.environ
    macros = predefined_macros(command)
    units = unit_flags(stem, isas_for(machine_of(macros), isas), deterministic, archive is not None)
    flags = [*split_variable(environ, "CFLAGS"), "-DNDEBUG", "-fPIC", "-w"]
    machines = split_variable(environ, "ARCHFLAGS") if toolchain.platform is None else []
    # Keep the folder's path out of the objects, also with -g among the user's flags.
    places = ["-Xassembler", f"-I{folder}", f"-ffile-prefix-map={Path.cwd()}=.", f"-ffile-prefix-map={folder}=."]
    with tempfile.TemporaryDirectory(prefix="mlaot-") as objects:

        def compile_part(name: str, part: int) -> str:
            source, object_file = str(folder / f"{name}.c"), Path(objects, f"{name}{part or ''}.o")
            abi_macro = ["-DMLAOT_ABI3T"] if abi == ABI3T and name == stem else []  # the only difference of the ABIs
            compile = [*command, *flags, *units[name], *abi_macro]
            part_macro = [f"-DMLAOT_PARTS={1 << part}"] if counts[name] > 1 else []

            def key_parts() -> list[bytes]:
                # An object does not depend on the number of its part, nor on how many lines precede a kernel.
                options = shlex.join([*compile, *machines])
                text = "\n".join(filter(None, run([*compile, *part_macro, "-E", "-P", source], environ).splitlines()))
                embedded = {stem: [WEIGHTS], f"{stem}_c": [WEIGHTS, f"{stem}.weights"]}.get(name, [])
                texts = (macros, compiler_file(command), options, text)
                return [text.encode() for text in (*texts, *(digest(folder / file) for file in embedded))]

            arguments = [*compile, *part_macro, *machines, *places, "-c", source, "-o", str(object_file)]
            make_cached(key_parts, object_file, lambda: run(arguments, environ))
            return str(object_file)

        target = f" for {toolchain.platform.tag}" if toolchain.platform else ""
        counts = {name: part_count(folder / f"{name}.c") for name in units}
        jobs = [(name, part) for name in units for part in range(counts[name])]
        with stage(COMPILING, len(jobs)) as advance, ThreadPoolExecutor(os.cpu_count() or 1) as pool:

            def compile_job(job: tuple[str, int]) -> tuple[str, str]:
                advance(f"{job[0]}.c{target}")
                return job[0], compile_part(*job)

            compiled = list(pool.map(compile_job, jobs))
        linked = Path(objects, library.name)  # the linker may write import libraries beside it
        link = [*split_variable(environ, "LDFLAGS"), *link_options(toolchain, abi, Path(objects))]
        python = [path for name, path in compiled if name != f"{stem}_c"]
        run([*command, *flags, *machines, "-shared", *python, *link, "-o", str(linked)], environ)
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(linked, library)
        if archive is not None:
            archive.parent.mkdir(parents=True, exist_ok=True)
            archive.unlink(missing_ok=True)  # ar would add to it
            # Apple's ar knows no D, only the variable.
            options = "rcs" if toolchain.platform is None and sys.platform == "darwin" else "rcsD"
            c = [path for name, path in compiled if name != stem]
            run([*archiver(toolchain), options, str(archive), *c], environ | {"ZERO_AR_DATE": "1"})
    weights = folder / f"{stem}.weights"
    if weights.is_file() and not folder.samefile(library.parent):
        shutil.copy(weights, library.parent)


def part_count(source: Path) -> int:
    """Return the number of parts into which a C file can be split; 1 for a missing file, which the compiler reports."""
    text = source.read_bytes() if source.is_file() else b""
    match = re.search(rb"^#define MLAOT_PART_COUNT (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 1


def archiver(toolchain: Toolchain) -> list[str]:
    """Return the compiler's own archiver of static libraries, as a command."""
    command = toolchain.command
    if toolchain.platform is not None:
        return [command[0], "ar"]
    path = run([*command, "-print-prog-name=ar"], os.environ).strip()
    if shutil.which(path) is None:
        raise MlaotError(
            f"c_library needs ar, and {command[0]} knows none: got {path!r}; install binutils (Debian: apt install"
            " binutils), or make the wheel without c_library"
        )
    return [path]


def link_options(toolchain: Toolchain, abi: str, folder: Path) -> list[str]:
    """Return the options of the linker, and write the files that they name into ``folder``."""
    command, platform = toolchain
    if platform is None and sys.platform == "darwin":
        return ["-undefined", "dynamic_lookup", "-Wl,-x"]
    if platform is None:
        return ["-fno-fast-math", "-fno-lto", "-s", "-Wl,-z,noseparate-code"]
    options = ["-s", "-Wl,--gc-sections"]  # zig links its whole runtime library
    if platform.system == "macos":
        return ["-s", "-Wl,-undefined,dynamic_lookup"]
    if platform.system == "windows":
        name = python_library(abi)
        exports, library = folder / f"{name}.def", folder / f"{name}.lib"
        exports.write_text(python_exports(name))
        machine = {"x86_64": "i386:x86-64", "aarch64": "arm64"}[platform.machine]
        run([command[0], "dlltool", "-m", machine, "-d", str(exports), "-l", str(library)], os.environ)
        return [*options, "-Wl,-Brepro", str(library)]  # without a time stamp
    if platform.system == "musl":
        # zig would require libc.so, which only developers' machines have; at run time the library has another name.
        name = f"libc.musl-{platform.machine}.so.1"
        empty = folder / "empty.c"
        empty.write_text("int mlaot_empty;\n")
        run([*command, "-shared", "-nostdlib", f"-Wl,-soname,{name}", str(empty), "-o", str(folder / name)], os.environ)
        return [*options, "-nostdlib", "-lgcc", "-Wl,--no-as-needed", str(folder / name)]
    return options


def compile_kernels(source: Path, isa: Machine, library: Path, command: list[str]) -> None:
    """Compile one file of kernels for one instruction set into ``library``, with the flags of a build."""
    options = [
        *split_variable(os.environ, "CFLAGS"),
        "-DNDEBUG",
        "-fPIC",
        "-shared",
        *COMMON_FLAGS,
        contraction(False),
        *isa.flags,
    ]
    run([*command, *options, "-w", str(source), "-o", str(library)], os.environ)


def predefined_macros(command: list[str]) -> str:
    """Return the macros by which the compiler describes itself and its target, which may be another machine."""
    return ask_compiler(*command, *split_variable(os.environ, "CFLAGS"), *MACROS)


@cache
def ask_compiler(*command: str) -> str:
    """Return what a command prints; it runs once in a process."""
    return run([*command], os.environ)


def machine_of(macros: str) -> str:
    """Return the architecture of the compiler's target, x86_64 or aarch64, or an empty string for any other."""
    return next((machine for machine in ("x86_64", "aarch64") if f"__{machine}__" in macros), "")


class CompilerInfo(NamedTuple):
    """A compiler's ``name``, ``version``, flags, and first ``line`` of ``--version`` without its path."""

    name: str
    version: str
    line: str
    target: str
    environ: dict[str, str]
    isas: list[str]
    flags: dict[str, dict[str, tuple[str, ...]]]  # by module and file


def describe_compiler(toolchain: Toolchain, settings: Settings) -> CompilerInfo:
    """Describe the compiler and its flags, independent of where it and the project lie."""
    command, platform = toolchain
    macros = predefined_macros(command)
    versions: dict[str, str] = dict(
        re.findall(r'^#define (__\w*(?:VERSION|version)__) "(.*?) *"$', macros, re.MULTILINE)
    )
    name = "zig" if platform else "clang" if "__clang__" in macros else "gcc"
    version = versions.get("__clang_version__") or versions.get("__VERSION__", "unknown")
    version_line = ask_compiler(*command, "--version").partition("\n")[0]
    line = version_line.removeprefix(f"{Path(command[0]).name} ")
    target = platform.target if platform else ask_compiler(*command, "-dumpmachine").strip()
    variables = {
        key: os.environ.get(key, "").replace(str(Path.cwd()), ".") for key in ("ARCHFLAGS", "CFLAGS", "LDFLAGS")
    }
    isas = isas_for(machine_of(macros), settings.isas)
    flags = {model.module: unit_flags(model.stem, isas, model.deterministic) for model in settings.models}
    return CompilerInfo(
        name, version, line, target, {key: value for key, value in variables.items() if value}, isas, flags
    )


def compiled_isas(settings: Settings, toolchain: Toolchain) -> list[str]:
    """Return the instruction sets that a module has code for."""
    return isas_for(machine_of(predefined_macros(toolchain.command)), settings.isas)


def compiler_file(command: list[str]) -> str:
    """Return the path, size and time of the compiler's file, which change if the compiler is replaced."""
    path = os.path.realpath(shutil.which(command[0]) or command[0])
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def split_variable(environ: Mapping[str, str], name: str) -> list[str]:
    """Split an environment variable of the user's into a command or flags."""
    try:
        return shlex.split(environ.get(name, ""))
    except ValueError as error:
        raise MlaotError(f"the environment variable {name} is {environ[name]!r}: {str(error).lower()}") from None


def run(arguments: list[str], environ: Mapping[str, str], timeout: float | None = None) -> str:
    """Run a compiler.

    If it fails, print an output of several lines, and raise ``MlaotError`` with the line that matters.

    ``timeout`` is in seconds.
    """
    try:
        result = subprocess.run(
            arguments,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise MlaotError(f"{arguments[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise MlaotError(f"it did not end within {timeout} s") from None
    if result.returncode:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        sys.stderr.write(f"{shlex.join(arguments)}\n{result.stderr if len(lines) > 1 else ''}")
        lines = [line for line in lines if not line.startswith("collect2: ")] or lines  # says only that ld failed
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise MlaotError(errors[0] if errors else f"exit status {result.returncode}")
    return result.stdout
