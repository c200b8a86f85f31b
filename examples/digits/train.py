"""Train in compiled code and save the weights. Needs the wheel of the folder train and nothing else."""

import argparse
import sys
import time
from array import array
from pathlib import Path

from data import Images, load
from digits_train import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import curves

BATCH = 20


def batch(images: Images) -> tuple[memoryview, array]:
    """Pixels and digits as the module takes them."""
    pixels = memoryview(b"".join(pixels for pixels, _ in images)).cast("B", (len(images), 64))
    return pixels, array("q", [digit for _, digit in images])


def accuracy(model: nn.Model, images: Images) -> float:
    """The share of images whose digit has the highest score."""
    scores = model.forward(batch(images)[0]).tolist()
    return sum(row.index(max(row)) == digit for row, (_, digit) in zip(scores, images, strict=True)) / len(images)


def main() -> None:
    """Train, print, save, draw."""
    parser = argparse.ArgumentParser(description="Train the digits and save the weights.")
    parser.add_argument("--epochs", type=int, default=60, help="rounds over the images (default: %(default)s)")
    parser.add_argument("--out", default="digits.safetensors", help="file for the weights (default: %(default)s)")
    parser.add_argument(
        "--picture", type=Path, default=Path("digits.svg"), help="file for the learning curve (default: %(default)s)"
    )
    options = parser.parse_args()
    losses: list[tuple[int, float]] = []
    accuracies: list[tuple[int, float]] = []
    train, test = load()
    pixels, labels = batch(train)
    model = nn.Model()
    start = time.perf_counter()
    for epoch in range(1, options.epochs + 1):
        lr = 0.1 if epoch <= options.epochs * 2 / 3 else 0.02
        loss = model.fit(pixels, labels, lr, batch=BATCH, seed=epoch)
        right = accuracy(model, test)
        losses.append((epoch, loss))
        accuracies.append((epoch, 100 * right))
        if epoch % 10 == 0 or epoch == options.epochs:
            print(f"epoch {epoch:3}   loss {loss:.4f}   accuracy {right:6.1%}", flush=True)
    print(f"{options.epochs * len(train):,} images in {time.perf_counter() - start:.2f} s")
    model.save(options.out)
    panels = {
        "loss (cross-entropy, nats)": {"training": losses},
        "accuracy, %": {f"{len(test)} test images": accuracies},
    }
    options.picture.write_text(curves("Handwritten digits", "epochs of training", panels))
    print(f"weights: {options.out}   learning curve: {options.picture}")


if __name__ == "__main__":
    main()
