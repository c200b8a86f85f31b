"""What a build puts into a wheel for one model: the module, checked, and what lies beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from mlaot.build.platforms import ABI3
from mlaot.build.replay import replay
from mlaot.build.toolchain import Toolchain, compile_module
from mlaot.settings import Model, Settings


def build_module(
    settings: Settings, model: Model, generated: Path, library: Path, toolchain: Toolchain, abi: str = ABI3
) -> None:
    """Compile the C of ``model`` below ``generated`` to ``library``, and write what belongs beside that."""
    sources = generated / model.module
    compile_module(sources, model.stem, settings.isa, library, toolchain, deterministic=model.deterministic, abi=abi)
    replay(model.module, library, *toolchain, abi)
    shutil.copy(sources / f"{model.stem}.pyi", library.parent)
    (library.parent / "py.typed").touch()
