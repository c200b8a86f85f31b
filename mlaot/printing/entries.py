"""Turn the entries of a program into nests: the place of each buffer, and the calls of kernels in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import lcm

from mlaot.ir import Dim
from mlaot.ir.dims import Expr as Polynomial
from mlaot.ir.dims import dim, largest, names, product
from mlaot.lower.builder import elements
from mlaot.lower.identifiers import array_name
from mlaot.lower.parallel import work_of_round
from mlaot.lower.program import (
    Bind,
    Branch,
    Buffer,
    ExtensionModule,
    Kernel,
    Loop,
    Param,
    Procedure,
    Step,
    Steps,
    kernels_of,
    most_of_steps,
)
from mlaot.nest.expressions import BOOL, Array, Call, Expr, Index, cast
from mlaot.nest.statements import (
    Body,
    Break,
    For,
    If,
    Let,
    Nest,
    Point,
    Run,
    RunRange,
    RunRounds,
    Statement,
    free_variables,
    index_var,
    loop,
    walk,
)
from mlaot.printing.functions import Function, Functions, RowsPart, identifier
from mlaot.printing.printer import Printed, print_entry
from mlaot.schedule.parallel import RANGE

DIMS = Array("dim", "index", 0)
# Pointers of an entry behind its inputs and outputs; OWN is that of a thread.
STATE, CONSTANTS, WORKSPACE, THREADS, OWN = range(5)

Marks = Mapping[int, int]  # by the id of a kernel, the number by which its time is told


def entries(
    module: ExtensionModule, procedure: Procedure, prefix: str, functions: Functions, marks: Marks | None = None
) -> list[Function]:
    """Return the functions of an entry, two if it is split; with ``marks``, each kernel is marked behind its call."""
    parts = [("", procedure.steps)]
    if procedure.entry.split:
        at = procedure.forward
        parts = [("_forward", procedure.steps[:at]), ("_backward", procedure.steps[at:])]
    offsets = {id(buffer): offset for buffer, offset in procedure.offsets}
    context = _Context(module, procedure, functions, offsets, marks=marks)
    result = []
    for suffix, steps in parts:
        name = f"{prefix}_{procedure.entry.name}{suffix}_{functions.machine.name}"
        result.append(Function(name, *replace(context, points={}, names=set()).function(steps)))
    return result


@dataclass(frozen=True)
class _Context:
    """The context of steps: the entry, and the variables of the loops around them.

    ``own``: in a function that threads run, the work buffer of which each of them has one. ``parts``: in a function of
    a range of rows, what runs each kernel there, by its id. ``bound``: the dims that were counted around the steps.
    """

    module: ExtensionModule
    procedure: Procedure
    functions: Functions
    offsets: dict[int, Dim]  # id of a work buffer: its byte offset
    variables: tuple[str, ...] = ()
    own: Buffer | None = None
    points: dict[tuple[int, str], Point] = field(default_factory=dict)  # by the id of their buffers, and dtype
    names: set[str] = field(default_factory=set)
    parts: dict[int, RowsPart] = field(default_factory=dict)
    bound: tuple[str, ...] = ()
    marks: Marks | None = None

    @property
    def pointers(self) -> int:
        """How many pointers an entry gets for its inputs and outputs."""
        return len(self.procedure.entry.inputs) + len(self.procedure.entry.outputs)

    @property
    def numbers(self) -> tuple[Expr, ...]:
        """The numbers that a function of rounds or rows gets; none if they are those of the call."""
        if not self.variables and not self.bound:
            return ()
        unknown = self.most.keys() - {*self.bound}
        return tuple(Index(0 if d in unknown else dim(d)) for d in (*self.module.c_dims, *self.variables))

    @cached_property
    def most(self) -> dict[str, Dim]:
        """What the dims are at most that the steps count."""
        return most_of_steps(self.procedure.steps)

    def function(
        self, steps: Iterable[Step], around: Loop | None = None, *, of_rows: bool = False
    ) -> tuple[Printed, Nest]:
        """Return a function of some steps, of a range of the rounds of ``around`` if that is a loop, or ``of_rows``."""
        inside = replace(self, variables=(*self.variables, *([around.variable] if around else [])))
        body = _statements(steps, inside)
        if around is not None:
            low, high = (Index(dim(name)) for name in RANGE)
            body = (For(index_var(around.variable), low, high, body),)
        points = sorted(self.points.values(), key=lambda point: point.pointer)
        used = free_variables([*points, *body])
        dims = (*self.module.c_dims, *self.variables)
        lets = tuple(Let(index_var(d), DIMS[i]) for i, d in enumerate(dims) if d in used)
        rounds = [s for s in walk(body) if isinstance(s, RunRounds | RunRange)]
        needs_threads = bool(rounds) or any(isinstance(s, Run) and s.is_shared for s in walk(body))
        statements = (*lets, *points, *body)
        printed = print_entry(
            statements,
            ranged=around is not None or of_rows,
            threads=self.pointers + THREADS if needs_threads else None,
            unused=[
                *([] if points or needs_threads else ["p"]),
                *([] if lets or not all(s.dims for s in rounds) else ["dim"]),
            ],
        )
        return printed, Nest(self.procedure.entry.name, (), statements)

    def address(self, buffer: Buffer, origin: str = "") -> tuple[Array, Dim]:
        """Return the array that a buffer is part of, and the element at which the buffer begins there.

        ``origin``: the part of the model that the kernel with this buffer computes.
        """
        start: Dim = 0
        seen = buffer
        while buffer.within is not None:
            start = buffer.start + start
            assert seen.dtype == buffer.within.dtype or start == 0, f"bug in mlaot: {buffer} in {buffer.within}"
            buffer = buffer.within
        key = id(buffer), seen.dtype
        if key not in self.points:
            self.points[key] = self._point(buffer, buffer if seen.dtype == buffer.dtype else seen, origin)
        return self.points[key].array, start

    def _point(self, buffer: Buffer, seen: Buffer, origin: str) -> Point:
        """Return the statement that defines an array; ``seen`` is the buffer with the dtype that a kernel reads."""
        pointer, offset = self._pointer(buffer)
        array = Array(self._name(buffer, origin), seen.dtype, largest(elements(seen), self.most))
        shape = ", ".join(map(str, seen.shape))
        panels = f", in panels of {buffer.panels.width} along axis {buffer.panel_axis}" if buffer.panels else ""
        return Point(array, pointer, offset, buffer.where in ("input", "constant"), f"[{shape}]{panels}")

    def _name(self, buffer: Buffer, origin: str) -> str:
        """Name an array as the user does, or for the part of the model that it serves."""
        is_numbered = buffer.name.startswith("t") and buffer.name[1:].isdigit()
        if is_numbered and buffer.where == "work":
            name = array_name(origin) if origin else buffer.name
        else:
            name = array_name(buffer.name)
        name = f"x_{name}" if name.endswith(f"_{self.functions.machine.name}") else name  # as functions do
        number, unique = 2, name
        while unique in self.names:
            number, unique = number + 1, f"{name}_{number}"
        self.names.add(unique)
        return unique

    def _pointer(self, buffer: Buffer) -> tuple[int, Dim]:
        """Return the pointer of an entry from which a buffer is reached, and the byte offset there."""
        entry = self.procedure.entry
        if buffer.where == "input":
            return [port.name for port in entry.inputs].index(buffer.name), 0
        if buffer.where == "output":
            return len(entry.inputs) + [port.name for port in entry.outputs].index(buffer.name), 0
        if buffer is self.own:
            return self.pointers + OWN, 0
        if buffer.where == "work":
            return self.pointers + WORKSPACE, self.offsets[id(buffer)]
        return self.pointers + (CONSTANTS if buffer.where == "constant" else STATE), self.procedure.places[id(buffer)]


def _statements(steps: Iterable[Step], context: _Context) -> Body:
    """Turn steps into statements."""
    return tuple(statement for step in steps for statement in _statement(step, context))


def _statement(step: Step, context: _Context) -> Body:
    if isinstance(step, Steps):
        return _statements(step.inner, context)
    if isinstance(step, Loop):
        work = work_of_round(step) if context.functions.threads else None
        return _loop_or_rows(step, context) if work is None else (_rounds(step, work, context),)
    if isinstance(step, Bind):
        return _bind(step, context)
    if isinstance(step, Branch):
        then, otherwise = (_statements(steps, context) for steps in (step.then, step.otherwise))
        return (If(_truth(step.condition, context), then, otherwise),)
    run, condition = _run(step, context), not_empty(step)
    return (run,) if condition is None else (If(condition, (run,)),)


def _run(kernel: Kernel, context: _Context) -> Run:
    """Return the call of a kernel."""
    arrays = tuple(
        (array, Index(start)) for array, start in (context.address(p.buffer, kernel.origin) for p in kernel.params)
    )
    _, sizes = kernel.sized
    mark = None if context.marks is None else context.marks[id(kernel)]
    part = context.parts.get(id(kernel))
    if part is not None:
        own = [dim(name) * part.count for name in RANGE]
        numbers = tuple(map(Index, (*[sizes.get(d, dim(d)) for d in part.dims], *own)))
        return Run(part.name, arrays, numbers, mark=mark)
    callee = context.functions.callee(kernel, in_task=context.own is not None)
    dims = tuple(Index(sizes.get(d, dim(d))) for d in callee.dims)
    is_said = callee.name.startswith(f"{identifier(kernel.origin)}_")  # by the function's name
    return Run(callee.name, arrays, dims, callee.is_shared, "" if is_said else plain(kernel.origin), mark)


def plain(name: str) -> str:
    """Return a name for a comment, which nothing in it ends or continues."""
    return "".join(c if c.isalnum() or c in "._-/: " else "_" for c in name)


def _truth(param: Param, context: _Context) -> Expr:
    array, start = context.address(param.buffer)
    return array[start]


def _bind(step: Bind, context: _Context) -> Body:
    """Return what waits for a dim: the dim, and the steps on the condition that there is room for so many."""
    inside = replace(context, bound=(*context.bound, step.dim))
    number, zero = Index(dim(step.dim)), Index(0)
    pairs = ((number, zero), (Index(step.most), number), *((Index(need), zero) for need in step.needs))
    let = Let(index_var(step.dim), cast(_truth(step.count, context), "index"))
    fits = _join("and", [Call("ge", pair, BOOL) for pair in pairs])
    return (let, If(fits, _statements(step.inner, inside)))


def _loop(step: Loop, context: _Context) -> Statement:
    """Return a loop around kernels."""
    inside = replace(context, variables=(*context.variables, step.variable))
    body = _statements(step.tested, inside)
    if step.condition is not None:
        body = (*body, If(Call("not", (_truth(step.condition, context),), BOOL), (Break(),)))
    return loop(step.variable, step.extent, (*body, *_statements(step.steps, inside)))


def _loop_or_rows(step: Loop, context: _Context) -> Body:
    """Return a loop; where its rows are separate and many, the call of a function that runs all rounds on a part."""
    own = _loop(step, context)
    if not step.rows or context.own is not None or context.parts or not context.functions.threads:
        return (own,)
    parts = {id(k): context.functions.part_of_rows(k, step.rows) for k in kernels_of(step.steps)}
    found = {key: part for key, part in parts.items() if part is not None}
    if len(found) < len(parts):
        return (own,)
    rows, multiple = dim(step.rows), lcm(*[part.step for part in found.values()])
    inside = replace(context, points={}, names=set(), parts=found)
    name = context.functions.task("rows", *inside.function([step], of_rows=True))
    work = product((step.extent, sum((part.loop.work * part.count for part in found.values()), start=0 * rows)))
    share = RunRange(name, context.numbers, Index(rows), multiple, Index(work))
    return (If(Call("ge", (Index(rows), Index(2 * multiple)), BOOL), (share,), (own,)),)


def _rounds(step: Loop, work: int, context: _Context) -> RunRounds:
    """Return the call of a loop whose rounds threads share, each thread with memory of its own."""
    assert step.private is not None
    inside = replace(context, own=step.private, points={}, names=set())
    name = context.functions.task("rounds", *inside.function(step.steps, step))
    offset, size = Index(context.offsets[id(step.private)]), Index(step.private.bytes)
    return RunRounds(name, context.numbers, Index(step.extent), work, context.pointers + OWN, offset, size)


def not_empty(kernel: Kernel) -> Expr | None:
    """Return whether a kernel writes anything; None if its loops are too short to be worth the question.

    An array without elements may have any number of rows, and a loop over these takes its time.
    """
    written = [[d for d in p.buffer.shape if isinstance(d, Polynomial)] for p in kernel.params if p.written]
    open_ = {name for p in kernel.params for extent in p.buffer.shape for name in names(extent)}
    if len(open_) < 2 or not all(written):
        return None
    sizes = [
        _join("and", [Call("gt", (Index(d), Index(0)), BOOL) for d in dict.fromkeys(extents)]) for extents in written
    ]
    return _join("or", list(dict.fromkeys(sizes)))


def _join(operator: str, truths: list[Expr]) -> Expr:
    return reduce(lambda a, b: Call(operator, (a, b), BOOL), truths)
