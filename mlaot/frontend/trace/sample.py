"""Sample inputs of a model, from which the ranges of its intermediate numbers are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Type
from mlaot.ir.dims import names


def arrays(sample: Any, inputs: Mapping[str, Type]) -> dict[str, np.ndarray[Any, Any]]:
    """Return a sample as arrays by the names of ``inputs``.

    ``sample`` is an array, a tuple or dict of arrays, or a function that returns one of these. It may hold anything
    that NumPy converts to an array, such as tensors of other libraries.
    """
    sample = sample() if callable(sample) else sample
    if isinstance(sample, Mapping):
        named = dict(sample)
    else:
        values = sample if isinstance(sample, tuple | list) else (sample,)
        if len(values) != len(inputs):
            raise MlaotError(f"the sample has {len(values)} arrays, and the model takes {len(inputs)}: {_list(inputs)}")
        named = dict(zip(inputs, values, strict=True))
    if named.keys() != inputs.keys():
        raise MlaotError(f"the sample has arrays for {_list(named)}, and the model takes {_list(inputs)}")
    result = {name: _array(name, named[name], type_) for name, type_ in inputs.items()}
    dims: dict[str, int] = {}
    for name, array in result.items():
        for extent, size in zip(inputs[name].shape, array.shape, strict=True):
            expected = extent if isinstance(extent, int) else dims.setdefault(str(extent), size)
            if names(extent) <= {str(extent)} and expected != size:
                raise MlaotError(f"the sample's {name} is of shape {array.shape}, expected {inputs[name]}")
    return result


def _array(name: str, value: Any, type_: Type) -> np.ndarray[Any, Any]:
    value = value.detach().numpy() if hasattr(value, "detach") else value
    array = np.asarray(value)
    if array.ndim != type_.rank or array.dtype.kind not in "biuf":
        raise MlaotError(f"the sample's {name} is {array.dtype} of shape {array.shape}, expected {type_}")
    return type_.dtype.array(array)


def _list(names_: Mapping[str, Any]) -> str:
    return ", ".join(map(str, names_)) or "nothing"
