"""Rows 63 to 82 of docs/seeds.md, under their numbers: the eager tensors of mljs and the traces of the autodiff page.

The seeds' own lines and figures run on ``mlaot.eager``, and the same ops compiled, with their gradients.
"""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError
from mlaot.eager import (
    Node,
    Tensor,
    Trace,
    Value,
    as_values,
    get_dimensional_indices,
    get_flat_index,
    get_random,
    round_to_multiple,
    topological_sort,
)
from mlaot.evaluate import evaluate

from .. import projects
from .conftest import Modules
from .declarations import MLJS, perceptron, worked_example

PARK_MILLER = [0.0060263, 1.2840968, 1.8160981, 3.1606016, 0.2307728, 8.5985737, 6.2243543, 2.7258320, 3.0582325]
CUBE = range(1, 28)


def tensor(*values: float, shape: tuple[int, ...] = (2, 2)) -> Tensor:
    return Tensor(values, shape=shape)


def close(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# Tensors


def test_row_63_tensor() -> None:
    """``values``, ``shape``, ``children``, ``op``, ``label``; zeros without values; float32 is kept, not copied."""
    values = np.array([1, 2, 3, 4, 5, 6], np.float32)
    t = Tensor(values, shape=[3, 2], label="t")
    assert t.values is values and (t.shape, t.children, t.op, t.label) == ((3, 2), (), "", "t")
    assert t.array.tolist() == [[1, 2, 3], [4, 5, 6]] and np.shares_memory(t.array, values)
    assert Tensor(shape=[2, 3]).values.tolist() == [0] * 6
    assert Tensor([1, 2], shape=[2]).values.dtype == np.float32
    made = Tensor([5, 7], shape=[2], children=(tensor(2, 3, shape=(2,)), tensor(3, 4, shape=(2,))), op="+")
    made.backward()
    assert [child.gradient.tolist() for child in made.children] == [[1, 1], [1, 1]]


def test_row_63_values_of_another_length_are_an_error() -> None:
    with pytest.raises(MlaotError, match=r"expected 4 values for the shape \[2, 2\], got \[3\]"):
        Tensor([1, 2, 3], shape=[2, 2])


def test_row_64_getters() -> None:
    """``total_length``, ``shape``, ``values``, ``gradient``, ``children``."""
    a, b = tensor(1, 2, 3, 4), tensor(5, 6, 7, 8)
    result = a.add(b)
    assert (result.total_length, result.shape, result.children) == (4, (2, 2), (a, b))
    assert result.values.tolist() == [6, 8, 10, 12] and result.gradient.tolist() == [0, 0, 0, 0]


OPS = {  # the seed's tests: arguments, values, the gradient of each argument
    "add": ([(1, 2, 3, 4), (5, 6, 7, 8)], (6, 8, 10, 12), [(1, 1, 1, 1), (1, 1, 1, 1)]),
    "sub": ([(11, 22, 33, 44), (5, 6, 7, 8)], (6, 16, 26, 36), [(1, 1, 1, 1), (-1, -1, -1, -1)]),
    "mul": ([(1, 2, 3, 4), (5, 6, 7, 8)], (5, 12, 21, 32), [(5, 6, 7, 8), (1, 2, 3, 4)]),
    "div": (
        [(10, 24, 21, 4), (5, 6, 7, 8)],
        (2, 4, 3, 0.5),
        [(1 / 5, 1 / 6, 1 / 7, 1 / 8), (-10 / 25, -24 / 36, -21 / 49, -4 / 64)],
    ),
    "pow": (
        [(2, 2, 2, 2), (1, 2, 3, 4)],
        (2, 4, 8, 16),
        [(1, 4, 12, 32), tuple(math.log(2) * 2**k for k in (1, 2, 3, 4))],
    ),
    "neg": ([(10, 24, 21, 4)], (-10, -24, -21, -4), [(-1, -1, -1, -1)]),
    "exp": ([(1, 2, 3, 4)], tuple(map(math.exp, (1, 2, 3, 4))), [tuple(map(math.exp, (1, 2, 3, 4)))]),
    "tanh": (
        [(1, 2, 3, 4)],
        tuple(map(math.tanh, (1, 2, 3, 4))),
        [tuple(1 - math.tanh(v) ** 2 for v in (1, 2, 3, 4))],
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_row_65_75_ops(name: str) -> None:
    """Values and gradients of every op, as the seed's tests have them; twice ``backward`` adds twice."""
    arguments, values, gradients = OPS[name]
    leaves = [tensor(*v) for v in arguments]
    result = getattr(leaves[0], name)(*leaves[1:])
    assert (result.shape, result.children) == ((2, 2), tuple(leaves))
    close(result.values, values)
    for times in (1, 2):
        result.backward()
        assert result.gradient.tolist() == [1, 1, 1, 1]
        for leaf, expected in zip(leaves, gradients, strict=True):
            close(leaf.gradient, times * np.array(expected))


@pytest.mark.parametrize(
    ("name", "values", "gradient"),
    [
        ("add", (2, 4, 6, 8), (2, 2, 2, 2)),
        ("sub", (0, 0, 0, 0), (0, 0, 0, 0)),
        ("mul", (1, 4, 9, 16), (2, 4, 6, 8)),
        ("div", (1, 1, 1, 1), (0, 0, 0, 0)),
    ],
)
def test_row_65_75_same_node_twice(name: str, values: tuple[int, ...], gradient: tuple[int, ...]) -> None:
    t = tensor(1, 2, 3, 4)
    result = getattr(t, name)(t)
    assert result.values.tolist() == list(values)
    result.backward()
    close(t.gradient, gradient)


def test_row_65_operators() -> None:
    """Python's operators are the ops."""
    a, b = tensor(10, 24, 21, 4), tensor(5, 6, 7, 8)
    found = [a + b, a - b, a * b, a / b, a**b, -a]
    assert [t.op for t in found] == ["+", "-", "*", "/", "pow", "neg"]
    assert found[3].values.tolist() == [2, 4, 3, 0.5]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_row_65_lengths_must_match(name: str) -> None:
    """The shape may be another, the number of values may not."""
    a = tensor(1, 2, 3, 4)
    with pytest.raises(MlaotError, match="expected a tensor of 4 values, got 2"):
        getattr(a, name)(tensor(1, 2, shape=(2,)))
    with pytest.raises(MlaotError, match=r"expected a Tensor, got int; Tensor.filled\(..\) makes one of a number"):
        getattr(a, name)(2)
    assert getattr(a, name)(tensor(1, 2, 3, 4, shape=(4,))).shape == (2, 2)


def test_row_66_pow_differentiates_the_exponent() -> None:
    """Also where the exponent was computed itself; in the seed's v1.0 the gradient ended there."""
    base, half = tensor(2, 3, shape=(2,)), tensor(0.5, 1.5, shape=(2,))
    base.pow(half.mul(half)).backward()
    power = np.array([2, 3]) ** np.array([0.25, 2.25])
    close(base.gradient, np.array([0.25, 2.25]) * power / np.array([2, 3]))
    close(half.gradient, power * np.log([2, 3]) * np.array([1.0, 3.0]))
    zero = tensor(0, 0, shape=(2,))
    zero.pow(tensor(2, 1, shape=(2,))).backward()
    assert zero.gradient.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("shape", "dimension", "values"),
    [
        ((4, 3), 0, [10, 26, 42]),
        ((4, 3), 1, [15, 18, 21, 24]),
        ((3, 3, 3), 0, [6, 15, 24, 33, 42, 51, 60, 69, 78]),
        ((3, 3, 3), 1, [12, 15, 18, 39, 42, 45, 66, 69, 72]),
        ((3, 3, 3), 2, [30, 33, 36, 39, 42, 45, 48, 51, 54]),
    ],
)
def test_row_67_75_sum(shape: tuple[int, ...], dimension: int, values: list[int]) -> None:
    """Over one dimension of a column-major shape; the gradient goes back by the same map of indices."""
    t = Tensor(CUBE[: math.prod(shape)], shape=shape)
    found = t.sum(dimension=dimension)
    assert found.shape == tuple(n for i, n in enumerate(shape) if i != dimension)
    assert found.values.tolist() == values
    kept = t.sum(dimension=dimension, keep_dims=True)
    assert kept.shape == tuple(1 if i == dimension else n for i, n in enumerate(shape))
    assert kept.values.tolist() == values
    weights = Tensor(range(len(values)), shape=kept.shape)
    kept.mul(weights).backward()
    for flat in range(t.total_length):
        indices = get_dimensional_indices(flat, shape)
        indices[dimension] = 0
        assert t.gradient[flat] == get_flat_index(indices, kept.shape)
    with pytest.raises(MlaotError, match="sum: there is no dimension 3 in a tensor of shape"):
        t.sum(dimension=3)


def test_row_68_backward_over_a_long_chain() -> None:
    """Ones as the seed, whatever the shape; the order needs no recursion."""
    x = tensor(1, 2, 3, 4)
    t = x
    for _ in range(3000):
        t = t.neg()
    t.backward()
    assert t.gradient.tolist() == x.gradient.tolist() == [1, 1, 1, 1]


def test_row_68_75_topological_sort() -> None:
    """The seed's own graph, of things that are no tensors."""

    def thing(name: str, *children: Any) -> Any:
        return {"name": name, "children": children}

    g = thing("g", thing("h"))
    graph = thing("a", thing("b", thing("c"), thing("d", g)), thing("e", thing("f")), g)
    order = topological_sort(graph, lambda node: node["children"])
    assert [node["name"] for node in order] == ["c", "h", "g", "d", "b", "f", "e", "a"]


def test_row_69_75_text() -> None:
    """``<label:1, 2>``, also where a tensor is shown; ops have their sign as a label, ``/`` too."""
    assert str(tensor(10, 24, 21, 4)) == "<10, 24, 21, 4>"
    t = Tensor([10, 24, 0.1, -4], shape=[2, 2], label="t1")
    assert str(t) == repr(t) == "<t1:10, 24, 0.1, -4>"
    assert (t.div(t).op, t.div(t).label, t.sum(dimension=0).op) == ("/", "", "sum")
    t.label = "t2"
    assert str(t).startswith("<t2:")


VALUES = {  # arguments, value, gradients
    "add": ((2, 3), 5, (1, 1)),
    "sub": ((2, 3), -1, (1, -1)),
    "mul": ((2, 3), 6, (3, 2)),
    "div": ((2, 3), 2 / 3, (1 / 3, -2 / 9)),
    "neg": ((2,), -2, (-1,)),
    "pow": ((2, 3), 8, (12, math.log(2) * 8)),
    "exp": ((2,), math.exp(2), (math.exp(2),)),
    "tanh": ((2,), math.tanh(2), (1 - math.tanh(2) ** 2,)),
}


@pytest.mark.parametrize("name", VALUES)
def test_row_70_75_scalar_ops(name: str) -> None:
    """The scalar class in double precision, a number in the place of a value, and one value used twice."""
    arguments, value, gradients = VALUES[name]
    leaves = as_values(arguments)
    result = getattr(leaves[0], name)(*leaves[1:])
    close(result.value, value, 1e-15)
    result.backward()
    assert result.gradient == 1
    close([leaf.gradient for leaf in leaves], gradients, 1e-15)
    if len(arguments) == 2:
        assert getattr(Value(2), name)(3).value == result.value
        twice = Value(2)
        getattr(twice, name)(twice).backward()
        same = {"add": 2, "sub": 0, "mul": 4, "div": 0, "pow": 4 * (1 + math.log(2))}
        close(twice.gradient, same[name], 1e-15)


def test_row_70_75_scalar_text() -> None:
    assert (str(Value(2)), str(Value(2, label="value1")), str(Value(0.1))) == ("<2>", "<value1:2>", "<0.1>")
    assert (Value().value, Value().children) == (0, ())


@pytest.mark.parametrize(
    ("flat", "indices", "shape"),
    [(13, [1, 1, 1], [3, 3, 3]), (0, [0, 0], [4, 3]), (3, [3, 0], [4, 3]), (117, [2, 3, 4], [5, 5, 5])],
)
def test_row_71_75_flat_and_dimensional_indices(flat: int, indices: list[int], shape: list[int]) -> None:
    assert get_flat_index(indices, shape) == flat
    assert get_dimensional_indices(flat, shape) == indices
    array = Tensor(range(math.prod(shape)), shape=shape).array
    assert array[tuple(reversed(indices))] == flat


def test_row_71_as_many_indices_as_dimensions() -> None:
    with pytest.raises(MlaotError, match="expected an index for each of 3 dimensions, got 2"):
        get_flat_index([1, 1], [3, 3, 3])


def test_row_72_random() -> None:
    """The seed's published numbers; a generator goes on where it was; without a seed the numbers differ."""
    close(list(islice(get_random(0, 10, 77), 9)), PARK_MILLER, 1e-7)
    t = Tensor.random([3, 3], min=0, max=10, seed=77)
    assert t.shape == (3, 3)
    close(t.values, PARK_MILLER, 1e-7)
    generator = get_random(0, 10, 77)
    parts = [Tensor.random([3], generator=generator).values for _ in range(3)]
    assert np.concatenate(parts).tolist() == t.values.tolist()
    free = Tensor.random([100], min=-2, max=3)
    assert free.values.tolist() != Tensor.random([100], min=-2, max=3).values.tolist()
    assert -2 <= free.values.min() < 0 < free.values.max() <= 3
    assert len(set(islice(get_random(seed=0), 5))) == 5  # a state of 0 would stay 0
    states = [round(v * (2**31 - 1)) for v in islice(get_random(0, 1, 1), 10000)]
    assert states[-1] == 1043618065  # Park and Miller's own check


def test_row_73_filled_and_linear_space() -> None:
    assert Tensor.filled(1, [2, 3]).shape == (2, 3) and Tensor.filled(1, [2, 3]).values.tolist() == [1] * 6
    assert Tensor.filled(0, [3, 2]).values.tolist() == [0] * 6
    spaces = {(0, 100, 5): [0, 25, 50, 75, 100], (3, 9, 4): [3, 5, 7, 9], (0, 10, 2): [0, 10]}
    for arguments, values in spaces.items():
        t = Tensor.linear_space(*arguments)
        assert (t.values.tolist(), t.shape) == (values, (len(values),))


def test_row_73_helpers() -> None:
    """``getTotalLength`` is ``math.prod``, and right without dimensions; ``range`` is Python's and ``mlaot.arange``."""
    assert Tensor(shape=[2, 3, 4]).total_length == math.prod([2, 3, 4]) == 24
    assert Tensor(shape=[]).total_length == math.prod([]) == 1
    assert mlaot.arange(1, 4, 0.5).tolist() == [1, 1.5, 2, 2.5, 3, 3.5]
    assert [round_to_multiple(n, 64) for n in (1, 32, 95, 96, -32)] == [0, 64, 64, 128, 0]


# The perceptron, eager and compiled


def test_row_74_75_perceptron_of_singles() -> None:
    def single(value: float, label: str) -> Tensor:
        return Tensor([value], shape=[1, 1], label=label)

    x1, x2, w1, w2 = single(2, "x1"), single(0, "x2"), single(-3, "w1"), single(1, "w2")
    b = single(6.881373587019432, "b")
    x1w1, x2w2 = x1.mul(w1), x2.mul(w2)
    i = x1w1.add(x2w2)
    t = i.add(b)
    o = t.tanh()
    close([o.values[0], t.values[0], i.values[0]], [0.70710, 0.88137, -6], 1e-5)
    o.backward()
    close([v.gradient[0] for v in (o, t, b, i, x1w1, x2w2)], [1, 0.5, 0.5, 0.5, 0.5, 0.5], 1e-5)
    close([v.gradient[0] for v in (x1, x2, w1, w2)], [-1.5, 0.5, 1, 0], 1e-5)


def test_row_74_75_perceptron_of_values() -> None:
    x1, x2, w1, w2, b = as_values([2, 0, -3, 1, 6.881373587019432])
    o = x1.mul(w1).add(x2.mul(w2)).add(b).tanh()
    close(o.value, 0.5**0.5, 1e-12)
    o.backward()
    close([v.gradient for v in (x1, x2, w1, w2, b)], [-1.5, 0.5, 1, 0, 0.5], 1e-12)


def test_row_74_75_perceptron_in_parallel() -> None:
    """The sum has the shape [1], the bias [1, 1]: what counts is the number of values."""
    x, w = Tensor([2, 0], shape=[2, 1], label="x"), Tensor([-3, 1], shape=[2, 1], label="w")
    b = Tensor([6.881373587019432], shape=[1, 1], label="b")
    xw = x.mul(w)
    i = xw.sum(dimension=0)
    t = i.add(b)
    o = t.tanh()
    close([o.values[0], t.values[0], i.values[0]], [0.70710, 0.88137, -6], 1e-5)
    o.backward()
    close([*o.gradient, *t.gradient, *b.gradient, *i.gradient, *xw.gradient], [1, 0.5, 0.5, 0.5, 0.5, 0.5], 1e-5)
    close([*x.gradient, *w.gradient], [-1.5, 0.5, 1, 0], 1e-5)


A, B = np.array([[1.5, 2.0], [0.5, 3.0]], np.float32), np.array([[2.0, -1.0], [0.25, 1.5]], np.float32)
POINT = np.array([2, 0], np.float32), np.array([-3, 1], np.float32), np.float32(6.881373587019432)


@pytest.fixture(scope="module")
def outputs(compiled: Modules) -> list[Any]:
    """What the module of all ops and gradients gives for one example."""
    return [np.asarray(out)[0] for out in compiled("mljs").forward(*[np.asarray(v)[None] for v in (A, B, *POINT)])]


@pytest.mark.parametrize("name", MLJS)
def test_row_76_forward_and_backward_per_op_compiled(outputs: list[Any], name: str) -> None:
    """In the place of the seed's GPU kernels: each op and its gradients, compiled, are what the eager ones are."""
    at = 3 * list(MLJS).index(name)
    value, by_a, by_b = outputs[at : at + 3]
    a, b = Tensor(A.ravel(), shape=[2, 2]), Tensor(B.ravel(), shape=[2, 2])
    given = {"neg": (), "exp": (), "tanh": (), "sum": (0,)}.get(name, (b,))
    eager = getattr(a, name)(*given)
    eager.backward()
    close(value.ravel(), eager.values)
    close(by_a.ravel(), a.gradient)
    close(by_b.ravel(), b.gradient)
    close(value, MLJS[name](A, B))


def test_row_74_76_perceptron_compiled(outputs: list[Any]) -> None:
    value, by_x, by_w, by_bias = outputs[-4:]
    close([value, by_bias, *by_x, *by_w], [0.70710, 0.5, -1.5, 0.5, 1, 0], 1e-5)
    close(value, perceptron(*POINT))


def test_row_77_bench(tmp_path: Any) -> None:
    """The perceptron at the smallest sizes, by the script of the benchmark, with its report."""
    report = tmp_path / "report.json"
    projects.run(projects.ROOT / "benchmarks" / "perceptron.py", "--largest", "4", "--json", report)
    found = json.loads(report.read_text())
    assert [row["size"] for row in found] == [2, 4]
    assert all(row[kind] > 0 for row in found for kind in ("compiled", "numpy", "eager"))


# Traces


def test_row_78_trace() -> None:
    """``nodes`` and ``params_id``; a node's number is its place."""
    trace, ids = worked_example()
    assert (len(Trace().nodes), Trace().params_id) == (0, [])
    assert trace.params_id == [ids["W"], ids["b"]]
    assert list(ids.values()) == [0, 1, 2, 4, 5, 6, 7] and len(trace.nodes) == 8


def test_row_79_node_and_vjp() -> None:
    """``value``, ``parents_id``, for each parent its share of a cotangent; a node may bring a ``vjp`` of its own."""
    trace, ids = worked_example()
    z = trace.nodes[ids["Z"]]
    assert z.parents_id == (ids["X"], ids["W"]) and z.value.tolist() == [[3.5, -0.5, 0.5], [-4.5, -4.0, 9.0]]
    cotangent = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.5]])
    (first, by_x), (second, by_w) = trace.vjp(ids["Z"], cotangent)
    x, w = trace.get_tensor(ids["X"]), trace.get_tensor(ids["W"])
    assert (first, second) == z.parents_id
    close(by_x, cotangent @ w.T)
    close(by_w, x.T @ cotangent)
    assert trace.vjp(ids["X"], cotangent[:, :2]) == []
    square = trace.apply("mul", ids["b"], ids["b"])
    assert [parent for parent, _ in trace.vjp(square, cotangent)] == [ids["b"], ids["b"]]
    b = trace.get_tensor(ids["b"])
    own = trace.push(Node(np.sin(b), (ids["b"],), lambda ct: [(ids["b"], ct * np.cos(b))]))
    close(trace.backward(own)[ids["b"]], np.cos(b))
    with pytest.raises(MlaotError, match="pushed with a vjp of its own and is no op; only ops can be compiled"):
        trace.graph(own)


