"""Functions and layers against PyTorch's results (``tests/reference/make_nn.py``), on plain arrays and traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.context import Trace, tracing, training
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Buffer, Tensor
from mlaot.ir import Graph, Type
from mlaot.ir.types import BY_NUMPY, DType, bf16, f16, f32, f64
from mlaot.nn import functional as F

from .cases import Case, LayerCase, filling, leaves
from .further_cases import FUNCTIONS, LAYERS

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).parents[1] / "reference" / "nn.npz"))
UNTRACED = ("one_hot.1",)  # the number of classes is the data's


def check(found: Any, expected: Array, dtype: Any = None) -> None:
    assert np.shape(found) == expected.shape
    assert np.asarray(found).dtype == (dtype or expected.dtype)
    relative, absolute = (1e-10, 1e-12) if dtype is None else (2e-4, 2e-4)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=absolute)


def run(case: Case, inputs: list[Any], extra: dict[str, Any]) -> Any:
    return getattr(F, case.function)(*inputs, **case.options, **extra)


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda c: c.name)
def test_function(case: Case) -> None:
    inputs, extra = case.arrays()
    check(run(case, inputs, extra), DATA[case.name])


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda c: c.name)
def test_function_keeps_float32(case: Case) -> None:
    inputs, extra = case.arrays()
    narrow = {k: single(v) for k, v in extra.items()}
    check(run(case, [single(x) for x in inputs], narrow), DATA[case.name], single(DATA[case.name]).dtype)


def single(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x


class Traced:
    """``function`` of arrays, run as a graph by the references of its ops."""

    def __init__(self) -> None:
        self.graph = Graph("traced")
        self.trace = Trace(self.graph, temporary=True)
        self.arrays: dict[str, Array] = {}

    def argument(self, array: Any, floats: DType = f64) -> Any:
        """A traced array for a NumPy one, anything else as it is."""
        if isinstance(array, tuple):
            return tuple(map(self.argument, array))
        if not isinstance(array, np.ndarray):
            return array
        name = f"x{len(self.arrays)}"
        self.arrays[name] = array
        kind = BY_NUMPY[str(array.dtype)]
        return Tensor(self.graph.input(name, Type(floats if kind is f64 else kind, array.shape)))

    def results(self, values: list[Any]) -> list[Array]:
        """The numbers of traced arrays."""
        with tracing(self.trace):
            self.graph.outputs = {f"out{i}": as_node(value) for i, value in enumerate(values)}
        inputs = self.arrays | {name: held.array for name, held in self.trace.held.items()}
        wanted = {name: array for name, array in inputs.items() if name in self.graph.inputs}
        return [np.asarray(value) for value in evaluate(self.graph, wanted).values()]


@pytest.mark.parametrize("case", [c for c in FUNCTIONS if c.name not in UNTRACED], ids=lambda c: c.name)
def test_function_traced(case: Case) -> None:
    traced = Traced()
    inputs, extra = case.arrays()
    given = [traced.argument(x) for x in inputs]
    options = {k: traced.argument(v) for k, v in extra.items()}
    with tracing(traced.trace):
        result = run(case, given, options)
    check(traced.results([result])[0], DATA[case.name])


@pytest.mark.parametrize("kind", [f32, f16, bf16], ids=str)
@pytest.mark.parametrize("case", [c for c in FUNCTIONS if c.function != "one_hot"], ids=lambda c: c.name)
def test_function_traced_keeps_dtype(case: Case, kind: DType) -> None:
    traced = Traced()
    inputs, extra = case.arrays()
    with tracing(traced.trace):
        options = {k: traced.argument(v, kind) for k, v in extra.items()}
        result = run(case, [traced.argument(x, kind) for x in inputs], options)
    assert result.node.type == Type(kind, DATA[case.name].shape)


def made(case: LayerCase) -> Any:
    """The layer of a case in float64, its parameters filled; layers without any take no dtype."""
    try:
        layer = getattr(nn, case.layer)(*case.args, dtype=np.float64, **case.options)
    except (TypeError, mlaot.MlaotError):
        layer = getattr(nn, case.layer)(*case.args, **case.options)
    layer.load_state_dict({k: filling(k, v.shape) for k, v in layer.state_dict().items()})
    return layer


def expected(case: LayerCase) -> list[Array]:
    return [DATA[k] for k in DATA if k.startswith(f"{case.name}:") and k.partition(":")[2].isdigit()]


@pytest.mark.parametrize("case", LAYERS, ids=lambda c: c.name)
def test_layer(case: LayerCase) -> None:
    layer = made(case)
    names = [f"{k} {list(v.shape)}" for k, v in layer.state_dict().items()]
    assert names == list(DATA[f"{case.name}:names"])
    inputs, call = case.arrays()
    with training(case.training):
        outputs = leaves(layer(*inputs, **call))
    assert len(outputs) == len(expected(case))
    for found, wanted in zip(outputs, expected(case), strict=True):
        check(found, wanted)
    if case.training:
        for name, buffer in layer.named_buffers():
            check(buffer, DATA[f"{case.name}:after {name}"])


@pytest.mark.parametrize("case", LAYERS, ids=lambda c: c.name)
def test_layer_traced(case: LayerCase) -> None:
    layer, traced = made(case), Traced()
    inputs, call = case.arrays()
    known = {id(x): traced.argument(x) for x in inputs}
    options = {k: traced.argument(v) for k, v in call.items()}
    buffers = dict(layer.named_buffers())
    with tracing(traced.trace), training(case.training):
        outputs = leaves(layer(*[known[id(x)] for x in inputs], **options))
        after = [Tensor(buffer.local_node()) for buffer in buffers.values()] if case.training else []
    found = traced.results([*outputs, *after])
    wanted = [*expected(case), *[DATA[f"{case.name}:after {name}"] for name in buffers if case.training]]
    assert len(found) == len(wanted)
    for value, array in zip(found, wanted, strict=True):
        check(value, array)
    assert all(isinstance(buffer, Buffer) for buffer in buffers.values())


@pytest.mark.parametrize("name", [k for k in DATA if k.startswith("gain.")])
def test_gain(name: str) -> None:
    _, nonlinearity, *param = name.split(".", 2)
    assert nn.init.calculate_gain(nonlinearity, *map(float, param)) == pytest.approx(float(DATA[name]), rel=1e-15)
