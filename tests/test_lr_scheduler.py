"""PyTorch's forms: schedulers that are given an optimizer, and optimizers that are given the parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError, nn, optim
from mlaot.frontend.trace.declaration import Declaration
from mlaot.optim import lr_scheduler

from .nn.cases import PLATEAUS, RATES, SCHEDULES, measures

DATA = dict(np.load(Path(__file__).parent / "reference" / "optim.npz"))
batch = mlaot.dim("batch")


@pytest.mark.parametrize("number", range(len(SCHEDULES)), ids=lambda i: f"{SCHEDULES[i][2]}.{i}")
def test_rates(number: int) -> None:
    _, _, name, options = SCHEDULES[number]
    more = {"max_lr": 0.5, "cycle_momentum": False} if name in ("OneCycleLR", "CyclicLR") else {}
    optimizer = optim.SGD(lr=0.5)
    getattr(lr_scheduler, name)(optimizer, **more, **options)
    assert optimizer.schedule is not None
    rates = [optimizer.lr * optimizer.schedule(step) for step in range(RATES)]
    np.testing.assert_allclose(rates, DATA[f"schedule.{number}"], rtol=1e-10, atol=1e-15)


def test_every_scheduler_is_compared() -> None:
    others = {"LRScheduler", "ReduceLROnPlateau", "SequentialLR", "ChainedScheduler"}
    assert {name for _, _, name, _ in SCHEDULES} | others == set(lr_scheduler.__all__)


@pytest.mark.parametrize("number", range(len(PLATEAUS)))
def test_plateau(number: int) -> None:
    optimizer = optim.SGD(lr=0.5)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, **PLATEAUS[number])
    rates = []
    for measure in measures():
        rates.append(plateau.step(measure))
        assert optimizer.lr == rates[-1]
    np.testing.assert_allclose(rates, DATA[f"plateau.{number}"], rtol=1e-12)
    assert len(set(rates)) > 2


def test_schedulers_of_one_optimizer() -> None:
    """They multiply; in a sequence each has its time."""
    optimizer = optim.SGD(lr=1.0)
    first, second = lr_scheduler.ConstantLR(optimizer, 0.5, 2), lr_scheduler.ExponentialLR(optimizer, 0.1)
    assert optimizer.schedule is not None
    assert [float(optimizer.schedule(i)) for i in range(3)] == pytest.approx([0.5, 0.05, 0.01])
    lr_scheduler.ChainedScheduler([first, second])
    assert [float(optimizer.schedule(i)) for i in range(3)] == pytest.approx([0.5, 0.05, 0.01])
    lr_scheduler.SequentialLR(optimizer, [first, second], [3])
    assert [float(optimizer.schedule(i)) for i in range(5)] == pytest.approx([0.5, 0.5, 1.0, 1.0, 0.1])


class Net(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Linear(2, 3, rng=0)
        self.head = nn.Linear(3, 1, rng=1)

    def forward(self, x: Any) -> Any:
        return self.head(np.tanh(self.body(x)))


def step(optimizer: optim.Optimizer, net: Net) -> dict[str, Any]:
    """How far an update by gradients of 1 moves the first element of each parameter."""
    parameters = dict(net.named_parameters())
    state = optimizer.init(parameters)
    arrays = {name: np.asarray(p) for name, p in parameters.items()}
    updated, _ = optimizer.update(arrays, {name: np.ones_like(a) for name, a in arrays.items()}, state)
    return {name: round(float((arrays[name] - updated[name]).flat[0]), 6) for name in arrays}


def test_parameters_of_an_optimizer() -> None:
    """All of a model's, some of them, those of groups with options of their own."""
    net = Net()
    assert set(step(optim.SGD(net.parameters(), lr=0.5), net).values()) == {0.5}
    assert set(step(optim.SGD(net.parameters(), 0.5, 0.9), net).values()) == {0.5}
    assert set(step(optim.SGD(params=list(net.named_parameters()), lr=0.5), net).values()) == {0.5}
    only = {"body.weight": 0.0, "body.bias": 0.0, "head.weight": 0.5, "head.bias": 0.5}
    assert step(optim.SGD(net.head.parameters(), lr=0.5), net) == only
    assert step(optim.SGD(["head.*"], lr=0.5), net) == only
    assert list(optim.Adam(net.head.parameters()).init(dict(net.named_parameters()))) == [
        *("exp_avg.head.weight", "exp_avg_sq.head.weight", "exp_avg.head.bias", "exp_avg_sq.head.bias", "step")
    ]
    groups = [{"params": net.body.parameters(), "lr": 0.25}, {"params": net.head.weight}]
    found = step(optim.SGD(groups, lr=0.5), net)
    assert found == {"body.weight": 0.25, "body.bias": 0.25, "head.weight": 0.5, "head.bias": 0.0}


