"""The C of every op against its reference: special values squared, and random ones in several shapes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Type
from mlaot.ir.module import Module
from mlaot.ir.types import BY_NUMPY, DType, f32, f64, i64
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops.base import batch_elementwise
from mlaot.passes.legalize import legalize

from ..compiled import AVAILABLE, Library
from ..fuzz.bounds import analyse, difference
from .samples import EXPONENTS, SAMPLES, Sample, samples

Array = np.ndarray[Any, Any]
DTYPES = (f32, f64)
PER_OP = 5
MOVES = {"copy", "broadcast", "transpose", "reshape", "take", "item", "stack", "concat", "const", "one_hot"}
LARGER = {"relu", "maximum", "minimum", "max", "min"}
EXACT = MOVES | LARGER | {"add", "sub", "mul", "div", "neg", "abs", "sqrt", "sign", "step", "is_equal"}
ULPS = {"exp": 2, "log": 2, "tanh": 3, "pow": 4}
NAMES = sorted(set(SAMPLES) - {"size"})
ELEMENTWISE = [n for n in NAMES if OPS[n].batch is batch_elementwise and n != "cast"]


def special(dtype: DType) -> Array:
    """Values at which algebra that holds for reals fails."""
    info = np.finfo(dtype.numpy)
    tiny = [float(info.smallest_subnormal), 8 * float(info.smallest_subnormal), float(info.smallest_normal)]
    large = [float(info.max), float(info.max) / 2, 2.0 ** (info.nmant + 1) + 2, 2.0**info.nmant - 0.5]
    around_one = [0.25, 0.5, 1 - float(info.epsneg), 1.0, 1 + float(info.eps), 1.5, 2.0, 3.0]
    positive = [0.0, *tiny, 1e-3, *around_one, 80.0, *large]
    with np.errstate(over="ignore"):
        return np.array([s * x for x in (*positive, np.inf, np.nan) for s in (1, -1)], dtype.numpy)


def special_cases(name: str, dtype: DType) -> list[Sample]:
    """Special values: each with each where the op takes two arguments. Along rows, and as numbers of their own."""
    values = special(dtype)
    if len(samples(name)[0].args) == 1:
        attrs: list[dict[str, Any]] = [{"exponent": e} for e in EXPONENTS] if name == "pow" else [{}]
        return [Sample((values,), a) for a in attrs]
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    return [Sample((a, b), {})]


def cases(name: str, dtype: DType) -> list[Sample]:
    """Random samples of several shapes, then the special values."""
    random = samples(name)
    some = random[:: max(1, len(random) // PER_OP)] + random[-1:]
    if name == "pow":
        some = random[: len(EXPONENTS)]
    return some + (special_cases(name, dtype) if name in ELEMENTWISE else [])


def graph_of(name: str, sample: Sample, dtype: DType) -> tuple[Graph, dict[str, Array]]:
    """The op as an entry of its own, over inputs."""
    graph = Graph("f")
    inputs: dict[str, Array] = {}
    for i, array in enumerate(sample.args):
        kind = i64 if array.dtype.kind == "i" else dtype
        inputs[f"arg{i}"] = array.astype(kind.numpy)
        graph.input(f"arg{i}", Type(kind, array.shape))
    attrs = dict(sample.attrs)
    if "dtype" in attrs:
        attrs["dtype"] = dtype if name == "one_hot" else f64 if dtype is f32 else f32
    if name == "const":
        attrs["value"] = type(attrs["value"])(attrs["value"].array, BY_NUMPY[str(attrs["value"].array.dtype)])
    graph.outputs["y"] = graph.add(OPS[name], list(graph.inputs.values()), attrs)
    return graph, inputs


def programs() -> dict[str, Program]:
    """A program for every sample of every op."""
    found = {}
    for name, dtype in product(NAMES, DTYPES):
        for i, sample in enumerate(cases(name, dtype)):
            graph, _ = graph_of(name, sample, dtype)
            if graph.outputs["y"].type.dtype.kind != "f":
                continue
            legalize(graph)
            found[f"{name}_{dtype}_{i}"] = lower(Module("ops", {"forward": graph}, {}, False), ("base",))
    return found


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Library]:
    """Every op on every instruction set of this machine; test processes share the compiled files."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if shared.name.startswith("popen-") else shared
    all_programs = programs()
    return {isa: Library(all_programs, isa, Path(shared) / f"ops_{isa}") for isa in AVAILABLE}


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_c_is_the_reference(name: str, dtype: DType, isa: str, libraries: dict[str, Library]) -> None:
    library = libraries[isa]
    checked = 0
    for i, sample in enumerate(cases(name, dtype)):
        stem = f"{name}_{dtype}_{i}"
        if stem not in library.programs:
            continue
        graph, inputs = graph_of(name, sample, dtype)
        actual = library.call(stem, "forward", inputs)["y"]
        expected = evaluate(graph, inputs)["y"]
        what = f"{name} {sample.attrs} of {[a.shape for a in sample.args]}"
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
        if name in EXACT:
            check_exact(name, actual, expected, inputs, what)
        elif name in ULPS:
            check_ulps(name, sample, actual, inputs, what)
        else:
            bounded = analyse(graph.outputs.values(), inputs)[graph.outputs["y"]]
            assert not difference(actual, bounded).any(), what
        checked += 1
    assert checked


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
    if name == "pow":
        agree |= rough_power(x, sample.attrs["exponent"], actual, rounded)
    wrong = np.flatnonzero(~agree.reshape(-1))
    if wrong.size:
        at = int(wrong[0])
        raise AssertionError(f"{what}: of {x.flat[at]!r} got {actual.flat[at]!r}, expected {rounded.flat[at]!r}")


def rough_power(x: Array, exponent: float, actual: Array, expected: Array) -> Array:
    """What powers as products, reciprocals and roots are known to give otherwise: -inf**0.5, and results of products
    that leave the range before their reciprocal does."""
    if exponent == 0.5:
        return np.asarray(x == -np.inf)
    if exponent < 0 and exponent == int(exponent):
        with np.errstate(all="ignore"):
            below = np.abs(x) ** np.asarray(-exponent, x.dtype)
        edge = (below < np.finfo(x.dtype).smallest_normal) | (below == np.inf)
        return np.asarray(edge & ((np.abs(actual) == np.inf) | (np.abs(actual) < 1e-35) | np.isnan(x)))
    return np.zeros(x.shape, bool)


def test_constants_are_written_to_the_last_bit() -> None:
    """Printed C literals read back as the same number."""
    for dtype in DTYPES:
        for value in special(dtype):
            text = ew.c_literal(float(value), dtype.name)
            if np.isnan(value):
                assert text.startswith("__builtin_nan")
            elif np.isinf(value):
                assert text.removeprefix("-").startswith("__builtin_inf") and (value < 0) == text.startswith("-")
            else:
                back = np.dtype(dtype.numpy).type(text.rstrip("f"))
                assert back == value and np.signbit(back) == np.signbit(value) and any(c in text for c in ".e")
