"""The entries of a program as nests: where each buffer lies, and the kernels that run one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce

from mlaot.ir import Dim
from mlaot.ir.dims import Expr as Polynomial
from mlaot.ir.dims import dim, names
from mlaot.lower.builder import elements
from mlaot.lower.identifiers import array_name
from mlaot.lower.parallel import work_of_round
from mlaot.lower.program import Branch, Buffer, Kernel, Loop, Module, Param, Procedure, Sequence, Step
from mlaot.nest.expressions import BOOL, Array, Call, Expr, Index
from mlaot.nest.statements import (
    Body,
    Break,
    For,
    If,
    Let,
    Nest,
    Point,
    Run,
    RunRounds,
    Statement,
    free,
    index_var,
    loop,
    walk,
)
from mlaot.printing.functions import Function, Functions, identifier
from mlaot.printing.printer import Printed, print_entry
from mlaot.schedule.parallel import RANGE

DIMS = Array("dim", "index", 0)
# Pointers of an entry behind its inputs and outputs; OWN is that of a thread.
STATE, CONSTANTS, WORKSPACE, THREADS, OWN = range(5)


def entries(module: Module, procedure: Procedure, prefix: str, functions: Functions) -> list[Function]:
    """The functions of an entry, which has two where it is split."""
    parts = [("", procedure.steps)]
    if procedure.entry.split:
        at = procedure.forward
        parts = [("_forward", procedure.steps[:at]), ("_backward", procedure.steps[at:])]
    place = _Place(module, procedure, functions, {id(buffer): offset for buffer, offset in procedure.offsets})
    found = []
    for suffix, steps in parts:
        name = f"{prefix}_{procedure.entry.name}{suffix}_{functions.machine.name}"
        found.append(Function(name, *replace(place, points={}, names=set()).function(steps)))
    return found


@dataclass(frozen=True)
class _Place:
    """Where steps stand: the entry, and the variables of the loops around them.

    ``own``: the work buffer of which each thread has one of its own, in a function that threads run.
    """

    module: Module
    procedure: Procedure
    functions: Functions
    offsets: dict[int, Dim]  # id of a work buffer: its byte offset
    variables: tuple[str, ...] = ()
    own: Buffer | None = None
    points: dict[tuple[int, str], Point] = field(default_factory=dict)  # by the id of their buffers, and dtype
    names: set[str] = field(default_factory=set)

    @property
    def pointers(self) -> int:
        """How many pointers an entry is given for its inputs and outputs."""
        return len(self.procedure.entry.inputs) + len(self.procedure.entry.outputs)

    def function(self, steps: Iterable[Step], around: Loop | None = None) -> tuple[Printed, Nest]:
        """A function of some steps; of a range of the rounds of ``around``, if that is given."""
        inside = replace(self, variables=(*self.variables, *([around.variable] if around else [])))
        body = _statements(steps, inside)
        if around is not None:
            low, high = (Index(dim(name)) for name in RANGE)
            body = (For(index_var(around.variable), low, high, body),)
        points = sorted(self.points.values(), key=lambda point: point.pointer)
        used = free([*points, *body])
        dims = (*self.module.c_dims, *self.variables)
        lets = tuple(Let(index_var(d), DIMS[i]) for i, d in enumerate(dims) if d in used)
        rounds = [s for s in walk(body) if isinstance(s, RunRounds)]
        needs_threads = any(isinstance(s, RunRounds) or (isinstance(s, Run) and s.is_shared) for s in walk(body))
        whole = (*lets, *points, *body)
        printed = print_entry(
            whole,
            ranged=around is not None,
            threads=self.pointers + THREADS if needs_threads else None,
            unused=[
                *([] if points or needs_threads else ["p"]),
                *([] if lets or not all(s.dims for s in rounds) else ["dim"]),
            ],
        )
        return printed, Nest(self.procedure.entry.name, (), whole)

    def address(self, buffer: Buffer, origin: str = "") -> tuple[Array, Dim]:
        """The array that a buffer is a part of, and the element at which it begins there.

        ``origin``: the part of the model that a kernel computes which has it.
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
        """``seen``: the buffer as elements of the type that a kernel reads."""
        pointer, offset = self._pointer(buffer)
        array = Array(self._name(buffer, origin), seen.dtype, elements(seen))
        shape = ", ".join(map(str, seen.shape))
        panels = f", in panels of {buffer.panels.width} along axis {buffer.panels.axis}" if buffer.panels else ""
        return Point(array, pointer, offset, buffer.where in ("input", "constant"), f"[{shape}]{panels}")

    def _name(self, buffer: Buffer, origin: str) -> str:
        """What an array is called here: as the user calls it, or the part of the model that it is for."""
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
        """Which pointer of an entry a buffer is reached from, and the byte offset there."""
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


