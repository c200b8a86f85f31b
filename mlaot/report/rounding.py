"""Report on weights in fewer bits: the size that they save, and their effect on the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from mlaot.evaluate import evaluate
from mlaot.ir.module import Module, Product, Quantized
from mlaot.lower.program import Golden
from mlaot.ops.base import Array
from mlaot.passes.frozen.quantize import split_sample


def narrow_weights_report(module: Module, vectors: Iterable[Golden]) -> str:
    """Return a line on the size that weights in fewer bits save, and their effect on the answers."""
    used = {name for graph in module.graphs.values() for name in graph.inputs} & module.parameters.keys()
    others_bytes = sum(module.parameters[name].nbytes for name in used - module.narrow.keys() - module.grouped.keys())
    saved_bytes = sum(module.parameters[name].nbytes // 2 for name in used & module.narrow.keys())
    saved_bytes += sum(module.grouped.values())
    drift = _drift_text(vectors)
    return (
        f"{module.name}: weights as {module.options.weights_dtype} save {saved_bytes:,} bytes"
        + (f"; {others_bytes:,} bytes of others stay as they are" if others_bytes else "")
        + (f"; they move {drift} of the largest element" if drift else "")
    )


def quantization_report(module: Module, vectors: Iterable[Golden]) -> Iterator[str]:
    """Yield a line for each product that is computed with bytes, then lines on the answers to the sample, if any.

    Errors of weights are relative to the root of their mean square, and errors of answers relative to the largest
    answer.
    """
    products = list(dict.fromkeys(module.quantized))
    before = sum(4 * prod(product.shape) for product in products)
    whose = "1 product with bytes; its" if len(products) == 1 else f"{len(products)} products with bytes; their"
    yield f"{module.name}: {whose} weights take {before // 4:,} of {before:,} bytes"
    for number, product in enumerate(products, 1):
        yield f"  {number}: {_describe(product)}"
    others = list(dict.fromkeys(module.unquantized))
    if others:
        what, them = ("1 product stays", "it") if len(others) == 1 else (f"{len(others)} products stay", "them")
        yield f"{module.name}: {what} float32, which is faster (int8-all takes {them} too)"
    for number, other in enumerate(others, len(products) + 1):
        yield f"  {number}: {_name(other)}"
    if not module.sample:
        drift = _drift_text(vectors)
        yield f"{module.name}: {module.options.quantize} moves {drift or 'no answer'} of the largest element"
        return
    exact, rounded = (_sample_answers(module, is_declared=is_declared) for is_declared in (True, False))
    for name, answer in exact.items():
        if answer.dtype.kind == "f" and answer.size:
            yield f"{module.name}: {module.options.quantize} moves {name} by {_error_text(answer, rounded[name])}"


def _name(product: Product) -> str:
    return f"{product.weight} {'x'.join(map(str, product.shape))}"


def _describe(product: Quantized) -> str:
    range_ = "of a range found in each call" if product.range is None else "in {:.4g}..{:.4g}".format(*product.range)
    return f"{_name(product)}: weights off by {100 * product.error:.2g} %, times numbers {range_}"


def _sample_answers(module: Module, *, is_declared: bool) -> dict[str, Array]:
    """Return the results of ``forward`` for the sample, declared or compiled."""
    graph = (module.declared if is_declared else module.graphs)["forward"]
    slots = module.declared_slots if is_declared else module.slots
    assert module.sample is not None
    runs = [evaluate(graph, {**slots, **part}) for part in split_sample(module.sample, graph)]
    return {name: np.concatenate([run[name] for run in runs]) if len(runs) > 1 else runs[0][name] for name in runs[0]}


def _error_text(exact: Array, rounded: Array) -> str:
    """Describe the error of answers, and for several rows the number in which the largest answer is the same."""
    exact, rounded = exact.astype(np.float64), rounded.astype(np.float64)
    largest = max(float(np.abs(exact).max()), np.finfo(np.float32).tiny)
    differences = np.abs(rounded - exact)
    spread = np.sqrt(np.mean(differences**2))
    shares = [100 * size / largest for size in (differences.max(), spread)]
    text = "{:.2g} % of the largest element ({:.2g} % root mean square) on".format(*shares)
    text += f" {len(exact) if exact.ndim else 1} rows of the sample"
    if exact.ndim < 2 or exact.shape[-1] < 2:
        return text
    same = np.mean(exact.argmax(-1) == rounded.argmax(-1))
    return f"{text}; the largest of a row is the same in {100 * same:.4g} %"


def _drift_text(vectors: Iterable[Golden]) -> str:
    """Describe the largest change of each entry's answers over all calls."""
    drifts: dict[str, float] = {}
    for call in vectors:
        drifts[call.entry] = max(call.drift, drifts.get(call.entry, 0.0))
    return ", ".join(f"{entry} by {100 * drift:.2g} %" for entry, drift in drifts.items() if drift)
