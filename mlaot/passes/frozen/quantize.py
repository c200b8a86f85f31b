"""Compute products with frozen float32 weights in 8-bit integers, if the setting ``quantize`` asks for it.

    v1 = input(name=w) : f32[784,10]           v1 = input(name=folded0) : i32[196,10]
    v2 = contract(v0, v1) : f32[b,10]    =>    v2 = quantize(v0 * 255) : u8[b,784]
                                               v3 = contract_bytes(reshape(v2), v1) : f32[b,10]
                                               v4 = mul(v3, 0.00012..) : f32[b,10]

The pass changes results. Weights are signed bytes, w = s q, with a scale s for each output channel. Activations are
unsigned bytes, x = t (q - z). With a sample, t and z follow from the range that its inputs give. Otherwise each call
computes t for each row, and z is 128, or 0 for values that are never negative. Products in the loops of recurrent
layers are quantized too. A sample gives the range of a state in all rounds; otherwise the range follows from the op
that computes the state, such as a tanh (``bounds.py``), without measurement. (Jacob et al., Quantization and Training
of Neural Networks for Efficient Integer-Arithmetic-Only Inference, 2018, sections 2.1 to 2.3.)

Products that would be slower remain float32, unless the setting is ``int8-all``.

Products of values that are already bytes, as in quantized ONNX models, need no setting. Their sums are exact before
they are rounded to float32, and nothing else changes. If weights are unsigned bytes minus a zero point, the equivalent
signed bytes differ by a number for each channel, w = s (q + o), for which sums of activations compensate.

AVX2 adds pairs of products in 16 bits. If the products of a few pairs of weights exceed 16 bits, the excess is listed
and added separately: v3 = add(contract_bytes(v2, v1), contract_entries(v2)).

Moves between a value and the product, such as the windows of a convolution, then move bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type
from mlaot.ir.dims import names, nominal
from mlaot.ir.module import Module, Product, Quantized
from mlaot.ir.types import f32, i8, i32, u8
from mlaot.ops import elementwise as ew
from mlaot.ops import quantized as q8
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import regroup
from mlaot.ops.base import Array, fill
from mlaot.ops.control import scan
from mlaot.ops.kinds import is_view
from mlaot.passes.algebra.simplify import number
from mlaot.passes.base import pass_over
from mlaot.passes.bounds import Range, carry_bounds
from mlaot.passes.frozen.freeze import (
    IsFixed,
    add_weight,
    check_frozen,
    fixed_by,
    fixed_from,
    fixed_values,
    split_product,
)
from mlaot.passes.subgraphs import Loop
from mlaot.passes.training.entries import copy_into
from mlaot.schedule.tuning import BYTES_EXTENT, LISTED_SHARE, QUANTIZED_WORK

ROWS = 32  # of a sample, in one evaluation
SAMPLED = (2, 16)  # weights along each summed axis, on which scales are tried before one is on all
TOLERANCE = 1e-3  # the largest distance to whole numbers up to 128 that rounding to float32 causes
TINY = float(np.finfo(np.float32).tiny)
NEVER_NEGATIVE = (ew.relu, ew.abs_, ew.exp)
EXACT = 2**24  # up to which float32 holds every integer

# Bytes whose last axis is the axis of words, the byte that represents 0, the step between bytes, and a factor of
# results.
Bytes = tuple[Node, int | Node, float, Node | None]
Move = tuple[Node, int, int]  # a node that moves elements, and the axis of words in its argument and in its result


@dataclass(frozen=True)
class Factor:
    """The operands of a product with weights ``w``: ``base``, along whose ``axis`` four neighbours form a word.

    ``steps`` are the moves from the base to the product, in which the axis has the label ``label``. ``kept`` pairs axes
    of the base with the axes of the result that they become.
    """

    product: Node
    w: Node
    labels: str
    weight_labels: str
    out: str
    label: str
    base: Node
    axis: int
    steps: tuple[Move, ...]
    kept: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Weights:
    """Weights as signed bytes, ``scale * (codes + offset)``, with a scale and an offset for each output channel."""

    codes: Array
    scale: Array
    offset: Array

    def numbers(self) -> Array:
        return np.asarray((self.codes + self.offset) * self.scale)


@dataclass(frozen=True)
class Place:
    """A graph whose products are quantized: an entry, or the body of a loop.

    ``values`` are the values of weights, and ``ranges`` the known ranges of their factors. ``add`` makes an input for
    weights in words, and ``name`` returns the name of a weight.
    """

    graph: Graph
    is_fixed: IsFixed
    values: Callable[[Sequence[Node]], list[Array]]
    ranges: Callable[[Sequence[Node]], dict[Node, Range]]
    add: Callable[[Array], Node]
    name: Callable[[Node], str]


@pass_over("module", after=("freeze", "blocked_layout"))
def quantize(module: Module) -> None:
    """Compute the products with frozen weights of all entries with bytes."""
    check_frozen(module, "quantize")
    if not module.is_frozen:
        return
    is_fixed, count = fixed_by(module), 0
    for graph in module.graphs.values():
        for node in [n for n in graph.nodes() if n.op is scan]:
            loop = Loop.of(node)
            count += _quantize_products(module, _in_loop(module, loop, is_fixed))
            graph.forward(node, loop.rebuild())
        count += _quantize_products(module, _in_entry(module, graph, is_fixed))
    if module.options.quantize and not count + len(module.quantized):
        what, instead = f"sums {BYTES_EXTENT} or more terms", ""
        if module.unquantized:
            what, instead = "is faster with bytes", ", or choose 'int8-all'"
        raise MlaotError(
            f"{module.name}: quantize = {module.options.quantize!r}, but no product with frozen float32 weights {what};"
            f" leave the key out{instead}"
        )


def _quantize_products(module: Module, place: Place) -> int:
    """Quantize the products of a graph; return the number of products that already were of bytes."""
    graph, count = place.graph, 0
    candidates = [(f, find_codes(f.base)) for node in graph.nodes() if (f := factor(node, place.is_fixed)) is not None]
    factors = [(f, codes) for f, codes in candidates if module.options.quantize or codes is not None]
    values = place.values([f.w for f, _ in factors])
    ranges = place.ranges([f.base for f, _ in factors]) if module.options.quantize else {}
    for (f, codes), value in zip(factors, values, strict=True):
        weights = integers(f, value) if codes is not None else None
        if codes is not None and weights is not None:
            count += 1
            graph.forward(f.product, _product(place, f, _reuse_codes(f, codes), weights))
        elif module.options.quantize == "int8" and _is_faster_in_float(f):
            module.unquantized.append(_describe(f, place))
        elif module.options.quantize:
            range_ = ranges.get(f.base)
            weights = integers(f, value) or _round_weights(f, value)
            module.quantized.append(_report(f, place, value, weights.numbers(), range_))
            by = _quantize_range(f, range_) if range_ else _quantize_rows(f)
            graph.forward(f.product, _product(place, f, by, weights))
    return count


def _in_entry(module: Module, graph: Graph, is_fixed: IsFixed) -> Place:
    """Describe an entry, whose ranges a sample gives."""

    def values(weights: Sequence[Node]) -> list[Array]:
        return fixed_values(module.slots, graph, weights)

    def ranges(bases: Sequence[Node]) -> dict[Node, Range]:
        return _ranges(module, graph, bases)

    def add(words: Array) -> Node:
        return _add_words(module, graph, words)

    return Place(graph, is_fixed, values, ranges, add, _name_of)


def _in_loop(module: Module, loop: Loop, is_fixed: IsFixed) -> Place:
    """Describe the body of a loop, whose ranges in all rounds a sample gives, or else bounds of its ops."""
    graph = loop.node.graph
    weights = {n.attrs["name"]: a for n, a in loop.consts.items() if is_fixed(a)}

    def values(nodes: Sequence[Node]) -> list[Array]:
        outer = fixed_values(module.slots, graph, list(weights.values())) if nodes else []
        return fixed_values(dict(zip(weights, outer, strict=False)), loop.body, nodes)

    def ranges(bases: Sequence[Node]) -> dict[Node, Range]:
        rounds = dict(zip(bases, loop.rounds(bases), strict=True))
        shown, bounded = _ranges(module, graph, rounds.values()), carry_bounds(loop)
        found = {base: shown.get(all_, bounded[base]) for base, all_ in rounds.items()}
        return {base: (min(low, 0.0), max(high, 0.0)) for base, (low, high) in found.items() if np.isfinite(low + high)}

    def add(words: Array) -> Node:
        return loop.add(_add_words(module, graph, words))

    def name(w: Node) -> str:
        return _name_of(weights[w.attrs["name"]] if w.op is st.input_ else w)

    return Place(loop.body, fixed_from(weights), values, ranges, add, name)


def _add_words(module: Module, graph: Graph, words: Array) -> Node:
    return graph.input(add_weight(module, words), Type(i32, words.shape), parameter=True)


def _name_of(w: Node) -> str:
    return str(w.attrs["name"]) if w.op is st.input_ else "weights"


def factor(node: Node, is_fixed: IsFixed) -> Factor | None:
    """Describe a product whose operands bytes can represent; None for other nodes."""
    if node.op is not red.contract or node.type.dtype is not f32:
        return None
    operands = split_product(node, is_fixed)
    if operands is None:
        return None
    x, w, labels, weight_labels, out = operands
    sizes = dict(zip(weight_labels, w.type.shape, strict=True))
    summed = [c for c in weight_labels if c not in out]
    channels = [c for c in weight_labels if c in out and c not in labels]
    if not all(isinstance(d, int) for d in sizes.values()) or set(labels) - {*out, *weight_labels}:
        return None
    count, columns = (prod(int(sizes[c]) for c in group) for group in (summed, channels))
    if not BYTES_EXTENT <= count <= q8.LONGEST or columns < BYTES_EXTENT // 2 or not set(summed) <= set(labels):
        return None
    factors = []
    for label in summed:
        base, axis, steps, kept = _look_through(x, labels, label, out)
        if int(sizes[label]) >= BYTES_EXTENT:
            factors.append(Factor(node, w, labels, weight_labels, out, label, base, axis, steps, kept))
    return max(factors, key=lambda f: (f.axis == f.base.type.rank - 1, len(f.steps)), default=None)


def _is_faster_in_float(f: Factor) -> bool:
    """Tell whether too few products are added for each number that is rounded before or scaled back after them."""
    result = float(prod(map(nominal, f.product.type.shape)))
    numbers = prod(map(nominal, f.base.type.shape)) + result
    return result * _terms(f) < QUANTIZED_WORK * numbers


def _terms(f: Factor) -> int:
    """Return the number of products in each sum."""
    return prod(int(d) for c, d in zip(f.weight_labels, f.w.type.shape, strict=True) if c not in f.out)


def _look_through(
    x: Node, labels: str, label: str, out: str
) -> tuple[Node, int, tuple[Move, ...], tuple[tuple[int, int], ...]]:
    """Follow moves that keep an axis separate from all others to their source.

    Return the source, its axis, the moves, and its other axes that are axes of the result.
    """
    axis = labels.index(label)
    steps: list[Move] = []
    kept = {i: out.index(c) for i, c in enumerate(labels) if c in out}
    while (before := _source_axis(x, axis)) is not None:
        kept = {i: place for a, place in kept.items() if (i := _source_axis(x, a)) is not None}
        steps.append((x, before, axis))
        x, axis = x.arg(0), before
    return x, axis, tuple(reversed(steps)), tuple(sorted(kept.items()))


def _source_axis(node: Node, axis: int) -> int | None:
    """Return the axis of a move's argument that becomes exactly ``axis`` of its result, or None."""
    attrs = node.attrs
    if node.op is st.window:
        return axis if axis < node.arg(0).type.rank and axis not in attrs["axes"] else None
    if node.op is st.pad and number(node.arg(1)) == 0:
        return axis if not any(attrs[key][axis] for key in ("low", "high", "interior")) else None
    if node.op is st.transpose:
        return int(attrs["perm"][axis])
    if node.op is st.slice_:
        is_full = attrs["start"][axis] == 0 and attrs["step"][axis] == 1
        return axis if is_full and node.type.shape[axis] == node.arg(0).type.shape[axis] else None
    if node.op is st.broadcast:
        same = axis in attrs["axes"]
        return attrs["axes"].index(axis) if same else None
    if node.op is st.reshape:
        groups = regroup(node.arg(0).type.shape, node.type.shape) or []
        return next((before[0] for before, after in groups if after == [axis] and len(before) == 1), None)
    return None


