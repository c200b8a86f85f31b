"""Functions of NumPy and SciPy: traced and evaluated they give what NumPy gives, in dtype, shape and value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

import mlaot

from .tracing import assert_same

Array = np.ndarray[Any, Any]
Case = Callable[..., Any]
RNG = np.random.default_rng(1)


def sample(dtype: str, *shape: int) -> Array:
    """Numbers of a dtype: some equal, some zero, some negative where there are such."""
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    if np.dtype(dtype).kind == "f":
        return np.round(RNG.normal(size=shape) * 2, 1).astype(dtype)
    return RNG.integers(0 if dtype.startswith("u") else -5, 6, shape).astype(dtype)


FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int32", "int64", "uint8", "uint32")
NUMBERS = ("float16", *FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")

UNARY = {
    "float": (
        *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.cbrt, np.square),
        *(np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh, np.tanh),
        *(np.arcsinh, np.arccosh, np.arctanh, np.deg2rad, np.rad2deg, np.radians, np.degrees, np.fabs, np.signbit),
        *(np.reciprocal, np.sinc, np.nan_to_num, np.isneginf, np.isposinf),
    ),
    "number": (np.negative, np.sign, np.positive, np.absolute, np.conjugate, np.real),
    "any": (
        *(np.floor, np.ceil, np.trunc, np.fix, np.isnan, np.isinf, np.isfinite, np.logical_not),
        *(np.isreal, np.copy, np.ones_like, np.zeros_like, np.ravel),
    ),
}
BINARY = (
    *(np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.equal, np.not_equal, np.less, np.less_equal),
    *(np.greater, np.greater_equal, np.logical_and, np.logical_or, np.logical_xor),
)
ARITHMETIC = (np.subtract, np.divide, np.floor_divide, np.remainder, np.fmod, np.divmod)
OF_FLOATS = (
    *(np.arctan2, np.hypot, np.copysign, np.nextafter, np.logaddexp, np.logaddexp2, np.heaviside, np.power),
    np.float_power,
)
BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def ufunc_cases() -> Iterator[Any]:
    for names, dtypes in (("float", ("float16", *FLOATS)), ("number", NUMBERS), ("any", ALL)):
        for function in UNARY[names]:
            for dtype in dtypes:
                yield pytest.param(function, [sample(dtype, 3, 4)], id=f"{function.__name__}-{dtype}")
    for function in UNARY["float"][:27]:
        for dtype in ("int8", "int32", "uint8"):
            yield pytest.param(function, [sample(dtype, 7)], id=f"{function.__name__}-{dtype}")
    for functions, dtypes in ((BINARY, ALL), (ARITHMETIC, NUMBERS), (OF_FLOATS, FLOATS), (BITS, (*INTEGERS, "bool"))):
        for function in functions:
            for dtype in dtypes:
                yield pytest.param(function, [sample(dtype, 3, 4), sample(dtype, 4)], id=f"{function.__name__}-{dtype}")
    for dtype in (*INTEGERS, "bool"):
        yield pytest.param(np.invert, [sample(dtype, 5)], id=f"invert-{dtype}")
    for shift in (np.left_shift, np.right_shift):
        for dtype in INTEGERS:
            yield pytest.param(shift, [sample(dtype, 5), np.abs(sample(dtype, 5))], id=f"{shift.__name__}-{dtype}")


@pytest.mark.parametrize(("function", "arrays"), list(ufunc_cases()))
def test_ufuncs(function: Case, arrays: list[Array]) -> None:
    if function in (np.floor_divide, np.remainder, np.fmod, np.divmod):
        arrays = [arrays[0], np.where(arrays[1] == 0, 1, arrays[1]).astype(arrays[1].dtype)]
    assert_same(function, *arrays)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-30, 2.5, -3.5, 700.0])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", [*UNARY["float"], *UNARY["any"], np.sign, np.rint], ids=lambda f: f.__name__)
def test_unary_special_values(function: Case, dtype: str) -> None:
    assert_same(function, SPECIAL.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", [*BINARY, *ARITHMETIC, *OF_FLOATS], ids=lambda f: f.__name__)
def test_binary_special_values(function: Case, dtype: str) -> None:
    x = SPECIAL.astype(dtype)
    assert_same(function, np.repeat(x, len(x)), np.tile(x, len(x)))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.0, -2, np.float32(1.5), np.int8(2)])
@pytest.mark.parametrize("dtype", ["float16", *FLOATS])
def test_powers(dtype: str, exponent: Any) -> None:
    assert_same(lambda x: x**exponent, np.abs(sample(dtype, 5)) + 1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers(dtype: str) -> None:
    assert_same(lambda x: (x**2, x**3, x**0, 2**x, x ** np.array(2, dtype)), np.arange(5).astype(dtype))


# One array of several shapes: x is 2-d, or 1-d where that is said.
OF_ONE: dict[str, Case] = {
    "sum": lambda x: (np.sum(x), x.sum(0), x.sum(axis=-1), np.sum(x, axis=(0, 1), keepdims=True)),
    "sum of a dtype": lambda x: np.sum(x, axis=0, dtype=np.float64),
    "sum from": lambda x: np.sum(x, axis=0, initial=3),
    "prod": lambda x: (np.prod(x), x.prod(axis=1, keepdims=True)),
    "max": lambda x: (np.max(x), x.max(0), np.amax(x, axis=1, keepdims=True)),
    "min": lambda x: (np.min(x), x.min(0), np.amin(x, axis=1, keepdims=True)),
    "mean": lambda x: (np.mean(x), x.mean(0), np.mean(x, axis=(0, 1), keepdims=True)),
    "all": lambda x: (np.all(x), x.all(axis=0), np.all(x, axis=1, keepdims=True)),
    "any": lambda x: (np.any(x), x.any(axis=0), np.any(x, axis=1, keepdims=True)),
    "count_nonzero": lambda x: (np.count_nonzero(x, axis=0), np.count_nonzero(x, axis=1, keepdims=True)),
    "argmax": lambda x: (np.argmax(x), x.argmax(0), np.argmax(x, axis=-1, keepdims=True)),
    "argmin": lambda x: (np.argmin(x), x.argmin(0), np.argmin(x, axis=-1, keepdims=True)),
    "cumsum": lambda x: (np.cumsum(x), x.cumsum(0), np.cumsum(x, axis=-1)),
    "cumprod": lambda x: (np.cumprod(x, axis=1), x.cumprod()),
    "sort": lambda x: (np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None)),
    "argsort": lambda x: (np.argsort(x, stable=True), np.argsort(x, axis=0, kind="stable")),
    "reshape": lambda x: (x.reshape(-1), x.reshape(2, -1), np.reshape(x, (-1, 1)), x.reshape((4, -1))),
    "ravel": lambda x: (x.ravel(), x.flatten()),
    "transpose": lambda x: (x.T, x.transpose(), x.transpose(1, 0), np.transpose(x, (-1, 0)), np.matrix_transpose(x)),
    "swapaxes": lambda x: (np.swapaxes(x, 0, 1), x.swapaxes(-1, 0), x.mT if hasattr(x, "mT") else x.T),
    "moveaxis": lambda x: (np.moveaxis(x, 0, -1), np.moveaxis(x[None], (0, 2), (2, 0)), np.rollaxis(x, 1)),
    "expand_dims": lambda x: (np.expand_dims(x, 0), np.expand_dims(x, (0, -1)), np.expand_dims(x, -1)),
    "squeeze": lambda x: (np.squeeze(x[None]), x[None].squeeze(0), np.squeeze(x[:, None, :, None], axis=(1, 3))),
    "broadcast_to": lambda x: (np.broadcast_to(x, (3, *x.shape)), np.broadcast_to(x[:1], (5, x.shape[1]))),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, x[0], x[:1, :1]),
    "atleast": lambda x: (np.atleast_1d(x[0, 0]), np.atleast_2d(x[0]), np.atleast_3d(x), np.atleast_3d(x[0])),
    "concatenate": lambda x: (np.concatenate([x, x]), np.concatenate((x, x[:, :1]), axis=1), np.concat([x, x], 1)),
    "concatenate flat": lambda x: np.concatenate([x, x[0]], axis=None),
    "stack": lambda x: (np.stack([x, x]), np.stack([x, x], axis=1), np.stack((x, x), axis=-1)),
    "stacks": lambda x: (np.hstack([x, x]), np.vstack([x, x[0]]), np.dstack([x, x]), np.column_stack([x[:, 0], x])),
    "append": lambda x: (np.append(x, x[:1], axis=0), np.append(x, 3)),
    "block": lambda x: np.block([[x, x], [x, x]]),
    "split": lambda x: (np.split(x, 2, axis=1), np.split(x, [1], axis=0), np.hsplit(x, 2), np.vsplit(x, 1)),
    "array_split": lambda x: (np.array_split(x, 3, axis=1), np.array_split(x, 2)),
    "unstack": lambda x: np.unstack(x, axis=1),
    "flip": lambda x: (np.flip(x), np.flip(x, 0), np.flip(x, (0, 1)), np.flipud(x), np.fliplr(x)),
    "rot90": lambda x: (np.rot90(x), np.rot90(x, 2), np.rot90(x, -1), np.rot90(x, axes=(1, 0)), np.rot90(x, 4)),
    "roll": lambda x: (np.roll(x, 1), np.roll(x, -2, axis=1), np.roll(x, (1, 5), axis=(0, 1)), np.roll(x, 0)),
    "repeat": lambda x: (np.repeat(x, 2), x.repeat(3, axis=1), np.repeat(x, [1, 0, 2], axis=0)),
    "tile": lambda x: (np.tile(x, 2), np.tile(x, (2, 1)), np.tile(x, (2, 1, 3)), np.tile(x[0], (2, 2))),
    "resize": lambda x: np.resize(x, (4, 5)),
    "tril": lambda x: (np.tril(x), np.tril(x, 1), np.triu(x), np.triu(x, -1), np.tril(np.stack([x, x]))),
    "diagonal": lambda x: (np.diagonal(x), x.diagonal(1), np.diagonal(x, -1), np.diag(x), np.diag(x, 1)),
    "diag": lambda x: (np.diag(x[0]), np.diag(x[0], 2), np.diagflat(x[:2, :2], -1)),
    "trace": lambda x: (np.trace(x), x.trace(1), np.trace(np.stack([x, x]), axis1=1, axis2=2)),
    "diff": lambda x: (np.diff(x), np.diff(x, axis=0), np.diff(x, n=2)),
    "like": lambda x: (np.ones_like(x), np.zeros_like(x, dtype="int16"), np.full_like(x, 1), np.ones_like(x, shape=3)),
    "where": lambda x: (np.where(x > 1, x, 0), np.where(x != 0, x, x[:1]), np.where(x, 1.0, 2.0)),
    "select": lambda x: np.select([x > 2, x > 0], [x, x * 2], default=0),
    "take": lambda x: (np.take(x, [0, 2, -1]), x.take([1, 0], axis=1), np.take(x, 1, axis=0)),
    "take modes": lambda x: (np.take(x, [0, 7], axis=0, mode="wrap"), np.take(x, [-2, 9], axis=1, mode="clip")),
    "delete": lambda x: (np.delete(x, 1, axis=0), np.delete(x, [0, 2], axis=1)),
    "insert": lambda x: (np.insert(x, 1, 3, axis=0), np.insert(x, 2, x[:, 0], axis=1)),
    "pad": lambda x: (np.pad(x, 1), np.pad(x, ((0, 2), (1, 0))), np.pad(x, (1, 2), constant_values=1)),
    "pad values": lambda x: np.pad(x, 1, constant_values=((1, 2), (3, 4))),
    "pad edge": lambda x: np.pad(x, ((1, 2), (0, 3)), mode="edge"),
    "pad reflect": lambda x: (np.pad(x, ((1, 2), (3, 0)), mode="reflect"), np.pad(x, 5, mode="reflect")),
    "pad symmetric": lambda x: (np.pad(x, ((1, 2), (3, 0)), mode="symmetric"), np.pad(x, 7, mode="symmetric")),
    "pad wrap": lambda x: (np.pad(x, ((1, 2), (3, 0)), mode="wrap"), np.pad(x, 5, mode="wrap")),
    "pad extremes": lambda x: (np.pad(x, 1, mode="maximum"), np.pad(x, 2, mode="minimum", stat_length=2)),
    "einsum": lambda x: (np.einsum("ij->ji", x), np.einsum("ij->", x), np.einsum("ij->i", x), np.einsum("ij", x)),
    "einsum diagonal": lambda x: (np.einsum("ii->i", x[:3, :3]), np.einsum("ii", x[:3, :3])),
    "isin": lambda x: np.isin(x, [0, 1]),
    "meshgrid": lambda x: np.meshgrid(x[0], x[:, 0], indexing="ij") + np.meshgrid(x[0], x[:, 0]),
    "reduce": lambda x: (np.add.reduce(x), np.maximum.reduce(x, axis=1), np.multiply.reduce(x, axis=0)),
    "logical reduce": lambda x: (np.logical_and.reduce(x), np.logical_or.reduce(x, axis=None)),
    "cumulative_sum": lambda x: (np.cumulative_sum(x, axis=1, include_initial=True), np.cumulative_prod(x, axis=0)),
    "accumulate": lambda x: np.add.accumulate(x, axis=1),
    "clip": lambda x: (np.clip(x, 1, 3), x.clip(1, None), np.clip(x, None, 2), np.clip(x, min=1, max=2)),
    "shape": lambda x: (np.zeros(np.shape(x)), np.zeros(np.ndim(x)), np.zeros(np.size(x))),
    "iteration": lambda x: [row.sum() for row in x] + [len(x) * x],
    "astype": lambda x: (x.astype(np.float64), x.astype("int32"), x.astype(bool), np.astype(x, np.float32)),
    "nan": lambda x: (np.nansum(x, axis=0), np.nanprod(x), np.nanmax(x, axis=1), np.nanmin(x), np.nanmean(x)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool", "float16"])
@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_array(name: str, dtype: str) -> None:
    assert_same(OF_ONE[name], sample(dtype, 3, 4))


OF_FLOATING: dict[str, Case] = {
    "var": lambda x: (np.var(x), x.var(0), np.var(x, axis=1, ddof=1, keepdims=True), np.var(x, 0, correction=1)),
    "std": lambda x: (np.std(x), x.std(0), np.std(x, axis=1, ddof=1)),
    "mean as": lambda x: np.mean(x, axis=0, dtype=np.float64),
    "ptp": lambda x: (np.ptp(x), np.ptp(x, axis=1)),
    "average": lambda x: (np.average(x), np.average(x, axis=0, weights=x[:, 0] ** 2 + 1)),
    "median": lambda x: (np.median(x), np.median(x, axis=1), np.median(x, axis=0, keepdims=True)),
    "quantile": lambda x: (np.quantile(x, 0.25), np.quantile(x, [0.1, 0.5], axis=1), np.percentile(x, 75, axis=0)),
    "partition": lambda x: (np.sort(np.partition(x, 1)[:, :1]), x[0][np.argpartition(x[0], 2)][2]),
    "round": lambda x: (np.round(x), x.round(1), np.around(x, -1), np.rint(x)),
    "norm": lambda x: (np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x, ord=1, axis=0, keepdims=True)),
    "norms": lambda x: [np.linalg.norm(x[0], ord=o) for o in (None, 0, 1, 2, 3, np.inf, -np.inf)],
    "matrix norms": lambda x: [np.linalg.norm(x, ord=o) for o in ("fro", 1, -1, np.inf, -np.inf)],
    "vector_norm": lambda x: (np.linalg.vector_norm(x), np.linalg.vector_norm(x, axis=0), np.linalg.matrix_norm(x)),
    "isclose": lambda x: (np.isclose(x, x + 1e-9), np.isclose(x, 0.0), np.isclose(x, np.nan, equal_nan=True)),
    "nan_to_num": lambda x: (np.nan_to_num(x / 0), np.nan_to_num(x / 0, nan=1, posinf=2, neginf=3)),
    "modf": lambda x: np.modf(x),
    "ldexp": lambda x: np.ldexp(x, 3),
    "frexp": lambda x: np.frexp(x),
    "spacing": lambda x: np.spacing(x),
    "gradient": lambda x: (np.gradient(x[0]), np.gradient(x, 2.0, axis=1), np.gradient(x)),
    "trapezoid": lambda x: (np.trapezoid(x), np.trapezoid(x, dx=0.5, axis=0), np.trapezoid(x[0], x[1])),
    "convolve": lambda x: [np.convolve(x[0], x[1, :3], mode=m) for m in ("full", "same", "valid")],
    "correlate": lambda x: [np.correlate(x[0], x[1, :3], mode=m) for m in ("full", "same", "valid")],
    "short convolve": lambda x: [np.convolve(x[1, :2], x[0], mode=m) for m in ("full", "same", "valid")],
    "cov": lambda x: (np.cov(x), np.cov(x[0]), np.cov(x, rowvar=False), np.cov(x, bias=True), np.corrcoef(x)),
    "polyval": lambda x: np.polyval([1.0, 2.0, 3.0], x),
    "vander": lambda x: (np.vander(x[0]), np.vander(x[0], 2, increasing=True)),
    "pad means": lambda x: (np.pad(x, 1, mode="mean"), np.pad(x, (2, 1), mode="median")),
    "pad ramp": lambda x: (np.pad(x, 3, mode="linear_ramp"), np.pad(x, 2, mode="linear_ramp", end_values=1.0)),
    "pad odd": lambda x: np.pad(x, 2, mode="reflect", reflect_type="odd"),
    "operators": lambda x: (-x, +x, abs(x), x + 1, 1 - x, 2 * x, x / 2, 1 / (x + 9), x // 2, x % 2, 7 % (x + 9)),
    "divmod": lambda x: divmod(x, 2.0),
    "comparisons": lambda x: (x < 1, x <= 1, x > 1, x >= 1, x == 1, x != 1, x > 1),
    "masks": lambda x: ((x > 0) & (x < 1), (x > 0) | (x < -1), (x > 0) ^ (x > 1), ~(x > 0)),
    "expm1": lambda x: np.log1p(np.expm1(np.abs(x))),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", OF_FLOATING)
def test_of_floating_point(name: str, dtype: str) -> None:
    assert_same(OF_FLOATING[name], sample(dtype, 3, 4), rtol=2e-5 if dtype == "float32" else 1e-12)


OF_TWO: dict[str, Case] = {
    "matmul": lambda a, b: (a @ b, np.matmul(a, b), a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0]),
    "batches": lambda a, b: (a[None] @ b[None], np.stack([a, a]) @ b, a @ np.stack([b, b]), a[None] @ np.stack([b, b])),
    "dot": lambda a, b: (np.dot(a, b), a.dot(b), np.dot(a[0], b[:, 0]), np.dot(a, 2), np.dot(np.stack([a]), b)),
    "vdot": lambda a, b: np.vdot(a, b.T),
    "inner": lambda a, b: (np.inner(a, b.T), np.inner(a[0], b[:, 0])),
    "outer": lambda a, b: (np.outer(a, b), np.multiply.outer(a, b), np.add.outer(a[0], b[0])),
    "tensordot": lambda a, b: (np.tensordot(a, b, 1), np.tensordot(a, b.T, 2), np.tensordot(a, b, ((0, 1), (1, 0)))),
    "no axes": lambda a, b: np.tensordot(a, b, 0),
    "kron": lambda a, b: (np.kron(a, b), np.kron(a[0], b)),
    "vecdot": lambda a, b: (np.vecdot(a, b.T), np.linalg.vecdot(a, b.T)),
    "products": lambda a, b: (np.matvec(a, b[:, 0]), np.vecmat(a[0], b), np.linalg.multi_dot([a, b, a])),
    "einsum": lambda a, b: (np.einsum("ij,jk", a, b), np.einsum("ij,jk->ki", a, b), np.einsum("ij,ji->", a, b)),
    "einsum of three": lambda a, b: (np.einsum("ij,jk,kl->il", a, b, a), np.einsum("ij,jk,ik->j", a, b, a[:, :3])),
    "einsum ellipsis": lambda a, b: (np.einsum("...j,jk->...k", np.stack([a, a]), b), np.einsum("...,...", a, b.T)),
    "einsum repeated": lambda a, b: (np.einsum("ii,ij->j", a[:, :3], a), np.einsum("ijj->i", np.stack([a[:, :3]] * 2))),
    "einsum lists": lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]),
    "einsum of ones": lambda a, b: (np.einsum("ij,ij->ij", a, a[:1]), np.einsum("ij,ij->i", a, a[:, :1])),
    "einsum elementwise": lambda a, b: (np.einsum("ij,ji->ij", a, b), np.einsum("i,j->ij", a[0], b[0])),
    "cross": lambda a, b: np.cross(a[:, :3], b.T[:, :3]),
    "searchsorted": lambda a, b: (np.searchsorted(np.sort(a[0]), b), np.searchsorted(np.sort(a[0]), b, side="right")),
    "digitize": lambda a, b: (np.digitize(a, [-1, 0, 2]), np.digitize(a, [-1, 0, 2], right=True)),
    "broadcasting": lambda a, b: (a + b[:, 0], a[:, None] * b.T, a[0] - b.T),
    "take_along_axis": lambda a, b: (
        np.take_along_axis(a, np.argsort(a, axis=1), 1),
        np.take_along_axis(a, np.array([[0, -1, 2, 1]]), 0),
    ),
    "traced indices": lambda a, b: (a[np.argmax(a, 0)], a[:, np.argmin(a, 1)], np.take(a, np.argmax(b, 0), axis=1)),
    "choose": lambda a, b: np.choose((a > 0).astype(int), [a, b.T]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_arrays(name: str, dtype: str) -> None:
    assert_same(OF_TWO[name], sample(dtype, 3, 4), sample(dtype, 4, 3), rtol=2e-5 if dtype == "float32" else 1e-12)


def test_interp() -> None:
    xp, fp = np.array([-1.0, 0.0, 2.0, 2.5]), np.array([3.0, 1.0, -4.0, 0.0])
    x = np.array([-2.0, -1.0, -0.3, 0.0, 1.9, 2.0, 2.4, 2.5, 7.0, np.nan])
    assert_same(lambda x, xp, fp: (np.interp(x, xp, fp), np.interp(x, xp, fp, left=9, right=8)), x, xp, fp)


SPECIALS: dict[str, Case] = {
    "erf": lambda x: (scipy.special.erf(x), scipy.special.erfc(x), scipy.special.erfinv(np.tanh(x))),
    "expit": lambda x: (scipy.special.expit(x), scipy.special.log_expit(x), scipy.special.logit(np.tanh(x) / 2 + 0.5)),
    "xlogy": lambda x: (scipy.special.xlogy(np.round(x), np.abs(x) + 1), scipy.special.xlog1py(x, np.abs(x))),
    "entropies": lambda x: (scipy.special.entr(x), scipy.special.rel_entr(x, x[::-1]), scipy.special.kl_div(x, x * 2)),
    "ndtr": lambda x: (scipy.special.ndtr(x), scipy.special.ndtri(np.tanh(x) / 2 + 0.5)),
    "exprel": lambda x: (scipy.special.exprel(x), scipy.special.exp10(x), scipy.special.exp2(x)),
    "cbrt": lambda x: (scipy.special.cbrt(x), scipy.special.log1p(np.abs(x)), scipy.special.expm1(x)),
    "huber": lambda x: (scipy.special.huber(0.5, x), scipy.special.pseudo_huber(0.5, x)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SPECIALS)
def test_special_functions(name: str, dtype: str) -> None:
    x = np.array([0.0, 0.3, -0.7, 1.0, -2.5, 3.0, 0.01]).astype(dtype)
    assert_same(SPECIALS[name], x, rtol=1e-5 if dtype == "float32" else 1e-12)


SCIPYS: dict[str, Case] = {
    "softmax": lambda x: scipy.special.softmax(x),
    "softmax of an axis": lambda x: scipy.special.softmax(x, axis=1),
    "log_softmax": lambda x: scipy.special.log_softmax(x, axis=0),
    "logsumexp": lambda x: scipy.special.logsumexp(x),
    "logsumexp of an axis": lambda x: scipy.special.logsumexp(x, axis=-1, keepdims=True),
    "logsumexp with weights": lambda x: scipy.special.logsumexp(x, axis=1, b=np.array([0.5, 1.0, 2.0], x.dtype)),
    "of other arrays": lambda x: x * scipy.special.softmax(np.ones(3, x.dtype)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SCIPYS)
def test_functions_that_scipy_writes_in_python(name: str, dtype: str) -> None:
    """As written, under SciPy's own names; afterwards they are what they were."""
    before = scipy.special.softmax.__code__, scipy.special.logsumexp.__code__
    x = np.array([[0.0, 0.3, -0.7], [1.0, -2.5, 30.0]]).astype(dtype)
    assert_same(SCIPYS[name], x, rtol=1e-5 if dtype == "float32" else 1e-12)
    assert before == (scipy.special.softmax.__code__, scipy.special.logsumexp.__code__)


