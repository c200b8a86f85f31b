"""The wheels that the examples need, built once and unpacked."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
WORK = EXAMPLES.parent / "build" / "scale"
NET, LENET = EXAMPLES / "scale" / "net", EXAMPLES / "lenet"


def site(*projects: Path) -> Path:
    """Return a folder for ``sys.path`` with the wheels of these projects; what was built before is taken again."""
    folder = WORK / "site"
    for project in projects:
        wheels = WORK / "wheels" / project.name
        if any(wheels.glob("*.whl")):
            continue  # its files may be in use
        print(f"building the wheel of {project.relative_to(EXAMPLES.parent)} ...", flush=True)
        build(project, wheels, folder)
    return folder


def build(project: Path, wheels: Path, site: Path) -> None:
    """Build the wheel of a project into the folder ``wheels``, and unpack it into ``site``."""
    if subprocess.run([sys.executable, "-m", "mlaot", "wheel", project, "--out", wheels], check=False).returncode:
        raise SystemExit(f"examples.scale: the wheel of {project.name} was not built")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def environ(*projects: Path) -> dict[str, str]:
    """Return the environment of a process that imports the wheels of these projects, and the examples."""
    path = [str(site(*projects)), str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}


def use(*projects: Path) -> None:
    """Make the wheels of these projects importable in this process."""
    sys.path.insert(0, str(site(*projects)))
