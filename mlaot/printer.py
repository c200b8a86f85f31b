"""Loop nests to C: one template walks the statements, ``spelling.py`` writes their expressions."""

from __future__ import annotations

from mlaot.nest.statements import Nest, arrays_of
from mlaot.render import render
from mlaot.spelling import MEMORY, Speller, increment


def nest_text(nest: Nest, name: str, signature: str, spell: Speller) -> str:
    """The C function of a nest."""
    used = arrays_of(nest.body)
    return render(
        "kernels/nest.c.j2",
        nest=nest,
        name=name,
        signature=signature,
        unused=[a.name for a in nest.params if a.name not in used],
        kind_of=lambda statement: type(statement).__name__,
        c=spell,
        type=spell.type,
        element=spell.element,
        lanes=spell.lanes,
        pointer=spell.pointer,
        increment=increment,
        memory=MEMORY,
    )
