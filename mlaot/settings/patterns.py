"""Find the files of a project that match a pattern in its pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from mlaot.errors import MlaotError


def find_files(project: Path, pattern: str, key: str, example: str) -> list[str]:
    """Return the files that match a pattern, as paths relative to the project.

    No match, an invalid pattern or a file outside of the project raises ``MlaotError``.

    ``key`` is the name of the key in messages, and ``example`` a valid pattern.
    """
    root = project.resolve()
    try:
        found = sorted(path for path in project.glob(pattern) if path.is_file())
        outside = [path for path in found if not path.resolve().is_relative_to(root)]  # links followed
    except (OSError, ValueError, RuntimeError, NotImplementedError, IndexError):  # a pattern of another root, say
        raise MlaotError(
            f"{key}: expected a pattern of files within the project, such as {example!r}; got {pattern!r}"
        ) from None
    if outside:
        name = os.path.relpath(outside[0], project)
        raise MlaotError(f"{key}: {name!r} lies outside of the project; copy it there")
    if not found:
        raise MlaotError(f"{key}: no file of the project matches {pattern!r}")
    return [PurePath(os.path.relpath(path, project)).as_posix() for path in found]
