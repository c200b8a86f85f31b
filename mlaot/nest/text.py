"""The text form of nests, printed and parsed. It is a subset of Python's syntax.

    def softmax(out: f32[64 * batch], x: f32[64 * batch]):
        for i in parallel(0, batch):
            s: f32 = f32(0.0)
            for j in vector(0, 64):
                s = s + exp(x[i * 64 + j])
            for j in vector(0, 64):
                out[i * 64 + j] = exp(x[i * 64 + j]) / s

A first assignment binds a variable. An assignment with a type declares a mutable variable, to which later ones assign.
``x[i:8]`` are eight adjacent elements, ``x[i:8:n]`` are ``n`` elements apart, and ``x[i:8, k]`` are the first ``k`` of
eight. ``x[i, ...]`` is in a padded row. ``s = transpose(..)`` binds the columns ``s_0`` and so on. ``w: f32[4096,
panels(64, 64, 16)]`` is a matrix in panels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mlaot.ir.dims import Dim, dim
from mlaot.ir.types import DTYPES
from mlaot.nest.expressions import (
    BOOL,
    COMPARISONS,
    INDEX,
    Array,
    Call,
    Const,
    Expr,
    Index,
    Load,
    Panels,
    ValueType,
    Var,
    arithmetic,
    as_index,
    cast,
    compare,
    splat,
)
from mlaot.nest.statements import (
    Alloc,
    Assign,
    Block,
    Body,
    Break,
    Choose,
    For,
    If,
    Invoke,
    Let,
    Mutable,
    Nest,
    Prefetch,
    Slice,
    Sort,
    Statement,
    Store,
    Transpose,
    While,
)

OPERATORS = dict(
    zip(
        ("add", "sub", "mul", "div", "and", "or", "xor", *COMPARISONS),
        ("+", "-", "*", "/", "&", "|", "^", "==", "!=", "<", "<=", ">", ">="),
        strict=True,
    )
)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr, ast.BitXor)
SYNTAX: dict[type[ast.AST], str] = dict(
    zip((*ARITHMETIC, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE), OPERATORS, strict=True)
)
LOOPS = {"range": {}, "parallel": {"parallel": True}, "vector": {"vector": True}, "down": {"down": True}}
LOOPS["parallel_vector"] = {"parallel": True, "vector": True}
LOOPS["parallel_down"] = {"parallel": True, "down": True}
LOOPS["tiled"], LOOPS["parallel_tiled"] = {"tiled": True}, {"parallel": True, "tiled": True}


def nest_text(nest: Nest) -> str:
    """Return a nest as text that ``parse_nest`` reads."""
    params = ", ".join(f"{a.name}: {a.dtype}[{_shape(a)}]" for a in nest.params)
    doc = [f"    # {line}" for line in nest.doc]
    return "\n".join([f"def {nest.name}({params}):", *doc, *body_lines(nest.body, 1)]) + "\n"


def body_lines(body: Body, depth: int) -> list[str]:
    """Return the lines of a body."""
    indent = "    " * depth
    lines: list[str] = []
    for statement in body:
        head, *more = _lines(statement, depth)
        lines += [indent + head, *more]
    return lines or [f"{indent}pass"]


def _lines(s: Statement, depth: int) -> list[str]:
    """Return the lines of a statement, the first one without its indent."""
    if isinstance(s, Let | Assign):
        return [f"{s.var.name} = {expression_text(s.value)}"]
    if isinstance(s, Mutable):
        return [f"{s.var.name}: {s.var.type} = {expression_text(s.value)}"]
    if isinstance(s, Store):
        lanes = s.value.type.lanes
        return [f"{s.array.name}[{_place(s.index, lanes, s.step, s.count, s.padded)}] = {expression_text(s.value)}"]
    if isinstance(s, For):
        kind = next(k for k, v in LOOPS.items() if all(getattr(s, f) == v.get(f, False) for f in FLAGS))
        step = f", {s.step}" if s.step != 1 else ""
        low, high = expression_text(s.low), expression_text(s.high)
        return [f"for {s.var.name} in {kind}({low}, {high}{step}):", *body_lines(s.body, depth + 1)]
    if isinstance(s, While):
        return [f"while {expression_text(s.condition)}:", *body_lines(s.body, depth + 1)]
    if isinstance(s, If):
        otherwise = ["    " * depth + "else:", *body_lines(s.otherwise, depth + 1)] if s.otherwise else []
        return [f"if {expression_text(s.condition)}:", *body_lines(s.body, depth + 1), *otherwise]
    if isinstance(s, Block):
        return ["with block:", *body_lines(s.body, depth + 1)]
    if isinstance(s, Alloc):
        values = f", {list(s.array.values)}" if s.array.values else ""
        return [f"{s.array.name} = {s.array.space}({s.array.dtype}, {_dim(s.array.size)}{values})"]
    if isinstance(s, Choose):
        source = f"{s.source.name}[{expression_text(s.index)}]"
        return [f"{s.array.name} = choose({expression_text(s.condition)}, {source}, {s.other.name})"]
    if isinstance(s, Slice):
        return [f"{s.array.name} = slice({s.source.name}[{expression_text(s.index)}])"]
    if isinstance(s, Invoke):
        source = f"{s.source.name}[{expression_text(s.index)}]"
        return [f"{s.var.name} = invoke({s.function}, {source}, {expression_text(s.count)}, {s.target.name})"]
    if isinstance(s, Sort):
        target, source = f"{s.target.name}[{expression_text(s.place)}]", f"{s.source.name}[{expression_text(s.index)}]"
        numbers = ", ".join(map(expression_text, (s.step, s.count, s.low, s.high)))
        return [f"{'sort_descending' if s.descending else 'sort'}({target}, {source}, {numbers})"]
    if isinstance(s, Transpose):
        return [f"{s.name} = transpose({', '.join(map(expression_text, s.rows))})"]
    if isinstance(s, Prefetch):
        return [f"prefetch({s.array.name}[{expression_text(s.index)}])"]
    return ["break"]


FLAGS = ("parallel", "vector", "down", "tiled")


def _shape(array: Array) -> str:
    return _dim(array.size) + (f", {array.panels}" if array.panels else "")


def _dim(value: Dim) -> str:
    return str(value).replace(" / ", " // ")


def _place(index: Expr, lanes: int, step: Dim, count: Expr | None, padded: bool) -> str:
    text = expression_text(index)
    if lanes != 1:
        text += f":{lanes}" + (f":{_dim(step)}" if step != 1 else "")
    text += "" if count is None else f", {expression_text(count)}"
    return f"{text}, ..." if padded else text


def expression_text(x: Expr, inside: bool = False) -> str:
    """Return an expression as text, in parentheses if it is an operator ``inside`` another one."""
    if isinstance(x, Const):
        return f"{x.type}({x.value!r})"
    if isinstance(x, Var):
        return x.name
    if isinstance(x, Index):
        text = _dim(x.value)
        return f"({text})" if inside and not text.isalnum() else text
    if isinstance(x, Load):
        return f"{x.array.name}[{_place(x.index, x.type.lanes, x.step, x.count, x.padded)}]"
    if x.name in OPERATORS and len(x.args) == 2:
        text = f" {OPERATORS[x.name]} ".join(expression_text(a, True) for a in x.args)
        return f"({text})" if inside else text
    if x.name == "not":
        return f"~{expression_text(x.args[0], True)}"
    args = ", ".join(map(expression_text, x.args))
    if x.name == "cast":
        return f"cast[{x.type.dtype}]({args})"
    if x.name == "splat":
        return f"splat[{x.type.lanes}]({args})"
    own = "" if x.type == default_type(x.name, x.args) else f"[{x.type}]"
    return f"{x.name}{own}({args})"


def default_type(name: str, args: Sequence[Expr]) -> ValueType:
    """Return the type of a call whose text does not state it, which is that of its last argument."""
    return args[-1].type if args else BOOL


def parse_nest(text: str) -> Nest:
    """Parse the text of a nest.

    Raises:
        ValueError: The text is no nest; the message begins with the line.
    """
    try:
        (function,) = ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    if not isinstance(function, ast.FunctionDef):
        raise ValueError("line 1: expected def name(arrays):")
    doc = [line.strip()[2:] for line in text.splitlines() if line.startswith("    # ")]
    params = tuple(_array(a.arg, a.annotation) for a in function.args.args)
    reader = _Reader({a.name: a for a in params})
    return Nest(function.name, params, reader.body(function.body), tuple(doc))


def _array(name: str, annotation: ast.expr | None) -> Array:
    if not isinstance(annotation, ast.Subscript):
        raise ValueError(f"expected {name}: dtype[size]")
    size, *panels = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    layout = Panels(*map(ast.literal_eval, panels[0].args)) if panels else None  # type: ignore[attr-defined]
    return Array(name, ast.unparse(annotation.value), size_of(size), panels=layout)


def size_of(node: ast.expr) -> Dim:
    """Parse a polynomial."""
    value = _Reader({}).expression(node)
    if not isinstance(value, Index):
        raise ValueError(f"line {node.lineno}: expected a size, got {ast.unparse(node)}")
    return value.value


class _Reader:
    """Read statements; keep the arrays and the types of the variables so far."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self.variables: dict[str, ValueType] = {}
        self.mutable: set[str] = set()

    def body(self, statements: Sequence[ast.stmt]) -> Body:
        outer = self.arrays.copy(), self.variables.copy(), self.mutable.copy()
        result = tuple(s for statement in statements for s in self.statement(statement))
        self.arrays, self.variables, self.mutable = outer
        return result

    def statement(self, s: ast.stmt) -> Iterator[Statement]:
        """Parse a statement."""
        if isinstance(s, ast.Assign):
            yield self.assignment(s)
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.value is not None:
            var = Var(s.target.id, value_type(ast.unparse(s.annotation)))
            yield Mutable(var, self.expression(s.value))
            self.variables[var.name] = var.type
            self.mutable.add(var.name)
        elif isinstance(s, ast.For):
            yield self.loop(s)
        elif isinstance(s, ast.While):
            yield While(self.expression(s.test), self.body(s.body))
        elif isinstance(s, ast.If):
            yield If(self.expression(s.test), self.body(s.body), self.body(s.orelse))
        elif isinstance(s, ast.With):
            yield Block(self.body(s.body))
        elif isinstance(s, ast.Break):
            yield Break()
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            yield self.action(s.value)
        elif not isinstance(s, ast.Pass):
            raise ValueError(f"line {s.lineno}: {ast.unparse(s)} is no statement of a nest")

    def action(self, s: ast.Call) -> Statement:
        """Parse a call that binds no variable."""
        function = ast.unparse(s.func)
        array, index, *_ = self.place(s.args[0])
        if function == "prefetch":
            return Prefetch(array, index)
        source, at, *_ = self.place(s.args[1])
        step, count, low, high = map(self.expression, s.args[2:])
        return Sort(array, index, source, at, step, count, low, high, function == "sort_descending")

    def assignment(self, s: ast.Assign) -> Statement:
        """Parse a statement with an equals sign: a store, a declaration of memory, a binding or an assignment."""
        (target,) = s.targets
        if isinstance(target, ast.Subscript):
            array, index, _, step, count, padded = self.place(target)
            return Store(array, index, self.expression(s.value), step, count, padded)
        if not isinstance(target, ast.Name):
            raise ValueError(f"line {s.lineno}: {ast.unparse(target)} is no variable and no element")
        name, value = target.id, s.value
        function, args = (ast.unparse(value.func), value.args) if isinstance(value, ast.Call) else ("", [])
        if function in ("local", "table"):
            dtype, size, *values = args
            entries = tuple(ast.literal_eval(values[0])) if values else ()
            self.arrays[name] = Array(name, ast.unparse(dtype), size_of(size), function, entries)
            return Alloc(self.arrays[name])
        if function == "choose":
            condition, (source, at, *_) = self.expression(args[0]), self.place(args[1])
            self.arrays[name] = Array(name, source.dtype, source.size, "local")
            return Choose(self.arrays[name], condition, source, at, self.arrays[ast.unparse(args[2])])
        if function == "slice":
            source, at, *_ = self.place(args[0])
            self.arrays[name] = Array(name, source.dtype, source.size, "slice")
            return Slice(self.arrays[name], source, at)
        if function == "invoke":
            (source, at, *_), count = self.place(args[1]), self.expression(args[2])
            self.variables[name] = INDEX
            target_array = self.arrays[ast.unparse(args[3])]
            return Invoke(Var(name, INDEX), ast.unparse(args[0]), source, at, count, target_array)
        if function == "transpose":
            square = Transpose(name, tuple(map(self.expression, args)))
            self.variables |= {var.name: var.type for var in square.vars}
            return square
        x = self.expression(value)
        if name in self.mutable:
            return Assign(Var(name, self.variables[name]), x)
        self.variables[name] = x.type
        return Let(Var(name, x.type), x)

    def loop(self, s: ast.For) -> For:
        if not (isinstance(s.target, ast.Name) and isinstance(s.iter, ast.Call) and isinstance(s.iter.func, ast.Name)):
            raise ValueError(f"line {s.lineno}: expected for variable in range(low, high):")
        low, high, *step = (self.expression(a) for a in s.iter.args)
        var = Var(s.target.id, INDEX)
        by = int(str(step[0].value)) if step and isinstance(step[0], Index) else 1
        return For(var, low, high, self.body(s.body), by, **LOOPS[s.iter.func.id])

    def place(self, node: ast.expr) -> tuple[Array, Expr, int, Dim, Expr | None, bool]:
        """Return the array, index, lanes, step and count of an element or a vector, and whether its row is padded."""
        array = self.arrays.get(ast.unparse(node.value)) if isinstance(node, ast.Subscript) else None
        if array is None or not isinstance(node, ast.Subscript):
            raise ValueError(f"line {node.lineno}: {ast.unparse(getattr(node, 'value', node))} is no array")
        at, *more = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        padded = bool(more) and ast.unparse(more[-1]) == "..."
        count = self.expression(more[0]) if len(more) > padded else None
        if not isinstance(at, ast.Slice):
            return array, self.index(at), 1, 1, count, padded
        assert at.lower is not None and at.upper is not None
        lanes = int(ast.unparse(at.upper))
        return array, self.index(at.lower), lanes, 1 if at.step is None else size_of(at.step), count, padded

    def index(self, node: ast.expr) -> Expr:
        return as_index(self.expression(node))

    def expression(self, node: ast.expr) -> Expr:
        """Parse an expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return Index(node.value)
        if isinstance(node, ast.Name):
            type_ = self.variables.get(node.id, INDEX)
            return Index(dim(node.id)) if type_ == INDEX else Var(node.id, type_)
        if isinstance(node, ast.Subscript):
            array, index, lanes, step, count, padded = self.place(node)
            return Load(array, index, ValueType(load_dtype(array.dtype, lanes), lanes), step, count, padded)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return arithmetic("mul", self.expression(node.operand), -1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            operand = self.expression(node.operand)
            return Call("not", (operand,), operand.type)
        if isinstance(node, ast.BinOp | ast.Compare):
            return self.binary(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        raise ValueError(f"line {node.lineno}: {ast.unparse(node)} is no expression of a nest")

    def binary(self, node: ast.BinOp | ast.Compare) -> Expr:
        if isinstance(node, ast.Compare):
            return compare(SYNTAX[type(node.ops[0])], self.expression(node.left), self.expression(node.comparators[0]))
        a, b = self.expression(node.left), self.expression(node.right)
        if isinstance(node.op, ast.FloorDiv):
            assert isinstance(a, Index) and isinstance(b, Index) and isinstance(b.value, int)
            return Index(a.value // b.value)
        name = SYNTAX[type(node.op)]
        return arithmetic(name, a, b) if name in ("add", "sub", "mul") else Call(name, (a, b), a.type)

    def call(self, node: ast.Call) -> Expr:
        name, own = node.func, ""
        function = ast.unparse(name)
        if isinstance(name, ast.Subscript):
            function, own = ast.unparse(name.value), ast.unparse(name.slice)
        if is_type(function) and len(node.args) == 1:
            return Const(number(node.args[0]), value_type(function))
        args = tuple(map(self.expression, node.args))
        if function == "cast":
            return cast(args[0], own)
        if function == "splat":
            return splat(args[0], int(own))
        return Call(function, args, value_type(own) if own else default_type(function, args))


def load_dtype(dtype: str, lanes: int) -> str:
    """Return the dtype of a loaded value. Truth values are bytes in memory, and masks of a byte in lanes."""
    return "m8" if dtype == "bool" and lanes != 1 else dtype


def is_type(text: str) -> bool:
    """Tell whether ``text`` is that of a type."""
    return text in DTYPE_NAMES or text.partition("x")[0] in DTYPE_NAMES


DTYPE_NAMES = {*DTYPES, "m8", "m16", "m32", "m64", "index"}


def value_type(text: str) -> ValueType:
    """Parse a type, ``f32`` or ``f32x8``."""
    if text in DTYPE_NAMES:
        return ValueType(text)
    dtype, _, lanes = text.partition("x")
    return ValueType(dtype, 1 if "x" not in text else int(lanes or 0))


def number(node: ast.expr) -> float | int:
    """Parse a literal, an infinity or nan."""
    text = ast.unparse(node)
    value: float | int = float(text) if text.strip("-") in ("inf", "nan") else ast.literal_eval(node)
    return value
