"""What was packed and unpacked is the same tokenizer; its text alone, without mlaot, is so, too."""

from __future__ import annotations

import abc
import dataclasses
import functools
import heapq
import itertools
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlaot.binding.python import UNICODE, tokenizer_text
from mlaot.tokenizers import Tokenizer, characters, pack, raw_bytes, unicode, unpacking
from mlaot.tokenizers.normalizer import Normalizer

from .mixed import lines
from .stored import CASES, TEXTS, tokenizer_of
from .test_tokenizer import TIES

SAMPLE = ["the", *TEXTS[::7], *lines(20, 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored")


@pytest.fixture(scope="module")
def alone() -> Callable[[bytes], Any]:
    """``unpack`` as modules in plain Python have it."""
    modules = (abc, dataclasses, functools, heapq, itertools, re, struct)
    names: dict[str, Any] = {f"_{module.__name__}": module for module in modules} | {"__name__": "alone"}
    exec(compile("\n\n\n".join(tokenizer_text()), "<alone>", "exec", dont_inherit=True), names)
    tables: dict[str, Any] = {}

    def unpack(packed: bytes) -> Any:
        found = names["_unpacking_tables"](packed)
        tables.update({name: names[f"_unpacking_{name}"](found) for name in UNICODE})
        return names["_unpacking_unpack"](packed)

    names.update({f"_unicode_{name}": functools.partial(tables.__getitem__, name) for name in UNICODE})
    return unpack


def same(own: Tokenizer, other: Any) -> bool:
    """Whether another tokenizer does the same as ours."""
    for token in range(len(own.tokens)):
        assert [other.piece(token, first) for first in (True, False)] == [own.piece(token, f) for f in (True, False)]
    for text in SAMPLE:
        assert other.encode(text) == own.encode(text)
        assert other.encode(text, special=False, begin=False) == own.encode(text, special=False, begin=False)
    return bool(other.end == own.end and len(other.tokens) == len(own.tokens))


@pytest.mark.parametrize("case", CASES)
def test_stored_tokenizers(case: str, folder: Path, alone: Callable[[bytes], Any]) -> None:
    own = tokenizer_of(case, folder)
    packed = pack(own)
    assert same(own, unpacking.unpack(packed)) and same(own, alone(packed))


def test_other_tokenizers(alone: Callable[[bytes], Any]) -> None:
    pairs = {(0, 1): (0, 3), (3, 2): (1, 5), (1, 2): (2, 4)}
    plain = (*(bytes([byte]) for byte in range(256)), b"the", b"<s>")
    letters = {token: i for i, token in enumerate(plain[:256])}
    of_bytes: dict[str, Any] = {"byte_level": True, "byte_tokens": (*range(256),), "added": {b"<s>": 257}}
    for own in (
        raw_bytes(),
        characters("".join(sorted({*"".join(SAMPLE)}))),
        Tokenizer("bpe", plain, {**letters, b"the": 256}, **of_bytes, whole=True),  # nothing is merged to it
        Tokenizer("bpe", (*TIES,), TIES, pairs=pairs, unused=frozenset({0, 3, 5}), end=(2, 5)),
        *(
            Tokenizer("bpe", plain, letters, **of_bytes, normalizer=normalizer)
            for normalizer in (
                Normalizer(strips=True, prefixes=True),
                Normalizer(marks=True),
            )
        ),
    ):
        assert same(own, unpacking.unpack(pack(own))) and same(own, alone(pack(own)))
    with pytest.raises(ValueError, match="the tokenizer has no 'w'"):
        alone(pack(characters("hello"))).encode("how")


def test_tables_of_characters(folder: Path) -> None:
    found = unpacking.tables(pack(tokenizer_of("json qwen2", folder)))
    for name in UNICODE:
        assert getattr(unpacking, name)(found) == getattr(unicode, name)()
