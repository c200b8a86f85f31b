"""Loops that threads share: which they are, and that parts give the bits of the whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.generate import compile_model
from mlaot.ir.dims import substitute
from mlaot.lower.parallel import work_of_round
from mlaot.lower.program import Kernel, Loop, Program, Step, Steps
from mlaot.nest.expressions import Index
from mlaot.nest.statements import Body, For
from mlaot.nn import functional as F
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import BASE, MACHINES, Machine
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.parallel import SharedLoop, shared_loop
from mlaot.schedule.tuning import LIGHT_OPERATIONS, SHARED_OPERATIONS
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Array, Library, State, bits

batch, n = mlaot.dim("batch"), mlaot.dim("n")
draw = np.random.default_rng(5)


def weights(*shape: int) -> Array:
    return draw.normal(size=shape).astype(np.float32)


WIDE, NARROW, KERNEL = weights(96, 320), weights(320, 10), weights(40, 8, 3, 3)
BACK, TALL = weights(320, 96), weights(40, 512)
TAPS = weights(32, 32, 3, 3)


@mlaot.model
def mlp(x: mlaot.f32[batch, 96]) -> Any:
    return np.maximum(x @ WIDE + 1, 0) @ NARROW


@mlaot.model
def convolution(x: mlaot.f32[batch, 8, 17, 19]) -> Any:
    return F.max_pool2d(F.relu(F.conv2d(x, KERNEL)), 2)


@mlaot.model
def blocks(x: mlaot.f32[batch, 32, 64, 32]) -> Any:
    return F.relu(F.conv2d(x, TAPS, padding=1))


@mlaot.model
def norms(x: mlaot.f32[batch, 37]) -> Any:
    return F.softmax(x, 1) + F.layer_norm(x, (37,))


@mlaot.model
def line(x: mlaot.f32[n]) -> Any:
    return np.exp(x) * x


@mlaot.model
def moves(x: mlaot.f32[batch, 24, 40], i: mlaot.i64[batch]) -> Any:
    y = np.concatenate([np.roll(x, 3, axis=1), x[:, ::-1]], axis=2).transpose(0, 2, 1)
    return np.sort(y, axis=1), x.argmax(axis=2), np.take(x, i, axis=1), (x > 0) & (x < 1), np.cumsum(x, axis=1)


@mlaot.model
def attention(q: mlaot.f32[batch, 20, 33, 16], k: mlaot.f32[batch, 20, 33, 16]) -> Any:
    return F.softmax(q @ k.swapaxes(-1, -2), -1)


@mlaot.model
def recurrent(x: mlaot.f32[n, batch, 96]) -> Any:
    def step(h: Any, now: Any) -> Any:
        for _ in range(2):  # what is between the first products is gone at the second ones
            wide = np.maximum(h @ WIDE, 0)
            h = np.tanh(mlaot.cumsum(wide, axis=1) @ BACK / 99 + now)
        return h, h.sum(-1)

    return mlaot.scan(step, mlaot.zeros((batch, 96), "float32"), x)


@mlaot.model
def decay(x: mlaot.f32[n, batch, 96]) -> Any:
    def step(h: Any, now: Any) -> Any:
        h = np.tanh(h) * 0.5 + now
        return h, h * 2

    return mlaot.scan(step, mlaot.zeros((batch, 96), "float32"), x)


@mlaot.model
def columns(x: mlaot.f32[batch, 40, 16000], y: mlaot.i8[batch, 40, 16000]) -> Any:
    return np.cumsum(x, axis=1), np.max(y, axis=1), np.argmax(x, axis=1)


@mlaot.model
def gradients(x: mlaot.f32[batch, 40, 200], y: mlaot.f32[batch, 40, 512]) -> Any:
    return np.einsum("bsi,bsj->ij", x, y), np.tanh(np.einsum("bsi,sj->bij", x, TALL))


@mlaot.model
def sorts(x: mlaot.f32[batch, 24, 70]) -> Any:
    return np.argsort(x, axis=1, kind="stable"), np.argsort(x, axis=2, kind="stable"), np.median(x, axis=2)


CASES = {
    "mlp": (mlp, lambda b, n: {"x": weights(b, 96)}),
    "convolution": (convolution, lambda b, n: {"x": weights(b, 8, 17, 19)}),
    "blocks": (blocks, lambda b, n: {"x": weights(b, 32, 64, 32)}),
    "norms": (norms, lambda b, n: {"x": weights(b, 37)}),
    "line": (line, lambda b, n: {"x": weights(n)}),
    "moves": (moves, lambda b, n: {"x": weights(b, 24, 40), "i": draw.integers(0, 24, b)}),
    "columns": (
        columns,
        lambda b, n: {"x": weights(b, 40, 16000), "y": draw.integers(-99, 99, (b, 40, 16000)).astype(np.int8)},
    ),
    "gradients": (gradients, lambda b, n: {"x": weights(b, 40, 200), "y": weights(b, 40, 512)}),
    "sorts": (sorts, lambda b, n: {"x": weights(b, 24, 70)}),
    "attention": (attention, lambda b, n: {"q": weights(b, 20, 33, 16), "k": weights(b, 20, 33, 16)}),
    "recurrent": (recurrent, lambda b, n: {"x": weights(n, b, 96)}),
    "decay": (decay, lambda b, n: {"x": weights(n, b, 96)}),
}
Inputs = Callable[[int, int], dict[str, Array]]


@cache
def program(name: str) -> Program:
    return compile_model(CASES[name][0], f"{name}.nn", Options(isas=("base",)))


def loop_of(kernel: Kernel, machine: Machine = BASE) -> SharedLoop | None:
    """The loop of a kernel that threads share."""
    return shared_loop(schedule_nest(kernel.nest, machine))


@cache
def shared(name: str) -> list[SharedLoop]:
    """The loops of a case's kernels that threads share."""
    kernels = [kernel for procedure in program(name).procedures for kernel in procedure.kernels]
    return [found for kernel in kernels if (found := loop_of(kernel)) is not None]


