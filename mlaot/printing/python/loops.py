"""Nests in a form for Python: names that are unique in a function, places in panels, loops over elements.

An innermost loop reads its elements from slices, and a function reads arrays that it reads often from lists. Together
this needs a quarter of the time:

    for k in range(0, 64):                             for x0, x1 in zip(x[i * 64 : i * 64 + 64], w[j : j + 640 : 10]):
        acc = acc + x[i * 64 + k] * w[k * 10 + j]  =>      acc = acc + x0 * x1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from mlaot.ir.dims import NOMINAL, Dim, names, nominal, nonnegative, step_of
from mlaot.ir.dims import substitute as dim_values
from mlaot.nest.expressions import Array, Call, Expr, Index, Load, Var, map_parts, subexpressions, substitute, variables
from mlaot.nest.statements import (
    Assign,
    Body,
    Choose,
    For,
    Invoke,
    Let,
    Mutable,
    Nest,
    Slice,
    Statement,
    Store,
    While,
    arrays_of,
    bodies,
    bound_variables,
    expressions,
    map_bodies,
    map_expressions,
    map_own_expressions,
    walk,
    written_arrays,
)
from mlaot.printing.python.panels import place_in_panels

FEW = 8  # elements that are not worth a list


@dataclass(frozen=True)
class Elements:
    """The values of a loop's variable: elements of an array from ``start`` on, ``step`` apart."""

    var: Var
    array: Array
    start: Expr
    step: int


@dataclass(frozen=True)
class Loop:
    """A Python loop over ``elements``, ``count`` of each array, and over a range if it ``has_range``."""

    loop: For
    elements: tuple[Elements, ...]
    count: Dim
    has_range: bool
    body: Body


def prepare(nest: Nest) -> Nest:
    """Return a nest with resolved places in panels, and no name bound twice in one scope."""
    body = map_expressions(nest.body, _resolve)
    body = _rename(body, {*nest.dims, *(a.name for a in nest.params)}, {})
    return replace(nest, body=_drop_copies(body, {s.var.name for s in walk(body) if isinstance(s, Mutable)}, {}))


def _resolve(x: Expr) -> Expr:
    """Replace indices into panels by places in memory."""
    x = map_parts(x, _resolve)
    if isinstance(x, Load) and x.array.panels is not None:
        return replace(x, array=replace(x.array, panels=None), index=place_in_panels(x.index, x.array.panels))
    return x


def _rename(body: Body, known: set[str], values: Mapping[str, Expr]) -> Body:
    """Rename variables of blocks that outer blocks also have, as a Python function has one scope."""
    known, values = set(known), dict(values)
    result: list[Statement] = []
    for s in body:
        s = replace(s, **map_own_expressions(s, partial(substitute, values=values)))
        if isinstance(s, Assign) and isinstance(other := values.get(s.var.name), Var):
            s = replace(s, var=other)
        inside = dict(values)
        if isinstance(s, Let | Mutable | Invoke | For):
            own = Var(_free(s.var.name, known), s.var.type)
            inside[s.var.name] = own
            s = replace(s, var=own)
            if not isinstance(s, For):
                known.add(own.name)
        result.append(map_bodies(s, partial(_rename, known=known | {v.name for v in bound_names(s)}, values=inside)))
        if not isinstance(s, For):
            values = inside
    return tuple(result)


def _drop_copies(body: Body, mutable: set[str], values: Mapping[str, Expr]) -> Body:
    """Drop variables that are copies of variables that keep their values."""
    values = dict(values)
    result: list[Statement] = []
    for s in body:
        s = replace(s, **map_own_expressions(s, partial(substitute, values=values)))
        original = _original(s.value) if isinstance(s, Let) else None
        if isinstance(s, Let) and original is not None and original.name not in mutable:
            values[s.var.name] = Var(original.name, s.var.type)
        else:
            result.append(map_bodies(s, partial(_drop_copies, mutable=mutable, values=values)))
    return tuple(result)


def _original(x: Expr) -> Var | None:
    """Return the variable that a value is a copy of, if it is one."""
    while isinstance(x, Call) and is_same(x):
        x = x.args[0]
    return x if isinstance(x, Var) else None


def is_same(x: Call) -> bool:
    """Tell whether a call returns its argument, as nothing is rounded before it is stored."""
    return x.name in ("rounded", "held") or (x.name, x.args[0].type.dtype, x.type.dtype) == ("cast", "f32", "f64")


def bound_names(s: Statement) -> tuple[Var, ...]:
    """Return the variables that a statement binds, that of a loop too."""
    return (s.var,) if isinstance(s, For) else bound_variables(s)


def _free(name: str, known: set[str]) -> str:
    """Return a name that is not known yet."""
    number, free = 2, name
    while free in known:
        number, free = number + 1, f"{name}_{number}"
    return free