def _ranges(module: Module, graph: Graph, nodes: Iterable[Node]) -> dict[Node, Range]:
    """Return the smallest and the largest number of each node on the inputs of the sample."""
    wanted = list(dict.fromkeys(node.find() for node in nodes))
    arguments = {name for name in graph.inputs if name not in module.slots}
    if module.sample is None or not arguments <= module.sample.keys() or not wanted:
        return {}
    copy, copies = copy_into(graph, wanted, "sample")
    for i, node in enumerate(wanted):
        value = copies[node]
        for name, op in (("low", red.min_), ("high", red.max_)):
            copy.outputs[f"{name}{i}"] = op(value, axes=tuple(range(value.type.rank))) if value.type.rank else value
    slots = {name: value for name, value in module.slots.items() if name in copy.inputs}
    sample = {name: value for name, value in module.sample.items() if name in copy.inputs}
    runs: list[dict[str, Array]] = [evaluate(copy, {**slots, **part}) for part in split_sample(sample, copy)]
    ranges = {}
    for i, node in enumerate(wanted):
        low, high = min(float(run[f"low{i}"]) for run in runs), max(float(run[f"high{i}"]) for run in runs)
        if not np.isfinite([low, high]).all():
            raise MlaotError(f"{module.name}: quantize: with the sample, a value of the model is {low} or {high}")
        if low or high:  # zeros alone give no range
            ranges[node] = min(low, 0.0), max(high, 0.0)
    return ranges


