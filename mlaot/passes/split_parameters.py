"""Parameters read as tensors become tensors: the flat vector of scalar parameters is cut up. Bit-exact.

    v0 = input(name=parameters) : f64[39760]           v0 = input(name=layers.0.w) : f64[50,784]
    v1 = take(v0, indices=<39200 numbers>)       =>    v1 = input(name=layers.0.b) : f64[50]
    v2 = take(v0, indices=<50 numbers>)

Reads that have no scalar in common get a tensor each; a read of the same scalars in another order is a transpose or a
take of that tensor, and one that spans several (a penalty on all weights) takes from their concatenation. A parameter
that nothing reads is kept, so that it is saved and counted as in the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mlaot.ir import Graph, Node, users
from mlaot.ir import dims as dims_
from mlaot.ops import structure as st
from mlaot.passes.raise_tensors import Ids, positions_in, take_as_view

READS = (st.item, st.take, st.reshape)
MANY = 8  # so many parameters that are read one by one share a tensor


def split_parameters(graph: Graph, flat_name: str, names: Sequence[str]) -> dict[str, Ids]:
    """Cut up the input ``flat_name``, its scalars called ``names``: the scalars of each new tensor, by its name."""
    flat = graph.inputs.pop(flat_name, None)
    if flat is None:
        return {}
    used = users(graph.nodes()).get(flat, [])
    reads = [(node, _indices(node)) for node in used if node.op in READS]
    if len(reads) < len(used) or flat in graph.roots():  # something computes with the whole vector, in its order
        reads.append((flat, np.arange(len(names))))
    members: dict[str, Ids] = {}
    for ids in _pieces([ids for _, ids in reads], len(names)):
        name = _name([names[i] for i in ids.reshape(-1).tolist()], members)
        graph.input(name, flat.type.with_shape(ids.shape), parameter=True)
        members[name] = ids
    home = {scalar: name for name, ids in members.items() for scalar in ids.reshape(-1).tolist()}
    for node, ids in reads:
        touched = list(dict.fromkeys(home[i] for i in ids.reshape(-1).tolist()))
        value, scalars = graph.inputs[touched[0]], members[touched[0]]
        if len(touched) > 1:
            value = st.concat(*[_flat(graph.inputs[name]) for name in touched], axis=0)
            scalars = np.concatenate([members[name].reshape(-1) for name in touched])
        graph.forward(node, take_as_view(value, positions_in(scalars, ids)))
    return members


def _pieces(reads: Sequence[Ids], count: int) -> list[Ids]:
    """Disjoint arrays of all ``count`` scalars: what is read, matrices and small ones first, then what is left."""
    pieces: list[Ids] = []
    taken = np.zeros(count, bool)
    for ids in sorted(reads, key=lambda ids: (-ids.ndim, ids.size)):
        if not taken[ids].any() and np.unique(ids).size == ids.size:
            taken[ids] = True
            pieces.append(ids)
    single = [ids.reshape(-1) for ids in pieces if ids.size == 1]
    if len(single) > MANY:
        pieces = [ids for ids in pieces if ids.size > 1] + [np.sort(np.concatenate(single))]
    if not taken.all():
        pieces.append(np.flatnonzero(~taken))
    return sorted(pieces, key=lambda ids: int(ids.min()))


def _flat(node: Node) -> Node:
    return st.reshape(node, shape=(dims_.product(node.type.shape),))


def _indices(node: Node) -> Ids:
    """The scalars that a node reads of the flat vector."""
    if node.op is st.item:
        return np.array(node.attrs["index"], np.int64)
    if node.op is st.take:
        return np.asarray(node.attrs["indices"].array, np.int64)
    assert node.op is st.reshape, f"bug in mlaot: split_parameters met {node}"
    return np.arange(node.arg(0).type.shape[0]).reshape(node.type.shape)  # type: ignore[arg-type]


def _name(scalars: Sequence[str], taken: dict[str, Ids]) -> str:
    """What the scalars' dotted names have in common: of ``layers.0.neurons.3.w.7`` and so on ``layers.0.neurons.w``."""
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
