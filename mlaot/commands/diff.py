"""``mlaot diff``: show what changed from one wheel to the next."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlaot.commands.inspect import signature
from mlaot.commands.modules import modules_of, read_wheel
from mlaot.commands.output import Data, add_json, report, table
from mlaot.errors import MlaotError
from mlaot.probe import BuiltModule, ask
from mlaot.stages import COMPARING, stage

HELP = "compare two wheels"
DESCRIPTION = """\
Compare two wheels: tags, metadata, files, and for each module that is not the
same file: what info() says, parameters, and what every function that both have
gives for the same seeded random inputs.
The exit status is 0 if they are the same, 1 if they differ, 2 if they cannot
be compared because one is no wheel.
"""
EXAMPLES = """\
  mlaot diff old/digits-1.0-cp311-abi3-linux_x86_64.whl digits-1.0-cp311-abi3-linux_x86_64.whl
"""
SAME, DIFFERENT, TROUBLE = 0, 1, 2  # the exit statuses of diff
VERSION = re.compile(r"^([^/]+)-[^/-]+\.dist-info/")  # in a path: removed, so that files of all versions compare
SIDES = ("old", "new")  # keys of ``changes``


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("old", metavar="OLD.whl", help="a wheel")
    parser.add_argument("new", metavar="NEW.whl", help="the wheel to compare it with")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print everything that differs, or that nothing does."""
    try:
        data = compare(options.old, options.new)
    except MlaotError as error:
        print(f"mlaot: {error}", file=sys.stderr)
        return TROUBLE
    report(data, show, options)
    return SAME if data["same"] else DIFFERENT


def compare(old: str, new: str) -> Data:
    """Return the differences between two wheels: files, then modules, then their state and answers."""
    wheels = [read_wheel(Path(path)) for path in (old, new)]
    files = changes(*map(contents, wheels))
    about = changes(*[{**wheel["metadata"], "tags": ", ".join(wheel["tags"])} for wheel in wheels])
    with modules_of(old) as before, modules_of(new) as after, tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        pairs = [(was, now) for was in before for now in after if was.name == now.name and not same_file(was, now)]
        modules = []
        with stage(COMPARING, len(pairs)) as advance:
            for pair in pairs:
                advance(pair[0].name)
                modules.append(compare_modules(*pair, Path(folder)))
    return {
        "old": Path(old).name,
        "new": Path(new).name,
        "same": not (about or files),
        "metadata": about,
        "files": [{**row, **{side: row[side] and row[side][0] for side in SIDES}} for row in files],
        "modules": modules,
    }


def contents(wheel: Data) -> dict[str, tuple[int, str]]:
    """Return sizes and checksums by path without the version, except of RECORD, which lists the other files."""
    files = [file for file in wheel["files"] if not file["path"].endswith(".dist-info/RECORD")]
    return {VERSION.sub(r"\1.dist-info/", file["path"]): (file["bytes"], file["crc"]) for file in files}


def compare_modules(old: BuiltModule, new: BuiltModule, folder: Path) -> Data:
    """Return the differences between two builds of a module: in their info, their state and their answers."""
    differences: Data = {"module": old.name, "error": None, "info": [], "values": []}
    files = [folder / f"{old.name}.{side}.npz" for side in SIDES]
    try:
        was = ask(old, "values", arrays=str(files[0]), limits={})
        now = ask(new, "values", arrays=str(files[1]), limits=was["limits"])
    except MlaotError as error:
        return {**differences, "error": str(error)}
    differences["info"] = changes(flatten(was), flatten(now))
    differences["values"] = list(compare_values(*files))
    return differences


def flatten(answer: Data) -> dict[str, str]:
    """Return a module's info by dotted names, ``parameters.hidden.weight``, with a line for each entry."""
    info = {key: value for key, value in answer["info"].items() if key not in ("entries", "isa")}
    rows = {key: str(value) for key, value in info.items() if not isinstance(value, dict)}
    for key, values in info.items():
        rows |= {f"{key}.{name}": str(value) for name, value in values.items()} if isinstance(values, dict) else {}
    for name, entry in answer["info"]["entries"].items():
        rows[f"entries.{name}"] = f"{signature(entry['inputs'])} -> {signature(entry['outputs'])}"
    return rows | {f"{name} for random inputs": message for name, message in answer["refused"].items()}


def compare_values(old: Path, new: Path) -> Iterator[Data]:
    """Yield the arrays of equal name, type and shape that differ: how many elements differ, and by how much at most."""
    import numpy as np

    with np.load(old) as before, np.load(new) as after:
        for name in before:
            if name not in after or (before[name].dtype, before[name].shape) != (after[name].dtype, after[name].shape):
                continue
            was, now = (np.atleast_1d(arrays[name]).astype("longdouble") for arrays in (before, after))
            differ = (was != now) & ~(np.isnan(was) & np.isnan(now))
            if differ.any():
                yield {
                    "what": name,
                    "elements": was.size,
                    "different": int(differ.sum()),
                    "difference": float(abs(was[differ] - now[differ]).max()),
                    "value": float(abs(was).max()),
                }


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Data]:
    """Return the keys whose values differ, with both values; None stands for a missing one."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [{"what": key, "old": old.get(key), "new": new.get(key)} for key in keys]


def same_file(old: BuiltModule, new: BuiltModule) -> bool:
    """Tell whether two modules are the same, byte by byte."""
    assert old.file is not None and new.file is not None
    return old.file.read_bytes() == new.file.read_bytes()


def show(data: Data) -> None:
    """Print the differences."""
    print(f"{data['old']} and {data['new']} " + ("hold the same" if data["same"] else "differ"))
    show_changes("metadata", data["metadata"])
    show_changes("file", data["files"], ">")
    for module in data["modules"]:
        print(f"\n{module['module']}" + (f": {module['error']}" if module["error"] else ""))
        show_changes("info", module["info"])
        if module["values"]:
            print()
            columns = ("value", ">elements", ">different", ">largest difference", ">largest value")
            rows = [(v["what"], v["elements"], v["different"], *number(v)) for v in module["values"]]
            table(columns, rows)
        elif not module["error"]:
            print("\n  every value that both have is the same")


def show_changes(what: str, rows: list[Data], align: str = "") -> None:
    """Print old and new side by side."""
    if rows:
        print()
        table((what, f"{align}old", f"{align}new"), cells(rows))


def cells(rows: list[Data]) -> list[tuple[str, ...]]:
    """Return the cells of a table of changes."""
    return [(row["what"], *["-" if row[side] is None else row[side] for side in SIDES]) for row in rows]


def number(value: Data) -> tuple[str, str]:
    """Format the magnitudes of a row."""
    return f"{value['difference']:.3g}", f"{value['value']:.3g}"
