"""A ``tokenizer.json`` of Hugging Face's library, and the older ``vocab.json`` with ``merges.txt``: BPE and unigram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from mlaot.checked_json import read_json
from mlaot.errors import MlaotError
from mlaot.tokenizers import charsmap, patterns
from mlaot.tokenizers.merging import Pair
from mlaot.tokenizers.normalizer import MARK, Normalizer
from mlaot.tokenizers.tokenizer import MAX_TOKEN_BYTES, MAX_TOKENS, Tokenizer

Part = Mapping[str, Any]
SHAPE = {"model": {"type?": str}, "added_tokens?": [{"id": int, "content": str}]}
BLANK = {"String": " "}
UNKNOWN_PENALTY = 10.0


@cache
def byte_of() -> dict[str, int]:
    """Return the bytes that the characters of byte-level vocabularies stand for: itself where it can be printed."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(b): b for b in printed} | {chr(0x100 + i): b for i, b in enumerate(others)}


def refuse(path: Path, what: str, got: object, supported: str) -> MlaotError:
    """Return the error of a part of a tokenizer that is not known here."""
    return MlaotError(f"{path}: {what}: expected {supported}, got {str(got)[:200]}")


def read_tokenizer_json(path: Path) -> Tokenizer:
    """Return the tokenizer of a ``tokenizer.json``."""
    return of_content(path, read_json(path, SHAPE, str(path)))


def of_content(path: Path, content: Part) -> Tokenizer:
    """Return the tokenizer of what a ``tokenizer.json`` has; errors name the ``path`` that it is from."""
    model = content["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else "Unigram" if "unk_id" in model else "")
    if kind not in ("BPE", "Unigram"):
        raise refuse(path, "model.type", kind, "BPE or Unigram")
    shape = _Shape(path)
    shape.normalize(content.get("normalizer"))
    shape.pre_tokenize(content.get("pre_tokenizer"))
    drops = _drops_space(content.get("decoder"), shape)
    vocabulary = _vocabulary(path, model, kind)
    found = (
        _read_bpe(path, model, vocabulary, shape) if kind == "BPE" else _read_unigram(path, model, vocabulary, shape)
    )
    found = with_added(path, found, content.get("added_tokens") or [])
    begin = _begin(path, content.get("post_processor"), len(found.tokens))
    return replace(found, begin=begin, drops_space=drops)


def read_vocabulary(path: Path) -> Tokenizer:
    """Return the tokenizer of ``vocab.json`` and of the ``merges.txt`` beside it: GPT-2's."""
    vocabulary = read_json(path, {str: int}, str(path))
    merges = path.with_name("merges.txt")
    try:
        lines = merges.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MlaotError(f"cannot read {merges}: {error}") from None
    rows = [line for line in lines if line and not line.startswith("#version")]
    shape = _Shape(path)
    shape.pre_tokenize({"type": "ByteLevel"})
    found = _read_bpe(path, {"merges": rows}, vocabulary, shape)
    name = "<|endoftext|>"
    named = [{"id": vocabulary[name], "content": name, "special": True}] if name in vocabulary else []
    return with_added(path, found, named)


@dataclass
class _Shape:
    """What the normalizer and the pre-tokenizer of a file come to."""

    path: Path
    normalizer: Normalizer = field(default_factory=Normalizer)
    byte_level: bool = False
    pattern: str = ""
    splits_words: bool = False

    def normalize(self, part: Part | None) -> None:
        kind = part.get("type") if isinstance(part, dict) else None
        if part is None:
            return
        if kind == "Sequence":
            for one in _parts(self.path, part, "normalizers"):
                self.normalize(one)
        elif kind == "NFC":
            self.normalizer = replace(self.normalizer, composes=True)
        elif kind == "Prepend" and part.get("prepend") == MARK and not self.normalizer.prefix:
            self.normalizer = replace(self.normalizer, prefix="always")
        elif kind == "Replace" and part.get("pattern") == BLANK and part.get("content") == MARK:
            self.normalizer = replace(self.normalizer, marks=True)
        elif kind == "Precompiled" and isinstance(part.get("precompiled_charsmap"), str):
            self.normalizer = replace(
                self.normalizer, charsmap=charsmap.from_base64(self.path, part["precompiled_charsmap"])
            )
        else:
            supported = f"Sequence, NFC, Prepend of {MARK!r}, Replace of ' ' by {MARK!r}, Precompiled"
            raise refuse(self.path, "normalizer", part, supported)

    def pre_tokenize(self, part: Part | None) -> None:
        kind = part.get("type") if isinstance(part, dict) else None
        if part is None:
            return
        if kind == "Sequence":
            for one in _parts(self.path, part, "pretokenizers"):
                self.pre_tokenize(one)
        elif kind == "ByteLevel" and not self.byte_level:
            self.byte_level = True
            if part.get("use_regex", True):
                self._match(patterns.GPT2)
            if part.get("add_prefix_space"):
                self.normalizer = replace(self.normalizer, prefix="unless space")
        elif kind == "Split" and part.get("behavior") == "Isolated" and not part.get("invert") and not self.byte_level:
            self._match((part.get("pattern") or {}).get("Regex", ""))
        elif kind == "Split" and part.get("pattern") == BLANK and self.normalizer.marks:
            pass  # there are no spaces left
        elif kind == "WhitespaceSplit":
            self.normalizer = replace(self.normalizer, words=True)
        elif kind == "Metaspace" and part.get("replacement") == MARK:
            scheme = part.get("prepend_scheme", "always") if part.get("add_prefix_space", True) else "never"
            if scheme not in ("always", "first", "never"):
                raise refuse(self.path, "prepend_scheme", scheme, "always, first or never")
            first = scheme == "first"
            prefix = "" if scheme == "never" else "unless space"
            self.normalizer = replace(self.normalizer, marks=True, prefix=prefix, prefixes_first=first)
            self.splits_words = part.get("split", True) is not False
        else:
            supported = "Sequence, ByteLevel, Split by a known pattern, Metaspace, WhitespaceSplit before Metaspace"
            raise refuse(self.path, "pre_tokenizer", part, supported)

    def _match(self, text: object) -> None:
        name = patterns.named(text) if isinstance(text, str) else ""
        if not name or self.pattern:
            raise refuse(self.path, "pattern", repr(text), f"one of {', '.join(map(repr, patterns.PATTERNS.values()))}")
        self.pattern = name


def _parts(path: Path, part: Part, name: str) -> list[Part]:
    found = part.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) and one.get("type") != "Sequence" for one in found):
        raise refuse(path, name, found, "a list of objects, not nested")
    return found


