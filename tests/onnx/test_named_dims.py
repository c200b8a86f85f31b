"""Operators over dimensions that are open: where constants meet them, they have no size that NumPy knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mlaot.onnx
from mlaot.evaluate import evaluate

node = helper.make_node
SHAPE = node("Shape", ["x"], ["n"], start=0, end=1)
RNG = np.random.default_rng(0)
CONSTANTS = {
    "zero": np.zeros((1, 1), np.float32),
    "two": np.array([2], np.int64),
    "nought": np.array(0, np.int64),
    "three": np.array(3, np.int64),
    "table": RNG.random((4, 3)).astype(np.float32),
    "whole": np.array([[0, 0]], np.int64),
    "rows": np.array([[[1], [3]]], np.int64),
    "last": np.array([-1], np.int64),
    "empty": np.array([], np.int64),
}
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64

# Nodes that compute y of x, which is f32[batch, 2], and its dtype.
CASES: dict[str, tuple[Sequence[Any], int]] = {
    "Expand": ([SHAPE, node("Concat", ["n", "two"], ["to"], axis=0), node("Expand", ["zero", "to"], ["y"])], FLOAT),
    "Range": (
        [
            SHAPE,
            node("Reshape", ["n", "empty"], ["rows_"]),
            node("Mul", ["rows_", "three"], ["end"]),
            node("Range", ["nought", "end", "three"], ["y"]),
        ],
        INT,
    ),
    "GatherND": (
        [
            node("Cast", ["x"], ["at"], to=INT),
            node("Unsqueeze", ["at", "last"], ["at3"]),
            node("GatherND", ["table", "at3"], ["y"]),
        ],
        FLOAT,
    ),
    "ScatterElements": (
        [
            node("Cast", ["x"], ["at"], to=INT),
            node("ScatterElements", ["x", "at", "x"], ["y"], axis=1, reduction="add"),
        ],
        FLOAT,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_open_batch(name: str) -> None:
    nodes, dtype = CASES[name]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", dtype, None)],
        [numpy_helper.from_array(value, key) for key, value in CONSTANTS.items()],
    )
    for info in graph.output:
        info.type.tensor_type.shape.dim.extend(
            [onnx.TensorShapeProto.Dimension()] * {"Range": 1, "GatherND": 3}.get(name, 2)
        )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    traced = mlaot.onnx.load(model).trace()
    for rows in (1, 4):
        x = RNG.integers(0, 2, (rows, 2)).astype(np.float32)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_array_equal(evaluate(traced.graph, {"x": x, **traced.parameters})["y"], wanted)