def lists_of(nest: Nest) -> set[str]:
    """Return the names of the arrays that a function converts to lists, as it reads each element about once or more.

    The number of elements must be known in the function.
    """
    reads: dict[str, int] = {}
    refused = {*nest.written_arrays, *(a.name for a in nest.params if not names(a.size) <= {*nest.dims})}
    _count_reads(nest.body, 1, reads, refused)
    return {
        array.name
        for array in nest.params
        if array.name in reads and array.name not in refused and reads[array.name] >= max(nominal(array.size), FEW)
    }


def _count_reads(body: Body, times: int, reads: dict[str, int], refused: set[str]) -> None:
    """Count the loads from each array.

    ``refused`` collects those that cannot be lists, or are read an unknown number of times.
    """
    for s in body:
        if isinstance(s, Slice | Choose):
            refused |= set(arrays_of((s,)))
        loads = [load.array.name for x in expressions(s) for load in subexpressions(x) if isinstance(load, Load)]
        for name in loads:
            reads[name] = reads.get(name, 0) + times
        if isinstance(s, While):
            refused |= {*arrays_of(s.body), *loads}
        rounds = times * max(_rounds(s), 1) if isinstance(s, For) else times
        for inner in bodies(s):
            _count_reads(inner, rounds, reads, refused)


def _rounds(s: For) -> int:
    """Estimate the rounds of a loop."""
    if isinstance(s.low, Index) and isinstance(s.high, Index):
        dims = names(s.low.value) | names(s.high.value)
        low, high = (dim_values(x.value, dict.fromkeys(dims, NOMINAL)) for x in (s.low, s.high))
        return (high - low) // s.step
    return 1


def loop_over_elements(s: For, nest: Nest) -> Loop:
    """Return the Python loop for a loop of a nest."""
    plain = Loop(s, (), 0, True, s.body)
    if s.down or s.step != 1 or not isinstance(s.low, Index) or not isinstance(s.high, Index):
        return plain
    if any(isinstance(inner, For | While) for inner in walk(s.body)):
        return plain
    readable = {a.name for a in nest.params} - written_arrays(s.body)
    changed = {var.name for inner in walk(s.body) for var in bound_variables(inner)}
    changed |= {inner.var.name for inner in walk(s.body) if isinstance(inner, Assign)}
    known = {x.name for x in _variables(nest.body)}
    elements: dict[Load, Elements] = {}
    body: list[Statement] = []
    for inner in s.body:
        for load in _loads(inner):
            step = _step(load.index, s.var.name)
            can = load.array.name in readable and not variables(load.index) & changed
            if not can or not isinstance(step, int) or step <= 0 or load in elements:
                continue
            is_bound = isinstance(inner, Let) and inner.value == load
            var = inner.var if isinstance(inner, Let) and is_bound else Var(_unused(known), load.type)
            known.add(var.name)
            elements[load] = Elements(var, load.array, substitute(load.index, {s.var.name: s.low}), step)
        taken = {load: each.var for load, each in elements.items()}
        if isinstance(inner, Let | Mutable | Assign | Store):
            inner = replace(inner, **map_own_expressions(inner, partial(_replace_loads, taken=taken)))
        if not (isinstance(inner, Let) and inner.value == inner.var):
            body.append(inner)
    if not elements:
        return plain
    count = s.high.value + s.low.value * -1
    is_used = any(s.var.name in variables(x) for inner in walk(body) for x in expressions(inner))
    return Loop(s, tuple(elements.values()), count, is_used or not nonnegative(count), tuple(body))


def _variables(body: Body) -> Iterator[Var]:
    for s in walk(body):
        yield from bound_names(s)


def _unused(names: set[str]) -> str:
    """Return the first of x0, x1 and so on that is not used as a name."""
    number = 0
    while f"x{number}" in names:
        number += 1
    return f"x{number}"


def _loads(s: Statement) -> Iterator[Load]:
    """Yield the loads of every round of a loop. A load that holds an index of another load comes after it."""
    if not isinstance(s, Let | Mutable | Assign | Store):
        return
    stack = [*expressions(s)]
    while stack:
        x = stack.pop()
        if isinstance(x, Load):
            yield x
            stack.append(x.index)
        elif isinstance(x, Call) and x.name not in ("select", "splat_word"):
            stack += reversed(x.args)


def _replace_loads(x: Expr, taken: Mapping[Load, Var]) -> Expr:
    if isinstance(x, Load) and x in taken:
        return taken[x]
    return map_parts(x, lambda part: _replace_loads(part, taken))


def _step(x: Expr, name: str) -> Dim | None:
    """Return the increase of an index if a variable increases by one, or None if it is not constant."""
    if isinstance(x, Index):
        return step_of(x.value, name)
    if name not in variables(x):
        return 0
    if isinstance(x, Call) and x.name in ("add", "sub"):
        a, b = (_step(arg, name) for arg in x.args)
        if a is None or b is None:
            return None
        return a + b * (1 if x.name == "add" else -1)
    if isinstance(x, Call) and x.name == "mul" and isinstance(x.args[1], Index) and isinstance(x.args[1].value, int):
        inner = _step(x.args[0], name)
        return None if inner is None else inner * x.args[1].value
    return None
