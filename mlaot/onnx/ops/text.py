"""Operators over texts and sequences of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.trace.protocols import is_traced
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.texts import is_text, look_up, places_in, table_of
from mlaot.onnx.values import Array, Strings, Unsupported, as_traced

Grams = dict[tuple[int, ...], int]
MOST = 1 << 22  # characters of all strings that two inputs may make
CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def _known(x: Any) -> tuple[list[str], Any]:
    """Return the different texts that ``x`` may hold, and the places of its own among them."""
    if isinstance(x, Strings) and x.is_open:
        raise Unsupported("it makes new strings of those that callers pass; let them pass what it makes")
    table = table_of(x) if isinstance(x, Strings) else list(dict.fromkeys(table_of(x)))
    return table, places_in(table, x)


def _texts(table: list[str], places: Any) -> Any:
    """Return the texts at places; known where these are."""
    array: Array = np.array(table, object)
    return Strings(places, array) if is_traced(places) else array[places].astype(np.str_)


@operator("StringConcat", since=20, labels=True)
def string_concat(x: Any, y: Any) -> Any:
    """Of texts that are chosen among known ones, all pairs are known."""
    (first, i), (second, j) = _known(x), _known(y)
    if len("".join(first)) * len(second) + len("".join(second)) * len(first) > MOST:
        raise Unsupported(f"it makes {len(first) * len(second)} different strings, which are too many")
    return _texts([a + b for a in first for b in second], i * len(second) + j)


@operator("StringNormalizer", since=10, labels=True)
def string_normalizer(
    x: Any, *, case_change_action: str = "NONE", is_case_sensitive: bool = False, stopwords: Any = ()
) -> Any:
    table, places = _known(x)
    if case_change_action not in CASES:
        raise MlaotError(f"there is no case_change_action {case_change_action!r}")
    if stopwords:
        if is_traced(places):
            raise Unsupported("how many strings are left is computed when the model runs")
        fold = CASES["NONE" if is_case_sensitive else "LOWER"]
        dropped = {_cased(word, fold) for word in stopwords}
        kept = [place for place in places.ravel().tolist() if _cased(table[place], fold) not in dropped]
        table, places = ([*table, ""], np.array(kept or [len(table)]).reshape((1, -1) if places.ndim == 2 else (-1,)))
    return _texts([_cased(text, CASES[case_change_action]) for text in table], places)


def _cased(text: str, change: Callable[[str], str]) -> str:
    """Change the case of each character to one that is one, too."""
    return "".join(new if len(new := change(character)) == 1 else character for character in text)


@operator("TfIdfVectorizer", since=9, labels=True)
def tf_idf_vectorizer(use: Use, x: Any, *, mode: str = "", ngram_indexes: Any = (), weights: Any = None) -> Any:
    if mode not in ("TF", "IDF", "TFIDF"):
        raise MlaotError(f"there is no mode {mode!r}")
    size = max(ngram_indexes) + 1
    if not isinstance(x.shape[-1], int):
        raise Unsupported(f"sequences of {x.shape[-1]} tokens; pin the dimension in [..dims]")
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
    """Return the n-grams of each length that counts, and where their number goes; of equal ones the last."""
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
    """Count how often n-grams come, between whose tokens ``skip - 1`` others lie: [rows, size]."""
    count = tokens.shape[1] - (length - 1) * skip
    if count < 1:
        return np.zeros(size, np.float32)
    table: Array = np.array(list(grams), np.int64)
    columns = [np.expand_dims(tokens[:, i * skip : i * skip + count], 2) for i in range(length)]
    same = reduce(np.logical_and, [np.equal(column, table[:, i]) for i, column in enumerate(columns)])
    target = np.zeros((len(grams), size), np.float32)
    target[np.arange(len(grams)), list(grams.values())] = 1
    return np.matmul(np.sum(F.astype(same, np.float32), axis=1), target)
