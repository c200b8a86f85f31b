"""Ranges of integers that are indices into an axis, and the elements of inputs that hold such integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir.dims import Dim, substitute

Span = tuple[Dim, Dim, int]  # of an axis: the first element, how many, the step from one to the next


@dataclass(frozen=True)
class IndexRange:
    """Elements of an input are indices into an axis of ``size`` elements: from 0 to ``size - 1``.

    With ``wraps``, negative indices from ``-size`` on count from the end. ``ignored`` is a further number that is
    allowed and names no element. ``box`` gives the elements of the input that are indices, a span for each axis or None
    for a whole axis. An empty box stands for all elements. A floating-point number is truncated.
    """

    size: Dim
    wraps: bool = False
    ignored: int | None = None
    box: tuple[Span | None, ...] = ()

    def part(self, array: Any, dims: Mapping[str, int]) -> Any:
        """Return the elements of ``array`` that are indices, as a view."""
        return array[(*[slice(None) if span is None else _run(*span, dims) for span in self.box], ...)]

    def outside(self, array: Any, dims: Mapping[str, int]) -> Any:
        """Return a mask of the elements of ``array`` that are indices out of range."""
        mask = np.zeros(np.shape(array), bool)
        size, values = substitute(self.size, dims), self.part(np.asarray(array), dims)
        self.part(mask, dims)[...] = outside(values, size, wraps=self.wraps, ignored=self.ignored)
        return mask

    def refusal(self, array: Any, dims: Mapping[str, int]) -> str:
        """Describe the first element that is out of range, or return an empty string."""
        return refusal(array, self.outside(array, dims), substitute(self.size, dims), self.wraps, self.ignored)


def refusal(array: Any, bad: Any, size: int, wraps: bool, ignored: int | None) -> str:
    """Describe the first element where ``bad`` is true: ``[3, 1]: expected values from 0 to 9, got 10``."""
    if not bad.any():
        return ""
    place = tuple(map(int, np.argwhere(bad)[0]))
    expected = bounds_text(str(-size if wraps else 0), str(size - 1), ignored)
    return f"{list(place) if place else ''}: expected {expected}, got {array[place]}"


def outside(values: Any, size: int, *, wraps: bool = False, ignored: int | None = None) -> Any:
    """Return a mask of the numbers that are not indices into an axis of ``size`` elements."""
    is_unsigned = np.asarray(values).dtype.kind in "ub"
    low = -size if wraps and not is_unsigned else 0
    mask = (np.trunc(values) < low) | (np.trunc(values) >= size) | np.isnan(values)
    return mask if ignored is None else mask & (values != ignored)


def bounds_text(first: str, last: str, ignored: int | None) -> str:
    """Return ``values from 0 to 9 or -100``"""
    return f"values from {first} to {last}" + ("" if ignored is None else f" or {ignored}")


def _run(start: Dim, size: Dim, step: int, dims: Mapping[str, int]) -> slice:
    """Return the slice of a span."""
    first, count = substitute(start, dims), substitute(size, dims)
    return slice(first, first + (count - 1) * step + 1, step) if count > 0 else slice(0, 0)
