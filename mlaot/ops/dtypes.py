"""Type rules with the dtypes that an op accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlaot.errors import MlaotError
from mlaot.ir import DType, Type
from mlaot.ops.base import same_type

FLOATS, INTEGERS, NUMBERS, DISCRETE, ANY = "f", "iu", "fiu", "iub", "fiub"
WORDS = {FLOATS: "floating-point numbers", INTEGERS: "integers", NUMBERS: "numbers", DISCRETE: "integers or bools"}


def one_type(name: str, kinds: str, result: DType | None = None) -> Callable[..., Type]:
    """Return a type rule for arguments of one shape and one dtype of ``kinds``.

    The dtype of the result is ``result``, or that of the arguments.
    """

    def rule(*types: Type, **_: Any) -> Type:
        type_ = same_type(*types)
        if type_.dtype.kind not in kinds:
            raise MlaotError(f"{name} takes {WORDS[kinds]}, got {type_}; cast it first")
        return type_ if result is None else Type(result, type_.shape)

    return rule