def trained(optimizer: optim.Optimizer | None, net: Net) -> set[str]:
    """The parameters that a model's training step updates."""

    def loss(y: Any, target: mlaot.f32[batch, 1]) -> Any:  # type: ignore[valid-type]
        return nn.functional.mse_loss(y, target)

    @mlaot.model(loss=loss, optimizer=optimizer, parameters=net)
    def model(x: mlaot.f32[batch, 2]) -> Any:  # type: ignore[valid-type]
        return net(x)

    assert isinstance(model, Declaration)
    traced = model.trace()
    if traced.optimizer is not None:
        assert {name.partition(".")[2] for name in traced.optimizer.init(traced.parameters)} - {""} <= set(
            traced.parameters
        )
    return set(traced.parameters)


def test_what_a_model_trains() -> None:
    net, heads = Net(), {"head.weight", "head.bias"}
    everything = set(dict(net.named_parameters()))
    assert trained(None, net) == trained(optim.Adam(net.parameters()), net) == everything
    assert trained(optim.Adam(net.head.parameters()), net) == heads
    net.body.requires_grad_(False)
    assert trained(None, net) == heads
    groups = [{"params": net.body.parameters(), "lr": 0.2}, {"params": net.head.parameters()}]
    assert trained(optim.NAdam(groups, lr=0.1), net) == heads
    net.body.bias.requires_grad_()
    assert trained(optim.SGD(net.parameters(), lr=0.1), net) == {*heads, "body.bias"}


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: optim.SGD([], lr=0.1), "SGD: expected the parameters to train, such as net.parameters.. of a Module"),
    (lambda: optim.SGD(object(), lr=0.1), "SGD: expected the parameters to train"),
    (
        lambda: optim.SGD([np.ones(2)], lr=0.1),
        "SGD: expected the parameters to train, .* without them it trains all of the model",
    ),
    (lambda: step(optim.SGD([nn.Parameter(np.ones(2))], lr=0.1), Net()), "no parameter is called Parameter"),
    (lambda: lr_scheduler.StepLR(optim.SGD, 3), "StepLR: expected an optimizer such as mlaot.optim.SGD"),
    (
        lambda: lr_scheduler.StepLR(optim.SGD(), 3).step(),
        "the rate follows the updates by itself; leave scheduler.step",
    ),
    (lambda: lr_scheduler.OneCycleLR(optim.SGD(), 0.1, 9), "OneCycleLR: the momentum .* give cycle_momentum=False"),
    (
        lambda: lr_scheduler.CyclicLR(optim.SGD(groups=[{"params": "a", "lr": 0.1}]), 0.1, 0.2, cycle_momentum=False),
        "CyclicLR: expected one rate for all groups",
    ),
    (
        lambda: lr_scheduler.SequentialLR(optim.SGD(), [lr_scheduler.StepLR(optim.SGD(), 2)], []),
        "expected schedulers of one optimizer",
    ),
    (lambda: lr_scheduler.ReduceLROnPlateau(optim.SGD(), "least"), "mode: expected one of 'min', 'max'"),
    (lambda: lr_scheduler.ReduceLROnPlateau(optim.SGD(), factor=2.0), "expected a factor below 1, got 2.0"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes(number: int) -> None:
    call, message = MISTAKES[number]
    with pytest.raises(MlaotError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
