"""The hundred steps of micrograd's demo, and its picture. Needs the wheel of this folder and nothing else.

moons.csv holds the demo's points: ``np.random.seed(1337); make_moons(n_samples=100, noise=0.1)`` of scikit-learn.
"""

import argparse
import csv
from itertools import groupby
from pathlib import Path

from moons import nn

Points = list[list[float]]
LEFT, RIGHT, BOTTOM, TOP, STEP, SCALE = -2.0, 3.0, -1.5, 2.0, 0.05, 120


def load() -> tuple[Points, list[float]]:
    """The points, and -1 or 1 for each."""
    with open(Path(__file__).with_name("moons.csv"), newline="") as file:
        rows = [list(map(float, row)) for row in csv.reader(file)]
    return [row[:2] for row in rows], [row[2] for row in rows]


def accuracy(points: Points, targets: list[float]) -> float:
    """The share of points on the right side."""
    scores = nn.forward(points).tolist()
    return sum((score > 0) == (target > 0) for score, target in zip(scores, targets, strict=True)) / len(points)


def train(points: Points, targets: list[float], steps: int = 100) -> list[float]:
    """Full-batch gradient descent, as in the demo; the loss before each step."""
    losses = []
    for k in range(steps):
        right = accuracy(points, targets)
        losses.append(nn.train_step(points, targets, lr=1.0 - 0.9 * k / 100))
        if k % 10 == 0 or k == steps - 1:
            print(f"step {k:2}   loss {losses[-1]:.6f}   accuracy {right:.0%}")
    return losses


def picture(points: Points, targets: list[float]) -> str:
    """The points over the sign of the score, as SVG."""
    columns, rows = round((RIGHT - LEFT) / STEP), round((TOP - BOTTOM) / STEP)
    grid = [[LEFT + (i + 0.5) * STEP, TOP - (j + 0.5) * STEP] for j in range(rows) for i in range(columns)]
    scores = nn.forward(grid).tolist()
    side = STEP * SCALE
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * side:g}" height="{rows * side:g}">']
    for j in range(rows):
        row, i = scores[j * columns : (j + 1) * columns], 0
        for positive, run in groupby(row, lambda score: score > 0):
            width = len(list(run))
            color = "#9ecae1" if positive else "#fdae6b"
            at = f'x="{i * side:g}" y="{j * side:g}" width="{width * side:g}" height="{side + 0.5:g}"'
            lines.append(f'<rect {at} fill="{color}"/>')
            i += width
    for (x, y), target in zip(points, targets, strict=True):
        at = f'cx="{(x - LEFT) * SCALE:.1f}" cy="{(TOP - y) * SCALE:.1f}"'
        lines.append(f'<circle {at} r="6" stroke="white" fill="{"#08519c" if target > 0 else "#a63603"}"/>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Train, then draw."""
    parser = argparse.ArgumentParser(description="Train micrograd's demo and draw the decision boundary.")
    parser.add_argument("--picture", default="moons.svg", help="where the picture goes (default: %(default)s)")
    path = Path(parser.parse_args().picture)
    points, targets = load()
    losses = train(points, targets)
    print(f"first loss {losses[0]!r}, last {losses[-1]!r}, accuracy {accuracy(points, targets):.0%}")
    path.write_text(picture(points, targets))
    print(f"decision boundary: {path}")


if __name__ == "__main__":
    main()
