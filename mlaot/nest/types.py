"""Check the types of a loop nest: the arguments and results of calls, and that variables are bound before use."""

from __future__ import annotations

from collections.abc import Iterable

from mlaot.nest.expressions import (
    BOOL,
    COMPARISONS,
    INDEX,
    Call,
    Expr,
    Load,
    ValueType,
    Var,
    is_float,
    mask_of,
    subexpressions,
)
from mlaot.nest.expressions import variables as variables_of
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Body,
    Choose,
    For,
    If,
    Invoke,
    Let,
    Mutable,
    Nest,
    Slice,
    Sort,
    Statement,
    Store,
    Transpose,
    While,
    bodies,
    bound_variables,
)
from mlaot.nest.statements import expressions as expressions_of

# All arguments and the result are of one type.
ALIKE = {
    *("add", "sub", "mul", "div", "mod", "and", "or", "xor", "neg", "not", "max", "min"),
    *("greater", "lesser", "least", "most"),
}
ARITY = {**dict.fromkeys(ALIKE, 2), "neg": 1, "not": 1, "cast": 1, "splat": 1, "bitcast": 1, "convert": 1, "select": 3}
CONVERSIONS = ("cast", "bitcast", "convert")  # between numbers, lane by lane


def check_types(nest: Nest) -> None:
    """Raise an AssertionError for a variable out of its scope or a value of a wrong type."""
    statements = _all(nest.body)
    inside = {var.name for s in statements for var in bound_variables(s)}
    inside |= {s.var.name for s in statements if isinstance(s, For)}
    _Types(nest, inside).body(nest.body, {}, {a.name: a.dtype for a in nest.params})


def _all(body: Iterable[Statement]) -> list[Statement]:
    return [x for s in body for x in (s, *[y for inner in bodies(s) for y in _all(inner)])]


class _Types:
    """A checker of the types of a nest. ``inside`` has the names that statements bind, which no dim may have."""

    def __init__(self, nest: Nest, inside: set[str]) -> None:
        self.nest = nest
        self.inside = inside

    def need(self, holds: bool, statement: Statement, problem: str) -> None:
        assert holds, f"bug in mlaot: {self.nest.name}: {problem} in {statement}"

    def body(self, body: Body, variables: dict[str, ValueType], arrays: dict[str, str]) -> None:
        """Check a body; ``variables`` and ``arrays`` are those in scope, by their types."""
        variables, arrays = dict(variables), dict(arrays)
        changing = {s.var.name for s in body if isinstance(s, Mutable)}
        for s in body:
            for x in expressions_of(s):
                self.expression(x, s, variables, arrays)
            self.statement(s, variables, arrays)
            own = {s.var.name: INDEX} if isinstance(s, For) else {}
            for inner in bodies(s):
                self.body(inner, variables | own, arrays)
            for var in bound_variables(s):
                self.need(var.name not in changing or isinstance(s, Mutable), s, f"{var.name} is bound twice")
                variables[var.name] = var.type
            if isinstance(s, Alloc | Slice | Choose):
                arrays[s.array.name] = s.array.dtype

    def statement(self, s: Statement, variables: dict[str, ValueType], arrays: dict[str, str]) -> None:
        """Check the types of a statement's parts."""
        if isinstance(s, Let | Mutable | Assign):
            self.need(s.var.type == s.value.type, s, f"{s.var.name} is {s.var.type} and gets {s.value.type}")
        if isinstance(s, Assign):
            self.need(variables.get(s.var.name) == s.var.type, s, f"{s.var.name} is not declared as {s.var.type}")
        elif isinstance(s, Store):
            self.need(arrays.get(s.array.name) == s.array.dtype, s, f"there is no {s.array.dtype} {s.array.name}")
            self.need(s.index.type == INDEX, s, "an index is no number of elements")
            self.need(_fits(s.value.type, s.array.dtype), s, f"{s.value.type} is stored as {s.array.dtype}")
        elif isinstance(s, Invoke):
            missing = [a.name for a in (s.source, s.target) if arrays.get(a.name) != a.dtype]
            self.need(not missing, s, f"there is no {missing}")
            self.need(s.index.type == s.count.type == INDEX, s, "an index or a count is no number of elements")
        elif isinstance(s, Sort):
            missing = [a.name for a in (s.source, s.target) if arrays.get(a.name) != s.target.dtype]
            self.need(not missing, s, f"there is no {s.target.dtype} {missing}")
            self.need(all(x.type == INDEX for x in expressions_of(s)), s, "a place is no number of elements")
        elif isinstance(s, Transpose):
            alike = {x.type for x in s.rows} == {ValueType(s.rows[0].type.dtype, len(s.rows))}
            self.need(alike and is_float(s.rows[0].type.dtype), s, "rows are no square of floats")
        elif isinstance(s, Choose):
            missing = [a.name for a in (s.source, s.other) if arrays.get(a.name) != s.array.dtype]
            self.need(not missing, s, f"there is no {s.array.dtype} {missing}")
            self.need(s.condition.type == BOOL, s, "a condition is no truth value")
            self.need(s.index.type == INDEX, s, "an index is no number of elements")
        elif isinstance(s, Slice):
            self.need(arrays.get(s.source.name) == s.array.dtype, s, f"there is no {s.array.dtype} {s.source.name}")
        elif isinstance(s, For):
            self.need(s.low.type == s.high.type == INDEX, s, "the ends of a loop are no numbers of elements")
        elif isinstance(s, While | If):
            self.need(s.condition.type == BOOL, s, "a condition is no truth value")

    def expression(self, x: Expr, s: Statement, variables: dict[str, ValueType], arrays: dict[str, str]) -> None:
        """Check that names are bound and that calls have arguments and results of valid types."""
        for part in subexpressions(x):
            if isinstance(part, Var):
                self.need(variables.get(part.name) == part.type, s, f"{part.name} is not bound as {part.type}")
            elif isinstance(part, Load):
                self.need(arrays.get(part.array.name) == part.array.dtype, s, f"there is no {part.array.name}")
                self.need(part.index.type == INDEX, s, "an index is no number of elements")
            elif isinstance(part, Call):
                self.need(_agrees(part), s, f"{part.name} takes {[str(a.type) for a in part.args]}, gives {part.type}")
            if not isinstance(part, Call | Var):
                for name in variables_of(part) & self.inside:
                    self.need(name in variables, s, f"{name} is not bound")


def _fits(value: ValueType, dtype: str) -> bool:
    """Tell whether a value can be stored as ``dtype``: lanes of truth values are masks, others may be converted."""
    if value.lanes == 1:
        return value.dtype == dtype
    return value.dtype.startswith("m") == (dtype == "bool")


def _agrees(x: Call) -> bool:
    """Tell whether the arguments and the result of a call have types that its name accepts."""
    types = [a.type for a in x.args]
    if x.name in ARITY and len(types) != ARITY[x.name]:
        return False
    if x.name in COMPARISONS:
        return len(types) == 2 and types[0] == types[1] and x.type == mask_of(types[0])
    if x.name in ALIKE:
        return all(t == x.type for t in types)
    if x.name == "select":
        return types[1] == types[2] == x.type and types[0] == mask_of(x.type)
    if x.name == "splat":
        return types[0].lanes == 1 and x.type.lanes != 1 and (types[0].dtype == x.type.dtype or x.type.dtype[0] == "m")
    return x.name not in CONVERSIONS or types[0].lanes == x.type.lanes
