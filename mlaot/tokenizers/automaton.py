"""A pattern as a table: what is matched at each place is the first alternative that matches, as others' patterns do.

A table has a row for each state and a column for each class of characters, and one for the end of the text. What stands
there is twice the place of the next row, plus one where a match ends before this character. The row at 0 goes nowhere,
the one behind it is where a match begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PAGE, ELSE = 256, 255
LONG = 64  # from so many characters behind a match on it is noted that they were in vain
Span = tuple[int, int, bool]


@dataclass(frozen=True)
class Automaton:
    """``first`` has the classes of codes below 256, ``ELSE`` where the pages have them."""

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

        ``vain``: rows that no match followed, by the place where they were reached. ``row``: another one to begin in.
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
        """Yield where the matches and the texts between them begin and end, and which of both each is."""
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
