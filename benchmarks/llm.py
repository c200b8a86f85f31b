"""Tokens a second of a llama with 15 or 110 million weights, of random numbers: in float32, int8 and int4, on one core.

    MLAOT_ISA=v3 python benchmarks/llm.py [--llama2c FOLDER] [--model 110M]

The model is stories15M's: 288 wide, 6 layers, 6 heads, 32,000 tokens, context 256, as a checkpoint of llama2.c. The
table has a row for each form of the weights, and these columns. First come milliseconds of a new process, from
``import`` to the scores after a prompt of 8 tokens. Then come the tokens a second of ``generate``, and their ratio to
float32's. The bytes of weights read in a second follow, as a share of what this core reads from a block as large as the
weights in float32. Then come the milliseconds for a prompt of 128 tokens, and the speed of the products alone, as a
share of this core's peak in float32. The next columns are megabytes: of the module, of its wheel, and of memory beyond
a bare process's, which holds the weights and the keys and values of a text. The largest error of the scores after 16
tokens follows, as a share of the largest score, against NumPy in float64. The last columns are the tokens a second of
several texts that ``generate_all`` writes at once, and their ratio to one text's.

With a clone of llama2.c its ``run.c`` is compiled with ``-O3 -march=native``, and writes the same greedy text, by the
same tokenizer, or the script ends.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import chosen_isas, compile_program, load, one_core, table
from limits import measure

import mlaot
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
STEPS, ROUNDS, PROMPT = 100, 5, 128
TEXTS = (1, 2, 4, 8, 16)  # at once
FIRST = 1  # the token with which a text begins, and ends


Arrays = dict[str, np.ndarray[Any, Any]]
Row = tuple[str, ...]


def random_weights(shape: Shape) -> Arrays:
    """Random numbers by the names of ``run.c``, in the order of its files."""
    rng, width, layers = np.random.default_rng(0), shape.width, shape.layers

    def numbers(*extents: int, scale: float = 0.05) -> np.ndarray[Any, Any]:
        return rng.standard_normal(extents, np.float32) * np.float32(scale)

    weights = {"tokens": numbers(TOKENS, width, scale=0.3), "att_norm": np.ones((layers, width), np.float32)}
    weights |= {name: numbers(layers, width, width) for name in ("wq", "wk", "wv", "wo")}
    weights["ffn_norm"] = np.ones((layers, width), np.float32)
    for name, extents in {
        "w1": (shape.hidden, width),
        "w2": (width, shape.hidden),
        "w3": (shape.hidden, width),
    }.items():
        weights[name] = numbers(layers, *extents)
    return weights | {"norm": np.ones(width, np.float32)}


def checkpoint(path: Path, shape: Shape) -> None:
    """Write a checkpoint of llama2.c with random numbers."""
    head = [shape.width, shape.hidden, shape.layers, shape.heads, shape.heads, TOKENS, shape.context]
    with path.open("wb") as file:
        file.write(np.array(head, "<i4").tobytes())
        for array in random_weights(shape).values():
            file.write(array.tobytes())
        file.write(bytes(4 * shape.context * shape.width // shape.heads))


def reference(shape: Shape, tokens: list[int]) -> np.ndarray[Any, Any]:
    """Compute the scores behind some tokens by NumPy, in float64."""
    w = {name: array.astype(np.float64) for name, array in random_weights(shape).items()}
    size, count = shape.width // shape.heads, len(tokens)
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
    turns = np.exp(1j * angles)  # of pairs of neighbours

    def normalized(x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * weight

    def heads(x: Any) -> Any:
        return x.reshape(count, shape.heads, size).swapaxes(0, 1)

    def turned(x: Any) -> Any:
        pairs = heads(x).reshape(shape.heads, count, size // 2, 2)
        complex_ = (pairs[..., 0] + 1j * pairs[..., 1]) * turns
        return np.stack([complex_.real, complex_.imag], axis=-1).reshape(shape.heads, count, size)

    x = w["tokens"][tokens]
    for i in range(shape.layers):
        y = normalized(x, w["att_norm"][i])
        query, key, value = turned(y @ w["wq"][i].T), turned(y @ w["wk"][i].T), heads(y @ w["wv"][i].T)
        scores = np.where(np.tri(count, dtype=bool), query @ key.swapaxes(1, 2) / size**0.5, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        found = shares / shares.sum(axis=-1, keepdims=True) @ value
        x = x + found.swapaxes(0, 1).reshape(count, shape.width) @ w["wo"][i].T
        y = normalized(x, w["ffn_norm"][i])
        gate = y @ w["w1"][i].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["w3"][i].T)) @ w["w2"][i].T
    return np.asarray(normalized(x[-1], w["norm"]) @ w["tokens"].T)


def products(shape: Shape, form: str, folder: Path) -> float:
    """Measure the operations a second of what all blocks multiply for a prompt, and nothing else."""
    w = random_weights(shape)

    def blocks(x: Any) -> Any:
        for i in range(shape.layers):
            y = np.maximum(np.maximum(x @ w["wq"][i].T, x @ w["wk"][i].T), x @ w["wv"][i].T)  # no two can become one
            y = np.maximum(y @ w["wo"][i].T, 0)
            x = np.maximum(np.maximum(y @ w["w1"][i].T, y @ w["w3"][i].T) @ w["w2"][i].T, 0)
        return x

    blocks.__annotations__ = {"x": mlaot.f32[mlaot.dim("n"), shape.width]}
    options = Options(isas=chosen_isas(), **({} if form == "float32" else {"weights_dtype": form}))
    nn = load(compile_program(compile_model(mlaot.model(blocks), "blocks", options), "blocks", folder))
    x = np.random.default_rng(2).standard_normal((PROMPT, shape.width), np.float32)

    def call() -> float:
        begun = time.perf_counter()
        nn.forward(x)
        return time.perf_counter() - begun

    return 2 * PROMPT * (shape.weights - TOKENS * shape.width) / best(call)


def best(call: Callable[[], float]) -> float:
    """The smallest of some seconds."""
    return min(call() for _ in range(ROUNDS))


def greedy(nn: Any, count: int) -> tuple[list[Any], float]:
    """What is likeliest behind the first token, and the seconds that it took, but for the first piece."""
    pieces = nn.generate([FIRST], max_tokens=count, temperature=0)
    found, begun = [next(pieces)], time.perf_counter()
    found += pieces
    return found, time.perf_counter() - begun


def together(nn: Any, texts: int) -> float:
    """Measure the tokens a second of so many texts at once, behind the first piece of each."""
    prompts = [[FIRST, token] for token in range(3, 3 + texts)]

    def write() -> float:
        pieces = nn.generate_all(prompts, max_tokens=STEPS + 1, temperature=0)
        for _ in range(texts):
            next(pieces)
        begun = time.perf_counter()
        for _ in pieces:
            pass
        return time.perf_counter() - begun

    return texts * STEPS / best(write)


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


def memory_beyond(library: Path, needed: float) -> float:
    """Megabytes that a process takes to generate a text, beyond a bare one's and those ``needed``."""
    program = f"""
import sys
sys.path.insert(0, {str(library.parent)!r})
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1e3
bare = peak()
import nn
for piece in nn.generate([{FIRST}], max_tokens={STEPS}, temperature=0):
    pass
print(peak() - bare)
"""
    return float(subprocess.check_output([sys.executable, "-c", program])) - needed


