"""Every nest that a test makes C of is verified: as it was scheduled, and as threads share it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from mlaot.ir.module import SEEN
from mlaot.lower.identifiers import dim_name
from mlaot.nest.canonical import canonical
from mlaot.nest.statements import Nest
from mlaot.nest.verify import verify
from mlaot.printing import functions

SIZES = (64,)  # of the dims; an entry may refuse small ones
SEEN_SIZES = (4,)  # where one is how much of a text is seen: no more than its context
_known: set[tuple[object, tuple[object, ...]]] = set()  # what was verified, whatever it was called


def check(nest: Nest) -> None:
    """Raise an AssertionError for a nest that cannot be right, unless an equal one is."""
    content, dims = canonical(nest)
    key = content, dims
    if key not in _known:
        verify(nest, SEEN_SIZES if dim_name(SEEN) in nest.dims else SIZES, disjoint=False)
        _known.add(key)


def uninstall() -> None:
    """Check no more, for tests that count what a compiler does."""
    functions.schedule_nest, functions.part_of_range = unwrap(functions.schedule_nest), unwrap(functions.part_of_range)


def install() -> None:
    """Check what the functions of a file are made of."""

    def checked(make: Callable[..., Nest]) -> Callable[..., Nest]:
        @wraps(make)
        def call(*arguments: Any) -> Nest:
            nest = make(*arguments)
            check(nest)
            return nest

        return call

    functions.schedule_nest = checked(functions.schedule_nest)
    functions.part_of_range = checked(functions.part_of_range)
