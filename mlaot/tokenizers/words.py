"""Tables of the effect of a normalizer and of cuts at single characters on each character.

Most texts for WordPiece are letters, which are replaced one by one, and characters between words. C walks such a text
once by these tables. Where the result of a character depends on others, C applies all steps between two gaps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.tokenizers import unicode
from mlaot.tokenizers.automaton import ELSE, PAGE, Automaton
from mlaot.tokenizers.steps import Cut, Form, Map, Replace

# What a character is: a word's, a part of its own, nothing between parts, one that depends on others, a syllable that
# is decomposed, or some characters of a word, perhaps none.
WORD, ALONE, GAP, SLOW, SYLLABLE, SEQUENCE = range(6)
ACTION = "<i4B"  # what is added to the code, or where the bytes of a sequence are; the kind, the bytes, the characters
DROPPED, MANY = -1, -2
MOST = 63  # bytes of a sequence
Codes = np.ndarray[Any, np.dtype[np.int64]]
Set = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass
class _Characters:
    """The results for all characters: a code, ``DROPPED``, or ``MANY``, which are in ``parts``."""

    codes: Codes
    parts: dict[int, tuple[int, ...]]
    alone: Set
    slow: Set
    syllables: Set

    def change(self, of: Callable[[int], tuple[int, ...]], changed: Iterable[int]) -> None:
        """Change all results that are in ``changed``."""
        own, found = np.arange(len(self.codes)), {*changed}
        moved = np.flatnonzero((self.codes != own) & (self.codes >= 0)).tolist()
        for place in {*(i for i in found if self.codes[i] == i), *(i for i in moved if int(self.codes[i]) in found)}:
            self.put(place, of(int(self.codes[place])))
        for place, parts in [*self.parts.items()]:
            if not found.isdisjoint(parts):
                self.put(place, tuple(new for code in parts for new in (of(code) if code in found else (code,))))

    def put(self, place: int, parts: tuple[int, ...]) -> None:
        """Set the result of a character to several characters."""
        self.parts.pop(place, None)
        self.codes[place] = parts[0] if len(parts) == 1 else MANY if parts else DROPPED
        if len(parts) > 1:
            self.parts[place] = parts

    def mark_slow(self, found: Set) -> None:
        """Mark results in a set as depending on other characters."""
        single = self.codes >= 0
        self.slow[single] |= found[self.codes[single]]
        for place, parts in self.parts.items():
            self.slow[place] |= any(found[code] for code in parts)

    def replace(self, step: Replace, found: Set) -> bool:
        """Replace results in a set; tell whether that was possible."""
        single = np.flatnonzero(self.codes >= 0)
        hit = single[found[self.codes[single]]]
        inside = [place for place, parts in self.parts.items() if any(found[code] for code in parts)]
        if step.keeps:
            self.alone[hit] = True
            self.slow[inside] = True
            return step.before == step.after == " "
        text = step.before + step.after
        self.codes[hit] = ord(text) if text else DROPPED
        for place in inside:
            new = tuple(map(ord, text))
            self.put(place, tuple(c for code in self.parts[place] for c in (new if found[code] else (code,))))
        return len(text) <= 1


def members(find: Automaton) -> Set | None:
    """Return the characters that a pattern finds, if it finds only single characters."""
    begin, ends = find.table[find.width : 2 * find.width], set[int]()
    for entry in begin[:-1]:
        if entry % 2 or (entry and set(find.table[entry // 2 : entry // 2 + find.width]) != {1}):
            return None
        ends.add(entry)
    if begin[-1] or not any(ends):
        return None
    pages = np.frombuffer(find.classes, np.uint8).reshape(-1, PAGE)
    classes = pages[np.array(find.pages)].ravel()
    first = np.frombuffer(find.first, np.uint8)
    classes = np.concatenate([np.where(first == ELSE, classes[:PAGE], first), classes[PAGE:]])
    found: Set = np.array([entry > 0 for entry in begin])[classes]
    return found


def word_tables(steps: Sequence[Any], cuts: Sequence[Any]) -> Mapping[str, bytes]:
    """Return the tables of steps and of later cuts; none if characters are not independent."""
    size = unicode.CODES
    none = np.zeros((3, size), bool)
    c = _Characters(np.arange(size), {}, *none)
    marks: Set | None = None  # what is ordered by its class
    for step in steps:
        found = members(step.find) if isinstance(step, Replace) else None
        if isinstance(step, Replace):
            if found is None or not c.replace(step, found):
                return {}
        elif isinstance(step, Form) and not step.composes:
            marks = np.frombuffer(unicode.combining(), np.uint8) > 0
            parts = unicode.decompositions()
            c.change(parts.__getitem__, parts)
            c.syllables[unicode.HANGUL : unicode.HANGUL + unicode.SYLLABLES] = True
        elif isinstance(step, Map) and all(len(key.decode()) == 1 for key in step.of):
            if marks is not None:
                c.mark_slow(marks)
                marks = None
            texts = {ord(key.decode()): tuple(map(ord, text.decode())) for key, text in step.of.items()}
            c.change(texts.__getitem__, texts)
        else:
            return {}
    if marks is not None:
        c.mark_slow(marks)
    kinds = np.full(size, WORD, np.uint8)
    for cut in cuts:
        found = members(cut.find) if isinstance(cut, Cut) and not (cut.inverted or cut.on_bytes) else None
        if found is None or cut.behavior not in ("removed", "isolated"):
            return {}
        kinds[found & (kinds != GAP)] = GAP if cut.behavior == "removed" else ALONE
    if kinds[ord(" ")] != GAP or kinds[unicode.LEADING : unicode.TRAILING + unicode.TRAILINGS].any():
        return {}
    return _packed(c, kinds)


def _packed(c: _Characters, kinds: np.ndarray[Any, np.dtype[np.uint8]]) -> Mapping[str, bytes]:
    """Return the tables of results; ``kinds`` has the kinds of the resulting characters."""
    for place, parts in c.parts.items():
        c.slow[place] |= any(kinds[code] != WORD for code in parts) or len("".join(map(chr, parts)).encode()) > MOST
    single = c.codes >= 0
    found = np.full(len(c.codes), SEQUENCE, np.int64)
    found[single] = kinds[c.codes[single]]
    found[single & c.alone & (found == WORD)] = ALONE
    found[c.syllables] = SYLLABLE
    found[c.slow] = SLOW
    changes = np.where(single & (found <= ALONE), c.codes - np.arange(len(c.codes)), 0)
    different, actions = np.unique(changes * 8 + found, return_inverse=True)
    rows = [struct.pack(ACTION, int(key) // 8, int(key) % 8, 0, 0, 0) for key in different]
    actions, texts = actions.astype("<u2"), bytearray()
    for place, parts in c.parts.items():
        if not c.slow[place]:
            text = "".join(map(chr, parts)).encode()
            actions[place] = len(rows)
            rows.append(struct.pack(ACTION, len(texts), SEQUENCE, len(text), len(parts), 0))
            texts += text
    if len(rows) >= 1 << 16:
        return {}
    pages = dict[bytes, int]()
    numbers = [pages.setdefault(actions[i : i + PAGE].tobytes(), len(pages)) for i in range(0, len(actions), PAGE)]
    plain = [
        int(code) if 0 < code < 128 and kind == WORD else 0 for code, kind in zip(c.codes[:128], found, strict=False)
    ]
    return {
        **{
            "word_pages": np.array(numbers, "<u2").tobytes(),
            "word_codes": b"".join(pages),
            "word_actions": b"".join(rows),
        },
        **{"word_bytes": bytes(texts), "word_plain": bytes(plain) + bytes(128)},
    }
