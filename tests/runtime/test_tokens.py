"""Strings become tokens and tokens strings, also piece by piece: what a module with a tokenizer has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import tokenizers
from mlaot.tokenizers import Tokenizer
from mlaot.tokenizers.normalizer import Normalizer

from ..projects import Build, build_module, load, plain_module
from ..tokenizers.stored import TEXTS, tokenizer_of

CONTEXT = 48
n = mlaot.dim("n")


def parrot(tokenizer: Tokenizer, answer: str) -> Any:
    """What follows is always the next token of one answer."""
    tokens = np.array([*tokenizer.encode(answer), *[0] * CONTEXT])
    text = mlaot.Text(CONTEXT, tokenizer)

    @mlaot.model(text=text)
    def follows(tokens_read: mlaot.i64[n]) -> Any:
        next_token = mlaot.take(tokens, text.place + tokens_read.shape[0] - 1, axis=0)
        return mlaot.one_hot(next_token, len(tokenizer.tokens), mlaot.f32)

    return follows


ANSWER = "héllo, wörld ☃ and 🦜🏽!"


@pytest.fixture(scope="module")
def nn(build: Build) -> ModuleType:
    return build("bytes", parrot(tokenizers.raw_bytes(), ANSWER))


def test_pieces_are_whole_characters(nn: ModuleType) -> None:
    size = len(ANSWER.encode())
    assert list(nn.generate("x", max_tokens=size, temperature=0)) == list(ANSWER)
    cut = list(nn.generate("x", max_tokens=9, temperature=0))
    assert cut == list("héllo, w"[:8]), "half a letter"
    assert list(nn.generate([120], max_tokens=2, temperature=0)) == ["h", "�"], "half a letter at the end of an answer"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("wör", "héllo, "),
        (["☃ an", "☃ x"], "héllo, wörld "),
        (["lo", "llo"], "hé"),
        ("hé", ""),
        (["x", "y"], ANSWER),
        ("🦜", "héllo, wörld ☃ and "),
        ("lloo", ANSWER),
        ("!?", ANSWER),
    ],
)
def test_stops(nn: ModuleType, stop: str | list[str], expected: str) -> None:
    """Nothing of a stop comes, and what might have been the beginning of one comes late."""
    pieces = list(nn.generate("x", max_tokens=len(ANSWER.encode()), temperature=0, stop=stop))
    assert "".join(pieces) == expected and "" not in pieces


def test_encode_and_decode(nn: ModuleType) -> None:
    for text in ("", "abc", ANSWER, "a\0b", "\n" * 3000):
        assert nn.encode(text) == list(text.encode())
        assert nn.decode(nn.encode(text)) == text == nn.Model().decode(nn.Model().encode(text))
    assert nn.decode(b"\xff\xf0\x9f") == b"\xff\xf0\x9f".decode(errors="replace")
    assert nn.decode(np.array([104, 105])) == "hi"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda nn: nn.encode(5), TypeError, "encode: text: expected a str, got int"),
        (lambda nn: nn.encode(), TypeError, r"encode\(\) is missing argument 'text'"),
        (lambda nn: nn.encode("x", "y"), TypeError, r"encode\(\) takes 1 positional argument, got 2"),
        (lambda nn: nn.encode("x", special=2), TypeError, "encode: special: expected bool, got int"),
        (lambda nn: nn.encode("x", end="y"), TypeError, "encode: end: expected bool, got str"),
        (lambda nn: nn.encode("\ud800"), UnicodeEncodeError, "surrogates not allowed"),
        (lambda nn: nn.decode("x"), TypeError, "decode: tokens: expected a sequence of tokens, got str"),
        (lambda nn: nn.decode([256]), ValueError, "decode: tokens: expected tokens from 0 to 255, got 256"),
        (lambda nn: nn.generate("x", stop=""), ValueError, "generate: stop: an empty str is everywhere"),
        (lambda nn: nn.generate("x", stop=[""]), ValueError, "generate: stop: an empty str is everywhere"),
        (lambda nn: nn.generate("x", stop=5), TypeError, "generate: stop: expected a str or several, got int"),
        (lambda nn: nn.generate("x", stop=["a", 5]), TypeError, "generate: stop: expected a str or several, got int"),
        (lambda nn: nn.generate("\ud800"), UnicodeEncodeError, "surrogates not allowed"),
        (
            lambda nn: nn.generate("x" * 49),
            ValueError,
            "generate: prompt: the text has 0 of 48 tokens, so that these 49",
        ),
    ],
)
def test_what_is_no_text(
    nn: ModuleType, call: Callable[[ModuleType], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(nn)


def test_characters(build: Build) -> None:
    nn = build("letters", parrot(tokenizers.characters("☃ abc"), "c☃ab a"))
    assert nn.encode("ab ☃") == [1, 2, 0, 4]
    assert "".join(nn.generate("a", max_tokens=6, temperature=0)) == "c☃ab a"
    with pytest.raises(ValueError, match="encode: text: the tokenizer has no 'é'"):
        nn.encode("abé☃")
    with pytest.raises(ValueError, match="generate: prompt: the tokenizer has no '\\\\n'"):
        nn.generate("a\n")


def test_the_begin_of_a_text(build: Build) -> None:
    """A text begins with its tokens, once, and its end ends an answer."""
    tokens = (b"<s>", b"</s>", *(bytes([letter]) for letter in b"abcd "))
    pieces = {token: i for i, token in enumerate(tokens) if len(token) == 1}
    tokenizer = Tokenizer(
        "characters",
        tokens,
        pieces,
        added={b"<s>": 0, b"</s>": 1},
        special=frozenset({0, 1}),
        silent=frozenset({0, 1}),
        begin=(0,),
        closing=(1, 0),
        end=(1,),
        drops_space=True,
    )
    table = np.roll(np.eye(len(tokens), dtype=np.float32), 1, axis=1)  # each token is followed by the next one
    text = mlaot.Text(CONTEXT, tokenizer)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.take(table, tokens[-1], axis=0)

    nn = build("begins", follows)
    assert nn.encode("ab<s>") == [0, 2, 3, 0] and nn.encode("ab", begin=False) == [2, 3]
    assert nn.encode("ab", end=True) == [0, 2, 3, 1, 0] and nn.encode("", begin=False, end=True) == [1, 0]
    with pytest.raises(ValueError, match="encode: text: the tokenizer has no '<'"):
        nn.encode("ab<s>", special=False)
    assert nn.decode([0, 6, 2, 6, 1]) == "a ", "the space of a first token is none"
    text_of = nn.Model()
    assert "".join(text_of.generate("ab", max_tokens=3, temperature=0)) == "cd "
    assert text_of.buffers["text"].tolist()[:6] == [0, 2, 3, 4, 5, 6]
    assert text_of.buffers["length"].item() == 6
    assert "".join(text_of.generate("c", max_tokens=2, temperature=0)) == "d "
    assert text_of.buffers["length"].item() == 9
    assert list(nn.generate("", max_tokens=2, temperature=0)) == [], "its first token is the end"
    assert list(nn.generate("<s> ", max_tokens=1, temperature=0)) == []


def test_scores_of_more_tokens_than_there_are(build: Build) -> None:
    """Those that the tokenizer does not know add nothing to a text."""
    tokenizer = tokenizers.characters("ab")

    @mlaot.model(text=mlaot.Text(CONTEXT, tokenizer))
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.one_hot((tokens[-1] + 1) % 4, 4, mlaot.f32)

    nn = build("padded", follows)
    assert list(nn.generate("a", max_tokens=6, temperature=0)) == ["b", "a", "b"]
    assert nn.decode([0, 3, 2, 1]) == "ab"
    with pytest.raises(ValueError, match="decode: tokens: expected tokens from 0 to 3, got 4"):
        nn.decode([4])


@pytest.mark.parametrize("strips", [True, False])
def test_spaces_that_a_text_begins_with(build: Build, strips: bool) -> None:
    """One is dropped, or all of them, as SentencePiece does; an answer is the text of its tokens."""
    tokens = (b"<s>", b" ", b"a", b" b")
    tokenizer = Tokenizer(
        "bpe",
        tokens,
        {token: i for i, token in enumerate(tokens[1:3], 1)},
        silent=frozenset({0}),
        begin=(0,),
        drops_space=True,
        normalizer=Normalizer(strips=strips, prefixes=True),
    )

    @mlaot.model(text=mlaot.Text(CONTEXT, tokenizer))
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.one_hot(tokens[-1] * 0 + 1, len(tokenizer.tokens), mlaot.f32)

    nn = build(f"spaces{strips:d}", follows)
    space = "" if strips else " "
    for read, expected in (([1, 1, 2], f"{space}a"), ([0, 1, 0, 3], f"{space}b"), ([3, 1], "b "), ([1, 2, 1], "a ")):
        assert nn.decode(read) == expected == tokenizer.decode(read)
    answers = set()
    for seed in range(30):
        text = nn.Model()
        answer = "".join(text.generate([0], max_tokens=4, temperature=2.0, seed=seed))
        assert answer == nn.decode(text.buffers["text"].tolist()[:5])
        answers.add(answer[:1])
    assert answers >= {"a", "b"} and (" " in answers) != strips


@pytest.mark.parametrize("case", ["json gpt2", "json qwen2", "model bpe with bytes", "model unigram"])
def test_plain_python_has_the_same_tokens(case: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(case, tmp_path)
    scores = np.random.default_rng(2).normal(0, 2, (len(tokenizer.tokens),) * 2).astype(np.float32)

    @mlaot.model(text=mlaot.Text(CONTEXT, tokenizer))
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.take(scores, tokens[-1], axis=0)

    compiled = load(build_module(follows, "tokens", tmp_path, ("base",)))
    plain = plain_module(follows, "tokens", tmp_path)
    for text in TEXTS[::5]:
        for options in ({}, {"special": False}, {"begin": False}, {"begin": False, "end": True}):
            tokens = compiled.encode(text, **options)
            assert plain.encode(text, **options) == tokens
            assert plain.decode(tokens) == compiled.decode(tokens) == tokenizer.decode(tokens)
    for seed, prompt in enumerate(["", "The", " q", "<s>", "\n\u2603"] * 3):
        modules = (compiled, plain)
        if compiled.encode(prompt):
            expected, found = ([*m.generate(prompt, max_tokens=9, seed=seed, stop=["e", "in"])] for m in modules)
            assert found == expected
    assert compiled.selftest().keys() - plain.selftest().keys() <= {"base"}
