"""Rows of tokens are those of Hugging Face's library: of texts and of pairs, cut or not, in any frame."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.frontend.trace.tokens import Tokens, rows_of
from mlaot.tokenizers import Tokenizer, characters
from mlaot.tokenizers.frames import FIRST, SECOND, TYPE
from mlaot.tokenizers.hugging_face import of_content

from .compiled import Compiled
from .test_hugging_face import STORED

STORED_ROWS = json.loads((Path(__file__).parents[1] / "reference" / "frames.json").read_text())
FILE = STORED["files"][STORED_ROWS["file"]]
MODEL = STORED["models"][FILE["model"]]
ADDED = [row for row in FILE["added_tokens"] if not row["normalized"]]
ADDED = [{**row, "id": len(MODEL["vocab"]) + i} for i, row in enumerate(ADDED)]
CONTENT = {**FILE, "model": MODEL, "added_tokens": ADDED}


def framed(said: dict[str, Any]) -> Tokenizer:
    return of_content(Path("bert"), {**CONTENT, **said})


@pytest.mark.parametrize("case", STORED_ROWS["cases"], ids=lambda case: json.dumps(case["said"])[:60])
def test_rows(case: dict[str, Any], code: ctypes.CDLL) -> None:
    rows = rows_of(framed(case["said"]))
    compiled = Compiled(code, rows.tokenizer)
    for texts, expected in zip(STORED_ROWS["given"], case["rows"], strict=True):
        if expected is not None:
            numbers = [token | type_ << TYPE for token, type_ in zip(*expected, strict=True)]
            assert rows.row(*texts) == numbers, texts
        if expected is not None and len(texts) == 1 and not case["said"]["truncation"]:
            found = compiled.encode(texts[0], end=True)
            assert found == expected[0], texts


def test_what_models_read() -> None:
    tokens = Tokens(
        framed({"post_processor": STORED_ROWS["cases"][1]["said"]["post_processor"], "padding": {"pad_id": 5}})
    )
    rows = tokens.rows(["a", ("a", "b b"), ""])
    assert tokens.mask(rows).tolist() == [[True] * 3 + [False] * 3, [True] * 6, [True] * 2 + [False] * 4]
    assert tokens.ids(rows)[2].tolist() == [2, 3, 5, 5, 5, 5] and len(tokens) == len(framed({}).tokens)
    assert tokens.types(rows).tolist() == [[0] * 6, [0, 0, 0, 1, 1, 1], [0] * 6]
    assert tokens.rows([]).shape == (0, 1)


def _template(single: Any, pair: Any) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {"x": {"ids": [1]}}}


A, B, X = ({"Sequence": {"id": "A"}}, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "x"}})


def test_frames_of_one_text_only() -> None:
    """What a file says of two texts may be nonsense, as long as nobody needs it."""
    frame = framed({"post_processor": _template([A, X], [A, X])}).frame
    assert frame is not None and (frame.single, frame.pair) == ((FIRST, 1), ())
    frame = framed({"post_processor": _template([A], [B, A])}).frame
    assert frame is not None and frame.pair == (SECOND | 1 << TYPE, FIRST)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"truncation": {"max_length": -1}}, "truncation: expected a max_length and a direction, Left or Right"),
        ({"truncation": {"max_length": 9, "direction": "Up"}}, "truncation: expected a max_length"),
        ({"truncation": 3}, "padding and truncation: expected objects"),
        ({"padding": {"pad_id": 10**6}}, r"padding.pad_id: expected a token of the vocabulary"),
        ({"post_processor": _template([A, A], [])}, "post_processor: expected one of BertProcessing"),
        ({"post_processor": _template([A, B], [])}, "post_processor: expected one of BertProcessing"),
        ({"post_processor": _template([X], [])}, "post_processor: expected one of BertProcessing"),
        ({"post_processor": _template([A] + [X] * 64, [])}, "post_processor: expected one of BertProcessing"),
        ({"post_processor": _template([{"Sequence": {"id": "A", "type_id": -1}}], [])}, "post_processor: expected one"),
    ],
)
def test_damaged_frames(said: dict[str, Any], why: str) -> None:
    with pytest.raises(MlaotError, match=why):
        framed(said)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: rows_of(characters("ab")), "expected a tokenizer that has tokens for any text"),
        (lambda: rows_of(framed({}), 0), "longest: expected a number of tokens from 1"),
        (lambda: rows_of(framed({}), True), "longest: expected a number of tokens from 1"),
        (
            lambda: rows_of(framed(STORED_ROWS["cases"][1]["said"]), 2),
            "rows longer than what stands around texts, got 2",
        ),
        (lambda: Tokens("nowhere.json"), "no file or folder nowhere.json"),
        (lambda: Tokens(framed({}))[3, 4], "expected two named dims"),
    ],
)
def test_mistakes(make: Any, why: str) -> None:
    with pytest.raises(MlaotError, match=why):
        make()
