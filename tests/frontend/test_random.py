"""``mlaot.random``: plain and traced draws agree, and have the distribution that they are to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError, random
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Declaration


def model(function: Any, **types: Any) -> Any:
    function.__annotations__ = types
    return mlaot.model(function)


DRAWS: dict[str, Any] = {
    "bits": lambda: random.bits((3, 2)),
    "uniform": lambda: random.uniform((5,)),
    "uniform f64": lambda: random.uniform((5,), dtype=mlaot.f64),
    "uniform f16": lambda: random.uniform((5,), dtype=mlaot.f16),
    "uniform range": lambda: random.uniform((5,), -2.0, 3.0),
    "normal": lambda: random.normal((4, 3)),
    "normal f64": lambda: random.normal((4, 3), 1.0, 2.0, np.float64),
    "bernoulli": lambda: random.bernoulli(0.3, (20,)),
    "integers": lambda: random.integers(-3, 5, (9,)),
    "permutation": lambda: random.permutation(10),
    "choice": lambda: random.choice(np.arange(5) * 2, (7,)),
    "two": lambda: random.uniform((2,)) + random.uniform((2,)),
    "dropout": lambda: random.dropout(np.ones(9, np.float32), 0.4, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_plain_and_traced_agree(name: str) -> None:
    """Call by call, with the state that a module keeps."""
    declared = model(lambda: DRAWS[name]())
    assert isinstance(declared, Declaration)
    traced = declared.trace()
    state = dict(traced.buffers)
    seen = []
    for _ in range(3):
        found = evaluate(traced.graph, state)
        plain = declared()  # type: ignore[operator]
        assert np.asarray(plain).dtype == found["out"].dtype
        np.testing.assert_array_equal(plain, found["out"])
        state["random"] = found["write random"]
        seen.append(found["out"].tobytes())
    assert len(set(seen)) == 3


def test_seeds() -> None:
    random.seed(7)
    a = random.uniform((4,))
    b = random.uniform((4,))
    random.seed(7)
    np.testing.assert_array_equal(random.uniform((4,)), a)
    np.testing.assert_array_equal(random.uniform((4,)), b)
    random.seed(1 << 40)
    assert not np.array_equal(random.uniform((4,)), a)
    with pytest.raises(MlaotError, match=r"a seed must be an integer in 0..2\*\*64-1, got -1"):
        random.seed(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments(dtype: str) -> None:
    u, z = random.uniform((100_000,), dtype=dtype), random.normal((100_000,), dtype=dtype)
    assert u.dtype == z.dtype == dtype
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 4e-3 and abs(u.var() - 1 / 12) < 2e-3
    assert abs(z.mean()) < 1e-2 and abs(z.var() - 1) < 2e-2 and abs((z**3).mean()) < 4e-2
    assert np.isfinite(z).all()


def test_dropout_keeps_the_mean() -> None:
    x = np.ones(100_000, np.float32)
    found = random.dropout(x, 0.25, training=True)
    assert found.dtype == np.float32
    assert set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(found.mean() - 1) < 1e-2
    assert random.dropout(x, 0.25) is x


def test_integers_and_choices() -> None:
    found = random.integers(2, 7, (10_000,))
    assert found.dtype == np.int64 and set(found) == {2, 3, 4, 5, 6}
    assert sorted(random.permutation(50)) == list(range(50))
    assert sorted(random.permutation(np.array([3, 1, 4]))) == [1, 3, 4]


def test_per_example_models_draw() -> None:
    """The examples of a batch draw other numbers, which is for the batching of ``random_bits``."""
    traced = model(lambda x: x + random.uniform((3,)), x=mlaot.f32[3]).trace()
    assert traced.per_example and list(traced.graph.writes) == ["random"]
