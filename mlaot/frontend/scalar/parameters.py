"""The arrays that the parameters of a scalar model form: their names, orders and shapes, as the user declared them.

    {"W": [[a, b], [c, d]], "v": e}                  =>    W [2, 2], v []
    {"enc": {"w": [a, b]}, "rows": [[c], [d, e]]}    =>    enc.w [2], rows.0 [1], rows.1 [2]
    [a, b, c]                                        =>    p [3]
    MLP(2, [16, 2])                                  =>    layers.0.neurons.w [16, 2], layers.0.neurons.b [16], ..

A nested list of equal parts is one array. In a list of unequal parts each part is an array, named by its index. A
network, an object with ``parameters()``, is walked by its attributes. If the objects of a list hold vectors and numbers
of the same names and sizes, as the neurons of a layer do, they form one array for each attribute.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir.names import printable

Array = np.ndarray[Any, Any]  # of Values
Arrays = dict[str, Array]
Ids = np.ndarray[Any, np.dtype[np.int64]]

ROOT = "p"  # the name of what has none
EXPECTED = "a Value, a (nested) list of Values or a network"


def parameter_arrays(parameters: Any) -> tuple[list[Any], dict[str, Ids]]:
    """Return the parameters in order, and the arrays that they form by name, as numbers of parameters in that order.

    A parameter that is listed twice, or anything that is not a parameter, raises ``MlaotError``.
    """
    if is_value(parameters) or isinstance(parameters, str | bytes | type):
        raise MlaotError(
            f"parameters: expected a dict of names to Values, a list of Values or a network, got {kind_of(parameters)}"
        )
    if isinstance(parameters, Iterable) and not isinstance(parameters, Mapping | np.ndarray):
        parameters = list(parameters)
    is_list = isinstance(parameters, list | np.ndarray)
    arrays: Arrays = {}
    if not is_list or len(parameters):
        arrays = _named(_of(parameters, "parameters", ()), ROOT if is_list else "")
    values = list(parameters.parameters()) if is_network(parameters) else list(_values(arrays.values()))
    _check(arrays, values)
    number = {id(value): i for i, value in enumerate(values)}
    numbers = {name: np.array([number[id(v)] for v in a.flat], np.int64).reshape(a.shape) for name, a in arrays.items()}
    return values, numbers


def is_value(thing: Any) -> bool:
    """Tell whether an object is a ``Value`` of mlaot or of micrograd.

    An object that answers to any attribute is none.
    """
    return not isinstance(thing, type) and (hasattr(type(thing), "_prev") or "_prev" in getattr(thing, "__dict__", ()))


def is_network(thing: Any) -> bool:
    """Tell whether an object has trained values and a method that lists them."""
    is_there = inspect.getattr_static(thing, "parameters", None) is not None
    return is_there and not inspect.isclass(thing) and callable(thing.parameters)


def _check(arrays: Arrays, values: Sequence[Any]) -> None:
    """Raise ``MlaotError`` for parameters that are not leaves, or that are listed twice."""
    for name, array in arrays.items():
        printable(name, "a parameter")
        for value in array.flat:
            if value._prev:
                raise MlaotError(f"parameter {name}: expected a leaf Value, got the result of '{value._op}'")
    times = Counter(map(id, values))
    for name, array in arrays.items():
        if any(times[id(value)] > 1 for value in array.flat):
            lists = [n for n, a in arrays.items() if n != name and {*map(id, a.flat)} & {*map(id, array.flat)}]
            raise MlaotError(f"a parameter is listed twice: in {' and in '.join([name, *lists[:1]])}")


def _values(arrays: Iterable[Array]) -> Iterator[Any]:
    return (value for array in arrays for value in array.flat)


def _of(thing: Any, path: str, around: tuple[int, ...], seen: set[int] | None = None) -> Arrays:
    """Return the arrays of Values in ``thing`` by their names in it.

    If ``thing`` is a single array, its name is ``""``.

    ``around`` holds the ids of the objects that contain ``thing``. Attributes of an object that are no Values are
    skipped, and each object is walked once, as ``seen`` records. Anywhere else, what is no Value is an error at
    ``path``.
    """
    if is_value(thing):
        return {"": _array([thing]).reshape(())}
    if id(thing) in around:
        return {}
    inside = (*around, id(thing))
    if isinstance(thing, np.ndarray) and thing.dtype == object:
        thing = thing.tolist()
    if isinstance(thing, Mapping):
        return _join(((str(k), _of(part, f"{path}[{k!r}]", inside, seen)) for k, part in thing.items()), path)
    if isinstance(thing, list | tuple):
        rows = [_of(part, f"{path}[{i}]", inside, seen) for i, part in enumerate(thing)]
        if seen is None and not rows:
            raise MlaotError(f"{path}: expected {EXPECTED}, got an empty list")
        return _stack(thing, rows) or _join(((str(i), row) for i, row in enumerate(rows)), path)
    if seen is not None:
        return _of_attributes(thing, inside, seen)
    arrays = _of_network(thing) if is_network(thing) else _of_attributes(thing, inside, set())
    if not arrays and not is_network(thing):
        raise MlaotError(f"{path}: expected {EXPECTED}, got {kind_of(thing)}")
    return arrays


def _of_attributes(thing: Any, around: tuple[int, ...], seen: set[int]) -> Arrays:
    """Return the arrays in the attributes of an object."""
    is_code = inspect.ismodule(thing) or inspect.isroutine(thing) or inspect.isclass(thing)
    if id(thing) in seen or is_code or not hasattr(thing, "__dict__"):
        return {}
    seen.add(id(thing))
    return _join(((key, _of(part, key, around, seen)) for key, part in vars(thing).items()), type(thing).__name__)


def _of_network(network: Any) -> Arrays:
    """Return the parameters that ``parameters()`` lists, by attributes.

    Of an array that is listed in part, each listed element is returned.
    """
    wanted = list(network.parameters())
    for i, value in enumerate(wanted):
        if not is_value(value):
            raise MlaotError(f"{type(network).__name__}.parameters()[{i}]: expected a Value, got {kind_of(value)}")
    order = {id(value): i for i, value in enumerate(wanted)}
    left = set(order)
    arrays: Arrays = {}

    def keep(candidates: Iterable[tuple[str, Array]]) -> None:
        for name, array in candidates:
            ids = {id(value) for value in array.flat}
            if ids <= left and len(ids) == array.size:
                arrays[name] = array
                left.difference_update(ids)

    walked = _of_attributes(network, (id(network),), set())
    keep(walked.items())
    if left:
        elements = ((name, a, at) for name, a in walked.items() for at in np.ndindex(a.shape))
        keep((".".join([name, *map(str, at)]), _array([a[at]]).reshape(())) for name, a, at in elements)
    if left:
        rest = _array([value for value in wanted if id(value) in left])
        arrays[next(name for name in (ROOT, f"{ROOT}_") if name not in arrays)] = rest
    return dict(sorted(arrays.items(), key=lambda item: min(order[id(value)] for value in item[1].flat)))


def _stack(things: Sequence[Any], parts: Sequence[Arrays]) -> Arrays:
    """Combine the parts of a list to one array, or to one for each attribute of equal objects; None for other parts."""
    shapes = [{name: array.shape for name, array in part.items()} for part in parts]
    if not shapes or not all(one == shapes[0] for one in shapes):
        return {}
    are_neurons = len(things) > 1 and all(map(_is_object, things)) and all(map(_is_vector, shapes[0].items()))
    if "" not in shapes[0] and not are_neurons:
        return {}
    return {name: np.stack([part[name] for part in parts]) for name in shapes[0]}


def _is_object(thing: Any) -> bool:
    return not isinstance(thing, Mapping | list | tuple | np.ndarray)


def _is_vector(item: tuple[str, tuple[int, ...]]) -> bool:
    """Tell whether an attribute of an object holds a vector or a number."""
    name, shape = item
    return "." not in name and len(shape) < 2


def _join(parts: Iterable[tuple[str, Arrays]], path: str) -> Arrays:
    """Merge the arrays of all parts, with the part's name before their names."""
    arrays: Arrays = {}
    for key, part in parts:
        for name, array in _named(part, key).items():
            if name in arrays:
                raise MlaotError(f"{path}: two parameters are called {name!r}; rename one")
            arrays[name] = array
    return arrays


def _named(part: Arrays, name: str) -> Arrays:
    return {".".join(filter(None, (name, inner))) or ROOT: array for inner, array in part.items()}


def _array(values: Sequence[Any]) -> Array:
    """Make a one-dimensional array of objects of any kind."""
    vector = np.empty(len(values), object)
    vector[:] = values
    return vector


def kind_of(thing: Any) -> str:
    """Describe a value for an error message."""
    if isinstance(thing, FunctionType):
        return f"the function {thing.__name__}, not what it returns"
    return f"an array of {thing.dtype}" if isinstance(thing, np.ndarray) else f"{type(thing).__name__} {thing!r:.40}"
