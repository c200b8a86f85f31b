"""Make ``curves.npz``: losses of training runs by PyTorch in float64, for the networks of ``curves.py``.

pip install torch==2.13.0 && python -m tests.reference.make_curves
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from . import curves

Array = np.ndarray[Any, Any]


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(256, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class SequenceClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(17, 16)
        self.positions = nn.Embedding(10, 16)
        self.norm1 = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.norm3 = nn.LayerNorm(16)
        self.head = nn.Linear(16, 17)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.positions(torch.arange(10))
        n = self.norm1(h)
        later = torch.ones(10, 10, dtype=torch.bool).triu(1)
        h = h + self.attention(n, n, n, attn_mask=later, need_weights=False)[0]
        h = h + self.down(F.gelu(self.up(self.norm2(h))))
        return self.head(self.norm3(h)).transpose(1, 2)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm1 = nn.BatchNorm2d(4)
        self.fc1 = nn.Linear(64, 10)
        self.norm2 = nn.BatchNorm1d(10, momentum=None)
        self.fc2 = nn.Linear(10, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm1(self.conv(x))).flatten(1)
        return self.fc2(F.relu(self.norm2(self.fc1(x))))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.strided = nn.Conv2d(2, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.dilated = nn.Conv2d(8, 6, 2, dilation=2, bias=False)
        self.wider = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1)
        self.slopes = nn.PReLU(4)
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.norm(self.strided(F.interpolate(x, scale_factor=2))))
        x = F.avg_pool2d(x + F.elu(self.depthwise(x)), 3, stride=1, padding=1)
        x = self.slopes(self.wider(self.dilated(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class GatedRecurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.query = nn.Linear(10, 1)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.gru(x)[0]
        return self.head((F.softmax(self.query(h), 1) * h).sum(1))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 12)
        self.fc2 = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.tanh(self.fc1(x)))


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "lenet": LeNet,
    "lstm": SequenceClassifier,
    "transformer": Transformer,
    "normalized": Normalized,
    "convolutions": Convolutions,
    "gru": GatedRecurrent,
    "mlp": MLP,
}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, parameters: Any, lr: float, betas: Any = (0.9, 0.99), weight_decay: float = 0.0) -> None:
        super().__init__(parameters, {})
        self.lr, self.betas, self.weight_decay = lr, betas, weight_decay
        self.moments = [np.zeros(p.shape) for p in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for p, m in zip(self.param_groups[0]["params"], self.moments, strict=True):
            x, g = p.numpy(), p.grad.numpy()
            c = self.betas[0] * m + (1 - self.betas[0]) * g
            x -= self.lr * (np.sign(c) + self.weight_decay * x)
            m[...] = self.betas[1] * m + (1 - self.betas[1]) * g


def losses(name: str, network: nn.Module) -> Array:
    """The loss before each step."""
    batch, optimizer_name, options = curves.NETWORKS[name]
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            parameter.copy_(torch.from_numpy(curves.weight(key, tuple(parameter.shape))))
    maker = Lion if optimizer_name == "Lion" else getattr(torch.optim, optimizer_name)
    optimizer = maker(network.parameters(), **options)
    schedule = None
    if name == "transformer":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, curves.COSINE_STEPS)
    found = []
    for step in range(curves.NORMALIZED_STEPS if name == "normalized" else curves.STEPS):
        x, label = map(torch.from_numpy, batch(step))
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), label)
        loss.backward()
        if schedule is not None:
            nn.utils.clip_grad_norm_(network.parameters(), curves.CLIP_TRANSFORMER)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        found.append(loss.item())
    return np.array(found)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    data = {"torch": np.array(torch.__version__)}
    for name in curves.NETWORKS:
        network = MAKERS[name.partition(".")[0]]()
        data[name] = losses(name, network)
        print(f"{name:12} {data[name][0]:.4f} {data[name][-1]:.4f} {curves.NETWORKS[name][1:]}")
        if name == "normalized":
            data |= {f"{name}:{key}": buffer.numpy() for key, buffer in network.named_buffers()}
            x, _ = curves.NETWORKS[name][0](1000)
            data[f"{name}:served"] = network.eval()(torch.from_numpy(x)).detach().numpy()
    np.savez_compressed(Path(__file__).with_name("curves.npz"), **data)


if __name__ == "__main__":
    main()
