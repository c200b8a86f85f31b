"""Find the ONNX files that ``[tool.mlaot.onnxruntime]`` means."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from mlaot.checked_json import read_json
from mlaot.errors import MlaotError
from mlaot.settings import FILE, FROZEN, ONNX_FILES, ONNXRUNTIME

KEY = f"key 'files' in {ONNXRUNTIME} of {FILE}"


def find_onnx_files(project: Path, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the files, relative to the project, in the order of the patterns.

    An sdist with the generated C need not have the files: it says which they were.
    """
    frozen = project / FROZEN / ONNX_FILES
    if frozen.is_file():
        return tuple(read_json(frozen, [str], f"{FROZEN}/{ONNX_FILES}"))
    files = tuple(dict.fromkeys(file for pattern in patterns for file in _matches(project, pattern)))
    if others := [file for file in files if not file.endswith(".onnx")]:
        raise MlaotError(f"{KEY}: {others[0]!r} is no .onnx file; expected patterns of these only, such as '*.onnx'")
    return files


def _matches(project: Path, pattern: str) -> list[str]:
    """Return the files that a pattern means, or refuse it."""
    root = project.resolve()
    try:
        found = sorted(path for path in project.glob(pattern) if path.is_file())
        outside = [path for path in found if not path.resolve().is_relative_to(root)]  # links followed
    except (OSError, ValueError, RuntimeError, NotImplementedError, IndexError):  # a pattern of another root, say
        raise MlaotError(f"{KEY}: {pattern!r} is no pattern of files of the project, such as 'models/*.onnx'") from None
    if outside:
        name = os.path.relpath(outside[0], project)
        raise MlaotError(f"{KEY}: {name!r} lies outside of the project; copy it there")
    if not found:
        raise MlaotError(f"{KEY}: no file of the project matches {pattern!r}")
    return [PurePath(os.path.relpath(path, project)).as_posix() for path in found]
