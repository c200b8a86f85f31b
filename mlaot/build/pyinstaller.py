"""Hooks with which PyInstaller finds weights that lie in a file, of which imports tell nothing.

A wheel gets them where it has such a file, by the entry point that PyInstaller asks for, and else nothing.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from mlaot.render import render
from mlaot.settings import Settings

FOLDER = "__pyinstaller"
GROUP = "[pyinstaller40]"  # the one that PyInstaller has from version 4 on


def hooks(settings: Settings, wheel: Path, more: set[str]) -> dict[str, str]:
    """Files to write into a wheel, by name, that is to hold ``more`` files besides: none where it has hooks already."""
    with ZipFile(wheel) as file:
        names = more | set(file.namelist())
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        place = record.replace("RECORD", "entry_points.txt")
        entry_points = file.read(place).decode() if place in names else ""
    models = [m for m in settings.models if f"{m.package.replace('.', '/')}/{m.weights_file}" in names]
    if not models or GROUP in entry_points:
        return {}
    home = f"{models[0].package}.{FOLDER}"
    folder = home.replace(".", "/")
    found = {f"{folder}/__init__.py": render("pyinstaller/package.py.j2")}
    for model in models:
        text = render("pyinstaller/hook.py.j2", module=model.module, package=model.package, weights=model.weights_file)
        found[f"{folder}/hook-{model.module}.py"] = text
    return found | {place: f"{entry_points}{GROUP}\nhook-dirs = {home}:get_hook_dirs\n"}
