"""Faults planted into nests are found, and what is right is not refused."""

from __future__ import annotations

import pytest

from mlaot.nest.statements import Nest
from mlaot.nest.text import parse_nest
from mlaot.nest.verify import verify
from mlaot.passes import PIPELINE
from mlaot.printing.helpers import definitions
from mlaot.printing.printer import print_nest
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.schedule.nests import schedule_nest

from ..fuzz.random_graphs import LEAST, compile_case, make_case

RIGHT = """\
def f(y: f32[20 * n], x: f32[20 * n]):
    for i in parallel(0, n):
        s: f32 = f32(0.0)
        for j in range(0, 20):
            s = s + x[i * 20 + j]
        m = sqrt(s)
        for j in range(0, 16, 8):
            y[i * 20 + j:8] = x[i * 20 + j:8] * splat[8](m)
        y[i * 20 + 16:8, 4] = x[i * 20 + 16:8, 4] * splat[8](m)
"""
LOCAL = """\
def f(y: f32[8 * n]):
    for i in parallel(0, n):
        row = local(f32, 8)
        for j in range(0, 8):
            row[j] = f32(0.5)
        for j in range(0, 8):
            y[i * 8 + j] = row[7 - j]
"""


def test_what_is_right() -> None:
    verify(parse_nest(RIGHT))
    verify(parse_nest(LOCAL.replace("row[7 - j]", "row[-1 * j + 7]")))


FAULTS = {
    "a wrong stride": ("x[i * 20 + j]", "x[i * 21 + j]", "x has 20 elements, used are 0 to 20|x has 40 elements"),
    "a wrong stride of what is written": ("y[i * 20 + j:8]", "y[i * 8 + j:8]", "rounds over i share elements of y"),
    "a mask left out": ("x[i * 20 + 16:8, 4]", "x[i * 20 + 16:8]", "x has 20 elements, used are 16 to 23"),
    "a loop one too long": ("range(0, 20)", "range(0, 21)", "x has 20 elements, used are 0 to 20"),
    "a carried sum": (
        "    for i in parallel(0, n):\n        s: f32 = f32(0.0)\n",
        "    s: f32 = f32(0.0)\n    for i in parallel(0, n):\n",
        "rounds over i share s",
    ),
    "elements of another round": ("x[i * 20 + 16:8, 4] * ", "y[16:8, 4] * ", "rounds over i share elements of y"),
    "a negative index": ("x[i * 20 + j:8]", "x[i * 20 + j + -1:8]", "x has 20 elements, used are -1 to 14"),
    "too few lanes": ("splat[8](m)", "splat[4](m)", "mul takes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault: str) -> None:
    old, new, message = FAULTS[fault]
    assert old in RIGHT
    with pytest.raises(AssertionError, match=f"bug in mlaot: f: ({message})"):
        verify(parse_nest(RIGHT.replace(old, new)))


def test_scratch_that_rounds_share() -> None:
    with pytest.raises(AssertionError, match="rounds over i share elements of row"):
        outside = LOCAL.replace("        row = local(f32, 8)\n", "").replace(
            "    for i", "    row = local(f32, 8)\n    for i"
        )
        verify(parse_nest(outside))


def test_scratch_that_is_read_first() -> None:
    text = LOCAL.replace("            row[j] = f32(0.5)\n", "            y[i * 8 + j] = row[j]\n")
    with pytest.raises(AssertionError, match="is read before it is written"):
        verify(parse_nest(text.replace("row[7 - j]", "row[j]")))


def test_rounds_apart_by_larger_strides() -> None:
    """Two halves of one output; and each row from the one before it, where columns are shared."""
    text = """\
def f(y: f32[612], t: f32[701]):
    for i in parallel(0, 9):
        for j in range(0, 2):
            for k in range(0, 17):
                y[i * 34 + j * 17 + k] = f32(0.0)
            y[i * 34 + j * 17 + 322] = f32(1.0)
    for i in parallel(0, 100):
        for k in range(1, 7):
            t[100 * k + i] = t[100 * k + -100 + i]
"""
    verify(parse_nest(text))
    with pytest.raises(AssertionError, match="rounds over i share elements of y"):
        verify(parse_nest(text.replace("322", "305")))
    with pytest.raises(AssertionError, match="rounds over i share elements of t"):
        verify(parse_nest(text.replace("-100 + i", "-99 + i")))


def undefined_calls(nest: Nest, machine: Machine) -> set[str]:
    """Return the C functions that a nest for a machine calls and that nothing defines."""
    calls = print_nest(nest, (), machine.bytes).calls
    return set(calls) - set(definitions(calls, machine))


def test_undefined_helpers() -> None:
    text = "def f(y: f32[8], x: f32[8]):\n    for j in vector(0, 8):\n        y[j] = exp(x[j])\n"
    for name, machine in MACHINES.items():
        assert not undefined_calls(schedule_nest(parse_nest(text), machine), machine), name
        wrong = parse_nest(text.replace("exp", "expo"))
        assert undefined_calls(wrong, machine) == {"expo_f32"}, name


@pytest.mark.parametrize("seed", range(8))
def test_nests_of_graphs(seed: int) -> None:
    for stages in (PIPELINE, LEAST):
        for procedure in compile_case(make_case(seed), stages, "graph").procedures:
            for nest in (k.nest for k in procedure.kernels):
                verify(nest)
                for machine in MACHINES.values():
                    verify(schedule_nest(nest, machine))
                    assert not undefined_calls(schedule_nest(nest, machine), machine)
