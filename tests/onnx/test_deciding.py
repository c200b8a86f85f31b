"""Inputs that decide a shape of which the file says only what comes out in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from mlaot.onnx import Backend
from mlaot.onnx.backend import CompiledModel, DeferredModel
from mlaot.onnx.declare import declare, trace_model
from mlaot.onnx.values import Unsupported

from .. import projects


def model(text: str) -> onnx.ModelProto:
    """A model of ONNX's text form."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


def compiled(text: str) -> CompiledModel:
    made = Backend.prepare(model(text))
    assert isinstance(made, CompiledModel)
    return made


def of(*values: int) -> Any:
    return np.array(values, np.int64)


RANGE = "zero = Constant<value_int = 0>() one = Constant<value_int = 1>() r = Range(zero, n, one)"
COSINES = f"m (int64 n) => (float[5] y) {{ {RANGE} f = Cast<to = 1>(r) y = Cos(f) }}"
SUM = f"m (int64 n) => (int64 y) {{ {RANGE} y = ReduceSum<keepdims = 0>(r) }}"


def test_shapes_tell() -> None:
    cosines = compiled(COSINES)
    np.testing.assert_allclose(cosines.run([np.int64(5)])[0], np.cos(np.arange(5, dtype=np.float32)), rtol=1e-6)
    for n in (4, 6, -5):
        with pytest.raises(ValueError, match=r"^n must be 5$"):
            cosines.run([np.int64(n)])


def test_what_decides_nothing_may_be_anything() -> None:
    text = """m (float[3] x, int64[3] s) => (float[4, 3] y) {
        a, b, c = Split<axis = 0, num_outputs = 3>(s)
        t = Concat<axis = 0>(a, c)
        e = Expand(x, t)
        y = Cos(e)
    }"""
    spread, x = compiled(text), np.arange(3, dtype=np.float32)
    for s in (of(4, 0, 3), of(4, 7, 3), of(4, 2**40, 1)):
        np.testing.assert_allclose(spread.run([x, s])[0], np.cos(np.broadcast_to(x, (4, 3))), rtol=1e-6)
    for other in (of(3, 7, 3), of(4, 7, 2), of(4, -1, 3)):
        with pytest.raises(ValueError, match=r"s must be \[4, any, 3\] or s must be \[4, any, 1\]"):
            spread.run([x, other])


def test_what_is_no_sum_of_dims_is_tried() -> None:
    text = f"m (int64 k) => (float[5] y) {{ two = Constant<value_int = 2>() n = Max(k, two) {RANGE} "
    tried = compiled(text + "f = Cast<to = 1>(r) y = Cos(f) }")
    np.testing.assert_allclose(tried.run([np.int64(5)])[0], np.cos(np.arange(5, dtype=np.float32)), rtol=1e-6)
    with pytest.raises(ValueError, match="k must be 5"):
        tried.run([np.int64(6)])


def test_calls_choose_between_what_will_do() -> None:
    text = "m (float[3, 3] x, int64[1] axes) => (float[3] y) { s = ReduceSum<keepdims = 0>(x, axes) y = Cos(s) }"
    reduced, x = compiled(text), np.arange(9, dtype=np.float32).reshape(3, 3)
    for axis in (0, 1, -1, -2):
        np.testing.assert_allclose(reduced.run([x, of(axis)])[0], np.cos(x.sum(axis=axis)), rtol=1e-6)
    with pytest.raises(ValueError, match=r"axes must be \[-?\d\] or axes must be"):
        reduced.run([x, of(2)])


@pytest.mark.parametrize(
    "text",
    [
        SUM,
        SUM.replace("=> (int64 y) {", "=> (int64 y, int64[3] z) { z = Constant<value_ints = [7, 8, 9]>()"),
        COSINES.replace("float[5]", "float[k]"),
        COSINES.replace("=> (float[5] y)", "=> (float[5] y, float[0] w)").replace("y = Cos", "w = Cos(f) y = Cos"),
        "m (float[2, 2, 2, 2] x, int64[2] a) => (float[2, 2] y) { s = ReduceSum<keepdims = 0>(x, a) y = Cos(s) }",
    ],
    ids=["no shape", "a shape of something else", "an open shape", "no value", "too many values"],
)
def test_shapes_do_not_tell(text: str) -> None:
    with pytest.raises(Unsupported, match="is computed when the model runs, and the file gives its output no shape"):
        trace_model(model(text), {})


def test_settings_tell(tmp_path: Path) -> None:
    """The extension module of a model that settings pin."""
    nn = projects.load(projects.build_module(declare(model(SUM), {"n": 4}), "pinned", tmp_path, ("base",)))
    assert int(np.asarray(nn.forward(np.int64(4)))) == 6
    with pytest.raises(ValueError, match="forward: n must be 4"):
        nn.forward(np.int64(5))


def test_settings_say_how_a_sequence_is_split() -> None:
    text = "m (float[4] x, int64[2] s) => (seq(float[k]) y) { y = SplitToSequence<axis = 0>(x, s) }"
    with pytest.raises(Unsupported, match="the sizes, is computed"):
        trace_model(model(text), {"s_0": 1})
    traced = trace_model(model(text), {"s_0": 1, "s_1": 3})
    assert {name: str(node.type) for name, node in list(traced.graph.outputs.items())[:2]} == {
        "y_0": "f32[1]",
        "y_1": "f32[3]",
    }
    assert traced.refusals == ("s must be [1, 3]",)


def test_pinned_sizes_leave_numbers_of_the_same_name_alone() -> None:
    text = "m (float[n] x, int64 n) => (float[n] y) { f = Cast<to = 1>(n) y = Mul(x, f) }"
    traced = trace_model(model(text), {"n": 2})
    assert traced.refusals == ()
    assert [str(node.type) for node in traced.graph.outputs.values()] == ["f32[2]"]


def test_the_backend_compiles_for_the_numbers_of_a_call() -> None:
    made = Backend.prepare(model(SUM))
    assert isinstance(made, DeferredModel)
    for n in (4, 7, 4):
        assert int(made.run([np.int64(n)])[0]) == sum(range(n))
    assert len(made.compiled) == 3
