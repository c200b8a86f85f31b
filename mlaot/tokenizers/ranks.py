"""A file of ranks of tiktoken: each line has the bytes of a token in base64, and its rank, which is its id."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

from mlaot.errors import MlaotError
from mlaot.tokenizers import patterns
from mlaot.tokenizers.merging import pairs_by_rank
from mlaot.tokenizers.tokenizer import MAX_TOKEN_BYTES, MAX_TOKENS, Tokenizer


@dataclass(frozen=True)
class Known:
    """Facts that a file lacks: the pattern, special tokens, and the tokens that begin and end texts."""

    pattern: str
    special: dict[str, int]
    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()


_FILL = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}
_LLAMA3 = {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|start_header_id|>": 128006}
_LLAMA3 |= {"<|end_header_id|>": 128007, "<|eot_id|>": 128009}
# By how many ranks there are.
KNOWN = {
    50256: Known("gpt2", {"<|endoftext|>": 50256}, end=(50256,)),
    50280: Known("gpt2", {"<|endoftext|>": 50256}, end=(50256,)),
    100256: Known("cl100k", {"<|endoftext|>": 100257, **_FILL}, end=(100257,)),
    128000: Known("llama3", _LLAMA3, begin=(128000,), end=(128001, 128009)),
    199998: Known("o200k", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}, end=(199999,)),
}


def read_ranks(path: Path, data: bytes) -> Tokenizer:
    """Return the tokenizer of a known file of ranks."""
    pieces = dict[bytes, int]()
    for number, line in enumerate(data.splitlines(), 1):
        text, _, rank = line.partition(b" ")
        try:
            token, i = base64.b64decode(text, validate=True), int(rank)
        except (binascii.Error, ValueError):
            raise MlaotError(f"{path}:{number}: expected base64 and a rank, got {line[:60]!r}") from None
        if not 0 < len(token) <= MAX_TOKEN_BYTES or token in pieces or not 0 <= i < MAX_TOKENS:
            raise MlaotError(
                f"{path}:{number}: the token {token[:40]!r} is empty, too long, there twice, or has a wrong rank"
            )
        pieces[token] = i
    if len(pieces) not in KNOWN:
        names = ", ".join(f"{count:,} ({known.pattern})" for count, known in KNOWN.items())
        raise MlaotError(f"{path}: expected the ranks of a known vocabulary, {names}; got {len(pieces):,}")
    return of_ranks(path, pieces, KNOWN[len(pieces)])


def of_ranks(path: Path, pieces: dict[bytes, int], known: Known) -> Tokenizer:
    """Return the tokenizer that merges two symbols whose joined bytes are a token."""
    count = 1 + max(*pieces.values(), *known.special.values())
    if len({*pieces.values()} | {*known.special.values()}) != len(pieces) + len(
        {*known.special.values()} - {*pieces.values()}
    ):
        raise MlaotError(f"{path}: two tokens have the same rank")
    tokens = [b""] * count
    for token, i in pieces.items():
        tokens[i] = token
    for name, i in known.special.items():
        tokens[i] = name.encode()
    bytes_of = tuple(pieces.get(bytes([byte]), -1) for byte in range(256))
    if -1 in bytes_of:
        raise MlaotError(f"{path}: expected a token for each byte, {bytes_of.index(-1)} has none")
    special = frozenset(known.special.values())
    return Tokenizer(
        "bpe",
        tuple(tokens),
        pieces,
        pairs=pairs_by_rank(pieces, lambda symbol: symbol, lambda piece: range(1, len(piece))),
        byte_level=True,
        byte_tokens=bytes_of,
        whole=True,
        cuts=patterns.cut(known.pattern),
        added={name.encode(): i for name, i in known.special.items()},
        special=special,
        silent=special,
        begin=known.begin,
        end=known.end,
    )