def _statements(steps: Iterable[Step], place: _Place) -> Body:
    """Some steps as statements."""
    return tuple(statement for step in steps for statement in _statement(step, place))


def _statement(step: Step, place: _Place) -> Body:
    if isinstance(step, Sequence):
        return _statements(step.steps, place)
    if isinstance(step, Loop):
        work = work_of_round(step)
        return (_loop(step, place) if work is None else _rounds(step, work, place),)
    if isinstance(step, Branch):
        then, otherwise = (_statements(some, place) for some in (step.then, step.otherwise))
        return (If(_truth(step.condition, place), then, otherwise),)
    run, some = _run(step, place), not_empty(step)
    return (run,) if some is None else (If(some, (run,)),)


def _run(kernel: Kernel, place: _Place) -> Run:
    """The call of a kernel."""
    callee = place.functions.callee(kernel, in_task=place.own is not None)
    arrays = tuple(
        (array, Index(start)) for array, start in (place.address(p.buffer, kernel.origin) for p in kernel.params)
    )
    _, known = kernel.sized
    dims = tuple(Index(known.get(d, dim(d))) for d in callee.dims)
    is_said = callee.name.startswith(f"{identifier(kernel.origin)}_")  # by the function's name
    return Run(callee.name, arrays, dims, callee.is_shared, "" if is_said else plain(kernel.origin))


def plain(name: str) -> str:
    """A name as a comment may have it: nothing in it ends or continues a line."""
    return "".join(c if c.isalnum() or c in "._-/: " else "_" for c in name)


def _truth(param: Param, place: _Place) -> Expr:
    array, start = place.address(param.buffer)
    return array[start]


def _loop(step: Loop, place: _Place) -> Statement:
    """A loop around kernels."""
    inside = replace(place, variables=(*place.variables, step.variable))
    body = _statements(step.tested, inside)
    if step.condition is not None:
        body = (*body, If(Call("not", (_truth(step.condition, place),), BOOL), (Break(),)))
    return loop(step.variable, step.extent, (*body, *_statements(step.steps, inside)))


def _rounds(step: Loop, work: int, place: _Place) -> RunRounds:
    """The call of a loop whose rounds threads share, each thread with memory of its own."""
    assert step.apart is not None
    inside = replace(place, own=step.apart, points={}, names=set())
    name = place.functions.task("rounds", *inside.function(step.steps, step))
    dims = tuple(Index(dim(d)) for d in (*place.module.c_dims, *place.variables)) if place.variables else ()
    offset, size = Index(place.offsets[id(step.apart)]), Index(step.apart.bytes)
    return RunRounds(name, dims, Index(step.extent), work, place.pointers + OWN, offset, size)


def not_empty(kernel: Kernel) -> Expr | None:
    """Whether a kernel writes anything; nothing where its loops are too short to be worth the question.

    An array without elements may have any number of rows, and a loop over these takes its time.
    """
    written = [[d for d in p.buffer.shape if isinstance(d, Polynomial)] for p in kernel.params if p.written]
    open_ = {name for p in kernel.params for extent in p.buffer.shape for name in names(extent)}
    if len(open_) < 2 or not all(written):
        return None
    sizes = [_joined("and", [Call("gt", (Index(d), Index(0)), BOOL) for d in dict.fromkeys(some)]) for some in written]
    return _joined("or", list(dict.fromkeys(sizes)))


def _joined(operator: str, truths: list[Expr]) -> Expr:
    return reduce(lambda a, b: Call(operator, (a, b), BOOL), truths)
