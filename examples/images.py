"""MNIST: handwritten digits, from idx files or fetched from openml.org."""

import gzip
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

PIXELS = 28 * 28
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

    def batch(self, which: Sequence[int], *shape: int) -> tuple[memoryview, array]:
        """Some images as a module takes them: bytes, each image in ``shape``, and 64-bit integers."""
        pixels = b"".join([self.pixels[i * PIXELS : (i + 1) * PIXELS] for i in which])
        return memoryview(pixels).cast("B", (len(which), *shape)), array("q", [self.labels[i] for i in which])


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
    """Fetch the images from openml.org."""
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


def load(folder: Path | None) -> tuple[Images, Images]:
    """Images to train and to test with: from idx files in ``folder``, without one from openml.org."""
    return read_folder(folder) if folder else fetch()
