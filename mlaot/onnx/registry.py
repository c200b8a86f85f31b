"""The operators of ONNX that can be imported: a small function each, in ``mlaot/onnx/ops/``, by family.

``@operator("Flatten")`` enters a function of a ``Use`` (the node's attributes) and of its inputs, which gives the
output or a tuple of them. It is written with NumPy's functions and mlaot's: what is known is then computed while
importing, all else is traced. ``since`` is the opset from which on a function holds. Expressions of named dims reach
only functions that say ``symbolic``; to others they come as traced integers. Only functions that say ``coded`` get
``Coded`` arrays, whose numbers are of a dtype that only ONNX has, and only those that say ``labels`` what is chosen
among labels when the model runs (``Strings``, ``Maps``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]
ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Operator:
    """One operator of a domain, from an opset on."""

    function: Function
    since: int
    symbolic: bool
    coded: bool
    labels: bool


OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str,
    domain: str = "",
    since: int = 1,
    symbolic: bool = False,
    coded: bool = False,
    labels: bool = False,
) -> Callable[[Function], Function]:
    """Enter a function under the names of one or several operators."""

    def enter(function: Function) -> Function:
        for name in names:
            entered = OPERATORS.setdefault((domain, name), [])
            assert all(o.since != since for o in entered), f"{name} is entered twice"
            entered.append(Operator(function, since, symbolic, coded, labels))
            entered.sort(key=lambda o: o.since)
        return function

    return enter


def find(domain: str, name: str, opset: int) -> Operator | None:
    """The operator of an opset, if it can be imported."""
    found = [o for o in OPERATORS.get((domain, name), ()) if o.since <= opset]
    return found[-1] if found else None
