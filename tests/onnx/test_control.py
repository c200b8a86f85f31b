"""If, Loop, Scan and sequences, compiled, against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from mlaot.errors import MlaotError
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.onnx import Backend
from mlaot.onnx.declare import declare, trace_model
from mlaot.onnx.values import Unsupported
from mlaot.settings.options import Options


def model(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model of ONNX's text form."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def same(text: str, *inputs: Any, opset: int = 21) -> list[Any]:
    """What the compiled model gives, which is what the reference gives."""
    made = model(text, opset)
    given = [np.asarray(x) for x in inputs]
    got = Backend.prepare(made).run(given)
    want = ReferenceEvaluator(made).run(None, {i.name: x for i, x in zip(made.graph.input, given, strict=True)})
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    return list(got)


def ops(text: str, opset: int = 21) -> list[str]:
    """The ops of the graph before any pass."""
    return [node.op.name for node in trace_model(model(text, opset), {}).graph.nodes()]


def refused(text: str, *, opset: int = 21, match: str) -> None:
    with pytest.raises(Unsupported, match=match):
        trace_model(model(text, opset), {})


X = np.array([1.0, -2.0, 3.0], np.float32)
BRANCHES = """
    <then_branch = t () => (float[3] a) { a = Exp(x) }, else_branch = e () => (float[3] b) { b = Neg(x) }>
"""


@pytest.mark.parametrize("asked", [True, False])
def test_a_condition_that_is_computed_picks_a_branch(asked: bool) -> None:
    text = f"m (bool c, float[3] x) => (float[3] y) {{ y = If (c) {BRANCHES} }}"
    assert "cond" in ops(text)
    same(text, asked, X)


def test_a_condition_of_one_element_may_have_axes() -> None:
    text = f"m (bool[1] c, float[3] x) => (float[3] y) {{ y = If (c) {BRANCHES} }}"
    same(text, [True], X)


def test_of_a_known_condition_only_one_branch_is_imported() -> None:
    text = """m (float[3] x) => (float[3] y) {
        n = Shape(x)
        three = Constant<value_ints = [3]>()
        c = Equal(n, three)
        y = If (c) <then_branch = t () => (float[3] a) { a = Exp(x) },
                    else_branch = e () => (float[k] b) { i = NonZero(x) f = Cast<to = 1>(i) b = Squeeze(f) }>
    }"""
    assert "cond" not in ops(text)
    same(text, X)


def test_branches_see_the_values_around_them_and_nest() -> None:
    text = """m (bool c, bool d, float[3] x) => (float[3] y) {
        z = Mul(x, x)
        y = If (c) <
            then_branch = t () => (float[3] a) {
                w = Add(z, x)
                a = If (d) <then_branch = tt () => (float[3] p) { p = Mul(w, z) },
                            else_branch = te () => (float[3] q) { q = Sub(w, z) }>
            },
            else_branch = e () => (float[3] b) { b = Identity(z) }>
    }"""
    for c in (True, False):
        for d in (True, False):
            same(text, c, d, X)


def test_branches_may_give_several_values_and_sequences() -> None:
    text = """m (bool c, float[3] x) => (float[3] y, int64[1] n) {
        s, n = If (c) <
            then_branch = t () => (seq(float[3]) a, int64[1] k) {
                e = Exp(x)
                a = SequenceConstruct(x, e)
                k = Constant<value_ints = [7]>()
            },
            else_branch = f () => (seq(float[3]) b, int64[1] l) {
                b = SequenceConstruct(x, x)
                l = Constant<value_ints = [7]>()
            }>
        i = Constant<value_int = 1>()
        y = SequenceAt(s, i)
    }"""
    same(text, True, X)
    same(text, False, X)


def test_branches_of_other_shapes_are_refused() -> None:
    text = """m (bool c, float[1, 3] x) => (float y) {
        y = If (c) <then_branch = t () => (float a) { a = Squeeze(x) },
                    else_branch = e () => (float b) { b = Identity(x) }>
    }"""
    refused(text, match=r"condition is computed.*float32\[3\] and float32\[1, 3\]")


def test_the_reason_of_a_node_inside_is_told() -> None:
    text = """m (bool c, float[3] x) => (float[k] y) {
        y = If (c) <then_branch = t () => (float[k] a) { i = NonZero(x) f = Cast<to = 1>(i) a = Squeeze(f) },
                    else_branch = e () => (float[3] b) { b = Identity(x) }>
    }"""
    refused(text, match="NonZero.*depends on the data")


SUMS = """
    <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] t, float[3] out) {
        on = Identity(go)
        f = Cast<to = 1>(i)
        u = Mul(s, x)
        t = Add(u, f)
        out = Tanh(t)
    }>
