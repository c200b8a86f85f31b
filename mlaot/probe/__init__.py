"""Built modules, asked in processes of their own: what was compiled may be killed by the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError
from mlaot.stored import parse_json

TYPES = {str: str}
# What each module says of itself, as far as commands look into it.
INFO = {
    **{
        "name": str,
        "isas": [str],
        "deterministic": bool,
        "dims": [str],
        "entries": {str: {"inputs": TYPES, "outputs": TYPES}},
    },
    **{"parameters": TYPES, "buffers": TYPES, "optimizer_state": TYPES, "parameter_count": int},
    **{"bytes": {"constants": int, "state": int}},
}
SHAPES = {"info": INFO, "values": {"info": INFO, "refused": TYPES}}
SCRIPT = Path(__file__).with_name("script.py")


@dataclass(frozen=True)
class Module:
    """An extension module: its dotted name, and its file unless Python is to find it by its name."""

    name: str
    file: Path | None = None

    @property
    def abi(self) -> str:
        """What its file's name says of the Python that it is for: ``abi3``."""
        return ".".join(self.file.name.split(".")[1:-1]) if self.file else ""


def ask(module: Module, question: str, isa: str | None = None, **more: object) -> dict[str, Any]:
    """What ``script.py`` answers about a module in a process of its own; a ``MlaotError`` where it cannot."""
    environ = {**os.environ, **({"MLAOT_ISA": isa} if isa else {})}
    file = None if module.file is None else str(module.file.resolve())
    text = json.dumps({"name": module.name, "file": file, "ask": question, **more})
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT)], input=text, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode < 0:
        raise MlaotError(f"{module.name}: the process that imported it was killed by signal {-done.returncode}")
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise MlaotError(f"{module.name} cannot be imported here: {said[0]}")
    answer: dict[str, Any] = parse_json(done.stdout, SHAPES.get(question, dict), f"what {module.name} says of itself")
    return answer
