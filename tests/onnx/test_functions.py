"""Functions of the file: nested, with attributes that have defaults, and in graphs inside of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.checker
import onnx.parser
import pytest

from mlaot.onnx import Backend

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
HEAD = '<ir_version: 10, opset_import: ["": 20, "my": 1, "other": 1, "com.microsoft": 1]>'
IMPORTS = 'opset_import: ["": 20, "other": 1, "com.microsoft": 1]'


def elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(x))


def leaky(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * x)


# The graph, its functions, and what it computes.
CASES: dict[str, tuple[str, str, Callable[[Array], Array]]] = {
    "nested, the attribute of the outer one given to the inner one, which has a default": (
        "y = my.outer<alpha = 0.3>(x)",
        f"""
        <domain: "my", {IMPORTS}>
        outer<alpha>(a) => (c) {{ b = other.inner<slope: float = @alpha>(a) c = other.inner(b) }}
        <domain: "other", {IMPORTS}>
        inner<slope: float = 0.5>(a) => (c) {{ c = LeakyRelu<alpha: float = @slope>(a) }}
        """,
        lambda x: leaky(leaky(x, 0.3), 0.5),
    ),
    "a default, and a value in its place": (
        "a = my.f(x) b = my.f<alpha = 0.9>(x) y = Add(a, b)",
        f'<domain: "my", {IMPORTS}> f<alpha: float = 0.1>(a) => (c) {{ c = Elu<alpha: float = @alpha>(a) }}',
        lambda x: elu(x, 0.1) + elu(x, 0.9),
    ),
    "an attribute that becomes a constant, of which a shape depends": (
        "a = my.f<axes = [0]>(x) b = my.f(x) y = Add(a, b)",
        f"""
        <domain: "my", {IMPORTS}>
        f<axes: ints = [1]>(a) => (c) {{ t = Constant<value_ints: ints = @axes>() c = ReduceSum(a, t) }}
        """,
        lambda x: x.sum(0, keepdims=True) + x.sum(1, keepdims=True),
    ),
    "an attribute in the branches of an If": (
        "y = my.f<alpha = 0.7>(x)",
        f"""
        <domain: "my", {IMPORTS}>
        f<alpha: float = 1.0>(a) => (c) {{
            zero = Constant<value_float = 0.0>()
            s = ReduceSum<keepdims = 0>(a)
            p = Greater(s, zero)
            c = If(p) <
                then_branch = t () => (u) {{ u = Elu<alpha: float = @alpha>(a) }},
                else_branch = e () => (u) {{ v = LeakyRelu<alpha: float = @alpha>(a) u = Neg(v) }}
            >
        }}
        """,
        lambda x: elu(x, 0.7) if x.sum() > 0 else -leaky(x, 0.7),
    ),
    "inputs that are left out": (
        "high = Constant<value_float = 0.5>() a = my.f(x, , high) b = my.f(x) y = Add(a, b)",
        f'<domain: "my", {IMPORTS}> f(a, low, high) => (c) {{ c = Clip(a, low, high) }}',
        lambda x: np.minimum(x, 0.5) + x,
    ),
    "several outputs, and names that the graph has, too": (
        "a = Neg(x) c, d = my.f(a) b = my.f(c) y = Add(b, d)",
        f'<domain: "my", {IMPORTS}> f(a) => (c, b) {{ d = Exp(a) c = Neg(d) b = Add(c, a) }}',
        lambda x: -np.exp(-np.exp(-x)) - np.exp(-x) - x,
    ),
    "a text, and an operator of onnxruntime": (
        'a = my.f<mode = "tanh">(x) b = my.g(x) y = Sub(a, b)',
        f"""
        <domain: "my", {IMPORTS}>
        f<mode: string = "none">(a) => (c) {{ c = Gelu<approximate: string = @mode>(a) }}
        <domain: "my", {IMPORTS}>
        g(a) => (c) {{ c = com.microsoft.QuickGelu<alpha = 1.0>(a) }}
        """,
        lambda x: x / 2 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))) - x / (1 + np.exp(-x)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    graph, functions, formula = CASES[name]
    model = onnx.parser.parse_model(f"{HEAD} g (float[b, 6] x) => (float[p, q] y) {{ {graph} }} {functions}")
    onnx.checker.check_model(model)
    (y,) = Backend.prepare(model).run([X])
    np.testing.assert_allclose(y, formula(X.astype(np.float64)), rtol=2e-6, atol=2e-6)
