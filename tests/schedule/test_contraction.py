"""What a schedule reads from the loops of a contraction, and that its tiles compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from mlaot.ir.dims import substitute
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import Call, Index, Panels, subexpressions
from mlaot.nest.interpreter import compile_nest
from mlaot.nest.statements import Alloc, For, If, Nest, Prefetch, Store, expressions, walk
from mlaot.nest.text import nest_text, parse_nest
from mlaot.nest.verify import verify
from mlaot.schedule.contraction import Axis, contraction_of, description
from mlaot.schedule.cost import schedule
from mlaot.schedule.machine import MACHINES, Caches
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.segments import panel_segments
from mlaot.schedule.tuning import SHARED_STEPS

PRODUCT = """\
def product(y: f32[n * 48], x: f32[n * 20], w: f32[960], b: f32[48]):
    for i in parallel(0, n):
        for j in parallel_tiled(0, 48):
            acc: f32 = f32(0.0)
            for k in range(0, 20):
                acc = acc + (x[i * 20 + k] * w[j + k * 48, ...])
            x0 = b[j]
            y[i * 48 + j] = max(acc + x0, f32(0.0))
"""
PANELS = """\
def panels(y: f32[n * 40], x: f32[n * 20], w: f32[960, panels(20, 40, 16)]):
    for i in parallel(0, n):
        for j in parallel_tiled(0, 40):
            acc: f32 = f32(0.0)
            for k in range(0, 20):
                acc = acc + (x[i * 20 + k] * w[j + k * 40, ...])
            y[i * 40 + j] = acc
"""
DOTS = """\
def dots(y: f32[n * 5], x: f32[n * 37], w: f32[185]):
    for i in parallel(0, n):
        for j in parallel(0, 5):
            acc: f32 = f32(0.0)
            for k in tiled(0, 37):
                acc = acc + (x[i * 37 + k] * w[j * 37 + k])
            y[i * 5 + j] = acc
"""
FUNCTIONS = """\
def functions(y: f32[n * 5], z: f32[n * 5], x: f32[n * 37], w: f32[185], b: f32[5], s: f32[n]):
    for i in parallel(0, n):
        for j in parallel(0, 5):
            acc: f32 = f32(0.0)
            for k in tiled(0, 37):
                acc = acc + (x[i * 37 + k] * w[j * 37 + k])
            x0 = b[j]
            x1 = s[i]
            v1 = acc + x0
            v2 = exp(v1 * x0)
            y[i * 5 + j] = v2
            v3 = tanh((v2 - x1) * acc)
            z[i * 5 + j] = v3
"""
LARGEST = """\
def largest(y: f32[30], x: f32[n * 30]):
    for j in parallel_tiled(0, 30):
        acc: f32 = f32(-inf)
        for k in range(0, n):
            acc = max(acc, x[j + k * 30])
        y[j] = acc
"""
GATES = """\
def gates(y: f32[n * 24], x: f32[n * 9], w: f32[432]):
    for i in parallel(0, n):
        for j in parallel_tiled(0, 24):
            acc0: f32 = f32(0.0)
            acc1: f32 = f32(0.0)
            for k in range(0, 9):
                acc0 = acc0 + (x[i * 9 + k] * w[j + k * 48])
                acc1 = acc1 + (x[i * 9 + k] * w[j + k * 48 + 24])
            y[i * 24 + j] = acc0 * acc1
"""
# fmt: off
GROUPS = """\
def groups(y: f32[n * 40], w: i32[768, panels(16, 40, 16)], x: i16[n * 64], s: f32[96, panels(2, 40, 16)], r: f32[n * 2]):
    for i in parallel(0, n):
        for j in parallel_tiled(0, 40):
            acc: f32 = f32(0.0)
            for k1 in range(0, 2):
                part: i32 = i32(0)
                for k in range(0, 8):
                    part = dot2(part, splat_word[i32](x[i * 64 + k * 4 + k1 * 32]), halves[i32](w[j + k * 40 + k1 * 320, ...], 8, 8))
                    part = dot2(part, splat_word[i32](x[i * 64 + k * 4 + k1 * 32 + 2]), halves[i32](w[j + k * 40 + k1 * 320, ...], 0, 8))
                acc = acc + (cast[f32](part) * (s[j + k1 * 40, ...] * r[i * 2 + k1]))
            y[i * 40 + j] = acc
