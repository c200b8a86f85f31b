"""What a nest writes, before and after it is scheduled."""

from __future__ import annotations

import pytest

from mlaot.nest.text import nest_text, parse_nest
from mlaot.passes import PIPELINE
from mlaot.schedule.machine import MACHINES
from mlaot.schedule.nests import schedule_nest

from ..fuzz.random_graphs import compile_case, make_case
from .coverage import written_elements

ROWS = """\
def f(y: f32[20 * n], x: f32[20 * n]):
    for i in parallel(0, n):
        for j in vector(0, 20):
            y[i * 20 + j] = x[i * 20 + j]
"""


@pytest.mark.parametrize("name", MACHINES)
def test_remainders(name: str) -> None:
    nest = schedule_nest(parse_nest(ROWS), MACHINES[name])
    for n in (0, 1, 3):
        assert written_elements(nest, {"n": n}) == {"y": set(range(20 * n))}


def test_a_remainder_that_is_too_short() -> None:
    apart = ROWS.replace("x[i * 20 + j]", "x[i * 21 + j]").replace("x: f32[20 * n]", "x: f32[21 * n]")
    text = nest_text(schedule_nest(parse_nest(apart), MACHINES["v3"]))
    assert "y[i * 20 + 16:8, 4]" in text
    short = parse_nest(text.replace("y[i * 20 + 16:8, 4]", "y[i * 20 + 16:8, 3]"))
    assert written_elements(short, {"n": 2}) == {"y": {*range(40)} - {19, 39}}


def test_what_is_not_known() -> None:
    text = "def f(y: f32[4], k: i32[1]):\n    if k[0] > 0:\n        y[0] = f32(1.0)\n"
    assert written_elements(parse_nest(text), {}) == {"y": None}


@pytest.mark.parametrize("seed", range(4))
def test_schedules_cover_what_was_covered(seed: int) -> None:
    for procedure in compile_case(make_case(seed), PIPELINE, "graph").procedures:
        for nest in (k.nest for k in procedure.kernels):
            dims = dict.fromkeys(nest.dims, 3)
            before = written_elements(nest, dims)
            for machine in MACHINES.values():
                after = written_elements(schedule_nest(nest, machine), dims)
                assert all(None in (e, after[a]) or e == after[a] for a, e in before.items()), nest_text(nest)
