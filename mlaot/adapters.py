"""Low-rank adapters, ``mlaot.lora``: train thin matrices beside the frozen weights of a model (Hu et al., 2021)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from math import isfinite, sqrt
from typing import Any
from zlib import crc32

import numpy as np

from mlaot.errors import MlaotError, did_you_mean
from mlaot.frontend.trace.declaration import Arrays, Declaration, Traced
from mlaot.ir import Graph, Type
from mlaot.ir.module import BASE
from mlaot.ops import structure as st
from mlaot.ops.indexing import gather
from mlaot.optim import Optimizer
from mlaot.transforms.low_rank import Factors, add_low_rank, uses_of


def lora(model: Any, rank: int, alpha: float | None = None, targets: Sequence[str] | None = None) -> Declaration:
    """Return a model that has low-rank adapters for some of its weights, and trains these instead of its weights.

    Wherever the model reads a weight W [out, in], it then uses W + alpha / rank * B A, with matrices A [rank, in] and B
    [out, rank]. The initial A is random, with the same numbers in every build, and the initial B is zero. ``alpha`` is
    ``rank`` by default. ``targets`` are names of weights, or patterns with ``*`` and ``?`` as for file names. By
    default they are all matrices that the model uses only as factors of products.
    """
    if not isinstance(model, Declaration):
        raise MlaotError(f"lora: expected a declared model, got {model!r}")
    if type(rank) is not int or rank < 1:
        raise MlaotError(f"lora: rank: expected a whole number of at least 1, got {rank!r}")
    if alpha is not None and not (isinstance(alpha, int | float) and isfinite(alpha) and alpha > 0):
        raise MlaotError(f"lora: alpha: expected a positive number, got {alpha!r}")
    if targets is not None and (isinstance(targets, str) or not all(isinstance(name, str) for name in targets)):
        raise MlaotError(f"lora: targets: expected names or patterns such as ['*.query.weight'], got {targets!r}")
    scale = 1.0 if alpha is None else alpha / rank

    def trace() -> Traced:
        return _adapt(model.trace(), rank, scale, targets)

    return Declaration(trace, model.place, model.references, model.sample)


@dataclass(frozen=True)
class _Target:
    """A weight that can have adapters: its type, the axis of its inputs, and whether its rows are looked up."""

    type: Type
    axis: int = 1
    is_table: bool = False


def _adapt(traced: Traced, rank: int, scale: float, targets: Sequence[str] | None) -> Traced:
    """Add adapters to all graphs of a model.

    The adapters become its parameters, and its parameters become constants.
    """
    if not traced.trains:
        raise MlaotError("lora: the model has no loss to train by; declare one, as in @mlaot.model(loss=...)")
    if traced.constants:
        raise MlaotError("lora: the model has adapters already; choose one lora")
    graphs = [g for g in (traced.graph, traced.training, *traced.entries.values()) if g is not None]
    taken = {name for graph in graphs for name in graph.inputs}
    adapters: Arrays = {}
    factors: dict[str, Callable[[Graph], Factors]] = {}
    for name, target in _choose(traced, _find_targets(traced, graphs), targets).items():
        names = _names(name)
        if clash := taken.intersection(names):
            raise MlaotError(f"lora: the model has an array called {min(clash)!r} already; rename it")
        taken.update(names)
        adapters |= _starts(name, target, rank)
        factors[name] = _factors(name, target, rank)
    graph, changed = add_low_rank(traced.graph, factors, scale, traced.taps.values())
    return replace(
        traced,
        graph=graph,
        training=traced.training and add_low_rank(traced.training, factors, scale)[0],
        entries={name: add_low_rank(entry, factors, scale)[0] for name, entry in traced.entries.items()},
        taps={name: changed[node.find()] for name, node in traced.taps.items()},
        parameters=adapters,
        constants=traced.parameters,
        optimizer=traced.optimizer.of(adapters) if isinstance(traced.optimizer, Optimizer) else traced.optimizer,
        info={**traced.info, BASE: _digest(traced.parameters)},
    )


def _digest(weights: Arrays) -> str:
    """Return a digest of the frozen weights, which does not depend on how a module stores them."""
    digest = sha256()
    for name, array in sorted(weights.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]


def _find_targets(traced: Traced, graphs: Sequence[Graph]) -> dict[str, _Target]:
    """Return the weights that can have adapters, in the order of the parameters."""
    weights = {name for name, array in traced.parameters.items() if array.ndim == 2}
    found: dict[str, _Target] = {}
    barred = set[str]()
    for graph in graphs:
        for name, node, axis in uses_of(graph, weights):
            if node is None:
                barred.add(name)
                continue
            target = found.get(name) or _Target(graph.inputs[name].type, 1 if axis is None else axis)
            found[name] = replace(target, is_table=target.is_table or node.op is gather)
    return {name: found[name] for name in traced.parameters if name in found.keys() - barred}


def _choose(traced: Traced, able: Mapping[str, _Target], patterns: Sequence[str] | None) -> dict[str, _Target]:
    """Return the weights that the user's patterns name, or by default all that are used only as factors of products."""
    if patterns is None:
        chosen = {name: target for name, target in able.items() if not target.is_table}
        if not chosen:
            raise MlaotError("lora: no weight of the model is a matrix that is a factor of products and nothing else")
        return chosen
    fitting = {pattern: {n for n in traced.parameters if fnmatchcase(n, pattern)} for pattern in patterns}
    for pattern, names in fitting.items():
        if not names:
            hint = did_you_mean(pattern, traced.parameters) or f"; suitable weights: {', '.join(able) or 'none'}"
            raise MlaotError(f"lora: targets: no weight is called {pattern!r}{hint}")
        if names.isdisjoint(able):
            raise MlaotError(
                f"lora: targets: {min(names)!r} cannot have adapters: expected a matrix that is read by products, or as"
                f" a table of rows, outside of loops; suitable weights: {', '.join(able) or 'none'}"
            )
    chosen = {name: target for name, target in able.items() if any(name in names for names in fitting.values())}
    if not chosen:
        raise MlaotError("lora: targets: expected names of weights or patterns such as '*.query.weight', got none")
    return chosen


