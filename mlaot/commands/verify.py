"""``mlaot verify``: check that a build from the sources gives the same wheel."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mlaot.build.platforms import ABIS, ANY
from mlaot.commands.diff import cells, changes
from mlaot.commands.hooks import call_hook, unpack
from mlaot.commands.modules import open_wheel
from mlaot.commands.output import Data, add_json, report, table
from mlaot.commands.sbom import SBOM, compiler_of, provenance_of, read_sbom
from mlaot.settings.reading import load_settings
from mlaot.stages import BUILD

STAGES = BUILD
HELP = "rebuild a wheel from its sources and compare"
DESCRIPTION = """\
Build a wheel once more from its sdist, or from the project's folder, in a
temporary place and without the object cache, and compare the two byte by byte.
Where they differ, say in which file, and what the wheel was made with that is
another here. The exit status is 0 if they are the same, 1 if they differ.
"""
EXAMPLES = """\
  mlaot verify digits-1.0-cp311-abi3-linux_x86_64.whl --sdist digits-1.0.tar.gz
  mlaot verify digits-1.0-cp311-abi3-win_amd64.whl --source .      made by zig, so it is by zig again
"""
EXCLUDED = (".git", ".venv", "build", "dist")  # of a project's folder
ARCHIVE = {"filename": "order of the files", "date_time": "times", "external_attr": "permissions"}  # of zip's entries


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("wheel", metavar="WHEEL", help="the wheel")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--sdist", metavar="SDIST", help="the sdist that belongs to it")
    where.add_argument("--source", metavar="FOLDER", help="the project's folder")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Rebuild and compare."""
    path = Path(options.wheel)
    with open_wheel(path) as wheel:
        bom = read_sbom(wheel)
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        sources = Path(folder, "sources")
        if options.sdist:
            sources.mkdir()
            project = unpack(Path(options.sdist), sources)
        else:
            project = copy_project(Path(options.source), sources)
        data = compare(path, rebuild(project, path, bom, Path(folder), quiet=options.json))
    report(data, show, options)
    return 0 if data["same"] else 1


def copy_project(source: Path, target: Path) -> Path:
    """Copy the files of a project, except results of builds."""

    def excluded(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == source
        return [name for name in names if name == "__pycache__" or (top and name in EXCLUDED)]

    load_settings(source)
    shutil.copytree(source, target, ignore=excluded, symlinks=True)
    return target


def rebuild(project: Path, wheel: Path, bom: Data, folder: Path, *, quiet: bool) -> Path:
    """Build the same wheel from ``project``, for the ABI of its tag, and for its platform if zig compiled it."""
    out = folder / "out"
    out.mkdir()
    options: dict[str, str] = {}
    if load_settings(project).backend == "mlaot.build":
        *_, python, abi, platform = ("", "", "", *wheel.stem.split("-"))
        options |= {"mlaot.abi": f"{python}-{abi}"} if f"{python}-{abi}" in ABIS else {}
        options |= {"mlaot.platform": platform} if platform == ANY or compiler_of(bom).get("name") == "zig" else {}
    note = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    return call_hook(project, "build_wheel", out, note, options=options, cache=False)


def compare(wheel: Path, rebuilt: Path) -> Data:
    """Compare digests, and if they differ, the files and the bills of materials."""
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, rebuilt)]
    data: Data = {"wheel": wheel.name, "rebuilt": rebuilt.name, "sha256": digests, "same": digests[0] == digests[1]}
    with open_wheel(wheel) as old, open_wheel(rebuilt) as new:
        provenance = changes(provenance_of(read_sbom(old)), provenance_of(read_sbom(new)))
        files = [] if data["same"] else list(differences(old, new))
    return {**data, "files": files, "made_with": provenance, "hint": hint(provenance) if files else None}


