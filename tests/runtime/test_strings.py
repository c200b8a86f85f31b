"""Strings among inputs and outputs: every form in which callers have them, in compiled modules and in plain Python."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.errors import MlaotError
from mlaot.loading import trace

from ..projects import Build, build_module, load

KNOWN = [
    "Cork",
    "Hull",
    "",
    "Hul",
    "Hulls",
    "Åbo",
    "日本",
    "🦜",
    "a\0b",
    "a\0",
    'with "quotes" \\ and\nlines',
    "x" * 5000,
]
PORTS, KINDS = mlaot.Strings(KNOWN), mlaot.Strings(["small", "größer"])
PRICES = np.arange(len(KNOWN) + 1, dtype=np.float32)
batch = mlaot.dim("batch")


def declared() -> Any:
    def price(port: PORTS[batch], size: mlaot.f32[batch]) -> Any:  # type: ignore[valid-type]
        """The price of a port, the last one for all others."""
        return mlaot.take(PRICES, port, axis=0) + size

    model = mlaot.model(price)

    @model.entry
    def kind(port: PORTS[batch], size: mlaot.f32[batch]) -> Any:  # type: ignore[valid-type]
        return KINDS.at(size > port)

    @model.entry
    def same(one: PORTS[()], two: PORTS[()]) -> Any:  # type: ignore[valid-type]
        return {"equal": one == two, "first": PORTS.at(one), "next": PORTS.at(np.stack([one, two]) + 1)}

    @model.entry
    def strict(rows: PORTS[2, 3]) -> Any:  # type: ignore[valid-type]
        return mlaot.take(PRICES[:-1], rows, axis=0).sum()

    return model


@pytest.fixture(scope="module")
def nn(build: Build) -> ModuleType:
    return build("strings", declared())


def test_each_string_has_its_place(nn: ModuleType) -> None:
    zeros = np.zeros(len(KNOWN), np.float32)
    np.testing.assert_array_equal(np.asarray(nn.forward(KNOWN, zeros)), PRICES[:-1])
    for i, text in enumerate(KNOWN):
        assert nn.same(text, text) == {"equal": True, "first": text, "next": [[*KNOWN, None][i + 1]] * 2}
        for other in (text + "a", text + "\0", "a" + text, text[:-1], text.upper()):
            assert nn.same(other, "")["first"] == (other if other in KNOWN else None)


UNKNOWN = len(KNOWN)


class Column:
    """As pandas and Arrow have them: lists on demand."""

    def __init__(self, values: list[Any], method: str) -> None:
        setattr(self, method, lambda: values)


@pytest.mark.parametrize(
    ("given", "places"),
    [
        (["Hull", "Åbo"], [1, 5]),
        (("Hull", b"Hull"), [1, 1]),
        ([b"\xc3\x85bo", b"\xc3"], [5, UNKNOWN]),
        (["\ud800", "Cork"], [UNKNOWN, 0]),
        ([None, float("nan"), "Cork"], [UNKNOWN, UNKNOWN, 0]),
        (np.array(["Cork", "Hulls"]), [0, 4]),
        (np.array(["Cork", None], object), [0, UNKNOWN]),
        (np.array([b"Cork", b"Hull"]), [0, 1]),
        (np.array(["Cork", "Hull", "Hul"])[::-1], [3, 1, 0]),
        (np.array([1, 0]), [1, 0]),
        (np.array([1, 0], np.int16), [1, 0]),
        ([1, "Cork"], [1, 0]),
        (Column(["Hull", None], "tolist"), [1, UNKNOWN]),
        (Column(["Hull", "no"], "to_pylist"), [1, UNKNOWN]),
        ([], []),
        ("Hull", 1),
        (b"Hull", 1),
        (np.array("Hull"), 1),
        (np.str_("Hull"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_form(nn: ModuleType, given: Any, places: Any) -> None:
    found = nn.forward(given, np.zeros(np.shape(places), np.float32))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(places, np.float32))


def test_results_are_strings(nn: ModuleType) -> None:
    assert nn.kind(["Cork", "Hull", "Cork"], [1, 1, 0]) == ["größer", "small", "small"]
    assert nn.kind("Cork", 1) == "größer"
    assert nn.kind([], []) == []
    places = np.full(2, -1, np.int64)
    assert nn.kind(["Cork", "Hull"], [1, 1], out=places) is places
    assert places.tolist() == [1, 0]
    assert nn.info()["entries"]["kind"]["outputs"] == {"out": "str[batch]"}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda nn: nn.forward([["Cork"]], [1]), ValueError, r"port: expected str\[batch\], got list\[1, 1\]"),
        (lambda nn: nn.forward([1.5], [1]), TypeError, "port: expected str, got float"),
        (lambda nn: nn.forward({}, [1]), TypeError, "port: expected str, got dict"),
        (lambda nn: nn.forward(["Cork"], [1, 2]), ValueError, "size: batch is 2 here, but 1 in port"),
        (lambda nn: nn.same(["Cork"], ""), ValueError, r"one: expected str, got list\[1\]"),
        (lambda nn: nn.strict([["Cork"] * 3, ["Hull"] * 2]), ValueError, "rows: expected str.*, got lists of unequal"),
        (
            lambda nn: nn.strict([["Cork"] * 3, ["Hull", "Oslo", "Hull"]]),
            ValueError,
            r"strict: rows\[1, 1\]: expected one of the 12 strings that the model knows, got another",
        ),
        (lambda nn: nn.forward([99], [1]), ValueError, r"port\[0\]: expected one of the 12 strings"),
        (lambda nn: nn.forward([2**70], [1]), ValueError, "port: expected int64"),
    ],
)
def test_mistakes(nn: ModuleType, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(nn)


def test_lists_that_run_code(nn: ModuleType) -> None:
    """What a column gives may be another object each time, or none."""
    for values in ("Hull", 1, None):
        assert np.asarray(nn.forward(Column(values, "tolist"), 0.0)).item() == (1 if values else UNKNOWN)
    with pytest.raises(ZeroDivisionError):
        nn.forward(SimpleNamespace(tolist=lambda: 1 // 0), [0])


def test_a_model_for_one_example(build: Build) -> None:
    """Without a named dim the module serves any batch; trained by strings, too."""
    weights = mlaot.Parameter("weights", np.zeros((len(KINDS) + 1, 2), np.float32))

    def loss(scores: Any, wanted: KINDS[()]) -> Any:  # type: ignore[valid-type]
        return ((scores - mlaot.one_hot(wanted, 2, mlaot.f32)) ** 2).sum()

    def one(kind: KINDS[()]) -> Any:  # type: ignore[valid-type]
        return mlaot.take(weights, kind, axis=0)

    nn = build("trained", mlaot.model(one, loss=loss, learning_rate=0.25))
    for _ in range(30):
        nn.train_step(["small", "größer", "other"], ["größer", "small", "small"])
    np.testing.assert_allclose(
        np.asarray(nn.forward(["small", "größer", "other"])), [[0, 1], [1, 0], [1, 0]], atol=0.01
    )


def test_golden_vectors_are_of_places(tmp_path: Path) -> None:
    module = load(build_module(declared(), "golden", tmp_path, ("base",), golden=True))
    assert module.selftest().keys() == {"base"}


@pytest.mark.parametrize("known", [[], ["a", "a"], [1], ["\ud800"]], ids=str)
def test_strings_that_are_none(known: list[Any]) -> None:
    with pytest.raises(MlaotError, match="Strings: expected"):
        mlaot.Strings(known)


def test_an_entry_that_returns_labels_only() -> None:
    traced = trace(declared())
    assert traced.labels["kind", "out"] == KINDS.known
    assert traced.graph.inputs["port"].attrs["strings"] == tuple(KNOWN)
