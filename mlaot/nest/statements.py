"""Statements of a loop nest, and the nest itself, which becomes one function of C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from mlaot.ir.dims import Dim, names
from mlaot.nest.expressions import (
    INDEX,
    Array,
    Expr,
    Index,
    Load,
    Var,
    as_index,
    least,
    subexpressions,
    substitute,
    variables,
)


@dataclass(frozen=True, slots=True)
class Let:
    """Bind a variable once."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Mutable:
    """Declare a variable that is assigned to again."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign a new value to a mutable variable."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``value``: lane i to ``index + i * step``; lanes from ``count`` on are not written.

    With ``padded`` whole vectors may be written past the last element of the axis along which elements are adjacent.
    """

    array: Array
    index: Expr
    value: Expr
    step: Dim = 1
    count: Expr | None = None
    padded: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """Run ``body`` for ``var`` from ``low`` to below ``high`` by ``step``, or from the last to the first with ``down``.

    With ``parallel`` no round reads or writes an element that another round writes, so threads may share the rounds.
    With ``vector`` the schedule makes vectors along the loop. With ``tiled`` the schedule makes register tiles of the
    loops around a sum, with lanes along this loop.
    """

    var: Var
    low: Expr
    high: Expr
    body: Body
    step: int = 1
    parallel: bool = False
    vector: bool = False
    down: bool = False
    tiled: bool = False


@dataclass(frozen=True, slots=True)
class While:
    """Run ``body`` as long as ``condition`` holds, or until a ``Break``."""

    condition: Expr
    body: Body


@dataclass(frozen=True, slots=True)
class If:
    """Run ``body`` if ``condition`` holds, and else ``otherwise``."""

    condition: Expr
    body: Body
    otherwise: Body = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Run ``body`` with variables of its own."""

    body: Body


@dataclass(frozen=True, slots=True)
class Alloc:
    """Declare memory that lives until the end of the block."""

    array: Array


@dataclass(frozen=True, slots=True)
class Choose:
    """Let ``array`` be the elements of ``source`` from ``index`` on if ``condition`` holds, else ``other``."""

    array: Array
    condition: Expr
    source: Array
    index: Expr
    other: Array


@dataclass(frozen=True, slots=True)
class Slice:
    """Let ``array`` be the elements of ``source`` from ``index`` on, which are only read."""

    array: Array
    source: Array
    index: Expr


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call a function with ``count`` elements of ``source`` from ``index`` on, which fills ``target`` from its start.

    ``var`` is bound to the number that the function returns.
    """

    var: Var
    function: str
    source: Array
    index: Expr
    count: Expr
    target: Array


@dataclass(frozen=True, slots=True)
class Sort:
    """Sort ``count`` elements of ``source``, from ``index`` on and ``step`` apart, into ``target`` from ``place`` on.

    The places from ``low`` to before ``high`` get their sorted elements; other elements of the row are arbitrary. Equal
    elements keep their order, and nan is above all numbers. Integers may be sorted in place.
    """

    target: Array
    place: Expr
    source: Array
    index: Expr
    step: Expr
    count: Expr
    low: Expr
    high: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Transpose:
    """Bind the columns of a square to ``name_0`` and so on; it has as many ``rows`` as each vector has lanes."""

    name: str
    rows: tuple[Expr, ...]

    @property
    def vars(self) -> tuple[Var, ...]:
        """The columns, as vectors."""
        return tuple([Var(f"{self.name}_{k}", row.type) for k, row in enumerate(self.rows)])


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Prefetch the cache line of an element."""

    array: Array
    index: Expr


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the innermost loop."""


@dataclass(frozen=True, slots=True)
class Point:
    """Let ``array`` be the memory ``offset`` bytes after one of an entry's pointers; ``doc`` says what it holds."""

    array: Array
    pointer: int
    offset: Dim
    is_constant: bool
    doc: str


@dataclass(frozen=True, slots=True)
class Run:
    """Call a kernel with arrays, each from an element on, and with numbers, perhaps on several threads.

    ``doc`` is the part of the model that the kernel computes. ``mark`` is the number of its clock, if it is timed.
    """

    function: str
    arrays: tuple[tuple[Array, Expr], ...]
    numbers: tuple[Expr, ...]
    is_shared: bool = False
    doc: str = ""
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class RunRounds:
    """Run a function on the range of a loop that threads share.

    ``dims`` are the numbers that the function gets; empty for those of the call. ``work`` is the number of operations
    of one round. ``own`` is the number of the pointer to the thread's own memory, ``bytes`` long, from ``offset`` on in
    the workspace.
    """

    function: str
    dims: tuple[Expr, ...]
    extent: Expr
    work: int
    own: int
    offset: Expr
    bytes: Expr


@dataclass(frozen=True, slots=True)
class RunRange:
    """Run a function on a range of rows that threads share; each thread gets a multiple of ``step`` rows.

    ``dims`` are the numbers that the function gets; empty for those of the call. ``work`` is the number of operations
    of one row.
    """

    function: str
    dims: tuple[Expr, ...]
    extent: Expr
    step: int
    work: Expr


