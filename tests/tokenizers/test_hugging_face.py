"""Files with all parts that are known have the tokens and the texts of Hugging Face's library, in Python and in C."""

from __future__ import annotations

import ctypes
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.tokenizers import Tokenizer, load, pack
from mlaot.tokenizers.hugging_face import of_content
from mlaot.tokenizers.unpacking import unpack

from .compiled import Compiled
from .mixed import lines

STORED = json.loads(gzip.decompress((Path(__file__).parents[1] / "reference" / "tokenizer_parts.json.gz").read_bytes()))
TEXTS: list[str] = STORED["texts"]
MORE = lines(12, 4)


def tokenizer_of(name: str) -> Tokenizer:
    content = STORED["files"][name]
    return of_content(Path(name), {**content, "model": STORED["models"][content["model"]]})


def decoded(own: Tokenizer | Compiled, tokens: list[int]) -> str:
    """The text of tokens, each of which is asked for on its own."""
    found, first = list[bytes](), True
    for token in tokens:
        found.append(own.piece(token, first))
        first = first and own.hides(token)
    return b"".join(found).decode(errors="replace")


@pytest.mark.parametrize("name", STORED["files"])
def test_tokens(name: str, code: ctypes.CDLL) -> None:
    own, answers = tokenizer_of(name), STORED["answers"][name]
    compiled, again = Compiled(code, own), unpack(pack(own))
    behind = " " if name == "gpt" else ""  # decoding does not know yet that no word follows
    for i, (text, tokens, back) in enumerate(zip(TEXTS, answers["tokens"], answers["texts"], strict=True)):
        assert compiled.encode(text, begin=False) == tokens, repr(text)
        back += behind if tokens and own.tokens[tokens[-1]].endswith(b" ") else ""
        assert decoded(compiled, tokens) == back, repr(text)
        if i % 2 == 0:
            assert own.encode(text, begin=False) == tokens, repr(text)
            assert own.decode(tokens) == back, repr(text)
        if i % 5 == 0:
            assert again.encode(text, begin=False) == tokens, repr(text)
            assert again.decode(tokens) == back, repr(text)


@pytest.mark.parametrize("name", STORED["files"])
def test_python_and_c(name: str, code: ctypes.CDLL) -> None:
    own = tokenizer_of(name)
    compiled = Compiled(code, own)
    for text in MORE:
        assert compiled.encode(text, special=False) == own.encode(text, special=False), repr(text)
    for bad in (b"\xff", b"a\xf0\x9f", b"\xe2\x96", b"\x80\x81 \xc5", b"'\xc5", b"\xf7\xbf\xbf\xbf", b"e\xcc"):
        compiled.encode(bad)  # has no meaning, but reads no memory of others
    for token in range(len(own.tokens)):
        for first in (True, False):
            assert compiled.piece(token, first) == own.piece(token, first)


HOSTILE = ("a", " ", "\u0301", "\n", "\u2581", "1", "word", "<|both|> ", "A.", "\ufdfa", "\u4e2d")


@pytest.mark.parametrize("unit", HOSTILE)
def test_long_texts_end(code: ctypes.CDLL, unit: str) -> None:
    """A long text of one kind takes some milliseconds; if its length counted twice, this test would take minutes."""
    for name in ("deepseek llm", "falcon", "phi3", "bert", "unigram digits", "strip", "forms"):
        Compiled(code, tokenizer_of(name)).encode(unit * ((1 << 16) // len(unit.encode())))


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [7, 8]}, "[SEP]": {"id": "[SEP]", "ids": [9]}},
}


@pytest.mark.parametrize("wrapped", STORED["wrapped"])
def test_tokens_at_both_ends(wrapped: dict[str, Any], code: ctypes.CDLL) -> None:
    """Also what the library puts behind a text, for those who ask for it."""
    content = {**STORED["files"]["clip"], "model": STORED["models"]["closed bytes"]}
    own = of_content(Path("clip"), {**content, "post_processor": wrapped["post_processor"]})
    compiled, again = Compiled(code, own), unpack(pack(own))
    for text, tokens in zip(TEXTS, wrapped["tokens"], strict=False):
        for one in (own, compiled, again):
            assert one.encode(text, end=True) == tokens, repr(text)
            assert one.encode(text) == tokens[: len(tokens) - len(own.closing)], repr(text)


@pytest.mark.parametrize(
    ("part", "begin", "end"),
    [
        (TEMPLATE, (7, 8), (9,)),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]}, (7, 8), (9,)),
        ({"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 2]}, (2,), (3,)),
        ({"type": "RobertaProcessing", "sep": ["x", 5], "cls": ["y", 4]}, (4,), (5,)),
        ({"type": "ByteLevel"}, (), ()),
    ],
)
def test_begin_and_end(part: dict[str, Any], begin: tuple[int, ...], end: tuple[int, ...]) -> None:
    content = {**STORED["files"]["bert"], "model": STORED["models"]["pieces"], "post_processor": part}
    found = of_content(Path("bert"), content)
    assert (found.begin, found.closing, found.end) == (begin, end, end)


def test_list_of_words(tmp_path: Path) -> None:
    """BERT's older file has the tokens alone, a line each."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", "caf", "##e", "##\xe9", ".", "The"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    found = load(tmp_path)
    assert found.encode("The foxes. caf\xe9 [MASK]xyz") == [2, 5, 6, 7, 11, 8, 9, 4, 1]
    assert found.decode([2, 5, 6, 7, 11, 3]) == "the foxes." and found.end == (3,)
    assert found.piece(7, True) == b"##es" and found.piece(7) == b"es"
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load(tmp_path).encode("The caf\xe9", begin=False) == [12, 8, 10]
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(MlaotError, match=r"vocab.txt: the tokens: expected \[CLS\], \[SEP\] and \[UNK\] among them"):
        load(tmp_path)


def test_no_type_is_named() -> None:
    """Older files do not name the kind of their model."""
    for name in ("bert", "unigram", "smollm"):
        content = STORED["files"][name]
        model = {**STORED["models"][content["model"]]}
        del model["type"]
        own = of_content(Path(name), {**content, "model": model})
        assert own.encode(TEXTS[4], begin=False) == STORED["answers"][name]["tokens"][4]
