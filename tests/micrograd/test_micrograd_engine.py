"""The eager scalar engine against micrograd's documented behaviour, PyTorch's values and central differences.

PyTorch's values (2.13.0, float64) are stored as constants.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.frontend.scalar.functions import FUNCTIONS
from mlaot.micrograd import Dot, Max, Min, Value, where


def readme_example(value: Callable[[float], Any]) -> tuple[Any, Any, Any]:
    """The example of micrograd's README, with either package's ``Value``."""
    a = value(-4.0)
    b = value(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
    return a, b, g


def test_row_1_value_has_micrograds_fields() -> None:
    """``Value(data, _children=(), _op='')`` and its fields; gradients start at 0."""
    a = Value(3.0)
    assert (a.data, a.grad, a._prev, a._op) == (3.0, 0, (), "")
    b = Value(4.0, (a,), "twice")
    assert (b._prev, b._op) == ((a,), "twice")


def test_row_1_backward_of_one_node_propagates_one_step() -> None:
    """``_backward()`` adds to the gradients of the arguments only."""
    a = Value(3.0)
    b = a * 2
    c = b * 5
    c.grad = 1
    c._backward()
    assert (b.grad, a.grad) == (5, 0)
    a._backward()  # a leaf has nothing to propagate


def test_row_1_an_op_of_ones_own() -> None:
    """A node made by hand brings its ``_backward`` along, and ``_forward`` where the graph runs in place."""
    x = Value(0.5)
    y = Value(math.sin(x.data), (x,), "sin")

    def backward() -> None:
        x.grad += math.cos(x.data) * y.grad

    def forward() -> None:
        y.data = math.sin(x.data)

    y._backward = backward
    y._forward = forward
    z = y * 3
    z.backward()
    assert x.grad == 3 * math.cos(0.5)
    x.data = 0.25
    z.forward()
    assert z.data == 3 * math.sin(0.25)


def test_an_op_without_a_rule_is_an_error() -> None:
    """micrograd silently leaves the gradients below such a node at 0."""
    x = Value(1.0)
    y = Value(2.0, (x,), "mystery")
    with pytest.raises(MlaotError, match="no rule for op 'mystery'"):
        y.backward()


def test_row_2_numbers_on_either_side() -> None:
    """``+`` and ``*`` between values and with int and float on either side."""
    a = Value(3)
    results = [a + 2, 2 + a, a + 2.5, 2.5 + a, a * 2, 2 * a, a * 2.5, 2.5 * a, a + a, a * a]
    assert [r.data for r in results] == [5, 5, 5.5, 5.5, 6, 6, 7.5, 7.5, 6, 9]


def test_row_3_derived_operators_expand_as_in_micrograd() -> None:
    """``-a`` is ``a * -1``, ``a - b`` is ``a + (-b)``, ``a / b`` is ``a * b**-1``."""
    a, b = Value(6.0), Value(2.0)
    cases = {
        "-a": (-a, -6.0, "* a -1"),
        "a-b": (a - b, 4.0, "+ a (* b -1)"),
        "a-3": (a - 3, 3.0, "+ a -3"),
        "3-b": (3 - b, 1.0, "+ (* b -1) 3"),
        "a/b": (a / b, 3.0, "* a (**-1 b)"),
        "a/4": (a / 4, 1.5, "* a 0.25"),
        "2/b": (2 / b, 1.0, "* (**-1 b) 2"),
    }

    def text(v: Value) -> str:
        leaf = {a: "a", b: "b"}.get(v, str(v.data))
        return f"({v._op} {' '.join(map(text, v._prev))})" if v._prev else leaf

    for name, (value, data, form) in cases.items():
        assert (value.data, text(value)) == (data, f"({form})"), name


@pytest.mark.parametrize(
    ("base", "exponent", "op", "data", "grad"),
    [
        (3.0, 2, "**2", 9.0, 6.0),
        (3.0, -1, "**-1", 1 / 3, -1 / 9),
        (4.0, 0.5, "**0.5", 2.0, 0.25),
        (2.0, 1e-5, "**1e-05", 2.0**1e-5, 1e-5 * 2.0 ** (1e-5 - 1)),
        (5.0, 1, "**1", 5.0, 1.0),
        (0.0, 0, "**0", 1.0, 0.0),
        (3.0, True, "**1", 3.0, 1.0),
    ],
)
def test_row_4_24_power(base: float, exponent: float, op: str, data: float, grad: float) -> None:
    """``x**k`` for int and float constants, with its gradient; ``x**0`` also at 0."""
    x = Value(base)
    y = x**exponent
    y.backward()
    assert y._op == op
    assert y.data == data
    assert x.grad == pytest.approx(grad, rel=1e-15)


def test_row_4_power_of_anything_else_fails() -> None:
    """The exponent is a constant."""
    with pytest.raises(AssertionError):
        Value(2.0) ** Value(3.0)  # type: ignore[operator]


@pytest.mark.parametrize(("x", "data", "grad"), [(-1.0, 0, 0), (0.0, 0, 0), (2.0, 2.0, 1)])
def test_row_5_relu(x: float, data: float, grad: float) -> None:
    """``relu`` and its gradient, 0 at 0."""
    v = Value(x)
    y = v.relu()
    y.backward()
    assert (y.data, v.grad, y._op) == (data, grad, "ReLU")


def test_relu_propagates_nan_but_no_infinite_gradient() -> None:
    """nan goes through; a dead unit stays at gradient 0 whatever comes from above."""
    assert math.isnan(Value(math.nan).relu().data)
    x = Value(-1.0)
    (x.relu() * math.inf).backward()
    assert x.grad == 0


def test_row_6_gradients_accumulate() -> None:
    """Shared nodes, ``a + a``, ``a * a``, diamonds, and a second ``backward`` of another root."""
    a = Value(3.0)
    (a + a).backward()
    assert a.grad == 2
    (a * a).backward()
    assert a.grad == 8
    b = Value(2.0)
    left, right = b * 3, b * 5
    (left * right).backward()
    assert b.grad == 60


def test_row_7_repr() -> None:
    """``Value(data=..., grad=...)``."""
    a = Value(-4.0)
    assert repr(a) == "Value(data=-4.0, grad=0)"
    (a * 2.5).backward()
    assert repr(a) == "Value(data=-4.0, grad=2.5)"
    b = Value(1.5)
    ((-b).relu() * 2.0).backward()
    assert repr(b) == "Value(data=1.5, grad=0.0)"


def test_row_12_readme_example() -> None:
    """24.7041, 138.8338 and 645.5773, and every digit behind them."""
    a, b, g = readme_example(Value)
    assert (f"{g.data:.4f}", f"{a.grad:.4f}", f"{b.grad:.4f}") == ("24.7041", "138.8338", "645.5773")
    assert (g.data, a.grad, b.grad) == (24.70408163265306, 138.83381924198252, 645.5772594752186)


def test_row_13_sanity_check() -> None:
    """micrograd's ``test_sanity_check`` with PyTorch's values."""
    x = Value(-4.0)
    z = 2 * x + 2 + x
    q = z.relu() + z * x
    h = (z * z).relu()
    y = h + q + q * x
    y.backward()
    assert (y.data, x.grad) == (-20.0, 46.0)


def test_row_13_more_ops() -> None:
    """micrograd's ``test_more_ops`` with PyTorch's values, to its tolerance of 1e-6."""
    a, b, g = readme_example(Value)
    assert g.data == pytest.approx(24.70408163265306, abs=1e-6)
    assert a.grad == pytest.approx(138.83381924198252, abs=1e-6)
    assert b.grad == pytest.approx(645.5772594752186, abs=1e-6)


def test_row_19_all_ops_against_pytorch() -> None:
    """``exp log tanh`` and ``Max`` beside micrograd's own, to PyTorch's values."""
    a, b = Value(0.7), Value(-1.3)
    y = (a.exp() * b).tanh() + (a**0.5) * (b**2).log() + Max(a * b, b - a) / a
    y.backward()
    assert y.data == pytest.approx(-1.8503913925144213, rel=1e-14)
    assert a.grad == pytest.approx(0.25843622547982126, rel=1e-13)
    assert b.grad == pytest.approx(-0.24474692583803964, rel=1e-13)


def test_row_20_47_max() -> None:
    """``Max`` has both directions, takes numbers, halves a tie's gradient and lets nan through, as PyTorch."""

    def run(left: float, right: float) -> tuple[float, float, float]:
        a, b = Value(left), Value(right)
        y = Max(a, b)
        y.backward()
        return y.data, a.grad, b.grad

    assert run(3.0, 2.0) == (3.0, 1, 0)
    assert run(2.0, 3.0) == (3.0, 0, 1)
    assert run(2.0, 2.0) == (2.0, 0.5, 0.5)
    for nan in (run(math.nan, 2.0), run(2.0, math.nan)):
        assert math.isnan(nan[0])
        assert nan[1:] == (1, 1)
    x = Value(2.0)
    same = Max(x, x)
    same.backward()
    assert (same.data, x.grad, same._op, same._prev) == (2.0, 1.0, "max", (x, x))
    assert (Max(x, 5).data, Max(5, x).data, x.max(1.5).data, x.max(Value(7)).data) == (5, 5, 2.0, 7)


