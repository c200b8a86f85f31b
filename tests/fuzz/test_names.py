"""A thinned run of the fuzzer of names and settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlaot.binding import tables
from mlaot.lower import identifiers, lower, program

from .names import check, report, run


def test_names_and_settings_work_or_are_refused_in_one_line(tmp_path: Path) -> None:
    models = [run(seed, "model", tmp_path) for seed in range(60)]
    cases = [*models, *(run(seed, "settings", tmp_path) for seed in range(150))]
    taken = [case for case in models if case.folder is not None]
    assert len(taken) > 20 and sum(case.refusal != "" for case in models) > 10
    for case in taken[::6]:
        check(case)
    assert not any(case.failure for case in cases), report(cases)


def test_a_name_that_c_refuses_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: dims that keep their names are no C now and then."""
    for module in (identifiers, tables, lower, program):
        monkeypatch.setattr(module, "dim_name", lambda name: name)
    for seed in range(100):
        case = run(seed, "model", tmp_path)
        if case.folder is not None:
            check(case)
        if "error: " in case.failure:
            return
    pytest.fail("no fault was found")
