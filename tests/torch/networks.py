"""Networks of PyTorch, compiled, against PyTorch itself.

    python -m tests.torch.networks                       # all
    python -m tests.torch.networks --select 'resnet'     # those whose name matches

Each has seeded weights and is exported once, with an open batch, compiled as a module is,
and asked batches of 1, 2 and 5. Numbers must be within 1e-5 of the largest; whole numbers must be equal.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mlaot.torch
from mlaot.errors import MlaotError
from tests import projects

TOLERANCE = 1e-5
TOLERANCES = {"half": 2e-3, "brain_half": 2e-2}  # where torch itself rounds more
SLOW = 30.0  # seconds of a build
BATCHES = (1, 2, 5)
Sample = dict[str, Tensor]
CASES: dict[str, Callable[[], tuple[nn.Module, Sample]]] = {}


def case(function: Callable[[], tuple[nn.Module, Sample]]) -> Callable[[], tuple[nn.Module, Sample]]:
    """Enter a network, and inputs for a batch of two."""
    CASES[function.__name__] = function
    return function


class Of(nn.Module):
    """A function of modules and arrays as a module."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def images(size: int = 32, channels: int = 3) -> Sample:
    return {"x": torch.randn(2, channels, size, size)}


def tokens(length: int = 12, words: int = 50) -> Sample:
    return {"x": torch.randint(words, (2, length))}


def series(length: int = 20, features: int = 6) -> Sample:
    return {"x": torch.randn(2, length, features)}


def plain(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


# Images


def convolved(a: int, b: int, kernel: int = 3, act: type[nn.Module] = nn.ReLU, **options: Any) -> nn.Module:
    """Convolution, batch norm, activation."""
    options = {"padding": kernel // 2, "bias": False} | options
    return plain(nn.Conv2d(a, b, kernel, **options), nn.BatchNorm2d(b), act())


@case
def mlp() -> tuple[nn.Module, Sample]:
    return plain(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 5)), {
        "x": torch.randn(2, 20)
    }


@case
def lenet() -> tuple[nn.Module, Sample]:
    front = (nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid())
    back = (nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Linear(84, 10))
    return plain(*front, *back), images(28, 1)


class BasicBlock(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.first = convolved(a, b, stride=stride)
        self.second = convolved(b, b, act=nn.Identity)
        self.short = nn.Identity() if a == b else convolved(a, b, 1, nn.Identity, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)) + self.short(x))


