"""What a model can be written with, by name: each item is traced, and gives what it gives for plain NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.evaluate import evaluate
from mlaot.frontend.trace import tree
from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.declaration import Declaration
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Graph, Type, verify
from mlaot.ir.types import BY_NUMPY

F = nn.functional
Function = Callable[..., Any]
Items = dict[str, tuple[Any, ...]]  # a function, then its arguments
rng = np.random.default_rng(0)


def a(*shape: int) -> Any:
    """An array of this shape."""
    return rng.normal(size=shape)


X, Y, SQUARE = a(3, 4), a(3, 4), a(4, 4)
NEAR = 0.9 * np.tanh(X)  # between -1 and 1
ABOVE = np.abs(X) + 1.1
I, J = np.array([7, -3, 0, 12]), np.array([2, 5, -1, 3])
SHIFTS = np.array([1, 0, 3, 2])
TRUE, OTHER = X > 0, Y > 0
ROWS = np.array([2, 0, -1])
LABELS = np.array([3, 0, 2])


def along(f: Any, *args: Any, **options: Any) -> Function:
    """``f`` with these further arguments."""
    return lambda x: f(x, *args, **options)


ARITHMETIC: Items = {
    "add": (lambda x, y: x + y, X, Y),
    "subtract": (lambda x, y: 1 - x - y, X, Y),
    "multiply": (lambda x, y: x * y * 2.0, X, Y),
    "divide": (lambda x, y: x / y, X, Y),
    "floor_divide": (lambda x, y: x // y, X, Y),
    "floor_divide of integers": (lambda x, y: x // y, I, J),
    "remainder": (lambda x, y: x % y, X, Y),
    "fmod": (np.fmod, X, Y),
    "divmod": (divmod, I, J),
    "power": (lambda x, y: x**y, ABOVE, Y),
    "square": (np.square, X),
    "reciprocal": (np.reciprocal, X),
    "negative": (lambda x: -x, X),
    "abs": (abs, X),
    "sign": (np.sign, X),
    "maximum": (np.maximum, X, Y),
    "minimum": (np.minimum, X, Y),
    "sqrt": (np.sqrt, ABOVE),
    "cbrt": (np.cbrt, X),
    "hypot": (np.hypot, X, Y),
    "copysign": (np.copysign, X, Y),
    "nextafter": (np.nextafter, X, Y),
}
COMPARISON: Items = {
    "less": (lambda x, y: x < y, X, Y),
    "less_equal": (lambda x, y: x <= y, X, Y),
    "greater": (lambda x, y: x > y, X, Y),
    "greater_equal": (lambda x, y: x >= y, X, Y),
    "equal": (lambda x, y: x == y, I, J),
    "not_equal": (lambda x, y: x != y, I, J),
    "isnan": (np.isnan, np.array([1.0, np.nan])),
    "isinf": (np.isinf, np.array([1.0, -np.inf])),
    "isfinite": (np.isfinite, np.array([1.0, np.inf])),
    "signbit": (np.signbit, np.array([-0.0, 1.0])),
    "isclose": (np.isclose, X, X + 1e-9),
    "logical_and": (np.logical_and, TRUE, OTHER),
    "logical_or": (np.logical_or, TRUE, OTHER),
    "logical_xor": (np.logical_xor, TRUE, OTHER),
    "logical_not": (np.logical_not, TRUE),
    "bitwise_and": (lambda x, y: x & y, I, J),
    "bitwise_or": (lambda x, y: x | y, I, J),
    "bitwise_xor": (lambda x, y: x ^ y, I, J),
    "invert": (lambda x: ~x, I),
    "left_shift": (lambda x, y: x << y, I, SHIFTS),
    "right_shift": (lambda x, y: x >> y, I, SHIFTS),
    "where": (lambda x, y: np.where(x > 0, x, y), X, Y),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), X),
    "cast to integer": (lambda x: x.astype(np.int32), X * 5),
    "cast to float32": (lambda x: x.astype(np.float32), X),
    "cast to float16": (lambda x: x.astype("float16"), X),
    "cast to bool": (lambda x: x.astype(bool), I),
    "cast to bfloat16": (lambda x: mlaot.astype(mlaot.astype(x, mlaot.bf16), np.float32), X),
}
ROUNDING: Items = {name: (getattr(np, name), X * 5) for name in ("floor", "ceil", "trunc", "rint", "round", "fix")}
EXPONENTIAL: Items = {
    **{name: (getattr(np, name), X) for name in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "arcsinh")},
    **{name: (getattr(np, name), ABOVE) for name in ("log", "log2", "log10", "log1p", "arccosh")},
    **{name: (getattr(np, name), X) for name in ("sin", "cos", "tan", "arctan")},
    **{name: (getattr(np, name), NEAR) for name in ("arcsin", "arccos", "arctanh")},
    "arctan2": (np.arctan2, X, Y),
    "logaddexp": (np.logaddexp, X, Y),
    "erf": (mlaot.erf, X),
    "erfc": (mlaot.erfc, X),
    "erfinv": (mlaot.erfinv, NEAR),
    "sigmoid": (mlaot.sigmoid, X),
    "relu": (mlaot.relu, X),
    "gelu": (mlaot.gelu, X),
    "gelu by tanh": (lambda x: mlaot.gelu(x, approximate=True), X),
    "silu": (mlaot.silu, X),
    "softplus": (mlaot.softplus, X),
    "softmax": (mlaot.softmax, X),
    "log_softmax": (mlaot.log_softmax, X),
    **{
        name: (getattr(F, name), X)
        for name in ("leaky_relu", "elu", "celu", "selu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "mish")
    },
    **{name: (getattr(F, name), X) for name in ("softsign", "logsigmoid", "glu")},
    "prelu": (F.prelu, X, np.array([0.2])),
}
NUMBERS = ("sum", "prod", "mean", "var", "std", "max", "min")
REDUCTIONS: Items = {
    **{name: (getattr(np, name), X) for name in NUMBERS},
    **{f"{name} over axes": (along(getattr(np, name), axis=(0, 2)), a(2, 3, 4)) for name in NUMBERS},
    **{f"{name} keepdims": (along(getattr(np, name), axis=1, keepdims=True), X) for name in NUMBERS},
    "argmax": (along(np.argmax, 1), X),
    "argmin": (along(np.argmin, 0), X),
    "any": (along(np.any, 1), TRUE),
    "all": (along(np.all, 0), TRUE),
    "logsumexp": (lambda x: mlaot.logsumexp(x, axis=1), X),
    "norm": (lambda x: np.linalg.norm(x, axis=1), X),
    "norm of order 1": (lambda x: np.linalg.norm(x, ord=1, axis=1), X),
    "norm of order inf": (lambda x: np.linalg.norm(x, ord=np.inf, axis=1), X),
    "frobenius norm": (np.linalg.norm, X),
    "cumsum": (along(np.cumsum, 1), X),
    "cumprod": (along(np.cumprod, 0), X),
    "median": (along(np.median, 1), X),
    "quantile": (along(np.quantile, 0.3), X),
}
SHAPES: Items = {
    "reshape": (lambda x: x.reshape(2, -1), X),
    "transpose": (lambda x: x.T, X),
    "permute": (lambda x: np.transpose(x, (2, 0, 1)), a(2, 3, 4)),
    "swapaxes": (along(np.swapaxes, 0, 1), X),
    "moveaxis": (along(np.moveaxis, 0, -1), a(2, 3, 4)),
    "broadcast_to": (along(np.broadcast_to, (2, 3, 4)), X),
    "squeeze": (np.squeeze, a(3, 1, 2)),
    "expand_dims": (along(np.expand_dims, 1), X),
    "concatenate": (lambda x, y: np.concatenate([x, y], axis=1), X, Y),
    "stack": (lambda x, y: np.stack([x, y], axis=1), X, Y),
    "split": (lambda x: np.split(x, 2, axis=1), X),
    "slice": (lambda x: x[1:, :-1], X),
    "slice with a step": (lambda x: x[::2, 1::2], X),
    "slice backwards": (lambda x: x[::-1, ::-2], X),
    "flip": (along(np.flip, 1), X),
    "roll": (along(np.roll, 2, 1), X),
    "tile": (along(np.tile, (2, 3)), X),
    "repeat": (along(np.repeat, 3, 1), X),
    "tril": (np.tril, SQUARE),
    "triu": (along(np.triu, 1), SQUARE),
    "causal mask": (lambda x: np.where(np.tril(np.ones((4, 4), bool)), x, -np.inf), SQUARE),
    "diagonal": (np.diagonal, SQUARE),
    "meshgrid": (np.meshgrid, a(3), a(2)),
}
PADS = ("constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap")
SHAPES |= {f"pad {mode}": (along(np.pad, ((1, 2), (0, 1)), mode), X) for mode in PADS}
SHAPES["pad empty"] = (lambda x: np.pad(x, 1, "empty")[1:-1, 1:-1], X)  # what is around has any value
SHAPES["pad between"] = (lambda x: mlaot.pad(x, (1, 0), (2, 1), 2, value=7.0), X)
INDEXING: Items = {
    "gather": (mlaot.gather, X, ROWS),
    "index by an array": (lambda x, i: x[i], X, ROWS),
    "index by a traced number": (lambda x, i: x[i], X, np.array(2)),
    "take": (lambda x, i: np.take(x, i, axis=1), X, ROWS),
    "take_along_axis": (lambda x, i: np.take_along_axis(x, i, axis=1), X, np.argsort(Y, axis=1)),
    "one_hot": (lambda i: mlaot.one_hot(i, 4), LABELS),
    **{
        f"scatter {mode}": (lambda x, i, u, mode=mode: mlaot.scatter(x, i, u, mode=mode), X, np.array([2, 0, 2]), Y)
        for mode in ("set", "add", "max", "min")
    },
    "put_along_axis": (lambda x, i: mlaot.put_along_axis(x, i, 0.0, 1), X, np.argsort(Y, axis=1)[:, :2]),
    "embedding": (F.embedding, np.array([[1, 2], [0, 1]]), X),
    "sort": (along(np.sort, 1), X),
    "argsort": (along(np.argsort, 0), X),
    "top_k": (lambda x: mlaot.top_k(x, 2), X),
    "searchsorted": (np.searchsorted, np.sort(a(9)), X),
}
PRODUCTS: Items = {
    "matmul": (lambda x, y: x @ y.T, X, Y),
    "matmul of batches": (lambda x, y: x @ y, a(2, 1, 3, 4), a(5, 4, 2)),
    "dot": (np.dot, a(4), a(4)),
    "outer": (np.outer, a(3), a(4)),
    "inner": (np.inner, X, Y),
    "tensordot": (along(np.tensordot, a(3, 4), 2), X),
    "einsum": (lambda x, y: np.einsum("bij,bjk->bik", x, y), a(2, 3, 4), a(2, 4, 5)),
    "einsum of three": (lambda x, y, z: np.einsum("ij,jk,kl->il", x, y, z), X, a(4, 2), a(2, 5)),
}
CONVOLUTIONS: Items = {
    "conv1d": (F.conv1d, a(2, 3, 9), a(4, 3, 3)),
    "conv2d": (F.conv2d, a(2, 3, 7, 8), a(4, 3, 3, 2), a(4)),
    "conv3d": (F.conv3d, a(1, 2, 4, 5, 6), a(3, 2, 2, 3, 2)),
    "conv with stride": (lambda x, w: F.conv2d(x, w, stride=(2, 1)), a(2, 3, 7, 8), a(4, 3, 3, 2)),
    "conv with padding": (lambda x, w: F.conv2d(x, w, padding=(1, 2)), a(2, 3, 7, 8), a(4, 3, 3, 2)),
    "conv same": (lambda x, w: F.conv2d(x, w, padding="same"), a(2, 3, 7, 8), a(4, 3, 3, 2)),
    "conv with dilation": (lambda x, w: F.conv2d(x, w, dilation=2), a(2, 3, 7, 8), a(4, 3, 3, 2)),
    "conv in groups": (lambda x, w: F.conv2d(x, w, groups=2), a(2, 4, 7, 8), a(6, 2, 3, 2)),
    "conv_transpose1d": (F.conv_transpose1d, a(2, 3, 5), a(3, 4, 3)),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        a(2, 3, 4, 5),
        a(3, 4, 3, 3),
    ),
    "conv_transpose3d": (F.conv_transpose3d, a(1, 2, 2, 3, 2), a(2, 3, 2, 2, 2)),
}
SPATIAL = {1: a(2, 3, 8), 2: a(2, 3, 8, 6), 3: a(1, 2, 4, 6, 4)}
POOLS: Items = {
    **{f"max_pool{n}d": (along(getattr(F, f"max_pool{n}d"), 2), x) for n, x in SPATIAL.items()},
    **{f"avg_pool{n}d": (along(getattr(F, f"avg_pool{n}d"), 2), x) for n, x in SPATIAL.items()},
    **{f"lp_pool{n}d": (along(getattr(F, f"lp_pool{n}d"), 2, 2), x) for n, x in SPATIAL.items()},
    **{f"adaptive_avg_pool{n}d": (along(getattr(F, f"adaptive_avg_pool{n}d"), 3), x) for n, x in SPATIAL.items()},
    **{f"adaptive_max_pool{n}d": (along(getattr(F, f"adaptive_max_pool{n}d"), 3), x) for n, x in SPATIAL.items()},
    "global_avg_pool": (F.global_avg_pool, SPATIAL[2]),
    "global_max_pool": (F.global_max_pool, SPATIAL[2]),
    "resize nearest": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), SPATIAL[2]),
    "resize linear": (lambda x: F.interpolate(x, size=5, mode="linear"), SPATIAL[1]),
    "resize bilinear": (lambda x: F.interpolate(x, size=(5, 11), mode="bilinear"), SPATIAL[2]),
    "resize cubic": (lambda x: F.interpolate(x, size=(5, 11), mode="bicubic"), SPATIAL[2]),
}


def halved(x: Any) -> Any:
    """Halved until its sum is small, but 20 times at most."""
    return mlaot.while_loop(lambda v: np.sum(v * v) > 0.1, lambda v: v * 0.5, x, bound=20)


CONTROL: Items = {
    "cond": (lambda x: mlaot.cond(np.sum(x) > 0, lambda v: v * 2.0, lambda v: v - 1.0, x), X),
    "scan": (lambda x: mlaot.scan(lambda c, v: (c + v, c * v), x[0], x), X),
    "scan in reverse": (lambda x: mlaot.scan(lambda c, v: (c * v, c + v), x[0], x, reverse=True), X),
    "while_loop": (halved, X),
    "fori_loop": (lambda x: mlaot.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x), X),
    "vmap": (lambda x: mlaot.vmap(lambda v: v[::-1] * np.sum(v))(x), X),
    "grad": (lambda x: mlaot.grad(lambda v: np.sum(np.sin(v) * v))(x), X),
    "jvp": (lambda x, y: mlaot.jvp(np.tanh, (x,), (y,)), X, Y),
    "sparse": (mlaot.sparse, X),
    "stop_gradient": (mlaot.stop_gradient, X),
}
PROBABLE = mlaot.sigmoid(X)
LOSSES: Items = {
    **{name: (getattr(F, name), X, Y) for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss")},
    "hinge_loss": (F.hinge_loss, X, np.sign(Y)),
    "hinge_embedding_loss": (F.hinge_embedding_loss, X, np.sign(Y)),
    "binary_cross_entropy": (F.binary_cross_entropy, PROBABLE, OTHER.astype(float)),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, X, OTHER.astype(float)),
    "cross_entropy": (F.cross_entropy, X, LABELS),
    "nll_loss": (lambda x, i: F.nll_loss(mlaot.log_softmax(x), i), X, LABELS),
    "kl_div": (lambda x, y: F.kl_div(mlaot.log_softmax(x), mlaot.softmax(y)), X, Y),
}
ATTENTION = nn.MultiheadAttention(4, 2, dtype=np.float64)
LAYERS: Items = {
    "Linear": (nn.Linear(4, 5, dtype=np.float64), X),
    "Conv1d": (nn.Conv1d(3, 4, 3, dtype=np.float64), SPATIAL[1]),
    "Conv2d": (nn.Conv2d(3, 4, 3, stride=2, dtype=np.float64), SPATIAL[2]),
    "Conv3d": (nn.Conv3d(2, 3, 2, dtype=np.float64), SPATIAL[3]),
    "ConvTranspose1d": (nn.ConvTranspose1d(3, 4, 3, dtype=np.float64), SPATIAL[1]),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 4, 3, dtype=np.float64), SPATIAL[2]),
    "ConvTranspose3d": (nn.ConvTranspose3d(2, 3, 2, dtype=np.float64), SPATIAL[3]),
    "BatchNorm1d": (nn.BatchNorm1d(4, dtype=np.float64), X),
    "BatchNorm2d": (nn.BatchNorm2d(3, dtype=np.float64), SPATIAL[2]),
    "LayerNorm": (nn.LayerNorm(4, dtype=np.float64), X),
    "GroupNorm": (nn.GroupNorm(3, 3, dtype=np.float64), SPATIAL[2]),
    "InstanceNorm2d": (nn.InstanceNorm2d(3, dtype=np.float64), SPATIAL[2]),
    "RMSNorm": (nn.RMSNorm(4, dtype=np.float64), X),
    "Embedding": (nn.Embedding(4, 5, dtype=np.float64), LABELS),
    "RNN": (nn.RNN(4, 5, dtype=np.float64), a(6, 2, 4)),
    "LSTM": (nn.LSTM(4, 5, num_layers=2, bidirectional=True, dtype=np.float64), a(6, 2, 4)),
    "GRU": (nn.GRU(4, 5, dtype=np.float64), a(6, 2, 4)),
    "MultiheadAttention": (lambda x: ATTENTION(x, x, x), a(6, 2, 4)),
    "scaled_dot_product_attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        a(2, 2, 5, 4),
    ),
    "Dropout": (nn.Dropout(0.5), X),
    "Sequential": (nn.Sequential(nn.Linear(4, 5, dtype=np.float64), nn.ReLU(), nn.Flatten()), X),
}
UPDATED: Items = {
    name: (lambda x, g, kind=name: optimized(getattr(optim, kind)(lr=0.1), x, g), X, Y)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion")
}
UPDATED |= {
    "momentum": (lambda x, g: optimized(optim.SGD(lr=0.1, momentum=0.9, nesterov=True), x, g), X, Y),
    "clipping by norm": (lambda x, g: optimized(optim.SGD(lr=0.1, clip_grad_norm=1.0), x, g), X, Y),
    "clipping by value": (lambda x, g: optimized(optim.SGD(lr=0.1, clip_grad_value=0.1), x, g), X, Y),
    "clip_grad_norm": (lambda x: optim.clip_grad_norm({"x": x}, 1.0), X),
    "clip_grad_value": (lambda x: optim.clip_grad_value({"x": x}, 0.5), X),
}
SCHEDULES: Items = {
    "step_lr": (optim.step_lr(2), np.array(3)),
    "multistep_lr": (optim.multistep_lr([2, 4]), np.array(3)),
    "exponential_lr": (optim.exponential_lr(0.9), np.array(3)),
    "linear_lr": (optim.linear_lr(), np.array(3)),
    "constant_lr": (optim.constant_lr(), np.array(3)),
    "polynomial_lr": (optim.polynomial_lr(), np.array(3)),
    "cosine_annealing_lr": (optim.cosine_annealing_lr(10), np.array(3)),
    "cosine_annealing_warm_restarts_lr": (optim.cosine_annealing_warm_restarts_lr(4), np.array(6)),
    "one_cycle_lr": (optim.one_cycle_lr(10), np.array(3)),
    "sequential_lr": (optim.sequential_lr([optim.linear_lr(), optim.step_lr(2)], [3]), np.array(4)),
    "chained_lr": (optim.chained_lr([optim.linear_lr(), optim.step_lr(2)]), np.array(4)),
}
ITEMS: Items = {
    **ARITHMETIC,
    **COMPARISON,
    **ROUNDING,
    **EXPONENTIAL,
    **REDUCTIONS,
    **SHAPES,
    **INDEXING,
    **PRODUCTS,
    **CONVOLUTIONS,
    **POOLS,
    **CONTROL,
    **LOSSES,
    **LAYERS,
    **UPDATED,
    **SCHEDULES,
}
DRAWS: dict[str, Function] = {
    "uniform": lambda: mlaot.random.uniform((3, 2)),
    "normal": lambda: mlaot.random.normal((3, 2), 1.0, 2.0),
    "bernoulli": lambda: mlaot.random.bernoulli(0.3, (9,)),
    "integers": lambda: mlaot.random.integers(0, 9, (5,)),
    "dropout": lambda: mlaot.random.dropout(np.ones(9), 0.4, training=True),
    "permutation": lambda: mlaot.random.permutation(9),
}
INITIAL: tuple[str, ...] = tuple(f"{name}_" for name in ("uniform", "normal", "trunc_normal", "orthogonal"))
INITIAL += tuple(f"{kind}_{name}_" for kind in ("xavier", "kaiming") for name in ("uniform", "normal"))


def optimized(optimizer: optim.Optimizer, x: Any, gradient: Any) -> Any:
    """Two steps."""
    parameters, state = {"x": x}, optimizer.init({"x": X})
    for _ in range(2):
        parameters, state = optimizer.update(parameters, {"x": gradient}, state, optimizer.lr)
    return parameters["x"]


def traced(function: Function, arrays: tuple[Any, ...]) -> list[Any]:
    """What ``function`` gives by way of its graph."""
    trace = Trace(Graph("item"), temporary=True)
    with tracing(trace):
        types = [Type(BY_NUMPY[str(x.dtype)], x.shape) for x in arrays]
        arguments = [Tensor(trace.graph.input(f"x{i}", t)) for i, t in enumerate(types)]
        found = tree.flatten(function(*arguments))[0]
        trace.graph.outputs = {str(i): as_node(leaf) for i, leaf in enumerate(found)}
    verify(trace.graph, "tracing")
    given = {f"x{i}": x for i, x in enumerate(arrays)} | {name: held.array for name, held in trace.held.items()}
    return list(evaluate(trace.graph, {k: v for k, v in given.items() if k in trace.graph.inputs}).values())


@pytest.mark.parametrize("name", ITEMS)
def test_item_is_traced(name: str) -> None:
    function, *given = ITEMS[name]
    arrays = tuple(map(np.asarray, given))
    with np.errstate(all="ignore"):
        expected = tree.flatten(function(*arrays))[0]
    found = traced(function, arrays)
    assert len(found) == len(expected)
    for f, e in zip(found, map(np.asarray, expected), strict=True):
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}.get(str(e.dtype), 0)
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", DRAWS)
def test_draw_is_traced(name: str) -> None:
    declared = mlaot.model(DRAWS[name])
    assert isinstance(declared, Declaration)
    graph = declared.trace()
    found = evaluate(graph.graph, graph.buffers)["out"]
    np.testing.assert_array_equal(DRAWS[name](), found)


@pytest.mark.parametrize("name", INITIAL)
def test_initial_values_are_repeatable(name: str) -> None:
    make = getattr(nn.init, name)
    first, again, other = (make((6, 5), rng=seed) for seed in (1, 1, 2))
    assert first.shape == (6, 5) and np.array_equal(first, again) and not np.array_equal(first, other)
