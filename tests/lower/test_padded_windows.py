"""Sums over windows of padded arrays: they are right, and leave out what is padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.generate import compile_model
from mlaot.ir import Dim, Graph, Node, Type, dim
from mlaot.ir.types import f32
from mlaot.lower.padded_windows import PaddedWindows, padded_windows
from mlaot.nest.expressions import Call
from mlaot.nest.statements import For, walk
from mlaot.ops import structure as st
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library, Program

RNG = np.random.default_rng(7)
BATCH, HEIGHT = dim("batch"), dim("height")
LAYERS: dict[str, tuple[nn.Module, tuple[Dim, ...]]] = {
    "small map": (nn.Conv2d(16, 32, 3, padding=1, rng=RNG), (BATCH, 16, 7, 7)),
    "large window": (nn.Conv2d(6, 16, 5, padding=2, rng=RNG), (BATCH, 6, 14, 14)),
    "all of the map in a window": (nn.Conv2d(8, 24, 5, padding=4, rng=RNG), (BATCH, 8, 3, 3)),
    "strides": (nn.Conv2d(16, 24, 3, padding=1, stride=2, rng=RNG), (BATCH, 16, 9, 9)),
    "dilation": (nn.Conv2d(16, 24, 3, padding=3, dilation=3, rng=RNG), (BATCH, 16, 9, 9)),
    "strides and dilation": (nn.Conv2d(8, 16, 4, padding=5, stride=3, dilation=2, rng=RNG), (BATCH, 8, 11, 10)),
    "depthwise": (nn.Conv2d(32, 32, 7, padding=3, groups=32, rng=RNG), (BATCH, 32, 7, 7)),
    "open height": (nn.Conv2d(16, 24, 5, padding=2, rng=RNG), (BATCH, 16, HEIGHT, 9)),
    "a line": (nn.Conv1d(16, 24, 9, padding=4, rng=RNG), (BATCH, 16, 21)),
    "transposed": (nn.ConvTranspose2d(16, 8, 4, padding=1, rng=RNG), (BATCH, 16, 5, 5)),
}
DIMS = {"batch": 3, "height": 11}


def program_of(layer: nn.Module, shape: tuple[Dim, ...], **options: Any) -> Program:
    def forward(x: Any) -> Any:
        return layer(x)

    forward.__annotations__ = {"x": mlaot.f32[shape]}
    return compile_model(mlaot.model(forward, parameters=layer), "m", Options(**options))


def call(library: Library, stem: str, x: Any) -> Any:
    return library.call(stem, "forward", {"x": x}, DIMS)["out"]


@pytest.mark.parametrize("isa", AVAILABLE)
def test_convolutions_are_right(isa: str, tmp_path: Path) -> None:
    names = {name.replace(" ", "_"): name for name in LAYERS}
    library = Library({stem: program_of(*LAYERS[name]) for stem, name in names.items()}, isa, tmp_path)
    for stem, name in names.items():
        layer, shape = LAYERS[name]
        sizes = [d if isinstance(d, int) else DIMS[str(d)] for d in shape]
        x = RNG.normal(size=sizes).astype(np.float32)
        expected = np.asarray(layer(x))
        np.testing.assert_allclose(call(library, stem, x), expected, rtol=2e-5, atol=2e-5, err_msg=name)


def bounded(program: Program) -> int:
    """How many loops of a program's nests do not run over all of a window."""
    loops = [s for p in program.procedures for k in p.kernels for s in walk(k.nest.body) if isinstance(s, For)]
    return sum(isinstance(s.high, Call) and not s.parallel for s in loops)


def test_only_windows_over_padding_have_fewer_rounds() -> None:
    assert bounded(program_of(nn.Conv2d(6, 16, 5, padding=2, rng=RNG), (BATCH, 6, 14, 14))) == 2
    assert bounded(program_of(nn.Conv2d(6, 16, 5, padding=(2, 0), rng=RNG), (BATCH, 6, 14, 14))) == 1
    assert bounded(program_of(nn.Conv2d(6, 16, 5, rng=RNG), (BATCH, 6, 14, 14))) == 0


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_infinite_weight_meets_no_padding(deterministic: bool, tmp_path: Path) -> None:
    """Zero times infinity is no number; what must not depend on the instruction set has it everywhere."""
    layer = nn.Conv2d(16, 32, 5, padding=2, bias=False, rng=RNG)
    layer.weight.array[:, :, 0] = np.inf
    flags = ("-ffp-contract=off",) if deterministic else ()
    program = program_of(layer, (BATCH, 16, 12, 12), deterministic=deterministic)
    library = Library({"m": program}, AVAILABLE[-1], tmp_path, flags)
    found = call(library, "m", np.ones((3, 16, 12, 12), np.float32))[..., 2:-2]  # where no column is padding
    assert (np.isnan if deterministic else np.isfinite)(found[:, :, :2]).all() and np.isinf(found[:, :, 2:]).all()


def windows(x: Node, **attrs: Any) -> Node:
    chosen = {"axes": (1,), "sizes": (3,), "strides": (1,), "dilations": (1,), **attrs}
    return st.window(x, **chosen)


def padded(graph: Graph, value: float = 0.0, **attrs: Any) -> Node:
    x = graph.input("x", Type(f32, (4, 10)))
    chosen = {"low": (0, 2), "high": (0, 1), "interior": (0, 0), **attrs}
    return st.pad(x, graph.constant(value, f32), **chosen)


def test_windows_that_are_found() -> None:
    g = Graph("f")
    found = windows(padded(g))
    assert list(padded_windows(found)) == [PaddedWindows((1, 2), (1, 1), 2, 12)]
    turned = st.transpose(found, perm=(2, 0, 1))
    assert list(padded_windows(turned)) == [PaddedWindows((2, 0), (1, 1), 2, 12)]
    wide = windows(padded(g, low=(0, 4)), strides=(2,), dilations=(3,))
    assert list(padded_windows(wide)) == [PaddedWindows((1, 2), (2, 3), 4, 14)]


def test_windows_that_are_not_found() -> None:
    """Over other values than zeros, along another axis, over an array whose elements are spread."""
    g = Graph("f")
    for x in (padded(g, 1.0), padded(g, low=(2, 0), high=(1, 0)), padded(g, interior=(0, 1))):
        assert list(padded_windows(windows(x))) == []
    assert list(padded_windows(padded(g))) == []
