"""What a training module saves, a model file reads: every optimizer, layers with buffers, random numbers."""

from __future__ import annotations

import inspect
import json
import random
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.binding.state import saved, tensors_head
from mlaot.errors import MlaotError
from mlaot.generate import compile_model
from mlaot.nn import functional as F
from mlaot.settings.options import Options

from .. import projects
from ..runtime.test_files import damaged

BATCH = mlaot.dim("batch")
OPTIMIZERS = {
    **{n: c for n, c in vars(optim).items() if inspect.isclass(c) and issubclass(c, optim.Optimizer)},
    "momentum": lambda: optim.SGD(momentum=0.9, nesterov=True),
    "amsgrad": lambda: optim.Adam(amsgrad=True),
    "centered": lambda: optim.RMSprop(centered=True, momentum=0.9),
    "scheduled": lambda: optim.Lion(schedule=optim.cosine_annealing_lr(10), clip_grad_norm=1.0),
}
del OPTIMIZERS["Optimizer"]
LAYERS = {
    "plain": lambda: [nn.Linear(4, 8, rng=1), nn.Linear(8, 3, rng=2)],
    "dropout": lambda: [nn.Linear(4, 8, rng=1), nn.Dropout(0.25), nn.Linear(8, 3, rng=2)],
    "normalized": lambda: [nn.Linear(4, 8, rng=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3, rng=2)],
    "both": lambda: [nn.Linear(4, 8, rng=1), nn.BatchNorm1d(8), nn.Dropout(0.25), nn.Linear(8, 3, rng=2)],
}


def model(net: nn.Module, optimizer: Any = None) -> Any:
    """A classifier that trains, or serves only."""

    def forward(x: mlaot.f32[BATCH, 4]) -> Any:
        return net(x)

    def loss(scores: Any, label: mlaot.i64[BATCH]) -> Any:
        return F.cross_entropy(scores, label)

    trained = {} if optimizer is None else {"loss": loss, "optimizer": optimizer}
    return mlaot.model(forward, parameters=net, **trained)


