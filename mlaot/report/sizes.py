"""Sizes of open dims for which golden vectors are computed: a small search, the same in each build.

conditions n - 40 >= 0, m - n // 16 >= 0    =>    n = 48, m = 3; n = 48, m = 4; ..
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mlaot.ir.dims import Dim, names, substitute

Sizes = dict[str, int]

EQUAL = (2, 1, 3, 4, 8, 16, 32, 48, 64)  # of all dims at once, small ones first
SINGLE = (*EQUAL, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384)  # of one dim


def fitting_sizes(starts: Iterable[Mapping[str, int]], conditions: Sequence[Dim]) -> Iterator[Sizes]:
    """Yield sizes that make no condition negative, each once: those near each start, then others of one dim.

    If all sizes of a start differ, those near it differ too, if possible.
    """
    seen: list[Sizes] = []
    for start in starts:
        sizes = _mend(dict(start), conditions)
        if sizes is not None and len(set(start.values())) == len(start):
            sizes = _apart(sizes, conditions)
        if sizes is not None and sizes not in seen:
            seen.append(sizes)
            yield sizes
    for first in seen[:1]:
        for sizes in _others(first, first):
            if sizes not in seen and not _broken(sizes, conditions):
                seen.append(sizes)
                yield sizes


def _mend(sizes: Sizes, conditions: Sequence[Dim]) -> Sizes | None:
    """Change one dim after another until no condition is negative; return None if that fails."""
    broken = _broken(sizes, conditions)
    while broken:
        meant = {name: None for condition in broken for name in sorted(names(condition))}
        best = min(_others(sizes, meant), key=lambda other: len(_broken(other, conditions)), default=sizes)
        left = _broken(best, conditions)
        if len(left) >= len(broken):
            return None
        sizes, broken = best, left
    return sizes


def _apart(sizes: Sizes, conditions: Sequence[Dim]) -> Sizes:
    """Increase dims that equal an earlier one, as far as the conditions allow."""
    found: Sizes = {}
    for name, size in sizes.items():
        free = [other for other in range(size, 2 * size + 2) if other not in found.values()]
        fitting = (other for other in free if not _broken({**sizes, **found, name: other}, conditions))
        found[name] = next(fitting, size)
    return found


def _others(sizes: Sizes, meant: Iterable[str]) -> Iterator[Sizes]:
    """Yield the sizes with another value of one of the dims that are ``meant``."""
    return ({**sizes, name: size} for name in meant for size in SINGLE)


def _broken(sizes: Sizes, conditions: Sequence[Dim]) -> list[Dim]:
    """List the conditions that are negative for some sizes."""
    return [condition for condition in conditions if substitute(condition, sizes) < 0]
