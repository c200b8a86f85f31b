"""The text form of programs, printed and parsed: one object on each line, and nests in their own text form.

    def contraction(out: f32[batch * 48], x: f32[batch * 64], w: f32[3072, panels(64, 48, 16)]):
        for i in parallel(0, batch):
            ..
    k0 = Kernel(nest=contraction, params=(Param('out', b0, True), Param('x', b1, False), ..), origin='hidden')
    b1 = Buffer(name='x', dtype='f32', shape=(batch, 64), strides=(64, 1), where='input')
    p0 = Procedure(entry=Entry(..), steps=(k0,), offsets=(), forward=1, places=((b2, 0),))
    program = Program(module=ExtensionModule(..), procedures=(p0,))

The syntax is Python's, parsed as data. A name that no object has is a dim. Metadata of a module (``info``, golden
vectors, measured schedules) is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from mlaot.ir.dims import Expr, dim
from mlaot.ir.indices import IndexRange
from mlaot.lower import program as programs
from mlaot.lower.program import Buffer, Kernel, Procedure, Program
from mlaot.nest.statements import Nest
from mlaot.nest.text import nest_text, parse_nest, size_of

# The classes of programs, by name. Nests have a text form of their own.
CLASSES: Mapping[str, type[Any]] = {
    name: cls
    for name, cls in (*vars(programs).items(), (IndexRange.__name__, IndexRange))
    if is_dataclass(cls) and isinstance(cls, type) and cls is not Nest
}
UNPRINTED = ("info", "golden", "metadata", "tuned")  # fields of a module that are not printed
LETTERS = {Buffer: "b", Kernel: "k", Procedure: "p"}  # objects with a line of their own


def program_text(program: Program) -> str:
    """Return a program as text that ``parse_program`` reads."""
    printer = _Printer()
    last = printer.value(program)
    return "\n".join([*printer.lines, f"program = {last}", ""])


class _Printer:
    """Print objects after the objects that they contain, and each buffer, kernel and procedure once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.held: list[object] = []  # keeps objects alive, so that ids stay unique

    def value(self, x: Any) -> str:
        letter = LETTERS.get(type(x))
        if letter is None:
            return self.literal(x)
        if id(x) not in self.names:
            text = self.literal(x)
            self.names[id(x)] = name = f"{letter}{sum(n[0] == letter for n in self.names.values())}"
            self.held.append(x)
            self.lines.append(f"{name} = {text}")
        return self.names[id(x)]

    def literal(self, x: Any) -> str:
        if isinstance(x, Procedure):
            return self.procedure(x)
        if type(x) in CLASSES.values():
            stated = [f for f in fields(x) if f.name not in UNPRINTED and getattr(x, f.name) is not f.default]
            return f"{type(x).__name__}({', '.join(f'{f.name}={self.value(getattr(x, f.name))}' for f in stated)})"
        if isinstance(x, Nest):
            self.lines.append(nest_text(x).rstrip())
            return x.name
        if isinstance(x, Expr):
            return str(x).replace(" / ", " // ")
        if isinstance(x, tuple):
            return f"({', '.join(map(self.value, x))}{',' if len(x) == 1 else ''})"
        if isinstance(x, bytearray):
            return repr(bytes(x))
        return repr(x)

    def procedure(self, x: Procedure) -> str:
        """Print the places of buffers by their names, as an ``id`` means nothing elsewhere."""
        entry, steps = self.value(x.entry), self.value(x.steps)
        buffers = {id(p.buffer.root): p.buffer.root for step in x.steps for p in step.params}
        offsets = self.value(x.offsets)
        places = self.value(tuple((b, x.places[i]) for i, b in buffers.items() if i in x.places))
        return f"Procedure(entry={entry}, steps={steps}, offsets={offsets}, forward={x.forward}, places={places})"


def parse_program(text: str) -> Program:
    """Parse the text of a program.

    Raises:
        ValueError: The text is no program; the message begins with the line.
    """
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    objects: dict[str, Any] = {}
    for s in body:
        if isinstance(s, ast.FunctionDef):
            objects[s.name] = parse_nest(ast.get_source_segment(text, s) or "")
        elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            objects[s.targets[0].id] = _value(s.value, objects)
        else:
            raise ValueError(f"line {s.lineno}: expected a nest or an object with a name")
    program = objects.get("program")
    if not isinstance(program, Program):
        raise ValueError(f"line {len(text.splitlines())}: expected program = Program(..)")
    return program


def _value(node: ast.expr, objects: Mapping[str, Any]) -> Any:
    """Build the object that an expression of the text describes."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return objects[node.id] if node.id in objects else dim(node.id)
    if isinstance(node, ast.Tuple):
        return tuple(_value(part, objects) for part in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, objects)
    if isinstance(node, ast.BinOp):
        return size_of(node)
    cls = CLASSES.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
    if cls is None or not isinstance(node, ast.Call):
        raise ValueError(f"line {node.lineno}: {ast.unparse(node)} is no part of a program")
    values = {word.arg: _value(word.value, objects) for word in node.keywords if word.arg}
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    if node.args or needed - values.keys() or values.keys() - {f.name for f in fields(cls)}:
        raise ValueError(f"line {node.lineno}: expected {cls.__name__}({', '.join(sorted(needed))})")
    if cls is Procedure:
        values["places"] = {id(buffer): place for buffer, place in values["places"]}
    return cls(**values)
