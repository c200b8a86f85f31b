"""Dimensions: an int, or a canonical polynomial over named dims (``batch``, ``2 * batch + 3``, ``batch // 4``).

Two expressions that are equal as polynomials are equal as objects, so shapes compare by ``==``. A dim is never
negative. Nothing else is known of a named dim until the module is called.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import gcd
from typing import SupportsIndex, overload

from mlaot.errors import MlaotError
from mlaot.ir.names import identifier


@dataclass(frozen=True)
class Quotient:
    """``top // bottom`` that did not simplify: an atom of a polynomial, like a name.

    The coefficients of ``top`` are in ``0..bottom - 1``, so it is never negative, and C's division rounds down too.
    """

    top: Expr
    bottom: int

    def __str__(self) -> str:
        return f"({self.top}) / {self.bottom}"


Monomial = tuple["str | Quotient", ...]


@dataclass(frozen=True)
class Expr:
    """A sum of ``coefficient * product of atoms``, with the terms in a fixed order. It is never a plain integer."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The named dims in the expression."""
        atoms = [atom for monomial, _ in self.terms for atom in monomial]
        return frozenset().union(*({atom} if isinstance(atom, str) else atom.top.names for atom in atoms))

    @property
    def quotient(self) -> Quotient | None:
        """Return the quotient that is a term by itself with the coefficient 1, if there is exactly one."""
        found = [m[0] for m, coefficient in self.terms if coefficient == 1 and len(m) == 1]
        quotients = [atom for atom in found if isinstance(atom, Quotient)]
        return quotients[0] if len(quotients) == 1 else None

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for monomial, coefficient in _terms(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return _canonical(total)

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return _canonical({monomial: coefficient * other for monomial, coefficient in self.terms})
        product: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                key = tuple(sorted(left + right, key=str))
                product[key] = product.get(key, 0) + a * b
        return _canonical(product)

    def __floordiv__(self, other: int) -> Dim:
        quotient = _canonical({monomial: coefficient // other for monomial, coefficient in self.terms})
        remainder = _canonical({monomial: coefficient % other for monomial, coefficient in self.terms})
        if isinstance(remainder, int):
            return quotient
        shared = gcd(other, *[coefficient for monomial, coefficient in remainder.terms if monomial])
        top = _canonical({monomial: coefficient // shared for monomial, coefficient in remainder.terms})
        bottom = other // shared
        assert isinstance(top, Expr)
        inner = top.quotient
        if inner is not None:  # (x // a + c) // b == (x + c * a) // (a * b)
            rest = top - Expr((((inner,), 1),))
            return (inner.top + rest * inner.bottom) // (inner.bottom * bottom) + quotient
        return Expr((((Quotient(top, bottom),), 1),)) + quotient

    def __sub__(self, other: Dim) -> Dim:
        return self + -1 * other

    def __rsub__(self, other: int) -> Dim:
        return -1 * self + other

    def __neg__(self) -> Dim:
        return self * -1

    __radd__ = __add__
    __rmul__ = __mul__

    def __index__(self, *_: object) -> int:
        raise MlaotError(
            f"the size of the named dim {self} is not known while tracing; loop by mlaot.scan or mlaot.fori_loop; "
            "mlaot.zeros, ones, full, arange, eye and random take named dims in shapes"
        )

    __int__ = __float__ = __truediv__ = __rtruediv__ = __index__
    __mod__ = __rmod__ = __pow__ = __rpow__ = __lt__ = __le__ = __gt__ = __ge__ = __index__

    def __str__(self) -> str:
        """Format text that ``parse`` reads.

        It is also an expression of C if the names are: as dims are never negative, C's division rounds down too.
        """
        return " + ".join(" * ".join([*_factors(m)] + ([str(c)] if c != 1 or not m else [])) for m, c in self.terms)

    __repr__ = __str__


Dim = int | Expr
NOMINAL = 64  # stands for a named dim where costs are compared


@cache
def dim(name: str) -> Expr:
    """Return a named dimension, of which one wheel serves every value."""
    return Expr((((identifier(name, "a dimension"),), 1),))


def parse(text: int | str) -> Dim:
    """Parse a dim: names, integers, ``+``, ``-``, ``*``, ``/`` or ``//`` by an integer, and parentheses."""
    if isinstance(text, int):
        return text
    tokens = TOKEN.findall(text)
    value = _sum(tokens)
    if tokens:
        raise ValueError(f"{text!r} is no dimension")
    return value


TOKEN = re.compile(r"//|[-+*/()]|[^-+*/()\s]+")


def _sum(tokens: list[str]) -> Dim:
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign = -1 if tokens.pop(0) == "-" else 1
        value = value + _product(tokens) * sign
    return value


def _product(tokens: list[str]) -> Dim:
    value = _atom(tokens)
    while tokens and tokens[0] in ("*", "/", "//"):
        operation, other = tokens.pop(0), _atom(tokens)
        if operation == "*":
            value = value * other
        elif isinstance(other, int) and other > 0:
            value = value // other
        else:
            raise ValueError(f"a dimension is divided by {other}")
    return value


def _atom(tokens: list[str]) -> Dim:
    token = tokens.pop(0) if tokens else "the end"
    if token == "-":
        return _atom(tokens) * -1
    if token == "(":
        value = _sum(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise ValueError("a parenthesis of a dimension is open")
        return value
    if token.isascii() and token.isdecimal():
        return int(token)
    if not token.isidentifier():
        raise ValueError(f"expected a name or an integer in a dimension, got {token!r}")
    return dim(token)


def extent(value: object) -> Dim:
    """Check one entry of a shape that a user gave."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, SupportsIndex) and not isinstance(value, bool) and operator.index(value) >= 0:
        return operator.index(value)
    raise MlaotError(f"a shape is made of integers and of dims such as mlaot.dim('batch'), got {value!r}")


def names(value: Dim) -> frozenset[str]:
    """Return the named dims in ``value``."""
    return value.names if isinstance(value, Expr) else NO_NAMES


NO_NAMES: frozenset[str] = frozenset()


class Unequal(MlaotError):
    """Two extents that must be equal differ, or are equal only for some sizes of the named dims."""

    def __init__(self, message: str, one: Dim, other: Dim) -> None:
        super().__init__(message)
        self.extents = one, other


@overload
def substitute(value: Dim, values: Mapping[str, int]) -> int: ...
@overload
def substitute(value: Dim, values: Mapping[str, Dim]) -> Dim: ...
def substitute(value: Dim, values: Mapping[str, Dim]) -> Dim:
    """Evaluate ``value`` with a value for each named dim."""
    if not isinstance(value, Expr):
        return value
    total: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        term: Dim = 1
        for atom in monomial:
            factor = values[atom] if isinstance(atom, str) else substitute(atom.top, values) // atom.bottom
            if isinstance(factor, int):  # most of them, and cheaper than a product of polynomials
                coefficient *= factor
            else:
                term = factor if term == 1 else term * factor
        for key, part in _terms(term):
            total[key] = total.get(key, 0) + part * coefficient
    return _canonical(total)


def assign(value: Dim, values: Mapping[str, Dim]) -> Dim:
    """Evaluate ``value`` with values for some of its named dims; the others stay."""
    own = names(value)
    if own.isdisjoint(values):
        return value
    return substitute(value, {name: values[name] if name in values else dim(name) for name in own})


def step_of(value: Dim, name: str) -> Dim:
    """Return the increase of ``value`` if a named dim increases by one."""
    if name not in names(value):
        return 0
    return assign(value, {name: dim(name) + 1}) + -1 * value


def nominal(value: Dim) -> int:
    """Evaluate ``value`` with ``NOMINAL`` for every named dim, to compare costs."""
    return substitute(value, dict.fromkeys(names(value), NOMINAL))


def nonnegative(value: Dim) -> bool:
    """Tell whether ``value >= 0`` is certain for all values of the named dims.

    A subtracted quotient is bounded from above by ``top / bottom``, and any other quotient from below by ``(top -
    bottom + 1) / bottom``. A sum of products without a negative coefficient is certainly nonnegative. In ``n // 2 - n
    // 4`` the second quotient is bounded by ``(n // 2) / 2``.
    """
    terms = _terms(value)
    if all(coefficient >= 0 for _, coefficient in terms):
        return True
    for monomial, coefficient in sorted(terms, key=lambda term: term[1]):
        for i, atom in enumerate(monomial):
            if isinstance(atom, Quotient):
                bottom, bound = atom.bottom, atom.top - (atom.bottom - 1)
                if coefficient < 0:
                    inner = max((b for b in _bottoms(terms) if b < bottom and bottom % b == 0), default=1)
                    bottom, bound = bottom // inner, atom.top // inner
                cofactor = _canonical({monomial[:i] + monomial[i + 1 :]: coefficient})
                rest = _canonical(dict(terms) | {monomial: 0})
                return nonnegative(rest * bottom + bound * cofactor)
    return False


def _bottoms(terms: tuple[tuple[Monomial, int], ...]) -> set[int]:
    return {atom.bottom for monomial, _ in terms for atom in monomial if isinstance(atom, Quotient)}


def most(a: Dim, b: Dim) -> Dim:
    """Return an upper bound of both dims, as small as their coefficients allow."""
    if nonnegative(a - b):
        return a
    a_terms, b_terms = dict(_terms(a)), dict(_terms(b))
    return _canonical({key: max(a_terms.get(key, 0), b_terms.get(key, 0)) for key in {**a_terms, **b_terms}})


def largest(value: Dim, most: Mapping[str, Dim]) -> Dim:
    """Return an upper bound of ``value``, given upper bounds ``most`` of named dims."""
    if names(value).isdisjoint(most):
        return value
    total: Dim = 0
    for monomial, coefficient in _terms(value):
        bounds = most if coefficient > 0 else dict.fromkeys(most, 0)
        term: Dim = coefficient
        for atom in monomial:
            name = dim(atom) if isinstance(atom, str) else Expr((((atom,), 1),))
            factor = assign(name, bounds)
            term = term * factor if isinstance(factor, int) else factor * term
        total = total + term
    return total


def product(shape: tuple[Dim, ...]) -> Dim:
    """Return the number of elements of ``shape``."""
    size: Dim = 1
    for d in shape:
        size = d * size if isinstance(d, Expr) else size * d
    return size


def quotient(value: Dim, by: Dim) -> Dim | None:
    """Return ``value / by`` for a ``by`` of one term, or None if the division has a remainder."""
    divisor = _terms(by)
    if len(divisor) != 1:
        return None
    ((monomial, factor),) = divisor
    result: dict[Monomial, int] = {}
    for atoms, coefficient in _terms(value):
        rest = list(atoms)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % factor:
            return None
        result[tuple(rest)] = coefficient // factor
    return _canonical(result)


def terms(value: Dim) -> dict[Monomial, int]:
    """Return the coefficient of each monomial of ``value``, without those that are 0."""
    return {monomial: coefficient for monomial, coefficient in _terms(value) if coefficient}


def polynomial(coefficients: dict[Monomial, int]) -> Dim:
    """Return the dim with the given coefficient of each monomial."""
    return _canonical(coefficients)


def _factors(monomial: Monomial) -> list[str]:
    """Format a product of atoms in C. A quotient after another factor needs parentheses."""
    return [f"({atom})" if i and isinstance(atom, Quotient) else str(atom) for i, atom in enumerate(monomial)]


def _terms(value: Dim) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Expr) else (((), value),)


def _canonical(terms: dict[Monomial, int]) -> Dim:
    kept = {m: coefficient for m, coefficient in terms.items() if coefficient} if 0 in terms.values() else terms
    if not kept:
        return 0
    if len(kept) == 1:
        return kept[()] if () in kept else Expr(tuple(kept.items()))
    return Expr(tuple(sorted(kept.items(), key=lambda term: _rank(term[0]))))


@cache
def _rank(monomial: Monomial) -> tuple[int, str]:
    """Return the sort key of a monomial in a sum: monomials of many factors come first."""
    return -len(monomial), str(monomial)
