"""Write and check checksums of the C in an sdist, as a truncated or lost file may still compile to a broken wheel.

``SHA256SUMS`` has the format of the program sha256sum, so that whoever patches the C can write the file again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from mlaot.errors import MlaotError

SUMS = "SHA256SUMS"


def write_checksums(folder: Path) -> None:
    """Write a line for each file of the folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    (folder / SUMS).write_bytes("".join(f"{digest(folder / name)}  {name}\n" for name in names).encode())


def verify_checksums(folder: Path) -> None:
    """Raise unless every file is there and unchanged."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines() if (folder / SUMS).is_file() else [f"  {SUMS}"]
    for expected, _, name in (line.partition("  ") for line in lines):
        if expected != digest(folder / name):
            state = "changed" if (folder / name).is_file() else "lost"
            raise MlaotError(
                f"{folder.name}/{name}, which came with the sdist, is {state}; unpack the sdist anew, or delete"
                f" {folder.name} to trace the model again"
            )


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or ``-`` if it is missing."""
    if not path.is_file():
        return "-"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