"""  # noqa: E501
# fmt: on
GRADIENT = """\
def gradient(y: f32[1800], x: f32[n * 2240], g: f32[n * 2520], b: f32[45]):
    for i in parallel(0, 40):
        for j in parallel_tiled(0, 45):
            acc: f32 = f32(0.0)
            for k1 in range(0, n):
                for k in range(0, 56):
                    acc = acc + (x[i + k * 40 + k1 * 2240] * g[j + k * 45 + k1 * 2520])
            y[i * 45 + j] = acc * b[j]
"""
FILTERS = """\
def filters(y: f32[6144], x: f32[n * 1856], g: f32[n * 3584]):
    for i3 in parallel(0, 4):
        for i2 in parallel(0, 2):
            for i1 in parallel(0, 3):
                for i in parallel(0, 16):
                    for j in parallel_tiled(0, 16):
                        acc: f32 = f32(0.0)
                        for k1 in range(0, n):
                            for k in range(0, 56):
                                acc = acc + (x[i2 * 928 + i + i1 * 16 + k * 16 + k1 * 1856] * g[i3 * 896 + j + k * 16 + k1 * 3584])
                        y[i3 * 1536 + i2 * 768 + i1 * 256 + i * 16 + j] = acc
"""  # noqa: E501
WINDOWS = """\
def windows(y: f32[704], x: f32[n * 4640], g: f32[n * 8192]):
    for i2 in parallel(0, 16):
        for i1 in parallel(0, 4):
            for i in parallel(0, 11):
                acc: f32 = f32(0.0)
                for k1 in range(0, n):
                    for k in tiled(0, 507):
                        acc = acc + (g[i2 * 512 + k + k1 * 8192] * x[i1 * 512 + i + k + k1 * 4640])
                y[i2 * 44 + i1 * 11 + i] = acc
"""
TOKENS = """\
def tokens(y: f32[n * 960], x: f32[n * 480], w: f32[960]):
    for i1 in parallel(0, n):
        for i in parallel(0, 24):
            for j in parallel_tiled(0, 40):
                acc: f32 = f32(0.0)
                for k in range(0, 20):
                    acc = acc + (x[i1 * 480 + i * 20 + k] * w[j + k * 48])
                y[i1 * 960 + i * 40 + j] = acc
