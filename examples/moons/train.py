"""The hundred steps of micrograd's demo, and its picture. Needs the wheel of this folder and nothing else.

moons.csv holds the demo's points: ``np.random.seed(1337); make_moons(n_samples=100, noise=0.1)`` of scikit-learn.
"""

import argparse
import csv
import sys
from pathlib import Path

from moons import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import plane

Points = list[list[float]]


def load() -> tuple[Points, list[float]]:
    """The points, and -1 or 1 for each."""
    with open(Path(__file__).with_name("moons.csv"), newline="") as file:
        rows = [list(map(float, row)) for row in csv.reader(file)]
    return [row[:2] for row in rows], [row[2] for row in rows]


def accuracy(points: Points, targets: list[float]) -> float:
    """The share of points on the right side."""
    pairs = zip(positive(points), targets, strict=True)
    return sum(side == (target > 0) for side, target in pairs) / len(points)


def positive(points: Points) -> list[bool]:
    """Return for each point whether its score is above 0."""
    return [score > 0 for score in nn.forward(points).tolist()]


def train(points: Points, targets: list[float], steps: int = 100) -> list[float]:
    """Full-batch gradient descent, as in the demo; the loss before each step."""
    losses = []
    for k in range(steps):
        right = accuracy(points, targets)
        losses.append(nn.train_step(points, targets, lr=1.0 - 0.9 * k / 100))
        if k % 10 == 0 or k == steps - 1:
            print(f"step {k:2}   loss {losses[-1]:.6f}   accuracy {right:.0%}")
    return losses


def main() -> None:
    """Train, then draw."""
    parser = argparse.ArgumentParser(description="Train micrograd's demo and draw the decision boundary.")
    parser.add_argument(
        "--picture", type=Path, default=Path("moons.svg"), help="file for the picture (default: %(default)s)"
    )
    options = parser.parse_args()
    points, targets = load()
    losses = train(points, targets)
    print(f"first loss {losses[0]!r}, last {losses[-1]!r}, accuracy {accuracy(points, targets):.0%}")
    names = ("score up to 0", "score above 0", "target -1", "target 1")
    data = [[*point, target > 0] for point, target in zip(points, targets, strict=True)]
    options.picture.write_text(
        plane("Two moons, after 100 steps", ("first input", "second input"), positive, names, data)
    )
    print(f"decision boundary: {options.picture}")


if __name__ == "__main__":
    main()
