"""The module in plain Python: the same calls as of the compiled one, the same results, the same errors."""

from __future__ import annotations

import array
import copy
import io
import math
import pickle
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.micrograd import MLP, Bytes, Label, Value, cross_entropy, declare
from mlaot.onnx import load as load_onnx
from mlaot.probe.beside import load_file

from .. import projects

Pair = tuple[ModuleType, ModuleType]
X = [[0, 1], [1, 1], [1, 0]]
BATCH = mlaot.dim("batch")
IMAGES = [[3 * i % 17, 5, i, 2 * i % 17, 0, 16] for i in range(11)]
LABELS = [i % 3 for i in range(11)]
# Words of calls: the module, its models, arrays of it; results of some calls are kept under names.
WORDS = {"np": np, "array": array, "copy": copy, "math": math, "pickle": pickle, "X": X, "P": IMAGES, "L": LABELS}


class Reader(nn.Module):  # type: ignore[misc]
    """A network of words: every kind of layer that keeps something, draws or loops."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.words = nn.Embedding(7, 4, rng=rng)
        self.lstm = nn.LSTM(4, 3, batch_first=True, rng=rng)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(3, 2, rng=rng)

    def forward(self, x: Any) -> Any:
        return self.out(self.drop(self.norm(self.lstm(self.words(x))[0][:, -1])))


def reader() -> Any:
    net = Reader(np.random.default_rng(3))
    adam = optim.AdamW(lr=0.02, schedule=optim.cosine_annealing_lr(20), clip_grad_norm=1.0)

    def loss(scores, kind):  # type: ignore[no-untyped-def]
        return nn.functional.cross_entropy(scores, kind)

    def read(x):  # type: ignore[no-untyped-def]
        return net(x)

    for function, types in ((loss, {"kind": mlaot.i64[BATCH]}), (read, {"x": mlaot.i64[BATCH, 5]})):
        function.__annotations__.update(types)
    return mlaot.model(loss=loss, optimizer=adam, parameters=net)(read)


def declared(name: str) -> Any:
    """A network of two inputs and float64 that learns numbers, or of six bytes and float32 that learns labels."""
    if name == "words":
        return reader()
    state = random.getstate()
    random.seed(4)
    net = MLP(2, [3, 1]) if name == "numbers" else MLP(6, [4, 3])
    random.setstate(state)
    if name == "numbers":
        x, y = [Value(0.0), Value(0.0)], Value(0.0)
        return declare(net(x), inputs={"x": x, "y": y}, parameters=net, loss=(net(x) - y) ** 2)
    x, label = [Value(0.0) for _ in range(6)], [Value(0.0) for _ in range(3)]
    scores = net(x)
    inputs = {"x": Bytes(x, scale=16), "label": Label(label)}
    return declare(scores, inputs=inputs, parameters=net, loss=cross_entropy(scores, label), dtype="float32")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """The compiled module of each network, and the one in plain Python."""
    folder = tmp_path_factory.mktemp("python")
    found = {}
    for name in ("numbers", "labels", "words"):
        compiled = projects.load(projects.build_module(declared(name), name, folder / "c", ("base",), golden=True))
        found[name] = compiled, projects.plain_module(declared(name), name, folder, golden=True)
    return found


def near(value: Any) -> Any:
    """Plain data whose floats equal others that are near, as float32 sums may differ in their last digits."""
    if isinstance(value, list):
        return [near(each) for each in value]
    if isinstance(value, dict):
        return {key: near(each) for key, each in value.items()}
    return pytest.approx(value, rel=2e-5, abs=1e-6, nan_ok=True) if isinstance(value, float) else value


def plainly(value: Any) -> Any:
    """A result as plain data."""
    if isinstance(value, tuple | list):
        return [plainly(each) for each in value]
    if isinstance(value, dict):
        return {key: plainly(each) for key, each in value.items()}
    if type(value).__name__ == "Array":
        return [value.dtype, list(value.shape), value.tolist()]
    return value.tolist() if isinstance(value, np.ndarray) else value


def answer(module: ModuleType, call: str, names: dict[str, Any]) -> Any:
    """What a call gives as plain data, or the kind and the words of its error."""
    try:
        return plainly(eval(call, names | {"m": module}, names))
    except Exception as error:
        return [type(error).__name__, str(error)]


# In order, as calls change parameters. Those with `:=` keep their result.
CALLS = """
m.forward(); m.backward(); m.loss(); m.forward("01"); m.forward(None); m.forward({}); m.forward(1.5); m.forward([])
m.forward(range(2)); m.forward([["a", "b"]]); m.forward([np.zeros(2)]); m.forward(z=1); m.forward(X, x=X)
m.forward(X, X); m.forward([[0, 1], [1]]); m.forward([[0, 1, 2]]); m.forward(X); m.forward([0, 1]); m.forward(P)
m.forward(array.array("d", [0, 1])); m.forward(array.array("f", [0, 1])); m.forward(bytes(6)); m.forward([256] * 6)
m.forward(np.zeros((2, 2))); m.forward(np.ones((3, 2))[::-1]); m.forward(np.zeros((2, 2), "f")); m.forward([1.5] * 6)
m.forward(np.zeros((2, 2), ">f8")); m.forward(np.zeros((2, 2), int)); m.forward(np.zeros((0, 2)))
m.forward(np.asfortranarray(np.arange(6.0).reshape(3, 2))); m.forward(np.zeros(2, complex)); m.forward([[10**400, 1]])
m.forward([[math.nan, 1]]); m.forward(np.broadcast_to(np.zeros(2), (2**40, 2))); m.forward(X, out=3)
m.forward(X, out=np.zeros(2)); m.forward(X, out=np.zeros(3, "f")); m.forward(X, out=bytes(24))
(out := np.zeros(3)) is m.forward(X, out=out), out; m.forward(X, out=np.zeros(6)[::2]); m.forward(X, out=None)
m.loss(P, L); m.loss(P, [3] * 11); m.loss([0] * 6, -1); m.loss(P, np.array(L)); m.loss(P, np.array(L, "i4"))
m.loss(X, [1, 0, 1]); m.loss(X, [1]); m.loss(X); m.loss(np.zeros((0, 2)), []); m.train_step(X, [1, 0, 1], lr="a")
m.train_step(X, [1, 0, 1], 0.1); m.train_step(label=L, x=P); m.train_step(P, L, 1e300)
m.fit(X, [1, 0, 1], batch=2, epochs=3, seed=5); m.fit(P, L, 0.05, batch=4, epochs=2); m.fit(P, L, 0.05, batch=1)
m.fit(X, [1, 0, 1], batch=0); m.fit(X, [1, 0, 1], batch=1.5); m.fit(X, [1, 0, 1], shuffle=1)
m.fit(X, [1, 0, 1], seed=-1); m.fit(X, [1, 0, 1], callback=1); m.fit(X, [1, 0]); m.fit([], [])
m.fit(X, [1, 0, 1], epochs=2**62); m.fit(P, [3] * 11); m.fit(P, L, progress=1); m.fit(P, L, progress=True)
(log := []); m.fit(P, L, 0.01, batch=4, epochs=2, callback=lambda *about: log.append(about)); log[-1]
dict(m.parameters); dict(m.gradients); m.flat_parameters.shape; m.flat_gradients.dtype; m.data(0); m.grad(1)
m.data(-1); m.parameters["x"]; m.nothing; m.Model(1); m.Array(); m.set_threads("a"); m.set_threads(-1)
m.set_threads(1); m.__version__; type("X", (m.Model,), {}); type("X", (m.Array,), {}); m.info()["entries"]
sorted(m.info()); list(m.selftest().values())[0] <= 1; m.set_input(X); m.set_input(X, [1, 0, 1]); m.set_input(P, L)
m.forward(); m.loss(); m.backward(); dict(m.gradients); m.backward(); dict(m.gradients); m.update(lr=0.1)
m.update(0.1, 2); m.zero_grad(); dict(m.gradients); m.Model().backward(); m.load("no/such/file")
m.save("no/such/file"); m.save("/"); m.load(__file__); m.Model().__setstate__(b"abc")
(kept := m.Model()).train_step(P, L), pickle.loads(pickle.dumps(kept)).loss(P, L), copy.copy(kept).loss(P, L)
sorted(n for n in dir(m) if n[0] != "_"); m.forward.__name__; m.Model.__doc__
str(__import__("inspect").signature(m.fit)); (a := m.forward(X)); (p := m.parameters["layers.0.neurons.w"]); len(p)
p[0]; p[0, 1]; p[:, 1]; p[1:3, ::-1]; p[..., 0]; p[4]; p[0, 9]; p["x"]; p[1.0]; p[..., ...]; p[0, 0, 0]; p[()]
p.item(); float(p); bool(p[:1, :1]); repr(p[0]); p.nbytes; p.__setitem__(0, 9); p; p.__setitem__(slice(None), p[::-1])
p; p.__setitem__(0, [1]); p.__setitem__(0, "x"); p; p.__setitem__((slice(None), 0), np.array([1.0])); p
p.__setitem__(..., 10**400); np.asarray(p); bytes(p) == np.asarray(p).tobytes(); np.asarray(p).__setitem__((0, 0), 5)
p[0, 0]; copy.deepcopy(p); m.Array._restore("float32", (2,), b"123"); m.forward(p[:2, :2]); p[0].__delitem__(0)
len(p[0, :1][...]); p.__dlpack_device__(); m.Array._restore("float32", (2,), bytes(8)); list(p[0])
"""


@pytest.mark.parametrize("name", ["numbers", "labels"])
def test_both_modules_answer_alike(name: str, pairs: dict[str, Pair]) -> None:
    compiled, plain = pairs[name]
    names: tuple[dict[str, Any], dict[str, Any]] = ({**WORDS, "__file__": __file__}, {**WORDS, "__file__": __file__})
    for call in CALLS.replace("\n", "; ").split("; "):
        if call.strip():
            expected, found = (answer(m, call, own) for m, own in zip((compiled, plain), names, strict=True))
            assert found == near(expected), call


def test_optimizers_buffers_and_draws(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """Dropout draws alike; statistics, moments and the step of the schedule go on as they do compiled."""
    words, kinds = np.arange(40).reshape(8, 5) * 3 % 7, np.arange(8) % 2
    models = [module.Model() for module in pairs["words"]]
    for step in range(4):
        expected, found = (model.train_step(words, kinds) for model in models)
        assert found == pytest.approx(expected, rel=1e-4), step
    compiled, plain = models
    assert [model.fit(words, kinds, batch=4, seed=1) for model in models[1:]] == near(
        [compiled.fit(words, kinds, batch=4, seed=1)]
    )
    for name, array_ in compiled.buffers.items():
        np.testing.assert_allclose(plain.buffers[name].tolist(), array_.tolist(), rtol=1e-4, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(plain.forward(words).tolist(), compiled.forward(words).tolist(), rtol=1e-3, atol=1e-5)
    plain.save(tmp_path / "w")
    compiled.load(tmp_path / "w")
    assert compiled.train_step(words, kinds) == pytest.approx(plain.train_step(words, kinds), rel=1e-4)
    with pytest.raises(ValueError, match=r"forward: x\[1, 2\]: expected values from .* to 6, got 9"):
        plain.forward([[0] * 5, [0, 0, 9, 0, 0]])


def test_a_session_of_an_onnx_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    ports = [onnx.helper.make_tensor_value_info(f"{name}.0", onnx.TensorProto.FLOAT, ["N", 2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x.0"], ["y.0"])], "g", ports[:1], ports[1:])
    opset = [onnx.helper.make_opsetid("", 20)]
    (tmp_path / "abs.onnx").write_bytes(onnx.helper.make_model(graph, opset_imports=opset).SerializeToString())
    session = projects.plain_module(load_onnx(tmp_path / "abs.onnx"), "abs", tmp_path).InferenceSession("abs.onnx")
    assert [vars(port) for port in session.get_inputs()] == [
        {"name": "x.0", "shape": ["N", 2], "type": "tensor(float)"}
    ]
    (found,) = session.run(None, {"x.0": np.array([[-1, 2]], np.float32)})
    assert isinstance(found, np.ndarray) and found.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match=r"no value for the input 'x\.0'"):
        session.run(["y.0"], {})
    with pytest.raises(TypeError, match=r"run\(\) is missing the argument 'input_feed'"):
        session.run(None)


def test_what_a_module_is_and_is_not(pairs: dict[str, Pair]) -> None:
    """It says that it is Python; memory is shown to NumPy, to others from Python 3.12 on, and never by DLPack."""
    plain = pairs["numbers"][1]
    assert plain.info()["isa"] == "python" and plain.info()["isas"] == ["python"]
    assert "plain Python" in (plain.__doc__ or "") and "slow" in (plain.__doc__ or "")
    out = plain.forward(X)
    with pytest.raises(BufferError, match=r"plain Python has no DLPack; pass numpy.asarray\(array\)"):
        out.__dlpack__()
    assert np.shares_memory(np.asarray(out), np.asarray(out))
    if sys.version_info >= (3, 12):
        assert memoryview(out).tolist() == out.tolist()
    assert plain.set_threads(0) == 1


def test_files_are_the_same(pairs: dict[str, Pair], tmp_path: Path) -> None:
    """Either module reads what the other wrote."""
    compiled, plain = (module.Model() for module in pairs["labels"])
    compiled.train_step(IMAGES, LABELS, 0.1)
    compiled.save(tmp_path / "w")
    plain.load(tmp_path / "w")
    plain.save(tmp_path / "again")
    assert (tmp_path / "w").read_bytes() == (tmp_path / "again").read_bytes()
    damaged = io.BytesIO((tmp_path / "w").read_bytes()).read(100)
    (tmp_path / "w").write_bytes(damaged)
    messages = []
    for model in (compiled, plain):
        with pytest.raises(ValueError, match="load: ") as error:
            model.load(tmp_path / "w")
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_another_instruction_set_is_refused(pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_ISA", "v3")
    with pytest.raises(ImportError, match="expected MLAOT_ISA to be one of python, got 'v3'"):
        load_file("numbers.nn", Path(pairs["numbers"][1].__file__ or ""))
