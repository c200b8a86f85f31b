"""From a wheel of the package index to a project that mlaot builds."""

from __future__ import annotations

import email
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from examples.flagships.table import Edit, Flagship

MODELS = "onnx"  # the project's folder of ONNX files, of which the wheel has but the compiled models
IMPORTS = (
    (r"^([ \t]*)import onnxruntime as ort\b", r"\1from {package} import ort"),
    (r"^([ \t]*)import onnxruntime as (\w+)", r"\1from {package} import ort as \2"),
    (r"^([ \t]*)import onnxruntime\b", r"\1from {package} import ort as onnxruntime"),
    (r"^([ \t]*)from onnxruntime((?:\.capi[\w.]*)?) import ", r"\1from {package}.ort\2 import "),
)
PYPROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "{name}"
version = "{version}"
requires-python = ">=3.11"
dependencies = {dependencies}

[tool.mlaot.onnxruntime]
files = ["{models}/**/*.onnx"]
module = "{package}.ort"
"""


class Stale(Exception):
    """A released version is not as the table says."""


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the packages of a wheel, without what tools wrote about it."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not re.match(r"[^/]+\.(dist-info|data)/", name):
                archive.extract(name, folder)


def dependencies(wheel: Path, flagship: Flagship) -> list[str]:
    """Return what the package needs, as its wheel and the table say, without onnxruntime."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    dropped = {"onnxruntime", *flagship.without}
    named = [(match[0].lower(), line) for line in found if (match := re.match(r"[\w.-]+", line))]
    kept = [line for name, line in named if name not in dropped and not re.search(r";.*\bextra\b", line)]
    return [*kept, *flagship.needs]


def apply(edits: Iterable[Edit], folder: Path) -> None:
    """Replace what ``edits`` say in the files below ``folder``."""
    for edit in edits:
        path = folder / edit.file
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise Stale(f"{edit.file}: expected {edit.old!r} once, found it {text.count(edit.old)} times")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def change_imports(folder: Path, package: str) -> list[str]:
    """Let the files below ``folder`` import ``package.ort`` in place of onnxruntime; return the changed lines."""
    changed = []
    for path in sorted(folder.rglob("*.py")):
        new = text = path.read_text(encoding="utf-8")
        for pattern, replacement in IMPORTS:
            new = re.sub(pattern, replacement.format(package=package), new, flags=re.MULTILINE)
        if new != text:
            path.write_text(new, encoding="utf-8")
        lines = zip(text.splitlines(), new.splitlines(), strict=True)
        name = path.relative_to(folder).as_posix()
        changed += [f"{name}: {after.strip()}  # was: {before.strip()}" for before, after in lines if before != after]
    return changed


def take_models(flagship: Flagship, project: Path) -> list[str]:
    """Move the ONNX files out of the package and leave empty ones; return their names."""
    root = project.joinpath(*flagship.package.split("."))
    found = sorted({path for pattern in flagship.models for path in root.glob(pattern)})
    if not found:
        raise Stale(f"{flagship.name} {flagship.version} has no {' or '.join(flagship.models)}")
    for path in found:
        target = project / MODELS / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        path.touch()
    return [path.relative_to(root).as_posix() for path in found]


def write_project(flagship: Flagship, wheel: Path, folder: Path, say: Callable[[str], object]) -> None:
    """Write the patched project of a package, with the wheel of the index as its source."""
    unpack(wheel, folder)
    apply(flagship.edits, folder)
    for line in change_imports(folder, flagship.package):
        say(line)
    for name in take_models(flagship, folder):
        say(f"compiles {name}")
    needed = json.dumps(dependencies(wheel, flagship))
    text = PYPROJECT.format(**vars(flagship) | {"models": MODELS, "dependencies": needed})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
