"""Products with weights of few bits that kernels for bytes compute: large ones, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from mlaot.onnx import Backend

from .microsoft_cases import pack

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 264, 256  # the last block is a part of one
RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, ROWS)).astype(np.float32)


def product(bits: int, size: int, zeros: str, level: int, order: Any = None) -> tuple[Backend, Array]:
    """A compiled product, and the weights."""
    blocks = -(-ROWS // size)
    codes = RNG.integers(0, 2**bits, (COLUMNS, blocks, size))
    scales = (0.01 + RNG.random((COLUMNS, blocks)) / 50).astype(np.float32)
    middle = np.full((COLUMNS, blocks), 2.0 ** (bits - 1), np.float32)
    offsets = {"": middle, "packed": np.floor(RNG.random(middle.shape) * 2**bits), "float": middle + 0.4}[zeros]
    given = pack(offsets.astype(np.uint8), bits) if zeros == "packed" else offsets.astype(np.float32)
    held = {"w": pack(codes, bits), "s": scales} | ({"z": given} if zeros else {})
    held |= {} if order is None else {"o": order}
    names = ["x", "w", "s", "z" if zeros else "", "" if order is None else "o"]
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=ROWS, N=COLUMNS, bits=bits)
    node.attribute.extend([helper.make_attribute("block_size", size), helper.make_attribute("accuracy_level", level)])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, [3, ROWS])],
        [helper.make_tensor_value_info("y", 1, [3, COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    at = np.arange(ROWS) // size if order is None else order
    numbers = codes.reshape(COLUMNS, -1)[:, :ROWS]
    weights = ((numbers - offsets[:, at]) * scales[:, at]).T.astype(np.float64)
    return Backend.prepare(helper.make_model(graph, opset_imports=opsets, ir_version=8)), weights


@pytest.mark.parametrize(
    ("bits", "size", "zeros", "level", "error", "bytes_each"),
    [
        (4, 32, "", 0, 5e-5, 1.25),
        (4, 128, "packed", 0, 5e-5, 1.6),
        (2, 16, "float", 0, 5e-5, 1.7),
        (8, 32, "", 0, 5e-5, 1.4),
        (8, 64, "packed", 4, 5e-5, 1.6),
        (4, 32, "", 4, 2e-2, 0.75),
        (4, 32, "packed", 4, 2e-2, 0.9),
        (4, 32, "", 1, 1e-6, 4.1),
    ],
)
def test_product(bits: int, size: int, zeros: str, level: int, error: float, bytes_each: float) -> None:
    compiled, weights = product(bits, size, zeros, level)
    (y,) = compiled.run([X])
    expected = X @ weights
    assert np.abs(y - expected).max() <= error * np.abs(expected).max()
    assert len(compiled.module.constants) <= bytes_each * ROWS * COLUMNS


def test_not_finite() -> None:
    """A row that has nan or an infinity gives nan; others are what they were."""
    compiled, _ = product(4, 32, "packed", 0)
    (expected,) = compiled.run([X])
    for value in (np.nan, np.inf, -np.inf):
        x = X.copy()
        x[1, ROWS - 1] = value
        (y,) = compiled.run([x])
        assert np.isnan(y[1]).all()
        np.testing.assert_array_equal(y[[0, 2]], expected[[0, 2]])


def test_rows_out_of_order() -> None:
    """The blocks that rows name need not be neighbours; such a weight is of floats."""
    order = RNG.permutation(np.arange(ROWS) // 32).astype(np.int32)
    compiled, weights = product(4, 32, "packed", 0, order)
    np.testing.assert_allclose(compiled.run([X])[0], X @ weights, rtol=1e-4, atol=1e-4)
