"""``.data`` read while a graph is built, as numbers that know which value they are the number of.

    most = max(v.data for v in scores)
    exps = [(v - most).exp() for v in scores]    # the largest of the scores, whatever the module is given

Where such a number meets a ``Value`` in arithmetic, the graph has the value itself, without its gradient, and not the
number of that moment. Python's ``max`` and ``min`` compare, and a number remembers what it was compared with: what they
return is the largest or smallest of all. Arithmetic makes a number that is ``computed``: the graph has no value for it,
and where it comes from an input, it must not get there. Anything else, as a function of ``math``, makes a plain number.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

SIDES = ("add", "sub", "mul", "truediv", "pow")
ARITHMETIC = ("__neg__", "__abs__", *(f"__{side}{name}__" for name in SIDES for side in ("", "r")))
_numbers = count()


class Read:
    """A number read from ``value``, and the reads that it turned out to be larger or smaller than."""

    value: Any
    line: Any
    number: int  # in the order of reading
    is_computed: bool
    larger_than: list[Read]
    smaller_than: list[Read]

    def of(self, value: Any, line: Any) -> Any:
        """Note whose number this is, and the line that read it."""
        self.value, self.line, self.number = value, line, next(_numbers)
        self.larger_than, self.smaller_than, self.is_computed = [], [], False
        return self

    def sources(self) -> tuple[str, list[Read]]:
        """Return ``"max"`` or ``"min"``, and the reads of which this is the one, in their order."""
        kind, others = ("min", self.smaller_than) if self.smaller_than else ("max", self.larger_than)
        if self.smaller_than and self.larger_than:
            others = []
        return kind, sorted([self, *others], key=lambda read: read.number)

    def __gt__(self, other: Any) -> Any:
        return self._note(super().__gt__(other), other, "larger_than")  # type: ignore[misc]

    def __lt__(self, other: Any) -> Any:
        return self._note(super().__lt__(other), other, "smaller_than")  # type: ignore[misc]

    def _note(self, is_so: Any, other: Any, relation: str) -> Any:
        """Note which of two reads is ``relation`` the other, and return ``is_so``: whether this one is."""
        if isinstance(other, Read):
            first, second = (self, other) if is_so else (other, self)
            getattr(first, relation).extend([second, *getattr(second, relation)])
        return is_so


def _computing(kind: type, name: str) -> Callable[..., Any]:
    """Return a method of a number whose result is known to be made of what was read."""

    def method(self: Any, *others: Any) -> Any:
        result = getattr(kind, name)(self, *others)
        if type(result) not in _KINDS:
            return result
        number = read(self.value, result, self.line)
        number.is_computed = True
        return number

    return method


def _kind(kind: type) -> type:
    return type(f"_{kind.__name__}", (Read, kind), {name: _computing(kind, name) for name in ARITHMETIC})


_KINDS = {kind: _kind(kind) for kind in (float, int)}


def read(value: Any, number: Any, line: Any) -> Any:
    """Return a number that knows whose it is, where it is one of Python's."""
    kind = _KINDS.get(type(number))
    return number if kind is None else kind(number).of(value, line)
