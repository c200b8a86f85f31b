"""A wheel where there is no compiler, within a minute: ``python -m benchmarks.bare``, on Linux.

The benchmark makes a mount namespace that hides compilers, assemblers, linkers, CMake, ninja, make and all C headers,
Python's included. There, ``pip wheel`` builds examples/digits/serve in isolation, with mlaot's own wheel of this
checkout and everything else from the package index. It does so twice: first with empty caches of pip and zig, then with
full ones. The module's answers are compared with the model's. Needs ``unshare`` and ``mount`` of util-linux, as root or
where users may make namespaces.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

import mlaot
from tests.build.conftest import Python, build_own_wheel, pinned
from tests.docs.make_doors import MODEL, answers, expected

from .common import out, table

LIMIT = 60
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = re.compile(
    r"(.+-)?(cc|c89|c99|cpp|c\+\+|gcc|g\+\+|clang|clang\+\+|tcc|as|ld|ld\.(bfd|gold|lld)|gold|lld|ar|ranlib|strip)(-[\d.]+)?"
    r"|(gcc|llvm)-.+|cmake|ctest|ninja|g?make|meson|zig"
)
FOLDERS = ("usr/include", "usr/local/include", "usr/lib/gcc*", "usr/libexec/gcc*", "usr/lib/llvm*")
FIRST = "mlaot, NumPy and the rest"
STAGES = {
    "Installing backend dependencies: started": "zig",
    "Building wheel for digits (pyproject.toml): started": "the wheel",
    "Building wheel for digits (pyproject.toml): finished": "clearing up",
}


def hide() -> None:
    """Put nothing in the place of each tool and each folder of headers; only this namespace sees it."""
    programs = {path.resolve() for folder in PATH.split(":") for path in Path(folder).glob("*")}
    named = {path for path in programs if TOOLS.fullmatch(path.name) and path.is_file()}
    folders = {path.resolve() for pattern in FOLDERS for path in Path("/").glob(pattern)}
    for path in named:
        subprocess.run(["mount", "--bind", os.devnull, path], check=True)
    for path in {*folders, Path(sysconfig.get_path("include"))}:
        if path.is_dir():
            subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
    for name in ("cc", "gcc", "clang", "as", "ld", "ar", "cmake", "ninja", "make", "zig"):
        assert shutil.which(name, path=PATH) is None, f"{name} is still there"
    headers = (Path("/usr/include/stdio.h"), Path(sysconfig.get_path("include"), "Python.h"))
    assert not any(header.exists() for header in headers)


def pip_wheel(folder: Path, target: Path, environ: dict[str, str]) -> dict[str, float]:
    """Seconds of the stages of a build, of all of it, and of CPU."""
    command = [folder / "pip" / "bin" / "python", "-m", "pip", "wheel", "--no-deps", folder / "digits", "-w", target]
    begin, used = time.perf_counter(), cpu_seconds()
    seconds, stage, since = dict[str, float](), FIRST, begin
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            out(f"{time.perf_counter() - begin:5.1f} s  {line.rstrip()}")
            if (following := next((name for text, name in STAGES.items() if text in line), None)) is not None:
                seconds[stage] = time.perf_counter() - since
                stage, since = following, time.perf_counter()
    seconds[stage] = time.perf_counter() - since
    assert pip.returncode == 0, "no wheel was made"
    return seconds | {"all": time.perf_counter() - begin, "CPU time": cpu_seconds() - used}


def cpu_seconds() -> float:
    """What all processes took that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def inside(folder: Path) -> None:
    """In the namespace: twice a wheel, its answers, a table."""
    hide()
    (own_wheel,) = (folder / "own").glob("*.whl")
    environ = {name: value for name, value in os.environ.items() if name not in ("CC", "CFLAGS", "LDFLAGS")}
    environ |= pinned(own_wheel, folder) | {"PATH": PATH, "XDG_CACHE_HOME": str(folder / "cache")}
    environ |= {"PIP_CACHE_DIR": str(folder / "cache" / "pip"), "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache" / "zig")}
    found = {name: pip_wheel(folder, folder / name, environ) for name in ("first", "again")}
    (made,) = (folder / "first").iterdir()
    venv.create(folder / "empty", symlinks=True)
    python = Python(folder / "empty" / "bin" / "python")
    installer = Python(folder / "pip" / "bin" / "python")
    installer.check("-m", "pip", "--python", python.executable, "install", "-q", "--no-index", made, cwd=folder)
    np.testing.assert_allclose(answers(python, folder), expected(), rtol=1e-5)
    version = installer.check("-m", "pip", "--version", cwd=folder).split()[1]
    out(f"\nPython {platform.python_version()}, pip {version}, mlaot {mlaot.__version__}, {os.cpu_count()} CPUs")
    out(f"{made.name}, {made.stat().st_size:,} bytes, answers as the model does\n")
    rows = [[stage, *(f"{run[stage]:.1f} s" for run in found.values())] for stage in found["first"]]
    table(("", *found), rows)
    if found["first"]["all"] > LIMIT:
        raise SystemExit(f"more than {LIMIT} s")


def main() -> None:
    """Prepare outside of the namespace what needs a compiler or is not to be timed; then go in."""
    with tempfile.TemporaryDirectory(prefix="mlaot-bare-") as temporary:
        folder = Path(temporary)
        build_own_wheel(folder / "own")
        venv.create(folder / "pip", with_pip=True, symlinks=True)
        shutil.copytree(MODEL, folder / "digits", ignore=shutil.ignore_patterns("build"))
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        again = [sys.executable, "-m", "benchmarks.bare", str(folder)]
        raise SystemExit(subprocess.run(["unshare", "--mount", *user, *again], check=False).returncode)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        inside(Path(sys.argv[1]))
    else:
        main()
