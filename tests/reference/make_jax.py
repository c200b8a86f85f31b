"""Make ``jax.npz``: what JAX gives for the gradients of ``jax_cases.py``, in float64.

pip install jax jaxlib && python -m tests.reference.make_jax
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .jax_cases import FUNCTIONS, chosen, cotangent, differentiable

Function = Callable[..., Any]


def reduced(function: Function, x: Any, axes: tuple[int, ...]) -> Any:
    return function(x, axis=axes)


def contract(a: Any, b: Any, spec: str) -> Any:
    return jnp.einsum(spec, a, b)


def take(x: Any, indices: Any, lead: int = 0) -> Any:
    return x.reshape(*x.shape[:lead], -1)[..., indices.array]


def put_add(x: Any, indices: Any, lead: int, shape: tuple[int, ...]) -> Any:
    flat = jnp.zeros((*x.shape[:lead], int(np.prod(shape))))
    return flat.at[..., indices.array].add(x).reshape(*x.shape[:lead], *shape)


def slice_(x: Any, start: Any, size: Any, step: Any) -> Any:
    for axis, (first, n, s) in enumerate(zip(start, size, step, strict=True)):
        x = jnp.take(x, first + s * np.arange(n), axis=axis)
    return x


def pad(x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    return lax.pad(x, value, list(zip(low, high, interior, strict=True)))


def places(shape: Any, axes: Any, sizes: Any, strides: Any, dilations: Any) -> Any:
    """For every element of every window, its flat place in an array of ``shape``."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    for axis, k, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        count = (shape[axis] - (k - 1) * dilation - 1) // stride + 1
        at = np.arange(count)[:, None] * stride + np.arange(k) * dilation
        numbers = np.moveaxis(np.take(numbers, at, axis=axis), axis + 1, -1)
    return numbers


def window(x: Any, **attrs: Any) -> Any:
    return x.reshape(-1)[places(x.shape, **attrs)]


def fold(y: Any, shape: Any, **attrs: Any) -> Any:
    return jnp.zeros(int(np.prod(shape))).at[places(shape, **attrs)].add(y).reshape(shape)


def from_start(indices: Any, n: int) -> Any:
    return np.where(indices < 0, indices + n, indices)


def gather(x: Any, indices: Any, lead: int) -> Any:
    n = x.shape[lead]
    function = lambda row, at: row[at]  # noqa: E731
    for _ in range(lead):
        function = jax.vmap(function)
    return function(x, np.clip(from_start(indices, n), 0, n - 1))


def scatter(x: Any, indices: Any, updates: Any, lead: int, mode: str) -> Any:
    n = x.shape[lead]
    at = from_start(indices, n)
    function = lambda row, i, u: getattr(row.at[i], mode)(u, mode="drop")  # noqa: E731
    for _ in range(lead):
        function = jax.vmap(function)
    return function(x, np.where(at < 0, n, at), updates)


def accumulated(
    function: Function, first: float, x: Any, axis: int, reverse: bool = False, exclusive: bool = False
) -> Any:
    x = jnp.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    found = function(x, axis=0)
    if exclusive:
        found = jnp.concatenate([jnp.full_like(found[:1], first), found[:-1]])
    return jnp.moveaxis(found[:: -1 if reverse else 1], 0, axis)


def linear_recurrence(a: Any, b: Any, axis: int, reverse: bool = False) -> Any:
    turn = slice(None, None, -1 if reverse else 1)
    factors, terms = (jnp.moveaxis(v, axis, 0)[turn] for v in (a, b))
    rows = [terms[0]]
    for i in range(1, len(terms)):
        rows.append(terms[i] + factors[i] * rows[-1])
    return jnp.moveaxis(jnp.stack(rows)[turn], 0, axis)


