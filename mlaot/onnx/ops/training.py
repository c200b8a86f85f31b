"""The operators of training: gradients of a part of the graph, and steps of optimizers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.trace.gradients import grad
from mlaot.onnx.importer import MISSING, Env, Refused, Use
from mlaot.onnx.protos import inner_graphs
from mlaot.onnx.registry import TRAINING, Function, operator
from mlaot.onnx.values import Unsupported, as_traced, constant_value


@operator("Gradient", domain=TRAINING)
def gradient(use: Use, *values: Any, xs: Any = (), zs: Any = (), y: str = "") -> Any:
    """Return gradients. The nodes between ``xs``, ``zs`` and ``y`` are imported again as a function of these values."""
    names = [*xs, *zs]
    if not xs or len(names) != len(values):
        raise MlaotError(f"{len(names)} names in xs and zs, {len(values)} inputs")
    nodes = _between(use, names, y)

    def function(*arguments: Any) -> Any:
        env: Env = ChainMap(dict(zip(names, arguments, strict=True)), use.env)
        imported = list(use.importer.imported)
        for node in nodes:
            use.importer.node(node, env)
        use.importer.imported[:] = imported  # a later gradient must not find them twice
        if env[y] is MISSING:
            raise Refused
        return np.sum(env[y])

    for value in values[: len(xs)]:
        if not str(value.dtype).startswith(("f", "bf")):
            raise Unsupported(f"a gradient by an input of {value.dtype}; only numbers with a fraction have one")
    points = [v if constant_value(v) is None else as_traced(constant_value(v)) for v in values]
    return tuple(grad(function, tuple(range(len(xs))))(*points))


def _between(use: Use, sources: list[str], y: str) -> list[onnx.NodeProto]:
    """Return the nodes that ``y`` depends on and that depend on one of ``sources``, in order."""
    absent = [name for name in (*sources, y) if name not in use.env]
    if absent:
        raise MlaotError(f"nothing computes {absent[0]!r}, which xs, zs or y names")
    reached, forward = set(sources), []
    for node in use.importer.imported:
        if node.output and node.output[0] != use.node.output[0] and reached & _reads(node):
            outputs = {name for name in node.output if name} - set(sources)
            reached |= outputs
            forward.append((node, outputs))
    needed, nodes = {y} - set(sources), []
    for node, outputs in reversed(forward):
        if needed & outputs:
            needed |= _reads(node) - set(sources)
            nodes.append(node)
    return nodes[::-1]


def _reads(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, including those that its graphs read."""
    names = {name for name in node.input if name}
    for graph in inner_graphs(node):
        names |= {name for inner in graph.node for name in _reads(inner)} | {output.name for output in graph.output}
    return names


def optimizer(name: str, states: int) -> Callable[[Function], Function]:
    """Register an optimizer by its update of one tensor from the rate, the step, the tensor, gradient and states.

    The inputs X1, X2, .., G1, G2, .. are grouped by tensor. The results are all new X, then all new states of each
    kind.
    """

    def enter(update: Function) -> Function:
        kinds = 2 + states

        def run(use: Use, rate: Any, step: Any, *values: Any, norm_coefficient: float = 0.0) -> Any:
            if not values or len(values) % kinds:
                raise MlaotError(f"{len(values)} tensors; each that is updated comes with {kinds - 1} more")
            count = len(values) // kinds
            updated = []
            for x, g, *old in zip(*[values[k * count : (k + 1) * count] for k in range(kinds)], strict=True):
                g = g + norm_coefficient * x
                updated.append(use.call(update, _scalar(rate, x), step, x, g, *old))
            return tuple(value for kind in zip(*updated, strict=True) for value in kind)

        operator(name, domain=TRAINING)(run)
        return update

    return enter


def _scalar(value: Any, like: Any) -> Any:
    """Return a rate or a count, which may have the shape [1], in the dtype of the tensors."""
    return F.astype(np.reshape(value, ()), like.dtype)


@optimizer("Momentum", states=1)
def momentum(
    rate: Any, step: Any, x: Any, g: Any, v: Any, *, alpha: Any = None, beta: Any = None, mode: str = "standard"
) -> Any:
    if mode not in ("standard", "nesterov"):
        raise MlaotError(f"the mode must be standard or nesterov, got {mode!r}")
    v = alpha * v + F.astype(np.where(_scalar(step, x) > 0, beta, 1.0), x.dtype) * g
    return x - rate * (g + alpha * v if mode == "nesterov" else v), v


@optimizer("Adam", states=2)
def adam(
    use: Use, rate: Any, step: Any, x: Any, g: Any, v: Any, h: Any, *, alpha: float = 0.9, beta: float = 0.999
) -> Any:
    v = alpha * v + (1 - alpha) * g
    h = beta * h + (1 - beta) * g * g
    powers = [F.astype(np.power(np.float64(b), np.reshape(step, ())), np.float64) for b in (alpha, beta)]
    # A difference of nearly equal numbers.
    bias = np.where(_scalar(step, x) > 0, np.sqrt(1 - powers[1]) / (1 - powers[0]), 1.0)
    x = x - rate * F.astype(bias, x.dtype) * v / (np.sqrt(h) + use.attribute("epsilon", 1e-6))
    return (1 - use.attribute("norm_coefficient_post", 0.0)) * x, v, h


@optimizer("Adagrad", states=1)
def adagrad(rate: Any, step: Any, x: Any, g: Any, h: Any, *, decay_factor: float = 0.0, epsilon: float = 1e-6) -> Any:
    h = h + g * g
    return x - rate / (1 + _scalar(step, x) * decay_factor) * g / (np.sqrt(h) + epsilon), h
