"""Add the entry that reads a token of each of several texts, which share each read of a weight. Bit-exact.

    forward:                                          read_texts:
    v0 = input(name=tokens) : i64[n]                  v0 = input(name=tokens) : i64[texts,1]
    v1 = input(name=keys) : f32[8,64]          =>     v1 = input(name=texts(keys)) : f32[texts,8,64]
    v2 = input(name=w) : f32[8,8]                     v2 = input(name=w) : f32[8,8]

Each of several texts has its own slots for the values that the entry of one text writes.
"""

from __future__ import annotations

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph
from mlaot.ir.dims import names
from mlaot.ir.module import READ_TEXTS, SEEN, TEXTS, Module, texts_of
from mlaot.ir.rename import copy_graph
from mlaot.ops.base import lift
from mlaot.passes.base import pass_over
from mlaot.transforms.batch import Value, batch_into


@pass_over("module", after=("entries",))
def batch_texts(module: Module) -> None:
    """Batch the entry that reads a text, if several texts are read at once."""
    generation = module.generation
    if generation is None or generation.texts == 1:
        return
    reads = module.graphs[generation.entry]
    (tokens,) = (name for name in reads.inputs if name not in module.slots)
    one = copy_graph(reads, dict.fromkeys(names(reads.inputs[tokens].type.shape[0]), 1))
    _check_masks(one, tokens, module)
    graph = Graph(READ_TEXTS)
    inputs: list[Value] = []
    for name, node in one.inputs.items():
        is_own = name == tokens or name in one.writes
        notes = {note: value for note, value in node.attrs.items() if note not in ("name", "type")}
        type_ = node.type.with_shape((TEXTS, *node.type.shape)) if is_own else node.type
        inputs.append((graph.input(texts_of(name) if name in one.writes else name, type_, **notes), is_own))
    values = [v if is_own else lift(v, TEXTS) for v, is_own in batch_into(graph, one, inputs, TEXTS)]
    graph.outputs = dict(zip(one.outputs, values, strict=False))
    graph.writes = dict(zip(map(texts_of, one.writes), values[len(one.outputs) :], strict=True))
    module.graphs[READ_TEXTS] = graph
    for name in one.writes:
        start = module.state[name]
        module.state[texts_of(name)] = np.zeros((generation.texts, *start.shape), start.dtype)


def _check_masks(one: Graph, tokens: str, module: Module) -> None:
    """Raise ``MlaotError`` for an entry that reads rows after the position of a text, as other texts may be longer.

    The results at a position must be the same with and without rows after that position, whatever these hold.
    """
    numbers = np.random.default_rng(0)
    generation = module.generation
    assert generation is not None
    place, found = generation.context // 2, []
    start = {name: module.slots[name] for name in one.inputs if name in module.slots}
    for name in one.writes:
        if start[name].dtype.kind == "f":
            start[name] = numbers.normal(size=start[name].shape).astype(start[name].dtype)
    start |= {"place": np.array(place), tokens: np.zeros(1, np.int64)}
    for seen in (place + 1, generation.context):
        found.append(evaluate(one, start, wide=True, dims={SEEN: seen}))
    for alone, beside in zip(*(results.values() for results in found), strict=True):
        if not np.allclose(alone, beside, rtol=1e-6, atol=1e-9, equal_nan=True):
            why = f"{generation.entry} reads rows behind the place of a text, which another text is longer by"
            how = "mask them: mlaot.arange(text.seen(tokens)) <= places[:, None]"
            raise MlaotError(f"Text: texts = {generation.texts}: {why}; {how}")
