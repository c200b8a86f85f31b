"""Scalars that record how they were computed, and their derivatives: micrograd's ``Value``, evaluated eagerly.

The API is that of Andrej Karpathy's micrograd (https://github.com/karpathy/micrograd, MIT). ``exp``, ``log``, ``Max``,
``Dot``, ``topo`` and the in-place ``forward`` have the names of Max Bernstein's fork (tekknolagi/micrograd). A program
written for either runs here unchanged. mlaot compiles the same graph, which it reads through ``_prev``, ``_op`` and
``data``.

A node holds no closure. The value and the gradient of an op are one ``Rule``, which the node's ``_op`` identifies.
Derived operators expand as in micrograd, so that graphs have the same nodes: ``-a`` is ``a * -1``, ``a - b`` is ``a +
(-b)``, ``a / b`` is ``a * b**-1``.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from mlaot.errors import MlaotError, is_building
from mlaot.frontend.scalar import equal
from mlaot.frontend.scalar.equal import representatives
from mlaot.frontend.scalar.functions import FUNCTIONS
from mlaot.frontend.scalar.lost import Line, forget_read, note_computed, note_read, users_line
from mlaot.frontend.scalar.reads import Read, read

Number = int | float
Step = Callable[[], None]
ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _function(op: str) -> Callable[[Value], Value]:
    def function(self: Value) -> Value:
        return apply(op, self)

    function.__name__, function.__doc__ = op, f"``{op}(self)``, as ``math`` has it."
    return function


def _comparison(op: str) -> Callable[[Value, Value | Number], Value]:
    def comparison(self: Value, other: Value | Number) -> Value:
        return apply(op, self, other)

    comparison.__doc__ = f"1 where ``self {op} other``, else 0."
    return comparison


class Value:
    """A number ``data``, the gradient ``grad`` that ``backward`` adds to, and the op and arguments that computed it.

    ``_prev`` is the ordered tuple of arguments with duplicates: ``x * x`` has ``(x, x)``. ``_op`` names the op: ``'+'
    '*' '**k' 'ReLU' 'max' 'min' 'dot' 'array' 'where'``, a comparison, or a name of ``FUNCTIONS``. It is ``'max of
    data'`` where, in a build, the program took a maximum of numbers that it had read (reads.py). A node without
    arguments is a leaf, whose ``_op`` is ``''`` or a label such as ``'input'``.

    In a build, ``_made`` is the line of the user's code that made a leaf. It is None if an op converted a number to the
    leaf.
    """

    __slots__ = ("__weakref__", "_custom", "_data", "_made", "_op", "_prev", "grad")

    grad: float
    _prev: tuple[Value, ...]
    _op: str
    _data: float
    _custom: dict[str, Step] | None
    _made: Line | None

    def __init__(self, data: float, _children: Iterable[Value] = (), _op: str = "") -> None:
        self._data = data
        self.grad = 0
        self._prev = tuple(_children)
        self._op = _op
        self._custom = None
        self._made = None
        if is_building() and not self._prev and (caller := sys._getframe(1)).f_globals.get("__name__") != __name__:
            self._made = users_line(caller)

    @property
    def data(self) -> float:
        """The number."""
        if not is_building():
            return self._data
        number: float = read(self, self._data, note_read(self, sys._getframe(1)))
        return number

    @data.setter
    def data(self, data: float) -> None:
        self._data = data

    def __add__(self, other: Value | Number) -> Value:
        other = as_value(other)
        return Value(self._data + other._data, (self, other), "+")

    def __mul__(self, other: Value | Number) -> Value:
        other = as_value(other)
        return Value(self._data * other._data, (self, other), "*")

    def __pow__(self, other: Number) -> Value:
        """Return ``self`` to a constant power. The exponent must be an int or a float."""
        if not isinstance(other, int | float):
            raise AssertionError(f"**: expected an int or float as the exponent, got {type(other).__name__}")
        return apply(f"**{int(other) if isinstance(other, bool) else other}", self)

    def relu(self) -> Value:
        """Return ``max(self, 0)``. The gradient at 0 is 0."""
        return apply("ReLU", self)

    exp, log, tanh, sigmoid, sqrt, abs, expm1, log1p, erf = map(
        _function, ("exp", "log", "tanh", "sigmoid", "sqrt", "abs", "expm1", "log1p", "erf")
    )
    sin, cos, tan, asin, acos, atan, sinh, cosh = map(
        _function, ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")
    )
    __abs__ = abs
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ORDER)

    def max(self, other: Value | Number) -> Value:
        """Return the larger of two values: ``Max(self, other)``."""
        return Max(self, other)

    def min(self, other: Value | Number) -> Value:
        """Return the smaller of two values: ``Min(self, other)``."""
        return Min(self, other)

    def topo(self) -> list[Value]:
        """Return every node that ``self`` depends on, each once, arguments before users, and ``self`` last.

        A representative stands for all nodes that were made equal to it.
        """
        return topological_order(self)

    def find(self) -> Value:
        """Return the representative of all values that were made equal."""
        return equal.find(self)  # type: ignore[no-any-return]

    def args(self) -> list[Value]:
        """Return the representatives of the arguments."""
        return [*representatives(self._prev)]

    def arg(self, index: int) -> Value:
        """Return the representative of one argument."""
        return self._prev[index].find()

    def make_equal_to(self, other: Value) -> None:
        """Replace this value by ``other`` in all later uses."""
        equal.make_equal_to(self, other)

    def forward(self) -> None:
        """Compute the built graph again in place, after the ``data`` of its leaves was changed."""
        is_plain = not equal.forwarded
        for node in self.topo():
            if node._custom is not None:
                node._forward()
            elif node._prev:
                node._data = rule(node._op).forward(node._prev if is_plain else representatives(node._prev))
        self._data = self.find()._data

    def backward(self, reverse_topo: Iterable[Value] | None = None) -> None:
        """Add the derivative of ``self`` with respect to each node to the node's ``grad``.

        Gradients accumulate: set them to 0 (``Module.zero_grad``) between steps. A caller that runs one graph many
        times can pass the reversed ``topo()`` as ``reverse_topo``.
        """
        is_plain = not equal.forwarded
        self.grad = self.find().grad = 1
        for node in reversed(self.topo()) if reverse_topo is None else reverse_topo:
            if node._custom is not None:
                node._backward()
            elif node._prev:
                rule(node._op).backward(node if is_plain else _of_representatives(node))

    @property
    def _forward(self) -> Step:
        """Recompute ``data`` from the arguments: one step of ``forward``. A custom op may assign its own function."""
        return self._step("forward", _recompute)

    @_forward.setter
    def _forward(self, step: Step) -> None:
        self._custom = {**(self._custom or {}), "forward": step}

    @property
    def _backward(self) -> Step:
        """Add to the arguments' gradients: one step of ``backward``. A custom op may assign its own function."""
        return self._step("backward", _propagate)

    @_backward.setter
    def _backward(self, step: Step) -> None:
        self._custom = {**(self._custom or {}), "backward": step}

    def _step(self, direction: str, default: Callable[[Value], None]) -> Step:
        return (self._custom or {}).get(direction) or partial(default, self)

    def __neg__(self) -> Value:
        return self * -1

    def __radd__(self, other: Number) -> Value:
        return self + other

    def __sub__(self, other: Value | Number) -> Value:
        return self + (-_unless_read(other))

    def __rsub__(self, other: Number) -> Value:
        return other + (-self)

    def __rmul__(self, other: Number) -> Value:
        return self * other

    def __truediv__(self, other: Value | Number) -> Value:
        return self * _unless_read(other) ** -1

    def __rtruediv__(self, other: Number) -> Value:
        return other * self**-1

    def __float__(self) -> float:
        raise MlaotError(
            "float(v) of a Value: Python's math takes numbers; `from mlaot.micrograd import math` has functions of "
            "Values, or use v.exp(), v.sqrt() and the like, or v.data for the number"
        )

    def __bool__(self) -> bool:
        if self._op in ORDER:
            raise MlaotError(
                "a comparison of Values decides a branch, but its result is not known when a graph is built; use "
                "where(condition, a, b), for the larger of two Max(a, b), for max(x, 0) x.relu()"
            )
        return True

    def __repr__(self) -> str:
        return f"Value(data={self._data}, grad={self.grad})"


