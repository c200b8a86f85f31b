"""Convolutions by Winograd's transforms as machine code, against the plain sum in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Dim, Graph, Node, Subgraph, Type, dim
from mlaot.ir.dims import substitute
from mlaot.ir.module import Module
from mlaot.ir.types import DType, f32, f64
from mlaot.lower.fuse import fuse
from mlaot.lower.lower import lower
from mlaot.lower.program import Loop, Program
from mlaot.lower.winograd import block_height, multiply
from mlaot.nest.expressions import Call, ValueType, Var, subexpressions
from mlaot.ops import control
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops import winograd as transforms
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.frozen.winograd import winograd
from mlaot.passes.subgraphs import everywhere
from mlaot.printing.spelling import Speller

from ..compiled import AVAILABLE, Library
from ..passes.frozen.test_winograd import module_of

Array = np.ndarray[Any, Any]
BATCH, HEIGHT, WIDTH = dim("batch"), dim("height"), dim("width")
ERRORS = {(2, "f32"): 2e-6, (4, "f32"): 2e-5, (2, "f64"): 1e-14, (4, "f64"): 1e-13}  # of the largest value
PADS = ((1, 1), (1, 1))


def bias(y: Node) -> Node:
    b = y.graph.input("b", Type(y.type.dtype, (y.type.shape[-4], 16)), parameter=True)
    return ew.add(y, st.broadcast(b, shape=y.type.shape, axes=(y.type.rank - 4, y.type.rank - 1)))


def residual(y: Node) -> Node:
    return ew.relu(ew.add(bias(y), y.graph.input("r", y.type)))


def clipped(y: Node) -> Node:
    six, zero = (st.broadcast(y.graph.constant(c, y.type.dtype), shape=y.type.shape, axes=()) for c in (6, 0))
    return ew.maximum(ew.minimum(bias(y), six), zero)


EPILOGUES: dict[Callable[[Node], Node] | None, Callable[[Array, dict[str, Array]], Array]] = {
    None: lambda y, _: y,
    bias: lambda y, a: y + a["b"][None, :, None, None, :],
    residual: lambda y, a: np.maximum(y + a["b"][None, :, None, None, :] + a["r"], 0),
    clipped: lambda y, a: np.clip(y + a["b"][None, :, None, None, :], 0, 6),
}


class Case:
    """A convolution with the arrays for two images, and what it should give."""

    def __init__(
        self,
        size: tuple[Dim, Dim],
        blocks: tuple[int, int],
        m: int,
        *,
        n: Dim | None = BATCH,
        dtype: DType = f32,
        pads: tuple[tuple[int, int], tuple[int, int]] = PADS,
        epilogue: Callable[[Node], Node] | None = None,
        before: Callable[[Node], Node] | None = None,
    ) -> None:
        rng = np.random.default_rng(m)
        self.tolerance, self.epilogue, self.before = ERRORS[m, dtype.name], epilogue, before
        c, o = blocks
        self.weights = rng.normal(size=(3, 3, o, c, 16, 16)) / np.sqrt(9 * c * 16)
        self.pads = pads
        self.graph = graph = Graph("forward")
        x = graph.input("x", Type(dtype, (*([] if n is None else [n]), c, *size, 16)))
        u = graph.input("u", Type(dtype, ((m + 2) ** 2, o, c, 16, 16)), parameter=True)
        low, high = (tuple(p[i] for p in pads) for i in (0, 1))
        v = transforms.winograd_input(before(x) if before else x, m=m, low=low, high=high)
        covered = tuple(d + sum(p) - 2 for d, p in zip(size, pads, strict=True))
        y = transforms.winograd_output(transforms.products(v, u), m=m, size=covered)
        graph.outputs["y"] = epilogue(y) if epilogue else y
        self.constants = {"u": transforms.transform_weights(self.weights, m).astype(dtype.numpy)}
        if "b" in graph.inputs:
            self.constants["b"] = rng.normal(size=(o, 16)).astype(dtype.numpy)
        legalize(graph)

    @property
    def program(self) -> Program:
        return lower(Module("m", {"forward": self.graph}, dict(self.constants), False))

    def arrays(self, images: int, height: int = 0, width: int = 0) -> dict[str, Array]:
        rng = np.random.default_rng(images)
        found = {}
        dims = {"batch": images, "height": height, "width": width}
        for name, node in self.graph.inputs.items():
            if name not in self.constants:
                shape = [substitute(d, dims) for d in node.type.shape]
                found[name] = rng.normal(size=shape).astype(node.type.dtype.numpy)
        return found

    def expected(self, arrays: dict[str, Array]) -> Array:
        wide = {k: v.astype(np.float64) for k, v in {**arrays, **self.constants}.items()}
        x = np.maximum(wide["x"], 0) if self.before else wide["x"]
        if x.ndim == 4:
            return self.expected({name: value[None] for name, value in arrays.items()})[0]
        padded = np.pad(x, ((0, 0), (0, 0), *self.pads, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        y = np.einsum("nChwckl,klOCco->nOhwo", windows, self.weights, optimize=True)
        return EPILOGUES[self.epilogue](y, wide)


MAPS = {
    (56, 56): (residual, bias),
    (28, 28): (bias, None),
    (14, 14): (None, residual),
    (7, 7): (clipped, bias),
    (5, 9): (residual, clipped),
    (3, 17): (bias, None),
    (1, 1): (None, None),
}
CASES = {
    f"{height}x{width}_F{m}": Case((height, width), (2, 3), m, epilogue=rule)
    for (height, width), rules in MAPS.items()
    for m, rule in zip((2, 4), rules, strict=True)
} | {
    "one_image_F2": Case((28, 28), (8, 8), 2, n=1),  # several blocks of rows
    "one_image_F4": Case((51, 28), (6, 4), 4, n=1),
    "no_batch_F2": Case((28, 28), (8, 2), 2, n=None, epilogue=residual),
    "unpadded_F2": Case((6, 9), (1, 2), 2, pads=((0, 0), (0, 0))),
    "askew_F2": Case((5, 4), (1, 2), 2, pads=((2, 0), (0, 3))),
    "askew_F4": Case((5, 4), (1, 2), 4, pads=((2, 0), (0, 3))),
    "doubles_F2": Case((5, 9), (2, 3), 2, dtype=f64, epilogue=residual),
    "behind_relu_F2": Case((5, 9), (2, 3), 2, before=ew.relu),
}


OPEN = {
    "few_F2": Case((HEIGHT, WIDTH), (2, 3), 2, epilogue=residual),
    "few_F4": Case((HEIGHT, WIDTH), (2, 1), 4, epilogue=bias),
    "many_F2": Case((HEIGHT, WIDTH), (6, 10), 2, epilogue=clipped),
    "many_F4": Case((HEIGHT, WIDTH), (5, 7), 4),
    "unequal_F2": Case((HEIGHT, HEIGHT * 2 + 1), (1, 2), 2, pads=((1, 1), (0, 3))),
    "halved_F2": Case(((HEIGHT + 1) // 2, WIDTH), (1, 2), 2, before=ew.relu),
    "width_F2": Case((11, WIDTH), (1, 2), 2, epilogue=residual),
    "height_F2": Case((HEIGHT, 11), (1, 2), 2, n=None, pads=((2, 0), (1, 1))),
}


@pytest.fixture(scope="module", params=AVAILABLE)
def library(request: pytest.FixtureRequest, shared_folder: Path) -> Library:
    """Every case on one instruction set."""
    programs = {name: case.program for name, case in CASES.items()}
    return Library(programs, request.param, shared_folder / "winograd")


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_convolution(library: Library, name: str) -> None:
    case = CASES[name]
    for images in (0, 1, 3) if case.graph.inputs["x"].type.shape[0] == BATCH else (1,):
        arrays = case.arrays(images)
        found = library.call(name, "forward", arrays, {"batch": images})["y"]
        expected = case.expected(arrays)
        assert found.shape == expected.shape
        if images:
            assert np.abs(found - expected).max() / np.abs(expected).max() < case.tolerance


@pytest.fixture(scope="module", params=AVAILABLE)
def open_library(request: pytest.FixtureRequest, shared_folder: Path) -> Library:
    """Every case of an open size on one instruction set."""
    programs = {name: case.program for name, case in OPEN.items()}
    return Library(programs, request.param, shared_folder / "winograd_open")


@pytest.mark.parametrize("name", OPEN)
def test_maps_of_any_size(open_library: Library, name: str) -> None:
    """Whole tiles and parts of them, no whole block of rows, several, and a rest."""
    case = OPEN[name]
    for height, width in ((1, 1), (2, 3), (4, 8), (5, 6), (16, 7), (9, 21), (35, 2)):
        arrays = case.arrays(2, height, width)
        dims = {"batch": 2, "height": height, "width": width}
        found = open_library.call(name, "forward", arrays, dims)["y"]
        expected = case.expected(arrays)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() / np.abs(expected).max() < case.tolerance


def test_blocks_of_an_open_size() -> None:
    """A row of tiles if weights stay in the cache beside it; else several, and the rest by kernels of its own."""
    assert len(OPEN["few_F2"].program.procedures[0].kernels) == 3
    assert len(OPEN["many_F2"].program.procedures[0].kernels) == 6


def loops(program: Program) -> list[Loop]:
    found: list[Loop] = []
    for step in program.procedures[0].steps:
        stack = [step]
        while stack:
            top = stack.pop()
            found += [top] if isinstance(top, Loop) else []
            stack += getattr(top, "inner", ())
    return found


def test_large_maps_are_cut_in_blocks_of_rows() -> None:
    """Equal ones, so that each kernel is written once; the workspace does not grow with the batch."""
    case = CASES["one_image_F2"]
    assert [loop.extent for loop in loops(case.program)] == [7]
    assert len(case.program.procedures[0].kernels) == 3
    assert int(case.program.procedures[0].entry.workspace) < 896 * 1024
    assert CASES["56x56_F2"].program.procedures[0].entry.workspace.isdigit()


def test_blocks_that_leave_the_cache_a_little_are_better_than_all_tiles() -> None:
    """Of 41 rows of tiles of many channels, a prime number, one is larger than the cache, and all much larger."""
    assert block_height(rows=41, weights=512 * 1024, between=lambda height: height * 1024 * 1024) == 1
    assert block_height(rows=41, weights=512 * 1024, between=lambda height: height * 16 * 1024) == 41


def test_the_epilogue_is_in_the_last_kernel() -> None:
    groups, _ = fuse(CASES["56x56_F2"].graph)
    assert [node.op.name for node in groups[0].nodes] == [
        *("winograd_input", "contract", "winograd_output"),
        *("add", "add", "relu"),
    ]
    assert len(groups) == 1


@pytest.mark.parametrize("table", ["INPUT", "OUTPUT"])
def test_a_wrong_coefficient_is_seen(table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where it breaks the pairs of rows and columns that share their sums."""
    tables = getattr(transforms, table)
    wrong = [list(row) for row in tables[4]]
    wrong[1][1] *= 1.01
    monkeypatch.setitem(tables, 4, tuple(map(tuple, wrong)))
    case = CASES["5x9_F4"]
    arrays = case.arrays(1)
    found = Library({"m": case.program}, "base", tmp_path).call("m", "forward", arrays, {"batch": 1})["y"]
    expected = case.expected(arrays)
    assert np.abs(found - expected).max() / np.abs(expected).max() > 10 * case.tolerance


