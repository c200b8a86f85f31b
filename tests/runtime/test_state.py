"""State that is no parameter: buffers, and what an optimizer keeps."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest


def test_frozen_model_with_buffers(cache: ModuleType) -> None:
    """Buffers make a module stateful; it has no gradients."""
    assert (cache.push([1, 2]), cache.push([10, 20])) == (1, 2)
    assert cache.forward().tolist() == [11, 22]
    model = cache.Model()
    assert model.forward().tolist() == [0, 0]
    assert model.push([3, 4]) == 1
    assert cache.clear() is None
    assert (cache.forward().tolist(), model.forward().tolist()) == ([0, 0], [3, 4])
    for name in ("parameters", "gradients", "flat_parameters", "zero_grad", "set_input", "update"):
        assert not hasattr(cache, name) and not hasattr(model, name)
    assert cache.Model.__doc__ == "An instance with buffers of its own."
    assert cache.save.__doc__ == "Write the buffers as safetensors."


def test_buffers_are_views(cache: ModuleType) -> None:
    """A read-only mapping; the Arrays in it look into the model, as parameters do."""
    assert isinstance(cache.buffers, MappingProxyType)
    assert list(cache.buffers) == ["rows", "position", "table", "half"]
    model = cache.Model()
    model.push([1, 2])
    assert model.buffers["rows"].tolist() == [[1, 2], [0, 0], [0, 0], [0, 0]]
    assert model.buffers["position"].item() == 1
    np.asarray(model.buffers["rows"])[3] = 5
    model.buffers["position"][()] = 2
    assert model.push([1, 1]) == 3
    assert model.forward().tolist() == [7, 8]
    assert cache.buffers["rows"].tolist() == [[0, 0]] * 4
    assert model.buffers["half"].tolist() == [[1, 2], [3, 4]]
    assert np.asarray(model.buffers["half"]).dtype == np.float16
    np.testing.assert_array_equal(np.from_dlpack(model.buffers["half"]), [[1, 2], [3, 4]])
    with pytest.raises(AttributeError):
        model.buffers = None
    with pytest.raises(ValueError, match="overlaps the model's memory"):
        model.forward(out=np.asarray(model.buffers["rows"]).T[0, :2])


def test_bfloat16(cache: ModuleType) -> None:
    """No buffer, but numbers and DLPack; setting rounds to the nearest, halves to even."""
    table = cache.Model().buffers["table"]
    assert (table.dtype, table.nbytes, table.shape) == ("bfloat16", 6, (3,))
    assert table.tolist() == [1.0, -3.0, np.inf]
    assert repr(table) == "Array([1.0, -3.0, inf], bfloat16)"
    for call in (memoryview, bytes):
        with pytest.raises(BufferError, match=r"^no buffer can hold bfloat16; use DLPack, or tolist\(\)$"):
            call(table)
    for value, rounded in (
        (1.00390625, 1.0),  # halfway: to even
        (1.01171875, 1.015625),
        (1.003907, 1.0078125),
        (1e-40, 2**-133),
        (2e-41, 0.0),
        (-3.3895313892515355e38, -3.3895313892515355e38),
    ):
        table[1] = value
        assert table[1] == pytest.approx(rounded, rel=1e-2 if rounded == 2**-133 else 0)
    with pytest.raises(ValueError, match=r"expected bfloat16, got 3\.4e\+38"):
        table[1] = 3.4e38
    with pytest.raises(TypeError, match="expected bfloat16, got str"):
        table[1] = "a"
    torch = pytest.importorskip("torch")
    seen = torch.from_dlpack(table)
    assert (seen.dtype, seen.tolist()[::2]) == (torch.bfloat16, [1.0, float("inf")])


def head_of(path: Path) -> dict[str, Any]:
    """The JSON head of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    head: dict[str, Any] = json.loads(data[8 : 8 + size])
    return head


def test_buffers_in_files(cache: ModuleType, tmp_path: Path) -> None:
    """All dtypes of the state come back to the bit."""
    path = tmp_path / "state"
    cache.push([1, 2])
    cache.buffers["table"][0] = 0.5
    cache.save(path)
    head = head_of(path)
    assert {name: (tensor["dtype"], tensor["shape"]) for name, tensor in head.items()} == {
        "rows": ("F32", [4, 2]),
        "position": ("I64", []),
        "table": ("BF16", [3]),
        "half": ("F16", [2, 2]),
    }
    model = cache.Model()
    model.load(path)
    assert {name: b.tolist() for name, b in model.buffers.items()} == {n: b.tolist() for n, b in cache.buffers.items()}
    assert model.push([0, 0]) == 2
    cache.clear()
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {"rows": np.ones((4, 2), "f"), "position": np.array(3), "half": np.zeros((2, 2), np.float16)}
    numpy.save_file(tensors, path)
    with pytest.raises(ValueError, match=rf"^load: {path}: expected a tensor table, got a file without it$"):
        model.load(path)
    assert model.push([0, 0]) == 3


