"""A tokenizer for C in one block of bytes, which C reads in place.

The block begins with words of 64 bits: the numbers of ``Head`` in order, then the start and the size in bytes of each
table of ``TABLES``. Tables begin at multiples of 8. ``templates/runtime/tokenizer.c`` has the same lists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from mlaot.tokenizers import unicode, unigram
from mlaot.tokenizers.automaton import Automaton
from mlaot.tokenizers.merging import Pair, merge
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.steps import BEHAVIORS, Change, Cut, Form, Map, Prefix, Prepend, Replace, Strip
from mlaot.tokenizers.tokenizer import Tokenizer, dropped
from mlaot.tokenizers.trie import NONE, double_array
from mlaot.tokenizers.words import word_tables

MAGIC = int.from_bytes(b"mlaotok1", "little")
TABLES = (
    *(
        "ends",
        "bytes",
        "flags",
        "words",
        "pairs",
        "byte_tokens",
        "ascii",
        "inner",
        "scores",
        "most",
        "begin",
        "closing",
        "end",
    ),
    *("added", "added_later", "kept", "frozen", "trie", "charsmap", "map_ends", "map_bytes", "plain"),
    *("steps", "parts", "words_of", "written", "compose_pages", "compose_classes", "decompositions", "compositions"),
    *("word_pages", "word_codes", "word_actions", "word_bytes", "word_plain"),
)
# Bits of a tokenizer.
UNIGRAM, BYTE_LEVEL, FUSES, SINGLE, WORD_PIECES, MARKS, STRIPS, PREFIXES = (1 << bit for bit in range(8))
DROPS_SPACE, STRICT, CUTS, MAPS, UNUSES, PRINTS, CONTINUES, CLOSES = (1 << bit for bit in range(8, 16))
# Bits of a token.
SILENT, WHOLE, UNUSED, SPECIAL, LEFT, RIGHT, ALONE = (1 << bit for bit in range(7))
# Kinds of steps, whose rows in their table are so many words; bits of some.
KINDS, STEP = (Form, Map, Replace, Strip, Prepend, Cut, Prefix), "<6q"
MAX_CUTS = 16
INVERTED, ON_BYTES = 8, 16  # above the number of the behavior
WITHIN = b"\xff"  # stands before WordPiece's pieces within words, in the same trie as others
PAGE, CHANGES = 256, 255
FACTOR, PAIR_FACTOR = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
LIMIT = (1 << 64) - 1


def pack(tokenizer: Tokenizer) -> bytes:
    """Return the block of a tokenizer."""
    t, normalizer, has_pairs = tokenizer, tokenizer.normalizer, bool(tokenizer.pairs)
    is_merged = t.kind not in ("unigram", "wordpiece")
    symbols, written = _symbols(t, is_merged)
    pairs, whole = _used(t) if is_merged else ({}, set[int]())
    tables: dict[str, bytes] = {
        "ends": np.cumsum([0, *map(len, symbols)]).astype("<u4").tobytes(),
        "bytes": b"".join(symbols),
        "flags": bytes(_flags(t, i, whole) for i in range(len(symbols))),
        "begin": np.array(t.begin, "<i4").tobytes(),
        "closing": np.array(t.closing, "<i4").tobytes(),
        "end": np.array(t.end, "<i4").tobytes(),
        "added": double_array(t.added) if t.added else b"",
        "added_later": double_array(t.added_later) if t.added_later else b"",
        "byte_tokens": np.array(t.byte_tokens, "<i4").tobytes(),
        "written": written,
    }
    cuts = False
    if t.kind == "unigram":
        scores = np.full(len(t.tokens) + 1, -np.inf, "<f4" if t.single else "<f8")
        scores[: len(t.scores)] = t.scores
        tables |= {"trie": double_array(t.pieces), "scores": scores.tobytes(), "inner": _inner(t.pieces)}
        tables["most"] = _most(t)
    elif is_merged:
        tables |= {"words": word_table(t.pieces), "pairs": _pairs(pairs) if has_pairs else b""}
        if not t.byte_level:
            tables["ascii"] = np.array([t.pieces.get(bytes([b]), -1) for b in range(128)], "<i4").tobytes()
            foreign = {*t.byte_tokens, t.unknown}
            cuts = (
                has_pairs
                and not (t.unused or t.continues or t.closes)
                and not any(left in foreign or right in foreign for left, right in pairs)
            )
            tables["inner"] = _inner([symbols[merged] for _, merged in pairs.values()]) if cuts else b""
    if normalizer.kept:
        tables["kept"] = double_array(dict.fromkeys(normalizer.kept, 0))
    if t.kept and is_merged:
        tables["frozen"] = double_array({piece: t.pieces[piece] for piece in t.kept})
    if normalizer.charsmap:
        texts = {text: i for i, text in enumerate(dict.fromkeys(normalizer.charsmap.values()))}
        tables |= {
            "charsmap": double_array({key: texts[text] for key, text in normalizer.charsmap.items()}),
            "map_ends": np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes(),
            "map_bytes": b"".join(texts),
        }
    if normalizer.charsmap or normalizer.kept or normalizer.strips:
        tables["plain"] = _plain([*normalizer.charsmap, *normalizer.kept])
    if t.kind == "wordpiece":
        behind = {WITHIN + piece: token for piece, token in t.continuing.items()}
        tables["trie"] = double_array({**t.pieces, **behind})
        if not (t.added_later or has_more(normalizer)):
            tables |= word_tables(normalizer.changes, t.cuts)
    assert len(t.cuts) <= MAX_CUTS, "bug in mlaot: too many steps"
    steps = (*normalizer.changes, *t.cuts)
    tables["steps"], tables["parts"] = _steps(steps)
    tables["words_of"] = packed_automaton(t.words) if t.words else b""
    if forms := [step for step in steps if isinstance(step, Form)]:
        tables |= _forms(not all(form.composes for form in forms))
    bits = {
        **{UNIGRAM: t.kind == "unigram", BYTE_LEVEL: t.byte_level, FUSES: t.fuses_unknown, SINGLE: t.single},
        **{WORD_PIECES: t.kind == "wordpiece", MARKS: normalizer.marks, STRIPS: normalizer.strips},
        **{PREFIXES: normalizer.prefixes, DROPS_SPACE: t.drops_space},
        **{STRICT: t.is_strict, CUTS: cuts, MAPS: bool(normalizer.charsmap or normalizer.kept), UNUSES: bool(t.unused)},
        **{CONTINUES: t.continues, CLOSES: t.closes},
        PRINTS: all(tables.get("plain", b"\0")[ord(" ") : 0x7F]),
    }
    head = (
        *(sum(bit for bit, value in bits.items() if value), len(t.tokens), len(symbols), len(normalizer.changes)),
        *(t.longest_word, t.unknown, struct.unpack("<q", struct.pack("<d", t.unknown_score))[0]),
    )
    return _block(head, tables)


def has_more(normalizer: Normalizer) -> bool:
    """Tell whether a normalizer does more than its steps."""
    return bool(normalizer.charsmap or normalizer.kept) or normalizer.strips or normalizer.prefixes or normalizer.marks


def _block(head: Sequence[int], tables: dict[str, bytes]) -> bytes:
    begin = 8 * (2 + len(head) + 2 * len(TABLES))
    places, body = lay_out(begin, TABLES, tables)
    words = [begin + len(body), *head, *places]
    return struct.pack(f"<Q{len(words)}q", MAGIC, *words) + body


def lay_out(begin: int, names: Sequence[str], tables: Mapping[str, bytes]) -> tuple[list[int], bytes]:
    """Concatenate tables; return the start and the size in bytes of each, and all bytes."""
    places, body = list[int](), bytearray()
    for name in names:
        table = tables.get(name, b"")
        places += [begin + len(body), len(table)]
        body += table + bytes(-len(table) % 8)
    return places, bytes(body)


def _flags(t: Tokenizer, i: int, whole: set[int]) -> int:
    sets = {SILENT: t.silent, WHOLE: whole, UNUSED: t.unused, SPECIAL: t.special, LEFT: t.left, RIGHT: t.right}
    return sum(bit for bit, of in {**sets, ALONE: t.alone}.items() if i in of)


def _symbols(t: Tokenizer, is_merged: bool) -> tuple[list[bytes], bytes]:
    """Return the bytes of all symbols, and a table of tokens whose output differs from their piece.

    A row is a token, the symbol of its output, and the symbol of its output at the beginning of a text.
    """
    symbols = [*t.tokens, *t.extra]
    found = {token: piece for piece, token in t.pieces.items() if token < len(t.tokens)} if is_merged else {}
    rows, more = list[tuple[int, int, int]](), dict[bytes, int]()
    for token, piece in enumerate(t.tokens):
        if found.get(token, piece) != piece or token in t.opening:
            first = t.opening.get(token, dropped(piece, t.drops_space))
            written, opened = (more.setdefault(text, len(symbols) + len(more)) for text in (piece, first))
            rows.append((token, written, opened))
    for token, piece in found.items():
        symbols[token] = piece
    return [*symbols, *more], np.array(rows, "<u4").tobytes()


def _steps(steps: Sequence[Change | Cut | Prefix]) -> tuple[bytes, bytes]:
    """Return a row for each step, and the parts that rows refer to.

    A row is the kind, flags, the place of a table or of a trie, and the places of the three ends of two texts.
    """
    rows, parts = list[bytes](), bytearray()

    def add(table: bytes) -> int:
        place = len(parts)
        parts.extend(table + bytes(-len(table) % 8))
        return place

    for step in steps:
        flags, place, texts = 0, 0, (b"", b"")
        if isinstance(step, Form):
            flags = int(step.composes)
        elif isinstance(step, Map):
            place, texts = _map(step, add)
        elif isinstance(step, Replace):
            flags, place, texts = (
                int(step.keeps),
                add(packed_automaton(step.find)),
                (step.before.encode(), step.after.encode()),
            )
        elif isinstance(step, Strip):
            flags = step.left + 2 * step.right
        elif isinstance(step, Prepend):
            texts = step.text.encode(), b""
        elif isinstance(step, Cut):
            flags = BEHAVIORS.index(step.behavior) + INVERTED * step.inverted + ON_BYTES * step.on_bytes
            place = add(packed_automaton(step.find))
        else:
            flags = step.prefixes + 2 * step.only_first + 4 * step.marks
        begin = add(b"".join(texts))
        ends = begin, begin + len(texts[0]), begin + len(texts[0]) + len(texts[1])
        rows.append(struct.pack(STEP, KINDS.index(type(step)), flags, place, *ends))
    return b"".join(rows), bytes(parts)


def _map(step: Map, add: Callable[[bytes], int]) -> tuple[int, tuple[bytes, bytes]]:
    """Add the trie of a map, whose values are the starts of the keys' replacements, each preceded by its size."""
    places, texts = dict[bytes, int](), bytearray()
    for text in step.of.values():
        if text not in places:
            places[text] = len(texts)
            texts += struct.pack("<I", len(text)) + text
    return add(double_array({key: places[text] for key, text in step.of.items()})), (_plain(step.of), bytes(texts))


