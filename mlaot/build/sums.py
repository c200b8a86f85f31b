"""Checksums of the C in an sdist: what is cut short or lost may still compile, to a wheel without its module.

``SHA256SUMS`` is what sha256sum writes and checks: whoever patches the C writes it anew.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from mlaot.errors import MlaotError

SUMS = "SHA256SUMS"


def write_sums(folder: Path) -> None:
    """A line for each file of the folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    (folder / SUMS).write_bytes("".join(f"{digest(folder / name)}  {name}\n" for name in names).encode())


def check_sums(folder: Path) -> None:
    """Every file is there, and as it was."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines() if (folder / SUMS).is_file() else [f"  {SUMS}"]
    for said, _, name in (line.partition("  ") for line in lines):
        if said != digest(folder / name):
            state = "changed" if (folder / name).is_file() else "lost"
            raise MlaotError(
                f"{folder.name}/{name}, which came with the sdist, is {state}; unpack the sdist anew, or delete"
                f" {folder.name} to trace the model again"
            )


def digest(path: Path) -> str:
    """Of a file's bytes; none where it is missing."""
    if not path.is_file():
        return "-"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
