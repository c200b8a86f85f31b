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

from mlaot.build.cmake import COMMON_FLAGS, contraction, unit_flags
from mlaot.errors import MlaotError
from mlaot.lower.isa import Isa

TRIAL = "#include <stddef.h>\n#include <string.h>\nsize_t mlaot_trial(const char *s) { return strlen(s); }\n"


def check_interpreter() -> None:
    """The extension modules use the stable ABI of CPython with a global lock."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        kind = "a free-threaded build" if sys.implementation.name == "cpython" else sys.implementation.name
        raise MlaotError(f"a cp311-abi3 wheel needs CPython with the GIL; {sys.executable} is {kind}")


def find_compiler(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The C compiler as a command, tried on three lines of C: ``$CC``, else the first of cc, gcc and clang."""
    path = environ.get("PATH")
    if environ.get("CC"):
        command = shlex.split(environ["CC"])
        if shutil.which(command[0], path=path) is None:
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
    """Compile and link three lines."""
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        source = Path(folder, "trial.c")
        source.write_text(TRIAL)
        arguments = [*command, *flags(environ, "CFLAGS"), "-fPIC", "-shared", str(source), "-o", f"{folder}/trial.so"]
        try:
            run(arguments, environ)
        except MlaotError as error:
            raise MlaotError(f"the C compiler {shlex.join(command)!r} does not work: {error}") from None


def compile_module(
    folder: Path, stem: str, isas: Iterable[str], library: Path, command: list[str], *, deterministic: bool = False
) -> None:
    """Compile ``folder/<stem>*.c`` into ``library``, with the same flags as with CMake."""
    environ = os.environ
    units = unit_flags(stem, isas if is_x86_64(command) else (), deterministic)
    user = flags(environ, "CFLAGS")
    link = (
        ["-undefined", "dynamic_lookup", "-Wl,-x"]
        if sys.platform == "darwin"
        else ["-fno-fast-math", "-fno-lto", "-s", "-Wl,-z,noseparate-code"]
    )
    with tempfile.TemporaryDirectory(prefix="mlaot-") as objects:

        def compile_unit(name: str) -> str:
            made = f"{objects}/{name}.o"
            options = [*user, "-DNDEBUG", "-fPIC", *units[name], "-w", f"-Wa,-I{folder}"]
            run([*command, *options, "-c", str(folder / f"{name}.c"), "-o", made], environ)
            return made

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            made = list(pool.map(compile_unit, units))
        library.parent.mkdir(parents=True, exist_ok=True)
        run([*command, *user, "-shared", *made, *flags(environ, "LDFLAGS"), *link, "-o", str(library)], environ)


def compile_kernels(source: Path, isa: Isa, library: Path, command: list[str]) -> None:
    """Compile one file of kernels for one instruction set into ``library``, with the flags that it would have there."""
    options = [
        *flags(os.environ, "CFLAGS"),
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
    return "__x86_64__" in run([*command, *flags(os.environ, "CFLAGS"), "-dM", "-E", "-x", "c", os.devnull], os.environ)


def flags(environ: Mapping[str, str], name: str) -> list[str]:
    """The user's flags of an environment variable."""
    return shlex.split(environ.get(name, ""))


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
        said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
        raise MlaotError(said or f"exit status {result.returncode}")
    return result.stdout