def test_row_80_push_input_param_get_tensor_len() -> None:
    trace = Trace()
    x, w = trace.input([1.0, 2.0]), trace.param([3.0, 4.0])
    both = trace.push(Node(np.array([4.0, 6.0]), (x, w), op="add"))
    assert (x, w, both, len(trace), trace.params_id) == (0, 1, 2, 3, [w])
    assert trace.get_tensor(both).tolist() == [4, 6]
    assert trace.backward(both)[w].tolist() == [1, 1]
    with pytest.raises(MlaotError, match=r"expected a node out of 0..2, got 3"):
        trace.get_tensor(3)
    with pytest.raises(MlaotError, match=r"push: expected parents among the 3 nodes so far, got \[7\]"):
        trace.push(Node(np.zeros(2), (7,)))
    with pytest.raises(MlaotError, match=r"there is no op 'tan_h'; did you mean 'tanh'\?"):
        trace.apply("tan_h", x)
    with pytest.raises(MlaotError, match=r"operands must have one type, got f64\[2\] and f64\[1\]"):
        trace.apply("add", x, trace.input([1.0]))


def test_row_81_order() -> None:
    """Root first, a node before its parents, and nothing that the root does not need."""
    trace, ids = worked_example()
    order = trace.order(ids["y"])
    assert order[0] == ids["y"] and sorted(order) == sorted(ids.values())
    assert all(order.index(i) < order.index(p) for i in order for p in trace.nodes[i].parents_id)
    assert trace.order(ids["Z"]) == [ids["Z"], ids["W"], ids["X"]]


