"""Products of matrices and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator


@operator("MatMul")
def matmul(use: Use, a: Any, b: Any) -> Any:
    return np.matmul(a, b)


@operator("Gemm")
def gemm(use: Use, a: Any, b: Any, c: Any = None) -> Any:
    alpha, beta = use.attribute("alpha", 1.0), use.attribute("beta", 1.0)
    a = np.transpose(a) if use.attribute("transA", 0) else a
    b = np.transpose(b) if use.attribute("transB", 0) else b
    y = np.matmul(a, b)
    y = y if alpha == 1.0 else y * alpha
    if c is None or beta == 0.0:
        return y
    return y + (c if beta == 1.0 else c * beta)


@operator("Einsum")
def einsum(use: Use, *values: Any) -> Any:
    equation = use.string("equation", "").replace(" ", "")
    return np.einsum(equation, *values, optimize=len(values) > 2)


@operator("Det")
def det(use: Use, x: Any) -> Any:
    return _det(x)


def _det(x: Any) -> Any:
    """By Laplace's formula along the first row: for the small matrices that models have."""
    n = x.shape[-1]
    if n == 1:
        return x[..., 0, 0]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    total: Any = None
    for j in range(n):
        minor = np.concatenate([x[..., 1:, :j], x[..., 1:, j + 1 :]], axis=-1)
        term = x[..., 0, j] * _det(minor)
        total = term if total is None else total - term if j % 2 else total + term
    return total
