"""Which elements of which inputs are found to be indices, and what they may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Type
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import Module
from mlaot.ir.types import Literal, f32, f64, i32, i64
from mlaot.loading import trace
from mlaot.nn import functional as F
from mlaot.ops import control as ctl
from mlaot.ops import elementwise as ew
from mlaot.ops import indexing as ix
from mlaot.ops import structure as st
from mlaot.passes.algebra.index_ranges import index_ranges

Array = np.ndarray[Any, Any]
BATCH, N = mlaot.dim("batch"), mlaot.dim("n")
Function = Callable[..., Any]


def ranges(function: Function, **inputs: Any) -> dict[str, tuple[IndexRange, ...]]:
    """Of the inputs of a model."""
    function.__annotations__ = inputs
    return passes.run("m", trace(mlaot.model(function))).ranges["forward"]


def of_example(found: tuple[IndexRange, ...]) -> set[IndexRange]:
    """Ranges without the axis of the batch, of which all is read."""
    assert all(not range_.box or range_.box[0] is None for range_ in found)
    return {replace(range_, box=range_.box[1:]) for range_ in found}


def wrapping(size: Any, *box: Any) -> tuple[IndexRange, ...]:
    return (IndexRange(size, wraps=True, box=box),)


FOLLOWED: dict[str, tuple[Function, tuple[IndexRange, ...]]] = {
    "all": (lambda x, i: x[i], wrapping(5)),
    "another dtype": (lambda x, i: x[i.astype(np.int32)], wrapping(5)),
    "stop_gradient": (lambda x, i: x[mlaot.stop_gradient(i)], wrapping(5)),
    "transpose": (lambda x, i: x[i.T], wrapping(5)),
    "reshape": (lambda x, i: x[np.reshape(i, (2, 6))], wrapping(5)),
    "broadcast": (lambda x, i: x[np.broadcast_to(i, (2, 4, 3))], wrapping(5)),
    "row": (lambda x, i: x[i[1]], wrapping(5, (1, 1, 1), None)),
    "column": (lambda x, i: x[i[:, 2]], wrapping(5, None, (2, 1, 1))),
    "element": (lambda x, i: x[i[1, 2]], wrapping(5, (1, 1, 1), (2, 1, 1))),
    "from the end": (lambda x, i: x[i[::-1, ::2]], wrapping(5, None, (0, 2, 2))),
    "slice of a transpose": (lambda x, i: x[i.T[1:]], wrapping(5, None, (1, 2, 1))),
    "part of a reshape": (lambda x, i: x[np.reshape(i, (2, 6))[1]], wrapping(5, (2, 2, 1), None)),
    "chosen rows": (lambda x, i: x[i[[0, 3]]], wrapping(5, (0, 2, 3), None)),
    "concatenated": (lambda x, i: x[np.concatenate([np.zeros((1, 3), int), i])], wrapping(5)),
    "cut from a concatenation": (
        lambda x, i: x[np.concatenate([np.zeros((1, 3), int), i])[:-1]],
        wrapping(5, (0, 3, 1), None),
    ),
    "stacked": (lambda x, i: x[np.stack([i, i * 0])], wrapping(5)),
    "padded": (lambda x, i: x[np.pad(i, 1)], wrapping(5)),
    "repeated": (lambda x, i: x[np.repeat(i, 2, axis=0)], wrapping(5)),
    "rolled": (lambda x, i: x[np.roll(i, 1, axis=0)], ()),  # a concatenation of two parts: see below
    "scan": (lambda x, i: mlaot.scan(lambda c, j: (c, x[j]), 0.0, i)[1], wrapping(5)),
    "scan over a part": (lambda x, i: mlaot.scan(lambda c, j: (c, x[j[0]]), 0.0, i)[1], wrapping(5, None, (0, 1, 1))),
    "constant in a scan": (
        lambda x, i: mlaot.scan(lambda c, j: (c, x[i[0, 0]] * j), 0.0, x)[1],
        wrapping(5, (0, 1, 1), (0, 1, 1)),
    ),
    "vmap": (lambda x, i: mlaot.vmap(lambda row: x[row[0]])(i), wrapping(5, None, (0, 1, 1))),
    "gradient": (lambda x, i: mlaot.grad(lambda y: y[i].sum())(x), wrapping(5)),
    "embedding": (lambda x, i: F.embedding(i, x), (IndexRange(5),)),
    "one_hot": (lambda x, i: mlaot.one_hot(i, 7), (IndexRange(7),)),
    "functional one_hot": (lambda x, i: F.one_hot(i, 7), (IndexRange(7),)),
    "choose": (lambda x, i: np.choose(i, [0, 1, 2]), (IndexRange(3),)),
    "two axes": (lambda x, i: x[i[0], i[1]], (*wrapping(5, (0, 1, 1), None), *wrapping(2, (1, 1, 1), None))),
    "twice": (lambda x, i: (x[i], mlaot.one_hot(i, 4), mlaot.one_hot(i, 9)), (IndexRange(4),)),
    "whole and part": (
        lambda x, i: (x[i], mlaot.one_hot(i[0], 3)),
        (*wrapping(5), IndexRange(3, box=((0, 1, 1), None))),
    ),
    "ignored": (
        lambda x, i: F.cross_entropy(np.zeros((4, 6, 3)) * x[0, 0], i, ignore_index=-7),
        (IndexRange(6, ignored=-7),),
    ),
    "set": (lambda x, i: x.at[i[:, 0]].set(0.0), wrapping(5, None, (0, 1, 1))),
    "added": (lambda x, i: x.at[:, i[0]].add(1.0), wrapping(2, (0, 1, 1), None)),
    "scatter": (lambda x, i: mlaot.scatter(x, i[0], 1.0), wrapping(5, (0, 1, 1), None)),
    "put_along_axis": (lambda x, i: mlaot.put_along_axis(x, i[:, :2], 1.0, axis=0), wrapping(5, None, (0, 2, 1))),
    "take_along_axis": (lambda x, i: np.take_along_axis(x, i[:, :2], axis=0), wrapping(5, None, (0, 2, 1))),
}
FOLLOWED["rolled"] = (FOLLOWED["rolled"][0], wrapping(5, (3, 1, 1), None) + wrapping(5, (0, 3, 1), None))


@pytest.mark.parametrize("case", FOLLOWED)
def test_indices_are_followed(case: str) -> None:
    function, expected = FOLLOWED[case]

    def model(x: Any, i: Any) -> Any:
        return function(x, i)

    found = ranges(model, x=mlaot.f64[5, 2], i=mlaot.i64[4, 3])
    assert of_example(found.get("i", ())) == set(expected) and set(found) == {"i"}


COMPUTED: dict[str, Function] = {
    "sum": lambda x, i: x[i + 1],
    "guarded": lambda x, i: x[np.where(i < 0, 0, i)],
    "clipped": lambda x, i: np.take(x, i, axis=0, mode="clip"),
    "wrapped": lambda x, i: np.take(x, i, axis=0, mode="wrap"),
    "argmax": lambda x, i: x[np.argmax(i, axis=1)],
    "sorted": lambda x, i: x[np.sort(i, axis=0)],
    "looked up": lambda x, i: x[i[np.argmax(i, axis=0), 0]],
    "branch": lambda x, i: mlaot.cond(i[0, 0] < 5, lambda: x[i[0, 0]], lambda: x[0]),
    "while": lambda x, i: mlaot.while_loop(lambda k: k < 5, lambda k: k + x[k, 0].astype(int), i[0, 0], bound=5),
    "number": lambda x, i: x * i[0, 0],
}


@pytest.mark.parametrize("case", COMPUTED)
def test_what_is_computed_is_no_callers(case: str) -> None:
    def model(x: Any, i: Any) -> Any:
        return COMPUTED[case](x, i)

    assert ranges(model, x=mlaot.f64[5, 2], i=mlaot.i64[4, 3]) == {}


def test_sizes_may_be_named() -> None:
    def model(x: Any, i: Any) -> Any:
        return x[i[1:]]

    found = ranges(model, x=mlaot.f64[N, 2], i=mlaot.i64[BATCH])
    assert found == {"i": (IndexRange(N, wraps=True, box=((1, BATCH - 1, 1),)),)}


def test_entries_have_their_own() -> None:
    """What only the loss takes for an index may be anything in forward()."""
    w = mlaot.parameters({"w": np.ones((4, 3))})

    def loss(scores: Any, x: mlaot.i64[2]) -> Any:
        return F.cross_entropy(scores, x[0])

    @mlaot.model(loss=loss, parameters=w)
    def model(x: mlaot.i64[2]) -> Any:
        return x.astype(np.float64)[0] * w["w"][0] + w["w"][x[1]]

    found = passes.run("m", trace(model)).ranges
    row = IndexRange(4, wraps=True, box=(None, (1, 1, 1)))
    label = IndexRange(3, ignored=-100, box=(None, (0, 1, 1)))
    assert found["forward"] == {"x": (row,)}
    for entry in ("loss", "train_step", "accumulate"):
        assert set(found[entry]["x"]) == {row, label}


def test_training_in_tiles() -> None:
    """The rows of a tile are computed, the labels are still the caller's."""
    net = nn.Conv1d(1, 3, 3, rng=0)

    def loss(scores: Any, label: mlaot.i64) -> Any:
        return F.cross_entropy(scores, label)

    @mlaot.model(loss=loss, parameters=net)
    def model(x: mlaot.f32[1, 9]) -> Any:
        return net(x).max(axis=1)

    module = passes.run("m", trace(model))
    assert any(node.op is ctl.scan for node in module.graphs["train_step"].nodes())
    for entry in ("loss", "train_step", "accumulate"):
        assert module.ranges[entry] == {"label": (IndexRange(3, ignored=-100),)}


