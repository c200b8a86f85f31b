"""The vectorizers of tests/reference/make_vectorizers.py, hard texts, and how often each term is in these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlaot.tokenizers.vectorizer import Vectorizer

STORED = json.loads((Path(__file__).parents[1] / "reference" / "vectorizers.json").read_text(encoding="utf-8"))
TEXTS: list[str] = STORED["texts"]


def stored(case: dict[str, Any]) -> Vectorizer:
    fields = dict(case["vectorizer"])
    places = {term: i for i, term in enumerate(fields.pop("places"))}
    return Vectorizer(**{**fields, "places": places, "stop_words": frozenset(fields["stop_words"])})


VECTORIZERS = tuple(map(stored, STORED["cases"]))
EXPECTED = [[[count << 32 | place for place, count in row] for row in case["rows"]] for case in STORED["cases"]]
NAMES = [f"{v.kind} {v.least}-{v.most} {v.pattern}" for v in VECTORIZERS]
