"""Training modules: fused steps, the verbs, parameters and their files."""

from __future__ import annotations

import gc
import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest

from .models import load

X = np.array([[1, 2, 3], [3, 2, 1], [0.5, -1, 2]])
LABEL = np.array([0, 1, 1], np.int32)
W = np.array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]])


def reference(w: Any, scale: float) -> tuple[Any, float, Any, float]:
    """Scores, loss and gradients in NumPy."""
    scores = X @ w * scale
    rows = np.arange(len(X))
    error = scores[rows, LABEL] - 1
    grad_scores = np.zeros_like(scores)
    grad_scores[rows, LABEL] = 2 * error / len(X)
    return scores, float((error**2).mean()), X.T @ grad_scores * scale, float((grad_scores * (X @ w)).sum())


def test_forward_and_loss(fit: ModuleType) -> None:
    """The entries give the reference's numbers."""
    scores, loss, _, _ = reference(W, 1)
    np.testing.assert_allclose(fit.forward(X), scores)
    assert fit.loss(X, LABEL) == pytest.approx(loss)
    assert type(fit.loss(X, LABEL)) is float
    assert fit.loss(X[0], 0) == pytest.approx((scores[0, 0] - 1) ** 2)


def test_train_step(fit: ModuleType) -> None:
    """One fused step gives the loss before the update and moves the parameters; lr has a default."""
    _, loss, grad_w, grad_scale = reference(W, 1)
    assert fit.train_step(X, LABEL) == pytest.approx(loss)
    np.testing.assert_allclose(fit.parameters["w"], W - 0.1 * grad_w)
    assert float(fit.parameters["scale"]) == pytest.approx(1 - 0.1 * grad_scale)
    model = fit.Model()
    for lr in (0.5, np.float32(0.5), np.array(0.5), 1):
        assert model.train_step(X, label=LABEL, lr=lr) > 0
    assert fit.Model().train_step(X, LABEL, 0) == pytest.approx(loss)
    with pytest.raises(TypeError, match="train_step: lr: expected float64, got str"):
        fit.train_step(X, LABEL, lr="x")
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        fit.train_step(X, LABEL, out=X)


def test_verbs_are_the_step(fit: ModuleType) -> None:
    """set_input, forward, backward and update in turn do what train_step does."""
    scores, loss, grad_w, grad_scale = reference(W, 1)
    assert fit.set_input(X, LABEL) is None
    np.testing.assert_allclose(fit.forward(), scores)
    assert fit.loss() == pytest.approx(loss)
    assert fit.backward() is None
    np.testing.assert_allclose(fit.gradients["w"], grad_w)
    assert float(fit.gradients["scale"]) == pytest.approx(grad_scale)
    assert fit.update(lr=0.1) is None
    other = fit.Model()
    other.train_step(X, LABEL)
    np.testing.assert_allclose(fit.parameters["w"], other.parameters["w"])
    fit.zero_grad()
    assert not np.asarray(fit.gradients["w"]).any() and not np.asarray(fit.flat_gradients).any()


def test_gradients_accumulate(fit: ModuleType) -> None:
    """backward() adds; a second one without forward() computes the forward phase itself."""
    _, _, grad_w, _ = reference(W, 1)
    fit.set_input(X, LABEL)
    fit.forward()
    fit.backward()
    fit.backward()
    np.testing.assert_allclose(fit.gradients["w"], 2 * grad_w)
    fit.update()
    fit.zero_grad()
    fit.backward()
    _, _, moved, _ = reference(np.asarray(fit.parameters["w"]), float(fit.parameters["scale"]))
    np.testing.assert_allclose(fit.gradients["w"], moved)


def test_phases_in_one_piece(libraries: dict[str, Path], fit: ModuleType) -> None:
    """The verbs mean the same where the backward phase is no kernel of its own."""
    whole = load(libraries["whole"])
    assert not hasattr(whole, "train_step")
    for model in (fit, whole):
        for _ in range(3):
            model.set_input(X, LABEL)
            model.forward()
            model.backward()
            model.backward()
            model.update(lr=0.01)
    assert bytes(whole.flat_parameters) == bytes(fit.flat_parameters)
    assert bytes(whole.flat_gradients) == bytes(fit.flat_gradients)
    assert whole.forward().tolist() == fit.forward().tolist()
    assert whole.loss() == fit.loss()


def test_verbs_on_one_example(fit: ModuleType) -> None:
    """Without the batch axis the held outputs lack it too; inputs are copied."""
    x = X[0].copy()
    fit.set_input(x, 0)
    x[:] = 99
    np.testing.assert_allclose(fit.forward(), X[0] @ W)
    fit.set_input(X[::-1], LABEL[::-1])
    np.testing.assert_allclose(fit.forward(), X[::-1] @ W)
    fit.set_input([[1, 2, 3]], [0])
    assert fit.forward().shape == (1, 2)


