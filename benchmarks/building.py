"""What a build costs beyond packing a wheel: ``pip wheel`` of examples/xor beside an empty C extension's.

    python benchmarks/building.py

The yardstick is scikit-build-core with its own CMake project of one empty function, in the same environment, without
isolation. mlaot builds with its cache off, and again with nothing changed. Rounds take turns; medians. Install mlaot
with ``pip install .`` first, as users have it: an editable install compiles its templates in each build.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import out

XOR = Path(__file__).parents[1] / "examples" / "xor"
EMPTY = {
    "pyproject.toml": """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"

[project]
name = "empty"
version = "1.0"
""",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.18...4.0)
project(${SKBUILD_PROJECT_NAME} LANGUAGES C)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
python_add_library(_empty MODULE empty.c WITH_SOABI)
install(TARGETS _empty DESTINATION empty)
""",
    "empty.c": """\
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_empty", 0, 0, 0};
PyMODINIT_FUNC PyInit__empty(void) { return PyModule_Create(&definition); }
""",
    "src/empty/__init__.py": "",
}


def seconds(project: Path, cache: str) -> float:
    """The wall time of one ``pip wheel``."""
    command = ["-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", f"{project}-out"]
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, *command, str(project)],
        check=True,
        env=environ | {"MLAOT_CACHE": cache},
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - begun


def main(rounds: int = 7) -> None:
    with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
        folder = Path(name)
        empty, xor = folder / "empty", folder / "xor"
        for file, text in EMPTY.items():
            path = empty / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        shutil.copytree(XOR, xor, ignore=shutil.ignore_patterns("build", "__pycache__"))
        cases = {
            "scikit-build-core, an empty C extension": (empty, "off"),
            "mlaot, xor, nothing cached": (xor, "off"),
            "mlaot, xor, nothing changed": (xor, str(folder / "cache")),
        }
        for project, cache in cases.values():  # files that Python and the system read are warm
            seconds(project, cache)
        found: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(rounds):
            for case, (project, cache) in cases.items():
                found[case].append(seconds(project, cache))
        medians = {case: statistics.median(times) for case, times in found.items()}
        yardstick = next(iter(medians.values()))
        for case, median in medians.items():
            out(f"{case:42}{median:6.2f} s  {median - yardstick:+.2f} s")


if __name__ == "__main__":
    main()
