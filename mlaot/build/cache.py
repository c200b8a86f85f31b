"""Keep compiled objects between builds, since isolated builds start from nothing each time.

The key of an object is a digest of everything that it depends on: the preprocessed C, the embedded weights, the
compiler and its flags. The C depends on the graph, the settings and the templates. A cache file holds a digest of key
and content, then the content. A damaged, truncated or misplaced file does not match its digest and is made again. Files
appear atomically, so builds may run side by side and may be killed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

MAX_BYTES = 1 << 30  # bytes of all files; those that were not used for the longest time go first
MAX_FILE_BYTES = MAX_BYTES // 16  # of one file: a file of weights is compiled as quickly as it is read
CACHE_VARIABLE = "MLAOT_CACHE"
OFF = "off"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of the cache: ``$MLAOT_CACHE`` or the user's cache folder.

    None if the variable says ``off``.
    """
    value = environ.get(CACHE_VARIABLE)
    return None if value == OFF else Path(value or platformdirs.user_cache_dir("mlaot", appauthor=False)).absolute()


def make_cached(parts: Callable[[], list[bytes]], path: Path, make: Callable[[], object]) -> None:
    """Let ``make`` write the file ``path``, or copy it from the cache.

    ``parts`` returns everything that the file depends on. If the cache cannot be read or written, the build is slower
    but does not fail.
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
    if path.stat().st_size <= MAX_FILE_BYTES:
        with suppress(OSError):
            store(entry, key, path.read_bytes())


def load(entry: Path, key: bytes) -> bytes | None:
    """Read the content of a cache file; return None if the file is missing or damaged."""
    try:
        data = entry.read_bytes()
        os.utime(entry)
    except OSError:
        return None
    digest, content = data[:32], data[32:]
    return content if digest == hashlib.sha256(key + content).digest() else None


def store(entry: Path, key: bytes, content: bytes) -> None:
    """Write a cache file, then delete the oldest files if the cache is too large."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=entry.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(hashlib.sha256(key + content).digest() + content)
        os.replace(unfinished, entry)
    finally:
        with suppress(OSError):
            os.unlink(unfinished)
    prune(entry.parent, MAX_BYTES)


def prune(folder: Path, limit: int) -> None:
    """Delete the least recently used files, leftovers of killed builds included, until ``limit`` bytes are left."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another build may delete it meanwhile
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            break
        total -= size
        with suppress(OSError):
            os.unlink(path)
