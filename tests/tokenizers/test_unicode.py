"""Characters' classes and the composed normal form are those of Python, where its Unicode has them."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.tokenizers import unicode

KNOWN = [c for code in range(unicode.CODES) if unicodedata.category(c := chr(code)) not in ("Cn", "Cs")]
COMPOSED = [c for c in KNOWN if ord(c) in unicode.decompositions() or unicodedata.combining(c)]


def test_classes() -> None:
    """Letters stay letters, but for a few whose kind changed."""
    bits, changed = unicode.classes(), 0
    for character in KNOWN:
        category, found = unicodedata.category(character), bits[ord(character)]
        assert bool(found & unicode.LETTER) == (category[0] == "L"), hex(ord(character))
        assert bool(found & unicode.NUMBER) == (category[0] == "N"), hex(ord(character))
        changed += bool(found & unicode.LOWER) != (category == "Ll")
    assert changed < 10
    spaces = {c for c in KNOWN if c.isspace()} - {*"\x1c\x1d\x1e\x1f"}
    assert {chr(code) for code in range(unicode.CODES) if bits[code] & unicode.SPACE} == spaces


@settings(deadline=None)  # tables are read at first
@given(st.text(st.sampled_from(COMPOSED) | st.sampled_from("aeqy\u1100\u1161\u11a8\uac00\u0301\u0323\u09c7\u09be")))
def test_compose(text: str) -> None:
    assert unicode.compose(text) == unicodedata.normalize("NFC", text)
    assert unicode.compose(unicodedata.normalize("NFD", text)) == unicodedata.normalize("NFC", text)


def test_compose_every_character() -> None:
    assert [c for c in KNOWN[::7] + COMPOSED if unicode.compose(c) != unicodedata.normalize("NFC", c)] == []
