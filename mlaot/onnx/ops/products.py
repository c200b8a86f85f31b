"""Products of matrices and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.onnx.registry import MICROSOFT, operator, operators
from mlaot.onnx.values import Unsupported, require_constant

operators({"MatMul": np.matmul})


@operator("Gemm")
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: bool = False, transB: bool = False
) -> Any:
    a = np.transpose(a) if transA else a
    b = np.transpose(b) if transB else b
    y = np.matmul(a, b)
    y = y if alpha == 1.0 else y * alpha
    if c is None or beta == 0.0:
        return y
    return y + (c if beta == 1.0 else c * beta)


@operator("Einsum")
def einsum(*values: Any, equation: str = "") -> Any:
    return np.einsum(equation.replace(" ", ""), *values, optimize=len(values) > 2)


@operator("Det")
def det(x: Any) -> Any:
    """Compute determinants by elimination with pivoting; use the formula for small matrices."""
    n = x.shape[-1]
    if n == 1:
        return x[..., 0, 0]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n > 64:
        raise Unsupported(f"a determinant of {n} rows; compute it outside")
    at = np.expand_dims(np.argmax(np.abs(x[..., 0]), axis=-1), (-1, -2))  # row that is eliminated
    row = np.take_along_axis(x, np.broadcast_to(at, (*x.shape[:-2], 1, n)), axis=-2)
    places = np.arange(n - 1).reshape(-1, 1)
    places = np.where(places < at, places, places + 1)
    rest = np.take_along_axis(x, np.broadcast_to(places, (*x.shape[:-2], n - 1, n)), axis=-2)
    pivot = row[..., :1]
    below = rest[..., 1:] - rest[..., :1] * (row[..., 1:] / np.where(pivot == 0, 1, pivot))
    sign = np.where(at % 2 == 0, pivot, -pivot)[..., 0, 0]
    return sign * det(below)


@operator("Solve", domain=MICROSOFT)
def solve(a: Any, b: Any) -> Any:
    """Solve for a constant matrix, by its inverse."""
    return np.linalg.inv(require_constant(a, "the matrix")) @ b
