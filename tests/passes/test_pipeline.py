"""The order of the passes follows from what they need, and each has one name."""

from __future__ import annotations

from pathlib import Path

import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.loading import locate_errors, trace
from mlaot.passes.base import check_order
from mlaot.settings import ModelSettings

FOLDER = Path(passes.__file__).parent
NEEDING = {step.name: step for step in passes.PIPELINE if step.after}


@mlaot.model
def doubled(x: mlaot.f32[4]):  # type: ignore[no-untyped-def, valid-type]
    return x * 2


def test_every_pass_is_named_after_its_file() -> None:
    for step in passes.PIPELINE:
        path = step.function.__module__.removeprefix("mlaot.passes.").replace(".", "/")
        assert path.rpartition("/")[2] == step.name
        assert (FOLDER / f"{path}.py").is_file() and "/" in path


def test_the_needs_of_passes_are_passes() -> None:
    assert {name for step in passes.PIPELINE for name in step.after} <= set(passes.names())


@pytest.mark.parametrize("name", NEEDING)
def test_a_pass_before_what_it_needs_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = NEEDING[name]
    shuffled = (step, *(other for other in passes.PIPELINE if other is not step))
    message = rf"^bug in mlaot: the pass {name} needs {step.after[0]}, which has not run before it$"
    with pytest.raises(AssertionError, match=message):
        check_order(shuffled)
    monkeypatch.setattr(passes, "PIPELINE", shuffled)
    with pytest.raises(AssertionError, match=message):
        passes.run("m", trace(doubled))


def test_a_wrong_variable_is_not_blamed_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLAOT_DUMP", "simplfy")
    with pytest.raises(MlaotError) as caught, locate_errors(doubled, ModelSettings("nn", "model:doubled")):
        passes.run("m", trace(doubled))
    said = "the environment variable MLAOT_DUMP is 'simplfy', which is no pass; did you mean 'simplify'?"
    assert str(caught.value) == said