OfKernels = (
    Let
    | Mutable
    | Assign
    | Store
    | For
    | While
    | If
    | Block
    | Alloc
    | Choose
    | Slice
    | Invoke
    | Sort
    | Transpose
    | Prefetch
    | Break
)
OfEntries = Point | Run | RunRounds | RunRange
Statement = OfKernels | OfEntries
Body = tuple[Statement, ...]


@dataclass(frozen=True)
class Nest:
    """A function of the arrays ``params``. Its free variables are dims, and ``doc`` has the lines that it computes."""

    name: str
    params: tuple[Array, ...]
    body: Body
    doc: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.params, self.body))

    @property
    def dims(self) -> tuple[str, ...]:
        """The free variables, in alphabetical order."""
        return tuple(sorted(free_variables(self.body)))

    @cached_property
    def written_arrays(self) -> set[str]:
        """The names of the arrays that the nest writes to."""
        return written_arrays(self.body)

    @cached_property
    def is_tiled(self) -> bool:
        """Whether the nest is a contraction of which the schedule makes register tiles."""
        return any(isinstance(s, For) and s.tiled for s in walk(self.body))


def written_arrays(body: Iterable[Statement]) -> set[str]:
    """Return the names of the arrays that a body writes to."""
    targets = {s.target.name for s in walk(body) if isinstance(s, Invoke | Sort)}
    return targets | {s.array.name for s in walk(body) if isinstance(s, Store)}


def is_of_numbers(loop: For) -> bool:
    """Tell whether a loop does the same for each number, without branches, so that compilers can vectorize it."""
    statements = [s for s in walk(loop.body) if not isinstance(s, Block)]
    simple = all(isinstance(s, Let | Mutable | Assign | Store) for s in statements)
    values = [s.value.type for s in statements if isinstance(s, Let | Mutable | Assign | Store)]
    is_kept = any(isinstance(s, Assign | Store) for s in statements)
    return simple and is_kept and loop.step == 1 and all(type_.lanes == 1 for type_ in values)


