"""Union-find beside the values: the second post's programs run, and values, gradients and pictures are right."""

from __future__ import annotations

import gc
import math
from collections import Counter
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.frontend.scalar import equal
from mlaot.frontend.scalar.graph import ssa
from mlaot.micrograd import MLP, Array, Dot, Value, count, declare, find, make_equal_to, optimize, trace


def test_row_52_62_union_find_beside_the_values() -> None:
    """``test_const``, ``test_op``, ``test_chain``; the value itself stays as it was."""
    x, y = Value(123), Value(123)
    x.make_equal_to(y)
    assert x.find() is x  # a constant stands for itself
    with pytest.raises(MlaotError, match=r"^make_equal_to: a constant, 123, is made equal to 124$"):
        x.make_equal_to(Value(124))
    a, b, c = (Value(0) + 1 for _ in range(3))
    user = a * 2
    make_equal_to(a, b)
    assert (a.find(), find(a), user.arg(0), user.args()[0]) == (b, b, b, b)
    b.make_equal_to(c)
    assert a.find() is b.find() is user.arg(0) is c
    assert user._prev[0] is a and not hasattr(a, "forwarded") and a.data == 1


def test_row_62_links_go_with_their_values() -> None:
    gc.collect()
    before = len(equal.forwarded)
    x = Value(1.0) + 1
    x.make_equal_to(Value(2.0))
    assert len(equal.forwarded) == before + 1 and x.find().data == 2
    del x
    gc.collect()
    assert len(equal.forwarded) == before


def folded(value: Value) -> Value:
    """Constants folded as the vectorizer's tests do it: with find, args and make_equal_to, arguments first."""
    for node in value.topo():
        args = node.args()
        if node._op in ("+", "*") and all(arg._op == "" for arg in args):
            left, right = (arg.data for arg in args)
            node.make_equal_to(Value(left + right if node._op == "+" else left * right))
    return value.find()


def test_row_59_a_program_of_the_post_folds_constants() -> None:
    root = (Value(1) + 2) + (Value(3) + 4) * 2
    assert [value.data for value in (root, folded(root), root.find())] == [17, 17, 17]
    assert count(root) == {"": 1}


def vectorized(root: Value) -> None:
    """The post's own way to sums of many arguments and dots of arrays: new values have no numbers yet."""
    for node in root.topo():
        value = node.find()
        if value._op == "+" and any(arg._op == "+" for arg in value.args()):
            nested = [arg.args() if arg._op == "+" else [arg] for arg in value.args()]
            value.make_equal_to(Value(0, [term for terms in nested for term in terms], "+"))
    for value in root.find().topo():
        products = [arg for arg in value.args() if arg._op == "*"]
        if value._op == "+" and products:
            rest = [arg for arg in value.args() if arg._op != "*"]
            left, right = (Array([product.arg(i) for product in products]) for i in (0, 1))
            value.make_equal_to(Value(0, (Dot(left, right), *rest), "+"))


@pytest.mark.parametrize("rewrite", [vectorized, optimize])
def test_row_57_62_a_rewritten_network_computes_and_trains_as_before(rewrite: Any) -> None:
    """Forward, backward and what is declared go by the representatives."""
    net, x = MLP(3, [4, 2]), [Value(0.0, (), "input") for _ in range(3)]

    def graph() -> Any:
        outputs: Any = net(x)
        return (outputs[0] * outputs[1] + outputs[0]).exp() + outputs[1] ** 2

    loss = graph()
    rewrite(loss)
    assert count(loss)["dot"] == 7 and count(loss)["+"] == 7 + 1
    for i, value in enumerate(x):
        value.data = 0.5 * i - 0.4
    loss.forward()
    expected = graph()
    assert loss.data == pytest.approx(expected.data, rel=1e-12) == loss.find().data
    expected.backward()
    gradients = [p.grad for p in net.parameters()]
    net.zero_grad()
    loss.backward()
    assert [p.grad for p in net.parameters()] == pytest.approx(gradients, rel=1e-12)
    ops = Counter(node.op.name for node in declare(loss, inputs={"x": x}, parameters=net).trace().graph.nodes())
    assert (ops["mul"], ops["pow"], ops["exp"]) == (3 * 4 + 4 * 2 + 1, 1, 1)


def test_row_54_optimize_keeps_what_is_used_twice() -> None:
    """A shared sum stays one, sums without products make no arrays, and a sum of one dot is that dot."""
    a, b, c = (Value(float(i)) for i in range(3))
    shared = a + b
    total = optimize((shared + c) + shared.exp())
    assert ssa(total) == "v2 = + 0.0 1.0\nv4 = exp v2\nv5 = + v2 2.0 v4\n"
    assert total.data == pytest.approx(3 + math.e)
    assert ssa(optimize(a * b + b * c)) == "v2 = array 0.0 1.0\nv4 = array 1.0 2.0\nv5 = dot v2 v4\n"
    x = Value(3.0)
    assert optimize(x) is x


def test_values_in_arrays_have_representatives_too() -> None:
    x, w = Value(2.0), Value(5.0)
    y = x.relu()
    total = optimize(y * w + x * w)
    y.make_equal_to(x * 3)
    total.forward()
    total.backward()
    assert (total.data, x.grad, w.grad) == (40, 20, 8)


def test_pictures_show_the_representatives() -> None:
    x = Value(2.0)
    old = x * 1
    y = old.relu()
    old.make_equal_to(x)
    assert ssa(y) == "v1 = ReLU 2.0\n" and trace(y) == ({x, y}, {(x, y)})


def test_a_value_that_stands_for_what_it_is_made_of_is_an_error() -> None:
    x = Value(1.0).exp()
    x.make_equal_to(x + 0)
    with pytest.raises(MlaotError, match=r"^make_equal_to: a Value was made equal to one that depends on it$"):
        x.find().forward()


def test_a_sum_of_one_value_is_that_value() -> None:
    """Only the set of micrograd's own x + x has one element for two."""
    x = Value(3.0, (), "input")
    one = Value(3.0, (x,), "+")
    graph = declare(one, inputs={"x": x}).trace().graph
    assert graph.outputs["out"].find() is graph.inputs["x"]
