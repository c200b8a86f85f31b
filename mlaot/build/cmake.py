"""The flags of every generated C file, and the CMakeLists.txt that says them to CMake."""

from __future__ import annotations

from mlaot.lower.isa import ISAS
from mlaot.render import render
from mlaot.settings import Settings

# A distribution's own CFLAGS come before these, so what the kernels cannot live with is taken back first. Link-time
# optimization would merge code across instruction sets; -ffast-math would flush denormals for the whole process.
COMMON_FLAGS = (
    "-fno-lto",
    "-fno-fast-math",
    "-std=gnu11",
    "-O2",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables",
    # gcc 12 counts one pointer through a loop by another's steps, then takes what it points to for nothing at all, and
    # drops calls of functions that only write there.
    "-fno-delete-null-pointer-checks",
)
# The file that talks to Python computes nothing: more than -O1 doubles its compile time and makes no call faster.
INTERFACE_FLAGS = ("-O1",)


def contraction(deterministic: bool) -> str:
    """Whether a product and a sum may be rounded once, as one instruction that not every CPU has."""
    return f"-ffp-contract={'off' if deterministic else 'fast'}"


def cmake_files(settings: Settings) -> dict[str, str]:
    """``{"CMakeLists.txt": text}`` for the folder that holds ``<module>/<stem>.c`` and its neighbours."""
    extra = [ISAS[name] for name in settings.isa if name != "base"]
    text = render(
        "CMakeLists.txt.j2",
        common_flags=COMMON_FLAGS,
        interface_flags=INTERFACE_FLAGS,
        isas=extra,
        models=settings.models,
        contraction=contraction,
    )
    return {"CMakeLists.txt": text}
