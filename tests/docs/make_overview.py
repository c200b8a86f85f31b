"""Draw ``docs/overview.svg``, what mlaot is at a glance: ``python -m tests.docs.make_overview``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from ..projects import ROOT

PAGE = ROOT / "docs" / "overview.svg"
COMMAND = "python -m tests.docs.make_overview"
LINE, PAD, HEAD, GAP, MARGIN = 24, 16, 34, 56, 12  # heights of a line and of a panel's head; pixels
STYLE = """\
text { font: 14px sans-serif; fill: #1b1f24 }
.head { font-weight: bold; fill: #ffffff }
.code { font: 13px monospace }
.dim { fill: #59636e }
rect.panel { fill: #eef3fa; stroke: #4c6a92; rx: 6 }
rect.head { fill: #4c6a92; rx: 6 }
path { fill: none; stroke: #4c6a92; stroke-width: 2; marker-end: url(#tip) }"""


class Panel(NamedTuple):
    """A box with a head and lines, each of a class of ``STYLE`` and a text."""

    head: str
    width: int
    lines: Sequence[tuple[str, str]]


PANELS = (
    Panel(
        "a model",
        250,
        (
            ("", "an ONNX file"),
            ("", "PyTorch, Keras, JAX"),
            ("", "scikit-learn, LightGBM, XGBoost"),
            ("", "GGUF, Hugging Face folders"),
            ("", "functions of NumPy arrays"),
            ("", "numbers of micrograd"),
        ),
    ),
    Panel(
        "pip wheel .",
        230,
        (
            ("", "graph, passes over it"),
            ("", "loop nests, register tiles"),
            ("", "C for three kinds of CPUs"),
            ("", "compiled, and checked against"),
            ("", "answers in float64"),
            ("dim", "training: gradients, too"),
        ),
    ),
    Panel(
        "a wheel, for CPython 3.11 and later",
        310,
        (
            ("code", "from digits import nn"),
            ("code", "nn.forward(x)"),
            ("code", "nn.fit(x, y, lr=0.1, epochs=20)"),
            ("", "no compiler, no NumPy, no runtime:"),
            ("", "a module of 50 KB, and its weights"),
            ("dim", "or C and C++, or plain Python"),
        ),
    ),
)


def drawing() -> str:
    """The picture as SVG."""
    height = HEAD + 2 * PAD + LINE * max(len(panel.lines) for panel in PANELS) - 8
    width = sum(panel.width for panel in PANELS) + GAP * (len(PANELS) - 1)
    total = f'width="{width + 2 * MARGIN}" height="{height + 2 * MARGIN}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {total}>',
            f"<!-- written by {COMMAND} -->",
            f"<style>\n{STYLE}\n</style>",
            '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="5" markerHeight="5" orient="auto">',
            '<polygon points="0,0.5 8,4 0,7.5" fill="#4c6a92"/></marker>',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *parts(height),
            "</svg>",
            "",
        ]
    )


def parts(height: int) -> Iterator[str]:
    """The panels from left to right, and arrows between them."""
    x = MARGIN
    for number, panel in enumerate(PANELS):
        if number:
            yield f'<path d="M{x - GAP + 8},{MARGIN + height // 2} H{x - 8}"/>'
        yield f'<rect class="panel" x="{x}" y="{MARGIN}" width="{panel.width}" height="{height}"/>'
        yield f'<rect class="head" x="{x}" y="{MARGIN}" width="{panel.width}" height="{HEAD}"/>'
        yield text(x, MARGIN + 22, "head", panel.head)
        for i, (kind, words) in enumerate(panel.lines):
            yield text(x, MARGIN + HEAD + PAD + 12 + LINE * i, kind, words)
        x += panel.width + GAP


def text(x: int, y: int, kind: str, words: str) -> str:
    """A line of a panel that begins at ``x``."""
    about = f' class="{kind}"' if kind else ""
    return f'<text x="{x + PAD}" y="{y}"{about}>{escape(words)}</text>'


if __name__ == "__main__":
    PAGE.write_text(drawing(), encoding="utf-8")
    print(PAGE)
