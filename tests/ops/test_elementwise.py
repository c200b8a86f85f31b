"""Elementwise ops on floats: special values of the references, gradients at kinks and poles, the C of both forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type
from mlaot.ir.types import f32, f64, i32
from mlaot.nest.expressions import FULL_VECTOR, ValueType, Var
from mlaot.ops import OPS
from mlaot.ops import reduction as red
from mlaot.printing.spelling import Speller
from mlaot.transforms.differentiate import differentiate

Array = np.ndarray[Any, Any]

INF, NAN = math.inf, math.nan
ORDINARY = (-50.0, -20.0, -3.0, -1.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 20.0, 50.0)
FAR = (-1e300, -1e160, -1e4, -700.0, 700.0, 1e4, 1e160, 1e300)


def reference(name: str, *args: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(OPS[name].reference(*[np.asarray(a, np.float64) for a in args]))


def gradients(name: str, *points: Sequence[float], order: int = 1) -> list[list[float]]:
    """The derivatives by each argument; with ``order`` 2, those of the sum of these."""
    graph = Graph("f")
    args = [graph.input(f"a{i}", Type(f64, (len(p),))) for i, p in enumerate(points)]
    found: list[Node] = [OPS[name](*args)]
    for _ in range(order):
        loss = red.sum_(found[0], axes=(0,))
        for other in found[1:]:
            loss = OPS["add"](loss, red.sum_(other, axes=(0,)))
        found = differentiate(loss, args)
    graph.outputs = {str(i): n for i, n in enumerate(found)}
    values = evaluate(graph, {f"a{i}": p for i, p in enumerate(points)})
    return [values[str(i)].tolist() for i in range(len(points))]


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("sigmoid", (0.0, INF, -INF, 800.0, -800.0, -40.0), (0.5, 1, 0, 1, 0, 4.248354255291589e-18)),
        ("softplus", (0.0, INF, -INF, NAN, 800.0, -40.0), (math.log(2), INF, 0, NAN, 800, 4.248354255291589e-18)),
        ("erf", (0.0, INF, -INF, 0.5), (0, 1, -1, 0.5204998778130465)),
        ("erfc", (0.0, INF, -INF, 10.0), (1, 0, 2, 2.088487583762545e-45)),
        ("erfinv", (0.0, 1.0, -1.0, 1.5, 0.5), (0, INF, -INF, NAN, 0.4769362762044699)),
        ("round", (0.5, 1.5, 2.5, -0.5, -1.5, 1e300), (0, 2, 2, 0, -2, 1e300)),
        ("trunc", (1.9, -1.9, INF), (1, -1, INF)),
        ("sign", (-2.0, -0.0, 0.0, NAN), (-1, 0, 0, NAN)),
        ("relu", (-INF, NAN, INF), (0, NAN, INF)),
        ("log1p", (-1.0, 1e-20), (-INF, 1e-20)),
        ("expm1", (-INF, 1e-20), (-1, 1e-20)),
    ],
)
def test_special_values(name: str, args: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(reference(name, args), expected, rtol=4e-16)


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("maximum", (NAN, 1.0), (1.0, NAN), (NAN, NAN)),
        ("power", (0.0, 0.0, -8.0, NAN, 1.0, -1.0), (0.0, -1.0, 1 / 3, 0.0, NAN, INF), (1, INF, NAN, 1, 1, 1)),
        ("floor_divide", (7.0, -7.0, 1.0, -1.0, 1.0), (2.0, 2.0, INF, INF, 0.0), (3, -4, 0, -1, INF)),
        ("remainder", (7.0, -7.0, 7.0, 1.0, -1.0, 1.0), (3.0, 3.0, -3.0, INF, INF, 0.0), (1, 2, -2, 1, INF, NAN)),
        ("fmod", (7.0, -7.0, 7.0, -1.0, 1.0), (3.0, 3.0, -3.0, INF, 0.0), (1, -1, 1, -1, NAN)),
        ("copysign", (1.0, -2.0, INF), (-0.0, 0.0, -1.0), (-1, 2, -INF)),
        ("hypot", (3e200, INF, 0.0), (4e200, NAN, 0.0), (5e200, INF, 0)),
        ("atan2", (0.0, -0.0, 0.0, 1.0), (-0.0, -1.0, 0.0, 0.0), (math.pi, -math.pi, 0, math.pi / 2)),
        ("nextafter", (1.0, 0.0), (2.0, -1.0), (1 + 2.0**-52, -5e-324)),
    ],
)
def test_special_values_of_two(name: str, x: Any, y: Any, expected: Any) -> None:
    np.testing.assert_allclose(reference(name, x, y), expected, rtol=2e-16)


def test_questions_and_comparisons_of_special_values() -> None:
    values = (NAN, INF, -INF, -0.0, 1.0, -5e-324)
    assert reference("isnan", values).tolist() == [True, False, False, False, False, False]
    assert reference("isinf", values).tolist() == [False, True, True, False, False, False]
    assert reference("isfinite", values).tolist() == [False, False, False, True, True, True]
    assert reference("signbit", values[1:]).tolist() == [False, True, True, False, True]
    assert reference("equal", (NAN, 0.0), (NAN, -0.0)).tolist() == [False, True]
    assert reference("not_equal", (NAN, 0.0), (NAN, -0.0)).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_erfinv_undoes_erf(dtype: str) -> None:
    """Up to the rounding of the argument; close to 1 as close as the dtype goes."""
    x = np.concatenate([np.linspace(-1, 1, 2001)[1:-1], 1 - 2.0 ** -np.arange(1, 53), 10.0 ** -np.arange(1, 300, 13)])
    found = np.asarray(OPS["erfinv"].reference(x.astype(dtype)))
    assert found.dtype == dtype
    again = np.array([math.erf(v) for v in reference("erfinv", x)])
    np.testing.assert_allclose(again, x, rtol=4e-16)


@pytest.mark.parametrize(
    ("name", "x", "y", "by_x", "by_y"),
    [
        ("power", (0.0, 0.0, 0.0, 2.0, -2.0), (0.0, 1.0, 2.0, 0.0, 2.0), (0, 1, 0, 0, -4), (0, 0, 0, math.log(2), NAN)),
        ("hypot", (0.0, 3e200), (0.0, 4e200), (0, 0.6), (0, 0.8)),
        ("atan2", (0.0, 0.0, 1e200), (0.0, 2.0, 1e200), (0, 0.5, 5e-201), (0, 0, -5e-201)),
        ("copysign", (0.0, -2.0, 2.0), (-1.0, 0.0, -3.0), (0, -1, -1), (0, 0, 0)),
        ("remainder", (5.0, -5.0, 6.0), (3.0, 3.0, 3.0), (1, 1, 1), (-1, 2, -2)),
        ("fmod", (5.0, -5.0, 6.0), (3.0, 3.0, 3.0), (1, 1, 1), (-1, 1, -2)),
        ("maximum", (1.0, 1.0), (1.0, 2.0), (0.5, 0), (0.5, 1)),
        ("floor_divide", (5.0,), (3.0,), (0,), (0,)),
        ("nextafter", (1.0,), (2.0,), (1,), (0,)),
    ],
)
def test_gradients_at_kinks(name: str, x: Any, y: Any, by_x: Any, by_y: Any) -> None:
    """PyTorch's, but for hypot(0, 0), where it has nan."""
    found = gradients(name, x, y)
    np.testing.assert_allclose(found, [by_x, by_y], rtol=1e-15)


