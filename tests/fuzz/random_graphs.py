"""Random graphs, compiled, against the NumPy references in float64 by a derived error bound (``bounds.py``).

    python -m tests.fuzz.random_graphs --count 2000 --seed 0

Three kinds of graphs: tensor ops, scalar ``Value``s through raising, and either of them with a loss to train. Each
graph is compiled twice, by the whole pipeline and by the least that lowering needs, and run on several inputs, some
with special values. The yardstick is the traced graph for one example; batching, raising and every rewrite are thus
under test. Gradients are compared with those that the VJPs give on the traced graph, and those with central
differences.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import concrete
from mlaot.frontend.trace.declaration import PARAMETERS, Traced
from mlaot.ir import Dim, Graph, Node, Type, dim, topological, verify
from mlaot.ir import dims as dims_
from mlaot.ir.module import Module
from mlaot.ir.types import DType, f32, f64, i64, u8
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.micrograd import Bytes, Label, Max, Value, cross_entropy, declare
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import fill, full_like
from mlaot.passes.algebra.canonical_order import canonical_order
from mlaot.passes.training.entries import copy_into
from mlaot.transforms.differentiate import differentiate

from ..compiled import AVAILABLE, Library, Runs, State, effort
from .bounds import EPS, Bounded, analyse, difference, exact

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

PER_FILE = 40
BATCH = dim("batch")
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1e30, 3e38, 1e-30, 16777217.0)
LEAST = tuple(s for s in passes.PIPELINE if s.name in ("split_parameters", "add_batch", "entries", "legalize"))


@dataclass
class Case:
    """A traced graph, a seed for its inputs, and what went wrong with it."""

    name: str
    traced: Traced
    seed: int
    failures: list[str] = field(default_factory=list)


# Making graphs.


class TensorMaker:
    """A random graph of tensor ops; each node's value on one sample is at hand, so that domains are respected."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = Graph("model")
        self.dtype: DType = self.rng.choice((f32, f64))
        self.per_example = self.rng.random() < 0.6
        self.dims = {"batch": 3}
        self.values: dict[Node, Array] = {}
        self.pool: list[Node] = []
        self.parameters: Arrays = {}
        self.sides: list[int] = [self.rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 20)) for _ in range(4)]

    def make(self, trains: bool) -> Traced:
        rng = self.rng
        for i in range(rng.randint(1, 3)):
            self._input(f"x{i}", trains)
        for i in range(rng.randint(1 if trains else 0, 3)):
            shape = tuple(rng.choice(self.sides) for _ in range(rng.choice((0, 1, 1, 2, 2))))
            array = self.numbers.normal(size=shape).astype(self.dtype.numpy)
            self.parameters[f"w{i}"] = array
            self._keep(self.graph.input(f"w{i}", Type(self.dtype, shape), parameter=True), array)
        if rng.random() < 0.2:
            self._label()
        steps = rng.randint(3, 16)
        while steps:
            steps -= self._step()
        inner = [n for n in self.pool if n.op is not st.input_] or self.pool
        told = [n for n in self.pool if self._tells_batch(n)]  # a result of none of the batched inputs is refused
        for i in range(rng.choice((1, 1, 2, 3))):
            some = told if i == 0 and told else inner[-5:] if rng.random() < 0.8 else self.pool
            self.graph.outputs[f"y{i}"] = rng.choice(some[-5:] if rng.random() < 0.8 else some)
        if trains:
            self.graph.outputs["loss"] = self._loss([*told[-1:], inner[-1]])
        return Traced(self.graph, self.parameters, {}, self.per_example, 0.1)

    def _input(self, name: str, trains: bool) -> None:
        rng = self.rng
        shape: tuple[Dim, ...] = tuple(rng.choice(self.sides) for _ in range(rng.choice((0, 1, 1, 2, 2, 3))))
        if not self.per_example and rng.random() < 0.7:
            shape = (BATCH, *shape)
        concrete = tuple(dims_.substitute(d, self.dims) for d in shape)
        if rng.random() < 0.15:
            raw = self.graph.input(name, Type(u8, shape))
            self.values[raw] = self.numbers.integers(0, 256, concrete)
            scaled = self._add(ew.cast, raw, dtype=self.dtype)
            self._add(ew.mul, scaled, fill(raw, 1 / 255, scaled.type))
        else:
            node = self.graph.input(name, Type(self.dtype, shape))
            self._keep(node, self.numbers.normal(size=concrete))

    def _label(self) -> None:
        classes = self.rng.choice(self.sides)
        lead: tuple[Dim, ...] = () if self.per_example or self.rng.random() < 0.3 else (BATCH,)
        node = self.graph.input("label", Type(i64, lead))
        self.values[node] = self.numbers.integers(0, classes, [dims_.substitute(d, self.dims) for d in lead])
        self._add(st.one_hot, node, classes=classes, dtype=self.dtype)

    def _keep(self, node: Node, value: Any) -> Node:
        node = node.find()
        if node not in self.values:
            self.values[node] = np.asarray(value, np.float64)
            if node.type.dtype is self.dtype:
                self.pool.append(node)
        return node

    def _value(self, node: Node) -> Array:
        node = node.find()
        if node not in self.values:
            attrs = {k: concrete(v, self.dims) for k, v in node.attrs.items()}
            with np.errstate(all="ignore"):
                value = node.op.reference(*[self._value(a) for a in node.args], **attrs)
            self.values[node] = np.asarray(value, np.float64)
        return self.values[node]

    def _add(self, op: Any, *args: Node, **attrs: Any) -> Node:
        node = self.graph.add(op, args, attrs)
        fresh = node not in self.values
        value = self._value(node)
        if fresh and node.type.dtype is self.dtype and value.size <= 4000 and np.abs(value).max(initial=0) < 1e4:
            self.pool.append(node)
        return node

    def _pick(self) -> Node:
        return self.rng.choice(self.pool[-6:] if self.rng.random() < 0.6 else self.pool)

    def _like(self, node: Node) -> Node:
        """Something of the type of ``node``: of the pool, broadcast to it, or a constant."""
        rng = self.rng
        same = [n for n in self.pool if n.type == node.type]
        if same and rng.random() < 0.4:
            return rng.choice(same)
        fitting = []
        for n in self.pool:
            axes = embedding(n.type.shape, node.type.shape)
            if axes is not None and n.type.rank < node.type.rank:
                fitting.append((n, axes))
        if fitting and rng.random() < 0.8:
            n, axes = rng.choice(fitting)
            return self._add(st.broadcast, n, shape=node.type.shape, axes=axes)
        if rng.random() < 0.3 and all(isinstance(d, int) for d in node.type.shape):
            constant = self.graph.constant(np.round(self.numbers.normal(size=static(node.type.shape)), 2), self.dtype)
            self._value(constant)
            return constant
        return fill(node, rng.choice((0.0, 1.0, -1.0, 2.0, 0.5, -0.25, 3.0)), node.type)

    def _step(self) -> bool:
        """Add an op or two; whether that worked."""
        before = len(self.pool)
        x = self._pick()
        choice = self.rng.choice(CHOICES)
        getattr(self, f"_do_{choice}")(x)
        return len(self.pool) > before or self.rng.random() < 0.3

    def _do_binary(self, x: Node) -> None:
        y = self._like(x)
        op = self.rng.choice((ew.add, ew.sub, ew.mul, ew.mul, ew.div, ew.maximum, ew.minimum, ew.is_equal))
        if op is ew.div:
            y = self._away_from_zero(y)
        args = (x, y) if op is ew.div or self.rng.random() < 0.5 else (y, x)
        self._add(op, *args)

    def _do_many(self, x: Node) -> None:
        op = self.rng.choice((ew.add, ew.maximum, ew.minimum))
        self._add(op, x, *[self._like(x) for _ in range(self.rng.randint(2, 3))])

    def _do_unary(self, x: Node) -> None:
        op = self.rng.choice(UNARY)
        if op in (ew.log, ew.sqrt):
            x = self._positive(x)
        if op is ew.exp and np.abs(self._value(x)).max(initial=0) > 5:
            x = self._add(ew.tanh, x)
        self._add(op, x)

    def _do_power(self, x: Node) -> None:
        exponent = self.rng.choice((0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, 0.5, 1.5, -0.5, 2.5, 5.0, -4.0))
        if exponent != int(exponent):
            x = self._positive(x)
        elif exponent < 0:
            x = self._away_from_zero(x)
        self._add(ew.pow_, x, exponent=exponent)

    def _positive(self, x: Node) -> Node:
        return self._add(ew.add, self._add(ew.abs_, x), full_like(x, 0.5))

    def _away_from_zero(self, x: Node) -> Node:
        return x if np.abs(self._value(x)).min(initial=1) > 0.1 else self._positive(x)

    def _do_broadcast(self, x: Node) -> None:
        extra: list[Dim] = [*self.sides, 1] if self.per_example else [*self.sides, BATCH]
        if x.type.rank > 3:
            return
        shape = list(x.type.shape)
        axes = list(range(len(shape)))
        at = self.rng.randint(0, len(shape))
        side = self.rng.choice(extra)
        if side is BATCH and BATCH in shape:
            return
        shape.insert(at, side)
        self._add(st.broadcast, x, shape=tuple(shape), axes=tuple(a + (a >= at) for a in axes))

    def _do_transpose(self, x: Node) -> None:
        perm = list(range(x.type.rank))
        self.rng.shuffle(perm)
        self._add(st.transpose, x, perm=tuple(perm))

    def _do_reshape(self, x: Node) -> None:
        shape = x.type.shape
        lead = sum(not isinstance(d, int) for d in shape)
        if any(isinstance(d, int) for d in shape[:lead]):
            return
        size = int(np.prod(static(shape[lead:]), dtype=np.int64))
        rests = [(size,), (1, size), (size, 1)] + [(k, size // k) for k in (2, 3, 4) if size % k == 0]
        if size == 1:
            rests.append(())
        self._add(st.reshape, x, shape=(*shape[:lead], *self.rng.choice(rests)))

    def _do_reduce(self, x: Node) -> None:
        if not x.type.rank:
            return
        axes = tuple(sorted(self.rng.sample(range(x.type.rank), self.rng.randint(1, min(2, x.type.rank)))))
        self._add(self.rng.choice((red.sum_, red.sum_, red.max_, red.min_)), x, axes=axes)

    def _do_softmax(self, x: Node) -> None:
        if not x.type.rank:
            return
        axis = x.type.rank - 1
        kept = tuple(range(axis))

        def spread(n: Node) -> Node:
            return self._add(st.broadcast, n, shape=x.type.shape, axes=kept)

        e = self._add(ew.exp, self._add(ew.sub, x, spread(self._add(red.max_, x, axes=(axis,)))))
        self._add(ew.div, e, spread(self._add(red.sum_, e, axes=(axis,))))

    def _do_contract(self, x: Node) -> None:
        """Labels for two operands that agree in size, some kept and some summed."""
        y = self._pick()
        letters = iter("abcdefghij")
        first = dict(zip(letters, x.type.shape, strict=False))
        second, free = [], dict(first)
        for d in y.type.shape:
            match = next((c for c, e in free.items() if e == d), None)
            if match is not None and (self.rng.random() < 0.7 or not isinstance(d, int)):
                free.pop(match)
                second.append(match)
            else:
                second.append(next(letters))
        if len(set(second)) != len(second) or len({*first, *second}) > 5:
            return
        labels = [*first, *[c for c in second if c not in first]]
        kept = [c for c in labels if self.rng.random() < (0.3 if c in first and c in second else 0.9)]
        self.rng.shuffle(kept)
        self._add(red.contract, x, y, spec=f"{''.join(first)},{''.join(second)}->{''.join(kept)}")

    def _do_sum_of_products(self, x: Node) -> None:
        if not x.type.rank:
            return
        product = self._add(ew.mul, x, self._like(x))
        self._add(red.sum_, product, axes=(self.rng.randrange(x.type.rank),))

    def _lead(self, x: Node) -> int:
        """Axes in front that a gather leaves alone: at least those of named dims, or more axes than there are."""
        dynamic = [i for i, d in enumerate(x.type.shape) if not isinstance(d, int)]
        least = max(dynamic, default=-1) + 1
        return self.rng.randint(least, x.type.rank)

    def _do_take(self, x: Node) -> None:
        lead = self._lead(x)
        size = int(np.prod(static(x.type.shape[lead:]), dtype=np.int64))
        shape = tuple(self.rng.choice((1, 2, 3, 5)) for _ in range(self.rng.randint(0, 2)))
        index = self.numbers.integers(0, size, shape)
        if self.rng.random() < 0.3:
            index = np.arange(size)[:: self.rng.choice((1, 2, -1))]
        self._add(st.take, x, indices=st.indices(index), lead=lead)

    def _do_put_add(self, x: Node) -> None:
        lead = self._lead(x)
        shape = tuple(self.rng.choice((1, 2, 3, 4)) for _ in range(self.rng.randint(1, 2)))
        index = self.numbers.integers(0, int(np.prod(shape)), static(x.type.shape[lead:]))
        self._add(st.put_add, x, indices=st.indices(index), lead=lead, shape=shape)

    def _do_item(self, x: Node) -> None:
        if all(isinstance(d, int) for d in x.type.shape):
            self._add(st.item, x, index=self.rng.randrange(int(np.prod(static(x.type.shape), dtype=np.int64))))

    def _do_stack(self, x: Node) -> None:
        if x.type.rank < 4:
            self._add(st.stack, x, *[self._like(x) for _ in range(self.rng.randint(1, 3))], axis=x.type.rank)

    def _do_concat(self, x: Node) -> None:
        if x.type.rank and isinstance(x.type.shape[-1], int):
            other = [n for n in self.pool if n.type.shape[:-1] == x.type.shape[:-1] and n.type.rank == x.type.rank]
            others = [n for n in other if isinstance(n.type.shape[-1], int)]
            some = [self.rng.choice(others) for _ in range(self.rng.randint(1, 2))]
            self._add(st.concat, x, *some, axis=x.type.rank - 1)

    def _do_cast(self, x: Node) -> None:
        other = f64 if self.dtype is f32 else f32
        middle = self._add(ew.cast, x, dtype=other)
        if self.rng.random() < 0.5:
            middle = self._add(ew.mul, middle, fill(middle, 1.25, middle.type))
        self._add(ew.cast, middle, dtype=self.dtype)

    def _tells_batch(self, node: Node) -> bool:
        leaves = [n for n in topological([node]) if n.op is st.input_ and not n.attrs.get("parameter", False)]
        return any(self.per_example or BATCH in n.type.shape for n in leaves)

    def _loss(self, nodes: list[Node]) -> Node:
        """One number, from some of the graph and every parameter."""
        graph = self.graph
        terms = [*dict.fromkeys(nodes), *[graph.inputs[n] for n in self.parameters]]
        total = None
        for term in terms:
            bounded = self._add(ew.tanh, term)
            axes = tuple(range(term.type.rank))
            term = self._add(red.sum_, self._add(ew.mul, bounded, bounded), axes=axes) if axes else bounded
            total = term if total is None else self._add(ew.add, total, term)
        assert total is not None
        return total


UNARY = (
    *(ew.neg, ew.relu, ew.relu, ew.abs_, ew.sign, ew.step, ew.copy),
    *(ew.tanh, ew.tanh, ew.exp, ew.log, ew.sqrt),
)
CHOICES = (
    *("binary",) * 6,
    *("unary",) * 4,
    *("reduce", "contract", "sum_of_products", "broadcast") * 3,
    *("take", "stack", "power", "many", "softmax") * 2,
    *("transpose", "reshape", "put_add", "item", "concat", "cast"),
)


def static(shape: tuple[Dim, ...]) -> tuple[int, ...]:
    """A shape without named dims."""
    assert all(isinstance(d, int) for d in shape), shape
    return tuple(int(d) for d in shape if isinstance(d, int))


def embedding(small: tuple[Dim, ...], large: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """Axes of ``large`` that have the sides of ``small``, in order, from the last on."""
    axes: list[int] = []
    at = len(large) - 1
    for side in reversed(small):
        while at >= 0 and large[at] != side:
            at -= 1
        if at < 0:
            return None
        axes.append(at)
        at -= 1
    return tuple(reversed(axes))


def scalar_model(seed: int, trains: bool) -> Traced:
    """A random graph of ``Value``s: layers with their terms shuffled, skips, shared weights, and loose ends."""
    rng = random.Random(seed)
    width = rng.choice((1, 2, 3, 5, 8, 9))
    x = [Value(0.0) for _ in range(width)]
    inputs: dict[str, Any] = {"x": Bytes(x, 255.0) if rng.random() < 0.15 else x}
    extra: list[Value] = []
    if rng.random() < 0.3:
        extra = [Value(0.0) for _ in range(rng.choice((1, 3)))]
        inputs["z"] = extra if rng.random() < 0.7 or len(extra) > 1 else extra[0]
    weights: list[Value] = []

    def weight() -> Value:
        if weights and rng.random() < 0.05:
            return rng.choice(weights)
        weights.append(Value(rng.uniform(-1, 1)))
        return weights[-1]

    layer: list[Value] = [*x, *extra]
    history = list(layer)
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("dense", "dense", "dense", "loose", "softmax", "elementwise"))
        if kind == "dense":
            layer = _dense(rng, layer, weight)
        elif kind == "softmax" and len(layer) > 1:
            exps = [v.tanh().exp() for v in layer]
            total = sum(exps[1:], exps[0])
            layer = [e / total for e in exps]
        elif kind == "elementwise":
            layer = [_activation(rng, v, rng.choice(("relu", "tanh", "square", "max"))) for v in layer]
        else:
            layer = [_loose(rng, history + layer, weight) for _ in range(rng.randint(1, 4))]
        history += layer
    outputs = layer if rng.random() < 0.8 else [*layer, rng.choice(history), layer[0]]
    loss = None
    if trains:
        if rng.random() < 0.4 and len(layer) > 1:
            label = [Value(0.0) for _ in layer]
            inputs["label"] = Label(label)
            loss = cross_entropy(layer, label)
        else:
            loss = sum(((v - 0.5) ** 2 for v in layer[1:]), (layer[0] - 0.5) ** 2)
        first = weights[0] if weights else weight()
        loss = loss + first * first * 0.01
    single = len(outputs) == 1 and rng.random() < 0.5
    declared = declare(
        outputs[0] if single else list(outputs),
        inputs=inputs,
        parameters=weights,
        loss=loss,
        dtype=rng.choice(("float32", "float64")),
    )
    return declared.trace()


def _dense(rng: random.Random, layer: list[Value], weight: Callable[[], Value]) -> list[Value]:
    act = rng.choice(("relu", "tanh", "none", "none", "square"))
    biased, shuffled, tree, skip = (rng.random() < p for p in (0.7, 0.3, 0.2, 0.2))
    outs = []
    tied = [weight() for _ in layer] if rng.random() < 0.15 else None
    for i in range(rng.choice((1, 2, 3, 5, 8))):
        terms = []
        for j, v in enumerate(layer):
            w = tied[(i + j) % len(layer)] if tied else weight()
            terms.append(w * v if rng.random() < 0.5 else v * w)
        if biased:
            terms.append(weight() + 0.0 if rng.random() < 0.2 else weight())
        if skip and i < len(layer):
            terms.append(layer[i])
        if shuffled:
            rng.shuffle(terms)
        outs.append(_activation(rng, _added(terms, tree), act))
    return outs


def _added(terms: list[Value], tree: bool) -> Value:
    while tree and len(terms) > 1:
        terms = [terms[i] + terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _activation(rng: random.Random, v: Value, kind: str) -> Value:
    if kind == "relu":
        return v.relu()
    if kind == "tanh":
        return v.tanh()
    if kind == "square":
        return v**2
    return Max(v, 0.1) if kind == "max" else v


def _loose(rng: random.Random, pool: list[Value], weight: Callable[[], Value]) -> Value:
    """An expression of its own structure."""
    v = rng.choice(pool)
    for _ in range(rng.randint(1, 5)):
        other = rng.choice(pool) if rng.random() < 0.6 else weight()
        kind = rng.randrange(9)
        if kind == 0:
            v = v + other
        elif kind == 1:
            v = v * other
        elif kind == 2:
            v = v - other
        elif kind == 3:
            v = v.tanh() / ((other * other) + 0.5)
        elif kind == 4:
            v = v.relu() + 0.25 * other
        elif kind == 5:
            v = (v * v + 0.5).log()
        elif kind == 6:
            v = v.tanh().exp()
        elif kind == 7:
            v = Max(v, other)
        else:
            v = (v.tanh() + 2.0) ** rng.choice((2, 3, -1, 0.5))
    return v


def make_case(seed: int) -> Case:
    """The random graph of a seed."""
    rng = random.Random(seed)
    scalar, trains = rng.random() < 0.35, rng.random() < 0.3
    traced = scalar_model(seed, trains) if scalar else TensorMaker(seed).make(trains)
    kind = f"{'scalar' if scalar else 'tensor'}{' training' if trains else ''}"
    return Case(f"g{seed} ({kind})", traced, seed)


# Running them.


def compile_case(case: Case, stages: passes.Passes, name: str) -> Program:
    """The program of a case; the traced graph is left as it is, for a second use."""
    traced = case.traced
    graph = _copy(traced.graph)
    module = Module(name, {"model": graph}, dict(traced.parameters), traced.trains, traced.learning_rate)
    copied = replace(traced, graph=graph)
    for stage in stages:
        stage.run(module, copied)
        for entry in module.graphs.values():
            verify(entry, stage.name)
    return lower(module)


def _copy(graph: Graph) -> Graph:

    new, copies = copy_into(graph, graph.roots(), graph.name, keep=graph.inputs)
    new.outputs = {name: copies[node.find()] for name, node in graph.outputs.items()}
    return new


def run_cases(cases: list[Case], isa: str, folder: Path, counts: Counter[str]) -> None:
    """Compile all into one library and compare; failures are noted in each case."""
    libraries = _libraries(cases, programs_of(cases, counts), isa, folder)
    for case in cases:
        run_case(case, libraries, counts)


def programs_of(cases: list[Case], counts: Counter[str]) -> dict[str, Program]:
    """The programs of some cases, each by the whole pipeline and by the least that lowering needs."""
    programs: dict[str, Program] = {}
    for case in cases:
        for kind, stages in (("full", passes.PIPELINE), ("least", LEAST)):
            try:
                programs[f"{kind}{case.seed}"] = compile_case(case, stages, f"{kind}{case.seed}")
            except MlaotError as error:
                if "no input that the result depends on" not in str(error):
                    case.failures.append(f"{kind}: {traceback.format_exc(limit=-4)}")
                counts["refused"] += 1
            except Exception:
                case.failures.append(f"{kind}: {traceback.format_exc(limit=-4)}")
    return programs


def _libraries(cases: list[Case], programs: dict[str, Program], isa: str, folder: Path) -> dict[str, Library]:
    """One library for all; where it does not compile, halves, until the culprits are known."""
    if not programs:
        return {}
    try:
        flags = (effort(cases[0].seed // PER_FILE),)
        library = Library(programs, isa, Path(tempfile.mkdtemp(dir=folder)), flags)
    except Exception as error:
        stems = list(programs)
        if len(stems) == 1:
            case = next(c for c in cases if stems[0] in (f"full{c.seed}", f"least{c.seed}"))
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc(limit=-4)
            case.failures.append(f"{stems[0]} on {isa}: {text}")
            return {}
        middle = len(stems) // 2
        parts = [{s: programs[s] for s in some} for some in (stems[:middle], stems[middle:])]
        return _libraries(cases, parts[0], isa, folder) | _libraries(cases, parts[1], isa, folder)
    return dict.fromkeys(programs, library)


def run_case(case: Case, libraries: Mapping[str, Runs], counts: Counter[str], trials: Iterable[int] = range(3)) -> None:
    """Compare what the programs of a case give, run by ``libraries``; failures are noted in the case."""
    try:
        _run_case(case, libraries, counts, trials)
    except Exception:
        case.failures.append(traceback.format_exc(limit=-4))


def _run_case(case: Case, libraries: Mapping[str, Runs], counts: Counter[str], trials: Iterable[int]) -> None:
    traced = case.traced
    gradients = _gradient_nodes(traced) if traced.trains else {}
    for trial in trials:
        numbers = np.random.default_rng((case.seed, trial))
        batch = int(numbers.integers(1, 4))
        inputs = _inputs(traced, numbers, batch, special=trial == 2)
        expected = _expected(traced, gradients, inputs, batch)
        if trial == 0 and gradients:
            _check_gradients(case, gradients, inputs, batch, counts)
        for kind in ("full", "least"):
            library = libraries.get(f"{kind}{case.seed}")
            if library is not None:
                for what, actual, wanted in _results(traced, library, f"{kind}{case.seed}", inputs, batch, expected):
                    _compare(case, f"{kind} on {library.isa}, trial {trial}: {what}", actual, wanted, counts)


def _inputs(traced: Traced, numbers: np.random.Generator, batch: int, *, special: bool) -> Arrays:
    """Values for the inputs by name, batched; parameters stay at their start."""
    limits = {n.arg(0): int(n.attrs["classes"]) for n in traced.graph.nodes() if n.op is st.one_hot}
    found: Arrays = {}
    for name, node in traced.graph.inputs.items():
        if name in traced.parameters:
            continue
        shape = tuple(dims_.substitute(d, {"batch": batch}) for d in node.type.shape)
        shape = (batch, *shape) if traced.per_example else shape
        if node.type.dtype.kind == "i":
            found[name] = numbers.integers(0, limits.get(node, 256), shape)
            continue
        value = numbers.normal(size=shape).astype(node.type.dtype.numpy)
        if special and value.size:
            with np.errstate(all="ignore"):
                chosen = numbers.choice(SPECIAL, max(1, value.size // 8))
                value.reshape(-1)[numbers.integers(0, value.size, len(chosen))] = chosen
        found[name] = value
    return found


def _gradient_nodes(traced: Traced) -> dict[str, Node]:
    """The gradient of the mean loss by each parameter, as the VJPs give it on the traced graph.

    ``a * b`` and ``b * a`` are one value there too: cotangents of one value are added before they are passed on, and
    for infinite ones that is not the same as passing on each.
    """
    root = traced.graph.outputs["loss"].find()
    graph, copies = copy_into(traced.graph, [root], "gradients", keep=traced.parameters)
    graph.outputs["loss"] = copies[root]
    canonical_order(graph)
    loss = graph.outputs["loss"].find()
    if loss.type.rank:
        loss = red.sum_(loss, axes=(0,))
    wanted = [graph.inputs[name] for name in traced.parameters]
    return dict(zip(traced.parameters, differentiate(loss, wanted), strict=True))


def _examples(traced: Traced, inputs: Arrays, batch: int) -> Iterator[Arrays]:
    if traced.per_example:
        for i in range(batch):
            yield {name: value[i] for name, value in inputs.items()} | traced.parameters
    else:
        yield inputs | traced.parameters


def _expected(traced: Traced, gradients: dict[str, Node], inputs: Arrays, batch: int) -> dict[str, Bounded]:
    """What every output should be, and every gradient, with bounds."""
    roots = {**traced.graph.outputs, **{f"gradient({n})": g for n, g in gradients.items()}}
    runs = []
    for example in _examples(traced, inputs, batch):
        values = analyse(list(roots.values()), example, {"batch": batch})
        runs.append({name: values[node.find()] for name, node in roots.items()})
    result = {}
    for name, node in roots.items():
        parts = [run[name] for run in runs]
        mean = name == "loss" or name in (f"gradient({n})" for n in gradients)
        if traced.per_example and mean:
            result[name] = _mean(parts, node.type.dtype.name)
        elif traced.per_example:
            result[name] = Bounded(*[np.stack([getattr(p, k) for p in parts]) for k in ("value", "size", "error")])
        elif mean and traced.graph.outputs["loss"].find().type.rank:
            result[name] = _over(parts[0] if name != "loss" else _total(parts[0]), batch, node.type.dtype.name)
        else:
            result[name] = parts[0]
    return result


def _total(x: Bounded) -> Bounded:
    return Bounded(x.value.sum(), x.size.sum(), x.error.sum())


def _mean(parts: list[Bounded], dtype: str) -> Bounded:
    with np.errstate(all="ignore"):
        total = Bounded(*[np.sum([getattr(p, k) for p in parts], axis=0) for k in ("value", "size", "error")])
    return _over(total, len(parts), dtype)


def _over(total: Bounded, count: int, dtype: str) -> Bounded:
    """A sum divided by its count, with the rounding of both. Gradients carry the division through all of their ops."""
    with np.errstate(all="ignore"):
        error = (total.error * 1.5 + total.size * EPS[dtype] * (count + 8)) / count + 1e-45
        error = np.where(np.isfinite(total.value) & np.isnan(error), np.inf, np.where(np.isnan(error), 0, error))
        return Bounded(total.value / count, total.size / count, error)


Result = tuple[str, Array, Bounded]


def _results(
    traced: Traced, library: Runs, stem: str, inputs: Arrays, batch: int, expected: dict[str, Bounded]
) -> Iterator[Result]:
    """Every number that the compiled entries give, with what it should be."""
    dims = {"batch": batch}
    program = library.programs[stem]
    outputs = [n for n in traced.graph.outputs if n != "loss"]
    found = library.call(stem, "forward", inputs, dims)
    yield from ((f"forward {n}", found[n], expected[n]) for n in outputs)
    if not traced.trains:
        return
    found = library.call(stem, "loss", inputs, dims)
    yield "loss", found["loss"], expected["loss"]
    state = State(program)
    for name in traced.parameters:
        _write(traced, program, state, name, np.full(traced.parameters[name].shape, 0.5), gradient=True)
    found = library.call(stem, "phases", inputs, dims, state)
    yield from ((f"phases {n}", found[n], expected[n]) for n in (*outputs, "loss"))
    yield from _sums(traced, program, state, expected, 1)
    found = library.call(stem, "accumulate", inputs, dims, state)
    yield "accumulate loss", found["loss"], expected["loss"]
    yield from _sums(traced, program, state, expected, 2)
    state = State(program)
    found = library.call(stem, "train_step", {**inputs, "lr": 0.25}, dims, state)
    yield "train_step loss", found["loss"], expected["loss"]
    for name, array in traced.parameters.items():
        read = _read(traced, program, state, name, gradient=False)
        yield f"train_step {name}", read, _combined(exact(array), expected[f"gradient({name})"], -0.25)
    library.call(stem, "accumulate", inputs, dims, state := State(program))
    library.call(stem, "update", {"lr": 0.25}, dims, state)
    for name, array in traced.parameters.items():
        read = _read(traced, program, state, name, gradient=False)
        yield f"update {name}", read, _combined(exact(array), expected[f"gradient({name})"], -0.25)


def _sums(traced: Traced, program: Program, state: State, expected: dict[str, Bounded], times: int) -> Iterator[Result]:
    """The gradients that were 0.5 before they were added so many times."""
    for name, array in traced.parameters.items():
        wanted = _combined(exact(np.full(array.shape, 0.5)), expected[f"gradient({name})"], times)
        yield f"gradient({name})", _read(traced, program, state, name, gradient=True), wanted


def _combined(a: Bounded, b: Bounded, factor: float) -> Bounded:
    """``a + factor * b``, rounded in float32 or better."""
    with np.errstate(all="ignore"):
        value = a.value + factor * b.value
        size = a.size + abs(factor) * b.size
        rounding = np.where(np.isfinite(size), size, 0) * _precision(a, b)
        return Bounded(value, size, np.where(np.isfinite(value), b.error * abs(factor) + rounding, b.error))


def _precision(a: Bounded, b: Bounded) -> float:
    return EPS["f32"] if (b.error > 1e-12 * (1 + b.size)).any() else 4 * EPS["f64"]


def _places(program: Program) -> list[tuple[str, int]]:
    """Slot and flat index of each scalar parameter of a scalar model."""
    table: dict[int, tuple[str, int]] = {}
    for slot in program.module.slots:
        index = np.indices(slot.shape).reshape(len(slot.shape), -1).T if slot.shape else np.zeros((1, 0), np.int64)
        item = 4 if slot.dtype == "f32" else 8
        offsets = (index @ np.array(slot.strides, np.int64)) * item + slot.offset
        table |= {offset: (slot.name, i) for i, offset in enumerate(offsets.tolist())}
    scalars = program.module.info["scalars"]
    assert isinstance(scalars, tuple)
    return [table[offset] for offset in scalars]


def _read(traced: Traced, program: Program, state: State, name: str, *, gradient: bool) -> Array:
    pick = state.gradient if gradient else state.slot
    if name != PARAMETERS:
        return np.array(pick(name))
    return np.array([pick(slot).reshape(-1)[i] for slot, i in _places(program)])


def _write(traced: Traced, program: Program, state: State, name: str, value: Array, *, gradient: bool) -> None:
    pick = state.gradient if gradient else state.slot
    if name != PARAMETERS:
        pick(name)[...] = value
        return
    for (slot, i), v in zip(_places(program), value.tolist(), strict=True):
        target = pick(slot)
        target[np.unravel_index(i, target.shape)] = v


def _compare(case: Case, what: str, actual: Array, wanted: Bounded, counts: Counter[str]) -> None:
    if actual.shape != wanted.value.shape:
        case.failures.append(f"{what}: shape {actual.shape}, expected {wanted.value.shape}")
        return
    counts["numbers"] += actual.size
    counts["no bound"] += int(np.isinf(wanted.error).sum())
    with np.errstate(all="ignore"):
        loose = np.isfinite(wanted.error) & (wanted.error > 0.01 * np.abs(wanted.value) + 1e-3)
    counts["loose bound"] += int(np.sum(loose))
    off = difference(actual, wanted)
    if off.any():
        at = np.unravel_index(int(np.argmax(off)), off.shape)
        case.failures.append(
            f"{what}{list(map(int, at))}: got {actual[at]!r}, expected {wanted.value[at]!r} within"
            f" {2 * wanted.error[at]:.3g}; {int((off > 0).sum())} of {off.size} numbers are off"
        )


def _check_gradients(case: Case, gradients: dict[str, Node], inputs: Arrays, batch: int, counts: Counter[str]) -> None:
    """The VJPs against central differences of the loss along one random direction, in float64."""
    traced = case.traced
    example = {k: np.asarray(v, np.float64) for k, v in next(_examples(traced, inputs, batch)).items()}
    numbers = np.random.default_rng(case.seed)
    direction = {name: numbers.normal(size=array.shape) for name, array in traced.parameters.items()}
    loss = traced.graph.outputs["loss"].find()

    def at(step: float) -> float:
        moved = example | {n: traced.parameters[n] + step * d for n, d in direction.items()}
        return float(_wide(loss, moved, batch).sum())

    gradient = sum(float((_wide(node, example, batch) * direction[n]).sum()) for n, node in gradients.items())
    slopes = [(at(h) - at(-h)) / (2 * h) for h in (1e-5, 0.5e-5, 1e-6)]
    scale = max(1.0, abs(gradient), *map(abs, slopes))
    if not np.isfinite(scale) or max(slopes) - min(slopes) > 1e-5 * scale:
        counts["no difference quotient"] += 1  # a kink nearby
        return
    counts["gradients"] += 1
    if abs(gradient - slopes[1]) > 1e-4 * scale:
        case.failures.append(f"gradient along a direction: {gradient!r} by the VJPs, {slopes} by differences")


def _wide(node: Node, inputs: Arrays, batch: int) -> Array:
    """The value of a node in float64, by the references alone."""
    values: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        for n in topological([node]):
            if n.op is st.input_:
                values[n] = np.asarray(inputs[n.attrs["name"]])
            else:
                attrs = {k: concrete(v, {"batch": batch}) for k, v in n.attrs.items()}
                if n.op is ew.cast and n.type.dtype.kind == "f":
                    attrs["dtype"] = f64
                result = np.asarray(n.op.reference(*[values[a.find()] for a in n.args], **attrs))
                values[n] = result.astype(np.float64) if n.type.dtype.kind == "f" else result
    return values[node.find()]


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(first: int, count: int, isas: tuple[str, ...] = AVAILABLE) -> tuple[list[Case], Counter[str]]:
    """The cases of ``count`` seeds from ``first`` on that failed, and what was compared."""
    counts: Counter[str] = Counter()
    failed: list[Case] = []
    for start in range(first, first + count, PER_FILE):
        cases: list[Case] = []
        for seed in range(start, min(start + PER_FILE, first + count)):
            try:
                cases.append(make_case(seed))
            except Exception:
                failed.append(Case(f"g{seed}", Traced(Graph("model"), {}), seed, [traceback.format_exc(limit=-4)]))
        counts["graphs"] += len(cases)
        with _scratch() as folder:
            run_cases(cases, isas[start // PER_FILE % len(isas)], folder, counts)
        failed += [case for case in cases if case.failures]
    return failed, counts


def report(failed: list[Case], counts: Counter[str], *, most: int = 10) -> str:
    """A summary, and the graphs that failed."""
    lines = [", ".join(f"{n:,} {what}" for what, n in counts.items())]
    for case in failed[:most]:
        text = str(case.traced.graph) if len(case.traced.graph.nodes()) <= 40 else "(a long graph)"
        lines += [f"\n{case.name}, seed {case.seed}", *case.failures[:4], text]
    return "\n".join([*lines, f"{len(failed)} graphs failed: {[case.seed for case in failed]}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isa", choices=AVAILABLE, action="append", help="default: all of this machine, in turn")
    options = parser.parse_args()
    started = time.monotonic()
    failed, counts = run(options.seed, options.count, tuple(options.isa or AVAILABLE))
    print(report(failed, counts), f"in {time.monotonic() - started:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
