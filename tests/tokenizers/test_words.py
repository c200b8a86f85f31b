"""Words of characters that are changed and cut one by one have the tokens of all steps, and are walked through in C."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlaot.tokenizers import Tokenizer, pack, unicode
from mlaot.tokenizers.hugging_face import of_content
from mlaot.tokenizers.unpacking import tables
from mlaot.tokenizers.words import word_tables

from .compiled import Compiled
from .mixed import lines
from .test_hugging_face import STORED, TEXTS
from .test_rows import CONTENT

NORMALIZER = CONTENT["normalizer"]
LETTERS = "\u65e5\u672c\ud55c\uac00\u1112\u1161\u11ab\u0439\u0438\xe9"
LETTERS += "\xfc\xdf\u0131\u0307\u302e\u3164\u0f71\u0fb9\U0001d165\U0001d16d"


def bert(**said: Any) -> Tokenizer:
    """The tokenizer with other flags, and pieces of some letters."""
    vocabulary = dict(STORED["models"]["pieces"]["vocab"])
    for letter in LETTERS:
        for piece in (letter, f"##{letter}"):
            vocabulary.setdefault(piece, len(vocabulary))
    model = {**CONTENT["model"], "vocab": vocabulary, "max_input_chars_per_word": said.pop("longest", 100)}
    size = len(vocabulary)
    added = [{**row, "id": size + i} for i, row in enumerate(CONTENT["added_tokens"])]
    return of_content(
        Path("bert"), {**CONTENT, "model": model, "added_tokens": added, "normalizer": {**NORMALIZER, **said}}
    )


def hostile(seed: int, count: int) -> list[str]:
    """Texts of all kinds of characters, among them those whose form depends on their neighbours."""
    rng = random.Random(seed)
    marks = [code for code in range(unicode.CODES) if unicode.combining()[code]]
    every = [*range(0xD800), *range(0xE000, 0x30000)]

    def one() -> str:
        kind = rng.randrange(6)
        if kind == 0:
            return chr(rng.choice(marks))
        if kind == 1:
            return chr(rng.choice(every))
        return rng.choice(rng.choice((LETTERS, "abcdeEI", " .,\t\x00\u2028", "\uac01\ud7a3\uf900\u20000")))

    return ["".join(one() for _ in range(rng.randrange(1, 24))) for _ in range(count)]


FLAGS = ({}, {"lowercase": False}, {"strip_accents": False}, {"lowercase": False, "strip_accents": True, "longest": 5})


@pytest.mark.parametrize("said", [*FLAGS, {"clean_text": False, "handle_chinese_chars": False, "longest": 1}], ids=str)
def test_equal_to_all_steps(said: dict[str, Any], code: ctypes.CDLL) -> None:
    own = bert(**said)
    assert tables(pack(own))["word_pages"]
    compiled = Compiled(code, own)
    for text in [*TEXTS, *lines(40, 9), *hostile(3, 200)]:
        assert compiled.encode(text) == own.encode(text), repr(text)


def test_marks_in_their_order(code: ctypes.CDLL) -> None:
    """Marks that stay are put in the order of their classes, which no walk character by character does."""
    own = bert()
    compiled = Compiled(code, own)
    marks = "\u302e\U0001d165\U0001d16d"
    assert own.encode(f"a{marks}") == own.encode(f"a{marks[1]}{marks[0]}{marks[2]}")
    for text in (f"a{marks} a", f"a {marks[::-1]}a", f"x.{marks}", f"{marks}\u65e5{marks}", f"a{marks[0]}\xe9{marks}"):
        assert compiled.encode(text) == own.encode(text), repr(text)


def test_every_character(code: ctypes.CDLL) -> None:
    """Alone, and among others."""
    own, rng = bert(), random.Random(1)
    compiled = Compiled(code, own)
    for c in map(chr, rng.sample([*range(0xD800), *range(0xE000, 0x2FA20)], 1000)):
        for text in (c, f"a{c}e\u0301"):
            assert compiled.encode(text) == own.encode(text), repr(text)


def test_bad_bytes(code: ctypes.CDLL) -> None:
    """What is no UTF-8 has no meaning, but reads no memory of others."""
    compiled, rng = Compiled(code, bert()), random.Random(5)
    for _ in range(2000):
        compiled.encode(bytes(rng.choice(b"\xff\xf4\xe2\xc3\x80\xbf a.") for _ in range(rng.randrange(12))))


@pytest.mark.parametrize("longest", [1, 100, 1000])
def test_long_words(longest: int, code: ctypes.CDLL) -> None:
    own = bert(longest=longest)
    compiled = Compiled(code, own)
    for unit in ("a", "\u0439", "\u1e9e", "\u0f71", "\ud55c", "a\u0301", "\x00", "\u0130"):
        for size in (longest, longest + 1, 4 * longest + 200):
            text = unit * size
            assert compiled.encode(f"a {text} a") == own.encode(f"a {text} a"), (unit, size)


def test_steps_that_are_not_walked() -> None:
    """Where characters depend on others there are no tables."""
    own = bert()
    for name in ("llama", "strip", "NFKD", "forms", "whitespace"):
        other = of_content(
            Path(name), {**STORED["files"][name], "model": STORED["models"][STORED["files"][name]["model"]]}
        )
        assert not word_tables(other.normalizer.changes, other.cuts), name
    assert not word_tables(own.normalizer.changes, own.cuts[1:])
    marks = replace(own, normalizer=replace(own.normalizer, strips=True))
    assert not tables(pack(marks))["word_pages"]
