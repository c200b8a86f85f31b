"""Products of arrays: ``matmul``, ``einsum`` of any number of operands, and functions that NumPy builds on them."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.ufuncs import truth
from mlaot.frontend.trace.promotion import as_node, broadcast_node, cast, normal_axis, promote, result_type
from mlaot.frontend.trace.protocols import implements
from mlaot.frontend.trace.tensor import Tensor, as_tensor
from mlaot.ir import Dim, Node
from mlaot.ir.dims import Unequal
from mlaot.ir.types import boolean, i64
from mlaot.ops import reduction as red
from mlaot.ops import structure as st


@implements("matmul", "linalg.matmul")
def matmul(a: Any, b: Any) -> Any:
    """Compute ``a @ b`` of vectors, matrices, or stacks of matrices whose leading axes broadcast."""
    x, y = promote(a, b)
    if not x.type.rank or not y.type.rank:
        raise MlaotError(f"matmul needs arrays, got {x.type} and {y.type}")
    if x.type.shape[-1] != y.type.shape[-2 if y.type.rank > 1 else 0]:
        inner = x.type.shape[-1], y.type.shape[-2 if y.type.rank > 1 else 0]
        raise Unequal(f"matmul needs (m,k) and (k,n), got {x.type} and {y.type}", *inner)
    rank = max(x.type.rank, y.type.rank) - 2
    lead = "abcdefghijklmnop"[: max(rank, 0)]
    left = lead[len(lead) - max(x.type.rank - 2, 0) :] + ("y" if x.type.rank > 1 else "") + "z"
    right = lead[len(lead) - max(y.type.rank - 2, 0) :] + "z" + ("x" if y.type.rank > 1 else "")
    out = lead + ("y" if x.type.rank > 1 else "") + ("x" if y.type.rank > 1 else "")
    return Tensor(sum_products([(left, x), (right, y)], out))


def sum_products(terms: Sequence[tuple[str, Node]], out: str) -> Node:
    """Multiply labelled operands from left to right, and sum over all labels that are not in ``out``."""
    sizes = _sizes(terms)
    parts = [_drop_ones(labels, node, sizes) for labels, node in terms]
    labels, total = parts[0]
    for i, (other, node) in enumerate(parts[1:]):
        later = set(out).union(*[rest for rest, _ in parts[i + 2 :]])
        kept = "".join(c for c in dict.fromkeys(labels + other) if c in later)
        if i == len(parts) - 2 and set(kept) == set(out):
            kept = out
        total = _contract(total, node, labels, other, kept)
        labels = kept
    return _arrange(labels, total, out, sizes)


def _contract(a: Node, b: Node, first: str, second: str, out: str) -> Node:
    """Contract two operands; booleans are converted to integers and back."""
    if a.type.dtype is boolean:
        counts = red.contract(cast(a, i64), cast(b, i64), spec=f"{first},{second}->{out}")
        return truth(counts)
    return red.contract(a, b, spec=f"{first},{second}->{out}")


def _sizes(terms: Sequence[tuple[str, Node]]) -> dict[str, Dim]:
    """Return the size of each label; an axis of size 1 fits any size."""
    sizes: dict[str, Dim] = {}
    for labels, node in terms:
        for label, size in zip(labels, node.type.shape, strict=True):
            extent = sizes.setdefault(label, size)
            if extent == 1:
                sizes[label] = size
            elif size not in (1, extent):
                raise Unequal(
                    f"shapes do not fit: {' and '.join(str(n.type) for _, n in terms)} have {extent} and {size} for "
                    "one axis",
                    extent,
                    size,
                )
    return sizes


def _drop_ones(labels: str, node: Node, sizes: dict[str, Dim]) -> tuple[str, Node]:
    """Drop an operand's axes of size 1 that are longer in others, and take the diagonal of a repeated label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            node = as_node(np.diagonal(Tensor(node), 0, i, j))
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + label
    drop = [i for i, c in enumerate(labels) if node.type.shape[i] == 1 and sizes[c] != 1]
    if drop:
        shape = tuple(d for i, d in enumerate(node.type.shape) if i not in drop)
        node = st.reshape(node, shape=shape)
        labels = "".join(c for i, c in enumerate(labels) if i not in drop)
    return labels, node


