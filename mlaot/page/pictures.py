"""Pictures of a page as SVG, which need no script: the roofline of an entry's kernels, and its memory over a call.

Roofline: Williams, Waterman and Patterson, Roofline: an insightful visual performance model, 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import ceil, floor, log10
from typing import Any

Data = dict[str, Any]

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 34, 48
PREFIXES = ("", "k", "M", "G", "T", "P")
COLOURS = 6  # of buffers, in the style of the page


def roofline(entry: Data, limits: Data) -> str:
    """Draw the kernels of an entry below what the machine can do: operations a second by operations a byte."""
    isa, peak = limits["isa"], limits.get("operations", 0.0)
    timed = [(i, k) for i, k in enumerate(entry["kernels"]) if k["operations"] and k["bytes"] and k["seconds"].get(isa)]
    if not (timed and peak):
        return ""
    points = [(k["operations"] / k["bytes"], k["rounds"] * k["operations"] / k["seconds"][isa]) for _, k in timed]
    x = _Logarithmic([*[p[0] for p in points], peak / limits["near"], peak / limits["far"]], LEFT, WIDTH - RIGHT)
    y = _Logarithmic([*[p[1] for p in points], peak], HEIGHT - BOTTOM, TOP)
    parts = [*_frame(f"{entry['name']}: operations a second on {isa}, one thread", "operations for each byte")]
    parts += [_tick_x(x.at(value), f"{value:g}") for value in x.ticks]
    parts += [_tick_y(y.at(value), f"{short(value)}op/s") for value in y.ticks]
    for name, rate in (("near cache", limits["near"]), ("memory", limits["far"])):
        start, ridge = max(x.ticks[0], y.ticks[0] / rate), peak / rate
        corners = ((start, rate * start), (ridge, peak), (x.ticks[-1], peak))
        line = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in corners)
        parts.append(f'<polyline class="roof" points="{line}"/>')
        middle = (start * ridge) ** 0.5
        parts.append(_text(x.at(middle) + 6, y.at(rate * middle) + 12, f"{name}: {short(rate)}B/s", "note"))
    parts.append(_text(WIDTH - RIGHT, y.at(peak) - 5, f"{short(peak)}op/s in float32", "note", "end"))
    for (number, kernel), (intensity, rate) in zip(timed, points, strict=True):
        what = f"{number}: {kernel['title']}, {short(rate)}op/s, {100 * rate / peak:.0f} % of the peak"
        place = f'data-kernel="{number}" cx="{x.at(intensity):.1f}" cy="{y.at(rate):.1f}" r="5"'
        parts.append(f'<circle class="kernel" {place}><title>{escape(what)}</title></circle>')
    return _svg(parts)


def memory(entry: Data) -> str:
    """Draw the buffers of a workspace: their bytes upwards, the kernels that use them from left to right."""
    buffers = [b for b in entry["memory"] if b["bytes"]]
    if not buffers:
        return ""
    count, size = len(entry["kernels"]), max(int(b["start"] + b["bytes"]) for b in buffers)

    def x(kernel: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * kernel / count

    def y(byte: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * byte / size

    parts = [*_frame(f"{entry['name']}: buffers in the workspace of {short(size)}B", "kernel")]
    parts += [_tick_x(x(k + 0.5), str(k)) for k in range(0, count, max(1, ceil(count / 12)))]
    parts += [_tick_y(y(size * quarter / 4), f"{short(size * quarter / 4)}B") for quarter in range(5)]
    for number, b in enumerate(buffers):
        left, right, top, bottom = x(b["first"]), x(b["last"] + 1), y(b["start"] + b["bytes"]), y(b["start"])
        what = f"{b['name']}: {b['what']}, {b['bytes']:,} bytes, kernels {b['first']} to {b['last']}"
        place = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{max(bottom - top, 0.5):.1f}"'
        parts.append(f'<rect class="buffer b{number % COLOURS}" {place}><title>{escape(what)}</title></rect>')
    return _svg(parts)


def short(value: float) -> str:
    """Format a number with a prefix: ``1.5 M``."""
    power = min(max(floor(log10(value) / 3), 0), len(PREFIXES) - 1) if value >= 1 else 0
    return f"{value / 1000.0**power:.3g} {PREFIXES[power]}"


class _Logarithmic:
    """An axis of powers of ten around some values, between two places of the picture."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        values = list(values)
        low, high = floor(log10(min(values))), ceil(log10(max(values) * 1.2))
        self.ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """Return the place of a value."""
        low, high = log10(self.ticks[0]), log10(self.ticks[-1])
        return self.start + (self.end - self.start) * (log10(value) - low) / (high - low)


def _frame(title: str, below: str) -> Iterable[str]:
    yield _text(LEFT, 20, title, "title")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, below, "axis", "middle")
    yield f'<path class="frame" d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'


def _tick_x(x: float, label: str) -> str:
    y = HEIGHT - BOTTOM
    return f'<path class="frame" d="M{x:.1f},{y}v4"/>' + _text(x, y + 17, label, "tick", "middle")


def _tick_y(y: float, label: str) -> str:
    return f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>' + _text(LEFT - 6, y + 4, label, "tick", "end")


def _text(x: float, y: float, content: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(content)}</text>'


def _svg(parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
