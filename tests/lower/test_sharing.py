"""Code grows with distinct shapes, not with layers: equal layers are the same kernels, whatever their weights are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.generate import compile_model
from mlaot.nn import functional as F
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

BATCH = mlaot.dim("batch")
T, C, H = 16, 32, 4
DEPTHS = (2, 4, 8, 12)
RNG = np.random.default_rng(0)


class Block(nn.Module):
    """A transformer's: attention and two dense layers, each added to what comes in."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C, rng=RNG), nn.Linear(C, C, rng=RNG)
        self.wide, self.narrow = nn.Linear(C, 4 * C, rng=RNG), nn.Linear(4 * C, C, rng=RNG)

    def forward(self, x: Any) -> Any:
        y, n = self.qkv(self.norm1(x)), x.shape[0]
        q, k, v = (y[..., i * C : (i + 1) * C].reshape(n, T, H, C // H).swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2).reshape(n, T, C)
        x = x + self.proj(y)
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, depth: int) -> None:
        self.words, self.places = nn.Embedding(64, C, rng=RNG), nn.Embedding(T, C, rng=RNG)
        self.blocks = [Block() for _ in range(depth)]
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, 64, bias=False, rng=RNG)

    def forward(self, x: Any) -> Any:
        x = self.words(x) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Stack(nn.Module):
    """Equal layers on rows, sequences or images of the shape that they give."""

    def __init__(self, depth: int, make: Callable[[], Any]) -> None:
        self.layers = [make() for _ in range(depth)]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x


class Residual(nn.Module):
    """Two convolutions with batch normalization around a shortcut."""

    def __init__(self) -> None:
        self.first, self.second = (nn.Conv2d(16, 16, 3, padding=1, rng=RNG) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(16), nn.BatchNorm2d(16)

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.second(F.relu(self.norm1(self.first(x)))))
        return F.relu(x + y)


STACKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(24, 24, rng=RNG), nn.Tanh()), mlaot.f32[BATCH, 24]),
    "lstm": (lambda: nn.LSTM(24, 24, rng=RNG), mlaot.f32[8, BATCH, 24]),
    "gru": (lambda: nn.GRU(24, 24, rng=RNG), mlaot.f32[8, BATCH, 24]),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, rng=RNG), nn.ReLU()),
        mlaot.f32[BATCH, 16, 8, 8],
    ),
    "residual": (Residual, mlaot.f32[BATCH, 16, 8, 8]),
    "transformer": (Block, mlaot.f32[BATCH, T, C]),
}


def kernels(model: Any) -> int:
    """How many functions the C of a model has for one instruction set, but for the helpers and the entries."""
    text = kernels_file(compile_model(model, "m", Options(isas=("v3",))), "m", MACHINES["v3"])
    found = re.findall(r"^(?:static|KERNEL) void \w+_v3\((.*)\)\n{", text, re.MULTILINE)
    return sum(not signature.startswith(("void *threads", "char *const *p")) for signature in found)


def gpt(depth: int) -> Any:
    net = Gpt(depth)

    def forward(x: Any) -> Any:
        return net(x)

    forward.__annotations__ = {"x": mlaot.i32[BATCH, T]}
    return mlaot.model(parameters=net)(forward)


def stack(name: str, depth: int, *, trains: bool) -> Any:
    make, type_ = STACKS[name]
    net = Stack(depth, make)

    def forward(x: Any) -> Any:
        return net(x)

    def loss(x: Any, y: Any) -> Any:
        return F.mse_loss(net(x), y)

    forward.__annotations__ = {"x": type_}
    loss.__annotations__ = {"x": type_, "y": type_}
    return mlaot.model(parameters=net, **({"loss": loss, "optimizer": mlaot.optim.Adam(lr=1e-3)} if trains else {}))(
        forward
    )


def test_gpt_of_equal_blocks() -> None:
    counts = {depth: kernels(gpt(depth)) for depth in DEPTHS}
    assert len(set(counts.values())) == 1 and counts[2] <= 13, counts


@pytest.mark.parametrize("name", STACKS)
def test_stacks_forward(name: str) -> None:
    """The first and the last layer may have kernels of their own, as they stand beside inputs and results."""
    counts = {depth: kernels(stack(name, depth, trains=False)) for depth in (4, 8)}
    assert counts[4] == counts[8], counts


@pytest.mark.parametrize("name", STACKS)
def test_stacks_training(name: str) -> None:
    """Between the first and the last layer, as forward."""
    counts = {depth: kernels(stack(name, depth, trains=True)) for depth in (3, 4)}
    assert counts[3] == counts[4], counts
