"""Models of unusual form, from the wheel of ``zoo``, against the same functions called with NumPy's arrays."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .conftest import HERE, Site, load

X = np.random.default_rng(1).normal(size=(7, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def model() -> ModuleType:
    """The declarations."""
    spec = importlib.util.spec_from_file_location("zoo_model", HERE / "zoo" / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def zoo(site: Site) -> Any:
    """``zoo("pair")``: the compiled module."""
    return lambda name: load(site("zoo"), f"zoo.{name}")


def assert_close(found: Any, expected: Any, dtype: str) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype == dtype
    tolerance = {"float64": 1e-12, "float32": 1e-5}[dtype]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_wider_weights_than_inputs(zoo: Any, model: ModuleType) -> None:
    """float32 in, float64 weights: NumPy's promotion, float64 out."""
    assert_close(zoo("mixed").forward(X), model.mixed(X), "float64")


def test_several_outputs(zoo: Any, model: ModuleType) -> None:
    """A tuple comes back for a tuple, a dict for a dict, in order; out= takes the same."""
    wanted = model.pair(X)
    first, second = np.empty((7, 5), np.float32), np.empty((7, 5), np.float32)
    for name, kind, out, twice in (
        ("pair", tuple, (first, second), (first, first)),
        ("named", dict, {"chances": second, "scores": first}, {"scores": first, "chances": first}),
    ):
        nn = zoo(name)
        found = nn.forward(X)
        assert type(found) is kind and (kind is tuple or list(found) == ["scores", "chances"])
        arrays = list(found.values()) if kind is dict else found
        for one, expected in zip(arrays, wanted, strict=True):
            assert_close(one, expected, "float32")
        first[...] = second[...] = 0
        assert nn.forward(X, out=out) is out
        np.testing.assert_array_equal([first, second], [np.asarray(one) for one in arrays])
        for wrong in (first, (first,), {"scores": first}, {"scores": first, "other": second}, [first, second]):
            with pytest.raises(TypeError, match=f"out: expected a {kind.__name__} of 2 buffers"):
                nn.forward(X, out=wrong)
        with pytest.raises(ValueError, match="got one that overlaps another output"):
            nn.forward(X, out=twice)
        single = nn.forward(X[0])
        assert [one.shape for one in (single.values() if kind is dict else single)] == [(5,), (5,)]
    assert "scores: float32[batch, 5], chances: float32[batch, 5]" in zoo("named").forward.__doc__


def test_no_parameters(zoo: Any, model: ModuleType) -> None:
    """A formula, and two inputs."""
    x, y = np.random.default_rng(2).normal(size=(2, 4, 3))
    assert_close(zoo("bare").forward(x, y), model.bare(x, y), "float64")
    assert_close(zoo("bare").forward(y=y, x=x), model.bare(x, y), "float64")
    with pytest.raises(ValueError, match="forward: y: batch is 3 here, but 4 in x"):
        zoo("bare").forward(x, y[:3])


def test_named_dims(zoo: Any, model: ModuleType) -> None:
    """A dimension not called batch must be there; two of them are independent of each other."""
    assert_close(zoo("counted").forward(X), model.counted(X), "float32")
    assert zoo("counted").forward(X[:0]).shape == (0, 5)
    with pytest.raises(ValueError, match=r"expected float32\[rows, 8\], got float32\[8\]"):
        zoo("counted").forward(X[0])
    x, y = np.random.default_rng(3).normal(size=(2, 21, 8))
    for n, m in ((1, 1), (3, 5), (21, 2), (1, 17), (16, 21)):
        assert_close(zoo("grid").forward(x[:n], y[:m].T), model.grid(x[:n], y[:m].T), "float64")
    assert zoo("grid").forward(x[:0], y.T).shape == (0, 21)
    with pytest.raises(ValueError, match=r"y: expected float64\[8, columns\], got float64\[7, 21\]"):
        zoo("grid").forward(x, y.T[:7])


def test_inputs_that_nothing_reads(zoo: Any, model: ModuleType) -> None:
    """They are arguments all the same, of the function's, and checked."""
    nn, idle, y, scalar = zoo("spare").Model(), np.zeros((7, 3), np.int32), np.zeros_like(X), np.zeros(7, np.float32)
    assert_close(nn.forward(X, idle), X * model.single["w"].array.sum(1), "float32")
    with pytest.raises(TypeError, match="forward\\(\\) is missing argument 'unread_too'"):
        nn.forward(X)
    with pytest.raises(ValueError, match=r"unread_too: expected int32\[batch, 3\], got int32\[7, 2\]"):
        nn.forward(X, idle[:, :2])
    loss = float(((X * model.single["w"].array.sum(1)) ** 2).sum(1).mean())
    assert nn.loss(X, idle, y, scalar) == pytest.approx(loss, rel=1e-5)
    nn.set_input(X, idle, y, scalar)
    assert_close(nn.forward(), nn.forward(X, idle), "float32")
    assert nn.train_step(X, idle, y, unread=scalar, lr=0.001) == pytest.approx(loss, rel=1e-5)
    assert nn.loss(X, idle, y, scalar) < loss


def test_parameters_of_several_kinds(zoo: Any, model: ModuleType) -> None:
    """float32, float64, and one that the loss does not need; the rate is of the widest kind."""
    nn = zoo("kinds").Model()
    w, b = model.both["w"].array, model.both["b"].array
    out = X * w + b
    assert_close(nn.forward(X), out, "float64")
    assert nn.loss(X) == pytest.approx((out**2).sum(1).mean(), rel=1e-12)
    nn.set_input(X)
    nn.forward()
    nn.backward()
    assert_close(nn.gradients["w"], (2 * out * X).mean(0).astype(np.float32), "float32")
    assert_close(nn.gradients["b"], (2 * out).mean(0), "float64")
    assert nn.gradients["idle"].tolist() == [0, 0, 0]
    nn.train_step(X, lr=0.1)
    assert_close(nn.parameters["w"], np.float32(w - 0.1 * (2 * out * X).mean(0)), "float32")
    assert_close(nn.parameters["b"], b - 0.1 * (2 * out).mean(0), "float64")
    assert nn.parameters["idle"].tolist() == [1, 1, 1]
    other = zoo("kinds").Model()
    other.set_input(X)
    other.forward()
    other.backward()
    other.update(lr=0.1)
    assert bytes(other.flat_parameters) == bytes(nn.flat_parameters)


def test_embedded_weights(site: Site, model: ModuleType, tmp_path: Path) -> None:
    """More than 64 KB of weights, in a module of a package that the project has no folder for."""
    nn = load(site("zoo"), "cages.far.large")
    assert (site("zoo") / "cages/far/large.abi3.so").stat().st_size > 300 * 100 * 4
    x = np.random.default_rng(4).normal(size=(9, 300)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(nn.forward(x)), model.large(x), rtol=1e-4, atol=1e-4)
    assert "cages.far.large" not in sys.modules
