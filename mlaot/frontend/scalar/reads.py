"""Numbers read from ``.data`` while a graph is built, which know the value that they were read from.

    most = max(v.data for v in scores)
    exps = [(v - most).exp() for v in scores]    # the largest of the scores, whatever the module is given

In arithmetic of such a number with a ``Value``, the graph gets the value itself, without its gradient, and not the
current number. Python's ``max`` and ``min`` compare, and a number records what it was compared with, so that the graph
gets the largest or smallest of all. Arithmetic with the number gives a number that is ``computed``. The graph has no
value for it, and if it comes from an input, it is an error in the graph. Anything else, such as a function of ``math``,
gives a plain number.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

SIDES = ("add", "sub", "mul", "truediv", "pow")
ARITHMETIC = ("__neg__", "__abs__", *(f"__{side}{name}__" for name in SIDES for side in ("", "r")))
_numbers = count()


class Read:
    """A number read from ``value``, and the reads that it was found to be larger or smaller than."""

    value: Any
    line: Any
    number: int  # in the order of reading
    is_computed: bool
    larger_than: list[Read]
    smaller_than: list[Read]

    def of(self, value: Any, line: Any) -> Any:
        """Record the value that this number was read from, and the line that read it."""
        self.value, self.line, self.number = value, line, next(_numbers)
        self.larger_than, self.smaller_than, self.is_computed = [], [], False
        return self

    def sources(self) -> tuple[str, list[Read]]:
        """Return ``"max"`` or ``"min"``, and the reads of which this is the extreme, in their order."""
        kind, others = ("min", self.smaller_than) if self.smaller_than else ("max", self.larger_than)
        if self.smaller_than and self.larger_than:
            others = []
        return kind, sorted([self, *others], key=lambda read: read.number)

    def __gt__(self, other: Any) -> Any:
        return self._note(super().__gt__(other), other, "larger_than")  # type: ignore[misc]

    def __lt__(self, other: Any) -> Any:
        return self._note(super().__lt__(other), other, "smaller_than")  # type: ignore[misc]

    def _note(self, is_so: Any, other: Any, relation: str) -> Any:
        """Record the result ``is_so`` of a comparison ``relation`` with another read, and return it."""
        if isinstance(other, Read):
            first, second = (self, other) if is_so else (other, self)
            getattr(first, relation).extend([second, *getattr(second, relation)])
        return is_so


def _computing(kind: type, name: str) -> Callable[..., Any]:
    """Return a method of a number whose result is marked as computed from the number."""

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
    """Return a number of Python as one that knows its value; return anything else unchanged."""
    kind = _KINDS.get(type(number))
    return number if kind is None else kind(number).of(value, line)
