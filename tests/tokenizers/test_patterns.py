"""The patterns are known by their texts, and cut all of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaot.tokenizers import patterns

CUTS = {
    "gpt2": ("I", "'ll", " go", "  ", " now", "'", "S", " 1234", " \n", "\n", "end", "\n\n"),
    "llama3": ("I", "'ll", " go", "  ", " now", "'S", " ", "123", "4", " \n\n", "end", "\n\n"),
    "qwen2": ("I", "'ll", " go", "  ", " now", "'S", " ", "1", "2", "3", "4", " \n\n", "end", "\n\n"),
    "cl100k": ("I", "'ll", " go", "  ", " now", "'S", " ", "123", "4", " \n\n", "end", "\n\n"),
    "o200k": ("I'll", " go", "  ", " now'S", " ", "123", "4", " \n\n", "end", "\n\n"),
}


@pytest.mark.parametrize("name", patterns.PATTERNS)
def test_cut(name: str) -> None:
    text = "I'll go   now'S 1234 \n\nend\n\n"
    found = patterns.cut(name, text)
    assert "".join(found) == text
    assert found == [*CUTS[name]]


def test_names() -> None:
    for name, text in patterns.PATTERNS.items():
        assert patterns.named(text) == name
    for text, name in patterns.ALIASES.items():
        assert patterns.named(text) == name and patterns.named(text + " ") == ""


@pytest.mark.parametrize("name", patterns.PATTERNS)
@given(text=st.text())
def test_all_is_cut(name: str, text: str) -> None:
    assert "".join(patterns.cut(name, text)) == text
