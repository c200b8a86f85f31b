"""Rows along other axes than the last, a row in each lane; light values that kernels compute again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.lower.program import Kernel
from mlaot.nest.text import nest_text
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library

batch = mlaot.dim("batch")
RNG = np.random.default_rng(3)
F32, F64 = np.float32, np.float64


def normalized(x: Any) -> Any:
    """Three stages, of which the last two compute ``x - mean`` again."""
    centered = x - np.mean(x, axis=(1, 2), keepdims=True)
    return centered / np.sqrt(np.mean(centered * centered, axis=(1, 2), keepdims=True) + 1e-5)


def softmax(x: Any) -> Any:
    """exp is no light work: its rows wait in memory for their sum."""
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def masked(x: Any) -> Any:
    """Truth values are loaded and stored, and count nothing of the sum."""
    mask = x > 0.25
    return np.sum(np.where(mask, x * x, 0), axis=1), mask


def apart(x: Any) -> Any:
    """The axes of a row do not lie side by side."""
    y = np.tanh(x)
    return y * np.sum(y, axis=(1, 3), keepdims=True) + np.max(y, axis=(1, 3), keepdims=True)


def several(x: Any) -> Any:
    """Several reductions in one sweep, and values per row of which others are made."""
    y = x * x
    low, high, total = np.min(y, axis=1), np.max(y, axis=1), np.sum(y, axis=1)
    return (y - low[:, None]) / (high - low + 1)[:, None], np.sqrt(total)


def statistics(x: Any) -> Any:
    """What batch normalization does: over examples, too."""
    centered = x - np.mean(x, axis=(0, 1, 2))
    return centered / np.sqrt(np.mean(centered * centered, axis=(0, 1, 2)) + 1e-5)


def two_steps(x: Any) -> Any:
    """Both are computed again: from the mean, and times a number per channel."""
    scale = 1 / np.sqrt(np.mean(x * x, axis=(0, 1, 2)) + 1)
    scaled = (x - np.mean(x, axis=(0, 1, 2))) * scale
    return scaled - np.mean(np.abs(scaled), axis=(0, 1, 2))


def along_last(x: Any) -> Any:
    return x - np.mean(np.exp(x), axis=-1, keepdims=True)


Case = tuple[Callable[[Any], Any], tuple[int, ...], Any, int]
CASES: dict[str, Case] = {  # and how many kernels there are
    "normalized": (normalized, (14, 9, 48), F32, 2),  # a mean of what lies in memory is a kernel of its own
    "normalized f64": (normalized, (5, 6, 16), F64, 2),
    "short lanes": (normalized, (4, 4, 12), F32, 2),
    "narrow lanes": (normalized, (4, 4, 7), F32, 4),
    "lanes and a rest": (normalized, (4, 4, 27), F32, 2),
    "softmax": (softmax, (21, 160), F32, 2),
    "softmax of a rest": (softmax, (21, 20), F64, 2),
    "masked": (masked, (30, 32), F32, 2),
    "apart": (apart, (3, 4, 5, 16), F32, 1),
    "several": (several, (17, 24), F32, 1),
    "statistics": (statistics, (8, 8, 16), F32, 5),
    "two steps": (two_steps, (8, 8, 16), F32, 7),
    "along the last": (along_last, (6, 40), F32, 1),
    "no whole lines": (softmax, (5, 50), F32, 4),
}


def declared(name: str) -> Any:
    function, shape, dtype, _ = CASES[name]

    def model(x):  # type: ignore[no-untyped-def]
        return function(x)

    model.__annotations__ = {"x": (mlaot.f32 if dtype is F32 else mlaot.f64)[batch, *shape]}
    return mlaot.model(model)


@pytest.fixture(scope="module", params=AVAILABLE)
def library(request: pytest.FixtureRequest, shared_folder: Path) -> Library:
    programs = {name.replace(" ", "_"): lower(passes.run("m", trace(declared(name)))) for name in CASES}
    return Library(programs, request.param, shared_folder / "lanes_of_rows")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 5])
def test_they_compute_what_numpy_does(library: Library, name: str, size: int) -> None:
    function, shape, dtype, count = CASES[name]
    stem = name.replace(" ", "_")
    x = RNG.normal(size=(size, *shape)).astype(dtype)
    result = function(x.astype(F64))
    tolerance = 2e-5 if dtype is F32 else 1e-12
    for parts in (False, True):
        found = library.call(stem, "forward", {"x": x}, {"batch": size}, parts=parts)
        for value, expected in zip(found.values(), result if isinstance(result, tuple) else [result], strict=True):
            np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance, err_msg=name)
    assert len(kernels(library.programs[stem])) == count


def kernels(program: Any) -> list[Kernel]:
    return [kernel for procedure in program.procedures for kernel in procedure.kernels]


def test_an_input_may_be_called_as_a_loop_is() -> None:
    """Of the loop over blocks of lanes, whose name an array would hide."""

    @mlaot.model
    def model(first: mlaot.f32[batch, 21, 160]) -> Any:
        return softmax(first)

    (kernel,) = (k for k in kernels(lower(passes.run("m", trace(model)))) if k.nest.name == "rows")
    assert "first" not in {a.name for a in kernel.nest.params} and "for first in" in nest_text(kernel.nest)


def test_every_instruction_set_gives_the_same_bits(shared_folder: Path) -> None:
    """Each lane adds up its own row, in one order."""
    given = {"x": RNG.normal(size=(3, 21, 160)).astype(F32)}
    program = lower(passes.run("m", trace(declared("softmax")), Options(deterministic=True)))
    found = [
        Library({"m": program}, isa, shared_folder / "lanes_of_rows_bits").call("m", "forward", given, {"batch": 3})
        for isa in AVAILABLE
    ]
    assert len({tuple(value.tobytes() for value in results.values()) for results in found}) == 1


@pytest.mark.parametrize("name", ["statistics", "two steps"])
def test_light_values_are_not_kept(name: str) -> None:
    """Nothing between the kernels has the size of the input: each computes ``x - mean`` for itself."""
    for kernel in kernels(lower(passes.run("m", trace(declared(name))))):
        written = [param.buffer for param in kernel.params if param.written and param.buffer.where == "work"]
        assert all(len(buffer.shape) < 4 for buffer in written)
