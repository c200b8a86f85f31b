"""The workloads that mlaot is compared on, as mlaot models: ``declare("w3_mlp_b64", weights)``.

``w`` workloads serve: a network in evaluation mode with its weights frozen. ``t`` workloads train: stochastic gradient
descent with learning rate 0.01 on the mean softmax cross-entropy, one epoch a call.
"""

# No `from __future__ import annotations`: the annotations of the models are types made here.
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from networks import CONTEXT, HEADS, LAYERS, VOCABULARY, WIDTH, networks, seeded_trees, seeded_weights

import mlaot
from mlaot import nn

batch = mlaot.dim("batch")
Array = np.ndarray[Any, Any]
LEARNING_RATE = 0.01
CACHE = (LAYERS, 1, HEADS, CONTEXT - 1, WIDTH // HEADS)


@dataclass(frozen=True)
class Workload:
    """A network and the shapes of its inputs; float32, or int64 where they are tokens.

    ``examples``: how many there are in an epoch of a workload that trains, in batches of the first axis of ``shapes``;
    0: it serves. ``rows_of``: another workload, whose rows the calls take in turn, one each: trees that answer the same
    row again and again teach the branch predictor the way.
    """

    network: str
    shapes: tuple[tuple[int, ...], ...]
    tokens: bool = False
    examples: int = 0
    rows_of: str = ""

    @property
    def batch(self) -> int:
        """How many examples a call takes: a sequence is one, and its first axis counts steps."""
        return 1 if self.network == "lstm" else self.shapes[0][0]


WORKLOADS = {
    "w1_xor_b1": Workload("xor", ((1, 2),)),
    "w2_mnist_b1": Workload("mnist", ((1, 784),)),
    "w2_mnist_b64": Workload("mnist", ((64, 784),)),
    "w3_mlp_b1": Workload("mlp512", ((1, 784),)),
    "w3_mlp_b64": Workload("mlp512", ((64, 784),)),
    "w4_lenet_b1": Workload("lenet", ((1, 1, 28, 28),)),
    "w5_mbv2_b1": Workload("mbv2", ((1, 3, 224, 224),)),
    "w5_resnet18_b1": Workload("resnet18", ((1, 3, 224, 224),)),
    "w6_gpt_full": Workload("gpt", ((1, CONTEXT),), tokens=True),
    "w6_gpt_decode": Workload("gptdec", ((1, 1), CACHE, CACHE), tokens=True),
    "w7_gbt_b1": Workload("gb", ((1, 30),), rows_of="w7_gbt_b1000"),
    "w7_gbt_b1000": Workload("gb", ((1000, 30),)),
    "w8_lstm_b1": Workload("lstm", ((50, 1, 64),)),
    "t1_mlp_b1": Workload("mnist", ((1, 784),), examples=2048),
    "t1_mlp_b64": Workload("mnist", ((64, 784),), examples=6400),
    "t2_lenet_b64": Workload("lenet", ((64, 1, 28, 28),), examples=640),
}


def chosen(prefixes: str) -> list[str]:
    """The workloads whose names start with one of ``prefixes``, as in ``w2,w3_mlp_b64``; all for an empty string."""
    found = [name for name in WORKLOADS if not prefixes or name.startswith(tuple(prefixes.split(",")))]
    if not found:
        raise SystemExit(f"no workload starts with {prefixes}; there are {', '.join(WORKLOADS)}")
    return found


def network(name: str, weights: Mapping[str, Array] | None = None) -> Any:
    """The network of a workload with ``weights``, or with seeded ones."""
    given, kind = weights_of(name) if weights is None else weights, WORKLOADS[name].network
    if kind == "gb":
        return nn.TreeEnsemble(**given)
    made = networks(nn, np)[kind]()
    made.load_state_dict(given, strict=False)
    return made


def weights_of(name: str, data: Path | None = None) -> dict[str, Array]:
    """The weights of a workload's network by PyTorch's names, or the arrays of its trees: those in ``data``, a folder
    of ``weights_<network>.npz``; without one seeded ones.
    """
    kind = WORKLOADS[name].network
    if data is not None:
        return dict(np.load(data / f"weights_{kind.replace('gptdec', 'gpt')}.npz"))
    if kind == "gb":
        return seeded_trees()
    return seeded_weights({key: value.shape for key, value in networks(nn, np)[kind]().state_dict().items()})


def declare(name: str, weights: Mapping[str, Array] | Path | None = None) -> Any:
    """A workload as an mlaot model. ``weights``: those of ``weights_of``, or an ``.npz`` file of them.

    The first axis of images and vectors is any batch; a GPT and an LSTM take the shapes of the workload.
    """
    work = WORKLOADS[name]
    net = network(name, dict(np.load(weights)) if isinstance(weights, Path) else weights)
    first = work.shapes[0] if work.tokens or work.network == "lstm" else (batch, *work.shapes[0][1:])
    if work.examples:
        return _training(net, work.shapes[0][1:])
    if len(work.shapes) == 3:

        @mlaot.model(parameters=net)
        def decode(tokens: mlaot.i64[first], keys: mlaot.f32[CACHE], values: mlaot.f32[CACHE]) -> Any:
            return net(tokens, keys, values)

        return decode

    def forward(x: (mlaot.i64 if work.tokens else mlaot.f32)[first]) -> Any:
        return net(x)

    return mlaot.model(forward, parameters=net)


def _training(net: Any, shape: tuple[int, ...]) -> Any:
    """A network that trains, declared on one example."""

    def forward(x: mlaot.f32[shape]) -> Any:
        return net(x)

    def loss(scores: Any, label: mlaot.i64) -> Any:
        return nn.functional.cross_entropy(scores, label)

    return mlaot.model(loss=loss, parameters=net, learning_rate=LEARNING_RATE)(forward)


def inputs(name: str) -> list[Array]:
    """Seeded inputs, all those that calls take in turn; to train the images of an epoch and their labels."""
    work, rng = WORKLOADS[WORKLOADS[name].rows_of or name], np.random.default_rng(100)
    if work.examples:
        images = rng.standard_normal((work.examples, *work.shapes[0][1:]), np.float32)
        return [images, rng.integers(0, 10, work.examples)]
    first = rng.integers(0, VOCABULARY, work.shapes[0]) if work.tokens else None
    arrays = [rng.standard_normal(shape, np.float32) for shape in work.shapes]
    return arrays if first is None else [first, *arrays[1:]]