def _drops_space(part: Any, shape: _Shape) -> bool:
    """Tell whether the decoder drops a text's first space; others that are known do what every token's bytes say."""
    listed = part.get("decoders") if isinstance(part, dict) and part.get("type") == "Sequence" else [part]
    if not isinstance(listed, list):
        raise refuse(
            shape.path, "decoder", part, "ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback and Strip"
        )
    kinds = {one.get("type"): one for one in listed if isinstance(one, dict)}
    if unknown := kinds.keys() - {"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}:
        raise refuse(shape.path, "decoder", unknown.pop(), "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip")
    strips = kinds.get("Strip", {}).get("start") == 1
    return strips or ("Metaspace" in kinds and bool(shape.normalizer.prefix))


def _vocabulary(path: Path, model: Part, kind: str) -> dict[str, int]:
    found = model.get("vocab")
    if kind == "BPE" and isinstance(found, dict) and all(type(i) is int for i in found.values()):
        return found
    if kind == "Unigram" and isinstance(found, list):
        rows = [row[0] for row in found if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)]
        if len({*rows}) == len(found):
            return {piece: i for i, piece in enumerate(rows)}
    raise MlaotError(f"{path}: model.vocab: expected different pieces with their ids, or with their scores")


def placed(path: Path, vocabulary: Mapping[str, int]) -> list[str | None]:
    """Return the tokens in the order of their ids, ``None`` where an id has none."""
    count = max(vocabulary.values(), default=-1) + 1
    if not 0 < count <= min(MAX_TOKENS, 4 * len(vocabulary) + 4096) or min(vocabulary.values()) < 0:
        raise MlaotError(
            f"{path}: expected the ids of {len(vocabulary)} tokens, from 0 on, got {count - 1} as the last"
        )
    found: list[str | None] = [None] * count
    for token, i in vocabulary.items():
        if found[i] is not None or len(token.encode("utf-8", "surrogatepass")) > MAX_TOKEN_BYTES:
            why = f"is longer than {MAX_TOKEN_BYTES} bytes" if found[i] is None else f"has the id of {found[i]!r}, {i}"
            raise MlaotError(f"{path}: the token {token[:40]!r} {why}")
        found[i] = token
    return found