def test_row_21_47_dot() -> None:
    """``Dot`` is one node with both directions; numbers may stand among the factors, and one value on both sides."""
    a, b, c = Value(2.0), Value(3.0), Value(5.0)
    y = Dot([a, b, a], [b, 4, a])
    (y * c).backward()
    assert (y.data, y._op) == (2 * 3 + 3 * 4 + 2 * 2, "dot")
    assert (a.grad, b.grad, c.grad) == (5 * (3 + 2 + 2), 5 * (2 + 4), 22)
    assert y.left_arr == (a, b, a)
    assert y.right_arr[::2] == (b, a)
    assert repr(y) == "Value(data=22.0, grad=5.0)"


@pytest.mark.parametrize("sides", [([], []), ([1], [1, 2])])
def test_row_21_dot_of_uneven_sides_is_an_error(sides: tuple[list[float], list[float]]) -> None:
    """Both sides have one length, at least 1."""
    with pytest.raises(MlaotError, match=r"Dot: expected two sequences of one length"):
        Dot(*sides)


GRADIENT_CASES: dict[str, Callable[[list[Value]], Value]] = {
    "add": lambda v: v[0] + v[1] + v[0],
    "sub": lambda v: v[0] - v[1],
    "mul": lambda v: v[0] * v[1] * v[0],
    "div": lambda v: v[0] / v[1] + 2 / v[2],
    "pow": lambda v: v[0] ** 3 + v[1] ** -2 + v[2] ** 2.5,
    "exp": lambda v: (v[0] * v[1]).exp(),
    "log": lambda v: (v[0] * v[2]).log(),
    "tanh": lambda v: (v[0] * v[1] - v[2]).tanh(),
    "relu": lambda v: (v[0] * v[1] - v[2]).relu() + (v[2] * v[0]).relu(),
    "max": lambda v: Max(v[0] * v[1], v[2]) + v[0].max(v[1]).max(v[2]),
    "dot": lambda v: Dot(v, [v[1], v[0] * v[2], 0.5]).tanh(),
    "min": lambda v: Min(v[0] * v[1], v[2]) + v[0].min(v[1]).min(v[2]),
    "where": lambda v: where(v[0] > v[1], v[0] * v[2], v[1]) + where(v[2] <= 1, v[0], v[1] * v[2]) + (v[0] < v[1]),
    **{
        name: lambda v, name=name: getattr(v[0] * v[1], name)() + getattr(v[0] * v[2], name)() * v[2]
        for name in FUNCTIONS
    },
}


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_row_20_21_gradients_by_central_differences(name: str) -> None:
    """Every op's backward against (f(x + h) - f(x - h)) / 2h."""
    f, point, h = GRADIENT_CASES[name], [0.7, 0.4, 1.3], 1e-6
    values = [Value(x) for x in point]
    f(values).backward()
    for i, value in enumerate(values):
        up, down = ([Value(x + sign * h * (i == j)) for j, x in enumerate(point)] for sign in (1, -1))
        assert value.grad == pytest.approx((f(up).data - f(down).data) / (2 * h), rel=1e-7, abs=1e-9)