def loops_of(steps: Iterable[Step]) -> Iterator[Loop]:
    """Loops around kernels."""
    for step in steps:
        if isinstance(step, Loop):
            yield step
        if isinstance(step, Loop | Steps):
            yield from loops_of(step.inner)


@pytest.fixture(scope="module", params=AVAILABLE)
def library(request: pytest.FixtureRequest, shared_folder: Path) -> Library:
    programs = {name: program(name) for name in CASES}
    return Library(programs, request.param, shared_folder / "parallel")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("b", [1, 2, 13, 21])
def test_parts_have_the_bits_of_the_whole(library: Library, name: str, b: int) -> None:
    """Whatever the parts: a tile is computed where it starts, by the same statements."""
    assert shared(name)
    inputs: Inputs = CASES[name][1]
    given, dims = inputs(b, 20 * b + 3), {"batch": b, "n": 20 * b + 3}
    results = [library.call(name, "forward", given, dims, parts=parts) for parts in (False, True)]
    assert bits(results[0].values()) == bits(results[1].values())


def test_chosen_loops() -> None:
    """Columns where they are many tiles, else rows; an axis known to be long before an unknown one; a single row.

    Of the kernels of attention, the product has little work for each head, the other two have more for each example.
    """
    first, second = shared("mlp")
    assert (first.variable, first.extent) == ("j", 320)
    assert (second.variable, str(second.extent)) == ("i1", "batch")
    loops = [(loop.variable, str(loop.extent)) for loop in shared("attention")]
    assert loops == [("i0", "batch"), ("i1", "batch * 20"), ("i0", "batch")]
    assert [(found.variable, str(found.extent)) for found in shared("line")] == [("j", "n_n")]


def once(step: Step, *names: str) -> Step:
    """A kernel whose loops over some variables, whatever number they end in, have one round."""

    def shorter(body: Body) -> Body:
        loops = [replace(s, body=shorter(s.body)) if isinstance(s, For) else s for s in body]
        return tuple(replace(s, high=Index(1)) if isinstance(s, For) and s.var.name in names else s for s in loops)

    assert isinstance(step, Kernel)
    return replace(step, nest=replace(step.nest, body=shorter(step.nest.body)))


