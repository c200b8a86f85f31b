"""Every operator on special numbers, against stored answers of onnxruntime and of the package onnx.

``python -m tests.onnx.make_special`` and ``make_microsoft`` store them. Each model is evaluated with NumPy, and some
are compiled, for the least and for the best instruction set of this machine: all with ``MLAOT_EVERY_SPECIAL=1``.
"""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot.onnx.ops  # noqa: F401  fills the registry
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Traced
from mlaot.generate import compile_model
from mlaot.onnx.declare import declare, port_name
from mlaot.onnx.registry import OPERATORS
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library
from .special import EITHER, MICROSOFT, STORED, Answer, agree, stored
from .special_cases import Case

PARTS = 2
THINNED = 6
EVERY = "MLAOT_EVERY_SPECIAL" in os.environ
FLAGS = ("-Wno-tautological-compare", "-Wno-type-limits")  # x == x and, of unsigned numbers, x < 0 may be asked for
ISAS = tuple(dict.fromkeys((AVAILABLE[0], AVAILABLE[-1])))


@cache
def answers() -> list[tuple[Case, list[Answer]]]:
    return [*stored(STORED), *stored(MICROSOFT)]


@cache
def imported(number: int) -> tuple[Traced, dict[str, str]]:
    """A case's graph with its weights, and which port each output is."""
    made: dict[str, Any] = {}
    return declare(answers()[number][0].model, {}, ports=made).trace(), made


def by_numpy(number: int, given: dict[str, Any]) -> dict[str, Any]:
    traced, _ = imported(number)
    return evaluate(traced.graph, {**traced.parameters, **given})


def ports(given: dict[str, Any]) -> dict[str, Any]:
    return {port_name(name): array for name, array in given.items()}


def check(number: int, run: Any) -> list[str]:
    """What ``run`` gives for a case that is not what is stored."""
    case, rows = answers()[number]
    _, made = imported(number)
    found = []
    for given, answer in zip(case.sets, rows, strict=True):
        outputs = run(ports(given))
        for info, wanted in zip(case.model.graph.output, answer.outputs, strict=True):
            got = np.asarray(outputs[made[info.name]])
            differs = agree(got, wanted, scaled=case.scaled, tiny=case.tiny, zeros=answer.why != EITHER)
            found += [f"{case.name}, {info.name}: {differs} ({answer.whose})"] if differs else []
    return found


def test_every_operator_has_answers() -> None:
    """But for those of strings, maps and files, where no numbers are special: test_texts.py, test_columns.py and
    test_decoding.py have them."""
    texts = {("", name) for name in ("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")}
    texts |= {("com.microsoft", "Tokenizer"), ("ai.onnx.ml", "CastMap"), ("ai.onnx.ml", "DictVectorizer")}
    texts |= {("", "ImageDecoder")}
    assert set(OPERATORS) - {operator for case, _ in answers() for operator in case.operators} == texts


@pytest.mark.parametrize("part", range(PARTS))
def test_evaluated(part: int) -> None:
    found = []
    for number in range(part, len(answers()), PARTS):
        found += check(number, partial(by_numpy, number))
    assert not found, "\n".join(found)


def chosen(part: int, isa: str) -> list[int]:
    """Some of the cases: the first of each operator, and every so many; the instruction sets share them."""
    seen: set[tuple[str, str]] = set()
    numbers = []
    for number, (case, _) in enumerate(answers()):
        if EVERY or number % THINNED == 0 or not case.operators <= seen:
            numbers.append(number)
        seen |= case.operators
    return numbers[part::PARTS] if EVERY else numbers[ISAS.index(isa) :: len(ISAS)][part::PARTS]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("part", range(PARTS))
def test_compiled(part: int, isa: str, tmp_path: Path) -> None:
    numbers = chosen(part, isa)
    models = {n: declare(answers()[n][0].model, {}) for n in numbers}
    programs = {
        f"m{n}": compile_model(model, f"special.m{n}", Options(isas=("base", isa))) for n, model in models.items()
    }
    library = Library(programs, isa, tmp_path, FLAGS)
    found = []
    for number in numbers:
        found += check(number, partial(library.call, f"m{number}", "forward"))
    assert not found, "\n".join(found)
