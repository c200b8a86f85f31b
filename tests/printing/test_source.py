"""Functions of mlaot as text: what they need comes first, under names that no two modules share."""

from __future__ import annotations

import pytest

from mlaot.printing.python.source import definitions, renamed

MERGING, UNICODE = "mlaot.tokenizers.merging", "mlaot.tokenizers.unicode"


def test_names_of_modules() -> None:
    assert renamed((MERGING, "merge")) == "_merging_merge"
    assert renamed((UNICODE, "_parts_of")) == "_unicode_parts_of"
    assert renamed(("functools", "cache")) == "_functools.cache" and renamed(("re", "")) == "_re"


def test_what_is_needed_comes_first() -> None:
    given = {"_unicode_decompositions", "_unicode_compositions", "_unicode_combining"}
    texts = definitions([(UNICODE, "compose"), (UNICODE, "_parts_of")], given)
    heads = [text.partition("(")[0].partition(" = ")[0] for text in texts]
    assert heads[-1] == "def _unicode_compose" and len(heads) == len({*heads})
    assert heads.index("def _unicode_parts_of") > heads.index(
        "_unicode_HANGUL, _unicode_LEADING, _unicode_VOWEL, _unicode_TRAILING"
    )
    assert "_content" not in "".join(texts), "what is given is not there"
    assert "->" not in "".join(texts)


def test_own_names_stay() -> None:
    """An argument that is called like a function of its module is none."""
    (merge,) = definitions([(MERGING, "merge")], ())
    names: dict[str, object] = {"_heapq": __import__("heapq")}
    exec(merge, names)
    assert names["_merging_merge"]([1, 2, 1], {(1, 2): (0, 3)}) == [3, 1]  # type: ignore[operator]
    text = "".join(definitions([("mlaot.tokenizers.tokenizer", "Tokenizer")], ()))
    assert "def add(symbol, characters)" in text and "_tokenizer_characters" not in text


def test_texts_of_every_python() -> None:
    """3.12 would put quotes within quotes."""
    with pytest.raises(AssertionError, match=r"3.12 unparses \['\.'"):
        definitions([("mlaot.printing.python.source", "definitions")], ())


def test_what_nothing_defines() -> None:
    with pytest.raises(AssertionError, match=r"nothing defines mlaot.tokenizers.merging.split"):
        definitions([(MERGING, "split")], ())
