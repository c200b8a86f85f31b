"""Products with what is declared sparse: their graphs, their values, training, what they do not touch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.micrograd import MLP, Bytes, Sparse, Value, declare
from mlaot.nn import functional as F
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops.sparse import sparse
from mlaot.passes.algebra.sparse_products import sparse_products

from ... import projects
from ...compiled import AVAILABLE, Library

Array = np.ndarray[Any, Any]
N, M = 37, 21
RNG = np.random.default_rng(3)
W = RNG.normal(size=(N, M)).astype(np.float32)
WIDE = RNG.normal(size=(N, 500)).astype(np.float32)
DTYPES = ("u8", "bool", "i32", "i64", "f32", "f64")


def ops(graph: Graph, *names: str) -> list[str]:
    return [n.op.name for n in graph.nodes() if n.op.name in names]


def mostly_zeros(shape: tuple[int, ...], dtype: str = "f32") -> Array:
    values = np.where(RNG.random(shape) < 0.2, RNG.integers(-90, 90, shape), 0)
    return np.asarray(abs(values) if dtype == "u8" else values).astype(getattr(mlaot, dtype).numpy)


def model_of(function: Callable[[Any], Any], dtype: str = "f32", shape: Any = (N,)) -> Any:
    def model(x: Any) -> Any:
        return function(x)

    model.__annotations__ = {"x": getattr(mlaot, dtype)[shape]}
    return mlaot.model(model)


def dense(x: Any) -> Any:
    return mlaot.astype(x, mlaot.f32)


# Forms of products, each with how many of them pass over zeros; of constants they are computed at build.
FORMS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "product": (lambda x: mlaot.sparse(x) @ W, 1),
    "transposed": (lambda x: mlaot.sparse(x) @ WIDE[:M, :N].T.copy(), 1),
    "wide": (lambda x: mlaot.sparse(x) @ WIDE, 1),
    "scaled": (lambda x: (-mlaot.sparse(x) * 0.5 / 255) @ W + 1.0, 1),
    "scaled_first": (lambda x: mlaot.sparse(x / 255) @ W, 1),
    "of_two": (lambda x: mlaot.sparse(x) @ W + mlaot.sparse(mlaot.relu(x)) @ W, 2),
    "of_what_was_computed": (lambda x: mlaot.sparse(mlaot.relu(x - 40)) @ W, 1),
    "in_rows": (lambda x: mlaot.sparse(np.stack([x, 2 * x, 0 * x])) @ W, 1),
    "reshaped": (lambda x: np.reshape(mlaot.sparse(np.reshape(x, (1, N))), (N,)) @ W, 1),
    "of_nothing_given": (lambda x: mlaot.sparse(x * 0 + 2.0) @ W + mlaot.sparse(mlaot.zeros(N, "float32")) @ W, 1),
    "elsewhere": (lambda x: mlaot.sparse(x) * W[:, 0] + 1.0, 0),
    "shifted": (lambda x: (mlaot.sparse(x) + 1.0) @ W, 0),
    "undeclared": (lambda x: x @ W, 0),
}


@pytest.mark.parametrize("name", FORMS)
def test_which_products_pass_over_zeros(name: str) -> None:
    function, count = FORMS[name]
    graph = passes.run("m", trace(model_of(function))).graphs["forward"]
    assert len(ops(graph, "sparse_dot")) == count and not ops(graph, "sparse"), str(graph)


@pytest.mark.parametrize("isa", AVAILABLE)
def test_values_are_those_of_numpy(isa: str, tmp_path: Path) -> None:
    """Every form, and every dtype that a row may have."""
    models = {name: (model_of(function), "f32") for name, (function, _) in FORMS.items()}
    models |= {dtype: (model_of(lambda x: mlaot.sparse(dense(x)) @ W, dtype), dtype) for dtype in DTYPES}
    programs = {name: lower(passes.run("m", trace(model))) for name, (model, _) in models.items()}
    library = Library(programs, isa, tmp_path)
    for name, (model, dtype) in models.items():
        for x in (mostly_zeros((5, N), dtype), np.ones((2, N), mostly_zeros((1,), dtype).dtype)):
            found = library.call(name, "forward", {"x": x}, {"batch": len(x)})
            expected = np.stack([model(row) for row in x])
            np.testing.assert_allclose(next(iter(found.values())), expected, rtol=2e-5, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("isa", AVAILABLE)
def test_zeros_of_either_sign_add_nothing(isa: str, tmp_path: Path) -> None:
    w = W.copy()
    w[3], w[5] = np.inf, np.nan
    program = lower(passes.run("m", trace(model_of(lambda x: mlaot.sparse(x) @ w))))
    library = Library({"m": program}, isa, tmp_path)
    x = np.zeros((1, N), np.float32)
    x[0, [3, 7]] = -0.0, 2.0
    (found,) = library.call("m", "forward", {"x": x}, {"batch": 1}).values()
    np.testing.assert_array_equal(found[0], 2 * w[7])
    x[0, 0] = np.nan
    (found,) = library.call("m", "forward", {"x": x}, {"batch": 1}).values()
    assert np.isnan(found).all()


class Net(nn.Module):
    """Bytes into a hidden layer of no whole number of vectors."""

    def __init__(self, *, is_sparse: bool) -> None:
        self.a, self.b = nn.Linear(N, M, rng=0), nn.Linear(M, 3, rng=1)
        self.is_sparse = is_sparse

    def forward(self, x: Any) -> Any:
        x = mlaot.astype(x, mlaot.f64) / 255
        return self.b(mlaot.tanh(self.a(mlaot.sparse(x) if self.is_sparse else x)))


def declared(optimizer: Any, *, is_sparse: bool = True) -> Any:
    net = Net(is_sparse=is_sparse)
    for p in net.parameters():
        p.array = p.array.astype(np.float64)

    def loss(scores: Any, label: mlaot.i64) -> Any:
        return F.cross_entropy(scores, label)

    def model(x: Any) -> Any:
        return net(x)

    model.__annotations__ = {"x": mlaot.u8[N]}
    return mlaot.model(loss=loss, parameters=net, **({"optimizer": optimizer} if optimizer else {}))(model)


OPTIMIZERS = {
    "sgd": None,
    "momentum": optim.SGD(lr=0.1, momentum=0.9),
    "decay": optim.SGD(lr=0.1, weight_decay=0.01),
    "adam": optim.Adam(lr=0.01),
}


def test_the_update_is_added_in_the_place_of_the_weights() -> None:
    """One kernel reads and writes the rows of a weight for which an example has something."""
    program = lower(passes.run("m", trace(declared(None))))
    step = next(p for p in program.procedures if p.entry.name == "train_step")
    kernels = [k for k in step.kernels if k.template == "sparse"]
    assert [k.params[0].buffer.where for k in kernels] == ["work", "state"]
    assert next(p.buffer.name for p in kernels[1].params if p.written) == "a.weight"
    assert not any("a.weight" in p.buffer.name for k in step.kernels if k.template != "sparse" for p in k.params)


@pytest.fixture(scope="module", params=OPTIMIZERS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A module that passes over zeros and one that does not, each with two instruction sets."""
    isas = tuple(dict.fromkeys([AVAILABLE[0], AVAILABLE[-1]]))
    site, optimizer = tmp_path_factory.mktemp("trained"), OPTIMIZERS[request.param]
    return [
        projects.build_module(declared(optimizer, is_sparse=flag), kind, site, isas)
        for kind, flag in (("sparse", True), ("dense", False))
    ]


