"""Use a model's wheel with an engine of many workers: ``python -m examples.scale NAME``, a module of this folder."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAIN = re.compile(r"^def main\(arguments\b", re.MULTILINE)


def names(folder: Path = HERE) -> list[str]:
    """The modules of the folder with a ``main(arguments)``, which are found without importing an engine."""
    paths = sorted(folder.glob("[!_]*.py"))
    return [path.stem for path in paths if MAIN.search(path.read_text(encoding="utf-8"))]


def main(arguments: list[str]) -> None:
    """Import the module that is named first and call its ``main`` with the other arguments."""
    known = ", ".join(names())
    if not arguments or arguments[0] in ("-h", "--help"):
        raise SystemExit(f"usage: python -m examples.scale NAME [OPTIONS]; NAME is one of {known}")
    name, *rest = arguments
    if name not in names():
        raise SystemExit(f"examples.scale: there is no {name!r}; there are {known}")
    try:
        module = importlib.import_module(f"examples.scale.{name}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "examples", "mlaot"):
            raise
        raise SystemExit(f'examples.scale {name}: needs {missing}; run: pip install -e ".[scale]"') from None
    module.main(rest)


if __name__ == "__main__":
    main(sys.argv[1:])
