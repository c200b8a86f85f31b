"""``mlaot.tap``: names for values on their way, which cost nothing until a module is asked to show them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.settings.options import Options

W = mlaot.parameters({"w": np.array([[1, 2, 3], [4, 5, 6]], np.float32)})["w"]
X = np.array([[1, 2], [3, -4]], np.float32)
BATCH = mlaot.dim("batch")


def tapped(function: Any) -> dict[str, Any]:
    """What the entry ``intermediates`` of a model gives for X, before it is optimized."""

    def net(x: mlaot.f32[BATCH, 2]) -> Any:
        return function(x)

    traced = mlaot.model(net).trace()
    graph = passes._intermediates(traced)
    return evaluate(graph, {"x": X, **{name: traced.parameters[name] for name in graph.inputs if name != "x"}})


def test_values_by_name() -> None:
    """Taps give their argument back; the entry has them in their order."""

    def net(x: Any) -> Any:
        h = mlaot.tap("hidden", x @ W)
        return mlaot.tap("out", np.maximum(h, 0)).sum()

    found = tapped(net)
    assert list(found) == ["hidden", "out"]
    np.testing.assert_array_equal(found["hidden"], X @ W.array)
    np.testing.assert_array_equal(found["out"], np.maximum(X @ W.array, 0))


def test_plain_arrays() -> None:
    """Outside of tracing nothing happens, as often as one likes."""
    for _ in range(2):
        assert mlaot.tap("x", X) is X
    value, slope = mlaot.value_and_grad(lambda x: mlaot.tap("y", x * x).sum())(X)
    assert value == 30
    np.testing.assert_array_equal(slope, 2 * X)


def test_gradients_and_vmap() -> None:
    """Taps of a function that is differentiated come along once; those of a mapped one are stacked."""

    def energy(x: Any) -> Any:
        return mlaot.tap("squares", x * x).sum()

    def row(x: Any) -> Any:
        return mlaot.tap("doubled", 2 * x).sum() + mlaot.grad(lambda y: mlaot.tap("cubes", y**3).sum())(x)[0]

    found = tapped(lambda x: mlaot.grad(energy)(x) + mlaot.vmap(row)(x)[:, None])
    assert list(found) == ["squares", "doubled", "cubes"]
    np.testing.assert_array_equal(found["squares"], X * X)
    np.testing.assert_array_equal(found["doubled"], 2 * X)
    np.testing.assert_allclose(found["cubes"], X**3, rtol=1e-6)
    found = tapped(lambda x: mlaot.jvp(energy, (x,), (x,))[1])
    np.testing.assert_array_equal(found["squares"], X * X)


def test_what_a_scan_gives_can_be_tapped() -> None:
    """The way out of a loop: return the values, tap the stack of them."""

    def net(x: Any) -> Any:
        last, steps = mlaot.scan(lambda c, row: (c + row, c * row), np.zeros(2, np.float32), W.T)
        return x + last + mlaot.tap("steps", steps).sum()

    rows = W.array.T
    np.testing.assert_array_equal(tapped(net)["steps"], (np.cumsum(rows, 0) - rows) * rows)


LOOPS = {
    "the body of mlaot.scan": lambda f, x: mlaot.scan(lambda c, _: (f(c), None), x, length=2)[0],
    "mlaot.while_loop": lambda f, x: mlaot.while_loop(lambda c: c.sum() < 9, f, x, bound=3),
    "a branch of mlaot.cond": lambda f, x: mlaot.cond(x.sum() > 0, f, lambda c: c, x),
}


@pytest.mark.parametrize("where", LOOPS)
def test_loops_and_branches(where: str) -> None:
    """A loop has no value of that name, but many; what is differentiated in it is in it too."""
    for function in (lambda c: mlaot.tap("c", c + 1), lambda c: mlaot.grad(lambda y: mlaot.tap("c", y).sum())(c)):
        with pytest.raises(MlaotError, match=rf"^test_taps.py:\d+: tap 'c' is in {where}; return the array from it"):
            tapped(lambda x, f=function: LOOPS[where](f, x))


def test_equal_names() -> None:
    """The error has both places."""

    def net(x: Any) -> Any:
        h = mlaot.tap("h", x + 1)
        return h + mlaot.vmap(lambda row: mlaot.tap("h", row))(x)

    line = net.__code__.co_firstlineno
    expected = (
        rf"^test_taps.py:{line + 2}: two arrays are tapped as 'h', at test_taps.py:{line + 1} and at "
        rf"test_taps.py:{line + 2}; give one of them another name$"
    )
    with pytest.raises(MlaotError, match=expected):
        tapped(net)


@pytest.mark.parametrize(("name", "value", "message"), [("a.b", 1, "must be an identifier"), ("a", None, "NoneType")])
def test_wrong_arguments(name: str, value: Any, message: str) -> None:
    """A name that no C table could have, a value that is no array."""
    with pytest.raises(MlaotError, match=message):
        tapped(lambda x: (mlaot.tap(name, value), x)[1])


def test_settings_and_entries() -> None:
    """Asked for where there is none, or where the name is taken."""

    @mlaot.model
    def bare(x: mlaot.f32[2]) -> Any:
        return x + 1

    with pytest.raises(MlaotError, match=r"intermediates = true, but the model has none; name some by mlaot\.tap"):
        compile_model(bare, "m.nn", Options(isas=("base",), intermediates=True))

    @mlaot.model
    def net(x: mlaot.f32[2]) -> Any:
        return mlaot.tap("y", x + 1)

    @net.entry
    def intermediates(x: mlaot.f32[2]) -> Any:
        return x

    with pytest.raises(MlaotError, match="no entry can be called 'intermediates'"):
        compile_model(net, "m.nn", Options(isas=("base",), intermediates=True))
    assert "nn.c" in program_files(compile_model(net, "m.nn", Options(isas=("base",))))


def model(tap: Any) -> Any:
    """A model that trains, with taps of all kinds."""

    def net(x: mlaot.f32[BATCH, 2]) -> Any:
        h = tap("hidden", np.maximum(x @ W, 0))
        slope = mlaot.grad(lambda y: tap("squares", y * y).sum())(h)
        return tap("out", (h + slope * mlaot.vmap(lambda row: tap("row", row / 2))(h)).sum(axis=1))

    def loss(out: Any, y: mlaot.f32[BATCH]) -> Any:
        return tap("hidden", (out - y) ** 2)  # nobody asks for those of the loss

    return mlaot.model(net, loss=loss)


def test_taps_cost_nothing() -> None:
    """Without the setting the C is that of a model without taps."""
    plain, named = (
        program_files(compile_model(model(tap), "m.nn", Options(isas=("base",)))) for tap in (lambda _, x: x, mlaot.tap)
    )
    assert plain == named
    assert program_files(compile_model(model(mlaot.tap), "m.nn", Options(isas=("base",), intermediates=True))) != named
