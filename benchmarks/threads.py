"""What a second thread brings: calls of several models with one thread and with more, in turn.

    python benchmarks/threads.py [--threads 0] [--seconds 2] [--only NAME..] [--json report.json]

Milliseconds a call, the median of many in turn, into memory that is there already. The results are compared to the
last bit. It wants a quiet machine: each thread needs a core of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import build, load, out
from networks import CONTEXT, VOCABULARY, networks
from training_steps import JOBS
from training_steps import declared as declared_job
from workloads import declare

import mlaot
from mlaot.nn import functional as F

batch = mlaot.dim("batch")
draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return draw.normal(size=shape).astype(np.float32)


MLP = [normal(*shape) / 20 for shape in ((784, 512), (512, 512), (512, 10))]
NET = mlaot.parameters({"w1": MLP[0], "w2": MLP[1], "w3": MLP[2]})
LENET = [normal(*shape) / 16 for shape in ((6, 1, 5, 5), (16, 6, 5, 5), (256, 120), (120, 84), (84, 10))]
CONV = [normal(64, 64, 3, 3) / 24 for _ in range(2)]


def layers(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
    return np.maximum(np.maximum(x @ w1, 0) @ w2, 0) @ w3


def loss(scores: Any, label: mlaot.i64[batch]) -> Any:
    return F.cross_entropy(scores, label)


@mlaot.model
def mlp(x: mlaot.f32[batch, 784]) -> Any:
    return layers(x, *MLP)


@mlaot.model(loss=loss, parameters=NET, optimizer=mlaot.optim.SGD(lr=0.01))
def training(x: mlaot.f32[batch, 784]) -> Any:
    return layers(x, **NET)


@mlaot.model
def lenet(x: mlaot.f32[batch, 1, 28, 28]) -> Any:
    for weight in LENET[:2]:
        x = F.max_pool2d(F.relu(F.conv2d(x, weight)), 2)
    return layers(F.flatten(x, 1), *LENET[2:])


@mlaot.model
def block(x: mlaot.f32[batch, 64, 56, 56]) -> Any:
    return F.relu(x + F.conv2d(F.relu(F.conv2d(x, CONV[0], padding=1)), CONV[1], padding=1))


Heads = mlaot.f32[batch, 6, 256, 64]


@mlaot.model
def attention(q: Heads, k: Heads, v: Heads) -> Any:
    return F.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v


@mlaot.model
def rows(x: mlaot.f32[batch, 1000]) -> Any:
    return F.softmax(x, 1) + F.layer_norm(x, (1000,))


def vit() -> Any:
    net = networks(mlaot.nn, np)["vit"]()

    @mlaot.model(parameters=net)
    def forward(x: mlaot.f32[batch, 3, 224, 224]) -> Any:
        return net(x)

    return forward


def job(name: str) -> tuple[Any, str, tuple[Any, ...]]:
    """A training step of ``training_steps.py``, of 32 examples."""
    found = JOBS[name]
    state = found.network(mlaot.nn, np).state_dict()
    return declared_job(found, state), "train_step", found.inputs(32, draw)


# A model, or the name of a workload; the entry; its inputs.
CASES: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "ResNet-18, batch 1": ("w5_resnet18_b1", "forward", (normal(1, 3, 224, 224),)),
    "GPT of 6 layers, 256 tokens": ("w6_gpt_full", "forward", (draw.integers(0, VOCABULARY, (1, CONTEXT)),)),
    "mlp 784-512-512-10, batch 64": (mlp, "forward", (normal(64, 784),)),
    "mlp 784-512-512-10, batch 1024": (mlp, "forward", (normal(1024, 784),)),
    "training step of it, batch 64": (training, "train_step", (normal(64, 784), draw.integers(0, 10, 64))),
    "LeNet, batch 64": (lenet, "forward", (normal(64, 1, 28, 28),)),
    "residual block of ResNet-18, batch 1": (block, "forward", (normal(1, 64, 56, 56),)),
    "attention, 6 heads of 256 x 64, batch 1": (attention, "forward", tuple(normal(1, 6, 256, 64) for _ in range(3))),
    "softmax + layer norm of 1024 x 1000": (rows, "forward", (normal(1024, 1000),)),
    "ViT of 12 layers, batch 1": (vit(), "forward", (normal(1, 3, 224, 224),)),
    **{f"training step of {name}, batch 32": job(name) for name in JOBS},
}


def medians(calls: list[Callable[[], object]], seconds: float) -> list[float]:
    """Milliseconds of each of some calls, a few of one after a few of the other."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 30:
        for call, found in zip(calls, times, strict=True):
            call()  # wakes the threads
            for _ in range(3):
                started = time.perf_counter()
                call()
                found.append(time.perf_counter() - started)
    return [statistics.median(found) * 1e3 for found in times]


def measure(module: Any, entry: str, inputs: tuple[Any, ...], threads: int, seconds: float) -> dict[str, Any]:
    """The times of one case; the two ways take turns."""
    models = [module.Model(), module.Model()]
    count = [model.set_threads(n) for model, n in zip(models, (1, threads), strict=True)][1]
    calls, answers = [], []
    for model in models:
        call = getattr(model, entry)
        given = {} if entry == "train_step" else {"out": call(*inputs)}
        answers.append([bytes(memoryview(call(*inputs, **given))) if given else call(*inputs) for _ in range(3)])
        calls.append(lambda call=call, given=given: call(*inputs, **given))
    assert answers[0] == answers[1], "the number of threads changed the result"
    one, several = medians(calls, seconds)
    return {"threads": count, "one": one, "several": several}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--threads", type=int, default=0, help="0: as many as CPUs")
    options.add_argument("--seconds", type=float, default=2.0, help="for each case")
    options.add_argument("--only", nargs="*", default=[""], help="words in the names of cases")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        modules: dict[int, Any] = {}
        for name, (declared, entry, inputs) in CASES.items():
            if not any(word in name for word in given.only):
                continue
            if id(declared) not in modules:
                made = declare(declared) if isinstance(declared, str) else declared
                modules[id(declared)] = load(build(made, f"m{len(modules)}", Path(folder, str(len(modules)))))
            found = report[name] = measure(modules[id(declared)], entry, inputs, given.threads, given.seconds)
            ratio = found["one"] / found["several"]
            out(
                f"{name:45} {found['one']:8.3f} ms, {found['threads']} threads {found['several']:8.3f} ms: {ratio:.2f}x"
            )
    if given.json:
        given.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
