"""Byte-pair encoding: the neighbouring symbols of the best rank are merged, the first pair for equal ranks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

Pair = tuple[int, int]
Pairs = Mapping[Pair, tuple[int, int]]  # of symbols: the rank, lower ones first, and the merged symbol


def merge(
    symbols: Sequence[int], pairs: Pairs, made: dict[int, Pair] | None = None, trace: list[Pair] | None = None
) -> list[int]:
    """Merge the symbols of a part.

    ``made`` records the last pair that was considered for each merged symbol, and ``trace`` the merged pairs.
    """
    found, count = list(symbols), len(symbols)
    before, behind = [*range(-1, count - 1)], [*range(1, count + 1)]
    heap: list[tuple[int, int, int, int]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right < count and (pair := pairs.get((found[left], found[right]))):
            heapq.heappush(heap, (pair[0], left, found[left], found[right]))
            if made is not None:
                made[pair[1]] = found[left], found[right]

    for i in range(count - 1):
        consider(i, i + 1)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = behind[left]
        if found[left] != first or right >= count or found[right] != second:
            continue  # one of the two was merged with another
        if trace is not None:
            trace.append((first, second))
        found[left], found[right] = pairs[first, second][1], -1
        behind[left] = behind[right]
        if behind[left] < count:
            before[behind[left]] = left
        consider(before[left], left)
        consider(left, behind[left])
    return [symbol for symbol in found if symbol >= 0]


def pairs_by_rank(
    pieces: Mapping[bytes, int], rank: Callable[[int], int], cuts: Callable[[bytes], Iterable[int]]
) -> Pairs:
    """Return the pairs of tokenizers that merge any two symbols which together are a piece."""
    found = dict[Pair, tuple[int, int]]()
    for piece, symbol in pieces.items():
        for cut in cuts(piece):
            left, right = pieces.get(piece[:cut]), pieces.get(piece[cut:])
            if left is not None and right is not None:
                found[left, right] = rank(symbol), symbol
    return found
