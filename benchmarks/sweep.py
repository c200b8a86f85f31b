"""Every op of the networks that people have, at many sizes and batches, through each door, beside every runtime here.

    MLAOT_ISA=v3 python benchmarks/sweep.py                    # all cases: about an hour
    python benchmarks/sweep.py --part 0/20                     # every twentieth: what is run before a release
    python benchmarks/sweep.py --only 'conv|lstm' --list       # the names of cases
    python benchmarks/sweep.py --json now.json --picture now.svg
    python benchmarks/sweep.py --before then.json --json now.json
    python benchmarks/sweep.py --read now.json --picture now.svg   # nothing is measured

A case is a small network in the names that ``torch.nn`` and ``mlaot.nn`` share: an op with what stands beside it, a
bias, an activation, a residual. PyTorch runs it, and exports it to ONNX for the other runtimes; mlaot gets it through
``mlaot.nn`` (``nn``), as that ONNX file (``onnx``) and as the module of PyTorch (``torch``). All outputs are compared
with PyTorch's first. One core and one thread for all; they take turns, and the best of their short rounds counts. With
``MLAOT_ISA=v3`` the peers are kept to AVX2 as well; onnxruntime where the CPU can hide what it has
(``common.hide_avx512``).

``limit`` is the least time that the arithmetic and the bytes of the case can take on this core (``limits.py``). The
table has the cases that are the worst by ratio to the best peer, and then by distance from the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import chosen_isas, compile_program, load, one_core, out, table
from limits import Machine, cost, measure
from peers import PEERS

import mlaot
import mlaot.nn
import mlaot.onnx
from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.files import runtime_files, write
from mlaot.generate import compile_model
from mlaot.settings.options import Options

ROUNDS, ROUND_SECONDS = 7, 2e-3
RUNTIME = "sweep_runtime"  # the modules of all cases share it: it takes longer to compile than most kernels
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}
Array = np.ndarray[Any, Any]
Network = Callable[[Any], Any]  # of the names of torch.nn or of mlaot.nn


@dataclass(frozen=True)
class Case:
    """A network and the arrays that it is given."""

    op: str
    size: str
    network: Network
    shape: tuple[int, ...]
    open: tuple[int, ...] = ()  # the axes that are named dims
    dtype: str = "float32"
    integers: int = 0  # the input has indices below this
    doors: tuple[str, ...] = ("nn", "onnx", "torch")  # those that it can come through

    @property
    def dims(self) -> dict[int, str]:
        """The names of open axes."""
        return {axis: f"d{axis}" for axis in self.open}

    @property
    def name(self) -> str:
        batch = f"b{self.shape[0]}{'?' if self.open else ''}"
        return f"{self.op} {self.size} {batch}" + ("" if self.dtype == "float32" else f" {self.dtype}")

    def input(self) -> Array:
        rng = np.random.default_rng(0)
        if self.integers:
            return rng.integers(0, self.integers, self.shape)
        return rng.normal(size=self.shape).astype(self.dtype)


@dataclass
class Row:
    """Microseconds of a call by runtime, the doors of mlaot being ``mlaot.nn`` and so on, and of the limit."""

    name: str
    us: dict[str, float]
    limit: float = 0.0
    bound: str = ""
    failures: dict[str, str] = field(default_factory=dict)

    def doors(self) -> dict[str, float]:
        return {name: us for name, us in self.us.items() if name.startswith("mlaot.")}

    def peers(self) -> dict[str, float]:
        return {name: us for name, us in self.us.items() if not name.startswith("mlaot.")}

    @property
    def ratio(self) -> float:
        """The slowest door's time by that of the fastest peer."""
        return max(self.doors().values(), default=0.0) / min(self.peers().values(), default=float("inf"))


# --------------------------------------------------------------------------------------------------------------- cases


def cases() -> Iterator[Case]:
    """All cases."""
    yield from linears()
    yield from convolutions()
    yield from recurrences()
    yield from attentions()
    yield from functions()
    yield from normalizations()
    yield from moves()
    yield from blocks()
    yield from families()


