"""The C compiler: find it before anything starts, and compile one model without CMake.

CMake would choose the same compiler; asking first turns forty lines of its output into one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlaot.build.cmake import COMMON_FLAGS, INTERFACE_FLAGS, contraction
from mlaot.errors import MlaotError
from mlaot.lower.isa import ISAS, Isa

TRIAL = """\
#ifdef __cplusplus
#error this compiles C++; CC must be a C compiler
#endif
#include <stddef.h>
#include <string.h>
size_t mlaot_trial(const char *s) { return strlen(s); }
"""
HEADERS = "; install the C library's headers (Debian: apt install libc6-dev, Alpine: apk add musl-dev)"


def check_interpreter() -> None:
    """The extension modules use the stable ABI of CPython with a global lock."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        kind = "a free-threaded build" if sys.implementation.name == "cpython" else sys.implementation.name
        raise MlaotError(
            f"a cp311-abi3 wheel needs CPython with the GIL; {sys.executable} is {kind}: build with another Python"
        )


def find_compiler(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The C compiler as a command, tried on a few lines of C: ``$CC``, else the first of cc, gcc and clang."""
    path = environ.get("PATH")
    if environ.get("CC"):
        command = words(environ, "CC")
        if not command or shutil.which(command[0], path=path) is None:
            raise MlaotError(f"no C compiler: CC is {environ['CC']!r}, which is not on PATH")
    else:
        found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name, path=path)), None)
        if found is None:
            raise MlaotError(
                "no C compiler: looked for $CC, cc, gcc and clang on PATH; install one (Debian: apt install gcc"
                " libc6-dev, Fedora: dnf install gcc, macOS: xcode-select --install) or set CC"
            )
        command = [found]
    try_compiler(command, environ)
    return command


def try_compiler(command: list[str], environ: Mapping[str, str]) -> None:
    """Compile and link a few lines."""
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        source = Path(folder, "trial.c")
        source.write_text(TRIAL)
        user, link = words(environ, "CFLAGS"), words(environ, "LDFLAGS")
        arguments = [*command, *user, "-fPIC", "-shared", str(source), *link, "-o", f"{folder}/trial.so"]
        try:
            run(arguments, environ)
        except MlaotError as error:
            given = "".join(f" with {name}={environ[name]!r}" for name in ("CFLAGS", "LDFLAGS") if environ.get(name))
            said = str(error).replace(f"{folder}/", "")
            hint = HEADERS if "string.h" in said else ""
            raise MlaotError(f"the C compiler {shlex.join(command)!r} does not work{given}: {said}{hint}") from None


def compile_module(
    folder: Path, stem: str, isas: Iterable[str], library: Path, command: list[str], *, deterministic: bool = False
) -> None:
    """Compile ``folder/<stem>*.c`` into ``library``, with the same flags as in CMakeLists.txt."""
    environ = os.environ
    extra = [ISAS[name] for name in isas if name != "base"] if is_x86_64(command) else []
    units: dict[str, tuple[str, ...]] = {"": INTERFACE_FLAGS, "_base": ()} | {
        f"_{isa.name}": isa.flags for isa in extra
    }
    user = words(environ, "CFLAGS")
    common = (*COMMON_FLAGS, contraction(deterministic))
    link = (
        ["-undefined", "dynamic_lookup", "-Wl,-x"]
        if sys.platform == "darwin"
        else ["-fno-fast-math", "-fno-lto", "-s", "-Wl,-z,noseparate-code"]
    )
    with tempfile.TemporaryDirectory(prefix="mlaot-") as objects:

        def compile_unit(name: str) -> str:
            made = f"{objects}/{stem}{name}.o"
            options = [*user, "-DNDEBUG", "-fPIC", *common, *units[name], "-w", f"-Wa,-I{folder}"]
            run([*command, *options, "-c", str(folder / f"{stem}{name}.c"), "-o", made], environ)
            return made

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            made = list(pool.map(compile_unit, units))
        library.parent.mkdir(parents=True, exist_ok=True)
        run([*command, *user, "-shared", *made, *words(environ, "LDFLAGS"), *link, "-o", str(library)], environ)


def compile_kernels(source: Path, isa: Isa, library: Path, command: list[str]) -> None:
    """Compile one file of kernels for one instruction set into ``library``, with the flags that it would have there."""
    options = [
        *words(os.environ, "CFLAGS"),
        "-DNDEBUG",
        "-fPIC",
        "-shared",
        *COMMON_FLAGS,
        contraction(False),
        *isa.flags,
    ]
    run([*command, *options, "-w", str(source), "-o", str(library)], os.environ)


def is_x86_64(command: list[str]) -> bool:
    """Whether the compiler's target, which need not be this machine, is x86-64."""
    return "__x86_64__" in run([*command, *words(os.environ, "CFLAGS"), "-dM", "-E", "-x", "c", os.devnull], os.environ)


def words(environ: Mapping[str, str], name: str) -> list[str]:
    """A command or flags in an environment variable of the user's."""
    try:
        return shlex.split(environ.get(name, ""))
    except ValueError as error:
        raise MlaotError(f"the environment variable {name} is {environ[name]!r}: {str(error).lower()}") from None


def run(arguments: list[str], environ: Mapping[str, str]) -> str:
    """Run a compiler; all it says goes to stderr, the line that matters into the error."""
    try:
        result = subprocess.run(
            arguments, env=dict(environ), capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise MlaotError(f"{arguments[0]}: {error.strerror}") from None
    if result.returncode:
        sys.stderr.write(f"{shlex.join(arguments)}\n{result.stderr}")
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("collect2: ")] or lines  # says that ld said something
        said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
        raise MlaotError(said or f"exit status {result.returncode}")
    return result.stdout