def _utf8(path: Path, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MlaotError(f"{path}: the token {text[:40]!r} is no Unicode text") from None


def _spelled(path: Path, token: str, shape: _Shape) -> bytes:
    """Return the bytes that a token adds to a text."""
    if shape.byte_level and all(c in byte_of() for c in token):
        return bytes(byte_of()[c] for c in token)
    return _utf8(path, token.replace(MARK, " ") if shape.normalizer.marks else token)


def _bytes_of_characters(path: Path, model: Part, vocabulary: Mapping[str, int]) -> tuple[int, ...]:
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    if not model.get("byte_fallback"):
        return ()
    if missing := [name for name in names if name not in vocabulary]:
        raise MlaotError(f"{path}: byte_fallback: expected a token for each byte, {missing[0]} is none")
    return tuple(vocabulary[name] for name in names)


def _found(path: Path, vocabulary: Mapping[str, int], shape: _Shape) -> tuple[list[bytes], dict[bytes, int]]:
    """Return the bytes of all tokens, and those that may be found in a text."""
    names = placed(path, vocabulary)
    tokens = [b"" if name is None else _spelled(path, name, shape) for name in names]
    pieces = dict[bytes, int]()
    for i, (name, token) in enumerate(zip(names, tokens, strict=True)):
        spaced = shape.normalizer.marks and name is not None and " " in name  # no text has spaces any more
        foreign = shape.byte_level and name is not None and not all(c in byte_of() for c in name)
        if token and not spaced and not foreign:
            pieces[token] = i
    return tokens, pieces


def _read_bpe(path: Path, model: Part, vocabulary: dict[str, int], shape: _Shape) -> Tokenizer:
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise refuse(path, f"model.{name}", model[name], "nothing")
    if (shape.splits_words or shape.pattern) and not shape.byte_level:
        raise refuse(
            path, "pre_tokenizer", "one that cuts a text into words", "ByteLevel, or none of a BPE of characters"
        )
    tokens, pieces = _found(path, vocabulary, shape)
    fallback = () if shape.byte_level else _bytes_of_characters(path, model, vocabulary)
    unknown = model.get("unk_token")
    if unknown is not None and (not isinstance(unknown, str) or unknown not in vocabulary):
        raise refuse(path, "model.unk_token", unknown, "a token")
    for token in fallback:
        if pieces.get(tokens[token]) == token:
            del pieces[tokens[token]]
        tokens[token] = bytes([fallback.index(token)])
    return Tokenizer(
        "bpe",
        tuple(tokens),
        pieces,
        pairs=_pairs(path, model.get("merges"), vocabulary),
        byte_level=shape.byte_level,
        byte_tokens=tuple(pieces.get(bytes([b]), -1) for b in range(256)) if shape.byte_level else fallback,
        unknown=-1 if unknown is None or shape.byte_level else vocabulary[unknown],
        fuses_unknown=bool(model.get("fuse_unk")),
        whole=bool(model.get("ignore_merges")),
        pattern=shape.pattern,
        normalizer=shape.normalizer,
    )


def _pairs(path: Path, merges: Any, vocabulary: Mapping[str, int]) -> dict[Pair, tuple[int, int]]:
    if not isinstance(merges, list):
        raise refuse(path, "model.merges", merges, "a list of pairs")
    pairs = dict[Pair, tuple[int, int]]()
    for rank, row in enumerate(merges):
        pair: Sequence[Any] = row.split(" ") if isinstance(row, str) else row
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(half, str) for half in pair):
            raise refuse(path, f"model.merges[{rank}]", row, "two tokens")
        left, right = pair
        for token in (left, right, left + right):
            if token not in vocabulary:
                raise refuse(path, f"model.merges[{rank}]", repr(token), "tokens of the vocabulary")
        pairs[vocabulary[left], vocabulary[right]] = rank, vocabulary[left + right]
    return pairs