def test_gradients_keep_their_digits() -> None:
    """Where the plain formula would subtract nearly equal numbers."""
    tiny = 2.0**-50
    np.testing.assert_allclose(gradients("expm1", [-50.0])[0], [math.exp(-50)], rtol=1e-15)
    np.testing.assert_allclose(gradients("asin", [1 - tiny])[0], [1 / math.sqrt(2 * tiny)], rtol=1e-15)
    np.testing.assert_allclose(gradients("atanh", [1 - tiny])[0], [1 / (2 * tiny)], rtol=1e-15)
    np.testing.assert_allclose(gradients("acosh", [1 + tiny])[0], [1 / math.sqrt(2 * tiny)], rtol=1e-15)


@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize(
    ("name", "points"),
    [
        *((n, ORDINARY) for n in ("sin", "cos", "exp2", "expm1", "sinh", "cosh", "log1p", "sigmoid", "erf", "erfc")),
        *((n, (*ORDINARY, *FAR)) for n in ("sigmoid", "softplus", "erf", "erfc", "atan", "asinh", "tanh")),
        *((n, (*ORDINARY, *FAR)) for n in ("sin", "cos")),
        *((n, (-1e4, *ORDINARY)) for n in ("exp", "exp2", "expm1")),
        *((n, (-0.999, -0.5, 0.0, 0.5, 0.999)) for n in ("asin", "acos", "atanh", "erfinv", "tan")),
        *((n, (1e-3, 1.0, 50.0, 1e100)) for n in ("log2", "log10", "log", "sqrt")),
        ("acosh", (1.001, 2.0, 1e4, 1e160, 1e300)),
    ],
)
def test_derivatives_are_finite(name: str, points: tuple[float, ...], order: int) -> None:
    """No infinity times 0 where the derivative is a number."""
    inside = [p for p in points if name != "log1p" or p > -1]
    assert np.isfinite(gradients(name, inside, order=order)).all()


