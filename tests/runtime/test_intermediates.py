"""The function ``intermediates`` of a module: what ``forward`` computes on its way, by name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn

from .. import projects

RNG = np.random.default_rng(3)
X = RNG.normal(size=(5, 8)).astype(np.float32)
BATCH = mlaot.dim("batch")


LAYER, MEAN = nn.Linear(8, 4, rng=1), np.arange(4, dtype=np.float32)


def served() -> Any:
    """For one example: a shift that is folded into a layer, a tap of each kind of shape."""

    def net(x: mlaot.f32[8]) -> Any:
        h = mlaot.tap("product", LAYER(x))
        h = mlaot.tap("hidden", np.maximum((h - MEAN) * 2, 0))
        mlaot.tap("x", x)
        mlaot.tap("weight", LAYER.weight)
        mlaot.tap("count", (h > 0).sum())
        mlaot.tap("half", h.astype(mlaot.bf16))
        return h.sum()

    return mlaot.model(net, parameters=LAYER)


def trained() -> Any:
    """A model that trains and counts its calls, with a single number as tap."""
    layer, calls = nn.Linear(8, 3, rng=2), mlaot.Buffer(np.array(0))

    def net(x: mlaot.f32[BATCH, 8]) -> Any:
        calls.assign(calls + 1)
        scores = layer(x)
        mlaot.tap("total", scores.sum())
        return scores

    def loss(scores: Any, y: mlaot.f32[BATCH, 3]) -> Any:
        return ((scores - y) ** 2).mean(axis=1)

    return mlaot.model(net, loss=loss, parameters={"weight": layer.weight, "bias": layer.bias, "calls": calls})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the modules are."""
    return tmp_path_factory.mktemp("intermediates")


@pytest.fixture(scope="module")
def frozen(site: Path) -> ModuleType:
    """A module that serves."""
    return projects.load(projects.build_module(served(), "frozen", site, ("base",), intermediates=True, golden=True))


@pytest.fixture(scope="module")
def trains(site: Path) -> ModuleType:
    """A module that trains."""
    return projects.load(projects.build_module(trained(), "trains", site, ("base",), intermediates=True, golden=True))


def test_values_by_name(frozen: ModuleType) -> None:
    """A dict in the order of the taps, for a batch and for one example; what is folded in forward() is not here."""
    found = {name: np.asarray(value.tolist()) for name, value in frozen.intermediates(X).items()}
    assert list(found) == ["product", "hidden", "x", "weight", "count", "half"]
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["weight"], np.tile(LAYER.weight.array, (5, 1, 1)))  # as all results: by example
    np.testing.assert_allclose(found["product"], X @ LAYER.weight.array.T + LAYER.bias.array, rtol=1e-4)
    np.testing.assert_allclose(found["hidden"], np.maximum((found["product"] - MEAN) * 2, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["count"], (found["hidden"] > 0).sum(axis=1))
    np.testing.assert_allclose(found["half"], found["hidden"], rtol=1e-2)
    np.testing.assert_allclose(found["hidden"].sum(axis=1), frozen.forward(X), rtol=1e-5)
    one = frozen.Model().intermediates(x=X[0])
    assert one["hidden"].shape == (4,) and one["count"].shape == ()
    assert one["hidden"].tolist() == pytest.approx(found["hidden"][0].tolist())


def test_out(frozen: ModuleType) -> None:
    """A dict as the results are."""
    found = frozen.intermediates(X)
    out = {name: np.zeros_like(array) for name, array in found.items()}
    assert frozen.intermediates(X, out=out) is out
    assert all(out[name].tolist() == array.tolist() for name, array in found.items())
    message = r"^intermediates: out: expected a dict of \d buffers with one for 'product'$"
    for wrong in (X, tuple(out.values()), {**out, "more": X}, {}):
        with pytest.raises(TypeError, match=message):
            frozen.intermediates(X, out=wrong)
    with pytest.raises(TypeError, match=r"^intermediates\(\) is missing argument 'x'$"):
        frozen.intermediates()
    assert frozen.intermediates.__doc__.startswith("What forward() computes on its way")
    assert "count" in frozen.info()["entries"]["intermediates"]["outputs"]


def test_golden_vectors(frozen: ModuleType, trains: ModuleType) -> None:
    """They hold for intermediates, too."""
    for module in (frozen, trains):
        assert all(share <= 1 for share in module.selftest().values())


def test_one_number_while_training(trains: ModuleType) -> None:
    """A dict of it, of the parameters as they are now; nothing is written."""
    for _ in range(2):
        calls = trains.buffers["calls"].item()
        found = trains.intermediates(X)
        assert list(found) == ["total"] and trains.buffers["calls"].item() == calls
        assert found["total"].item() == pytest.approx(np.asarray(trains.forward(X)).sum(), rel=1e-5)
        trains.train_step(X, np.zeros((5, 3), np.float32))


def test_stub(frozen: ModuleType, site: Path, tmp_path: Path) -> None:
    """mypy knows the dict."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("no mypy here")
    stubs = tmp_path / "stubs" / "nn"
    stubs.mkdir(parents=True)
    (stubs / "__init__.pyi").write_text((site.with_name(f"{site.name}-c") / "frozen.nn" / "nn.pyi").read_text())
    use = tmp_path / "use.py"
    use.write_text(
        "import nn\nfound: dict[str, nn.Array] = nn.intermediates([1.0] * 8)\nnn.Model().intermediates(x=[0])\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(use)]
    done = subprocess.run(command, env={"MYPYPATH": str(stubs.parent)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
