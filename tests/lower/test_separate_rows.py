"""Entries whose rows are computed some at a time, and those whose rows need each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.generate import compile_model
from mlaot.lower.program import Entry
from mlaot.settings.options import Options

n, m = mlaot.dim("n"), mlaot.dim("m")
RNG = np.random.default_rng(0)
W, TABLE = (RNG.normal(size=s).astype("f") for s in ((6, 5), (9, 4)))
Function = Callable[..., Any]


def entry_of(function: Function, **types: Any) -> Entry:
    """The entry of a function of inputs of these types."""
    function.__annotations__ = types
    program = compile_model(mlaot.model(function), "t.nn", Options(isas=("base",)))
    return next(p.entry for p in program.procedures if p.entry.name == "forward")


SEPARATE: dict[str, Function] = {
    "product": lambda x: np.tanh(x @ W),
    "rows": lambda x: mlaot.softmax(x - x.mean(axis=-1, keepdims=True)),
    "order": lambda x: np.sort(x, axis=1),
    "columns": lambda x: np.concatenate([x[:, ::-1], np.cumsum(x, axis=1)], axis=-1),
    "pairs": lambda x: np.einsum("bi,bj->bij", x, x).reshape(-1, 36),
    "moved": lambda x: np.exp(x.T).T,
    "table": lambda x: mlaot.take(TABLE, np.argmax(x, axis=-1), axis=0),
    "constant": lambda x: mlaot.full((n, 5), 2.0) * x[:, :1],
    "number": lambda x: x.max(axis=-1),
}
TOGETHER: dict[str, Function] = {
    "mean": lambda x: x - x.mean(axis=0),
    "products of rows": lambda x: x @ x.T @ x,
    "backwards": lambda x: x[::-1],
    "sums": lambda x: np.cumsum(x, axis=0),
    "order": lambda x: np.sort(x, axis=0),
    "softmax": lambda x: mlaot.softmax(x, axis=0),
    "places": lambda x: x + mlaot.arange(n, dtype=np.float32)[:, None],
    "count": lambda x: x * np.ones_like(x[:, 0]).sum(),
    "count inside of a loop": lambda x: (
        x * mlaot.fori_loop(0, 3, lambda i, c: c + (mlaot.zeros((n,), "float32") + c).sum(), 1.0)
    ),
    "some": lambda x: x[1:],
    "shifted": lambda x: np.concatenate([x[1:], x[:1]]),
    "a number": lambda x: x.sum(),
    "columns of rows": lambda x: x.T,
    "chosen": lambda x: np.take(x, np.argmax(x, axis=-1), axis=0),
}


@pytest.mark.parametrize("name", SEPARATE)
def test_rows_are_separate(name: str) -> None:
    entry = entry_of(SEPARATE[name], x=mlaot.f32[n, 6])
    assert entry.rows == "n" and entry.tile > 0 and entry.tile % 48 == 0


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_need_each_other(name: str) -> None:
    entry = entry_of(TOGETHER[name], x=mlaot.f32[n, 6])
    assert (entry.rows, entry.tile) == ("", 0)


def test_other_axes_and_inputs() -> None:
    """The first axis of each array that has the dim, and of every result."""

    def two(x: Any, y: Any) -> Any:
        return x * y

    assert entry_of(two, x=mlaot.f32[n, m, 3], y=mlaot.f32[m, 3]).rows == "n"
    assert entry_of(two, x=mlaot.f32[n, m, 3], y=mlaot.f32[n, 1, 1]).rows == "n"
    assert entry_of(lambda x, y: x @ y.T, x=mlaot.f32[n, 3], y=mlaot.f32[m, 3]).rows == "n"
    assert entry_of(lambda x, y: y @ x.T, x=mlaot.f32[n, 3], y=mlaot.f32[m, 3]).rows == "m"
    assert entry_of(two, x=mlaot.f32[n, 3], y=mlaot.f32[3]).rows == "n"
    assert entry_of(lambda x: x.swapaxes(0, 1), x=mlaot.f32[3, n]).rows == ""
    assert entry_of(lambda x: mlaot.scan(lambda c, r: (c + r, c), x[0], x)[1], x=mlaot.f32[n, 3]).rows == ""
    assert entry_of(lambda x: mlaot.random.normal((1, 3)) + x, x=mlaot.f32[n, 3]).rows == ""