class Max(Value):
    """The larger of two values. Equal values each get half of the gradient, as in PyTorch's ``maximum``."""

    __slots__ = ()

    def __init__(self, left: Value | Number, right: Value | Number) -> None:
        args = as_values((left, right))
        super().__init__(rule("max").forward(args), args, "max")


class Min(Value):
    """The smaller of two values; gradients as for ``Max``."""

    __slots__ = ()

    def __init__(self, left: Value | Number, right: Value | Number) -> None:
        args = as_values((left, right))
        super().__init__(rule("min").forward(args), args, "min")


def where(condition: Value | Number, a: Value | Number, b: Value | Number) -> Value:
    """Return ``a`` if ``condition``, a comparison of Values, is not 0, and else ``b``.

    Only the result gets a gradient.
    """
    return apply("where", condition, a, b)


class Array(Value):
    """A vector of values, an operand of a ``Dot``.

    It is not a number: its ``data`` is 0, and its gradient is not used.
    """

    __slots__ = ()

    def __init__(self, data: Iterable[Value]) -> None:
        super().__init__(0, data, "array")


class Dot(Value):
    """The sum of ``left_arr[i] * right_arr[i]`` as one node.

    ``_prev`` lists the left factors and then the right ones, or two ``Array``s.
    """

    __slots__ = ()

    def __init__(self, left_arr: Sequence[Value | Number] | Array, right_arr: Sequence[Value | Number] | Array) -> None:
        left, right = (side._prev if isinstance(side, Array) else side for side in (left_arr, right_arr))
        if len(left) != len(right) or not left:
            raise MlaotError(f"Dot: expected two sequences of one length, at least 1; got {len(left)} and {len(right)}")
        args: tuple[Value, ...]
        if isinstance(left_arr, Array) and isinstance(right_arr, Array):
            args = left_arr, right_arr
        else:
            args = as_values((*left, *right))
        super().__init__(rule("dot").forward(args), args, "dot")

    @property
    def left_arr(self) -> tuple[Value, ...]:
        """The left factors."""
        return halves(self._prev)[0]

    @property
    def right_arr(self) -> tuple[Value, ...]:
        """The right factors."""
        return halves(self._prev)[1]


