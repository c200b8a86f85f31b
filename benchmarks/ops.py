"""Ops that move, count or sort: the time of a call of each, beside the time in which its bytes can be copied.

    python benchmarks/ops.py                            # all ops, with the best instructions of this CPU
    MLAOT_ISA=v3 python benchmarks/ops.py               # with AVX2
    python benchmarks/ops.py --only 'cast|where'        # the ops whose names match
    python benchmarks/ops.py --json now.json            # the numbers to a file as well
    python benchmarks/ops.py --before then.json         # beside those of an earlier run

Each op is a model of its own. ``bytes`` are those of its inputs and outputs. ``limit`` is the least time in which
memcpy moves as many bytes, read and written. It is measured in turn with the op, between arrays of the same footprint:
some hundred KiB ("L2"), or more than the caches hold ("memory"). One core; the best of many short rounds counts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import chosen_isas, compile_program, load, one_core, table

import mlaot
from mlaot.generate import compile_model
from mlaot.nn import functional as F
from mlaot.settings.options import Options

ROUNDS = 40
ROUND_SECONDS = 1e-3
NEAR = 512 * 1024  # bytes of an op's arrays up to which they stay in the second-level cache
CODES = {"float16": "f16", "float32": "f32", "float64": "f64", "bool": "bool"}

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Op:
    """A model of one op: its name, the function, the arrays that it is given."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[Array, ...]

    def declared(self) -> Any:
        """The function as a model of inputs like the arrays."""
        count = len(self.arrays)
        functions: dict[int, Callable[..., Any]] = {
            1: lambda x: self.function(x),
            2: lambda x, y: self.function(x, y),
            3: lambda x, y, z: self.function(x, y, z),
        }
        function = functions[count]
        types = [getattr(mlaot, code(a.dtype))[a.shape] for a in self.arrays]
        function.__annotations__ = dict(zip("xyz", types, strict=False))
        return mlaot.model(function)


@dataclass(frozen=True)
class Row:
    """What was measured of one op: microseconds of a call and of a copy, and the bytes of both."""

    op: str
    where: str
    bytes: int
    us: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.us / self.limit


def code(dtype: np.dtype[Any]) -> str:
    """What mlaot calls a dtype of NumPy."""
    return CODES.get(dtype.name) or f"{dtype.kind}{8 * dtype.itemsize}"


def given(dtype: str, *shape: int, below: int = 0) -> Array:
    """Numbers of a dtype; ``below``: whole ones from 0 on."""
    rng = np.random.default_rng(0)
    if below:
        return rng.integers(0, below, shape).astype(dtype)
    if dtype == "?":
        return rng.random(shape) < 0.5
    return rng.integers(-100, 100, shape).astype(dtype) if "i" in dtype else rng.normal(size=shape).astype(dtype)


def ops() -> Iterator[Op]:
    """All ops; those of arrays of some MiB and more are in memory."""
    yield from scans_and_reductions()
    yield from moves()
    yield from windows()
    yield from elementwise()
    yield from sorts()


def scans_and_reductions() -> Iterator[Op]:
    yield Op("cumsum f32 [512, 128] axis 0", lambda x: np.cumsum(x, axis=0), (given("f4", 512, 128),))
    yield Op("cumsum f32 [512, 128] axis 1", lambda x: np.cumsum(x, axis=1), (given("f4", 512, 128),))
    yield Op("cumsum i64 [4096, 1024] axis 0", lambda x: np.cumsum(x, axis=0), (given("i8", 4096, 1024),))
    yield Op("cumprod f64 [64, 16, 32] axis 1", lambda x: np.cumprod(x, axis=1), (given("f8", 64, 16, 32),))
    yield Op("sum f32 [512, 256] axis 0", lambda x: np.sum(x, axis=0), (given("f4", 512, 256),))
    yield Op("sum i64 [128, 512] axis 0", lambda x: np.sum(x, axis=0), (given("i8", 128, 512),))
    yield Op("sum i32 [256, 512] axis 1", lambda x: np.sum(x, axis=1, dtype=np.int32), (given("i4", 256, 512),))
    yield Op("max i8 [512, 1024] axis 0", lambda x: np.max(x, axis=0), (given("i1", 512, 1024),))
    yield Op("max i8 [512, 1024] axis 1", lambda x: np.max(x, axis=1), (given("i1", 512, 1024),))
    yield Op("min i32 [16, 64, 128] axis 1", lambda x: np.min(x, axis=1), (given("i4", 16, 64, 128),))
    yield Op("argmax f32 [256, 512] axis 1", lambda x: np.argmax(x, axis=1), (given("f4", 256, 512),))
    yield Op("argmax f32 [512, 256] axis 0", lambda x: np.argmax(x, axis=0), (given("f4", 512, 256),))


