"""Recognize the test images. Needs the wheel of the folder serve and nothing else: no NumPy, no mlaot."""

from data import load
from digits import nn


def main() -> None:
    """One image in full, then the accuracy over all."""
    _, test = load()
    pixels, digit = test[0]
    for row in range(0, 64, 8):
        print("".join(" .:-=+*#%@"[value * 9 // 16] * 2 for value in pixels[row : row + 8]))
    chances = nn.forward(list(pixels)).tolist()
    print(f"this is a {digit}; probabilities {' '.join(f'{chance:.2f}' for chance in chances)}")
    found = [row.index(max(row)) for row in nn.forward([list(pixels) for pixels, _ in test]).tolist()]
    right = sum(guess == digit for guess, (_, digit) in zip(found, test, strict=True))
    print(f"test accuracy: {100 * right / len(test):.1f} %")


if __name__ == "__main__":
    main()