NAMED = (
    "exp log tanh sqrt abs copysign hypot power exp2 expm1 log2 log10 log1p sin cos tan sinh cosh where remainder fmod"
)
RULES: dict[str, Function] = {
    **{name: getattr(jnp, name) for name in NAMED.split()},
    **{name: getattr(jnp, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "neg": jnp.negative,
    "add": lambda *args: reduce(jnp.add, args),
    "maximum": lambda *args: reduce(jnp.maximum, args),
    "minimum": lambda *args: reduce(jnp.minimum, args),
    "copy": lambda x: x,
    "cast": lambda x, dtype: x,  # float64 all the way
    "pow": lambda x, exponent: jnp.power(x, exponent),
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "normal_quantile": jax.scipy.special.ndtri,
    **{name: partial(reduced, getattr(jnp, name)) for name in ("sum", "prod", "max", "min")},
    "contract": contract,
    "broadcast": lambda x, shape, axes: lax.broadcast_in_dim(x, shape, axes),
    "transpose": lambda x, perm: jnp.transpose(x, perm),
    "reshape": lambda x, shape: jnp.reshape(x, shape),
    "take": take,
    "put_add": put_add,
    "item": lambda x, index: x.reshape(-1)[index],
    "stack": lambda *args, axis=0: jnp.stack(args, axis),
    "concat": lambda *args, axis=0: jnp.concatenate(args, axis),
    "slice": slice_,
    "pad": pad,
    "window": window,
    "fold": fold,
    "gather": gather,
    "scatter": scatter,
    "cumsum": partial(accumulated, jnp.cumsum, 0.0),
    "cumprod": partial(accumulated, jnp.cumprod, 1.0),
    "linear_recurrence": linear_recurrence,
}


def while_loop(condition: Function, body: Function, x: Any, bound: int) -> Any:
    """JAX's own has no gradient in reverse: rounds that are kept or not."""
    for _ in range(bound):
        x = jnp.where(condition(x), body(x), x)
    return x


def conv2d(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    sides = [(p, p) for p in padding]
    return lax.conv_general_dilated(x, w, stride, sides, rhs_dilation=dilation, feature_group_count=groups)


def pool2d(operation: Function, start: float, x: Any, size: int) -> Any:
    return lax.reduce_window(x, start, operation, (1, 1, size, size), (1, 1, size, size), "VALID")


NAMESPACE = SimpleNamespace(
    np=jnp,
    relu=jax.nn.relu,
    gelu=partial(jax.nn.gelu, approximate=False),
    gelu_tanh=partial(jax.nn.gelu, approximate=True),
    silu=jax.nn.silu,
    softplus=jax.nn.softplus,
    sigmoid=jax.nn.sigmoid,
    softmax=jax.nn.softmax,
    log_softmax=jax.nn.log_softmax,
    logsumexp=jax.nn.logsumexp,
    erf=lax.erf,
    top_k=lax.top_k,
    conv2d=conv2d,
    max_pool2d=partial(pool2d, lax.max, -np.inf),
    avg_pool2d=lambda x, size: pool2d(lax.add, 0.0, x, size) / size**2,
    scan=lax.scan,
    while_loop=while_loop,
    cond=lax.cond,
    fori_loop=lax.fori_loop,
    vmap=jax.vmap,
    grad=jax.grad,
    jvp=jax.jvp,
    stop_gradient=lax.stop_gradient,
)


def gradients(name: str, function: Function, arrays: tuple[Any, ...]) -> list[Any]:
    """By every argument of floats."""
    floats = tuple(i for i, x in enumerate(arrays) if x.dtype.kind == "f")
    given = [jnp.asarray(x) if i in floats else x for i, x in enumerate(arrays)]
    out, pull = jax.vjp(
        lambda *xs: function(*[xs[floats.index(i)] if i in floats else x for i, x in enumerate(given)]),
        *[given[i] for i in floats],
    )
    return [np.asarray(g).reshape(-1) for g in pull(jnp.asarray(cotangent(name, out.shape)))]


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    found: dict[str, Any] = {"jax": np.array(jax.__version__)}
    for name in differentiable():
        if name in RULES:
            parts = [gradients(name, partial(RULES[name], **s.attrs), s.args) for s in chosen(name)]
            found[f"op {name}"] = np.concatenate([g for part in parts for g in part])
    for name, case in FUNCTIONS.items():
        arrays = tuple(case.arrays(name))
        found[name] = np.concatenate(gradients(name, partial(case.function, NAMESPACE), arrays))
    np.savez_compressed(Path(__file__).with_name("jax.npz"), **found)


if __name__ == "__main__":
    main()