def moves() -> Iterator[Op]:
    rows = given("i4", 512, below=512)
    yield Op("gather rows f32 [512, 128]", lambda x, i: mlaot.gather(x, i), (given("f4", 512, 128), rows))
    yield Op("gather rows f16 [512, 24]", lambda x, i: mlaot.gather(x, i), (given("f2", 512, 24), rows))
    many = given("i8", 32768, below=32768)
    yield Op("gather rows i64 [32768, 128]", lambda x, i: mlaot.gather(x, i), (given("i8", 32768, 128), many))
    along = given("i8", 128, 256, below=256)
    yield Op("take_along_axis f32 [128, 256]", lambda x, i: np.take_along_axis(x, i, 1), (given("f4", 128, 256), along))
    yield Op("x[:, ::2] f32 [256, 256]", lambda x: x[:, ::2] + 0, (given("f4", 256, 256),))
    yield Op("flip f32 [256, 256] axis 1", lambda x: np.flip(x, 1), (given("f4", 256, 256),))
    yield Op("transpose f32 [256, 256]", lambda x: np.copy(x.T), (given("f4", 256, 256),))
    yield Op("transpose i8 [512, 512]", lambda x: np.copy(x.T), (given("i1", 512, 512),))
    yield Op("transpose f32 [3072, 3072]", lambda x: np.copy(x.T), (given("f4", 3072, 3072),))
    yield Op("pad f32 [8, 60, 60] by 2", lambda x: np.pad(x, ((0, 0), (2, 2), (2, 2))), (given("f4", 8, 60, 60),))
    yield Op("repeat f32 [64, 512] twice", lambda x: np.repeat(x, 2, 1), (given("f4", 64, 512),))
    yield Op("one_hot f32 [512] of 128", lambda x: mlaot.one_hot(x, 128, mlaot.f32), (given("i8", 512, below=128),))
    yield Op("one_hot i8 [512] of 512", lambda x: mlaot.one_hot(x, 512, mlaot.i8), (given("i8", 512, below=512),))


def windows() -> Iterator[Op]:
    image, large = given("f4", 1, 16, 64, 64), given("f4", 8, 64, 112, 112)
    yield Op("max_pool 2 f32 [1, 16, 64, 64]", lambda x: F.max_pool2d(x, 2), (image,))
    yield Op("avg_pool 3 f32 [1, 16, 64, 64]", lambda x: F.avg_pool2d(x, 3, 1, padding=1), (image,))
    yield Op("max_pool 3/2 f32 [8, 64, 112, 112]", lambda x: F.max_pool2d(x, 3, 2, padding=1), (large,))
    small = given("f4", 1, 16, 32, 32)
    yield Op("resize nearest f32 [1, 16, 32, 32]", lambda x: F.interpolate(x, scale_factor=2), (small,))
    yield Op(
        "resize bilinear f32 [1, 16, 32, 32]",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        (small,),
    )


def elementwise() -> Iterator[Op]:
    mask = given("?", 256, 64)
    yield Op("where i64 [256, 64]", lambda c, x, y: np.where(c, x, y), (mask, *[given("i8", 256, 64)] * 2))
    masks = given("?", 512, 256)
    yield Op("where i8 [512, 256]", lambda c, x, y: np.where(c, x, y), (masks, *[given("i1", 512, 256)] * 2))
    yield Op("add i8 [512, 256]", lambda x, y: x + y, (given("i1", 512, 256),) * 2)
    yield Op("multiply i32 [256, 128]", lambda x, y: x * y, (given("i4", 256, 128),) * 2)
    yield Op("maximum i16 [256, 256]", lambda x, y: np.maximum(x, y), (given("i2", 256, 256),) * 2)
    yield Op("less f32 [256, 128]", lambda x, y: x < y, (given("f4", 256, 128),) * 2)
    yield Op("f16 to f32 [256, 256]", lambda x: mlaot.astype(x, np.float32), (given("f2", 256, 256),))
    yield Op("f32 to f16 [4096, 4096]", lambda x: mlaot.astype(x, np.float16), (given("f4", 4096, 4096),))
    yield Op("i8 to f32 [256, 256]", lambda x: mlaot.astype(x, np.float32), (given("i1", 256, 256),))
    yield Op("f32 to i32 [256, 256]", lambda x: mlaot.astype(x, np.int32), (given("f4", 256, 256),))


