"""Damaged files of tokenizers, some of those that ``python -m tests.fuzz.read_files`` tries."""

from __future__ import annotations

from pathlib import Path

from mlaot.errors import MlaotError

from .children import outcome
from .read_files import NAMES, read_tokenizer, run, tokenizer_file


def test_damaged_tokenizers_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    found = []
    for number in range(60):
        (tmp_path / NAMES[0]).write_bytes(tokenizer_file(number))
        try:
            found.append(read_tokenizer(tmp_path / NAMES[0]))
        except MlaotError as error:
            assert str(error).isprintable()
            found.append("refused")
    assert {"model", "refused"} == set(found)


def test_a_child_tells_how_it_ends(tmp_path: Path) -> None:
    said, seconds = run("tokenizers", 13, tmp_path)
    assert said.startswith("refused: ") and said.endswith("is nested too deeply") and 0 < seconds < 20
    assert outcome(lambda: 1 // 0).startswith("raised: ")  # type: ignore[arg-type, return-value]
