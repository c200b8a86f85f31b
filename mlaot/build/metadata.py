"""Write the files about models in a wheel's ``.dist-info``: the bill of materials, and the models' cards.

The project's backend packs the licences, which ``license-files`` of [project] lists.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from mlaot.build.sbom import card_path, sbom, sbom_path
from mlaot.build.toolchain import CompilerInfo
from mlaot.settings import Settings
from mlaot.settings.tables import read_pyproject


def write_metadata(
    settings: Settings, generated: Path, compiler: CompilerInfo | None, abi: str, folder: Path
) -> dict[str, Path]:
    """Empty ``folder`` and write the files into it; return them by their names in the wheel's ``.dist-info``."""
    bill = sbom(read_pyproject(Path())["project"], settings.models, generated, compiler, abi)
    texts = {sbom_path(settings.name): bill.encode()}
    cards = {card_path(model.module): Path(model.model_card) for model in settings.models if model.model_card}
    texts |= {name: path.read_bytes() for name, path in cards.items()}
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return {name: folder / name for name in texts}