def test_row_22_40_topo() -> None:
    """The fork's ``test_topo`` and ``test_topo_bigger``: arguments first, left before right."""
    a, b = Value(1), Value(2)
    c = a + b
    assert c.topo() == [a, b, c]
    a, b, c, d = map(Value, (2, 3, 4, 5))
    ab = a * b
    cd = c * d
    e = ab + cd
    assert e.topo() == [a, b, ab, c, d, cd, e]


def test_row_22_topo_is_the_recursive_order() -> None:
    """On random graphs with shared nodes the order is that of the recursive definition."""

    def recursive(v: Value, visited: set[Value]) -> list[Value]:
        if v in visited:
            return []
        visited.add(v)
        return [*(node for child in v._prev for node in recursive(child, visited)), v]

    random.seed(3)
    for _ in range(50):
        nodes = [Value(i) for i in range(3)]
        for _ in range(30):
            nodes.append(Dot(random.choices(nodes, k=2), random.choices(nodes, k=2)))
        assert nodes[-1].topo() == recursive(nodes[-1], set())


def test_row_43_inplace_forward() -> None:
    """The fork's ``test_inplace_forward``."""
    a, b, c = Value(1.0), Value(2.0), Value(3.0)
    d = a + b * c
    assert d.data == 7.0
    a.data = 8
    d.forward()
    assert d.data == 14.0


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_row_43_every_op_runs_in_place(name: str) -> None:
    """After new data ``forward`` gives the bits that a newly built graph has."""
    f = GRADIENT_CASES[name]
    values = [Value(x) for x in (0.3, 0.9, 0.2)]
    root = f(values)
    for value, x in zip(values, (0.7, 0.4, 1.3), strict=True):
        value.data = x
    root.forward()
    assert root.data == f([Value(x) for x in (0.7, 0.4, 1.3)]).data


