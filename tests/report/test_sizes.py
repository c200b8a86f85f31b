"""The sizes of open dims that golden vectors are computed for."""

from __future__ import annotations

import pytest

from mlaot.ir.dims import dim, substitute
from mlaot.report.sizes import EQUAL, SINGLE, fitting_sizes

N, M = dim("n"), dim("m")
STARTS = [{"n": size, "m": size} for size in EQUAL]


@pytest.mark.parametrize(
    ("conditions", "first"),
    [
        ([], (2, 2)),
        ([N - 3], (3, 2)),
        ([N - 40, M - N // 16], (48, 3)),
        ([N - 1000], (1024, 2)),
        ([1 - M], (2, 1)),
        ([N - M, M - N, M - 5], (8, 8)),  # only both at once
        ([N * M - 900], (2, 512)),
        ([10 * N - M * M - 60], (8, 2)),
    ],
)
def test_the_first(conditions: list[object], first: tuple[int, int]) -> None:
    assert next(fitting_sizes(STARTS, conditions)) == {"n": first[0], "m": first[1]}  # type: ignore[arg-type]


def test_all_fit_and_differ() -> None:
    """The others differ from the first in one dim, so that what only some sizes fulfil can be found."""
    conditions = [N - 40, M - N // 16]
    found = list(fitting_sizes(STARTS, conditions))
    assert all(substitute(condition, sizes) >= 0 for condition in conditions for sizes in found)
    assert len({tuple(sizes.items()) for sizes in found}) == len(found)
    assert {sizes["m"] for sizes in found if sizes["n"] == 48} == {size for size in SINGLE if size >= 3}


def test_none_fits() -> None:
    assert list(fitting_sizes(STARTS, [N - M - 1, M - N])) == []
    assert list(fitting_sizes(STARTS, [N - 10**9])) == []
    assert list(fitting_sizes([{}], [])) == [{}]
