"""Parse the regular expressions of RE2 that tables can match exactly, as trees of patterns."""

from __future__ import annotations

from functools import cache

import numpy as np

from mlaot.tokenizers import unicode
from mlaot.tokenizers.pattern_syntax import (
    MAX_DEPTH,
    All,
    Any,
    Edge,
    Node,
    One,
    PatternError,
    Reader,
    Set,
    Times,
    characters,
    empty,
    property_of,
)

MOST_TIMES, TIMES = 1000, r"[*+?]|\{(\d+)(?:(,)(\d*))?\}"  # as RE2 has it
ASCII = {
    **{"d": "0-9", "s": "\t\n\f\r ", "w": "0-9A-Za-z_", "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\0-\x7f"},
    **{"blank": "\t ", "cntrl": "\0-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~"},
    **{"punct": "!-/:-@[-`{-~", "space": "\t-\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f"},
}
ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
EDGES = {"A": "begin", "z": "end", "b": "word", "B": "inside"}


def parse(text: str) -> Node:
    """Return the tree of a pattern."""
    reader = _Re2(text)
    found = reader.choices(frozenset(), 0)
    if reader.place < len(text):
        raise PatternError(text[reader.place :])
    return found


@cache
def ascii_set(name: str) -> Set:
    """Return a set of ASCII characters by its name."""
    found, ranges = empty(), ASCII[name]
    for i, character in enumerate(ranges):
        if character == "-" and 0 < i < len(ranges) - 1:
            found[ord(ranges[i - 1]) : ord(ranges[i + 1]) + 1] = True
        elif not (name == "punct" and character == "-"):
            found[ord(character)] = True
    return found


