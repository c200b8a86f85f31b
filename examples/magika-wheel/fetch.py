"""Copy magika's model and its labels into this project: ``python fetch.py [FOLDER OF AN UNPACKED WHEEL]``."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent


def package() -> Path:
    """The folder of the package magika, which need not be importable."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1], "magika")
    found = importlib.util.find_spec("magika")
    if found is None or found.origin is None:
        sys.exit("magika is not installed: pip install magika, or name a folder with its unpacked wheel")
    return Path(found.origin).parent


def main() -> None:
    folders = sorted((package() / "models").glob("standard_*"))
    if not folders:
        sys.exit(f"no model in {package() / 'models'}")
    shutil.copy(folders[-1] / "model.onnx", HERE / "model.onnx")
    config = json.loads((folders[-1] / "config.min.json").read_text())
    (HERE / "filekind" / "labels.json").write_text(json.dumps(config["target_labels_space"]) + "\n")
    print(f"{folders[-1].name}: {len(config['target_labels_space'])} labels")


if __name__ == "__main__":
    main()
