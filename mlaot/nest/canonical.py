"""Canonical nests, without the names of arrays, dims and variables, so that equal layers have equal nests."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from mlaot.ir.dims import Dim, assign, dim, names
from mlaot.nest.expressions import Array, Expr, Index, Load, Var, map_parts
from mlaot.nest.statements import (
    ARRAYS,
    BODIES,
    Alloc,
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
    Transpose,
    map_own_expressions,
)


@lru_cache(256)
def canonical(nest: Nest) -> tuple[Nest, tuple[str, ...]]:
    """Number the arrays, dims and variables of a nest by their first appearance; return it and its dims in that order.

    Nests that compute the same from arguments in the same order become equal. The names and sizes of their arrays and
    their comments do not count.
    """
    numbers = _Numbers({a.name: f"p{i}" for i, a in enumerate(nest.params)})
    body = numbers.body(nest.body)
    params = tuple(numbers.array(a) for a in nest.params)
    return Nest("", params, body), tuple(numbers.dims)


class _Numbers:
    """Give every name its number at its first appearance; blocks have variables of their own."""

    def __init__(self, arrays: dict[str, str]) -> None:
        self.arrays = arrays
        self.bound: dict[str, str] = {}
        self.dims: dict[str, str] = {}
        self.count = 0

    def name(self, name: str) -> str:
        return self.bound.get(name) or self.dims.setdefault(name, f"n{len(self.dims)}")

    def bind(self, var: Var) -> Var:
        self.bound[var.name] = f"v{self.count}"
        self.count += 1
        return Var(self.bound[var.name], var.type)

    def polynomial(self, value: Dim) -> Dim:
        if isinstance(value, int):
            return value
        return assign(value, {n: dim(self.name(n)) for n in sorted(names(value))})

    def array(self, array: Array) -> Array:
        return Array(self.arrays[array.name], array.dtype, 0, array.space, array.values, array.panels)

    def expression(self, x: Expr) -> Expr:
        if isinstance(x, Var):
            return Var(self.name(x.name), x.type)
        if isinstance(x, Index):
            return Index(self.polynomial(x.value))
        result = map_parts(x, self.expression)
        if isinstance(result, Load):
            step = self.polynomial(result.step)
            return Load(self.array(result.array), result.index, result.type, step, result.count, result.padded)
        return result

    def body(self, body: Body) -> Body:
        outer = self.bound.copy(), self.arrays.copy()
        result = tuple(map(self.statement, body))
        self.bound, self.arrays = outer
        return result

    def statement(self, s: Statement) -> Statement:
        """Number the names that a statement reads, then those that it binds, then those in its bodies."""
        parts: dict[str, Any] = map_own_expressions(s, self.expression)
        parts |= {name: self.array(getattr(s, name)) for name in ARRAYS.get(type(s), ())}
        outer = self.bound.copy()
        if isinstance(s, Store):
            parts["step"] = self.polynomial(s.step)
        elif isinstance(s, Assign):
            parts["var"] = Var(self.name(s.var.name), s.var.type)
        elif isinstance(s, Let | Mutable | Invoke | For):
            parts["var"] = self.bind(s.var)
        elif isinstance(s, Transpose):
            parts["name"] = f"v{self.count}"
            self.count += 1
            self.bound |= {var.name: f"{parts['name']}_{k}" for k, var in enumerate(s.vars)}
        elif isinstance(s, Alloc | Choose | Slice):
            self.arrays[s.array.name] = f"a{len(self.arrays)}"
            size = self.polynomial(s.array.size) if isinstance(s, Alloc) else 0
            parts["array"] = replace(self.array(s.array), size=size)
        parts |= {name: self.body(getattr(s, name)) for name in BODIES.get(type(s), ())}
        if isinstance(s, For):
            self.bound = outer
        return replace(s, **parts)