def test_row_82_worked_example(compiled: Modules) -> None:
    """``sum(ReLU(X * W + b))``: its value, its order and its gradients, interpreted, as a graph and compiled."""
    trace, ids = worked_example()
    x, w, b = (trace.get_tensor(ids[name]) for name in "XWb")
    u = x @ w + b
    y = np.maximum(u, 0).sum()
    assert trace.get_tensor(ids["y"]).shape == () and trace.get_tensor(ids["y"]) == y
    place = {name: trace.order(ids["y"])[::-1].index(i) for name, i in ids.items()}
    assert max(place["X"], place["W"]) < place["Z"] < place["U"] < place["A"] < place["y"]
    assert place["b"] < place["U"]
    mask = (u > 0).astype(float)
    expected = {"X": mask @ w.T, "W": x.T @ mask, "b": mask}
    gradients = trace.backward(ids["y"])
    for name, gradient in expected.items():
        close(gradients[ids[name]], gradient)
    graph = trace.graph(ids["y"])
    assert [node.op.name for node in graph.nodes()] == ["input", "input", "contract", "input", "add", "relu", "sum"]
    assert evaluate(graph, {"x0": x, "x1": w, "x2": b})["out"] == y
    model = compiled("traced").Model()
    close(model.forward(x), y)
    model.set_input(x)
    model.forward()
    model.backward()
    for name in ("W", "b"):
        close(np.asarray(model.gradients[f"x{ids[name]}"]), expected[name])


# The faults of the seed


def test_fault_10_the_article() -> None:
    """Lengths are products of shapes, ``div`` divides and is called so, ``sum`` goes back by the map of indices."""
    assert Tensor(shape=[3, 4]).total_length == 12
    quotient = tensor(10, 24, 21, 4).div(tensor(5, 6, 7, 8))
    assert (quotient.values.tolist(), quotient.op, quotient.label) == ([2, 4, 3, 0.5], "/", "")
    t = Tensor(CUBE[:6], shape=[2, 3])
    t.sum(dimension=1).mul(Tensor([10, 20], shape=[2])).backward()
    assert t.gradient.tolist() == [10, 20, 10, 20, 10, 20]
    assert tensor(2, 2, 2, 2).pow(tensor(1, 2, 3, 4)).children[1].values.tolist() == [1, 2, 3, 4]
