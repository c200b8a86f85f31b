"""Train the GPT on a text, or check its gradients. Needs the wheel of the folder train and nothing else.

    python train.py train --data FILE --settings settings.json --out gpt.safetensors
    python train.py train .. --resume      # go on from the file of --out
    python train.py check --data FILE --settings settings.json

Every 250 steps the weights are saved, with a file beside them that says after how many steps, and the losses drawn.
"""

import argparse
import json
import random
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from gpt_train import nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from chart import curves

HELD_BACK = 0.1  # the end of the text, of which the model learns nothing
CHECKED = 20  # batches of that part
EVERY = 250  # steps between two checks

Rows = list[int]
Batch = tuple[memoryview, memoryview]


class Text:
    """A text as numbers, and batches of it: rows of letters, and of those that follow each."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        letters: str = settings["letters"]
        number = {letter: i for i, letter in enumerate(letters)}
        self.length, self.batch = int(settings["context"]), int(settings["batch"])
        try:
            tokens = array("q", [number[letter] for letter in path.read_text(encoding="utf-8")])
        except KeyError as error:
            sys.exit(f"{path}: the letter {error} is not among those of the settings; write them for this text")
        end = len(tokens) - int(len(tokens) * HELD_BACK)
        self.learnt, self.held_back = tokens[:end], tokens[end:]
        if min(len(self.learnt), len(self.held_back)) <= self.length:
            sys.exit(f"{path}: expected at least {round((self.length + 2) / HELD_BACK):,} letters, got {len(tokens):,}")

    def draw(self, tokens: "array[int]", numbers: random.Random) -> Batch:
        """A batch from random places."""
        starts = [numbers.randrange(len(tokens) - self.length) for _ in range(self.batch)]
        return self._rows(tokens, starts), self._rows(tokens, [start + 1 for start in starts])

    def _rows(self, tokens: "array[int]", starts: Rows) -> memoryview:
        rows = array("q")
        for start in starts:
            rows += tokens[start : start + self.length]
        return memoryview(rows).cast("B").cast("q", (len(starts), self.length))


def held_back_loss(text: Text) -> float:
    """The mean loss over batches of the part that is held back, the same ones each time."""
    numbers = random.Random(0)
    return sum(nn.loss(*text.draw(text.held_back, numbers)) for _ in range(CHECKED)) / CHECKED


def clock(seconds: float) -> str:
    """``3:07``"""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def train(
    text: Text, settings: dict[str, Any], out: Path, picture: Path, *, resume: bool, accumulate: int, seed: int
) -> None:
    """Take all steps; print a line of progress, and at each check save the weights and draw the losses."""
    done, steps = 0, int(settings["steps"])
    note = out.with_suffix(".json")
    if resume:
        nn.load(out)
        done = json.loads(note.read_text())["steps"]
        print(f"going on from step {done}")
    recent, begun, first = 0.0, time.perf_counter(), done
    lines: dict[str, list[tuple[int, float]]] = {"training, smoothed": [], "text held back": []}
    while done < steps:
        numbers = random.Random(f"{seed} {done}")  # what a step sees depends on its number alone
        if accumulate == 1:
            loss = nn.train_step(*text.draw(text.learnt, numbers))
        else:
            loss = accumulated_step(text, numbers, accumulate)
        recent = loss if done == first else 0.95 * recent + 0.05 * loss
        done += 1
        lines["training, smoothed"].append((done, recent))
        spent = time.perf_counter() - begun
        speed = (done - first) * accumulate * text.batch * text.length / spent
        line = f"step {done:6,} of {steps:,}   loss {recent:.4f}   {speed:10,.0f} letters/s"
        if done % EVERY == 0 or done == steps:
            nn.save(out)
            note.write_text(json.dumps({"steps": done}))
            held_back = held_back_loss(text)
            lines["text held back"].append((done, held_back))
            picture.write_text(curves("A GPT learns a text", "training steps", {"loss (nats a letter)": lines}))
            print(f"\r{line}   held back {held_back:.4f}   ", flush=True)
        elif done % 10 == 0:
            print(f"\r{line}   {clock(spent / (done - first) * (steps - done))} left", end="", flush=True)


def accumulated_step(text: Text, numbers: random.Random, count: int) -> float:
    """One step of the optimizer by the mean gradient of several batches."""
    total = 0.0
    nn.zero_grad()
    for _ in range(count):
        total += nn.accumulate(*text.draw(text.learnt, numbers)) / count
    gradients = memoryview(nn.flat_gradients)
    gradients[:] = array("f", [value / count for value in gradients])
    nn.update()
    return total


def check(text: Text, *, parts: int, seed: int) -> float:
    """Compare derivatives of the loss with central differences; the largest error, as a share of the largest of them.

    Each is the derivative along a random direction within one part of all parameters.
    """
    numbers = random.Random(seed)
    batch = text.draw(text.learnt, numbers)
    nn.zero_grad()
    nn.set_input(*batch)
    nn.forward()
    nn.backward()
    weights, gradients = memoryview(nn.flat_parameters), list(nn.flat_gradients)
    before, errors, largest = list(weights), [], 0.0
    print(f"{'parameters':>20} {'derivative':>12} {'difference':>12}")
    for i in range(parts):
        places = range(len(before) * i // parts, len(before) * (i + 1) // parts)
        steps = [numbers.gauss(0, 1) for _ in places]
        scale = 0.02 / sum(step * step for step in steps) ** 0.5
        losses = []
        for sign in (scale, -scale):
            for place, step in zip(places, steps, strict=True):
                weights[place] = before[place] + sign * step
            losses.append(nn.loss(*batch))
        for place in places:
            weights[place] = before[place]
        derivative = scale * sum(gradients[place] * step for place, step in zip(places, steps, strict=True))
        difference = (losses[0] - losses[1]) / 2
        print(f"{places.start:>9,} to {places.stop:>7,} {derivative:12.6f} {difference:12.6f}")
        errors.append(abs(derivative - difference))
        largest = max(largest, abs(derivative))
    return max(errors) / largest


def main() -> None:
    """Train, or check gradients."""
    parser = argparse.ArgumentParser(description="Train a GPT of letters, or check its gradients.")
    parser.add_argument("what", choices=("train", "check"), help="train: learn the text; check: compare gradients")
    parser.add_argument("--data", type=Path, required=True, help="the text, in UTF-8")
    parser.add_argument("--settings", type=Path, required=True, help="what settings.py wrote for this text")
    parser.add_argument("--out", type=Path, default=Path("gpt.safetensors"), help="default: %(default)s")
    parser.add_argument(
        "--picture", type=Path, default=Path("gpt.svg"), help="file for the learning curve (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the file of --out")
    parser.add_argument("--accumulate", type=int, default=1, help="batches for one step (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    options = parser.parse_args()
    nn.set_threads(options.threads)
    settings = json.loads(options.settings.read_text(encoding="utf-8"))
    text = Text(options.data, settings)
    if options.what == "check":
        if settings["dropout"]:
            sys.exit("check: expected a dropout of 0, for gradients of another draw are others; build such a wheel")
        error = check(text, parts=8, seed=options.seed)
        print(f"largest error: {error:.1e} of the largest derivative")
        sys.exit(error > 1e-2)
    how = {"resume": options.resume, "accumulate": options.accumulate, "seed": options.seed}
    train(text, settings, options.out, options.picture, **how)


if __name__ == "__main__":
    main()