"""


@pytest.mark.parametrize(("rounds", "op"), [(3, ""), (40, "scan"), (0, "")])
def test_a_loop_of_known_length_is_written_out_or_a_scan(rounds: int, op: str) -> None:
    text = f"""m (float[3] x) => (float[3] y, float[n, 3] z) {{
        m = Constant<value_int = {rounds}>()
        go = Constant<value = bool {{1}}>()
        y, z = Loop (m, go, x) {SUMS}
    }}"""
    assert ("scan" in ops(text)) == (op == "scan") and "while" not in ops(text)
    if rounds:
        same(text, X / 10)
    else:
        y, z = Backend.prepare(model(text)).run([X])
        np.testing.assert_array_equal(y, X)
        assert z.shape == (0, 3)


def test_a_loop_as_long_as_an_open_dimension() -> None:
    text = f"""m (float[3] x, float[n] w) => (float[3] y, float[n, 3] z) {{
        m = Shape(w)
        go = Constant<value = bool {{1}}>()
        y, z = Loop (m, go, x) {SUMS}
    }}"""
    assert "scan" in ops(text)
    same(text, X / 10, np.zeros(5, np.float32))


def test_a_loop_that_asks_each_time() -> None:
    text = """m (int64 most, float limit, float x) => (float y, int64 n) {
        zero = Constant<value_int = 0>()
        go = Constant<value = bool {1}>()
        y, n = Loop (most, go, x, zero) <body = b (int64 i, bool c, float s, int64 k) => (bool on, float t, int64 l) {
            t = Add(s, s)
            one = Constant<value_int = 1>()
            l = Add(k, one)
            on = Less(t, limit)
        }>
    }"""
    assert "while" in ops(text)
    y, n = same(text, np.int64(100), np.float32(50), np.float32(1))
    assert (y, n) == (64, 6)
    assert same(text, np.int64(3), np.float32(50), np.float32(1))[1] == 3
    assert same(text, np.int64(0), np.float32(50), np.float32(1))[0] == 1


def test_a_loop_whose_first_answer_is_computed() -> None:
    text = """m (bool go, float x) => (float y) {
        y = Loop ( , go, x) <body = b (int64 i, bool c, float s) => (bool on, float t) {
            t = Sqrt(s)
            two = Constant<value_float = 2.0>()
            on = Greater(t, two)
        }>
    }"""
    same(text, True, np.float32(1e6))
    same(text, False, np.float32(1e6))


def test_without_a_condition_the_answer_of_the_body_counts_for_nothing() -> None:
    text = """m (int64 most, float x) => (float y) {
        y = Loop (most, , x) <body = b (int64 i, bool c, float s) => (bool on, float t) {
            on = Constant<value = bool {0}>()
            t = Add(s, s)
        }>
    }"""
    got = Backend.prepare(model(text)).run([np.array(5), np.array(1, np.float32)])
    assert got[0] == 32


def test_a_loop_whose_values_grow_is_written_out() -> None:
    text = """m (float[1] x) => (float[k] y) {
        m = Constant<value_int = 30>()
        go = Constant<value = bool {1}>()
        y = Loop (m, go, x) <body = b (int64 i, bool c, float[j] s) => (bool on, float[k] t) {
            on = Identity(c)
            t = Concat<axis = 0>(s, x)
        }>
    }"""
    (y,) = same(text, X[:1])
    assert y.shape == (31,)


def test_a_loop_over_a_sequence() -> None:
    text = """m (float[4, 3] x) => (float[k, 3] y) {
        parts = SplitToSequence(x)
        m = SequenceLength(parts)
        go = Constant<value = bool {1}>()
        none = SequenceEmpty<dtype = 1>()
        found = Loop (m, go, none) <body = b (int64 i, bool c, seq(float) s) => (bool on, seq(float) t) {
            on = Identity(c)
            part = SequenceAt(parts, i)
            e = Exp(part)
            t = SequenceInsert(s, e)
        }>
        y = ConcatFromSequence<axis = 0>(found)
    }"""
    same(text, np.arange(12, dtype=np.float32).reshape(4, 3) / 10)


def test_a_counter_is_known_in_a_loop_that_is_written_out() -> None:
    text = """m (float[6] x) => (float[k] y) {
        zero = Constant<value_ints = [0]>()
        go = Constant<value = bool {1}>()
        n, y = Loop ( , go, zero, x) <body = b (int64 i, bool c, int64[1] k, float[j] s)
                => (bool on, int64[1] l, float[j] t) {
            one = Constant<value_ints = [1]>()
            four = Constant<value_ints = [4]>()
            l = Add(k, one)
            end = Shape(s)
            t = Slice(s, one, end)
            less = Less(l, four)
            on = Squeeze(less)
        }>
    }"""
    (y,) = same(text, np.arange(6, dtype=np.float32))
    assert y.tolist() == [4, 5]


def test_weights_of_a_body_that_is_written_out_are_there_once() -> None:
    text = """m (float[2] x) => (float[2] y) {
        m = Constant<value_int = 4>()
        go = Constant<value = bool {1}>()
        y = Loop (m, go, x) <body = b (int64 i, bool c, float[2] s) => (bool on, float[2] t)
                <float[2] w = {2.0, 3.0}> {
            on = Identity(c)
            one = Constant<value = float[1, 2] {1.0, 2.0}>()
            flat = Squeeze(one)
            u = Mul(s, w)
            t = Add(u, flat)
        }>
    }"""
    assert list(trace_model(model(text), {}).parameters) == ["w"]
    same(text, X[:2])


def test_values_that_a_loop_hands_on_stay_outside() -> None:
    text = """m (float[3] x, float[3] w) => (float[3] y, float[3] v) {
        m = Constant<value_int = 50>()
        go = Constant<value = bool {1}>()
        y, v = Loop (m, go, x, w) <body = b (int64 i, bool c, float[3] s, float[3] u)
                => (bool on, float[3] t, float[3] r) {
            on = Identity(c)
            t = Mul(s, u)
            r = Identity(u)
        }>
    }"""
    (scan,) = [node for node in trace_model(model(text), {}).graph.nodes() if node.op.name == "scan"]
    assert scan.attrs["carries"] == 1
    same(text, X, np.array([1.01, 0.9, 1.0], np.float32))


def test_what_is_stacked_needs_a_known_number_of_rounds() -> None:
    text = f"m (int64 m, float[3] x) => (float[3] y, float[n, 3] z) {{ y, z = Loop (m, , x) {SUMS} }}"
    refused(text, match="how many rounds it takes is computed")


def test_values_that_grow_need_a_known_number_of_rounds() -> None:
    text = """m (int64 m, float[1] x) => (float[k] y) {
        y = Loop (m, , x) <body = b (int64 i, bool c, float[j] s) => (bool on, float[k] t) {
            on = Identity(c)
            t = Concat<axis = 0>(s, x)
        }>
    }"""
    refused(text, match="how many rounds it takes is computed.*change their shapes")


def test_a_loop_without_end_is_an_error() -> None:
    text = """m (float x) => (float y) {
        go = Constant<value = bool {1}>()
        y = Loop ( , go, x) <body = b (int64 i, bool c, float s) => (bool on, float t) {
            on = Identity(c)
            t = Add(s, s)
        }>
    }"""
    with pytest.raises(MlaotError, match="never ends"):
        Backend.prepare(model(text))


SCAN = """<num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
    scan_output_axes = [1, 0], scan_output_directions = [1, 0],
    body = b (float[3] s, float[3] a, float[3] c) => (float[3] t, float[3] p, float[3] q) {
        u = Mul(s, a)
        t = Add(u, c)
        p = Identity(t)
        q = Tanh(t)
    }>
