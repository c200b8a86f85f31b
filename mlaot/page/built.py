"""What a page shows of a built module: what a call takes, its kernels if the module has a profile, and its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlaot.probe import BuiltModule, ask

Data = dict[str, Any]

BATCH = 16
NO_PROFILE = "Kernels have no times: they need a module that was built with `profile = true` in its table."


def describe_built(module: BuiltModule, isas: Sequence[str], origin: str, sizes: dict[str, int]) -> Data:
    """Time a module on each of the instruction sets ``isas``, the best last, and return what its page shows.

    ``origin``: the wheel or the file that it comes from, of which ``sizes`` has the parts.
    """
    info = ask(module, "info")
    runs = {isa: ask(module, "bench", isa=isa, batches=(BATCH,), profile=True) for isa in isas}
    rows: dict[str, dict[str, Data]] = {}
    for isa, run in runs.items():
        for row in run["rows"]:
            rows.setdefault(row["entry"], {})[isa] = row
    refused = {entry: why for run in runs.values() for entry, why in run["refused"].items()}
    is_profiled = any("trace" in row for of_entry in rows.values() for row in of_entry.values())
    remarks = [f"{entry} was not timed, as it refuses random inputs: {why}" for entry, why in refused.items()]
    return {
        "module": module.name,
        "model": origin,
        "inputs": "seeded random inputs",
        "machines": [{"isa": isa} for isa in isas],
        "entries": [_entry(name, of_isas) for name, of_isas in rows.items()],
        "passes": [],
        "sizes": {
            "weights and other constants": info["bytes"]["constants"],
            "state of an instance": info["bytes"]["state"],
            **sizes,
        },
        "golden": [],
        "remarks": remarks if is_profiled else [*remarks, NO_PROFILE],
    }


def _entry(name: str, rows: dict[str, Data]) -> Data:
    """Describe an entry by its times and its traces on each instruction set."""
    events = {isa: [e for e in row.get("trace", ()) if e["ph"] == "X"] for isa, row in rows.items()}
    first = next(iter(events.values()))
    kernels = [
        {
            "kind": "",
            "title": event["name"],
            "origin": event["cat"],
            "computes": event["args"]["computes"].splitlines(),
            **{key: event["args"][key] for key in ("line", "rounds", "operations", "bytes")},
            "seconds": {isa: 1e-6 * own[i]["dur"] for isa, own in events.items() if i < len(own)},
            **{"width": 0, "reads": [], "writes": [], "nest": "", "function": "", "c": "", "loop": []},
        }
        for i, event in enumerate(first)
    ]
    batch = next(iter(rows.values()))["batch"]
    return {
        "name": name,
        "doc": "",
        "dims": {} if batch is None else {"batch": batch},
        "seconds": {isa: row["least"] for isa, row in rows.items()},
        "marked": {},
        "kernels": kernels,
        "memory": [],
    }
