"""``mlaot init``: write a project to start from, out of ``templates/init``."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import sys
from pathlib import Path

from mlaot.errors import MlaotError
from mlaot.settings import FILE
from mlaot.settings.tables import read_pyproject

HELP = "start a project"
DESCRIPTION = f"""\
Write a project that builds as it is: {FILE}, a small model, a package, a
test, a README. No file is ever overwritten; where a {FILE} is already, the
lines to add to it are printed instead.
"""
EXAMPLES = """\
  mlaot init digits           a project in the new folder digits
  mlaot init --name digits    the same in this folder
"""
FILES = {  # path in the project: template
    FILE: "pyproject.toml.j2",
    "README.md": "README.md.j2",
    ".gitignore": "gitignore.j2",
    "src/model.py": "model.py.j2",
    "src/{package}/__init__.py": "package.py.j2",
    "tests/test_{package}.py": "test.py.j2",
}
NAME = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?")
TABLE = '[tool.mlaot.models.nn]\nmodel = "model:classify"  # module:attribute'
BACKEND = '[build-system]\nrequires = ["mlaot"]\nbuild-backend = "mlaot.build"\n\n'
SETUPTOOLS = '[build-system]\nrequires = {requires}\nbuild-backend = "setuptools.build_meta"\n\n'


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", nargs="?", default=".", help="where it goes (default: this folder)")
    parser.add_argument("--name", help="the project's name (default: the folder's)")


def run(options: argparse.Namespace) -> int:
    """Check everything, then write."""
    folder = Path(options.folder)
    if (folder / FILE).exists():
        print(f"Add this to {folder / FILE}:\n\n{lines_to_add(folder)}\n", flush=True)
        raise MlaotError(f"{folder / FILE} is there already; nothing was written, the lines to add to it are above")
    name = options.name or folder.resolve().name
    package = package_of(name)
    files = {folder / path.format(package=package): template for path, template in FILES.items()}
    for path in files:
        check_free(path)
    write(files, name, package)
    print("\n".join(f"  {path}" for path in files))
    steps = [*([f"cd {shlex.quote(options.folder)}"] if options.folder != "." else []), "mlaot build"]
    steps += [f"pip install dist/{package}-*.whl pytest", "pytest"]
    print("next:\n" + "\n".join(f"  {step}" for step in steps))
    return 0


def write(files: dict[Path, str], name: str, package: str) -> None:
    """Render each template to its path."""
    from mlaot.render import render

    for path, template in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(render(f"init/{template}", name=name, package=package))


def package_of(name: str) -> str:
    """Return the import package of a project: ``my_digits`` for ``My-Digits``."""
    package = re.sub(r"[-_.]+", "_", name).lower()
    if not NAME.fullmatch(name) or keyword.iskeyword(package):
        raise MlaotError(f"a project's name is of letters, digits and hyphens; got {name!r}, give another by --name")
    if package in ("mlaot", "model", "numpy") or package in sys.stdlib_module_names:
        raise MlaotError(f"the name {name!r} would hide the module {package!r}; give another by --name")
    return package


def check_free(path: Path) -> None:
    """Raise if a file exists at the path, or if a file blocks the way there."""
    if path.is_symlink() or path.exists():
        raise MlaotError(f"{path} is there already; nothing was written")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise MlaotError(f"{parent} is no folder; nothing was written")


def lines_to_add(folder: Path) -> str:
    """Return the lines that add mlaot to the pyproject.toml in ``folder``.

    A project with setuptools keeps its backend.
    """
    pyproject = read_pyproject(folder)
    if "mlaot" in pyproject.get("tool", {}):
        raise MlaotError(f"{folder / FILE} has a [tool.mlaot] already; nothing was written")
    system = pyproject.get("build-system", {})
    if not str(system.get("build-backend", "")).startswith("setuptools."):
        return BACKEND + TABLE
    requires = [*system.get("requires", ()), *([] if "mlaot" in system.get("requires", ()) else ["mlaot"])]
    names = ", ".join(f'"{requirement}"' for requirement in requires)
    return SETUPTOOLS.replace("{requires}", f"[{names}]") + TABLE
