"""What is differentiated by JAX and by mlaot: uses of ops, and functions written once for NumPy's names.

Inputs and cotangents come from seeds, so that the file of results holds gradients alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlaot.ops import OPS
from mlaot.ops.base import no_gradient

from ..ops.samples import SAMPLES, Sample, samples

Array = np.ndarray[Any, Any]
SIZE, COUNT = 60, 8  # the most elements of a sample's arguments, the most samples of an op
# Differentiable ops without a counterpart.
DIFFERENT = {
    "rounded": "an identity that passes alone write",
    "nextafter": "JAX has no rule; mlaot passes the cotangent on, as the result moves with x",
    "winograd_input": "JAX has no such op; tests/ops compare it with differences",
    "winograd_output": "JAX has no such op; tests/ops compare it with differences",
    "sparse": "JAX has no such op; tests/ops compare it with differences",
    "sparse_dot": "JAX has no such op; tests/ops compare it with differences",
    "sparse_add": "JAX has no such op; tests/ops compare it with differences",
}


def differentiable() -> list[str]:
    """Ops of floats that have a gradient; those with subgraphs are among the functions."""
    found = [name for name, op in OPS.items() if op.vjp not in (None, no_gradient) and name in SAMPLES]
    return [name for name in found if any(a.dtype.kind == "f" for sample in samples(name) for a in sample.args)]


def chosen(name: str) -> list[Sample]:
    """Some of an op's samples: small, not empty, and with one answer."""
    small = [s for s in samples(name) if min(a.size for a in s.args) > 0 and sum(a.size for a in s.args) <= SIZE]
    if name == "scatter":
        small = [s for s in small if s.attrs["mode"] != "set" or not has_duplicates(s)]
    return [small[i] for i in sorted({round(k) for k in np.linspace(0, len(small) - 1, COUNT)})]


def has_duplicates(sample: Sample) -> bool:
    """Whether several updates are for one place: JAX leaves open which is set."""
    x, indices, _ = sample.args
    lead = sample.attrs["lead"]
    places = np.where(indices < 0, indices + x.shape[lead], indices).reshape(int(np.prod(x.shape[:lead])), -1)
    return any(len(set(row)) < len(row) for row in places.tolist())


def cotangent(name: str, shape: tuple[int, ...]) -> Array:
    return np.asarray(np.random.default_rng(sum(name.encode())).normal(size=shape))


# Functions.


