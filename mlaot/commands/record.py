"""Check the files of a wheel against its RECORD, the list of the files that were packed."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mlaot.commands.modules import open_wheel

SIGNATURES = ("RECORD.jws", "RECORD.p7s")  # of RECORD, which cannot list them
ALGORITHMS = ("sha256", "sha384", "sha512")
Complaint = tuple[str, str]  # a file, and what is wrong with it


def wrong_files(path: Path) -> list[Complaint]:
    """Return the differences between a wheel and its RECORD, in the order of names."""
    with open_wheel(path) as wheel:
        names = [entry.filename for entry in wheel.infolist() if not entry.is_dir()]
        records = [name for name in names if is_top(name, "RECORD")]
        if len(set(records)) != 1:
            return [("RECORD", f"expected one .dist-info/RECORD, got {len(set(records))}")]
        return sorted(set(check_rows(wheel, names, records[0])))


def is_top(name: str, file: str) -> bool:
    """Tell whether a file lies directly in the wheel's ``.dist-info``."""
    parts = name.split("/")
    return len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == file


def check_rows(wheel: zipfile.ZipFile, names: list[str], record: str) -> Iterator[Complaint]:
    """Check that every file has a row, every row a file, and that they agree."""
    rows: dict[str, list[str]] = {}
    try:
        lines = list(csv.reader(wheel.read(record).decode("utf-8").splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        yield record, f"cannot be read: {error}"
        return
    for number, row in enumerate(lines, 1):
        if len(row) != 3:
            yield record, f"line {number}: expected a path, a digest and a size, got {len(row)} fields"
        elif rows.setdefault(row[0], row[1:]) != row[1:]:
            yield row[0], "stands in RECORD more than once"
    for name, count in Counter(names).items():
        if count > 1:
            yield name, f"is there {count} times"
        if PurePosixPath(name).is_absolute() or ".." in name.split("/") or "\\" in name:
            yield name, "leads out of the wheel"
        if name in rows:
            yield from check_file(wheel, name, *rows[name], is_record=name == record)
        elif not any(is_top(name, signature) for signature in SIGNATURES):
            yield name, "is not in RECORD"
    for name in rows.keys() - set(names):
        yield name, "is in RECORD, but not there"


def check_file(wheel: zipfile.ZipFile, name: str, expected: str, size: str, *, is_record: bool) -> Iterator[Complaint]:
    """Check a file against its row; RECORD does not list its own digest."""
    if is_record:
        return
    content = wheel.read(name)
    kind, _, digest = expected.partition("=")
    if kind not in ALGORITHMS:
        yield name, f"expected a digest by {', '.join(ALGORITHMS)} in RECORD, got {expected!r}"
    elif digest.rstrip("=") != (actual := digest_of(kind, content)):
        yield name, f"expected {expected}, got {actual}"
    if size and size != str(len(content)):
        yield name, f"expected {size} bytes, got {len(content)}"


def digest_of(kind: str, content: bytes) -> str:
    """Format a digest as RECORD does."""
    return base64.urlsafe_b64encode(hashlib.new(kind, content).digest()).rstrip(b"=").decode()
