"""Kernels as Python: every op against its reference, control flow and random numbers against the oracle."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Type
from mlaot.ir.module import Module
from mlaot.ir.types import DTYPES, f32, f64
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.nest.expressions import Array, Index, Load, Panels, ValueType, Var, as_index, call, const
from mlaot.nest.statements import Assign, Let, Mutable, Nest, Store, loop
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.algebra.upcast import upcast
from mlaot.printing.python.file import python_kernels
from mlaot.printing.python.helpers import definitions
from mlaot.printing.python.printer import print_kernel
from mlaot.printing.python.spelling import Speller

from ..compiled import State
from ..lower import test_control
from ..lower.test_random import draws
from ..ops.test_c import ALL, ELEMENTWISE, NAMES, cases, check, check_close, graph_of
from ..printed import Printed

F64 = ValueType("f64")
# What is summed unrounded differs from float32 sums by their last bits.
UNROUNDED = ("add", "contract_groups")


def program_of(graph: Graph) -> Program:
    """A graph as a program."""
    upcast(graph)
    legalize(graph)
    return lower(Module("ops", {"forward": graph}, {}, False))


@pytest.mark.parametrize("name", NAMES)
def test_every_op_is_the_reference(name: str) -> None:
    """One sample of each dtype, of floats two, and special values."""
    for dtype in ALL:
        samples = cases(name, dtype)
        chosen = {0, len(samples) - 1} if dtype in (f32, f64) else {len(samples) - 1 if name in ELEMENTWISE else 0}
        for i in sorted(chosen):
            made = graph_of(name, samples[i], dtype)
            if made is None:
                continue
            graph, inputs = made
            expected = evaluate(graph, inputs)["y"]
            what = f"{name} {samples[i].attrs} of {dtype} {[a.shape for a in samples[i].args]}"
            actual = Printed({"m": program_of(graph)}).call("m", "forward", inputs)["y"]
            assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
            again, _ = graph_of(name, samples[i], dtype) or (graph, inputs)
            if name in UNROUNDED and dtype is f32:
                check_close(name, samples[i], again, inputs, actual, expected, what)
            else:
                check(name, dtype, samples[i], again, inputs, actual, expected, what)


def test_control_flow_is_the_oracle() -> None:
    """Loops, branches, and rounds that read a view whose start lies before its array."""
    printed = Printed(test_control.programs(True))
    for name, (graph, several, dims) in test_control.cases().items():
        for inputs in several[:1]:
            actual = printed.call(name, "forward", inputs, dims)
            for key, expected in evaluate(graph, inputs, dims=dims).items():
                np.testing.assert_allclose(actual[key], expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_random_numbers_are_those_of_every_machine() -> None:
    module = passes.run("m", draws.trace())
    program = lower(module)
    inputs, key, state = {"x": np.zeros(40, np.float32)}, np.zeros(3, np.uint32), State(program)
    expected = evaluate(module.graphs["forward"], inputs | {"random": key})
    for name, value in Printed({"m": program}).call("m", "forward", inputs, {"n": 40}, state).items():
        assert value.tobytes() == np.ascontiguousarray(expected[name]).tobytes(), name
    assert state.slot("random").tolist() == expected["write random"].tolist()


def printed_kernel(nest: Nest) -> str:
    return print_kernel(nest, "f", nest.dims, Speller())


def product(w: Array, x: Array, out: Array) -> Nest:
    """A matrix-vector product of 4 columns."""
    j, acc = Index(mlaot.dim("j")), Var("acc", F64)
    k = mlaot.dim("k")
    step = Assign(acc, call("add", acc, call("mul", x[k], w[k * 4 + mlaot.dim("j")])))
    body = (Mutable(acc, const(0.0, F64)), loop("k", 8, (step,)), Store(out, as_index(j), acc))
    return Nest("product", (out, w, x), (loop("j", 4, body),), ("v0 = contract(w, x) : f64[4]",))


def test_a_loop_over_elements_reads_slices_of_lists() -> None:
    nest = product(Array("w", "f64", 32), Array("x", "f64", 8), Array("out", "f64", 4))
    assert (
        printed_kernel(nest)
        == '''\
def f(out, w, x):
    """v0 = contract(w, x) : f64[4]"""
    w = w[:32].tolist()
    x = x[:8].tolist()
    for j in range(4):
        acc = 0.0
        for x0, x1 in zip(x, w[j : j + 32 : 4]):
            acc += x0 * x1
        out[j] = acc
'''
    )


@pytest.mark.parametrize("op", ["add", "sub"])
def test_elements_behind_an_index_that_is_read(op: str) -> None:
    """Slices where they lie forwards; what lies backwards is read one by one."""
    at, x, out = Array("at", "i64", 1), Array("x", "f64", 8), Array("out", "f64", 4)
    j = Index(mlaot.dim("j"))
    nest = Nest("f", (out, at, x), (loop("j", 4, (Store(out, as_index(j), Load(x, call(op, at[0], j), F64)),)),))
    names, spell = dict[str, Any](), Speller()
    text = print_kernel(nest, "f", nest.dims, spell)
    exec("\n".join([*definitions(spell.calls), text]), names)
    found, numbers = np.zeros(4), np.arange(8.0)
    names["f"](found.data, np.array([3]).data, numbers.data)
    assert found.tolist() == (numbers[3:7] if op == "add" else numbers[3::-1]).tolist()


def test_panels_are_resolved() -> None:
    """Of a matrix in panels of 2 columns, those of one lie together."""
    nest = product(Array("w", "f64", 32, panels=Panels(8, 4, 2)), Array("x", "f64", 8), Array("out", "f64", 4))
    assert "w[j // 2 * 16 + j % 2 : j // 2 * 16 + j % 2 + 16 : 2]" in printed_kernel(nest)


def test_variables_of_blocks_have_names_of_their_own() -> None:
    """C's inner variables hide outer ones; in Python they would be the same."""
    out, x, inner = Array("out", "f64", 2), Var("x0", F64), Var("x0", F64)
    body = (
        Let(x, const(1.0, F64)),
        loop("i", 2, (Let(inner, const(2.0, F64)), Store(out, Index(mlaot.dim("i")), inner))),
        Store(out, Index(0), x),
    )
    names: dict[str, object] = {}
    exec(printed_kernel(Nest("f", (out,), body)), names)
    memory = memoryview(bytearray(16)).cast("d")
    names["f"](memory)  # type: ignore[operator]
    assert memory.tolist() == [1.0, 2.0]