class Rule(NamedTuple):
    """An op.

    ``forward(arguments)`` returns its value, and ``backward(node)`` adds to the gradients of the arguments.
    """

    forward: Callable[[tuple[Value, ...]], float]
    backward: Callable[[Value], None]


@lru_cache(maxsize=1024)
def rule(op: str) -> Rule:
    """Return the rule of an op by its ``_op`` text, ``'**k'`` included."""
    if op.startswith("**"):
        return _power(op[2:])
    if op in FUNCTIONS:
        return _unary(op)
    if op not in _RULES:
        raise MlaotError(f"micrograd: no rule for op {op!r}; set _backward (and _forward) of the node that uses it")
    return _RULES[op]


def as_values(items: Iterable[Value | Number]) -> tuple[Value, ...]:
    """Convert numbers to constant leaves; return values unchanged."""
    return tuple(map(as_value, items))


def as_value(item: Value | Number) -> Value:
    """Convert a number to a constant leaf.

    In a build, a number that was read from the ``data`` of values becomes a node without gradient.
    """
    if isinstance(item, Value):
        return item
    if isinstance(item, Read):
        if item.is_computed:
            leaf = Value(item)
            note_computed(leaf, item.value, item.line)
            return leaf
        kind, reads = item.sources()
        for each in reads:
            forget_read(each.value, each.line)
        return apply(f"{kind} of data", *(each.value for each in reads))
    return Value(item)


def _unless_read(item: Value | Number) -> Value | Number:
    """Return a number unchanged, or the node of the graph that the number was read from."""
    return as_value(item) if isinstance(item, Read) else item


