"""Maps of an op's axes, and strides of its elements, from which layouts follow.

``mlaot.ops`` defines them for each op: ``mlaot/ops/axes.py`` the maps of axes, ``mlaot/ops/views.py`` the strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mlaot.ir.dims import Dim

Label = int | str  # names an axis
Labels = tuple[Label, ...]
Strides = Sequence[Dim]  # in elements


@dataclass(frozen=True)
class AxisMap:
    """A label for each axis of each argument and of the result."""

    args: tuple[Labels, ...]
    result: Labels
    whole: frozenset[Label] = frozenset()

    def image(self, i: int, axis: int) -> int | None:
        """Return the axis of the result that corresponds to an axis of argument ``i``, or None."""
        label = self.args[i][axis]
        return self.result.index(label) if label in self.result and label not in self.whole else None


@dataclass(frozen=True)
class Form:
    """An op in another layout: the labels that its arguments must have, its attributes, and the labels of its result.

    Without attributes the op disappears: its result is its argument.
    """

    args: tuple[Labels, ...]
    attrs: Mapping[str, Any] | None
    result: Labels


class View(NamedTuple):
    """A stride for each axis, and the first element.

    ``whole`` is true if rows end where those of the viewed array end.
    """

    strides: tuple[Dim, ...]
    offset: Dim = 0
    whole: bool = True


class Part(NamedTuple):
    """The place of an argument in the result. With ``gapless`` nothing may be written after its rows."""

    strides: tuple[Dim, ...]
    offset: Dim = 0
    gapless: bool = True
