"""Gradients of a part of an ONNX graph, and steps of its optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlaot.errors import MlaotError
from mlaot.onnx import Backend, ops  # noqa: F401
from mlaot.onnx.registry import find

TRAINING = "ai.onnx.preview.training"
F = np.float32


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    domain = TRAINING if op in ("Gradient", "Momentum", "Adam", "Adagrad") else ""
    return helper.make_node(op, inputs.split(), outputs.split(" "), domain=domain, **attributes)


def run(nodes: Sequence[Any], outputs: str, constants: dict[str, Any] | None = None, **inputs: Any) -> Any:
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in arrays.items()
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()]
    for info in made:
        info.type.tensor_type.shape.SetInParent()
    held = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(TRAINING, 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, made, held), opset_imports=opsets, ir_version=10)
    return Backend.prepare(model).run(list(arrays.values()))


def product(*extra: Any) -> list[Any]:
    return [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("ReduceSum", "t", "y", keepdims=0), *extra]


X = np.array([[0.5, -1.0, 2.0], [1.0, 0.25, -0.5]], F)
W = np.array([[0.3], [-0.2], [0.1]], F)


def test_gradient_by_inputs() -> None:
    dw, dx = run(product(node("Gradient", "w x", "dw dx", xs=["w", "x"], y="y")), "dw dx", x=X, w=W)
    slope = 1 - np.tanh(X @ W) ** 2
    np.testing.assert_allclose(dw, X.T @ slope, rtol=1e-5)
    np.testing.assert_allclose(dx, slope @ W.T, rtol=1e-5)


def test_gradient_by_a_weight_and_by_an_intermediate_value() -> None:
    (dw,) = run(product(node("Gradient", "w x", "dw", xs=["w"], zs=["x"], y="y")), "dw", {"w": W}, x=X)
    slope = 1 - np.tanh(X @ W) ** 2
    np.testing.assert_allclose(dw, X.T @ slope, rtol=1e-5)
    (dh,) = run(product(node("Gradient", "h", "dh", xs=["h"], y="y")), "dh", x=X, w=W)
    np.testing.assert_allclose(dh, slope, rtol=1e-5)


def test_gradient_at_other_values_than_the_named_ones() -> None:
    other = W + 1
    (dw,) = run(product(node("Gradient", "v x", "dw", xs=["w"], zs=["x"], y="y")), "dw", x=X, w=W, v=other)
    np.testing.assert_allclose(dw, X.T @ (1 - np.tanh(X @ other) ** 2), rtol=1e-5)


def test_equal_values_of_two_names_are_two_variables() -> None:
    nodes = [node("Relu", "x", "a"), node("Relu", "x", "b"), node("Mul", "a b", "c")]
    nodes += [node("ReduceSum", "c", "y", keepdims=0), node("Gradient", "a b", "da", xs=["a"], zs=["b"], y="y")]
    (da,) = run(nodes, "da", x=X)
    np.testing.assert_array_equal(da, np.maximum(X, 0))  # not twice that


def test_second_order() -> None:
    nodes = [node("Mul", "x x", "s"), node("Mul", "s x", "y"), node("Gradient", "x", "d", xs=["x"], y="y")]
    nodes.append(node("Gradient", "x", "dd", xs=["x"], y="d"))
    d, dd = run(nodes, "d dd", x=F(3.0))
    assert (d, dd) == (27.0, 18.0)


def test_skipped_outputs_and_values_that_do_not_reach() -> None:
    nodes = product(node("Gradient", "w z", " dz", xs=["w", "z"], y="y"))
    (dz,) = run(nodes, "dz", x=X, w=W, z=X)
    np.testing.assert_array_equal(dz, np.zeros_like(X))


@pytest.mark.skipif(find("", "If", 18) is None, reason="no If")
def test_gradient_of_what_a_graph_inside_sees() -> None:
    then, otherwise = (
        helper.make_graph([node(op, "x", f"{op}_y")], op, [], [helper.make_tensor_value_info(f"{op}_y", 1, [])])
        for op in ("Exp", "Neg")
    )
    nodes = [node("If", "c", "y", then_branch=then, else_branch=otherwise)]
    nodes.append(node("Gradient", "x", "d", xs=["x"], y="y"))
    (d,) = run(nodes, "d", {"c": np.array(True)}, x=F(2.0))
    np.testing.assert_allclose(d, np.exp(F(2)), rtol=1e-6)


def test_unknown_names_and_integers_are_refused() -> None:
    with pytest.raises(MlaotError, match="nothing computes 'nowhere'"):
        run(product(node("Gradient", "w", "dw", xs=["nowhere"], y="y")), "dw", x=X, w=W)
    nodes = [node("Cast", "i", "y", to=1), node("Gradient", "i", "d", xs=["i"], y="y")]
    with pytest.raises(NotImplementedError, match="only numbers with a fraction"):
        run(nodes, "d", i=np.array([1, 2]))


@pytest.mark.parametrize(("mode", "step"), [("standard", 0), ("standard", 3), ("nesterov", 3)])
def test_momentum(mode: str, step: int) -> None:
    x, g, v = (np.random.default_rng(i).normal(size=(2, 3)).astype(F) for i in range(3))
    options = {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": mode}
    made = node("Momentum", "r t x g v", "nx nv", **options)
    nx, nv = run([made], "nx nv", r=F(0.1), t=np.int64(step), x=x, g=g, v=v)
    whole = g + 0.01 * x
    moment = 0.9 * v + (0.5 if step else 1) * whole
    np.testing.assert_allclose(nv, moment, rtol=1e-5)
    np.testing.assert_allclose(nx, x - 0.1 * (whole + 0.9 * moment if mode == "nesterov" else moment), rtol=1e-5)


@pytest.mark.parametrize("step", [0, 5])
def test_adam_of_two_tensors(step: int) -> None:
    x, g, v, h = (np.abs(np.random.default_rng(i).normal(size=(2, 2)).astype(F)) for i in range(4))
    options = {"alpha": 0.9, "beta": 0.99, "epsilon": 1e-3, "norm_coefficient": 0.1, "norm_coefficient_post": 0.2}
    made = node("Adam", "r t x x2 g g2 v v2 h h2", "nx nx2 nv nv2 nh nh2", **options)
    values = {"x": x, "x2": x[0], "g": g, "g2": g[0], "v": v, "v2": v[0], "h": h, "h2": h[0]}
    found = run([made], "nx nx2 nv nv2 nh nh2", r=np.array([0.1], F), t=np.array([step]), **values)
    whole = g + 0.1 * x
    first, second = 0.9 * v + 0.1 * whole, 0.99 * h + 0.01 * whole**2
    rate = 0.1 * np.sqrt(1 - 0.99**step) / (1 - 0.9**step) if step else 0.1
    new = 0.8 * (x - rate * first / (np.sqrt(second) + 1e-3))
    for got, wanted in zip(found, (new, new[0], first, first[0], second, second[0]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5)


def test_adagrad_in_double() -> None:
    x, g, h = (np.abs(np.random.default_rng(i).normal(size=3)) for i in range(3))
    made = node("Adagrad", "r t x g h", "nx nh", decay_factor=0.5, epsilon=1e-5)
    nx, nh = run([made], "nx nh", r=F(0.1), t=np.int64(4), x=x, g=g, h=h)
    np.testing.assert_allclose(nh, h + g * g, rtol=1e-12)
    np.testing.assert_allclose(nx, x - F(0.1) / 3 * g / (np.sqrt(h + g * g) + 1e-5), rtol=1e-7)


def test_tensors_that_do_not_come_in_groups() -> None:
    with pytest.raises(MlaotError, match="each that is updated comes with 2 more"):
        run([node("Adagrad", "r t x g", "nx nh")], "nx nh", r=F(0.1), t=np.int64(4), x=X, g=X)
