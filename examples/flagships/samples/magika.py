"""What kinds of files those of Python's library are."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = 120


def make(folder: Path) -> None:
    """List the files."""
    root = Path(sysconfig.get_path("stdlib"))
    found = [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.stat().st_size and not {"__pycache__", "site-packages"} & {*path.parts}
    ]
    (folder / "files.txt").write_text("\n".join(map(str, found[:: max(1, len(found) // FILES)])))


def steps(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield their kinds, one after the other, and of all in one call."""
    from magika import Magika

    paths = (folder / "files.txt").read_text().splitlines()
    model = Magika()
    yield "first", plain(model.identify_path(paths[0]))
    yield "each", [plain(model.identify_path(path)) for path in paths]
    yield "all", [plain(result) for result in model.identify_paths(paths)]


def plain(result: Any) -> list[Any]:
    """Return a label and its score."""
    return [str(result.output.label), float(result.score)]