def state(module: Any) -> Any:
    """What the optimizer does next shows its state."""
    return module.parameters["w"].tolist(), module.buffers["count"].item()


def moved(model: Any) -> Any:
    """The parameters after a step with the gradient 0: before, plus the moment."""
    before = np.asarray(model.parameters["w"]).copy()
    model.train_step([0, 0])
    return (np.asarray(model.parameters["w"]) - before).tolist()


def test_optimizer_state(momentum: ModuleType, tmp_path: Path) -> None:
    """A file has parameters, buffers and the optimizer's state; training goes on from there."""
    path = tmp_path / "state"
    assert momentum.train_step([1, 1]) == 1
    assert state(momentum) == ([2.5, 3.25], 1)
    momentum.save(path)
    assert list(head_of(path)) == ["w", "count", "optimizer.m.w", "optimizer.step"]
    assert head_of(path)["count"]["dtype"] == "U32"
    model = momentum.Model()
    assert list(model.parameters) == ["w"] and list(model.buffers) == ["count"]
    assert model.flat_parameters.shape == (2,)
    model.load(path)
    assert state(model) == state(momentum)
    assert moved(model) == [1.5, 1.25]
    assert model.seen() == 2 and type(model.seen()) is int
    saves = "the parameters, the buffers and the optimizer's state"
    assert momentum.save.__doc__ == f"Write {saves} as safetensors."
    info = momentum.info()
    assert (info["parameters"], info["buffers"]) == ({"w": "float32[2]"}, {"count": "uint32"})
    assert info["optimizer_state"] == {"m.w": "float32[2]", "step": "int64"}
    assert info["parameter_count"] == 2


def test_files_without_optimizer_state(momentum: ModuleType, tmp_path: Path) -> None:
    """A file without the optimizer's state starts it anew; one with a part of it is refused, as is anything else."""
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "state"
    momentum.train_step([1, 1])
    weights = {"w": np.array([7, 8], "f"), "count": np.array(5, np.uint32)}
    kept = {"optimizer.m.w": np.array([3, 3], "f"), "optimizer.step": np.array(1)}
    for extra, message in (
        ({"optimizer.m.w": kept["optimizer.m.w"]}, "expected a tensor optimizer.step, got a file without it, but with"),
        (
            {"optimizer.step": kept["optimizer.step"]},
            "expected a tensor optimizer.m.w, got a file without it, but with",
        ),
        ({"optimizer.v": kept["optimizer.m.w"]}, "optimizer.v is no tensor of this model"),
        (kept | {"optimizer.v": np.zeros(1)}, "optimizer.v is no tensor of this model"),
        (kept | {"optimizer.step": np.array(1.0)}, ": optimizer.step: expected I64, got"),
    ):
        numpy.save_file(weights | extra, path)
        with pytest.raises(ValueError) as info:
            momentum.load(path)
        assert message in str(info.value)
        assert state(momentum) == ([2.5, 3.25], 1)
    numpy.save_file({"w": weights["w"]} | kept, path)
    with pytest.raises(ValueError, match=rf"^load: {path}: expected a tensor count, got a file without it$"):
        momentum.load(path)
    assert moved(momentum) == [1.5, 1.25]
    numpy.save_file(weights, path)
    momentum.load(path)
    assert state(momentum) == ([7, 8], 5)
    assert moved(momentum) == [0.5, 0.25]  # the moment at its start
    numpy.save_file(weights | kept, path)
    momentum.load(path)
    assert moved(momentum) == [3, 3]


def test_verbs_and_buffers(momentum: ModuleType) -> None:
    """forward() leaves buffers alone, backward() moves them once; zero_grad() touches gradients only."""
    momentum.set_input([[1, 2], [3, 4]])
    assert momentum.forward().tolist() == [[1, 4], [3, 8]]
    assert (momentum.loss(), momentum.seen(), momentum.gradients["w"].tolist()) == (2, 0, [0, 0])
    momentum.backward()
    assert (momentum.seen(), momentum.gradients["w"].tolist()) == (1, [4, 6])
    momentum.update()
    assert momentum.parameters["w"].tolist() == [5.5, 8.25]
    momentum.zero_grad()
    assert (momentum.seen(), momentum.gradients["w"].tolist()) == (1, [0, 0])
    assert moved(momentum) == [4.5, 6.25]


def test_refused_calls_leave_buffers_alone(momentum: ModuleType) -> None:
    """Nothing is counted that was not computed."""
    for wrong in ([1], [[1, "2"]], np.zeros((0, 2), np.float32), np.zeros((1, 2))):
        with pytest.raises((TypeError, ValueError)):
            momentum.train_step(wrong)
    assert state(momentum) == ([1, 2], 0)


def test_threads_share_buffers(cache: ModuleType) -> None:
    """Calls that write buffers do not interleave."""
    model = cache.Model()

    def push() -> None:
        for _ in range(2000):
            model.push([1, 2])

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.buffers["position"].item() == 16000
