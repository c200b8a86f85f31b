"""Fetch the library that lays out the graph of a report, and its licence: ``python -m tests.page.make_dagre``.

It comes from the npm registry, whose answer is checked against the digest that the registry states.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import urllib.request
from pathlib import Path

PACKAGE, VERSION = "@dagrejs/dagre", "3.1.3"
FOLDER = Path(__file__).parents[2] / "templates" / "report"
FILES = {"package/dist/dagre.min.js": "dagre.min.js", "package/LICENSE": "dagre.LICENSE"}


def main(version: str = VERSION) -> None:
    """Write the files of a version."""
    with urllib.request.urlopen(f"https://registry.npmjs.org/{PACKAGE}/{version}") as answer:
        dist = json.load(answer)["dist"]
    with urllib.request.urlopen(dist["tarball"]) as answer:
        content = answer.read()
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    assert digest == dist["integrity"], f"{dist['tarball']} has the digest {digest}, expected {dist['integrity']}"
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for source, name in FILES.items():
            file = archive.extractfile(source)
            assert file is not None, source
            lines = file.read().decode().splitlines(keepends=True)
            text = "".join(line for line in lines if not line.startswith("//# sourceMappingURL"))
            (FOLDER / name).write_text(text, encoding="utf-8")
            print(FOLDER / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