"""
NESTS = {
    **{"product": PRODUCT, "panels": PANELS, "dots": DOTS, "functions": FUNCTIONS, "largest": LARGEST},
    **{"gates": GATES, "groups": GROUPS},
}
Arrays = Mapping[str, Any]


@pytest.mark.parametrize("text", NESTS.values(), ids=NESTS)
def test_text_is_read_back(text: str) -> None:
    nest = parse_nest(text)
    assert nest_text(nest) == text and parse_nest(nest_text(nest)) == nest


def test_a_product() -> None:
    found = contraction_of(parse_nest(PRODUCT))
    assert [str(axis.size) for axis in found.out] == ["n", "48"] and found.summed == (Axis("k", 20),)
    assert (found.lanes, found.combine, found.gates, found.dot) == ("j", "add", None, "")
    x, w = found.operands
    assert (x.strides, x.vector, w.strides, w.vector) == ((("i", 20), ("k", 1)), False, (("j", 1), ("k", 48)), True)
    assert not x.padded and w.padded and len(found.epilogue) == 2


def test_strides_within_panels_are_rows() -> None:
    w = contraction_of(parse_nest(PANELS)).operands[1]
    assert w.panels == Panels(20, 40, 16) and w.array.panels is None
    assert dict(w.strides) == {"j": 1, "k": 1}


def test_lanes_along_a_sum() -> None:
    found = contraction_of(parse_nest(DOTS))
    assert found.lanes == "k" and all(operand.vector for operand in found.operands)


@pytest.mark.parametrize("machine", MACHINES)
def test_functions_of_dots_are_of_several_points(machine: str) -> None:
    """What is no cheap operation gets vectors of points; of a single row and column it is of one number."""
    nest = parse_nest(FUNCTIONS)
    values = [e for s in walk(schedule_nest(nest, MACHINES[machine]).body) for e in expressions(s)]
    calls = [x for e in values for x in subexpressions(e) if isinstance(x, Call) and x.name in ("exp", "tanh")]
    lanes = {x.type.lanes for x in calls}
    assert MACHINES[machine].bytes // 4 in lanes


def test_gates_are_an_axis() -> None:
    found = contraction_of(parse_nest(GATES))
    assert [(axis.name, str(axis.size)) for axis in found.out] == [("i", "n"), ("g", "2"), ("j", "24")]
    assert found.gates == "g" and dict(found.operands[1].strides)["g"] == 24
    assert "g" not in dict(found.operands[0].strides)


def test_groups_of_weights() -> None:
    found = contraction_of(parse_nest(GROUPS))
    assert [(axis.name, axis.size) for axis in found.summed] == [("k1", 2), ("k", 8), ("f", 2)]
    x, w = found.operands
    assert dict(x.strides) == {"i": 64, "k1": 32, "k": 4, "f": 2} and dict(w.strides) == {"j": 1, "k1": 8, "k": 1}
    assert found.groups is not None and found.groups.bits == 8
    assert dict(found.groups.scale.strides) == {"j": 1, "k1": 1}
    assert dict(found.groups.row_scale.strides) == {"i": 2, "k1": 1}
    assert description(found).startswith("int8 i=n j=40 : k1=2 k=8 f=2 | ")


def test_integer_sums_need_few_accumulators() -> None:
    """One row of AVX2, whose sums are plain additions, walks one panel; that of AVX-512 waits for its instruction."""
    kernel = contraction_of(parse_nest(GROUPS.replace("n * ", "").replace("n)", "1)")))
    assert schedule(kernel, MACHINES["v3"]).counts["j"] == 2 and schedule(kernel, MACHINES["base"]).counts["j"] == 4
    assert schedule(kernel, MACHINES["v4"]).counts["j"] == 3


@pytest.mark.parametrize("machine", MACHINES)
def test_only_few_rows_need_sets_of_accumulators(machine: str) -> None:
    """The places of an image are always many, so they hide how long a multiply-add takes; examples may be one."""
    few = PRODUCT.replace("48", "16").replace("20", "64")
    many = few.replace("n * ", "24 * ").replace("(0, n)", "(0, 24)")
    sets = [schedule(contraction_of(parse_nest(text)), MACHINES[machine]).sets for text in (few, many)]
    assert sets == [4, 1]


def run(nest: Nest, n: int) -> Any:
    """What a nest writes, of numbers that sums of floats hold exactly."""
    rng = np.random.default_rng(0)
    sizes = {a.name: substitute(a.size, {"n": n}) for a in nest.params}
    arrays = {name: rng.integers(-3, 4, size).astype(np.float32) for name, size in sizes.items()}
    for a in nest.params:
        if a.dtype != "f32":
            arrays[a.name] = np.frombuffer(rng.bytes(sizes[a.name] * DTYPES[a.dtype].itemsize), DTYPES[a.dtype].numpy)
    compile_nest(nest, {"tanh": np.tanh, "exp": np.exp})(arrays, {"n": n})
    return np.concatenate([arrays[name] for name in ("y", "z") if name in arrays])


@cache
def expected(text: str, n: int) -> Any:
    """What the nest of ``text`` writes as it stands."""
    return run(parse_nest(text), n)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NESTS)
def test_tiles_compute_the_same(name: str, machine: str) -> None:
    nest = parse_nest(NESTS[name])
    verify(nest)
    tiles = schedule_nest(nest, MACHINES[machine])
    verify(tiles)
    for n in (0, 1, 2, 3, 5, 6, 7, 8, 11, 13, 24):
        np.testing.assert_array_equal(run(tiles, n), expected(NESTS[name], n))


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_that_fill_no_block_are_one_tile(machine: str) -> None:
    """So the weights are read once for them, however many they are."""
    statements = list(walk(schedule_nest(parse_nest(PRODUCT), MACHINES[machine]).body))
    block = max(s.step for s in statements if isinstance(s, For) and s.var.name == "i")
    tiles = {s.condition.args[1] for s in statements if isinstance(s, If) and isinstance(s.condition, Call)}
    assert block > 2 and tiles == {Index(rows) for rows in range(1, block)}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_long_sum_is_made_in_parts(machine: str) -> None:
    """All tiles add a part that is near to sums in memory, and the epilogue reads these."""
    nest = parse_nest(GRADIENT)
    tiles = schedule_nest(nest, MACHINES[machine])
    statements = list(walk(tiles.body))
    assert any(isinstance(s, Alloc) and s.array.name == "parts" for s in statements)
    for outer in [s for s in statements if isinstance(s, For) and s.var.name == "k1"]:
        assert any(isinstance(s, For) and s.var.name in "ij" for s in walk(outer.body))
        assert {s.array.name for s in walk(outer.body) if isinstance(s, Store)} == {"parts"}
    verify(tiles)
    for n in (0, 1, 3):
        np.testing.assert_array_equal(run(tiles, n), expected(GRADIENT, n))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("text", [FILTERS, WINDOWS], ids=["filters", "windows"])
def test_parts_of_a_sum_are_read_by_the_tiles_of_several_loops(text: str, machine: str) -> None:
    nest = parse_nest(text)
    tiles = schedule_nest(nest, MACHINES[machine])
    outer = [s for s in walk(tiles.body) if isinstance(s, For) and s.var.name == "k1"]
    for each in outer:
        assert len([s for s in walk(each.body) if isinstance(s, For) and s.var.name.startswith(("i", "j"))]) > 1
        assert {s.array.name for s in walk(each.body) if isinstance(s, Store)} == {"parts"}
    rounds = prod(len(range(0, s.high.value, s.step)) for s in walk(tiles.body) if isinstance(s, For) and s.parallel)
    assert outer and rounds >= SHARED_STEPS
    verify(tiles)
    for n in (0, 2):
        np.testing.assert_allclose(run(tiles, n), expected(text, n), rtol=1e-12)


@pytest.mark.parametrize("machine", MACHINES)
def test_outer_rows_are_outside_of_columns_that_stay_near(machine: str) -> None:
    nest = parse_nest(TOKENS)
    tiles = schedule_nest(nest, MACHINES[machine])
    loops = [s.var.name for s in walk(tiles.body) if isinstance(s, For)]
    assert loops.index("i1") == 0 < loops.index("i")
    verify(tiles)
    np.testing.assert_array_equal(run(tiles, 2), expected(TOKENS, 2))


SHORT = """\
def short(y: f32[18432], x: f32[6144], w: f32[49152, panels(128, 384, 16)]):
    for i1 in parallel(0, 12):
        for i in parallel(0, 4):
            for j in parallel_tiled(0, 384):
                acc: f32 = f32(0.0)
                for k in range(0, 128):
                    acc = acc + (x[k + i1 * 128 + i * 1536] * w[j + k * 384, ...])
                y[j + i * 384 + i1 * 1536] = acc
