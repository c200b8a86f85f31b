"""``grad``, ``value_and_grad``, ``jvp``, ``vmap``: on plain arrays, inside of a traced function, and of each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError

from .tracing import Array, run

RNG = np.random.default_rng(1)
X, W = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2))


def loss(w: Any, x: Any) -> Any:
    return np.tanh(x @ w).sum()


def slope(w: Array, x: Array) -> Array:
    result: Array = x.T @ (1 - np.tanh(x @ w) ** 2)
    return result


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_grad() -> None:
    for gradient in (mlaot.grad(loss)(W, X), run(mlaot.grad(loss), W, X)):
        same(gradient, slope(W, X))
    value, (dw, dx) = mlaot.value_and_grad(loss, argnums=(0, 1))(W, X)
    same(value, loss(W, X))
    same(dw, slope(W, X))
    same(dx, (1 - np.tanh(X @ W) ** 2) @ W.T)
    assert mlaot.grad(loss)(W.astype("float32"), X.astype("float32")).dtype == np.float32


def test_grad_of_containers() -> None:
    def f(p: Any, x: Any) -> Any:
        return (x @ p["w"] + p["b"][0]).sum() * p["b"][1]

    p = {"w": W, "b": [np.ones(2), np.float64(3)]}
    for found in (mlaot.grad(f)(p, X), run(lambda w, b, c, x: mlaot.grad(f)({"w": w, "b": [b, c]}, x), W, *p["b"], X)):
        same(found["w"], 3 * X.sum(0)[:, None].repeat(2, 1))
        same(found["b"][0], [12, 12])
        same(found["b"][1], (X @ W + 1).sum())


def test_grad_of_grad() -> None:
    def second(x: Any) -> Any:
        return mlaot.grad(lambda v: mlaot.grad(lambda u: (u**3).sum())(v).sum())(x)

    same(second(X), 6 * X)
    same(run(second, X), 6 * X)


def test_no_perturbation_is_confused() -> None:
    """The inner variable is another than the outer one, though both are x."""

    def f(x: Any) -> Any:
        return mlaot.grad(lambda a: mlaot.grad(lambda b: a * b)(x))(x)

    same(f(np.float64(3)), 1)
    same(run(f, np.float64(3)), 1)


def test_what_is_not_an_argument_is_constant() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return mlaot.grad(lambda a: (a * y * x).sum())(x)

    same(f(X), 2 * X * X)
    same(run(f, X), 2 * X * X)


def test_stop_gradient() -> None:
    same(mlaot.grad(lambda x: (x * mlaot.stop_gradient(x)).sum())(X), X)


def test_jvp() -> None:
    v = RNG.normal(size=W.shape)
    expected = (1 - np.tanh(X @ W) ** 2) * (X @ v)
    for value, tangent in (
        mlaot.jvp(lambda w: np.tanh(X @ w), (W,), (v,)),
        run(lambda w, v: mlaot.jvp(lambda w: np.tanh(X @ w), (w,), (v,)), W, v),
    ):
        same(value, np.tanh(X @ W))
        same(tangent, expected)


def test_hessian_times_vector() -> None:
    v = RNG.normal(size=W.shape)
    _, found = mlaot.jvp(mlaot.grad(lambda w: (w**4).sum()), (W,), (v,))
    same(found, 12 * W**2 * v)


def test_vmap() -> None:
    def f(x: Any, w: Any) -> Any:
        return np.tanh(x @ w), x.sum()

    for found in (mlaot.vmap(f, (0, None))(X, W), run(mlaot.vmap(f, (0, None)), X, W)):
        same(found[0], np.tanh(X @ W))
        same(found[1], X.sum(1))
    same(mlaot.vmap(lambda x: x * 2, in_axes=1)(X), 2 * X.T)
    same(mlaot.vmap(lambda x: x * 2, in_axes=1, out_axes=1)(X), 2 * X)
    same(mlaot.vmap(lambda x: x @ W)(X), X @ W)
    same(run(lambda x: mlaot.vmap(lambda row: row @ W + x[0, 0])(x), X), X @ W + X[0, 0])


def test_gradients_of_each_example() -> None:
    def f(w: Any, x: Any) -> Any:
        return mlaot.vmap(mlaot.grad(loss), (None, 0))(w, x)

    expected = np.stack([slope(W, row[None]) for row in X])
    same(f(W, X), expected)
    same(run(f, W, X), expected)
    same(mlaot.grad(lambda w: mlaot.vmap(lambda x: loss(w, x))(X).sum())(W), slope(W, X))


def test_parameters_inside() -> None:
    w = mlaot.Parameter(None, W)
    same(mlaot.grad(lambda x: loss(w, x))(X), (1 - np.tanh(X @ W) ** 2) @ W.T)
    same(mlaot.grad(loss)(w, X), slope(W, X))


def test_a_named_dim() -> None:
    batch = mlaot.dim("batch")
    found = run(mlaot.grad(loss), W, X, types=(mlaot.f64[3, 2], mlaot.f64[batch, 3]))
    same(found, slope(W, X))
    found = run(mlaot.vmap(lambda x: x @ W), X, types=(mlaot.f64[batch, 3],))
    same(found, X @ W)


def test_numbers_of_python_stay_weak() -> None:
    x = X.astype(np.float32)

    def f(x: Any, scale: float, mode: str) -> Any:
        assert type(scale) is float and mode == "sum"
        return (x * scale).sum()

    value, slope = mlaot.value_and_grad(f)(x, 2.0, "sum")
    assert value.dtype == slope.dtype == np.float32
    assert mlaot.vmap(f, (0, None, None))(x, 2.0, "sum").dtype == np.float32
    same(mlaot.grad(lambda s: 3 * s * s)(2.0), 12)


def test_sizes_that_differ() -> None:
    with pytest.raises(MlaotError, match=r"vmap: expected one size along the mapped axes, got 3 and 4"):
        mlaot.vmap(lambda x, w: x)(X, W)


def test_a_buffer_inside_of_a_gradient() -> None:
    buffer = mlaot.Buffer(np.zeros(()), "seen")

    def f(x: Any) -> Any:
        buffer.assign(buffer + x.sum())
        return (x * x).sum() * buffer

    same(mlaot.grad(f)(np.array([1.0, 2.0])), 2 * np.array([1.0, 2.0]) * 3 + 5)
    same(buffer.array, 3.0)
    with pytest.raises(MlaotError, match="buffer 'seen' cannot be assigned in vmap; return the value from it"):
        mlaot.vmap(f)(np.ones((2, 2)))