def _names(weight: str) -> tuple[str, str]:
    """Name the adapters A and B of a weight, as PEFT does."""
    stem = weight.removesuffix(".weight")
    return f"{stem}.lora_A.weight", f"{stem}.lora_B.weight"


def _starts(weight: str, target: _Target, rank: int) -> Arrays:
    """Return the initial values of A and B.

    A is random within ±1 / sqrt(inputs), with a seed that depends on the weight's name, and B is zero.
    """
    inputs, outputs = (target.type.shape[axis] for axis in (target.axis, 1 - target.axis))
    bound = 1 / sqrt(inputs)
    numbers = np.random.default_rng(crc32(weight.encode())).uniform(-bound, bound, (rank, inputs))
    dtype = target.type.dtype
    return dict(zip(_names(weight), (dtype.array(numbers), dtype.array(np.zeros((outputs, rank)))), strict=True))


def _factors(weight: str, target: _Target, rank: int) -> Callable[[Graph], Factors]:
    """Return a function that adds to a graph the two matrices whose product is added to a weight."""

    def make(graph: Graph) -> Factors:
        inputs, outputs = (target.type.shape[axis] for axis in (target.axis, 1 - target.axis))
        types = Type(target.type.dtype, (rank, inputs)), Type(target.type.dtype, (outputs, rank))
        a, b = (graph.input(name, type_, parameter=True) for name, type_ in zip(_names(weight), types, strict=True))
        return (b, a) if target.axis else (st.transpose(a, perm=(1, 0)), st.transpose(b, perm=(1, 0)))

    return make
