"""Continue a text in the manner of the one that was learnt. Needs nothing but this package.

>>> import gpt
>>> for letter in gpt.generate("ROMEO:", seed=1):
...     print(letter, end="")
"""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from gpt import nn

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
LETTERS: str = SETTINGS["letters"]
CONTEXT: int = SETTINGS["context"]


class Reader:
    """The model at some place of a text, which it keeps as the keys and values of the letters so far."""

    def __init__(self) -> None:
        self.model, self.seen = nn.Model(), 0

    def read(self, tokens: list[int]) -> list[float]:
        """Read the next letters; the scores of all that may follow. Raises ``ValueError`` behind the last place."""
        seen = self.seen + len(tokens)
        if seen > CONTEXT:
            raise ValueError(f"expected at most {CONTEXT} letters, got {seen}; begin anew with the last of them")
        scores: list[float] = self.model.forward(tokens).tolist()
        self.seen = seen
        return scores


def encode(text: str) -> list[int]:
    """Return the numbers of a text's letters. Raises ``ValueError`` for one that the learnt text did not have."""
    for letter in text:
        if letter not in LETTERS:
            raise ValueError(f"the learnt text has no {letter!r}; it has {LETTERS!r}")
    return [LETTERS.index(letter) for letter in text]


def generate(prompt: str, count: int = 500, temperature: float = 0.8, seed: int | None = None) -> Iterator[str]:
    """Return an iterator of ``count`` letters after the prompt; a low temperature is cautious, 0 takes the likeliest.

    Where the places are used up, the model reads the last half of them once more, and goes on from there. Raises
    ``ValueError`` for letters that the learnt text did not have, and for a temperature below 0.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature: expected 0 or more, got {temperature}")
    return _letters(encode(prompt or LETTERS[0]), count, temperature, random.Random(seed))


def _letters(text: list[int], count: int, temperature: float, draw: random.Random) -> Iterator[str]:
    reader, waiting = Reader(), text[-CONTEXT:]
    for _ in range(count):
        text.append(choose(reader.read(waiting), temperature, draw))
        yield LETTERS[text[-1]]
        waiting = text[-1:]
        if reader.seen == CONTEXT:
            reader, waiting = Reader(), text[-(CONTEXT // 2) :]


def choose(scores: list[float], temperature: float, draw: random.Random) -> int:
    """Draw a letter by the softmax of the scores."""
    largest = max(scores)
    if temperature == 0:
        return scores.index(largest)
    shares = [math.exp((score - largest) / temperature) for score in scores]
    return draw.choices(range(len(scores)), shares)[0]
