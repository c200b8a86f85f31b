"""Products that read float32 numbers once, as float64, load them where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.numpy import astype
from mlaot.ir import Graph
from mlaot.ir.types import f32, f64
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.ops import structure as st

from ...compiled import AVAILABLE, Library

batch = mlaot.dim("batch")
RNG = np.random.default_rng(0)
WEIGHTS, MATRIX, STACK = RNG.normal(size=30), RNG.normal(size=(30, 4)), RNG.normal(size=(5, 7))


@mlaot.model
def rows(x: mlaot.f32[batch, 30]) -> Any:
    return astype(x, f64) @ WEIGHTS


@mlaot.model
def number(x: mlaot.f32[batch, 5, 7]) -> Any:
    return np.einsum("bij,ij->b", astype(x, f64), STACK)


@mlaot.model
def part(x: mlaot.f32[batch, 31]) -> Any:
    return astype(x[:, 1:], f64) @ WEIGHTS


@mlaot.model
def computed(x: mlaot.f32[batch, 30]) -> Any:
    return astype(np.tanh(x), f64) @ WEIGHTS


@mlaot.model
def columns(x: mlaot.f32[batch, 30]) -> Any:
    return astype(x, f64) @ MATRIX


@mlaot.model
def twice(x: mlaot.f32[batch, 30]) -> Any:
    wide = astype(x, f64)
    return wide @ WEIGHTS + np.max(wide, -1)


@mlaot.model
def returned(x: mlaot.f32[batch, 30]) -> Any:
    """What is widened is an output, too."""
    wide = astype(x, f64)
    return wide @ WEIGHTS, wide


MODELS = {"rows": rows, "number": number, "part": part, "computed": computed, "columns": columns, "twice": twice}
WIDENED = ("rows", "number", "part", "computed")


@pytest.mark.parametrize("isa", AVAILABLE)
def test_they_compute_the_same_without_copies(isa: str, tmp_path: Path) -> None:
    modules = {name: passes.run("m", trace(model)) for name, model in MODELS.items()}
    library = Library({name: lower(module) for name, module in modules.items()}, isa, tmp_path)
    for name, module in modules.items():
        graph = module.graphs["forward"]
        assert any(node.op.name == "widen" for node in graph.nodes()) == (name in WIDENED), name
        shape = [d if isinstance(d, int) else 5 for d in graph.inputs["x"].type.shape]
        given = {"x": RNG.normal(size=shape).astype(np.float32)}
        (expected,) = evaluate(graph, {**given, **module.parameters}, wide=True).values()
        (found,) = library.call(name, "forward", given, {"batch": 5}).values()
        tolerance = 1e-6 if name == "computed" else 1e-13  # tanh is of float32
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)
        kernels = [kernel for p in library.programs[name].procedures for kernel in p.kernels]
        assert any("cast" in line for kernel in kernels for line in kernel.nest.doc) != (name in WIDENED), name


def test_another_kernel_may_read_it(tmp_path: Path) -> None:
    library = Library({"m": lower(passes.run("m", trace(returned)))}, AVAILABLE[-1], tmp_path)
    x = RNG.normal(size=(5, 30)).astype(np.float32)
    product, wide = library.call("m", "forward", {"x": x}, {"batch": 5}).values()
    np.testing.assert_allclose(product, x.astype(float) @ WEIGHTS, rtol=1e-12)
    np.testing.assert_array_equal(wide, x.astype(float))


def test_only_float32_is_widened() -> None:
    for type_ in (f64[3], f32[()]):
        with pytest.raises(MlaotError, match="cannot widen"):
            st.widen(Graph("f").input("x", type_))
    assert st.widen(Graph("f").input("x", f32[3])).type == f64[3]