def linears() -> Iterator[Case]:
    sizes = (
        (8, 8),
        (17, 31),
        (64, 64),
        (100, 130),
        (128, 3),
        (256, 256),
        (784, 50),
        (512, 512),
        (768, 3072),
        (1000, 7),
    )
    for (n, m), batch in product(sizes, (*range(1, 17), 24, 64)):
        for axes in ((), (0,)):
            if not axes and batch > 8 and batch not in (12, 16, 64):
                continue
            yield Case(
                "linear relu",
                f"{n}x{m}",
                lambda nn, n=n, m=m: nn.Sequential(nn.Linear(n, m), nn.ReLU()),
                (batch, n),
                open=axes,
            )
    for (n, m), batch in product(((33, 65), (256, 256)), (1, 3, 16)):
        yield Case("linear", f"{n}x{m}", lambda nn, n=n, m=m: nn.Linear(n, m), (batch, n), dtype="float64")
    for batch, axes in product((1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 32), ((), (0,))):
        yield Case("mlp", "784-512-512-10", mlp, (batch, 784), open=axes)


def mlp(nn: Any) -> Any:
    layers = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(*layers)


def convolutions() -> Iterator[Case]:
    planes = (
        (3, 16, 3, 1, 1, 32), (1, 8, 5, 1, 1, 28), (16, 32, 3, 2, 1, 28), (32, 32, 3, 1, 1, 14), (64, 64, 3, 1, 1, 28),
        (128, 128, 3, 1, 1, 14), (256, 256, 3, 1, 1, 7), (24, 100, 1, 1, 1, 14), (64, 256, 1, 1, 1, 28),
        (512, 128, 1, 1, 1, 7), (5, 7, 3, 1, 1, 17), (17, 19, 3, 1, 1, 9), (3, 32, 7, 2, 1, 56), (32, 32, 3, 1, 32, 28),
        (96, 96, 5, 2, 96, 28), (144, 144, 3, 1, 144, 14), (64, 64, 3, 1, 4, 14), (16, 16, 5, 1, 1, 20),
        (56, 56, 3, 1, 7, 14), (128, 128, 3, 1, 32, 14), (48, 48, 3, 2, 6, 28),
    )  # fmt: skip
    for (i, o, k, s, g, hw), batch in product(planes, (1, 2, 3, 8)):
        yield Case(
            "conv2d relu" if g == 1 else "depthwise relu" if g == i else "grouped conv relu", f"{i}-{o} k{k}s{s} {hw}",
            lambda nn, i=i, o=o, k=k, s=s, g=g: nn.Sequential(
                nn.Conv2d(i, o, k, stride=s, padding=k // 2, groups=g), nn.ReLU()
            ),
            (batch, i, hw, hw), open=(0,) if batch == 3 else (),
        )  # fmt: skip
    rows = ((1, 16, 5, 1, 200), (16, 32, 3, 1, 100), (64, 64, 3, 1, 128), (64, 128, 1, 1, 128), (80, 80, 9, 80, 100))
    for (i, o, k, g, t), batch in product((*rows, (256, 256, 3, 1, 64), (7, 11, 3, 1, 33)), (1, 2, 5)):
        yield Case(
            "conv1d relu", f"{i}-{o} k{k} g{g} {t}",
            lambda nn, i=i, o=o, k=k, g=g: nn.Sequential(nn.Conv1d(i, o, k, padding=k // 2, groups=g), nn.ReLU()),
            (batch, i, t),
        )  # fmt: skip
    for (i, o, hw), batch in product(((16, 8, 14), (64, 32, 14), (128, 64, 7)), (1, 4)):
        yield Case(
            "conv transpose", f"{i}-{o} {hw}", lambda nn, i=i, o=o: nn.ConvTranspose2d(i, o, 2, stride=2),
            (batch, i, hw, hw),
        )  # fmt: skip
    for (i, o, k, hw), batch in product(((64, 2, 1, 56), (64, 3, 3, 56), (32, 1, 3, 28), (128, 5, 1, 14)), (1, 4)):
        yield Case(
            "head of few channels", f"{i}-{o} k{k} {hw}",
            lambda nn, i=i, o=o, k=k: nn.Sequential(
                nn.Conv2d(3, i, 3, padding=1), nn.ReLU(), nn.Conv2d(i, o, k, padding=k // 2), nn.Sigmoid()
            ),
            (batch, 3, hw, hw),
        )  # fmt: skip
    for (i, m, o, hw), batch in product(((16, 16, 3, 16), (64, 32, 1, 8), (32, 8, 5, 14)), (1, 4)):
        yield Case(
            "decoder", f"{i}-{m}-{o} {hw}",
            lambda nn, i=i, m=m, o=o: nn.Sequential(
                nn.ConvTranspose2d(i, m, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(m, o, 4, 2, padding=1), nn.Tanh()
            ),
            (batch, i, hw, hw),
        )  # fmt: skip
    for (c, hw), batch, (kind, k, s) in product(
        ((3, 32), (16, 28), (64, 28), (130, 7)), (1, 4), (("Max", 2, 2), ("Max", 3, 2), ("Avg", 2, 2), ("Avg", 3, 1))
    ):
        yield Case(
            f"{kind.lower()} pool", f"{c} k{k}s{s} {hw}",
            lambda nn, kind=kind, k=k, s=s: getattr(nn, f"{kind}Pool2d")(k, stride=s), (batch, c, hw, hw),
        )  # fmt: skip
    for (c, hw), batch in product(((16, 28), (64, 14), (512, 7), (1000, 7)), (1, 4)):
        yield Case("global pool", f"{c} {hw}", lambda nn: nn.AdaptiveAvgPool2d(1), (batch, c, hw, hw))


def first_of(nn: Any, layer: Any) -> Any:
    """A recurrent layer whose state at the end nobody reads."""

    class FirstOf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    return FirstOf()


def recurrences() -> Iterator[Case]:
    sizes = ((8, 16, 10), (32, 64, 20), (64, 128, 20), (40, 100, 15), (128, 256, 10))
    forms = ((1, False), (2, False), (1, True))
    for kind, (i, h, t), (layers, both), batch in product(("LSTM", "GRU", "RNN"), sizes, forms, (1, 2, 4, 8)):
        yield Case(
            kind.lower(), f"{i}-{h} t{t} l{layers}{' both' * both}",
            lambda nn, kind=kind, i=i, h=h, layers=layers, both=both: first_of(
                nn, getattr(nn, kind)(i, h, num_layers=layers, bidirectional=both, batch_first=True)
            ),
            (batch, t, i),
        )  # fmt: skip


def self_attention(nn: Any, width: int, heads: int) -> Any:
    """Attention of a sequence to itself, and the sequence."""

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(width, heads, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x, x, x)[0] + x

    return SelfAttention()


def attentions() -> Iterator[Case]:
    for (width, heads), t, batch in product(((32, 2), (64, 4), (128, 8), (192, 3)), (7, 16, 64, 197), (1, 2, 4)):
        yield Case(
            "attention residual", f"{width}/{heads} t{t}",
            lambda nn, width=width, heads=heads: self_attention(nn, width, heads), (batch, t, width),
        )  # fmt: skip


FUNCTIONS = (
    *("Sigmoid", "Tanh", "ReLU", "GELU", "SiLU", "ELU", "SELU", "Mish", "Softplus", "Hardswish", "Hardsigmoid"),
    *("LeakyReLU", "LogSigmoid", "Softsign", "ReLU6", "CELU"),
)


def functions() -> Iterator[Case]:
    for kind, n in product(FUNCTIONS, (3, 100, 1024, 65536, 1 << 20)):
        yield Case(kind.lower(), f"{n}", lambda nn, kind=kind: getattr(nn, kind)(), (1, n))
    for kind in ("Sigmoid", "Tanh", "GELU", "SiLU"):
        yield Case(kind.lower(), "4096", lambda nn, kind=kind: getattr(nn, kind)(), (1, 4096), dtype="float64")


def normalizations() -> Iterator[Case]:
    for n, batch, kind in product((7, 64, 100, 768, 4096), (1, 3, 16, 128), ("Softmax", "LogSoftmax", "LayerNorm")):
        yield Case(
            kind.lower(), f"{n}",
            lambda nn, kind=kind, n=n: getattr(nn, kind)(n if kind == "LayerNorm" else -1), (batch, n),
        )  # fmt: skip
    for (c, hw), batch in product(((3, 32), (16, 28), (64, 14), (256, 7)), (1, 4)):
        yield Case("batch norm relu", f"{c} {hw}", lambda nn, c=c: nn.Sequential(nn.BatchNorm2d(c), nn.ReLU()),
                   (batch, c, hw, hw))  # fmt: skip
        if c % 4 == 0:
            yield Case("group norm", f"{c} {hw}", lambda nn, c=c: nn.GroupNorm(4, c), (batch, c, hw, hw))
        yield Case("instance norm", f"{c} {hw}", lambda nn, c=c: nn.InstanceNorm2d(c), (batch, c, hw, hw))


def as_module(nn: Any, function: Callable[[Any, Any], Any]) -> Any:
    """A function of an array, in the names of torch or of NumPy, as a module."""
    library: Any = np
    if nn is not mlaot.nn:
        import torch

        library = torch

    class Function(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(library, x)

    return Function()


# Both libraries have these names, but for what the functions themselves tell apart.
MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "transpose": lambda lib, x: lib.swapaxes(x, 1, 2) + 0.0,
    "rows to the end": lambda lib, x: lib.moveaxis(x, 1, -1) + 0.0,
    "concat": lambda lib, x: lib.concatenate([x, x * 2.0], axis=1),
    "slice": lambda lib, x: x[:, 1:, ::2] * 2.0,
    "sum last": lambda lib, x: lib.sum(x, -1),
    "sum middle": lambda lib, x: lib.sum(x, 1),
    "mean all": lambda lib, x: lib.mean(lib.reshape(x, (x.shape[0], -1)), -1),
    "max last": lambda lib, x: lib.amax(x, -1),
    "argmax last": lambda lib, x: lib.argmax(x, -1),
    "cumsum": lambda lib, x: lib.cumsum(x, 1),
    "add row": lambda lib, x: x + x[:, :1],
    "where": lambda lib, x: lib.where(x > 0, x, x * x),
    "stack": lambda lib, x: lib.stack([x, x + 1.0], -1),
    "exp log": lambda lib, x: lib.log(lib.exp(x) + 1.0),
    "sqrt square": lambda lib, x: lib.sqrt(x * x + 1.0),
    "sin": lambda lib, x: lib.sin(x),
    "product": lambda lib, x: lib.matmul(x, lib.swapaxes(x, 1, 2)),
    "product of every second": lambda lib, x: lib.matmul(x[:, :, ::2], lib.swapaxes(x[:, :, ::2], 1, 2)),
    "distances": lambda lib, x: lib.sum((x[:, :, None] - x[:, None]) ** 2, -1),
    "flip": lambda lib, x: lib.flip(x, (1,)) * 2.0,
    "clip": lambda lib, x: lib.clip(x, -0.5, 0.5),
    "power": lambda lib, x: x**3 - x,
}


def moves() -> Iterator[Case]:
    shapes = ((3, 5), (16, 64), (31, 67), (128, 128), (256, 1000))
    for (op, function), (n, m), batch in product(MOVES.items(), shapes, (1, 4)):
        if op not in ("product", "product of every second", "distances") or n * n * m < 1 << 24:
            yield Case(op, f"{n}x{m}", lambda nn, function=function: as_module(nn, function), (batch, n, m))
    for (n, m), batch in product(((100, 16), (5000, 64), (30000, 300)), (1, 4)):
        yield Case("embedding", f"{n}x{m}", lambda nn, n=n, m=m: nn.Embedding(n, m), (batch, 20), integers=n)
    for (c, hw), mode in product(((3, 32), (64, 14)), ("nearest", "bilinear")):
        yield Case("resize", f"{mode} {c} {hw}", lambda nn, mode=mode: nn.Upsample(scale_factor=2, mode=mode),
                   (1, c, hw, hw))  # fmt: skip


def excite(nn: Any, channels: int, squeezed: int) -> Any:
    """Squeeze and excitation: channels weighted by what is in all of them."""

    class Excite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), nn.SiLU(),
                nn.Conv2d(squeezed, channels, 1), nn.Sigmoid(),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return x * self.layers(x)

    return Excite()


def residual(nn: Any, *layers: Any) -> Any:
    """Layers, and around them their input."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Any) -> Any:
            return x + self.layers(x)

    return Residual()


def inverted(nn: Any, c: int) -> Any:
    """The block of MobileNetV2."""
    wide = 6 * c
    return residual(
        nn, nn.Conv2d(c, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
        nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
        nn.Conv2d(wide, c, 1, bias=False), nn.BatchNorm2d(c),
    )  # fmt: skip


def basic(nn: Any, c: int) -> Any:
    """The block of ResNet-18."""
    return residual(
        nn, nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
        nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c),
    )  # fmt: skip


def families() -> Iterator[Case]:
    """The networks of ``families.py``, which are PyTorch's."""
    if find_spec("torch") is None:
        return
    from families import FAMILIES

    for name, family in FAMILIES.items():
        size = " ".join(map(str, family.shape[1:]))
        doors = ("onnx", "torch")
        yield Case(f"net {name}", size, lambda nn, family=family: family.make(), family.shape, family.open,
                   integers=family.integers, doors=doors)  # fmt: skip


def feed_forward(nn: Any, width: int) -> Any:
    """The second half of a transformer's block."""
    layers = (nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    return residual(nn, *layers)


def pointwise(nn: Any) -> Any:
    """Points by layers that see one each, and their maximum, as in a PointNet."""
    layers = [each for i, o in pairwise((3, 64, 128, 256)) for each in (nn.Conv1d(i, o, 1), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool1d(1))


def blocks() -> Iterator[Case]:
    for (c, r, hw), batch in product(((16, 4, 28), (96, 4, 28), (240, 10, 14), (1152, 48, 7)), (1, 4)):
        yield Case("excite", f"{c}/{r} {hw}", lambda nn, c=c, r=r: excite(nn, c, r), (batch, c, hw, hw))
    for (c, hw), batch in product(((16, 28), (24, 14), (64, 7)), (1, 4)):
        yield Case("inverted residual", f"{c} {hw}", lambda nn, c=c: inverted(nn, c), (batch, c, hw, hw))
    for (c, hw), batch in product(((16, 28), (64, 28), (128, 14)), (1, 4)):
        yield Case("residual", f"{c} {hw}", lambda nn, c=c: basic(nn, c), (batch, c, hw, hw))
    for points, batch in product((50, 512), (1, 4)):
        yield Case("pointwise chain", f"3-64-128-256 {points}", pointwise, (batch, 3, points))
    for width, t, batch in product((64, 192), (1, 7, 64, 197), (1, 4)):
        yield Case("feed forward", f"{width} t{t}", lambda nn, width=width: feed_forward(nn, width), (batch, t, width))


# ----------------------------------------------------------------------------------------------------------- runtimes

Call = Callable[[], Any]


def torch_call(network: Any, x: Array) -> Call:
    """PyTorch, eager; what it leaves as a view is copied, as the others deliver arrays."""
    import torch

    tensor = torch.from_numpy(x)

    def call() -> Any:
        with torch.inference_mode():
            return network(tensor).contiguous()

    return call


def onnx_file(network: Any, case: Case, folder: Path) -> Path:
    """The network as an ONNX file."""
    import torch

    path = folder / "model.onnx"  # as the peers call it
    sample = torch.zeros(case.shape, dtype=torch.int64 if case.integers else getattr(torch, case.dtype))
    dims = {"dynamic_axes": {"x": case.dims}} if case.open else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter by traces is deprecated, and takes a hundredth of the time
        torch.onnx.export(network, (sample,), path, dynamo=False, input_names=["x"], output_names=["y"], **dims)
    return path


def peer_call(name: str, folder: Path, x: Array) -> Call:
    """A runtime of ``peers.py`` on the folder's ONNX file."""
    run = PEERS[name][0](folder, {})
    return lambda: run(x)[0]


def declared_in_nn(case: Case, state: Mapping[str, Any]) -> Any:
    """The network through ``mlaot.nn``, with the weights of PyTorch's."""
    network = case.network(mlaot.nn)
    if state:
        network.load_state_dict(state)
    kind = getattr(mlaot, {"float32": "f32", "float64": "f64"}[case.dtype]) if not case.integers else mlaot.i64

    def forward(x: Any) -> Any:
        return network(x)

    forward.__annotations__ = {"x": kind[declared_shape(case)]}
    return mlaot.model(parameters=network if state else None)(forward)


def declared_shape(case: Case) -> tuple[Any, ...]:
    return tuple(mlaot.dim(case.dims[i]) if i in case.dims else n for i, n in enumerate(case.shape))


def declared_in_torch(case: Case, network: Any) -> Any:
    import mlaot.torch

    kind = mlaot.i64 if case.integers else getattr(mlaot, {"float32": "f32", "float64": "f64"}[case.dtype])
    return mlaot.torch.load(network, kind[declared_shape(case)])


# ------------------------------------------------------------------------------------------------------------ measuring


def run(case: Case, doors: Sequence[str], peers: Sequence[str], machine: Machine, isas: tuple[str, ...]) -> Row:
    """Measure one case; a runtime that cannot run it, or whose outputs are off, is left out and noted."""
    import torch

    torch.manual_seed(0)
    x, row, calls = case.input(), Row(case.name, {}), dict[str, Call]()
    network = case.network(torch.nn).eval()
    if case.dtype == "float64":
        network = network.double()
    state = {name: value.detach().numpy() for name, value in network.state_dict().items()}
    calls["torch"] = torch_call(network, x)
    expected = np.asarray(calls["torch"]())
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder_name:
        folder, path = Path(folder_name), None
        try:
            path = onnx_file(network, case, folder)
        except Exception as error:
            row.failures["export"] = first_line(error)
        for name in peers if path else ():
            attempt(row, calls, name, lambda name=name: peer_call(name, folder, x), expected, case)
        declare: dict[str, Callable[[], Any]] = {
            "nn": lambda: declared_in_nn(case, state),
            "onnx": lambda: mlaot.onnx.load(path),
            "torch": lambda: declared_in_torch(case, network),
        }
        for door in doors:
            if door not in case.doors or (door == "onnx" and path is None):
                continue

            def compiled(door: str = door) -> Call:
                declared = declare[door]()
                if door == case.doors[0]:
                    arrays = x.nbytes + expected.nbytes
                    sizes = {"batch": 1, **{dim: x.shape[i] for i, dim in case.dims.items()}}
                    seconds, row.bound = cost(declared, sizes).limit(machine, arrays)
                    row.limit = seconds * 1e6
                options = Options(isas=isas, runtime=RUNTIME)
                program = compile_model(declared, f"{door}.{door}", options)
                forward = load(compile_program(program, door, folder / door)).forward
                return lambda: forward(x)

            attempt(row, calls, f"mlaot.{door}", compiled, expected, case)
        row.us = times(calls)
    gc.collect()
    return row


def attempt(row: Row, calls: dict[str, Call], name: str, make: Callable[[], Call], expected: Array, case: Case) -> None:
    """Add a runtime whose outputs are right."""
    try:
        call = make()
        np.testing.assert_allclose(np.asarray(call()), expected, rtol=TOLERANCE[case.dtype], atol=TOLERANCE[case.dtype])
        calls[name] = call
    except Exception as error:
        row.failures[name] = first_line(error)


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def times(calls: Mapping[str, Call]) -> dict[str, float]:
    """The best microseconds of each, by turns."""
    counts, best = {}, dict.fromkeys(calls, float("inf"))
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        counts[name] = max(1, int(ROUND_SECONDS / max(time.perf_counter() - started, 1e-7)))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()  # the others have filled the caches with weights of their own
            started = time.perf_counter()
            for _ in range(counts[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - started) / counts[name])
    return {name: seconds * 1e6 for name, seconds in best.items()}


# ------------------------------------------------------------------------------------------------------------ reporting


def show(rows: Sequence[Row], before: Mapping[str, Row], worst: int) -> None:
    """Print the worst cases, and what all of them come to."""
    measured = [row for row in rows if row.doors() and row.peers()]
    names = sorted({name for row in measured for name in row.us})

    def line(row: Row) -> list[str]:
        old = before.get(row.name)
        cells = [f"{row.us[name]:.2f}" if name in row.us else "" for name in names]
        limit = f"{min(row.doors().values()) / row.limit:.2f}" if row.limit else ""
        return [row.name, *cells, f"{row.ratio:.2f}", limit, f"{row.ratio / old.ratio:.2f}" if old else ""]

    heads = ["us a call", *names, "by best peer", "by limit", "by then"]
    out(f"the {worst} slowest by the best peer")
    table(heads, [line(row) for row in sorted(measured, key=lambda row: -row.ratio)[:worst]])
    limited = [row for row in measured if row.limit]
    out(f"the {worst} farthest from the limit")
    table(heads, [line(row) for row in sorted(limited, key=lambda r: -min(r.doors().values()) / r.limit)[:worst]])
    if not measured:
        return
    ratios = [row.ratio for row in measured]
    slower = sum(ratio > 1 for ratio in ratios)
    out(
        f"{len(measured)} cases: geometric mean {statistics.geometric_mean(ratios):.2f} of the best peer, worst"
        f" {max(ratios):.2f}, {slower} slower ({100 * slower / len(ratios):.0f} %)"
    )
    if failed := [(row.name, *failure) for row in rows for failure in row.failures.items()]:
        out(f"{len(failed)} runs failed, such as {' / '.join(failed[0])}")


def draw(rows: Sequence[Row], path: Path) -> None:
    """A picture: for each op the ratio to the best peer over the time of the peer, a point a case."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    by_op: dict[str, list[Row]] = {}
    for row in rows:
        if row.doors() and row.peers():
            by_op.setdefault(re.split(r" (?=[\w/]*\d)", row.name)[0], []).append(row)
    columns = 6
    lines = -(-len(by_op) // columns)
    figure, axes = pyplot.subplots(
        lines,
        columns,
        figsize=(3 * columns, 2.2 * lines),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for panel in axes.flat[len(by_op) :]:
        panel.axis("off")
    for panel, (op, own) in zip(axes.flat, by_op.items(), strict=False):
        panel.axhline(1, color="0.6", linewidth=0.8)
        for slower, label, color, marker in ((False, "faster", "#0072b2", "o"), (True, "slower", "#d55e00", "^")):
            shown = [row for row in own if (row.ratio > 1) == slower]
            peers = [min(row.peers().values()) for row in shown]
            panel.scatter(peers, [row.ratio for row in shown], s=8, c=color, marker=marker, label=f"mlaot is {label}")
        panel.set(xscale="log", yscale="log", title=op)
    for panel in axes.flat[max(len(by_op) - columns, 0) : len(by_op)]:  # the last of each column
        panel.tick_params(labelbottom=True)
    figure.suptitle("Time of a call, beside the best other runtime")
    figure.supxlabel("time of the best other runtime (µs)")
    figure.supylabel("time of mlaot, as a share of it")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper right")
    figure.savefig(path)


def read(path: str) -> list[Row]:
    return [Row(**row) for row in json.loads(Path(path).read_text())["rows"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="the cases whose names match")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th case from the I-th on")
    parser.add_argument("--doors", default="nn,onnx,torch", help="of nn, onnx and torch")
    parser.add_argument("--peers", default="ort,openvino", help="beside torch, of ort and openvino")
    parser.add_argument("--worst", type=int, default=25, help="rows of each table")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--json", metavar="FILE", help="keep the results there")
    parser.add_argument("--before", metavar="FILE", help="show how ratios changed since these results")
    parser.add_argument("--read", metavar="FILE", help="show these results; measure nothing")
    parser.add_argument("--picture", metavar="FILE", help="draw an SVG of the results")
    options = parser.parse_args()
    try:
        chosen_names = re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only!r} is no regular expression: {error}")
    before = {row.name: row for row in read(options.before)} if options.before else {}
    if options.read:
        rows = read(options.read)
    else:
        part, parts = map(int, options.part.split("/"))
        chosen = [case for case in cases() if chosen_names.search(case.name)][part::parts]
        if options.list:
            out("\n".join(case.name for case in chosen))
            out(len(chosen), "cases")
            return
        rows = sweep(chosen, options)
    show(rows, before, options.worst)
    if options.picture:
        draw(rows, Path(options.picture))


def make_runtime(folder: Path) -> None:
    """Compile what all modules share, and let imports find it."""
    write(runtime_files(RUNTIME), folder)
    compile_module(folder, RUNTIME, (), folder / f"{RUNTIME}.abi3.so", find_toolchain())
    sys.path.append(str(folder))


def sweep(chosen: Sequence[Case], options: argparse.Namespace) -> list[Row]:
    """Run cases; keep the results as they come."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        make_runtime(Path(folder))
        return run_all(chosen, options)


def run_all(chosen: Sequence[Case], options: argparse.Namespace) -> list[Row]:
    import torch

    torch.set_num_threads(1)
    one_core()
    os.environ.pop("MLAOT_CACHE", None)  # equal kernels of doors are compiled once
    machine, rows = measure(), list[Row]()
    doors, peers = ([name for name in text.split(",") if name] for text in (options.doors, options.peers))
    for number, case in enumerate(chosen, 1):
        row = run(case, doors, peers, machine, chosen_isas())
        rows.append(row)
        times_text = "  ".join(f"{name} {us:.2f}" for name, us in row.us.items())
        failed = "".join(f"  {name}: {text}" for name, text in row.failures.items())
        print(f"{number}/{len(chosen)} {row.name}: {times_text}  ratio {row.ratio:.2f}{failed}", file=sys.stderr)
        if options.json:
            kept = [row.__dict__ for row in rows]
            Path(options.json).write_text(json.dumps({"isa": os.environ.get("MLAOT_ISA", ""), "rows": kept}, indent=1))
    return rows


if __name__ == "__main__":
    main()