@pytest.mark.parametrize("matrix", [*transforms.INPUT.values(), *transforms.OUTPUT.values()])
def test_assignments_are_the_product_with_the_matrix(matrix: transforms.Matrix) -> None:
    """And share what they can: F4 takes 12 and 10 vector operations, fused multiply-adds counted as one."""
    x = np.random.default_rng(0).normal(size=len(matrix[0]))
    given = [Var(f"a{i}", ValueType("f64")) for i in range(len(x))]
    results = [Var(f"c{i}", ValueType("f64")) for i in range(len(matrix))]
    lets = multiply(matrix, given, results, iter(range(99)))
    scope = {var.name: value for var, value in zip(given, x, strict=True)}
    for let in lets:
        scope[let.var.name] = eval(Speller(0)(let.value), {}, scope)
    np.testing.assert_allclose([scope[var.name] for var in results], np.array(matrix) @ x, rtol=1e-14, atol=1e-14)
    calls = [x.name for let in lets for x in subexpressions(let.value) if isinstance(x, Call)]
    additions = calls.count("add") + calls.count("sub")
    assert additions == {(4, 4): 4, (6, 6): 12, (2, 4): 4, (4, 6): 10}[len(matrix), len(matrix[0])]


def shared(graph: Graph) -> list[Node]:
    """Two convolutions of one value; the products of the first are an output too."""
    x = graph.input("x", f32[BATCH, 1, 5, 5, 16])
    v = transforms.winograd_input(x, m=2, low=(1, 1), high=(1, 1))
    us = [graph.input(f"u{i}", f32[16, 1, 1, 16, 16], parameter=True) for i in (0, 1)]
    found = [transforms.products(v, u) for u in us]
    return [*[transforms.winograd_output(p, m=2, size=(5, 5)) for p in found], found[0]]


