"""Dims: polynomials over names, equal as objects where they are equal as polynomials."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mlaot.errors import MlaotError
from mlaot.ir.dims import Dim, Expr, Quotient, dim, largest, names, nonnegative, product, quotient, substitute
from mlaot.lower.plan import at_least

NAMES = ("batch", "n", "m")
VALUES = some.fixed_dictionaries({n: some.integers(0, 50) for n in NAMES})


def grown(parts: Any) -> Any:
    """Sums, products and quotients of smaller dims."""
    return (
        some.tuples(parts, parts).map(lambda p: p[0] + p[1])
        | some.tuples(parts, parts).map(lambda p: p[0] * p[1])
        | some.tuples(parts, some.integers(1, 8)).map(lambda p: p[0] // p[1])
    )


DIMS = some.recursive(some.integers(0, 9) | some.sampled_from(NAMES).map(dim), grown, max_leaves=6)


@given(DIMS, DIMS, VALUES)
def test_arithmetic_is_that_of_numbers(a: Dim, b: Dim, values: dict[str, int]) -> None:
    x, y = substitute(a, values), substitute(b, values)
    assert substitute(a + b, values) == x + y
    assert substitute(a * b, values) == x * y
    assert substitute(a // 4, values) == x // 4


@given(DIMS, DIMS, DIMS)
def test_laws_give_equal_objects(a: Dim, b: Dim, c: Dim) -> None:
    assert a + b == b + a and a * b == b * a
    assert (a + b) + c == a + (b + c) and (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + 0 == a and a * 1 == a and a * 0 == 0 and a // 1 == a
    assert (a * 6) // 3 == a * 2
    assert hash(a + b) == hash(b + a)


def polynomials(parts: Any) -> Any:
    return some.tuples(parts, parts).map(lambda p: p[0] + p[1]) | some.tuples(parts, parts).map(lambda p: p[0] * p[1])


POLYNOMIALS = some.recursive(some.integers(0, 9) | some.sampled_from(NAMES).map(dim), polynomials, max_leaves=6)


@given(POLYNOMIALS, POLYNOMIALS, some.integers(1, 8), some.integers(1, 8))
def test_quotients_of_quotients_are_one(a: Dim, b: Dim, inner: int, outer: int) -> None:
    """However often an image is halved, the text of its size has one division."""
    assert (a // inner + b) // outer == (a + b * inner) // (inner * outer)
    assert (a // inner - b) // outer == (a - b * inner) // (inner * outer)
    assert (a * inner + inner - 1) // (inner * outer) == a // outer


@given(DIMS, VALUES)
def test_text_is_c(a: Dim, values: dict[str, int]) -> None:
    assert eval(str(a).replace("/", "//"), {}, dict(values)) == substitute(a, values)


@given(DIMS, DIMS, VALUES)
def test_differences_round_down(a: Dim, b: Dim, values: dict[str, int]) -> None:
    """By quotients that C's division, which truncates, rounds down too."""
    quotient = (a - b) // 4
    assert substitute(quotient, values) == (substitute(a, values) - substitute(b, values)) // 4
    assert all(substitute(atom.top, values) >= 0 for atom in quotients(quotient))


def quotients(value: Dim) -> list[Quotient]:
    atoms = [atom for monomial, _ in value.terms for atom in monomial] if isinstance(value, Expr) else []
    return [atom for atom in atoms if isinstance(atom, Quotient)]


@given(DIMS, DIMS, VALUES)
def test_what_is_certain_holds(a: Dim, b: Dim, values: dict[str, int]) -> None:
    assert nonnegative(a)
    assert substitute(a - b, values) >= 0 or not nonnegative(a - b)


@given(some.integers(0, 9), some.integers(1, 8), some.integers(1, 8))
def test_a_part_is_no_more_than_the_whole(more: int, inner: int, outer: int) -> None:
    a = dim("n") + more
    assert nonnegative(a - a // inner) and nonnegative(a // inner - a // (inner * outer))


@given(DIMS)
def test_names_are_those_in_the_text(a: Dim) -> None:
    assert names(a) == {n for n in NAMES if n in str(a)}
    assert isinstance(a, int) == (not names(a)) or isinstance(a, Expr)


@given(some.lists(DIMS, max_size=4), VALUES)
def test_product(shape: list[Dim], values: dict[str, int]) -> None:
    expected = 1
    for d in shape:
        expected *= substitute(d, values)
    assert substitute(product(tuple(shape)), values) == expected


def test_a_quotient_is_exact() -> None:
    a, b = dim("a"), dim("b")
    assert quotient(6 * a * b + 4 * a, 2 * a) == 3 * b + 2
    assert quotient(12, 4) == 3 and quotient(2 * a, a) == 2 and quotient(a * a, a) == a
    assert all(quotient(*pair) is None for pair in ((6, 4), (3 * a, 2), (a, b), (a * b + 1, a), (a, a + 1), (2, a)))


@given(DIMS, DIMS, VALUES)
def test_at_least_is_never_wrong(a: Dim, b: Dim, values: dict[str, int]) -> None:
    if at_least(a, b):
        assert substitute(a, values) >= substitute(b, values)


@given(DIMS, DIMS, VALUES, some.dictionaries(some.sampled_from(NAMES), some.integers(0, 9)))
def test_largest_is_never_too_small(a: Dim, b: Dim, values: dict[str, int], more: dict[str, int]) -> None:
    most: dict[str, Dim] = {name: values[name] + spare for name, spare in more.items()}
    bound = largest(a - b, most)
    assert substitute(bound, values) >= substitute(a - b, values)
    assert names(bound) <= names(a - b) - most.keys()


def test_largest() -> None:
    n, found = dim("n"), dim("found")
    assert (
        largest(n - found, {"found": n}) == n and largest(2 * found * n - found, {"found": n + 1}) == 2 * n * n + 2 * n
    )
    assert largest((found + 7) // 8 * 8, {"found": 2 * n}) == (2 * n + 7) // 8 * 8


def test_text() -> None:
    n = dim("n")
    assert str((n // 2) * (n // 3)) == "(n) / 2 * ((n) / 3)"
    assert str((((n + 1) // 2 + 1) // 2 + 1) // 2 * 2 + n // 2 // 3) == "(n + 7) / 8 * 2 + (n) / 6"
    assert [str(d) for d in (n, n + 1, 2 * n + 3, n * n, (n + 7) // 8 * 8, n * 0 + 4)] == [
        *("n", "n + 1", "n * 2 + 3", "n * n"),
        *("(n + 7) / 8 * 8", "4"),
    ]


def test_a_name_is_an_identifier() -> None:
    with pytest.raises(MlaotError, match="must be an identifier"):
        dim("a b")
