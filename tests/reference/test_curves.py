"""Compiled training runs in float64 against PyTorch's (``make_curves.py``): a hundred losses each, to 1e-6."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, passes
from mlaot.frontend.trace.declaration import Declaration
from mlaot.ir import Type
from mlaot.ir.types import BY_NUMPY
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.nn import functional as F

from ..compiled import AVAILABLE, Library, State, entry_of
from ..projects import EXAMPLES
from .curves import CLIP_TRANSFORMER, COSINE_STEPS, NETWORKS, NORMALIZED_STEPS, STEPS, weight

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).with_name("curves.npz")))
BATCH = mlaot.dim("batch")


class SequenceClassifier(nn.Module):
    def __init__(self) -> None:
        self.lstm = nn.LSTM(3, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        self.tokens = nn.Embedding(17, 16)
        self.positions = nn.Embedding(10, 16)
        self.norm1 = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.norm3 = nn.LayerNorm(16)
        self.head = nn.Linear(16, 17)

    def forward(self, x: Any) -> Any:
        h = self.tokens(x) + self.positions(np.arange(10))
        n = self.norm1(h)
        later = np.triu(np.ones((10, 10), np.bool_), 1)
        h = h + self.attention(n, n, n, attn_mask=later, need_weights=False)[0]
        h = h + self.down(F.gelu(self.up(self.norm2(h))))
        return np.swapaxes(self.head(self.norm3(h)), 1, 2)


class Normalized(nn.Module):
    def __init__(self) -> None:
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm1 = nn.BatchNorm2d(4)
        self.fc1 = nn.Linear(64, 10)
        self.norm2 = nn.BatchNorm1d(10, momentum=None)
        self.fc2 = nn.Linear(10, 4)

    def forward(self, x: Any) -> Any:
        x = F.flatten(F.relu(self.norm1(self.conv(x))), 1)
        return self.fc2(F.relu(self.norm2(self.fc1(x))))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        self.strided = nn.Conv2d(2, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.dilated = nn.Conv2d(8, 6, 2, dilation=2, bias=False)
        self.wider = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1)
        self.slopes = nn.PReLU(4)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = F.silu(self.norm(self.strided(F.interpolate(x, scale_factor=2))))
        x = F.avg_pool2d(x + F.elu(self.depthwise(x)), 3, stride=1, padding=1)
        x = self.slopes(self.wider(self.dilated(x)))
        return self.head(F.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class GatedRecurrent(nn.Module):
    def __init__(self) -> None:
        self.gru = nn.GRU(3, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.query = nn.Linear(10, 1)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        h = self.gru(x)[0]
        return self.head((F.softmax(self.query(h), 1) * h).sum(axis=1))


class MLP(nn.Module):
    def __init__(self) -> None:
        self.fc1 = nn.Linear(6, 12)
        self.fc2 = nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        return self.fc2(np.tanh(self.fc1(x)))


MAKERS = {
    "lenet": lambda: runpy.run_path(str(EXAMPLES / "lenet" / "model.py"))["LeNet"](None),
    "lstm": SequenceClassifier,
    "transformer": Transformer,
    "normalized": Normalized,
    "convolutions": Convolutions,
    "gru": GatedRecurrent,
    "mlp": MLP,
}


def declared(name: str) -> Declaration:
    """The network with PyTorch's start weights, its cross entropy and its optimizer."""
    batch, optimizer_name, options = NETWORKS[name]
    net = MAKERS[name.partition(".")[0]]()
    for key, parameter in net.named_parameters():
        parameter.array = weight(key, parameter.shape)
    for buffer in net.buffers():
        if buffer.array.dtype == np.float32:
            buffer.array = buffer.array.astype(np.float64)
    if name == "transformer":
        schedule = optim.cosine_annealing_lr(COSINE_STEPS)
        options = {**options, "schedule": schedule, "clip_grad_norm": CLIP_TRANSFORMER}

    def forward(x):  # type: ignore[no-untyped-def]
        return net(x)

    def loss(scores, label):  # type: ignore[no-untyped-def]
        return F.cross_entropy(scores, label)

    x, label = (Type(BY_NUMPY[str(a.dtype)], (BATCH, *a.shape[1:])) for a in batch(0))
    forward.__annotations__["x"], loss.__annotations__["label"] = x, label
    optimizer = getattr(optim, optimizer_name)(**options)
    found = mlaot.model(forward, loss=loss, optimizer=optimizer, parameters=net)
    assert isinstance(found, Declaration)
    return found


def program(name: str) -> Program:
    """Only what the tests call."""
    whole = lower(passes.run(name, declared(name).trace()))
    wanted = ("train_step", "forward") if name == "normalized" else ("train_step",)
    return replace(whole, procedures=tuple(p for p in whole.procedures if p.entry.name in wanted))


@pytest.fixture(scope="session")
def library(shared_folder: Path) -> Library:
    """All of them, for the best instruction set of this machine."""
    programs = {name.replace(".", "_"): program(name) for name in NETWORKS}
    return Library(programs, AVAILABLE[-1], shared_folder / "curves")


def train(library: Library, name: str, steps: int) -> tuple[State, list[float]]:
    """The state after a run, and the loss before each step."""
    stem = name.replace(".", "_")
    batch = NETWORKS[name][0]
    state = State(library.programs[stem])
    rate = next(p.default for p in entry_of(library.programs[stem], "train_step").inputs if p.name == "lr")
    losses = []
    for step in range(steps):
        x, label = batch(step)
        given = {"x": x, "label": label, "lr": rate}
        losses.append(float(library.call(stem, "train_step", given, {"batch": len(x)}, state)["loss"]))
    return state, losses


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "normalized"])
def test_losses_are_those_of_pytorch(name: str, library: Library) -> None:
    _, losses = train(library, name, STEPS)
    np.testing.assert_allclose(losses, DATA[name], rtol=1e-6)


def test_running_statistics_are_those_of_pytorch(library: Library) -> None:
    """Batch normalization in training, one with a momentum, one with a mean over all batches; then in use."""
    state, losses = train(library, "normalized", NORMALIZED_STEPS)
    np.testing.assert_allclose(losses, DATA["normalized"], rtol=1e-6)
    kept = [key.partition(":")[2] for key in DATA if "running" in key or "tracked" in key]
    assert len(kept) == 6
    for key in kept:
        np.testing.assert_allclose(state.slot(key), DATA[f"normalized:{key}"], rtol=1e-6, err_msg=key)
    x, _ = NETWORKS["normalized"][0](1000)
    served = library.call("normalized", "forward", {"x": x}, {"batch": len(x)}, state)["out"]
    np.testing.assert_allclose(served, DATA["normalized:served"], rtol=1e-6, atol=1e-6)
