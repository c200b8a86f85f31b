"""Loops over numbers as loops over vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaot.nest.text import nest_text, parse_nest
from mlaot.schedule.machine import BASE, MACHINES
from mlaot.schedule.nests import schedule_nest

V3 = MACHINES["v3"]


def vectors(text: str, machine: object = V3) -> str:
    """The lines of a nest behind its first, scheduled for a machine."""
    return nest_text(schedule_nest(parse_nest(text), machine)).split("\n", 1)[1]  # type: ignore[arg-type]


def test_whole_and_partial_vectors() -> None:
    text = """\
def f(y: f32[20], x: f32[20], s: f32[1]):
    for j in vector(0, 20):
        a = s[0]
        y[j] = x[j] * a
"""
    assert (
        vectors(text)
        == """\
    a = s[0]
    for j in range(0, 16, 8):
        y[j:8] = x[j:8] * splat[8](a)
    with block:
        y[16:8, 4] = x[16:8, 4] * splat[8](a)
"""
    )


def test_an_open_extent_and_padded_rows() -> None:
    text = """\
def f(y: f64[n], x: f64[n]):
    for j in vector(0, n):
        y[j, ...] = exp(x[j])
"""
    assert (
        vectors(text)
        == """\
    for j in range(0, n + -3, 4):
        y[j:4, ...] = exp(x[j:4])
    for j in range((n) // 4 * 4, n, 4):
        rest = j * -1 + n
        y[j:4, ...] = exp(x[j:4, rest])
"""
    )


def test_padding_of_wider_elements_is_too_short() -> None:
    text = """\
def f(y: f32[16], x: f64[8]):
    for j in vector(0, 5):
        y[j, ...] = cast[f32](x[j, ...])
"""
    assert "cast[f32](x[0:16, 5, ...])" in vectors(text, MACHINES["v4"])
    assert "cast[f32](x[j:8, ...])" in vectors(text)


def test_a_long_sum_has_several_accumulators() -> None:
    text = """\
def f(y: f32[1], x: f32[64]):
    s: f32 = f32(0.0)
    for j in vector(0, 64):
        s = s + x[j]
    y[0] = s
"""
    found = vectors(text)
    assert found.startswith("    s_all0: f32x8 = f32x8(0.0)\n") and found.count("s_all3") == 4
    assert found.endswith("    s = sum_lanes[f32]((s_all0 + s_all1) + (s_all2 + s_all3))\n    y[0] = s\n")


def test_a_deterministic_sum_has_the_lanes_of_the_widest_vector() -> None:
    """Combined in halves: vectors first, then lanes, so that all machines add in one order."""
    text = """\
def f(y: f32[1], x: f32[18]):
    s: f32 = f32(0.0)
    for j in vector(0, 18):
        s = s + x[j]
    y[0] = s
"""
    found = vectors(text, replace(BASE, deterministic=True))
    assert "s_all3" in found and "sum_lanes[f32]((s_all0 + s_all2) + (s_all1 + s_all3))" in found
    assert "s_all0 = s_all0 + first[f32x4](x[16:4, 2], 2, f32(0.0))" in found


def test_truth_values_strides_and_other_dtypes() -> None:
    text = """\
def f(y: f32[16], m: bool[16], x: f32[64], b: u8[16]):
    for j in vector(0, 16):
        here = m[j]
        y[j] = select(here, x[4 * j], cast[f32](b[j]))
"""
    assert (
        vectors(text)
        == """\
    for j in range(0, 16, 8):
        here = cast[m32](m[j:8])
        y[j:8] = select(here, x[j * 4:8:4], cast[f32](b[j:8]))
"""
    )


@pytest.mark.parametrize(
    "body",
    [
        "y[0] = x[j]",  # all lanes in one element
        "s = (s * x[j]) + x[j]",  # carried from one round to the next
        "y[j * j] = x[j]",  # no step
    ],
)
def test_loops_that_stay(body: str) -> None:
    text = f"def f(y: f32[256], x: f32[16]):\n    s: f32 = f32(0.0)\n    for j in vector(0, 16):\n        {body}\n"
    text += "    y[0] = s\n"
    assert f"        {body}\n" in vectors(text)
