"""Extents: how a call finds the dims from the shapes of its inputs, and what it checks of them.

A shape in the C tables holds ints, and ``-1 - i`` for extent number ``i``. The named dims are numbered first, then the
expressions of dims. A call reads a named dim from an axis whose extent is that dim alone, and then solves the other
extents::

x: [n], y: [2 * n + 1] n from x; y is checked against 2 * n + 1
    y: [2 * n + 1, n * m]       n from the first axis, then m from the second
"""

from __future__ import annotations

from dataclasses import dataclass

from mlaot.errors import MlaotError
from mlaot.ir.dims import Dim, Expr, Quotient, dim, names, nonnegative, parse, substitute
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import PHASES, SEEN
from mlaot.ir.ports import Shape
from mlaot.lower.program import Entry, ExtensionModule, Port

# Entries whose result is a mean over the batch: of nothing it would be nan.
MEANS = ("loss", "train_step", "accumulate", PHASES, "fit")
LONGEST_ROW = 1 << 20  # of tokens


@dataclass(frozen=True)
class Solve:
    """A step of finding the dims: ``axis`` of ``input`` gives ``dim``, or is only checked if ``dim`` is -1."""

    input: int
    axis: int
    extent: int
    dim: int


@dataclass(frozen=True)
class Bound:
    """An extent that must be at least ``least``."""

    extent: int
    least: int


class Extents:
    """The extents of a module by number. ``batch`` is always among the dims, as a call may omit that axis."""

    def __init__(self, module: ExtensionModule) -> None:
        self.dims = module.dims if "batch" in module.dims else (*module.dims, "batch")
        self.reader = "" if module.generation is None else module.generation.entry
        shapes = [port.shape for entry in module.entries for port in (*entry.inputs, *entry.outputs)]
        shapes += [entry.extents for entry in module.entries]
        shapes += [(count.most, *count.needs) for entry in module.entries for count in entry.counts]
        shapes += [rooms(entry) for entry in module.entries]
        shapes += [written(range_) for entry in module.entries for port in entry.inputs for range_ in port.ranges]
        extents = dict.fromkeys(e for shape in shapes for e in expressions(shape))
        self.all: tuple[Dim, ...] = (*map(dim, self.dims), *(e for e in extents if not is_name(e)))
        texts = [text for entry in module.entries for text in (entry.workspace, entry.work)]
        used = [*self.all, *map(parse, texts)]
        self.degrees = [max(1, *(degree(e, name) for e in used)) for name in self.dims]

    def number(self, extent: int | str) -> int:
        """Return the number that stands for an extent in a shape."""
        value = parse(extent)
        return value if isinstance(value, int) else -1 - self.all.index(value)

    def solves(self, entry: Entry) -> list[Solve]:
        """Return the steps that find the value of each dim from the inputs and check all other axes."""
        axes = [(i, d, parse(e)) for i, port in enumerate(entry.inputs) for d, e in enumerate(port.shape)]
        solved_names = {name for _, _, e in axes if is_name(e) for name in names(e)}
        pending = [axis for axis in axes if names(axis[2]) and not is_name(axis[2])]
        steps: list[Solve] = []
        while pending:
            ready = [axis for axis in pending if is_solvable(axis[2], solved_names)]
            if not ready:
                raise unsolvable(entry, *pending[0], solved_names)
            i, d, extent = ready[0]
            unknown = names(extent) - solved_names
            solved = self.dims.index(next(iter(unknown))) if unknown else -1
            steps.append(Solve(i, d, self.all.index(extent), solved))
            solved_names |= names(extent)
            pending.remove(ready[0])
        return steps

    def bounds(self, entry: Entry) -> list[Bound]:
        """Return the bounds that a call checks once the dims are known.

        For an extent of a single dim it is the smallest value of the dim.
        """
        least: dict[str, int] = {}
        if entry.name in MEANS:
            least = {name: 1 for port in entry.inputs for e in expressions(port.shape) for name in names(e)}
        if entry.name == self.reader:
            least = {str(entry.inputs[0].shape[0]): 1}  # all else was checked when the text was declared
        ports = [e for port in (*entry.inputs, *entry.outputs) for e in expressions(port.shape)]
        composed = [
            e
            for e in dict.fromkeys([*ports, *expressions(entry.extents), *expressions(rooms(entry))])
            if not is_name(e) and names(e).isdisjoint(entry.counted)
        ]
        composed = [e for e in composed if SEEN not in names(e) or entry.name != self.reader]
        for extent in composed:
            if not nonnegative(extent) and len(names(extent)) == 1 and grows(extent):
                (name,) = names(extent)
                least[name] = max(least.get(name, 0), smallest(extent, name))
        # Extents that cannot be negative are in the list too, since a call checks that none is beyond all memory.
        single = [Bound(self.dims.index(name), n) for name, n in least.items()]
        return single + [Bound(self.all.index(extent), 0) for extent in composed]


