"""The special cases of the array API standard, kept in ``cases.json``: traced, through the passes, and as compiled C.

Two constant arguments are as good as two traced ones; ``make_cases.py`` writes the cases, ``run.py`` runs the suite.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.evaluate import evaluate
from mlaot.ir import Type, dim
from mlaot.ir.types import DType, f32, f64
from mlaot.lower.program import Program

from ..compiled import AVAILABLE, Library
from ..frontend.tracing import graph_of
from .engines import Array, called, compiled_program, through_passes

FILE = json.loads((Path(__file__).parent / "cases.json").read_text())
CASES: list[dict[str, Any]] = FILE["cases"]
STATISTICAL: list[dict[str, str]] = FILE["statistical"]
FUNCTIONS = sorted({c["function"] for c in CASES})
LENGTH = 21  # whole vectors of every instruction set, and a rest


def numbers(words: str, dtype: DType) -> Array:
    return np.array([float(w) for w in words.split()], dtype.numpy)


def inputs_of(case: dict[str, Any], dtype: DType) -> list[Array]:
    """The arguments of a case, repeated until vectors are full."""
    columns = [numbers(column, dtype) for column in case["inputs"]]
    return [np.resize(c, max(LENGTH, c.size)) for c in columns]


def wanted_of(case: dict[str, Any], size: int) -> list[str]:
    """A word for each result."""
    words = case.get("numpy", case["expected"]).split()
    return [words[i % len(words)] for i in range(size)] if len(words) > 1 else words * size


def agrees(wanted: str, value: float) -> bool:
    """Whether a result is the number wanted, near it, or of its sign."""
    if wanted in "+-":
        return math.isnan(value) or math.copysign(1, value) == float(f"{wanted}1")
    if wanted.startswith("~"):
        return math.isclose(value, float(wanted[1:]), rel_tol=1e-6)
    number = float(wanted)
    if math.isnan(number):
        return math.isnan(value)
    return value == number and math.copysign(1, value) == math.copysign(1, number)


def check(case: dict[str, Any], arguments: list[Array], results: Array, how: str) -> None:
    """Every result of a case."""
    for i, wanted in enumerate(wanted_of(case, results.size)):
        given = ", ".join(str(a[i]) for a in arguments)
        assert agrees(wanted, float(results[i])), (
            f"{how}: {case['function']}({given}) is {results[i]}, not {wanted}: {case['condition']} -> {case['result']}"
        )


def of(name: str) -> list[dict[str, Any]]:
    return [c for c in CASES if c["function"] == name]


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_traced(name: str, dtype: DType) -> None:
    for case in of(name):
        arguments = inputs_of(case, dtype)
        graph, _ = graph_of(getattr(mlaot, name), *[Type(dtype, a.shape) for a in arguments])
        given = {f"x{i}": a for i, a in enumerate(arguments)}
        check(case, arguments, evaluate(graph, given)["0"], "traced")
        check(case, arguments, evaluate(through_passes(graph), given)["0"], "through the passes")


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if len(of(n)[0]["inputs"]) == 2])
def test_constant_arguments(name: str, position: int) -> None:
    """The passes know rules for constants, and powers of constant exponents are an op of their own."""
    for case in of(name):
        arguments = [numbers(column, f64) for column in case["inputs"]]
        wanted = wanted_of(case, arguments[0].size)
        for constant in {a.tobytes(): a for a in arguments[position]}.values():
            chosen = [i for i, a in enumerate(arguments[position]) if a.tobytes() == constant.tobytes()]
            x = arguments[1 - position][chosen]
            graph, _ = graph_of(called(getattr(mlaot, name), position, constant), Type(f64, x.shape))
            results = evaluate(through_passes(graph), {"x0": x})["0"]
            part = case | {"expected": " ".join(wanted[i] for i in chosen)}
            part.pop("numpy", None)
            check(part, [a[chosen] for a in arguments], results, f"argument {position} constant")


# Compiled.


@cache
def exponents() -> list[str]:
    """The exponents of the cases of ``pow``."""
    return sorted({word for case in of("pow") for word in case["inputs"][1].split()}, key=float)


def programs(isa: str) -> dict[str, Program]:
    """Every function on either dtype, of arrays of n numbers, and powers of constant exponents."""
    found = {}
    for dtype in (f32, f64):
        type_ = Type(dtype, (dim("n"),))
        for name in FUNCTIONS:
            arity = len(of(name)[0]["inputs"])
            found[f"{name}_{dtype}"] = compiled_program(getattr(mlaot, name), [type_] * arity, isa)
        for i, exponent in enumerate(exponents()):
            power = called(mlaot.pow, 1, np.dtype(dtype.numpy).type(exponent))
            found[f"pow_{i}_{dtype}"] = compiled_program(power, [type_], isa)
        for name in {s["function"] for s in STATISTICAL}:
            found[f"{name}_{dtype}"] = compiled_program(getattr(mlaot, name), [type_], isa)
    return found


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> dict[str, Library]:
    """All of them in one library for each instruction set."""
    return {isa: Library(programs(isa), isa, shared_folder / f"arrayapi_{isa}") for isa in AVAILABLE}


def run(library: Library, stem: str, arguments: list[Array]) -> Array:
    given = {f"x{i}": a for i, a in enumerate(arguments)}
    return library.call(stem, "forward", given, {"n": arguments[0].size})["0"]


@pytest.mark.parametrize("isa", AVAILABLE)
def test_compiled(isa: str, libraries: dict[str, Library]) -> None:
    for case in CASES:
        for dtype in (f32, f64):
            arguments = inputs_of(case, dtype)
            results = run(libraries[isa], f"{case['function']}_{dtype}", arguments)
            check(case, arguments, results, f"{isa} {dtype}")


@pytest.mark.parametrize("isa", AVAILABLE)
def test_compiled_constant_exponents(isa: str, libraries: dict[str, Library]) -> None:
    for case in of("pow"):
        words = case["inputs"][1].split()
        for dtype in (f32, f64):
            bases, powers = (numbers(column, dtype) for column in case["inputs"])
            for i, wanted in enumerate(wanted_of(case, len(words))):
                x = np.resize(bases[i : i + 1], LENGTH)
                results = run(libraries[isa], f"pow_{exponents().index(words[i])}_{dtype}", [x])
                check(
                    case | {"expected": wanted}, [x, np.resize(powers[i], LENGTH)], results, f"{isa} {dtype} constant"
                )


@pytest.mark.parametrize("case", STATISTICAL, ids=lambda c: f"{c['function']}-{c['condition']}")
def test_statistical(case: dict[str, str], libraries: dict[str, Library]) -> None:
    """Of nothing, and of nan wherever it stands."""
    name, empty = case["function"], case["condition"] == "[]"
    for dtype in (f32, f64):
        found = []
        for at in (0,) if empty else (0, LENGTH // 2, LENGTH - 1):
            x = np.linspace(-2, 2, 0 if empty else LENGTH, dtype=dtype.numpy)
            x[at : at + 1] = np.nan
            graph, _ = graph_of(getattr(mlaot, name), Type(dtype, x.shape))
            found.append(evaluate(graph, {"x0": x})["0"])
            found += [run(library, f"{name}_{dtype}", [x]) for library in libraries.values()]
        assert all(agrees(case["expected"], float(value)) for value in found), found