def test_rounds_whose_kernels_go_along_are_shared() -> None:
    """Of a convolution block by block, each thread with its own memory between the transforms."""
    procedure, _ = program("blocks").procedures
    (found,) = (loop for loop in loops_of(procedure.steps) if loop.private is not None)
    assert work_of_round(found) == 16 * 128 * 32 * 32
    assert work_of_round(replace(found, private=None)) is None and work_of_round(replace(found, extent=3)) is None
    light = tuple(once(k, "k", "k1") for k in found.steps)
    assert work_of_round(replace(found, steps=light)) == 16 * 128 * 32 == SHARED_OPERATIONS
    lighter = tuple(once(k, "k", "k1", "j") for k in found.steps)
    assert work_of_round(replace(found, steps=lighter)) is None
    text = kernels_file(program("blocks"), "nn", BASE)
    assert text.count("    share_apart(threads, ") == 1
    tasks = re.findall(r"^static void rounds\w+\(.*?^}", text, re.MULTILINE | re.DOTALL)
    (task,) = (t for t in tasks if "for (ptrdiff_t round1 = begin; round1 < end; round1++) {" in t)
    assert "threads" not in task and " *)p[6];" in task


def test_rows_of_a_loop_are_shared() -> None:
    """For all rounds at once, where there are rows for two threads; no buffer of the loop lies in another's place."""
    procedure = next(p for p in program("recurrent").procedures if p.entry.name == "forward")
    (found,) = loops_of(procedure.steps)
    assert found.rows == "batch"
    text = kernels_file(program("recurrent"), "nn", MACHINES["v3"])
    (shared_rows,) = re.findall(
        r"if \(batch >= (\d+)\) \{\n +share\(threads, rows_v3, p, dim, batch, (\d+), -.*\);", text
    )
    assert int(shared_rows[0]) == 2 * int(shared_rows[1])
    (task,) = re.findall(r"^static void rows_v3\(.*?^}", text, re.MULTILINE | re.DOTALL)
    assert task.count("begin, end);") == len(found.steps) and "share" not in task
    assert "begin * 96, end * 96);" in kernels_file(program("decay"), "nn", MACHINES["v3"])  # of one line of elements
    offsets = {id(buffer): offset for buffer, offset in procedure.offsets}
    roots = {id(p.buffer.root): p.buffer.root for p in found.params if p.buffer.root.where == "work"}
    sizes = {"batch": 8, "n": 4, "n_n": 4}
    places = sorted((substitute(offsets[key], sizes), substitute(root.bytes, sizes)) for key, root in roots.items())
    assert len(places) > 1 and all(a + size <= b for (a, size), (b, _) in pairwise(places))


def test_rows_that_need_each_other_are_not_shared() -> None:
    def over_batch(h: Any, now: Any) -> Any:
        return h - h.mean(axis=0) + now, ()

    def counted(carry: Any, now: Any) -> Any:
        h, count = carry
        return (np.tanh(h @ WIDE[:, :96] * count) + now, count + 1), ()

    def turned(h: Any, now: Any) -> Any:
        return np.tanh(h @ WIDE[:, :96])[::-1] + now, ()

    def loop(step: Any, *others: Any) -> Any:
        @mlaot.model
        def model(x: mlaot.f32[n, batch, 96]) -> Any:
            start = mlaot.zeros((batch, 96), "float32")
            return mlaot.scan(step, (start, *others) if others else start, x)[0]

        return model

    for model in (loop(over_batch), loop(turned), loop(counted, np.float32(1))):
        (found,) = loops_of(compile_model(model, "m.nn", Options(isas=("base",))).procedures[0].steps)
        assert found.rows == ""


def test_loops_around_loops_are_not_shared() -> None:
    @mlaot.model
    def model(x: mlaot.f32[n, batch, 96], y: mlaot.f32[n]) -> Any:
        def step(h: Any, now: Any) -> Any:
            row, start = now
            times = mlaot.fori_loop(0, 3, lambda i, c: np.tanh(c), start)
            return np.tanh(h * times) + row, ()

        return mlaot.scan(step, mlaot.zeros((batch, 96), "float32"), (x, y))[0]

    outer, inner = loops_of(compile_model(model, "m.nn", Options(isas=("base",))).procedures[0].steps)
    assert outer.rows == inner.rows == ""


