"""Compare a report with an earlier one: what functions and kernels took, matched by what they compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mlaot.checked_json import parse_json
from mlaot.errors import MlaotError

Data = dict[str, Any]

STEADY = 0.1  # by which share times of one kernel differ from run to run
# What is read of an earlier report.
KERNEL = {"origin": str, "title": str, "seconds": {str: float}}
ENTRY = {"name": str, "seconds": {str: float}, "kernels": [KERNEL]}
NOTHING: Data = {"seconds": {}}  # in place of an entry or a kernel that a report has not


def read_report(path: Path) -> list[Data]:
    """Return the entries of an earlier report."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MlaotError(f"cannot read {path}: {error}") from None
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    if found is None:
        raise MlaotError(f"{path} is no report; expected a file that `mlaot report` has written")
    entries: list[Data] = parse_json(found[1], {"entries": [ENTRY]}, str(path))["entries"]
    return entries


def list_changes(before: Sequence[Data], after: Sequence[Data]) -> list[Data]:
    """Return what two reports have of each entry and of each kernel, matched by what it computes, on the best machine.

    Kernels whose times differ by less than ``STEADY`` are left out.
    """
    rows = []
    for old, new in _matched(before, after, lambda entry: (entry["name"],)):
        isa = next(reversed((new or old or NOTHING)["seconds"]), "")
        rows.append(_change(old, new, isa, "name"))
        for pair in _matched(_kernels(old), _kernels(new), lambda kernel: (kernel["origin"], kernel["title"])):
            row = _change(*pair, isa, "origin", "title")
            if row["ratio"] is None or abs(row["ratio"] - 1) > STEADY:
                rows.append(row)
    return rows


def _kernels(entry: Data | None) -> Sequence[Data]:
    kernels: Sequence[Data] = entry["kernels"] if entry else ()
    return kernels


def _matched(
    before: Sequence[Data], after: Sequence[Data], key: Callable[[Data], tuple[str, ...]]
) -> Iterator[tuple[Data | None, Data | None]]:
    """Yield pairs of equal keys, in the order of the later ones, then what has gone; None where there is no other."""
    left: dict[tuple[str, ...], list[Data]] = {}
    for each in before:
        left.setdefault(key(each), []).append(each)
    for each in after:
        others = left.get(key(each))
        yield (others.pop(0) if others else None), each
    for others in left.values():
        yield from ((each, None) for each in others)


def _change(old: Data | None, new: Data | None, isa: str, *keys: str) -> Data:
    """Return the row of a pair, which the values of ``keys`` name."""
    what, computes = [*((new or old or NOTHING)[key] for key in keys), ""][:2]
    before, after = ((each or NOTHING)["seconds"].get(isa) for each in (old, new))
    ratio = after / before if before and after else None
    return {"what": what, "computes": computes, "before": before, "after": after, "ratio": ratio}