def rooms(entry: Entry) -> Shape:
    """Return the largest number of elements of each output that has a counted length."""
    return tuple(port.room for port in entry.results if port.room)


def expressions(shape: Shape) -> list[Expr]:
    """Return the extents of a shape that are not ints."""
    return [e for e in map(parse, shape) if isinstance(e, Expr)]


def written(range_: IndexRange) -> Shape:
    """Return the extents of a range as a table has them."""
    return (str(range_.size), *[str(n) for span in range_.box if span is not None for n in span[:2]])


def is_name(extent: Dim) -> bool:
    """Tell whether an extent is a single named dim."""
    return isinstance(extent, Expr) and len(names(extent)) == 1 and extent == dim(*names(extent))


def is_solvable(extent: Dim, solved_names: set[str]) -> bool:
    """Tell whether at most one dim is unknown, and the extent is linear in it."""
    unknown = names(extent) - solved_names
    if not unknown:
        return True
    assert isinstance(extent, Expr)
    atoms = [atom for monomial, _ in extent.terms for atom in monomial]
    inside = {name for atom in atoms if isinstance(atom, Quotient) for name in names(atom.top)}
    return len(unknown) == 1 and not unknown & inside and all(degree(extent, name) == 1 for name in unknown)


def unsolvable(entry: Entry, i: int, axis: int, extent: Dim, solved_names: set[str]) -> MlaotError:
    """Return the error message for an extent that does not determine its dims."""
    missing = ", ".join(sorted(names(extent) - solved_names))
    return MlaotError(
        f"{entry.name}: expected inputs whose shapes give {missing}, got {shown(extent)} as axis {axis} of "
        f"{entry.inputs[i].name}, which does not; add an input with an axis of that dimension alone"
    )


def degree(extent: Dim, name: str) -> int:
    """Return the highest power of a dim in an extent."""
    if isinstance(extent, int):
        return 0
    powers = [[atom_degree(atom, name) for atom in monomial] for monomial, _ in extent.terms]
    return max(sum(factors) for factors in powers)


def atom_degree(atom: str | Quotient, name: str) -> int:
    """Return the highest power of a dim in one factor."""
    return degree(atom.top, name) if isinstance(atom, Quotient) else int(atom == name)


def grows(extent: Expr) -> bool:
    """Tell whether an extent of one dim never falls as the dim grows."""
    return all(coefficient > 0 for monomial, coefficient in extent.terms if monomial)


def smallest(extent: Expr, name: str) -> int:
    """Return the smallest value of a dim that does not make a growing extent negative."""
    high = 1
    while substitute(extent, {name: high}) < 0:
        high *= 2
    low = 0
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if substitute(extent, {name: middle}) >= 0 else (middle + 1, high)
    return low


def longest_row(entry: Entry, port: Port) -> int:
    """Return the most tokens that a row may have without making an extent negative; 0 if there is no limit."""
    name = str(port.shape[-1])
    falling = [e for e in expressions(entry.extents) if names(e) == {name} and substitute(e, {name: LONGEST_ROW}) < 0]
    low, high = 0, LONGEST_ROW if falling else 0
    while low < high:
        middle = (low + high + 1) // 2
        fits = all(substitute(e, {name: middle}) >= 0 for e in falling)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def shown(extent: int | str | Dim) -> str:
    """Format an extent as Python writes it: ``2 * n + 1``, ``(n + 1) // 2 - m``."""
    value = parse(extent) if isinstance(extent, str) else extent
    if isinstance(value, int):
        return str(value)
    text = ""
    for monomial, coefficient in sorted(value.terms, key=lambda term: term[1] < 0):
        factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []
        alone = len(monomial) + len(factors) == 1
        term = " * ".join([*factors, *(shown_atom(atom, alone) for atom in monomial)])
        sign = (" + ", " - ") if text else ("", "-")
        text += sign[coefficient < 0] + term
    return text


def shown_atom(atom: str | Quotient, alone: bool) -> str:
    """Format a factor of a product, with parentheses if it is a quotient and not the only factor."""
    if isinstance(atom, str):
        return atom
    top = shown(atom.top) if is_name(atom.top) else f"({shown(atom.top)})"
    return f"{top} // {atom.bottom}" if alone else f"({top} // {atom.bottom})"