def differences(old: zipfile.ZipFile, new: zipfile.ZipFile) -> Iterator[Data]:
    """Yield the files that differ, and the place of the difference. RECORD is skipped: it holds the others' digests."""
    names = [set(wheel.namelist()) for wheel in (old, new)]
    same = True
    for name in sorted(names[0] | names[1]):
        if name.endswith(".dist-info/RECORD"):
            continue
        if name not in names[0] or name not in names[1]:
            where = f"only in the {'rebuilt' if name in names[1] else 'given'} wheel"
        elif (was := old.read(name)) != (now := new.read(name)):
            where = "what it was made with" if name.endswith(SBOM) else difference(was, now)
        else:
            continue
        same = False
        yield {"file": name, "difference": where}
    if same:
        yield {"file": "(archive)", "difference": archive_difference(old, new)}


def difference(old: bytes, new: bytes) -> str:
    """Name the difference between two contents: sections of a library, a line of a text, or else a byte."""
    parts = [sections(content) for content in (old, new)]
    if all(parts):
        names = [row["what"] for row in changes(*parts)]
        return f"sections {', '.join(names)}" if names else "headers"
    try:
        lines = [content.decode().splitlines() for content in (old, new)]
    except UnicodeDecodeError:
        first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        return f"byte {first} of {len(old)} and {len(new)}"
    for number, (was, now) in enumerate(zip(*lines, strict=False), 1):
        if was != now:
            return f"line {number}: {was.strip()[:60]!r}, here {now.strip()[:60]!r}"
    return f"{len(lines[0])} and {len(lines[1])} lines"


def sections(content: bytes) -> dict[str, bytes]:
    """Return the sections of a 64-bit ELF file by name, or none for a damaged file or another format."""
    if content[:6] != b"\x7fELF\x02\x01":
        return {}
    try:
        (at,) = struct.unpack_from("<Q", content, 0x28)
        size, count, names = struct.unpack_from("<HHH", content, 0x3A)
        heads = [struct.unpack_from("<IIQQQQ", content, at + i * size) for i in range(count)]
        text = content[heads[names][4] :]
        by_name = {text[head[0] : text.index(b"\0", head[0])].decode(): head for head in heads}
    except (struct.error, IndexError, ValueError):
        return {}
    empty = 8  # SHT_NOBITS: takes no room in the file
    return {name: content[h[4] : h[4] + h[5]] for name, h in by_name.items() if name and h[1] != empty}


def archive_difference(old: zipfile.ZipFile, new: zipfile.ZipFile) -> str:
    """Say what differs between archives of the same files."""
    for field, what in ARCHIVE.items():
        if [getattr(entry, field) for entry in old.infolist()] != [getattr(entry, field) for entry in new.infolist()]:
            return what
    return "compression: the same files, packed by another zlib"


def hint(provenance: list[Data]) -> str:
    """Say what to do about the difference."""
    rows: Mapping[str, Data] = {row["what"]: row for row in provenance}
    if "mlaot" in rows and rows["mlaot"]["old"] is None:
        return "the wheel has no bill of materials of mlaot that can be read, so what it was made with is unknown"
    if row := rows.get("mlaot"):
        return f"it was made with mlaot {row['old']}: pip install mlaot=={row['old']}"
    if row := rows.get("compiler"):
        return f"it was made with {row['old']}, here is {row['new']}: install that one and set CC to it"
    if flags := [row for name, row in rows.items() if name in ("CFLAGS", "LDFLAGS", "ARCHFLAGS")]:
        return f"it was made with {flags[0]['what']}={flags[0]['old'] or ''!r}, here it is {flags[0]['new'] or ''!r}"
    if any(name.endswith(" sha256") for name in rows):
        return "it was made from other sources than these"
    return "nothing that is noted in it differs; tools that pack wheels, such as auditwheel, may have changed it"


def show(data: Data) -> None:
    """Print the verdict, then what differs."""
    if data["same"]:
        print(f"{data['wheel']} is what its sources give\n  sha256 {data['sha256'][0]}")
        return
    print(f"{data['wheel']} is not what its sources give here")
    names = [data["wheel"], data["rebuilt"]] if data["wheel"] != data["rebuilt"] else ["given", "rebuilt"]
    table(("wheel", "sha256"), list(zip(names, data["sha256"], strict=True)))
    print()
    table(("file", "difference"), [(row["file"], row["difference"]) for row in data["files"]])
    if data["made_with"]:
        print()
        table(("made with", "given", "rebuilt"), cells(data["made_with"]))
    print(f"\n{data['hint']}")