@pytest.mark.parametrize(
    ("optimizer", "layers"), [*((name, "both") for name in OPTIMIZERS), *(("Adam", name) for name in LAYERS)][:-1]
)
def test_all_that_is_saved_can_be_read(optimizer: str, layers: str, tmp_path: Path) -> None:
    """A file of the state at its start: the net's own names come back, nothing of the training; into the net, too."""
    net = nn.Sequential(*LAYERS[layers]())
    module = compile_model(model(net, OPTIMIZERS[optimizer]()), "any.nn", Options(isas=("base",))).module
    head = tensors_head(saved(module)).encode()
    sizes = [tensor["data_offsets"][1] for tensor in json.loads(head).values()]
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(max(sizes)))
    loaded = mlaot.load(path)
    assert loaded.keys() == net.state_dict().keys()
    integers = {name for name, held in loaded.items() if isinstance(held, mlaot.Buffer)}
    assert integers == {name for name in loaded if name.endswith("num_batches_tracked")}
    net.load_state_dict(loaded)
    assert not any(value.any() for value in net.state_dict().values())
    numpy = pytest.importorskip("safetensors.numpy")
    net.load_state_dict(numpy.load_file(path))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module after some steps of Adam with dropout and batch normalization, and its file."""
    folder = tmp_path_factory.mktemp("trained")
    net = nn.Sequential(*LAYERS["both"]())
    module = projects.load(projects.build_module(model(net, optim.Adam(lr=0.01)), "trained", folder, ("base",)))
    rng = np.random.default_rng(0)
    for _ in range(20):
        module.train_step(rng.normal(size=(6, 4)).astype(np.float32), rng.integers(0, 3, 6))
    module.save(folder / "weights.safetensors")
    return module, folder / "weights.safetensors"


def test_a_frozen_module_gives_the_same_answers(trained: Any, tmp_path: Path) -> None:
    """Of layers that took the arrays, and of NumPy functions of the arrays themselves."""
    module, path = trained
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    expected = np.asarray(module.forward(x))
    net = nn.Sequential(*LAYERS["both"]())
    assert np.abs(np.asarray(net(x)) - expected).max() > 0.01
    net.load_state_dict(mlaot.load(path))
    np.testing.assert_allclose(np.asarray(net(x)), expected, atol=1e-6)
    w = mlaot.load(path)

    @mlaot.model(parameters={"net": net, **w})
    def served(x: mlaot.f32[BATCH, 4]) -> Any:
        h = x @ w["0.weight"].T + w["0.bias"]
        h = (h - w["1.running_mean"]) / np.sqrt(w["1.running_var"] + np.float32(1e-5)) * w["1.weight"] + w["1.bias"]
        return {"layers": net(x), "numpy": h @ w["3.weight"].T + w["3.bias"], "steps": w["1.num_batches_tracked"] + 0}

    frozen = projects.load(projects.build_module(served, "served", tmp_path, ("base",)))
    layers, own, steps = frozen.forward(x).values()
    np.testing.assert_allclose(np.asarray(layers), expected, atol=1e-6)
    np.testing.assert_allclose(np.asarray(own), expected, atol=1e-6)
    assert steps.tolist() == 20
    assert not hasattr(frozen, "parameters") and not hasattr(frozen, "buffers")


def file_of(path: Path, head: str, data: bytes = bytes(8)) -> Path:
    """A safetensors file."""
    path.write_bytes(struct.pack("<Q", len(head)) + head.encode() + data)
    return path


def test_dtypes(tmp_path: Path) -> None:
    """Each as itself, bfloat16 too, and empty arrays and single numbers."""
    head = (
        '{"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"t":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]},'
        '"u":{"dtype":"U8","shape":[1,3],"data_offsets":[5,8]},"e":{"dtype":"F64","shape":[0,2],"data_offsets":[8,8]}}'
    )
    loaded = mlaot.load(file_of(tmp_path / "file", head, b"\x80\x3f\x40\xc0\x01\x01\x02\x03"))
    assert {name: (type(held), str(held.dtype), held.shape) for name, held in loaded.items()} == {
        "b": (mlaot.Parameter, "bf16", (2,)),
        "t": (mlaot.Buffer, "bool", ()),
        "u": (mlaot.Buffer, "uint8", (1, 3)),
        "e": (mlaot.Parameter, "float64", (0, 2)),
    }
    assert loaded["b"].array.tolist() == [1.0, -3.0] and loaded["u"].array.tolist() == [[1, 2, 3]]


BAD = [
    (lambda path: path.write_bytes(b"1234"), "is not a safetensors file, or damaged: "),
    (lambda path: file_of(path, "{x}"), "is not a safetensors file, or damaged: "),
    (lambda path: file_of(path, "{}"), "is not a safetensors file, or damaged: "),
    (
        lambda path: file_of(path, '{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}'),
        "a: expected an array of",
    ),
    (lambda path: path.mkdir(), "Is a directory"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_files_that_are_refused(tmp_path: Path, make: Any, message: str) -> None:
    """The error names the file and the reason."""
    path = tmp_path / "file"
    make(path)
    if sys.platform == "win32" and path.is_dir():
        pytest.skip("says it otherwise")
    with pytest.raises(MlaotError) as info:
        mlaot.load(path)
    assert str(path) in str(info.value) and message in str(info.value)


def test_damaged_files(tmp_path: Path) -> None:
    """Each is told by its name, or can be read all the same."""
    rng = random.Random(1)
    first, second = ("a", "F32", 4, 0, 16), ("b", "I64", 1, 16, 24)
    rows = {n: {"dtype": d, "shape": [s], "data_offsets": [i, j]} for n, d, s, i, j in (first, second)}
    content = file_of(tmp_path / "good", json.dumps(rows), bytes(24)).read_bytes()
    path, refused = tmp_path / "file", 0
    for _ in range(1000):
        path.write_bytes(damaged(content, rng))
        try:
            mlaot.load(path)
        except MlaotError as error:
            assert str(path) in str(error), error
            refused += 1
    assert refused > 500
