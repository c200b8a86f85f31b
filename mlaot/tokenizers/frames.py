"""What stands around the tokens of texts that a model reads as a whole, and how many of them it reads."""

from __future__ import annotations

from dataclasses import dataclass

FIRST, SECOND = (1 << 31) - 1, (1 << 31) - 2  # in a frame: where the tokens of a text stand, and of another one
PART, TYPE = 0xFFFFFFFF, 32  # numbers of a row are ``type << TYPE | token``


@dataclass(frozen=True)
class Frame:
    """How texts become a row of numbers.

    ``single``: the numbers of a row; ``FIRST`` is there for the tokens of the text. ``pair``: those of two texts, if
    there may be two. A row has at most ``most`` numbers, of texts that are cut for it: at their ends, or at their
    begins (``cuts_begin``). 0: no matter how many. ``padding``: the token that others fill rows with.
    """

    single: tuple[int, ...] = (FIRST,)
    pair: tuple[int, ...] = ()
    most: int = 0
    cuts_begin: bool = False
    padding: int = 0


def kept(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of two texts are left where there is room for so many: of the longer one less."""
    if first + second <= room:
        return first, second
    less, more = min(first, second), max(first, second)
    more = less if less > room else max(less, room - less)
    if less + more > room:
        less, more = room // 2, room - room // 2
    return (less, more) if first <= second else (more, less)
