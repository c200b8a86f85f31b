"""Adapters: what they add, their gradients, what trains beside them and what does not, their files."""

from __future__ import annotations

import copy
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import mlaot
import mlaot.nn.functional as F
from mlaot import nn
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.files import python_files
from mlaot.frontend.trace.declaration import Declaration, Traced
from mlaot.generate import compile_model
from mlaot.ir.graph import Graph
from mlaot.ir.module import Module
from mlaot.optim import SGD, AdamW
from mlaot.passes import run
from mlaot.probe.beside import load_file as load_module
from mlaot.settings.options import DEFAULTS, Options

from .projects import EXAMPLES, build_module, load

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
batch = mlaot.dim("batch")
draw = np.random.default_rng(5)
X, Y = draw.normal(size=(6, 7)), draw.normal(size=(6, 5))


def squares(y: Any, wanted: mlaot.f64[batch, 5]) -> Any:
    return ((y - wanted) ** 2).mean()


def declared(function: Callable[[Any], Any], **weights: Array) -> Declaration:
    """A model of x [batch, 7] that trains weights of these names."""
    held = {name: mlaot.Parameter(name, array) for name, array in weights.items()}

    def model(x: Any) -> Any:
        return function(x, **held)

    model.__annotations__ = {"x": mlaot.f64[batch, 7]}
    return mlaot.model(model, loss=squares, parameters=held)


def moved(traced: Traced) -> Arrays:
    """The parameters of an adapted model, with B that is not zeros."""
    return {name: array + draw.normal(size=array.shape) for name, array in traced.parameters.items()}


def slots(traced: Traced) -> Arrays:
    return traced.parameters | traced.constants | traced.buffers


