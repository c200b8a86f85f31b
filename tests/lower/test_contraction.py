"""Contractions whose rows end within a vector, as machine code against the oracle."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.evaluate import evaluate
from mlaot.generate import compile_model
from mlaot.ir import DType, Graph, Type
from mlaot.ir.module import Module
from mlaot.ir.types import f32, f64
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library

N = mlaot.dim("n")
SIZES = ((6, 6), (7, 5), (4, 9), (3, 18), (5, 23))  # of a result, whose rows lie one behind the other


def convolution(size: tuple[int, int]) -> Graph:
    graph = Graph("forward")
    x, w = graph.input("x", f32[2, 3, size[0] + 2, size[1] + 2]), graph.input("w", f32[16, 3, 3, 3])
    x = ew.relu(x)
    windows = st.window(x, axes=(2, 3), sizes=(3, 3), strides=(1, 1), dilations=(1, 1))
    graph.outputs["y"] = ew.relu(red.contract(windows, w, spec="aecdfg,befg->abcd"))
    return graph


def sums() -> Graph:
    """Over rows of whole vectors and other axes at once."""
    graph = Graph("forward")
    x = ew.tanh(graph.input("x", f32[5, 3, 7, 32]))
    for name, axes in (("inner", (1, 2, 3)), ("around", (0, 3)), ("all but one", (0, 2, 3))):
        graph.outputs[name] = red.sum_(x, axes=axes)
    return graph


def pads() -> Graph:
    """A value that is written inside of its padding, and read there by others too."""
    graph = Graph("forward")
    x = ew.tanh(graph.input("x", f32[3, 4, 2, 6]))
    number = graph.constant(0.5, f32)
    for name, rows, places in (("both", (1, 2), (2, 0)), ("one", (0, 0), (0, 3))):
        low, high = (0, *rows, 0), (0, *places, 0)
        padded = st.pad(ew.exp(ew.mul(x, x)), number, low=low, high=high, interior=(0, 0, 0, 0))
        graph.outputs[name] = red.sum_(ew.relu(padded), axes=(0,))
    graph.outputs["x"] = ew.neg(x)
    return graph


def gaps(size: int, taps: int, stride: int, dilation: int) -> Graph:
    """Sums of windows whose elements, or which themselves, are two elements apart."""
    graph = Graph("forward")
    x = ew.tanh(graph.input("x", f32[2, size, size]))
    windows = st.window(x, axes=(1, 2), sizes=(taps, taps), strides=(stride, stride), dilations=(dilation, dilation))
    graph.outputs["y"] = red.sum_(windows, axes=(3, 4))
    return graph


def pools(places: int, taps: int, dtype: DType) -> Graph:
    """Windows in steps of two over a caller's array, behind whose last element nothing may be read."""
    graph = Graph("forward")
    x = graph.input("x", Type(dtype, (3, 2 + taps, 2 * places + taps - 2)))
    windows = st.window(x, axes=(1, 2), sizes=(taps, taps), strides=(2, 2), dilations=(1, 1))
    graph.outputs |= {"sum": red.sum_(windows, axes=(3, 4)), "max": red.max_(windows, axes=(3, 4))}
    return graph


PLACES = (8, 9, 11, 12, 13, 15, 16, 21)
POOLS = {f"pools_{n}_{k}_{t}": pools(n, k, t) for n in PLACES for k in (2, 3) for t in (f32, f64)}
GAPS = {f"gaps_{n}_{k}_{s}_{d}": gaps(n, k, s, d) for n, k, s, d in ((33, 5, 3, 2), (33, 9, 2, 2), (29, 7, 2, 3))}
GRAPHS = {
    **GAPS,
    **POOLS,
    **{f"convolution_{a}x{b}": convolution((a, b)) for a, b in SIZES},
    "sums": sums(),
    "pads": pads(),
}


def program_of(graph: Graph) -> Program:
    return lower(Module("m", {"forward": graph}, {}, False))


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    return {name: program_of(graph) for name, graph in GRAPHS.items()}


@pytest.mark.parametrize("isa", AVAILABLE)
def test_kernels_are_the_oracle(isa: str, programs: dict[str, Program], tmp_path: Path) -> None:
    library = Library(programs, isa, tmp_path)
    rng = np.random.default_rng(0)
    for name, graph in GRAPHS.items():
        inputs = {k: rng.normal(size=n.type.shape).astype(n.type.dtype.numpy) for k, n in graph.inputs.items()}  # type: ignore[arg-type]
        actual = library.call(name, "forward", inputs)
        for key, expected in evaluate(graph, inputs, wide=True).items():
            np.testing.assert_allclose(actual[key], expected, rtol=1e-5, atol=1e-4, err_msg=f"{name}: {key}")


@cache
def from_afar(dtype: DType) -> tuple[Program, np.ndarray, np.ndarray]:
    """A layer, with its weights and its bias."""
    rng = np.random.default_rng(0)
    w, bias = rng.normal(size=(4100, 70)).astype(dtype.numpy), rng.normal(size=4100).astype(dtype.numpy)

    def far(x: Any, y: Any) -> Any:
        return y + np.maximum(x @ w.T + bias, 0)

    far.__annotations__ = {"x": dtype[N, 70], "y": dtype[N, 4100]}
    return compile_model(mlaot.model(far), "far", Options(isas=AVAILABLE)), w, bias


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("isa", AVAILABLE)
def test_rows_behind_blocks_of_weights_from_afar(isa: str, dtype: DType, tmp_path: Path) -> None:
    """A tile of them is done with each block of columns, so that no weight comes from memory twice."""
    rng = np.random.default_rng(1)
    program, w, bias = from_afar(dtype)
    library = Library({"far": program}, isa, tmp_path)
    assert re.search(r"if \(i > 0\)", library.source.read_text()), "rows behind the blocks are done with them"
    for rows in (*range(20), 31, 64):
        x, y = rng.normal(size=(rows, 70)).astype(dtype.numpy), rng.normal(size=(rows, 4100)).astype(dtype.numpy)
        actual = library.call("far", "forward", {"x": x, "y": y}, {"n": rows})["out"]
        expected = y + np.maximum(x.astype("d") @ w.T + bias, 0)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4, err_msg=str(rows))


def test_a_single_row_behind_blocks_is_computed_once(tmp_path: Path) -> None:
    """With each block of columns, or alone where there is no block: blocks of two rows leave one at most."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(300, 2000))

    def far(x: mlaot.f64[N, 2000]) -> Any:
        return x @ w.T

    library = Library({"far": compile_model(mlaot.model(far), "far", Options(isas=("base",)))}, "base", tmp_path)
    source = library.source.read_text()
    assert re.search(r"if \(i > 0\)", source) and re.search(r"if \(n_n == 1\)", source)
    for rows in range(6):
        x = rng.normal(size=(rows, 2000))
        actual = library.call("far", "forward", {"x": x}, {"n": rows})["out"]
        np.testing.assert_allclose(actual, x @ w.T, rtol=1e-12, atol=1e-10, err_msg=str(rows))