def split_sample(sample: Mapping[str, Array], graph: Graph) -> list[dict[str, Array]]:
    """Split a sample into batches of ``ROWS`` if all inputs have the same named dimension first."""
    leading = {str(graph.inputs[name].type.shape[:1]) for name in sample}
    is_open = all(graph.inputs[name].type.rank and names(graph.inputs[name].type.shape[0]) for name in sample)
    if not sample or len(leading) != 1 or not is_open:
        return [dict(sample)]
    count = len(next(iter(sample.values())))
    return [{name: value[i : i + ROWS] for name, value in sample.items()} for i in range(0, count, ROWS)]


@dataclass(frozen=True)
class Codes:
    """Numbers as bytes: ``unit * (node - zero)``; ``zero`` may be a scalar of float32, and bytes signed."""

    node: Node
    zero: float | Node
    unit: float


def find_codes(x: Node) -> Codes | None:
    """Return the bytes of unit * (bytes - zero) or of a part of it, with both numbers; None for other values."""
    x = x.find()
    if x.op in (st.slice_, st.reshape, st.transpose):
        inner = find_codes(x.arg(0))
        return None if inner is None else replace(inner, node=x.op(inner.node, **x.attrs))
    unit = 1.0
    zero: float | Node = 0.0
    while x.op is ew.mul and unit == 1.0:
        scale = next((i for i in (0, 1) if number(x.arg(i)) is not None), None)
        if scale is None:
            return None
        unit, x = number(x.arg(scale)) or 0.0, x.arg(1 - scale).find()
    if x.op in (ew.sub, ew.add):
        value, less = x.arg(0).find(), number(x.arg(1))
        spread = x.arg(1).find()
        if less is not None:
            zero = less if x.op is ew.sub else -less
        elif x.op is ew.sub and spread.op is st.broadcast and spread.arg(0).type.shape == ():
            zero = spread.arg(0)
        else:
            return None
        x = value
    if x.op is not ew.cast or x.arg(0).type.dtype not in (u8, i8) or x.type.dtype is not f32:
        return None
    info = np.iinfo(x.arg(0).type.dtype.numpy)
    is_byte = isinstance(zero, Node) or (info.min <= zero <= info.max and zero == int(zero))
    return Codes(x.arg(0).find(), zero, unit) if is_byte else None