def test_second_derivatives_at_masked_points_are_no_nan() -> None:
    for name, x, y in (("power", 0.0, 2.0), ("power", 0.0, 0.0), ("power", 3.0, 0.0), ("hypot", 0.0, 0.0)):
        assert np.isfinite(gradients(name, [x], [y], order=2)).all(), name
    np.testing.assert_allclose(gradients("power", [3.0], [0.0], order=2)[0], [1 / 3], rtol=1e-15)  # d2/dx dy


def test_cast_passes_a_gradient_between_floats_only() -> None:
    for dtype, expected in ((f32, [1.0, 1.0]), (i32, [0.0, 0.0])):
        graph = Graph("f")
        x = graph.input("x", Type(f64, (2,)))
        back = OPS["cast"](OPS["cast"](x, dtype=dtype), dtype=f64)
        graph.outputs["d"] = differentiate(red.sum_(back, axes=(0,)), [x])[0]
        assert evaluate(graph, {"x": [1.5, 2.5]})["d"].tolist() == expected


def c_text(name: str, args: str, t: str, **attrs: Any) -> str:
    c = OPS[name].c
    assert c is not None
    type_ = ValueType(t.removesuffix("v"), FULL_VECTOR if t.endswith("v") else 1)
    return Speller(0)(c([Var(name, type_) for name in args], **attrs))


C_TEXTS: list[tuple[str, str, str, str]] = [
    ("add", "a + b", "a + b", "add_i8(a, b)"),
    ("sub", "a - b", "a - b", "sub_i8(a, b)"),
    ("mul", "a * b", "a * b", "mul_i8(a, b)"),
    ("maximum", "max_f32(a, b)", "max_f32v(a, b)", "max_i8(a, b)"),
    ("power", "pow_f32(a, b)", "pow_f32v(a, b)", "pow_i8(a, b)"),
    ("floor_divide", "floor_divide_f32(a, b)", "floor_divide_f32v(a, b)", "floor_divide_i8(a, b)"),
    ("less", "a < b", "a < b", "a < b"),
    ("is_equal", "eq_f32(a, b)", "eq_f32v(a, b)", "eq_i8(a, b)"),
]


@pytest.mark.parametrize(("name", "scalar", "vector", "integer"), C_TEXTS)
def test_c_of_scalars_vectors_and_integers(name: str, scalar: str, vector: str, integer: str) -> None:
    assert [c_text(name, "ab", t) for t in ("f32", "f32v", "i8")] == [scalar, vector, integer]


def test_c_of_questions() -> None:
    texts = {n: [c_text(n, "x", t) for t in ("f32", "f64v")] for n in ("isnan", "isinf", "isfinite", "signbit")}
    assert texts == {
        "isnan": ["x != x", "x != x"],
        "isinf": ["abs_f32(x) == __builtin_inff()", "abs_f64v(x) == splat_f64v(__builtin_inf())"],
        "isfinite": ["abs_f32(x) < __builtin_inff()", "abs_f64v(x) < splat_f64v(__builtin_inf())"],
        "signbit": ["copysign_f32(1.0f, x) < 0.0f", "copysign_f64v(splat_f64v(1.0), x) < splat_f64v(0.0)"],
    }


def test_c_of_many_arguments_and_constant_powers() -> None:
    assert c_text("add", "abc", "f32") == "a + b + c"
    assert c_text("add", "abc", "u16") == "add_u16(add_u16(a, b), c)"
    assert [c_text("pow", "x", "f32", exponent=e) for e in (2, -1)] == ["x * x", "1.0f / x"]
    root = "select_f32(x == -__builtin_inff(), __builtin_inff(), sqrt_f32(x + 0.0f))"
    assert [c_text("pow", "x", "f32", exponent=e) for e in (0.5, -0.5)] == [root, f"1.0f / {root}"]
    assert [c_text("pow", "x", "i8", exponent=e) for e in (3, 5)] == ["mul_i8(mul_i8(x, x), x)", "pow_i8(x, 5)"]
