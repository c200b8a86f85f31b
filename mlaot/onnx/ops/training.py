"""The operators of training: gradients of a part of the graph, and one step of an optimizer."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.trace.gradients import grad
from mlaot.onnx.importer import MISSING, Env, Refused, Use
from mlaot.onnx.registry import TRAINING, operator
from mlaot.onnx.values import Unsupported, known, traced


@operator("Gradient", domain=TRAINING)
def gradient(use: Use, *values: Any) -> Any:
    """The nodes between ``xs``, ``zs`` and ``y`` are imported once more, as a function of the values given here."""
    names = [name.decode() for key in ("xs", "zs") for name in use.attribute(key, [])]
    count, y = len(use.attribute("xs", [])), use.string("y", "")
    if not count or len(names) != len(values):
        raise MlaotError(f"{len(names)} names in xs and zs, {len(values)} inputs")
    between = _between(use, names, y)

    def function(*given: Any) -> Any:
        env: Env = ChainMap(dict(zip(names, given, strict=True)), use.env)
        imported = list(use.importer.imported)
        for node in between:
            use.importer.node(node, env)
        use.importer.imported[:] = imported  # a later gradient must not find them twice
        if env[y] is MISSING:
            raise Refused
        return np.sum(env[y])

    for value in values[:count]:
        if not str(value.dtype).startswith(("f", "bf")):
            raise Unsupported(f"a gradient by an input of {value.dtype}; only numbers with a fraction have one")
    found = grad(function, tuple(range(count)))(*[traced(known(v)) if known(v) is not None else v for v in values])
    return tuple(found)


def _between(use: Use, sources: list[str], y: str) -> list[onnx.NodeProto]:
    """The nodes that ``y`` needs and that need one of ``sources``, in order."""
    absent = [name for name in (*sources, y) if name not in use.env]
    if absent:
        raise MlaotError(f"nothing computes {absent[0]!r}, which xs, zs or y names")
    reached, forward = set(sources), []
    for node in use.importer.imported:
        if node.output and node.output[0] != use.node.output[0] and reached & _reads(node):
            outputs = {name for name in node.output if name} - set(sources)
            reached |= outputs
            forward.append((node, outputs))
    wanted, found = {y} - set(sources), []
    for node, outputs in reversed(forward):
        if wanted & outputs:
            wanted |= _reads(node) - set(sources)
            found.append(node)
    return found[::-1]


def _reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node depends on, those that its graphs see among them."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs:
            found |= {name for inner in graph.node for name in _reads(inner)}
            found |= {output.name for output in graph.output}
    return found


def _groups(values: tuple[Any, ...], kinds: int) -> Iterator[tuple[Any, ...]]:
    """The inputs X1, X2, .., G1, G2, .. by tensor: (X1, G1, ..), (X2, G2, ..)."""
    if not values or len(values) % kinds:
        raise MlaotError(f"{len(values)} tensors; each that is updated comes with {kinds - 1} more")
    count = len(values) // kinds
    yield from zip(*[values[k * count : (k + 1) * count] for k in range(kinds)], strict=True)


def _ordered(updated: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """All new X, then all new states of a kind."""
    return tuple(value for kind in zip(*updated, strict=True) for value in kind)


def _scalar(value: Any, like: Any) -> Any:
    """A rate or a count, which may come as [1], in the dtype of the tensors."""
    return F.astype(np.reshape(value, ()), like.dtype)


@operator("Momentum", domain=TRAINING)
def momentum(use: Use, rate: Any, step: Any, *values: Any) -> Any:
    alpha, beta = use.attribute("alpha"), use.attribute("beta")
    mode, updated = use.string("mode", "standard"), []
    if mode not in ("standard", "nesterov"):
        raise MlaotError(f"the mode must be standard or nesterov, got {mode!r}")
    for x, g, v in _groups(values, 3):
        r, t = _scalar(rate, x), _scalar(step, x)
        g = g + use.attribute("norm_coefficient", 0.0) * x
        scale = F.astype(np.where(t > 0, beta, 1.0), x.dtype)
        v = alpha * v + scale * g
        updated.append((x - r * (g + alpha * v if mode == "nesterov" else v), v))
    return _ordered(updated)


@operator("Adam", domain=TRAINING)
def adam(use: Use, rate: Any, step: Any, *values: Any) -> Any:
    alpha, beta, epsilon = use.attribute("alpha", 0.9), use.attribute("beta", 0.999), use.attribute("epsilon", 1e-6)
    updated = []
    for x, g, v, h in _groups(values, 4):
        r, t = _scalar(rate, x), _scalar(step, x)
        g = g + use.attribute("norm_coefficient", 0.0) * x
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        powers = [F.astype(np.power(np.float64(b), np.reshape(step, ())), np.float64) for b in (alpha, beta)]
        bias = np.where(t > 0, np.sqrt(1 - powers[1]) / (1 - powers[0]), 1.0)  # a difference of nearly equal numbers
        x = x - r * F.astype(bias, x.dtype) * v / (np.sqrt(h) + epsilon)
        updated.append(((1 - use.attribute("norm_coefficient_post", 0.0)) * x, v, h))
    return _ordered(updated)


@operator("Adagrad", domain=TRAINING)
def adagrad(use: Use, rate: Any, step: Any, *values: Any) -> Any:
    updated = []
    for x, g, h in _groups(values, 3):
        r = _scalar(rate, x) / (1 + _scalar(step, x) * use.attribute("decay_factor", 0.0))
        g = g + use.attribute("norm_coefficient", 0.0) * x
        h = h + g * g
        updated.append((x - r * g / (np.sqrt(h) + use.attribute("epsilon", 1e-6)), h))
    return _ordered(updated)