def test_short_work_is_not_shared() -> None:
    @mlaot.model
    def small(x: mlaot.f32[batch, 4], y: mlaot.f32[8, 8]) -> Any:
        return x * 2 + 1, np.exp(y)

    found = compile_model(small, "small.nn", Options(isas=("base",)))
    rows, known = found.procedures[0].kernels
    for isa in MACHINES.values():
        assert loop_of(known, isa) is None
        part = loop_of(rows, isa)  # of any number of rows, which are one line of elements
        assert part is not None and isinstance(part.work, int) and part.step * part.work >= LIGHT_OPERATIONS


def loss(scores: Any, label: mlaot.i64[batch]) -> Any:
    return F.cross_entropy(scores, label)


def test_training_in_parts(tmp_path: Path) -> None:
    """The parameters after three steps, and their gradients."""
    net = {"w": weights(96, 320), "b": weights(320), "v": weights(320, 10)}

    @mlaot.model(loss=loss, parameters=net, optimizer=mlaot.optim.Adam())
    def trained(x: mlaot.f32[batch, 96]) -> Any:
        return np.tanh(x @ net["w"] + net["b"]) @ net["v"]

    found = compile_model(trained, "trained.nn", Options(isas=("base",)))
    made = Library({"trained": found}, AVAILABLE[-1], tmp_path)
    entry = next(p.entry for p in found.procedures if p.entry.name == "train_step")
    values = {"x": weights(29, 96), "lr": np.float32(0.01)}
    values |= {p.name: draw.integers(0, 10, 29) for p in entry.inputs if p.name not in values}
    states = []
    for parts in (False, True):
        state = State(found)
        for _ in range(3):
            made.call("trained", "train_step", values, {"batch": 29}, state, parts)
        states.append(state.state.tobytes())
    assert states[0] == states[1] != State(found).state.tobytes()


def test_updates_of_one_element_stay_in_order(tmp_path: Path) -> None:
    """A scatter in place has a loop of updates only, of which several go to one row."""
    table = mlaot.Buffer(np.zeros((8, 64), np.float32), "table")

    @mlaot.model
    def read(x: mlaot.f32[batch, 8]) -> Any:
        return x + table[:, 0]

    @read.entry
    def add(x: mlaot.f32[256, 64], i: mlaot.i64[256]) -> None:
        table.assign(mlaot.scatter(table, i, x, mode="add"))

    found = compile_model(read, "add.nn", Options(isas=("base",)))
    made = Library({"add": found}, AVAILABLE[-1], tmp_path)
    given = {"x": 2.0 ** draw.integers(-20, 20, (256, 64)), "i": draw.integers(0, 8, 256)}
    states = []
    for parts in (False, True):
        states.append(State(found))
        made.call("add", "add", given, {}, states[-1], parts)
    assert bits([states[0].slot("table")]) == bits([states[1].slot("table")])
    assert states[0].slot("table").any()
    (kernel,) = next(p.kernels for p in found.procedures if p.entry.name == "add")
    assert loop_of(kernel) is None


def test_columns_that_stand_alone_are_shared() -> None:
    """Of a scan, a reduction and a search along the first of two axes: blocks of columns."""
    found = [(s.variable, str(s.extent), len(s.around)) for s in shared("columns")]
    assert len(found) == 3 and set(found) == {("start", "batch * 16128", 1)}


def test_a_range_of_several_loops() -> None:
    """Of a batch whose examples have much work: 15 rows of 40 channels each; a tile is one of 4 channels."""
    kernels = [kernel for procedure in program("convolution").procedures for kernel in procedure.kernels]
    found = loop_of(kernels[0], MACHINES["v3"])
    assert found is not None
    assert (str(found.extent), found.step, found.around) == ("batch * 600", 4, (("i2", 600, 1), ("i", 40, 1)))


def test_panels_of_a_gradient_are_one_range() -> None:
    """Those of columns around those of rows, none of which are enough for threads alone."""
    gradient = next(k for procedure in program("gradients").procedures for k in procedure.kernels)
    found = loop_of(gradient, MACHINES["v3"])
    assert found is not None
    assert (found.variable, found.extent, found.step, found.around) == ("i_first", 432, 54, (("j_first", 216, 256),))
