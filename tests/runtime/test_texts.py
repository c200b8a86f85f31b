"""Texts among inputs: every form in which callers have them, in compiled modules and in plain Python."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.declaration import Declaration, Traced
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Graph, Type
from mlaot.ir.dims import dim
from mlaot.ir.types import i64
from mlaot.tokenizers.vectorizer import PAD, rows

from ..projects import Build, build_module, load, plain_module
from ..tokenizers.vectorizers import TEXTS, VECTORIZERS


def declared() -> Declaration:
    """A model whose entries give the numbers of texts."""

    def trace() -> Traced:
        graphs = dict[str, Graph]()
        for name, vectorizers in {"model": VECTORIZERS[:1], "one": VECTORIZERS[:1], "all": VECTORIZERS}.items():
            graphs[name] = graph = Graph(name)
            with tracing(Trace(graph, held={})):
                type_ = Type(i64, (dim("batch"), dim("words")))
                graph.outputs["out"] = as_node(-Tensor(graph.input("x", type_, vectorizers=vectorizers)))
        graphs["total"] = graph = Graph("total")
        with tracing(Trace(graph, held={})):
            numbers = Tensor(graph.input("x", type_, vectorizers=VECTORIZERS[:1]))
            graph.outputs["out"] = as_node(np.sum(numbers >> 32, axis=1))
        return Traced(graphs.pop("model"), {}, per_example=False, arguments=("x",), entries=graphs)

    return Declaration(trace)


@pytest.fixture(scope="module")
def nn(build: Build) -> ModuleType:
    return build("vectorizers", declared())


def test_modules_count(nn: ModuleType) -> None:
    np.testing.assert_array_equal(-np.asarray(nn.all(TEXTS)), rows(VECTORIZERS, TEXTS))
    assert nn.info()["entries"]["all"]["inputs"] == {"x": "str[batch]"}
    long = "The quick " * 100_000
    assert (-np.asarray(nn.one(long))).tolist() == VECTORIZERS[0].row(long, 0)


def test_a_long_text_among_short_ones(nn: ModuleType) -> None:
    """Rows that do not depend on each other are laid out for some at a time."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 1000)
    lengths[[3, 500, 501, 999]] = [3000, 1, 2000, 5000]
    terms = [*VECTORIZERS[0].places]
    texts = [" ".join(rng.choice(terms, length)) for length in lengths]
    np.testing.assert_array_equal(nn.total(texts), lengths)
    assert np.asarray(nn.total(texts[3])).item() == 3000
    assert nn.total([]).shape == (0,)


class Column:
    """As pandas and Arrow have them: lists on demand."""

    def __init__(self, values: Any, method: str) -> None:
        setattr(self, method, lambda: values)


def test_every_form_of_texts(nn: ModuleType) -> None:
    texts = ["the quick fox", "", "two spaces, two"]
    expected = rows(VECTORIZERS[:1], texts)
    forms: list[Any] = [texts, tuple(texts), np.array(texts), np.array(texts, object)]
    forms += [Column(texts, "tolist"), Column(texts, "to_pylist"), [text.encode() for text in texts]]
    for form in forms:
        np.testing.assert_array_equal(-np.asarray(nn.one(form)), expected)
    for text in ("the quick", b"the quick", np.str_("the quick"), np.array("the quick")):
        assert (-np.asarray(nn.one(text))).tolist() == VECTORIZERS[0].row("the quick", 0)
    assert np.asarray(nn.one("")).tolist() == [-PAD]
    assert nn.one([]).shape == (0, 1)
    assert nn.one(["\ud800 the"]).shape == (1, 1)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (None, TypeError),
        (1, TypeError),
        ([None], TypeError),
        ([float("nan")], TypeError),
        ([["the"]], TypeError),
        (["the", 1], TypeError),
        (np.array([1, 2]), TypeError),
        ({}, TypeError),
        ([b"\xff"], UnicodeDecodeError),
        (Column(None, "tolist"), TypeError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_text(nn: ModuleType, given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        nn.one(given)


def test_golden_vectors(tmp_path: Path) -> None:
    module = load(build_module(declared(), "golden", tmp_path, ("base",), golden=True))
    assert module.selftest().keys() == {"base"}
    assert plain_module(declared(), "plain", tmp_path, golden=True).selftest() == {"python": 0.0}
