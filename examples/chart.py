"""Charts as SVG, with the standard library alone: curves, the plane of two inputs, and a table of right and wrong.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; dashes and shapes say the same once more.
The page is dark where the viewer asks for that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

Points = Sequence[Sequence[float]]  # an x and a y each

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 84, 28, 44, 56
HEIGHT, LEGEND, LETTER = 230, 26, 7.6  # of the frame of a curve, of a line of legend, of a letter's width
STYLE = """
text { font: 14px sans-serif; fill: #222 } .title { font-size: 17px; font-weight: bold } .tick { font-size: 12px }
.page { fill: #fff } .frame { fill: none; stroke: #555 } .grid { fill: none; stroke: #ddd }
.line { fill: none; stroke-width: 2 } .line.c1 { stroke-dasharray: 7 3 } .on { fill: #fff }
.c0 { stroke: #0072b2 } .c1 { stroke: #d55e00 } .mark.c0, .cell { fill: #0072b2 } .mark.c1, .miss { fill: #d55e00 }
.point { stroke: #fff } .r0 { fill: #cfe5f3 } .r1 { fill: #fbdcc4 }
@media (prefers-color-scheme: dark) {
text { fill: #eee } .page { fill: #181818 } .frame { stroke: #aaa } .grid { stroke: #3c3c3c }
.c0 { stroke: #56b4e9 } .c1 { stroke: #e69f00 } .mark.c0 { fill: #56b4e9 } .mark.c1 { fill: #e69f00 }
.point { stroke: #000 } .r0 { fill: #173a52 } .r1 { fill: #57340a } .on { fill: #fff }
}
"""


class Axis(NamedTuple):
    """The title of an axis, the values at its ends, and its ticks: where they are, and what they say."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


class Frame(NamedTuple):
    """A rectangle of the picture between two axes."""

    x: Axis
    y: Axis
    top: float
    width: float = WIDTH - LEFT - RIGHT
    height: float = HEIGHT

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        across, up = (x - self.x.low) / (self.x.high - self.x.low), (y - self.y.low) / (self.y.high - self.y.low)
        return LEFT + across * self.width, self.top + (1 - up) * self.height

    def grid(self) -> list[str]:
        """Return the lines at the ticks, which lie below the data."""
        across = [f"M{self.at(x, self.y.low)[0]:.1f},{self.top}v{self.height}" for x, _ in self.x.ticks]
        up = [f"M{LEFT},{self.at(self.x.low, y)[1]:.1f}h{self.width}" for y, _ in self.y.ticks]
        return [f'<path class="grid" d="{"".join(across + up)}"/>']

    def axes(self) -> list[str]:
        """Return the border, the ticks and the titles of both axes."""
        bottom, middle = self.top + self.height, self.top + self.height / 2
        return [
            f'<path class="frame" d="M{LEFT},{self.top}v{self.height}h{self.width}v{-self.height}z"/>',
            *(_text(self.at(x, self.y.low)[0], bottom + 18, label, "tick", "middle") for x, label in self.x.ticks),
            *(_text(LEFT - 8, self.at(self.x.low, y)[1] + 4, label, "tick", "end") for y, label in self.y.ticks),
            _text(LEFT + self.width / 2, bottom + 42, self.x.title, "axis", "middle"),
            f'<g transform="rotate(-90 20 {middle:.1f})">{_text(20, middle, self.y.title, "axis", "middle")}</g>',
        ]


def axis(title: str, values: Iterable[float], *, most: float = math.inf) -> Axis:
    """Return an axis around some values, with round ticks; it ends at ``most`` at the latest."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if low == high:
        low, high = low - abs(low) / 10 - 0.1, high + abs(high) / 10 + 0.1
    raw = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * n for n in (1, 2, 5, 10) if raw <= power * n * (1 + 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [(i * step, f"{i * step:,.{places}f}") for i in range(first, last + 1) if i * step <= most * (1 + 1e-9)]
    return Axis(title, ticks[0][0], ticks[-1][0], ticks)


def curves(title: str, below: str, panels: Mapping[str, Mapping[str, Points]]) -> str:
    """Return curves over a common x axis, called ``below``: for each y axis the points of its curves by their names.

    An axis whose title ends in ``%`` ends at 100.
    """
    shared = axis(below, [x for lines in panels.values() for points in lines.values() for x, _ in points])
    body, top = list[str](), float(TOP)
    for name, lines in panels.items():
        values = [y for points in lines.values() for _, y in points]
        frame = Frame(shared, axis(name, values, most=100 if name.endswith("%") else math.inf), top + LEGEND)
        body += [*frame.grid(), *frame.axes()]
        entries = []
        for i, (label, points) in enumerate(lines.items()):
            finite = [frame.at(x, y) for x, y in points if math.isfinite(y)]
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in finite)
            body.append(f'<polyline class="line c{i}" points="{places}"/>')
            if len(finite) < 50:
                body += [_mark(x, y, i) for x, y in finite]
            entries.append((f'<path class="line c{i}" d="M0,-5h24"/>', f"{label}{_last(points)}"))
        body += _legend(entries, top + 10)
        top = frame.top + HEIGHT + BOTTOM + 8
    return _picture(title, body, top - 8)


def plane(
    title: str, axes: tuple[str, str], side: Callable[[Points], Sequence[bool]], names: Sequence[str], data: Points
) -> str:
    """Return the plane of two inputs, coloured by the ``side`` of each place, with points of the data upon it.

    Each row of ``data`` is x, y and 0 or 1; ``names`` are of the two sides, then of the two kinds of points.
    """
    x, y = (
        axis(name, (min(row[i] for row in data) - 0.5, max(row[i] for row in data) + 0.5))
        for i, name in enumerate(axes)
    )
    columns, rows = 120, 84
    frame = Frame(x, y, TOP + 2 * LEGEND, height=(WIDTH - LEFT - RIGHT) * rows / columns)
    wide, high = (x.high - x.low) / columns, (y.high - y.low) / rows
    places = [(x.low + (i + 0.5) * wide, y.high - (j + 0.5) * high) for j in range(rows) for i in range(columns)]
    sides, body, cell = side(places), list[str](), frame.width / columns
    for j in range(rows):
        i = 0
        for upper, run in groupby(sides[j * columns : (j + 1) * columns]):
            count = len(list(run))
            at = f'x="{LEFT + i * cell:.1f}" y="{frame.top + j * cell:.1f}"'
            body.append(f'<rect class="r{int(upper)}" {at} width="{count * cell:.1f}" height="{cell + 0.4:.1f}"/>')
            i += count
    body += [_mark(*frame.at(row[0], row[1]), int(row[2]), 6) for row in data]
    swatches = [f'<rect class="r{i}" x="2" y="-12" width="20" height="14"/>' for i in range(2)]
    marks = [_mark(12, -5, i, 6) for i in range(2)]
    body += _legend(list(zip(swatches, names[:2], strict=True)), TOP + 10)
    body += _legend(list(zip(marks, names[2:], strict=True)), TOP + LEGEND + 10)
    return _picture(title, [*body, *frame.axes()], frame.top + frame.height + BOTTOM)


def confusion(title: str, kinds: Sequence[str], pairs: Iterable[tuple[str, str]], unit: str) -> str:
    """Return how often each kind was recognized as each; a pair is what was shown, and what was answered."""
    counts = Counter(pairs)
    ticks = [(i + 0.5, kind) for i, kind in enumerate(kinds)]
    x = Axis(f"answered ({unit} per column)", 0, len(kinds), ticks)
    y = Axis(f"shown ({unit} per row)", len(kinds), 0, ticks)  # from top to bottom
    frame = Frame(x, y, TOP + LEGEND, height=480)
    wide, high, body = frame.width / len(kinds), frame.height / len(kinds), list[str]()
    for row, shown in enumerate(kinds):
        for column, answered in enumerate(kinds):
            count = counts[shown, answered]
            if count:
                left, top = frame.at(column, row)
                at = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}"'
                body.append(f'<rect class="{"cell" if row == column else "miss"}" {at}/>')
                body.append(_text(left + wide / 2, top + high / 2 + 5, str(count), "on", "middle"))
    swatches = [f'<rect class="{kind}" x="2" y="-12" width="20" height="14"/>' for kind in ("cell", "miss")]
    right = sum(counts[kind, kind] for kind in kinds)
    labels = (f"right: {right} of {counts.total()}", f"wrong: {counts.total() - right} of {counts.total()}")
    body += _legend(list(zip(swatches, labels, strict=True)), TOP + 10)
    return _picture(title, [*body, *frame.axes()], frame.top + frame.height + BOTTOM)


def _last(points: Points) -> str:
    return f": {points[-1][1]:.4g} at the end" if points else ""


def _mark(x: float, y: float, kind: int, size: float = 3.5) -> str:
    """Return a circle, or a square for the second kind."""
    look = f'class="mark c{kind}{" point" if size > 4 else ""}"'
    if kind:
        return f'<rect {look} x="{x - size:.1f}" y="{y - size:.1f}" width="{2 * size:.1f}" height="{2 * size:.1f}"/>'
    return f'<circle {look} cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"/>'


def _legend(entries: Sequence[tuple[str, str]], y: float) -> list[str]:
    """Return a line of samples and what each means; a sample is 24 pixels wide."""
    x, parts = float(LEFT), []
    for sample, label in entries:
        parts += [f'<g transform="translate({x:.1f} {y:.1f})">{sample}</g>', _text(x + 32, y, label, "legend")]
        x += 56 + LETTER * len(label)
    return parts


def _text(x: float, y: float, content: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(content)}</text>'


def _picture(title: str, body: Sequence[str], height: float) -> str:
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}</title>'
    page = f'<style>{STYLE}</style>\n<rect class="page" width="100%" height="100%"/>'
    return "\n".join([head, page, _text(LEFT, 28, title, "title"), *body, "</svg>", ""])
