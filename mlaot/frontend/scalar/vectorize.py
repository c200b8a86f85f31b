"""The vectorizer of Max Bernstein's second post, on values: ``optimize``.

    v4 = * x0 w0                   v4 = array x0 x1
    v5 = * x1 w1                   v5 = array w0 w1
    v6 = + v4 v5         =>        v6 = dot v4 v5
    v7 = + v6 b                    v7 = + v6 b

Nested sums become one sum of many arguments, and then the products of each sum become a dot of two arrays. This is
greedy: a sum of ten dots of 50 terms becomes one dot of 500 terms. The compiler, which looks for matrices, has other
passes (``flatten_sums`` and ``raise_tensors``), and does not need ``optimize``.
"""

from __future__ import annotations

from collections import Counter

from mlaot.frontend.scalar.engine import Array, Dot, Value, apply, topological_order
from mlaot.frontend.scalar.equal import find, make_equal_to, representatives


def optimize(root: Value) -> Value:
    """Make sums of products below ``root`` equal to dots of arrays, and return the value that ``root`` is equal to.

    New values are evaluated. A sum that several values use remains a single sum.
    """
    _flatten(root)
    _make_dots(root)
    return find(root)  # type: ignore[no-any-return]


def _flatten(root: Value) -> None:
    order = topological_order(root)
    uses = Counter(arg for node in order for arg in representatives(node._prev))
    sums = [node for node in order if node._op == "+"]
    inner = {arg for node in sums for arg in representatives(node._prev) if arg._op == "+" and uses[arg] == 1}
    for node in sums:
        if node in inner:
            continue
        terms: list[Value] = []
        stack = [*representatives(node._prev)[::-1]]
        while stack:
            term = stack.pop()
            if term in inner:
                stack += representatives(term._prev)[::-1]
            else:
                terms.append(term)
        if len(terms) > len(node._prev):
            make_equal_to(node, _sum(terms))


def _make_dots(root: Value) -> None:
    arrays: dict[tuple[Value, ...], Array] = {}
    for node in topological_order(root):
        terms = representatives(node._prev)
        products = [representatives(term._prev) for term in terms if term._op == "*"]
        if node._op == "+" and products:
            left, right = (arrays.setdefault(side, Array(side)) for side in zip(*products, strict=True))
            make_equal_to(node, _sum([Dot(left, right), *(term for term in terms if term._op != "*")]))


def _sum(terms: list[Value]) -> Value:
    return apply("+", *terms) if len(terms) > 1 else terms[0]