def packed_automaton(find: Automaton) -> bytes:
    """Return the table of a pattern: the width, the classes of codes below 256, the pages, their classes, the rows."""
    pages = np.array(find.pages, "<u4").tobytes()
    head = struct.pack("<2I", find.width, len(find.classes)) + find.first + pages + find.classes
    return head + np.array(find.table, "<u4").tobytes()


def _used(t: Tokenizer) -> tuple[dict[Pair, tuple[int, int]], set[int]]:
    """Return the pairs that a text can ever merge, and the tokens that are the result of merging their own bytes.

    The bytes around a symbol do not affect how its own bytes are merged. So the last merge of a piece by itself is the
    only pair that makes the piece. For an unused symbol any pair may be assumed.
    """
    if t.continues or t.closes:  # what symbols a piece is made of depends on where it stands
        return dict(t.pairs), {*t.pieces.values()} if t.whole else set()
    pairs = {pair: merged for pair, merged in t.pairs.items() if merged[1] in t.unused}
    whole = set[int]()
    for piece, symbol in t.pieces.items():
        if t.byte_level:
            parts = [t.byte_tokens[byte] for byte in piece]
        else:
            parts = [t.pieces.get(character.encode(), -1) for character in piece.decode()]
        if -1 in parts:
            continue
        found, last = _merged(parts, t)
        if found == [symbol]:
            if last:
                pairs[last] = t.pairs[last]
            if symbol < len(t.tokens) and symbol not in t.unused and piece not in t.kept:
                whole.add(symbol)
    return pairs, {*t.pieces.values()} if t.whole else whole