def sorts() -> Iterator[Op]:
    rows = given("f4", 256, 1001)
    yield Op("argsort f32 [256, 1001]", lambda x: np.argsort(x, axis=1, kind="stable"), (rows,))
    yield Op("argsort f64 [256, 1001]", lambda x: np.argsort(x, axis=1, kind="stable"), (given("f8", 256, 1001),))
    yield Op("argsort f32 [4096, 16]", lambda x: np.argsort(x, axis=1, kind="stable"), (given("f4", 4096, 16),))
    yield Op("sort f32 [100000]", np.sort, (given("f4", 100_000),))
    yield Op("sort f32 [1001, 256] axis 0", lambda x: np.sort(x, axis=0), (given("f4", 1001, 256),))
    yield Op("median f32 [256, 1001]", lambda x: np.median(x, axis=1), (rows,))
    yield Op("top 500 f32 [256, 1001]", lambda x: mlaot.top_k(x, 500)[0], (rows,))


def measure(op: Op, library: Path) -> Row:
    """The best times of an op and of a copy, in turn."""
    module = load(library)
    out = module.forward(*op.arrays)
    total = sum(a.nbytes for a in op.arrays) + memoryview(out).nbytes
    source, target = np.ones(total // 2, np.uint8), np.zeros(total // 2, np.uint8)
    to, start, size = target.ctypes.data, source.ctypes.data, total // 2

    def work() -> object:
        return module.forward(*op.arrays, out=out)

    us, limit = best(work, lambda: ctypes.memmove(to, start, size))
    return Row(op.name, "L2" if total <= 2 * NEAR else "memory", total, us, limit)


def best(*works: Callable[[], object]) -> list[float]:
    """Microseconds of each, the least of many short rounds in turn."""
    times = [min(seconds(work, 1) for _ in range(3)) for work in works]
    counts = [max(1, int(ROUND_SECONDS / t)) for t in times]
    for _ in range(ROUNDS):
        for i, work in enumerate(works):
            times[i] = min(times[i], seconds(work, counts[i]))
    return [t * 1e6 for t in times]


def seconds(work: Callable[[], object], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - started) / count


def shown(rows: list[Row], before: dict[str, float]) -> None:
    """The table, the worst last."""
    heads = ["op", "in", "KiB", *(["us before"] if before else []), "us", "limit", "ratio"]
    lines = []
    for row in sorted(rows, key=lambda row: row.ratio):
        earlier = [f"{before[row.op]:.2f}" if row.op in before else ""] if before else []
        numbers = (f"{row.us:.2f}", f"{row.limit:.2f}", f"{row.ratio:.2f}")
        lines.append([row.op, row.where, f"{row.bytes / 1024:.0f}", *earlier, *numbers])
    table(heads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="ops whose names match")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go")
    parser.add_argument("--before", type=Path, metavar="FILE", help="the numbers of an earlier run, to stand beside")
    arguments = parser.parse_args()
    chosen = [op for op in ops() if re.search(arguments.only, op.name)]
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            programs = [
                compile_model(op.declared(), f"op{i}.op{i}", Options(isas=chosen_isas())) for i, op in enumerate(chosen)
            ]
            made = [pool.submit(compile_program, p, f"op{i}", Path(folder, str(i))) for i, p in enumerate(programs)]
            libraries = [library.result() for library in made]
        one_core()
        rows = [measure(op, library) for op, library in zip(chosen, libraries, strict=True)]
    before = {row["op"]: row["us"] for row in json.loads(arguments.before.read_text())} if arguments.before else {}
    shown(rows, before)
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(row) | {"ratio": row.ratio} for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
