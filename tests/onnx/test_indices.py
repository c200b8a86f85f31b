"""Indices that are inputs of a file: out of range an error, as ONNX's text says, and as onnxruntime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mlaot.generate import compile_model
from mlaot.ir.indices import IndexRange
from mlaot.onnx import Backend
from mlaot.onnx.declare import declare
from mlaot.settings.options import Options

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
X = np.arange(15, dtype=np.float32).reshape(5, 3)
IMAGES = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
SCORES = np.arange(10, dtype=np.float32).reshape(2, 5)


def places(*shape: int) -> Any:
    return np.zeros(shape, np.int64)


# The operator, its inputs, which of them names elements, the shape of the output, attributes, what indices may be.
CASES: dict[str, tuple[str, list[Any], int, list[int], dict[str, Any], tuple[IndexRange, ...]]] = {
    "gather": ("Gather", [X, places(2)], 1, [2, 3], {}, (IndexRange(5, wraps=True),)),
    "gather, axis": ("Gather", [X, places(2, 2)], 1, [5, 2, 2], {"axis": -1}, (IndexRange(3, wraps=True),)),
    "elements": ("GatherElements", [X, places(2, 2)], 1, [2, 2], {"axis": 0}, (IndexRange(5, wraps=True),)),
    "elements, axis": ("GatherElements", [X, places(2, 2)], 1, [2, 2], {"axis": 1}, (IndexRange(3, wraps=True),)),
    "nd": (
        *("GatherND", [X, places(4, 2)], 1, [4], {}),
        (IndexRange(5, True, box=(None, (0, 1, 1))), IndexRange(3, True, box=(None, (1, 1, 1)))),
    ),
    "nd, rows": ("GatherND", [X, places(4, 1)], 1, [4, 3], {}, (IndexRange(5, wraps=True),)),
    "nd, batch": ("GatherND", [X, places(5, 1)], 1, [5], {"batch_dims": 1}, (IndexRange(3, wraps=True),)),
    "scatter": (
        *("ScatterElements", [X, places(2, 3), X[:2]], 1, [5, 3], {"axis": 0}),
        (IndexRange(5, wraps=True),),
    ),
    "scatter, added": (
        *("ScatterElements", [X, places(5, 2), X[:, :2]], 1, [5, 3], {"axis": 1, "reduction": "add"}),
        (IndexRange(3, wraps=True),),
    ),
    "scatter nd": (
        *("ScatterND", [X, places(4, 2), np.ones(4, np.float32)], 1, [5, 3], {}),
        (IndexRange(5, True, box=(None, (0, 1, 1))), IndexRange(3, True, box=(None, (1, 1, 1)))),
    ),
    "scatter nd, times": (
        *("ScatterND", [X, places(4, 1), np.ones((4, 3), np.float32)], 1, [5, 3], {"reduction": "mul"}),
        (IndexRange(5, wraps=True),),
    ),
    "unpool": (
        *("MaxUnpool", [IMAGES[:, :, :2, :2], places(2, 1, 2, 2)], 1, [2, 1, 4, 4]),
        *({"kernel_shape": [2, 2], "strides": [2, 2]}, (IndexRange(32, wraps=True),)),
    ),
    "roi": ("RoiAlign", [IMAGES, np.ones((3, 4), np.float32), places(3)], 2, [3, 1, 1, 1], {}, (IndexRange(2),)),
    "cross entropy": ("SoftmaxCrossEntropyLoss", [SCORES, places(2)], 1, [], {}, (IndexRange(5),)),
    "cross entropy, ignored": (
        *("SoftmaxCrossEntropyLoss", [SCORES, places(2)], 1, [], {"ignore_index": -1}),
        (IndexRange(5, ignored=-1),),
    ),
    "likelihood": (
        *("NegativeLogLikelihoodLoss", [SCORES, places(2), np.ones(5, np.float32)], 1, [], {"ignore_index": 7}),
        (IndexRange(5, ignored=7),),
    ),
    # "Any entries with values outside the range will result in one-hot representation with all 'off_value' values"
    "one hot": (
        *("OneHot", [places(4), np.array(3, np.int64), np.array([0, 1], np.float32)], 0, [4, 3], {"axis": -1}, ()),
    ),
}


def model(case: str) -> onnx.ModelProto:
    op, inputs, _, shape, attributes, _ = CASES[case]
    names = [f"in{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(name, KINDS[value.dtype.kind], value.shape)
        for name, value in zip(names, inputs, strict=True)
    ]
    constants = []
    if case == "one hot":
        constants, infos[1:2] = [onnx.numpy_helper.from_array(inputs[1], "in1")], []
    node = helper.make_node(op, names, ["y"], name="n", **attributes)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "g", infos, [out], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("case", CASES)
def test_ranges(case: str) -> None:
    """Of the input that names elements; of no other."""
    *_, ranges = CASES[case]
    program = compile_model(declare(model(case), {}), "m.nn", Options(isas=("base",)))
    found = {port.name: set(port.ranges) for port in program.module.entries[0].inputs if port.ranges}
    assert found == ({f"in{CASES[case][2]}": set(ranges)} if ranges else {})


@pytest.mark.parametrize("case", ["gather", "nd", "cross entropy, ignored"])
def test_out_of_range(case: str) -> None:
    _, inputs, at, _, _, ranges = CASES[case]
    compiled = Backend.prepare(model(case))
    compiled.run(inputs)
    for bad in (ranges[0].size, -ranges[0].size - 1, 2**63 - 1, -(2**63)):
        for place in (0, -1):
            given = [*inputs[:at], inputs[at].copy(), *inputs[at + 1 :]]
            given[at].reshape(-1)[place] = bad
            with pytest.raises(ValueError, match=rf"^in1\[.*\]: expected values from .*, got {bad}$"):
                compiled.run(given)
