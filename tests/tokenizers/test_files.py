"""Files of tokenizers: what is beside them, and errors that say where and what is wrong."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.tokenizers import load, pack
from mlaot.tokenizers.patterns import cut
from mlaot.tokenizers.ranks import KNOWN

from .stored import CASES, file_of

Change = Callable[[dict[str, Any]], object]


def write(folder: Path, name: str, content: bytes | object) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def changed(case: str, change: Change) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file_of(case))
    change(content)
    return content


def llama2c(tokens: list[bytes]) -> bytes:
    return struct.pack("<i", 9) + b"".join(struct.pack("<fi", -i, len(t)) + t for i, t in enumerate(tokens))


OWN = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256)), b" ", b"a", b"b", b"ab", b" ab"]


def test_llama2c(tmp_path: Path) -> None:
    tokenizer = load(write(tmp_path, "tokenizer.bin", llama2c(OWN)))
    assert tokenizer.encode("ab") == [1, 263]
    assert tokenizer.encode("aabc</s>") == [1, 259, 260, 262, 3 + ord("c"), 2]
    assert tokenizer.decode([1, 263, 262, 0, 2]) == "abab"
    assert tokenizer.begin == (1,) and tokenizer.end == (1, 2)


def test_vocabulary_and_merges(tmp_path: Path) -> None:
    """The older pair of files is GPT-2's."""
    content = json.loads(file_of("json gpt2"))
    write(tmp_path, "vocab.json", content["model"]["vocab"])
    rows = [" ".join(row) for row in content["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(rows) + "\n", "utf-8")
    write(tmp_path / "..", "tokenizer.json", content)
    text = "First Citizen:\n  We'll <|endoftext|> 12"
    assert load(tmp_path).encode(text) == load(tmp_path / ".." / "tokenizer.json").encode(text, begin=False)


def test_beside(tmp_path: Path) -> None:
    """Other files tell what begins and ends a text."""
    write(tmp_path, "tokenizer.json", changed("json llama3", lambda c: c.pop("post_processor")))
    assert load(tmp_path).begin == load(tmp_path).end == ()
    write(
        tmp_path,
        "tokenizer_config.json",
        {"add_bos_token": True, "bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}},
    )
    assert load(tmp_path).begin == (1,) and load(tmp_path).end == (2,)
    write(tmp_path, "config.json", {"eos_token_id": 0})
    assert load(tmp_path).end == (0,)
    write(tmp_path, "generation_config.json", {"eos_token_id": [0, 2, 10**9]})
    assert load(tmp_path).end == (0, 2)
    write(tmp_path, "tokenizer.json", file_of("json llama3"))
    write(tmp_path, "tokenizer_config.json", {"add_bos_token": False})
    assert load(tmp_path).begin == load(tmp_path).closing == ()
    write(tmp_path, "tokenizer_config.json", {"add_eos_token": True, "eos_token": "<|im_end|>"})
    assert load(tmp_path).closing == (2,)


def test_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "some.tiktoken", file_of("ranks cl100k"))
    with pytest.raises(
        MlaotError, match=r"some.tiktoken: expected the ranks of a known vocabulary, 50,256 \(gpt2\), .*; got "
    ):
        load(path)
    count = len(file_of("ranks cl100k").splitlines())
    monkeypatch.setitem(KNOWN, count, KNOWN[50256])
    assert load(path).cuts == cut("gpt2")
    for rows, message in (
        (b"AA== 0\nAA== 1\n", ":2: the token b'.x00' is empty, too long, there twice, or has a wrong rank"),
        (b"AA== 0\n!! 1\n", ":2: expected base64 and a rank, got b'!! 1'"),
        (b"AA== -1\n", ":1: the token"),
    ):
        with pytest.raises(MlaotError, match=message):
            load(write(tmp_path, "bad.tiktoken", rows))
    monkeypatch.setitem(KNOWN, 1, KNOWN[50256])
    with pytest.raises(MlaotError, match="expected a token for each byte, 1 has none"):
        load(write(tmp_path, "bad.tiktoken", b"AA== 0\n"))


def _set(*keys: Any) -> Change:
    """A change of one value, the last of the keys."""

    def change(content: Any) -> None:
        for key in keys[:-2]:
            content = content[key]
        content[keys[-2]] = keys[-1]

    return change


SPLIT = {"type": "Split", "pattern": {"Regex": r"\b\w+"}, "behavior": "Isolated", "invert": False}
BOTH = {"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 2]}
BROKEN: list[tuple[str, Change, str]] = [
    ("json gpt2", _set("model", "type", "Words"), "model.type: expected BPE, Unigram, WordPiece, WordLevel, got Words"),
    ("json gpt2", _set("model", []), "is damaged: expected model to be an object, got list"),
    ("json gpt2", _set("added_tokens", [{"id": 3}]), r"is damaged: no added_tokens\[0\].content"),
    (
        "json gpt2",
        _set("normalizer", {"type": "ByteLevel"}),
        "normalizer: expected Sequence, NFC, .*, got .*ByteLevel",
    ),
    (
        "json gpt2",
        _set("normalizer", {"type": "Sequence", "normalizers": 3}),
        "normalizers: expected a list of objects",
    ),
    ("json gpt2", _set("pre_tokenizer", {"type": "UnicodeScripts"}), "pre_tokenizer: expected Sequence, ByteLevel, "),
    ("json gpt2", _set("pre_tokenizer", SPLIT), r"pattern: expected sets, .*, got .*b in .*w\+"),
    ("json gpt2", _set("decoder", {"type": "WordPiece"}), "decoder: expected ByteLevel, .*, got WordPiece"),
    ("json gpt2", _set("model", "vocab", {"a": 0, "b": 0}), "the token 'b' has the id of 'a', 0"),
    ("json gpt2", _set("model", "vocab", {"a": 1 << 40}), "expected the ids of 1 tokens, from 0 on, got 1099511627776"),
    ("json gpt2", _set("model", "vocab", {"a": -1}), "expected the ids of 1 tokens, from 0 on"),
    ("json gpt2", _set("model", "vocab", {}), "expected the ids of 0 tokens, from 0 on"),
    ("json gpt2", _set("model", "vocab", {"a": "0"}), "model.vocab: expected different pieces with their ids"),
    ("json gpt2", _set("model", "vocab", {"a" * 5000: 0}), "the token 'a*' is longer than 4096 bytes"),
    ("json gpt2", _set("model", "vocab", {"\ud800": 0}), "is no Unicode text"),
    ("json gpt2", _set("model", "merges", {}), "model.merges: expected a list of pairs"),
    (
        "json gpt2",
        _set("model", "merges", [["a", "qqqqq"]]),
        r"model.merges\[0\]: expected tokens of the vocabulary, got 'qqqqq'",
    ),
    ("json gpt2", _set("model", "merges", ["a b c"]), r"model.merges\[0\]: expected two tokens, got a b c"),
    ("json gpt2", _set("model", "merges", [[1, 2]]), r"model.merges\[0\]: expected two tokens"),
    ("json gpt2", _set("model", "dropout", 0.1), "model.dropout: expected nothing, got 0.1"),
    (
        "json llama3",
        _set("model", "end_of_word_suffix", "</w>"),
        r"model: expected a prefix and a suffix alone, got .*'</w>', 'ignore_merges'",
    ),
    ("json gpt2", _set("model", "end_of_word_suffix", ["</w>"]), "model: expected a prefix and a suffix alone, got"),
    (
        "json gpt2",
        lambda c: c.update(post_processor={"type": "Sequence", "processors": [BOTH, BOTH]}),
        "post_processor: expected one of BertProcessing",
    ),
    (
        "json gpt2",
        _set("added_tokens", [{"id": 1 << 30, "content": "x"}]),
        "the id 1073741824 of the added token 'x' is far",
    ),
    ("json gpt2", _set("added_tokens", [{"id": 9, "content": ""}]), "the added token '' is empty"),
    (
        "json gpt2",
        _set("pre_tokenizer", {**SPLIT, "pattern": {"String": "x"}, "behavior": "Joined"}),
        "behavior: expected isolated, removed, .*, got Joined",
    ),
    ("json gpt2", _set("pre_tokenizer", {**SPLIT, "pattern": {}}), "pattern: expected a String or a Regex"),
    ("json gpt2", _set("pre_tokenizer", {**SPLIT, "pattern": {"Regex": "a*"}}), "nothing at all in 'a.'"),
    (
        "json gpt2",
        _set("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "Digits"}] * 13}),
        "pretokenizers: expected a list of objects, at most 12",
    ),
    ("json gpt2", _set("pre_tokenizer", {"type": "Metaspace", "replacement": "_"}), "Metaspace with '\u2581'"),
    ("json gpt2", _set("decoder", {"type": "Strip", "content": " ", "start": 1}), "decoder: expected ByteLevel, "),
    ("json gpt2", _set("decoder", {"type": "Replace", "pattern": {"Regex": "x"}}), "decoder: expected ByteLevel, "),
    (
        "json gpt2",
        _set(
            "normalizer",
            {
                "type": "Sequence",
                "normalizers": 2 * [{"type": "Replace", "pattern": {"Regex": "."}, "content": 99 * "a"}],
            },
        ),
        "expected one that makes a text at most 4096 times as long, got",
    ),
    ("json gpt2", _set("normalizer", {"type": "Prepend", "prepend": "\ud800"}), "a step: expected Unicode text"),
    ("json gpt2", _set("post_processor", {"type": "BertProcessing", "cls": 3}), "post_processor: expected one of Bert"),
    ("json unigram", _set("pre_tokenizer", {"type": "ByteLevel"}), "pre_tokenizer: expected another one of a unigram"),
    ("json gpt2", _set("post_processor", "single", [{"SpecialToken": {"id": "x"}}]), "post_processor: expected"),
    ("json unigram", _set("model", "vocab", [["a", 1.0], ["a", 2.0]]), "expected different pieces"),
    ("json unigram", _set("model", "vocab", [["a", None]]), "expected a number as each piece's score"),
    ("json unigram", _set("model", "unk_id", 10**6), "model.unk_id: expected the id of a piece, got 1000000"),
    (
        "json characters",
        _set("model", "byte_fallback", True),
        "byte_fallback: expected a token for each byte, <0x00> is none",
    ),
    ("json characters", _set("model", "unk_token", "?!"), "model.unk_token: expected a token, got"),
]


@pytest.mark.parametrize(("case", "change", "message"), BROKEN)
def test_broken_json(tmp_path: Path, case: str, change: Change, message: str) -> None:
    path = write(tmp_path, "tokenizer.json", changed(case, change))
    with pytest.raises(MlaotError, match=message) as caught:
        load(tmp_path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def _varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _model(*pieces: tuple[bytes, int], trainer: bytes = b"", spec: bytes = b"") -> bytes:
    rows = (
        _field(1, _field(1, text) + b"\x15" + struct.pack("<f", -i) + _field(3, kind))
        for i, (text, kind) in enumerate(pieces)
    )
    return b"".join(rows) + _field(2, trainer) + _field(3, spec)


UNK = (b"<unk>", 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected the pieces of a SentencePiece model, got 0"),
        (b"\x0a\x80", "it ends within a number"),
        (b"\x0a\xff\xff\xff\xff\x0f", "its field 1 at 6 is damaged"),
        (b"\x0b", "its field 1 at 1 is damaged"),
        (b"\x08\x01", "its field 1 is of another kind"),
        (_model((b"a", 1)), "expected one unknown piece, got 0"),
        (_model(UNK, UNK), "is empty, too long, of no kind or there twice"),
        (_model(UNK, (b"", 1)), "is empty, too long, of no kind or there twice"),
        (_model(UNK, (b"a", 9)), "is empty, too long, of no kind or there twice"),
        (_model(UNK, (b"\xff", 1)), "the piece 1 is not UTF-8"),
        (_model(UNK, trainer=_field(3, 3)), r"model_type: expected 1 \(unigram\) or 2 \(BPE\), got 3"),
        (_model(UNK, trainer=_field(24, 1)), "treat_whitespace_as_suffix: expected false"),
        (_model(UNK, trainer=_field(35, 1)), "byte_fallback: expected a piece for each byte, b'<0x00>' is missing"),
        (_model(UNK, spec=_field(2, b"\x08\0\0\0\0")), "the table of characters has 5 bytes, of which 8 are its array"),
        (_model(UNK, spec=_field(2, b"\x04\0\0\0" + b"\0\0\0\0" + b"x")), None),
    ],
)
def test_broken_model(tmp_path: Path, content: bytes, message: str | None) -> None:
    path = write(tmp_path, "tokenizer.model", content)
    if message is None:
        assert load(path).encode("a", begin=False) == [0]
        return
    with pytest.raises(MlaotError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected 3 special tokens and 256 bytes of llama2.c's tokenizer, got 0"),
        (llama2c(OWN)[:-1], "that of 263 is damaged"),
        (llama2c([*OWN, b"a"]), "the piece 264, b'a', is there twice"),
        (llama2c([*OWN, b"\xff"]), "the piece 264 is not UTF-8"),
        (struct.pack("<ifi", 1, 0, -5), "that of 0 is damaged"),
    ],
)
def test_broken_llama2c(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(MlaotError, match=message):
        load(write(tmp_path, "tokenizer.bin", content))


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("ranks")])
def test_damaged_files(tmp_path: Path, case: str) -> None:
    """Whatever a file has, it is read, or its error is one that names it."""
    rng, content, read = random.Random(0), file_of(case), 0
    name = f"tokenizer.{case.partition(' ')[0]}"
    for i in range(12):
        damaged = bytearray(content[: rng.randrange(len(content)) if i % 3 == 0 else None])
        for _ in range(rng.randint(0, 6)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x22, 0x30, 0x7F, 0xFF, rng.randrange(256)))
        path = write(tmp_path, name, bytes(damaged))
        try:
            tokenizer = load(path)
        except MlaotError as error:
            assert str(path) in str(error)
            continue
        pack(tokenizer), tokenizer.encode("First Citizen: \u3000e\u0301 we'll")
        read += 1
    assert read < 12


def test_charsmap_without_end(tmp_path: Path) -> None:
    """A table whose nodes lead back to others ends with an error."""
    units = [(i ^ 1) << 10 | i ^ 1 for i in range(256)]  # all have the base 1, and are the children of all
    blob = struct.pack("<I256I", 1024, *units) + b"\0"
    path = write(tmp_path, "tokenizer.model", _model(UNK, spec=_field(2, blob)))
    with pytest.raises(MlaotError, match="the table of characters has keys without end"):
        load(path)
    content = changed("json unigram", _set("normalizer", {"type": "Precompiled", "precompiled_charsmap": "?"}))
    with pytest.raises(MlaotError, match="precompiled_charsmap is not base64"):
        load(write(tmp_path, "tokenizer.json", content))
    content["normalizer"]["precompiled_charsmap"] = base64.b64encode(blob).decode()
    with pytest.raises(MlaotError, match="the table of characters has keys without end"):
        load(write(tmp_path, "tokenizer.json", content))


def test_what_is_no_tokenizer(tmp_path: Path) -> None:
    for name, message in (("none", "cannot read"), (".", "expected one of tokenizer.json, .* found none")):
        with pytest.raises(MlaotError, match=message):
            load(tmp_path / name)
    with pytest.raises(MlaotError, match=r"expected a tokenizer: \*.json, \*.model, \*.tiktoken or \*.bin"):
        load(write(tmp_path, "x.txt", b"hello"))
    write(tmp_path, "vocab.json", {"a": 0})
    with pytest.raises(MlaotError, match=r"cannot read .*merges.txt"):
        load(tmp_path)