"""


@pytest.mark.parametrize("steps", [2, 20])
def test_scan_along_any_axis_and_either_way(steps: int) -> None:
    text = f"""m (float[3] s, float[3, {steps}] a, float[{steps}, 3] c) => (float[3] y, float[3, k] p, float[k, 3] q)
        {{ y, p, q = Scan (s, a, c) {SCAN} }}"""
    assert ("scan" in ops(text)) == (steps == 20)
    rng = np.random.default_rng(0)
    s, a, c = (rng.standard_normal(shape).astype(np.float32) / 2 for shape in ((3,), (3, steps), (steps, 3)))
    y, p, q = Backend.prepare(model(text)).run([s, a, c])
    want_p, want_q = [], []
    for t in range(steps):
        s = s * a[:, t] + c[steps - 1 - t]
        want_p.insert(0, s)
        want_q.append(np.tanh(s))
    np.testing.assert_allclose(y, s, rtol=1e-5)
    np.testing.assert_allclose(p, np.stack(want_p, 1), rtol=1e-5)
    np.testing.assert_allclose(q, np.stack(want_q), rtol=1e-5)


def test_scan_of_open_length() -> None:
    text = """m (float[3] s, float[n, 3] x) => (float[3] y, float[n, 3] z) {
        y, z = Scan (s, x) <num_scan_inputs = 1, body = b (float[3] s, float[3] a) => (float[3] t, float[3] p) {
            t = Add(s, a)
            p = Identity(t)
        }>
    }"""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y, z = Backend.prepare(model(text)).run([X, x])
    np.testing.assert_array_equal(z, X + np.cumsum(x, 0))
    np.testing.assert_array_equal(y, z[-1])


def test_scan_of_opset_8_goes_along_the_second_axis_of_each_example() -> None:
    lengths = np.array([4, 2])
    text = """m (int64[2] n, float[2, 3] s, float[2, 4, 3] x) => (float[2, 3] y, float[2, 4, 3] z) {
        y, z = Scan (n, s, x) <num_scan_inputs = 1, body = b (float[3] s, float[3] a) => (float[3] t, float[3] p) {
            t = Add(s, a)
            p = Identity(t)
        }>
    }"""
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    s = np.stack([X, 2 * X])
    y, z = Backend.prepare(model(text, 8)).run([lengths, s, x])
    sums = s[:, None] + np.cumsum(x, 1)
    np.testing.assert_array_equal(y, [sums[0, 3], sums[1, 1]])
    np.testing.assert_array_equal(z[0], sums[0])
    np.testing.assert_array_equal(z[1, :2], sums[1, :2])


@pytest.mark.parametrize("at", [0, 1, 2, -1, -3])
def test_sequences_at_a_computed_position(at: int) -> None:
    text = """m (float[2] a, float[2] b, float[2] c, int64 i) => (float[2] x, float[4, 2] y, float[4] z) {
        s = SequenceConstruct(a, b, c)
        x = SequenceAt(s, i)
        more = SequenceInsert(s, x, i)
        y = ConcatFromSequence<axis = 0, new_axis = 1>(more)
        less = SequenceErase(s, i)
        z = ConcatFromSequence<axis = 0>(less)
    }"""
    a, b, c = np.arange(6, dtype=np.float32).reshape(3, 2)
    got = Backend.prepare(model(text)).run([a, b, c, np.array(at)])
    values = [a, b, c]
    np.testing.assert_array_equal(got[0], values[at])
    more, less = list(values), list(values)
    more.insert(at, values[at])
    del less[at]
    np.testing.assert_array_equal(got[1], more)
    np.testing.assert_array_equal(got[2], np.concatenate(less))


def test_split_to_sequence() -> None:
    text = """m (float[2, 5] x) => (float[2, 2] a, float[2, 1] b, float[2] c, int64 n) {
        two = Constant<value_int = 2>()
        s = SplitToSequence<axis = -1>(x, two)
        zero = Constant<value_int = 0>()
        last = Constant<value_int = -1>()
        a = SequenceAt(s, zero)
        b = SequenceAt(s, last)
        t = SplitToSequence<axis = 1, keepdims = 0>(x)
        c = SequenceAt(t, last)
        n = SequenceLength(t)
    }"""
    a, b, c, n = Backend.prepare(model(text)).run([np.arange(10, dtype=np.float32).reshape(2, 5)])
    assert a.tolist() == [[0, 1], [5, 6]] and b.tolist() == [[4], [9]] and c.tolist() == [4, 9] and n == 5


def test_sequence_map_over_elements_of_other_shapes() -> None:
    text = """m (float[5] x) => (float[2] y, float[3] z) {
        sizes = Constant<value_ints = [2, 3]>()
        s = SplitToSequence<axis = 0>(x, sizes)
        t = SequenceMap (s) <body = b (float[k] a) => (float[k] c) { c = Exp(a) }>
        zero = Constant<value_int = 0>()
        one = Constant<value_int = 1>()
        y = SequenceAt(t, zero)
        z = SequenceAt(t, one)
    }"""
    x = np.arange(5, dtype=np.float32)
    y, z = Backend.prepare(model(text)).run([x])
    np.testing.assert_allclose(np.concatenate([y, z]), np.exp(x), rtol=1e-6)


def test_optionals() -> None:
    text = """m (float[3] x) => (float[3] y, bool a, bool b) {
        o = Optional(x)
        e = Optional<type = float[3]>()
        a = OptionalHasElement(o)
        b = OptionalHasElement(e)
        y = If (b) <then_branch = t () => (float[3] p) { p = OptionalGetElement(e) },
                    else_branch = f () => (float[3] q) { g = OptionalGetElement(o) q = Neg(g) }>
    }"""
    y, a, b = Backend.prepare(model(text)).run([X])
    np.testing.assert_array_equal(y, -X)
    assert a and not b


@pytest.mark.parametrize(
    ("node", "match"),
    [
        ("SequenceAt(s, five)", "no position 5 in a sequence of 2"),
        ("SequenceAt(none, five)", "no position 5 in a sequence of 0"),
        ("ConcatFromSequence<axis = 0>(none)", "empty sequence"),
    ],
)
def test_errors_of_sequences(node: str, match: str) -> None:
    text = f"""m (float[3] x) => (float[3] y) {{
        s = SequenceConstruct(x, x)
        none = SequenceEmpty()
        five = Constant<value_int = 5>()
        y = {node}
    }}"""
    with pytest.raises(MlaotError, match=match):
        Backend.prepare(model(text))


JOINED = """m (seq(float[2, 3]) s, optional(float[2, 3]) o, int64 i) => (float[k, 3] y, seq(float[2, 3]) t) {
    has = OptionalHasElement(o)
    t = If (has) <then_branch = a () => (seq(float[2, 3]) p) { x = OptionalGetElement(o) p = SequenceInsert(s, x, i) },
                  else_branch = b () => (seq(float[2, 3]) q) { q = Identity(s) }>
    y = ConcatFromSequence<axis = 0>(t)
}"""


@pytest.mark.parametrize("there", [True, False])
def test_sequences_and_optionals_go_in_and_out(there: bool) -> None:
    parts = [np.full((2, 3), k, np.float32) for k in range(3)]
    more = np.full((2, 3), 9, np.float32)
    made = Backend.prepare(model(JOINED))
    for at in (0, 2, -1):
        want = list(parts)
        if there:
            want.insert(at, more)
        y, t = made.run([parts, more if there else None, np.array(at)])
        assert isinstance(t, list) and len(t) == len(want)
        np.testing.assert_array_equal(t, want)
        np.testing.assert_array_equal(y, np.concatenate(want))


def test_a_module_takes_and_gives_the_arrays_of_sequences_one_by_one() -> None:
    found = trace_model(model(JOINED), {"s": 2, "o": 1})
    assert found.arguments == ("s_0", "s_1", "o", "i")
    assert list(found.file_names) == ["s_0", "s_1", "o", "i", "y", "t_0", "t_1", "t_2"]
    assert list(found.graph.outputs) == ["y", "t_0", "t_1", "t_2"]
    program = compile_model(declare(model(JOINED), {"s": 2, "o": 1}), "shipped.nn", Options(isas=("base",)))
    assert "t_2" in program_files(program)["nn.c"]
    without = trace_model(model(JOINED), {"s": 2, "o": 0})
    assert without.arguments == ("s_0", "s_1", "i")
    with pytest.raises(Unsupported, match=r"input 's' is a sequence; pin in .* how many arrays s has"):
        trace_model(model(JOINED), {"o": 1})


def test_elements_may_have_other_shapes_than_one_another() -> None:
    text = """m (seq(float) s) => (seq(float) t) {
        t = SequenceMap (s) <body = b (float a) => (float c) { c = Exp(a) }>
    }"""
    made = model(text)
    made.graph.input[0].type.sequence_type.elem_type.tensor_type.ClearField("shape")
    made.graph.output[0].type.sequence_type.elem_type.tensor_type.ClearField("shape")
    given = [np.ones((2, 3), np.float32), np.zeros(4, np.float32)]
    (t,) = Backend.prepare(made).run([given])
    for a, b in zip(t, given, strict=True):
        np.testing.assert_allclose(a, np.exp(b), rtol=1e-6)
    assert Backend.prepare(made).run([given[:1]])[0][0].shape == (2, 3)


def test_a_model_whose_sequences_are_empty_has_nothing_to_give() -> None:
    refused("m (float[2] x) => (seq(float) s) { s = SequenceEmpty() }", match="no output has an array")


def test_a_condition_of_open_dimensions() -> None:
    text = f"""m (float[n] v, float[3] x) => (float[3] y) {{
        s = Shape(v)
        one = Constant<value_ints = [1]>()
        same = Equal(s, one)
        c = Squeeze(same)
        y = If (c) {BRANCHES}
    }}"""
    same(text, np.zeros(1, np.float32), X)
    same(text, np.zeros(2, np.float32), X)


def test_what_is_stacked_may_have_a_declared_number_of_rounds() -> None:
    text = f"m (int64 m, bool go, float[3] x) => (float[3] y, float[4, 3] z) {{ y, z = Loop (m, go, x) {SUMS} }}"
    same(text, np.int64(4), True, X)
    compiled = Backend.prepare(model(text))
    with pytest.raises(ValueError, match="trip count must be 4"):
        compiled.run([np.array(3), np.array(True), X])
    with pytest.raises(ValueError, match="condition must be true"):
        compiled.run([np.array(4), np.array(False), X])


def test_a_shape_is_not_checked_in_a_loop_that_is_compiled() -> None:
    text = """m (float[3] s, float[40, 3] x, int64[1] n) => (float[k] y) {
        y = Scan (s, x) <num_scan_inputs = 1, body = b (float[3] s, float[3] a) => (float[3] t) {
            r = Reshape(a, n)
            t = Add(s, r)
        }>
    }"""
    refused(text, match="computed when the model runs")