@dataclass(frozen=True)
class Case:
    """A function of a namespace and arrays of these shapes."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]

    def arrays(self, name: str) -> Iterator[Array]:
        rng = np.random.default_rng(sum(name.encode()))
        for shape in self.shapes:
            yield np.asarray(rng.normal(size=shape))


def case(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    return Case(function, shapes)


def unary(name: str) -> Case:
    return case(lambda m, x: getattr(m.np, name)(x), (3, 4))


def above(name: str) -> Case:
    return case(lambda m, x: getattr(m.np, name)(m.np.abs(x) + 1.1), (3, 4))


def reduced(name: str, **options: Any) -> Case:
    return case(lambda m, x: getattr(m.np, name)(x, **options), (3, 4, 2))


def padded(mode: str) -> Case:
    return case(lambda m, x: m.np.pad(x, ((2, 3), (1, 0)), mode=mode), (4, 5))


def layer_norm(m: SimpleNamespace, x: Any, w: Any, b: Any) -> Any:
    centered = x - m.np.mean(x, axis=-1, keepdims=True)
    return centered / m.np.sqrt(m.np.mean(centered**2, axis=-1, keepdims=True) + 1e-5) * w + b


def attention(m: SimpleNamespace, q: Any, k: Any, v: Any) -> Any:
    scores = m.np.einsum("bld,bsd->bls", q, k) * 0.5
    mask = np.tril(np.ones((4, 4), bool))
    return m.softmax(m.np.where(mask, scores, -np.inf)) @ v


def rnn(m: SimpleNamespace, xs: Any, h: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        new = m.np.tanh(w @ h + x)
        return new, new * h

    last, ys = m.scan(step, h, xs)
    return m.np.concatenate([last[None], ys])


def decay(m: SimpleNamespace, x: Any) -> Any:
    """Halved until small."""
    return m.while_loop(lambda v: m.np.sum(v * v) > 0.1, lambda v: v * 0.5 + 0.01 * v * v, x, 20)


def branch(m: SimpleNamespace, x: Any, y: Any) -> Any:
    return m.cond(m.np.sum(x) > 0, lambda a, b: a * b, lambda a, b: a - b * b, x, y)


FUNCTIONS: dict[str, Case] = {
    **{name: unary(name) for name in ("cbrt", "sinc", "square", "negative", "deg2rad", "nan_to_num")},
    **{name: above(name) for name in ("sqrt", "log", "log2", "log1p", "arccosh", "reciprocal")},
    **{
        name: case(lambda m, x, y, f=name: getattr(m.np, f)(x, y), (3, 4), (4,)) for name in ("logaddexp", "logaddexp2")
    },
    **{name: case(lambda m, x, y, f=name: getattr(m.np, f)(x, y), (3, 4), (3, 1)) for name in ("hypot", "arctan2")},
    "power": case(lambda m, x, y: m.np.power(m.np.abs(x) + 0.5, y), (3, 4), (4,)),
    "maximum": case(lambda m, x, y: m.np.maximum(x, y), (3, 4), (4,)),
    "clip": case(lambda m, x: m.np.clip(x, -0.5, 0.5), (3, 4)),
    "where": case(lambda m, x, y: m.np.where(x > y, x * y, y), (3, 4), (4,)),
    "mean": reduced("mean", axis=(0, 2)),
    "var": reduced("var", axis=1, ddof=1),
    "std": reduced("std", axis=(0, 1), keepdims=True),
    "prod": reduced("prod", axis=(1, 2)),
    "max": reduced("max", axis=1),
    "min": reduced("min"),
    "median": reduced("median", axis=0),
    "quantile": reduced("quantile", q=0.3, axis=1),
    "cumsum": reduced("cumsum", axis=1),
    "cumprod": reduced("cumprod", axis=1),
    "sort": reduced("sort", axis=1),
    "flip": reduced("flip", axis=(0, 2)),
    "roll": reduced("roll", shift=(1, -2), axis=(0, 1)),
    "repeat": reduced("repeat", repeats=3, axis=1),
    "tile": reduced("tile", reps=(2, 1, 2)),
    "tril": reduced("tril", k=1),
    "diff": reduced("diff", axis=1),
    "trace": reduced("trace"),
    **{
        f"norm {order}": case(lambda m, x, order=order: m.np.linalg.norm(x, ord=order, axis=1), (3, 4))
        for order in (None, 1, 3, np.inf)
    },
    "frobenius": case(lambda m, x: m.np.linalg.norm(x), (3, 4)),
    **{
        f"pad {mode}": padded(mode)
        for mode in ("edge", "reflect", "symmetric", "wrap", "mean", "linear_ramp", "maximum")
    },
    "slice": case(lambda m, x: x[::-2, 1:, None], (5, 4)),
    "index": case(lambda m, x: x[np.array([2, 0, 2]), :, np.array([0, 1, 1])], (3, 4, 2)),
    "take": case(lambda m, x: m.np.take(x, np.array([[1, 0], [3, 3]]), axis=1), (3, 4)),
    "take_along_axis": case(lambda m, x: m.np.take_along_axis(x, np.array([[3, 0], [1, 1], [2, 0]]), axis=1), (3, 4)),
    "at set": case(lambda m, x, y: x.at[np.array([2, 0])].set(y), (3, 4), (2, 4)),
    "at add": case(lambda m, x, y: x.at[np.array([2, 0, 2])].add(y), (3, 4), (3, 4)),
    "at max": case(lambda m, x, y: x.at[np.array([2, 0, 2])].max(y), (3, 4), (3, 4)),
    "concatenate": case(lambda m, x, y: m.np.concatenate([x, y, x], axis=1), (3, 4), (3, 2)),
    "stack": case(lambda m, x, y: m.np.stack([x, y * x], axis=1), (3, 4), (3, 4)),
    "matmul": case(lambda m, x, y: x @ y, (2, 1, 3, 4), (5, 4, 2)),
    "einsum": case(lambda m, x, y, z: m.np.einsum("ij,jk,kl->li", x, y, z), (3, 4), (4, 2), (2, 5)),
    "tensordot": case(lambda m, x, y: m.np.tensordot(x, y, axes=([1, 2], [1, 0])), (3, 4, 2), (2, 4, 3)),
    "outer": case(lambda m, x, y: m.np.outer(x, y), (3,), (4,)),
    "kron": case(lambda m, x, y: m.np.kron(x, y), (2, 3), (3, 2)),
    "cross": case(lambda m, x, y: m.np.cross(x, y), (4, 3), (4, 3)),
    "convolve": case(lambda m, x, y: m.np.convolve(x, y, mode="same"), (9,), (4,)),
    "interp": case(lambda m, x, y: m.np.interp(x, np.linspace(-3, 3, 7), y), (5,), (7,)),
    **{
        name: case(lambda m, x, f=name: getattr(m, f)(x), (3, 4))
        for name in (
            "relu",
            "gelu",
            "gelu_tanh",
            "silu",
            "softplus",
            "sigmoid",
            "softmax",
            "log_softmax",
            "logsumexp",
            "erf",
        )
    },
    "top_k": case(lambda m, x: m.top_k(x, 2)[0], (3, 4)),
    "cross entropy": case(lambda m, x: -m.log_softmax(x)[np.arange(3), np.array([1, 0, 3])], (3, 4)),
    "layer norm": case(layer_norm, (3, 4), (4,), (4,)),
    "attention": case(attention, (2, 4, 3), (2, 4, 3), (2, 4, 5)),
    "convolution": case(
        lambda m, x, w: m.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        (2, 4, 6, 7),
        (6, 2, 3, 2),
    ),
    "max pool": case(lambda m, x: m.max_pool2d(x, 2), (1, 2, 4, 6)),
    "avg pool": case(lambda m, x: m.avg_pool2d(x, 2), (1, 2, 4, 6)),
    "scan": case(rnn, (5, 3), (3,), (3, 3)),
    "while": case(decay, (4,)),
    "cond": case(branch, (4,), (4,)),
    "fori_loop": case(lambda m, x: m.fori_loop(0, 5, lambda i, c: m.np.sin(c) + c * x, x), (4,)),
    "vmap": case(lambda m, x, y: m.vmap(lambda v: m.np.tanh(v) * m.np.sum(v * y))(x), (3, 4), (4,)),
    "grad of grad": case(lambda m, x: m.grad(lambda v: m.np.sum(m.np.sin(v) * v * m.np.exp(v)))(x), (4,)),
    "jvp": case(lambda m, x, y: m.jvp(lambda v: m.np.tanh(v) * v, (x,), (y,))[1], (4,), (4,)),
    "stop_gradient": case(lambda m, x: x * m.stop_gradient(m.np.exp(x)), (3, 4)),
}