def looped(graph: Graph) -> list[Node]:
    """A convolution of each of several images, then of the result."""
    x, u = graph.input("x", f32[BATCH, 1, 5, 5, 16]), graph.input("u", f32[16, 1, 1, 16, 16], parameter=True)

    def body(inner: Graph, args: list[Node]) -> list[Node]:
        weights, image = args
        y = st.reshape(image, shape=(1, *image.type.shape))
        for _ in range(2):
            v = transforms.winograd_input(y, m=2, low=(1, 1), high=(1, 1))
            y = transforms.winograd_output(transforms.products(v, weights), m=2, size=(5, 5))
        return [st.reshape(y, shape=image.type.shape)]

    inside = Subgraph.of("body", [u.type, x.type.with_shape(x.type.shape[1:])], body)
    return control.results(control.scan(u, x, body=inside, consts=1, carries=0, length=BATCH, reverse=False))


def test_what_the_pass_makes(tmp_path: Path) -> None:
    """From windows of padded maps to machine code."""
    module = module_of((14, 14), n=BATCH, dtype=f32)
    x = np.random.default_rng(0).normal(size=(2, 2, 14, 14, 16)).astype(np.float32)
    expected = evaluate(module.graphs["forward"], {"x": x, **module.slots}, wide=True)["y"]
    winograd(module)
    legalize(module.graphs["forward"])
    program = lower(module)
    assert [kernel.doc[0].split()[2].split("(")[0] for kernel in program.procedures[0].kernels] == [
        *("winograd_input", "contract", "winograd_output"),
    ]
    found = Library({"m": program}, AVAILABLE[-1], tmp_path).call("m", "forward", {"x": x}, {"batch": 2})["y"]
    assert np.abs(found - expected).max() / np.abs(expected).max() < 2e-6


@pytest.mark.parametrize("make", [shared, looped])
def test_in_other_graphs(make: Callable[[Graph], list[Node]], tmp_path: Path) -> None:
    graph = Graph("forward")
    graph.outputs = {f"y{i}": node for i, node in enumerate(make(graph))}
    rng = np.random.default_rng(0)
    weights = {k: rng.normal(size=(16, 1, 1, 16, 16)).astype(np.float32) for k in graph.inputs if k != "x"}
    x = rng.normal(size=(3, 1, 5, 5, 16)).astype(np.float32)
    expected = evaluate(graph, {"x": x, **weights}, wide=True)
    everywhere(legalize, graph)
    program = lower(Module("m", {"forward": graph}, dict(weights), False))
    found = Library({"m": program}, AVAILABLE[-1], tmp_path).call("m", "forward", {"x": x}, {"batch": 3})
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() / np.abs(value).max() < 2e-6
