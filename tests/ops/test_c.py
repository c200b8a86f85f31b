"""The C of every op against its reference, on every dtype: special values, and random ones in several shapes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import DTYPES, Graph, Type
from mlaot.ir.module import Module
from mlaot.ir.types import BY_NUMPY, DType, bf16, f16, f32, f64, i8, i16, u8
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import OPS
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.algebra.upcast import upcast
from mlaot.printing.spelling import literal
from mlaot.printing.vectors import functions

from ..compiled import AVAILABLE, Library
from .samples import EXPONENTS, SAMPLES, Sample, samples

Array = np.ndarray[Any, Any]
ALL = [d for d in DTYPES.values() if d is not bf16]
PER_OP = 5
LARGER = {"relu", "maximum", "minimum", "max", "min"}
ULPS = {"exp": 2, "log": 2, "tanh": 2, "pow": 4}
SUMS = {
    *("sum", "prod", "cumsum", "cumprod", "linear_recurrence", "contract", "fold", "put_add", "scatter", "pow"),
    *("contract_differences", "tree_ensemble", "winograd_input", "winograd_output", "sparse_dot", "sparse_add"),
}
NAMES = sorted(set(SAMPLES) - {"size"})
# Those that have a meaning everywhere: not conversions, and not the inverse of a distribution function.
ELEMENTWISE = [n for n in NAMES if OPS[n].elementwise and n not in ("cast", "bitcast", "normal_quantile")]


def special(dtype: DType) -> Array:
    """Values at which algebra that holds for reals fails, or arithmetic ends."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        small = [0, 1, 2, 3, 5, 7, *((-1, -2, -3, -7) if dtype.kind == "i" else ())]
        return np.array([*small, info.min, info.min + 1, info.max, info.max - 1, info.max // 2], dtype.numpy)
    limits = np.finfo(dtype.numpy)
    tiny = [float(limits.smallest_subnormal), 8 * float(limits.smallest_subnormal), float(limits.smallest_normal)]
    large = [float(limits.max), float(limits.max) / 2, 2.0 ** (limits.nmant + 1) + 2, 2.0**limits.nmant - 0.5]
    around_one = [0.25, 0.5, 1 - float(limits.epsneg), 1.0, 1 + float(limits.eps), 1.5, 2.0, 3.0]
    positive = [0.0, *tiny, 1e-3, *around_one, 80.0, *large]
    with np.errstate(over="ignore"):
        return np.array([s * x for x in (*positive, np.inf, np.nan) for s in (1, -1)], dtype.numpy)


def special_cases(name: str, dtype: DType) -> list[Sample]:
    """Special values: each with each where the op takes two arguments. Along rows, and as numbers of their own."""
    values = special(dtype)
    count = len(samples(name)[0].args)
    if count == 1:
        given = {
            "pow": [{"exponent": e} for e in (*EXPONENTS, -1.5)],
            "quantize": [{"dtype": d} for d in (u8, i8, i16)],
        }
        given["quantize"] += [{"dtype": u8, "zero": 127}, {"dtype": i8, "zero": -5}]
        given["index"] = [{"size": 5, "wraps": True, "ignored": None}]
        attrs: list[dict[str, Any]] = given.get(name, [{}])
        return [Sample((values,), a) for a in attrs]
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    return [Sample((np.arange(a.size) % 3 == 0, a, b) if name == "where" else (a, b), {})]


@cache
def cases(name: str, dtype: DType) -> tuple[Sample, ...]:
    """Random samples of several shapes, then the special values; of other dtypes than f32 and f64 a few."""
    random = samples(name)
    some = random[:: max(1, len(random) // PER_OP)] + random[-1:] if dtype in (f32, f64) else random[3:12:4]
    if name == "pow":
        some = random[: len(EXPONENTS)]
    return tuple(some + (special_cases(name, dtype) if name in ELEMENTWISE else []))


def argument(array: Array, dtype: DType) -> Array:
    """An argument of a sample, where it is a number, as a dtype: integers go from -15 to 15 or so."""
    if array.dtype.kind != "f" or array.dtype == dtype.numpy:
        return array
    if dtype.kind == "b":
        return np.asarray(array > 0)
    return array.astype(dtype.numpy) if dtype.kind == "f" else np.round(array * 5).astype(np.int64).astype(dtype.numpy)


@cache
def expected_of(name: str, dtype: DType, i: int) -> tuple[Graph, dict[str, Array], Array]:
    """The i-th case: graph, inputs and the reference's answer, the same on every instruction set."""
    made = graph_of(name, cases(name, dtype)[i], dtype)
    assert made is not None
    graph, inputs = made
    return graph, inputs, evaluate(graph, inputs)["y"]


def graph_of(name: str, sample: Sample, dtype: DType) -> tuple[Graph, dict[str, Array]] | None:
    """The op as an entry of its own, over inputs; None where the op does not take the dtype."""
    graph = Graph("f")
    inputs: dict[str, Array] = {}
    for i, array in enumerate(sample.args):
        inputs[f"arg{i}"] = argument(array, dtype)
        graph.input(f"arg{i}", Type(BY_NUMPY[str(inputs[f"arg{i}"].dtype)], array.shape))
    attrs = dict(sample.attrs)
    if "dtype" in attrs and name != "quantize":
        attrs["dtype"] = dtype if name == "one_hot" else f64 if dtype is f32 else f32
    try:
        graph.outputs["y"] = graph.add(OPS[name], list(graph.inputs.values()), attrs)
    except MlaotError:
        return None
    return graph, inputs


@cache
def programs(name: str) -> dict[str, Program]:
    """A program for every sample of an op, by dtype and number."""
    found = {}
    for dtype in ALL:
        for i, sample in enumerate(cases(name, dtype)):
            made = graph_of(name, sample, dtype)
            if made is not None:
                upcast(made[0])
                legalize(made[0])
                found[f"{name}_{dtype}_{i}"] = lower(Module("ops", {"forward": made[0]}, {}, False))
    return found


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("name", NAMES)
def test_c_is_the_reference(name: str, isa: str, tmp_path: Path) -> None:
    """All samples on the best set of this machine, every second one on the others."""
    chosen = dict(list(programs(name).items())[:: 1 if isa == AVAILABLE[-1] else 2])
    library = Library(chosen, isa, tmp_path)
    assert library.programs
    for stem in library.programs:
        _, kind, number = stem.rsplit("_", 2)
        dtype, i = DTYPES[kind], int(number)
        sample = cases(name, dtype)[i]
        graph, inputs, expected = expected_of(name, dtype, i)
        actual = library.call(stem, "forward", inputs)["y"]
        what = f"{name} {sample.attrs} of {dtype} {[a.shape for a in sample.args]}"
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
        check(name, dtype, sample, graph, inputs, actual, expected, what)


def check(
    name: str,
    dtype: DType,
    sample: Sample,
    graph: Graph,
    inputs: dict[str, Array],
    actual: Array,
    expected: Array,
    what: str,
) -> None:
    """Bit for bit where the op rounds once at most; else as near as its terms or its polynomials can be."""
    if actual.dtype.kind != "f":
        assert (actual == expected).all(), f"{what}: {actual}, expected {expected}"
    elif name in ULPS and dtype in (f32, f64):
        check_ulps(name, sample, actual, inputs, what)
    elif name in SUMS or dtype is f16 or name in TRANSCENDENTAL:
        check_close(name, sample, graph, inputs, actual, expected, what)
    else:
        check_exact(name, actual, expected, inputs, what)


TRANSCENDENTAL = {*functions(), "power", "normal_quantile", "remainder", "floor_divide"} - {"pow", "nextafter"}


def check_close(
    name: str, sample: Sample, graph: Graph, inputs: dict[str, Array], actual: Array, expected: Array, what: str
) -> None:
    """A few units of the last place of the largest term, by the float64 reference; special values as the reference."""
    with np.errstate(all="ignore"):
        wide = np.asarray(evaluate(graph, inputs, wide=True)["y"], np.float64)
        eps = float(np.finfo(actual.dtype).eps)
        size = max([1.0, *[float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (*inputs.values(), wide)]])
        spread = size**2 * 32 if name in SUMS else np.abs(wide) * 4
        near = np.abs(actual.astype(np.float64) - wide) <= eps * spread + float(np.finfo(actual.dtype).tiny) * 2
    near |= (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    wrong = np.flatnonzero(~near.reshape(-1))
    if wrong.size:
        at = int(wrong[0])
        given = [v.reshape(-1)[at] for v in inputs.values() if v.shape == actual.shape]
        raise AssertionError(f"{what}: of {given} got {actual.flat[at]!r}, expected {expected.flat[at]!r}")


def check_exact(name: str, actual: Array, expected: Array, inputs: dict[str, Array], what: str) -> None:
    """The same bits; any nan is as good as another, and the larger of 0 and -0 may be either."""
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if name not in LARGER:
        same &= (np.signbit(actual) == np.signbit(expected)) | np.isnan(expected)
    wrong = np.flatnonzero(~same.reshape(-1))
    if wrong.size:
        at = int(wrong[0])
        given = [v.reshape(-1)[at] for v in inputs.values() if v.shape == actual.shape]
        raise AssertionError(f"{what}: of {given} got {actual.flat[at]!r}, expected {expected.flat[at]!r}")


def check_ulps(name: str, sample: Sample, actual: Array, inputs: dict[str, Array], what: str) -> None:
    """Within a few units of the last place of the exact value; special values as the reference has them."""
    (x,) = inputs.values()
    with np.errstate(all="ignore"):
        exact = np.asarray(OPS[name].reference(x.astype(np.longdouble), **sample.attrs))
        rounded = exact.astype(x.dtype)
        special = ~np.isfinite(rounded) | ~np.isfinite(actual)
        off = np.abs(actual.astype(np.longdouble) - exact) / np.spacing(np.abs(rounded)).astype(np.longdouble)
    agree = np.where(special, (actual == rounded) | (np.isnan(actual) & np.isnan(rounded)), off <= ULPS[name])
    wrong = np.flatnonzero(~agree.reshape(-1))
    if wrong.size:
        at = int(wrong[0])
        raise AssertionError(f"{what}: of {x.flat[at]!r} got {actual.flat[at]!r}, expected {rounded.flat[at]!r}")


def test_constants_are_written_to_the_last_bit() -> None:
    """Printed C literals read back as the same number."""
    for dtype in (f32, f64):
        for value in special(dtype):
            text = literal(float(value), dtype.name)
            if np.isnan(value):
                assert text.startswith("__builtin_nan")
            elif np.isinf(value):
                assert text.removeprefix("-").startswith("__builtin_inf") and (value < 0) == text.startswith("-")
            else:
                back = np.dtype(dtype.numpy).type(text.rstrip("f"))
                assert back == value and np.signbit(back) == np.signbit(value) and any(c in text for c in ".e")