def integers(f: Factor, w: Array) -> Weights | None:
    """Return weights as bytes, or None if they are not bytes. Unsigned bytes with a zero point have an offset."""
    largest = _largest(f, w)
    byte = np.arange(1, 256).reshape(-1, *[1] * w.ndim)  # what the largest weight may be
    if not np.isfinite(w).all():
        return None
    for count in SAMPLED:
        sample = w[tuple(slice(None, None if c in f.out else count) for c in f.weight_labels)]
        is_off = (_off_whole(sample * (byte / largest)) > TOLERANCE).any(axis=tuple(1 + i for i in _summed(f)))
        if is_off.all(axis=0).any():
            return None
    chosen = np.expand_dims(np.argmin(is_off, axis=0) + 1, _summed(f))
    while (more := (_off_whole(w * (chosen / largest)) > TOLERANCE).any(axis=_summed(f), keepdims=True)).any():
        chosen += more
        if chosen.max() > len(byte):
            return None
    rounded = np.rint(w * (chosen / largest)).astype(np.int64)
    low, high = (limit(rounded, axis=_summed(f), keepdims=True) for limit in (np.min, np.max))
    offset = np.maximum(high - 127, 0) + np.minimum(low + 128, 0)
    if (high - low > 255).any():
        return None
    weights = Weights((rounded - offset).astype(np.int8), largest / chosen, offset)
    return weights if not offset.any() or _is_exact(f, weights) else None


