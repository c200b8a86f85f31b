"""A ``tokenizer.model`` of SentencePiece: the protocol buffer ``ModelProto`` of a BPE or a unigram model."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlaot.errors import MlaotError
from mlaot.tokenizers import charsmap
from mlaot.tokenizers.merging import pairs_by_rank
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.steps import MARK
from mlaot.tokenizers.tokenizer import MAX_TOKEN_BYTES, MAX_TOKENS, Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = 1, 2
UNKNOWN_PENALTY, BONUS = np.float32(10), 0.1
UNKNOWN_SURFACE = " \N{DOUBLE QUESTION MARK} "
Value = int | bytes


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary."""

    text: bytes
    score: float
    kind: int


@dataclass(frozen=True)
class Message:
    """The fields of a message: the values of each number, in order."""

    path: Path
    fields: dict[int, list[Value]]

    def number(self, field: int, default: int) -> int:
        """Return the last number of a field, with a sign."""
        value = self.fields.get(field, [default])[-1]
        if isinstance(value, bytes):
            raise self.damaged(field)
        return value - (1 << 64) if value >> 63 else value

    def data(self, field: int, default: bytes = b"") -> bytes:
        """Return the last bytes of a field."""
        value = self.fields.get(field, [default])[-1]
        if isinstance(value, int):
            raise self.damaged(field)
        return value

    def real(self, field: int) -> float:
        """Return a float32."""
        data = self.data(field, bytes(4))
        if len(data) != 4:
            raise self.damaged(field)
        value: float = struct.unpack("<f", data)[0]
        return value

    def damaged(self, field: int) -> MlaotError:
        """Return the error of a field of another kind."""
        return MlaotError(f"{self.path}: expected a SentencePiece model, its field {field} is of another kind")


