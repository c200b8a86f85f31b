"""WordPiece: split the longest piece off the beginning of a word, and repeat for the rest."""

from __future__ import annotations

from collections.abc import Mapping


def pieces(word: bytes, begin: Mapping[bytes, int], continuing: Mapping[bytes, int], longest: int) -> list[int]:
    """Return the tokens of a word, or none if it has no pieces or more than ``longest`` characters."""
    found, place, known = list[int](), 0, begin
    if len(word.decode()) > longest:
        return []
    most = max(map(len, (*begin, *continuing)), default=0)
    while place < len(word):
        ends = range(min(place + most, len(word)), place, -1)
        end = next((end for end in ends if word[place:end] in known), place)
        if end == place:
            return []
        found.append(known[word[place:end]])
        place, known = end, continuing
    return found
