"""Metadata of a model that its C does not contain: ``model.json`` beside it, for the SBOM and for budgets.

An sdist contains the file, so that a build from it obeys the same budgets.
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
from mlaot.binding.weights import steps_of
from mlaot.ir import DType, Graph, Node
from mlaot.ir.dims import parse, substitute
from mlaot.ir.module import Module
from mlaot.ir.subgraph import subgraphs
from mlaot.lower.program import Entry, ExtensionModule, Port, Program

LEAVES = ("const", "input")  # ops that compute nothing


def graph_metadata(module: Module) -> dict[str, Any]:
    """Return the metadata of the graphs: their digest, the count of each op, and the dtypes of the weights.

    The digest is of the text form, which leaves out arrays of weights. These have a digest of their own.
    """
    graphs = dict(sorted(module.graphs.items()))
    texts = "\n".join(map(str, graphs.values()))
    arrays: dict[object, tuple[DType, int]] = {}
    for graph in graphs.values():
        for name in graph.inputs.keys() & module.slots.keys():
            dtype = module.narrow.get(name, graph.inputs[name].type.dtype)
            made_of = module.transformed.get(name)
            arrays[name] = dtype, module.slots[name].size if made_of is None else made_of.weights.size
        literals = [node.attrs["value"] for node in nodes(graph) if node.op.name == "const" and node.type.shape]
        arrays |= {literal.key: (literal.dtype, literal.array.size) for literal in literals}
    elements = Counter[str]()
    for dtype, size in arrays.values():
        elements[type_text(dtype.name, ())] += size
    return {
        "graph": hashlib.sha256(texts.encode()).hexdigest(),
        "ops": {name: dict(sorted(ops(graph).items())) for name, graph in graphs.items()},
        "elements": dict(sorted(elements.items())),
    }


def nodes(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph and of the subgraphs of its control flow."""
    for node in graph.nodes():
        yield node
        for body in subgraphs(node.attrs).values():
            yield from nodes(body.graph)


def ops(graph: Graph) -> Counter[str]:
    """Count each op."""
    return Counter(node.op.name for node in nodes(graph) if node.op.name not in LEAVES)


def metadata_text(program: Program, weights: memoryview) -> str:
    """Return the content of ``model.json``: ``graph_metadata``, and the metadata of the lowered program."""
    module = program.module
    content = {
        **module.metadata,
        "mlaot": version("mlaot"),
        "info": describe(module),
        "golden": list(golden_calls(module)),
        "workspace": {entry.name: workspace(entry) for entry in module.entries},
        "weights": {"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)},
        **({"requires": ["pillow"]} if any(step.kind == "image" for step in steps_of(module)) else {}),
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def workspace(entry: Entry) -> int:
    """Return the bytes for the rows that are computed at a time, with every other dimension 1."""
    return substitute(parse(entry.workspace), Sizes({entry.rows: entry.tile}))


class Sizes(dict[str, int]):
    """Values of dims: 1 unless another is set."""

    def __missing__(self, name: str) -> int:
        return 1


def golden_calls(module: ExtensionModule) -> Iterator[dict[str, Any]]:
    """Yield the golden vectors with names: each with dims, input ports, how these are drawn, and answers."""
    entries = {entry.name: entry for entry in module.entries}
    for call in module.golden:
        entry = entries[call.entry]
        yield {
            "entry": call.entry,
            "dims": dict(zip(module.dims, call.dims, strict=True)),
            "inputs": [port_fields(port) for port in entry.inputs],
            "draws": [[draw.low, draw.width, draw.seed, draw.content.hex()] for draw in call.draws],
            "outputs": [
                {"name": port.name, "bound": bound, "sums": sums, "largest": largest}
                for port, (bound, *sums), largest in zip(entry.results, call.outputs, call.largest, strict=True)
            ],
        }


def port_fields(port: Port) -> list[Any]:
    """Return the fields of a port in their order; ``port_of`` reads them."""
    ranges = [
        [str(r.size), r.wraps, r.ignored, [span and [str(span[0]), str(span[1]), span[2]] for span in r.box]]
        for r in port.ranges
    ]
    return [port.name, port.dtype, list(port.shape), port.default, ranges]