@pytest.mark.parametrize("isa", [AVAILABLE[0], AVAILABLE[-1]])
def test_training_is_that_of_any_input(
    built: list[Path], isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLAOT_ISA", isa)
    modules = {}
    for library in built:  # a library stays with the instruction set that it was first loaded for
        kind = library.parent.name
        modules[kind] = projects.load(shutil.copytree(library.parent, tmp_path / kind) / library.name)
        assert modules[kind].info()["isa"] == isa
    x, labels = mostly_zeros((60, N), "u8"), RNG.integers(0, 3, 60)
    models = {kind: module.Model() for kind, module in modules.items()}
    for batch in (20, 7, 1):
        losses = [model.fit(x, labels, 0.1, batch=batch, epochs=2, seed=1) for model in models.values()]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-9)
    for model in models.values():
        model.set_input(x[:9], labels[:9])
        model.forward()
        model.backward()
    for what in ("parameters", "gradients"):
        found, expected = (getattr(model, what) for model in models.values())
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-7, atol=1e-10, err_msg=f"{what} {key}")


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_the_same_gradient_for_all_outputs(factor: float, tmp_path: Path) -> None:
    """A cotangent that is one number is stored like any other: its kernel reads memory."""
    w = mlaot.Parameter("w", W)

    def model(x: Any) -> Any:
        return (mlaot.sparse(dense(x)) * np.float32(factor)) @ w

    model.__annotations__ = {"x": mlaot.u8[N]}
    module = projects.load(projects.build_module(mlaot.model(loss=np.sum)(model), "same", tmp_path, ("base",)))
    x = mostly_zeros((4, N), "u8")
    module.train_step(x, lr=0.25)
    expected = W - 0.25 * factor * x.mean(axis=0, dtype=np.float32)[:, None]
    np.testing.assert_allclose(module.Model().parameters["w"], W, rtol=0)
    np.testing.assert_allclose(module.parameters["w"], expected, rtol=1e-5, atol=1e-5)


