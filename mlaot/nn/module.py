"""Modules, which hold parameters, and containers of modules.

The parameters, buffers and parts of a module are its attributes, or elements of lists, tuples and dicts that are its
attributes. Their names are paths of attributes, as in PyTorch: ``conv1.weight``, ``layers.0.bias``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Self

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace import tensor
from mlaot.frontend.trace.context import current, inner_part, is_training, needed, part
from mlaot.frontend.trace.files import is_for_training
from mlaot.frontend.trace.tensor import Buffer
from mlaot.ir.types import BY_NUMPY
from mlaot.nn.arguments import Array, checked
from mlaot.nn.init import float_dtype

__all__ = ["Buffer", "Module", "ModuleDict", "ModuleList", "Parameter"]
__all__ += ["ParameterDict", "ParameterList", "Sequential"]


class Parameter(tensor.Parameter):
    """A weight, which gets its name from the attribute that holds it."""

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(None, data)
        self.requires_grad = requires_grad


class Module:
    """Base class of modules. A subclass defines ``forward``, which a call of the module runs.

    An array that is assigned to an attribute that is a parameter or buffer becomes its value.
    """

    __slots__ = ("__dict__", "__weakref__", "_evaluates")  # so that the attributes are what a module holds, and no more

    def __setattr__(self, name: str, value: Any) -> None:
        held = vars(self).get(name)
        if isinstance(held, tensor.Parameter | Buffer) and isinstance(value, np.ndarray):
            held.array = _fitting(value, held, f"{type(self).__name__}.{name}")
        else:
            super().__setattr__(name, value)

    def forward(self, *args: Any, **options: Any) -> Any:
        """Compute the outputs: what a subclass defines, and calling the module runs."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **options: Any) -> Any:
        if current() is None:
            return self.forward(*args, **options)
        with part(_path(self), is_layer=isinstance(self, Layer)):
            return self.forward(*args, **options)

    @property
    def training(self) -> bool:
        """True while a training step is traced or inside of ``with mlaot.training():``.

        After ``eval()`` always False.
        """
        return is_training() and not getattr(self, "_evaluates", False)

    def train(self, mode: bool = True) -> Self:
        """Set whether the module and its parts train in a training step, which is the default.

        With ``mode`` True, dropout draws and normalization uses the batch's statistics in a training step. With
        ``mode`` False both behave in a training step as in evaluation. Other functions of a model always evaluate.
        """
        for module in self.modules():
            module._evaluates = not mode
        return self

    def eval(self) -> Self:
        """Make the module and its parts behave as in evaluation, also in a training step: ``train(False)``."""
        return self.train(False)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield the path and module of this module and of each part, once each.

        Lists and dicts are not modules themselves.
        """
        return _unique(_tree(self, prefix))

    def modules(self) -> Iterator[Module]:
        """Yield this module and each part once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the name and module of each direct part: an attribute, or an element of a list or dict."""
        return _unique(_nearest(self, ""))

    def children(self) -> Iterator[Module]:
        """Yield the modules that this one holds, without their names."""
        return (module for _, module in self.named_children())

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call a function with each part, inner parts first, and then with this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether training changes the parameters."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing. Each training step computes its gradients, and the module stores none."""

    def register_parameter(self, name: str, param: tensor.Parameter | None) -> None:
        """Store a parameter, or None, as an attribute."""
        if not isinstance(param, tensor.Parameter | None):
            raise MlaotError(f"{type(self).__name__}.{name}: expected a Parameter or None, got {type(param).__name__}")
        setattr(self, name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Store an array as a buffer. With ``persistent`` False it is a constant, which no file of weights contains."""
        array = None if tensor is None else np.asarray(tensor)
        setattr(self, name, Buffer(array) if persistent and array is not None else array)

    def add_module(self, name: str, module: Module | None) -> None:
        """Store a module as an attribute."""
        setattr(self, name, module)

    register_module = add_module

    def to(self, dtype: Any) -> Self:
        """Convert floating-point parameters and buffers to a dtype, in place.

        The device "cpu" is accepted and has no effect.
        """
        if isinstance(dtype, str) and dtype.partition(":")[0] in ("cpu", "cuda", "mps", "meta"):
            if dtype != "cpu":
                raise MlaotError(f"{type(self).__name__}.to({dtype!r}): modules run on the CPU; leave it out")
            return self
        kind = float_dtype(dtype)
        for held in (*self.parameters(), *self.buffers()):
            if held.array.dtype.kind == "f":
                held.array, held.dtype_ = held.array.astype(kind), BY_NUMPY[str(kind)]
        return self

    def float(self) -> Self:
        """Convert to float32, in place."""
        return self.to(np.float32)

    def double(self) -> Self:
        """Convert to float64, in place."""
        return self.to(np.float64)

    def half(self) -> Self:
        """Convert to float16, in place."""
        return self.to(np.float16)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, tensor.Parameter]]:
        """Yield each parameter once, with the first path of attributes that leads to the parameter."""
        return _unique(_walk(self, prefix, tensor.Parameter))

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Buffer]]:
        """Yield each buffer, such as a running statistic or a cache, once, with its path."""
        return _unique(_walk(self, prefix, Buffer))

    def parameters(self) -> Iterator[tensor.Parameter]:
        """Yield each parameter once."""
        return (parameter for _, parameter in self.named_parameters())

    def buffers(self) -> Iterator[Buffer]:
        """Yield each buffer once."""
        return (buffer for _, buffer in self.named_buffers())

    def state_dict(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of all parameters and buffers by name.

        A parameter that has two names is listed under both.
        """
        return {name: np.asarray(held) for name, held in _walk(self, "", (tensor.Parameter, Buffer))}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Set parameters and buffers by name, converted to their dtypes.

        With ``strict``, missing and unknown names raise ``MlaotError``. Names that ``save`` of a compiled module writes
        for training only are skipped.
        """
        own = dict(_walk(self, "", (tensor.Parameter, Buffer)))
        state_dict = {k: v for k, v in state_dict.items() if k in own or not is_for_training(k)}
        if strict and set(own) != set(state_dict):
            raise MlaotError(
                f"load_state_dict: missing {sorted(set(own) - set(state_dict))}, "
                f"unexpected {sorted(set(state_dict) - set(own))}; strict=False loads what is there"
            )
        given = {name: np.asarray(state_dict[name]) for name in own if name in state_dict}
        values = {name: _fitting(value, own[name], f"load_state_dict: {name!r}") for name, value in given.items()}
        for name, value in values.items():
            own[name].array = value


class Layer(Module):
    """Base class of the layers of this package. Arguments of its methods are checked and converted by ``checked``.

    A subclass may set attributes in its header: ``class Conv1d(Conv, n=1)``.
    """

    def __init_subclass__(cls, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(cls, name, value)
        for name in ("__init__", "forward"):
            if name in vars(cls):
                setattr(cls, name, checked(vars(cls)[name]))


class Sequential(Module):
    """A chain of modules or functions: each gets the result of the one before. A dict of modules gives them names."""

    def __init__(self, *modules: Any) -> None:
        named = dict(modules[0]) if len(modules) == 1 and isinstance(modules[0], Mapping) else dict(enumerate(modules))
        for name, module in named.items():
            setattr(self, str(name), module)

    def forward(self, input: Array) -> Array:
        for module in self:
            input = module(input)
        return input

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(list(vars(self).values()))

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, index: int) -> Callable[..., Any]:
        return list(self)[index]


class ModuleList(list[Any]):
    """A list of modules. A plain list works the same way."""

    def __init__(self, modules: Iterable[Any] = ()) -> None:
        super().__init__(modules)


class ModuleDict(dict[str, Any]):
    """A dict of modules. A plain dict works the same way."""


class ParameterList(list[Any]):
    """A list of parameters. Arrays are converted to parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(map(_as_parameter, values))


class ParameterDict(dict[str, Any]):
    """A dict of parameters. Arrays are converted to parameters."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__({key: _as_parameter(value) for key, value in (parameters or {}).items()})


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, np.ndarray | np.generic) else value


def _fitting(value: np.ndarray[Any, Any], held: tensor.Parameter | Buffer, what: str) -> np.ndarray[Any, Any]:
    """Convert an array to the dtype of a parameter or buffer; raise ``MlaotError`` for another shape."""
    if value.shape != tuple(held.shape):
        raise MlaotError(f"{what}: expected shape {list(held.shape)}, got {list(value.shape)}")
    return np.array(value, np.asarray(held).dtype)


def _path(module: Module) -> str:
    """Return the path of attributes from the traced model to a module, or its kind if it holds nothing with a name."""
    own, held = next(chain(module.named_parameters(), module.named_buffers()), ("", None))
    name = needed().root.names.get(id(held), "")
    if held is not None and name.endswith(own):
        return name.removesuffix(own).rstrip(".")
    return inner_part(type(module).__name__.lower())


def _walk(value: Any, path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield all objects of ``kind`` in a module or container: its own ones first, then those of its parts."""
    items = list(_items(value))
    yield from ((f"{path}{name}", held) for name, held in items if isinstance(held, kind))
    for name, inner in items:
        yield from _walk(inner, f"{path}{name}.", kind)


def _tree(module: Module, path: str) -> Iterator[tuple[str, Module]]:
    yield path, module
    for name, inner in _nearest(module, f"{path}." if path else ""):
        yield from _tree(inner, name)


def _nearest(value: Any, path: str) -> Iterator[tuple[str, Module]]:
    """Yield the modules in a module or container that are not inside of another module."""
    for name, inner in _items(value):
        if isinstance(inner, Module):
            yield f"{path}{name}", inner
        else:
            yield from _nearest(inner, f"{path}{name}.")


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Module):
        return vars(value).items()
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _unique(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, held in named:
        if id(held) not in seen:
            seen.add(id(held))
            yield name, held
