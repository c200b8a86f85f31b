"""Text of loops over scalars, for kernels that are no nests."""

from __future__ import annotations

from collections.abc import Sequence

from mlaot.ir import Dim


def loop(variable: str, extent: Dim | str, body: Sequence[str]) -> list[str]:
    """``body`` for each value of ``variable`` below ``extent``."""
    head = f"for (ptrdiff_t {variable} = 0; {variable} < {extent}; {variable}++) {{"
    return [head, *[f"    {line}" for line in body], "}"]


def indices(shape: Sequence[Dim]) -> list[str]:
    """A loop variable for each axis; an axis of one element needs none."""
    return ["0" if extent == 1 else f"i{i}" for i, extent in enumerate(shape)]


def nest(variables: Sequence[str], extents: Sequence[Dim], body: Sequence[str]) -> list[str]:
    """``body`` inside a loop for each axis that has a variable."""
    lines = list(body)
    for variable, extent in reversed([*zip(variables, extents, strict=True)]):
        lines = lines if variable == "0" else loop(variable, extent, lines)
    return lines
