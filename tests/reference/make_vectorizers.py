"""Write vectorizers.json: vectorizers of scikit-learn, and how often each of their terms is in hard texts.

    python -m tests.reference.make_vectorizers

Needs the package ``scikit-learn``.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

from mlaot.sklearn.texts import vectorizer_of
from tests.tokenizers.nasty import NASTY

SIGMAS = "ΟΔΟΣ ΣΑΣ Σ ΑΣ. ΑΣ'Σ Α\u0345Σ ΑΣ\u00ad ΑΣ\u00adΑ 1Σ ΑΣΣ\u0301 ΑΣ,Α Σ\u0301Α \u0130Σ"  # noqa: RUF001
SPACES = "a  b\tc\n\nd \x1c\x1c e\x85\x85f\u2028g \u3000 h  "
WORDS = [
    "snake_case",
    "don't",
    "stop-words",
    "x",
    "xy",
    "3.14",
    "#tag",
    "ÀÉÎõü ﬁﬂ Åﬀ ½ ①²",
    "The THE the",
    "한글 각각",
    "a_b__c",
]
CASES: list[tuple[Any, dict[str, Any]]] = [
    (CountVectorizer, {}),
    (CountVectorizer, {"ngram_range": (1, 3), "binary": True, "max_features": 150}),
    (CountVectorizer, {"ngram_range": (2, 2), "lowercase": False, "max_features": 100}),
    (CountVectorizer, {"stop_words": ["the", "aς", "and"], "ngram_range": (1, 2), "max_features": 100}),
    (CountVectorizer, {"strip_accents": "unicode"}),
    (CountVectorizer, {"strip_accents": "ascii", "lowercase": False}),
    (CountVectorizer, {"analyzer": "char", "ngram_range": (1, 2), "max_features": 200}),
    (CountVectorizer, {"analyzer": "char", "ngram_range": (3, 5), "strip_accents": "unicode", "max_features": 200}),
    (CountVectorizer, {"analyzer": "char_wb", "ngram_range": (1, 4), "max_features": 200}),
    (CountVectorizer, {"analyzer": "char_wb", "ngram_range": (6, 7), "lowercase": False, "max_features": 200}),
    (CountVectorizer, {"token_pattern": r"\b\w+\b", "max_features": 200}),
    (CountVectorizer, {"token_pattern": r"[^\s,.]+", "max_features": 200}),
    (CountVectorizer, {"token_pattern": r"\b[^\W\d_]{2,}\b", "max_features": 200}),
    (CountVectorizer, {"token_pattern": r"(?a)[a-z]+(?:['-][a-z]+)?", "max_features": 200}),
    (CountVectorizer, {"token_pattern": r"#\w+|\d+\.\d+|(?:\w\w+?)(?=\s)", "max_features": 200}),
    (CountVectorizer, {"token_pattern": r"(?u)\b(\w\w+)\b", "vocabulary": ["the", "quick", "two", "nowhere"]}),
    (HashingVectorizer, {"n_features": 64, "norm": None}),
    (HashingVectorizer, {"n_features": 2**20, "norm": None, "alternate_sign": False, "ngram_range": (1, 2)}),
    (HashingVectorizer, {"n_features": 7, "norm": None, "analyzer": "char", "binary": True}),
]


def texts() -> list[str]:
    """Every category of characters, among others."""
    found = dict[str, list[str]]()
    for code in range(sys.maxunicode + 1):
        found.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    samples = [
        characters[:: max(len(characters) // 9, 1)] for name, characters in found.items() if name not in ("Cs", "Cn")
    ]
    return [*NASTY, SIGMAS, SPACES, *WORDS, *("a" + "b C".join(each) for each in samples)]


def main() -> None:
    asked, cases = texts(), []
    for make, settings in CASES:
        fitted = make(**settings).fit(asked)
        own = asdict(vectorizer_of(fitted))
        counts = fitted.transform(asked).tocsr()
        counts.sort_indices()
        spans = zip(counts.indptr, counts.indptr[1:], strict=False)
        rows = [[(int(counts.indices[i]), int(counts.data[i])) for i in range(*span)] for span in spans]
        own["places"], own["stop_words"] = sorted(own["places"], key=own["places"].get), sorted(own["stop_words"])
        cases.append({"vectorizer": own, "rows": rows})
    path = Path(__file__).with_name("vectorizers.json")
    path.write_text(json.dumps({"texts": asked, "cases": cases}, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
