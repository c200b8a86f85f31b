"""What a module offers beside its layers: its parts, its mode, what it holds, in PyTorch's words."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError, nn, optim
from mlaot.frontend.trace.context import training
from mlaot.frontend.trace.declaration import Declaration

batch = mlaot.dim("batch")


class Net(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(4, 4, rng=0), nn.Dropout(0.5)])
        self.body = nn.Sequential(nn.Linear(4, 3, rng=1), np.tanh, nn.BatchNorm1d(3))
        self.again = self.layers[0]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.body(x)


def test_parts() -> None:
    net = Net()
    names = ["", "layers.0", "layers.1", "body", "body.0", "body.2"]
    assert [name for name, _ in net.named_modules()] == names
    assert [type(m).__name__ for m in net.modules()] == [
        "Net",
        "Linear",
        "Dropout",
        "Sequential",
        "Linear",
        "BatchNorm1d",
    ]
    assert [name for name, _ in net.named_children()] == ["layers.0", "layers.1", "body"]
    assert list(net.children()) == [net.layers[0], net.layers[1], net.body]
    seen: list[nn.Module] = []
    assert net.apply(seen.append) is net
    assert seen == [net.layers[0], net.layers[1], net.body[0], net.body[2], net.body, net]


def test_initial_values_by_apply() -> None:
    """The usual function, which looks at the kind of each module."""

    def start(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight = np.full(module.weight.shape, 0.5)

    net = Net().apply(start)
    assert np.all(np.asarray(net.body[0].weight) == 0.5) and np.all(np.asarray(net.again.weight) == 0.5)
    assert isinstance(net.again.weight, nn.Parameter) and not np.any(np.asarray(net.body[2].bias))


def test_modes() -> None:
    """What is in evaluation stays so where the training step is traced; all else follows that."""
    net = Net()
    x = np.ones((50, 4), np.float32)
    still = net(x)
    assert net.eval() is net and not any(m.training for m in net.modules())
    with training():
        np.testing.assert_array_equal(net(x), still)
        assert net.train() is net and all(m.training for m in net.modules())
        assert np.any(net(x) != still)
        net.body.eval()
        assert net.training and net.layers[1].training and not net.body[2].training
    assert not net.training
    assert list(vars(net)) == ["layers", "body", "again"] and len(net.body) == 3
    other = pickle.loads(pickle.dumps(copy.deepcopy(net.layers[1].eval())))
    with training():
        np.testing.assert_array_equal(other(x), x)


def test_mode_of_a_training_step() -> None:
    """A part in evaluation neither draws nor follows the batch while a model trains."""

    def writes(net: Net) -> int:
        def loss(y: Any, target: mlaot.f32[batch, 3]) -> Any:  # type: ignore[valid-type]
            return nn.functional.mse_loss(y, target)

        @mlaot.model(loss=loss, optimizer=optim.SGD(net.parameters(), lr=0.1), parameters=net)
        def model(x: mlaot.f32[batch, 4]) -> Any:  # type: ignore[valid-type]
            return net(x)

        assert isinstance(model, Declaration)
        traced = model.trace()
        return 0 if traced.training is None else len(traced.training.writes)

    assert writes(Net()) == 4  # three running statistics, and the state of the random numbers
    assert writes(Net().eval()) == 0


def test_what_is_held() -> None:
    net = nn.Module()
    net.register_parameter("scale", nn.Parameter(np.ones(2, np.float32), requires_grad=False))
    net.register_parameter("none", None)
    net.register_buffer("seen", np.zeros(3, np.int64))
    net.register_buffer("table", np.arange(4.0), persistent=False)
    net.add_module("layer", nn.Linear(2, 2))
    assert list(net.state_dict()) == ["scale", "seen", "layer.weight", "layer.bias"]
    assert [p.requires_grad for p in net.parameters()] == [False, True, True]
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    net.zero_grad()
    with pytest.raises(MlaotError, match=r"Module.scale: expected a Parameter or None, got ndarray"):
        net.register_parameter("scale", np.ones(2))  # type: ignore[arg-type]
    net.list = nn.ParameterList([np.ones(2), nn.Parameter(np.zeros(1))])  # type: ignore[attr-defined]
    net.dict = nn.ParameterDict({"a": np.ones(3)})  # type: ignore[attr-defined]
    assert list(net.state_dict())[-3:] == ["list.0", "list.1", "dict.a"]
    net.cache = nn.Buffer(np.ones(2))  # type: ignore[attr-defined]
    assert "cache" in dict(net.named_buffers())


def test_dtypes() -> None:
    net = nn.BatchNorm1d(3)
    casts: list[tuple[Callable[[], nn.Module], Any]] = [
        (net.double, np.float64),
        (net.half, np.float16),
        (net.float, np.float32),
        (lambda: net.to(mlaot.f64), np.float64),
        (lambda: net.to("float32"), np.float32),
        (lambda: net.to("cpu"), np.float32),
    ]
    for cast, dtype in casts:
        assert cast() is net
        assert {v.dtype for k, v in net.state_dict().items() if k != "num_batches_tracked"} == {np.dtype(dtype)}
        assert net.weight is not None and net.weight.type.dtype.numpy == np.dtype(dtype).name
        assert net.state_dict()["num_batches_tracked"].dtype == np.int64
    for where, message in (("cuda:0", "modules run on the CPU"), (np.int32, "expected a floating-point dtype")):
        with pytest.raises(MlaotError, match=message):
            net.to(where)


def test_star_imports() -> None:
    """Every name that a package offers is there, and what is not has no attribute of its own."""
    for module in (nn, nn.functional, nn.init, optim, optim.lr_scheduler, mlaot):
        found: dict[str, Any] = {}
        exec(f"from {module.__name__} import *", found)
        assert set(module.__all__) <= set(found)
        assert not hasattr(module, "nothing_like_it") and getattr(module, "__path_of_none__", 3) == 3
    for named in (nn.Linear, nn.TransformerEncoder, optim.NAdam, optim.lr_scheduler.StepLR, mlaot.model):
        assert pickle.loads(pickle.dumps(named)) is named
