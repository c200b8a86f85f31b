"""Buffers that are alive at once never overlap, whatever the dims are; others share memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mlaot.errors import MlaotError
from mlaot.ir.dims import Dim, dim, substitute
from mlaot.lower.plan import pack
from mlaot.lower.program import Buffer

N, M = dim("n"), dim("m")
SIZES = some.tuples(*[some.integers(0, 5)] * 4).map(
    lambda k: 64 * k[0] + N * (64 * k[1]) + M * (64 * k[2]) + (N * 4 + 15) // 16 * (64 * k[3])
)
SPANS = some.tuples(some.integers(0, 9), some.integers(0, 4)).map(lambda span: (span[0], sum(span)))


def packed(*alive: tuple[Dim, tuple[int, int]]) -> tuple[list[tuple[Buffer, Dim]], Dim]:
    """Buffers of so many bytes, each from its first to its last kernel."""
    spans = {Buffer(f"t{i}", "u8", (size,), (1,), "work", True): span for i, (size, span) in enumerate(alive)}
    return pack({b: low for b, (low, _) in spans.items()}, {b: high for b, (_, high) in spans.items()})


@given(some.lists(some.tuples(SIZES, SPANS), max_size=12), some.integers(0, 40), some.integers(0, 40))
def test_no_overlap(alive: list[tuple[Dim, tuple[int, int]]], n: int, m: int) -> None:
    spans = {f"t{i}": span for i, (_, span) in enumerate(alive)}
    offsets, total = packed(*alive)
    known = {"n": n, "m": m}
    places = {b.name: (substitute(at, known), substitute(at + b.bytes, known)) for b, at in offsets}
    assert places.keys() == spans.keys()
    for name, (low, high) in places.items():
        assert low % 64 == 0 and 0 <= low <= high <= substitute(total, known)
        for other, (start, end) in places.items():
            if other != name and spans[name][0] <= spans[other][1] and spans[other][0] <= spans[name][1]:
                assert high <= start or end <= low or high == low or start == end


def test_small_ones_share_the_room_of_a_large_one() -> None:
    alive = [(64 * N, (0, 1)), (64 * N, (0, 1)), (192 * N, (2, 3)), (64 * N, (4, 5)), (128 * N, (4, 5))]
    assert packed(*alive)[1] == 192 * N


def test_sizes_that_cannot_be_compared() -> None:
    assert packed((64 * N, (0, 1)), (64 * M, (2, 3)))[1] == 64 * N + 64 * M
    assert packed((64 * N + 64, (0, 0)), (128 * N, (1, 1)))[1] == 128 * N + 64


@pytest.mark.parametrize("size", [1 << 48, (1 << 62) * N, 64 * N - (1 << 70)], ids=str)
def test_what_no_machine_can_address_is_refused(size: Dim) -> None:
    with pytest.raises(MlaotError, match="which no machine can address"):
        packed((64, (0, 1)), (size, (0, 1)))