def _merged(symbols: list[int], t: Tokenizer) -> tuple[list[int], Pair | None]:
    """Return the result of merging symbols, and the last pair; for many symbols by a heap."""
    last: Pair | None = None
    if len(symbols) > 48:
        trace = list[Pair]()
        found = merge(symbols, t.pairs, trace=trace)
        return found, trace[-1] if trace else None
    pairs = t.pairs
    while len(symbols) > 1:
        best, at = None, 0
        for i in range(len(symbols) - 1):
            pair = pairs.get((symbols[i], symbols[i + 1]))
            if pair is not None and (best is None or pair[0] < best[0]):
                best, at = pair, i
        if best is None:
            break
        last = symbols[at], symbols[at + 1]
        symbols[at : at + 2] = [best[1]]
    return symbols, last


def hash_of(data: bytes) -> int:
    """Return the hash of a piece; ``tokenizer_hash`` in C is the same."""
    value = len(data)
    for i in range(0, len(data), 8):
        value = (value ^ int.from_bytes(data[i : i + 8], "little")) * FACTOR & LIMIT
        value ^= value >> 32
    return value


def hash_of_pair(left: int, right: int) -> int:
    """Return the hash of a pair; ``pair_hash`` in C is the same."""
    value = (left * FACTOR ^ right) * PAIR_FACTOR & LIMIT
    return value ^ value >> 32


