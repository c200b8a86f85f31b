"""Which elements a nest writes: a step of the schedule must leave none out, and write no further ones."""

from __future__ import annotations

from collections.abc import Mapping

from mlaot.ir.dims import names, substitute
from mlaot.nest.expressions import Expr, Index
from mlaot.nest.statements import Block, Body, For, If, Invoke, Let, Mutable, Nest, Store, While
from mlaot.nest.statements import written_arrays as written_by


def written_elements(nest: Nest, dims: Mapping[str, int]) -> dict[str, set[int] | None]:
    """Return the elements that a nest writes of each of the caller's arrays, for fixed dims.

    None stands for an array whose elements depend on conditions or on values that are no polynomials in loop variables,
    and for one whose padding is written.
    """
    elements: dict[str, set[int] | None] = {a.name: set() for a in nest.params if a.name in nest.written_arrays}
    _write(nest.body, dict(dims), elements)
    return elements


def _write(body: Body, values: dict[str, int], elements: dict[str, set[int] | None]) -> None:
    values = dict(values)
    for s in body:
        if isinstance(s, Let | Mutable):
            value = _number(s.value, values) if isinstance(s, Let) else None
            values.pop(s.var.name, None)
            values |= {} if value is None else {s.var.name: value}
        elif isinstance(s, Invoke):
            values.pop(s.var.name, None)
            _forget((s,), elements)
        elif isinstance(s, Store):
            _store(s, values, elements)
        elif isinstance(s, Block):
            _write(s.body, values, elements)
        elif isinstance(s, For):
            low, high = _number(s.low, values), _number(s.high, values)
            if low is None or high is None:
                _forget(s.body, elements)
                continue
            for i in range(low, high, s.step):
                _write(s.body, {**values, s.var.name: i}, elements)
        elif isinstance(s, If | While):
            _forget((s,), elements)


def _forget(body: Body, elements: dict[str, set[int] | None]) -> None:
    """Mark the arrays that a body writes as unknown."""
    for name in written_by(body) & elements.keys():
        elements[name] = None


def _store(s: Store, values: Mapping[str, int], elements: dict[str, set[int] | None]) -> None:
    own = elements.get(s.array.name)
    if own is None:
        return
    first, step = _number(s.index, values), _number(Index(s.step), values)
    count = s.value.type.lanes if s.count is None else _number(s.count, values)
    if first is None or step is None or count is None or (s.padded and s.value.type.lanes != 1):
        elements[s.array.name] = None
        return
    own.update(first + lane * step for lane in range(min(count, s.value.type.lanes)))


def _number(x: Expr, values: Mapping[str, int]) -> int | None:
    """Return the value of an index, or None if it depends on more than ``values``."""
    if not isinstance(x, Index) or not names(x.value) <= values.keys():
        return None
    value = substitute(x.value, {name: values[name] for name in names(x.value)})
    return value if isinstance(value, int) else None
