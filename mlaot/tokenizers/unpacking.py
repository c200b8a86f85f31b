"""Unpack a tokenizer with only the standard library, for modules in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlaot.tokenizers import packing, steps
from mlaot.tokenizers.automaton import Automaton
from mlaot.tokenizers.merging import Pairs
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.tokenizer import Tokenizer
from mlaot.tokenizers.trie import FREE, LABELS, NONE

HEAD = "<7q"
Tables = Mapping[str, bytes]


def tables(packed: bytes) -> Tables:
    """Return the tables of a block by name."""
    at = 16 + struct.calcsize(HEAD)
    places = struct.iter_unpack("<2q", packed[at : at + 16 * len(packing.TABLES)])
    return {name: packed[place : place + size] for name, (place, size) in zip(packing.TABLES, places, strict=True)}


def unpack(packed: bytes) -> Tokenizer:
    """Return a tokenizer with the same tokens for every text as the packed one."""
    bits, count, _, changes, longest, unknown, score = struct.unpack_from(HEAD, packed, 16)
    found = tables(packed)
    flags, symbols = found["flags"], _texts(found["ends"], found["bytes"])
    stepped = (*map(_Steps(found["parts"]).step, struct.iter_unpack(packing.STEP, found["steps"])),)
    every = _keys(found["trie"])
    pieces = {piece: token for piece, token in every.items() if not piece.startswith(packing.WITHIN)}
    if not bits & (packing.UNIGRAM | packing.WORD_PIECES):
        pieces = {symbols[row[1]]: row[1] for row in struct.iter_unpack("<2I", found["words"]) if row[1] != NONE}
    becomes = _texts(found["map_ends"], found["map_bytes"])
    normalizer = Normalizer(
        changes=stepped[:changes],
        charsmap={key: becomes[i] for key, i in _keys(found["charsmap"]).items()},
        kept=(*_keys(found["kept"]),),
        strips=bool(bits & packing.STRIPS),
        prefixes=bool(bits & packing.PREFIXES),
        marks=bool(bits & packing.MARKS),
    )
    tokens, opening = [*symbols[:count]], dict[int, bytes]()
    for token, symbol, first in struct.iter_unpack("<3I", found["written"]):
        tokens[token], opening[token] = symbols[symbol], symbols[first]
    return Tokenizer(
        _kind(bits),
        tuple(tokens),
        pieces,
        extra=symbols[count:],
        pairs=_pairs(found["pairs"]),
        scores=_numbers("f" if bits & packing.SINGLE else "d", found["scores"])[:-1],
        byte_level=bool(bits & packing.BYTE_LEVEL),
        byte_tokens=_numbers("i", found["byte_tokens"]),
        unknown=unknown,
        unknown_score=struct.unpack("<d", struct.pack("<q", score))[0],
        fuses_unknown=bool(bits & packing.FUSES),
        single=bool(bits & packing.SINGLE),
        whole=all(flags[symbol] & packing.WHOLE for symbol in pieces.values()),
        continuing={piece[1:]: token for piece, token in every.items() if piece.startswith(packing.WITHIN)},
        continues=bool(bits & packing.CONTINUES),
        closes=bool(bits & packing.CLOSES),
        longest_word=longest,
        cuts=stepped[changes:],
        normalizer=normalizer,
        added=_keys(found["added"]),
        added_later=_keys(found["added_later"]),
        left=_flagged(flags, packing.LEFT),
        right=_flagged(flags, packing.RIGHT),
        alone=_flagged(flags, packing.ALONE),
        words=_automaton(found["words_of"]) if found["words_of"] else None,
        special=_flagged(flags, packing.SPECIAL),
        silent=_flagged(flags, packing.SILENT),
        unused=_flagged(flags, packing.UNUSED),
        begin=_numbers("i", found["begin"]),
        closing=_numbers("i", found["closing"]),
        end=_numbers("i", found["end"]),
        drops_space=bool(bits & packing.DROPS_SPACE),
        opening=opening,
    )


def _kind(bits: int) -> str:
    kinds = {packing.UNIGRAM: "unigram", packing.WORD_PIECES: "wordpiece", packing.STRICT: "characters"}
    return next((kind for bit, kind in kinds.items() if bits & bit), "bpe")


@dataclass(frozen=True)
class _Steps:
    """The parts that rows of steps refer to."""

    parts: bytes

    def step(self, row: tuple[int, ...]) -> Any:
        kind, flags, place, begin, middle, end = row
        first, second = self.parts[begin:middle], self.parts[middle:end]
        of = packing.KINDS[kind]
        if of is steps.Form:
            return steps.Form(bool(flags))
        if of is steps.Map:
            return steps.Map({key: _sized(second, at) for key, at in _keys(self.parts[place:begin]).items()})
        if of is steps.Replace:
            return steps.Replace(_automaton(self.parts[place:begin]), first.decode(), second.decode(), bool(flags))
        if of is steps.Strip:
            return steps.Strip(bool(flags & 1), bool(flags & 2))
        if of is steps.Prepend:
            return steps.Prepend(first.decode())
        if of is steps.Prefix:
            return steps.Prefix(bool(flags & 1), bool(flags & 2), bool(flags & 4))
        behavior = steps.BEHAVIORS[flags % packing.INVERTED]
        is_inverted, on_bytes = bool(flags & packing.INVERTED), bool(flags & packing.ON_BYTES)
        return steps.Cut(_automaton(self.parts[place:begin]), behavior, is_inverted, on_bytes)


def _sized(texts: bytes, at: int) -> bytes:
    """Return a text that follows its size."""
    return texts[at + 4 : at + 4 + struct.unpack_from("<I", texts, at)[0]]


def _automaton(table: bytes) -> Automaton:
    width, size = struct.unpack_from("<2I", table)
    pages, classes = 8 + 256, 8 + 256 + 4 * 0x1100
    return Automaton(
        width,
        table[8:pages],
        _numbers("I", table[pages:classes]),
        table[classes : classes + size],
        _numbers("I", table[classes + size : len(table) // 4 * 4]),
    )


def combining(found: Tables) -> bytes:
    """Return ``unicode.combining()``."""
    return _unpaged(found["compose_pages"], found["compose_classes"]).replace(bytes([packing.CHANGES]), b"\0")


def decompositions(found: Tables) -> dict[int, tuple[int, ...]]:
    """Return ``unicode.decompositions()``."""
    rows = struct.iter_unpack("<5I", found["decompositions"])
    return {code: tuple(part for part in parts if part) for code, *parts in rows}


def compositions(found: Tables) -> dict[tuple[int, int], int]:
    """Return ``unicode.compositions()``."""
    return {(first, second): code for first, second, code in struct.iter_unpack("<3I", found["compositions"])}


def _numbers(letter: str, table: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(table) // struct.calcsize(letter)}{letter}", table)


def _texts(ends: bytes, texts: bytes) -> tuple[bytes, ...]:
    """Return consecutive texts; ``ends`` begin with a zero."""
    places = _numbers("I", ends)
    return tuple(texts[begin:end] for begin, end in pairwise(places))


def _keys(trie: bytes) -> dict[bytes, int]:
    """Return the keys of a double array and their values."""
    nodes, found = [*struct.iter_unpack("<2I", trie)], dict[bytes, int]()
    children: dict[int, list[int]] = {}  # the places of each base
    for place, (word, _) in enumerate(nodes[1:], 1):
        if word % LABELS != FREE:
            children.setdefault(place - word % LABELS, []).append(place)
    waiting = [(0, b"")] if nodes else []
    while waiting:
        place, key = waiting.pop()
        word, value = nodes[place]
        if value != NONE:
            found[key] = value
        waiting += [(child, key + bytes([nodes[child][0] % LABELS])) for child in children.get(word // LABELS, ())]
    return found


def _pairs(table: bytes) -> Pairs:
    rows = struct.iter_unpack("<4I", table)
    return {(left, right): (rank, merged) for left, right, rank, merged in rows if rank != NONE}


def _flagged(flags: bytes, bit: int) -> frozenset[int]:
    return frozenset(i for i, value in enumerate(flags) if value & bit)


def _unpaged(pages: bytes, values: bytes) -> bytes:
    return b"".join(values[packing.PAGE * page : packing.PAGE * (page + 1)] for page in pages)
