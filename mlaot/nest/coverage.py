"""Which elements a nest writes: a step of the schedule must leave none out, and write no further ones."""

from __future__ import annotations

from collections.abc import Mapping

from mlaot.ir.dims import names, substitute
from mlaot.nest.expressions import Expr, Index
from mlaot.nest.statements import Block, Body, For, If, Invoke, Let, Mutable, Nest, Store, While
from mlaot.nest.statements import written as written_by


def written(nest: Nest, dims: Mapping[str, int]) -> dict[str, set[int] | None]:
    """The elements of each array of the caller's that a nest writes for some dims.

    None where that depends on conditions or on values that are no polynomials in loop variables, and where a store
    writes into padding.
    """
    found: dict[str, set[int] | None] = {a.name: set() for a in nest.params if a.name in nest.written}
    _write(nest.body, dict(dims), found)
    return found


def _write(body: Body, known: dict[str, int], found: dict[str, set[int] | None]) -> None:
    known = dict(known)
    for s in body:
        if isinstance(s, Let | Mutable):
            value = _number(s.value, known) if isinstance(s, Let) else None
            known.pop(s.var.name, None)
            known |= {} if value is None else {s.var.name: value}
        elif isinstance(s, Invoke):
            known.pop(s.var.name, None)
            _forget((s,), found)
        elif isinstance(s, Store):
            _store(s, known, found)
        elif isinstance(s, Block):
            _write(s.body, known, found)
        elif isinstance(s, For):
            low, high = _number(s.low, known), _number(s.high, known)
            if low is None or high is None:
                _forget(s.body, found)
                continue
            for i in range(low, high, s.step):
                _write(s.body, {**known, s.var.name: i}, found)
        elif isinstance(s, If | While):
            _forget((s,), found)


def _forget(body: Body, found: dict[str, set[int] | None]) -> None:
    for name in written_by(body) & found.keys():
        found[name] = None


def _store(s: Store, known: Mapping[str, int], found: dict[str, set[int] | None]) -> None:
    elements = found.get(s.array.name)
    if elements is None:
        return
    first, step = _number(s.index, known), _number(Index(s.step), known)
    count = s.value.type.lanes if s.count is None else _number(s.count, known)
    if first is None or step is None or count is None or (s.padded and s.value.type.lanes != 1):
        found[s.array.name] = None
        return
    elements.update(first + lane * step for lane in range(min(count, s.value.type.lanes)))


def _number(x: Expr, known: Mapping[str, int]) -> int | None:
    if not isinstance(x, Index) or not names(x.value) <= known.keys():
        return None
    value = substitute(x.value, {name: known[name] for name in names(x.value)})
    return value if isinstance(value, int) else None
