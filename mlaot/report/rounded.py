"""Lines that a build prints on weights in fewer bits: what they save, and how far the answers move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.ir.module import Module, Quantized
from mlaot.lower.program import Golden
from mlaot.ops.base import Array
from mlaot.passes.frozen.quantize import split_sample


def narrowed(module: Module, vectors: Iterable[Golden]) -> str:
    """A line on what narrow weights save, and what they cost."""
    kept = {name for graph in module.graphs.values() for name in graph.inputs} & module.parameters.keys()
    others = sum(module.parameters[name].nbytes for name in kept - module.narrow.keys())
    saved = sum(module.parameters[name].nbytes // 2 for name in kept & module.narrow.keys())
    drift = _drift(vectors)
    return (
        f"{module.name}: weights as {module.options.weights_dtype} save {saved:,} bytes"
        + (f"; {others:,} bytes of others stay as they are" if others else "")
        + (f"; they move {drift} of the largest element" if drift else "")
    )


def quantized(module: Module, vectors: Iterable[Golden]) -> Iterator[str]:
    """A line on each product that is computed with bytes, then lines on the answers, by the sample where there is one.

    Errors are shares: of weights, of the root of their mean square; of answers, of the largest one.
    """
    products = list(dict.fromkeys(module.quantized))
    before = sum(4 * prod(product.shape) for product in products)
    yield f"{module.name}: {len(products)} products with bytes; their weights take {before // 4:,} of {before:,} bytes"
    for number, product in enumerate(products, 1):
        yield f"  {number}: {_described(product)}"
    if not module.sample:
        drift = _drift(vectors)
        yield f"{module.name}: {module.options.quantize} moves {drift or 'no answer'} of the largest element"
        return
    exact, found = (_answers(module, is_declared=is_declared) for is_declared in (True, False))
    for name, wanted in exact.items():
        if wanted.dtype.kind == "f" and wanted.size:
            yield f"{module.name}: {module.options.quantize} moves {name} by {_off(wanted, found[name])}"


def _described(product: Quantized) -> str:
    channels = f"{product.weight} {'x'.join(map(str, product.shape))}"
    seen = "of a range found in each call" if product.range is None else "in {:.4g}..{:.4g}".format(*product.range)
    return f"{channels}: weights off by {100 * product.error:.2g} %, times numbers {seen}"


def _answers(module: Module, *, is_declared: bool) -> dict[str, Array]:
    """What ``forward`` gives for the sample: the declared one or the one that is compiled."""
    graph = (module.declared if is_declared else module.graphs)["forward"]
    slots = module.declared_slots if is_declared else module.slots
    assert module.sample is not None
    runs = [evaluate(graph, {**slots, **part}) for part in split_sample(module.sample, graph)]
    return {name: np.concatenate([run[name] for run in runs]) if len(runs) > 1 else runs[0][name] for name in runs[0]}


def _off(exact: Array, found: Array) -> str:
    """How far answers are from others, and in how many rows of several the largest one is the same."""
    exact, found = exact.astype(np.float64), found.astype(np.float64)
    largest = max(float(np.abs(exact).max()), np.finfo(np.float32).tiny)
    apart = np.abs(found - exact)
    spread = np.sqrt(np.mean(apart**2))
    shares = [100 * found / largest for found in (apart.max(), spread)]
    text = "{:.2g} % of the largest element ({:.2g} % root mean square) on".format(*shares)
    text += f" {len(exact) if exact.ndim else 1} rows of the sample"
    if exact.ndim < 2 or exact.shape[-1] < 2:
        return text
    same = np.mean(exact.argmax(-1) == found.argmax(-1))
    return f"{text}; the largest of a row is the same in {100 * same:.4g} %"


def _drift(vectors: Iterable[Golden]) -> str:
    return ", ".join(f"{call.entry} by {100 * call.drift:.2g} %" for call in vectors if call.drift)