def _is_exact(f: Factor, weights: Weights) -> bool:
    """Tell whether float32 can hold the sums of bytes with these weights, and the sums for their offset."""
    sizes = np.abs(weights.codes.astype(np.int64)).sum(axis=_summed(f)).max(initial=0)
    return 255 * max(int(sizes), int(np.abs(weights.offset).max()) * _terms(f)) < EXACT


def _off_whole(x: Array) -> Array:
    """Return the distances of numbers from whole numbers."""
    return np.asarray(np.abs(x - np.rint(x)))


def _summed(f: Factor) -> tuple[int, ...]:
    """Return the axes of the weights that the product sums over."""
    return tuple(i for i, c in enumerate(f.weight_labels) if c not in f.out)


def _largest(f: Factor, w: Array) -> Array:
    return np.asarray(np.maximum(np.abs(w).max(axis=_summed(f), keepdims=True), TINY))


def _round_weights(f: Factor, w: Array) -> Weights:
    """Round weights to signed bytes.

    Neighbours of one sign share the range of a byte, so that the sums of their products fit 16 bits (``pairs_split``).
    """
    axis = f.weight_labels.index(f.label)
    even = np.pad(w, [(0, size % 2 if i == axis else 0) for i, size in enumerate(w.shape)])
    pairs = np.moveaxis(even, axis, -1).reshape(*np.delete(even.shape, axis), -1, 2)
    largest = np.maximum(np.maximum(pairs, 0).sum(-1), np.maximum(-pairs, 0).sum(-1))
    scale = _largest(f, np.moveaxis(largest, -1, axis)) / 127
    return Weights(np.rint(w / scale).astype(np.int8), scale, np.zeros(scale.shape, np.int64))


def _product(place: Place, f: Factor, base: Bytes, weights: Weights) -> Node:
    """Compute the product with bytes and scale it back to its own dtype."""
    codes, zero, unit, rows = base
    like, graph = f.product.type, f.product.graph
    places = [f.out.index(c) for c in f.weight_labels if c in f.out]

    def spread(channels: Array) -> Node:
        """Broadcast a number for each output channel to the shape of the result."""
        constant = graph.constant(np.transpose(channels, np.argsort(places)).astype(np.float32), f32)
        return st.broadcast(constant, shape=like.shape, axes=tuple(sorted(places)))

    result = _sum_of_products(place, f, _words(f, codes, zero), weights.codes)
    # sum_i t (q_i - z) s (w_i + o) = t s (sum_i q_i w_i - z sum_i w_i + o sum_i (q_i - z))
    sums = weights.codes.sum(axis=_summed(f), dtype=np.int64)
    if isinstance(zero, Node):
        result = ew.sub(result, ew.mul(spread(sums), st.broadcast(zero, shape=like.shape, axes=())))
    elif zero:
        result = ew.add(result, spread(-zero * sums))
    if weights.offset.any():
        more = ew.mul(_sums(f, codes, zero), spread(np.squeeze(weights.offset, _summed(f))))
        result = ew.add(result, more)
    result = ew.mul(result, spread(np.squeeze(weights.scale, _summed(f)) * unit))
    return result if rows is None else ew.mul(result, rows)


