"""Loops along lanes around other loops."""

from __future__ import annotations

from mlaot.nest.text import nest_text, parse_nest
from mlaot.nest.verify import verify
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.tuning import SPARE_REGISTERS

V3 = MACHINES["v3"]
SUM = """\
def f(y: f32[20], w: f32[20 * n], x: f32[n], t: i32[n + 16]):
    end = invoke(nonzeros, x[0], n, t)
    for j in vector(0, 20):
        s: f32 = f32(0.0)
        for e in range(0, end):
            row = cast[index](t[e])
            s = s + (x[row] * w[row * 20 + j])
        y[j] = s
"""


def lines(text: str, machine: Machine = V3) -> str:
    """The lines of a nest behind its first, scheduled for a machine."""
    nest = parse_nest(text)
    made = schedule_nest(nest, machine)
    verify(nest)
    verify(made)
    assert parse_nest(nest_text(made)) == made
    return nest_text(made).split("\n", 1)[1]


def test_vectors_go_along_with_one_inner_loop() -> None:
    """Each has an accumulator; what is the same in all lanes is computed once."""
    assert (
        lines(SUM)
        == """\
    end = invoke(nonzeros, x[0], n, t)
    s_0: f32x8 = f32x8(0.0)
    s_1: f32x8 = f32x8(0.0)
    s_2: f32x8 = f32x8(0.0)
    for e in range(0, end):
        row = cast[index](t[e])
        s_0 = s_0 + (splat[8](x[row]) * w[row * 20:8])
        s_1 = s_1 + (splat[8](x[row]) * w[row * 20 + 8:8])
        s_2 = s_2 + (splat[8](x[row]) * w[row * 20 + 16:8, 4])
    y[0:8] = s_0
    y[8:8] = s_1
    y[16:8, 4] = s_2
"""
    )


def test_as_many_vectors_as_registers() -> None:
    """The blocks are of nearly one size."""
    count = V3.registers - SPARE_REGISTERS + 1
    text = lines(SUM.replace("20", str(8 * count)))
    blocks = text.split("with block:")[1:]
    assert [block.count("f32x8 = ") for block in blocks] == [count // 2, count - count // 2]


def test_stores_in_the_inner_loop() -> None:
    text = """\
def f(w: f32[16 * n], b: f32[16]):
    for j in vector(0, 16):
        b0 = b[j]
        for i in range(0, n):
            w[i * 16 + j] = w[i * 16 + j] + b0
"""
    assert (
        lines(text)
        == """\
    b0_0 = b[0:8]
    b0_1 = b[8:8]
    for i in range(0, n):
        w[i * 16:8] = w[i * 16:8] + b0_0
        w[i * 16 + 8:8] = w[i * 16 + 8:8] + b0_1
"""
    )


def test_a_loop_of_unknown_length_stays_around() -> None:
    text = SUM.replace("y: f32[20]", "y: f32[n]").replace("vector(0, 20)", "vector(0, n)")
    assert "for j in range(" in lines(text)


def test_rows_that_are_read_across_stay_one_vector() -> None:
    """The lines of one vector serve the next rounds; those of many would not stay in the nearest cache."""
    text = """\
def f(y: f32[1024], x: f32[1024]):
    for j in vector(0, 32):
        for i in range(0, 32):
            y[i * 32 + j] = x[j * 32 + i]
"""
    assert "for j in range(0, 32, 8):" in lines(text)


def test_short_loops_over_numbers_are_written_out() -> None:
    """Inside of others, which compilers make vectors of then."""
    text = """\
def f(y: i32[64], x: i32[256]):
    for i in range(0, 64):
        acc: i32 = i32(0)
        for k0 in range(0, 2):
            for k1 in range(0, 2):
                acc = acc + x[i * 4 + k0 * 2 + k1]
        y[i] = acc
"""
    made = lines(text)
    assert "for k" not in made
    assert [made.count(f"x[i * 4{end}]") for end in ("", " + 1", " + 2", " + 3")] == [1] * 4
