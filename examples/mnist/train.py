"""Train on MNIST as "Compiling ML models to C for fun" does, with its start weights, its order and its batches of 20.

    python train.py --data FOLDER     # the four idx files, gzipped or not
    python train.py                   # fetched from openml.org by scikit-learn

Needs the wheel of this folder; without --data also scikit-learn.
"""

import argparse
import gzip
import random
import struct
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from mnist import nn

PIXELS = 28 * 28
BATCH = 20
WEIGHTS = 784 * 50 + 50 * 10
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


class Images:
    """Images one after the other, and their digits."""

    def __init__(self, pixels: bytes, labels: bytes) -> None:
        if len(pixels) != len(labels) * PIXELS:
            raise SystemExit(f"{len(labels)} labels need {len(labels) * PIXELS} pixels, got {len(pixels)}")
        self.pixels = pixels
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, which: Sequence[int]) -> tuple[memoryview, array]:
        """Some images as the module takes them: bytes and 64-bit integers."""
        pixels = b"".join([self.pixels[i * PIXELS : (i + 1) * PIXELS] for i in which])
        return memoryview(pixels).cast("B", (len(which), PIXELS)), array("q", [self.labels[i] for i in which])


def read_idx(folder: Path, name: str) -> bytes:
    """What an idx file holds behind its header."""
    path = folder / name
    if not path.exists():
        path = folder / f"{name}.gz"
    if not path.exists():
        raise SystemExit(f"no file {name} or {name}.gz in {folder}")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rank = data[3]
    extents = struct.unpack(f">{rank}L", data[4 : 4 + 4 * rank])
    if data[:3] != b"\0\0\x08" or extents[1:] not in ((), (28, 28)):
        raise SystemExit(f"{path} holds no bytes for images of 28x28 pixels")
    return data[4 + 4 * rank :]


def read_folder(folder: Path) -> tuple[Images, Images]:
    """Images to train and to test with."""
    train, test = (Images(*(read_idx(folder, name) for name in names)) for names in FILES.values())
    return train, test


def fetch() -> tuple[Images, Images]:
    """The same from openml.org."""
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise SystemExit("no --data FOLDER with the idx files, and no scikit-learn to fetch them with") from None
    pixels, labels = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff", return_X_y=True)
    everything = Images(pixels.astype("uint8").tobytes(), bytes(map(int, labels)))
    cut = 60_000
    return (
        Images(everything.pixels[: cut * PIXELS], everything.labels[:cut]),
        Images(everything.pixels[cut * PIXELS :], everything.labels[cut:]),
    )


def accuracy(images: Images) -> float:
    """The share of images whose digit has the highest score."""
    right = 0
    for start in range(0, len(images), 1000):
        pixels, labels = images.batch(range(start, min(start + 1000, len(images))))
        for row, label in zip(nn.forward(pixels).tolist(), labels, strict=True):
            right += row.index(max(row)) == label
    return right / len(images)


def train_epoch(images: Images, order: list[int], losses: list[float]) -> float:
    """One round over all images; the mean loss, each image's taken before the step that it is part of.

    ``losses`` gets the mean of every 50 batches, for the picture.
    """
    total = recent = 0.0
    start = time.perf_counter()
    for i in range(0, len(order), BATCH):
        which = order[i : i + BATCH]
        loss = nn.train_step(*images.batch(which), lr=0.1)
        total += loss * len(which)
        recent += loss
        if (i // BATCH + 1) % 50 == 0:
            losses.append(recent / 50)
            recent = 0.0
        if (i // BATCH + 1) % 500 == 0:
            print(f"  {i + len(which):6,} images   mean loss {total / (i + len(which)):.6f}", flush=True)
    seconds = time.perf_counter() - start
    print(f"  {len(order):,} images in {seconds:.2f} s: {len(order) / seconds:,.0f} images per second")
    return total / len(order)


def dead_weights() -> float:
    """The share of weights nearer to zero than 0.1."""
    weights = [abs(w) for name, rows in nn.parameters.items() if name.endswith(".w") for row in rows for w in row]
    return sum(w < 0.1 for w in weights) / len(weights)


def picture(losses: list[float], accuracies: list[float]) -> str:
    """The learning curve as SVG: the loss in blue, the accuracy after each epoch in orange."""
    width, height, edge, top = 640, 320, 30, max(losses, default=1.0)

    def curve(values: list[float], most: float, color: str, first: int) -> list[str]:
        step = (width - 2 * edge) / max(len(values) - 1 + first, 1)
        at = [(edge + (i + first) * step, height - edge - v / most * (height - 2 * edge)) for i, v in enumerate(values)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in at if len(values) < 50]
        return [f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>', *dots]

    shown = f"accuracy {accuracies[-1]:.2%} (top: 100 %)" if accuracies else ""
    last = f"loss {losses[-1]:.3f} (top: {top:.2f})" if losses else ""
    axes = f"M{edge},{edge} V{height - edge} H{width - edge}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<path d="{axes}" fill="none" stroke="#888"/>',
            *curve(losses, top, "#08519c", 0),
            *curve(accuracies, 1.0, "#e6550d", 1),  # known at the end of an epoch
            f'<text x="{edge + 10}" y="20" fill="#08519c">{last}</text>',
            f'<text x="{width // 2}" y="20" fill="#e6550d">{shown}</text>',
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Print the first losses, the mean loss, the accuracy; at the end, or at Ctrl-C, report and draw."""
    parser = argparse.ArgumentParser(description="Train a small network on MNIST; Ctrl-C ends it with its report.")
    parser.add_argument("--data", type=Path, help="folder with the four idx files of MNIST")
    parser.add_argument("--epochs", type=int, default=1, help="rounds over the images (default: %(default)s)")
    parser.add_argument(
        "--picture", type=Path, default=Path("learning.svg"), help="where the curve goes (default: %(default)s)"
    )
    options = parser.parse_args()
    train, test = read_folder(options.data) if options.data else fetch()

    # The post's program draws its weights and then shuffles: to get its order, draw as many numbers first.
    random.seed(1337)
    for _ in range(WEIGHTS):
        random.uniform(-1, 1)
    order = list(range(len(train)))
    random.shuffle(order)

    first = [f"{nn.loss(*train.batch([i])):.10f}" for i in order[:3]]
    print(f"untrained: loss of the first images {', '.join(first)}; test accuracy {accuracy(test):.4f}")
    losses: list[float] = []
    accuracies: list[float] = []
    try:
        for epoch in range(1, options.epochs + 1):
            loss = train_epoch(train, order, losses)
            accuracies.append(accuracy(test))
            print(f"epoch {epoch}: mean loss {loss:.6f}, test accuracy {accuracies[-1]:.4f}", flush=True)
            random.shuffle(order)
    except KeyboardInterrupt:
        print(f"\nended in epoch {len(accuracies) + 1}: test accuracy {accuracy(test):.4f}")
    print(f"dead weights: {dead_weights():.1%} are nearer to zero than 0.1")
    options.picture.write_text(picture(losses, accuracies))
    print(f"learning curve: {options.picture}")


if __name__ == "__main__":
    main()
