"""Targets of wheels: stable ABIs of Python, platforms, and zig's names of platforms.

zig is a cross-compiler, so any machine can build for any platform.
"""

from __future__ import annotations

import platform as machine_of
import re
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass

from mlaot.errors import MlaotError, did_you_mean
from mlaot.render import template_text

# The stable ABIs as tags of wheels: of a Python with the global lock, and of one with or without it.
ABIS = ABI3, ABI3T = "cp311-abi3", "cp315-abi3t"

# Tags of wheels that fit wherever the system is not older than CentOS 7, Alpine 3.13 or the first macOS for ARM.
EVERYWHERE = (
    "manylinux_2_17_x86_64",
    "manylinux_2_17_aarch64",
    "musllinux_1_2_x86_64",
    "musllinux_1_2_aarch64",
    "macosx_11_0_x86_64",
    "macosx_11_0_arm64",
    "win_amd64",
    "win_arm64",
)
OLDEST = {"manylinux": (2, 17), "musllinux": (1, 2), "macosx": (11, 0)}
ANY = "any"  # of the wheel in plain Python, which pip takes where no other fits
TAG = re.compile(r"(?:(manylinux|musllinux|macosx)_(\d+)_(\d+)|win)_(x86_64|aarch64|amd64|arm64)")
LEGACY = {"manylinux2014": "manylinux_2_17"}


@dataclass(frozen=True)
class Platform:
    """A wheel's platform ``tag``, its ``system`` (linux, musl, macos or windows), and zig's ``target``.

    ``any`` has neither system nor target: its modules are plain Python.
    """

    tag: str
    system: str
    target: str

    @property
    def machine(self) -> str:
        """Return the processor's architecture: x86_64 or aarch64."""
        return self.target.partition("-")[0]


def parse_platform(tag: str) -> Platform:
    """Parse the platform tag of a wheel."""
    if tag == ANY:
        return Platform(ANY, "", "")
    for old, new in LEGACY.items():
        tag = tag.replace(f"{old}_", f"{new}_")
    match = TAG.fullmatch(tag)
    family = (match[1] or "win") if match else ""
    # Each system has its own names of the same processors.
    machines = {"win": ("amd64", "arm64"), "macosx": ("x86_64", "arm64")}.get(family, ("x86_64", "aarch64"))
    if match is None or match[4] not in machines:
        hint = did_you_mean(tag, (*EVERYWHERE, ANY))
        tags = ", ".join((*EVERYWHERE, ANY))
        raise MlaotError(f"platform {tag!r}: expected the tag of a wheel such as {tags}{hint}")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(match[4], match[4])
    if family == "win":
        return Platform(tag, "windows", f"{machine}-windows-gnu")
    version, oldest_version = (int(match[2]), int(match[3])), OLDEST[family]
    if version < oldest_version:
        oldest = f"{family}_{oldest_version[0]}_{oldest_version[1]}_{match[4]}"
        raise MlaotError(f"platform {tag!r}: expected at least {oldest}, which runs on all newer systems too")
    if family == "musllinux":
        return Platform(tag, "musl", f"{machine}-linux-musl")
    system, target = ("linux", "linux-gnu") if family == "manylinux" else ("macos", "macos")
    return Platform(tag, system, f"{machine}-{target}.{version[0]}.{version[1]}")


def is_python(platform: Platform | None) -> bool:
    """Tell whether the modules of a platform's wheel are plain Python."""
    return platform is not None and platform.tag == ANY


def targets_of(platforms: Sequence[Platform | None], abis: Sequence[str]) -> list[tuple[Platform | None, str]]:
    """Return the pairs of platform and stable ABI that wheels are made for. Plain Python has one wheel for all ABIs."""
    return [(platform, abi) for platform in platforms for abi in (abis[:1] if is_python(platform) else abis)]


def parse_abi(tag: str) -> str:
    """Return the tag of a stable ABI; raise ``MlaotError`` if the text is not one."""
    if tag not in ABIS:
        raise MlaotError(f"ABI {tag!r}: expected {' or '.join(ABIS)}{did_you_mean(tag, ABIS)}")
    return tag


def abi_name(abi: str) -> str:
    """Return ``abi3`` for ``cp311-abi3``."""
    return abi.partition("-")[2]


def module_suffix(abi: str, platform: Platform | None) -> str:
    """Return the suffix of an extension module. On Windows a platform is always set, since zig compiles."""
    return ".pyd" if platform and platform.system == "windows" else f".{abi_name(abi)}.so"


def this_platform() -> Platform:
    """Return the platform of this machine's wheels when zig compiles them."""
    name, _, rest = sysconfig.get_platform().partition("-")
    machine = rest.rpartition("-")[2]
    if name == "linux":
        family = "manylinux_2_17" if machine_of.libc_ver()[0] == "glibc" else "musllinux_1_2"
        return parse_platform(f"{family}_{machine}")
    return parse_platform(f"macosx_11_0_{machine}" if name == "macosx" else f"{name}_{machine}")


def python_library(abi: str) -> str:
    """Return the name of the library of Windows that exports a stable ABI: python3 or python3t."""
    return f"python{abi_name(abi).removeprefix('abi')}"


def python_exports(library: str) -> str:
    """Return a module definition file of ``library`` with the names that compiled models declare."""
    declarations = re.sub(r"//[^\n]*", "", template_text("mlaot_abi3.h")).partition("} Py_buffer;")[2]
    lines = [f"NAME {library}.dll", "EXPORTS"]
    for statement in declarations.split(";"):
        if "PY_DATA" in statement:
            lines += [f"    {name} DATA" for name in re.findall(r"\b_?Py\w+(?=\s*(?:,|$))", statement)]
        else:
            lines += [f"    {name}" for name in re.findall(r"\b(_?Py\w+)\(", statement)]
    return "\n".join(lines) + "\n"
