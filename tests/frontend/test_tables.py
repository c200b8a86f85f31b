"""Scalars that are picked by an ``Index``, cut off by a ``Length``, compared, and given to functions of ``math``."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.scalar.functions import FUNCTIONS
from mlaot.micrograd import Index, Length, Max, Min, Table, Value, declare, math, where

from ..projects import build_module, load

ROWS = [[0.1 * i - 0.2 * j for j in range(3)] for i in range(5)]


def graph_of(outputs: Any, inputs: dict[str, Any], **more: Any) -> tuple[Any, Callable[..., Any]]:
    """The graph of ``forward``, and what evaluates it."""
    module = passes.run("m", declare(outputs, inputs=inputs, **more).trace())
    graph = module.graphs["forward"]
    used = {name: array for name, array in module.parameters.items() if name in graph.inputs}
    return graph, lambda **arrays: evaluate(graph, {**arrays, **used})


def test_rows_of_a_table() -> None:
    """Of numbers and of Values; the number for which Python computes may change."""
    letter, other = Index(5), Index(5, 3)
    trained = Table([Value(v) for v in row] for row in ROWS)
    row = trained[letter]
    shifted = [a + b for a, b in zip(row, Table(ROWS)[other], strict=True)]
    assert [v.data for v in shifted] == pytest.approx([a + b for a, b in zip(ROWS[0], ROWS[3], strict=True)])
    letter.number = 4
    for value in shifted:
        value.forward()
    assert [v.data for v in shifted] == pytest.approx([a + b for a, b in zip(ROWS[4], ROWS[3], strict=True)])
    assert (
        trained[1] == list.__getitem__(trained, 1)
        and trained[1:3] == list(trained)[1:3]
        and repr(letter) == "Index(5, 4)"
    )

    graph, call = graph_of(shifted, {"letter": letter, "other": other}, parameters={"w": trained})
    assert {node.op.name for node in graph.nodes()} <= {
        "input",
        "const",
        "gather",
        "add",
        "where",
        "and",
        "one_hot",
        "contract",
    }
    (found,) = call(letter=np.array([0, 2]), other=np.array([3, 1])).values()
    np.testing.assert_allclose(found, np.array(ROWS)[[0, 2]] + np.array(ROWS)[[3, 1]], rtol=1e-14)


def test_several_indices_are_one_input_and_positions_one_product() -> None:
    letters = [Index(5) for _ in range(7)]
    weights = [Value(0.5 * i) for i in range(3)]
    scores = [sum(w * v for w, v in zip(weights, Table(ROWS)[letter], strict=True)) for letter in letters]
    graph, call = graph_of(scores, {"letters": letters}, parameters={"w": weights})
    drawn = np.random.default_rng(0).integers(0, 5, (4, 7))
    (found,) = call(letters=drawn).values()
    np.testing.assert_allclose(found, np.array(ROWS)[drawn] @ [0.0, 0.5, 1.0], atol=1e-15)
    assert len(graph.nodes()) < 20


def test_a_length_cuts_off_what_lies_behind_it(tmp_path: Path) -> None:
    """Compiled: its range is checked, and what is cut off gets no gradient."""
    length = Length(6)
    x, w = [Value(0.0) for _ in range(6)], Value(0.5)
    losses = Table([(w * v) ** 2, v] for v in x)[:length]
    loss = sum(first + second for first, second in losses) / length
    assert loss.data == 0 and length.data == 6
    declared = declare(loss, inputs={"x": x, "length": length}, parameters={"w": w}, loss=loss)
    model = load(build_module(declared, "cut", tmp_path / "site", ("base",))).Model()
    rows = np.arange(12.0).reshape(2, 6)
    lengths = [2, 5]
    expected = [sum(0.25 * v * v + v for v in row[:n]) / n for row, n in zip(rows, lengths, strict=True)]
    assert model.forward(rows, lengths).tolist() == pytest.approx(expected)
    model.set_input(rows, lengths)
    model.forward()
    model.backward()
    slope = np.mean([sum(2 * 0.5 * v * v for v in row[:n]) / n for row, n in zip(rows, lengths, strict=True)])
    assert model.gradients["w"].item() == pytest.approx(slope)
    assert np.isnan(rows[0]).sum() == 0 and model.forward(np.full((1, 6), np.inf), [1])[0] == np.inf
    assert model.forward(rows, [6, 6]).tolist() == pytest.approx((0.25 * rows**2 + rows).mean(1).tolist())
    for wrong in (7, -1):
        with pytest.raises(ValueError, match="length"):
            model.forward(rows, [1, wrong])
    behind = rows.copy()
    behind[0, 2:] = np.nan
    assert model.forward(behind, lengths).tolist() == pytest.approx(expected)


def test_comparisons_choices_and_extremes() -> None:
    x, y = Value(0.0), Value(0.0)
    outputs = {
        "order": [x < y, x <= y, x > y, x >= y, x > 1, x < 1],
        "chosen": where(x > y, x * y, x - y),
        "counted": where(x, 2.0, y) + (x >= 0) * 3,
        "extremes": [Max(x, y), Min(x, y), abs(x)],
    }
    call = graph_of(outputs, {"x": x, "y": y})[1]
    a, b = np.array([1.0, -2.0, 0.0, 3.0, np.nan]), np.array([1.0, 1.0, -1.0, 3.5, 0.0])
    found = call(x=a, y=b)
    np.testing.assert_array_equal(found["order"], np.stack([a < b, a <= b, a > b, a >= b, a > 1, a < 1], 1))
    np.testing.assert_array_equal(found["chosen"], np.where(a > b, a * b, a - b))
    np.testing.assert_array_equal(found["counted"], np.where(a != 0, 2.0, b) + (a >= 0) * 3)
    np.testing.assert_array_equal(found["extremes"], np.stack([np.maximum(a, b), np.minimum(a, b), abs(a)], 1))


def test_functions_of_math_take_values() -> None:
    """A program that says ``math.sin(v)`` needs another import, and still may give it numbers."""
    x = Value(0.3)
    assert {name for name in FUNCTIONS if not hasattr(numbers, name)} == {"abs", "sigmoid"}
    names = [name for name in FUNCTIONS if hasattr(numbers, name)]
    for name in names:
        assert getattr(math, name)(0.3) == getattr(numbers, name)(0.3) == getattr(math, name)(x).data
    assert math.pi == numbers.pi and math.pow(x, 2).data == x.data**2 and math.fabs(-x).data == 0.3
    values = [getattr(math, name)(x) for name in names]
    call = graph_of([*values, x.sigmoid()], {"x": x})[1]
    at = np.array([0.1, 0.6])
    arc = {"acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "erf": erf}
    (found,) = call(x=at).values()
    expected = [arc.get(name, getattr(np, name, None))(at) for name in names]  # type: ignore[misc]
    np.testing.assert_allclose(found, np.stack([*expected, 1 / (1 + np.exp(-at))], 1), rtol=1e-12)
    with pytest.raises(AttributeError, match="no attribute 'cube'"):
        math.cube  # noqa: B018


X, I, N = Value(0.0), Index(3), Length(3)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a list": (lambda: [1, 2, 3][I], r"a list was indexed by an Index, .*; write Table\(list\)\[index\]"),
    "another length": (lambda: Table([1, 2])[I], r"Table: expected 3 elements for an Index\(3\), got 2"),
    "ragged": (lambda: Table([[1], [1, 2], [1]])[I], "expected Values, or rows of one length, for an Index"),
    "mixed": (lambda: Table([[1], 2, [1]])[I], "expected Values, or rows of one length, for an Index"),
    "classes": (lambda: Index(0), "Index: classes: expected a positive whole number, got 0"),
    "a number": (lambda: Index(3, 3), r"Index\(3\): expected a number from 0 to 2, got 3"),
    "a range": (lambda: range(N), r"a Length was used as an integer, .*; count to its bound, 3,"),
    "a cut list": (lambda: [1, 2][:N], r"select the elements below the length by Table\(list\)\[:length\]"),
    "a start": (lambda: Table([1, 2])[1:N], r"expected \[:length\], without a start or a step"),
    "too long": (lambda: Table([1, 2, 3, 4])[:N], r"expected at most 3 elements for this Length, got 4"),
    "bound": (lambda: Length(2.5), "Length: bound: expected a positive whole number, got 2.5"),  # type: ignore[arg-type]
    "a branch": (lambda: 1 if X > 0 else 2, r"decides a branch, but .* use where\(condition, a, b\)"),
    "mixed inputs": (
        lambda: declare(X, inputs={"x": [X, I]}).trace(),
        "input 'x': expected Values, or an Index for each",
    ),
    "classes of two": (
        lambda: declare(X, inputs={"x": [Index(2), I]}).trace(),
        "expected indices with equally many classes",
    ),
    "twice": (lambda: declare(X, inputs={"x": [I, I]}).trace(), "input 'x': element 3 is also in another input"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(MlaotError, match=message):
        call()
