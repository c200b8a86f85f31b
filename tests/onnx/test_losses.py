"""The two losses of ONNX, which are functions of other operators, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from mlaot.onnx import Backend

rng = np.random.default_rng(3)


def loss(log_prob: Any, target: Any, weight: Any, ignored: int | None, reduction: str) -> Any:
    """The loss in float64."""
    losses, weights = np.zeros(target.shape), np.zeros(target.shape)
    for place in np.ndindex(*target.shape):
        if target[place] != ignored:
            weights[place] = 1.0 if weight is None else weight[target[place]]
            losses[place] = -log_prob[(place[0], target[place], *place[1:])] * weights[place]
    if reduction == "none":
        return losses
    counts = weight is not None or ignored is not None
    return losses.sum() if reduction == "sum" else losses.sum() / (weights.sum() if counts else losses.size)


@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("opset", [12, 22])
@pytest.mark.parametrize(
    ("rest", "weighted", "ignored", "reduction"),
    [((), False, None, "mean"), ((4,), True, -100, "mean"), ((3, 2), True, 2, "none"), ((4,), False, 1, "sum")],
)
def test_losses_of_open_batches(
    op: str, opset: int, rest: tuple[int, ...], weighted: bool, ignored: int | None, reduction: str
) -> None:
    x = rng.standard_normal((6, 5, *rest)).astype(np.float32)
    target = rng.integers(0, 5, (6, *rest))
    if ignored is not None:
        target.reshape(-1)[::3] = ignored
    weight = rng.uniform(0.5, 2, 5).astype(np.float32)
    attrs: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    node = helper.make_node(op, ["x", "t", *(["w"] if weighted else [])], ["y"], **attrs)
    batch: list[Any] = ["batch"]
    infos = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [*batch, 5, *rest]),
        helper.make_tensor_value_info("t", onnx.TensorProto.INT64, [*batch, *rest]),
        *([helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [5])] if weighted else []),
    ]
    shape = [*batch, *rest] if reduction == "none" else []
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)
    model = helper.make_model(
        helper.make_graph([node], "m", infos, [out]), ir_version=8, opset_imports=[helper.make_opsetid("", opset)]
    )
    (y,) = Backend.prepare(model).run([x, target, *([weight] if weighted else [])])
    wide = x.astype(np.float64)
    given = wide - np.log(np.exp(wide).sum(1, keepdims=True)) if op.startswith("Softmax") else wide
    want = loss(given, target, weight if weighted else None, ignored, reduction)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
