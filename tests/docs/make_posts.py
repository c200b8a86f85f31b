"""Draw the pictures of docs/posts.md: ``python -m tests.docs.make_posts``.

``docs/optimize.svg``: the graph of a small sum of products before and after ``optimize``. A node stands above its
arguments, in a row by the longest way down from it, and in the middle of them. ``docs/counts.svg``: the numbers of the
table of the page, as bars; ``python benchmarks/counts.py`` counts them.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import fmean
from typing import Any

from mlaot.frontend.scalar.equal import representatives
from mlaot.micrograd import Value, optimize

from ..projects import ROOT
from .make_packages import STYLE

PAGE = ROOT / "docs" / "posts.md"
COMMAND = "python -m tests.docs.make_posts"
ROW, COLUMN, RADIUS, MARGIN = 58, 50, 17, 26  # of the graphs, in pixels
LINE, BAR, NAMES, NUMBERS = 26, 400, 250, 130  # of the bars: heights and widths
COUNT = re.compile(r"^\| (?P<step>[^|]+) \| (?P<nodes>[\d,]+) \| [^|]+ \|$", re.MULTILINE)
MORE = "circle { fill: #eef3fa; stroke: #4c6a92 }\n.left { text-anchor: start }\n.right { text-anchor: end }\n"
MORE += ".small { font-size: 11px }"


def svg(width: float, height: float, body: list[str]) -> str:
    """A whole picture."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">',
            f"<!-- written by {COMMAND} -->",
            f"<style>\n{STYLE}\n{MORE}\n</style>",
            '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
            '<polygon points="0,0.5 8,4 0,7.5" fill="#6b7685"/></marker>',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def small_example() -> tuple[Value, dict[Value, str]]:
    """A sum of three products and a bias, and the names of its leaves."""
    x, w = ([Value(float(i), (), "input") for i in range(3)] for _ in range(2))
    b = Value(1.0, (), "input")
    total: Any = sum((wi * xi for wi, xi in zip(w, x, strict=True)), b)
    pairs = (("x", x), ("w", w), ("b", [b]))
    names = {v: f"{name}{i if len(some) > 1 else ''}" for name, some in pairs for i, v in enumerate(some)}
    return total, names


def graph(root: Value, names: dict[Value, str], left: float) -> tuple[list[str], float, float]:
    """The drawing of a graph of values, with its left edge and how wide and high it is."""
    order = root.topo()
    level: dict[Value, int] = {}
    for node in order:
        level[node] = max((level[arg] + 1 for arg in representatives(node._prev)), default=0)
    rows = [[node for node in order if level[node] == i] for i in range(max(level.values()) + 1)]
    across: dict[Value, float] = {}
    for row in rows:
        wanted = {node: fmean([across[arg] for arg in representatives(node._prev)] or [0.0]) for node in row}
        row.sort(key=wanted.__getitem__)
        last = -math.inf
        for i, node in enumerate(row):
            across[node] = last = max(wanted[node] if node._prev else i * COLUMN, last + COLUMN)
    x = {node: left + MARGIN + across[node] - min(across.values()) for node in order}
    y = {node: MARGIN + ROW * (len(rows) - 1 - level[node]) for node in order}
    body = []
    for node in order:
        for arg in representatives(node._prev):
            length = math.hypot(x[node] - x[arg], y[node] - y[arg])
            dx, dy = ((c[node] - c[arg]) / length * RADIUS for c in (x, y))
            ends = (x[arg] + dx, y[arg] + dy, x[node] - dx, y[node] - dy)
            body.append('<path d="M{:.0f},{:.0f} L{:.0f},{:.0f}"/>'.format(*ends))
    for node in order:
        body.append(f'<circle cx="{x[node]:.0f}" cy="{y[node]:.0f}" r="{RADIUS}"/>')
        label = names.get(node, node._op)
        body.append(f'<text x="{x[node]:.0f}" y="{y[node] + 4:.0f}" class="small">{label}</text>')
    return body, max(x.values()) + MARGIN - left, max(y.values()) + MARGIN


def optimized() -> str:
    """The small example before and after ``optimize``."""
    root, names = small_example()
    before, width, height = graph(root, names, 0)
    optimize(root)
    after, more, second = graph(root, names, width + COLUMN)
    return svg(width + COLUMN + more, max(height, second), [*before, *after])


def counts() -> str:
    """The table of the page as bars, as long as the logarithm of the number of nodes."""
    steps = [(m["step"], int(m["nodes"].replace(",", ""))) for m in COUNT.finditer(PAGE.read_text(encoding="utf-8"))]
    body = []
    for i, (step, nodes) in enumerate(steps):
        y, width = MARGIN / 2 + LINE * i, BAR * math.log10(nodes) / math.log10(max(n for _, n in steps))
        body += [
            f'<text class="right" x="{NAMES - 8}" y="{y + 17}">{step.replace("`", "")}</text>',
            f'<rect class="box" x="{NAMES}" y="{y + 3}" width="{width:.0f}" height="{LINE - 6}"/>',
            f'<text class="left" x="{NAMES + width + 8:.0f}" y="{y + 17}">{nodes:,}</text>',
        ]
    return svg(NAMES + BAR + NUMBERS - 40, MARGIN + LINE * len(steps), body)


def pictures() -> dict[Path, str]:
    """The pictures by their files."""
    return {PAGE.with_name("optimize.svg"): optimized(), PAGE.with_name("counts.svg"): counts()}


if __name__ == "__main__":
    for file, picture in pictures().items():
        file.write_text(picture, encoding="utf-8")
        print(file)