@cache
def _folds() -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the simple case fold of each character, and the characters with another fold or a shared one."""
    folds = np.arange(unicode.CODES, dtype=np.int32)
    for code in range(unicode.CODES):
        forms = (form for form in (chr(code).casefold(), chr(code).lower()) if len(form) == 1)
        folds[code] = ord(next(forms, chr(code)))
    changed = np.flatnonzero(folds != np.arange(unicode.CODES))
    return folds, np.unique(np.concatenate([changed, folds[changed]]))


def folded(found: Set) -> Set:
    """Return a set with all characters that differ from its characters only in case."""
    folds, alike = _folds()
    wanted = np.zeros(unicode.CODES, np.bool_)
    wanted[folds[found]] = True
    result = found.copy()
    result[alike] |= wanted[folds[alike]]
    return result


class _Re2(Reader):
    """A parser of the rest of a pattern; ``flags`` are the active ones of the letters i, m, s, U."""

    def choices(self, flags: frozenset[str], depth: int) -> Node:
        """Return alternatives."""
        if depth > MAX_DEPTH:
            raise PatternError("(" * depth)
        found = list[Node]()
        while True:
            branch = list[Node]()
            while self.place < len(self.text) and self.text[self.place] not in "|)":
                if (options := self.match(r"\(\?([imsU]*)(?:-([imsU]+))?\)")) is not None:
                    flags = (flags | set(options[1])) - set(options[2] or "")
                    continue
                branch.append(self.times(self.piece(flags, depth)))
            found.append(branch[0] if len(branch) == 1 else All(tuple(branch)))
            if not self.takes("|"):
                return found[0] if len(found) == 1 else Any(tuple(found))

    def times(self, node: Node) -> Node:
        """Return a node with its repetition. Whether that is greedy makes no difference."""
        bounds = self.match(TIMES)
        if bounds is None:
            return node
        if bounds[1] is None:
            least, most = int(bounds[0] == "+"), 1 if bounds[0] == "?" else None
        else:
            least = int(bounds[1])
            most = int(bounds[3]) if bounds[3] else None if bounds[2] else least
        self.takes("?")
        if max(least, most or 0) > MOST_TIMES or (most is not None and most < least) or self.match(f"(?={TIMES})"):
            raise PatternError(bounds[0])
        if isinstance(node, Edge):
            raise PatternError(f"{bounds[0]} repeats an assertion, not a character")
        return Times(node, least, most, True)

    def piece(self, flags: frozenset[str], depth: int) -> Node:
        """Return one character, set, group or edge."""
        character = self.take()
        if character == "(":
            return self.inner(flags, depth)
        if character == "[":
            return One(self.bracket(flags))
        if character == ".":
            return One(~(empty() if "s" in flags else characters("\n")))
        if character in "^$":
            if "m" in flags:
                raise PatternError(f"(?m){character}")
            return Edge("begin" if character == "^" else "end")
        if character in "*+?" or (character == "{" and self.match(r"\d+(?:,\d*)?\}")):
            raise PatternError(f"{character} behind nothing")
        if character != "\\":
            return One(self.alike(characters(character), flags))
        if (edge := self.match("[AzbB]")) is not None:
            return Edge(EDGES[edge[0]])
        if self.takes("Q"):
            quoted, _, rest = self.text[self.place :].partition("\\E")
            self.text, self.place = "".join(f"\\x{{{ord(c):x}}}" for c in quoted) + rest, 0
            return All(())
        return One(self.escaped(flags))

    def inner(self, flags: frozenset[str], depth: int) -> Node:
        """Return a group, after its opening parenthesis."""
        if self.takes("?"):
            options = self.match(r"P?<\w+>|([imsU]*)(?:-([imsU]+))?:")
            if options is None:
                raise PatternError(f"(?{self.text[self.place : self.place + 8]}")
            flags = (flags | set(options[1] or "")) - set(options[2] or "")
        found = self.choices(flags, depth + 1)
        if not self.takes(")"):
            raise PatternError("( without )")
        return found

    def alike(self, found: Set, flags: frozenset[str]) -> Set:
        return folded(found) if "i" in flags else found

    def escaped(self, flags: frozenset[str]) -> Set:
        """Return the set for the escape after a backslash; a negated escape is the complement."""
        character = self.take()
        if character.lower() in ("d", "s", "w"):
            found = self.alike(ascii_set(character.lower()), flags)
            return ~found if character.isupper() else found
        if character in "pP" and (name := self.match(r"\{(\^?)(\w+)\}|(\w)")) is not None:
            word = name[2] or name[3]
            found = self.alike(~empty() if word == "Any" else property_of(word), flags)
            return ~found if (character == "P") != bool(name[1]) else found
        if character == "x" and (code := self.match(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})")) is not None:
            value = int(code[1] or code[2], 16)
            if value >= unicode.CODES:
                raise PatternError(f"\\x{code[0]}")
            return self.alike(characters(chr(value)), flags)
        if character == "0" or (character in "1234567" and self.match("(?=[0-7])")):
            digits = self.match("[0-7]{0,2}")
            return self.alike(characters(chr(int(character + (digits[0] if digits else ""), 8))), flags)
        if character in ESCAPES:
            return characters(ESCAPES[character])
        if character.isalnum() or not character.isascii():
            raise PatternError(f"\\{character}")
        return characters(character)

    def bracket(self, flags: frozenset[str]) -> Set:
        """Return a set in brackets, after the opening one."""
        negated, found, is_first = self.takes("^"), empty(), True
        while is_first or not self.takes("]"):
            if (name := self.match(r"\[:(\^?)(\w+):\]")) is not None:
                if name[2] not in ASCII or len(name[2]) < 2:
                    raise PatternError(name[0])
                part = self.alike(ascii_set(name[2]), flags)
                part = ~part if name[1] else part
            else:
                part = self.span(flags, is_first)
            found = found | part
            is_first = False
        return ~found if negated else found

    def span(self, flags: frozenset[str], is_first: bool) -> Set:
        """Return one character of a set, or a range of them."""
        is_dash = self.text.startswith("-", self.place) and not is_first
        if is_dash and not self.text.startswith("]", self.place + 1):
            raise PatternError("- in a set")
        place = self.place
        found = self.one(flags)
        if not self.match(r"-(?!\])"):
            return found
        self.place, plain = place, frozenset[str]()
        low = self.one(plain)
        self.takes("-")
        ends = [np.flatnonzero(one) for one in (low, self.one(plain))]
        if len(ends[0]) != 1 or len(ends[1]) != 1 or ends[1][0] < ends[0][0]:
            raise PatternError("a range of characters")
        found = empty()
        found[ends[0][0] : ends[1][0] + 1] = True
        return self.alike(found, flags)

    def one(self, flags: frozenset[str]) -> Set:
        character = self.take()
        return self.escaped(flags) if character == "\\" else self.alike(characters(character), flags)
