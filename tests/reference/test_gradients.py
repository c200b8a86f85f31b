"""Compiled losses and gradients of small networks against PyTorch's (``make.py``), and against central differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.frontend.trace.declaration import Declaration
from mlaot.frontend.trace.tensor import parameters
from mlaot.ir import Type
from mlaot.ir.types import f64, i64
from mlaot.lower.lower import lower

from ..compiled import AVAILABLE, Library, State

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).with_name("gradients.npz")))
Loss = Callable[[list[Any], Any, Any], Any]


def affine(x: Any, w: Any, b: Any) -> Any:
    return w @ x + b


def mlp(x: Any, p: list[Any], act: Callable[[Any], Any]) -> Any:
    for i in range(0, len(p), 2):
        x = affine(x, p[i], p[i + 1])
        if i < len(p) - 2:
            x = act(x)
    return x


def log_of_sum(h: Any) -> Any:
    largest = h.max()
    return np.log(np.exp(h - largest).sum()) + largest


def softmax_cross_entropy(p: list[Any], x: Any, y: Any) -> Any:
    h = mlp(x, p, lambda v: np.maximum(v, 0))
    return log_of_sum(h) - (h * mlaot.one_hot(y, 4)).sum()


def squared_error(p: list[Any], x: Any, y: Any) -> Any:
    return ((mlp(x, p, np.tanh) - y) ** 2).sum()


def powers(p: list[Any], x: Any, y: Any) -> Any:
    h = (p[0] @ x) ** 2 + 0.5
    return (h**1.5 + h**-2 + (h + y) ** 0.5 + h**3).sum()


def divisions(p: list[Any], x: Any, y: Any) -> Any:
    h = p[0] @ x
    return (h / (h * h + 1) + y / (np.exp(h) + p[1])).sum()


def maxima(p: list[Any], x: Any, y: Any) -> Any:
    h = affine(x, p[0], p[1])
    return h.max() - h.min() + np.maximum(h, y).sum() + np.minimum(h, -y).sum()


def log_sum_exp(p: list[Any], x: Any, y: Any) -> Any:
    return log_of_sum(affine(x, p[0], p[1])) * y.sum()


def normalized(p: list[Any], x: Any, y: Any) -> Any:
    h = p[0] @ x
    centered = h - h.mean()
    scaled = centered / np.sqrt((centered**2).mean() + 1e-5)
    return ((scaled * p[1] + p[2] - y) ** 2).sum()


def shared(p: list[Any], x: Any, y: Any) -> Any:
    h = np.tanh(x @ p[0])
    return abs((np.tanh(h @ p[0]) + x) @ p[0].transpose() - y).sum()


def attention(p: list[Any], x: Any, y: Any) -> Any:
    s = x.reshape(3, 4)
    q, k, v = s @ p[0], s @ p[1], s @ p[2]
    return (((mlaot.softmax(q @ k.transpose() * 0.5) @ v).sum(axis=0) - y) ** 2).sum()


LOSSES: dict[str, Loss] = {
    "softmax_cross_entropy": softmax_cross_entropy,
    "tanh_squared_error": squared_error,
    "deep": squared_error,
    "powers": powers,
    "divisions": divisions,
    "maxima": maxima,
    "log_sum_exp": log_sum_exp,
    "normalized": normalized,
    "shared": shared,
    "attention": attention,
}


def values(name: str) -> dict[str, Array]:
    """The parameters of a network by name, ``p0``, ``p1``.."""
    return {f"p{i}": DATA[f"{name}.p{i}"] for i in range(len([k for k in DATA if k.startswith(f"{name}.p")]))}


def declared(name: str) -> Declaration:
    """The network as a tensor model for one example, with its loss."""
    arrays = parameters(values(name))
    loss = LOSSES[name]

    def forward(x, y):  # type: ignore[no-untyped-def]
        return loss(list(arrays.values()), x, y)

    def total(out):  # type: ignore[no-untyped-def]
        return out

    label = DATA[f"{name}.y"].dtype.kind == "i"
    forward.__annotations__ = {
        "x": f64[DATA[f"{name}.x"].shape[1]],
        "y": Type(i64) if label else f64[DATA[f"{name}.y"].shape[1]],
    }
    found = mlaot.model(forward, loss=total, parameters=arrays)
    assert isinstance(found, Declaration)
    return found


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> dict[str, Library]:
    programs = {name: lower(passes.run(name, declared(name).trace())) for name in LOSSES}
    return {isa: Library(programs, isa, shared_folder / f"reference_{isa}") for isa in AVAILABLE}


def compiled(library: Library, name: str, p: dict[str, Array]) -> tuple[float, dict[str, Array]]:
    """The loss and the gradients of a network for parameters ``p``."""
    state = State(library.programs[name])
    for key, value in p.items():
        state.slot(key)[...] = value
    x, y = DATA[f"{name}.x"], DATA[f"{name}.y"]
    found = library.call(name, "accumulate", {"x": x, "y": y}, {"batch": len(x)}, state)
    return float(found["loss"]), {key: np.array(state.gradient(key)) for key in p}


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_pytorch(name: str, isa: str, libraries: dict[str, Library]) -> None:
    loss, gradients = compiled(libraries[isa], name, values(name))
    np.testing.assert_allclose(loss, DATA[f"{name}.loss"], rtol=1e-12)
    for i, gradient in enumerate(gradients.values()):
        expected = DATA[f"{name}.d{i}"]
        least = 1e-11 * np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=least, err_msg=f"{name} p{i}")


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_difference_quotients(name: str, libraries: dict[str, Library]) -> None:
    """Of the compiled loss, along a random direction for each parameter."""
    library, start = libraries[AVAILABLE[-1]], values(name)
    _, gradients = compiled(library, name, start)
    rng = np.random.default_rng(0)
    for key, gradient in gradients.items():
        direction = rng.normal(size=gradient.shape)
        ahead, behind = (compiled(library, name, start | {key: start[key] + h * direction})[0] for h in (1e-6, -1e-6))
        scale = max(1.0, float(np.abs(gradient * direction).sum()))
        assert abs((ahead - behind) / 2e-6 - (gradient * direction).sum()) <= 1e-6 * scale, key


def test_every_stored_network_is_tested() -> None:
    assert {k.split(".")[0] for k in DATA if "." in k} == set(LOSSES)
