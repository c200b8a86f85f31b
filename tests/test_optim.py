"""Optimizers and schedules against PyTorch's results (``tests/reference/make_nn.py``) and against their papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot import MlaotError, optim
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Parameter, Tensor
from mlaot.ir import Graph, Type
from mlaot.ir.types import BY_NUMPY, f32
from mlaot.lower.lower import lower

from .arrayapi.engines import passed
from .compiled import AVAILABLE, Library
from .frontend.tracing import graph_of
from .nn.cases import OPTIMIZERS, RATES, SCHEDULES, STEPS, numbers, optimizer_arrays
from .nn.special import CLIP_NORMS, LATE, LION, gradients_of, left, right, values

Array = np.ndarray[Any, Any]
Arrays = dict[str, Any]
DATA = dict(np.load(Path(__file__).parent / "reference" / "optim.npz"))
SPECIAL = dict(np.load(Path(__file__).parent / "reference" / "special_optim.npz"))
MAKERS = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.Lion]


def row(arrays: Arrays) -> Array:
    return np.concatenate([np.ravel(array) for array in arrays.values()])


def path(optimizer: optim.Optimizer, steps: int = STEPS, lr: Any = None, dtype: Any = np.float64) -> Array:
    """The parameters after each step."""
    parameters = {k: v.astype(dtype) for k, v in optimizer_arrays(-1).items()}
    state = optimizer.init(parameters)
    rows = []
    for step in range(steps):
        gradients = {k: v.astype(dtype) for k, v in optimizer_arrays(step).items()}
        parameters, state = optimizer.update(parameters, gradients, state, lr)
        rows.append(row(parameters))
    assert all(v.dtype == dtype for v in parameters.values())
    assert all(v.dtype == (np.int64 if k == "step" else dtype) for k, v in state.items())
    return np.stack(rows)


@pytest.mark.parametrize("number", range(len(OPTIMIZERS)), ids=lambda i: f"{OPTIMIZERS[i][0]}.{i}")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_like_pytorch(number: int, dtype: Any) -> None:
    name, options = OPTIMIZERS[number]
    found = path(getattr(optim, name)(**options), dtype=dtype)
    tolerance = 1e-10 if dtype is np.float64 else 2e-4
    np.testing.assert_allclose(found, DATA[f"{name}.{number}"], rtol=tolerance, atol=tolerance)


def traced_path(optimizer: optim.Optimizer, dtype: Any, steps: int = 4) -> Array:
    """As ``path``, each step traced to a graph; the rate is an input in float64."""
    parameters = {k: v.astype(dtype) for k, v in optimizer_arrays(-1).items()}
    state: Arrays = optimizer.init(parameters)
    rows = []
    for step in range(steps):
        gradients = {k: v.astype(dtype) for k, v in optimizer_arrays(step).items()}
        given = {"parameters": parameters, "gradients": gradients, "state": state, "lr": {"": np.array(optimizer.lr)}}
        graph = Graph("update")
        nodes = {
            part: {k: graph.input(f"{part}.{k}", Type(BY_NUMPY[str(v.dtype)], v.shape)) for k, v in arrays.items()}
            for part, arrays in given.items()
        }
        with tracing(Trace(graph)):
            tensors = [{k: Tensor(node) for k, node in part.items()} for part in nodes.values()]
            updated, kept = optimizer.update(tensors[0], tensors[1], tensors[2], tensors[3][""])
            graph.outputs = {f"p.{k}": as_node(v) for k, v in updated.items()}
            graph.outputs |= {f"s.{k}": as_node(v) for k, v in kept.items()}
        inputs = {f"{part}.{k}": v for part, arrays in given.items() for k, v in arrays.items()}
        found = evaluate(graph, {k: v for k, v in inputs.items() if k in graph.inputs})
        parameters = {k: np.asarray(found[f"p.{k}"]) for k in parameters}
        state = {k: np.asarray(found[f"s.{k}"]) for k in state}
        rows.append(row(parameters))
    assert all(v.dtype == dtype for v in parameters.values())
    assert all(v.dtype == (np.int64 if k == "step" else dtype) for k, v in state.items())
    return np.stack(rows)


@pytest.mark.parametrize("number", range(len(OPTIMIZERS)), ids=lambda i: f"{OPTIMIZERS[i][0]}.{i}")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_traced(number: int, dtype: Any) -> None:
    name, options = OPTIMIZERS[number]
    found = traced_path(getattr(optim, name)(**options), dtype)
    tolerance = 1e-10 if dtype is np.float64 else 2e-4
    np.testing.assert_allclose(found, DATA[f"{name}.{number}"][: len(found)], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("number", range(len(SCHEDULES)), ids=lambda i: f"{SCHEDULES[i][0]}.{i}")
def test_schedule_and_clipping_traced(number: int) -> None:
    name, options, _, _ = SCHEDULES[number]
    for make in (optim.SGD, optim.AdamW, optim.Lion):
        optimizer = make(lr=0.5, schedule=getattr(optim, name)(**options), clip_grad_norm=0.7, clip_grad_value=0.5)
        np.testing.assert_allclose(traced_path(optimizer, np.float64), path(optimizer, 4), rtol=1e-12)
        np.testing.assert_allclose(traced_path(optimizer, np.float32), path(optimizer, 4), rtol=1e-3, atol=1e-4)


def test_rate_at_run_time() -> None:
    """The rate may be given at each step, as a number or an array of any dtype."""
    for make in MAKERS:
        expected = path(make(lr=0.03))
        np.testing.assert_allclose(path(make(lr=9.0), lr=0.03), expected, rtol=1e-12)
        np.testing.assert_allclose(path(make(lr=9.0), lr=np.array(0.03)), expected, rtol=1e-12)
        single = path(make(lr=9.0), lr=np.array(0.03), dtype=np.float32)  # float64 rate, float32 parameters
        np.testing.assert_allclose(single, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lion_is_the_papers(weight_decay: float) -> None:
    """Chen et al. 2023, algorithm 2."""
    beta1, beta2, rate = 0.8, 0.95, 0.01
    x, m = row(optimizer_arrays(-1)), np.zeros(9)
    rows = []
    for step in range(STEPS):
        g = row(optimizer_arrays(step))
        c = beta1 * m + (1 - beta1) * g
        x = x - rate * (np.sign(c) + weight_decay * x)
        m = beta2 * m + (1 - beta2) * g
        rows.append(x)
    found = path(optim.Lion(lr=rate, betas=(beta1, beta2), weight_decay=weight_decay))
    np.testing.assert_allclose(found, rows, rtol=1e-12)


@pytest.mark.parametrize("number", range(len(SCHEDULES)), ids=lambda i: f"{SCHEDULES[i][0]}.{i}")
def test_schedule(number: int) -> None:
    name, options, _, _ = SCHEDULES[number]
    schedule = getattr(optim, name)(**options)
    for kind in (int, np.int64, lambda i: np.array(i, np.int64)):
        rates = [0.5 * schedule(kind(step)) for step in range(RATES)]
        np.testing.assert_allclose(rates, DATA[f"schedule.{number}"], rtol=1e-10, atol=1e-15)


def test_schedules_in_sequence_and_in_a_chain() -> None:
    warm, fall = optim.linear_lr(0.1, 1.0, 4), optim.exponential_lr(0.5)
    both = optim.sequential_lr([warm, fall], [4])
    assert [float(both(i)) for i in range(7)] == pytest.approx([0.1, 0.325, 0.55, 0.775, 1.0, 0.5, 0.25])
    chain = optim.chained_lr([warm, fall])
    assert float(chain(2)) == pytest.approx(0.55 * 0.25)
    with pytest.raises(MlaotError, match="2 schedules need 1 milestones"):
        optim.sequential_lr([warm, fall], [])


def test_long_warm_restarts() -> None:
    """Restarts fall on the very step, however many there are."""
    schedule = optim.cosine_annealing_warm_restarts_lr(3, 2)
    for n in range(24):
        start = 3 * (2**n - 1)
        assert schedule(start) == pytest.approx(1.0, abs=1e-12)
        if n:
            assert schedule(start - 1) < 0.3


def test_schedule_multiplies_the_rate() -> None:
    for make in MAKERS:
        scheduled = path(make(lr=0.1, schedule=optim.step_lr(5, 0.3)), steps=5)
        np.testing.assert_allclose(scheduled, path(make(lr=0.1), steps=5), rtol=1e-12)
    parameters, gradients = {"x": np.ones(2)}, {"x": np.ones(2)}
    sgd = optim.SGD(lr=0.1, schedule=lambda step: 0.5**step)
    state = sgd.init(parameters)
    assert state == {"step": 0}
    for step, expected in enumerate((0.9, 0.85, 0.825)):
        assert state["step"] == step
        parameters, state = sgd.update(parameters, gradients, state)
        np.testing.assert_allclose(parameters["x"], expected)


def test_state_is_what_is_needed() -> None:
    parameters = {"conv1.weight": np.ones((2, 3), np.float32), "bias": np.ones(3)}
    assert optim.SGD().init(parameters) == {}
    state = optim.Adam(amsgrad=True).init(parameters)
    assert sorted(state) == sorted(
        [f"{slot}.{name}" for slot in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") for name in parameters] + ["step"]
    )
    assert state["exp_avg.conv1.weight"].dtype == np.float32
    assert state["step"].dtype == np.int64


def test_groups() -> None:
    """The first group that names a parameter counts: by name, by pattern, or by the parameter itself."""
    parameters = {"a.weight": np.ones(2), "a.bias": np.ones(2), "b.weight": np.ones(2), "b.bias": np.ones(2)}
    gradients = {name: np.zeros(2) for name in parameters}
    held = Parameter("b.weight", np.ones(2))
    groups = [
        {"params": "*.bias", "weight_decay": 0.0},
        {"params": [held], "lr": 0.3},
        {"params": ["b.*"], "weight_decay": 100.0},
    ]
    sgd = optim.SGD(lr=0.1, weight_decay=0.5, groups=groups)
    new, _ = sgd.update(parameters, gradients, sgd.init(parameters))
    assert {k: float(v[0]) for k, v in new.items()} == pytest.approx(
        {"a.weight": 0.95, "a.bias": 1.0, "b.weight": 0.85, "b.bias": 1.0}
    )
    new, _ = sgd.update(parameters, gradients, {}, lr=0.2)  # a group's rate keeps its ratio
    assert float(new["b.weight"][0]) == pytest.approx(0.7)


def test_groups_with_own_slots() -> None:
    parameters = {"a": np.ones(2), "b": np.ones(2)}
    sgd = optim.SGD(lr=0.1, groups=[{"params": ["b"], "momentum": 0.9, "dampening": 0.5}])
    assert set(sgd.init(parameters)) == {"momentum_buffer.b", "step"}


def test_group_errors() -> None:
    for groups, message in (
        ([{"params": "a", "weight_decy": 0.1}], "a group has 'params' and any of"),
        ([{"weight_decay": 0.1}], "a group has 'params'"),
        ([{"params": [3]}], "names, patterns, or parameters"),
        ([{"params": "a", "weight_decay": -1.0}], "expected weight_decay of at least 0"),
    ):
        with pytest.raises(MlaotError, match=message):
            optim.SGD(groups=groups)
    with pytest.raises(MlaotError, match="no parameter is called 'c'"):
        optim.SGD(groups=[{"params": "c", "momentum": 0.1}]).init({"a": np.ones(1)})


def test_option_errors() -> None:
    for make, options, message in (
        (optim.SGD, {"lr": -1.0}, "lr of at least 0"),
        (optim.SGD, {"nesterov": True}, "nesterov needs a momentum"),
        (optim.Adam, {"betas": (0.9, 1.0)}, "betas from 0 to below 1"),
        (optim.RMSprop, {"eps": -1.0}, "eps of at least 0"),
    ):
        with pytest.raises(MlaotError, match=message):
            make(**options)


@pytest.mark.parametrize("name", [k for k in DATA if k.startswith("clip.")])
def test_clip_by_norm(name: str) -> None:
    kind, limit = (float(part) for part in _split(name))
    clipped, norm = optim.clip_grad_norm(optimizer_arrays(0), limit, kind)
    np.testing.assert_allclose([norm, *row(clipped)], DATA[name], rtol=1e-10)


def _split(name: str) -> tuple[str, str]:
    """The kind of norm and the limit in a name such as ``clip.2.0.0.5``."""
    kind = "inf" if "inf" in name else name[5:8]
    return kind, name[len(f"clip.{kind}.") :]


def test_clip_in_an_optimizer() -> None:
    parameters = {"x": np.zeros(3), "y": np.zeros(1)}
    gradients = {"x": np.array([3.0, -8.0, 0.0]), "y": np.array([4.0])}
    new, _ = optim.SGD(lr=1.0, clip_grad_value=4.0).update(parameters, gradients, {})
    np.testing.assert_array_equal(new["x"], [-3.0, 4.0, 0.0])
    new, _ = optim.SGD(lr=1.0, clip_grad_value=4.0, clip_grad_norm=1.0).update(parameters, gradients, {})
    np.testing.assert_allclose(np.sqrt(np.sum(row(new) ** 2)), 1.0, rtol=1e-6)
    new, _ = optim.SGD(lr=1.0, clip_grad_norm=1.0).update(parameters, {"x": np.zeros(3), "y": np.zeros(1)}, {})
    np.testing.assert_array_equal(row(new), 0)


def test_parameters_without_gradient_stay() -> None:
    parameters = {"x": np.ones(2), "frozen": np.ones(2)}
    for make in MAKERS:
        optimizer = make(lr=0.1)
        new, state = optimizer.update(parameters, {"x": np.ones(2)}, optimizer.init(parameters))
        assert new["frozen"] is parameters["frozen"]
        assert np.all(new["x"] < 1)
        assert set(state) == set(optimizer.init(parameters))


def test_inputs_are_not_changed() -> None:
    for make in MAKERS:
        optimizer = make(lr=0.1)
        parameters, gradients = {"x": numbers((3,), 1)}, {"x": numbers((3,), 2)}
        state = optimizer.init(parameters)
        optimizer.update(parameters, gradients, state)
        np.testing.assert_array_equal(parameters["x"], numbers((3,), 1))
        np.testing.assert_array_equal(gradients["x"], numbers((3,), 2))
        assert all(not np.any(v) for v in state.values())


# Optimizers on special values: every value as a parameter with every value as its gradient.

UPDATED = {f"{name}.{i}": (name, options) for i, (name, options) in enumerate(OPTIMIZERS)} | {"Lion": LION}


def test_every_optimizer_and_schedule_has_answers() -> None:
    """Two schedules are made of others, and one ends."""
    compared = {name for name, _ in UPDATED.values()} | {name for name, *_ in SCHEDULES}
    assert compared | {
        "Optimizer",
        "clip_grad_norm",
        "clip_grad_value",
        "chained_lr",
        "sequential_lr",
        "lr_scheduler",
    } == {*optim.__all__}


def step_of(key: str) -> Callable[..., dict[str, Any]]:
    """One update as a function of parameter, gradient and state, in the order of their names."""
    name, options = UPDATED[key]
    optimizer = getattr(optim, name)(**options)
    slots = list(optimizer.init({"x": np.zeros(1, np.float32)}))

    def step(x: Any, gradient: Any, *state: Any) -> dict[str, Any]:
        updated, kept = optimizer.update({"x": x}, {"x": gradient}, dict(zip(slots, state, strict=True)))
        return updated | kept

    return step


def initial(key: str) -> list[Array]:
    name, options = UPDATED[key]
    x = left("float32")
    return [x, right("float32"), *getattr(optim, name)(**options).init({"x": x}).values()]


def check_updates(key: str, run: Callable[..., Sequence[Any]]) -> None:
    """The parameters after each update; where a square overflows, only in the way that the rounding goes, or not."""
    arrays = initial(key)
    large = np.isfinite(arrays[1]) & (np.abs(arrays[1]) > 1e30)
    compared = ~large if UPDATED[key][1].get("centered") else np.ones_like(large)
    for expected in SPECIAL[key]:
        found, *state = run(*arrays)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[compared], expected[compared], rtol=1e-5, atol=4e-7)
        arrays = [np.asarray(a) for a in (found, arrays[1], *state)]


@pytest.mark.parametrize("key", UPDATED)
def test_special_values(key: str) -> None:
    with np.errstate(all="ignore"):
        check_updates(key, lambda *arrays: list(step_of(key)(*arrays).values()))


def step_graph(key: str) -> Graph:
    types = [Type(BY_NUMPY[str(a.dtype)], a.shape) for a in initial(key)]
    return graph_of(lambda *arrays: list(step_of(key)(*arrays).values()), *types)[0]


@pytest.mark.parametrize("key", UPDATED)
def test_special_values_traced(key: str) -> None:
    graph = step_graph(key)
    check_updates(key, lambda *arrays: list(evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays)}).values()))


@pytest.fixture(scope="session")
def updates(shared_folder: Path) -> dict[str, Library]:
    programs = {key.replace(".", "_"): lower(passed(step_graph(key))) for key in UPDATED}
    return {isa: Library(programs, isa, shared_folder / f"updates_{isa}") for isa in {AVAILABLE[0], AVAILABLE[-1]}}


@pytest.mark.parametrize("key", UPDATED)
def test_special_values_compiled(key: str, updates: dict[str, Library]) -> None:
    for library in updates.values():

        def run(*arrays: Array, library: Library = library) -> list[Array]:
            inputs = {f"x{i}": a for i, a in enumerate(arrays)}
            return list(library.call(key.replace(".", "_"), "forward", inputs).values())

        check_updates(key, run)


@pytest.mark.parametrize("norm_type", CLIP_NORMS)
def test_clipping_of_special_values(norm_type: float) -> None:
    graph, _ = graph_of(
        lambda w, b: list(clipped({"w": w, "b": b}, norm_type)), *[Type(f32, a.shape) for a in gradients_of(0).values()]
    )
    for value in values("float32"):
        arrays = gradients_of(value)
        expected = SPECIAL[f"clip_grad_norm.{norm_type}.{value!r}"]
        traced = evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays.values())}).values()
        with np.errstate(all="ignore"):
            for found in (clipped(arrays, norm_type), traced):
                np.testing.assert_allclose(np.concatenate([np.ravel(a) for a in found]), expected, rtol=1e-5)


def clipped(gradients: Arrays, norm_type: float) -> list[Any]:
    found, norm = optim.clip_grad_norm(gradients, 0.7, norm_type)
    return [norm, *found.values()]


def test_limits_of_special_values() -> None:
    found = optim.clip_grad_value({"x": values("float32")}, 0.7)["x"]
    np.testing.assert_array_equal(found, SPECIAL["clip_grad_value"])


@pytest.mark.parametrize("number", range(len(SCHEDULES)), ids=lambda i: f"{SCHEDULES[i][0]}.{i}")
def test_late_rates(number: int) -> None:
    name, options, _, _ = SCHEDULES[number]
    if name == "cyclic_lr":  # PyTorch's numbers overflow
        return
    if name == "one_cycle_lr":  # it ends, and keeps its last rate
        schedule = optim.one_cycle_lr(**options)
        assert all(schedule(step) == schedule(options["total_steps"] - 1) for step in LATE)
        return
    rates = [0.5 * getattr(optim, name)(**options)(np.array(step, np.int64)) for step in LATE]
    np.testing.assert_allclose(rates, SPECIAL[f"schedule.{number}"], rtol=1e-6, atol=1e-12)
