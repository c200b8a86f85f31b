"""Padding without a copy: what is computed to be padded is computed into the middle of the padded value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Type
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from tests.compiled import AVAILABLE, Library

N = mlaot.dim("n")
F32, F64 = mlaot.f32, mlaot.f64


def windows(x: Any, size: int = 3) -> Any:
    """Something that reads a padded value as it lies in memory."""
    return np.max(mlaot.window(x, (x.ndim - 1,), (size,)), axis=-1)


def pad(x: Any, low: Any = 1, high: Any = 1, value: float = 0.0) -> Any:
    """The last axis padded."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(low, high)], constant_values=value)


def residual(x: Any) -> Any:
    y = np.exp(x)
    return windows(pad(y)) + y


def two_paddings(x: Any) -> Any:
    y = np.exp(x)
    return windows(pad(y)), windows(pad(y, 2, 2, -1.0), 5)


def both_axes(x: Any) -> Any:
    y = np.pad(np.exp(x), [(0, 0), (1, 2), (3, 0)])
    return np.max(mlaot.window(y, (1, 2), (4, 4)), axis=(-1, -2))


def is_output(x: Any) -> Any:
    y = np.exp(x)
    return y, windows(pad(y))


def of_padding(x: Any) -> Any:
    return windows(pad(pad(np.exp(x)), 2, 1, 1.0))


def merged(x: Any) -> Any:
    y = np.exp(x)
    return windows(pad(y)), mlaot.cumsum(y.reshape(N, y.shape[1] * y.shape[2]), 1)


def picked(x: Any) -> Any:
    return windows(pad(np.take(np.exp(x), [3, 0, 5, 5], axis=1)))


def looked_up(x: Any) -> Any:
    return windows(pad(np.take(np.exp(x), x[0, :4].astype(np.int32), axis=1)))


def product(x: Any) -> Any:
    return windows(pad(np.maximum(x @ mlaot.Parameter("w", np.linspace(-1, 1, 6 * 19).reshape(6, 19).astype("f4")), 0)))


def in_a_loop(x: Any) -> Any:
    return mlaot.scan(lambda carry, row: (windows(pad(np.exp(carry - row))), carry), x[0], x)


# name: the input's type, the function, how many of its paddings copy
CASES: dict[str, tuple[Type, Callable[[Any], Any], int]] = {
    "elementwise": (F32[N, 37], lambda x: windows(pad(np.exp(x))), 0),
    "short rows": (F64[N, 3, 5], lambda x: windows(pad(np.exp(x))), 0),
    "before only": (F32[N, 16], lambda x: windows(pad(np.exp(x), 3, 0)), 0),
    "behind only": (F32[N, 16], lambda x: windows(pad(np.exp(x), 0, 3)), 0),
    "along the batch": (F32[N, 16], lambda x: windows(np.pad(np.exp(x), ((2, 1), (0, 0)))), 0),
    "by infinity": (F32[N, 20], lambda x: windows(pad(np.exp(x), value=-np.inf)), 0),
    "both axes": (F32[N, 6, 18], both_axes, 0),
    "residual": (F32[N, 35], residual, 0),
    "product": (F32[N, 6], product, 0),
    "two paddings": (F32[N, 21], two_paddings, 0),
    "an output": (F32[N, 21], is_output, 0),
    "an input": (F32[N, 21], lambda x: windows(pad(x)), 1),
    "padding of padding": (F32[N, 21], of_padding, 1),
    "read with merged axes": (F32[N, 4, 16], merged, 1),
    "picked": (F32[N, 7], picked, 1),  # by a table
    "looked up": (F32[N, 7], looked_up, 0),
    "in a loop": (F32[4, 9], in_a_loop, 0),
}


def program_of(type_: Type, function: Callable[[Any], Any], isa: str) -> tuple[Program, Any]:
    def model(x: Any) -> Any:
        return function(x)

    model.__annotations__ = {"x": type_}
    declared = mlaot.model(model)
    module = passes.run("m", declared.trace())
    return lower(module), module


def copies(program: Program) -> int:
    """Kernels that pad what another one has written somewhere else."""
    kernels = [k for p in program.procedures for k in p.kernels if any(" = pad(" in line for line in k.doc)]
    return sum(any(not p.written for p in k.params) for k in kernels)


def test_which_paddings_copy() -> None:
    for name, (type_, function, count) in CASES.items():
        assert copies(program_of(type_, function, "base")[0]) == count, name


@pytest.mark.parametrize("isa", AVAILABLE)
def test_values(isa: str, tmp_path: Path) -> None:
    stems = {f"case{i}": name for i, name in enumerate(CASES)}
    found = {stem: program_of(*CASES[name][:2], isa) for stem, name in stems.items()}
    library = Library({stem: program for stem, (program, _) in found.items()}, isa, tmp_path)
    for stem, name in stems.items():
        module = found[stem][1]
        graph = module.graphs["forward"]
        known = {"n": 3, "batch": 2}
        shape = [mlaot.ir.dims.substitute(d, known) for d in graph.inputs["x"].type.shape]
        x = np.random.default_rng(0).normal(size=shape).astype(graph.inputs["x"].type.dtype.numpy)
        expected = evaluate(graph, {"x": x, **module.slots}, dims=known)
        got = library.call(stem, "forward", {"x": x}, known)
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, rtol=2e-5, atol=1e-6, err_msg=name)
