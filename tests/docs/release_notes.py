"""Print what CHANGELOG.md says of a version, for a release: ``python -m tests.docs.release_notes [VERSION]``.

Without a version, that of pyproject.toml. It fails unless the version is that of pyproject.toml, CITATION.cff and the
recipe for conda, and the changelog has a section for it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where else the version stands, each as a line that has it.
COPIES = {"CITATION.cff": "version: {}", "packaging/conda/mlaot/recipe.yaml": '  version: "{}"'}


def project_version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def notes(version: str, changelog: str) -> str:
    """The section of a version, without its heading; paragraphs in one line each, as pages of releases want them."""
    found = re.search(rf"^## \[?{re.escape(version)}\]?( [^\n]*)?\n(?P<text>.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if not found or not found["text"].strip():
        raise SystemExit(f"CHANGELOG.md: no section '## {version}', or an empty one")
    return re.sub(r"(?<=\S)\n +(?=[^\s*-])", " ", found["text"]).strip() + "\n"


def check(version: str) -> None:
    """End unless all files name this version."""
    if version != project_version():
        raise SystemExit(f"pyproject.toml: expected version {version}, got {project_version()}")
    for name, line in COPIES.items():
        if line.format(version) not in (ROOT / name).read_text(encoding="utf-8").splitlines():
            raise SystemExit(f"{name}: no line {line.format(version)!r}")


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else project_version()
    check(asked)
    print(notes(asked, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")), end="")
