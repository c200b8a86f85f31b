"""3x3 convolutions by Winograd's transforms: where they are used, and that they compute the same."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Dim, Graph, Node, Type, dim, verify
from mlaot.ir.module import Module
from mlaot.ir.types import DType, f32, f64
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops import winograd as transforms
from mlaot.passes.frozen.winograd import fastest, winograd
from mlaot.settings.options import Options

Array = np.ndarray[Any, Any]
SHAPES = ((56, 56), (28, 28), (14, 14), (7, 7), (5, 9), (3, 17), (4, 6), (2, 1))


def convolution(
    x: Node, w: Node, pads: tuple[int, int, int, int] = (1, 1, 1, 1), labels: str = "OCklco", **window: Any
) -> Node:
    """A convolution of maps [n, C, h, w, 16] or [C, h, w, 16], as the pass that puts channels in blocks leaves it."""
    above, below, left, right = pads
    zero, lead = x.graph.constant(0, x.type.dtype), (0,) * (x.type.rank - 3)
    around = {"low": (*lead, above, left, 0), "high": (*lead, below, right, 0), "interior": (0,) * x.type.rank}
    n = "n" * (x.type.rank - 4)
    padded = st.pad(x, zero, **around) if any(pads) else x
    attrs = {"axes": (len(lead), len(lead) + 1), "sizes": (3, 3), "strides": (1, 1), "dilations": (1, 1), **window}
    return red.contract(st.window(padded, **attrs), w, spec=f"{n}Chwckl,{labels}->{n}Ohwo")


def module_of(
    size: tuple[Dim, Dim], *, blocks: tuple[int, int] = (2, 2), n: Dim | None = 2, dtype: DType = f64, **attrs: Any
) -> Module:
    """A module of one convolution with random weights."""
    rng = np.random.default_rng(0)
    c, o = blocks
    graph = Graph("forward")
    x = graph.input("x", Type(dtype, (*([] if n is None else [n]), c, *size, 16)))
    extents = {"O": o, "C": c, "k": 3, "l": 3, "c": 16, "o": 16}
    shape = tuple(extents[label] for label in attrs.get("labels", "OCklco"))
    w = graph.input("w", Type(dtype, shape), parameter=True)
    graph.outputs["y"] = convolution(x, w, **attrs)
    return Module("m", {"forward": graph}, {"w": rng.normal(size=shape).astype(dtype.numpy)}, False)


def ops_of(module: Module) -> list[str]:
    return [node.op.name for node in module.graphs["forward"].nodes() if node.op.name not in ("input", "const")]


def run(module: Module, x: Array) -> Array:
    return evaluate(module.graphs["forward"], {"x": x, **module.slots})["y"]


def difference(module: Module, x: Array) -> float:
    """How far the module is off after the pass, relative to its largest value."""
    expected = run(module, x)
    winograd(module)
    verify(module.graphs["forward"], "winograd")
    return float(np.abs(run(module, x) - expected).max() / np.abs(expected).max())


def values(module: Module, n: int = 2) -> Array:
    shape = module.graphs["forward"].inputs["x"].type.shape
    return np.random.default_rng(1).normal(size=(n, *shape[-4:]))  # type: ignore[arg-type]


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 0, 1)])
@pytest.mark.parametrize("size", [s for s in SHAPES if s[0] < 20])
@pytest.mark.parametrize("setting", ["F2", "F4"])
def test_it_is_the_same_convolution(setting: str, size: tuple[int, int], pads: tuple[int, int, int, int]) -> None:
    if min(size) < 3 and not all(pads):
        pads = (1, 1, 1, 1)
    module = module_of(size, pads=pads, n=dim("n"))
    module.options = Options(winograd=setting)
    assert difference(module, values(module)) < 1e-13
    assert ops_of(module)[0] in ("winograd_input", "window", "pad")


def test_a_model_of_one_image() -> None:
    module = module_of((6, 7), n=None)
    x = values(module)[0]
    assert x.shape == (2, 6, 7, 16) and difference(module, x) < 1e-13
    assert ops_of(module) == ["winograd_input", "contract", "winograd_output"]


@pytest.mark.parametrize("labels", ["".join(p) for p in permutations("OCkco")][::17])
def test_weights_in_any_order(labels: str) -> None:
    module = module_of((6, 6), labels=f"l{labels}")
    assert difference(module, values(module)) < 1e-13
    assert ops_of(module) == ["winograd_input", "contract", "winograd_output"]


def test_operands_the_other_way_round() -> None:
    module = module_of((6, 6))
    graph = module.graphs["forward"]
    windows, w = graph.outputs["y"].args
    graph.outputs["y"] = red.contract(w, windows, spec="OCklco,nChwckl->nOhwo")
    assert difference(module, values(module)) < 1e-13
    assert ops_of(module) == ["winograd_input", "contract", "winograd_output"]


def test_what_is_padded_otherwise_keeps_its_padding() -> None:
    """By something else than zeros, or between its elements."""
    for value, interior in ((1.0, 0), (0.0, 1)):
        module = module_of((9, 9), pads=(0, 0, 0, 0))
        graph = module.graphs["forward"]
        (x, w), constant = graph.inputs.values(), graph.constant(value, f64)
        padded = st.pad(x, constant, low=(0, 0, 1, 1, 0), high=(0,) * 5, interior=(0, 0, interior, 0, 0))
        graph.outputs["y"] = convolution(padded, w, (0, 0, 0, 0))
        assert difference(module, values(module)) < 1e-13
        assert ops_of(module) == ["pad", "winograd_input", "contract", "winograd_output"]


def test_equal_weights_are_stored_once() -> None:
    module = module_of((6, 6))
    graph = module.graphs["forward"]
    x, w = graph.inputs.values()
    graph.outputs["z"] = convolution(graph.outputs["y"], w)
    winograd(module)
    assert len(module.parameters) == 2 and ops_of(module).count("winograd_output") == 2
    assert x in graph.nodes() and w not in graph.nodes()


def stays(module: Module) -> bool:
    before = ops_of(module)
    winograd(module)
    return ops_of(module) == before


def test_other_convolutions_stay() -> None:
    assert not stays(module_of((14, 14)))
    assert stays(module_of((14, 14), strides=(2, 2)))
    assert stays(module_of((14, 14), dilations=(2, 2)))
    assert not stays(module_of((dim("h"), 14)))
    assert stays(module_of((1, 1)))  # eight of the nine products are with zeros, but a tile has sixteen
    off = module_of((14, 14))
    off.options = Options(winograd="off")
    assert stays(off)


def test_weights_that_change_stay() -> None:
    training = module_of((14, 14))
    training.trains = True
    assert stays(training)
    written = module_of((14, 14))
    graph = written.graphs["forward"]
    graph.writes["w"] = graph.inputs["w"]
    assert stays(written)
    given = module_of((14, 14))
    given.parameters.clear()
    assert stays(given)


def test_few_channels_stay() -> None:
    """The transforms would take as long as what they save."""
    assert fastest((56, 56), (1, 1), (2,)) is None
    assert fastest((56, 56), (2, 2), (2,)) == 2


def test_resnets_layers() -> None:
    """Of equal work, in maps of 56, 28, 14 and 7: the last has too many weights for F4."""
    layers = {56: 4, 28: 8, 14: 16, 7: 32}
    assert [fastest((size, size), (blocks, blocks), (2,)) for size, blocks in layers.items()] == [2, 2, 2, 2]
    assert [fastest((size, size), (blocks, blocks), (2, 4)) for size, blocks in layers.items()] == [4, 4, 4, 2]


def rounding(setting: str) -> tuple[float, float]:
    """The errors in float32 of the transforms and of the plain sum, relative to the largest value."""
    module = module_of((14, 14), blocks=(4, 2), dtype=f32)
    module.options = Options(winograd=setting)
    x, graph = values(module, 1).astype(np.float32), module.graphs["forward"]
    exact = evaluate(graph, {"x": x, **module.slots}, wide=True)["y"]
    plain = run(module, x)
    winograd(module)
    found = run(module, x)
    return tuple(float(np.abs(y - exact).max() / np.abs(exact).max()) for y in (found, plain))  # type: ignore[return-value]


def test_errors_in_float32() -> None:
    """F2 rounds no worse than the sum in one order after the other, whose error is about 1e-6; F4 loses a digit."""
    assert rounding("F2")[0] < 1e-6
    assert rounding("F4")[0] < 1e-5


@pytest.mark.parametrize("name", ["INPUT", "OUTPUT", "WEIGHTS"])
@pytest.mark.parametrize("m", [2, 4])
def test_every_coefficient_matters(m: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any one of them wrong, the result is: the tests above would see it."""
    tables = getattr(transforms, name)
    for i, row in enumerate(tables[m]):
        for j, _ in enumerate(row):
            wrong = [list(r) for r in tables[m]]
            wrong[i][j] += 1e-3
            monkeypatch.setitem(tables, m, tuple(map(tuple, wrong)))
            module = module_of((m + 2, m + 2), blocks=(1, 1), n=1, pads=(0, 0, 0, 0))
            monkeypatch.setattr("mlaot.passes.frozen.winograd.fastest", lambda *_: m)
            assert difference(module, values(module, 1)) > 1e-6, (i, j)
            monkeypatch.undo()
