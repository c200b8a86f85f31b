"""cond, scan, while_loop and fori_loop: traced, they give what they give on plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import mlaot
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace import tree
from mlaot.frontend.trace.promotion import dtype_of
from mlaot.frontend.trace.subtrace import Subtrace, call, subtrace
from mlaot.ir import Type, verify
from mlaot.ops.control import scan as scan_op
from mlaot.transforms.differentiate import differentiate

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(3)


def trace(function: Callable[..., Any], *arrays: Any) -> Subtrace:
    found = subtrace(function, [Type(dtype_of(np.asarray(a).dtype), np.shape(a)) for a in arrays])
    verify(found.graph, "trace")
    return found


def places(value: Any, at: str = "") -> dict[str, Any]:
    """Every array in ``value`` by its place."""
    if isinstance(value, dict | list | tuple):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {place: leaf for key, part in parts for place, leaf in places(part, f"{at}.{key}").items()}
    return {} if value is None else {at: value}


def check(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """The same structure, dtypes and values traced as plain."""
    traced = trace(function, *arrays)
    expected, found = function(*arrays), tree.unflatten(traced.structure, call(traced, arrays))
    same(found, expected)
    return tree.flatten(expected)[0]


def same(found: Any, expected: Any) -> None:
    a, b = places(found), places(expected)
    assert a.keys() == b.keys()
    for place, value in b.items():
        if not isinstance(value, int | float):
            assert np.asarray(a[place]).dtype == value.dtype, place
        np.testing.assert_allclose(a[place], value, rtol=1e-6)


def refused(text: str, function: Callable[..., Any], *arrays: Any, plain: bool = True) -> None:
    """The same words traced and, unless there is no such mistake there, in plain use."""
    with pytest.raises(MlaotError) as error:
        trace(function, *arrays)
    assert text in str(error.value) and "\n" not in str(error.value), str(error.value)
    if plain:
        with pytest.raises(MlaotError) as error:
            function(*arrays)
        assert text in str(error.value), str(error.value)


def rnn(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(w @ h + x)
        return h, (h * h).sum()

    return mlaot.scan(step, h, xs)


def rnn_arrays(length: int = 5) -> list[Array]:
    return [rng.normal(size=shape).astype(np.float32) for shape in ((3, 3), (3,), (length, 3))]


@pytest.mark.parametrize("length", [0, 1, 5])
def test_rnn(length: int) -> None:
    w, h, xs = rnn_arrays(length)
    last, energies = check(rnn, w, h, xs)
    for x in xs:
        h = np.tanh(w @ h + x)
    assert energies.shape == (length,) and last.dtype == np.float32
    np.testing.assert_allclose(last, h)


def test_rnn_trains() -> None:
    """Gradients by captured weights, the start and the inputs, against central differences."""
    arrays = [a.astype(np.float64) for a in rnn_arrays()]
    traced = trace(lambda *a: rnn(*a)[1].sum() + rnn(*a)[0].sum(), *arrays)
    graph, (loss,) = traced.graph, traced.graph.outputs.values()
    gradients = differentiate(loss, list(graph.inputs.values()))
    assert sum(node.op is scan_op for node in graph.nodes()) == 1
    graph.outputs = {"loss": loss} | {f"d{i}": node for i, node in enumerate(gradients)}
    verify(graph, "differentiate")
    assert sum(node.op is scan_op for node in graph.nodes()) == 2, "the forward loop runs once"
    inputs = {f"argument{i}": a for i, a in enumerate(arrays)}
    found = evaluate(graph, inputs)
    for i, (name, value) in enumerate(inputs.items()):
        step = rng.normal(size=value.shape)
        ahead, behind = (evaluate(graph, inputs | {name: value + h * step})["loss"] for h in (1e-6, -1e-6))
        np.testing.assert_allclose((found[f"d{i}"] * step).sum(), (ahead - behind) / 2e-6, rtol=1e-6)


class State(NamedTuple):
    total: Any
    seen: Any


def test_trees_of_arrays() -> None:
    def step(carry: Any, x: Any) -> Any:
        state, (low, high) = carry["state"], carry["range"]
        new = {"range": [np.minimum(low, x["a"]), np.maximum(high, x["b"])], "state": State(state.seen, state.total)}
        return new, {"both": (x["a"] + state.total, None), "low": low}

    def function(a: Any, b: Any) -> Any:
        start = {"state": State(a[0], b[0] + 2), "range": [a[1], b[1]]}
        return mlaot.scan(step, start, {"a": a, "b": b})

    check(function, rng.normal(size=4), rng.normal(size=4))
    carry, ys = function(rng.normal(size=4), rng.normal(size=4))
    assert list(carry) == ["state", "range"] and isinstance(carry["state"], State) and ys["both"][1] is None


def test_reverse_and_length() -> None:
    check(lambda x: mlaot.scan(lambda c, v: (c * 0.5 + v, c), x[0], x, reverse=True), rng.normal(size=5))
    check(lambda x: mlaot.scan(lambda c, _: (c + c, c), x, length=3), rng.normal(size=2))
    check(lambda x: mlaot.scan(lambda c, v: (c, c), x[0], x, length=5, reverse=True), rng.normal(size=5))


def test_results_that_are_carries_as_they_came_in() -> None:
    x = np.arange(4.0)
    last, seen = check(lambda x: mlaot.scan(lambda c, v: (c + v, c), x[0], x), x)
    assert last == 6 and seen.tolist() == [0, 0, 1, 3]


def test_python_numbers_take_the_dtype_that_a_round_gives() -> None:
    x = rng.normal(size=4).astype(np.float32)
    total, counts = check(lambda x: mlaot.scan(lambda c, v: (c + v, 1), 0.0, x), x)
    assert total.dtype == np.float32 and counts.tolist() == [1, 1, 1, 1]
    check(lambda x: mlaot.scan(lambda c, v: ((c[0] + 1, c[1] * v), v), (0, 1), x)[0][1], x)
    check(lambda x: mlaot.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, x), bound=9)[1], x)
    check(lambda x: mlaot.cond(x.sum() > 0, lambda a: (a, 0.0), lambda a: (a * 2, a[0]), x), x)
    check(lambda x: mlaot.cond(x.sum() < 0, lambda a, k: a * k, lambda a, k: a + k, x, 3), x)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_cond(sign: float) -> None:
    scale = np.array([2.0, 3.0])

    def function(x: Any, y: Any) -> Any:
        def then(a: Any) -> Any:
            return {"p": a["x"] * scale + y, "q": a["y"]}

        def otherwise(a: Any) -> Any:
            return {"q": -a["y"], "p": np.exp(a["x"]) * y.sum()}

        return mlaot.cond(x[0] > 0, then, otherwise, {"x": x, "y": y})

    check(function, sign * np.array([1.0, 2.0]), rng.normal(size=2))


def test_cond_on_what_is_known_is_decided_at_once() -> None:
    traced = trace(lambda x: mlaot.cond(True, lambda: x + 1, lambda: "never"), np.ones(2))
    assert "cond" not in str(traced.graph)
    check(lambda x: mlaot.cond(len(x) > 5, lambda v: v, lambda v: v * 2, x), np.ones(2))


def test_while_loop() -> None:
    def root(a: Any) -> Any:
        return mlaot.while_loop(lambda x: np.abs(x * x - a) > 1e-9, lambda x: (x + a / x) / 2, a, bound=20)

    assert abs(check(root, np.array(7.0))[0] - 7**0.5) < 1e-9
    twice = check(lambda a: mlaot.while_loop(lambda x: x < 100, lambda x: x * 2, a, bound=2), np.array(1.0))
    assert twice == [4.0]


def test_fori_loop() -> None:
    x, table = np.array([0.5, 2.0]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    check(lambda x: mlaot.fori_loop(1, 3, lambda i, c: c * x + i, x), x)
    check(lambda x: mlaot.fori_loop(3, 1, lambda i, c: c * x + i, x), x)
    check(lambda x, t: mlaot.fori_loop(0, 3, lambda i, c: c + np.take(t, i, axis=0) * x, x), x, table)


def test_loops_over_a_named_dim() -> None:
    n = mlaot.dim("n")

    def function(x: Any) -> Any:
        return mlaot.fori_loop(0, x.shape[0], lambda i, c: c + i, x.sum()), mlaot.scan(lambda c, v: (c + v, c), 0.0, x)

    traced = subtrace(function, [mlaot.f64[n]])
    verify(traced.graph, "trace")
    x = np.array([1.0, 2.0, 4.0])
    same(tree.unflatten(traced.structure, call(traced, [x])), function(x))


def test_nested_loops_capture_from_everywhere() -> None:
    def function(x: Any, k: Any) -> Any:
        def row(total: Any, v: Any) -> Any:
            def grow(c: Any) -> Any:
                return mlaot.cond(c > v[1], lambda: c + k, lambda: c * 2 + x.sum())

            reached = mlaot.while_loop(lambda c: c < k * 10, grow, v[0], bound=50)
            return total + reached, reached

        return mlaot.scan(row, k, x)

    check(function, np.abs(rng.normal(size=(3, 2))), np.array(1.5))


def test_parameters_and_buffers_are_captured() -> None:
    w = mlaot.Parameter("w", np.array([2.0, 3.0]))
    check(lambda x: mlaot.scan(lambda c, v: (c * w + v, None), w * 1, x)[0], rng.normal(size=(3, 2)))
    state = mlaot.Buffer(np.zeros(2), "state")

    def writes(x: Any) -> Any:
        return mlaot.scan(lambda c, v: (state.assign(v), c)[::-1], x[0], x)

    refused("'state' cannot be assigned in the body of mlaot.scan", writes, np.ones((3, 2)), plain=False)


def test_draws_differ_from_round_to_round() -> None:
    def function(x: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            return c, mlaot.random.bits((2,))

        def test(c: Any) -> Any:
            return c[0] < 3

        def count(c: Any) -> Any:
            return c[0] + 1, np.where(np.arange(3) == c[0], mlaot.random.bits(), c[1])

        before = mlaot.random.bits()
        first = mlaot.scan(step, x[0], x)[1]
        second = mlaot.while_loop(test, count, (0, np.zeros(3, np.uint32)), bound=5)[1]
        return first, second, before, mlaot.random.bits()

    traced = trace(function, np.zeros(4))
    found = tree.unflatten(traced.structure, call(traced, [np.zeros(4)]))
    with mlaot.random.entry():
        expected = function(np.zeros(4))
    drawn = [a for part in expected for a in np.ravel(part).tolist()]
    assert len(set(drawn)) == 13
    same(found, expected)


def test_mistakes_are_named() -> None:
    x, y = np.ones((3, 2)), np.ones((4, 2))
    refused(
        "scan: expected xs of one length, got 3 and 4", lambda a, b: mlaot.scan(lambda c, v: (c, v), 0, (a, b)), x, y
    )
    refused(
        "scan: expected xs of one length, got 3 and 5", lambda a: mlaot.scan(lambda c, v: (c, v), 0, a, length=5), x
    )
    refused("scan: expected xs or length=, got neither", lambda a: mlaot.scan(lambda c, v: (c, v), a), x)
    refused("got a scalar", lambda a: mlaot.scan(lambda c, v: (c, v), a, a[0, 0]), x)
    refused("to return (carry, y), got a tuple of 3", lambda a: mlaot.scan(lambda c, v: (c, v, v), a, a), x)
    refused("a carry like the first, (*, *), got *", lambda a: mlaot.scan(lambda c, v: (v, v), (a[0], a[0]), a), x)
    refused("{'a': *}, got {'b': *}", lambda a: mlaot.fori_loop(0, 2, lambda i, c: {"b": a}, {"a": a}), x)
    refused("the carry 0", lambda a: mlaot.scan(lambda c, v: (v[:1], c), a[0], a), x)
    refused("scan: the carry 0 is f32[] but the body gives f64[]",
            lambda a: mlaot.scan(lambda c, v: (c + v[0], c), np.float32(0), a), x, plain=False)  # fmt: skip
    refused(
        "while_loop: expected bound=, an integer",
        lambda a: mlaot.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, a),
        x,
    )
    refused("while: expected a condition that gives bool[], got f64[]",
            lambda a: mlaot.while_loop(lambda c: c.sum(), lambda c: c + 1, a, bound=3), x, plain=False)  # fmt: skip
    refused(
        "fori_loop: expected bounds that are known",
        lambda a: mlaot.fori_loop(0, a[0, 0], lambda i, c: c, a),
        x,
        plain=False,
    )
    refused("cond: expected one structure of results, got * from 'then' and (*, *) from 'otherwise'",
            lambda a: mlaot.cond(a[0, 0] > 0, lambda: a, lambda: (a, a)), x, plain=False)  # fmt: skip
    refused("cond: the result 0 is f64[3,2] but 'otherwise' gives f64[2]",
            lambda a: mlaot.cond(a[0, 0] > 0, lambda: a, lambda: a[0]), x, plain=False)  # fmt: skip
    refused("cond: expected a condition of type bool[], got f64[2]",
            lambda a: mlaot.cond(a[0], lambda: a, lambda: a), x, plain=False)  # fmt: skip


def test_grad_jvp_and_vmap_of_loops() -> None:
    def settle(a: Any, x: Any) -> Any:
        """As often as x needs: a cond in a while in a scan, of every kind of gradient."""

        def close(c: Any) -> Any:
            return np.abs(c) > 1.0

        def closer(c: Any) -> Any:
            return mlaot.cond(c > 0, lambda v: v * np.sin(a), lambda v: v * np.cos(a) * a, c)

        def step(total: Any, v: Any) -> Any:
            total = total + mlaot.while_loop(close, closer, v, bound=9)
            return total, total * v

        last, ys = mlaot.scan(step, a * 0.5, x)
        return last * (ys * ys).sum()

    a, x = np.array(0.8), np.array([3.0, -4.0, 0.3])
    da, dx = mlaot.grad(settle, (0, 1))(a, x)
    h, v = 1e-6, np.array([0.3, -0.5, 0.2])
    np.testing.assert_allclose(da, (settle(a + h, x) - settle(a - h, x)) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(dx @ v, (settle(a, x + h * v) - settle(a, x - h * v)) / (2 * h), rtol=1e-6)
    _, along = mlaot.jvp(settle, (a, x), (np.array(1.0), v))
    np.testing.assert_allclose(along, da + dx @ v, rtol=1e-9)
    second = mlaot.grad(mlaot.grad(settle))(a, x)
    ahead, behind = (mlaot.grad(settle)(a + s * h, x) for s in (1, -1))
    np.testing.assert_allclose(second, (ahead - behind) / (2 * h), rtol=1e-5)
    many = np.stack([x, -x, 2 * x, x * 0])
    np.testing.assert_allclose(mlaot.vmap(lambda x: settle(a, x))(many), [settle(a, row) for row in many])
    found = mlaot.vmap(mlaot.grad(lambda x: settle(a, x)))(many)
    np.testing.assert_allclose(found, [mlaot.grad(lambda x: settle(a, x))(row) for row in many])


def test_vmap_of_a_loop_that_draws() -> None:
    """Each example draws its own numbers, also where the examples need different numbers of rounds."""

    def tries(a: Any) -> Any:
        def again(c: Any) -> Any:
            return mlaot.random.uniform(), c[1] + 1

        return mlaot.while_loop(lambda c: c[0] < a, again, (0.0, 0), bound=400)

    last, rounds = mlaot.vmap(tries)(np.array([0.9, 0.9, 0.9, 0.0, 0.5], np.float32))
    assert len(set(rounds[:3].tolist())) > 1 and rounds[3] == 0
    assert (last >= [0.9, 0.9, 0.9, 0.0, 0.5]).all() and len(set(last.tolist())) == 5
