"""The loops in which kernels spend their time, as instructions: what ``objdump`` shows of a compiled library.

Of each function the innermost loop with the most instructions on vectors counts, since tiles are unrolled there. Where
there is no ``objdump``, there are no loops.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FUNCTION = re.compile(r"^[0-9a-f]+ <(\w+)(?:\.\w+)*>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*?)\s*(?:#.*)?$")
JUMP = re.compile(r"^(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\b.*?\b([0-9a-f]+) <")
VECTOR = re.compile(r"%[xyz]mm|\bv\d+\.")
LONGEST = 400  # instructions of a loop that is shown


def hot_loops(library: bytes) -> dict[str, list[str]]:
    """Return the instructions of the hottest loop of each function that has one."""
    objdump = shutil.which("objdump")
    if objdump is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        path = Path(folder) / "library"
        path.write_bytes(library)
        command = [objdump, "-d", "--no-show-raw-insn", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    functions: dict[str, list[tuple[int, str]]] = {}
    instructions: list[tuple[int, str]] = []
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            instructions = functions.setdefault(match[1], [])
        elif match := INSTRUCTION.match(line):
            instructions.append((int(match[1], 16), re.sub(r"\s+", " ", match[2])))
    return {name: loop for name, body in functions.items() if (loop := _hottest(body))}


def _hottest(instructions: list[tuple[int, str]]) -> list[str]:
    """Return the loop without a loop inside that has the most instructions on vectors."""
    places = {address: i for i, (address, _) in enumerate(instructions)}
    loops: list[tuple[int, int]] = []
    for i, (_, instruction) in enumerate(instructions):
        target = JUMP.match(instruction)
        start = places.get(int(target[1], 16)) if target else None
        if start is not None and start <= i < start + LONGEST:
            loops.append((start, i))
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    bodies = [[instruction for _, instruction in instructions[a : b + 1]] for a, b in inner]
    return max(bodies, key=lambda body: sum(bool(VECTOR.search(each)) for each in body), default=[])
