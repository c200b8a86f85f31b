"""Tokens are those of tokenizers, tiktoken and sentencepiece: in Python and in C."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from mlaot.tokenizers import Tokenizer

from .compiled import Compiled
from .stored import CASES, TEXTS, answers, tokenizer_of


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored")


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_tokens(case: str, special: bool, folder: Path, code: ctypes.CDLL) -> None:
    tokenizer = tokenizer_of(case, folder)
    compiled = Compiled(code, tokenizer)
    for i, (text, expected) in enumerate(zip(TEXTS, answers(case, special), strict=bool(answers(case, special)))):
        assert compiled.encode(text, special=special, begin=False) == expected, repr(text)
        if i % 6 == 0:
            assert tokenizer.encode(text, special=special, begin=False) == expected, repr(text)


@pytest.mark.parametrize("case", CASES)
def test_pieces(case: str, folder: Path, code: ctypes.CDLL) -> None:
    tokenizer = tokenizer_of(case, folder)
    compiled = Compiled(code, tokenizer)
    for token in range(-1, len(tokenizer.tokens) + 1):
        assert compiled.hides(token) == tokenizer.hides(token)
        for first in (True, False):
            assert compiled.piece(token, first) == tokenizer.piece(token, first)
    assert tokenizer.piece(-1) == tokenizer.piece(len(tokenizer.tokens)) == b""


def keeps_texts(tokenizer: Tokenizer) -> bool:
    """Whether decoding gives every text back: nothing is normalized away, and nothing is unknown."""
    normalizer = tokenizer.normalizer
    return bool(tokenizer.byte_tokens) and not (normalizer.charsmap or normalizer.changes or normalizer.strips)


@pytest.mark.parametrize("case", CASES)
def test_round_trip(case: str, folder: Path) -> None:
    tokenizer = tokenizer_of(case, folder)
    assert keeps_texts(tokenizer) == (case not in LOSES)
    for text in TEXTS[::5] if keeps_texts(tokenizer) else ():
        assert tokenizer.decode(tokenizer.encode(text, special=False)) == text.replace(
            "\u2581", " " if tokenizer.normalizer.marks else "\u2581"
        )


LOSES = {"json qwen2", "json characters", "json unigram", "model bpe", "model bpe of a user", "model unigram"}


def test_begin(folder: Path, code: ctypes.CDLL) -> None:
    for case, begin in (("json llama3", (1,)), ("model bpe", (1,)), ("ranks gpt2", ())):
        tokenizer = tokenizer_of(case, folder)
        assert tokenizer.begin == begin
        text = "First Citizen"
        assert tokenizer.encode(text) == [*begin, *tokenizer.encode(text, begin=False)]
        assert Compiled(code, tokenizer).encode(text) == tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
