"""The patterns that cut a text before its parts are merged, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from string import ascii_letters, digits

import numpy as np

from mlaot.tokenizers import pattern_syntax as syntax
from mlaot.tokenizers.automaton import ELSE, PAGE, Automaton
from mlaot.tokenizers.pattern_syntax import All, Any, Edge, Next, Node, One, PatternError, Set, Times, characters
from mlaot.tokenizers.steps import MARK, Cut

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"
QWEN2 = rf"{_WORDS}\p{{N}}{_REST}"
# As tiktoken has it: whitespace at the end of a text is one part.
CL100K = LLAMA3.replace(r"|\s*[", r"|\s+\z|\s*[")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LETTER = r"[^\r\n\p{L}\p{N}]?"
O200K = (
    rf"{_LETTER}{_UPPER}*{_LOWER}+{CONTRACTIONS}?|{_LETTER}{_UPPER}+{_LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"gpt2": GPT2, "llama3": LLAMA3, "qwen2": QWEN2, "cl100k": CL100K, "o200k": O200K}
MAX_STATES, MAX_CLASSES, MAX_TABLE = 1 << 11, 250, 1 << 17
EDGES = ("begin", "end", "word", "inside")
# ("set", which, next), ("next", which, next), ("edge", which, next), ("either", first, second), ("match", 0, 0)
State = tuple[str, int, int]
BEGIN, BEHIND_WORD, BEHIND_OTHER = range(3)  # what stands before a place
ASCII_WORDS = characters(ascii_letters + digits + "_")


@cache
def of_text(text: str) -> Automaton:
    """Return the table of a regular expression."""
    return automaton(syntax.parse(text))


@cache
def of_literal(text: str) -> Automaton:
    """Return the table that finds a literal text."""
    return automaton(syntax.sequence(text))


def cut(name: str) -> tuple[Cut, ...]:
    """Return the cut by a known pattern."""
    return (Cut(of_text(PATTERNS[name])),)


def of_set(found: Set) -> Automaton:
    """Return the table that finds each character of a set."""
    return automaton(One(found))


def on_marks(found: Automaton) -> Automaton:
    """Return a table for texts in which a space represents ``MARK``."""
    space = ord(" ")
    return replace(found, first=found.first[:space] + bytes([found.class_of(ord(MARK))]) + found.first[space + 1 :])


def on_bytes(found: Automaton, spelled: Sequence[int]) -> Automaton:
    """Return a table for bytes, for which a pattern uses the characters ``spelled``."""
    return replace(found, first=bytes(map(found.class_of, spelled)))


class _Machine:
    """The states of a pattern, and the sets that they test."""

    def __init__(self) -> None:
        self.states: list[State] = [("match", 0, 0)]
        self.sets: dict[tuple[bytes, bool], int] = {}  # whether the end is among them

    def add(self, kind: str, first: int, second: int) -> int:
        if len(self.states) == MAX_STATES:
            raise PatternError("more than can be matched fast")
        self.states.append((kind, first, second))
        return len(self.states) - 1

    def set(self, found: Set, or_end: bool) -> int:
        return self.sets.setdefault((np.packbits(found).tobytes(), or_end), len(self.sets))

    def build(self, node: Node, then: int) -> int:
        """Return the state that matches a node and continues at another state."""
        match node:
            case One():
                return self.add("set", self.set(node.of, False), then)
            case Next():
                return self.add("next", self.set(node.of, node.or_end), then)
            case All():
                for one in reversed(node.of):
                    then = self.build(one, then)
                return then
            case Any():
                found = self.build(node.of[-1], then)
                for one in reversed(node.of[:-1]):
                    found = self.add("either", self.build(one, then), found)
                return found
            case Times():
                return self.repeat(node, then)
            case Edge():
                return self.add("edge", EDGES.index(node.kind), then)

    def repeat(self, node: Times, then: int) -> int:
        if node.most is None:
            loop = self.add("either", then, then)
            body = self.build(node.of, loop)
            self.states[loop] = ("either", body, then) if node.greedy else ("either", then, body)
            then = loop
        else:
            behind = then
            for _ in range(node.most - node.least):
                body = self.build(node.of, then)
                then = self.add("either", *((body, behind) if node.greedy else (behind, body)))
        for _ in range(node.least):
            then = self.build(node.of, then)
        return then


def automaton(node: Node) -> Automaton:
    """Return the table of a pattern."""
    machine = _Machine()
    begin = machine.build(node, 0)
    kinds, members = _classes([*machine.sets])
    width = len(members) + 1
    has = [*members, [or_end for _, or_end in machine.sets]]  # of each class, and of the end
    states, known, rows = machine.states, {(): 0, (begin,): 1}, list[list[int]]()
    waiting: list[tuple[int, ...]] = [(), (begin,)]
    size = 1  # of all rows' states together
    while len(rows) < len(waiting):
        row = list[int]()
        for column in range(width):
            after, matched = _step(states, waiting[len(rows)], has[column], column == width - 1)
            if matched and len(rows) == 1:
                raise PatternError("one that matches nothing at all")
            if after not in known:
                known[after] = len(waiting)
                waiting.append(after)
                size += len(after)
            row.append(2 * width * known[after] + matched)
        rows.append(row)
        if size * width > MAX_TABLE:
            raise PatternError("more than can be matched fast")
    return _table(width, kinds, tuple(entry for row in rows for entry in row))


def _table(width: int, kinds: bytes, table: tuple[int, ...]) -> Automaton:
    pages = dict[bytes, int]()
    numbers = tuple(pages.setdefault(kinds[i : i + PAGE], len(pages)) for i in range(0, len(kinds), PAGE))
    first = kinds[:128] + bytes([ELSE]) * 128
    return Automaton(width, first, numbers, b"".join(pages), table)


def longest(node: Node, whole: bool = False) -> tuple[Automaton, tuple[int, int, int]]:
    """Return the table of the longest match of a pattern, and its three initial rows.

    They are for a match at the beginning of a text, after a word's character (of ASCII), and after any other. A match
    may be empty. With ``whole`` only the whole text matches.
    """
    machine = _Machine()
    begin = machine.build(node, 0)
    word = machine.set(ASCII_WORDS, False)
    kinds, members = _classes([*machine.sets])
    width = len(members) + 1
    has = [*members, [or_end for _, or_end in machine.sets]]
    starts = [((begin,), before) for before in (BEGIN, BEHIND_WORD, BEHIND_OTHER)]
    known: dict[tuple[tuple[int, ...], int], int] = {((), BEGIN): 0}
    waiting, rows, size = [*known], list[list[int]](), 1
    for start in starts:
        known[start] = len(waiting)
        waiting.append(start)
    while len(rows) < len(waiting):
        row, (from_, before) = list[int](), waiting[len(rows)]
        for column in range(width):
            at_end = column == width - 1
            after, matched = _all_steps(machine.states, from_, before, has[column], word, at_end)
            state = (after, (BEHIND_WORD if has[column][word] else BEHIND_OTHER) if after else BEGIN)
            if state not in known:
                known[state] = len(waiting)
                waiting.append(state)
                size += len(after)
            row.append(2 * width * known[state] + (matched and (at_end or not whole)))
        rows.append(row)
        if size * width > MAX_TABLE:
            raise PatternError("more than can be matched fast")
    table = tuple(entry for row in rows for entry in row)
    return _table(width, kinds, table), (width, 2 * width, 3 * width)


def _all_steps(
    states: list[State], from_: tuple[int, ...], before: int, has: list[bool], word: int, at_end: bool
) -> tuple[tuple[int, ...], bool]:
    """Return all states after a character, and whether a match ends before it. No state is preferred."""
    is_word, after, seen, waiting = has[word] and not at_end, set[int](), set[int](), [*from_]
    changes = (before == BEHIND_WORD) != is_word
    holds = {"begin": before == BEGIN, "end": at_end, "word": changes, "inside": not changes}
    matched = False
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        kind, first, second = states[state]
        if kind == "match":
            matched = True
        elif kind == "either":
            waiting += (first, second)
        elif kind == "edge":
            waiting += (second,) if holds[EDGES[first]] else ()
        elif kind == "next":
            waiting += (second,) if has[first] else ()
        elif has[first] and not at_end:
            after.add(second)
    return tuple(sorted(after)), matched


def _classes(sets: Sequence[tuple[bytes, bool]]) -> tuple[bytes, list[list[bool]]]:
    """Return the class of each character, and the sets that contain the characters of each class."""
    size = len(np.unpackbits(np.frombuffer(sets[0][0], np.uint8))) if sets else 0
    kinds, members = np.zeros(size, np.int32), [list[bool]()]
    for packed, _ in sets:
        both = 2 * kinds + np.unpackbits(np.frombuffer(packed, np.uint8))
        present = np.flatnonzero(np.bincount(both))
        members = [[*members[k // 2], bool(k % 2)] for k in present]
        if len(present) > MAX_CLASSES:
            raise PatternError("more kinds of characters than can be matched fast")
        numbers = np.zeros(int(present[-1]) + 1, np.int32)
        numbers[present] = np.arange(len(present))
        kinds = numbers[both]
    return kinds.astype(np.uint8).tobytes(), members


def _step(states: list[State], from_: tuple[int, ...], has: list[bool], at_end: bool) -> tuple[tuple[int, ...], bool]:
    """Return the states after a character, the preferred first, and whether a match ends before it."""
    after, seen, waiting = dict[int, None](), set[int](), [*reversed(from_)]
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        kind, first, second = states[state]
        if kind == "match":
            return (*after,), True
        if kind == "either":
            waiting += (second, first)
        elif kind == "next":
            waiting += (second,) if has[first] else ()
        elif has[first] and not at_end:
            after[second] = None
    return (*after,), False
