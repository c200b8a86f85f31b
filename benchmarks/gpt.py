"""The GPT of letters of examples/gpt beside PyTorch: losses from the same start, and a step's time.

    MLAOT_ISA=v3 python benchmarks/gpt.py --data input.txt [--recipe nanogpt] [--steps 100] [--threads 2]

Both take the same batches of a text, by the same schedule of AdamW with clipped gradients; PyTorch runs eagerly. The
first lines give the largest relative difference between the losses of a step, and the loss over the whole held-back
part after the last step. Then come the milliseconds of a step, the shortest of all steps in turns, and their ratio. The
same follows for the network that ``torch.compile`` makes.
"""

from __future__ import annotations

import argparse
import json
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as tf
from common import chosen_isas, compile_program, load, one_core, out

from mlaot.errors import building
from mlaot.generate import compile_model
from mlaot.settings.options import Options

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt"
Array = np.ndarray[Any, Any]
Tensors = dict[str, torch.Tensor]


def compiled(settings: dict[str, Any], folder: Path) -> Any:
    """The module that trains, and the schedule of its rate."""
    for file in (EXAMPLE / "network.py", EXAMPLE / "train" / "model.py"):
        shutil.copy(file, folder)
    (folder / "settings.json").write_text(json.dumps(settings))
    sys.path.insert(0, str(folder))
    with building(folder):
        declared = runpy.run_path(str(folder / "model.py"))
        program = compile_model(declared["gpt"], "nn.nn", Options(isas=chosen_isas()))
    return load(compile_program(program, "nn", folder)), declared["rate"]


def scores(p: Tensors, tokens: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
    """The same network by PyTorch."""
    width, heads = settings["width"], settings["heads"]

    def normalize(x: torch.Tensor, name: str) -> torch.Tensor:
        return tf.layer_norm(x, (width,), p[f"{name}.weight"], p[f"{name}.bias"])

    x = p["letters.weight"][tokens] + p["positions.weight"]
    for i in range(settings["layers"]):
        block = f"blocks.{i}."
        parts = tf.linear(normalize(x, block + "norm1"), p[block + "attention.weight"]).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        found = tf.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + tf.linear(found, p[block + "attended.weight"])
        up = tf.gelu(tf.linear(normalize(x, block + "norm2"), p[block + "up.weight"]))
        x = x + tf.linear(up, p[block + "down.weight"])
    return tf.linear(normalize(x, "norm"), p["letters.weight"])


def torch_loss(network: Any, p: Tensors, tokens: Array, following: Array, settings: dict[str, Any]) -> torch.Tensor:
    found = network(p, torch.from_numpy(tokens), settings)
    return tf.cross_entropy(found.flatten(0, 1), torch.from_numpy(following).flatten())


def windows(tokens: Array, starts: Array, length: int) -> tuple[Array, Array]:
    """Rows of letters, and of those that follow each."""
    places = np.asarray(starts)[:, None] + np.arange(length)
    return tokens[places], tokens[places + 1]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a text, such as tiny Shakespeare")
    parser.add_argument("--recipe", default="nanogpt", help="nanogpt, femtogpt or tiny (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s, on one core")
    options = parser.parse_args()
    if options.threads == 1:
        one_core()
    torch.set_num_threads(options.threads)
    text = options.data.read_text(encoding="utf-8")
    settings = runpy.run_path(str(EXAMPLE / "settings.py"))["RECIPES"][options.recipe]
    settings |= {"letters": "".join(sorted(set(text)))}
    nn, rate = compiled(settings, Path(tempfile.mkdtemp()))
    model, length = nn.Model(), settings["context"]
    model.set_threads(options.threads)
    number = {letter: i for i, letter in enumerate(settings["letters"])}
    tokens = np.array([number[letter] for letter in text])
    learnt, held_back = np.split(tokens, [len(tokens) - len(tokens) // 10])
    p = {name: torch.tensor(np.array(array), requires_grad=True) for name, array in model.parameters.items()}
    decayed, others = ([x for name, x in p.items() if ("norm" in name) == norms] for norms in (False, True))
    groups = [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["rate"], betas=tuple(settings["betas"]))
    rng, worst = np.random.default_rng(0), 0.0

    def steps(numbers: Iterable[int], model: Any, network: Any) -> list[float]:
        """Take steps of both by turns; return the seconds of the shortest of either."""
        nonlocal worst
        best = [float("inf")] * 2
        for step in numbers:
            batch = windows(learnt, rng.integers(0, len(learnt) - length, settings["batch"]), length)
            begun = time.perf_counter()
            loss = model.train_step(*batch)
            between = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = settings["rate"] * float(rate(np.array(step)))
            optimizer.zero_grad()
            wanted = torch_loss(network, p, *batch, settings)
            wanted.backward()
            torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
            optimizer.step()
            best = [min(best[0], between - begun), min(best[1], time.perf_counter() - between)]
            worst = max(worst, abs(loss / wanted.item() - 1))
        return best

    eager = steps(range(options.steps), model, scores)
    rest = windows(held_back, np.arange(0, len(held_back) - length, length), length)
    with torch.no_grad():
        wanted = torch_loss(scores, p, *rest, settings)
    out(f"losses of {options.steps:,} steps differ from PyTorch's by {worst:.1e} at most, relatively")
    out(f"loss of what was held back: {model.loss(*rest):.4f}, PyTorch's {wanted.item():.4f}")

    def report(name: str, best: list[float]) -> None:
        own, theirs = (1e3 * seconds for seconds in best)
        out(f"a step: {own:.1f} ms, {name} {theirs:.1f} ms, share {own / theirs:.2f}")

    report("PyTorch's", eager)
    further = range(options.steps, options.steps + max(options.steps, 10))
    report("torch.compile's", steps(further, model, torch.compile(scores)))


if __name__ == "__main__":
    main()
