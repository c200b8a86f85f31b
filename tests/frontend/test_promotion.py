"""Dtypes: NumPy's promotion, with Python's numbers weak and bfloat16 beside float16."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.ir.types import DTYPES, Type

from .tracing import assert_same, graph_of

NUMPY = [d for d in DTYPES.values() if d is not mlaot.bf16]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(NUMPY, NUMPY)), ids=lambda d: str(d))
def test_pairs_of_dtypes(a: Any, b: Any) -> None:
    x, y = np.array([1, 0, 1]).astype(a.numpy), np.array([1, 1, 0]).astype(b.numpy)
    assert_same(lambda x, y: (x + y, x * y, np.maximum(x, y), np.where(x, x, y), np.concatenate([x, y])), x, y)
    assert_same(lambda x, y: (x / (y + 1), x @ y, np.stack([x, y], axis=1)), x, y)
    if {str(a), str(b)} != {"u64", a.name if a.kind == "i" else b.name}:
        assert_same(lambda x, y: (x == y, x != y), x, y)


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_weak_numbers(dtype: Any) -> None:
    x = np.array([1, 0, 1]).astype(dtype.numpy)
    assert_same(lambda x: (x + 1, x * 2.0, 3 * x, x + True, x / 2, np.maximum(x, 0), np.where(x, x, 1.0)), x)
    assert_same(lambda x: (x + np.float32(1), x * np.int8(2), x + np.float64(1)), x)


def result(f: Any, *dtypes: Any) -> Any:
    return next(iter(graph_of(f, *[Type(d, (2,)) for d in dtypes])[0].outputs.values())).type.dtype


def test_bfloat16() -> None:
    bf16, f16, f32, f64 = mlaot.bf16, mlaot.f16, mlaot.f32, mlaot.f64
    expected = {bf16: bf16, f16: f32, f32: f32, f64: f64, mlaot.i8: bf16, mlaot.bool: bf16, mlaot.i64: f64}
    for other, kind in expected.items():
        assert result(lambda a, b: a + b, bf16, other) is kind
        assert result(lambda a, b: np.where(a, b, a), other, bf16) is kind
    for f in (np.exp, np.tanh, np.mean, np.sum, np.var, lambda x: x * 2.0, lambda x: x**2, mlaot.softmax, mlaot.erf):
        assert result(f, bf16) is bf16
    assert result(lambda x: x > 0, bf16) is mlaot.bool
    assert graph_of(lambda x: x.astype(x.dtype), bf16[2])[0].outputs["0"].type.dtype is bf16


def test_names_of_dtypes() -> None:
    for dtype in (mlaot.f32, np.float32, "float32", np.dtype("float32")):
        assert result(lambda x, d=dtype: x.astype(d), mlaot.i8) is mlaot.f32
    assert result(lambda x: x.astype(float), mlaot.i8) is mlaot.f64
    assert result(lambda x: x.astype("bfloat16"), mlaot.i8) is mlaot.bf16
    assert np.dtype("float32") == mlaot.f32 and mlaot.i8 == np.dtype("int8")
    assert np.zeros(2, mlaot.u8).dtype == "uint8"
    assert np.dtype("float32") != mlaot.bf16
    assert_same(lambda x: np.ones(x.shape, x.dtype) * x, np.ones(3, np.float32))


def test_casts_saturate() -> None:
    x = np.array([1e9, -1e9, np.nan, 3.7, -3.7])
    np.testing.assert_array_equal(mlaot.astype(x, "int8"), [127, -128, 0, 3, -3])
    assert_same(lambda x: mlaot.astype(x, "uint8"), x)