W, V, TABLE = draw.normal(size=(5, 7)), draw.normal(size=(7, 5)), draw.normal(size=(9, 5))
# A way to read a weight, which axis of it is that of the inputs, and what it gives in NumPy.
READS: dict[str, tuple[Any, int, Array]] = {
    "linear": (lambda x, w: F.linear(x, w), 1, W),
    "product": (lambda x, w: x @ w, 0, V),
    "product from the left": (lambda x, w: (w @ x.T).T, 1, W),
    "einsum": (lambda x, w: np.einsum("bi,oi->bo", x, w), 1, W),
    "einsum with a sum of the weight": (lambda x, w: np.einsum("bi,ij->b", x, w)[:, None] + np.zeros(5), 1, V),
    "tensordot": (lambda x, w: np.tensordot(x, w, 1), 0, V),
    "slices": (lambda x, w: np.concatenate([x @ w[:, :2], x[:, ::2] @ w[::2, 2:4], x @ w[::-1, 4:]], 1), 0, V),
    "cast": (lambda x, w: x @ w.astype(np.float32), 0, V),
    "twice": (lambda x, w: np.tanh(F.linear(np.tanh(F.linear(x, w)) @ w, w)), 1, W),
    "scaled by itself": (lambda x, w: np.einsum("bi,oi,bi->bo", x, w, x), 1, W),
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("alpha", [None, 6.0])
def test_a_weight_counts_as_it_is_and_the_product_of_its_adapters(how: str, alpha: float | None) -> None:
    read, axis, w = READS[how]
    traced = mlaot.lora(declared(read, w=w), rank=2, alpha=alpha).trace()
    adapters = moved(traced)
    added = adapters["w.lora_B.weight"] @ adapters["w.lora_A.weight"] * (1 if alpha is None else 3)
    found = evaluate(traced.graph, {**slots(traced), **adapters, "x": X, "wanted": Y}, wide=True)
    tolerance = 1e-5 if how == "cast" else 1e-10
    wanted = read(X, w + (added if axis else added.T))
    np.testing.assert_allclose(found["out"], wanted, rtol=tolerance, atol=tolerance)
    start = evaluate(traced.graph, {**slots(traced), "x": X, "wanted": Y}, wide=True)
    plain = evaluate(declared(read, w=w).trace().graph, {"w": w, "x": X, "wanted": Y}, wide=True)
    np.testing.assert_allclose(start["out"], plain["out"], rtol=1e-14)


def test_tables_have_adapters_where_they_are_asked_for() -> None:
    """A table that is also the last layer, of which lookups and products see the same matrix."""
    table = {"letters": mlaot.Parameter("letters", TABLE)}

    def scores(tokens: mlaot.i64[batch]) -> Any:
        return F.linear(mlaot.take(table["letters"], tokens, axis=0), table["letters"])

    model = mlaot.model(scores, loss=lambda y: (y**2).mean(), parameters=table)
    with pytest.raises(MlaotError, match="no weight of the model is a matrix that is a factor of products"):
        mlaot.lora(model, rank=2).trace()
    traced = mlaot.lora(model, rank=2, targets=["letters"]).trace()
    adapters = moved(traced)
    whole = TABLE + adapters["letters.lora_B.weight"] @ adapters["letters.lora_A.weight"]
    tokens = np.array([3, 0, 8])
    found = evaluate(traced.graph, {**slots(traced), **adapters, "tokens": tokens}, wide=True)["out"]
    np.testing.assert_allclose(found, whole[tokens] @ whole.T, rtol=1e-10)


def entries(model: Any, options: Options = DEFAULTS) -> tuple[Module, Traced]:
    traced = model.trace()
    return run("nn", traced, options), traced


def test_gradients_are_those_of_differences() -> None:
    """In float64, of all adapters, with B that is not zeros; and of nothing else."""

    def layers(x: Any, w: Any, v: Any, u: Any, bias: Any) -> Any:
        return np.tanh(F.linear(np.tanh(x @ v + bias) @ np.tanh(u.T @ u), w)) @ v

    module, traced = entries(mlaot.lora(declared(layers, w=W.T.copy(), v=V, u=TABLE, bias=Y[0]), rank=3, alpha=2))
    adapters = moved(traced)
    assert set(adapters) == {f"{name}.lora_{side}.weight" for name in "wv" for side in "AB"}
    values = {**module.slots, **adapters, "x": X, "wanted": Y}
    zeros = {f"gradient({name})": np.zeros_like(array) for name, array in adapters.items()}
    found = evaluate(module.graphs["accumulate"], {**values, **zeros})
    assert {name for name in found if name.startswith("write ")} == {f"write {name}" for name in zeros}
    for name, array in adapters.items():
        differences = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            for sign in (1, -1):
                stepped = array.copy()
                stepped[at] += sign * 1e-6
                loss = evaluate(module.graphs["loss"], {**values, name: stepped})["loss"]
                differences[at] += sign * loss / 2e-6
        np.testing.assert_allclose(found[f"write gradient({name})"], differences, rtol=1e-5, atol=1e-8)


def products(graph: Graph) -> list[tuple[int, ...]]:
    return [node.type.shape for node in graph.nodes() if node.op.name == "contract"]


def test_nothing_of_a_weights_size_is_computed() -> None:
    """Neither B A nor the gradient of a weight: backwards there is a product with each weight but the first."""
    square = V.T @ V
    model = declared(lambda x, w, v: np.einsum("bi,oi->bo", np.tanh(np.tanh(x @ v) @ w), w), w=square, v=V)
    full, (module, _) = run("nn", model.trace()), entries(mlaot.lora(model, rank=2))
    assert {(5, 5), (7, 5)} & {shape[::sign] for shape in products(full.graphs["train_step"]) for sign in (1, -1)}
    for graph in module.graphs.values():
        assert not {(5, 7), (7, 5), (5, 5)} & set(products(graph)), graph
        assert all(len(shape) == 2 for shape in products(graph))
    step = [node for node in module.graphs["train_step"].nodes() if node.op.name == "contract"]
    read = [a.find().attrs.get("name") for node in step for a in node.args]
    assert (read.count("w"), read.count("v")) == (4, 1)
    names = set(module.graphs["train_step"].writes)
    assert names == {f"{w}.lora_{side}.weight" for w in "wv" for side in "AB"}
    assert set(module.graphs["update"].inputs) == names | {f"gradient({name})" for name in names} | {"lr"}


class Net(nn.Module):
    """Layers with names, one of them used twice, and a normalization by running statistics."""

    def __init__(self) -> None:
        self.first, self.last = nn.Linear(7, 24, rng=1), nn.Linear(24, 5, rng=2)
        self.inner = nn.Linear(24, 24, rng=3)
        self.norm = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        x = np.tanh(self.inner(np.tanh(self.first(x))))
        return self.last(self.drop(self.norm(np.tanh(self.inner(x)))))


def classes(scores: Any, label: mlaot.i64[batch]) -> Any:
    return F.cross_entropy(scores, label)


def net_model(net: Net, optimizer: Any = None) -> Declaration:
    def scores(x: mlaot.f32[batch, 7]) -> Any:
        return net(x)

    last = mlaot.Buffer(np.zeros(5, np.float32), "last_scores")

    def read(x: mlaot.f32[7]) -> Any:
        """Keep the scores of one example, and return the change."""
        before, now = last + 0, np.reshape(net(np.reshape(x, (1, 7))), (5,))
        last.assign(now)
        return now - before

    groups = [{"params": ["*norm*", "first.bias"], "lr": 0.5}, {"params": ["*lora_B*", "last.*"], "weight_decay": 0.0}]
    optimizer = optimizer or AdamW(lr=0.03, groups=groups, clip_grad_norm=1.0)
    model = mlaot.model(scores, loss=classes, optimizer=optimizer, parameters=net)
    model.entry(read)
    return model


LABELS = draw.integers(0, 5, 6)
FLOATS = X.astype(np.float32)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module in plain Python."""
    file = tmp_path_factory.mktemp("plain") / "nn.py"
    program = compile_model(mlaot.lora(net_model(Net()), rank=2), "adapted.nn", Options(isas=("base",)))
    file.write_text(str(python_files(program)["nn.py"]))
    return load_module("adapted.nn", file)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    model = mlaot.lora(net_model(Net()), rank=2)
    return load(build_module(model, "adapted", tmp_path_factory.mktemp("site") / "site", ("base",), golden=True))


def test_adapters_alone_are_trained(compiled: ModuleType) -> None:
    model = compiled.Model()
    names = [f"{layer}.lora_{side}.weight" for layer in ("first", "last", "inner") for side in "AB"]
    assert sorted(model.parameters) == sorted(names)
    state = compiled.info()["optimizer_state"]
    assert sorted(state) == sorted(
        ["step", *(f"{part}.{name}" for name in names for part in ("exp_avg", "exp_avg_sq"))]
    )
    before = model.loss(FLOATS, LABELS)
    for _ in range(60):
        model.train_step(FLOATS, LABELS)
    assert model.loss(FLOATS, LABELS) < before / 3
    other = compiled.Model()
    for name in names:  # the outputs are those of the network again once its adapters are
        np.asarray(model.parameters[name])[...] = np.asarray(other.parameters[name])
    for name, buffer in other.buffers.items():
        np.asarray(model.buffers[name])[...] = np.asarray(buffer)
    assert bytes(model.forward(FLOATS)) == bytes(other.forward(FLOATS))
    np.testing.assert_allclose(np.asarray(other.forward(FLOATS)), Net()(FLOATS), rtol=1e-5, atol=1e-6)
    assert max(compiled.selftest().values()) < 1


def test_verbs_and_fit_train_alike(compiled: ModuleType) -> None:
    one, two = compiled.Model(), compiled.Model()
    one.set_input(FLOATS, LABELS)
    one.forward()
    one.backward()
    one.update()
    two.fit(FLOATS, LABELS, batch=6, shuffle=False)
    for name in one.parameters:
        np.testing.assert_allclose(
            np.asarray(one.parameters[name]), np.asarray(two.parameters[name]), rtol=1e-4, atol=1e-6
        )
    assert np.any(np.asarray(one.gradients["first.lora_B.weight"])) and not np.any(one.gradients["first.lora_A.weight"])


def test_plain_python_has_the_same_files(compiled: ModuleType, plain: ModuleType, tmp_path: Path) -> None:
    model, other, file = compiled.Model(), plain.Model(), tmp_path / "adapters.safetensors"
    for _ in range(3):
        model.train_step(FLOATS, LABELS)
    model.save(file)
    saved = file.read_bytes()
    other.load(file)
    assert abs(other.loss(FLOATS.tolist(), LABELS.tolist()) - model.loss(FLOATS, LABELS)) < 1e-4
    other.save(file)
    assert file.read_bytes() == saved
    other.read(FLOATS[0].tolist())
    assert copy.copy(other).buffers["last_scores"].tolist() == other.buffers["last_scores"].tolist() != [0] * 5


def test_files_have_adapters_and_what_training_learns_besides(compiled: ModuleType, tmp_path: Path) -> None:
    """So no optimizer's state and no caches, but running statistics; copies have all, and go on alike."""
    model, file = compiled.Model(), tmp_path / "adapters.safetensors"
    model.read(FLOATS[0])
    for _ in range(5):
        model.train_step(FLOATS, LABELS)
    model.save(file)
    stored = load_file(file)
    assert set(stored) == {*model.parameters, *(name for name in model.buffers if name.startswith("norm."))}
    fresh = compiled.Model()
    fresh.read(FLOATS[1])
    fresh.load(file)
    assert np.any(model.buffers["last_scores"]) and not np.any(fresh.buffers["last_scores"])
    assert bytes(fresh.forward(FLOATS)) == bytes(model.forward(FLOATS))
    assert copy.copy(model).train_step(FLOATS, LABELS) == copy.copy(model).train_step(FLOATS, LABELS)
    assert copy.copy(model).loss(FLOATS, LABELS) == model.loss(FLOATS, LABELS)
    for change, message in (
        ({"first.lora_A.weight": np.zeros((3, 7), np.float32)}, r"first.lora_A.weight: expected F32\[2, 7\]"),
        ({"other": np.zeros(3, np.float32)}, "other is no tensor of this model"),
    ):
        save_file(stored | change, file)
        with pytest.raises(ValueError, match=message):
            fresh.load(file)
    save_file({"inner.weight": np.zeros((24, 24), np.float32)}, file)
    with pytest.raises(ValueError, match=r"expected a tensor .*lora_A.weight, got a file without it"):
        fresh.load(file)


def test_a_file_names_the_weights_beside_which_it_was_trained(
    compiled: ModuleType, plain: ModuleType, tmp_path: Path
) -> None:
    """Adapters of another base would load, and give nonsense; those that name none are taken."""
    file = tmp_path / "adapters.safetensors"
    compiled.Model().save(file)
    with safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
    assert metadata == {"base": compiled.info()["base"]} and len(metadata["base"]) == 32
    for module in (compiled, plain):
        assert module.info()["base"] == metadata["base"]
        save_file(load_file(file), tmp_path / "nameless.safetensors")
        module.Model().load(tmp_path / "nameless.safetensors")
        save_file(load_file(file), tmp_path / "other.safetensors", {"base": "0" * 32})
        with pytest.raises(ValueError, match=r"other.safetensors: these adapters were trained beside other weights"):
            module.Model().load(tmp_path / "other.safetensors")


def test_outputs_are_those_of_the_base_before_training(tmp_path: Path) -> None:
    """Bit for bit where sums have one order."""
    net = nn.Sequential(nn.Linear(7, 40, rng=1), nn.Tanh(), nn.Linear(40, 5, rng=2))

    def scores(x: mlaot.f32[batch, 7]) -> Any:
        return net(x)

    trained = mlaot.model(scores, loss=classes, parameters=net)
    models = {"base": mlaot.model(scores, parameters=net), "adapted": mlaot.lora(trained, rank=3)}
    site = tmp_path / "site"
    base, adapted = (load(build_module(m, name, site, ("base",), deterministic=True)) for name, m in models.items())
    assert bytes(adapted.forward(FLOATS)) == bytes(base.forward(FLOATS))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "rank": ({"rank": 0}, "lora: rank: expected a whole number of at least 1, got 0"),
    "kind of rank": ({"rank": True}, "lora: rank: expected a whole number of at least 1, got True"),
    "alpha": ({"rank": 1, "alpha": float("nan")}, "lora: alpha: expected a positive number, got nan"),
    "one text": (
        {"rank": 1, "targets": "w"},
        "lora: targets: expected names or patterns such as ['*.query.weight'], got 'w'",
    ),
    "unknown": ({"rank": 1, "targets": ["*.weight", "first.wieght"]}, "'first.wieght'; did you mean 'first.weight'?"),
    "pattern": (
        {"rank": 1, "targets": ["q*"]},
        "no weight is called 'q*'; suitable weights: first.weight, last.weight, inner.weight",
    ),
    "vector": (
        {"rank": 1, "targets": ["first.bias"]},
        "'first.bias' cannot have adapters: expected a matrix that is read",
    ),
    "none": ({"rank": 1, "targets": []}, "lora: targets: expected names of weights or patterns"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused(what: str) -> None:
    arguments, message = WRONG[what]
    with pytest.raises(MlaotError) as error:
        mlaot.lora(net_model(Net()), **arguments).trace()
    assert message in str(error.value)


def test_models_that_cannot_be_adapted_are_refused() -> None:
    net = Net()
    with pytest.raises(MlaotError, match=r"lora: expected a declared model, got <.*Net object"):
        mlaot.lora(net, rank=1)
    with pytest.raises(MlaotError, match="lora: the model has no loss to train by"):
        mlaot.lora(mlaot.model(net_model(net).function, parameters=net), rank=1).trace()  # type: ignore[attr-defined]
    with pytest.raises(MlaotError, match="lora: the model has adapters already"):
        mlaot.lora(mlaot.lora(net_model(net), rank=1), rank=1).trace()
    taken = declared(
        lambda x, **held: x @ held["w"] @ held["w.lora_A.weight"], **{"w": V, "w.lora_A.weight": TABLE[:5]}
    )
    with pytest.raises(MlaotError, match=r"the model has an array called 'w.lora_A.weight' already"):
        mlaot.lora(taken, rank=1).trace()
    looped = declared(lambda x, w: mlaot.fori_loop(0, 3, lambda i, y: np.tanh(y @ w), x[:, :5]), w=TABLE[:5])
    with pytest.raises(MlaotError, match=r"'w' cannot have adapters: .* outside of loops; suitable weights: none"):
        mlaot.lora(looped, rank=1, targets=["w"]).trace()
    both = declared(lambda x, w, v: x @ (v @ w), w=TABLE[:5], v=V)
    with pytest.raises(MlaotError, match="no weight of the model is a matrix that is a factor of products"):
        mlaot.lora(both, rank=1).trace()
    whole = declared(lambda x, w: x @ w.astype(np.int32), w=V)
    with pytest.raises(MlaotError, match="'w' cannot have adapters"):
        mlaot.lora(whole, rank=1, targets=["w"]).trace()
    refused: Any = {"leave out the key 'frozen'": {"frozen": False}, "trains adapters": {"quantize": "int8"}}
    for message, options in refused.items():
        with pytest.raises(MlaotError, match=message):
            entries(mlaot.lora(net_model(net), rank=1), Options(**options))


def test_optimizers_of_the_users_own_and_none() -> None:
    for optimizer in (SGD(lr=0.1), None):
        module, traced = entries(mlaot.lora(net_model(Net(), optimizer), rank=1, targets=["inner.*"]))
        assert set(module.trained) == set(traced.parameters) == {f"inner.lora_{side}.weight" for side in "AB"}


class Words(nn.Module):
    """A table that is multiplied with one-hot rows, zeros, and a recurrent layer."""

    def __init__(self) -> None:
        self.table = mlaot.Parameter("table", draw.normal(size=(9, 6)).astype(np.float32))
        self.zeros = mlaot.Parameter("zeros", np.zeros((6, 256), np.float32))
        self.lstm = nn.LSTM(256, 16, batch_first=True, rng=1)

    def forward(self, words: Any) -> Any:
        hot = (words[..., None] == np.arange(9)).astype(np.float32)
        return self.lstm(hot @ self.table @ self.zeros)[0].sum(axis=1)


def test_nothing_is_computed_at_build_of_what_is_trained() -> None:
    """B is zeros at the start, as another weight is; and 16 bits hold these."""
    net = Words()

    def model(words: mlaot.i64[batch, 4]) -> Any:
        return net(words)

    module, traced = entries(mlaot.lora(mlaot.model(model, loss=lambda y: (y**2).mean(), parameters=net), rank=6))
    assert len(traced.parameters) == 6 and not module.narrow.keys() & traced.parameters.keys()
    for name, start in traced.parameters.items():
        assert name not in module.named_by_value(start)
    values = {**moved(traced), "words": np.array([[3, 1, 8, 0], [2, 2, 5, 7]])}
    wanted = evaluate(traced.graph, {**traced.constants, **values}, wide=True)["out"]
    for name, key in {"forward": "out", "loss": "loss", "train_step": "loss"}.items():
        found = evaluate(module.graphs[name], {**module.slots, **values, "lr": 0.0})[key]
        np.testing.assert_allclose(found, wanted if key == "out" else (wanted**2).mean(), rtol=1e-4, atol=1e-5)


def test_the_file_of_the_character_gpt_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the example gpt and its recipe nanogpt, with the targets that docs/lora.md names."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "gpt"))
    recipe = runpy.run_path(str(EXAMPLES / "gpt" / "settings.py"))["RECIPES"]["nanogpt"]
    for name in ("network.py", "train/model.py"):
        (tmp_path / Path(name).name).write_text((EXAMPLES / "gpt" / name).read_text())
    (tmp_path / "settings.json").write_text(json.dumps(recipe | {"letters": "abcdefghijklmnopqrstuvwxyz .,"}))
    monkeypatch.syspath_prepend(str(tmp_path))
    gpt = runpy.run_path(str(tmp_path / "model.py"))["gpt"]
    sys.modules.pop("network")
    traced = mlaot.lora(gpt, rank=2, targets=["*.attention.weight", "*.attended.weight"]).trace()
    sizes = [sum(array.nbytes for array in arrays.values()) for arrays in (traced.parameters, traced.constants)]
    assert sizes[0] + 2048 < sizes[1] / 100  # the head of the file besides
    assert not {name for name in traced.parameters if "letters" in name}