OWN: dict[str, tuple[Case, Case]] = {
    "softmax": (lambda x: mlaot.softmax(x), lambda x: scipy.special.softmax(x, axis=-1)),
    "softmax of axis 0": (lambda x: mlaot.softmax(x, axis=0), lambda x: scipy.special.softmax(x, axis=0)),
    "log_softmax": (lambda x: mlaot.log_softmax(x), lambda x: scipy.special.log_softmax(x, axis=-1)),
    "logsumexp": (lambda x: mlaot.logsumexp(x), lambda x: scipy.special.logsumexp(x)),
    "logsumexp of an axis": (
        lambda x: mlaot.logsumexp(x, axis=1, keepdims=True),
        lambda x: scipy.special.logsumexp(x, axis=1, keepdims=True),
    ),
    "relu": (lambda x: mlaot.relu(x), lambda x: np.maximum(x, 0)),
    "gelu": (lambda x: mlaot.gelu(x), lambda x: x * scipy.special.ndtr(x)),
    "silu": (lambda x: mlaot.silu(x), lambda x: x * scipy.special.expit(x)),
    "sigmoid": (lambda x: mlaot.sigmoid(x), scipy.special.expit),
    "softplus": (lambda x: mlaot.softplus(x), lambda x: np.logaddexp(x, np.zeros_like(x))),
    "top_k": (lambda x: mlaot.top_k(x, 2)[0], lambda x: np.sort(x)[:, :-3:-1]),
    "smallest": (lambda x: mlaot.top_k(x, 2, axis=0, largest=False)[0], lambda x: np.sort(x, axis=0)[:2]),
    "erf": (lambda x: mlaot.erf(x), scipy.special.erf),
    "sparse": (lambda x: mlaot.sparse(x) * 2, lambda x: x * 2),
    "stop_gradient": (lambda x: mlaot.stop_gradient(x) * 2, lambda x: x * 2),
    "where": (lambda x: mlaot.where(x > 0, x, 0), lambda x: np.where(x > 0, x, 0)),
    "pad": (lambda x: mlaot.pad(x, 1, (0, 2), value=7), lambda x: np.pad(x, ((1, 0), (1, 2)), constant_values=7)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", OWN)
def test_own_functions(name: str, dtype: str) -> None:
    """Traced and on plain arrays, against SciPy or NumPy."""
    own, expected = OWN[name]
    x = sample(dtype, 3, 4)
    assert_same(own, x)
    np.testing.assert_allclose(own(x), expected(x), rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-7)


def test_one_hot() -> None:
    label = np.array([0, 2, 1])
    assert_same(lambda i: (mlaot.one_hot(i, 3), mlaot.one_hot(i, 3, mlaot.f32)), label)


def test_windows() -> None:
    x = sample("float64", 2, 9)
    assert_same(lambda x: mlaot.window(x, 1, 3, strides=2, dilations=2), x)
    expected = np.stack([x[:, p * 2 : p * 2 + 5 : 2] for p in range(3)], 1)
    np.testing.assert_array_equal(mlaot.window(x, 1, 3, 2, 2), expected)
    assert_same(lambda x: mlaot.fold(mlaot.window(x, -1, 3), -1, 3, shape=(2, 9)), x)


def test_scatter_and_gather() -> None:
    x, i = sample("float32", 5, 2), np.array([3, 0, 3])
    assert_same(lambda x, i: mlaot.gather(x, i), x, i)
    assert_same(lambda x, i: [mlaot.scatter(x, i, np.ones((3, 2)), mode=m) for m in ("set", "add", "max", "min")], x, i)
    along = np.array([[1], [0], [1], [0], [1]])
    assert_same(lambda x, i: mlaot.put_along_axis(x, i, 9.0, 1), x, along)
    expected = x.copy()
    np.put_along_axis(expected, along, 9.0, 1)
    np.testing.assert_array_equal(mlaot.put_along_axis(x, along, 9.0, 1), expected)


def test_every_ufunc_of_the_table_is_tested() -> None:
    """Nothing enters the table without a case above."""
    from mlaot.frontend.numpy.ufuncs import UFUNCS
    from mlaot.frontend.trace.protocols import FUNCTIONS

    text = Path(__file__).read_text() + Path(__file__).with_name("counting_forms.py").read_text()
    aliases = {"empty_like", "result_type", "iscomplexobj", "isrealobj", "real_if_close", "dsplit", "put_along_axis"}
    for name in {*FUNCTIONS, *UFUNCS}:
        if hasattr(np, name) and name not in aliases:
            same = [n for n in dir(np) if getattr(np, n) is getattr(np, name)]
            assert any(f".{n}" in text for n in same), name
