"""Operators on texts and sequences of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.onnx.columns import make, without
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import MICROSOFT, operator
from mlaot.onnx.texts import is_text, look_up
from mlaot.onnx.values import Array, Unsupported, as_traced
from mlaot.tokenizers import patterns, re2
from mlaot.tokenizers.pattern_syntax import PatternError, may_be_nothing
from mlaot.tokenizers.text_steps import OPEN, UNLIMITED, Row, TextStep, simple_lower, simple_upper

Grams = dict[tuple[int, ...], int]
CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": simple_lower, "UPPER": simple_upper}


@operator("StringConcat", since=20, labels=True)
def string_concat(use: Use, x: Any, y: Any) -> Any:
    return make(use, TextStep("concat", ()), x, y)


@operator("StringNormalizer", since=10, labels=True)
def string_normalizer(
    use: Use, x: Any, *, case_change_action: str = "NONE", is_case_sensitive: bool = False, stopwords: Any = ()
) -> Any:
    if case_change_action not in CASES:
        raise MlaotError(f"there is no case_change_action {case_change_action!r}")
    changed = _cased(use, x, case_change_action)
    if not stopwords:
        return changed
    if is_case_sensitive:
        return _cased(use, without(use, x, x, stopwords), case_change_action)
    fold = "UPPER" if case_change_action == "UPPER" else "LOWER"
    dropped = ["".join(map(CASES[fold], word)) for word in stopwords]
    return without(use, changed, _cased(use, x, fold), dropped)


def _cased(use: Use, x: Any, action: str) -> Any:
    """Change the case of each character whose counterpart is a single character."""
    return x if action == "NONE" else make(use, TextStep(action.lower(), ()), x)


@operator("StringSplit", since=20, labels=True)
def string_split(use: Use, x: Any, *, delimiter: str = "", maxsplit: int = UNLIMITED) -> Any:
    pieces = TextStep("pieces", (), (delimiter,), (maxsplit, OPEN))
    counts = TextStep("counts", (), (delimiter,), (maxsplit,), dtype="i64")
    return make(use, pieces, x, wide=True), make(use, counts, x)


@operator("RegexFullMatch", since=20, labels=True)
def regex_full_match(use: Use, x: Any, *, pattern: str = "") -> Any:
    return make(use, TextStep("match", (), patterns=(_table(pattern, whole=True),), dtype="bool"), x)


@operator("Tokenizer", domain=MICROSOFT, labels=True)
def tokenizer(
    use: Use,
    x: Any,
    *,
    mark: Any = 0,
    mincharnum: Any = 1,
    pad_value: str = "",
    separators: Any = (),
    tokenexp: str = "",
) -> Any:
    """Split texts at separators, or into the matches of a pattern; without either, into characters.

    Without a pattern, of characters.
    """
    if x.ndim not in (1, 2):
        raise MlaotError(f"it takes strings of 1 or 2 axes, got {x.ndim}")
    if bool(separators) == bool(tokenexp) or mincharnum < 1:
        raise MlaotError("it needs separators or a tokenexp, and a mincharnum of at least 1")
    are_characters = list(separators) == [""]
    if are_characters and mincharnum > 1:
        raise MlaotError(f"characters have no mincharnum of {mincharnum}")
    rows = () if are_characters else tuple(_table(text) for text in separators or [tokenexp])
    if separators and not are_characters and any(may_be_nothing(re2.parse(text)) for text in separators):
        raise Unsupported("a separator may match nothing; let it match a character at least")
    numbers = (int(bool(mark)), mincharnum, int(bool(separators)), OPEN)
    return make(use, TextStep("tokens", (), (pad_value,), numbers, rows), x, wide=True)


def _table(pattern: str, whole: bool = False) -> Row:
    try:
        return patterns.longest(re2.parse(pattern), whole)
    except PatternError as error:
        raise Unsupported(f"the pattern {pattern!r:.80} has {error!s:.40}, which cannot be compiled") from None


@operator("TfIdfVectorizer", since=9, labels=True)
def tf_idf_vectorizer(use: Use, x: Any, *, mode: str = "", ngram_indexes: Any = (), weights: Any = None) -> Any:
    if mode not in ("TF", "IDF", "TFIDF"):
        raise MlaotError(f"there is no mode {mode!r}")
    size = max(ngram_indexes) + 1
    words = {word: i for i, word in enumerate(use.attribute("pool_strings") or [])}
    if is_text(x):
        x = look_up(x, words, -1)
    tokens = F.astype(as_traced(x) if x.ndim == 2 else np.reshape(as_traced(x), (1, -1)), np.int64)
    total: Any = F.zeros((tokens.shape[0], size), np.float32)
    for length, grams in _by_length(use, ngram_indexes, words).items():
        for skip in [1] if length == 1 else range(1, use.attribute("max_skip_count") + 2):
            total = total + _count(tokens, grams, length, skip, size)
    if mode == "IDF":
        total = F.astype(total > 0, np.float32)
    if mode != "TF" and weights:
        total = total * np.array(weights[:size], np.float32)
    return total if x.ndim == 2 else np.reshape(total, (size,))


def _by_length(use: Use, places: list[int], words: dict[str, int]) -> dict[int, Grams]:
    """Return the n-grams of each length, and the index of their count in the result.

    Of equal n-grams the last counts.
    """
    pool = [words[word] for word in use.attribute("pool_strings") or []] or use.attribute("pool_int64s", [])
    starts = use.attribute("ngram_counts")
    by_length: dict[int, Grams] = {}
    number = 0
    for i, start in enumerate(starts):
        length, end = i + 1, starts[i + 1] if i + 1 < len(starts) else len(pool)
        for at in range(start, end - length + 1, length):
            if number >= len(places):
                raise MlaotError(f"{len(places)} indices of more n-grams")
            if use.attribute("min_gram_length") <= length <= use.attribute("max_gram_length"):
                by_length.setdefault(length, {})[tuple(pool[at : at + length])] = places[number]
            number += 1
    return by_length


def _count(tokens: Any, grams: Grams, length: int, skip: int, size: int) -> Any:
    """Count the n-grams with ``skip - 1`` tokens between their tokens: [rows, size]."""
    count, behind = tokens.shape[1] - (length - 1) * skip, (length - 1) * skip
    if isinstance(count, int) and count < 1:
        return np.zeros(size, np.float32)
    if not isinstance(count, int):  # of a row that may be short
        count, tokens = tokens.shape[1], np.pad(tokens, ((0, 0), (0, behind)), constant_values=-2)
    table: Array = np.array(list(grams), np.int64)
    columns = [np.expand_dims(tokens[:, i * skip : i * skip + count], 2) for i in range(length)]
    same = reduce(np.logical_and, [np.equal(column, table[:, i]) for i, column in enumerate(columns)])
    target = np.zeros((len(grams), size), np.float32)
    target[np.arange(len(grams)), list(grams.values())] = 1
    return np.matmul(np.sum(F.astype(same, np.float32), axis=1), target)
