"""Every op of the registry: its rules against its reference."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Node, Type, dim, verify
from mlaot.ir.types import BY_NUMPY, DTYPES, DType, boolean, f16, f32, f64, i8, i32
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.transforms.batch import batch
from mlaot.transforms.differentiate import differentiate

from ..projects import ROOT
from .samples import LATE, SAMPLES, SHAPES, Sample, samples

Array = np.ndarray[Any, Any]
LEAVES = ("input",)
CONTROL = ("cond", "scan", "while", "result")  # with subgraphs or several results: test_control.py
COUNTING = ("count", "counted")  # of dims, which a graph of one op has not: tests/onnx/test_counting.py
NO_ARGUMENTS = ("input", "const", "size", "iota")
NAMES = sorted(set(OPS) - {*LEAVES, *CONTROL, *COUNTING})
WITH_ARGUMENTS = sorted(set(NAMES) - set(NO_ARGUMENTS))
ELEMENTWISE = [n for n in NAMES if OPS[n].elementwise]


def graph_of(name: str, sample: Sample, dtype: DType = f64) -> tuple[Graph, Node, dict[str, Array]]:
    """A graph of one op over inputs ``a0``, ``a1``.., and their values."""
    graph = Graph("f")
    inputs: dict[str, Array] = {}
    nodes = []
    for i, array in enumerate(sample.args):
        kind = dtype if array.dtype.kind == "f" and name not in LATE else BY_NUMPY[str(array.dtype)]
        nodes.append(graph.input(f"a{i}", Type(kind, array.shape)))
        inputs[f"a{i}"] = array.astype(kind.numpy)
    node = graph.add(OPS[name], nodes, sample.attrs)
    graph.outputs["y"] = node
    return graph, node, inputs


def dtypes_of(name: str) -> tuple[DType, ...]:
    """The dtypes of floats that an op is tested with."""
    return (f64,) if name == "bitcast" else (f32,) if name in LATE else (f32, f64)


def test_every_op_is_sampled() -> None:
    assert set(SAMPLES) == set(NAMES)
    assert len(SHAPES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_rules_are_there(name: str) -> None:
    """An op with arguments has a gradient and a batching rule; an elementwise one has C."""
    op = OPS[name]
    assert op.vjp is not None
    if name in WITH_ARGUMENTS:
        assert op.axes is not None or op.batch is not None
    if op.elementwise:
        assert op.c is not None


@pytest.mark.parametrize("name", NAMES)
def test_type_rule_is_what_the_reference_gives(name: str) -> None:
    for sample, dtype in product(samples(name), dtypes_of(name)):
        _, node, inputs = graph_of(name, sample, dtype)
        with np.errstate(all="ignore"):
            result = np.asarray(OPS[name].reference(*inputs.values(), **sample.attrs))
        found = Type(BY_NUMPY[str(result.dtype)], result.shape)
        assert found == node.type, f"{name} of {[str(a.shape) for a in sample.args]} {sample.attrs}"


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.name != "bf16"], ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_type_rule_of_every_dtype(name: str, dtype: DType) -> None:
    """What the type rule takes, the reference computes, and says the same of its dtype."""
    sample = samples(name)[3]
    first = 1 if name == "where" else 0
    args = [*sample.args[:first], *[a.astype(dtype.numpy) for a in sample.args[first:]]]
    try:
        expected = OPS[name].type_rule(*[Type(BY_NUMPY[str(a.dtype)], a.shape) for a in args], **sample.attrs)
    except MlaotError:
        return
    with np.errstate(all="ignore"):
        result = np.asarray(OPS[name].reference(*args, **sample.attrs))
    assert Type(BY_NUMPY[str(result.dtype)], result.shape) == expected


@pytest.mark.parametrize("name", [n for n in WITH_ARGUMENTS if n not in ("stop_gradient", *LATE)])
def test_vjp_is_the_difference_quotient(name: str) -> None:
    """Along two random directions for each argument, in float64."""
    for sample in samples(name):
        graph, node, inputs = graph_of(name, sample)
        if node.type.dtype.kind != "f":
            continue
        rng = np.random.default_rng(len(graph.inputs))
        loss = weighted(node, rng)
        check_gradient(graph, loss, inputs, rng, 1e-6, f"{name} {sample.attrs}")


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if n != "stop_gradient"])
def test_vjp_of_vjp_is_the_difference_quotient(name: str) -> None:
    """The gradient of a weighted sum of gradients."""
    for sample in samples(name)[3:12]:
        graph, node, inputs = graph_of(name, sample)
        wanted = [graph.inputs[k] for k, v in inputs.items() if v.dtype.kind == "f"]
        if node.type.dtype.kind != "f" or not wanted:
            continue
        rng = np.random.default_rng(len(graph.inputs))
        gradients = differentiate(weighted(node, rng), wanted)
        loss = weighted(gradients[0], rng)
        for gradient in gradients[1:]:
            loss = ew.add(loss, weighted(gradient, rng))
        check_gradient(graph, loss, inputs, rng, 1e-5, f"second derivative of {name} {sample.attrs}")


def weighted(node: Node, rng: np.random.Generator) -> Node:
    """The sum of all elements, each times a random number."""
    shape = [int(d) for d in node.type.shape]  # type: ignore[arg-type]
    product = ew.mul(node, node.graph.constant(rng.normal(size=shape), node.type.dtype))
    return red.sum_(product, axes=tuple(range(node.type.rank))) if node.type.rank else product


def check_gradient(
    graph: Graph, loss: Node, inputs: dict[str, Array], rng: np.random.Generator, tolerance: float, what: str
) -> None:
    """The gradient of ``loss`` by each float input, along two directions, is the difference quotient."""
    wanted = [k for k, v in inputs.items() if v.dtype.kind == "f"]
    gradients = differentiate(loss, [graph.inputs[k] for k in wanted])
    graph.outputs = {"loss": loss} | dict(zip(wanted, gradients, strict=True))
    verify(graph, "differentiate")
    found = evaluate(graph, inputs, wide=True)
    for key, _ in product(wanted, range(2)):
        value = inputs[key]
        direction = rng.normal(size=value.shape)
        moved = (inputs | {key: value + h * direction} for h in (1e-6, -1e-6))
        ahead, behind = (float(evaluate(graph, m, wide=True)["loss"]) for m in moved)
        expected = (ahead - behind) / 2e-6
        actual = float((found[key] * direction).sum())
        scale = max(1.0, float(np.abs(found[key] * direction).sum()))
        where = f"{what} of {[a.shape for a in inputs.values()]} by {key}: {actual}, {expected}"
        assert abs(actual - expected) <= tolerance * scale, where


def test_gradient_of_equal_values_is_shared() -> None:
    """max(x, x') with x == x' gives each half, as PyTorch's and JAX's maximum do."""
    graph = Graph("f")
    a, b = (graph.input(n, Type(f64, (3,))) for n in "ab")
    for op, wanted in ((ew.maximum, [0.5, 1.0, 0.0]), (ew.minimum, [0.5, 0.0, 1.0])):
        gradients = differentiate(red.sum_(op(a, b), axes=(0,)), [a, b])
        graph.outputs = dict(zip(("da", "db"), gradients, strict=True))
        found = evaluate(graph, {"a": [1.0, 2.0, 3.0], "b": [1.0, 1.0, 4.0]})
        assert found["da"].tolist() == wanted and found["db"].tolist() == [1 - w for w in wanted]


def test_gradient_at_kinks() -> None:
    graph = Graph("f")
    x = graph.input("x", Type(f64, (3,)))
    for op, wanted in ((ew.relu, [0.0, 0.0, 1.0]), (ew.abs_, [-1.0, 0.0, 1.0])):
        graph.outputs["d"] = differentiate(red.sum_(op(x), axes=(0,)), [x])[0]
        assert evaluate(graph, {"x": [-1.0, 0.0, 1.0]})["d"].tolist() == wanted


@pytest.mark.parametrize("name", [n for n in WITH_ARGUMENTS if not OPS[n].draws and n not in LATE])
def test_batching_is_a_loop(name: str) -> None:
    """With each argument batched or not, the batched op is the op on each example."""
    for sample in samples(name):
        graph, _, inputs = graph_of(name, sample)
        flags = list(product((True, False), repeat=len(inputs)))[:-1][:7]
        for some in flags:
            shared = [key for key, batched in zip(inputs, some, strict=True) if not batched]
            batched = batch(graph, dim("batch"), shared)
            verify(batched, "batch")
            rng = np.random.default_rng(0)
            mixed = {k: rng.permutation(v.reshape(-1)).reshape(v.shape) for k, v in inputs.items()}
            many = {k: v if k in shared else np.stack([v, mixed[k], v]) for k, v in inputs.items()}
            found = evaluate(batched, many)["y"]
            examples = [{k: v if k in shared else v[i] for k, v in many.items()} for i in range(3)]
            loop = [evaluate(graph, example)["y"] for example in examples]
            what = f"{name} {sample.attrs} {some}"
            np.testing.assert_allclose(found, np.stack(loop), rtol=1e-12, atol=1e-12, err_msg=what)
            assert tuple(found.shape[1:]) == graph.outputs["y"].type.shape


def refused(text: str, op: str, *types: Type, **attrs: Any) -> None:
    """The type rule refuses these arguments with these words."""
    with pytest.raises(MlaotError) as error:
        OPS[op].type_rule(*types, **attrs)
    assert text in str(error.value), str(error.value)


def test_type_rules_say_what_they_got() -> None:
    refused("f32[3] and f32[4]", "add", f32[3], f32[4])
    refused("f32[3] and f64[3]", "mul", f32[3], f64[3])
    refused("div takes floating-point numbers, got i32[3]; cast it first", "div", i32[3], i32[3])
    refused("add takes numbers, got bool[3]", "add", boolean[3], boolean[3])
    refused("bitwise_or takes integers or bools, got f32[3]", "bitwise_or", f32[3], f32[3])
    refused("left_shift takes integers, got bool[3]", "left_shift", boolean[3], boolean[3])
    refused("less takes numbers, got bool[3]", "less", boolean[3], boolean[3])
    refused("nextafter takes f32 or f64, got f16[3]", "nextafter", f16[3], f16[3])
    refused("pow of i8[3] takes an exponent", "pow", i8[3], exponent=-1)
    refused("pow of i8[3] takes an exponent", "pow", i8[3], exponent=128)
    refused("pow of i8[3] takes an exponent", "pow", i8[3], exponent=0.5)
    refused("got f32[3], f32[3], f32[3]", "where", f32[3], f32[3], f32[3])
    refused("got bool[3], f32[3], f64[3]", "where", boolean[3], f32[3], f64[3])
    refused("got bool[3], f32[4], f32[4]", "where", boolean[3], f32[4], f32[4])
    refused("cannot reduce f32[3] over axes (1,)", "sum", f32[3], axes=(1,))
    refused("cannot reduce f32[3,3] over axes (0, 0)", "max", f32[3, 3], axes=(0, 0))
    refused("cannot broadcast f32[3] to [3, 4] along axes (1,)", "broadcast", f32[3], shape=(3, 4), axes=(1,))
    refused("cannot broadcast f32[2,3] to [3, 2]", "broadcast", f32[2, 3], shape=(3, 2), axes=(1, 0))
    refused("cannot transpose f32[2,3] by (0, 0)", "transpose", f32[2, 3], perm=(0, 0))
    refused("cannot reshape f32[2,3] to [5]", "reshape", f32[2, 3], shape=(5,))
    refused("is outside 0..2", "take", f32[3], indices=st.indices([3]))
    refused("is outside 0..2", "take", f32[3], indices=st.indices([-1]))
    refused("needs one size for b, got 3 and 4", "contract", f32[2, 3], f32[4], spec="ab,b->a")
    refused("does not fit", "contract", f32[2, 3], f32[3], spec="a,b->ab")
    refused("does not fit", "contract", f32[3], f64[3], spec="a,a->")
    refused("does not fit", "contract", f32[3], f32[3], spec="a,a->b")
    refused("power 3 does not fit", "contract_differences", f32[3], f32[3], spec="a,a->", power=3)
    refused("does not fit", "contract_differences", f32[2, 3], f32[2], spec="ab,a->a", power=1)
    refused("operands of one type", "stack", f32[3], f32[4])
    refused("cannot concatenate", "concat", f32[2, 3], f32[3, 3], axis=1)
    refused("integer labels", "one_hot", f32[3], classes=4, dtype=f32)


def test_named_dims_never_broadcast() -> None:
    n, m = dim("n"), dim("m")
    refused("f32[n] and f32[m]", "add", f32[n], f32[m])
    assert OPS["add"].type_rule(f32[n + 1], f32[1 + n]) == f32[n + 1]
    assert OPS["reshape"].type_rule(f32[n, 4], shape=(n * 4,)) == f32[4 * n]
    refused("cannot reshape", "reshape", f32[n, 4], shape=(n,))
    assert OPS["contract"].type_rule(f32[n, 4], f32[3, 4], spec="ab,cb->ac") == f32[n, 3]


@pytest.mark.parametrize("name", ["contract", "contract_differences"])
def test_large_contractions_are_evaluated_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(sample, OPS[name].reference(*sample.args, **sample.attrs)) for sample in samples(name)]
    monkeypatch.setattr(red, "PART", 3)
    for sample, whole in cases:
        found = OPS[name].reference(*sample.args, **sample.attrs)
        np.testing.assert_allclose(found, whole, 1e-12, 1e-12, err_msg=str(sample.attrs))


def integers_only(name: str) -> set[int]:
    """Arguments that must be integers, of any dtype, which is not that of the result: indices."""
    found = set()
    for sample in samples(name):
        types = [Type(BY_NUMPY[str(a.dtype)], a.shape) for a in sample.args]
        for k in range(len(types)):
            results = []
            for dtype in (i8, i32, DTYPES["u64"], f32):
                try:
                    given = [Type(dtype, t.shape) if i == k else t for i, t in enumerate(types)]
                    results.append(OPS[name].type_rule(*given, **sample.attrs))
                except MlaotError:
                    results.append(None)
            if results[0] is not None and results == [results[0]] * 3 + [None]:
                found.add(k)
    return found


@pytest.mark.parametrize("name", WITH_ARGUMENTS)
def test_an_op_with_indices_says_what_becomes_of_those_out_of_range(name: str) -> None:
    """Then a caller's are checked, and the documentation has the rule for others."""
    index = OPS[name].index
    assert name == "index" or integers_only(name) == (set() if index is None else {index.argument})
    if index is not None:
        rows = [
            line for line in (ROOT / "docs" / "ops.md").read_text().splitlines() if line.startswith(f"| `{name}` |")
        ]
        assert len(rows) == 1 and f"; indices out of range: {index.out_of_range} |" in rows[0]
