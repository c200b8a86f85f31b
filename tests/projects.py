"""Projects built the short way: the C of ``mlaot emit``, compiled and put where an installed wheel would have it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mlaot.build.toolchain import compile_module, find_compiler
from mlaot.settings import load_settings

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def build(project: Path, site: Path) -> None:
    """Compile every model of ``project`` into ``site``, a folder for ``sys.path``."""
    generated = site.with_name(f"{site.name}-c")
    run("-m", "mlaot", "emit", project, "--out", generated)
    settings = load_settings(project)
    for model in settings.models:
        library = site.joinpath(*model.module.split(".")).with_suffix(".abi3.so")
        compile_module(generated / model.module, model.stem, settings.isa, library, find_compiler())


def run(
    *arguments: str | Path,
    cwd: Path = ROOT,
    site: Path | None = None,
    alone: bool = False,
    environ: Mapping[str, str] | None = None,
) -> str:
    """What Python prints for ``arguments``; ``alone``: with ``site`` and the standard library only."""
    path = os.pathsep.join(map(str, [site or "", *([] if alone else [ROOT, *sys.path])]))
    command = [sys.executable, *(["-S"] if alone else []), *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": path} | dict(environ or {})
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout
