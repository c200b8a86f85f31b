"""The charts of the examples: each has a title, titled axes with numbers, and a legend; no two overwrite each other."""

from __future__ import annotations

import argparse
import math
import re
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from .. import projects
from .test_examples import load

chart: Any = load(projects.EXAMPLES / "chart.py", "chart")
# Programs that write files, and the packages that they import.
SCRIPTS = {
    "digits/serve.py": ("digits", "data"),
    "digits/train.py": ("digits_train", "data"),
    "gpt/train.py": ("gpt_train",),
    "lenet/train.py": ("lenet",),
    "microgpt/train.py": ("microgpt",),
    "mnist/train.py": ("mnist",),
    "moons/train.py": ("moons",),
    "wines/classify.py": ("wines",),
    "xor/train.py": ("xor",),
}


def drawn() -> dict[str, tuple[str, list[str], int, int]]:
    """Return pictures with the titles of their axes, the least ticks of an axis, and the entries of the legend."""
    loss = {"training": [(1, 4.0), (2, 2.5), (3, math.nan)], "held <back>": [(2, 3.25)]}
    accuracy = {"test": [(1, 12.0), (3, 99.9)]}
    of_plane = ("left & right", "up"), lambda at: [x > 0 for x, _ in at], ("no", "yes", "-1", "1")
    pairs = [("a", "a"), ("a", "b"), ("b", "b")]
    return {
        "curves": (chart.curves("t", "steps", {"loss, nats": loss}), ["loss, nats", "steps"], 4, 2),
        "panels": (
            chart.curves("t", "steps", {"loss, nats": loss, "accuracy, %": accuracy}),
            ["accuracy, %", "loss, nats", "steps", "steps"],
            8,
            3,
        ),
        "nothing": (chart.curves("t", "steps", {"loss": {"none": []}}), ["loss", "steps"], 5, 1),
        "plane": (chart.plane("t", *of_plane, [(-1, 0, 0), (1, 2, 1)]), ["left & right", "up"], 7, 4),
        "confusion": (
            chart.confusion("t", ["a", "b"], pairs, "rows"),
            ["answered (rows per column)", "shown (rows per row)"],
            2,
            2,
        ),
    }


@pytest.mark.parametrize("kind", ["curves", "panels", "nothing", "plane", "confusion"])
def test_a_chart_has_all_that_a_reader_needs(kind: str) -> None:
    picture, axes, ticks, legend = drawn()[kind]
    root = xml.etree.ElementTree.fromstring(picture)
    texts: dict[str, list[Any]] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        texts.setdefault(text.attrib["class"], []).append(text)
    assert [text.text for text in texts["title"]] == ["t"]
    assert sorted(text.text for text in texts["axis"]) == axes
    assert len(texts["legend"]) == legend
    for anchor in ("middle", "end"):  # of x and of y
        assert sum(text.attrib["text-anchor"] == anchor for text in texts["tick"]) >= ticks
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for text in [text for found in texts.values() for text in found]:
        assert 0 <= float(text.attrib["x"]) <= width and 10 <= float(text.attrib["y"]) <= height - 4
    for points in re.findall(r'points="([^"]+)"', picture):
        assert all(chart.LEFT <= float(p.split(",")[0]) <= width for p in points.split())


def test_entries_of_a_legend_lie_apart() -> None:
    """Of letters that are 7.6 pixels wide, which few are."""
    lines = re.findall(r'<text class="legend"[^>]* x="([\d.]+)" y="[\d.]+">([^<]*)', drawn()["curves"][0])
    (first, label), (second, _) = lines
    assert float(second) - 24 > float(first) + 7.6 * len(label)


@pytest.mark.parametrize(
    ("values", "most", "ticks"),
    [
        ([0, 1000], math.inf, ["0", "200", "400", "600", "800", "1,000"]),
        ([1.83, 4.6], math.inf, ["1.5", "2.0", "2.5", "3.0", "3.5", "4.0", "4.5", "5.0"]),
        ([97.7, 100], 100, ["97.5", "98.0", "98.5", "99.0", "99.5", "100.0"]),
        ([-0.5, 1.5], math.inf, ["-0.5", "0.0", "0.5", "1.0", "1.5"]),
        ([3e-7, 9e-7], math.inf, [f"0.000000{n}" for n in range(3, 10)]),
        ([5, 5], math.inf, ["4.4", "4.6", "4.8", "5.0", "5.2", "5.4", "5.6"]),
    ],
)
def test_ticks_are_round(values: list[float], most: float, ticks: list[str]) -> None:
    found = chart.axis("", values, most=most)
    assert [label for _, label in found.ticks] == ticks
    assert found.low <= min(values) and max(values) <= found.high


def test_a_confusion_counts_rows_and_columns() -> None:
    """What was shown is a row, from top to bottom; what was answered is a column; wrong ones are coloured as such."""
    picture = chart.confusion("t", ["a", "b"], [("a", "b")] * 3 + [("b", "b")] * 2, "rows")
    cells = re.findall(r'<rect class="(cell|miss)" x="([\d.]+)" y="([\d.]+)".*\n<text class="on"[^>]*>(\d+)', picture)
    (wrong, x, y, three), (right, other_x, other_y, two) = cells
    assert (wrong, three, right, two) == ("miss", "3", "cell", "2")
    assert x == other_x and float(y) < float(other_y)
    assert "right: 2 of 5" in picture and "wrong: 3 of 5" in picture


def outputs(script: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that a program writes if it is told none: read from its parser, before anything else runs."""

    def parse_args(parser: argparse.ArgumentParser, *_: Any) -> None:
        names = [str(action.default) for action in parser._actions if action.dest in ("out", "picture")]
        raise SystemExit(names)

    for name in SCRIPTS[script]:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr(sys, "path", [*sys.path, str(projects.EXAMPLES)])
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.delitem(sys.modules, "chart", raising=False)
    with pytest.raises(SystemExit) as ended:
        load(projects.EXAMPLES / script, "script").main()
    return ended.value.code  # type: ignore[return-value]


def test_no_two_examples_write_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = [
        path.relative_to(projects.EXAMPLES).as_posix()
        for path in projects.EXAMPLES.glob("*/*.py")
        if "from chart import" in path.read_text(encoding="utf-8")
    ]
    assert sorted(drawing) == sorted(SCRIPTS)
    written = [name for script in SCRIPTS for name in outputs(script, monkeypatch)]
    assert len(written) == len(set(written)) == 12, written
    assert sum(Path(name).suffix == ".svg" for name in written) == len(SCRIPTS)