def rounds_of(loop: For) -> int | None:
    """Return the number of rounds of a loop, or None if its bounds are not numbers."""
    if not (isinstance(loop.low, Index) and isinstance(loop.high, Index)):
        return None
    low, high = loop.low.value, loop.high.value
    return max(-(-(high - low) // loop.step), 0) if isinstance(low, int) and isinstance(high, int) else None


def index_var(name: str) -> Var:
    """Return a variable of type ``index``."""
    return Var(name, INDEX)


def loop(name: str, extent: Dim | Expr, body: Iterable[Statement], **more: bool) -> For:
    """Return the loop that runs ``body`` for the variable ``name`` from 0 to below ``extent``."""
    return For(index_var(name), Index(0), as_index(extent), tuple(body), **more)


def loop_in_block(name: str, first: Expr, size: int, extent: Dim, body: Body) -> For:
    """Return the loop over the block of at most ``size`` rounds that begins at ``first``."""
    return For(index_var(name), first, least(first + size, extent), body)


def around(loops: Iterable[tuple[str, Dim]], body: Iterable[Statement], **more: bool) -> Body:
    """Wrap ``body`` in loops, the outermost first. A loop without a name, over a unit axis, is left out."""
    result = tuple(body)
    for name, extent in reversed([*loops]):
        result = (loop(name, extent, result, **more),) if name else result
    return result


# The fields of each kind of statement that hold expressions, arrays that it reads or writes, and bodies.
EXPRESSIONS: Mapping[type[Statement], tuple[str, ...]] = {
    **dict.fromkeys((Let, Mutable, Assign), ("value",)),
    Store: ("count", "index", "value"),
    For: ("low", "high"),
    **dict.fromkeys((While, If), ("condition",)),
    Choose: ("condition", "index"),
    Invoke: ("index", "count"),
    Sort: ("place", "index", "step", "count", "low", "high"),
    **dict.fromkeys((Slice, Prefetch), ("index",)),
    RunRounds: ("extent", "offset", "bytes"),
    RunRange: ("extent", "work"),
}
ARRAYS: Mapping[type[Statement], tuple[str, ...]] = {
    **dict.fromkeys((Store, Prefetch), ("array",)),
    Choose: ("source", "other"),
    Slice: ("source",),
    Invoke: ("source", "target"),
    Sort: ("target", "source"),
}
BODIES: Mapping[type[Statement], tuple[str, ...]] = {
    **dict.fromkeys((For, While, Block), ("body",)),
    If: ("body", "otherwise"),
}


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions of a statement, without those of its body."""
    if isinstance(statement, Store):
        count = () if statement.count is None else (statement.count,)
        return Index(statement.step), *count, statement.index, statement.value
    result = tuple([getattr(statement, name) for name in EXPRESSIONS.get(type(statement), ())])
    if isinstance(statement, Transpose):
        return statement.rows
    if isinstance(statement, Point):
        return (Index(statement.offset),)
    if isinstance(statement, Run):
        return *[start for _, start in statement.arrays], *statement.numbers
    return (*statement.dims, *result) if isinstance(statement, RunRounds | RunRange) else result


def bodies(statement: Statement) -> tuple[Body, ...]:
    """Return the bodies of a statement."""
    names = BODIES.get(type(statement))
    return tuple([getattr(statement, name) for name in names]) if names else ()


def walk(body: Iterable[Statement]) -> Iterator[Statement]:
    """Yield every statement, each followed by those of its bodies."""
    for statement in body:
        yield statement
        for inner in bodies(statement):
            yield from walk(inner)


def all_expressions(body: Iterable[Statement]) -> Iterator[Expr]:
    """Yield every expression of every statement."""
    for statement in walk(body):
        for x in expressions(statement):
            yield from subexpressions(x)


def bound_variables(statement: Statement) -> tuple[Var, ...]:
    """Return the variables that a statement binds in the block where it stands."""
    if isinstance(statement, Transpose):
        return statement.vars
    return (statement.var,) if isinstance(statement, Let | Mutable | Invoke) else ()


def free_variables(body: Iterable[Statement], cache: dict[int, set[str]] | None = None) -> set[str]:
    """Return the variables and dims that a body uses and does not bind, the sizes of its own arrays included.

    ``cache`` holds the result for each body inside, by its ``id``.
    """
    cache = {} if cache is None else cache
    used: set[str] = set()
    inside: set[str] = set()
    for statement in body:
        for x in expressions(statement):
            used |= variables(x) - inside
        if isinstance(statement, Alloc):
            used |= names(statement.array.size) - inside
        own = {statement.var.name} if isinstance(statement, For) else set()
        for inner in bodies(statement):
            if id(inner) not in cache:
                cache[id(inner)] = free_variables(inner, cache)
            used |= cache[id(inner)] - inside - own
        inside |= {var.name for var in bound_variables(statement)}
    return used


def map_expressions(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """Return a body with ``change`` applied to all of its expressions."""
    return tuple(_map_statement(statement, change) for statement in body)


def _map_statement(statement: Statement, change: Callable[[Expr], Expr]) -> Statement:
    parts: dict[str, Any] = map_own_expressions(statement, change)
    parts |= {name: map_expressions(getattr(statement, name), change) for name in BODIES.get(type(statement), ())}
    return replace(statement, **parts) if parts else statement


def map_own_expressions(statement: Statement, change: Callable[[Expr], Expr]) -> dict[str, Any]:
    """Apply ``change`` to the expressions of a statement; return the results by the names of their fields."""
    if isinstance(statement, Transpose):
        return {"rows": tuple(map(change, statement.rows))}
    names = EXPRESSIONS.get(type(statement), ())
    return {name: change(x) for name in names if (x := getattr(statement, name)) is not None}


def map_bodies(statement: Statement, change: Callable[[Body], Body]) -> Statement:
    """Return a statement with ``change`` applied to its bodies."""
    parts: dict[str, Any] = {name: change(getattr(statement, name)) for name in BODIES.get(type(statement), ())}
    return replace(statement, **parts) if parts else statement


def substitute_body(body: Body, values: Mapping[str, Expr]) -> Body:
    """Replace free variables of a body by ``values``."""
    return map_expressions(body, lambda x: substitute(x, values))


def arrays_of(body: Iterable[Statement]) -> dict[str, Array]:
    """Return the arrays that a body reads or writes, by name."""
    arrays: list[Array] = [getattr(s, name) for s in walk(body) for name in ARRAYS.get(type(s), ())]
    arrays += [s.array for s in walk(body) if isinstance(s, Alloc | Choose | Slice)]
    arrays += [x.array for x in all_expressions(body) if isinstance(x, Load)]
    return {array.name: array for array in arrays}


def eliminate_dead_code(body: Body) -> Body:
    """Remove the variables that nothing reads from a body."""
    return _live(body, set(), {})


def _live(body: Body, used: set[str], cache: dict[int, set[str]]) -> Body:
    """Return the live statements of a body.

    ``used`` has the names that are read after the body, to which those that the body reads are added. For ``cache`` see
    ``free_variables``.
    """
    live = partial(_live_block, used=used, cache=cache)
    kept: list[Statement] = []
    for s in reversed(body):
        if isinstance(s, Let | Mutable | Assign) and s.var.name not in used:
            continue
        if isinstance(s, For | While):
            used |= free_variables((s,), cache)  # what one round leaves, the next reads
        s = map_bodies(s, live)
        for x in expressions(s):
            used |= variables(x)
        kept.append(s)
    return tuple(reversed(kept))


def _live_block(body: Body, used: set[str], cache: dict[int, set[str]]) -> Body:
    """Return the live statements of a block, whose variables hide those of equal names outside."""
    own = {var.name for s in body for var in bound_variables(s)}
    kept = _live(body, used - own, cache)
    if id(body) not in cache:
        cache[id(body)] = free_variables(body, cache)
    used |= cache[id(body)]
    return kept