def _arrange(labels: str, node: Node, out: str, sizes: dict[str, Dim]) -> Node:
    """Sum over the labels that ``out`` lacks, and transpose the axes to its order."""
    gone = tuple(i for i, c in enumerate(labels) if c not in out)
    if gone:
        node = red.max_(node, axes=gone) if node.type.dtype is boolean else red.sum_(node, axes=gone)
        labels = "".join(c for c in labels if c in out)
    perm = tuple(labels.index(c) for c in out if c in labels)
    if perm != tuple(range(len(perm))):
        node = st.transpose(node, perm=perm)
    if len(perm) < len(out):
        shape = tuple(sizes[c] if c in labels else 1 for c in out)
        node = broadcast_node(st.reshape(node, shape=shape), tuple(sizes[c] for c in out))
    return node


@implements("einsum")
def einsum(*operands: Any, dtype: Any = None, order: Any = None, casting: Any = None, optimize: Any = None) -> Any:
    if isinstance(operands[0], str):
        spec, arrays = operands[0].replace(" ", ""), list(operands[1:])
    else:
        spec, arrays = _spec_of_interleaved(operands)
    kind = result_type(*arrays) if dtype is None else result_type(dtype)
    nodes = [as_node(a, kind) for a in arrays]
    inputs, out = _labels(spec, nodes)
    return Tensor(sum_products(list(zip(inputs, nodes, strict=True)), out))


