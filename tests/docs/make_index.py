"""Write the figures of ``docs/index.md``, between their marks: ``python -m tests.docs.make_index``.

They are those of ``examples/flagships/*.md``, which ``python -m examples.flagships`` measures.
"""

from __future__ import annotations

import re

from ..projects import EXAMPLES, ROOT

PAGE = ROOT / "docs" / "index.md"
COMMAND = "python -m tests.docs.make_index"
BEGIN, END = "<!-- figures -->\n", "<!-- end -->"
ROWS = ("installed, MB", "whole sample, CPU s", "peak memory, MB")


def figures(report: str) -> list[str]:
    """The cells of a package: its name, and for each row what onnxruntime and mlaot take."""
    block = report.partition("<!-- figures -->\n```\n")[2].partition("```")[0]
    found = {name: re.search(rf"^{re.escape(name)} +([\d.]+) +([\d.]+)", block, re.MULTILINE) for name in ROWS}
    return [block.splitlines()[0], *(f"{m[1]} → {m[2]}" if m else "-" for m in found.values())]


def table() -> str:
    """A line for each package."""
    lines = [figures(page.read_text(encoding="utf-8")) for page in sorted((EXAMPLES / "flagships").glob("*.md"))]
    return "\n".join(
        [
            f"| package | {' | '.join(ROWS)} |",
            "|---|" + "---|" * len(ROWS),
            *(f"| {' | '.join(cells)} |" for cells in lines),
            "",
        ]
    )


def page(text: str) -> str:
    """The page with its figures as they must be."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
