"""Recognize the test images. Needs the wheel of the folder serve and nothing else: no NumPy, no mlaot."""

import argparse
import sys
from pathlib import Path

from data import load
from digits import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import confusion


def main() -> None:
    """Print one image in full, then the accuracy over all; draw which digits are taken for which."""
    parser = argparse.ArgumentParser(description="Recognize the test images.")
    parser.add_argument(
        "--picture", type=Path, default=Path("digits-answers.svg"), help="file for the table (default: %(default)s)"
    )
    options = parser.parse_args()
    _, test = load()
    pixels, digit = test[0]
    for row in range(0, 64, 8):
        print("".join(" .:-=+*#%@"[value * 9 // 16] * 2 for value in pixels[row : row + 8]))
    chances = nn.forward(list(pixels)).tolist()
    print(f"this is a {digit}; probabilities {' '.join(f'{chance:.2f}' for chance in chances)}")
    found = [row.index(max(row)) for row in nn.forward([list(pixels) for pixels, _ in test]).tolist()]
    right = sum(guess == digit for guess, (_, digit) in zip(found, test, strict=True))
    pairs = [(str(digit), str(guess)) for guess, (_, digit) in zip(found, test, strict=True)]
    kinds = [str(digit) for digit in range(10)]
    options.picture.write_text(confusion("Test images by digit", kinds, pairs, "images"))
    print(f"table of right and wrong answers: {options.picture}")
    print(f"test accuracy: {100 * right / len(test):.1f} %")


if __name__ == "__main__":
    main()
