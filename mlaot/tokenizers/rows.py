"""Rows of tokens for models that read texts as a whole. This slow implementation is the reference for C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlaot.tokenizers.frames import FIRST, PART, SECOND, Frame, kept
from mlaot.tokenizers.tokenizer import Tokenizer

END = -1  # behind the numbers of a row


@dataclass(frozen=True, eq=False)
class Rows:
    """The conversion of texts to rows of numbers: their tokens, in a frame."""

    tokenizer: Tokenizer = field(repr=False)
    frame: Frame

    def row(self, *texts: str) -> list[int]:
        """Return the numbers of a text, or of two."""
        numbers = self.frame.single if len(texts) == 1 else self.frame.pair
        found = [self.tokenizer.encode(text, begin=False) for text in texts] + [list[int]()] * (2 - len(texts))
        if self.frame.most:
            sizes = kept(len(found[0]), len(found[1]), self.frame.most - len(numbers) + len(texts))
            for i, size in enumerate(sizes):
                found[i] = found[i][len(found[i]) - size :] if self.frame.cuts_begin else found[i][:size]
        result = list[int]()
        for number in numbers:
            part = number & PART
            result += [number - part | t for t in found[FIRST - part]] if part in (FIRST, SECOND) else [number]
        return result

    def filled(self, texts: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Return the rows of texts, each as long as the longest one."""
        found = [self.row(*text) for text in texts]
        longest = max([1, *map(len, found)])
        return [numbers + [END] * (longest - len(numbers)) for numbers in found]
