"""Parse the patterns of Oniguruma that can be matched without backtracking, as a tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from string import ascii_lowercase

import numpy as np

from mlaot.tokenizers import unicode

Set = np.ndarray[tuple[int], np.dtype[np.bool_]]  # of each code, whether it is in the set
MAX_DEPTH, MAX_TIMES = 50, 1000
LONG_NAMES = {
    **{"letter": "L", "mark": "M", "number": "N", "punctuation": "P", "symbol": "S", "separator": "Z", "other": "C"},
    **{"uppercase_letter": "Lu", "lowercase_letter": "Ll", "decimal_number": "Nd"},
}
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b", "0": "\0"}
# Letters that are no words' characters by their category, but are alphabetic.
CIRCLED = ((0x24B6, 0x24EA), (0x1F130, 0x1F14A), (0x1F150, 0x1F16A), (0x1F170, 0x1F18A))
LATIN_NUMBERS = "\xb2\xb3\xb9\xbc\xbd\xbe"
ALIKE = {"s": "\N{LATIN SMALL LETTER LONG S}", "k": "\N{KELVIN SIGN}"}


@dataclass(frozen=True)
class One:
    """One character of a set."""

    of: Set


@dataclass(frozen=True)
class Next:
    """The empty text before a character of a set, or before the end if that is allowed."""

    of: Set
    or_end: bool


@dataclass(frozen=True)
class All:
    """A sequence of nodes."""

    of: tuple[Node, ...]


@dataclass(frozen=True)
class Any:
    """One of several nodes, of which earlier ones are preferred."""

    of: tuple[Node, ...]


@dataclass(frozen=True)
class Times:
    """A node repeated as many times as possible, or as few."""

    of: Node
    least: int
    most: int | None
    greedy: bool


@dataclass(frozen=True)
class Edge:
    """The empty text at an edge.

    The edges are the "begin" and "end" of a text, "word" between a word's character and another one, and "inside"
    elsewhere.
    """

    kind: str


Node = One | Next | All | Any | Times | Edge


class PatternError(ValueError):
    """An unsupported part of a pattern."""


def empty() -> Set:
    """Return a set without characters."""
    return np.zeros(unicode.CODES, np.bool_)


def characters(of: Iterable[str]) -> Set:
    """Return a set of characters."""
    found = empty()
    found[[ord(c) for c in of]] = True
    return found


@cache
def category(names: tuple[str, ...]) -> Set:
    """Return the characters of some categories, each given by its name or a prefix of it."""
    kinds = ("Cn", *unicode.names())
    known = np.array([kind.startswith(names) for kind in kinds])
    if not all(any(kind.startswith(name) for kind in kinds) for name in names):
        raise PatternError(rf"\p{{{names[0]}}}")
    found: Set = known[np.frombuffer(unicode.categories(), np.uint8)]
    return found


def property_of(name: str) -> Set:
    """Return the characters of a category or a script."""
    plain = re.sub("[ _-]", "", name).lower()
    if plain in unicode.script_names():
        found: Set = np.frombuffer(unicode.scripts(), np.uint8) == unicode.script_names()[plain]
        return found
    return category((LONG_NAMES.get(name.lower(), name.capitalize()),))


@cache
def spaces() -> Set:
    r"""Return the characters that ``\s`` matches."""
    return characters(map(chr, unicode.SPACES))


@cache
def words() -> Set:
    r"""Return the characters that ``\w`` matches."""
    found = category(("L", "M", "Nd", "Nl", "Pc")).copy()
    for begin, end in CIRCLED:
        found[begin:end] = True
    return found


def folded(found: Set, alike: bool) -> Set:
    """Return a set, or if ``alike``, the set with the other case of its letters."""
    if not alike:
        return found
    one = chr(int(found.argmax())) if np.count_nonzero(found) == 1 else ""
    if one.lower() != one.upper() and not one.isascii():
        raise PatternError(f"(?i:{one})")
    alikes = [characters({c, c.upper(), *ALIKE.get(c, "")}) for c in ascii_lowercase]
    result = found.copy()
    for both in alikes:
        result |= both if (found & both).any() else False
    return result


def sequence(text: str) -> Node:
    """Return the node of a text itself."""
    return All(tuple(One(characters(c)) for c in text))


def may_be_nothing(node: Node) -> bool:
    """Tell whether a node matches a text without characters."""
    match node:
        case One():
            return False
        case Next() | Edge():
            return True
        case All():
            return all(map(may_be_nothing, node.of))
        case Any():
            return any(map(may_be_nothing, node.of))
        case Times():
            return node.least == 0 or may_be_nothing(node.of)


def parse(text: str) -> Node:
    """Return the tree of a pattern."""
    reader = Reader(text)
    found = reader.alternatives(False, 0)
    if reader.place < len(text):
        raise PatternError(text[reader.place :])
    return found


class Reader:
    """A parser of the rest of a pattern."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def takes(self, token: str) -> bool:
        """Skip a token if it is next, and tell whether it was."""
        found = self.text.startswith(token, self.place)
        self.place += len(token) * found
        return found

    def match(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self.text, self.place)
        self.place = found.end() if found else self.place
        return found

    def take(self) -> str:
        if self.place == len(self.text):
            raise PatternError("its end")
        self.place += 1
        return self.text[self.place - 1]

    def alternatives(self, alike: bool, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise PatternError("(" * depth)
        found = [self.branch(alike, depth)]
        while self.takes("|"):
            found.append(self.branch(alike, depth))
        return found[0] if len(found) == 1 else Any(tuple(found))

    def branch(self, alike: bool, depth: int) -> Node:
        found = list[Node]()
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            if self.takes("(?i)"):
                return All((*found, self.alternatives(True, depth + 1)))
            found.append(self.repeated(self.atom(alike, depth)))
        return found[0] if len(found) == 1 else All(tuple(found))

    def repeated(self, node: Node) -> Node:
        while bounds := self.match(r"[*+?]|\{(?:\d+,?\d*|,\d+)\}"):
            sign = bounds[0]
            if sign[0] == "{":
                low, _, high = sign[1:-1].partition(",")
                least, most = int(low or 0), int(high) if high else None if "," in sign else int(low)
                if max(least, most or 0) > MAX_TIMES or (most is not None and most < least):
                    raise PatternError(sign)
            else:
                least, most = int(sign == "+"), 1 if sign == "?" else None
            if most != 1 and may_be_nothing(node):
                raise PatternError(f"{sign} behind what may be nothing")
            if sign[0] != "{" and self.takes("+"):  # it gives nothing back
                if not isinstance(node, One):
                    raise PatternError(f"{sign}+ behind a group")
                stop = Next(~node.of, True)
                node = Any((node, stop)) if sign == "?" else All((Times(node, least, most, True), stop))
            else:
                node = Times(node, least, most, not self.takes("?"))
        return node

    def atom(self, alike: bool, depth: int) -> Node:
        character = self.take()
        if character == "(":
            return self.group(alike, depth)
        if character == "[":
            return One(self.set(alike, depth))
        if character == ".":
            return One(~characters("\n"))
        if character == "$":
            return Next(characters("\n"), True)
        if character == "\\":
            if self.takes("z"):
                return Next(empty(), True)
            kind = self.text[self.place : self.place + 1]
            found = self.escape()
            if kind in ("w", "W"):  # outside of brackets these are words' characters as well
                found[[ord(c) for c in LATIN_NUMBERS]] = kind == "w"
            return One(folded(found, alike))
        if character in "^*+?" or (character == "{" and self.text[self.place : self.place + 1].isdigit()):
            raise PatternError(character)
        return One(folded(characters(character), alike))

    def group(self, alike: bool, depth: int) -> Node:
        look = self.match(r"\?[=!]")
        if not look and self.takes("?") and not self.takes(":"):
            options = self.match(r"([imsx]*)(?:-[imsx]+)?:")
            if options is None or options[0] not in ("i:", "-i:"):
                raise PatternError(f"(?{self.text[self.place : self.place + 8]}")
            alike = options[0] == "i:"
        found = self.alternatives(alike, depth + 1)
        if not self.takes(")"):
            raise PatternError("( without )")
        return found if not look else self.following(found, look[0] == "?!")

    def following(self, node: Node, negated: bool) -> Node:
        """Return the node that tests only the next character."""
        if isinstance(node, Any):
            parts = [self.following(one, negated) for one in node.of]
            return All(tuple(parts)) if negated else Any(tuple(parts))
        if isinstance(node, Next):
            return Next(~node.of, not node.or_end) if negated else node
        if isinstance(node, One):
            return Next(~node.of, True) if negated else Next(node.of, False)
        raise PatternError("(?= or (?! of more than a character")

    def escape(self) -> Set:
        """Return the set for the escape after a backslash."""
        character = self.take()
        named: dict[str, Callable[[], Set]] = {"s": spaces, "w": words, "d": lambda: category(("Nd",))}
        if character.lower() in named:
            found = named[character.lower()]()
            return ~found if character.isupper() else found.copy()
        if character in "pP" and (name := self.match(r"\{(\^?)(?:(?i:script|sc)=)?([\w -]+)\}")):
            found = property_of(name[2])
            return ~found if (character == "P") != bool(name[1]) else found
        if character in "xu" and (code := self.match(r"\{([0-9A-Fa-f]{1,8})\}|([0-9A-Fa-f]{2}(?:[0-9A-Fa-f]{2})?)")):
            if character == "x" and code[2] and len(code[2]) == 4:
                self.place -= 2  # two digits are all
            value = int(code[1] or (code[2][:2] if character == "x" else code[2]), 16)
            if value >= unicode.CODES or (character == "u" and len(code[0]) != 4):
                raise PatternError(f"\\{character}{code[0]}")
            return characters(chr(value))
        if character in CONTROLS:
            return characters(CONTROLS[character])
        if character.isalnum():
            raise PatternError(f"\\{character}")
        return characters(character)

    def set(self, alike: bool, depth: int) -> Set:
        """Return a set in brackets, after the opening one."""
        if depth > MAX_DEPTH:
            raise PatternError("[" * depth)
        negated, found, kept = self.takes("^"), empty(), ~empty()
        if self.takes("]"):  # the first one does not end it
            found = characters("]")
        while not self.takes("]"):
            if self.takes("&&"):
                kept, found = kept & found, empty()
            elif self.text.startswith("[:", self.place):
                raise PatternError(self.text[self.place : self.place + 9])
            elif self.takes("["):
                found = found | self.set(alike, depth + 1)
            else:
                found = found | self.range(alike)
        found = kept & found
        return ~found if negated else found

    def range(self, alike: bool) -> Set:
        """Return one character of a set, or a range of them."""
        low = self.member()
        if not self.text.startswith("-", self.place) or self.text[self.place + 1 : self.place + 2] in ("]", "["):
            return folded(low, alike)
        self.place += 1
        ends = [np.flatnonzero(one) for one in (low, self.member())]
        if len(ends[0]) != 1 or len(ends[1]) != 1 or ends[1][0] < ends[0][0]:
            raise PatternError("a range of characters")
        found = empty()
        found[ends[0][0] : ends[1][0] + 1] = True
        return folded(found, alike)

    def member(self) -> Set:
        character = self.take()
        return self.escape() if character == "\\" else characters(character)
