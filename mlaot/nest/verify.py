"""Verify a loop nest: its types, that indices are inside of their arrays, and that threads may share parallel rounds.

Indices are bounded for some sizes of the dims. An index that is linear in each loop variable is smallest and largest at
ends of the loops around it. So the innermost variable is replaced by an end of its loop until a number is left:

    i * 8 + j, i in 0 .. 4, j in 0 .. i + 1    largest: j = i, then i = 3: 3 * 8 + 3 = 27

Indices that depend on loaded values are not checked, nor statements under a condition that these bounds do not decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mlaot.ir.dims import Dim, Quotient, assign, dim, names, substitute
from mlaot.ir.dims import Expr as Polynomial
from mlaot.nest.expressions import Array, Call, Expr, Index, Load, subexpressions
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Body,
    Choose,
    For,
    If,
    Invoke,
    Let,
    Mutable,
    Nest,
    Sort,
    Statement,
    Store,
    While,
    bodies,
    expressions,
)
from mlaot.nest.types import check_types

ROUND = "round"  # the variables of loops around nests begin so
SIZES = (0, 1, 2, 7, 64, 1000)
MAX_POINTS = 2_000  # rounds that are enumerated at most


def verify(nest: Nest, sizes: Sequence[int] = SIZES, *, disjoint: bool = True) -> None:
    """Raise an AssertionError that names the nest and the statement where something is wrong.

    Indices are bounded with all dims equal to each of ``sizes`` in turn, in the first round of loops around the nest.
    With ``disjoint``, rounds of parallel loops must write different elements. If the ranges of their indices do not
    show this, and there are few rounds, each round is tried.
    """
    check_types(nest)
    _check_written(nest.body, set(), nest)
    rounds = {name: 0 for name in nest.dims if name.startswith(ROUND)}
    for size in sizes:
        if rounds and size == 0:  # there is no first round
            continue
        checked = _Ranges(nest, dict.fromkeys(nest.dims, size) | rounds, disjoint)
        if all(checked.size(array) >= 0 for array in nest.params):  # entries refuse other dims
            checked.body(nest.body, _Scope({}, ()))


def _check_written(body: Body, empty: set[str], nest: Nest) -> None:
    """Check that a nest reads no array of its own before it writes it; ``empty`` has those not written yet."""
    for s in body:
        for x in expressions(s):
            read = {e.array.name for e in subexpressions(x) if isinstance(e, Load)} & empty
            assert not read, f"bug in mlaot: {nest.name}: {sorted(read)} is read before it is written in {s}"
        if isinstance(s, Alloc) and not s.array.values:
            empty.add(s.array.name)
        elif isinstance(s, Store):
            empty.discard(s.array.name)
        elif isinstance(s, Invoke | Sort):
            empty.discard(s.target.name)
        for inner in bodies(s):
            _check_written(inner, empty, nest)


@dataclass(frozen=True)
class _Around:
    """A loop around a statement, with the smallest and the largest value of its variable as polynomials."""

    loop: For
    low: Dim
    high: Dim


@dataclass(frozen=True)
class _Scope:
    """The context of a statement.

    ``values`` has the values of index variables, None for any value. ``loops`` are the loops around the statement, and
    ``guarded`` is true under a condition.
    """

    values: Mapping[str, Dim | None]
    loops: tuple[_Around, ...]
    guarded: bool = False


@dataclass(frozen=True)
class _Use:
    """Elements of an array that a statement reads or writes: from ``first`` on, each ``step``, up to ``reach`` further.

    A ``first`` of None is unknown.
    """

    statement: Statement
    array: Array
    first: Dim | None
    reach: Dim
    written: bool
    scope: _Scope
    step: Dim = 1


class _Ranges:
    """A checker of the indices of a nest for fixed dims."""

    def __init__(self, nest: Nest, dims: Mapping[str, int], disjoint: bool) -> None:
        self.nest = nest
        self.disjoint = disjoint
        self.dims = dims
        self.unsized: set[str] = set()  # arrays of unknown sizes
        self.digits: dict[tuple[int, int], tuple[_Use, int | None, _Digits | None]] = {}
        self.cache: dict[tuple[int, int], tuple[_Use, dict[int, set[int]] | None]] = {}
        self.empty: dict[int, tuple[_Around, bool]] = {}

    def fail(self, problem: str, s: Statement) -> None:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.dims.items())
        raise AssertionError(f"bug in mlaot: {self.nest.name}: {problem} in {s}" + f" where {sizes}" * bool(sizes))

    def size(self, array: Array) -> int:
        size = self.polynomial(array.size, _Scope({}, ()))
        return size if isinstance(size, int) else 0

    def value(self, x: Expr, scope: _Scope) -> Dim | None:
        """Return an index as a polynomial in loop variables, or None if it is no such polynomial."""
        return self.polynomial(x.value, scope) if isinstance(x, Index) else None

    def polynomial(self, value: Dim, scope: _Scope) -> Dim | None:
        values: dict[str, Dim] = {}
        for name in names(value):
            bound = scope.values.get(name, self.dims.get(name))
            if bound is None:
                return None
            values[name] = bound
        return substitute(value, values)

    def body(self, body: Body, scope: _Scope) -> list[_Use]:
        """Check a body; return the elements of outer arrays that it reads and writes."""
        uses: list[_Use] = []
        own: set[str] = set()
        for s in body:
            own_uses = [*self.uses(s, scope)]
            for use in own_uses:
                self.check_bounds(use)
            uses += own_uses
            if isinstance(s, Alloc):
                own.add(s.array.name)
            elif isinstance(s, Choose):
                self.unsized.add(s.array.name)
            elif isinstance(s, Let | Mutable | Invoke):
                value = self.value(s.value, scope) if isinstance(s, Let) else None
                scope = replace(scope, values={**scope.values, s.var.name: value})
            elif isinstance(s, For):
                uses += self.loop(s, scope)
            elif isinstance(s, If) and (holds := self.truth(s.condition, scope)) is not None:
                uses += self.body(s.body if holds else s.otherwise, scope)
            else:
                guarded = scope.guarded or isinstance(s, If | While)
                uses += [u for inner in bodies(s) for u in self.body(inner, replace(scope, guarded=guarded))]
        return [u for u in uses if u.array.name not in own]

    def truth(self, condition: Expr, scope: _Scope) -> bool | None:
        """Tell whether two indices are equal, or return None if that differs between rounds of the loops around."""
        if not (isinstance(condition, Call) and condition.name == "eq"):
            return None
        left, right = (self.value(x, scope) for x in condition.args)
        if left is None or right is None:
            return None
        difference = left + right * -1
        low, high = (self.extreme(difference, scope.loops, largest=largest) for largest in (False, True))
        if low is None or high is None:
            return None
        return False if low > 0 or high < 0 else True if low == high else None

    def loop(self, s: For, scope: _Scope) -> list[_Use]:
        """Check a loop; its variable is bounded by its first and its last value."""
        low = self.value(_widest(s.low), scope)
        high = self.value(_widest(s.high) if isinstance(low, int) else s.high, scope)
        if low is None or high is None:
            inner = replace(scope, values={**scope.values, s.var.name: None})
            return self.body(s.body, inner)
        rest = high + low * -1 + -1
        if isinstance(rest, int):
            if rest < 0:
                return []
            high = low + rest // s.step * s.step
        else:
            high = high + -1
        # Loops inside others may have variables of the same name, so each gets a unique one here.
        name = f"{s.var.name}_{len(scope.loops)}"
        around = _Around(replace(s, var=replace(s.var, name=name)), low, high)
        inner = replace(scope, values={**scope.values, s.var.name: dim(name)}, loops=(*scope.loops, around))
        uses = self.body(s.body, inner)
        if s.parallel and self.disjoint:
            self.check_disjoint(s, uses, len(scope.loops))
        return uses

    def uses(self, s: Statement, scope: _Scope) -> Iterator[_Use]:
        """Yield the elements that a statement itself uses."""
        for x in expressions(s):
            for e in subexpressions(x):
                if isinstance(e, Load):
                    yield self.use(s, e, e.type.lanes, scope)
        if isinstance(s, Store):
            yield self.use(s, s, s.value.type.lanes, scope)
        elif isinstance(s, Invoke):
            count = self.value(s.count, scope)
            if count != 0:
                first = None if count is None else self.value(s.index, scope)
                yield _Use(s, s.source, first, 0 if count is None else count + -1, False, scope)
            yield _Use(s, s.target, None, 0, True, scope)
        elif isinstance(s, Sort):
            count = self.value(s.count, scope)
            if count != 0:
                for array, start, step in ((s.source, s.index, s.step), (s.target, s.place, Index(1))):
                    first, by = self.value(start, scope), self.value(step, scope)
                    if count is None or by is None:
                        yield _Use(s, array, None, 0, array is s.target, scope)
                    else:
                        yield _Use(s, array, first, (count + -1) * by, array is s.target, scope)

    def use(self, s: Statement, at: Load | Store, lanes: int, scope: _Scope) -> _Use:
        """Describe the elements of a load or a store; unknown strides or counts make them unknown."""
        first, step = self.value(at.index, scope), self.polynomial(at.step, scope)
        last: Dim | None = max(lanes, 1) - 1
        if at.count is not None:
            count = self.value(at.count, scope)
            last = None if count is None else count + -1
            if isinstance(last, int):
                last = min(last, lanes - 1)
        if step is None or last is None:
            return _Use(s, at.array, None, 0, isinstance(at, Store), scope)
        reach = last * step if isinstance(last, Polynomial) else step * last
        return _Use(s, at.array, first, reach, isinstance(at, Store), scope, step)

    def check_bounds(self, use: _Use) -> None:
        """Check that every element lies in its array."""
        size = use.array.panels.size if use.array.panels else self.polynomial(use.array.size, _Scope({}, ()))
        if use.first is None or not isinstance(size, int) or use.scope.guarded or use.array.name in self.unsized:
            return
        ends = (use.first,) if isinstance(use.reach, int) else (use.first, use.first + use.reach)
        low = [self.extreme(e, use.scope.loops, largest=False) for e in ends]
        high = [self.extreme(e, use.scope.loops, largest=True) for e in ends]
        if None in low or None in high or any(self.is_empty(a, use.scope.loops) for a in use.scope.loops):
            return
        smallest, largest = min(x for x in low if x is not None), max(x for x in high if x is not None)
        if isinstance(use.reach, int):
            smallest, largest = smallest + min(use.reach, 0), largest + max(use.reach, 0)
        if smallest < 0 or largest >= size:
            self.fail(f"{use.array.name} has {size} elements, used are {smallest} to {largest}", use.statement)

    def is_empty(self, a: _Around, loops: Sequence[_Around]) -> bool:
        """Tell whether a loop may have no rounds, so that its ends are not among its values."""
        if id(a) not in self.empty:
            least = self.extreme(a.high + a.low * -1, loops, largest=False)
            self.empty[id(a)] = a, least is None or least < 0
        return self.empty[id(a)][1]

    def extreme(self, value: Dim, loops: Sequence[_Around], *, largest: bool) -> int | None:
        """Return the smallest or largest value of a polynomial, or None if it is not linear in a variable.

        For ``v = c * i + rest`` it is at an end of i's loop: the largest value for c > 0 is at the high end. The ends
        are polynomials in outer variables, which are replaced in turn, the innermost first.
        """
        for a in reversed(loops):
            if isinstance(value, int):
                return value
            name = a.loop.var.name
            slope = slope_of(value, name)
            if slope is None:
                return None
            end = a.high if (slope > 0) == largest else a.low
            value = assign(value, {name: end})
        return value if isinstance(value, int) else None

    def check_disjoint(self, loop: For, uses: Sequence[_Use], depth: int) -> None:
        """Check that no round of a parallel loop uses an element that another round writes."""
        self.check_carried(loop.body, set(), loop)
        doubtful: dict[str, dict[int, _Use]] = {}
        for written in uses:
            if not written.written:
                continue
            for other in uses:
                if other.array.name == written.array.name and not self.differ(written, other, depth):
                    doubtful.setdefault(other.array.name, {}).update({id(written): written, id(other): other})
        for name, pairs in doubtful.items():
            shared = self.shared_element([*pairs.values()], depth)
            if shared is not None:
                self.fail(f"rounds over {loop.var.name} share elements of {name}", shared.statement)

    def check_carried(self, body: Body, own: set[str], loop: For) -> None:
        """Check that no round changes a variable from outside of the loop."""
        own = set(own)
        for s in body:
            if isinstance(s, Let | Mutable):
                own.add(s.var.name)
            elif isinstance(s, Assign) and s.var.name not in own:
                self.fail(f"rounds over {loop.var.name} share {s.var.name}", s)
            for inner in bodies(s):
                self.check_carried(inner, own, loop)

    def shared_element(self, uses: Sequence[_Use], depth: int) -> _Use | None:
        """Return a use of an element that another round writes, if there are few enough rounds to try all."""
        written: dict[int, set[int]] = {}
        for use in uses:
            if use.written:
                for element, rounds in (self.elements_of(use, depth) or {}).items():
                    written[element] = written.get(element, set()) | rounds
        for use in uses:
            for element, rounds in (self.elements_of(use, depth) or {}).items():
                if len(written.get(element, rounds) | rounds) > 1:
                    return use
        return None

    def slope_and_digits(self, use: _Use, depth: int) -> tuple[int | None, _Digits | None]:
        """Return how far a round of the loop at ``depth`` moves a use, and the use's elements in the inner rounds.

        Unknown results are None.
        """
        key = id(use), depth
        if key not in self.digits:
            assert use.first is not None
            slope = slope_of(use.first, use.scope.loops[depth].loop.var.name)
            self.digits[key] = use, slope, _digits(self, use, depth)
        return self.digits[key][1:]

    def elements_of(self, use: _Use, depth: int) -> dict[int, set[int]] | None:
        """Return the elements of a use with the rounds of the loop at ``depth`` that use them; None if too many."""
        key = id(use), depth
        if key not in self.cache:
            self.cache[key] = use, self.rounds_of_elements(use, depth)
        return self.cache[key][1]

    def rounds_of_elements(self, use: _Use, depth: int) -> dict[int, set[int]] | None:
        """Enumerate the rounds of all loops from ``depth`` on, the outer ones being in their first round."""
        points: list[dict[str, Dim]] = [{}]
        for i, a in enumerate(use.scope.loops):
            name, extended = a.loop.var.name, list[dict[str, Dim]]()
            for point in points:
                low, high = assign(a.low, point), assign(a.high, point)
                if not (isinstance(low, int) and isinstance(high, int)) or high - low >= MAX_POINTS:
                    return None
                values = range(low, high + 1, a.loop.step) if i >= depth else range(low, low + 1)
                extended += [{**point, name: value} for value in values]
                if len(extended) > MAX_POINTS:
                    return None
            points = extended
        result: dict[int, set[int]] = {}
        assert use.first is not None
        for point in points:
            first, reach, step = (assign(x, point) for x in (use.first, use.reach, use.step))
            if not (isinstance(first, int) and isinstance(reach, int) and isinstance(step, int)):
                return None
            own = point[use.scope.loops[depth].loop.var.name]
            assert isinstance(own, int)
            for element in range(first, first + reach + 1, max(step, 1)):
                result.setdefault(element, set()).add(own)
        return result

    def differ(self, a: _Use, b: _Use, depth: int) -> bool:
        """Tell whether two uses are of different elements in different rounds of the loop at ``depth``.

        The result is True if the elements or their condition are unknown. See ``_is_mixed_radix``.
        """
        if a.first is None or b.first is None or a.scope.guarded or b.scope.guarded:
            return True
        slopes, digits = zip(*[self.slope_and_digits(x, depth) for x in (a, b)], strict=True)
        if None in slopes:
            return True
        if slopes[0] != slopes[1]:
            return False
        around = a.scope.loops[depth]
        rounds = self.extreme(around.high + around.low * -1, a.scope.loops[:depth], largest=True)
        if rounds is None or digits[0] is None or digits[1] is None:
            return True
        own = abs(slopes[0] or 0) * around.loop.step
        return rounds < around.loop.step or _is_mixed_radix(own, rounds // around.loop.step, digits[0], digits[1])


@dataclass(frozen=True)
class _Digits:
    """The elements of a use in all rounds of the loops inside one: ``start + sum(weight_i * digit_i)``.

    ``spans`` are pairs of a weight and the largest digit: an index's slope times the loop's step, and rounds - 1.
    Variables of outer loops are the same for all uses, at an end of their loops.
    """

    start: int
    spans: tuple[tuple[int, int], ...]

    def below(self, weight: int) -> int:
        """Return the largest distance by which digits of smaller weights move the element."""
        return sum(w * most for w, most in self.spans if w < weight)


def _digits(ranges: _Ranges, use: _Use, depth: int) -> _Digits | None:
    """Return the digits of a use in the loops inside of the one at ``depth``, or None if they are unknown."""
    reach = ranges.extreme(use.reach, use.scope.loops, largest=True)
    start = None if use.first is None else ranges.extreme(use.first, use.scope.loops, largest=False)
    if reach is None or start is None or use.first is None:
        return None
    spans = [(1, reach)]
    for i, a in enumerate(use.scope.loops[depth + 1 :], depth + 1):
        slope = slope_of(use.first, a.loop.var.name)
        extent = ranges.extreme(a.high + a.low * -1, use.scope.loops[:i], largest=True)
        if slope is None or extent is None:
            return None
        spans.append((abs(slope) * a.loop.step, max(extent, 0) // a.loop.step))
    return _Digits(start, tuple((w, most) for w, most in spans if w and most))


def _is_mixed_radix(own: int, rounds: int, a: _Digits, b: _Digits) -> bool:
    """Tell whether two sums of digits, each times its weight, differ whenever their digits of weight ``own`` do.

    This holds in a mixed radix, as a day of 7 and an hour of 24 name each hour once. Every weight from ``own`` on must
    exceed the largest sum of all digits of smaller weights: w_k > sum(w_i * most_i for w_i < w_k). The distance between
    the starts is first written in the same weights.
    """
    lower, upper = sorted((a, b), key=lambda x: x.start)
    ends = lower.start + lower.below(own) + own * rounds + sum(w * most for w, most in lower.spans if w >= own)
    if ends < upper.start:
        return True
    larger: dict[int, int] = {}
    for weight, most in (*a.spans, *b.spans):
        if weight >= own:
            larger[weight] = max(most, larger.get(weight, 0))
    rest = upper.start - lower.start
    for weight in sorted(larger, reverse=True):
        steps = (rest + weight // 2) // weight
        larger[weight] += abs(steps)
        rest -= steps * weight
    if abs(rest) >= own:
        larger[abs(rest)], rest = 1, 0
    below = max(lower.below(own), upper.below(own) + rest) - min(0, rest)
    total = below + own * rounds
    if own <= below:
        return False
    for weight in sorted(larger):
        if weight <= total:
            return False
        total += weight * larger[weight]
    return True


def _widest(end: Expr) -> Expr:
    """Return a number that an end of a loop does not exceed: 5 for ``least(x, 5)``, 0 for ``most(x, 0)``."""
    if isinstance(end, Call) and end.name in ("least", "most"):
        return next((x for x in end.args[1:] if isinstance(x, Index) and isinstance(x.value, int)), end)
    return end


def slope_of(value: Dim, name: str) -> int | None:
    """Return the factor of a variable in a polynomial, or None if that is not linear in it with a number."""
    if isinstance(value, int):
        return 0
    total = 0
    for monomial, factor in value.terms:
        if monomial == (name,):
            total += factor
        elif any(name == atom or (isinstance(atom, Quotient) and name in names(atom.top)) for atom in monomial):
            return None
    return total
