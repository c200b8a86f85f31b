"""Add entries to a wheel that was already packed: large files, uncompressed, and texts.

Deflating weights takes long and hardly makes them smaller, and scikit-build-core deflates every file in memory.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

LARGE = 16 << 20  # bytes


def add_entries(wheel: Path, files: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    """Add files and texts to a wheel and its RECORD, by their names in it; a text replaces an entry of its name."""
    if not files and not texts:
        return
    unfinished = wheel.with_name(f"{wheel.name}.{os.getpid()}")
    try:
        with ZipFile(wheel) as old, ZipFile(unfinished, "w") as new:
            *entries, record = old.infolist()  # the RECORD comes last
            for entry in entries:
                if entry.filename not in texts:
                    new.writestr(entry, old.read(entry))
            lines = old.read(record).decode().splitlines(keepends=True)
            lines = [line for line in lines if line.partition(",")[0] not in texts]
            lines[-1:-1] = [
                *(f"{name},{_deflate_text(new, name, text, record)}\n" for name, text in texts.items()),
                *(f"{name},{_store_file(new, name, path, record)}\n" for name, path in files.items()),
            ]
            new.writestr(record, "".join(lines))
        os.replace(unfinished, wheel)
    finally:
        unfinished.unlink(missing_ok=True)


def _store_file(wheel: ZipFile, name: str, path: Path, record: ZipInfo) -> str:
    """Store a file with the time of ``record``; return its digest and size, as a RECORD has them."""
    status = path.stat()
    entry = ZipInfo(name, record.date_time)
    entry.compress_type, entry.file_size = ZIP_STORED, status.st_size
    entry.external_attr = (stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644)) << 16
    with path.open("rb") as source, wheel.open(entry, "w") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    with path.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
    return _record_fields(digest, status.st_size)


def _deflate_text(wheel: ZipFile, name: str, text: str, record: ZipInfo) -> str:
    """Write a text with the time of ``record``; return its digest and size, as a RECORD has them."""
    entry, content = ZipInfo(name, record.date_time), text.encode()
    entry.compress_type, entry.external_attr = ZIP_DEFLATED, (stat.S_IFREG | 0o644) << 16
    wheel.writestr(entry, content)
    return _record_fields(hashlib.sha256(content).digest(), len(content))


def _record_fields(digest: bytes, size: int) -> str:
    """Format the fields of a RECORD: ``sha256=..,12``."""
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{size}"
