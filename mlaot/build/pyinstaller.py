"""Write hooks that tell PyInstaller of files that it cannot find by imports.

These are weights in a file, a runtime that models share, and packages that the C imports. Only a wheel that has one of
these gets hooks. PyInstaller finds the hooks by an entry point of the wheel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from zipfile import ZipFile

from mlaot.render import render
from mlaot.settings import Settings

FOLDER = "__pyinstaller"
GROUP = "[pyinstaller40]"  # of entry points, since PyInstaller 4


def hook_files(
    settings: Settings, wheel: Path, added: set[str], imports: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[str, str]:
    """Return the files to add to a wheel by name, or none if the wheel has hooks already.

    ``added`` are the names of files that will be added to the wheel. ``imports`` has the packages that modules import.
    """
    with ZipFile(wheel) as file:
        names = added | set(file.namelist())
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        entry_points_path = record.replace("RECORD", "entry_points.txt")
        entry_points = file.read(entry_points_path).decode() if entry_points_path in names else ""
    weights = {m: m.weights_file for m in settings.models if f"{m.package.replace('.', '/')}/{m.weights_file}" in names}
    models = [m for m in settings.models if settings.runtime or m in weights or m.module in imports]
    if not models or GROUP in entry_points:
        return {}
    hooks_package = f"{models[0].package}.{FOLDER}"
    folder = hooks_package.replace(".", "/")
    files = {f"{folder}/__init__.py": render("pyinstaller/package.py.j2")}
    for model in models:
        text = render(
            "pyinstaller/hook.py.j2",
            module=model.module,
            package=model.package,
            weights=weights.get(model),
            runtime=settings.runtime,
            imports=imports.get(model.module, ()),
        )
        files[f"{folder}/hook-{model.module}.py"] = text
    return files | {entry_points_path: f"{entry_points}{GROUP}\nhook-dirs = {hooks_package}:get_hook_dirs\n"}
