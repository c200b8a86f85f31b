"""Build the files of one model in a wheel: the extension module, which is checked, and the files beside it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from mlaot.build.budget import check_metadata, check_replay
from mlaot.build.platforms import ABI3
from mlaot.build.replay import replay, replay_file
from mlaot.build.sbom import read_metadata
from mlaot.build.toolchain import Toolchain, compile_module, compiled_isas
from mlaot.printing.c_files import library_place, public_files
from mlaot.schedule.machine import PYTHON
from mlaot.settings import ModelSettings, Settings
from mlaot.stages import CHECKING, stage, stages_of


def build_runtime(name: str, generated: Path, library: Path, toolchain: Toolchain, abi: str = ABI3) -> None:
    """Compile the C of the runtime that the models share to ``library``; the models are checked with it."""
    with stages_of(name, ()):
        compile_module(generated / name, name.rpartition(".")[2], (), library, toolchain, abi=abi)


def build_module(
    settings: Settings, model: ModelSettings, generated: Path, library: Path, toolchain: Toolchain, abi: str = ABI3
) -> None:
    """Compile the C of ``model`` below ``generated`` to ``library``, check it, and write the files beside it."""
    sources = generated / model.module
    top = library.parents[model.package.count(".")]
    windows = toolchain.platform is not None and toolchain.platform.system == "windows"
    metadata = read_metadata(generated, model)
    check_metadata(model, metadata)
    with stages_of(model.module, [each.module for each in settings.models]):
        compile_module(
            sources,
            model.stem,
            settings.isas,
            library,
            toolchain,
            deterministic=model.deterministic,
            abi=abi,
            archive=top / library_place(model.module, windows=windows) if model.c_library else None,
        )
        with stage(CHECKING):
            shares = replay(model.module, library, *toolchain, abi)
    check_replay(model, metadata, library, shares, compiled_isas(settings, toolchain))
    copy_stub(model, generated, library.parent)
    for name, place in public_files(model.module).items() if model.c_library else ():
        (top / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources / name, top / place)


def copy_module(settings: Settings, model: ModelSettings, generated: Path, target: Path) -> None:
    """Copy ``model`` in plain Python to ``target``, check it, and write the files beside it."""
    metadata = read_metadata(generated, model)
    check_metadata(model, metadata)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(generated / model.module / target.name, target)
    print(f"mlaot: {model.module} is plain Python, for platforms without a wheel of their own: slow", flush=True)
    with stages_of(model.module, [each.module for each in settings.models]), stage(CHECKING):
        shares = replay_file(model.module, target, "as plain Python")
    timeless = replace(model, budget=replace(model.budget, latency_us=None))  # that is a limit of compiled code
    check_replay(timeless, metadata, target, shares, [PYTHON.name])
    copy_stub(model, generated, target.parent)


def copy_sessions(settings: Settings, generated: Path, site: Path) -> None:
    """Copy the package that stands in for onnxruntime, if the project asks for it, to its place below ``site``."""
    if settings.onnxruntime:
        name = settings.onnxruntime.module
        target = site.joinpath(*name.split("."))
        shutil.copytree(generated / name, target, dirs_exist_ok=True)
        (target.parent / "py.typed").touch()


def copy_stub(model: ModelSettings, generated: Path, folder: Path) -> None:
    """Copy the stub of a model into the folder of its module."""
    shutil.copy(generated / model.module / f"{model.stem}.pyi", folder)
    (folder / "py.typed").touch()
