"""The helpers that sort rows: ``sort_<dtype>``, and ``order_<dtype>`` of the integers that it sorts.

Sorting networks are unrolled here, and the shuffles between their steps are lists of lanes. For a row of known length,
the compiler keeps one network or the quicksort, as the code that selects between them is inlined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from mlaot.printing.spelling import MEMORY
from mlaot.render import render
from mlaot.schedule.machine import Machine
from mlaot.schedule.tuning import SORTED_VECTORS, SPLIT_VECTORS

_NAME = re.compile(r"(sort|order)_([fiu])(32|64)")


def sort_helper(name: str, machine: Machine) -> str | None:
    """Return the text of a helper, or None if there is none of that name."""
    parts = _NAME.fullmatch(name)
    if parts is None or (parts[1] == "order" and parts[2] != "i"):
        return None
    dtype, bits = parts[2] + parts[3], int(parts[3])
    lanes = machine.bytes * 8 // bits
    words = {
        "isa": machine,
        "dtype": dtype,
        "c": MEMORY[dtype],
        "bits": bits,
        "lanes": lanes,
        "few": SORTED_VECTORS[-1] * lanes,
        "t": f"i{bits}",
        "V": f"i{bits}v",
        "key": f"int{bits}_t",
        "most": f"INT{bits}_MAX",
    }
    more = _network(lanes) if parts[1] == "order" else {}
    return render(f"kernels/{parts[1]}.h.j2", **words, **more)


def _network(lanes: int) -> dict[str, Any]:
    """Return the words of the template of ``order_<dtype>``: the sizes of its networks, and lists of lanes.

    The lanes of a second vector follow those of the first. For 4 lanes:

        reversed_in(2)          1 0 3 2     those of each group of 2 backwards
        swapped(2)              2 3 0 1     each lane i and the lane i ^ 2
        blended(2, "xy")        0 1 6 7     x in the first 2 of each 4 lanes, y in the others; "yx": the other way round
        flags(2)                0 0 -1 -1   whether a lane is in the second half of each 4
        zipped(0)               0 4 1 5     a lane of either vector in turns; zipped(1): of their other halves
    """

    def join(indices: Iterable[int]) -> str:
        return ", ".join(map(str, indices))

    assert SORTED_VECTORS[-1] >= 3 * SPLIT_VECTORS, "a split has vectors at both ends and between"
    return {
        "sizes": SORTED_VECTORS,
        "block": SPLIT_VECTORS,
        "widths": [2**i for i in range(1, lanes.bit_length())],
        "network": _comparisons,
        "halves_of": lambda n: [n >> i for i in range(1, n.bit_length())],
        "reversed_in": lambda width: join(i ^ (width - 1) for i in range(lanes)),
        "swapped": lambda half: join(i ^ half for i in range(lanes)),
        "blended": lambda half, order: join(i + lanes * (order[i // half % 2] == "y") for i in range(lanes)),
        "flags": lambda half: join(-(i // half % 2) for i in range(lanes)),
        "zipped": lambda part: join((i + part * lanes) // 2 + lanes * (i % 2) for i in range(lanes)),
        "lane_list": lambda text: ", ".join(text.replace("$", str(i)) for i in range(lanes)),
        "partings": _partings(),
    }


@cache
def _comparisons(n: int) -> list[tuple[int, int]]:
    """Return the comparisons of Batcher's merge exchange of n elements, a power of 2 (Knuth, 5.2.2, algorithm M)."""
    powers = [2**i for i in range((n - 1).bit_length())]
    return [
        (i + j, i + j + k)
        for p in powers
        for k in reversed(powers[: powers.index(p) + 1])
        for j in range(k % p, n - k, 2 * k)
        for i in range(min(k, n - j - k))
        if (i + j) // (2 * p) == (i + j + k) // (2 * p)
    ]


@cache
def _partings() -> list[str]:
    """Return for each mask of 8 lanes the set lanes, then the others, as bytes of a C number."""
    orders = [sorted(range(8), key=lambda i: not mask >> i & 1) for mask in range(256)]
    return [f"0x{sum(lane << 8 * i for i, lane in enumerate(order)):016x}" for order in orders]
