"""Learn names for 1,000 steps, then invent some. Needs the wheel of this folder and nothing else.

names.txt holds the given names of the 1990 census of the United States, which is in the public domain, in random order.
"""

import argparse
import random
import sys
import time
from pathlib import Path

from microgpt import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import curves

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = len(LETTERS)
LENGTH = 16  # a name of up to 15 letters, and its end
SPAN = 50  # losses to a mean in the picture


def load() -> list[str]:
    """The names."""
    return Path(__file__).with_name("names.txt").read_text().split()


def tokens(name: str) -> list[int]:
    """END, the letters, END, and once more END as often as it takes to fill the row."""
    row = [END, *map(LETTERS.index, name), END]
    return row + [END] * (LENGTH + 1 - len(row))


def train(names: list[str], steps: int) -> list[float]:
    """One name after the other; the loss before each step."""
    rows = [(tokens(name), len(name) + 1) for name in names]
    losses = []
    start = time.perf_counter()
    for step in range(steps):
        row, length = rows[step % len(rows)]
        losses.append(nn.train_step([row], [length]))
    seconds = time.perf_counter() - start
    for first in range(0, steps, 100):
        part = losses[first : first + 100]
        print(f"steps {first:4} to {first + len(part) - 1:4}   loss {sum(part) / len(part):.4f}")
    print(f"{steps} steps in {seconds:.3f} s")
    return losses


def invent(seed: int, temperature: float) -> str:
    """Draw letter after letter until the name ends."""
    draw, name = random.Random(seed), ""
    while len(name) < LENGTH - 1:
        shares = nn.forward([tokens(name)])[0][len(name)].tolist()
        letter = draw.choices(range(END + 1), [share ** (1 / temperature) for share in shares])[0]
        if letter == END:
            break
        name += LETTERS[letter]
    return name


def main() -> None:
    """Train, draw the loss, print 20 names."""
    parser = argparse.ArgumentParser(description="Learn names, then invent some.")
    parser.add_argument("--steps", type=int, default=1000, help="how many names to learn from (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.5, help="how bold to invent (default: %(default)s)")
    parser.add_argument(
        "--picture", type=Path, default=Path("microgpt.svg"), help="file for the learning curve (default: %(default)s)"
    )
    options = parser.parse_args()
    losses = train(load(), options.steps)
    means = [(end, sum(losses[end - SPAN : end]) / SPAN) for end in range(SPAN, len(losses) + 1)]
    panel = {f"mean of {SPAN} names": means}
    options.picture.write_text(curves("microgpt learns names", "training steps", {"loss (nats a letter)": panel}))
    print(f"learning curve: {options.picture}")
    print("names:", *(invent(seed, options.temperature) for seed in range(20)))


if __name__ == "__main__":
    main()
