"""Split the flat vector of scalar parameters into the tensors that ops read of it. Bit-exact.

    v0 = input(name=all parameters) : f64[39760]       v0 = input(name=layers.0.w) : f64[50,784]
    v1 = take(v0, indices=<39200 numbers>)       =>    v1 = input(name=layers.0.b) : f64[50]
    v2 = take(v0, indices=<50 numbers>)

Reads that have no scalar in common each get a tensor. A read of the same scalars in another order is a transpose or a
take of that tensor. A read that spans several tensors, such as a penalty on all weights, takes from their
concatenation. A parameter that nothing reads is kept, so that it is saved and counted as in the model.

Each array that the user declared is a strided view of one of these tensors, such as rows of a matrix, or the transposed
matrix. If that is not possible, as its columns are read in another order or in several parts, the array becomes a
tensor itself, which ops read by a take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mlaot.frontend.trace.declaration import PARAMETERS, Traced
from mlaot.ir import Graph, Node, users
from mlaot.ir import dims as dims_
from mlaot.ir.module import Module
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.raising.arrays import Ids
from mlaot.passes.raising.positions import positions_in, take_as_view
from mlaot.schedule.tuning import SINGLE_PARAMETERS

READS = (st.item, st.take, st.reshape)


@pass_over("declaration", after=("raise_tensors", "shaped_constants"))
def split_parameters(module: Module, traced: Traced) -> None:
    """Convert the parameters of a scalar model to the tensors in which they are read."""
    if not traced.named:
        return
    flat = module.parameters.pop(PARAMETERS)
    members = split(module.graphs["model"], PARAMETERS, traced.named)
    module.parameters |= {name: flat[ids] for name, ids in members.items()}
    place = {int(scalar): (name, i) for name, ids in members.items() for i, scalar in enumerate(np.ravel(ids))}
    module.scalars, module.named = tuple(place[i] for i in range(len(flat))), dict(traced.named)


def split(graph: Graph, flat_name: str, declared: Mapping[str, Ids]) -> dict[str, Ids]:
    """Split the input ``flat_name`` into tensors; return the scalars of each by its name.

    ``declared`` are the arrays of the user, which hold each scalar once.
    """
    flat = graph.inputs.pop(flat_name, None)
    if flat is None:
        return {}
    count = int(flat.type.shape[0])
    used = users(graph.nodes()).get(flat, [])
    reads = [(node, _indices(node)) for node in used if node.op in READS]
    if len(reads) < len(used) or flat in graph.roots():  # something computes with the whole vector, in its order
        reads.append((flat, np.arange(count)))
    pieces = _with_views(_pieces([ids for _, ids in reads], count), list(declared.values()), count)
    members: dict[str, Ids] = {}
    for name, ids in zip(_names(pieces, declared, {*graph.inputs, "lr"}), pieces, strict=True):
        graph.input(name, flat.type.with_shape(ids.shape), parameter=True)
        members[name] = ids
    home = {scalar: name for name, ids in members.items() for scalar in ids.reshape(-1).tolist()}
    for node, ids in reads:
        touched = list(dict.fromkeys(home[i] for i in ids.reshape(-1).tolist()))
        value, scalars = graph.inputs[touched[0]], members[touched[0]]
        if len(touched) > 1:
            value = st.concat(*[_flat(graph.inputs[name]) for name in touched], axis=0)
            scalars = np.concatenate([members[name].reshape(-1) for name in touched])
        graph.forward(node, _read(value, positions_in(scalars, ids)))
    return members


def _pieces(reads: Sequence[Ids], count: int) -> list[Ids]:
    """Partition all ``count`` scalars: arrays that are read, matrices and small ones first, then other scalars."""
    pieces: list[Ids] = []
    taken = np.zeros(count, bool)
    for ids in sorted(reads, key=lambda ids: (-ids.ndim, ids.size)):
        if not taken[ids].any() and np.unique(ids).size == ids.size:
            taken[ids] = True
            pieces.append(ids)
    single = [ids.reshape(-1) for ids in pieces if ids.size == 1]
    if len(single) > SINGLE_PARAMETERS:
        pieces = [ids for ids in pieces if ids.size > 1] + [np.sort(np.concatenate(single))]
    if not taken.all():
        pieces.append(np.flatnonzero(~taken))
    return pieces


def _with_views(pieces: list[Ids], declared: list[Ids], count: int) -> list[Ids]:
    """Choose pieces of which all declared arrays are views. An array that is no view becomes a piece itself."""
    own: list[Ids] = []
    lost = declared
    while lost:
        home, place = np.full(count, -1), np.zeros(count, np.int64)
        for i, ids in enumerate(pieces):
            home[ids], place[ids] = i, np.arange(ids.size).reshape(ids.shape)
        lost = [ids for ids in declared if not _is_view(home[ids], place[ids], pieces)]
        broken = {int(i) for ids in lost for i in np.unique(home[ids])}
        pieces = [ids for i, ids in enumerate(pieces) if i not in broken]
        own += lost
        kept = {id(ids) for ids in own}
        declared = [ids for ids in declared if id(ids) not in kept]
    return sorted([*pieces, *own], key=lambda ids: int(ids.min()))


def _is_view(home: Ids, place: Ids, pieces: Sequence[Ids]) -> bool:
    """Tell whether an array whose elements are at ``place`` of pieces ``home`` is a strided view of one piece."""
    piece = int(home.flat[0])
    if piece < 0 or (home != piece).any():
        return False
    for coordinate in np.unravel_index(place, pieces[piece].shape or (1,)):
        for axis in range(place.ndim):
            steps = np.diff(coordinate, axis=axis)
            if steps.size and (steps.flat[0] < 0 or (steps != steps.flat[0]).any()):
                return False
    return True


def _read(value: Node, positions: Ids) -> Node:
    """Read ``value`` at ``positions``: a run of a vector as a slice, unless it is the full vector."""
    flat = positions.reshape(-1)
    is_run = value.type.rank == 1 and flat.size > 1 and (flat == flat[0] + np.arange(flat.size)).all()
    if is_run and flat.size < dims_.product(value.type.shape):
        return st.reshape(st.part(value, 0, int(flat[0]), flat.size), shape=positions.shape)
    return take_as_view(value, positions)


def _flat(node: Node) -> Node:
    return st.reshape(node, shape=(dims_.product(node.type.shape),))


def _indices(node: Node) -> Ids:
    """Return the scalars that a node reads of the flat vector."""
    if node.op is st.item:
        return np.array(node.attrs["index"], np.int64)
    if node.op is st.take:
        return np.asarray(node.attrs["indices"].array, np.int64)
    assert node.op is st.reshape, f"bug in mlaot: split_parameters met {node}"
    return np.arange(node.arg(0).type.shape[0]).reshape(node.type.shape)  # type: ignore[arg-type]


def _names(pieces: Iterable[Ids], declared: Mapping[str, Ids], taken: set[str]) -> list[str]:
    """Name each piece by the common prefix of its arrays' names: ``enc`` for ``enc.w`` and ``enc.b``.

    ``taken`` are the names of inputs, with the learning rate for training.
    """
    owner = {int(scalar): name for name, ids in declared.items() for scalar in ids.flat}
    names: list[str] = []
    for ids in pieces:
        split = [name.split(".") for name in dict.fromkeys(owner[int(i)] for i in ids.flat)]
        length = min(map(len, split))
        common = [split[0][i] for i in range(length) if all(parts[i] == split[0][i] for parts in split)]
        base = re.sub(r"[^0-9A-Za-z_.]", "_", ".".join(common)) or "p"
        name, n = base, 1
        while name in taken:
            name, n = f"{base}_{n}", n + 1
        taken.add(name)
        names.append(name)
    return names
