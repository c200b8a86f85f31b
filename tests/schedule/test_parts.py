"""Products whose sums go down far rows: panels of the result, parts of their sums, packed copies of what these read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mlaot.ir.dims import substitute
from mlaot.nest.interpreter import compile_nest
from mlaot.nest.statements import Alloc, Nest, walk
from mlaot.nest.text import parse_nest
from mlaot.nest.verify import verify
from mlaot.schedule import parallel, tuning
from mlaot.schedule.contraction import contraction_of
from mlaot.schedule.cost import schedule
from mlaot.schedule.machine import MACHINES, Caches, Machine
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.parallel import part_of_range, shared_loop
from mlaot.schedule.parts import parts_of

from ..compiled import Array

# name: the rows of x and y, the summed loops, the index of x, and what is packed.
CASES: dict[str, tuple[int, int, dict[str, int | str], str, tuple[bool, bool]]] = {
    "down both": (19, 32, {"k": 24}, "i + k * 19", (True, True)),
    "down both, uneven": (19, 37, {"k": 43}, "i + k * 19", (True, False)),
    "of each example": (19, 32, {"k1": "n", "k": 24}, "i + k * 19 + k1 * 456", (True, True)),
    "of any length": (16, 37, {"k": "n"}, "i + k * 16", (True, False)),
    "down the second": (11, 32, {"k": 43}, "i * 43 + k", (False, True)),
    "down the second, uneven": (11, 37, {"k": 43}, "i * 43 + k", (False, False)),
}
SMALL = {
    "PART_STEPS": 8,
    "COPIED_STEPS": 8,
    "PANEL_STEPS": 16,
    "PANEL_ROW_BYTES": 64,
    "PANEL_COLUMN_BYTES": 192,
    "SHARED_COLUMN_BYTES": 64,
    "FAR_ROW_BYTES": 128,
    "WAY_LINES": 0.2,
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make parts and panels of few elements, since nests are interpreted."""
    for name, value in SMALL.items():
        monkeypatch.setattr(tuning, name, value)
    monkeypatch.setattr(parallel, "SHARED_OPERATIONS", 1)


def nest(name: str) -> Nest:
    """Return the product of a case in float64."""
    rows, columns, summed, index, _ = CASES[name]
    loops, size = "", " * ".join(map(str, summed.values()))
    for depth, (v, extent) in enumerate(summed.items()):
        loops += f"{'    ' * (depth + 3)}for {v} in range(0, {extent}):\n"
    down = f"j + k * {columns}" + (f" + k1 * {columns * 24}" if "k1" in summed else "")
    return parse_nest(
        f"def product(z: f64[{rows * columns}], x: f64[{size} * {rows}], y: f64[{size} * {columns}], s: f64[{rows}]):\n"
        f"    for i in parallel(0, {rows}):\n"
        f"        for j in parallel_tiled(0, {columns}):\n"
        f"            acc: f64 = f64(0.0)\n{loops}"
        f"{'    ' * (len(summed) + 3)}acc = acc + (x[{index}] * y[{down}])\n"
        f"            x0 = s[i]\n"
        f"            z[i * {columns} + j] = acc * x0\n"
    )


def with_small_caches(name: str) -> Machine:
    """Return a machine whose caches hold little of the products, and take long."""
    return replace(MACHINES[name], caches=Caches(1 << 15, 1 << 11, 1 << 24), from_second=16)


def run(nest: Nest, n: int, cuts: tuple[int, ...] = ()) -> Array:
    """Return what a nest writes, of numbers that sums hold exactly; in parts between ``cuts``."""
    draw = np.random.default_rng(0)
    sizes = {a.name: substitute(a.size, {"n": n}) for a in nest.params}
    arrays = {name: draw.integers(-3, 4, size).astype(np.float64) for name, size in sizes.items()}
    arrays["z"][:] = np.nan
    computed = compile_nest(nest, {})
    for begin, end in pairwise(cuts) if cuts else [(0, 0)]:
        computed(arrays, {"n": n, "begin": begin, "end": end})
    return arrays["z"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", CASES)
def test_panels_compute_the_same(name: str, machine: str) -> None:
    kernel, small = contraction_of(nest(name)), with_small_caches(machine)
    plan = schedule(kernel, small)
    parts = parts_of(kernel, plan, kernel.out, small)
    assert parts is not None and parts.packed == CASES[name][-1]
    tiles = schedule_nest(nest(name), small)
    verify(tiles)
    arrays = {s.array.name for s in walk(tiles.body) if isinstance(s, Alloc)}
    assert arrays >= {"parts"} | {a for a, packed in zip(("block", "panel"), parts.packed, strict=True) if packed}
    for n in (0, 1, 8, 43) if name == "of any length" else (0, 3):
        np.testing.assert_array_equal(run(tiles, n), run(nest(name), n))


@pytest.mark.parametrize("name", CASES)
def test_threads_share_panels(name: str) -> None:
    """However the range is cut, each result is computed once."""
    tiles = schedule_nest(nest(name), with_small_caches("v3"))
    shared = shared_loop(tiles)
    assert shared is not None and shared.variable in ("i_first", "j_first") and isinstance(shared.extent, int)
    part = part_of_range(tiles, shared)
    verify(part)
    step, end = shared.step, shared.extent
    cuts = (0, *range(step, end, 3 * step), end)
    np.testing.assert_array_equal(run(part, 2, cuts), run(nest(name), 2))


def test_what_is_near_is_read_where_it_lies() -> None:
    """A small product is not copied, nor one on a CPU whose second-level cache keeps up with its multiply-adds."""
    fast = replace(with_small_caches("v4"), from_second=1)
    for machine in (MACHINES["v3"], fast):
        tiles = schedule_nest(nest("down both"), machine)
        assert not {s.array.name for s in walk(tiles.body) if isinstance(s, Alloc)} & {"block", "panel"}