def _table(hashes: Sequence[int], count: int) -> tuple[int, list[int]]:
    """Place rows in a hash table; return the number of places, and the place of each row, the next free one."""
    places = max(count + count // 2, 1) + 1
    taken, found = bytearray(places), list[int]()
    for value in hashes:
        place = (value & NONE) * places >> 32
        while taken[place]:
            place = place + 1 if place + 1 < places else 0
        taken[place] = 1
        found.append(place)
    return places, found


def word_table(pieces: Mapping[bytes, int]) -> bytes:
    """Return the table from pieces to symbols: the upper half of the hash, and the symbol."""
    hashes = [hash_of(piece) for piece in pieces]
    places, found = _table(hashes, len(hashes))
    rows = np.full((places, 2), NONE, "<u4")
    rows[found, 0] = [value >> 32 for value in hashes]
    rows[found, 1] = [*pieces.values()]
    return rows.tobytes()


def _pairs(pairs: dict[Pair, tuple[int, int]]) -> bytes:
    """Return the table from pairs to their rank and their merged symbol; without a pair, both are -1."""
    places, found = _table([hash_of_pair(*pair) for pair in pairs], len(pairs))
    rows = np.full((places, 4), NONE, "<u4")
    rows[found] = np.array([(*pair, *merged) for pair, merged in pairs.items()], "<u4").reshape(-1, 4)
    return rows.tobytes()


def _inner(pieces: Iterable[bytes]) -> bytes:
    """Return a bit for each pair of bytes: whether they are neighbours in a piece or a character.

    No merge crosses any other pair of bytes in a text.
    """
    bits = np.zeros((256, 256), np.uint8)
    bits[:, 0x80:0xC0] = 1
    for piece in pieces:
        bits[[*piece[:-1]], [*piece[1:]]] = 1
    return np.packbits(bits, axis=1, bitorder="little").tobytes()


def _most(t: Tokenizer) -> bytes:
    """Return the largest size of the score before each token for which the text of its piece is certainly this token.

    If the rounding of sums exceeds the advantage of a piece over several others, these may win. 0 stands for never.
    """
    most = np.zeros(len(t.tokens), "<f4")
    unit = 2.0**-23 if t.single else 2.0**-52  # of a sum, which is rounded to half
    for piece, token in t.pieces.items():
        other, far = unigram.second(piece, t.scored, t.unknown_score)
        if token != t.unknown and t.scores[token] > other:
            room = (t.scores[token] - other) / ((len(piece) + 2) * unit)
            most[token] = 0.99 * room - 1.01 * max(far, abs(t.scores[token]))
    return np.maximum(most, 0).tobytes()


def _plain(keys: Iterable[bytes]) -> bytes:
    """Return a byte for each ASCII character: 1 if normalization keeps it before another one, 3 for such a space."""
    plain = bytearray(b"\1" * 128)
    for key in keys:
        if key[0] < 128 and (len(key) == 1 or key[1] < 128):
            plain[key[0]] = 0
    plain[ord(" ")] *= 3
    return bytes(plain)


def _paged(values: bytes) -> tuple[bytes, bytes]:
    """Return a byte for each character in pages, with equal pages stored once: the numbers of pages, and the pages."""
    pages = dict[bytes, int]()
    numbers = [pages.setdefault(values[i : i + PAGE], len(pages)) for i in range(0, len(values), PAGE)]
    assert len(pages) <= 256, "bug in mlaot: too many pages"
    return bytes(numbers), b"".join(pages)


def _forms(decomposes: bool) -> dict[str, bytes]:
    """Return the tables of normal forms: combining classes, decompositions, and compositions.

    ``CHANGES`` replaces the class 0 for a character that may change.
    """
    classes = bytearray(unicode.combining())
    changing = unicode.changing()
    if decomposes:
        changing |= {*unicode.decompositions(), *range(unicode.HANGUL, unicode.HANGUL + unicode.SYLLABLES)}
    for code in changing:
        classes[code] = classes[code] or CHANGES
    decomposed = sorted(unicode.decompositions().items())
    parts = [(code, *of, *[0] * (4 - len(of))) for code, of in decomposed]
    composed = sorted((first, second, code) for (first, second), code in unicode.compositions().items())
    pages, values = _paged(bytes(classes))
    return {
        **{"compose_pages": pages, "compose_classes": values},
        **{"decompositions": np.array(parts, "<u4").tobytes(), "compositions": np.array(composed, "<u4").tobytes()},
    }
