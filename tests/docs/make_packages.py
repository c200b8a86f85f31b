"""Draw ``docs/packages.svg``, the packages of mlaot and what they import: ``python -m tests.docs.make_packages``.

An arrow points from a box to one below it that it imports from. One that follows from others is left out: passes import
the IR, but by way of ops as well. The boxes are those of ``tests/imports.py``. Where they stand follows from the
arrows, by layers and barycenters (Sugiyama, Tagawa and Toda 1981): an arrow over several rows has a point in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from ..imports import ROWS, arrows
from ..projects import ROOT

PAGE = ROOT / "docs" / "packages.svg"
COMMAND = "python -m tests.docs.make_packages"
ROW, BOX, GAP, CHARACTER, MARGIN = 58, 30, 22, 7.6, 20  # heights of a row and a box; widths, in pixels
SWEEPS = 40
Point = tuple[str, str, int]  # of an arrow between two boxes, in a row that it crosses
Item = str | Point
STYLE = """\
text { font: 13px sans-serif; text-anchor: middle; fill: #1b1f24 }
rect.box { fill: #eef3fa; stroke: #4c6a92; rx: 4 }
path { fill: none; stroke: #6b7685; stroke-width: 1.2; marker-end: url(#tip) }"""


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that do not follow from others."""

    def below(box: str) -> set[str]:
        return {box}.union(*(below(other) for other in graph.get(box, ())))

    return {
        box: {o for o in others if not any(o in below(other) for other in others - {o})}
        for box, others in graph.items()
    }


def levels(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """How many rows lie below each box."""
    heights: dict[str, int] = {}
    for row in reversed(ROWS):
        for box in row:
            heights[box] = max((heights[other] + 1 for other in graph.get(box, ())), default=0)
    return heights


def placed(graph: Mapping[str, set[str]]) -> tuple[list[list[Item]], dict[Item, float]]:
    """The rows from the bottom, and the middle of each item across."""
    height = levels(graph)
    rows: list[list[Item]] = [[] for _ in range(max(height.values()) + 1)]
    joined: dict[Item, list[Item]] = {box: [] for box in height}
    for box, level in height.items():
        rows[level].append(box)
    for box in height:
        for other in sorted(graph.get(box, ())):
            points: list[Item] = [(box, other, level) for level in range(height[box] - 1, height[other], -1)]
            for level, point in zip(range(height[box] - 1, height[other], -1), points, strict=True):
                rows[level].append(point)
                joined[point] = []
            for one, next_ in zip([box, *points], [*points, other], strict=True):
                joined[one].append(next_)
                joined[next_].append(one)
    across: dict[Item, float] = {}
    for row in rows:
        spread(row, {item: 100.0 * i for i, item in enumerate(row)}, across)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else rows[::-1]:
            wanted = {item: fmean([across[other] for other in joined[item]] or [across[item]]) for item in row}
            row.sort(key=wanted.__getitem__)
            spread(row, wanted, across)
    return rows, across


def width(item: Item) -> float:
    return len(item) * CHARACTER + 16 if isinstance(item, str) else 6


def spread(row: Sequence[Item], wanted: Mapping[Item, float], across: dict[Item, float]) -> None:
    """Put the items of a row as near to where they are wanted as they can be beside each other."""
    groups: list[tuple[list[Item], float]] = []  # of items that touch, and the middle of the first
    for item in row:
        groups.append(([item], wanted[item]))
        while len(groups) > 1 and groups[-2][1] + offsets([*groups[-2][0], groups[-1][0][0]])[-1] > groups[-1][1]:
            items = [*groups[-2][0], *groups[-1][0]]
            groups[-2:] = [(items, fmean(wanted[i] - o for i, o in zip(items, offsets(items), strict=True)))]
    for items, first in groups:
        across.update({item: first + offset for item, offset in zip(items, offsets(items), strict=True)})


def offsets(items: Sequence[Item]) -> list[float]:
    """The middles of items side by side, from that of the first."""
    result = [0.0]
    for left, right in pairwise(items):
        result.append(result[-1] + (width(left) + width(right)) / 2 + GAP)
    return result


def drawing() -> str:
    """The picture as SVG."""
    graph = reduced(arrows())
    rows, across = placed(graph)
    left = min(across[item] - width(item) / 2 for item in across) - MARGIN
    x = {item: across[item] - left for item in across}
    y = {item: MARGIN + BOX / 2 + ROW * (len(rows) - 1 - level) for level, row in enumerate(rows) for item in row}
    total = (
        round(max(x[item] + width(item) / 2 for item in x) + MARGIN),
        round(2 * MARGIN + BOX + ROW * (len(rows) - 1)),
    )
    modules = {box: names for row in ROWS for box, names in row.items()}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total[0]}" height="{total[1]}">',
        f"<!-- written by {COMMAND} -->",
        f"<style>\n{STYLE}\n</style>",
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<polygon points="0,0.5 8,4 0,7.5" fill="#6b7685"/></marker>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for box, others in sorted(graph.items()):
        lines += [curve(box, other, x, y) for other in sorted(others)]
    for box in sorted(modules, key=lambda box: (y[box], x[box])):
        half = width(box) / 2
        corner = f'x="{x[box] - half:.0f}" y="{y[box] - BOX / 2:.0f}"'
        shape = f'<rect class="box" {corner} width="{2 * half:.0f}" height="{BOX}"/>'
        about = f"<title>{', '.join(modules[box])}</title>"
        lines.append(f'<g>{about}{shape}<text x="{x[box]:.0f}" y="{y[box] + 4.5:.0f}">{box}</text></g>')
    return "\n".join([*lines, "</svg>", ""])


def curve(box: str, other: str, x: Mapping[Item, float], y: Mapping[Item, float]) -> str:
    """An arrow through its points, upright in each."""
    levels_between = sorted(
        (item for item in x if isinstance(item, tuple) and item[:2] == (box, other)), key=lambda i: -i[2]
    )
    stops = [(x[box], y[box] + BOX / 2), *((x[p], y[p]) for p in levels_between), (x[other], y[other] - BOX / 2)]
    path = f"M{stops[0][0]:.0f},{stops[0][1]:.0f}"
    for (x0, y0), (x1, y1) in pairwise(stops):
        middle = (y0 + y1) / 2
        path += f" C{x0:.0f},{middle:.0f} {x1:.0f},{middle:.0f} {x1:.0f},{y1:.0f}"
    return f'<path d="{path}"/>'


if __name__ == "__main__":
    PAGE.write_text(drawing(), encoding="utf-8")
    print(PAGE)
