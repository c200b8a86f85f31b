"""Print loop nests as Python: one template walks the statements, ``spelling.py`` writes their expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from mlaot.nest.statements import Nest, Statement
from mlaot.printing.python.loops import lists_of, loop_over_elements, prepare
from mlaot.printing.python.spelling import Speller
from mlaot.printing.spelling import increment
from mlaot.render import macros


def print_kernel(nest: Nest, name: str, dims: Iterable[str], spell: Speller) -> str:
    """Print the function of a nest, with ``dims`` after its arrays."""
    nest = prepare(nest)
    parameters, lists = [*(array.name for array in nest.params), *dims], lists_of(nest)
    return str(_macros(nest, spell).function(nest, name, parameters, docstring(nest.doc), lists))


def print_entry(nest: Nest, name: str, doc: str, spell: Speller) -> str:
    """Print the function of an entry, whose parameters are its memory and the dims."""
    return str(_macros(nest, spell).function(nest, name, ["p", "dim"], docstring([doc]), ()))


def docstring(lines: Sequence[str]) -> list[str]:
    """Return the lines of a docstring."""
    safe = [line.replace("\\", "\\\\").replace('"', "'") for line in lines]
    if len(safe) < 2:
        return [f'"""{line}"""' for line in safe if line]
    return [f'"""{safe[0]}', *safe[1:], '"""']


def _macros(nest: Nest, spell: Speller) -> Any:
    over_elements: Callable[..., object] = partial(loop_over_elements, nest=nest)
    return macros(
        "python/nest.py.j2",
        python=spell,
        over_elements=over_elements,
        increment=increment,
        kind_of=lambda statement: type(statement).__name__,
        refuse=_refuse,
    )


def _refuse(s: Statement) -> NoReturn:
    raise AssertionError(f"bug in mlaot: Python has no {s}")
