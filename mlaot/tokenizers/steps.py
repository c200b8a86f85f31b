"""The steps that prepare a text for the search for tokens: some change the text, others cut it into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlaot.tokenizers import unicode
from mlaot.tokenizers.automaton import Automaton

MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # that SentencePiece writes for a space
BLANKS = "".join(map(chr, unicode.SPACES))
BEHAVIORS = ("isolated", "removed", "contiguous", "merged with previous", "merged with next")


@dataclass(frozen=True)
class Form:
    """Conversion to the canonical form with composed characters, or to that with decomposed ones."""

    composes: bool

    def apply(self, text: str) -> str:
        """Change a text."""
        return unicode.compose(text) if self.composes else unicode.decompose(text)


@dataclass(frozen=True)
class Map:
    """Replacement of the longest key at each place of a text."""

    of: Mapping[bytes, bytes]

    def apply(self, text: str) -> str:
        """Change a text."""
        return b"".join(mapped(text.encode(), self.of)).decode()


@dataclass(frozen=True)
class Replace:
    """Replacement of the matches of a pattern. With ``keeps`` the match is kept between the two texts."""

    find: Automaton
    before: str
    after: str = ""
    keeps: bool = False

    def apply(self, text: str) -> str:
        """Change a text."""
        found = list[str]()
        for begin, end, matched in self.find.spans(text):
            part = text[begin:end]
            kept = part if self.keeps else ""
            found.append(self.before + kept + self.after if matched else part)
        return "".join(found)


@dataclass(frozen=True)
class Strip:
    """Removal of whitespace at both ends, or at one."""

    left: bool
    right: bool

    def apply(self, text: str) -> str:
        """Change a text."""
        text = text.lstrip(BLANKS) if self.left else text
        return text.rstrip(BLANKS) if self.right else text


@dataclass(frozen=True)
class Prepend:
    """A text before any text that is not empty."""

    text: str

    def apply(self, text: str) -> str:
        """Change a text."""
        return self.text + text if text else text


Change = Form | Map | Replace | Strip | Prepend


@dataclass(frozen=True)
class Cut:
    """A cut into the matches of a pattern and the parts between; with ``on_bytes`` the pattern is of bytes."""

    find: Automaton
    behavior: str = "isolated"
    inverted: bool = False
    on_bytes: bool = False

    def apply(self, part: bytes, first: bool) -> list[bytes]:
        """Cut a part; ``first`` if it is the first of the text."""
        encoding = "latin-1" if self.on_bytes else "utf-8"
        text, found = part.decode(encoding), list[tuple[int, int, bool]]()
        for begin, end, is_match in self.find.spans(text):
            matched = is_match != self.inverted
            if found and self._joins(found[-1][2], matched):
                found[-1] = found[-1][0], end, matched
            else:
                found.append((begin, end, matched))
        kept = (text[begin:end] for begin, end, matched in found if not matched or self.behavior != "removed")
        return [one.encode(encoding) for one in kept]

    def _joins(self, last: bool, matched: bool) -> bool:
        """Tell whether a span is joined to the part before it."""
        if self.behavior == "contiguous":
            return last == matched
        if self.behavior == "merged with previous":
            return matched and not last
        return self.behavior == "merged with next" and last and not matched


@dataclass(frozen=True)
class Prefix:
    """A space before a part that has none; with ``marks``, each ``MARK`` becomes a space, which represents it."""

    prefixes: bool = True
    only_first: bool = False
    marks: bool = False

    def apply(self, part: bytes, first: bool) -> list[bytes]:
        """Change a part; ``first`` if it is the first of the text."""
        part = part.replace(MARK.encode(), b" ") if self.marks else part
        puts = self.prefixes and (first or not self.only_first) and not part.startswith(b" ")
        return [b" " + part if puts else part]


def mapped(text: bytes, of: Mapping[bytes, bytes], kept: tuple[bytes, ...] = ()) -> list[bytes]:
    """Return the replaced pieces of a text: a piece that is kept, the longest key's value, or a character."""
    longest, parts, i = max(map(len, of), default=0), list[bytes](), 0
    while i < len(text):
        piece = max((piece for piece in kept if text.startswith(piece, i)), key=len, default=b"")
        if piece:
            size, part = len(piece), piece
        else:
            ends = range(min(longest, len(text) - i), 0, -1)
            size = next((n for n in ends if text[i : i + n] in of), 0)
            part = of[text[i : i + size]] if size else b""
        if not size:
            size = 1 + next(n for n in range(4) if i + 1 + n == len(text) or text[i + 1 + n] & 0xC0 != 0x80)
            part = text[i : i + size]
        parts.append(part)
        i += size
    return parts
