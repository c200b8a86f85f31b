"""Tables and JSON."""

from __future__ import annotations

import json
import re
import sys

import pytest

from mlaot.commands.output import json_safe, size, table

PLAIN = """\
  name            size
  x[batch, 2]  1,234.5
  y                  7
"""
BOLD = re.compile("\x1b\\[\\d*m")
ROWS = [("x[batch, 2]", 1234.5), ("y", 7)]


def test_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name", ">size"), ROWS)
    assert capsys.readouterr().out == PLAIN


@pytest.mark.parametrize("installed", [True, False])
def test_on_a_terminal_with_and_without_rich(
    installed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    table(("name", ">size"), ROWS)
    lines = [line.rstrip() for line in BOLD.sub("", capsys.readouterr().out).splitlines()]
    assert lines == PLAIN.splitlines()


def test_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    table(("name", ">size"), [("a name that is longer than that", 1)])
    lines = BOLD.sub("", capsys.readouterr().out).splitlines()
    assert len(lines) > 2 and max(map(len, lines)) <= 30


def test_json_without_nan() -> None:
    found = json_safe({"a": [float("nan"), (1.5, float("inf"))], "b": True})
    assert json.dumps(found, allow_nan=False) == '{"a": ["nan", [1.5, "inf"]], "b": true}'


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (93120, "93.1 KB"), (5 * 10**9, "5.0 GB")])
def test_size(count: int, text: str) -> None:
    assert size(count) == text
