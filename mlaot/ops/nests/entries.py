"""Products with a constant tensor that has few nonzero elements: ``contract_entries``.

    for i in parallel(0, n):
        for j in vector(0, 64):
            out[i * 64 + j] = 0
        for e in range(0, 12):
            out[i * 64 + to[e]] = out[i * 64 + to[e]] + f32(x[i * 256 + from[e]]) * f32(value[e])

``from`` and ``to`` are the elements at the indices of an entry, as far as strides are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mlaot.ir import Dim
from mlaot.nest.expressions import INDEX, Array, Expr, Index, Load, ValueType, as_index, cast, const
from mlaot.nest.reductions import combine
from mlaot.nest.statements import Body, Store, around, index_var
from mlaot.ops.axes import parse_spec
from mlaot.ops.nests.target import ZERO, Target, rows

ENTRY = as_index(index_var("e"))


def contract_entries_nest(t: Target) -> Body:
    """Clear the results of a row of ``x``, then add the product of each entry to its result."""
    labels, weight_labels, out = parse_spec(t.attrs["spec"])
    *places, values = np.array(t.attrs["entries"]).reshape(-1, len(weight_labels) + 2).T.tolist()
    at: Mapping[str, Sequence[int]] = dict(zip((*weight_labels, ""), places, strict=True))  # "": the byte of a word
    own = {label: index for label, index in zip(out, t.at, strict=True) if label not in weight_labels}
    columns = [i for i, label in enumerate(out) if label in weight_labels]

    access = t.builder.access(t.arg(0))
    x = t.builder.element(access, [*(own.get(label, ZERO) for label in labels), ZERO])
    x = Load(x.array, x.index + _moved(t, [*labels, ""], access.strides, at), x.type)
    first = t.element([own.get(label, ZERO) for label in out])
    index = first.index + _moved(t, out, t.out.strides, at)
    product = combine("prod", cast(x, "f32"), cast(_entry(t.table(values)), "f32"))
    total = combine("sum", Load(t.array, index, ValueType("f32")), product)

    names, shape, strides = (
        [t.names[i] for i in columns],
        [t.shape[i] for i in columns],
        [t.out.strides[i] for i in columns],
    )
    clear = rows(names, shape, (t.store(t.at, const(0.0, total.type)),), strides)
    add = around([("e", len(values))], (Store(t.array, index, total),))
    around_rows = [i for i in range(len(out)) if i not in columns]
    return t.around(around_rows, (*clear, *add))


def _moved(t: Target, labels: Sequence[str], strides: Sequence[Dim], at: Mapping[str, Sequence[int]]) -> Expr:
    """Return the distance of the element at an entry's indices from that at index 0 along the same labels."""
    fixed, total = np.zeros(len(at[""]), np.int64), as_index(0)
    for label, stride in zip(labels, strides, strict=True):
        if isinstance(stride, int) and label in at:
            fixed += stride * np.array(at[label])
        elif label in at:
            total += _entry(t.table(at[label])) * Index(stride)
    return total + _entry(t.table(fixed.tolist()))


def _entry(table: Array) -> Expr:
    """Load a table's value for the entry of a round."""
    return cast(Load(table, ENTRY, ValueType(table.dtype)), INDEX.dtype)
