"""Random programs of scalars, and whether faults put into raising are found that way."""

from __future__ import annotations

from typing import Any

import pytest

from mlaot.passes.raising import chains, raise_tensors

from .scalar_programs import run

COUNT = 120


def test_raised_programs_are_right() -> None:
    failed, smaller = run(0, COUNT)
    assert not failed, failed[0]
    assert smaller > 0.6 * COUNT


def _no_mask(raiser: Any, value: Any, held: Any, other: float) -> Any:
    """Sum what holes hold as well."""
    return value


def _all_closed(graph: Any, chain: Any) -> bool:
    return True


def _first_arguments(node: Any, other: Any, known: Any) -> Any:
    """Take for known whatever a node reads."""
    if (other.op, other.attrs, len(other.args)) != (node.op, node.attrs, len(node.args)):
        return None
    return other, [a.find() for a in other.args][: known.count(None)]


# Each with a seed that is near the first one that finds it.
FAULTS = {
    "a sum reads what is no term": (raise_tensors._Raiser, "_masked", _no_mask, 0),
    "a round reads of the loop what is computed behind it": (chains, "_is_closed", _all_closed, 0),
    "a last round reads anything": (chains, "_unknown", _first_arguments, 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, wrong, seed = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)
    assert any(run(first, 20)[0] for first in range(seed, seed + 400, 20))