def _sum_of_products(place: Place, f: Factor, x: Node, codes: Array) -> Node:
    """Multiply words of bytes by weights. The excess of a few weights over sums of 16 bits is multiplied separately.

    Without sums of 16 bits, AVX2 is as slow as with float32. Machines that add four products at once do not need them.
    """
    axis = f.weight_labels.index(f.label)
    padded = np.pad(codes, [(0, -size % 4 if i == axis else 0) for i, size in enumerate(codes.shape)])
    low, rest = q8.pairs_split(padded, axis)
    fits = bool(np.count_nonzero(rest) <= rest.size * LISTED_SHARE)
    labels, words = _weights(f, low if fits else padded)
    spec = f"{f.labels},{labels}->{f.out}"
    product = q8.contract_bytes(x, place.add(words), spec=spec, pairs=fits)
    if not fits or not rest.any():
        return product
    listed = _weights(f, rest)[1]
    bytes_ = listed.view(np.int8).reshape(*listed.shape, 4)
    at = np.argwhere(bytes_)
    entries = np.column_stack([at, bytes_[tuple(at.T)]])
    return ew.add(
        product, q8.contract_entries(x, spec=spec, sizes=listed.shape, entries=tuple(entries.reshape(-1).tolist()))
    )


def _reuse_codes(f: Factor, codes: Codes) -> Bytes:
    """Use numbers that are already bytes: shift signed bytes by 128, and copy them if words need it."""
    more = 128 if codes.node.type.dtype is i8 else 0
    zero: int | Node = int(codes.zero) + more if not isinstance(codes.zero, Node) else codes.zero
    if isinstance(zero, Node) and more:
        zero = ew.add(zero, fill(zero, more, zero.type))
    is_there = f.axis == codes.node.type.rank - 1 and not is_view(codes.node) and not more
    if is_there:
        return codes.node, zero, codes.unit, None
    if codes.node.op is q8.quantize and codes.node.arg(0).type.dtype is f32:
        numbers, added = codes.node.arg(0), codes.node.attrs.get("zero", 0) + more
    else:
        numbers, added = ew.cast(codes.node, dtype=f32), more
    turned = _move_last(numbers, f.axis)
    return q8.quantize(turned, dtype=u8, **({"zero": added} if added else {})), zero, codes.unit, None


def _weights(f: Factor, codes: Array) -> tuple[str, Array]:
    """Pack weights in words, and return their labels. An output channel comes last, for vector loads."""
    axis, is_last = f.weight_labels.index(f.label), f.weight_labels[-1] in f.out
    order = range(codes.ndim) if is_last else sorted(range(codes.ndim), key=lambda i: f.weight_labels[i] in f.out)
    words = np.ascontiguousarray(np.transpose(q8.pack_words(codes, axis), order))
    return "".join(f.weight_labels[i] for i in order), words


def _quantize_range(f: Factor, range_: Range) -> Bytes:
    """Quantize the base by a known range; return the bytes, the code of 0, and the step between codes."""
    low, high = range_
    unit = max(high - low, TINY) / 255
    zero = round(-low / unit)
    base = _move_last(f.base, f.axis)
    codes = ew.mul(base, fill(base, 1 / unit, base.type))
    codes = ew.add(codes, fill(base, zero, base.type)) if zero else codes
    return q8.quantize(codes, dtype=u8), zero, unit, None


def _quantize_rows(f: Factor) -> Bytes:
    """Quantize each row of the base by its largest number; the scales of the rows are the last item."""
    base = _move_last(f.base, f.axis)
    zero, levels = (0, 255) if f.base.find().op in NEVER_NEGATIVE else (128, 127)
    kept = {axis - (axis > f.axis): place for axis, place in f.kept}
    largest = red.max_(ew.abs_(base) if zero else base, axes=red.kept_axes(base.type.rank, tuple(kept)))
    inverse = ew.div(fill(largest, levels, largest.type), largest)
    codes = ew.mul(base, st.broadcast(inverse, shape=base.type.shape, axes=tuple(kept)))
    codes = ew.add(codes, fill(base, zero, base.type)) if zero else codes
    places = [*kept.values()]
    ordered = st.in_order(largest, [int(i) for i in np.argsort(places)])
    rows = st.broadcast(ordered, shape=f.product.type.shape, axes=tuple(sorted(places)))
    return q8.quantize(codes, dtype=u8), zero, 1 / levels, rows


