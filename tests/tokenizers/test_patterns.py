"""The patterns are known by their texts, and cut all of a text."""

from __future__ import annotations

import ctypes
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.tokenizers import Tokenizer, patterns

from .compiled import Compiled

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
@settings(deadline=None)  # patterns are compiled at first
@given(text=st.text())
def test_all_is_cut(name: str, text: str) -> None:
    assert "".join(patterns.cut(name, text)) == text


KINDS = " \n\tA1's\u4e2d\u0301./"
SHORT = [*("".join(parts).encode() for size in (2, 3, 4) for parts in itertools.product(KINDS[:9], repeat=size))]


@pytest.fixture(scope="module", params=patterns.PATTERNS)
def short(request: pytest.FixtureRequest, code: ctypes.CDLL) -> tuple[Tokenizer, Compiled]:
    """A tokenizer in which each short part is a token of its own, so that tokens tell where a text is cut."""
    tokens = (*(bytes([byte]) for byte in range(256)), *SHORT)
    own = Tokenizer(
        *("bpe", tokens, {token: i for i, token in enumerate(tokens)}),
        **{"pairs": {(0, 1): (0, 256)}, "byte_level": True, "byte_tokens": (*range(256),), "whole": True},
        pattern=request.param,
    )
    return own, Compiled(code, own)


def test_cut_in_c(short: tuple[Tokenizer, Compiled]) -> None:
    own, compiled = short
    for parts in itertools.product(KINDS, repeat=4):
        assert compiled.encode("".join(parts)) == own.encode("".join(parts)), parts


@settings(deadline=None)
@given(text=st.text(st.sampled_from(KINDS + "\r\u3000rReEvVlL\u017f\u01c5\xaa"), max_size=12))
def test_long_cut_in_c(short: tuple[Tokenizer, Compiled], text: str) -> None:
    own, compiled = short
    assert compiled.encode(text) == own.encode(text)
