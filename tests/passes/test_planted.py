"""No pass loses a nan or an infinity, and none makes one: whole models, with such numbers planted in their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, passes
from mlaot.evaluate import evaluate
from mlaot.nn import functional as F

Array = np.ndarray[Any, Any]
BATCH = mlaot.dim("batch")
EXAMPLES = 3
PLANTED = (math.nan, math.inf, -math.inf, -0.0, 1e-45)


def declared(net: Any, type_: Any, forward: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    def model(x):  # type: ignore[no-untyped-def]
        return (forward or net)(x)

    model.__annotations__["x"] = type_
    return mlaot.model(parameters=net, **options)(model)


def loss(scores: Any, y: mlaot.i64[BATCH]) -> Any:  # type: ignore[valid-type]
    return F.cross_entropy(scores, y, weight=[1.0, 2.0, 0.0, 0.5, 1.0], label_smoothing=0.1)


def convolutions() -> Any:
    first, last = nn.Conv2d(16, 32, 3, padding=1, rng=0), nn.Conv2d(32, 32, 3, padding=1, rng=1)
    middle = [nn.BatchNorm2d(32), nn.LeakyReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(first, *middle, last, nn.ELU(), nn.AvgPool2d(2), nn.Conv2d(32, 5, 1, rng=2), nn.Softplus())
    return declared(net, mlaot.f32[BATCH, 16, 12, 12])


def layers() -> Any:
    parts = [nn.Linear(20, 33, rng=0), nn.GELU(), nn.LayerNorm(33), nn.CELU(), nn.Linear(33, 5, rng=1)]
    return declared(nn.Sequential(*parts, nn.LogSoftmax(-1)), mlaot.f32[BATCH, 20])


def attention() -> Any:
    net = nn.MultiheadAttention(16, 2, batch_first=True, rng=0)
    return declared(net, mlaot.f32[BATCH, 9, 16], lambda x: net(x, x, x)[0])


def recurrence() -> Any:
    net = nn.LSTM(6, 8, num_layers=2, bidirectional=True, rng=0)
    return declared(net, mlaot.f32[7, BATCH, 6], lambda x: net(x)[0])


def training() -> Any:
    # A bias would have no gradient where SELU is linear: Adam makes steps of any size of its roundings.
    net = nn.Sequential(nn.Linear(12, 16, bias=False, rng=0), nn.SELU(), nn.BatchNorm1d(16), nn.Linear(16, 5, rng=1))
    optimizer = optim.AdamW(clip_grad_norm=1.0, groups=[{"params": ["*.bias"], "weight_decay": 0.0}])
    return declared(net, mlaot.f32[BATCH, 12], loss=loss, optimizer=optimizer)


def inputs_of(graph: Any, held: Any, rng: np.random.Generator) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, node in graph.inputs.items():
        if name not in held:
            shape = [size if isinstance(size, int) else EXAMPLES for size in node.type.shape]
            numbers = rng.integers(0, 5, shape) if node.type.dtype.kind == "i" else rng.standard_normal(shape)
            found[name] = np.asarray(numbers, node.type.dtype.numpy)
    return found


@pytest.mark.parametrize("make", [convolutions, layers, attention, recurrence, training], ids=lambda f: f.__name__)
def test_nothing_is_lost_or_made(make: Callable[[], Any]) -> None:
    module, rng = passes.run("nn", make().trace()), np.random.default_rng(0)
    assert module.declared
    for name, before in module.declared.items():
        after = module.graphs[name]
        inputs = inputs_of(before, module.declared_slots, rng)
        for value in PLANTED:
            planted = {key: array.copy() for key, array in inputs.items()}
            for array in planted.values():
                if array.dtype.kind == "f" and array.ndim:
                    array.flat[rng.integers(array.size)] = value
            expected = evaluate(before, {**module.declared_slots, **planted})
            found = evaluate(after, {**module.slots, **planted})
            for key, array in expected.items():
                np.testing.assert_allclose(found[key], array, rtol=1e-3, atol=1e-4, err_msg=f"{name} {key} {value}")