def _words(f: Factor, codes: Node, zero: int | Node) -> Node:
    """Replay the moves on bytes, and group four neighbours along the axis of the label in a new last axis.

    The axis remains last until the end, so that the four are neighbours in memory.
    """
    rank, length = codes.type.rank, codes.type.shape[-1]
    assert isinstance(length, int)
    code = q8.quantize(zero, dtype=u8) if isinstance(zero, Node) else codes.graph.constant(zero, u8)
    if length % 4:
        none = (0,) * rank
        codes = st.pad(codes, code, low=none, high=(*none[1:], -length % 4), interior=none)
    for step, before, after in f.steps:
        codes = _replay(step, codes, code, before, after)
    shape = codes.type.shape
    codes = st.reshape(codes, shape=(*shape[:-1], -(-length // 4), 4))
    at, rank = f.labels.index(f.label), len(shape)
    order = [*range(rank - 1)]
    order.insert(at, rank - 1)
    return st.in_order(codes, (*order, rank))


def _sums(f: Factor, codes: Node, zero: int | Node) -> Node:
    """Add up, for each result, the bytes that the product multiplies, minus their zero."""
    numbers = ew.cast(codes, dtype=f32)
    shape = numbers.type.shape
    less = st.broadcast(zero, shape=shape, axes=()) if isinstance(zero, Node) else fill(numbers, zero, numbers.type)
    numbers = ew.sub(numbers, less)
    sums = red.sum_(numbers, axes=(codes.type.rank - 1,))
    sums = st.reshape(sums, shape=(*sums.type.shape, 1))
    for step, before, after in f.steps:
        sums = _replay(step, sums, codes.graph.constant(0, f32), before, after)
    rest = [c for c in f.labels if c != f.label]
    sums = red.sum_(sums, axes=tuple(i for i in range(len(rest) + 1) if i == len(rest) or rest[i] not in f.out))
    places = [f.out.index(c) for c in rest if c in f.out]
    ordered = st.in_order(sums, [int(i) for i in np.argsort(places)])
    return st.broadcast(ordered, shape=f.product.type.shape, axes=tuple(sorted(places)))


def _replay(step: Node, x: Node, code: Node, before: int, after: int) -> Node:
    """Replay a move, whose axis ``before`` becomes ``after``, on a value that has this axis last, of any length."""
    attrs, last, length = step.attrs, x.type.rank - 1, x.type.shape[-1]
    if step.op is st.pad:
        return st.pad(x, code, **{key: _last(attrs[key], before) for key in ("low", "high", "interior")})
    if step.op is st.slice_:
        cut = {key: _last(attrs[key], before) for key in ("start", "size", "step")}
        return st.slice_(x, **{**cut, "size": (*cut["size"][:-1], length)})
    if step.op is st.window:
        windows = st.window(x, **{**attrs, "axes": tuple(a - (a > before) for a in attrs["axes"])})
        return st.transpose(windows, perm=_last(range(windows.type.rank), last))
    if step.op is st.transpose:
        return st.transpose(x, perm=(*[a - (a > before) for a in attrs["perm"] if a != before], last))
    shape = (*_last(step.type.shape, after)[:-1], length)
    if step.op is st.broadcast:
        axes = tuple(a - (a > after) for a in attrs["axes"] if a != after)
        return st.broadcast(x, shape=shape, axes=(*axes, len(shape) - 1))
    assert step.op is st.reshape, f"bug in mlaot: {step} is no move"
    return st.reshape(x, shape=shape)


def _last(values: Sequence[Any], axis: int) -> tuple[Any, ...]:
    """Move the item at ``axis`` to the end."""
    return (*[value for i, value in enumerate(values) if i != axis], values[axis])


def _move_last(x: Node, axis: int) -> Node:
    """Transpose a value so that ``axis`` is its last."""
    return st.in_order(x.find(), _last(range(x.type.rank), axis))


def _describe(f: Factor, place: Place) -> Product:
    terms = _terms(f)
    return Product(place.name(f.w), (terms, prod(map(int, f.w.type.shape)) // terms))


def _report(f: Factor, place: Place, w: Array, rounded: Array, range_: Range | None) -> Quantized:
    """Report how a product was quantized."""
    product = _describe(f, place)
    off = float(np.sqrt(np.mean((w - rounded) ** 2) / max(float(np.mean(w**2)), TINY)))
    return Quantized(product.weight, product.shape, off, range_)
