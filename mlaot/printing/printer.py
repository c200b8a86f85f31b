"""Print loop nests as C: one template walks the statements, ``spelling.py`` writes their expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlaot.nest.statements import Body, For, Nest, arrays_of, is_of_numbers, walk
from mlaot.printing.spelling import MEMORY, Speller, dim_text, increment
from mlaot.render import macros
from mlaot.schedule.parallel import SharedLoop


@dataclass(frozen=True)
class Printed:
    """A function in C without its name: its parameters and its lines. ``calls`` counts the functions that it calls.

    ``is_scalar`` is true if it has loops over numbers for the compiler to vectorize.
    """

    signature: str
    lines: str
    calls: Mapping[str, int]
    doc: tuple[str, ...] = ()
    is_scalar: bool = False


def print_nest(nest: Nest, sizes: Iterable[str], bytes_: int) -> Printed:
    """Print the function of a nest, with the dims ``sizes`` after its arrays, for vectors of ``bytes_`` bytes."""
    used = arrays_of(nest.body)
    spell = Speller(bytes_)
    c = _macros(spell)
    lines = c.lines(nest.body, [a.name for a in nest.params if a.name not in used])
    return Printed(
        c.signature(nest, sizes),
        lines,
        spell.calls,
        nest.doc,
        any(isinstance(s, For) and is_of_numbers(s) for s in walk(nest.body)),
    )


def print_entry(body: Body, *, ranged: bool, threads: int | None, unused: Iterable[str]) -> Printed:
    """Print a function of an entry's pointers and dims, and of a range of rounds if it is ``ranged``.

    ``threads`` is the number of the pointer to the threads of the call, if they are needed.
    """
    spell = Speller(0)
    c = _macros(spell)
    return Printed(c.entry_signature(ranged), c.entry_lines(body, threads, unused), spell.calls)


def print_part(kernel: str, nest: Nest, dims: int) -> Printed:
    """Print the task that runs ``kernel`` on a part of a range; its arrays and ``dims`` numbers are in memory."""
    c = _macros(Speller(0))
    return Printed(c.entry_signature(True), c.part_lines(kernel, nest, dims), {})


def print_caller(task: str, nest: Nest, dims: Iterable[str], task_dims: Iterable[str], shared: SharedLoop) -> Printed:
    """Print the function of ``dims`` that lets the threads of a call share a range.

    ``task_dims`` are the dims of ``task``.
    """
    spell = Speller(0)
    c = _macros(spell)
    return Printed(c.caller_signature(nest, dims), c.caller_lines(task, nest, task_dims, shared), spell.calls)


def _macros(spell: Speller) -> Any:
    return macros(
        "kernels/nest.c.j2",
        c=spell,
        dim_text=dim_text,
        increment=increment,
        memory=MEMORY,
        kind_of=lambda statement: type(statement).__name__,
    )