def test_a_file_has_the_functions_that_it_calls() -> None:
    graph = Graph("f")
    graph.outputs["y"] = mlaot.ops.OPS["exp"](graph.input("x", Type(f64, (3,))))
    kernels = python_kernels(program_of(graph))
    assert [text.partition("(")[0] for text in kernels.helpers] == ["def _exp"]
    assert [text.partition("(")[0] for text in definitions(["_bf16_bits"])] == [
        "def _f32",
        "def _f32_bits",
        "def _bf16_bits",
    ]
    with pytest.raises(AssertionError, match="nothing defines _nothing"):
        definitions(["_nothing"])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_rounds_as_the_dtype(dtype: str) -> None:
    """To the nearest, halves to even, infinity beyond the range."""
    names: dict[str, object] = {"_math": math, "_struct": struct}
    exec("\n\n".join(definitions([f"_round_{dtype}"])), names)
    values = [0.1, -1 / 3, 2049.0, 2051.0, 65519.0, 65520.0, 1e-8, 3.4e38, math.inf, 0.0]
    with np.errstate(over="ignore"):
        expected = DTYPES[dtype].array(np.array(values, np.float32)).astype(np.float64)
        assert [names[f"_round_{dtype}"](np.float32(x).item()) for x in values] == expected.tolist()  # type: ignore[operator]