"""


def test_short_rows_leave_the_tile_to_longer_ones() -> None:
    """Two or four rows a tile load more than six, which four inner rows do not give."""
    nest = parse_nest(SHORT)
    assert str(schedule(contraction_of(nest), MACHINES["v3"])).startswith("i1=6 j=2")
    verify(schedule_nest(nest, MACHINES["v3"]))


def blocks(count: int, rows: int) -> Nest:
    """Products of ``rows`` rows of 512 with ``count`` blocks of 512 by 16, whose rows lie one after another."""
    return parse_nest(f"""\
def blocks(y: f32[{count * rows * 16}], x: f32[{rows * 512}], w: f32[{count * 8192}]):
    for c in parallel(0, {count}):
        for i in parallel(0, {rows}):
            for j in parallel_tiled(0, 16):
                acc: f32 = f32(0.0)
                for k in range(0, 512):
                    acc = acc + (x[i * 512 + k] * w[c * 8192 + k * 16 + j])
                y[{rows * 16} * c + i * 16 + j] = acc
""")


@pytest.mark.parametrize("machine", ["v3", "v4"])
@pytest.mark.parametrize(("count", "rows", "is_prefetched"), [(64, 12, True), (64, 1, False), (4, 12, False)])
def test_rows_from_far_are_prefetched_a_page_ahead(machine: str, count: int, rows: int, is_prefetched: bool) -> None:
    """Not of arrays that stay in the second-level cache, nor for one row, whose sum waits for memory in any case."""
    tiles = schedule_nest(blocks(count, rows), MACHINES[machine])
    verify(tiles)
    found = [s for s in walk(tiles.body) if isinstance(s, Prefetch)]
    assert bool(found) == is_prefetched
    assert not found or "1024" in str(found[0].index)


def test_where_elements_of_panels_lie() -> None:
    layout = Panels(rows=2, columns=40, width=16)
    matrix = np.arange(80).reshape(2, 40)
    flat = np.full(2 * (32 + 16), -1)
    for i in range(layout.size):
        flat[layout.place(i)] = matrix.reshape(-1)[i]
    first, second, last = matrix[:, :16].ravel(), matrix[:, 16:32].ravel(), matrix[:, 32:]
    assert flat.tolist() == [*first, *second, *last[0], *[-1] * 8, *last[1], *[-1] * 8]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("columns", [7, 16, 20, 31, 50, 64, 72, 85, 100, 112])
def test_blocks_of_panels(columns: int, count: int, lanes: int) -> None:
    """A block is a part of one panel or begins with one; no vector is empty."""
    each = 16 // lanes
    if each % count and count % each:
        return
    reached = 0
    for segment in panel_segments(Panels(10, columns, 16), count, lanes):
        assert segment.count <= count and segment.start == reached
        for start in range(reached, int(segment.end), segment.step):
            assert substitute(segment.panel, {"j": start}) == start // 16 * 16
            assert start % 16 == 0 or start % 16 + segment.count * lanes <= 16
            end = start + (segment.count - 1) * lanes + (segment.partial or lanes)
            assert end == min(start + segment.step, columns)
        reached = int(segment.end)
    assert reached == columns


def test_windows_that_stay_near_are_not_prefetched() -> None:
    """Windows of a small array are many elements of few places."""

    def prefetched(places: int) -> int:
        tiles = schedule_nest(
            parse_nest(f"""\
