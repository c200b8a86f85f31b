"""Tokens a second of a llama with 15 or 110 million weights, of random numbers: in float32, int8 and int4, on one core.

    MLAOT_ISA=v3 python benchmarks/llm.py [--llama2c FOLDER] [--model 110M]

The model is stories15M's: 288 wide, 6 layers, 6 heads, 32,000 tokens, context 256, as a checkpoint of llama2.c. For
each form of the weights: megabytes of the module; milliseconds of a new process from ``import`` until it has the scores
behind a prompt of 8 tokens; tokens a second that ``generate`` gives after that, and how that is beside float32; the
bytes of weights read in a second, as a share of what this core reads from a block of the size of all in float32; and
milliseconds for a prompt of 128 tokens. With a clone of llama2.c its ``run.c`` is compiled with ``-O3 -march=native``,
and writes the same greedy text, by the same tokenizer, or the script ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import chosen_isas, compile_program, load, one_core, table
from limits import measure

from mlaot import llm
from mlaot.errors import building
from mlaot.generate import compile_model
from mlaot.settings.options import Options

TOKENS = 32000


@dataclass(frozen=True)
class Shape:
    """A llama: its widths, how many layers and heads it has, and how many tokens a text."""

    width: int
    hidden: int
    layers: int
    heads: int
    context: int

    @property
    def weights(self) -> int:
        """How many a token reads."""
        return TOKENS * self.width + self.layers * self.width * (4 * self.width + 3 * self.hidden)


SHAPES = {"15M": Shape(288, 768, 6, 6, 256), "110M": Shape(768, 2048, 12, 12, 1024)}
FORMS = {"float32": 4.0, "int8": 1 + 2 / 32, "int4": 0.5 + 2 / 32}  # bytes of one, with its share of a group's scale
STEPS, ROUNDS = 100, 5
FIRST = 1  # the token with which a text begins, and ends


def checkpoint(path: Path, shape: Shape) -> None:
    """Write a checkpoint of llama2.c with random numbers."""
    rng, width, layers = np.random.default_rng(0), shape.width, shape.layers

    def numbers(*extents: int, scale: float = 0.05) -> bytes:
        return (rng.standard_normal(extents, np.float32) * np.float32(scale)).tobytes()

    def ones(*extents: int) -> bytes:
        return np.ones(extents, "<f4").tobytes()

    head = [width, shape.hidden, layers, shape.heads, shape.heads, TOKENS, shape.context]
    with path.open("wb") as file:
        file.write(np.array(head, "<i4").tobytes())
        file.write(numbers(TOKENS, width, scale=0.3) + ones(layers, width))
        file.write(b"".join(numbers(layers, width, width) for _ in range(4)) + ones(layers, width))
        for extents in ((shape.hidden, width), (width, shape.hidden), (shape.hidden, width)):
            file.write(numbers(layers, *extents))
        file.write(ones(width) + bytes(4 * shape.context * width // shape.heads))


def best(call: Callable[[], float]) -> float:
    """The smallest of some seconds."""
    return min(call() for _ in range(ROUNDS))


def greedy(nn: Any, count: int) -> tuple[list[Any], float]:
    """What is likeliest behind the first token, and the seconds that it took, but for the first piece."""
    pieces = nn.generate([FIRST], max_tokens=count, temperature=0)
    found, begun = [next(pieces)], time.perf_counter()
    found += pieces
    return found, time.perf_counter() - begun


def first_token(library: Path) -> float:
    """Milliseconds of a new process from ``import`` on, until it has the scores behind a prompt."""
    program = f"""
import sys, time
sys.path.insert(0, {str(library.parent)!r})
begun = time.perf_counter()
import nn
nn.forward(list(range(8)))
print(time.perf_counter() - begun)
"""
    return best(lambda: float(subprocess.check_output([sys.executable, "-c", program]))) * 1e3


def compiled(file: Path, form: str, folder: Path, tokenizer: Path | None = None) -> Path:
    options = Options(isas=chosen_isas(), weights="inside", **({} if form == "float32" else {"weights_dtype": form}))
    with building(folder):
        return compile_program(compile_model(llm.load(file, tokenizer=tokenizer), "nn", options), "nn", folder)


def by_llama2c(clone: Path, file: Path, folder: Path) -> tuple[bytes, float]:
    """What ``run.c`` writes, and how many tokens a second, as it says itself."""
    program = folder / "run"
    subprocess.run(["cc", "-O3", "-march=native", clone / "run.c", "-o", program, "-lm"], check=True)
    command = [program, file, "-t", "0", "-n", str(STEPS), "-z", clone / "tokenizer.bin"]
    runs = [subprocess.run(command, check=True, capture_output=True) for _ in range(ROUNDS)]
    return runs[0].stdout.rstrip(b"\n"), max(float(run.stderr.split()[-1]) for run in runs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama2c", type=Path, help="a clone of llama2.c, to compare with")
    parser.add_argument("--model", choices=SHAPES, default="15M", help="how many weights (default: %(default)s)")
    options = parser.parse_args()
    one_core()
    folder, shape = Path(tempfile.mkdtemp()), SHAPES[options.model]
    file, read = folder / "model.bin", measure().bandwidth(4 * shape.weights)
    checkpoint(file, shape)
    rows, speeds, texts = [], dict[str, float](), dict[str, bytes]()
    tokenizer = options.llama2c / "tokenizer.bin" if options.llama2c else None
    for form, size in FORMS.items():
        (folder / form).mkdir()
        library = compiled(file, form, folder / form, tokenizer)
        nn = load(library)
        speeds[form] = STEPS / best(lambda nn=nn: greedy(nn, STEPS + 1)[1])
        texts[form] = "".join(map(str, greedy(nn, STEPS - 1)[0])).encode()

        def prompt(nn: Any = nn) -> float:
            text, begun = nn.Model(), time.perf_counter()
            text.forward(list(range(128)))
            return time.perf_counter() - begun

        cells = (f"{os.path.getsize(library) / 1e6:.1f}", f"{first_token(library):.0f}", f"{speeds[form]:,.0f}")
        cells += (f"{speeds[form] / speeds['float32']:.2f}", f"{size * shape.weights * speeds[form] / read:.2f}")
        rows.append((form, *cells, f"{best(prompt) * 1e3:.1f}"))
    if options.llama2c:
        text, speed = by_llama2c(options.llama2c, file, folder)
        if not texts["float32"] or not text.startswith(texts["float32"]):
            raise SystemExit(f"the texts differ:\n{texts['float32']!r}\n{text!r}")
        rows.append(("run.c", "", "", f"{speed:,.0f}", f"{speed / speeds['float32']:.2f}", "", ""))
    table(("", "MB", "first, ms", "tokens/s", "of float32", "of the bandwidth", "prompt of 128, ms"), rows)


if __name__ == "__main__":
    main()
