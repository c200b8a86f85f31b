"""The idx reader: what it yields, and what it says about files that are not what they should be."""

from __future__ import annotations

import gzip
import os
import struct
from collections import Counter
from pathlib import Path

import pytest

from mlaot.errors import MlaotError
from mlaot.micrograd import images

PIXELS = [bytes((i * 7 + j) % 256 for j in range(784)) for i in range(3)]


def write(folder: Path, changes: dict[str, bytes] | None = None, zipped: bool = False) -> tuple[Path, Path]:
    """Three images and their labels; ``changes`` replaces either file's content."""
    contents = {
        "images": b"\0\0\x08\x03" + struct.pack(">3L", 3, 28, 28) + b"".join(PIXELS),
        "labels": b"\0\0\x08\x01" + struct.pack(">L", 3) + bytes([7, 0, 9]),
        **(changes or {}),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(gzip.compress(content) if zipped else content)
    return folder / "images", folder / "labels"


@pytest.mark.parametrize("zipped", [False, True])
def test_row_33_images(tmp_path: Path, zipped: bool) -> None:
    """Labels and pixels in file order, ``num_left`` counting down; gzip is seen by content, not by name."""
    reader = images(*write(tmp_path, zipped=zipped))
    assert (reader.num_images, reader.num_left()) == (3, 3)
    first = next(reader)
    assert (first.label, first.pixels, reader.num_left()) == (7, PIXELS[0], 2)
    assert [(label, pixels) for label, pixels in reader] == [(0, PIXELS[1]), (9, PIXELS[2])]
    assert reader.num_left() == 0
    assert list(reader) == []


def test_row_33_closes_its_files(tmp_path: Path) -> None:
    """A reader that is left early is closed by ``with``."""
    with images(*write(tmp_path)) as reader:
        next(reader)
    with pytest.raises(ValueError, match="closed"):
        next(reader)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": b"\x89PNG" + bytes(12)}, r"images: magic number: expected b'\x00\x00\x08\x03', got b'\x89PNG'"),
        ({"labels": b"\0\0\x08\x03" + bytes(4)}, r"labels: magic number: expected b'\x00\x00\x08\x01'"),
        ({"labels": b"\0\0\x08\x01" + struct.pack(">L", 4)}, "labels: number of labels: expected 3, got 4"),
        (
            {"images": b"\0\0\x08\x03" + struct.pack(">3L", 3, 28, 27)},
            "images: image size: expected (28, 28), got (28, 27)",
        ),
        ({"images": b"\0\0\x08\x03" + bytes(5)}, "images: bytes left: expected 12, got 5"),
        ({"labels": b""}, "labels: bytes left: expected 4, got 0"),
    ],
)
def test_row_33_wrong_headers(tmp_path: Path, changes: dict[str, bytes], message: str) -> None:
    """Magic numbers, counts and image size are checked; the message has file, expected and got."""
    with pytest.raises(MlaotError) as error:
        images(*write(tmp_path, changes))
    assert message in str(error.value)


@pytest.mark.parametrize("zipped", [False, True])
def test_row_33_cut_files(tmp_path: Path, zipped: bool) -> None:
    """A file that ends too early, also inside the gzip stream, is an error."""
    paths = write(tmp_path, zipped=zipped)
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[: len(content) - 100])
    message = "images: damaged gzip file" if zipped else "images: bytes left: expected 784, got 684"
    with pytest.raises(MlaotError, match=message):
        list(images(*paths))


def test_row_33_missing_file(tmp_path: Path) -> None:
    """What ``open`` says, and nothing is left open."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        images(write(tmp_path)[0], tmp_path / "nowhere")


@pytest.mark.skipif("MLAOT_MNIST" not in os.environ, reason="MLAOT_MNIST names no folder with the MNIST files")
@pytest.mark.parametrize(("part", "number", "ones"), [("train", 60_000, 6_742), ("t10k", 10_000, 1_135)])
def test_row_33_mnist(part: str, number: int, ones: int) -> None:
    """The real files, whole: 60,000 and 10,000 images."""
    folder = Path(os.environ["MLAOT_MNIST"])
    reader = images(*(next(folder.glob(f"{part}-{kind}-ubyte*")) for kind in ("images-idx3", "labels-idx1")))
    assert reader.num_left() == number
    counts = Counter(label for label, _ in reader)
    assert counts.total() == number
    assert counts[1] == ones
