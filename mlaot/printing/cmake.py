"""The compiler flags of every generated C file, and the CMake files that pass them to the compiler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files

from mlaot.printing.c_files import public_files
from mlaot.render import render
from mlaot.schedule.machine import MACHINES
from mlaot.settings import METADATA, WEIGHTS, ModelSettings, Settings

# A distribution's own CFLAGS come before these, so what the kernels cannot live with is taken back first. Link-time
# optimization would merge code across instruction sets; -ffast-math would flush denormals for the whole process.
COMMON_FLAGS = (
    "-fno-lto",
    "-fno-fast-math",
    "-std=gnu11",
    "-O2",
    # Kernels use vectors already. From version 12 on, gcc looks for more. It then keeps the elements that neighbouring
    # windows share from one step of a sum to the next, instead of loading them again: LeNet takes a sixth longer.
    "-fno-tree-vectorize",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables",
    # gcc 12 computes one pointer in a loop from another's steps, then assumes that it points to no object, and drops
    # calls of functions that only write there.
    "-fno-delete-null-pointer-checks",
)
# Further ones of the file that talks to Python. With -Og it compiles in half of the time, but calls take 15 ns more.
INTERFACE_FLAGS: tuple[str, ...] = ()


def contraction(deterministic: bool) -> str:
    """Tell whether a product and a sum may be contracted to one instruction, which not every CPU has."""
    return f"-ffp-contract={'off' if deterministic else 'fast'}"


def unit_flags(
    stem: str, isas: Iterable[str], deterministic: bool, c_library: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return the C files of a module, without ``.c``, and the flags of each: the interface, then the instruction sets.

    With ``c_library`` C's interface comes last.
    """
    common = (*COMMON_FLAGS, contraction(deterministic))
    kernels = {f"{stem}_{name}": (*common, *MACHINES[name].flags) for name in isas}
    library = {f"{stem}_c": (*common, *INTERFACE_FLAGS)} if c_library else {}
    return {stem: (*common, *INTERFACE_FLAGS)} | kernels | library


def flag_files(model: ModelSettings, isas: Iterable[str]) -> dict[str, str]:
    """Return ``nn.flags`` beside ``nn.c``, and so on, which any build tool can pass to a compiler as ``@nn.flags``."""
    return _texts(unit_flags(model.stem, isas, model.deterministic, model.c_library))


def module_files(model: ModelSettings, isas: Iterable[str]) -> list[str]:
    """Return the names of all files of a module, which are known before tracing, the C files first."""
    isas = tuple(isas)
    stem = model.stem
    names = [f"{unit}.c" for unit in unit_flags(stem, isas, model.deterministic, model.c_library)]
    weights = model.weights_file if model.weights == "file" else WEIGHTS
    public = public_files(model.module) if model.c_library else ()
    return [*names, *flag_files(model, isas), f"{stem}.h", "mlaot_abi3.h", weights, METADATA, f"{stem}.pyi", *public]


def runtime_flags(name: str) -> dict[str, str]:
    """Return the flags of the file of a runtime that models share, as ``flag_files``."""
    return _texts(unit_flags(name.rpartition(".")[2], (), deterministic=False))


def _texts(units: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {f"{unit}.flags": "\n".join(flags) + "\n" for unit, flags in units.items()}


def cmake_files(settings: Settings) -> dict[str, str]:
    """Return the CMake files and flags that compile the folder of ``<module>/<stem>.c`` and its neighbours."""

    def sources(model: ModelSettings) -> list[str]:
        names = module_files(replace(model, c_library=False), settings.isas)
        return [name for name in names if name.endswith((".c", ".bin"))]

    def beside(model: ModelSettings) -> list[str]:
        return [name for name in module_files(model, settings.isas) if name.endswith((".pyi", ".weights"))]

    helpers = {"sources": sources, "beside": beside, "public_files": public_files}
    sessions = settings.onnxruntime.module if settings.onnxruntime else ""
    modules = {"models": settings.models, "runtime": settings.runtime, "sessions": sessions}
    return {
        "CMakeLists.txt": render("CMakeLists.txt.j2", **modules, **helpers),
        "mlaot_library.cmake": (files("mlaot.cmake") / "mlaot_library.cmake").read_text(encoding="utf-8"),
    }
