"""Reads across rows as squares that are transposed in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlaot.ir.dims import substitute
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import Load
from mlaot.nest.interpreter import compile_nest
from mlaot.nest.statements import Nest, Transpose, all_expressions, walk
from mlaot.nest.text import nest_text, parse_nest
from mlaot.nest.verify import verify
from mlaot.schedule.machine import MACHINES
from mlaot.schedule.nests import schedule_nest

BASE = MACHINES["base"]

PLAIN = """\
def f(y: f32[{rows} * {lanes}], x: f32[{rows} * {lanes}]):
    for i in parallel(0, {rows}):
        for j in vector(0, {lanes}):
            y[i * {lanes} + j] = x[j * {rows} + i]
"""
# Each gives one number for every element of y, and y is one array of f32 or f64.
NESTS = {
    "images": """\
def f(y: f32[n * 2 * {rows} * {lanes}], x: f32[n * 2 * {rows} * {lanes}]):
    for a in parallel(0, n):
        for b in parallel(0, 2):
            for i in parallel(0, {rows}):
                for j in vector(0, {lanes}):
                    x0 = x[(a * 2 + b) * {rows} * {lanes} + j * {rows} + i]
                    y[(a * 2 + b) * {rows} * {lanes} + i * {lanes} + j] = x0
""",
    "blocks": """\
def f(y: f32[{rows} * {lanes}], x: f32[{rows} * {lanes}]):
    for i_first in parallel(0, {rows}, 16):
        for j in vector(0, {lanes}):
            for i in range(i_first, least(i_first + 16, {rows})):
                x0 = x[j * {rows} + i]
                y[i * {lanes} + j] = x0 * f32(2.0)
""",
    "open rows": """\
def f(y: f64[n * {lanes}], x: f64[n * {lanes}], b: f64[{lanes}]):
    for i in parallel(0, n):
        for j in vector(0, {lanes}):
            x0 = x[j * n + i]
            y[i * {lanes} + j] = max(x0 + b[j], f64(0.0))
""",
    "open lanes": """\
def f(y: f32[n * {rows}], x: f32[n * {rows}]):
    for i in parallel(0, {rows}):
        for j in vector(0, n):
            y[i * n + j] = x[j * {rows} + i]
""",
    "in sequence": """\
def f(y: f32[2 * {rows} * {lanes}], x: f32[2 * {rows} * {lanes}]):
    for a in parallel(0, 2):
        for i in range(0, {rows}):
            for j in vector(0, {lanes}):
                y[a * {rows} * {lanes} + i * {lanes} + j] = x[a * {rows} * {lanes} + j * {rows} + i]
""",
    "added": """\
def f(y: f32[2 * {rows} * {lanes}], x: f32[2 * {rows} * {lanes}]):
    for a in parallel(0, 2):
        for i in parallel(0, {rows}):
            for j in vector(0, {lanes}):
                y0 = y[a * {rows} * {lanes} + i * {lanes} + j]
                y[a * {rows} * {lanes} + i * {lanes} + j] = y0 + x[a * {rows} * {lanes} + j * {rows} + i]
""",
    "two": """\
def f(y: f32[{rows} * {lanes}], x: f32[{rows} * {lanes}], z: f32[{rows} * {lanes}]):
    for i in parallel(0, {rows}):
        for j in vector(0, {lanes}):
            y[i * {lanes} + j] = x[j * {rows} + i] * z[j * {rows} + i]
""",
    "loops inside": """\
def f(y: f32[3 * {rows} * {lanes}], x: f32[3 * {rows} * {lanes}]):
    for i in parallel(0, {rows}):
        for j in vector(0, {lanes}):
            for k in range(0, 3):
                y[i * {lanes} * 3 + k * {lanes} + j] = x[j * {rows} * 3 + k * {rows} + i]
""",
    "loops between": """\
def f(y: f32[3 * {rows} * {lanes}], x: f32[3 * {rows} * {lanes}]):
    for i in parallel(0, {rows}):
        for e in range(0, 3):
            for j in vector(0, {lanes}):
                y[i * {lanes} * 3 + e * {lanes} + j] = x[j * {rows} * 3 + e * {rows} + i]
