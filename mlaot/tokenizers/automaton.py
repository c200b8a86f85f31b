"""A pattern as a table. As in common regular expressions, the first alternative that matches is the match.

A table has a row for each state, a column for each class of characters, and one for the end of the text. An entry is
twice the place of the next row, plus one if a match ends before this character. Row 0 is the state without a match, and
a match begins at the row after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PAGE, ELSE = 256, 255
LONG = 64  # from so many characters behind a match on it is noted that they were in vain
Span = tuple[int, int, bool]


@dataclass(frozen=True)
class Automaton:
    """A table of a pattern. ``first`` has the classes of codes below 256, or ``ELSE`` if the pages have the class."""

    width: int
    first: bytes
    pages: tuple[int, ...]  # of each 256 codes
    classes: bytes
    table: tuple[int, ...]

    def class_of(self, code: int) -> int:
        """Return the class of a character."""
        found = self.first[code] if code < PAGE else ELSE
        return found if found != ELSE else self.classes[PAGE * self.pages[code // PAGE] + code % PAGE]

    def end_of(self, text: str, begin: int, vain: dict[int, int], row: int = 0) -> int:
        """Return the end of the match that begins at a place, or the place itself.

        ``vain`` records rows without a later match, by the place where they were reached. ``row`` is another row to
        begin in.
        """
        found, row, rows, place = begin, row or self.width, list[int](), begin
        while row and vain.get(place) != row:
            rows.append(row)
            kind = self.class_of(ord(text[place])) if place < len(text) else self.width - 1
            row, matched = divmod(self.table[row + kind], 2)
            if matched:
                found = place
            if place == len(text):
                break
            place += 1
        if place - found > LONG:
            vain.update((i, rows[i - begin]) for i in range(found + 1, begin + len(rows)))
        return found

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the start and end of each match and of each text between matches, with a flag of which it is."""
        vain, begin, place = dict[int, int](), 0, 0
        while place < len(text):
            end = self.end_of(text, place, vain)
            if end == place:
                place += 1
                continue
            if begin < place:
                yield begin, place, False
            yield place, end, True
            begin = place = end
        if begin < place:
            yield begin, place, False
