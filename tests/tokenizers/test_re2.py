"""Patterns of RE2 as tables, against which strings onnxruntime says that they match."""

from __future__ import annotations

import json

import pytest

from mlaot.tokenizers import patterns, re2
from mlaot.tokenizers.pattern_syntax import PatternError
from mlaot.tokenizers.text_steps import MAKERS, Column, TextStep

from .make_re2 import STORED


def matches(pattern: str, strings: list[str]) -> list[bool]:
    step = TextStep("match", (), patterns=(patterns.longest(re2.parse(pattern), whole=True),), dtype="bool")
    return [*MAKERS["match"](step, Column((len(strings),), [text.encode() for text in strings])).values]


def test_random_patterns() -> None:
    """What is no pattern there is none here; few that are one are refused."""
    refused = 0
    for pattern, strings, wanted in json.loads(STORED.read_text(encoding="utf-8")):
        try:
            found = matches(pattern, strings)
        except PatternError:
            refused += wanted is not None
        else:
            assert found == wanted, pattern
    assert refused < 12


@pytest.mark.parametrize(
    "pattern", ["(?=a)", r"(a)\1", "a**", "[a", "(a", "a)", r"\8", "a{1001}", "[b-a]", r"\p{No such}", "*"]
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        re2.parse(pattern)


def test_longest() -> None:
    """Of the matches at a place the longest, wherever it stands among the alternatives."""
    step = TextStep("tokens", (), ("",), (0, 1, 0, -1), (patterns.longest(re2.parse("a|abc|ab")),))
    assert MAKERS["tokens"](step, Column((1,), [b"abab abc a"])).values == [b"ab", b"ab", b"abc", b"a"]
