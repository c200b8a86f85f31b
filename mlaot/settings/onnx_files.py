"""Find the ONNX files of ``[tool.mlaot.onnxruntime]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlaot.checked_json import read_json
from mlaot.errors import MlaotError
from mlaot.settings import FILE, FROZEN, ONNX_FILES, ONNXRUNTIME
from mlaot.settings.patterns import find_files

KEY = f"key 'files' in {ONNXRUNTIME} of {FILE}"


def find_onnx_files(project: Path, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the files, relative to the project, in the order of the patterns.

    An sdist with the generated C lists the files and need not contain them.
    """
    frozen = project / FROZEN / ONNX_FILES
    if frozen.is_file():
        return tuple(read_json(frozen, [str], f"{FROZEN}/{ONNX_FILES}"))
    files = tuple(
        dict.fromkeys(file for pattern in patterns for file in find_files(project, pattern, KEY, "models/*.onnx"))
    )
    if others := [file for file in files if not file.endswith(".onnx")]:
        raise MlaotError(
            f"{KEY}: {others[0]!r} is not an .onnx file; expected patterns of .onnx files only, such as '*.onnx'"
        )
    return files
