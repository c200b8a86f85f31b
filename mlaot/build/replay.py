"""Replay golden vectors on a compiled module before it is packed."""

from __future__ import annotations

import json
import os
import platform as machine_of
import subprocess
import sys
from pathlib import Path

from mlaot.build.platforms import ABI3, ABI3T, Platform, this_platform
from mlaot.build.toolchain import ask_compiler, is_free_threaded
from mlaot.errors import MlaotError

# Runs in a process of its own: the CPU may kill compiled code, and packages are not importable during a build.
SELFTEST = """\
import json, pathlib, sys
from mlaot.probe.beside import load_file
module = load_file(sys.argv[1], pathlib.Path(sys.argv[2]))
print(json.dumps(module.selftest() if hasattr(module, "selftest") else {}))
"""


def replay(
    name: str, library: Path, command: list[str], platform: Platform | None, abi: str = ABI3
) -> dict[str, float] | None:
    """Check a module against its golden vectors on each instruction set of this machine.

    Return the largest errors as shares of their bounds, by instruction set. If the module is not for this machine or
    this Python, say so and return None.
    """
    if not is_importable(abi):
        print(f"mlaot: {name} was not replayed: {abi} is not of this Python; run `mlaot check` with one that has it")
        return None
    if not runs_here(command, platform):
        target = platform.tag if platform else "another machine"
        print(f"mlaot: {name} was not replayed: it is for {target}; run `mlaot check` on the wheel there", flush=True)
        return None
    return replay_file(name, library, f"as compiled by {command[0]}")


def replay_file(name: str, library: Path, origin: str) -> dict[str, float]:
    """Check a module's file against its golden vectors; errors say its ``origin``."""
    arguments = [sys.executable, "-P", "-c", SELFTEST, name, str(library)]
    process = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if process.returncode:
        error = process.stderr.strip().splitlines()[-1:] or [f"killed by signal {-process.returncode}"]
        what = f"{name}, {origin}, does not give the model's answers: {error[0]}"
        raise MlaotError(
            f"{what}; `mlaot bisect` shows where that begins; if the model amplifies rounding, give typical inputs"
            " with the key `sample`, or set the key `unchecked` to that reason"
        )
    shares: dict[str, float] = json.loads(process.stdout)
    if shares:
        text = ", ".join(f"{isa} {100 * share:.1f} %" for isa, share in shares.items())
        print(f"mlaot: {name} gives the model's answers; largest error, as a share of its bound: {text}")
    else:
        print(f"mlaot: {name} was not replayed: it has no golden vectors")
    return shares


def is_importable(abi: str) -> bool:
    """Tell whether this interpreter can import a module of that stable ABI."""
    return sys.version_info >= (3, 15) if abi == ABI3T else not is_free_threaded()


def runs_here(command: list[str], platform: Platform | None) -> bool:
    """Tell whether the compiler's output runs on this machine."""
    if platform is not None:
        try:
            own = this_platform()
        except MlaotError:
            return False
        return (platform.system, platform.machine) == (own.system, own.machine)
    machine = ask_compiler(*command, "-dumpmachine").partition("-")[0].replace("arm64", "aarch64")
    same = machine == machine_of.machine().lower().replace("arm64", "aarch64").replace("amd64", "x86_64")
    return same and not os.environ.get("ARCHFLAGS")