""",
}
EXTENTS = [(32, 16), (17, 20), (35, 17)]


def numbers(rows: int, lanes: int, text: str) -> Nest:
    """A nest with its extents."""
    return parse_nest(text.format(rows=rows, lanes=lanes))


def run(nest: Nest, n: int) -> Any:
    """What a nest writes, of whole numbers."""
    rng = np.random.default_rng(0)
    arrays = {
        a.name: rng.integers(-99, 99, substitute(a.size, {"n": n})).astype(DTYPES[a.dtype].numpy) for a in nest.params
    }
    compile_nest(nest, {"max": np.maximum})(arrays, {"n": n})
    return arrays["y"]


def test_form() -> None:
    """The last square along lanes lies over the one before it; threads share the rows, whose rest is gathered."""
    made = schedule_nest(numbers(6, 10, PLAIN), BASE)
    verify(made)
    assert parse_nest(nest_text(made)) == made
    assert (
        nest_text(made).split("\n", 1)[1]
        == """\
    for i in parallel(0, 4, 4):
        for j in range(0, 8, 4):
            square0 = transpose(x[i + j * 6:4], x[i + j * 6 + 6:4], x[i + j * 6 + 12:4], x[i + j * 6 + 18:4])
            y[i * 10 + j:4] = square0_0
            y[i * 10 + j + 10:4] = square0_1
            y[i * 10 + j + 20:4] = square0_2
            y[i * 10 + j + 30:4] = square0_3
        with block:
            square0 = transpose(x[i + 36:4], x[i + 42:4], x[i + 48:4], x[i + 54:4])
            y[i * 10 + 6:4] = square0_0
            y[i * 10 + 16:4] = square0_1
            y[i * 10 + 26:4] = square0_2
            y[i * 10 + 36:4] = square0_3
    for i in parallel(4, 6):
        for j in range(0, 8, 4):
            y[i * 10 + j:4] = x[i + j * 6:4:6]
        with block:
            y[i * 10 + 8:4, 2] = x[i + 48:4:6, 2]
"""
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NESTS)
def test_squares_compute_the_same(name: str, machine: str) -> None:
    for extents in EXTENTS:
        nest = numbers(*extents, NESTS[name])
        verify(nest)
        squares = schedule_nest(nest, MACHINES[machine])
        verify(squares)
        assert parse_nest(nest_text(squares)) == squares
        assert any(isinstance(s, Transpose) for s in walk(squares.body))
        for n in (3, 21) if squares.dims else (1,):
            np.testing.assert_array_equal(run(squares, n), run(nest, n))


@pytest.mark.parametrize(("rows", "lanes"), [(16, 16), (64, 32), (1000, 256)])
@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_gathered_where_lanes_divide_the_extents(machine: str, rows: int, lanes: int) -> None:
    if MACHINES[machine].bytes > 32 and rows % 16:
        return
    body = schedule_nest(numbers(rows, lanes, PLAIN), MACHINES[machine]).body
    assert all(x.step == 1 for x in all_expressions(body) if isinstance(x, Load))


OTHERS = {
    "few rows": PLAIN.format(rows=3, lanes=64),
    "few lanes": PLAIN.format(rows=64, lanes=3),
    "nothing adjacent": """\
def f(y: f32[256], x: f32[512]):
    for i in parallel(0, 16):
        for j in vector(0, 16):
            y[i * 16 + j] = x[j * 32 + 2 * i]
""",
    "rows that overlap": """\
def f(y: f32[64], x: f32[256]):
    for i in range(0, 16):
        for j in vector(0, 16):
            y[i * 3 + j] = x[j * 16 + i]
""",
    "in place": """\
def f(y: f32[256]):
    for i in range(0, 16):
        for j in vector(0, 16):
            y[i * 16 + j] = y[j * 16 + i]
""",
    "a long function": """\
def f(y: f32[256], x: f32[256]):
    for i in parallel(0, 16):
        for j in vector(0, 16):
            y[i * 16 + j] = exp(x[j * 16 + i])
""",
    "bytes": """\
def f(y: f32[256], x: u8[256]):
    for i in parallel(0, 16):
        for j in vector(0, 16):
            y[i * 16 + j] = cast[f32](x[j * 16 + i])
""",
    "wider than what is computed": """\
def f(y: f32[256], x: f64[256]):
    for i in parallel(0, 16):
        for j in vector(0, 16):
            y[i * 16 + j] = cast[f32](x[j * 16 + i])
""",
    "extents that move": """\
def f(y: f32[256], x: f32[256]):
    for i in parallel(0, 16):
        for j in vector(0, 16):
            for k in range(i, 16):
                y[i * 16 + j] = x[j * 16 + i]
""",
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_gathered(name: str) -> None:
    for isa in ("base", "v3"):
        body = schedule_nest(parse_nest(OTHERS[name]), MACHINES[isa]).body
        assert not any(isinstance(s, Transpose) for s in walk(body))