def parse(path: Path, data: bytes) -> Message:
    """Return the fields of a message, with numbers of 32 and 64 bits as bytes."""
    fields, place = dict[int, list[Value]](), 0

    def variable() -> int:
        nonlocal place
        value, shift = 0, 0
        while place < len(data) and shift < 70:
            byte = data[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value & (1 << 64) - 1
        raise MlaotError(f"{path}: expected a SentencePiece model, it ends within a number")

    while place < len(data):
        tag = variable()
        field, kind = tag >> 3, tag & 7
        if kind == 0:
            fields.setdefault(field, []).append(variable())
            continue
        size = variable() if kind == 2 else {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or field == 0 or place + size > len(data):
            raise MlaotError(f"{path}: expected a SentencePiece model, its field {field} at {place} is damaged")
        fields.setdefault(field, []).append(data[place : place + size])
        place += size
    return Message(path, fields)


def read_model(path: Path, data: bytes) -> Tokenizer:
    """Return the tokenizer of a model."""
    proto = parse(path, data)
    trainer, spec = parse(path, proto.data(2)), parse(path, proto.data(3))
    kind, pieces = trainer.number(3, UNIGRAM), [*_pieces(proto)]
    if kind not in (UNIGRAM, BPE):
        raise MlaotError(f"{path}: model_type: expected 1 (unigram) or 2 (BPE), got {kind}")
    if trainer.number(24, 0):
        raise MlaotError(f"{path}: treat_whitespace_as_suffix: expected false, got true")
    if parse(path, proto.data(5)).data(2):
        raise MlaotError(f"{path}: denormalizer_spec: expected none, got one")
    removes, dummy = spec.number(4, 1) != 0, spec.number(3, 1) != 0
    normalizer = Normalizer(
        charsmap=charsmap.decode(path, spec.data(2)),
        strips=removes,
        prefixes=dummy,
        marks=spec.number(5, 1) != 0,
    )
    found = of_pieces(
        path,
        pieces,
        normalizer,
        merges=kind == BPE,
        falls_back=bool(trainer.number(35, 0)),
        surface=trainer.data(44, UNKNOWN_SURFACE.encode()),
    )
    begin, end = ((i,) if (i := trainer.number(*at)) in found.special else () for at in ((41, 1), (42, 2)))
    return replace(found, begin=begin, closing=end, end=end)


def of_pieces(
    path: Path,
    pieces: Sequence[Piece],
    normalizer: Normalizer,
    *,
    merges: bool,
    falls_back: bool,
    surface: bytes = UNKNOWN_SURFACE.encode(),
) -> Tokenizer:
    """Return the tokenizer of a vocabulary, which merges pieces or is a unigram model.

    If it ``falls_back``, text without a piece becomes bytes. Otherwise it is unknown, and is decoded as ``surface``.
    """
    _check(path, pieces)
    fallback = _fallback(path, pieces) if falls_back else ()
    found, tokens, marks = dict[bytes, int](), list[bytes](), normalizer.marks
    for i, piece in enumerate(pieces):
        spelled = piece.text.replace(MARK.encode(), b" ") if marks else piece.text
        if piece.kind in (NORMAL, USER_DEFINED, UNUSED) and not (marks and b" " in piece.text):
            found[spelled] = i
        tokens.append(bytes([fallback.index(i)]) if piece.kind == BYTE and fallback else spelled)
    unknown = [i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    if len(unknown) != 1:
        raise MlaotError(f"{path}: expected one unknown piece, got {len(unknown)}")
    tokens[unknown[0]] = surface
    controls = frozenset(i for i, piece in enumerate(pieces) if piece.kind == CONTROL)
    common = Tokenizer(
        "bpe" if merges else "unigram",
        tuple(tokens),
        found,
        byte_tokens=fallback,
        unknown=unknown[0],
        fuses_unknown=True,
        normalizer=replace(normalizer, kept=tuple(piece.text for piece in pieces if piece.kind == USER_DEFINED)),
        added={pieces[i].text: i for i in controls},
        special=controls,
        silent=controls,
        unused=frozenset(i for i, piece in enumerate(pieces) if piece.kind == UNUSED),
        drops_space=normalizer.prefixes or normalizer.strips,
    )
    return with_pairs(common, [piece.score for piece in pieces]) if merges else _with_scores(common, pieces)


def _pieces(proto: Message) -> Iterator[Piece]:
    for row in proto.fields.get(1, []):
        if isinstance(row, int):
            raise proto.damaged(1)
        message = parse(proto.path, row)
        yield Piece(message.data(1), message.real(2), message.number(3, NORMAL))


def _check(path: Path, pieces: Sequence[Piece]) -> None:
    """Raise ``MlaotError`` for an invalid vocabulary."""
    seen = set[tuple[bool, bytes]]()
    if not 0 < len(pieces) <= MAX_TOKENS:
        raise MlaotError(f"{path}: expected the pieces of a SentencePiece model, got {len(pieces)}")
    for i, piece in enumerate(pieces):
        key = piece.kind in (NORMAL, USER_DEFINED, UNUSED), piece.text
        try:
            piece.text.decode()
        except UnicodeDecodeError:
            raise MlaotError(f"{path}: the piece {i} is not UTF-8: {piece.text[:40]!r}") from None
        if not 0 < len(piece.text) <= MAX_TOKEN_BYTES or key in seen or not NORMAL <= piece.kind <= BYTE:
            raise MlaotError(
                f"{path}: the piece {i}, {piece.text[:40]!r}, is empty, too long, of no kind or there twice"
            )
        if not abs(piece.score) < 1e30:
            raise MlaotError(f"{path}: the piece {i}, {piece.text[:40]!r}, has the score {piece.score}")
        seen.add(key)


def _fallback(path: Path, pieces: Sequence[Piece]) -> tuple[int, ...]:
    """Return the tokens of the 256 bytes."""
    named = {piece.text: i for i, piece in enumerate(pieces) if piece.kind == BYTE}
    names = [b"<0x%02X>" % byte for byte in range(256)]
    if missing := {*names} ^ named.keys():
        raise MlaotError(f"{path}: byte_fallback: expected a piece for each byte, {min(missing)!r} is missing or none")
    return tuple(named[name] for name in names)


def with_pairs(found: Tokenizer, scores: Sequence[float]) -> Tokenizer:
    """Return a tokenizer that merges the two symbols whose piece has the best score."""
    ranks = {score: rank for rank, score in enumerate(sorted({*scores}, reverse=True))}
    inside = {c.encode() for piece in found.pieces for c in piece.decode()} - found.pieces.keys()
    extra = tuple(sorted(inside))
    pieces = {**found.pieces, **{c: len(found.tokens) + i for i, c in enumerate(extra)}}
    pairs = pairs_by_rank(pieces, lambda symbol: ranks[scores[symbol]], _cuts)
    return replace(found, pieces=pieces, extra=extra, pairs=pairs)


def _cuts(piece: bytes) -> Iterator[int]:
    """Yield the places between the characters of a piece."""
    return (i for i in range(1, len(piece)) if piece[i] & 0xC0 != 0x80)


def _with_scores(found: Tokenizer, pieces: Sequence[Piece]) -> Tokenizer:
    """Return a unigram model, in which the user's pieces are better than any others."""
    worst = min((np.float32(piece.score) for piece in pieces if piece.kind == NORMAL), default=np.float32(0))

    def score(piece: Piece) -> float:
        return float(np.float32(BONUS * (len(piece.text) - 1))) if piece.kind == USER_DEFINED else piece.score

    kept = {text: i for text, i in found.pieces.items() if i not in found.unused}
    scores, unknown = tuple(map(score, pieces)), float(worst - UNKNOWN_PENALTY)
    return replace(found, pieces=kept, unused=frozenset(), single=True, scores=scores, unknown_score=unknown)
