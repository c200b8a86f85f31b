"""Loops in loops that become one loop, and those that must not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.generate import compile_model
from mlaot.nest.statements import For, walk
from mlaot.nest.text import nest_text, parse_nest
from mlaot.printing.file import kernels_file
from mlaot.schedule.collapse import collapse, generalize_size
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options


def lines(text: str) -> str:
    nest = parse_nest(text)
    _, _, body = nest_text(type(nest)(nest.name, nest.params, collapse(nest.body))).partition("\n")
    return body


def test_loops_become_one() -> None:
    text = """\
def f(y: f32[n * 150], x: f32[n * 150]):
    for i in parallel(0, n):
        for k in parallel(0, 6):
            for j in parallel(0, 25):
                v = x[i * 150 + k * 25 + j] * f32(0.5)
                y[i * 150 + k * 25 + j] = v
"""
    assert (
        lines(text)
        == """\
    for j in parallel_vector(0, n * 150):
        v = x[j] * f32(0.5)
        y[j] = v
"""
    )


def test_what_is_the_same_for_all_may_stand_between() -> None:
    text = """\
def f(y: f32[96], x: f32[96], s: f32[1]):
    for i in parallel(0, 12):
        a = s[0]
        for j in vector(0, 8):
            y[i * 8 + j] = x[i * 8 + j] * a
"""
    assert "for j in parallel_vector(0, 96):\n        a = s[0]\n" in lines(text)


def test_a_loop_of_one_round_goes() -> None:
    text = """\
def f(y: f32[90], x: f32[90]):
    for i in parallel(0, 1):
        for j in vector(0, 30):
            y[i * 30 + j] = x[i * 90 + j]
"""
    assert lines(text) == "    for j in vector(0, 30):\n        y[j] = x[j]\n"


INSIDE = {
    "rows apart": "            y[i * 16 + j] = x[i * 8 + j]\n",
    "a row's own value": "            y[i * 8 + j] = x[i]\n",
    "columns": "            y[i * 8 + j] = x[j]\n",
    "turned": "            y[i * 8 + j] = x[i + j * 12]\n",
}


@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE)
def test_other_loops_stay(inside: str) -> None:
    head = "def f(y: f32[192], x: f32[96]):\n"
    loops = "    for i in parallel(0, 12):\n        for j in parallel(0, 8):\n"
    assert lines(head + loops + inside) == loops + inside


STAYS = {
    "sums": """\
    for i in parallel(0, 12):
        s: f32 = f32(0.0)
        for j in vector(0, 8):
            s = s + x[i * 8 + j]
        y[i] = s
""",
    "carried": """\
    for i in range(0, 12):
        for j in parallel(0, 8):
            y[i * 8 + j + 8] = y[i * 8 + j]
""",
    "behind": """\
    for i in parallel(0, 12):
        for j in parallel(0, 8):
            y[i * 8 + j] = x[i * 8 + j]
        y[i + 96] = f32(1.0)
""",
    "from the second on": """\
    for i in parallel(0, 12):
        for j in parallel(1, 8):
            y[i * 8 + j] = x[i * 8 + j]
""",
    "what the loop writes": """\
    for i in parallel(0, 12):
        a = y[0]
        for j in parallel(0, 8):
            y[i * 8 + j] = a
""",
}


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_these_stay(body: str) -> None:
    assert lines(f"def f(y: f32[200], x: f32[200]):\n{body}") == body


def test_strided_elements_are_no_vectors() -> None:
    text = """\
def f(y: f32[96], x: f32[192]):
    for i in parallel(0, 12):
        for j in parallel(0, 8):
            y[i * 8 + j] = x[i * 16 + j * 2]
"""
    assert lines(text) == "    for j in parallel(0, 96):\n        y[j] = x[j * 2]\n"


def test_arrays_of_all_shapes_have_one_kernel() -> None:
    text = "def f(y: f32[{n}], x: f32[{n}]):\n    for j in parallel_vector(0, {n}):\n        y[j] = x[j] * f32(2.0)\n"
    found = {generalize_size(parse_nest(text.format(n=n)))[0].body for n in (256, 1000, 999)}
    assert len(found) == 1
    nest = parse_nest(text.format(n=255))
    assert generalize_size(nest) == (nest, {})


def test_updates_share_a_kernel() -> None:
    """Of parameters of four shapes; vectors of numbers, though their last axes are short."""
    shapes = {"a": (400,), "b": (12, 1, 5, 5), "c": (16, 6, 3, 3), "d": (333,)}
    weights = {name: mlaot.Parameter(name, np.ones(shape, np.float32)) for name, shape in shapes.items()}

    def forward(x: Any) -> Any:
        return sum(np.sum(w * x) for w in weights.values())

    forward.__annotations__ = {"x": mlaot.f32[1]}
    model = mlaot.model(parameters=weights, loss=lambda y: y * y)(forward)
    program = compile_model(model, "m", Options(isas=("v3",)))
    (update,) = (p for p in program.procedures if p.entry.name == "update")
    text = kernels_file(program, "m", MACHINES["v3"])
    calls = re.findall(r"^    (\w+update\w*_v3)\(.*, (\d+)\);", text, re.MULTILINE)
    names = {n: {name for name, size in calls if int(size) == n} for n in (333, 400, 300, 864)}
    assert names[333] == names[400] != set() and names[300] == names[864] != set()  # rows of vectors, and without gaps
    loops = [s for k in update.kernels for s in walk(collapse(k.nest.body)) if isinstance(s, For)]
    assert all(loop.vector for loop in loops)