def test_row_44_duplicate_backprop() -> None:
    """``b`` is used twice: gradients 8, 8, 1."""
    a = Value(1.0)
    b = a + 4
    c = (b * 3) + (b * 5)
    c.backward()
    assert (a.grad, b.grad, c.grad) == (8.0, 8.0, 1.0)


def test_row_45_steps_over_a_kept_order() -> None:
    """``_forward()`` node by node and ``backward(reverse_topo)``, any number of times."""
    x = Value(1.0)
    y = (x * x + 3).log()
    order = y.topo()
    reverse_order = order[::-1]
    for data in (1.0, 2.0, -0.5):
        x.data = data
        for node in order:
            node._forward()
            node.grad = 0
        y.backward(reverse_order)
        assert y.data == math.log(data * data + 3)
        assert x.grad == pytest.approx(2 * data / (data * data + 3), rel=1e-15)


def test_row_51_arguments_are_an_ordered_tuple() -> None:
    """``_prev`` keeps order and duplicates."""
    x, y = Value(1.0), Value(2.0)
    assert (x * x)._prev == (x, x)
    assert (y + x)._prev == (y, x)


def test_row_54_sum_of_many_arguments() -> None:
    """``+`` takes any number of arguments, as the vectorizer's flattened sums have."""
    terms = [Value(1.0), Value(2.0), Value(4.0)]
    total = Value(0.0, (*terms, terms[0]), "+")
    total.forward()
    total.backward()
    assert (total.data, [t.grad for t in terms]) == (8.0, [2, 1, 1])


def test_row_47_values_are_slim() -> None:
    """No instance dictionary; a misspelt attribute is an error. A subclass may have one."""
    x = Value(1.0)
    assert not hasattr(x, "__dict__")
    with pytest.raises(AttributeError):
        x.gard = 1  # type: ignore[attr-defined]


def test_a_chain_100_000_deep() -> None:
    """Nothing recurses: building, both directions, deleting. In a process of its own, as a fault would end it."""
    program = """if True:
        from mlaot.micrograd import Value
        x = y = Value(1.0)
        for _ in range(100_000):
            y = y + 1.0
        y.backward()
        assert (y.data, x.grad) == (100_001.0, 1), (y, x)
        x.data = 2.0
        y.forward()
        assert y.data == 100_002.0
        del y
    """
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_random_graphs_agree_with_the_micrograd_package() -> None:
    """The reprs of random graphs are the same text; whole numbers, so that no order of sums matters."""
    reference = pytest.importorskip("micrograd.engine").Value

    def run(value: Callable[[float], Any], seed: int) -> list[str]:
        rng = random.Random(seed)
        nodes = [value(rng.choice([float, int])(rng.randint(-3, 3))) for _ in range(4)]
        for _ in range(12):
            a, b, k = rng.choice(nodes), rng.choice(nodes), rng.randint(-2, 2)
            nodes.append(rng.choice([a + b, a - b, a * k, k - a, a.relu()]))
        a, b = nodes[-1], nodes[-2]
        (a * b + a**2 + sum(nodes)).backward()
        return [repr(node) for node in nodes]

    for seed in range(200):
        assert run(Value, seed) == run(reference, seed)
