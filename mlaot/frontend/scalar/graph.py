"""Views of a graph of values: its nodes and edges, a picture, the number of ops, a listing.

``trace`` and ``draw_dot`` are the functions of micrograd's notebook trace_graph.ipynb. ``count`` and ``pretty`` are
those of Max Bernstein's vectorizer, and ``fma_chances`` counts what his compiler counts. They read only ``_prev``,
``_op``, ``data`` and ``grad``, so that they also accept values of the micrograd package. A representative stands for
all values equal to it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mlaot.errors import MlaotError
from mlaot.frontend.scalar.engine import topological_order
from mlaot.frontend.scalar.equal import representatives


def trace(root: Any) -> tuple[set[Any], set[tuple[Any, Any]]]:
    """Return the nodes that ``root`` depends on, and the edges (argument, user) between them."""
    nodes = set(topological_order(root))
    return nodes, {(arg, node) for node in nodes for arg in representatives(node._prev)}


def count(root: Any) -> Counter[str]:
    """Count the nodes of each op; ``''`` counts the unlabelled leaves."""
    return Counter(node._op for node in topological_order(root))


def fma_chances(root: Any) -> int:
    """Count the sums with a product as a term, which could be one instruction together: a fused multiply-add."""
    sums = (node for node in topological_order(root) if node._op == "+")
    return sum(any(arg._op == "*" for arg in representatives(node._prev)) for node in sums)


def ssa(root: Any) -> str:
    """Write the graph as text, one line for each computed node: ``v6 = * v0 v3``.

    The number of a node is its place in topological order. An unlabelled leaf is written as its number, and a labelled
    one (``'input'``) by its label.
    """
    order = topological_order(root)
    names = {node: f"v{i}" if node._op else str(node.data) for i, node in enumerate(order)}
    lines = ((v, " ".join(names[arg] for arg in representatives(v._prev))) for v in order if v._prev)
    return "".join(f"{names[v]} = {v._op} {args}\n" for v, args in lines)


def pretty(root: Any, file: TextIO | None = None) -> None:
    """Print the text of ``ssa(root)``."""
    (file or sys.stdout).write(ssa(root))


@dataclass(frozen=True)
class Drawing:
    """A picture as text in Graphviz's DOT language. Notebooks show it if Graphviz's program ``dot`` is installed."""

    source: str
    format: str = "svg"

    def __str__(self) -> str:
        return self.source

    def pipe(self, format: str | None = None) -> bytes:
        """Return the bytes of the picture that ``dot`` makes."""
        program = shutil.which("dot")
        if program is None:
            raise MlaotError("draw_dot: no program 'dot' on the PATH; install Graphviz, or use the text in .source")
        command = [program, f"-T{format or self.format}"]
        return subprocess.run(command, input=self.source.encode(), stdout=subprocess.PIPE, check=True).stdout

    def render(self, filename: str | Path) -> str:
        """Write the text to ``filename`` and the picture to ``filename.<format>``; return the picture's path."""
        picture = f"{filename}.{self.format}"
        image = self.pipe()
        Path(filename).write_text(self.source, encoding="utf-8")
        Path(picture).write_bytes(image)
        return picture

    def _repr_svg_(self) -> str | None:
        return self.pipe("svg").decode() if shutil.which("dot") else None


def draw_dot(root: Any, format: str = "svg", rankdir: str = "LR") -> Drawing:
    """Draw the graph: a box with data and gradient for each value, a circle for each op, and an edge for each argument.

    ``format`` is a format of Graphviz, such as svg, png or pdf. ``rankdir`` is ``'LR'`` (left to right) or ``'TB'``
    (top to bottom).
    """
    if rankdir not in ("LR", "TB"):
        raise MlaotError(f"draw_dot: rankdir: expected 'LR' or 'TB', got {rankdir!r}")
    order = topological_order(root)
    names = {node: f"v{i}" for i, node in enumerate(order)}
    lines = ["digraph {", f"  rankdir={rankdir}"]
    for node, name in names.items():
        lines.append(f'  {name} [label="{{ data {node.data:.4f} | grad {node.grad:.4f} }}" shape=record]')
        if node._op:
            lines += [f'  {name}_op [label="{node._op}"]', f"  {name}_op -> {name}"]
        lines += [f"  {names[arg]} -> {name}{'_op' * bool(node._op)}" for arg in representatives(node._prev)]
    return Drawing("\n".join([*lines, "}", ""]), format)
