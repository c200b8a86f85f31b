"""The frame of texts that a model reads as a whole: the tokens around a text, and the largest number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

FIRST, SECOND = (1 << 31) - 1, (1 << 31) - 2  # in a frame: where the tokens of a text stand, and of another one
PART, TYPE = 0xFFFFFFFF, 32  # numbers of a row are ``type << TYPE | token``


@dataclass(frozen=True)
class Frame:
    """The form of a row of numbers for texts.

    ``single`` has the numbers of a row, in which ``FIRST`` stands for the tokens of the text. ``pair`` is the same for
    two texts, if pairs are allowed. A row has at most ``most`` numbers, or any number for 0. Longer texts are cut at
    their ends, or with ``cuts_begin`` at their beginnings. ``padding`` is the token that fills shorter rows.
    """

    single: tuple[int, ...] = (FIRST,)
    pair: tuple[int, ...] = ()
    most: int = 0
    cuts_begin: bool = False
    padding: int = 0


def kept(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the numbers of tokens of two texts that fit into ``room``; the longer text is cut first."""
    if first + second <= room:
        return first, second
    less, more = min(first, second), max(first, second)
    more = less if less > room else max(less, room - less)
    if less + more > room:
        less, more = room // 2, room - room // 2
    return (less, more) if first <= second else (more, less)