def compiled(file: Path, form: str, folder: Path, tokenizer: Path | None = None, texts: int = 1) -> Path:
    """The module of a checkpoint with weights in some form."""
    options = Options(isas=chosen_isas(), weights="inside", **({} if form == "float32" else {"weights_dtype": form}))
    with building(folder):
        return compile_program(
            compile_model(llm.load(file, tokenizer=tokenizer, texts=texts), "nn", options), "nn", folder
        )


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
    folder, shape, machine = Path(tempfile.mkdtemp()), SHAPES[options.model], measure()
    file, read = folder / "model.bin", machine.bandwidth(4 * shape.weights)
    checkpoint(file, shape)
    prompt = [FIRST, *np.random.default_rng(1).integers(3, TOKENS, 15).tolist()]
    rows, sizes, several = list[Row](), list[Row](), list[Row]()
    speeds, texts, exact = dict[str, float](), dict[str, bytes](), reference(shape, prompt)
    tokenizer = options.llama2c / "tokenizer.bin" if options.llama2c else None
    cache = 8 * shape.layers * shape.context * shape.width
    for form, size in FORMS.items():
        (folder / form).mkdir()
        library = compiled(file, form, folder / form, tokenizer)
        nn = load(library)
        speeds[form] = STEPS / best(lambda nn=nn: greedy(nn, STEPS + 1)[1])
        texts[form] = "".join(map(str, greedy(nn, STEPS - 1)[0])).encode()

        def read_prompt(nn: Any = nn) -> float:
            text, begun = nn.Model(), time.perf_counter()
            text.forward(list(range(PROMPT)))
            return time.perf_counter() - begun

        cells = (f"{first_token(library):.0f}", f"{speeds[form]:,.0f}", f"{speeds[form] / speeds['float32']:.2f}")
        cells += (f"{size * shape.weights * speeds[form] / read:.2f}", f"{best(read_prompt) * 1e3:.1f}")
        rows.append((form, *cells, f"{products(shape, form, folder / form) / machine.peak:.2f}"))
        off = np.abs(np.asarray(nn.Model().forward(prompt)) - exact).max() / np.abs(exact).max()
        module, packed = library.stat().st_size / 1e6, len(zlib.compress(library.read_bytes())) / 1e6
        beyond = memory_beyond(library, size * shape.weights / 1e6 + cache / 1e6)
        sizes.append((form, f"{module:.1f}", f"{packed:.1f}", f"{beyond:.1f}", f"{off:.1e}"))
        (folder / f"{form}_texts").mkdir()
        all_texts = load(compiled(file, form, folder / f"{form}_texts", texts=max(TEXTS)))
        fast = [together(all_texts, count) for count in TEXTS]
        several.append((form, *(f"{speed:,.0f} ({speed / speeds[form]:.1f})" for speed in fast)))
    if options.llama2c:
        text, speed = by_llama2c(options.llama2c, file, folder)
        if not texts["float32"] or not text.startswith(texts["float32"]):
            raise SystemExit(f"the texts differ:\n{texts['float32']!r}\n{text!r}")
        rows.append(("run.c", "", f"{speed:,.0f}", f"{speed / speeds['float32']:.2f}", "", "", ""))
    head = (
        "",
        "first, ms",
        "tokens/s",
        "of float32",
        "of the bandwidth",
        f"prompt of {PROMPT}, ms",
        "products, of the peak",
    )
    table(head, rows)
    table(("", "module, MB", "packed, MB", "memory beyond, MB", "off by"), sizes)
    table(("tokens/s of texts", *map(str, TEXTS)), several)


if __name__ == "__main__":
    main()
