"""Characters' classes and the composed normal form are those of Python, where its Unicode has them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.tokenizers import patterns, unicode
from mlaot.tokenizers.pattern_syntax import PatternError

KNOWN = [c for code in range(unicode.CODES) if unicodedata.category(c := chr(code)) not in ("Cn", "Cs")]
COMPOSED = [c for c in KNOWN if ord(c) in unicode.decompositions() or unicodedata.combining(c)]


def test_categories() -> None:
    """Characters stay what they are, but for a few whose kind changed."""
    names = ("Cn", *unicode.names())
    found = {c: names[unicode.categories()[ord(c)]] for c in KNOWN}
    assert sum(found[c] != unicodedata.category(c) for c in KNOWN) < 20
    spaces = {c for c in KNOWN if c.isspace()} - {*"\x1c\x1d\x1e\x1f"}
    assert {*map(chr, unicode.SPACES)} == spaces


def test_small_letters() -> None:
    lower = unicode.lower()
    assert [c for c in KNOWN if lower.get(c, c) != c.lower()] == []


def test_compatible() -> None:
    """The library's form is older than the newest characters."""
    found = unicode.compatible()
    differ = [c for c in KNOWN if found.get(c, unicodedata.normalize("NFD", c)) != unicodedata.normalize("NFKD", c)]
    assert len(differ) < 100 and all(unicode.later()[ord(c)] or c == "\u32ff" or ord(c) > 0xA7F0 for c in differ)


@settings(deadline=None)  # tables are read at first
@given(st.text(st.sampled_from(COMPOSED) | st.sampled_from("aeqy\u1100\u1161\u11a8\uac00\u0301\u0323\u09c7\u09be")))
def test_compose(text: str) -> None:
    assert unicode.decompose(text) == unicodedata.normalize("NFD", text)
    assert unicode.compose(text) == unicodedata.normalize("NFC", text)
    assert unicode.compose(unicodedata.normalize("NFD", text)) == unicodedata.normalize("NFC", text)


def test_compose_every_character() -> None:
    assert [c for c in KNOWN[::7] + COMPOSED if unicode.compose(c) != unicodedata.normalize("NFC", c)] == []


def test_scripts() -> None:
    """Scripts have short and long names, in letters of any size."""
    for pattern, inside, outside in (
        (r"\p{Han}", "\u4e2d\u3007\U00020000\u2e80", "\u3042a\u3000\u3001\u30fc"),
        (r"\p{Script=Hiragana}", "\u3042\u309d\U0001f200", "\u30a2\u30fc\u3099"),
        (r"\p{sc=kana}", "\u30a2\uff71\u31f0", "\u3042\u30fc"),
        (r"\p{^Cyrillic}", "a\u4e2d", "\u0416\u1c80"),
        (r"[\p{L}&&\P{Latin}]", "\u0416\u00b5", "a\u00e9\u00aa1"),
        (r"\p{Common}", " 1\u00b5\u30fc", "a\u0301"),
        (r"\p{Zinh}", "\u0301\u3099", "a "),
    ):
        found = patterns.of_text(pattern)
        assert [c for c in inside + outside if found.end_of(c, 0, {})] == [*inside], pattern
    with pytest.raises(PatternError, match="Klingon"):
        patterns.of_text(r"\p{Klingon}")
