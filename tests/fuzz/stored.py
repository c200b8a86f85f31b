"""What mlaot reads back, damaged by chance: a wheel, its bill of materials, metadata, schedules, what a module says.

    python -m tests.fuzz.stored --count 20000 --seed 0

Each of them is read whole first; then with keys missing, values of other types, bytes flipped or cut off, nested deeply
or in another encoding. A command gives its report, or a ``MlaotError`` of one line.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mlaot.build.sbom import read_metadata, sbom
from mlaot.build.toolchain import CompilerInfo
from mlaot.checked_json import parse_json
from mlaot.commands import inspect, verify
from mlaot.errors import MlaotError
from mlaot.probe import SHAPES
from mlaot.settings import METADATA, SOURCES, ModelSettings
from mlaot.settings.tuned import TUNED, read_tuned

MODEL = ModelSettings("nn", module="digits.nn", model="model:digits")
TYPES = {"x": "float32[batch, 2]"}
INFO: dict[str, Any] = {
    **{"name": "digits.nn", "isas": ["base"], "deterministic": False, "dims": ["batch"], "parameter_count": 0},
    **{"entries": {"forward": {"inputs": TYPES, "outputs": {"out": "float32[batch]"}}}, "parameters": {}},
    **{"buffers": {}, "optimizer_state": {}, "bytes": {"constants": 64, "state": 0}},
}
CALL = {
    **{"entry": "forward", "dims": {"batch": 2}, "inputs": [["x", "f32", ["batch", 2], None, None]]},
    "draws": [[-1.0, 2.0, 0, ""]],
}
GOOD: dict[str, Any] = {
    **{"info": INFO, "weights": {"sha256": "0" * 64, "bytes": 64}, "graph": "1" * 64, "mlaot": "1", "workspace": {}},
    **{"golden": [CALL | {"outputs": [{"name": "out", "bound": 1e-6, "sums": [1.0], "largest": 1.0}]}]},
    **{"elements": {"float32": 2}, "ops": {"forward": {"add": 1}}},
}
COMPILER = CompilerInfo("gcc", "12", "gcc 12", "x86_64", {"CFLAGS": "-g"}, ["base"], {"digits.nn": {"nn": ("-O2",)}})
PLAIN = (None, True, 0, -1, 1e300, 10**40, "", "x", "\0", [], {}, [[]], {"": 0}, [None], {"name": "mlaot"})


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Another content in the place of a JSON text."""
    kind = rng.random()
    if kind < 0.6:
        value = json.loads(content)
        for _ in range(rng.randint(1, 3)):
            value = changed(value, rng)
        return json.dumps(value).encode(rng.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-32")))
    if kind < 0.75:
        parts = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            parts[rng.randrange(len(parts))] = rng.randrange(256)
        return bytes(parts)
    if kind < 0.85:
        return content[: rng.randrange(len(content))]
    return rng.choice((b"", b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b"1" * 9999, b"NaN", b"\0", b"{}", b"[]"))


def changed(value: Any, rng: random.Random) -> Any:
    """A copy with one of its parts exchanged, left out or doubled."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        part = todo.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        places += [(part, key) for key in keys]
        todo += [part[key] for key in keys]
    if not places:
        return rng.choice(PLAIN)
    part, key = rng.choice(places)
    if rng.random() < 0.4:
        del part[key]
    else:
        part[key] = rng.choice(PLAIN)
    return value


def bill(folder: Path, metadata: bytes) -> bytes:
    """The bill of materials of a model whose metadata these are."""
    (folder / MODEL.module).mkdir(parents=True, exist_ok=True)
    (folder / MODEL.module / METADATA).write_bytes(metadata)
    (folder / SOURCES).write_text('{"model.py": "2"}')
    return sbom({"name": "digits", "version": "1.0"}, [MODEL], folder, COMPILER, "cp311-abi3").encode()


def wheel(folder: Path, parts: dict[str, bytes]) -> Path:
    """A wheel of these parts; its extension module is none."""
    path = folder / "digits-1.0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return path


def parts_of(folder: Path) -> dict[str, bytes]:
    """Of a wheel as it should be."""
    metadata = json.dumps(GOOD).encode()
    return {
        "digits-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: digits\nVersion: 1.0\n",
        "digits-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-abi3-linux_x86_64\n",
        "digits-1.0.dist-info/sboms/digits.cdx.json": bill(folder, metadata),
        "digits/nn.pyi": b"def forward() -> None: ...\n",
    }


def read_wheel(rng: random.Random, folder: Path) -> None:
    """``mlaot inspect`` and what ``mlaot verify`` does once it has rebuilt."""
    good = parts_of(folder)
    bad = dict(good)
    name = rng.choice([*good, *(name for name in good if "sboms" in name)])
    bad[name] = damaged(good[name], rng) if name.endswith(".json") else bytes(rng.randbytes(30))
    (folder / "rebuilt").mkdir(exist_ok=True)
    given, rebuilt = wheel(folder, bad), wheel(folder / "rebuilt", good)
    if rng.random() < 0.2:
        content = bytearray(given.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        given.write_bytes(content)
    with redirect_stdout(io.StringIO()):
        inspect.show(inspect.describe_built(str(given)))
        verify.show(verify.compare(given, rebuilt))


def read_build(rng: random.Random, folder: Path) -> None:
    """The metadata from which a bill of materials is made."""
    content = damaged(json.dumps(GOOD).encode(), rng)
    bill(folder, content)
    read_metadata(folder, MODEL)


def read_schedules(rng: random.Random, folder: Path) -> None:
    """What ``mlaot tune`` wrote."""
    (folder / TUNED).write_bytes(damaged(b'{"v3": {"ab,bc->ac": "6x16"}}', rng))
    read_tuned(folder)


def read_answer(rng: random.Random, folder: Path) -> None:
    """What a module says of itself, and the report of that."""
    info = parse_json(damaged(json.dumps(INFO).encode(), rng), SHAPES["info"], "what digits.nn says of itself")
    with redirect_stdout(io.StringIO()):
        inspect.show({"modules": [{"module": "digits.nn", "info": info}]})


READERS: tuple[Callable[[random.Random, Path], None], ...] = (read_wheel, read_build, read_schedules, read_answer)


def run(seeds: range) -> tuple[list[str], Counter[str]]:
    """The failures, and how often what was taken or refused."""
    failures, counts = [], Counter[str]()
    for seed in seeds:
        rng = random.Random(seed)
        reader = READERS[seed % len(READERS)]
        with tempfile.TemporaryDirectory() as folder:
            try:
                reader(rng, Path(folder))
                counts[f"{reader.__name__} taken"] += 1
            except MlaotError as error:
                counts[f"{reader.__name__} refused"] += 1
                if "\n" in str(error):
                    failures.append(f"seed {seed}: several lines: {error}")
            except Exception:
                failures.append(f"seed {seed}:\n{traceback.format_exc()}")
    return failures, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    options = parser.parse_args()
    failures, counts = run(range(options.seed, options.seed + options.count))
    print("\n".join(failures[:10]), *(f"{what}: {n}" for what, n in sorted(counts.items())), sep="\n")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
