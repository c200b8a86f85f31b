"""Vectorizers, which count the terms of texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype
from mlaot.ir.types import f64
from mlaot.sklearn.preprocessing import normalize, weigh_terms
from mlaot.sklearn.rules import Frame, Texts, rule
from mlaot.sklearn.words import Words
from mlaot.tokenizers.pattern_syntax import PatternError
from mlaot.tokenizers.python_patterns import words as words_of_pattern
from mlaot.tokenizers.vectorizer import MOST, PAD, Vectorizer

KINDS = "CountVectorizer HashingVectorizer"  # a TfidfVectorizer is one of the former


def vectorizers_in(estimator: Any) -> Iterator[Any]:
    """Yield the estimators inside of an estimator that take texts."""
    if any(kind.__name__ in KINDS.split() for kind in type(estimator).__mro__):
        yield estimator
        return
    inside = [value for name, value in vars(estimator).items() if not name.startswith("_")]
    while inside:
        value = inside.pop()
        if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
            inside += value.ravel().tolist() if isinstance(value, np.ndarray) else value
        elif hasattr(value, "get_params") and not isinstance(value, type):
            yield from vectorizers_in(value)


def vectorizer_of(estimator: Any) -> Vectorizer:
    """Return the vectorizer by which an estimator finds terms."""
    name, (least, most) = type(estimator).__name__, estimator.ngram_range
    places = dict[str, int]()
    if hasattr(estimator, "vocabulary"):
        estimator._check_vocabulary()
        places = {str(term): int(place) for term, place in estimator.vocabulary_.items()}
    if sorted(places.values()) != list(range(len(places))):
        raise MlaotError(f"the vocabulary of this {name} has other places than those from 0 to {len(places) - 1}")
    for key in ("preprocessor", "tokenizer", "analyzer", "strip_accents"):
        if callable(getattr(estimator, key)):
            raise MlaotError(f"this {name} has a function of your own, {key}=, which cannot be converted")
    if estimator.input != "content" or estimator.encoding.lower().replace("-", "") != "utf8":
        raise MlaotError(f"this {name} takes files, or bytes that are no UTF-8; a module takes texts")
    if not 1 <= least <= most <= MOST:
        raise MlaotError(f"this {name} has the ngram_range {least, most}; expected numbers from 1 to {MOST}")
    size = len(places) or int(estimator.n_features)
    if size >= PAD:
        raise MlaotError(f"this {name} has {size} features; expected less than {PAD}")
    is_word = estimator.analyzer == "word"
    if is_word:
        try:
            words_of_pattern(estimator.token_pattern)
        except PatternError as error:
            what = f"the token_pattern {estimator.token_pattern!r} of this {name}"
            raise MlaotError(f"{what} cannot be matched without going back: {error}") from None
    return Vectorizer(
        estimator.analyzer,
        least,
        most,
        size,
        places,
        estimator.token_pattern if is_word else "",
        frozenset(estimator.get_stop_words() or ()) if is_word else frozenset(),
        bool(estimator.lowercase),
        estimator.strip_accents or "",
        bool(getattr(estimator, "alternate_sign", False)),
        bool(estimator.binary),
    )


def texts_of(x: Any) -> Texts:
    """Return a column of texts."""
    column = x.columns[0] if isinstance(x, Frame) and len(x.columns) == 1 else x
    if not isinstance(column, Texts):
        raise MlaotError("a vectorizer takes one column of texts")
    return column


@rule("transform", KINDS, frames=True)
def counted(estimator: Any, x: Any) -> Words:
    """Return the counts of an estimator's terms, without those that other vectorizers counted in the same text."""
    texts = texts_of(x)
    known = texts.vectorizers.get(id(estimator))
    if known is None:
        known = texts.vectorizers[id(estimator)] = (texts.size, vectorizer_of(estimator))
        texts.size += known[1].size
    first, vectorizer = known
    places = (texts.numbers & 0xFFFFFFFF) - first
    counts = astype(np.where((places >= 0) & (places < vectorizer.size), texts.numbers >> 32, 0), f64)
    words = Words(np.clip(places, 0, vectorizer.size - 1), counts, vectorizer.size)
    return normalize(estimator, words) if getattr(estimator, "norm", None) and not vectorizer.places else words


@rule("transform", "TfidfVectorizer", frames=True)
def counted_and_weighed(estimator: Any, x: Any) -> Any:
    return weigh_terms(estimator._tfidf, counted(estimator, x))
