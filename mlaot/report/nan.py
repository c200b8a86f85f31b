"""Warn of nan and infinities among weights: they make all answers nan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlaot.errors import warn
from mlaot.frontend.trace.declaration import Traced
from mlaot.ir.graph import topological


def warn_of_nan(traced: Traced, place: str) -> None:
    """Warn of nan and infinities among parameters; buffers and constants may hold infinities, as masks do."""
    constants = (n.attrs["value"].array for n in topological(traced.graph.outputs.values()) if n.op.name == "const")
    arrays = ((f"a constant {value.dtype}{list(value.shape)}", value) for value in constants if np.ndim(value))
    untrained = (*((repr(name), value) for name, value in traced.buffers.items()), *arrays)
    for name, value in (traced.declared | traced.constants).items():
        if count := count_wrong(value, not_finite):
            warn(f"nan or inf in {count:,} of {value.size:,} numbers of {name!r}", place)
    for name, value in untrained:
        if count := count_wrong(value, np.isnan):
            warn(f"nan in {count:,} of {value.size:,} numbers of {name}", place)


def count_wrong(value: np.ndarray[Any, Any], is_wrong: Callable[..., Any]) -> int:
    """Count the wrong numbers of an array; integers have none."""
    return int(np.count_nonzero(is_wrong(value))) if value.dtype.kind not in "biu" else 0


def not_finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return where an array has nan or infinities."""
    wrong: np.ndarray[Any, Any] = np.logical_not(np.isfinite(array))
    return wrong