def windows(y: f32[{12 * places * 16}], x: f32[{12 * 64}], w: f32[{(places + 64) * 16}]):
    for c in parallel(0, {places}):
        for i in parallel(0, 12):
            for j in parallel_tiled(0, 16):
                acc: f32 = f32(0.0)
                for k in range(0, 64):
                    acc = acc + (x[i * 64 + k] * w[c * 16 + k * 16 + j])
                y[192 * c + i * 16 + j] = acc
"""),
            MACHINES["v3"],
        )
        return sum(isinstance(s, Prefetch) for s in walk(tiles.body))

    assert not prefetched(1000) and prefetched(20000)


def test_rows_of_short_sums_are_finished_one_after_the_other() -> None:
    """Else each tile stores a few columns to rows that lie far apart; with long sums, weights decide."""

    def is_inside(columns: int, summed: int) -> bool:
        text = PANELS.replace("960", str(columns * summed)).replace("40", str(columns)).replace("20", str(summed))
        return schedule(contraction_of(parse_nest(text)), server).rows_inside

    server = replace(MACHINES["v3"], caches=Caches())  # whose second level holds the weights
    assert not is_inside(2000, 30)
    assert is_inside(1024, 256)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("old", "new"), [("range(0, 20)", "range(0, 0)"), ("tiled(0, 48)", "tiled(0, 0)")])
def test_nothing_is_summed(machine: str, old: str, new: str) -> None:
    """An axis without points has a schedule too."""
    kernel = contraction_of(parse_nest(PRODUCT.replace(old, new)))
    assert schedule(kernel, MACHINES[machine]).counts
