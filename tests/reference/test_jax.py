"""Gradients against JAX's in float64 (``make_jax.py``): of every differentiable op, and of functions of models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Type
from mlaot.ir.types import BY_NUMPY
from mlaot.nn import functional as F
from mlaot.ops import OPS
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.transforms.differentiate import differentiate

from ..ops.samples import Sample
from .jax_cases import DIFFERENT, FUNCTIONS, chosen, cotangent, differentiable

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).with_name("jax.npz")))
TOLERANCE = 1e-9
NAMESPACE = SimpleNamespace(
    np=np,
    relu=mlaot.relu,
    gelu=mlaot.gelu,
    gelu_tanh=partial(mlaot.gelu, approximate=True),
    silu=mlaot.silu,
    softplus=mlaot.softplus,
    sigmoid=mlaot.sigmoid,
    softmax=mlaot.softmax,
    log_softmax=mlaot.log_softmax,
    logsumexp=mlaot.logsumexp,
    erf=mlaot.erf,
    top_k=mlaot.top_k,
    conv2d=F.conv2d,
    max_pool2d=F.max_pool2d,
    avg_pool2d=F.avg_pool2d,
    scan=mlaot.scan,
    while_loop=mlaot.while_loop,
    cond=mlaot.cond,
    fori_loop=mlaot.fori_loop,
    vmap=mlaot.vmap,
    grad=mlaot.grad,
    jvp=mlaot.jvp,
    stop_gradient=mlaot.stop_gradient,
)


def of_op(name: str, sample: Sample) -> list[Array]:
    """The gradients by every argument of floats, by the rules of the op."""
    graph = Graph("f")
    args = [graph.input(f"a{i}", Type(BY_NUMPY[str(a.dtype)], a.shape)) for i, a in enumerate(sample.args)]
    node = graph.add(OPS[name], args, sample.attrs)
    loss = red.sum_(ew.mul(node, graph.input("ct", node.type)), axes=tuple(range(node.type.rank)))
    wanted = [a for a in args if a.type.dtype.kind == "f"]
    graph.outputs = {str(i): g for i, g in enumerate(differentiate(loss, wanted))}
    given = {f"a{i}": a for i, a in enumerate(sample.args)} | {"ct": cotangent(name, tuple(map(int, node.type.shape)))}
    return list(evaluate(graph, given, wide=True).values())


def flat(arrays: list[Array]) -> Array:
    return np.concatenate([np.reshape(a, -1) for a in arrays])


def assert_close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_every_differentiable_op_is_compared() -> None:
    """Or it is said why not. Where JAX is not at hand, differences (tests/ops) are enough for an op that is new."""
    pytest.importorskip("jax")
    assert {k[3:] for k in DATA if k.startswith("op ")} == set(differentiable()) - set(DIFFERENT)
    assert {k for k in DATA if not k.startswith("op ")} == {*FUNCTIONS, "jax"}


@pytest.mark.parametrize("name", [n for n in differentiable() if f"op {n}" in DATA])
def test_op(name: str) -> None:
    assert_close(flat([g for sample in chosen(name) for g in of_op(name, sample)]), DATA[f"op {name}"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    case = FUNCTIONS[name]
    arrays = tuple(case.arrays(name))

    def loss(*xs: Any) -> Any:
        out = case.function(NAMESPACE, *xs)
        return np.sum(out * cotangent(name, out.shape))

    assert_close(flat(list(mlaot.grad(loss, tuple(range(len(arrays))))(*arrays))), DATA[name])