def test_verbs_in_wrong_order(fit: ModuleType) -> None:
    """The message names the call that is missing."""
    for call, message in (
        (fit.forward, "^forward: call set_input first$"),
        (fit.loss, "^loss: call set_input first$"),
        (fit.backward, "^backward: call set_input and forward first$"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    fit.set_input(X, LABEL)
    with pytest.raises(ValueError, match=r"^backward: call forward first$"):
        fit.backward()
    _, loss, _, _ = reference(W, 1)
    assert fit.loss() == pytest.approx(loss)  # computes what forward() would
    fit.backward()


def state(module: Any) -> bytes:
    """Everything that must not change on an error."""
    return bytes(module.flat_parameters) + bytes(module.flat_gradients)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.train_step(X, [0, 1, 2]),
        lambda m: m.train_step(X, [0, 1, -1]),
        lambda m: m.train_step(X, LABEL.astype(np.int64)),
        lambda m: m.train_step(X, LABEL.astype(np.uint32)),
        lambda m: m.train_step(X, LABEL[:2]),
        lambda m: m.train_step(X.astype(np.float32), LABEL),
        lambda m: m.train_step(X[:, :2], LABEL),
        lambda m: m.train_step(X, LABEL, None),
        lambda m: m.train_step(X, LABEL, 0.1, 0.2),
        lambda m: m.train_step(X[:0], LABEL[:0]),
        lambda m: m.train_step([[1, 2, 3], [1, 2]], [0, 1]),
        lambda m: m.set_input(X, [0, 1, 5]),
        lambda m: m.set_input(X[:0], LABEL[:0]),
        lambda m: m.set_input(X),
        lambda m: m.loss(X[:0], LABEL[:0]),
        lambda m: m.update("a"),
        lambda m: m.load("/nonexistent/file"),
    ],
)
def test_errors_leave_the_state_alone(fit: ModuleType, call: Callable[[Any], Any]) -> None:
    """A refused call changes neither parameters nor gradients nor what set_input stored."""
    fit.set_input(X[0], 0)
    before = state(fit), fit.forward().tolist()
    with pytest.raises((TypeError, ValueError, FileNotFoundError)):
        call(fit)
    assert (state(fit), fit.forward().tolist()) == before


def test_inputs_that_look_into_the_model(fit: ModuleType) -> None:
    """A parameter as input is copied first; as output it is refused."""
    column = fit.flat_parameters  # 9 numbers: not the shape, but a view of it is
    x = np.asarray(column)[:3]
    assert fit.train_step(x, 0, 0.1) == pytest.approx((0.1**2 + 0.2**2 + 0.3**2 - 1) ** 2)
    with pytest.raises(ValueError, match="overlaps the model's memory"):
        fit.forward(X[0], out=np.asarray(column)[:2])
    assert fit.Model().forward(X[0], out=np.asarray(column)[:2]) is not None  # another model's memory is just memory


def test_parameters(fit: ModuleType) -> None:
    """Mappings are read-only, the Arrays in them are not; instances share nothing."""
    assert isinstance(fit.parameters, MappingProxyType)
    assert list(fit.parameters) == ["w", "scale"]
    model = fit.Model()
    assert model.parameters is model.parameters
    np.asarray(model.parameters["w"])[:] = 0
    model.parameters["scale"][()] = 2.5
    assert model.forward(X[0]).tolist() == [0, 0]
    assert fit.parameters["w"].tolist() == W.tolist()
    assert float(fit.Model().parameters["scale"]) == 1
    assert model.flat_parameters.shape == (9,)
    assert model.flat_parameters[8] == 2.5
    for name in ("parameters", "gradients", "flat_parameters", "flat_gradients"):
        with pytest.raises(AttributeError):
            setattr(model, name, None)


def test_scalar_parameters(fit: ModuleType) -> None:
    """data(i) and grad(i) follow the order of the source model."""
    assert [fit.data(i) for i in range(7)] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0]
    fit.set_input(X, LABEL)
    fit.forward()
    fit.backward()
    _, _, grad_w, grad_scale = reference(W, 1)
    np.testing.assert_allclose([fit.grad(i) for i in range(7)], [*grad_w.T.ravel(), grad_scale])
    for i in (-1, 7, 2**70):
        with pytest.raises(IndexError):
            fit.data(i)
    with pytest.raises(TypeError):
        fit.grad(1.0)
    assert "scalars" not in fit.info()


def test_safetensors_package(fit: ModuleType, tmp_path: Path) -> None:
    """The safetensors package reads our files and we read its."""
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "w.safetensors"
    fit.save(path)
    tensors = numpy.load_file(path)
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {"w": W.tolist(), "scale": 1.0}
    numpy.save_file({"w": W * 2, "scale": np.array(3.0)}, path, metadata={"by": "test"})
    fit.load(path)
    assert fit.parameters["w"].tolist() == (W * 2).tolist()
    assert float(fit.parameters["scale"]) == 3


HEAD = {
    "w": {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]},
    "scale": {"dtype": "F64", "shape": [], "data_offsets": [48, 56]},
}


