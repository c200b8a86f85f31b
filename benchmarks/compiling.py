"""From a declared model to an importable module: seconds, memory, size.

    python benchmarks/compiling.py

The models are the scalar graph of the seed's network, in float64 and float32, examples/lenet, and transformers of equal
blocks that train (``gpt4``) or serve (``gpt12``). Each is built in a child process on one core. ``lines`` are those of
the kernels for AVX2. The yardsticks of the scalar graph are the figures of "Compiling ML models to C for fun": 17 to
over 987 seconds, 1 to 6 GB, 4.8 to 28 MB with clang or gcc.
"""

# No `from __future__ import annotations`: the annotations of the models are types made here.
import argparse
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import build, chosen_isas, load, one_core, out
from seed import declared

import mlaot
from mlaot import nn
from mlaot.nn import functional as F

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TOKENS, WORDS = 64, 65


class Block(nn.Module):
    """A transformer's: attention and two dense layers, each added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        self.width, self.heads = width, heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        rows, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(rows, tokens, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)
        x = x + self.proj(y.reshape(rows, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Tokens to scores of the next one."""

    def __init__(self, depth: int, width: int, heads: int) -> None:
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(TOKENS, width)
        self.blocks = [Block(width, heads) for _ in range(depth)]
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt(depth: int, width: int, heads: int, *, trains: bool) -> Any:
    """A model of ``depth`` equal blocks."""
    net, batch = Gpt(depth, width, heads), mlaot.dim("batch")
    tokens = mlaot.i64[batch, TOKENS]

    def forward(x: tokens) -> Any:
        return net(x)

    def loss(scores: Any, target: tokens) -> Any:
        return F.cross_entropy(scores.reshape(-1, WORDS), target.reshape(-1))

    more = {"loss": loss, "optimizer": mlaot.optim.Adam(lr=1e-3)} if trains else {}
    return mlaot.model(parameters=net, **more)(forward)


MODELS = {
    "float64": lambda: declared("float64"),
    "float32": lambda: declared("float32"),
    "gpt4": lambda: gpt(4, 64, 4, trains=True),
    "gpt12": lambda: gpt(12, 32, 4, trains=False),
    "lenet": lambda: runpy.run_path(str(EXAMPLES / "lenet" / "model.py"))["lenet"],
}


def peak() -> float:
    """MB that this process had at most; ``ru_maxrss`` counts what the process had that started it."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def measure(name: str) -> None:
    started = time.perf_counter()
    model = MODELS[name]()
    built = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library = build(model, "nn", Path(folder), chosen_isas())
        compiled = time.perf_counter()
        module = load(library)
        info, size = module.info(), library.stat().st_size
        weights = 4 * info["parameter_count"] if name == "gpt12" else module.flat_parameters.nbytes
        lines = (Path(folder) / "nn_v3.c").read_text().count("\n")
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        memory = max(peak(), children.ru_maxrss / 1024)
        out(
            f"{name}: declared {built - started:.2f} s, to C and compiled {compiled - built:.2f} s wall; "
            f"{cpu:.2f} s CPU in all"
        )
        out(
            f"  peak memory {memory:.0f} MB; module {size / 1000:.0f} KB = "
            f"weights {weights / 1000:.0f} + {(size - weights) / 1000:.0f} KB"
        )
        out(f"  isa {info['isa']}, {info['parameter_count']:,} parameters, {lines:,} lines")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=MODELS, help="measure this one, in this process")
    chosen = parser.parse_args().model
    if chosen:
        one_core()
        measure(chosen)
        return
    for name in MODELS:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main()
