"""A ``tokenizer.json`` of Hugging Face's library, and the older ``vocab.json`` and ``vocab.txt``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from mlaot.checked_json import MAX_BYTES, read_json
from mlaot.errors import MlaotError
from mlaot.tokenizers.json_decoder import Decoder, read_decoder
from mlaot.tokenizers.json_frames import around, read_frame
from mlaot.tokenizers.json_steps import Part, Shape, byte_of, flat, refuse, utf8, word_characters
from mlaot.tokenizers.merging import Pair
from mlaot.tokenizers.steps import MARK
from mlaot.tokenizers.tokenizer import CLOSES, CONTINUES, MAX_TOKEN_BYTES, MAX_TOKENS, Tokenizer, dropped

SHAPE = {"model": {"type?": str}, "added_tokens?": [{"id": int, "content": str}]}
UNKNOWN_PENALTY = 10.0
FLAGS = {"left": "lstrip", "right": "rstrip", "alone": "single_word"}
BERT = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


def read_tokenizer_json(path: Path) -> Tokenizer:
    """Return the tokenizer of a ``tokenizer.json``."""
    return of_content(path, read_json(path, SHAPE, str(path)))


def of_content(path: Path, content: Part) -> Tokenizer:
    """Return the tokenizer of the content of a ``tokenizer.json``. Errors name its ``path``."""
    model = content["model"]
    kind = model.get("type") or _kind(model)
    if kind not in READERS:
        raise refuse(path, "model.type", kind, ", ".join(READERS))
    shape = Shape(path)
    cuts = [*flat(path, content.get("pre_tokenizer"), "pretokenizers")]
    shape.normalize(content.get("normalizer"), not any(part.get("type") == "ByteLevel" for part in cuts))
    shape.pre_tokenize(cuts)
    decoder = read_decoder(path, content, shape)
    found = READERS[kind](path, model, _vocabulary(path, model, kind), shape, decoder)
    found = replace(found, normalizer=shape.normalizer, cuts=shape.cuts, drops_space=decoder.drops_space)
    found = with_added(path, found, content.get("added_tokens") or [], decoder)
    frame = read_frame(path, content, len(found.tokens))
    begin, end = around(frame.single)
    return replace(found, begin=begin, closing=end, end=end, frame=frame)


def _kind(model: Part) -> str:
    """Return the kind of a model whose file does not name it."""
    if "merges" in model:
        return "BPE"
    return "Unigram" if "unk_id" in model else "WordPiece" if "continuing_subword_prefix" in model else ""


def read_vocabulary(path: Path) -> Tokenizer:
    """Return the tokenizer of ``vocab.json`` and of the ``merges.txt`` beside it, as for GPT-2."""
    vocabulary = read_json(path, {str: int}, str(path))
    merges = path.with_name("merges.txt")
    try:
        lines = merges.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MlaotError(f"cannot read {merges}: {error}") from None
    rows = [line for line in lines if line and not line.startswith("#version")]
    name = "<|endoftext|>"
    content = {
        "model": {"type": "BPE", "merges": rows, "vocab": vocabulary},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": vocabulary[name], "content": name, "special": True}] if name in vocabulary else [],
    }
    return of_content(path, content)


def read_word_list(path: Path, lower: bool) -> Tokenizer:
    """Return the tokenizer of a ``vocab.txt``, as for BERT: a token in each line.

    ``lower`` converts texts to lower case.
    """
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            lines = file.read(MAX_BYTES + 1).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MlaotError(f"cannot read {path}: {error}") from None
    names = [line.rstrip("\r") for line in lines[: -1 if not lines[-1] else None]]
    vocabulary = {name: i for i, name in enumerate(names)}
    if not {"[CLS]", "[SEP]", "[UNK]"} <= vocabulary.keys():
        raise refuse(path, "the tokens", f"{len(vocabulary)} others", "[CLS], [SEP] and [UNK] among them")
    content = {
        "model": {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", "continuing_subword_prefix": "##"},
        "normalizer": {"type": "BertNormalizer", "lowercase": lower},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "post_processor": {
            "type": "BertProcessing",
            **{n: [f"[{n}]".upper(), vocabulary[f"[{n.upper()}]"]] for n in ("sep", "cls")},
        },
        "added_tokens": [{"id": i, "content": name, "special": True} for name, i in vocabulary.items() if name in BERT],
    }
    return of_content(path, content)


def _vocabulary(path: Path, model: Part, kind: str) -> dict[str, int]:
    found = model.get("vocab")
    if kind != "Unigram" and isinstance(found, dict) and all(type(i) is int for i in found.values()):
        return found
    if kind == "Unigram" and isinstance(found, list):
        rows = [row[0] for row in found if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)]
        if len({*rows}) == len(found):
            return {piece: i for i, piece in enumerate(rows)}
    raise MlaotError(f"{path}: model.vocab: expected different pieces with their ids, or with their scores")


def placed(path: Path, vocabulary: Mapping[str, int]) -> list[str | None]:
    """Return the tokens in the order of their ids, with ``None`` for unused ids."""
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


def _bytes_of_characters(path: Path, model: Part, vocabulary: Mapping[str, int]) -> tuple[int, ...]:
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    if not model.get("byte_fallback"):
        return ()
    if missing := [name for name in names if name not in vocabulary]:
        raise MlaotError(f"{path}: byte_fallback: expected a token for each byte, {missing[0]} is none")
    return tuple(vocabulary[name] for name in names)


def _found(path: Path, vocabulary: Mapping[str, int], shape: Shape, decoder: Decoder) -> Tokenizer:
    """Return the tokens of a vocabulary, and those that may be found in a text."""
    names, opening = placed(path, vocabulary), dict[int, bytes]()
    tokens, pieces = list[bytes](), dict[bytes, int]()
    for i, name in enumerate(names):
        spelled, first = (b"", b"") if name is None else decoder.piece(name)
        tokens.append(spelled)
        opening[i] = first
        if not name:
            continue
        if shape.byte_level:
            if all(c in byte_of() for c in name):
                pieces[bytes(byte_of()[c] for c in name)] = i
        elif not (shape.marks and " " in name):  # no text has spaces any more
            pieces[utf8(path, name.replace(MARK, " ") if shape.marks else name)] = i
    return Tokenizer("bpe", (*tokens,), pieces, byte_level=shape.byte_level, opening=opening)


def _read_bpe(path: Path, model: Part, vocabulary: dict[str, int], shape: Shape, decoder: Decoder) -> Tokenizer:
    if model.get("dropout"):
        raise refuse(path, "model.dropout", model["dropout"], "nothing")
    found = _found(path, vocabulary, shape, decoder)
    prefix, suffix = (model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    if prefix or suffix:
        others = [name for name in ("byte_fallback", "ignore_merges") if model.get(name)]
        if not isinstance(prefix, str) or not isinstance(suffix, str) or others:
            raise refuse(path, "model", (prefix, suffix, *others), "a prefix and a suffix alone")
        pieces = _affixed(path, vocabulary, prefix, suffix, shape)
        found = replace(found, pieces=pieces, continues=bool(prefix), closes=bool(suffix))
    fallback = () if shape.byte_level else _bytes_of_characters(path, model, vocabulary)
    unknown = model.get("unk_token")
    if unknown is not None and (not isinstance(unknown, str) or unknown not in vocabulary):
        raise refuse(path, "model.unk_token", unknown, "a token")
    return replace(
        found,
        pairs=_pairs(path, model.get("merges"), vocabulary, len(prefix)),
        byte_tokens=tuple(found.pieces.get(bytes([b]), -1) for b in range(256)) if shape.byte_level else fallback,
        unknown=-1 if unknown is None or shape.byte_level else vocabulary[unknown],
        fuses_unknown=bool(model.get("fuse_unk")),
        whole=bool(model.get("ignore_merges")),
    )


def _read_word_pieces(path: Path, model: Part, vocabulary: dict[str, int], shape: Shape, decoder: Decoder) -> Tokenizer:
    if shape.byte_level:
        raise refuse(path, "pre_tokenizer", "ByteLevel", "another one of WordPiece")
    prefix, longest = model.get("continuing_subword_prefix", "##"), model.get("max_input_chars_per_word", 100)
    if not isinstance(prefix, str) or type(longest) is not int or not 0 <= longest <= MAX_TOKEN_BYTES:
        raise refuse(path, "model", (prefix, longest), "a continuing_subword_prefix and a max_input_chars_per_word")
    unknown = model.get("unk_token", "[UNK]")
    if not isinstance(unknown, str) or unknown not in vocabulary:
        raise refuse(path, "model.unk_token", unknown, "a token")
    found, spelled = _found(path, vocabulary, shape, decoder), utf8(path, prefix)
    continuing = {p[len(spelled) :]: i for p, i in found.pieces.items() if p.startswith(spelled) and p != spelled}
    return replace(found, kind="wordpiece", continuing=continuing, longest_word=longest, unknown=vocabulary[unknown])


def _affixed(path: Path, vocabulary: Mapping[str, int], prefix: str, suffix: str, shape: Shape) -> dict[bytes, int]:
    """Return the pieces of single characters, or bytes, of words: within them, and at their ends."""
    found = dict[bytes, int]()
    for name, i in vocabulary.items():
        for before, after in {(before, after) for before in ("", prefix) for after in ("", suffix)}:
            inner = name[len(before) : len(name) - len(after)]
            if len(inner) != 1 or before + inner + after != name:
                continue
            if shape.byte_level:
                spelled = bytes([byte_of()[inner]]) if inner in byte_of() else b""
            else:
                spelled = utf8(path, inner.replace(MARK, " ") if shape.marks else inner)
            if spelled:
                found[CONTINUES * bool(before) + spelled + CLOSES * bool(after)] = i
    if len({*found.values()}) < len(found):
        raise refuse(path, "model", (prefix, suffix), "a prefix and a suffix that are told apart")
    return found


def _pairs(path: Path, merges: Any, vocabulary: Mapping[str, int], skipped: int) -> dict[Pair, tuple[int, int]]:
    """Return the pairs. A merged symbol leaves out a prefix of the second one of this many characters."""
    if not isinstance(merges, list):
        raise refuse(path, "model.merges", merges, "a list of pairs")
    pairs = dict[Pair, tuple[int, int]]()
    for rank, row in enumerate(merges):
        pair: Sequence[Any] = row.split(" ") if isinstance(row, str) else row
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(half, str) for half in pair):
            raise refuse(path, f"model.merges[{rank}]", row, "two tokens")
        left, right = pair
        merged = left + right[skipped:]
        for token in (left, right, merged):
            if token not in vocabulary:
                raise refuse(path, f"model.merges[{rank}]", repr(token), "tokens of the vocabulary")
        pairs[vocabulary[left], vocabulary[right]] = rank, vocabulary[merged]
    return pairs


def _read_unigram(path: Path, model: Part, vocabulary: dict[str, int], shape: Shape, decoder: Decoder) -> Tokenizer:
    if shape.byte_level:
        raise refuse(path, "pre_tokenizer", "ByteLevel", "another one of a unigram model")
    numbers = [row[1] for row in model["vocab"]]
    if not all(isinstance(s, int | float) and not isinstance(s, bool) and abs(s) < 1e30 for s in numbers):
        raise MlaotError(f"{path}: model.vocab: expected a number as each piece's score")
    scores, unknown = [*map(as_read, numbers)], model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(scores):
        raise refuse(path, "model.unk_id", unknown, "the id of a piece")
    return replace(
        _found(path, vocabulary, shape, decoder),
        kind="unigram",
        scores=tuple(scores),
        byte_tokens=_bytes_of_characters(path, model, vocabulary),
        unknown=unknown,
        unknown_score=min(scores) - UNKNOWN_PENALTY,
        fuses_unknown=True,
    )


def _read_words(path: Path, model: Part, vocabulary: dict[str, int], shape: Shape, decoder: Decoder) -> Tokenizer:
    """Return a tokenizer of whole words: pieces without continuations."""
    whole = {"unk_token": model.get("unk_token", "<unk>"), "max_input_chars_per_word": MAX_TOKEN_BYTES}
    return replace(_read_word_pieces(path, whole, vocabulary, shape, decoder), continuing={})


READERS = {"BPE": _read_bpe, "Unigram": _read_unigram, "WordPiece": _read_word_pieces, "WordLevel": _read_words}


def as_read(score: float) -> float:
    """Return a score with the rounding of Hugging Face's library: its digits, times a power of ten, rounded twice.

    The last bit decides between segmentations with the same pieces in another order.
    """
    sign, digits, exponent = Decimal(repr(float(score))).as_tuple()
    value, power = float(int("".join(map(str, digits)))), float(f"1e{abs(int(exponent))}")
    return (-1 if sign else 1) * (value * power if int(exponent) > 0 else value / power)


def with_added(path: Path, found: Tokenizer, rows: Sequence[Part], decoder: Decoder) -> Tokenizer:
    """Return a tokenizer with added tokens. Special tokens add nothing to a decoded text."""
    tokens, opening, special = [*found.tokens], {**found.opening}, set[int]()
    added, later, flagged = dict[bytes, int](), dict[bytes, int](), {name: set[int]() for name in FLAGS}
    for row in rows:
        i, name, text = row["id"], row["content"], utf8(path, row["content"])
        if not 0 <= i < min(MAX_TOKENS, 4 * len(found.tokens) + 4096):
            raise MlaotError(f"{path}: the id {i} of the added token {name!r} is far from those of others")
        tokens += [b""] * (i + 1 - len(tokens))
        if text in added or not 0 < len(text) <= MAX_TOKEN_BYTES:
            raise MlaotError(f"{path}: the added token {name[:40]!r} is empty, too long, or there twice")
        if not row.get("normalized"):
            added[text] = i
        elif changed := found.normalizer.apply(name):
            later.setdefault(changed.encode(), i)
            name, given = changed.replace(" ", MARK) if found.normalizer.marks else changed, name
            tokens[i] = tokens[i] if name == given else b""  # its text is the normalized one, too
        for flag, spelled in FLAGS.items():
            flagged[flag] |= {i} if row.get(spelled) else set()
        if not tokens[i]:
            tokens[i], opening[i] = decoder.piece(name)
        special |= {i} if row.get("special") else set()
    flags: dict[str, Any] = {name: frozenset(ids) for name, ids in flagged.items()}
    words = word_characters() if flagged["alone"] else None
    opening = {i: first for i, first in opening.items() if first != dropped(tokens[i], decoder.drops_space)}
    found = replace(found, **flags, tokens=tuple(tokens), added=added, added_later=later, opening=opening)
    return replace(found, special=frozenset(special), silent=frozenset(special), words=words)
