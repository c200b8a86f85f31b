"""The files of a C library for its users, known before tracing, and their places in the folder of a wheel's package."""

from __future__ import annotations


def public_files(module: str) -> dict[str, str]:
    """Return the header and the CMake package of a library, by their names beside the C, with their places.

    ``find_package(digits CONFIG)`` finds them below the folder ``digits``, and below the one that holds it.
    """
    top, prefix = module.partition(".")[0], module.replace(".", "_")
    return {
        f"{prefix}.h": f"include/{prefix}.h",
        f"{prefix}Targets.cmake": f"lib/cmake/{top}/{prefix}Targets.cmake",
        f"{top}Config.cmake": f"lib/cmake/{top}/{top}Config.cmake",
    }


def library_place(module: str, *, windows: bool) -> str:
    """Return the place of the library itself."""
    prefix = module.replace(".", "_")
    return f"lib/{prefix}.lib" if windows else f"lib/lib{prefix}.a"
