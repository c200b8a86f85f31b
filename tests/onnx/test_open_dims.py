"""Open dims of which the operators need more than the file says: found out, assumed, and checked by each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from mlaot.errors import MlaotError
from mlaot.ir.dims import dim
from mlaot.onnx import Backend
from mlaot.onnx.declare import trace_model
from mlaot.onnx.importer import unify

X = np.arange(2 * 3 * 8, dtype=np.float32).reshape(2, 3, 8)


def model(text: str) -> onnx.ModelProto:
    """A model of ONNX's text form."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def shapes(text: str) -> list[str]:
    """The shapes of a model's inputs as it was compiled for."""
    inputs = trace_model(model(text), {}).graph.inputs.values()
    return [", ".join(map(str, node.type.shape)) for node in inputs if not node.attrs.get("parameter")]


def same(text: str, *inputs: Any) -> None:
    """The compiled model gives what the reference gives."""
    made = model(text)
    want = ReferenceEvaluator(made).run(None, {i.name: x for i, x in zip(made.graph.input, inputs, strict=True)})
    for a, b in zip(Backend.prepare(made).run(list(inputs)), want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_what_extents_must_be() -> None:
    n, m = dim("n"), dim("m")
    assert unify(n, m) == {"m": n}
    assert unify(4, n) == {"n": 4}
    assert unify((n + 1) // 2, n // 2) == {"n": 2 * n}
    assert unify((n + 1) // 2 * m, n // 2 * m) == {"n": 2 * n}
    assert unify(n, n + 1) == {}
    assert unify(3, 4) == {}


def test_dims_that_meet_are_one() -> None:
    text = "f (float[a,3] x, float[b,3] y) => (float[c,3] z) { z = Add(x, y) }"
    assert shapes(text) == ["a, 3", "a, 3"]
    same(text, X[0, :, :3].copy(), X[1, :, :3].copy())


def test_a_dim_that_meets_a_number_is_it() -> None:
    text = "f (float[a,b] x) => (float[a,2] z) <float[3,2] w = {1,2,3,4,5,6}> { z = MatMul(x, w) }"
    assert shapes(text) == ["a, 3"]
    same(text, X[0].T.copy()[:, :3])


HALVED = """f (float[1,1,h] x) => (float[1,1,k] z) <float[3] s = {1.0, 1.0, 2.0}, float[0] none = {}> {
    half = MaxPool<kernel_shape = [2], strides = [2]>(x)
    double = Resize<mode = "nearest">(half, none, s)
    z = Add(x, double)
}"""


def test_an_image_that_is_halved_and_doubled_is_a_multiple() -> None:
    assert shapes(HALVED) == ["1, 1, h * 2"]
    same(HALVED, X[:1, :1])
    with pytest.raises(ValueError, match="h"):
        Backend.prepare(model(HALVED)).run([X[:1, :1, :7]])


def test_what_a_given_shape_must_be_is_found_out_too() -> None:
    inputs = trace_model(model(HALVED), {}, {"x": (1, 1, dim("n"))}).graph.inputs
    assert str(inputs["x"].type) == "f32[1,1,n * 2]"


PADDED = """f (float[2,n] x) => (float[2,m] y)
<int64[1] last = {1}, int64[1] one = {1}, int64 four = {4}, int64[3] none = {0, 0, 0}, float fill = {7}> {
    s = Shape(x) wide = Gather(s, last) over = Mod(wide, four) short = Sub(four, over) more = Mod(short, four)
    flat = Reshape(more, one) pads = Concat<axis = 0>(none, flat) y = Pad(x, pads, fill)
}"""


def test_padding_to_a_multiple() -> None:
    for n in (1, 4, 6, 8):
        same(PADDED, X[0, :2, :n].copy())


def test_padding_by_a_dim_is_with_numbers() -> None:
    with pytest.raises(MlaotError, match="how much it adds in mode 'edge' depends on an open dimension"):
        shapes(PADDED.replace("Pad(", 'Pad<mode = "edge">('))


def test_dims_and_computed_integers_are_added() -> None:
    text = "f (float[n] x, int64 k) => (int64[1] y) { s = Shape(x) y = Sub(s, k) }"
    same(text, X[0, 0], np.array(3))


def test_extents_that_never_fit_are_wrong() -> None:
    with pytest.raises(MlaotError, match="do not broadcast"):
        shapes("f (float[a] x, float[3] y) => (float[c] z) { s = Concat<axis = 0>(x, x, y) z = Add(s, x) }")


def test_an_axis_below_0_is_open() -> None:
    made = model("f (float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert str(next(iter(trace_model(made, {}).graph.inputs.values())).type) == "f32[x_0,3]"


def test_a_question_mark_is_no_name() -> None:
    made = model("f (float[n,m] x) => (float[n,m] y) { y = Neg(x) }")
    for axis in made.graph.input[0].type.tensor_type.shape.dim:
        axis.dim_param = "?"
    assert str(next(iter(trace_model(made, {}).graph.inputs.values())).type) == "f32[x_0,x_1]"


def test_a_squeezed_axis_is_checked_by_the_call() -> None:
    text = "f (float[2,n] x) => (float[2] y) <int64[1] axes = {1}> { y = Squeeze(x, axes) }"
    same(text, X[0, :2, :1])
    with pytest.raises(ValueError, match="axis 1, which is removed, must be 1, not n"):
        Backend.prepare(model(text)).run([X[0, :2]])


@pytest.mark.parametrize(("out", "n"), [("[n]", 3), ("", 1)])
def test_the_declared_shape_says_which_axes_are_squeezed(out: str, n: int) -> None:
    text = f"f (float[n,1] x) => (float{out} y) <float two = {{2}}> {{ s = Squeeze(x) y = Mul(s, two) }}"
    same(text, X[0, :n, :1].copy())


def test_which_axes_are_squeezed_must_be_known() -> None:
    with pytest.raises(MlaotError, match=r"whether n is 1 is not known; pin it in \[..dims\]"):
        shapes("f (float[n,1] x) => (float[n] y) { s = Squeeze(x) y = Softmax(s) }")


HALF = """s = Shape(x) h = Gather(s, at) f = Cast<to = 1>(h) m = Mul(f, half) r = Floor(m)"""
NUMBERS = "<int64 at = {0}, float half = {0.5}, float zero = {0}, float one = {1}, int64[1] first = {0}>"


def test_extents_may_be_computed_in_floats() -> None:
    given = X[0, :, :2]
    same(f"f (float[n,2] x) => (float[m] y) {NUMBERS} {{ {HALF} y = Range(zero, r, one) }}", given)
    last = "i = Cast<to = 7>(r) u = Unsqueeze(i, first) c = ConstantOfShape(u)"
    same(f"f (float[n,2] x) => (float[m] y) {NUMBERS} {{ {HALF} {last} y = Cos(c) }}", given)


def test_what_an_open_axis_must_be_that_a_reshape_fits() -> None:
    text = "f (float[n,6] x) => (float[6] y) <int64[1] six = {6}> { y = Reshape(x, six) }"
    assert shapes(text) == ["1, 6"]


def test_what_is_cut_into_windows_is_a_multiple() -> None:
    text = """f (float[a,n,m] x) => (float[b,h,w,4] y)
    <int64[1] second = {1}, int64[1] third = {2}, int64[1] two = {2}, int64[1] four = {4}, int64[1] any = {-1}> {
        s = Shape(x) n = Gather(s, second) m = Gather(s, third) h = Div(n, two) w = Div(m, two)
        new = Concat<axis = 0>(any, h, w, two, two) windows = Reshape(x, new)
        flat = Concat<axis = 0>(any, h, w, four) y = Reshape(windows, flat)
    }"""
    assert shapes(text) == ["a, n * 2, m * 2"]
    same(text, X[:, :2])


# A recognizer of lines: pooling leaves a single row of images of a certain height, which others have from the start.
ROW = """f (float[1,2,h] x) => (float[2,k] y) <int64[2] two = {2, 1}, float[1,2,1] row = {1, 2}> {
    pooled = MaxPool<kernel_shape = [3], strides = [3]>(x)
    %s
}"""


@pytest.mark.parametrize(
    ("rest", "where"),
    [
        ("y = Reshape(pooled, two)", "axis 2, which is reshaped,"),
        (
            "both = Concat<axis = 0>(pooled, row) y = ReduceMax<axes = [0], keepdims = 0>(both)",
            "axis 2, which is 1 long",
        ),
    ],
)
def test_an_open_axis_is_checked_where_it_must_be_a_number(rest: str, where: str) -> None:
    same(ROW % rest, X[:1, :2, :4].copy())
    with pytest.raises(ValueError, match=where):
        Backend.prepare(model(ROW % rest)).run([X[:1, :2, :6].copy()])


def test_the_batch_is_that_of_a_given_state() -> None:
    text = """f (float[3,n,2] x) => (float[3,1,n,1] y)
    <float[1,1,2] w = {1, 2}, float[1,1,1] r = {0.5}, float[1,1,1] h = {0.25}> {
        y = RNN<hidden_size = 1>(x, w, r, , , h)
    }"""
    assert shapes(text) == ["3, 1, 2"]


def test_a_known_array_is_repeated_along_an_open_axis() -> None:
    text = """f (float[n,2] x) => (float[n,2] y) <float[1,2] w = {3, 4}> {
        s = Shape(x)
        e = Expand(w, s)
        y = Mul(x, e)
    }"""
    same(text, X[0, :, :2])


@pytest.mark.parametrize("op", ["MaxPool<", "AveragePool<", "AveragePool<count_include_pad = 1, "])
@pytest.mark.parametrize(
    "size", ["kernel_shape = [3], strides = [2], pads = [1, 1]", "kernel_shape = [5], pads = [0, 2]"]
)
def test_pooling_of_padded_open_axes(op: str, size: str) -> None:
    text = f"f (float[2,3,n] x) => (float[2,3,m] y) {{ y = {op}{size}>(x) }}"
    open_, fixed = (Backend.prepare(model(t)).run([X])[0] for t in (text, text.replace("n]", "8]")))
    np.testing.assert_array_equal(open_, fixed)


def test_pooling_of_open_axes_rounded_up() -> None:
    text = "f (float[2,3,n] x) => (float[2,3,m] y) { y = MaxPool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x) }"
    same(text, X)
    same(text, X[..., :7].copy())


# Voice detectors have a branch for each sample rate, of which each removes an axis that its own windows make 1 long.
RATES = """f (float[n,t] x, int64 rate) => (float[n] y) <int64 high = {16}, int64[1] axes = {1}> {
    is_high = Equal(rate, high)
    y = If (is_high) <
        then_branch = a () => (float[n] p) {
            u = Unsqueeze(x, axes)
            v = MaxPool<kernel_shape = [8], strides = [8]>(u)
            w = Squeeze(v, axes)
            p = Squeeze(w, axes)
        },
        else_branch = b () => (float[n] q) {
            k = Unsqueeze(x, axes)
            l = AveragePool<kernel_shape = [16], strides = [16], pads = [8, 7]>(k)
            m = Squeeze(l, axes)
            q = Squeeze(m, axes)
        }
    >
}"""


def test_a_branch_is_checked_where_it_is_taken() -> None:
    rates = {rate: np.array(rate, np.int64) for rate in (16, 8)}
    same(RATES, X[0], rates[16])
    same(RATES, np.tile(X[0], 2), rates[8])
    made = Backend.prepare(model(RATES))
    with pytest.raises(ValueError, match=r"axis 1, which is removed, must be 1, not \(t\) / 8"):
        made.run([np.tile(X[0], 2), rates[16]])


def test_a_branch_that_cannot_be_is_refused() -> None:
    text = RATES.replace("float[n,t]", "float[n,8]").replace(
        "[16], strides = [16], pads = [8, 7]", "[4], strides = [4]"
    )
    same(text, X[0], np.array(16, np.int64))
    with pytest.raises(ValueError, match=r"its else_branch does not fit .* is not 1 long"):
        Backend.prepare(model(text)).run([X[0], np.array(8, np.int64)])


# "If the axis is 1 long, remove it", as PyTorch's exporter writes squeeze.
MAYBE = """f (float[2,n] x) => (DECLARED y) <int64 one = {1}, int64[1] axes = {1}, int64 at = {1}> {
    s = Shape(x)
    extent = Gather(s, at)
    is_one = Equal(extent, one)
    y = If (is_one) <
        then_branch = a () => (float[2] p) { p = Squeeze(x, axes) },
        else_branch = b () => (float[2,n] q) { q = Identity(x) }
    >
}"""


def test_a_branch_is_assumed_where_ranks_differ() -> None:
    made = Backend.prepare(model(MAYBE.replace("DECLARED", "float[2]")))
    np.testing.assert_array_equal(made.run([X[0, :2, :1]])[0], X[0, :2, 0])
    with pytest.raises(ValueError, match="must take the then_branch"):
        made.run([X[0, :2]])
    made = Backend.prepare(model(MAYBE.replace("DECLARED", "float[2,n]")))
    np.testing.assert_array_equal(made.run([X[0, :2]])[0], X[0, :2])
    with pytest.raises(ValueError, match="must take the else_branch"):
        made.run([X[0, :2, :1]])


def test_a_table_cut_to_an_open_size() -> None:
    """A call that asks for more than the table has is refused."""
    table = ", ".join(map(str, range(64)))
    text = f"""
    f (float[n] x) => (float[n] y) <float[64] table = {{{table}}}, int64[1] zero = {{0}}> {{
        size = Shape(x) part = Slice(table, zero, size, zero) y = Add(x, part)
    }}
    """
    same(text, X[0, 0, :3].copy())
    assert Backend.prepare(model(text)).entry.extents == ("n * -1 + 64",)


def test_a_shape_taken_apart() -> None:
    text = """
    f (float[a, b] x) => (float[c, d] y) <int64[2] ones = {1, 1}> {
        shape = Shape(x) rows, columns = Split<axis = 0>(shape, ones)
        turned = Concat<axis = 0>(columns, rows) y = Reshape(x, turned)
    }
    """
    same(text, X[0])
    same(text, X[0, :2, :5].copy())


def test_a_triangle_whose_diagonal_is_an_open_size() -> None:
    text = """
    f (float[a, b] x, float[c] past) => (float[d, e] y) <int64[1] shape = {-1}> {
        size = Shape(past) k = Squeeze(size) y = Trilu<upper = 0>(x, k)
    }
    """
    for n in (0, 2):
        same(text, X[0], np.zeros(n, np.float32))