def tensors_file(change: Callable[[dict[str, Any]], Any] = lambda head: None, data: bytes = bytes(56)) -> bytes:
    """A safetensors file with something wrong in it."""
    head = json.loads(json.dumps(HEAD))
    changed = change(head)
    text = json.dumps(head if changed is None else changed).encode()
    return struct.pack("<Q", len(text)) + text + data


BAD_FILES = [
    (b"", "cut short: 0 bytes"),
    (b"\1\0\0", "cut short: 3 bytes"),
    (struct.pack("<Q", 2**63) + b"{}", "cut short"),
    (struct.pack("<Q", 2**64 - 1) + b"{}", "cut short"),
    (struct.pack("<Q", 3) + b"{}", "cut short"),
    (struct.pack("<Q", 2) + b"{x", "Expecting"),
    (struct.pack("<Q", 2) + b"\xff\xfe", "its head is no JSON: 'utf-8' codec"),
    (struct.pack("<Q", 4) + "{}".encode("utf-16-le"), "its head is no JSON: "),
    (struct.pack("<Q", 5) + b"\xef\xbb\xbf{}", "its head is no JSON: "),
    (struct.pack("<Q", 9004) + b'{"":' + b"1" * 9000, "its head is no JSON: "),
    (struct.pack("<Q", 2) + b"[]", "its head is no JSON object"),
    (struct.pack("<Q", 200000) + b"[" * 200000, "its head is no JSON: maximum recursion"),
    (struct.pack("<Q", 2) + b"{}", "expected a tensor w"),
    (tensors_file(lambda h: h.pop("scale") and None), "expected a tensor scale"),
    (tensors_file(lambda h: h.update(more=h["w"])), ": more is no tensor of this model"),
    (tensors_file(lambda h: h.update({"ü": 1})), ": ü is no tensor of this model"),
    (tensors_file(lambda h: h.update(__metadata__=["a"])), "__metadata__: expected texts by name, got ['a']"),
    (tensors_file(lambda h: h.update(__metadata__={"a": 1})), "__metadata__: expected texts by name, got {'a': 1}"),
    (tensors_file(lambda h: h["scale"].update(data_offsets=[True, 9])), "scale: expected 8 bytes"),
    (tensors_file(lambda h: h["w"].update(dtype="F32")), "w: expected F64[3, 2], got {'dtype': 'F32'"),
    (tensors_file(lambda h: h["w"].update(dtype=None)), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h["w"].pop("dtype") and None), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h["w"].update(shape=[2, 3])), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h["w"].update(shape=[3, 2, 1])), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h["w"].update(shape=[3.0, 2])), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h["w"].update(shape=[2**64 + 3, 2])), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h.update(w=[1])), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h.update(w=None)), "w: expected F64[3, 2]"),
    (tensors_file(lambda h: h["w"].update(data_offsets=[0, 40])), "w: expected 48 bytes"),
    (tensors_file(lambda h: h["w"].update(data_offsets=[16, 64])), "w: expected 48 bytes"),
    (tensors_file(lambda h: h["w"].update(data_offsets=[-8, 40])), "w: expected 48 bytes"),
    (tensors_file(lambda h: h["w"].update(data_offsets=[2**70, 2**70 + 48])), "w: expected 48 bytes"),
    (tensors_file(lambda h: h["w"].update(data_offsets=[-(2**63) - 9, 2**63])), "w: expected 48 bytes"),
    (tensors_file(lambda h: h["w"].update(data_offsets="0")), "w: expected 48 bytes"),
    (tensors_file(lambda h: h["scale"].update(data_offsets=[0, 8])), "w and scale overlap"),
    (tensors_file(data=bytes(55)), "scale: expected 8 bytes inside a file with 55"),
    (tensors_file(data=bytes(57)), "expected 56 bytes of data, got 57"),
]


@pytest.mark.parametrize(("data", "message"), BAD_FILES)
def test_bad_files(fit: ModuleType, tmp_path: Path, data: bytes, message: str) -> None:
    """A file that is not exactly right changes nothing."""
    path = tmp_path / "w"
    path.write_bytes(data)
    before = state(fit)
    with pytest.raises(ValueError) as info:
        fit.load(path)
    assert str(info.value).startswith(f"load: {path}: ") and message in str(info.value)
    assert type(info.value) is ValueError and state(fit) == before
    path.write_bytes(tensors_file())
    fit.load(path)
    assert not np.asarray(fit.parameters["w"]).any()


def test_model_is_collected(fit: ModuleType) -> None:
    """Instances go away with their last reference."""
    gc.collect()  # modules of other tests, which are in cycles
    before = len([o for o in gc.get_objects() if type(o).__name__ == "Model"])
    models = [fit.Model() for _ in range(5)]
    assert len([o for o in gc.get_objects() if type(o).__name__ == "Model"]) == before + 5
    del models
    assert len([o for o in gc.get_objects() if type(o).__name__ == "Model"]) == before
