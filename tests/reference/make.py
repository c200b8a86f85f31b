"""Make ``gradients.npz``: losses and gradients of small networks by PyTorch in float64.

    pip install torch==2.13.0 && python tests/reference/make.py

Each network has parameters, inputs, and a loss that is the mean over the rows of the batch. The tests compile the same
networks, written in NumPy's terms, and compare.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

ROWS = 7


def mlp(x: Any, p: list[Any], act: Callable[[Any], Any]) -> Any:
    for i in range(0, len(p), 2):
        x = x @ p[i].T + p[i + 1]
        if i < len(p) - 2:
            x = act(x)
    return x


def softmax_cross_entropy(p: list[Any], x: Any, y: Any) -> Any:
    return F.cross_entropy(mlp(x, p, F.relu), y)


def tanh_squared_error(p: list[Any], x: Any, y: Any) -> Any:
    return ((mlp(x, p, torch.tanh) - y) ** 2).sum(1).mean()


def deep(p: list[Any], x: Any, y: Any) -> Any:
    return ((mlp(x, p, torch.tanh) - y) ** 2).sum(1).mean()


def powers(p: list[Any], x: Any, y: Any) -> Any:
    h = (x @ p[0].T) ** 2 + 0.5
    return (h**1.5 + h**-2 + (h + y) ** 0.5 + h**3).sum(1).mean()


def divisions(p: list[Any], x: Any, y: Any) -> Any:
    h = x @ p[0].T
    return (h / (h * h + 1) + y / (torch.exp(h) + p[1])).sum(1).mean()


def maxima(p: list[Any], x: Any, y: Any) -> Any:
    h = x @ p[0].T + p[1]
    return (torch.amax(h, 1) - torch.amin(h, 1) + torch.maximum(h, y).sum(1) + torch.minimum(h, -y).sum(1)).mean()


def log_sum_exp(p: list[Any], x: Any, y: Any) -> Any:
    return (torch.logsumexp(x @ p[0].T + p[1], 1) * y[:, 0]).mean()


def normalized(p: list[Any], x: Any, y: Any) -> Any:
    h = x @ p[0].T
    centered = h - h.mean(1, keepdim=True)
    scaled = centered / torch.sqrt((centered**2).mean(1, keepdim=True) + 1e-5)
    return ((scaled * p[1] + p[2] - y) ** 2).sum(1).mean()


def shared(p: list[Any], x: Any, y: Any) -> Any:
    h = torch.tanh(x @ p[0])
    return ((torch.tanh(h @ p[0]) + x) @ p[0].T - y).abs().sum(1).mean()


def attention(p: list[Any], x: Any, y: Any) -> Any:
    """Every row is a sequence of 3 vectors of 4 numbers."""
    s = x.reshape(-1, 3, 4)
    q, k, v = s @ p[0], s @ p[1], s @ p[2]
    return ((torch.softmax(q @ k.transpose(1, 2) * 0.5, 2) @ v).sum(1) - y).pow(2).sum(1).mean()


# The loss, the shapes of the parameters, the widths of x and of y (None: a label below 4).
NETWORKS: dict[str, tuple[Callable[[list[Any], Any, Any], Any], list[tuple[int, ...]], int, int | None]] = {
    "softmax_cross_entropy": (softmax_cross_entropy, [(9, 6), (9,), (4, 9), (4,)], 6, None),
    "tanh_squared_error": (tanh_squared_error, [(8, 5), (8,), (3, 8), (3,)], 5, 3),
    "deep": (deep, [(6, 4), (6,), (6, 6), (6,), (5, 6), (5,), (2, 5), (2,)], 4, 2),
    "powers": (powers, [(5, 4)], 4, 1),
    "divisions": (divisions, [(5, 4), (5,)], 4, 5),
    "maxima": (maxima, [(5, 4), (5,)], 4, 5),
    "log_sum_exp": (log_sum_exp, [(17, 4), (17,)], 4, 1),
    "normalized": (normalized, [(9, 4), (9,), (9,)], 4, 9),
    "shared": (shared, [(6, 6)], 6, 6),
    "attention": (attention, [(4, 4), (4, 4), (4, 4)], 12, 4),
}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    arrays: dict[str, np.ndarray[Any, Any]] = {"torch": np.array(torch.__version__)}
    for seed, (name, (loss, shapes, width, out)) in enumerate(NETWORKS.items()):
        rng = np.random.default_rng(seed)
        p = [nn.Parameter(torch.from_numpy(rng.normal(size=shape) * 0.5)) for shape in shapes]
        x = rng.normal(size=(ROWS, width))
        y = rng.integers(0, 4, ROWS) if out is None else np.abs(rng.normal(size=(ROWS, out)))
        value = loss(p, torch.from_numpy(x), torch.from_numpy(y))
        value.backward()
        arrays |= {f"{name}.x": x, f"{name}.y": y, f"{name}.loss": value.detach().numpy()}
        for i, parameter in enumerate(p):
            assert parameter.grad is not None
            arrays |= {f"{name}.p{i}": parameter.detach().numpy(), f"{name}.d{i}": parameter.grad.numpy()}
    np.savez_compressed(Path(__file__).with_name("gradients.npz"), **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
