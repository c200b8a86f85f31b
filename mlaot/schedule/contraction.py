"""Contractions in the form for schedules: the loops, the operands and the epilogue of a tiled nest.

for i in parallel(0, 64):                           Contraction(
    for j in parallel_tiled(0, 512):                    out=(i: 64, j: 512), summed=(k: 784), lanes="j",
        acc: f32 = 0                        =>          operands=(x: i*784 + k, w: k*512 + j), combine="add",
        for k in range(0, 784):                         start=0, epilogue=(y[i*512 + j] = relu(acc)))
            acc = acc + x[i*784 + k] * w[k*512 + j]
        y[i*512 + j] = relu(acc)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mlaot.ir import DTYPES, Dim
from mlaot.ir.dims import NOMINAL, assign, names, step_of
from mlaot.nest.expressions import HALVES, Array, Call, Const, Expr, Index, Load, Panels
from mlaot.nest.statements import Assign, Body, For, Mutable, Nest, Statement
from mlaot.schedule.machine import Machine


@dataclass(frozen=True)
class Axis:
    """A loop of a contraction: its variable and its extent."""

    name: str
    size: Dim


@dataclass(frozen=True)
class Operand:
    """An array that a contraction reads. Its element index is ``offset`` plus each variable times its stride.

    With ``vector`` whole vectors are loaded along the lanes; otherwise one element is broadcast. With ``padded`` a
    whole vector may be loaded past the end of the lanes' axis. With ``panels`` the lanes' axis is cut into panels, and
    strides count rows of a panel.
    """

    array: Array = field(compare=False)  # what it is called changes no schedule
    dtype: str
    strides: tuple[tuple[str, Dim], ...]
    offset: Dim
    vector: bool
    padded: bool
    panels: Panels | None = None


@dataclass(frozen=True)
class Groups:
    """Grouped operands of a contraction: numbers of few bits, and fields of words.

    The fields of a word that the function ``dot`` multiplies at once are the innermost summed axis, and the words of a
    group the next one. The sum of a group is of integers, and begins with ``start`` if that is not 0. It is added to
    the whole sum times ``scale``, which is given for each column, and ``row_scale``, which is given for each row.
    """

    dot: str
    scale: Operand
    row_scale: Operand
    start: Operand | None

    @property
    def bits(self) -> int:
        """The bits of a field."""
        return 4 if self.dot in DOTS else 8


@dataclass(frozen=True)
class Inside:
    """The rounds of the summed variable ``name`` whose terms are not all zeros: from ``low`` to below ``high``.

    Both decrease as the variable ``other`` of the result increases, and may be outside of the variable's rounds.
    """

    name: str
    other: str
    low: Dim
    high: Dim


@dataclass(frozen=True)
class Contraction:
    """A nest that sums products (or combines the elements of one operand) over ``summed`` for each point of ``out``.

    ``lanes`` is the variable that runs along the lanes. If it is a variable of ``out``, the last operand is loaded in
    vectors. If it is summed, all operands are, and the lanes are combined at the end. ``combine`` is the function of
    two values. ``once`` comes before all loops, and ``epilogue`` stores the sum, a variable ``acc``, at a point of
    ``out``. ``gates`` is an axis of ``out`` whose points are all in one tile, with the sums ``acc0``, ``acc1`` and so
    on. ``dot`` is the function that adds products of four bytes to a 32-bit sum, if factors are bytes, and else empty.
    ``groups`` describes a last operand in groups. With ``power`` 1 or 2, absolute differences or their squares are
    summed instead of products. ``inside`` has the rounds outside of which operands are padding.
    """

    dtype: str
    out: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    lanes: str
    operands: tuple[Operand, ...]
    combine: str
    start: Const
    gates: str | None = None
    dot: str = ""
    groups: Groups | None = None
    power: int = 0
    inside: tuple[Inside, ...] = ()
    once: Body = field(default=(), compare=False)
    epilogue: Body = field(default=(), compare=False)

    @property
    def has_integer_sums(self) -> bool:
        """Whether the products are of integers."""
        return bool(self.dot) or self.groups is not None


DOTS = ("dot4", "dot4_pairs")  # add the products of four bytes
GATE = "g"  # the axis of several sums at each point
FIELD = "f"  # the axis of fields of a word, as many as are multiplied at once


def contraction_of(nest: Nest) -> Contraction:
    """Analyse a tiled nest: the loops around its sum, the operands and the epilogue."""
    at = next(i for i, s in enumerate(nest.body) if isinstance(s, For | Mutable))
    once, body = nest.body[:at], nest.body[at:]
    out, body = _loops(body)
    starts = [s for s in body if isinstance(s, Mutable)]
    inner, epilogue = body[len(starts) : len(starts) + 1], body[len(starts) + 1 :]
    if isinstance(inner[0], For) and isinstance(inner[0].body[0], Mutable):
        return _in_groups(out, starts[0], inner[0], once, epilogue)
    if not isinstance(inner[0], For):  # a sum over one point
        inner, epilogue = body[len(starts) : 2 * len(starts)], body[2 * len(starts) :]
    summed, updates = _loops(inner)
    lanes = next(loop.var.name for loop in (*out, *summed) if loop.tiled)
    functions, reads = zip(*map(_factors, updates), strict=True)
    axes = [Axis(loop.var.name, _extent(loop)) for loop in out]
    if len(updates) > 1:
        axes.insert(-1, Axis(GATE, len(updates)))
    sums = tuple(Axis(loop.var.name, _extent(loop)) for loop in summed)
    variables = [axis.name for axis in (*axes, *sums) if axis.name != GATE]
    start = starts[0].value
    assert isinstance(start, Const), f"bug in mlaot: {nest.name}: a sum that starts with {start}"
    return Contraction(
        start.type.dtype,
        tuple(axes),
        sums,
        lanes,
        tuple(_operand(loads, variables, lanes) for loads in zip(*reads, strict=True)),
        "add" if functions[0] in DOTS else functions[0],
        start,
        GATE if len(updates) > 1 else None,
        functions[0] if functions[0] in DOTS else "",
        power=_power(updates[0]),
        inside=tuple(found for loop in summed if (found := _inside(loop, out)) is not None),
        once=once,
        epilogue=epilogue,
    )


def _in_groups(out: Sequence[For], start: Mutable, group: For, once: Body, epilogue: Body) -> Contraction:
    """Analyse a sum over groups, each of which is the sum of the products of a row with fields of words."""
    first, words, last = group.body
    assert isinstance(first, Mutable) and isinstance(words, For) and isinstance(start.value, Const)
    assert isinstance(last, Assign) and isinstance(last.value, Call)
    _, scales = _product(last.value.args[1])
    scale, row_scale = map(_element, _product(scales))
    lanes = next(loop.var.name for loop in out if loop.tiled)
    dots, reads = zip(*map(_factors, words.body), strict=True)
    x, fields = zip(*[pair[::-1] if dots[0] in DOTS else pair for pair in reads], strict=True)
    axes = tuple(Axis(loop.var.name, _extent(loop)) for loop in out)
    sums = tuple(Axis(loop.var.name, _extent(loop)) for loop in (group, words))
    variables = [axis.name for axis in (*axes, *sums)]
    return Contraction(
        start.value.type.dtype,
        axes,
        (*sums, Axis(FIELD, len(fields))),
        lanes,
        (_operand(x, variables, lanes, FIELD), _operand(fields[:1], variables, lanes)),
        "add",
        start.value,
        groups=Groups(
            dots[0],
            _operand([scale], variables, lanes),
            _operand([row_scale], variables, lanes),
            _operand([first.value], variables, lanes) if isinstance(first.value, Load) else None,
        ),
        once=once,
        epilogue=epilogue,
    )


def _loops(body: Body) -> tuple[list[For], Body]:
    """Split a body into its outer loops and the statements inside."""
    loops: list[For] = []
    while isinstance(body[0], For):
        loops.append(body[0])
        body = body[0].body
    return loops, body


def _extent(loop: For) -> Dim:
    high = loop.high.args[1] if isinstance(loop.high, Call) else loop.high
    assert isinstance(high, Index), f"bug in mlaot: tiles of a loop to {loop.high}"
    return high.value


def _inside(loop: For, out: Sequence[For]) -> Inside | None:
    """Return the rounds of a loop over a summed variable, if they depend on a variable of the result."""
    if not (isinstance(loop.low, Call) and isinstance(loop.high, Call)):
        return None
    low, high = (end.args[0] for end in (loop.low, loop.high))
    assert isinstance(low, Index) and isinstance(high, Index), f"bug in mlaot: tiles of a loop from {low} to {high}"
    (other,) = names(low.value) & {each.var.name for each in out}
    return Inside(loop.var.name, other, low.value, high.value)


def _factors(s: Statement) -> tuple[str, list[Load]]:
    """Return the function that combines a value into a sum, and the elements whose product the value is."""
    assert isinstance(s, Assign) and isinstance(s.value, Call), f"bug in mlaot: no sum is made by {s}"
    _, *factors = s.value.args
    if isinstance(factors[0], Call) and factors[0].name in ("mul", "abs"):
        factors = [*factors[0].args]
    if isinstance(factors[0], Call) and factors[0].name == "sub":
        factors = [*factors[0].args]
    return s.value.name, [_element(x) for x in factors]


def _power(s: Statement) -> int:
    """Return the power of the absolute differences that are summed, or 0 for products."""
    assert isinstance(s, Assign) and isinstance(s.value, Call)
    term = s.value.args[1]
    if not isinstance(term, Call) or not isinstance(term.args[0], Call) or term.args[0].name != "sub":
        return 0
    return 2 if term.name == "mul" else 1


def _product(x: Expr) -> tuple[Expr, Expr]:
    """Return the factors of a product."""
    assert isinstance(x, Call) and x.name == "mul", f"bug in mlaot: {x} is no product"
    first, second = x.args
    return first, second


def _element(x: Expr) -> Load:
    """Return the element of a factor, which may be its conversion, its fields, or a word of several elements."""
    while isinstance(x, Call):
        x = x.args[0]
    assert isinstance(x, Load), f"bug in mlaot: a sum over {x}"
    return x


def _operand(loads: Sequence[Load], variables: Sequence[str], lanes: str, several: str = GATE) -> Operand:
    """Describe an operand by the elements that the sums at a point read: one, or those along an axis ``several``."""
    first = loads[0]
    places = [x.index.value for x in loads if isinstance(x.index, Index)]
    strides = [(name, step_of(places[0], name)) for name in variables]
    offset = assign(places[0], dict.fromkeys(variables, 0))
    if len(places) > 1:
        strides.append((several, places[1] - places[0]))
    panels = first.array.panels
    if panels is not None:
        strides = [(name, s if name == lanes else _row_stride(s, panels)) for name, s in strides]
    moving = tuple((name, s) for name, s in strides if s != 0)
    array = replace(first.array, panels=None)
    return Operand(array, array.dtype, moving, offset, dict(moving).get(lanes, 0) != 0, first.padded, panels)


def _row_stride(stride: Dim, panels: Panels) -> int:
    """Convert a stride in elements of a matrix to one in rows."""
    assert isinstance(stride, int) and stride % panels.columns == 0, f"bug in mlaot: a step of {stride} in {panels}"
    return stride // panels.columns


def lanes_of(dtype: str, machine: Machine) -> int:
    """Return the elements of a vector."""
    return machine.bytes // DTYPES[dtype].itemsize


def nominal(size: Dim) -> int:
    """Return an extent, or the number that is assumed for an unknown one."""
    return size if isinstance(size, int) else NOMINAL


def moves_along(kernel: Contraction, operand: int, name: str) -> bool:
    """Tell whether an operand moves along a variable."""
    return name in dict(kernel.operands[operand].strides)


def row_names(kernel: Contraction) -> list[str]:
    """Return the variables of the result that only the first of two operands depends on, the innermost first.

    A reduction has one operand, and rows along all its variables but the lanes.
    """
    names = [axis.name for axis in reversed(kernel.out) if axis.name != kernel.lanes]
    if len(kernel.operands) == 1:
        return names
    return [n for n in names if moves_along(kernel, 0, n) and not moves_along(kernel, 1, n)]


def column_names(kernel: Contraction) -> list[str]:
    """Return the variables of the result, but the lanes, that only the last of two operands has; innermost first."""
    if len(kernel.operands) == 1:
        return []
    names = [axis.name for axis in reversed(kernel.out) if axis.name != kernel.lanes]
    return [n for n in names if moves_along(kernel, 1, n) and not moves_along(kernel, 0, n)]


def gate_count(kernel: Contraction) -> int:
    """Return the number of accumulators that the epilogue of one vector reads, or 0 without gates."""
    return next((int(axis.size) for axis in kernel.out if axis.name == kernel.gates), 0)


def is_along_sum(kernel: Contraction) -> bool:
    """Tell whether the lanes run along a summed variable."""
    return any(axis.name == kernel.lanes for axis in kernel.summed)


def description(kernel: Contraction) -> str:
    """Describe the loops and operands of a contraction: ``f32 i=64 j=512 : k=784 | i:784 k:1 | lanes k:64 j:1``."""
    axes = (" ".join(f"{axis.name}={axis.size}" for axis in part) for part in (kernel.out, kernel.summed))
    factors = f"int{kernel.groups.bits}" if kernel.groups else kernel.dot or kernel.dtype
    factors += f" differences^{kernel.power}" if kernel.power else ""
    operands = [_operand_text(operand, kernel.dtype) for operand in kernel.operands]
    return " | ".join([f"{factors} {' : '.join(axes)}", *operands])


def _operand_text(operand: Operand, dtype: str) -> str:
    strides = [f"{name}:{stride}" for name, stride in operand.strides]
    panels = [f"panels of {operand.panels.width}"] if operand.panels else []
    narrow = [operand.dtype] if operand.dtype in HALVES or (operand.dtype, dtype) == ("f32", "f64") else []
    return " ".join([*["lanes"] * operand.vector, *strides, *panels, *narrow])