def _spec_of_interleaved(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Convert ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` to a specification and operands."""

    def text(labels: Any) -> str:
        return "".join("..." if i is Ellipsis else ascii_letters[i] for i in labels)

    pairs = len(operands) // 2
    spec = ",".join(text(operands[2 * i + 1]) for i in range(pairs))
    return spec + (f"->{text(operands[-1])}" if len(operands) % 2 else ""), [operands[2 * i] for i in range(pairs)]


def _labels(spec: str, nodes: Sequence[Node]) -> tuple[list[str], str]:
    """Return a label for each axis of each operand and of the result. Axes of an ellipsis get letters of their own."""
    left, arrow, out = spec.partition("->")
    terms = left.split(",")
    if len(terms) != len(nodes):
        raise MlaotError(f"einsum '{spec}' is for {len(terms)} operands, got {len(nodes)}")
    free = [c for c in reversed(ascii_letters) if c not in spec]
    longest = 0
    for term, node in zip(terms, nodes, strict=True):
        letters = len(term.replace("...", ""))
        if letters > node.type.rank or ("..." not in term and letters != node.type.rank):
            raise MlaotError(f"einsum '{spec}' does not fit an operand {node.type}")
        longest = max(longest, node.type.rank - letters) if "..." in term else longest
    dots = "".join(reversed(free[:longest]))
    inputs = [
        t.replace("...", dots[longest - (n.type.rank - len(t.replace("...", ""))) :])
        for t, n in zip(terms, nodes, strict=True)
    ]
    if arrow:
        result = out.replace("...", dots)
    else:
        flat = "".join(inputs)
        result = dots + "".join(sorted(c for c in set(flat) if flat.count(c) == 1 and c not in dots))
    if not set(result) <= set("".join(inputs)) or len(set(result)) < len(result):
        raise MlaotError(f"einsum '{spec}': the result's labels must be labels of the operands, each once")
    return inputs, result


@implements("dot")
def dot(a: Any, b: Any) -> Any:
    x, y = as_tensor(a), as_tensor(b)
    if not x.ndim or not y.ndim:
        return np.multiply(x, y)
    return tensordot(x, y, ((x.ndim - 1,), (max(y.ndim - 2, 0),)))


@implements("vdot")
def vdot(a: Any, b: Any) -> Any:
    return matmul(np.ravel(as_tensor(a)), np.ravel(as_tensor(b)))


@implements("inner")
def inner(a: Any, b: Any) -> Any:
    x, y = as_tensor(a), as_tensor(b)
    if not x.ndim or not y.ndim:
        return np.multiply(x, y)
    return tensordot(x, y, ((x.ndim - 1,), (y.ndim - 1,)))


@implements("vecdot", "linalg.vecdot")
def vecdot(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    x, y = (np.moveaxis(as_tensor(v), axis, -1) for v in (x1, x2))
    return einsum("...i,...i->...", x, y)


@implements("matvec")
def matvec(x1: Any, x2: Any) -> Any:
    return einsum("...ij,...j->...i", x1, x2)


@implements("vecmat")
def vecmat(x1: Any, x2: Any) -> Any:
    return einsum("...i,...ij->...j", x1, x2)


@implements("outer", "linalg.outer")
def outer(a: Any, b: Any) -> Any:
    x, y = np.ravel(as_tensor(a)), np.ravel(as_tensor(b))
    return np.reshape(x, (-1, 1)) * y


@implements("tensordot", "linalg.tensordot")
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = promote(a, b)
    if isinstance(axes, int):
        left: Sequence[int] = range(x.type.rank - axes, x.type.rank)
        right: Sequence[int] = range(axes)
    else:
        left, right = ((v,) if isinstance(v, int) else tuple(v) for v in axes)
    firsts = [normal_axis(i, x.type.rank) for i in left]
    seconds = [normal_axis(i, y.type.rank) for i in right]
    if len(firsts) != len(seconds) or any(
        x.type.shape[i] != y.type.shape[j] for i, j in zip(firsts, seconds, strict=False)
    ):
        raise MlaotError(f"tensordot of {x.type} and {y.type}: axes {list(firsts)} and {list(seconds)} do not fit")
    one = list(ascii_letters[: x.type.rank])
    two = list(ascii_letters[x.type.rank : x.type.rank + y.type.rank])
    for i, j in zip(firsts, seconds, strict=True):
        two[j] = one[i]
    out = [c for i, c in enumerate(one) if i not in firsts] + [c for j, c in enumerate(two) if j not in seconds]
    return Tensor(sum_products([("".join(one), x), ("".join(two), y)], "".join(out)))


@implements("kron")
def kron(a: Any, b: Any) -> Any:
    x, y = as_tensor(a), as_tensor(b)
    rank = max(x.ndim, y.ndim)
    first, second = ((1,) * (rank - v.ndim) + v.shape for v in (x, y))
    wide = np.reshape(x, tuple(d for size in first for d in (size, 1)))
    product = wide * np.reshape(y, tuple(d for size in second for d in (1, size)))
    return np.reshape(product, tuple(m * n for m, n in zip(first, second, strict=True)))


@implements("cross", "linalg.cross")
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = np.moveaxis(as_tensor(a), axisa, -1), np.moveaxis(as_tensor(b), axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise MlaotError(f"cross needs vectors of 3 elements, got {x.node.type} and {y.node.type}")
    x0, x1, x2 = (x[..., i] for i in range(3))
    y0, y1, y2 = (y[..., i] for i in range(3))
    return np.moveaxis(np.stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], -1), -1, axisc)


@implements("linalg.multi_dot")
def multi_dot(arrays: Any) -> Any:
    result = as_tensor(arrays[0])
    for other in arrays[1:]:
        result = dot(result, other)
    return result


@implements("linalg.matrix_power")
def matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        raise MlaotError("matrix_power: an inverse cannot be traced; expected n >= 0")
    x = as_tensor(a)
    result: Any = None
    while n:
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        x = matmul(x, x) if n else x
    if result is None:
        return np.broadcast_to(np.eye(int(x.shape[-1]), dtype=x.dtype), x.shape) + np.zeros_like(x)
    return result


@implements("linalg.norm")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    v = as_tensor(x)
    if v.node.type.dtype.kind != "f":
        v = v.astype(np.float64)
    if axis is None and (ord is None or v.ndim == 1):
        if ord is None:
            return np.sqrt(np.sum(v * v, keepdims=keepdims))
        axis = 0
    axes = tuple(axis) if isinstance(axis, tuple | list) else (tuple(range(v.ndim)) if axis is None else (axis,))
    if len(axes) == 1:
        return _vector_norm(v, ord, axes[0], keepdims)
    return _matrix_norm(v, ord, axes, keepdims)


def _vector_norm(v: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    if ord is None or ord == 2:
        return np.sqrt(np.sum(v * v, axis=axis, keepdims=keepdims))
    size = np.abs(v)
    if ord == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum((v != 0).astype(v.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    if not isinstance(ord, int | float):
        raise MlaotError(f"norm of a vector has no ord={ord!r}")
    return np.sum(size ** float(ord), axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(v: Any, ord: Any, axes: tuple[Any, ...], keepdims: bool) -> Any:
    if ord in (None, "fro"):
        return np.sqrt(np.sum(v * v, axis=axes, keepdims=keepdims))
    if len(axes) != 2 or ord not in (1, -1, np.inf, -np.inf):
        raise MlaotError(f"norm with ord={ord!r} of a matrix cannot be traced; known are 'fro', 1, -1, inf, -inf")
    across, along = axes if abs(ord) == 1 else axes[::-1]
    sums = np.sum(np.abs(v), axis=across, keepdims=True)
    best = (np.max if ord > 0 else np.min)(sums, axis=along, keepdims=True)
    return best if keepdims else np.squeeze(best, axis=axes)


@implements("linalg.vector_norm")
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    v = as_tensor(x)
    v = v.astype(np.float64) if v.node.type.dtype.kind != "f" else v
    return _vector_norm(v, ord, axis, keepdims)


@implements("linalg.matrix_norm")
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return norm(x, ord, (-2, -1), keepdims)