@case
def resnet18() -> tuple[nn.Module, Sample]:
    layers: list[nn.Module] = [convolved(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    for a, b, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [BasicBlock(a, b, stride), BasicBlock(b, b, 1)]
    return plain(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)), images(64)


@case
def vgg() -> tuple[nn.Module, Sample]:
    layers: list[nn.Module] = []
    for a, b in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return plain(*layers, nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(256, 10)), images()


def separable(a: int, b: int, wide: int, stride: int, act: type[nn.Module], squeeze: nn.Module | None = None) -> Of:
    """An inverted residual of MobileNet."""
    parts = [convolved(a, wide, 1, act), convolved(wide, wide, 3, act, stride=stride, groups=wide)]
    parts += [squeeze] if squeeze else []
    body = plain(*parts, convolved(wide, b, 1, nn.Identity))
    return Of(lambda m, x: x + m.body(x) if a == b and stride == 1 else m.body(x), body=body)


def squeezed(channels: int) -> Of:
    """Squeeze and excite."""
    gate = plain(
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(channels, channels // 4, 1),
        nn.SiLU(),
        nn.Conv2d(channels // 4, channels, 1),
        nn.Sigmoid(),
    )
    return Of(lambda m, x: x * m.gate(x), gate=gate)


@case
def mobilenet_v2() -> tuple[nn.Module, Sample]:
    blocks = (
        separable(16, 16, 96, 1, nn.ReLU6),
        separable(16, 24, 96, 2, nn.ReLU6),
        separable(24, 24, 144, 1, nn.ReLU6),
    )
    return plain(convolved(3, 16, act=nn.ReLU6, stride=2), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), images()


@case
def mobilenet_v3() -> tuple[nn.Module, Sample]:
    return plain(convolved(3, 16, act=nn.Hardswish), separable(16, 16, 64, 2, nn.Hardswish, squeezed(64))), images()


@case
def efficientnet() -> tuple[nn.Module, Sample]:
    blocks = (separable(16, 16, 64, 1, nn.SiLU, squeezed(64)), separable(16, 24, 64, 2, nn.SiLU, squeezed(64)))
    return plain(convolved(3, 16, act=nn.SiLU, stride=2), *blocks), images()


@case
def densenet() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        found = [m.stem(x)]
        for layer in m.layers:
            found.append(layer(torch.cat(found, 1)))
        return m.head(torch.cat(found, 1))

    layers = [plain(nn.BatchNorm2d(8 + 8 * i), nn.ReLU(), nn.Conv2d(8 + 8 * i, 8, 3, padding=1)) for i in range(4)]
    return Of(forward, stem=nn.Conv2d(3, 8, 3), layers=nn.ModuleList(layers), head=nn.AvgPool2d(2)), images()


@case
def shufflenet() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        kept, used = m.stem(x).chunk(2, 1)
        y = torch.cat([kept, m.branch(used)], 1)
        n, c, h, w = y.shape
        return m.shuffle(y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w))

    branch = plain(convolved(8, 8, 1), convolved(8, 8, 3, nn.Identity, groups=8), convolved(8, 8, 1))
    return Of(forward, stem=convolved(3, 16), branch=branch, shuffle=nn.ChannelShuffle(4)), images(16)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([convolved(3, 8), convolved(8, 16), convolved(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([convolved(32, 16), convolved(16, 8)])
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        y = self.down[2](F.max_pool2d(b, 2))
        for up, join, skip in zip(self.up, self.join, (b, a), strict=True):
            y = join(torch.cat([up(y), skip], 1))
        scores = self.head(y)
        return {"scores": scores, "labels": scores.argmax(1)}


@case
def unet() -> tuple[nn.Module, Sample]:
    return UNet(), images()


@case
def unet_bilinear() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        a = m.first(x)
        y = F.interpolate(m.second(F.max_pool2d(a, 2)), size=a.shape[2:], mode="bilinear", align_corners=True)
        return F.interpolate(torch.cat([y, a], 1), scale_factor=2, mode="bicubic")

    return Of(forward, first=convolved(3, 8), second=convolved(8, 8)), images(16)


class ConvNeXt(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.narrow(F.gelu(self.wide(y)))).permute(0, 3, 1, 2)


@case
def convnext() -> tuple[nn.Module, Sample]:
    return plain(nn.Conv2d(3, 16, 4, 4), nn.GroupNorm(1, 16), ConvNeXt(16), ConvNeXt(16)), images()


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, 8)
        self.cls = nn.Parameter(torch.randn(1, 1, 32))
        self.position = nn.Parameter(torch.randn(1, 17, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.cls.expand(len(y), -1, -1), y], 1) + self.position
        return self.head(self.encoder(y)[:, 0])


@case
def vit() -> tuple[nn.Module, Sample]:
    return Vit(), images()


@case
def swin() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = torch.roll(m.embed(x).permute(0, 2, 3, 1), (-2, -2), (1, 2))
        n, h, w, c = y.shape
        y = y.view(n, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
        q, k, v = m.qkv(y).reshape(-1, 16, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=m.bias[m.index].permute(2, 0, 1)).transpose(1, 2)
        y = y.reshape(n, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(n, h, w, c)
        return torch.roll(y, (2, 2), (1, 2))

    index = torch.randint(49, (16, 16))
    bias = nn.Parameter(torch.randn(49, 4))
    return Of(forward, embed=nn.Conv2d(3, 16, 4, 4), qkv=nn.Linear(16, 48), bias=bias, index=index), images()


@case
def generator() -> tuple[nn.Module, Sample]:
    def up(a: int, b: int, **options: Any) -> list[nn.Module]:
        return [nn.ConvTranspose2d(a, b, 4, bias=False, **options), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]

    more = {"stride": 2, "padding": 1}
    layers = (*up(16, 32), *up(32, 16, **more), *up(16, 8, **more), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh())
    return plain(nn.Unflatten(1, (16, 1, 1)), *layers), {"x": torch.randn(2, 16)}


@case
def super_resolution() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.body(x) + F.interpolate(x, scale_factor=3, mode="nearest")

    body = plain(nn.Conv2d(3, 16, 5, padding=2), nn.PReLU(16), nn.Conv2d(16, 27, 3, padding=1), nn.PixelShuffle(3))
    return Of(forward, body=body), images(16)


@case
def autoencoder() -> tuple[nn.Module, Sample]:
    encoder = (nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.Flatten(), nn.Linear(784, 8))
    decoder = (nn.Linear(8, 784), nn.Unflatten(1, (16, 7, 7)), nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), nn.Softplus())
    return plain(*encoder, *decoder, nn.Upsample(scale_factor=2), nn.Conv2d(8, 1, 3, padding=1)), images(28, 1)


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mean, self.spread = nn.Linear(30, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = plain(nn.Linear(4, 16), nn.Mish(), nn.Linear(16, 30), nn.Sigmoid())

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.gelu(self.encoder(x), approximate="tanh")
        mean, spread = self.mean(h), self.spread(h)
        return self.decoder(mean + noise * torch.exp(0.5 * spread)), mean, spread


@case
def vae() -> tuple[nn.Module, Sample]:
    return Vae(), {"x": torch.rand(2, 30), "noise": torch.randn(2, 4)}


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = plain(convolved(3, 16, stride=2), convolved(16, 32, stride=2))
        self.head = nn.Conv2d(32, 3 * 7, 1)
        self.register_buffer("anchors", torch.tensor([[4.0, 6.0], [8.0, 5.0], [12.0, 14.0]]))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.head(self.body(x))
        n, _, h, w = y.shape
        y = y.view(n, 3, 7, h, w).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        at = torch.stack([columns, rows], -1).to(y.dtype)
        middle = (y[..., :2].sigmoid() * 2 - 0.5 + at) * 4
        size = (y[..., 2:4].sigmoid() * 2) ** 2 * self.anchors[:, None, None]
        boxes = torch.cat([middle - size / 2, middle + size / 2], -1).flatten(1, 3)
        scores, labels = (y[..., 4:5].sigmoid() * y[..., 5:].softmax(-1)).flatten(1, 3).max(-1)
        best, index = scores.topk(10, dim=1)
        return {
            "boxes": boxes.gather(1, index[..., None].expand(-1, -1, 4)),
            "scores": best,
            "labels": labels.gather(1, index),
        }


@case
def detector() -> tuple[nn.Module, Sample]:
    return Detector(), images()


@case
def spatial_transformer() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        theta = m.place(x.flatten(1)).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)

    return Of(forward, place=nn.Linear(3 * 16 * 16, 6)), images(16)


@case
def volumes() -> tuple[nn.Module, Sample]:
    layers = (nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.InstanceNorm3d(4))
    return plain(*layers, nn.ConvTranspose3d(4, 2, 2, 2)), {"x": torch.randn(2, 1, 8, 8, 8)}


# Text and series


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32, padding_idx=0), nn.Embedding(20, 32)
        self.norm = nn.LayerNorm(32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.pooler = nn.Linear(32, 32)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        places = torch.arange(input_ids.shape[1])
        x = self.norm(self.words(input_ids) + self.places(places))
        y = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        return {"last_hidden_state": y, "pooler_output": torch.tanh(self.pooler(y[:, 0]))}


@case
def bert() -> tuple[nn.Module, Sample]:
    return Bert(), {
        "input_ids": torch.randint(50, (2, 12)),
        "attention_mask": (torch.rand(2, 12) > 0.3).long().index_fill(1, torch.tensor([0]), 1),
    }


class Gpt(nn.Module):
    def __init__(self, rows: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(20, 32)
        self.blocks = nn.ModuleList([GptBlock() for _ in range(rows)])
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y))


class GptBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp = plain(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = (y.view(n, t, 4, c // 4).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(n, t, c))
        return x + self.mlp(self.norm2(x))


@case
def gpt() -> tuple[nn.Module, Sample]:
    return Gpt(), tokens()


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.norm1, self.norm2 = nn.RMSNorm(32), nn.RMSNorm(32)
        self.q, self.k, self.v, self.o = (nn.Linear(32, n, bias=False) for n in (32, 16, 16, 32))
        self.gate, self.up, self.down = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x)
        n, t, _ = y.shape
        h = self.norm1(y)
        angle = torch.outer(torch.arange(t), 1e4 ** (-torch.arange(0, 8, 2) / 8)).repeat(1, 2)

        def turned(z: Tensor) -> Tensor:
            a, b = z.chunk(2, -1)
            return z * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

        q, k, v = (f(h).view(n, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = turned(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        mask = torch.triu(torch.full((t, t), -torch.inf), 1)
        weights = torch.softmax(turned(q) @ k.transpose(-1, -2) / math.sqrt(8) + mask, -1)
        y = y + self.o((weights @ v).transpose(1, 2).reshape(n, t, -1))
        h = self.norm2(y)
        return y + self.down(F.silu(self.gate(h)) * self.up(h))


@case
def llama() -> tuple[nn.Module, Sample]:
    return Llama(), tokens()


@case
def multihead() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Any:
        return m.attention(x, x, x, attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))

    return Of(forward, attention=nn.MultiheadAttention(6, 2, batch_first=True)), series()


@case
def lstm_tagger() -> tuple[nn.Module, Sample]:
    rnn = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
    return Of(
        lambda m, x: m.head(m.rnn(m.words(x))[0]), words=nn.Embedding(50, 16), rnn=rnn, head=nn.Linear(24, 5)
    ), tokens()


@case
def gru_classifier() -> tuple[nn.Module, Sample]:
    return Of(
        lambda m, x: m.head(m.rnn(x)[1][-1]), rnn=nn.GRU(6, 12, 2, batch_first=True), head=nn.Linear(12, 3)
    ), series()


@case
def rnn_states() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Any:
        y, (h, c) = m.lstm(x)
        return {"out": m.rnn(y)[0], "state": (h.transpose(0, 1), c.transpose(0, 1))}

    return Of(forward, lstm=nn.LSTM(6, 8, batch_first=True), rnn=nn.RNN(8, 5, batch_first=True)), series()


@case
def lstm_cells() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = c = torch.zeros(len(x), 8)
        for step in x.unbind(1):
            h, c = m.cell(step, (h, c))
        return h

    return Of(forward, cell=nn.LSTMCell(6, 8)), series(8)


class Seq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(50, 16), nn.Embedding(40, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.score, self.head = nn.Linear(16, 16), nn.Linear(32, 40)

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        memory, state = self.encoder(self.source(source))
        found, _ = self.decoder(self.target(target), state)
        weights = torch.softmax(torch.einsum("btd,bsd->bts", self.score(found), memory), -1)
        context = torch.einsum("bts,bsd->btd", weights, memory)
        return F.log_softmax(self.head(torch.cat([found, context], -1)), -1), weights


@case
def seq2seq() -> tuple[nn.Module, Sample]:
    return Seq2Seq(), {"source": torch.randint(50, (2, 9)), "target": torch.randint(40, (2, 6))}


@case
def transformer() -> tuple[nn.Module, Sample]:
    made = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    return made, {"src": torch.randn(2, 7, 16), "tgt": torch.randn(2, 5, 16)}


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 8, 1)
        self.layers = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4)])
        self.out = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        total = torch.zeros_like(x)
        for layer, out in zip(self.layers, self.out, strict=True):
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            y = out(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return F.relu(total)


@case
def wavenet() -> tuple[nn.Module, Sample]:
    return WaveNet(), {"x": torch.randn(2, 1, 40)}


@case
def tcn() -> tuple[nn.Module, Sample]:
    weighted = nn.utils.parametrizations.weight_norm
    layers = [plain(weighted(nn.Conv1d(6, 6, 3, padding=2 * d, dilation=d)), nn.SELU()) for d in (1, 2, 4)]

    def forward(m: Any, x: Tensor) -> Tensor:
        y = x.transpose(1, 2)
        for layer in m.layers:
            y = y + layer(y)[..., : y.shape[-1]]
        return y

    return Of(forward, layers=nn.ModuleList(layers)), series()


@case
def spectrogram() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        found = torch.stft(x, 64, 16, window=m.window, return_complex=True)
        return torch.log(m.mel @ found.abs().square() + 1e-6)

    return Of(forward, window=torch.hann_window(64), mel=torch.rand(10, 33)), {"x": torch.randn(2, 400)}


@case
def filter_bank() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        re, im = F.conv1d(F.pad(x[:, None], (32, 32), "reflect"), m.kernels, stride=16).chunk(2, 1)
        return (re**2 + im**2).clamp(min=1e-6).log()

    t = torch.arange(64) * torch.arange(33)[:, None] * (2 * math.pi / 64)
    kernels = torch.cat([t.cos(), t.sin()])[:, None] * torch.hann_window(64)
    return Of(forward, kernels=kernels), {"x": torch.randn(2, 400)}


# Graphs, tables, and what is left


class GraphConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("source", torch.randint(10, (30,)))
        self.register_buffer("target", torch.randint(10, (30,)))

    def gathered(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(1, self.target, x[:, self.source])

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x + self.gathered(x)))
        summed = torch.zeros_like(x).scatter_add(1, self.target[None, :, None].expand(len(x), 30, 8), x[:, self.source])
        return self.second(summed).mean(1)


@case
def graph_conv() -> tuple[nn.Module, Sample]:
    return GraphConv(), series(10)


@case
def bag_of_words() -> tuple[nn.Module, Sample]:
    words = nn.Embedding(50, 8, padding_idx=0)
    return Of(lambda m, x: m.head(m.words(x).mean(1)), words=words, head=nn.Linear(8, 2)), tokens()


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(30, 8), nn.Embedding(40, 8)
        self.dense = plain(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
        self.top = nn.Linear(11, 1)

    def forward(self, user: Tensor, item: Tensor, features: Tensor) -> Tensor:
        found = torch.stack([self.user(user), self.item(item), self.dense(features)], 1)
        crossed = torch.bmm(found, found.transpose(1, 2))
        i, j = torch.tril_indices(3, 3, -1)
        return torch.sigmoid(self.top(torch.cat([found[:, 2], crossed[:, i, j]], 1))).squeeze(-1)


@case
def recommender() -> tuple[nn.Module, Sample]:
    return Recommender(), {"user": torch.tensor([3, 7]), "item": torch.tensor([9, 0]), "features": torch.randn(2, 5)}


@case
def sorted_values() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> dict[str, Tensor]:
        values, index = x.sort(1, descending=True)
        top, at = x.topk(3, dim=-1)
        return {"sums": values.cumsum(1), "index": index, "top": top, "at": at}

    return Of(forward), series(7)


@case
def experts() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        best, index = m.gate(x).topk(2)
        weights = torch.zeros(len(x), 4).scatter(1, index, best.softmax(-1))
        every = torch.stack([expert(x) for expert in m.experts], 1)
        return (weights[..., None] * every).sum(1)

    made = nn.ModuleList([plain(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)) for _ in range(4)])
    return Of(forward, gate=nn.Linear(12, 4), experts=made), {"x": torch.randn(2, 12)}


@case
def quantiles() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> dict[str, Tensor]:
        found = m.body(x)
        steps = torch.cat([found[:, :1], F.softplus(found[:, 1:])], 1)
        return {
            "quantiles": steps.cumsum(1),
            "clipped": found.clamp(-0.5, 0.5),
            "spread": found.std(1),
            "var": found.var(1),
        }

    return Of(forward, body=plain(nn.Linear(6, 32), nn.CELU(), nn.Linear(32, 5))), {"x": torch.randn(2, 6)}


@case
def branches() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        return torch.cond(x.mean() > 0, lambda y: m.a(y), lambda y: m.b(y).sin(), (x,))

    return Of(forward, a=nn.Linear(6, 4), b=nn.Linear(6, 4)), {"x": torch.randn(2, 6)}


@case
def masked() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> dict[str, Tensor]:
        positive = x > 0
        scores = x.masked_fill(~positive, -1e9).softmax(-1)
        return {
            "scores": scores,
            "any": positive.any(-1),
            "count": positive.sum((1, 2)),
            "argmin": x.argmin(-1),
            "where": torch.where(positive, x, x.exp()),
            "norm": F.normalize(x, dim=-1),
            "cosine": F.cosine_similarity(x[:, :1], x, dim=-1),
            "distance": (x[:, :, None] - x[:, None]).norm(dim=-1),
        }

    return Of(forward), series(7)


@case
def norms() -> tuple[nn.Module, Sample]:
    layers = (nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.Hardtanh(), nn.InstanceNorm2d(8, affine=True), nn.GLU(1))
    return plain(*layers, nn.LocalResponseNorm(3), nn.LogSigmoid(), nn.Softmax2d(), nn.AdaptiveMaxPool2d(2)), images(16)


@case
def paddings() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> Tensor:
        found = [F.pad(x, (1, 2, 2, 1), mode) for mode in ("reflect", "replicate", "circular", "constant")]
        y = torch.cat(found, 1)
        patches = F.unfold(y, 3, stride=2)
        return F.fold(patches, (y.shape[2], y.shape[3]), 3, stride=2) + torch.flip(y, (2,))

    return Of(forward), {"x": torch.randn(2, 2, 8, 8)}


@case
def half() -> tuple[nn.Module, Sample]:
    return plain(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)).half(), {"x": torch.randn(2, 20).half()}


@case
def brain_half() -> tuple[nn.Module, Sample]:
    body = plain(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 4)).bfloat16()
    return Of(lambda m, x: m.body(x.bfloat16()).float(), body=body), {"x": torch.randn(2, 20)}


@case
def double() -> tuple[nn.Module, Sample]:
    return plain(nn.Linear(20, 32), nn.Sigmoid(), nn.Linear(32, 4)).double(), {"x": torch.randn(2, 20).double()}


@case
def integers() -> tuple[nn.Module, Sample]:
    def forward(m: Any, x: Tensor) -> dict[str, Tensor]:
        y = m.table[x]
        return {
            "sum": y.sum(-1),
            "mod": y % 7,
            "div": torch.div(y, 3, rounding_mode="floor"),
            "bits": (y & 12) >> 1,
            "one_hot": F.one_hot(x, 50),
        }

    return Of(forward, table=torch.randint(-100, 100, (50, 3))), tokens()


# The command


def settled(module: nn.Module) -> None:
    """Running statistics and affine weights as after training."""
    for part in module.modules():
        for name, value in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            if "Norm" in type(part).__name__ and value.is_floating_point():
                value.data = (
                    torch.rand_like(value) + 0.5 if name in ("weight", "running_var") else torch.randn_like(value) / 4
                )


def repeated(sample: Sample, rows: int) -> Sample:
    """Inputs for a batch of ``rows``: those of the sample, moved a little."""
    found = {}
    for name, value in sample.items():
        rolled = torch.cat([value.roll(i, -1) for i in range((rows + 1) // 2)])
        found[name] = rolled[:rows]
    return found


def flat(found: Any) -> list[np.ndarray[Any, Any]]:
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(found) if leaf is not None]
    return [leaf.detach().float().numpy() if leaf.dtype is torch.bfloat16 else leaf.detach().numpy() for leaf in leaves]


def apart(got: Any, wanted: Any) -> float:
    """The largest difference relative to the largest value; of whole numbers, how many differ."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return np.inf
    if wanted.dtype.kind in "iub":
        return float((got != wanted).sum())
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return float(
        np.where(same, 0, np.nan_to_num(np.abs(a - b), nan=np.inf)).max(initial=0)
        / max(np.abs(b).max(initial=0), 1e-30)
    )


def examined(name: str, folder: Path) -> tuple[str, bool]:
    """A line on one network, and whether it is right."""
    torch.manual_seed(0)
    module, sample = CASES[name]()
    if isinstance(module, nn.Sequential):
        sample = {"input": sample["x"]}
    settled(module)
    begun = time.monotonic()
    try:
        declared = mlaot.torch.load(module, sample)
        exported = time.monotonic()
        library = projects.build_module(declared, name, folder / name)
    except MlaotError as error:
        return str(error), False
    built = time.monotonic()
    found = []
    for rows in BATCHES:
        given = repeated(sample, rows)
        with torch.no_grad():
            wanted = flat(module(**given))
        try:
            got = projects.load(library).forward(**{key: value.numpy() for key, value in given.items()})
        except ValueError as error:
            return str(error), False
        got = got if isinstance(got, tuple) else (got,)
        found.append(max(apart(np.asarray(a), b) for a, b in zip(got, wanted, strict=True)))
    line = f"{exported - begun:6.1f} s {built - exported:6.1f} s  {'  '.join(f'{worst:.0e}' for worst in found)}"
    return line, max(found) <= TOLERANCES.get(name, TOLERANCE) and built - exported < SLOW


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", default="", help="a regular expression that names must match")
    options = parser.parse_args(arguments)
    wrong = []
    chosen = [name for name in CASES if re.search(options.select, name)]
    print(f"{'':20} {'export':>8} {'build':>8}  error for a batch of {', '.join(map(str, BATCHES))}")
    with tempfile.TemporaryDirectory(prefix="networks-") as folder:
        for name in chosen:
            line, is_right = examined(name, Path(folder))
            wrong += [] if is_right else [name]
            print(f"{name:20} {line}{'' if is_right else '  WRONG'}", flush=True)
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} right{': not ' if wrong else ''}{', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
