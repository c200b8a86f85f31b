"""Calls that golden vectors may be made of."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.ir.ports import MANY, Draw, numbers
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.nn import functional as F
from mlaot.report.candidates import CONTENT, candidates

N, H, W = mlaot.dim("n"), mlaot.dim("h"), mlaot.dim("w")


def calls(function: Any, sample: Any = None, count: int = 3) -> Any:
    module = passes.run("nn", trace(mlaot.model(function)), sample=sample)
    lowered = lower(module).module
    (entry,) = lowered.entries
    return entry, [*islice(candidates(entry, module.declared["forward"], module, lowered.dims), count)]


def halved(x: mlaot.f32[N, 1, H, W]) -> Any:
    for _ in range(5):
        x = F.max_pool2d(x, 2)
    return x


def images(x: mlaot.u8[N, 4]) -> Any:
    return mlaot.astype(x, mlaot.f32) * 2


def test_images_are_not_halved_to_nothing_and_their_sides_differ() -> None:
    _, found = calls(halved, count=1)
    sizes, _ = found[0]
    assert sizes["h"] // 32 >= 2 and sizes["w"] // 32 >= 2 and len(set(sizes.values())) == 3


@pytest.mark.parametrize("rows", [3, 40])
def test_numbers_of_a_small_sample_are_the_inputs(rows: int) -> None:
    sample = np.arange(4 * rows, dtype=np.uint8).reshape(rows, 4)
    entry, found = calls(images, {"x": sample}, 1)
    sizes, (draw,) = found[0]
    assert sizes == {"n": min(rows, 17)}
    assert (numbers(entry.inputs[0], 0, sizes, draw) == sample[: sizes["n"]]).all()


def wide(x: mlaot.f32[N, CONTENT]) -> Any:
    return x + 1


@pytest.mark.parametrize(
    ("low", "high", "drawn"), [(0, 255, Draw(0, 256)), (0.0, 1.0, Draw(0, 1)), (-3.0, 2.0, Draw(-4, 8))]
)
def test_of_a_large_sample_the_range_counts(low: float, high: float, drawn: Draw) -> None:
    sample = np.linspace(low, high, 2 * CONTENT, dtype=np.float32).reshape(2, -1)
    entry, found = calls(wide, {"x": sample}, 20)
    assert found[0][1] == (drawn,)
    assert len({draws for _, draws in found}) == 4
    made = numbers(entry.inputs[0], 0, found[0][0], drawn)
    assert drawn.low <= made.min() and made.max() < drawn.low + drawn.width and made.max() > 0.9 * high


def test_many_integers_are_mostly_the_first() -> None:
    entry, found = calls(images, count=20)
    assert [draw.width for sizes, (draw,) in found if sizes["n"] == 17] == [256, 64, 8, 8]
    made = numbers(entry.inputs[0], 0, {"n": 1000}, found[0][1][0])
    assert 0.7 < (made == 0).mean() < 0.8 and made.max() > 250
    assert (numbers(entry.inputs[0], 0, {"n": 1000}, Draw(0, MANY)) == 0).mean() < 0.05
