"""The interpreter of nests: what it computes, and the faults that it finds before a compiler runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.nest.expressions import Call, Expr, Index, Load, map_parts
from mlaot.nest.interpreter import compile_nest
from mlaot.nest.statements import Assign, Body, For, If, Mutable, Nest, Statement, Store, map_expressions, walk
from mlaot.nest.text import parse_nest
from mlaot.nest.verify import verify
from mlaot.printing import functions
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

from ..fuzz.nests import run
from ..fuzz.random_graphs import report
from ..interpreted import Interpreted

ROWS, WIDTH = 5, 11  # no whole number of vectors
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32)
W = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)
Change = Callable[[Nest], Iterator[Nest]]


def test_random_graphs() -> None:
    failed, counts = run(range(12))
    assert not failed, report(failed, counts)
    assert counts["nests"] > 500


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", [315, 322, 973, 1709])
def test_graphs_that_once_failed_compiled(machine: str, seed: int) -> None:
    failed, counts = run([seed], [machine])
    assert not failed, report(failed, counts)


def test_memory_is_guarded() -> None:
    text = "def f(y: f32[4], x: f32[4]):\n    for i in range(0, 4):\n        y[i] = x[i + 1]\n"
    arrays = {"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)}
    with pytest.raises(AssertionError, match="bug in mlaot: f: element 4 of the 4 of x in"):
        compile_nest(parse_nest(text), {})(arrays, {})


def test_unknown_functions_are_refused() -> None:
    with pytest.raises(AssertionError, match="nothing computes"):
        compile_nest(parse_nest("def f(y: f32[4], x: f32[4]):\n    y[0] = expo(x[0])\n"), {})


# Faults put into the nests of a model, each at one place after the other.


def model() -> Program:
    def answer(x: Any) -> Any:
        scores = np.tanh(x) @ W
        return scores / np.sum(np.exp(scores), axis=1, keepdims=True)

    answer.__annotations__ = {"x": mlaot.f32[mlaot.dim("rows"), WIDTH]}
    return compile_model(mlaot.model(answer), "m", Options(isas=tuple(MACHINES)))


def right() -> Any:
    scores = (np.tanh(X) @ W).astype(np.float64)
    return scores / np.exp(scores).sum(axis=1, keepdims=True)


def at_each(nest: Nest, change: Callable[[Statement], Statement | None]) -> Iterator[Nest]:
    """The nest with one statement changed, for each that can be."""
    for number, target in enumerate(walk(nest.body)):
        if (new := change(target)) is not None:
            yield replace(nest, body=_replaced(nest.body, number, new)[0])


def _replaced(body: Body, number: int, new: Statement) -> tuple[Body, int]:
    result = []
    for s in body:
        if number == 0:
            result.append(new)
            number -= 1 + len([*walk([s])]) - 1
            continue
        number -= 1
        if isinstance(s, For):
            inner, number = _replaced(s.body, number, new)
            s = replace(s, body=inner)
        elif isinstance(s, If):
            then, number = _replaced(s.body, number, new)
            otherwise, number = _replaced(s.otherwise, number, new)
            s = If(s.condition, then, otherwise)
        elif hasattr(s, "body"):
            inner, number = _replaced(s.body, number, new)
            s = replace(s, body=inner)
        result.append(s)
    return tuple(result), number


def wrong_strides(nest: Nest) -> Iterator[Nest]:
    """Rows that are one element longer than they are."""

    def longer(x: Expr) -> Expr:
        if isinstance(x, Load) and isinstance(x.index, Index) and not isinstance(x.index.value, int):
            terms = tuple((m, f + (f == WIDTH or f == 16)) for m, f in x.index.value.terms)
            return replace(x, index=Index(type(x.index.value)(terms)))
        return map_parts(x, longer)

    body = map_expressions(nest.body, longer)
    if body != nest.body:
        yield replace(nest, body=body)


def short_loops(nest: Nest) -> Iterator[Nest]:
    """A loop that leaves out its last round: the main loop or that over what remains."""

    def shorter(s: Statement) -> Statement | None:
        if not isinstance(s, For):
            return None
        return replace(s, high=Call("sub", (s.high, Index(s.step)), s.high.type))

    return at_each(nest, shorter)


def shared_sums(nest: Nest) -> Iterator[Nest]:
    """A loop that carries a sum from round to round, shared by threads."""

    def parallel(s: Statement) -> Statement | None:
        is_sum = isinstance(s, For) and any(
            isinstance(inner, Assign) and not any(isinstance(m, Mutable) and m.var == inner.var for m in walk(s.body))
            for inner in walk(s.body)
        )
        return replace(s, parallel=True) if is_sum and isinstance(s, For) and not s.parallel else None

    return at_each(nest, parallel)


def missing_masks(nest: Nest) -> Iterator[Nest]:
    """Whole vectors stored where a part of one is left."""
    return at_each(nest, lambda s: replace(s, count=None) if isinstance(s, Store) and s.count is not None else None)


def is_right(program: Program, machine: str, rows: int = ROWS) -> bool:
    answer = Interpreted({"m": program}, machine).call("m", "forward", {"x": X[:rows]}, {"rows": rows})
    return np.allclose(answer["out"], right()[:rows], rtol=1e-5, atol=1e-6)


def is_found(program: Program, machine: str, wrong: Nest) -> bool:
    """Whether a nest cannot be right, or gives wrong answers for some number of rows: each has a tile."""
    try:
        verify(wrong)
        return not all(is_right(program, machine, rows) for rows in range(ROWS, 0, -1))
    except AssertionError:
        return True


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("change", [wrong_strides, short_loops, shared_sums, missing_masks])
def test_faults_are_found(change: Change, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = model()
    assert is_right(program, machine)
    kernels = [kernel for procedure in program.procedures for kernel in procedure.kernels]
    original, tried, missed = functions.schedule_nest, 0, []
    for kernel in kernels:
        for wrong in change(original(kernel.nest, MACHINES[machine])):
            tried += 1
            monkeypatch.setattr(
                functions,
                "schedule_nest",
                lambda n, m, wrong=wrong, at=kernel.nest: wrong if n is at else original(n, m),
            )
            if not is_found(program, machine, wrong):
                missed.append(wrong)
    assert not missed, f"{len(missed)} of {tried}, such as {missed[0]}"
    assert tried or (change is missing_masks and machine in ("base", "neon")), "there is no place for the fault"


def test_an_undefined_helper_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(x: Expr) -> Expr:
        new = map_parts(x, renamed)
        return replace(new, name="tanhh") if isinstance(new, Call) and new.name == "tanh" else new

    original = functions.schedule_nest

    def wrong(built: Any, machine: Any) -> Nest:
        nest = original(built, machine)
        return replace(nest, body=map_expressions(nest.body, renamed))

    monkeypatch.setattr(functions, "schedule_nest", wrong)
    with pytest.raises(AssertionError, match=r"nothing defines .*tanhh_f32"):
        kernels_file(model(), "m", MACHINES["v3"])