def test_a_gradient_that_is_read_twice_is_computed_once() -> None:
    graph = passes.run("m", trace(declared(OPTIMIZERS["adam"]))).graphs["train_step"]
    assert len(ops(graph, "sparse_add")) == 1


def sums_of_a_product(combine: Callable[[Node, Node], Node]) -> Graph:
    """A sum or difference of a matrix and a product with sparse rows."""
    graph = Graph("m")
    w, x, g = (
        graph.input(name, Type(mlaot.f32, shape)) for name, shape in (("w", (N, M)), ("x", (5, N)), ("g", (5, M)))
    )
    graph.outputs["y"] = combine(w, red.contract(sparse(x), g, spec="ca,cb->ab"))
    return graph


@pytest.mark.parametrize("name", ["w + p", "p + w", "w - p", "p - w", "w - -p"])
def test_what_a_product_is_added_to(name: str) -> None:
    """In its place: but w - p is not p - w."""
    scope = {"w + p": lambda w, p: ew.add(w, p), "p + w": lambda w, p: ew.add(p, w), "w - p": lambda w, p: ew.sub(w, p)}
    scope |= {"p - w": lambda w, p: ew.sub(p, w), "w - -p": lambda w, p: ew.sub(w, ew.neg(p))}
    inputs = {"w": W, "x": mostly_zeros((5, N)), "g": RNG.normal(size=(5, M)).astype(np.float32)}
    expected = evaluate(sums_of_a_product(scope[name]), inputs, wide=True)["y"]
    graph = sums_of_a_product(scope[name])
    sparse_products(graph)
    (made,) = (node for node in graph.nodes() if node.op.name == "sparse_add")
    assert (made.arg(0) is graph.inputs["w"]) == (name != "p - w")
    np.testing.assert_allclose(evaluate(graph, inputs, wide=True)["y"], expected, rtol=1e-12, atol=1e-12)


def test_scalar_models_declare_inputs_sparse() -> None:
    graphs = {}
    for kind, wrap in {"values": Sparse, "bytes": lambda x: Sparse(Bytes(x)), "plain": list}.items():
        np.random.seed(0)
        net, x = MLP(12, [20, 3]), [Value(0.0) for _ in range(12)]
        graphs[kind] = passes.run("m", trace(declare(net(x), inputs={"x": wrap(x)}, parameters=net))).graphs["forward"]
    counts = {kind: len(ops(graph, "sparse_dot")) for kind, graph in graphs.items()}
    assert counts == {"values": 1, "bytes": 1, "plain": 0}
