"""Query built modules in separate processes, since compiled code for another CPU may be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlaot.checked_json import parse_json
from mlaot.errors import MlaotError

TYPES = {str: str}
# The part of a module's ``info()`` that commands read.
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
class BuiltModule:
    """An extension module: its dotted name, and its file unless Python finds it by name."""

    name: str
    file: Path | None = None

    @property
    def abi(self) -> str:
        """Return the ABI that the file's name states: ``abi3``."""
        return ".".join(self.file.name.split(".")[1:-1]) if self.file else ""


def ask(module: BuiltModule, question: str, isa: str | None = None, **details: object) -> dict[str, Any]:
    """Return the answer of ``script.py`` about a module, from a separate process; raise an error if it fails."""
    environ = {**os.environ, **({"MLAOT_ISA": isa} if isa else {})}
    file = None if module.file is None else str(module.file.resolve())
    text = json.dumps({"name": module.name, "file": file, "ask": question, **details})
    process = subprocess.run(
        [sys.executable, "-P", str(SCRIPT)], input=text, env=environ, capture_output=True, text=True, check=False
    )
    if process.returncode < 0:
        raise MlaotError(f"{module.name}: the process that imported it was killed by signal {-process.returncode}")
    if process.returncode:
        error = process.stderr.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise MlaotError(f"{module.name} cannot be imported here: {error[0]}")
    answer: dict[str, Any] = parse_json(
        process.stdout, SHAPES.get(question, dict), f"what {module.name} says of itself"
    )
    return answer
