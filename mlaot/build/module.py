"""What a build puts into a wheel for one model: the module, checked, and what lies beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from mlaot.build.replay import replay
from mlaot.build.toolchain import Toolchain, compile_module
from mlaot.settings import Model, Settings


def build_module(settings: Settings, model: Model, generated: Path, library: Path, toolchain: Toolchain) -> None:
    """Compile the C of ``model`` below ``generated`` to ``library``, and write what belongs beside that."""
    sources = generated / model.module
    compile_module(sources, model.stem, settings.isas, library, toolchain, deterministic=model.deterministic)
    replay(model.module, library, toolchain.command, toolchain.platform)
    shutil.copy(sources / f"{model.stem}.pyi", library.parent)
    (library.parent / "py.typed").touch()