def halves(args: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return the arguments of a ``dot`` node as (left factors, right factors)."""
    if args[0]._op == "array":
        return representatives(args[0]._prev), representatives(args[1]._prev)
    middle = len(args) // 2
    return args[:middle], args[middle:]


def topological_order(*roots: Any) -> list[Any]:
    """Order the values that roots depend on, depth first, each after its arguments.

    Values of the micrograd package work too. The order is that of the recursive definition. A node is popped from the
    stack twice: first to push its arguments, and again, under the mark ``None``, when they are done. A representative
    stands for all values equal to it.
    """
    order: list[Any] = []
    visited: set[Any] = set()
    is_plain = not equal.forwarded
    stack: list[Any] = [*reversed(representatives(roots))]
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())
        elif node not in visited:
            visited.add(node)
            if node._prev:
                stack += (node, None)
                stack += (tuple(node._prev) if is_plain else representatives(node._prev))[::-1]
            else:
                order.append(node)
    if not is_plain:
        place = {node: i for i, node in enumerate(order)}
        if any(place[arg] >= i for i, node in enumerate(order) for arg in representatives(node._prev)):
            raise MlaotError("make_equal_to: a Value was made equal to one that depends on it")
    return order


def apply(op: str, *items: Value | Number) -> Value:
    """Return the result of an op on values and numbers."""
    args = as_values(items)
    return Value(rule(op).forward(args), args, op)


def _recompute(node: Value) -> None:
    if node._prev:
        node._data = rule(node._op).forward(representatives(node._prev))


def _propagate(node: Value) -> None:
    if node._prev:
        rule(node._op).backward(_of_representatives(node))


def _of_representatives(node: Value) -> Value:
    """Return a node with representatives as its arguments, so that these get the gradients."""
    args = representatives(node._prev)
    if args == node._prev:
        return node
    other = Value(node._data, args, node._op)
    other.grad = node.grad
    return other


def _add(args: tuple[Value, ...]) -> float:
    # A loop, not sum(): since Python 3.12 that compensates rounding errors, so results would depend on the version.
    total = args[0]._data
    for arg in args[1:]:
        total += arg._data
    return total


def _add_backward(node: Value) -> None:
    grad = node.grad
    for arg in node._prev:
        arg.grad += grad


def _mul(args: tuple[Value, ...]) -> float:
    left, right = args
    return left._data * right._data


def _mul_backward(node: Value) -> None:
    left, right = node._prev
    left.grad += right._data * node.grad
    right.grad += left._data * node.grad


def _relu(args: tuple[Value, ...]) -> float:
    x = args[0]._data
    return 0 if x < 0 else x


def _relu_backward(node: Value) -> None:
    # Zero of the gradient's own type, as micrograd's `False * grad`, without its nan where the gradient is infinite.
    node._prev[0].grad += node.grad if node._data > 0 else type(node.grad)(0)


def _unary(op: str) -> Rule:
    compute, slope = FUNCTIONS[op]

    def backward(node: Value) -> None:
        x = node._prev[0]
        x.grad += slope(x._data, node._data) * node.grad

    return Rule(lambda args: compute(args[0]._data), backward)


def _extreme(is_at_least: Callable[[float, float], bool]) -> Rule:
    """Return the rule of the larger or the smaller of two values."""

    def forward(args: tuple[Value, ...]) -> float:
        left, right = args[0]._data, args[1]._data
        return left if is_at_least(left, right) or math.isnan(left) else right

    def backward(node: Value) -> None:
        left, right = node._prev
        share = node.grad / 2 if left._data == right._data else node.grad
        if left._data == right._data or not is_at_least(right._data, left._data):  # a nan takes part on both sides
            left.grad += share
        if left._data == right._data or not is_at_least(left._data, right._data):
            right.grad += share

    return Rule(forward, backward)


def _compare(op: str) -> Rule:
    return Rule(lambda args: float(ORDER[op](args[0]._data, args[1]._data)), lambda node: None)


def _where(args: tuple[Value, ...]) -> float:
    return args[1 if args[0]._data else 2]._data


def _where_backward(node: Value) -> None:
    node._prev[1 if node._prev[0]._data else 2].grad += node.grad


def _dot(args: tuple[Value, ...]) -> float:
    total: float = 0
    for left, right in zip(*halves(args), strict=True):
        total += left._data * right._data
    return total


def _dot_backward(node: Value) -> None:
    grad = node.grad
    for left, right in zip(*halves(node._prev), strict=True):
        left.grad += right._data * grad
        right.grad += left._data * grad


def _power(text: str) -> Rule:
    exponent: Number = float(text) if set(text) - set("-0123456789") else int(text)

    def forward(args: tuple[Value, ...]) -> float:
        result: float = args[0]._data ** exponent
        return result

    def backward(node: Value) -> None:
        x = node._prev[0]
        if exponent:  # the derivative of x**0 is 0 at x = 0 too, where 0 * 0**-1 fails
            x.grad += (exponent * x._data ** (exponent - 1)) * node.grad

    return Rule(forward, backward)


_RULES = {
    "+": Rule(_add, _add_backward),
    "*": Rule(_mul, _mul_backward),
    "ReLU": Rule(_relu, _relu_backward),
    "max": _extreme(operator.ge),
    "min": _extreme(operator.le),
    "dot": Rule(_dot, _dot_backward),
    "where": Rule(_where, _where_backward),
    **{op: _compare(op) for op in ORDER},
    "array": Rule(lambda args: 0, lambda node: None),
    "max of data": Rule(lambda args: max(arg._data for arg in args), lambda node: None),
    "min of data": Rule(lambda args: min(arg._data for arg in args), lambda node: None),
}