def test_nothing_is_left_of_the_notes() -> None:
    graph = Graph("forward")
    label = graph.input("label", Type(i64, (3,)))
    graph.outputs["y"] = st.one_hot(ix.index(label, size=4, wraps=False, ignored=None), classes=5, dtype=f32)
    module = Module("m", {"forward": graph}, {}, False)
    index_ranges(module)
    assert module.ranges == {"forward": {"label": (IndexRange(4),)}}
    assert str(graph).count("index") == 0 and label.find() in graph.nodes()


# Random chains of moves: what is found is what is read.


def moved(graph: Graph, node: Any, rng: np.random.Generator) -> Any:
    """A random move of a value."""
    shape, rank = node.type.shape, node.type.rank
    kind = rng.choice(["slice", "transpose", "reshape", "take", "stack", "concat", "broadcast", "cast", "item"])
    if kind == "slice" and rank:
        steps = [int(rng.choice([1, 1, 2, -1, -2])) for _ in shape]
        sizes = [int(rng.integers(1, (n - 1) // abs(s) + 2)) for n, s in zip(shape, steps, strict=True)]
        starts = [
            int(rng.integers(0, n - (m - 1) * abs(s))) + (0 if s > 0 else (m - 1) * -s)
            for n, m, s in zip(shape, sizes, steps, strict=True)
        ]
        return st.slice_(node, start=tuple(starts), size=tuple(sizes), step=tuple(steps))
    if kind == "transpose" and rank:
        return st.transpose(node, perm=tuple(map(int, rng.permutation(rank))))
    if kind == "reshape":
        size = int(np.prod(shape))
        first = int(rng.choice([n for n in range(1, size + 1) if size % n == 0]))
        second = int(rng.choice([n for n in range(1, size // first + 1) if size // first % n == 0]))
        return st.reshape(node, shape=(first, second, size // first // second))
    if kind == "take" and rank:
        lead = int(rng.integers(0, rank))
        places = rng.integers(0, int(np.prod(shape[lead:])), [(), (3,), (2, 2)][rng.integers(0, 3)])
        return st.take(node, indices=Literal(places, i64), lead=lead)
    if kind == "item" and rank:
        return st.item(node, index=int(rng.integers(0, np.prod(shape))))
    if kind in ("stack", "concat") and rank and rank < 4:
        other = graph.constant(np.full(shape, -1), node.type.dtype)
        pair = [node, other] if rng.random() < 0.5 else [other, node]
        op = st.stack if kind == "stack" else st.concat
        return op(*pair, axis=int(rng.integers(0, rank + (kind == "stack"))))
    if kind == "broadcast" and rank < 4:
        return st.broadcast(node, shape=(2, *shape), axes=tuple(range(1, rank + 1)))
    return ew.cast(node, dtype=i32 if node.type.dtype is i64 else i64)


def places_in(found: Sequence[IndexRange], shape: tuple[int, ...]) -> set[int]:
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return {int(n) for range_ in found for n in range_.part(numbers, {}).flat}


def test_what_is_found_is_what_is_read() -> None:
    """No element more: it would be refused without need."""
    rng = np.random.default_rng(0)
    for number in range(400):
        graph, shape = Graph("forward"), [(6,), (2, 6), (4, 3), (2, 3, 4)][number % 4]
        index = graph.input("i", Type(i64, shape))
        node = index
        for _ in range(int(rng.integers(1, 7))):
            node = moved(graph, node, rng)
        table = graph.constant(np.zeros(int(np.prod(shape))), f64)
        graph.outputs = {"read": node, "y": ix.gather(table, node, lead=0)}
        values = evaluate(graph, {"i": np.arange(int(np.prod(shape))).reshape(shape)})
        module = Module("m", {"forward": graph}, {}, False)
        index_ranges(module)
        read = {int(n) for n in np.asarray(values["read"]).flat} - {-1}
        found = places_in(module.ranges["forward"].get("i", ()), shape)
        assert found == read, f"{graph}\n{sorted(found)} {sorted(read)}"
