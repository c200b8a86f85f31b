"""Train LeNet-5 on MNIST for five epochs: to about 99 % of the test images.

    python train.py --data FOLDER     # the four idx files, gzipped or not
    python train.py                   # fetched from openml.org by scikit-learn

Needs the wheel of this folder; without --data also scikit-learn.
"""

import argparse
import sys
import time
from array import array
from pathlib import Path

from lenet import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import curves
from images import Images, load

EPOCHS = 5  # the learning rate is 0 then
BATCH = 64
SHAPE = (1, 28, 28)


def evaluate(model: nn.Model, images: Images) -> tuple[float, float]:
    """The share of images that are recognized, and their mean loss."""
    right, total = 0, 0.0
    for start in range(0, len(images), 1000):
        which = range(start, min(start + 1000, len(images)))
        found = model.evaluate(*images.batch(which, *SHAPE))
        right += sum(found["right"].tolist())
        total += sum(found["loss"].tolist())
    return right / len(images), total / len(images)


def train_epoch(
    model: nn.Model, pixels: memoryview, labels: array, epoch: int, losses: list[tuple[float, float]]
) -> None:
    """One round over all images in random order; ``losses`` gets epochs so far, and the mean loss since the last."""
    seen, total = 0, 0.0

    def progress(done: int, count: int, loss: float) -> None:
        nonlocal seen, total
        losses.append((epoch - 1 + done / count, (loss * done - total) / (done - seen)))
        seen, total = done, loss * done
        print(f"\r  {done:6,} of {count:,} images   loss {losses[-1][1]:.4f}", end="", flush=True)

    start = time.perf_counter()
    model.fit(pixels, labels, batch=BATCH, seed=epoch, callback=progress)
    seconds = time.perf_counter() - start
    print(f"\r  {seen:,} images in {seconds:.1f} s: {seen / seconds:,.0f} images per second", flush=True)


def main() -> None:
    """Train, print, save, draw; Ctrl-C ends the training early."""
    parser = argparse.ArgumentParser(description="Train LeNet-5 on MNIST; Ctrl-C ends it with what it has learnt.")
    parser.add_argument("--data", type=Path, help="folder with the four idx files of MNIST")
    parser.add_argument("--out", default="lenet.safetensors", help="file for the weights (default: %(default)s)")
    parser.add_argument(
        "--picture", type=Path, default=Path("lenet.svg"), help="file for the learning curve (default: %(default)s)"
    )
    options = parser.parse_args()
    train, test = load(options.data)
    pixels, labels = train.batch(range(len(train)), *SHAPE)
    model = nn.Model()
    losses: list[tuple[float, float]] = []
    accuracies: list[tuple[float, float]] = []
    try:
        for epoch in range(1, EPOCHS + 1):
            train_epoch(model, pixels, labels, epoch, losses)
            accuracy, loss = evaluate(model, test)
            accuracies.append((epoch, 100 * accuracy))
            print(f"epoch {epoch}: test loss {loss:.4f}, test accuracy {accuracy:.4f}", flush=True)
    except KeyboardInterrupt:
        print(f"\nended in epoch {len(accuracies) + 1}: test accuracy {evaluate(model, test)[0]:.4f}")
    model.save(options.out)
    panels = {
        "loss (cross-entropy, nats)": {"training": losses},
        "accuracy, %": {f"{len(test):,} test images": accuracies},
    }
    options.picture.write_text(curves("LeNet-5 on MNIST", "epochs of training", panels))
    print(f"weights: {options.out}   learning curve: {options.picture}")


if __name__ == "__main__":
    main()
