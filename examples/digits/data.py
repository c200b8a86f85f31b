"""The handwritten digits of digits.csv.gz: 1,797 images of 8x8 pixels from 0 to 16, and the digit that each shows.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998,
https://doi.org/10.24432/C50P49 (CC BY 4.0). This is its test set, in the order of scikit-learn's ``load_digits``.
"""

import gzip
from pathlib import Path

Images = list[tuple[bytes, int]]


def load() -> tuple[Images, Images]:
    """Images to train with, and every fifth one to test with: pixels and digit."""
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as file:
        rows = [bytes(map(int, line.split(","))) for line in file]
    images = [(row[:64], row[64]) for row in rows]
    return [image for i, image in enumerate(images) if i % 5], images[::5]
