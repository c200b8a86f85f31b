"""Parameters read as tensors become tensors: the flat vector of scalar parameters is cut up. Bit-exact.

    v0 = input(name=parameters) : f64[39760]           v0 = input(name=layers.0.w) : f64[50,784]
    v1 = take(v0, indices=<39200 numbers>)       =>    v1 = input(name=layers.0.b) : f64[50]
    v2 = take(v0, indices=<50 numbers>)

Reads that have no scalar in common get a tensor each; a read of the same scalars in another order is a transpose or a
take of that tensor; reads that overlap otherwise share one tensor and take from it. A parameter that nothing reads is
kept, so that it is saved and counted as in the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mlaot.ir import Graph, Node, users
from mlaot.ops import structure as st
from mlaot.passes.raise_tensors import Ids, _base, _clusters, _positions, _take


READS = (st.item, st.take, st.reshape)
MANY = 8  # so many parameters that are read one by one share a tensor


def split_parameters(graph: Graph, flat_name: str, names: Sequence[str]) -> dict[str, Ids]:
    """Cut up the input ``flat_name``; ``names`` are those of its scalars. The scalars of each new tensor, by its name."""
    flat = graph.inputs.pop(flat_name, None)
    if flat is None:
        return {}
    used = users(graph.nodes()).get(flat, [])
    reads = [(node, _indices(node)) for node in used if node.op in READS]
    if len(reads) < len(used) or flat in graph.roots():  # something computes with the whole vector, in its order
        reads.append((flat, np.arange(len(names))))
    arrays = list({(ids.tobytes(), ids.shape): ids for _, ids in reads}.values())
    unread = np.setdiff1d(np.arange(len(names)), np.concatenate([a.reshape(-1) for a in arrays] or [np.zeros(0, int)]))
    merged = [_merged(cluster) for cluster in _clusters(arrays)]
    single = [ids for ids in merged if ids.size == 1]
    if len(single) > MANY:
        merged = [ids for ids in merged if ids.size > 1] + [np.sort(np.concatenate([s.reshape(-1) for s in single]))]
    clusters = sorted(merged, key=lambda ids: int(ids.min()))
    members: dict[str, Ids] = {}
    for ids in [*clusters, *([unread] if unread.size else [])]:
        name = _name([names[i] for i in ids.reshape(-1).tolist()], members)
        graph.input(name, flat.type.with_shape(ids.shape), parameter=True)
        members[name] = ids
    home = {scalar: name for name, ids in members.items() for scalar in ids.reshape(-1).tolist()}
    for node, ids in reads:
        name = home[int(ids.flat[0])]
        graph.forward(node, _take(graph.inputs[name], _positions(members[name], ids)))
    return members


def _merged(cluster: Sequence[Ids]) -> Ids:
    return _base(sorted(cluster, key=lambda ids: -ids.ndim))


def _indices(node: Node) -> Ids:
    """The scalars that a node reads of the flat vector."""
    if node.op is st.item:
        return np.array(node.attrs["index"], np.int64)
    if node.op is st.take:
        return np.asarray(node.attrs["indices"].array, np.int64)
    assert node.op is st.reshape, f"bug in mlaot: split_parameters met {node}"
    return np.arange(node.arg(0).type.shape[0]).reshape(node.type.shape)  # type: ignore[arg-type]


def _name(scalars: Sequence[str], taken: dict[str, Ids]) -> str:
    """What the scalars' dotted names have in common: ``layers.0.neurons.3.w.7`` and its like are ``layers.0.neurons.w``."""
    split = [name.split(".") for name in scalars]
    length = min(map(len, split))
    common = [split[0][i] for i in range(length) if all(parts[i] == split[0][i] for parts in split)]
    if len(scalars) == 1:
        common = split[0]
    base = re.sub(r"[^0-9A-Za-z_.]", "_", ".".join(common)) or "p"
    name, n = base, 1
    while name in taken:
        name, n = f"{base}_{n}", n + 1
    return name
