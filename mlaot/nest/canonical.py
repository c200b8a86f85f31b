"""Nests whatever their arrays, dims and variables are called: what equal layers have in common."""

from __future__ import annotations

from dataclasses import replace

from mlaot.ir.dims import Dim, dim, names, replaced
from mlaot.nest.expressions import Array, Expr, Index, Load, Var, rebuilt
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Block,
    Body,
    Choose,
    For,
    If,
    Invoke,
    Let,
    Mutable,
    Nest,
    Prefetch,
    Slice,
    Statement,
    Store,
    While,
)


def canonical(nest: Nest) -> tuple[Nest, tuple[str, ...]]:
    """A nest with arrays, dims and variables numbered by their first appearance; and its dims in that order.

    Two nests that compute the same from arguments in the same order are equal then. What arrays are named for, how
    large they are and the comments do not count.
    """
    numbers = _Numbers({a.name: f"p{i}" for i, a in enumerate(nest.params)})
    body = numbers.body(nest.body)
    params = tuple(numbers.array(a) for a in nest.params)
    return Nest("", params, body), tuple(numbers.dims)


class _Numbers:
    """Gives every name its number at its first appearance; blocks have variables of their own."""

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
        return replaced(value, {n: dim(self.name(n)) for n in sorted(names(value))})

    def array(self, array: Array) -> Array:
        return Array(self.arrays[array.name], array.dtype, 0, array.space, array.values, array.panels)

    def expression(self, x: Expr) -> Expr:
        if isinstance(x, Var):
            return Var(self.name(x.name), x.type)
        if isinstance(x, Index):
            return Index(self.polynomial(x.value))
        found = rebuilt(x, self.expression)
        if isinstance(found, Load):
            step = self.polynomial(found.step)
            return Load(self.array(found.array), found.index, found.type, step, found.count, found.padded)
        return found

    def body(self, body: Body) -> Body:
        outer = self.bound.copy(), self.arrays.copy()
        result = tuple(map(self.statement, body))
        self.bound, self.arrays = outer
        return result

    def statement(self, s: Statement) -> Statement:
        if isinstance(s, Let | Mutable):
            value = self.expression(s.value)
            return type(s)(self.bind(s.var), value)
        if isinstance(s, Assign):
            return Assign(Var(self.name(s.var.name), s.var.type), self.expression(s.value))
        if isinstance(s, Store):
            count = None if s.count is None else self.expression(s.count)
            index, value = self.expression(s.index), self.expression(s.value)
            return Store(self.array(s.array), index, value, self.polynomial(s.step), count, s.padded)
        if isinstance(s, For):
            low, high = self.expression(s.low), self.expression(s.high)
            outer = self.bound.copy()
            result = replace(s, var=self.bind(s.var), low=low, high=high, body=self.body(s.body))
            self.bound = outer
            return result
        if isinstance(s, If):
            return If(self.expression(s.condition), self.body(s.body), self.body(s.otherwise))
        if isinstance(s, While):
            return While(self.expression(s.condition), self.body(s.body))
        if isinstance(s, Block):
            return Block(self.body(s.body))
        if isinstance(s, Alloc):
            self.arrays[s.array.name] = f"a{len(self.arrays)}"
            return Alloc(replace(s.array, name=self.arrays[s.array.name], size=self.polynomial(s.array.size)))
        if isinstance(s, Choose):
            condition, index = self.expression(s.condition), self.expression(s.index)
            source, other = self.array(s.source), self.array(s.other)
            self.arrays[s.array.name] = f"a{len(self.arrays)}"
            return Choose(self.array(s.array), condition, source, index, other)
        if isinstance(s, Slice):
            source, index = self.array(s.source), self.expression(s.index)
            self.arrays[s.array.name] = f"a{len(self.arrays)}"
            return Slice(self.array(s.array), source, index)
        if isinstance(s, Invoke):
            source, target = self.array(s.source), self.array(s.target)
            index, count = self.expression(s.index), self.expression(s.count)
            return Invoke(self.bind(s.var), s.function, source, index, count, target)
        return Prefetch(self.array(s.array), self.expression(s.index)) if isinstance(s, Prefetch) else s
