"""Steps of training beside PyTorch, eager: small networks of the kinds that people train, with their optimizers.

    MLAOT_ISA=v3 python benchmarks/training_steps.py [--only gpt,cnn] [--batch 32]

Milliseconds a step, forward, backward and update; one core, one thread, by turns. The losses of the first three steps
are compared before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import build, chosen_isas, load, one_core, out, table
from networks import VOCABULARY, networks

import mlaot
import mlaot.nn
from mlaot import optim

ROUNDS = 15
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Job:
    """A network to be trained, by names that ``torch.nn`` and ``mlaot.nn`` share.

    ``example``: the shape of an example, of tokens where there is a ``vocabulary``; ``classes`` is what it is told to
    be one of, once or once for ``each`` token.
    """

    network: Callable[[Any, Any], Any]
    example: tuple[int, ...]
    classes: int
    optimizer: str
    vocabulary: int = 0
    each: bool = False

    def inputs(self, size: int, draw: np.random.Generator) -> tuple[Array, Array]:
        """Examples and labels."""
        shape = (size, *self.example)
        x = draw.integers(0, self.vocabulary, shape) if self.vocabulary else draw.standard_normal(shape, np.float32)
        return x, draw.integers(0, self.classes, shape if self.each else size)


def cnn(nn: Any, xp: Any) -> Any:
    """Two convolutions with batch normalization."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(-3), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


