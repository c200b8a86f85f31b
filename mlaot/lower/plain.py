"""Text of loops over scalars, for kernels that are no nests."""

from __future__ import annotations

from collections.abc import Sequence

from mlaot.ir import Dim


def loop(variable: str, extent: Dim | str, body: Sequence[str]) -> list[str]:
    """``body`` for each value of ``variable`` below ``extent``."""
    head = f"for (ptrdiff_t {variable} = 0; {variable} < {extent}; {variable}++) {{"
    return [head, *[f"    {line}" for line in body], "}"]
