"""Compiled objects, kept between builds: isolated builds start from nothing each time.

An object's key is a digest of everything that it is made from: the preprocessed C (so of the graph, the settings and
the templates), the weights that it embeds, the compiler, what that is and its flags. A file holds a digest of its key
and content, then the content; one that is damaged, cut short or misplaced is not used, and made again. It appears whole
or not at all, so builds may run side by side and may be killed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

LIMIT = 1 << 30  # bytes of all files; those that were not used for the longest time go first
LARGEST = LIMIT // 16  # of one file: what is mostly weights is made as quickly as it is read
VARIABLE = "MLAOT_CACHE"
OFF = "off"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the files lie: ``$MLAOT_CACHE``, or the user's folder for caches; None where that variable is ``off``."""
    said = environ.get(VARIABLE)
    return None if said == OFF else Path(said or platformdirs.user_cache_dir("mlaot", appauthor=False)).absolute()


def cached(parts: Callable[[], list[bytes]], path: Path, make: Callable[[], object]) -> None:
    """Let ``make`` write the file ``path``, or take it from the cache. ``parts`` are all that it is made from.

    A cache that cannot be read or written costs time and nothing else.
    """
    folder = cache_folder()
    if folder is None:
        make()
        return
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts())).digest()
    entry = folder / key.hex()
    content = load(entry, key)
    if content is not None:
        path.write_bytes(content)
        return
    make()
    if path.stat().st_size <= LARGEST:
        with suppress(OSError):
            store(entry, key, path.read_bytes())


def load(entry: Path, key: bytes) -> bytes | None:
    """The content of a file of the cache; None where there is none that is whole."""
    try:
        data = entry.read_bytes()
        os.utime(entry)
    except OSError:
        return None
    digest, content = data[:32], data[32:]
    return content if digest == hashlib.sha256(key + content).digest() else None


def store(entry: Path, key: bytes, content: bytes) -> None:
    """Write a file of the cache, and delete the oldest where all are too many."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=entry.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(hashlib.sha256(key + content).digest() + content)
        os.replace(unfinished, entry)
    finally:
        with suppress(OSError):
            os.unlink(unfinished)
    prune(entry.parent, LIMIT)


def prune(folder: Path, limit: int) -> None:
    """Delete what was not used for the longest time until ``limit`` bytes are left, also what killed builds left."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another build may delete it meanwhile
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            break
        total -= size
        with suppress(OSError):
            os.unlink(path)
