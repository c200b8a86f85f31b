"""Reader of handwritten digits in idx files, the format of MNIST (http://yann.lecun.com/exdb/mnist/)."""

from __future__ import annotations

import gzip
import struct
import zlib
from contextlib import ExitStack
from os import PathLike
from typing import BinaryIO, NamedTuple, Self, cast

from mlaot.errors import MlaotError

ROWS = COLUMNS = 28
IMAGES_MAGIC = b"\x00\x00\x08\x03"  # unsigned bytes, three dimensions
LABELS_MAGIC = b"\x00\x00\x08\x01"  # unsigned bytes, one dimension
GZIP_MAGIC = b"\x1f\x8b"


class Image(NamedTuple):
    """A digit: its label and its 784 grey values, row by row."""

    label: int
    pixels: bytes


class Images:
    """Iterator over the images of a pair of idx files, gzipped or not. Both stay open until the last image was read."""

    def __init__(self, path_images: str | PathLike[str], path_labels: str | PathLike[str]) -> None:
        self._read = 0
        with ExitStack() as opened:
            self._images = opened.enter_context(_File(path_images))
            self._labels = opened.enter_context(_File(path_labels))
            self.num_images = self._check_headers()
            self._opened = opened.pop_all()

    def num_left(self) -> int:
        """Return the number of images that are still to be read."""
        return self.num_images - self._read

    def close(self) -> None:
        """Close both files."""
        self._opened.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Image:
        if self.num_left() == 0:
            self.close()
            raise StopIteration
        try:
            image = Image(self._labels.read(1)[0], self._images.read(ROWS * COLUMNS))
        except MlaotError:
            self.close()
            raise
        self._read += 1
        return image

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_headers(self) -> int:
        self._images.expect("magic number", self._images.read(4), IMAGES_MAGIC)
        self._labels.expect("magic number", self._labels.read(4), LABELS_MAGIC)
        images, rows, columns = struct.unpack(">3L", self._images.read(12))
        (labels,) = struct.unpack(">L", self._labels.read(4))
        self._labels.expect("number of labels", labels, images)
        self._images.expect("image size", (rows, columns), (ROWS, COLUMNS))
        return cast(int, images)


images = Images


class _File:
    """A file that is read to an exact length."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path
        with open(path, "rb") as file:
            zipped = file.read(2) == GZIP_MAGIC
        self.file = cast(BinaryIO, gzip.open(path) if zipped else open(path, "rb"))  # noqa: SIM115 (closed by __exit__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def read(self, size: int) -> bytes:
        try:
            content = self.file.read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise MlaotError(f"{self.path}: damaged gzip file: {error}") from error
        self.expect("bytes left", len(content), size)
        return content

    def expect(self, what: str, got: object, expected: object) -> None:
        if got != expected:
            raise MlaotError(f"{self.path}: {what}: expected {expected!r}, got {got!r}")
