"""Projects built the short way: the C of ``mlaot emit``, compiled and put where an installed wheel would have it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from mlaot.build.module import copy_sessions
from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.files import program_files, python_files, write
from mlaot.generate import compile_model
from mlaot.printing import cmake
from mlaot.probe.beside import load_file
from mlaot.settings.options import Options
from mlaot.settings.reading import load_settings

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
toolchain = cache(find_toolchain)  # it tries the compiler
Build = Callable[[str, Any], ModuleType]  # the module of this name of a declared model
# What no CPU lacks, and what is furthest from it; the module takes what this machine has.
ISAS = ("base", "v4" if platform.machine() in ("x86_64", "AMD64") else "neon")


def build(project: Path, site: Path) -> None:
    """Compile every model of ``project``, which must be worth no warning, into ``site``, a folder for ``sys.path``."""
    generated = site.with_name(f"{site.name}-c")
    said = run("-m", "mlaot", "emit", project, "--out", generated)
    assert "warning: " not in said, said
    settings = load_settings(project)
    for model in settings.models:
        library = site.joinpath(*model.module.split(".")).with_suffix(".abi3.so")
        compile_quickly(generated / model.module, model.stem, settings.isas, library, model.deterministic)
    copy_sessions(settings, generated, site)


def build_module(
    declared: Any,
    name: str,
    site: Path,
    isas: tuple[str, ...] = ISAS,
    *,
    sample: Any = None,
    golden: bool = False,
    **options: Any,
) -> Path:
    """The extension module ``<name>.nn`` of a declared model, below ``site``; its C is in ``<site>-c/<name>.nn``.

    ``options`` are fields of ``Options``.
    """
    folder = site.with_name(f"{site.name}-c") / f"{name}.nn"
    chosen = Options(isas=isas, **options)
    program = compile_model(declared, f"{name}.nn", chosen, sample=sample, golden=golden)
    write(program_files(program), folder)
    library = site / name / "nn.abi3.so"
    compile_quickly(folder, "nn", isas, library, chosen.deterministic)
    return library


def compile_quickly(folder: Path, stem: str, isas: Sequence[str], library: Path, deterministic: bool) -> None:
    """As a build compiles, but hardly optimized: kernels take a third of the time, what talks to Python as well.

    The wheels of tests/wheel have it optimized; tests/test_compilers.py compiles all kinds of kernels as wheels do.
    """
    flags = tuple("-Og" if flag == "-O2" else flag for flag in cmake.COMMON_FLAGS)
    with patch.object(cmake, "COMMON_FLAGS", flags), patch.object(cmake, "INTERFACE_FLAGS", ("-O0",)):
        compile_module(folder, stem, isas, library, toolchain(), deterministic=deterministic)


def load(library: Path) -> ModuleType:
    """A new module object of a compiled model, without a trace in ``sys.modules``."""
    return load_file(f"{library.parent.name}.nn", library)


def plain_module(declared: Any, name: str, folder: Path, *, golden: bool = False, **options: Any) -> ModuleType:
    """The module ``<name>.nn`` of a declared model in plain Python, below ``folder``."""
    program = compile_model(declared, f"{name}.nn", Options(isas=("base",), **options), golden=golden)
    write(python_files(program), folder / name)
    return load_file(f"{name}.nn", folder / name / "nn.py")


def run(
    *arguments: str | Path,
    cwd: Path = ROOT,
    site: Path | None = None,
    alone: bool = False,
    environ: Mapping[str, str] | None = None,
    status: int = 0,
) -> str:
    """What Python prints for ``arguments``; ``alone``: with ``site`` and the standard library only."""
    path = os.pathsep.join(map(str, [site or "", *([] if alone else [ROOT, *sys.path])]))
    command = [sys.executable, *(["-S"] if alone else []), *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": path} | dict(environ or {})
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == status, f"{command}\n{done.stdout}"
    return done.stdout
