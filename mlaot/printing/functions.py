"""The functions of a file: each distinct kernel once, and the functions that share its work among threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import gcd

from mlaot.ir.dims import dim, names, substitute
from mlaot.lower.program import Kernel
from mlaot.nest.canonical import canonical
from mlaot.nest.statements import Nest
from mlaot.printing.printer import Printed, print_caller, print_nest, print_part
from mlaot.schedule.collapse import ELEMENTS
from mlaot.schedule.machine import Machine
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.parallel import RANGE, SharedLoop, loop_over_rows, part_of_range, shared_loop
from mlaot.schedule.tuning import SHARED_ELEMENTS

LOOPS = ("rows", "loops", "plain", "winograd")  # kinds that say nothing of what a kernel does


@dataclass(frozen=True)
class Function:
    """A function of a file: its nest, whose arrays are its parameters, and the ``dims``, which follow them.

    ``content`` is a kernel's nest without names, or None for functions that call kernels. ``shares`` is the work of
    threads.
    """

    name: str
    printed: Printed
    nest: Nest
    dims: tuple[str, ...] = ()
    content: object = None
    shares: Shares | None = None


@dataclass(frozen=True)
class Shares:
    """The work of threads for a function: ``kernel``, with ``dims`` and a range of a loop."""

    kernel: str
    dims: tuple[str, ...]
    loop: SharedLoop


@dataclass(frozen=True)
class Callee:
    """The function that an entry calls for a kernel, its dims, and whether threads share its work."""

    name: str
    dims: tuple[str, ...]
    is_shared: bool


@dataclass(frozen=True)
class RowsPart:
    """The function that runs a kernel on a range of rows; a row has ``count`` rounds of ``loop``."""

    name: str
    dims: tuple[str, ...]
    loop: SharedLoop
    count: int

    @property
    def step(self) -> int:
        """The number of rows of which a range must be a multiple."""
        return self.loop.step // gcd(self.loop.step, self.count)


class Functions:
    """The functions of a file for ``machine``, with unique names, none of them in ``taken``.

    ``schedule`` replaces the machine's schedule of nests. ``threads`` says whether threads share work.
    """

    def __init__(
        self,
        machine: Machine,
        taken: Iterable[str] = (),
        schedule: Callable[[Nest, Machine], Nest] | None = None,
        *,
        threads: bool = True,
    ) -> None:
        self.machine = machine
        self.threads = threads
        self.schedule = schedule or schedule_nest
        self.kernels: dict[object, Function] = {}
        self.tasks: list[Function] = []
        self._callees: dict[object, Callee] = {}
        self._callers: dict[object, str] = {}
        self._tasks: dict[tuple[str, str], str] = {}
        self._names = set(taken)
        self._scheduled: dict[Nest, Nest] = {}
        self.called: dict[int, str] = {}  # the function of each kernel, by the id of that

    def name(self, label: str, part: str = "") -> str:
        """Return a name that no other function has."""
        number, name = 2, f"{label}{part}_{self.machine.name}"
        while name in self._names:
            number, name = number + 1, f"{label}{number}{part}_{self.machine.name}"
        self._names.add(name)
        return name

    def callee(self, kernel: Kernel, *, in_task: bool) -> Callee:
        """Return the function that runs a kernel. Kernels that differ only in names of buffers and dims share one.

        With ``in_task`` the kernel runs on one of the threads that share the loop around it.
        """
        nest, sizes = kernel.sized
        is_alone = in_task or not self.threads or 0 < sizes.get(ELEMENTS, 0) < SHARED_ELEMENTS
        content = kernel.content, is_alone
        callee = self._callees.get(content)
        if callee is None:
            nest = self._schedule(nest)
            callee = self._callees[content] = self._callee(kernel, nest, is_alone=is_alone)
        self.called[id(kernel)] = callee.name
        return callee

    def _schedule(self, nest: Nest) -> Nest:
        """Return a nest with the machine's schedule. A kernel of a loop is needed by itself and for a range of rows."""
        if nest not in self._scheduled:
            self._scheduled[nest] = self.schedule(nest, self.machine)
        return self._scheduled[nest]

    def _callee(self, kernel: Kernel, nest: Nest, *, is_alone: bool) -> Callee:
        label, shared = label_of(kernel), None if is_alone else shared_loop(nest)
        if shared is None:
            content, dims = canonical(nest)
            return Callee(self._kernel(kernel, nest, content, dims), dims, is_shared=False)
        part = part_of_range(nest, shared)
        content, free = canonical(part)
        sizes = tuple(d for d in free if d not in RANGE)
        dims = (*sizes, *sorted((names(shared.extent) | names(shared.work)) - {*sizes}))
        # Nests that differ only in their number of rounds share a kernel for a part, and have callers of their own.
        numbers = {d: dim(f"n{i}") for i, d in enumerate(dims)}
        key = content, substitute(shared.extent, numbers), substitute(shared.work, numbers), shared.step
        caller = self._callers.get(key)
        if caller is None:
            name = self._kernel(kernel, part, content, (*sizes, *RANGE), "_part")
            task = self.task(label, print_part(name, part, len(sizes)), part, "_task")
            caller = self._callers[key] = self.name(label)
            printed = print_caller(task, part, dims, sizes, shared)
            self.tasks.append(Function(caller, printed, part, dims, shares=Shares(name, sizes, shared)))
        return Callee(caller, dims, is_shared=True)

    def part_of_rows(self, kernel: Kernel, rows: str) -> RowsPart | None:
        """Return the function that runs a kernel on a range of the rows along a dim, or None if there is no such."""
        nest, _ = kernel.sized
        written = {a.name: p.buffer for a, p in zip(nest.params, kernel.params, strict=True) if p.written}
        axes = {name: [i for i, d in enumerate(b.shape) if rows in names(d)] for name, b in written.items()}
        if any(len(at) != 1 or written[name].shape[at[0]] != dim(rows) for name, at in axes.items()):
            return None
        nest = self._schedule(nest)
        found = loop_over_rows(nest, rows, {name: written[name].strides[at[0]] for name, at in axes.items()})
        if found is None:
            return None
        part = part_of_range(nest, found[0])
        content, free = canonical(part)
        dims = tuple(d for d in free if d not in RANGE)
        return RowsPart(self._kernel(kernel, part, content, (*dims, *RANGE), "_part"), dims, *found)

    def _kernel(self, kernel: Kernel, nest: Nest, content: object, dims: tuple[str, ...], part: str = "") -> str:
        """Return the name of the function of a kernel's nest."""
        function = self.kernels.get(content)
        if function is None:
            printed = print_nest(nest, dims, self.machine.bytes)
            if kernel.nest.is_tiled:  # in vectors, but for remainders
                printed = replace(printed, is_scalar=False)
            name = self.name(label_of(kernel), part)
            function = self.kernels[content] = Function(name, printed, nest, dims, content)
        return function.name

    def task(self, label: str, printed: Printed, nest: Nest, part: str = "") -> str:
        """Return the name of a function that runs kernels on a range."""
        key = printed.signature, printed.lines
        if key not in self._tasks:
            self._tasks[key] = self.name(label, part)
            self.tasks.append(Function(self._tasks[key], printed, nest))
        return self._tasks[key]


def identifier(name: str) -> str:
    """Turn a name that a user has chosen into a C identifier."""
    clean = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    clean = clean.strip("_") or "x"
    return f"x_{clean}" if clean[0].isdigit() else clean


def label_of(kernel: Kernel) -> str:
    """Return a label of a kernel: the part of the model, without the numbers of layers, and the kernel's work there."""
    words = [word for word in kernel.origin.split(".") if word and not word.isdigit()]
    if kernel.nest.is_tiled:
        weights = [p.buffer.name for p in kernel.params if p.buffer.root.where in ("state", "constant")]
        if not (words and weights):
            words += [word for name in weights[:1] for word in name.split(".") if not word.isdigit()]
            words.append("product")
    elif kernel.template not in LOOPS and kernel.template not in words[-1:]:
        words.append(kernel.template)
    return identifier("_".join(words) or kernel.template)
