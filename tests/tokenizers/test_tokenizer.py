"""The Python form and the C form are equal on all texts, also on those that are made to be slow."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.tokenizers import Tokenizer, characters, raw_bytes
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.steps import Prefix
from mlaot.tokenizers.unicode import CODES

from .compiled import Compiled
from .mixed import CODE, EMOJI, SPACES, SPECIAL, WORDS, lines
from .stored import CASES, tokenizer_of

PARTS = st.sampled_from([*WORDS, *CODE, *EMOJI, *SPACES, *SPECIAL, "\u2581", "12345", "\n\n\n", "the", "foo bar"])
TEXT = st.lists(PARTS | st.text(max_size=4), max_size=8).map("".join)


class Cases(list[tuple[str, Tokenizer, Compiled]]):
    """All stored tokenizers, in Python and in C."""

    def __repr__(self) -> str:
        return "all"  # hypothesis prints what a test is called with


@pytest.fixture(scope="module")
def all_cases(tmp_path_factory: pytest.TempPathFactory, code: ctypes.CDLL) -> Cases:
    folder = tmp_path_factory.mktemp("stored")
    found = [(case, tokenizer_of(case, folder)) for case in CASES]
    found += [("characters", characters("".join(map(chr, range(0x250))))), ("bytes", raw_bytes())]
    return Cases((name, tokenizer, Compiled(code, tokenizer)) for name, tokenizer in found)


@settings(deadline=None)  # patterns are compiled at first
@given(text=TEXT, special=st.booleans(), begin=st.booleans())
def test_python_and_c(all_cases: Cases, text: str, special: bool, begin: bool) -> None:
    for name, tokenizer, compiled in all_cases:
        if name != "characters":
            found = compiled.encode(text, special=special, begin=begin)
            assert found == tokenizer.encode(text, special=special, begin=begin), name


@settings(deadline=None)  # patterns are compiled at first
@given(text=TEXT)
def test_bytes_and_characters(code: ctypes.CDLL, text: str) -> None:
    own = characters(text)
    assert own.tokens == tuple(c.encode() for c in sorted(set(text)))
    assert [*map(own.tokens.__getitem__, own.encode(text))] == [c.encode() for c in text]
    assert Compiled(code, own).encode(text) == own.encode(text)
    assert raw_bytes().encode(text) == [*text.encode()] and raw_bytes().decode(text.encode()) == text


def test_characters_are_all_there_are(code: ctypes.CDLL) -> None:
    own = characters("hello")
    assert own.encode("hole") == [1, 3, 2, 0] == Compiled(code, own).encode("hole")
    with pytest.raises(ValueError, match="the tokenizer has no 'w'"):
        own.encode("how")
    for text, place in (("how", 2), ("h\xe9", 1), ("\0", 0)):
        with pytest.raises(ValueError, match=f"^{-2 - place}$"):
            Compiled(code, own).encode(text)


def test_every_character(all_cases: Cases) -> None:
    """Each character has the same classes, and becomes the same, in Python and in C."""
    text = "".join(f"{chr(code)}x {chr(code)}9" for code in range(1, CODES, 211) if not 0xD800 <= code < 0xE000)
    for name, tokenizer, compiled in all_cases:
        if name in ("json qwen2", "ranks o200k", "model unigram"):
            assert compiled.encode(text, begin=False) == tokenizer.encode(text, begin=False), name


HOSTILE = (
    "a",
    " ",
    "\u0301",
    "\U0001f468\u200d",
    "\n",
    "\t \n",
    "ab",
    "\u2581",
    "Aa",
    "\u4e2dA",
    "7",
    "<s>",
    "<|im_",
    "\x00",
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_long_texts_end(all_cases: Cases, unit: str) -> None:
    """A long text of one kind takes some milliseconds; if its length counted twice, this test would take minutes."""
    text = unit * ((1 << 18) // len(unit.encode()))
    for name, tokenizer, compiled in all_cases:
        if name != "characters":
            found = compiled.encode(text, special=False, begin=False)
            is_kept = tokenizer.byte_level and not tokenizer.normalizer.changes
            assert not is_kept or tokenizer.decode(found) == text, name


@pytest.mark.parametrize("unit", HOSTILE)
def test_long_parts(all_cases: Cases, unit: str) -> None:
    """Parts of more than a few symbols are merged by a heap."""
    for count in (63, 64, 65, 66, 400):
        for name, tokenizer, compiled in all_cases:
            if name != "characters":
                text = unit * (count // len(unit)) + "b"
                assert compiled.encode(text) == tokenizer.encode(text), name


def test_text_that_is_no_utf8(all_cases: Cases) -> None:
    """What is no UTF-8 has no meaning, but reads no memory of others."""
    for bad in (b"\xff", b"a\xf0\x9f", b"\xe2\x96", b"\x80\x81 \xc5", b"'\xc5", b"\xf7\xbf\xbf\xbf", b"e\xcc"):
        for name, _, compiled in all_cases:
            if name != "characters":
                compiled.encode(bad)


def test_decoding_refuses_what_is_no_token() -> None:
    for token in (-1, 256):
        with pytest.raises(ValueError, match=f"expected tokens from 0 to 255, got {token}"):
            raw_bytes().decode([token])
    assert raw_bytes().decode([0xF0, 0x9F, 65]) == "\N{REPLACEMENT CHARACTER}A"


TIES = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5, b"aa": 6}


def test_equal_ranks(code: ctypes.CDLL) -> None:
    """Of pairs of one rank the first is merged."""
    pairs = {(0, 1): (0, 3), (1, 2): (0, 4), (3, 2): (1, 5), (0, 0): (0, 6)}
    own = Tokenizer("bpe", (*TIES,), TIES, pairs=pairs)
    for text, expected in (("abc", [5]), ("aab", [6, 1]), ("bcbc", [4, 4]), ("aaaab", [6, 6, 1]), ("aabc", [6, 4])):
        assert own.encode(text) == expected == Compiled(code, own).encode(text)


def test_pieces_that_nothing_is_merged_to(code: ctypes.CDLL) -> None:
    """A piece is a token where its own parts are merged to it, unless each part that is a token is this one."""
    own = Tokenizer("bpe", (*TIES,), TIES, pairs={(0, 1): (0, 3), (0, 4): (1, 5), (1, 2): (2, 4)})
    for whole, expected in ((False, [3, 2]), (True, [5])):
        levels = {"byte_level": True, "byte_tokens": tuple(TIES.get(bytes([b]), -1) for b in range(256))}
        one = replace(own, whole=whole, **levels)
        assert one.encode("abc") == expected == Compiled(code, one).encode("abc")
    assert own.encode("abc") == [3, 2] == Compiled(code, own).encode("abc")


ENDINGS = ("a \n ", "a \n\n \t", "\n ", " \r", "a  ", " \n a", "\x85\n\u3000")


def test_whitespace_at_the_end(all_cases: Cases) -> None:
    for name, tokenizer, compiled in all_cases:
        for text in ENDINGS if name != "characters" else ():
            assert compiled.encode(text) == tokenizer.encode(text), (name, text)


def test_rounding_decides_between_equal_ways(code: ctypes.CDLL) -> None:
    """Behind a long text sums in float32 are rounded so that another way of a word is the best one."""
    scores = {b" ": -9.0, b"a": -1.0, b"b": -1.0, b"c": -1.0, b"ab": -1.5 + 2**-16, b"bc": -1.5, b"<unk>": 0.0}
    own = Tokenizer(
        *("unigram", (*scores,), {piece: i for i, piece in enumerate(scores) if i < 6}),
        **{"scores": (*scores.values(),), "unknown": 6, "unknown_score": -19.0, "single": True},
    )
    text = "abc " * 2000
    found = own.encode(text)
    assert found == Compiled(code, own).encode(text)
    assert found[:3] == [4, 3, 0] and found[-3:] == [1, 5, 0]


def of_scores(scores: dict[bytes, float], **named: Any) -> Tokenizer:
    """A unigram model, whose last piece is the unknown one."""
    pieces, unknown = {piece: i for i, piece in enumerate([*scores][:-1])}, len(scores) - 1
    given: dict[str, Any] = {"unknown": unknown, "unknown_score": -19.0, "fuses_unknown": True, "single": True, **named}
    return Tokenizer("unigram", (*scores,), pieces, scores=(*scores.values(),), **given)


@pytest.mark.parametrize("single", [True, False])
def test_rounding_takes_pieces_apart(code: ctypes.CDLL, single: bool) -> None:
    """A word that is a piece is this piece, until sums in float32 are rounded so that others are as good."""
    scores = {
        b" ": -9.0,
        b"a": -1 - 3 * 2**-12,
        b"bc": -1 - 3 * 2**-12,
        b"abc": -2 - 5 * 2**-12,
        b"b": -3.0,
        b"c": -3.0,
    }
    own = of_scores({**scores, b"?": 0.0}, single=single)
    text = "abc " * 2000
    found = own.encode(text)
    assert found == Compiled(code, own).encode(text)
    assert found[:2] == [3, 0] and found[-3:] == ([1, 2, 0] if single else [0, 3, 0])


@pytest.mark.parametrize("bytes_of", [(), (*range(3, 259),)])
@settings(deadline=None)
@given(st.lists(st.sampled_from(["ab", "a", "b", "\u00e9", "\u4e2d\u4e00", " ", "!"]), max_size=9), st.integers(1, 200))
def test_long_ways(code: ctypes.CDLL, bytes_of: tuple[int, ...], parts: list[str], times: int) -> None:
    """Texts of unknown characters and of pieces, with and without places that no piece goes across."""
    every = [b"<%d>" % byte for byte in range(256)]
    scores = {
        b"ab": -1.5,
        b"a": -1.0,
        b"ba": -1.25,
        **dict.fromkeys(every, -5.0),
        b"\xc3\xa9a": -2.0,
        b"a\xe4\xb8\xad": -3.0,
    }
    own = of_scores({**scores, b"?": 0.0}, byte_tokens=bytes_of)
    text = "".join(parts) * times
    assert Compiled(code, own).encode(text) == own.encode(text)


def test_unused_pieces_are_taken_apart(code: ctypes.CDLL) -> None:
    pairs = {(0, 1): (0, 3), (3, 2): (1, 5), (1, 2): (2, 4)}
    own = Tokenizer("bpe", (*TIES,), TIES, pairs=pairs, unused=frozenset({0, 3, 5}))
    for text, expected in (("abc", [0, 1, 2]), ("a", [0]), ("bc", [4]), ("bca", [4, 0])):
        assert own.encode(text) == expected == Compiled(code, own).encode(text)


@pytest.mark.parametrize("prefixes", [True, False])
@pytest.mark.parametrize("marks", [True, False])
@settings(deadline=None)  # patterns are compiled at first
@given(text=TEXT | st.text(st.sampled_from(" \t\u2581ab\u3000<s>")))
def test_normalizers(code: ctypes.CDLL, text: str, prefixes: bool, marks: bool) -> None:
    """The steps that no stored tokenizer has, with added tokens between the texts."""
    tokens = (*(bytes([byte]) for byte in range(256)), b"<s>")
    for strips in (False, True):
        for only_first in (False, True):
            own = Tokenizer(
                *("bpe", tokens, {t: i for i, t in enumerate(tokens[:256])}),
                **{"byte_level": True, "byte_tokens": (*range(256),), "added": {b"<s>": 256}},
                normalizer=Normalizer(strips=strips, prefixes=prefixes, marks=marks),
                cuts=(Prefix(only_first or not prefixes, only_first, marks),),
            )
            assert Compiled(code, own).encode(text) == own.encode(text)


def test_ends(code: ctypes.CDLL, tmp_path: Path) -> None:
    own = Tokenizer("bpe", tuple(TIES), TIES, end=(2, 5))
    assert [token for token in range(7) if Compiled(code, own).ends(token)] == [2, 5]


def test_mixed_lines(all_cases: Cases) -> None:
    """One long text of many lines: what was seen before comes again."""
    text = "\n".join(lines(300, 5))
    for name, tokenizer, compiled in all_cases:
        if "unigram" in name or name in (
            "json gpt2",
            "json characters with bytes",
            "model bpe of a user",
            "json characters",
        ):
            assert compiled.encode(text) == tokenizer.encode(text), name
