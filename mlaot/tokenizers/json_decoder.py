"""The decoder of a ``tokenizer.json``: the bytes that each token adds to a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlaot.tokenizers.json_steps import Part, Shape, byte_of, flat, prepend_scheme, refuse, utf8
from mlaot.tokenizers.steps import MARK

# What the decoder of WordPiece makes of tokens, in this order.
CLEANED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m")),
    *((" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)
SUPPORTED = (
    "ByteLevel, BPEDecoder, Metaspace, WordPiece, Replace of a String, ByteFallback, Fuse,"
    " Strip of a first space behind it"
)


@dataclass(frozen=True)
class Decoder:
    """A decoder. ``piece`` returns the bytes of a token, and its bytes at the beginning of a text.

    With ``drops_space`` the leading space of a first token is left out.
    """

    piece: Callable[[str], tuple[bytes, bytes]]
    drops_space: bool


def read_decoder(path: Path, content: Part, shape: Shape) -> Decoder:
    """Return the decoder, which for a file without one follows from the pre-tokenizer."""
    given = content.get("decoder")
    if "decoder" not in content:
        blanks = {"type": "Replace", "pattern": {"String": MARK}, "content": " " if shape.marks else MARK}
        given = {"type": "ByteLevel"} if shape.byte_level else blanks
    parts = [*flat(path, given, "decoders")]
    kinds = [part.get("type") for part in parts]
    strips = kinds[-2:] == ["Fuse", "Strip"]
    alone = kinds[0] if len(kinds) == 1 else ""
    if alone == "WordPiece" and isinstance(parts[0].get("prefix"), str):
        return _word_pieces(path, parts[0]["prefix"], bool(parts[0].get("cleanup", True)))
    if alone == "BPEDecoder" and isinstance(parts[0].get("suffix"), str) and parts[0]["suffix"]:
        suffix = parts[0]["suffix"]
        return Decoder(lambda token: (utf8(path, token.replace(suffix, " ")),) * 2, False)
    if alone == "Metaspace" and parts[0].get("replacement") == MARK:
        drops = prepend_scheme(parts[0]) != "never"
        return Decoder(lambda token: _spaced(path, token, drops), drops)
    if not kinds:
        return Decoder(lambda token: (utf8(path, f" {token}"), utf8(path, token)), True)
    if strips and [parts[-1].get(name) for name in ("content", "start", "stop")] != [" ", 1, 0]:
        raise refuse(path, "decoder", parts[-1], SUPPORTED)
    replaces = [(_pattern(path, part), str(part.get("content"))) for part in parts if part.get("type") == "Replace"]
    rest = [kind for kind in kinds[: -2 if strips else None] if kind not in ("Replace", "ByteFallback", "Fuse")]
    if rest not in ([], ["ByteLevel"]):
        raise refuse(path, "decoder", next((kind for kind in rest if kind != "ByteLevel"), kinds), SUPPORTED)

    def piece(token: str) -> tuple[bytes, bytes]:
        for pattern, text in replaces:
            token = token.replace(pattern, text)
        spelled = utf8(path, token)
        if "ByteFallback" in kinds and re.fullmatch("<0x[0-9A-Fa-f]{2}>", token):
            spelled = bytes([int(token[3:5], 16)])
        elif "ByteLevel" in kinds and all(c in byte_of() for c in token):
            spelled = bytes(byte_of()[c] for c in token)
        return spelled, spelled.removeprefix(b" ") if strips else spelled

    return Decoder(piece, strips)


def _pattern(path: Path, part: Part) -> str:
    pattern: Any = part.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    if not isinstance(text, str) or not text or not isinstance(part.get("content"), str):
        raise refuse(path, "decoder", part, SUPPORTED)
    return text


def _spaced(path: Path, token: str, drops: bool) -> tuple[bytes, bytes]:
    return utf8(path, token.replace(MARK, " ")), utf8(path, token.replace(MARK, "" if drops else " "))


def _word_pieces(path: Path, prefix: str, cleans: bool) -> Decoder:
    def cleaned(text: str) -> bytes:
        for pattern, becomes in CLEANED if cleans else ():
            text = text.replace(pattern, becomes)
        return utf8(path, text)

    def piece(token: str) -> tuple[bytes, bytes]:
        behind = token[len(prefix) :] if prefix and token.startswith(prefix) else f" {token}"
        return cleaned(behind), cleaned(token)

    return Decoder(piece, True)
