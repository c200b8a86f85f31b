"""Products with frozen float32 weights are computed with bytes, where the setting ``quantize`` asks for it.

    v1 = input(name=w) : f32[784,10]           v1 = input(name=folded0) : i32[196,10]
    v2 = contract(v0, v1) : f32[b,10]    =>    v2 = quantize(v0 * 255) : u8[b,784]
                                               v3 = contract_bytes(reshape(v2), v1) : f32[b,10]
                                               v4 = mul(v3, 0.00012..) : f32[b,10]

Changes results. Weights are signed bytes, w = s q with a scale s for each output channel. Activations are unsigned
ones, x = t (q - z): where there is a sample, t and z are those of the range that its inputs give; else t is found in
each call, for each row of its own, and z is 128, or 0 for what is never negative. (Jacob et al., Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference, 2018, sections 2.1 to 2.3.)

What lies between a value and the product that reads it, such as the windows of a convolution, looks at bytes then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type
from mlaot.ir.dims import names
from mlaot.ir.module import Module, Quantized
from mlaot.ir.types import f32, i32
from mlaot.ops import elementwise as ew
from mlaot.ops import quantized as q8
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import Array, fill
from mlaot.ops.kinds import regrouped
from mlaot.passes.entries import copy_into
from mlaot.passes.freeze import IsFixed, add_weight, fixed_by
from mlaot.passes.simplify import number

FEWEST = 16  # products in a sum, and results that share a factor, from which on bytes are worth it
ROWS = 32  # of a sample, at a time
TINY = float(np.finfo(np.float32).tiny)
NEVER_NEGATIVE = (ew.relu, ew.abs_, ew.exp)

OF_A_SHAPE = (st.slice_, st.broadcast, st.reshape)  # moves that name extents, to which none can be added before them

Range = tuple[float, float]
Move = tuple[Node, int, int]  # a node that moves elements, and the axis of words in its argument and in itself


@dataclass(frozen=True)
class Factor:
    """What a product with weights ``w`` reads: ``base``, along whose ``axis`` four neighbours make a word, seen by
    ``steps``. ``label``: of that axis in the product."""

    product: Node
    w: Node
    labels: str
    weight_labels: str
    out: str
    label: str
    base: Node
    axis: int
    steps: tuple[Move, ...]
    kept: tuple[tuple[int, int], ...]  # axes of the base that are axes of the result, alone: pairs of these


def quantize(module: Module) -> None:
    """Products with bytes in all entries."""
    if not module.quantize:
        return
    if not module.is_frozen:
        raise MlaotError(
            f"{module.name}: quantize = {module.quantize!r} is for weights that are frozen, and this model"
            f" {'trains' if module.trains else 'has frozen = false'}; leave the key out"
        )
    is_fixed = fixed_by(module)
    for graph in module.graphs.values():
        factors = [found for node in graph.nodes() if (found := factor(node, is_fixed)) is not None]
        weights = _values(module, graph, [f.w for f in factors])
        ranges = _ranges(module, graph, [f.base for f in factors])
        for found, w in zip(factors, weights, strict=True):
            graph.forward(found.product, _product(module, found, w, ranges.get(found.base)))
    if not module.quantized:
        raise MlaotError(
            f"{module.name}: quantize = {module.quantize!r}, but no product with frozen float32 weights adds"
            f" {FEWEST} products or more; leave the key out"
        )


def factor(node: Node, is_fixed: IsFixed) -> Factor | None:
    """What a product is of, where bytes can stand for it."""
    if node.op is not red.contract or node.type.dtype is not f32:
        return None
    fixed = [is_fixed(a) for a in node.args]
    if fixed[0] == fixed[1]:
        return None
    first, second, out = red.parse_spec(node.attrs["spec"])
    x, w, labels, weight_labels = node.arg(0), node.arg(1), first, second
    if fixed[0]:
        x, w, labels, weight_labels = w, x, second, first
    sizes = dict(zip(weight_labels, w.type.shape, strict=True))
    summed = [c for c in weight_labels if c not in out]
    made = [c for c in weight_labels if c in out and c not in labels]
    if not all(isinstance(d, int) for d in sizes.values()) or set(labels) - {*out, *weight_labels}:
        return None
    count, columns = (prod(int(sizes[c]) for c in some) for some in (summed, made))
    if not FEWEST <= count <= q8.LONGEST or columns < FEWEST // 2 or not set(summed) <= set(labels):
        return None
    found = []
    for label in summed:
        base, axis, steps, kept = _seen(x, labels, label, out)
        if int(sizes[label]) >= FEWEST:
            found.append(Factor(node, w, labels, weight_labels, out, label, base, axis, steps, kept))
    return max(found, key=lambda f: (f.axis == f.base.type.rank - 1, len(f.steps)), default=None)


def _seen(
    x: Node, labels: str, label: str, out: str
) -> tuple[Node, int, tuple[Move, ...], tuple[tuple[int, int], ...]]:
    """The value behind moves that leave an axis alone, the axis there, the moves, and what stays of other axes."""
    axis = labels.index(label)
    steps: list[Move] = []
    kept = {i: out.index(c) for i, c in enumerate(labels) if c in out}
    length = x.type.shape[axis]
    assert isinstance(length, int)
    while (x.op not in OF_A_SHAPE or length % 4 == 0) and (before := _before(x, axis)) is not None:
        kept = {i: place for a, place in kept.items() if (i := _before(x, a)) is not None}
        steps.append((x, before, axis))
        x, axis = x.arg(0), before
    return x, axis, tuple(reversed(steps)), tuple(sorted(kept.items()))


def _before(node: Node, axis: int) -> int | None:
    """The axis of its argument that a move has as ``axis``, and nothing else in it."""
    attrs = node.attrs
    if node.op is st.window:
        return axis if axis < node.arg(0).type.rank and axis not in attrs["axes"] else None
    if node.op is st.pad and number(node.arg(1)) == 0:
        return axis if not any(attrs[key][axis] for key in ("low", "high", "interior")) else None
    if node.op is st.transpose:
        return int(attrs["perm"][axis])
    if node.op is st.slice_:
        whole = attrs["start"][axis] == 0 and attrs["step"][axis] == 1
        return axis if whole and node.type.shape[axis] == node.arg(0).type.shape[axis] else None
    if node.op is st.broadcast:
        same = axis in attrs["axes"]
        return attrs["axes"].index(axis) if same else None
    if node.op is st.reshape:
        groups = regrouped(node.arg(0).type.shape, node.type.shape) or []
        return next((before[0] for before, after in groups if after == [axis] and len(before) == 1), None)
    return None


def _values(module: Module, graph: Graph, nodes: Sequence[Node]) -> list[Array]:
    """What fixed nodes are."""
    copy, copies = copy_into(graph, [n.find() for n in nodes], "fixed")
    copy.outputs = {str(i): copies[node.find()] for i, node in enumerate(nodes)}
    values = evaluate(copy, {name: module.slots[name] for name in copy.inputs})
    return [values[str(i)] for i in range(len(nodes))]


def _ranges(module: Module, graph: Graph, nodes: Iterable[Node]) -> dict[Node, Range]:
    """The smallest and the largest number that some nodes are, with the inputs of the sample."""
    wanted = list(dict.fromkeys(node.find() for node in nodes))
    taken = {name for name in graph.inputs if name not in module.slots}
    if module.sample is None or not taken <= module.sample.keys() or not wanted:
        return {}
    copy, copies = copy_into(graph, wanted, "sample")
    for i, node in enumerate(wanted):
        value = copies[node]
        for name, op in (("low", red.min_), ("high", red.max_)):
            copy.outputs[f"{name}{i}"] = op(value, axes=tuple(range(value.type.rank))) if value.type.rank else value
    slots = {name: value for name, value in module.slots.items() if name in copy.inputs}
    given = {name: value for name, value in module.sample.items() if name in copy.inputs}
    found: list[dict[str, Array]] = [evaluate(copy, {**slots, **part}) for part in parts(given, copy)]
    ranges = {}
    for i, node in enumerate(wanted):
        low, high = min(float(run[f"low{i}"]) for run in found), max(float(run[f"high{i}"]) for run in found)
        if not np.isfinite([low, high]).all():
            raise MlaotError(f"{module.name}: quantize: with the sample, a value of the model is {low} or {high}")
        ranges[node] = min(low, 0.0), max(high, 0.0)
    return ranges


def parts(given: Mapping[str, Array], graph: Graph) -> list[dict[str, Array]]:
    """A sample some rows at a time, where all inputs have a leading named dimension, the same."""
    leading = {str(graph.inputs[name].type.shape[:1]) for name in given}
    is_open = all(graph.inputs[name].type.rank and names(graph.inputs[name].type.shape[0]) for name in given)
    if not given or len(leading) != 1 or not is_open:
        return [dict(given)]
    count = len(next(iter(given.values())))
    return [{name: value[i : i + ROWS] for name, value in given.items()} for i in range(0, count, ROWS)]


def _product(module: Module, f: Factor, w: Array, known: Range | None) -> Node:
    """The product with bytes, in its own type."""
    like, graph = f.product.type, f.product.graph
    summed = tuple(i for i, c in enumerate(f.weight_labels) if c not in f.out)
    scale = np.maximum(np.abs(w).max(axis=summed, keepdims=True), TINY) / 127
    rounded = np.rint(w / scale).astype(np.int8)
    module.quantized.append(_report(f, w, rounded * scale, known))
    places = [f.out.index(c) for c in f.weight_labels if c in f.out]

    def spread(channels: Array) -> Node:
        """A number for each output channel, in all of the result."""
        constant = graph.constant(np.transpose(channels, np.argsort(places)).astype(np.float32), f32)
        return st.broadcast(constant, shape=like.shape, axes=tuple(sorted(places)))

    codes, zero, unit, rows = _of_range(f, known) if known else _of_each_row(f)
    labels, words = _weights(f, rounded)
    weights = graph.input(add_weight(module, words), Type(i32, words.shape), parameter=True)
    result = q8.contract_bytes(_words(f, codes, zero), weights, spec=f"{f.labels},{labels}->{f.out}")
    result = ew.add(result, spread(-zero * rounded.sum(axis=summed, dtype=np.int64))) if zero else result
    result = ew.mul(result, spread(np.squeeze(scale, summed) * unit))
    return result if rows is None else ew.mul(result, rows)


def _weights(f: Factor, rounded: Array) -> tuple[str, Array]:
    """The words of weights, and their labels: the last is of an output channel, as vectors of them are loaded."""
    axis = f.weight_labels.index(f.label)
    whole = np.pad(rounded, [(0, -size % 4 if i == axis else 0) for i, size in enumerate(rounded.shape)])
    is_last = f.weight_labels[-1] in f.out
    order = range(whole.ndim) if is_last else sorted(range(whole.ndim), key=lambda i: f.weight_labels[i] in f.out)
    words = np.ascontiguousarray(np.transpose(q8.words_of(whole, axis), order))
    return "".join(f.weight_labels[i] for i in order), words


def _of_range(f: Factor, known: Range) -> tuple[Node, int, float, None]:
    """The base as numbers to be rounded to bytes, which of them 0 is, and the step from one to the next."""
    low, high = known
    unit = max(high - low, TINY) / 255
    zero = round(-low / unit)
    base = _base(f)
    codes = ew.mul(base, fill(base, 1 / unit, base.type))
    return ew.add(codes, fill(base, zero, base.type)) if zero else codes, zero, unit, None


def _of_each_row(f: Factor) -> tuple[Node, int, float, Node]:
    """The same by the largest number in each part of the base that is a part of the result, which is given last."""
    base = _base(f)
    zero, levels = (0, 255) if f.base.find().op in NEVER_NEGATIVE else (128, 127)
    kept = {axis - (axis > f.axis): place for axis, place in f.kept}
    largest = red.max_(ew.abs_(base) if zero else base, axes=red.kept_axes(base.type.rank, tuple(kept)))
    inverse = ew.div(fill(largest, levels, largest.type), largest)
    codes = ew.mul(base, st.broadcast(inverse, shape=base.type.shape, axes=tuple(kept)))
    codes = ew.add(codes, fill(base, zero, base.type)) if zero else codes
    places = [*kept.values()]
    order = tuple(int(i) for i in np.argsort(places))
    turned = st.transpose(largest, perm=order) if order != tuple(range(len(order))) else largest
    rows = st.broadcast(turned, shape=f.product.type.shape, axes=tuple(sorted(places)))
    return codes, zero, 1 / levels, rows


def _words(f: Factor, codes: Node, zero: int) -> Node:
    """What the product reads as bytes, four neighbours along the axis of its label in a last axis of their own.

    Up to the end that axis is the last, so that they are neighbours in memory.
    """
    found = q8.quantize(codes)
    rank, length = found.type.rank, found.type.shape[-1]
    assert isinstance(length, int)
    code = codes.graph.constant(zero, found.type.dtype)
    if length % 4:
        none = (0,) * rank
        found = st.pad(found, code, low=none, high=(*none[1:], -length % 4), interior=none)
    for step, before, after in f.steps:
        found = _replayed(step, found, code, before, after)
    shape = found.type.shape
    found = st.reshape(found, shape=(*shape[:-1], -(-length // 4), 4))
    at, rank = f.labels.index(f.label), len(shape)
    order = [*range(rank - 1)]
    order.insert(at, rank - 1)
    return st.transpose(found, perm=(*order, rank)) if at != rank - 1 else found


def _replayed(step: Node, x: Node, code: Node, before: int, after: int) -> Node:
    """A move of bytes: the axis that was the one ``before``, and is the one ``after``, is the last of both."""
    attrs, last = step.attrs, x.type.rank - 1
    if step.op is st.pad:
        return st.pad(x, code, **{key: _last(attrs[key], before) for key in ("low", "high", "interior")})
    if step.op is st.slice_:
        return st.slice_(x, **{key: _last(attrs[key], before) for key in ("start", "size", "step")})
    if step.op is st.window:
        found = st.window(x, **{**attrs, "axes": tuple(a - (a > before) for a in attrs["axes"])})
        return st.transpose(found, perm=_last(range(found.type.rank), last))
    if step.op is st.transpose:
        return st.transpose(x, perm=(*[a - (a > before) for a in attrs["perm"] if a != before], last))
    shape = _last(step.type.shape, after)
    if step.op is st.broadcast:
        axes = tuple(a - (a > after) for a in attrs["axes"] if a != after)
        return st.broadcast(x, shape=shape, axes=(*axes, len(shape) - 1))
    assert step.op is st.reshape, f"bug in mlaot: {step} is no move"
    return st.reshape(x, shape=shape)


def _last(values: Sequence[Any], axis: int) -> tuple[Any, ...]:
    """One of them behind the others."""
    return (*[value for i, value in enumerate(values) if i != axis], values[axis])


def _base(f: Factor) -> Node:
    """The base with the axis of words as its last."""
    base, order = f.base.find(), _last(range(f.base.type.rank), f.axis)
    return st.transpose(base, perm=order) if order != tuple(range(len(order))) else base


def _report(f: Factor, w: Array, rounded: Array, known: Range | None) -> Quantized:
    """What became of a product."""
    name = f.w.attrs["name"] if f.w.op is st.input_ else "weights"
    off = float(np.sqrt(np.mean((w - rounded) ** 2) / max(float(np.mean(w**2)), TINY)))
    return Quantized(name, w.shape, off, known)
