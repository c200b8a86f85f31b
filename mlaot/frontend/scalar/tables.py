"""Inputs that are whole numbers: an ``Index``, which selects from a ``Table``, and a ``Length``, which limits one.

    letter, length = Index(27), Length(16)
    row = Table(embedding)[letter]           # one of 27 rows, which the module is told at each call
    total = sum(Table(losses)[:length])      # of the first ones

A graph of scalars serves all calls. So an index is 27 Values, of which one is 1 and the others are 0. Its selection is
a sum of products with these, and the elements after a length are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlaot.errors import MlaotError
from mlaot.frontend.scalar.engine import Dot, Value, where


class Index:
    """An input that is a whole number from 0 to ``classes - 1``.

    Python computes with ``number``. Assigning it changes ``values``, which ``forward()`` reads.
    """

    def __init__(self, classes: int, number: int = 0) -> None:
        self.classes = _positive("Index: classes", classes)
        self.values = [Value(0.0) for _ in range(classes)]
        self.number = number

    @property
    def number(self) -> int:
        """The number that Python computes with."""
        return self._number

    @number.setter
    def number(self, number: int) -> None:
        if number not in range(self.classes):
            raise MlaotError(f"Index({self.classes}): expected a number from 0 to {self.classes - 1}, got {number!r}")
        self._number = number
        for i, value in enumerate(self.values):
            value.data = float(i == number)

    def __index__(self) -> int:
        raise MlaotError(
            "a list was indexed by an Index, whose number differs from call to call; write Table(list)[index]"
        )

    def __repr__(self) -> str:
        return f"Index({self.classes}, {self._number})"


class Length(Value):
    """An input that is a whole number from 0 to ``bound``: a Value, and the end of ``Table(list)[:length]``."""

    __slots__ = ("bound",)

    def __init__(self, bound: int, number: int | None = None) -> None:
        self.bound = _positive("Length: bound", bound)
        super().__init__(float(bound if number is None else number))

    def __index__(self) -> int:
        raise MlaotError(
            f"a Length was used as an integer, but it differs from call to call; count to its bound, {self.bound}, and "
            "select the elements below the length by Table(list)[:length]"
        )


class Table(list[Any]):
    """A list of Values, numbers, or lists of these, from which an ``Index`` or a ``Length`` selects."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Index):
            if len(self) != key.classes:
                raise MlaotError(f"Table: expected {key.classes} elements for an Index({key.classes}), got {len(self)}")
            return _pick(key.values, self)
        if isinstance(key, slice) and isinstance(key.stop, Length):
            if key.start is not None or key.step is not None:
                raise MlaotError("Table: expected [:length], without a start or a step")
            if len(self) > key.stop.bound:
                raise MlaotError(f"Table: expected at most {key.stop.bound} elements for this Length, got {len(self)}")
            return Table(_until(key.stop, i, element) for i, element in enumerate(self))
        return super().__getitem__(key)


def _pick(onehot: Sequence[Value], elements: Sequence[Any]) -> Any:
    """Return the element at which ``onehot`` is 1, which may be a list."""
    rows = [element for element in elements if isinstance(element, list | tuple)]
    if not rows:
        return Dot(onehot, elements)
    if len({len(row) for row in rows}) > 1 or len(rows) < len(elements):
        raise MlaotError("Table: expected Values, or rows of one length, for an Index to pick from")
    return Table(_pick(onehot, column) for column in zip(*rows, strict=True))


def _until(length: Length, place: int, element: Any) -> Any:
    """Return an element if it is among the first ``length``, or zeros of the same form."""
    if isinstance(element, list | tuple):
        return Table(_until(length, place, part) for part in element)
    return where(length > place, element, 0.0)


def _positive(what: str, number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise MlaotError(f"{what}: expected a positive whole number, got {number!r}")
    return number
