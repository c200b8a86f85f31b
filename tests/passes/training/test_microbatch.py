"""Training in tiles of examples against training of the whole batch at once, in the oracle and as machine code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph
from mlaot.ir.module import OPTIMIZER, Module
from mlaot.ir.subgraph import subgraphs
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.control import scan
from mlaot.passes.training import microbatch
from mlaot.schedule.tuning import EXAMPLES_TILE

from ...compiled import AVAILABLE, Library, State

F = nn.functional
BATCHES = (1, 7, 16, 31, 32, 64, 100)
CLASSES = 3


class Pooled(nn.Module):
    """Two convolutions, each with a pooling whose windows lie side by side."""

    def __init__(self) -> None:
        self.c1, self.c2 = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 4, 3)
        self.f = nn.Linear(16, CLASSES)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(mlaot.relu(self.c1(x)), 2)
        return self.f(F.max_pool2d(mlaot.relu(self.c2(x)), 2).reshape(16))


class Residual(nn.Module):
    """A block with a skip connection between pooling with windows that overlap, and one of averages."""

    def __init__(self) -> None:
        self.c0, self.c1 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.c2, self.f = nn.Conv2d(4, 16, 3, stride=2, padding=1), nn.Linear(16, CLASSES)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(self.c0(x), 3, 2, 1)
        x = mlaot.tanh(self.c2(mlaot.relu(x + self.c1(x))))
        return self.f(F.avg_pool2d(x, 2).reshape(16))


class Signal(nn.Module):
    """Along one axis, dilated."""

    def __init__(self) -> None:
        self.c1, self.c2 = nn.Conv1d(2, 3, 3, padding=1), nn.Conv1d(3, 4, 3, dilation=2)
        self.f = nn.Linear(8, CLASSES)

    def forward(self, x: Any) -> Any:
        x = mlaot.sigmoid(self.c2(F.max_pool1d(mlaot.relu(self.c1(x)), 2)))
        return self.f(F.max_pool1d(x, 2).reshape(8))


MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "pooled": (Pooled, (1, 12, 12)),
    "residual": (Residual, (2, 7, 7)),
    "signal": (Signal, (2, 17)),
}
# The model, its dtype, whether labels are numbers of classes or probabilities, the optimizer.
CASES: dict[str, tuple[str, Any, bool, Any]] = {
    "pooled_f32": ("pooled", mlaot.f32, True, None),
    "pooled_f64": ("pooled", mlaot.f64, False, optim.SGD(momentum=0.9)),
    "residual_f32": ("residual", mlaot.f32, False, None),
    "residual_f64": ("residual", mlaot.f64, True, None),
    "signal_f32": ("signal", mlaot.f32, True, optim.Adam(lr=0.01)),
    "signal_f64": ("signal", mlaot.f64, True, None),
}


def declared(case: str) -> Any:
    name, dtype, numbered, optimizer = CASES[case]
    make, shape = MODELS[name]
    net = make()
    rng = np.random.default_rng(3)
    for p in net.parameters():
        p.array = (0.4 * rng.normal(size=p.array.shape)).astype(dtype.numpy)

    def numbers(y: Any, t: mlaot.i64) -> Any:
        return F.cross_entropy(y, t)

    def shares(y: Any, t: Any) -> Any:
        return F.cross_entropy(y, t)

    shares.__annotations__ = {"t": dtype[CLASSES]}

    def model(x: Any) -> Any:
        return net(x)

    model.__annotations__ = {"x": dtype[shape]}
    loss = numbers if numbered else shares
    return mlaot.model(loss=loss, parameters=net, **({"optimizer": optimizer} if optimizer else {}))(model)


def module_of(case: str, monkeypatch: pytest.MonkeyPatch, *, tiled: bool) -> Module:
    with monkeypatch.context() as patch:
        if not tiled:
            patch.setattr(microbatch, "fits", lambda graph: False)
        module = passes.run("m", trace(declared(case)))
    module.graphs = {"train_step": module.graphs["train_step"]}
    return module


def inputs_of(case: str, batch: int) -> dict[str, Any]:
    """Small whole numbers: many of the largest of a window are equal."""
    name, dtype, numbered, _ = CASES[case]
    rng = np.random.default_rng(batch)
    labels = rng.integers(0, CLASSES, batch)
    t = labels if numbered else np.eye(CLASSES)[labels].astype(dtype.numpy)
    return {"x": rng.integers(-2, 3, (batch, *MODELS[name][1])).astype(dtype.numpy), "t": t, "lr": 0.05}


def ops_of(graph: Graph) -> set[str]:
    inner = [ops_of(body.graph) for node in graph.nodes() for body in subgraphs(node.attrs).values()]
    return {node.op.name for node in graph.nodes()}.union(*inner)


@cache
def whole(case: str) -> Module:
    with pytest.MonkeyPatch.context() as patch:
        return module_of(case, patch, tiled=False)


@cache
def step_on_the_whole(case: str, batch: int) -> dict[str, Any]:
    """What a step computes, the same for every instruction set."""
    module = whole(case)
    graph = module.graphs["train_step"]
    known = {k: v for k, v in (inputs_of(case, batch) | module.slots).items() if k in graph.inputs}
    return evaluate(graph, known, wide=True)


@pytest.fixture(scope="module")
def tiled() -> dict[str, Module]:
    with pytest.MonkeyPatch.context() as patch:
        return {case: module_of(case, patch, tiled=True) for case in CASES}


@pytest.fixture(scope="module")
def programs(tiled: dict[str, Module]) -> dict[str, Program]:
    return {case: lower(module) for case, module in tiled.items()}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_it_is_the_training_of_the_whole_batch(
    isa: str, tiled: dict[str, Module], programs: dict[str, Program], tmp_path: Path
) -> None:
    library = Library(programs, isa, tmp_path)
    for case, batch in ((case, batch) for case in CASES for batch in BATCHES):
        inputs, slots = inputs_of(case, batch), tiled[case].slots
        expected = step_on_the_whole(case, batch)
        state, given = State(programs[case]), {k: np.asarray(v) for k, v in inputs.items()}
        loss = library.call(case, "train_step", given, {"batch": batch}, state=state)["loss"]
        limit = 1e-12 if CASES[case][1] is mlaot.f64 else 2e-5
        np.testing.assert_allclose(loss, expected["loss"], rtol=limit, err_msg=f"{case} of {batch}")
        for name in (slot.name for slot in programs[case].module.slots):
            change = expected[f"write {name if name in slots else OPTIMIZER + name}"]
            kwargs = {"rtol": limit, "atol": limit * abs(change).max(), "err_msg": f"{case} of {batch}: {name}"}
            np.testing.assert_allclose(state.slot(name), change, **kwargs)


@pytest.mark.parametrize("case", CASES)
def test_each_pass_keeps_what_is_computed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, found = inputs_of(case, 40), []
    whole, pipeline = module_of(case, monkeypatch, tiled=False), passes.PIPELINE
    for without in ((), ("unroll_windows", "batch_innermost"), ("batch_innermost",)):
        kept = tuple(stage for stage in pipeline if stage.name not in without)
        monkeypatch.setattr(passes, "PIPELINE", kept)
        found.append(module_of(case, monkeypatch, tiled=True))
    expected: dict[str, Any] = {}
    for module in (whole, *found):
        given = {k: v for k, v in (inputs | module.slots).items() if k in module.graphs["train_step"].inputs}
        result = evaluate(module.graphs["train_step"], given, wide=True)
        expected = expected or result
        for key, value in expected.items():
            np.testing.assert_allclose(result[key], value, rtol=1e-10, atol=1e-12, err_msg=key)


def test_images_have_their_examples_last(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = module_of("pooled_f32", monkeypatch, tiled=True).graphs["train_step"]
    (body,) = [node.attrs["body"].graph for node in graph.nodes() if node.op is scan]
    shapes = [node.type.shape for node in body.nodes() if node.op is red.contract and node.type.rank == 4]
    assert [shape[-1] for shape in shapes].count(EXAMPLES_TILE) == 3  # two convolutions, the gradient of one
    assert all(shape[0] != EXAMPLES_TILE for shape in shapes)


def test_pooling_is_elementwise_and_its_gradient_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("pooled_f32", monkeypatch, tiled=True)
    (body,) = [n.attrs["body"].graph for n in module.graphs["train_step"].nodes() if n.op is scan]
    folds = [node for node in body.nodes() if node.op is st.fold]
    assert len(folds) == 2 and all(any(u.op is red.contract for u in body.nodes() if f in u.args) for f in folds)
    program = str(next(p for p in lower(module).procedures if p.entry.name == "train_step"))
    assert "fold" not in program and "max(t0, axes=(3, 4))" not in program


@pytest.mark.parametrize("what", ["no windows", "random", "declared on a batch"])
def test_other_models_train_on_the_whole_batch(what: str) -> None:
    w = mlaot.Parameter("w", np.ones((2, 1, 3), np.float32))

    def model(x: Any) -> Any:
        if what == "no windows":
            return np.sum(w.array * x[:2])
        y = F.conv1d(x, w)
        return np.sum(F.dropout(y, 0.5, training=True) if what == "random" else y)

    shape = (mlaot.dim("batch"), 1, 8) if what == "declared on a batch" else (1, 8)
    if what == "no windows":
        shape = (8,)
        w = mlaot.Parameter("w", np.ones(8, np.float32))
        model = lambda x: np.sum(w * x)  # noqa: E731
    model.__annotations__ = {"x": mlaot.f32[shape]}
    module = passes.run("m", trace(mlaot.model(loss=lambda y: y, parameters=[w])(model)))
    assert scan.name not in ops_of(module.graphs["train_step"])
