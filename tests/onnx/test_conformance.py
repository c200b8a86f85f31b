"""Some of ONNX's own tests, one for each operator. ``python -m tests.onnx.conformance`` runs all."""

from __future__ import annotations

import warnings

import pytest

from .conformance import KINDS, cases, excused, passing, verdict


def chosen() -> list[str]:
    """The first listed test of each operator: what its name begins with."""
    found: dict[str, str] = {}
    for name in sorted(passing()):
        kind, _, test = name.partition("/test_")
        if kind == "node" and not test.endswith("_expanded"):
            found.setdefault(test.split("_")[0], name)
    return list(found.values())


@pytest.mark.parametrize("name", chosen())
def test_passes(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of those who made the tests' data
        said = verdict(name)
    assert said.kind == "pass", said.message


def test_the_list_is_of_tests() -> None:
    assert len(passing()) >= 1550
    assert {name.partition("/")[0] for name in passing()} == set(KINDS)


def test_what_does_not_pass_has_a_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = cases().keys()
    assert names - passing() - excused(names) == set()
    assert passing() <= names
