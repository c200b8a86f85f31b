"""The page of the API is up to date, has every public name once, and says something about each."""

from __future__ import annotations

from collections import Counter

import pytest

import mlaot
import mlaot.eager
import mlaot.micrograd
import mlaot.nn
import mlaot.optim
from mlaot import tokenizers
from mlaot.ir import DType

from . import make_api
from .test_site import check

PUBLIC = (
    mlaot,
    mlaot.eager,
    mlaot.micrograd,
    mlaot.nn,
    mlaot.nn.init,
    mlaot.optim,
    mlaot.optim.lr_scheduler,
    tokenizers,
)
ENTRIES = [entry for groups in make_api.parts().values() for group in groups for entry in group.entries]


def test_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    check(make_api.PAGE, make_api.page(), make_api.COMMAND, request)


def test_every_public_name_is_on_the_page_once() -> None:
    """Those of dtypes share an entry, and modules such as ``mlaot.random`` have pages or groups of their own."""
    listed = [entry.name for entry in ENTRIES]
    names = [(module, name) for module in PUBLIC for name in module.__all__]
    wanted = [f"{m.__name__}.{n}" for m, n in names if callable(getattr(m, n)) and not isinstance(getattr(m, n), DType)]
    assert {name: count for name, count in Counter(listed).items() if count > 1} == {}
    assert sorted(set(wanted) - set(listed)) == []


def test_every_entry_and_method_says_what_it_is() -> None:
    silent = [entry.name for entry in ENTRIES if not entry.doc]
    silent += [f"{entry.name}: {line}" for entry in ENTRIES for line in entry.parts if line.endswith(": ")]
    assert silent == []


def test_no_default_is_an_address() -> None:
    assert " at 0x" not in make_api.PAGE.read_text(encoding="utf-8")
