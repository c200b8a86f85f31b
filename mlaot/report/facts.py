"""Facts of a model that its C no longer tells: ``model.json`` beside it, for the SBOM and for budgets.

An sdist carries the file, so that what is compiled there is held to the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from mlaot.binding.methods import type_text
from mlaot.binding.tables import describe
from mlaot.ir import DType, Graph, Node
from mlaot.ir.dims import parse, substitute
from mlaot.ir.module import Module
from mlaot.ir.subgraph import subgraphs
from mlaot.lower.program import Entry, ExtensionModule, Port, Program

LEAVES = ("const", "input")  # what no code is made for


def graph_facts(module: Module) -> dict[str, Any]:
    """What only the graphs know: a digest of what they compute, how often each op occurs, the dtypes of the weights.

    The digest is of the text form, in which arrays of weights are not: these have a digest of their own.
    """
    graphs = dict(sorted(module.graphs.items()))
    texts = "\n".join(map(str, graphs.values()))
    arrays: dict[object, tuple[DType, int]] = {}
    for graph in graphs.values():
        for name in graph.inputs.keys() & module.slots.keys():
            stored = module.narrow.get(name, graph.inputs[name].type.dtype)
            arrays[name] = stored, module.slots[name].size
        held = [node.attrs["value"] for node in nodes(graph) if node.op.name == "const" and node.type.shape]
        arrays |= {literal.key: (literal.dtype, literal.array.size) for literal in held}
    elements = Counter[str]()
    for dtype, size in arrays.values():
        elements[type_text(dtype.name, ())] += size
    return {
        "graph": hashlib.sha256(texts.encode()).hexdigest(),
        "ops": {name: dict(sorted(ops(graph).items())) for name, graph in graphs.items()},
        "elements": dict(sorted(elements.items())),
    }


def nodes(graph: Graph) -> Iterator[Node]:
    """Of a graph and of the subgraphs of its control flow."""
    for node in graph.nodes():
        yield node
        for body in subgraphs(node.attrs).values():
            yield from nodes(body.graph)


def ops(graph: Graph) -> Counter[str]:
    """How often each op occurs."""
    return Counter(node.op.name for node in nodes(graph) if node.op.name not in LEAVES)


def facts_text(program: Program, weights: memoryview) -> str:
    """The content of ``model.json``: what ``graph_facts`` found, and what the lowered program knows."""
    module = program.module
    found = {
        **module.facts,
        "mlaot": version("mlaot"),
        "info": describe(module),
        "golden": list(golden_calls(module)),
        "workspace": {entry.name: workspace(entry) for entry in module.entries},
        "weights": {"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)},
    }
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def workspace(entry: Entry) -> int:
    """Bytes for as many rows as are computed at a time, every other dimension being 1."""
    return substitute(parse(entry.workspace), Sizes(batch=entry.tile or 1))


class Sizes(dict[str, int]):
    """Values of dims: 1 unless another is given."""

    def __missing__(self, name: str) -> int:
        return 1


def golden_calls(module: ExtensionModule) -> Iterator[dict[str, Any]]:
    """The golden vectors with names: for each call its dims, the ports that take its numbers, its answers."""
    entries = {entry.name: entry for entry in module.entries}
    for call in module.golden:
        entry = entries[call.entry]
        yield {
            "entry": call.entry,
            "dims": dict(zip(module.dims, call.dims, strict=True)),
            "inputs": [port_facts(port) for port in entry.inputs],
            "outputs": [
                {"name": port.name, "bound": bound, "elements": elements}
                for port, (bound, *elements) in zip(entry.outputs, call.outputs, strict=True)
            ],
        }


def port_facts(port: Port) -> list[Any]:
    """The fields of a port in their order; ``golden.port_of`` reads them."""
    ranges = [
        [str(r.size), r.wraps, r.ignored, [span and [str(span[0]), str(span[1]), span[2]] for span in r.box]]
        for r in port.ranges
    ]
    return [port.name, port.dtype, list(port.shape), port.default, ranges]
