"""A thinned run of the fuzzer of what mlaot reads back, and what its reader says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlaot.checked_json import parse_json, read_json
from mlaot.errors import MlaotError

from .stored import READERS, run


def test_damaged_files_are_reported_in_one_line() -> None:
    failures, counts = run(range(400))
    assert not failures, "\n".join(failures[:5])
    assert all(counts[f"{reader.__name__} {end}"] for reader in READERS for end in ("taken", "refused")), counts


@pytest.mark.parametrize(
    ("content", "shape", "message"),
    [
        (b"[1", [int], "it is not valid JSON: Expecting ',' delimiter: line 1 column 3 (char 2)"),
        (b"[" * 100_000, [int], "it is nested too deeply"),
        (b'"x"', [int], "it is damaged: expected the whole to be a list, got str"),
        (b"[1, true]", [int], "it is damaged: expected [1] to be an integer, got bool"),
        (b"{}", {"a": {"b": str}}, "it is damaged: no a"),
        (b'{"a": {}}', {"a": {"b": str}}, "it is damaged: no a.b"),
        (b'{"a": {"b": [null]}}', {"a": {str: [str]}}, "it is damaged: expected a.'b'[0] to be a string, got NoneType"),
        (b'{"a": 1}', {"a?": {}}, "it is damaged: expected a to be an object, got int"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, shape: Any, message: str) -> None:
    with pytest.raises(MlaotError) as caught:
        parse_json(content, shape, "it")
    assert str(caught.value) == message


def test_what_is_right_is_given(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [1], "other": null}')
    assert read_json(tmp_path / "x.json", {"a": [int], "b?": str}, "x.json") == {"a": [1], "other": None}
    with pytest.raises(MlaotError, match=r"^cannot read y.json: No such file or directory$"):
        read_json(tmp_path / "y.json", object, "y.json")
