"""Train on MNIST as "Compiling ML models to C for fun" does, with its start weights, its order and its batches of 20.

    python train.py --data FOLDER     # the four idx files, gzipped or not
    python train.py                   # fetched from openml.org by scikit-learn

Needs the wheel of this folder; without --data also scikit-learn.
"""

import argparse
import random
import sys
import time
from pathlib import Path

from mnist import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import curves
from images import PIXELS, Images, load

BATCH = 20
PIECE = 50 * BATCH  # images between two points of the picture
Curve = list[tuple[float, float]]
WEIGHTS = 784 * 50 + 50 * 10


def accuracy(images: Images) -> float:
    """The share of images whose digit has the highest score."""
    right = 0
    for start in range(0, len(images), 1000):
        pixels, labels = images.batch(range(start, min(start + 1000, len(images))), PIXELS)
        for row, label in zip(nn.forward(pixels).tolist(), labels, strict=True):
            right += row.index(max(row)) == label
    return right / len(images)


def train_epoch(images: Images, order: list[int], losses: Curve) -> float:
    """One round over all images in this order; the mean loss, each image's taken before the step that it is part of.

    ``losses`` gets the mean of each piece, and how many images were seen at its end.
    """
    total, before = 0.0, losses[-1][0] if losses else 0
    start = time.perf_counter()
    for i in range(0, len(order), PIECE):
        pixels, labels = images.batch(order[i : i + PIECE], PIXELS)
        loss = nn.fit(pixels, labels, lr=0.1, batch=BATCH, shuffle=False)
        total += loss * len(labels)
        done = i + len(labels)
        losses.append((before + done, loss))
        print(f"\r  {done:6,} images   mean loss {total / done:.6f}", end="", flush=True)
    seconds = time.perf_counter() - start
    print(f"\r  {len(order):,} images in {seconds:.2f} s: {len(order) / seconds:,.0f} images per second")
    return total / len(order)


def dead_weights() -> float:
    """The share of weights nearer to zero than 0.1."""
    weights = [abs(w) for name, rows in nn.parameters.items() if name.endswith(".w") for row in rows for w in row]
    return sum(w < 0.1 for w in weights) / len(weights)


def main() -> None:
    """Print the first losses, the mean loss, the accuracy; at the end, or at Ctrl-C, report and draw."""
    parser = argparse.ArgumentParser(description="Train a small network on MNIST; Ctrl-C ends it with its report.")
    parser.add_argument("--data", type=Path, help="folder with the four idx files of MNIST")
    parser.add_argument("--epochs", type=int, default=1, help="rounds over the images (default: %(default)s)")
    parser.add_argument(
        "--picture", type=Path, default=Path("mnist.svg"), help="file for the learning curve (default: %(default)s)"
    )
    options = parser.parse_args()
    train, test = load(options.data)

    # The post's program draws its weights and then shuffles: to get its order, draw as many numbers first.
    random.seed(1337)
    for _ in range(WEIGHTS):
        random.uniform(-1, 1)
    order = list(range(len(train)))
    random.shuffle(order)

    first = [f"{nn.loss(*train.batch([i], PIXELS)):.10f}" for i in order[:3]]
    right = accuracy(test)
    print(f"untrained: loss of the first images {', '.join(first)}; test accuracy {right:.4f}")
    losses: Curve = []
    accuracies: Curve = [(0, 100 * right)]
    try:
        for epoch in range(1, options.epochs + 1):
            loss = train_epoch(train, order, losses)
            right = accuracy(test)
            accuracies.append((losses[-1][0], 100 * right))
            print(f"epoch {epoch}: mean loss {loss:.6f}, test accuracy {right:.4f}", flush=True)
            random.shuffle(order)
    except KeyboardInterrupt:
        print(f"\nended in epoch {len(accuracies)}: test accuracy {accuracy(test):.4f}")
    print(f"dead weights: {dead_weights():.1%} are nearer to zero than 0.1")
    panels = {
        "loss (cross-entropy, nats)": {"training": losses},
        "accuracy, %": {f"{len(test):,} test images": accuracies},
    }
    options.picture.write_text(curves("784-50-10 on MNIST", "images trained on", panels))
    print(f"learning curve: {options.picture}")


if __name__ == "__main__":
    main()
