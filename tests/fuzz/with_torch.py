"""The same graphs computed by PyTorch: a second opinion on what the ops mean, written by other people.

Only what PyTorch can express is compared: floats, and the integers and bools that these graphs need on the way. PyTorch
rounds in its own places, so the bounds are those of the references, doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlaot.evaluate import concrete
from mlaot.ir import Graph, Node
from mlaot.ops import structure as st

Tensor = Any

# Ops that have PyTorch's name, or another one.
SAME = (
    *("exp", "log", "tanh", "sqrt", "abs", "floor", "ceil", "trunc", "round", "exp2", "expm1", "log2", "log10"),
    *("log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "sigmoid"),
    *("erf", "erfc", "erfinv", "sub", "mul", "div", "neg", "remainder", "fmod", "copysign", "atan2", "hypot"),
    *("less", "less_equal", "greater", "greater_equal", "not_equal", "isnan", "isinf", "isfinite", "signbit", "where"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "relu", "maximum", "minimum", "reshape"),
)
NAMES = {"power": "pow", "equal": "eq", "nextafter": "nextafter"} | {name: name for name in SAME}


def expressible(graph: Graph) -> bool:
    """Whether PyTorch can compute a graph in the way that it is meant."""
    return all(_can(node) for node in graph.nodes())


def _can(node: Node) -> bool:
    name, type_ = node.op.name, node.type
    dtype = getattr(type_, "dtype", None)
    if dtype is None or dtype.name not in ("f32", "f64", "i64", "i32", "bool"):
        return False
    if name == "cast" and dtype.kind in "iu" and node.arg(0).type.dtype.kind == "f":
        return False  # out of range it is whatever the CPU does
    if name == "take" and node.attrs.get("lead", 0) == node.arg(0).type.rank:
        return False
    if dtype.kind == "i" and name in ("power", "remainder", "fmod", "sum", "prod", "contract", "floor_divide", "pow"):
        return False  # other results for 0 and on overflow
    return name in NAMES or name in TRANSLATED


def evaluated(graph: Graph, inputs: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, Any]:
    """The outputs of a graph by PyTorch, as NumPy arrays."""
    import torch  # type: ignore[import-not-found]

    values: dict[Node, Tensor] = {}
    for node in graph.nodes():
        if node.op is st.input_:
            values[node] = torch.from_numpy(np.array(inputs[node.attrs["name"]]))
            continue
        args = [values[a.find()] for a in node.args]
        attrs = {k: concrete(v, dims) for k, v in node.attrs.items()}
        if node.op.name in TRANSLATED:
            values[node] = TRANSLATED[node.op.name](torch, *args, **attrs)
        else:
            values[node] = _many(getattr(torch, NAMES[node.op.name]), args)
    return {name: values[node.find()].numpy() for name, node in graph.outputs.items()}


def _many(function: Callable[..., Tensor], args: list[Tensor]) -> Tensor:
    """maximum and minimum take any number of arguments here."""
    if len(args) < 3 or function.__name__ == "where":
        return function(*args)
    total = args[0]
    for a in args[1:]:
        total = function(total, a)
    return total


def _dtype(torch: Any, dtype: Any) -> Any:
    return torch.from_numpy(np.zeros(1, dtype.numpy)).dtype


def _broadcast(torch: Any, x: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    view = [1] * len(shape)
    for i, a in enumerate(axes):
        view[a] = x.shape[i]
    return x.reshape(view).expand(shape)


def _slice(torch: Any, x: Tensor, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]) -> Tensor:
    for axis, (first, many, by) in enumerate(zip(start, size, step, strict=True)):
        x = x.index_select(axis, torch.arange(many) * by + first)
    return x


def _reduced(name: str) -> Callable[..., Tensor]:
    def run(torch: Any, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        if not axes:
            return x
        if name == "prod":
            for a in sorted(axes, reverse=True):
                x = x.prod(a)
            return x
        if x.dtype is torch.bool:
            return (torch.any if name == "amax" else torch.all)(x, axes)
        if not x.numel() and name != "sum":
            return torch.full([d for i, d in enumerate(x.shape) if i not in axes], _last(torch, name, x), dtype=x.dtype)
        return torch.sum(x, axes, dtype=x.dtype) if name == "sum" else getattr(torch, name)(x, axes)

    return run


def _last(torch: Any, name: str, x: Tensor) -> Any:
    """What the extreme of no elements is."""
    if x.dtype.is_floating_point:
        return float("-inf" if name == "amax" else "inf")
    info = torch.iinfo(x.dtype)
    return info.min if name == "amax" else info.max


def _scanned(name: str) -> Callable[..., Tensor]:
    def run(torch: Any, x: Tensor, axis: int, reverse: bool = False, exclusive: bool = False) -> Tensor:
        x = x.flip(axis) if reverse else x
        found = getattr(torch, name)(x, axis, dtype=x.dtype)
        if exclusive:
            first = torch.full_like(found.narrow(axis, 0, min(1, x.shape[axis])), float(name == "cumprod"))
            found = torch.cat([first, found.narrow(axis, 0, max(x.shape[axis] - 1, 0))], axis)
        return found.flip(axis) if reverse else found

    return run


def _windows(torch: Any, x: Tensor, axes: Any, sizes: Any, strides: Any, dilations: Any) -> Tensor:
    for a, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        x = x.unfold(a, (size - 1) * dilation + 1, stride)[..., ::dilation]
    return x


def _place(function: Callable[..., Tensor], x: Tensor, axis: int) -> Tensor:
    number = x.byte() if x.element_size() == 1 else x  # not of bools
    return function(number, axis) if x.shape[axis] else x.sum(axis).long()


def _gather(torch: Any, x: Tensor, indices: Tensor, lead: int) -> Tensor:
    n, flat = x.shape[lead], indices.long()[..., None].flatten(lead)
    places = torch.where(flat < 0, flat + n, flat).clamp(0, n - 1)
    rest = x.shape[lead + 1 :]
    if not n:
        return x.new_zeros((*indices.shape, *rest))
    wide = places.reshape(*places.shape, *[1] * len(rest)).expand(*places.shape, *rest)
    return torch.gather(x, lead, wide).reshape(*indices.shape, *rest)


TRANSLATED: dict[str, Callable[..., Tensor]] = {
    "input": lambda torch: None,
    "const": lambda torch, value: torch.from_numpy(np.array(value.array)),
    "copy": lambda torch, x: x,
    "stop_gradient": lambda torch, x: x,
    "sparse": lambda torch, x: x,
    "add": lambda torch, *args: _many(torch.add, list(args)),
    "pow": lambda torch, x, exponent: torch.pow(x, exponent),
    "sign": lambda torch, x: torch.where(x != x, x, torch.sign(x)),  # PyTorch's is 0 for nan
    "step": lambda torch, x: (x > 0).to(x.dtype),
    "is_equal": lambda torch, a, b: (a == b).to(a.dtype),
    "floor_divide": lambda torch, x, y: torch.div(x, y, rounding_mode="floor"),
    "cast": lambda torch, x, dtype: x.to(_dtype(torch, dtype)),
    "broadcast": _broadcast,
    "transpose": lambda torch, x, perm: x.permute(perm),
    "reshape": lambda torch, x, shape: x.reshape(shape),
    "item": lambda torch, x, index: x.reshape(-1)[index],
    "take": lambda torch, x, indices, lead=0: x.flatten(lead)[..., torch.from_numpy(np.array(indices.array))],
    "stack": lambda torch, *args, axis=0: torch.stack(args, axis),
    "concat": lambda torch, *args, axis=0: torch.cat(args, axis),
    "slice": _slice,
    "window": _windows,
    "gather": _gather,
    "sum": _reduced("sum"),
    "prod": _reduced("prod"),
    "max": _reduced("amax"),
    "min": _reduced("amin"),
    "argmax": lambda torch, x, axis: _place(torch.argmax, x, axis),
    "argmin": lambda torch, x, axis: _place(torch.argmin, x, axis),
    "cumsum": _scanned("cumsum"),
    "cumprod": _scanned("cumprod"),
    "contract": lambda torch, a, b, spec: torch.einsum(spec, a, b),
    "iota": lambda torch, shape, axis, dtype: _broadcast(
        torch, torch.arange(shape[axis]).to(_dtype(torch, dtype)), shape, (axis,)
    ),
    "size": lambda torch, dim, dtype: torch.tensor(dim).to(_dtype(torch, dtype)),
    "one_hot": lambda torch, label, classes, dtype: (label[..., None] == torch.arange(classes)).to(
        _dtype(torch, dtype)
    ),
}