def _read_unigram(path: Path, model: Part, vocabulary: dict[str, int], shape: _Shape) -> Tokenizer:
    if shape.byte_level or shape.pattern:
        raise refuse(path, "pre_tokenizer", "ByteLevel or Split", "Metaspace for a unigram model")
    numbers = [row[1] for row in model["vocab"]]
    if not all(isinstance(s, int | float) and not isinstance(s, bool) and abs(s) < 1e30 for s in numbers):
        raise MlaotError(f"{path}: model.vocab: expected a number as each piece's score")
    scores, unknown = [*map(as_read, numbers)], model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(scores):
        raise refuse(path, "model.unk_id", unknown, "the id of a piece")
    tokens, pieces = _found(path, vocabulary, shape)
    fallback = _bytes_of_characters(path, model, vocabulary)
    for byte, token in enumerate(fallback):
        tokens[token] = bytes([byte])
    return Tokenizer(
        "unigram",
        tuple(tokens),
        pieces,
        scores=tuple(scores),
        byte_tokens=fallback,
        unknown=unknown,
        unknown_score=min(scores) - UNKNOWN_PENALTY,
        fuses_unknown=True,
        splits_words=shape.splits_words,
        normalizer=shape.normalizer,
    )


def as_read(score: float) -> float:
    """Return a score as Hugging Face's library reads it: its digits, rounded, by a power of ten, rounded again.

    The last bit decides between ways of the same pieces in another order.
    """
    sign, digits, exponent = Decimal(repr(float(score))).as_tuple()
    value, power = float(int("".join(map(str, digits)))), float(f"1e{abs(int(exponent))}")
    return (-1 if sign else 1) * (value * power if int(exponent) > 0 else value / power)


def with_added(path: Path, found: Tokenizer, rows: Sequence[Part]) -> Tokenizer:
    """Return a tokenizer with added tokens; those that are special add nothing to a text."""
    tokens, added, special = [*found.tokens], dict[bytes, int](), set[int]()
    for row in rows:
        i, name, text = row["id"], row["content"], _utf8(path, row["content"])
        if not 0 <= i < min(MAX_TOKENS, 4 * len(found.tokens) + 4096):
            raise MlaotError(f"{path}: the id {i} of the added token {name!r} is far from those of others")
        if any(row.get(flag) for flag in ("single_word", "lstrip", "rstrip")):
            raise refuse(path, f"the added token {name!r}", row, "none of single_word, lstrip and rstrip")
        if row.get("normalized") and found.normalizer.apply(name) != name:
            raise refuse(
                path, f"the added token {name!r}", "normalized text", "one that the normalizer leaves as it is"
            )
        tokens += [b""] * (i + 1 - len(tokens))
        if text in added or not 0 < len(text) <= MAX_TOKEN_BYTES:
            raise MlaotError(f"{path}: the added token {name[:40]!r} is empty, too long, or there twice")
        added[text] = i
        tokens[i] = tokens[i] or (text.replace(MARK.encode(), b" ") if found.normalizer.marks else text)
        if row.get("special"):
            special.add(i)
    return replace(found, tokens=tuple(tokens), added=added, special=frozenset(special), silent=frozenset(special))


def _begin(path: Path, part: Any, count: int) -> tuple[int, ...]:
    """Return the tokens that a template puts in front of a text."""
    listed = part.get("processors") if isinstance(part, dict) and part.get("type") == "Sequence" else [part]
    begin: list[int] = []
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("type") != "TemplateProcessing":
            continue
        try:
            for piece in one["single"]:
                if "Sequence" in piece:
                    break
                begin += one["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
        except (KeyError, TypeError, AttributeError):
            raise refuse(path, "post_processor", part, "a TemplateProcessing with its special tokens") from None
    if not all(type(i) is int and 0 <= i < count for i in begin):
        raise refuse(path, "post_processor", begin, "tokens of the vocabulary")
    return tuple(begin)