def resnet(nn: Any, xp: Any) -> Any:
    """A stem and three residual blocks, two of them strided."""

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)
            self.second = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)])
            self.short = nn.Conv2d(inner, outer, 1, stride=stride, bias=False) if stride > 1 else nn.Identity()
            self.act = nn.ReLU()

        def forward(self, x: Any) -> Any:
            y = self.act(self.norms[0](self.first(x)))
            return self.act(self.norms[1](self.second(y)) + self.short(x))

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def separable(nn: Any, xp: Any) -> Any:
    """Depthwise and pointwise convolutions, as in MobileNet."""
    layers = [nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    for inner, outer, stride in ((16, 32, 1), (32, 64, 2), (64, 64, 1)):
        layers += [nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=inner, bias=False)]
        layers += [nn.BatchNorm2d(inner), nn.ReLU6(), nn.Conv2d(inner, outer, 1, bias=False)]
        layers += [nn.BatchNorm2d(outer), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def autoencoder(nn: Any, xp: Any) -> Any:
    """Strided convolutions, then transposed ones, and a classifier of what they give."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 8, 2, stride=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(8 * 28 * 28, 10),
    )  # fmt: skip


def temporal(nn: Any, xp: Any) -> Any:
    """Convolutions of signals: dilated and strided."""
    return nn.Sequential(
        nn.Conv1d(4, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 5, padding=4, dilation=2), nn.ReLU(),
        nn.Conv1d(32, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def groups(nn: Any, xp: Any) -> Any:
    """Two residual blocks with group norms, as in diffusion models."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            parts = [(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(2)]
            self.body = nn.Sequential(*[layer for part in parts for layer in part])

        def forward(self, x: Any) -> Any:
            return x + self.body(x)

    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), Block(32), nn.MaxPool2d(2), Block(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def instances(nn: Any, xp: Any) -> Any:
    """Convolutions with instance norms, to numbers of channels that fill no block."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 5, padding=2), nn.InstanceNorm2d(24, affine=True), nn.ReLU(),
        nn.Conv2d(24, 40, 3, 2, 1), nn.InstanceNorm2d(40, affine=True), nn.ReLU(),
        nn.Conv2d(40, 40, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10),
    )  # fmt: skip


def dense(nn: Any, xp: Any) -> Any:
    """Layers of twelve channels, each of which reads all before it (Huang et al., 2017)."""

    class Layer(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm, self.act = nn.BatchNorm2d(channels), nn.ReLU()
            self.conv = nn.Conv2d(channels, 12, 3, padding=1, bias=False)

        def forward(self, x: Any) -> Any:
            return xp.concatenate([x, self.conv(self.act(self.norm(x)))], axis=1)

    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), Layer(24), Layer(36), Layer(48), nn.AvgPool2d(2), Layer(60), Layer(72),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(84, 10),
    )  # fmt: skip


def text(nn: Any, xp: Any) -> Any:
    """Filters of three to five words, the largest answer of each (Kim, 2014)."""

    class Filters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(2000, 64), nn.Linear(3 * 48, 4)
            self.filters = nn.ModuleList([nn.Conv1d(64, 48, size) for size in (3, 4, 5)])
            self.act, self.largest, self.flatten = nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten()

        def forward(self, x: Any) -> Any:
            y = self.words(x).swapaxes(1, 2)
            found = [self.flatten(self.largest(self.act(each(y)))) for each in self.filters]
            return self.out(xp.concatenate(found, axis=1))

    return Filters()


def encoder(nn: Any, width: int = 96, heads: int = 6, words: int = 48) -> Any:
    """Two blocks of a transformer with norms behind the sums, and a linear layer of the first token's."""
    F = nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.parts = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
            self.out = nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            split = (*x.shape[:2], heads, width // heads)
            q, k, v = (part(x).reshape(split).swapaxes(1, 2) for part in self.parts)
            y = F.scaled_dot_product_attention(q, k, v).swapaxes(1, 2).reshape(x.shape)
            x = self.first(x + self.out(y))
            return self.second(x + self.narrow(F.gelu(self.wide(x))))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(1000, width), nn.Embedding(words, width)
            self.blocks, self.out = nn.Sequential(Block(), Block()), nn.Linear(width, 2)

        def forward(self, x: Any) -> Any:
            return self.out(self.blocks(self.words(x) + self.places.weight)[:, 0])

    return Encoder()


def recurrent(nn: Any, kind: str, inputs: int = 28, width: int = 64) -> Any:
    """A recurrent layer, and a linear one of its last step."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = getattr(nn, kind)(inputs, width, batch_first=True), nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            return self.out(self.rnn(x)[0][:, -1])

    return Classifier()


JOBS = {
    "mlp": Job(lambda nn, xp: networks(nn, xp)["mlp"](784, 256, 256, 10), (784,), 10, "Adam"),
    "cnn": Job(cnn, (1, 28, 28), 10, "Adam"),
    "resnet": Job(resnet, (3, 32, 32), 10, "Adam"),
    "separable": Job(separable, (3, 32, 32), 10, "Adam"),
    "autoencoder": Job(autoencoder, (1, 28, 28), 10, "Adam"),
    "temporal": Job(temporal, (4, 128), 10, "Adam"),
    "lstm": Job(lambda nn, xp: recurrent(nn, "LSTM"), (28, 28), 10, "Adam"),
    "gru": Job(lambda nn, xp: recurrent(nn, "GRU"), (28, 28), 10, "Adam"),
    "gpt": Job(lambda nn, xp: networks(nn, xp)["gpt"](64, 4, 4, 64), (64,), VOCABULARY, "AdamW", VOCABULARY, each=True),
    "groups": Job(groups, (3, 32, 32), 10, "Adam"),
    "instances": Job(instances, (3, 24, 24), 10, "Adam"),
    "dense": Job(dense, (3, 32, 32), 10, "Adam"),
    "text": Job(text, (48,), 4, "Adam", 2000),
    "encoder": Job(lambda nn, xp: encoder(nn), (48,), 2, "AdamW", 1000),
}


def declared(job: Job, state: dict[str, Array]) -> Any:
    net, batch = job.network(mlaot.nn, np), mlaot.dim("batch")
    net.load_state_dict(state)

    def loss(scores: Any, label: Any) -> Any:
        return mlaot.nn.functional.cross_entropy(scores.reshape(-1, job.classes), label.reshape(-1))

    def forward(x: Any) -> Any:
        return net(x)

    loss.__annotations__ = {"label": mlaot.i64[(batch, *job.example) if job.each else batch]}
    forward.__annotations__ = {"x": (mlaot.i64 if job.vocabulary else mlaot.f32)[batch, *job.example]}
    return mlaot.model(loss=loss, optimizer=getattr(optim, job.optimizer)(lr=1e-3), parameters=net)(forward)


def measure(name: str, size: int, folder: Path) -> list[str]:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    job, rng = JOBS[name], np.random.default_rng(0)
    net = job.network(torch.nn, torch)
    state = {key: value.detach().numpy().copy() for key, value in net.state_dict().items()}
    x, label = job.inputs(size, rng)
    optimizer = getattr(torch.optim, job.optimizer)(net.parameters(), lr=1e-3)
    inputs, target = torch.from_numpy(x), torch.from_numpy(label)

    def eager() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs).reshape(-1, job.classes), target.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    step = load(build(declared(job, state), name, folder / name, chosen_isas())).train_step
    expected = [eager() for _ in range(3)]
    np.testing.assert_allclose([float(step(x, label)) for _ in range(3)], expected, rtol=1e-3)
    times: dict[str, list[float]] = {"torch": [], "mlaot": []}
    for _ in range(ROUNDS):
        for key, call in (("torch", eager), ("mlaot", lambda: step(x, label))):
            call()
            started = time.perf_counter()
            for _ in range(3):
                call()
            times[key].append((time.perf_counter() - started) / 3)
    theirs, ours = (statistics.median(times[key]) * 1e3 for key in ("torch", "mlaot"))
    return [f"{name} b{size}", f"{theirs:.3f}", f"{ours:.3f}", f"{ours / theirs:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(JOBS), help=f"of {', '.join(JOBS)}")
    parser.add_argument("--batch", default="32", help="sizes of batches")
    options = parser.parse_args()
    one_core()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            for size in map(int, options.batch.split(",")):
                rows.append(measure(name, size, Path(folder, str(size))))
                print(*rows[-1], file=sys.stderr)
    table(["ms a step", "torch", "mlaot", "mlaot by torch"], rows)
    out(f"torch is eager; MLAOT_ISA={os.environ.get('MLAOT_ISA', '')}")


if __name__ == "__main__":
    main()
