"""How axes go through ops: what the map of an op says is true of its reference, and its forms are the op."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type, verify
from mlaot.ir.types import BY_NUMPY, f32
from mlaot.ops import OPS
from mlaot.ops import cumulative as cum
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.axes import Labels, regroup
from mlaot.ops.relayout import Laid, lay_out

from .samples import LATE, Sample, samples

Array = np.ndarray[Any, Any]
NAMES = sorted(name for name, op in OPS.items() if op.axes is not None)
NEW = "new"


def inputs_of(graph: Graph, arrays: list[Array]) -> list[Node]:
    """Inputs ``a0``, ``a1``.. for arrays."""
    kinds = [BY_NUMPY[str(a.dtype)] for a in arrays]
    return [graph.input(f"a{i}", Type(kind, a.shape)) for i, (kind, a) in enumerate(zip(kinds, arrays, strict=True))]


def node_of(name: str, sample: Sample) -> Node:
    graph = Graph("f")
    return graph.add(OPS[name], inputs_of(graph, list(sample.args)), sample.attrs)


def value(graph: Graph, node: Node, arrays: list[Array]) -> Array:
    graph.outputs = {"y": node}
    verify(graph, "layout")
    return np.asarray(evaluate(graph, {f"a{i}": a for i, a in enumerate(arrays)}, wide=True)["y"])


def shuffled(labels: Labels, rng: np.random.Generator) -> Labels:
    return tuple(labels[i] for i in rng.permutation(len(labels)))


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_of_axes(name: str) -> None:
    """Every axis has one label, and axes of one label have one extent where it is kept."""
    for sample in samples(name):
        node = node_of(name, sample)
        axes = OPS[name].axes.of(node)  # type: ignore[union-attr]
        types = [*[a.type for a in node.args], node.type]
        for labels, type_ in zip((*axes.args, axes.result), types, strict=True):
            assert len(labels) == len(set(labels)) == type_.rank, sample.attrs
        extents: dict[object, int] = {}
        for labels, type_ in zip((*axes.args, axes.result), types, strict=True):
            for label, extent in zip(labels, type_.shape, strict=True):
                assert label in axes.whole or extents.setdefault(label, extent) == extent, sample.attrs


@pytest.mark.parametrize("name", NAMES)
def test_kept_axes_are_computed_element_by_element(name: str) -> None:
    """Shuffled along a kept axis, arguments give the result shuffled; along a summed one, the same result."""
    rng = np.random.default_rng(0)
    for sample in samples(name):
        node = node_of(name, sample)
        axes = OPS[name].axes.of(node)  # type: ignore[union-attr]
        plain = value(node.graph, node, list(sample.args))
        for label in {label for labels in axes.args for label in labels} - axes.whole:
            read = [(a, labels) for a, labels in zip(sample.args, axes.args, strict=True) if label in labels]
            order = rng.permutation(read[0][0].shape[read[0][1].index(label)])
            mixed = [
                np.take(a, order, labels.index(label)) if label in labels else a
                for a, labels in zip(sample.args, axes.args, strict=True)
            ]
            expected = np.take(plain, order, axes.result.index(label)) if label in axes.result else plain
            found = value(node.graph, node, mixed)
            np.testing.assert_allclose(found, expected, 1e-12, 1e-12, err_msg=f"{name} {sample.attrs} along {label}")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("random_bits", *LATE)])
def test_form_in_any_layout_is_the_op(name: str) -> None:
    """With axes in any order and one more among them, in any of the arguments, the form gives what the op gives."""
    rng = np.random.default_rng(1)
    forms = 0
    for sample, keeps_order in product(samples(name), (True, False)):
        node = node_of(name, sample)
        axes = OPS[name].axes.of(node)  # type: ignore[union-attr]
        has_new = rng.integers(0, 2, len(sample.args)).astype(bool)
        has_new[rng.integers(len(sample.args))] = True
        arrays, layouts = [], []
        for a, labels, more in zip(sample.args, axes.args, has_new, strict=True):
            own = (NEW, *labels) if more else labels
            stacked = np.stack([a, np.flip(a), a]) if more else a
            layout = own if keeps_order else shuffled(own, rng)
            arrays.append(np.transpose(stacked, [own.index(label) for label in layout]))
            layouts.append(layout)
        graph = Graph("f")
        nodes = inputs_of(graph, arrays)
        laid = lay_out(node, list(map(Laid, nodes, layouts)))
        if laid is None:
            continue
        forms += 1
        found = value(graph, laid.node, arrays)
        loop = []
        for i in range(3):
            example = [
                np.take(np.transpose(a, [layout.index(c) for c in ((NEW, *labels) if more else labels)]), i, 0)
                if more
                else np.transpose(a, [layout.index(c) for c in labels])
                for a, layout, labels, more in zip(arrays, layouts, axes.args, has_new, strict=True)
            ]
            loop.append(value(node.graph, node, example))
        order = [laid.labels.index(label) for label in (NEW, *axes.result)]
        what = f"{name} {sample.attrs} {layouts}"
        np.testing.assert_allclose(np.transpose(found, order), np.stack(loop), 1e-12, 1e-12, err_msg=what)
    assert forms or name == "sparse_add", f"{name} has no form in another layout"


def text_of(node: Node) -> str:
    """The line of a node."""
    node.graph.outputs = {"y": node}
    return str(node.graph).splitlines()[-2].strip().split(" = ")[1]


def test_a_contraction_takes_a_new_axis_anywhere() -> None:
    graph, plain = Graph("f"), Graph("g")
    node = red.contract(plain.input("a", f32[3, 5]), plain.input("b", f32[5, 6]), spec="ac,cb->ab")
    a, b = graph.input("a", f32[3, 4, 5]), graph.input("b", f32[5, 6])
    laid = lay_out(node, [Laid(a, ("a", NEW, "c")), Laid(b, ("c", "b"))], (NEW, "b", "a"))
    assert laid is not None
    assert text_of(laid.node) == "contract(v0, v1, spec=anc,cb->nba) : f32[4,6,3]"


def test_what_an_op_needs_whole_is_not_taken_apart() -> None:
    graph, plain = Graph("f"), Graph("g")
    sums = cum.cumsum(plain.input("x", f32[2, 6]), axis=1)
    assert lay_out(sums, [Laid(graph.input("x", f32[2]), (0,))]) is None
    merged = st.reshape(plain.input("x", f32[2, 6]), shape=(12,))
    assert lay_out(merged, [Laid(graph.input("y", f32[6, 2]), (1, 0))]) is None
    assert lay_out(merged, [Laid(graph.input("z", f32[2, 5, 6]), (0, NEW, 1))]) is None


def test_a_reshape_keeps_what_it_does_not_merge() -> None:
    graph, plain = Graph("f"), Graph("g")
    node = st.reshape(plain.input("x", f32[2, 3, 4, 5]), shape=(2, 1, 12, 5))
    laid = lay_out(node, [Laid(graph.input("x", f32[3, 4, 5, 7, 2]), (1, 2, 3, NEW, 0))])
    assert laid is not None
    assert text_of(laid.node) == "reshape(v0, shape=(1, 12, 5, 7, 2)) : f32[1,12,5,7,2]"
    assert laid.labels[1:] == (6, 3, NEW, 0)


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ((2, 3), (6,), [([0, 1], [0])]),
        ((2, 1, 3), (2, 3), [([0], [0]), ([2], [1])]),
        ((4, 6), (8, 3), [([0, 1], [0, 1])]),
        ((), (1, 1), []),
    ],
)
def test_regrouped(source: Any, target: Any, groups: Any) -> None:
    assert regroup(source, target) == groups
