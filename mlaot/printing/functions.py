"""The functions of a file: each distinct kernel once, and what runs it on the threads of a call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlaot.lower.program import Contraction, NestKernel
from mlaot.nest.canonical import canonical
from mlaot.nest.statements import Nest
from mlaot.printing.printer import Printed, print_nest, print_task
from mlaot.schedule.machine import Machine
from mlaot.schedule.nests import scheduled
from mlaot.schedule.parallel import RANGE, Shared, part_of_range, shared_loop
from mlaot.schedule.tiles import contraction_nest

LOOPS = ("rows", "loops", "plain", "winograd")  # kernels of whatever nodes


@dataclass(frozen=True)
class Function:
    """A function of a file. ``content``: what a kernel does, whatever it is called; None where kernels are called."""

    name: str
    printed: Printed
    content: object = None


@dataclass(frozen=True)
class Callee:
    """What an entry calls for a kernel: a function, with so many dims behind the arrays, perhaps on threads."""

    name: str
    dims: tuple[str, ...]
    is_shared: bool


class Functions:
    """Makes the functions of a file for ``machine``; no two have one name."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kernels: dict[object, Function] = {}
        self.tasks: list[Function] = []
        self._callees: dict[object, Callee] = {}
        self._callers: dict[object, str] = {}
        self._names: set[str] = set()

    def name(self, label: str, part: str = "") -> str:
        """A name that no other function has."""
        number, name = 2, f"{label}{part}_{self.machine.name}"
        while name in self._names:
            number, name = number + 1, f"{label}{number}{part}_{self.machine.name}"
        self._names.add(name)
        return name

    def callee(self, kernel: NestKernel | Contraction, *, in_task: bool) -> Callee:
        """What runs a kernel; equal kernels have one function, whatever their buffers and dims are called.

        ``in_task``: on one of the threads that share what is around it.
        """
        content = _content(kernel), in_task
        if content not in self._callees:
            self._callees[content] = self._callee(kernel, in_task=in_task)
        return self._callees[content]

    def _callee(self, kernel: NestKernel | Contraction, *, in_task: bool) -> Callee:
        nest = nest_of(kernel, self.machine)
        shared = None if in_task else shared_loop(nest)
        if shared is not None:
            nest = part_of_range(nest, shared)
        content, free = canonical(nest)
        dims = tuple(d for d in free if d not in RANGE)
        if content not in self.kernels:
            label = label_of(kernel)
            printed = print_nest(nest, (*dims, *(RANGE if shared else ())), self.machine.bytes)
            name = self.name(label, "_part" if shared else "")
            self.kernels[content] = Function(name, printed, content)
            if shared is not None:
                self._callers[content] = self._caller(label, name, nest, dims, shared)
        name = self._callers.get(content, self.kernels[content].name)
        return Callee(name, dims, shared is not None)

    def task(self, label: str, printed: Printed) -> str:
        """The name of a function that runs kernels."""
        same = next((task.name for task in self.tasks if task.printed == printed), None)
        if same is None:
            same = self.name(label)
            self.tasks.append(Function(same, printed))
        return same

    def _caller(self, label: str, kernel: str, nest: Nest, dims: tuple[str, ...], shared: Shared) -> str:
        """The name of a function that has a kernel run on the threads of a call."""
        task, caller = self.name(label, "_task"), self.name(label)
        for name, printed in zip((task, caller), print_task(kernel, task, nest, dims, shared), strict=True):
            self.tasks.append(Function(name, printed))
        return caller


def identifier(name: str) -> str:
    """A name in C for what a user has called so."""
    clean = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return f"x_{clean}" if not clean or clean[0].isdigit() else clean


def label_of(kernel: NestKernel | Contraction) -> str:
    """What a kernel is called: the part of the model without the numbers of layers, and what it does there."""
    words = [word for word in kernel.origin.split(".") if word and not word.isdigit()]
    if isinstance(kernel, Contraction):
        weights = [p.buffer.name for p in kernel.params if p.buffer.whole.where in ("state", "constant")]
        if not words and weights:
            words = [word for word in weights[0].split(".") if not word.isdigit()]
        words += ["product"] if not (words and weights) else []
    elif kernel.template not in LOOPS and kernel.template not in words[-1:]:
        words.append(kernel.template)
    return identifier("_".join(words) or kernel.template)


def nest_of(kernel: NestKernel | Contraction, machine: Machine) -> Nest:
    """A kernel as a machine runs it."""
    return contraction_nest(kernel, machine) if isinstance(kernel, Contraction) else scheduled(kernel.nest, machine)


def _content(kernel: NestKernel | Contraction) -> object:
    """What a kernel does, with arrays by their position: equal ones are scheduled once."""
    if isinstance(kernel, NestKernel):
        return canonical(kernel.nest)
    places = {array.name: i for i, array in enumerate(kernel.arrays)}
    operands = [replace(o, array=replace(o.array, name=str(places[o.array.name]), size=0)) for o in kernel.operands]
    ends = canonical(Nest("", kernel.arrays, (*kernel.once, *kernel.epilogue)))
    return replace(kernel, params=(), operands=tuple(operands)), ends
