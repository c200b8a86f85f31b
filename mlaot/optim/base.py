"""The base of all optimizers: groups of parameters, schedules, clipping, and the names of state arrays.

Parameters, gradients and state are dicts of arrays by name, NumPy's or traced. A state array is named after its
parameter, as ``exp_avg.conv1.weight``, and ``step`` counts the updates. The rate of a step is ``lr * schedule(step)``.
Computations are in each parameter's dtype. Computations on scalars, such as a bias correction, are in float64.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any, ClassVar, TypedDict

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import part
from mlaot.frontend.trace.tensor import Parameter
from mlaot.nn.arguments import bound, number_of, shown
from mlaot.optim.schedules import Array, Schedule

__all__ = ["Optimizer", "clip_grad_norm", "clip_grad_value"]

Arrays = Mapping[str, Array]
Pattern = str | Parameter  # a name or a pattern of names, or a parameter that has no name yet
POSITIVE = {"lr", "eps", "momentum", "weight_decay", "lr_decay", "alpha", "initial_accumulator_value"}
POSITIVE |= {"rho", "lambd", "t0", "momentum_decay"}
PAIRS = {"betas", "etas", "step_sizes"}


class Shared(TypedDict, total=False):
    """Options of every optimizer.

    ``groups`` are dicts of options for some parameters. Under "params" they have names, patterns as for file names
    ("*.bias"), or the parameters themselves. The first group that matches a parameter applies. ``schedule`` is a
    function from the number of updates so far to a factor of ``lr``. ``clip_grad_value`` limits each element of the
    gradients, and then ``clip_grad_norm`` limits the norm of all of them together. With ``maximize`` the steps go
    uphill.
    """

    maximize: bool
    groups: Sequence[Mapping[str, Any]] | None
    schedule: Schedule | None
    clip_grad_norm: float | None
    clip_grad_value: float | None


class Optimizer:
    """Base class. A subclass defines its state arrays, and the update of one parameter."""

    slots: ClassVar[tuple[str, ...]] = ()
    numbers: ClassVar[tuple[str, ...]] = ()  # the slots that are one number, whatever the parameter's shape
    uses_step: ClassVar[bool] = False  # whether an update depends on the number of those before
    chosen: tuple[Pattern, ...] | None = None  # the parameters that it was given: all others stay as they are

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self,
        lr: float,
        options: Mapping[str, Any],
        *,
        maximize: bool = False,
        groups: Sequence[Mapping[str, Any]] | None = None,
        schedule: Schedule | None = None,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
    ) -> None:
        self.lr, self.options, self.schedule = lr, _numbers(options), schedule
        self.first_lr = lr  # which those of groups are relative to
        self.clip_grad_norm, self.clip_grad_value, self.maximize = clip_grad_norm, clip_grad_value, maximize
        self._check_shared(groups)
        self.groups = [self._group(group) for group in groups or ()]
        for chosen in (self.options, *[group for _, group in self.groups]):
            self.check({**self.options, **chosen, "lr": chosen.get("lr", lr)})

    def of(self, parameters: Arrays) -> Optimizer:
        """Return this optimizer for exactly these parameters, with only the groups that name one of them."""
        result, groups = copy(self), []
        result.chosen = None
        for patterns, own in self.groups:
            if kept := tuple(p for p in patterns if any(_fits(p, name) for name in parameters)):
                groups.append((kept, own))
        result.groups = groups
        return result

    def named(self, parameters: Mapping[str, Any]) -> Optimizer:
        """Return this optimizer with the names of these parameters in place of the parameter objects that it was given.

        Parameters without gradient are left out.
        """
        names = {id(parameter): _literal(name) for name, parameter in parameters.items()}

        def names_of(patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
            wanted = (p for p in patterns if isinstance(p, str) or p.requires_grad)
            return tuple(names.get(id(pattern), pattern) for pattern in wanted)

        result = copy(self)
        result.groups = [(names_of(patterns), own) for patterns, own in self.groups]
        result.chosen = None if self.chosen is None else names_of(self.chosen)
        return result

    def trains(self, name: str) -> bool:
        """Tell whether the optimizer trains a parameter: one that it was given, or any if it was given none."""
        return self.chosen is None or any(_fits(pattern, name) for pattern in self.chosen)

    def init(self, parameters: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return the initial state. Parameter objects that the optimizer was given get their names here."""
        found = self.named(parameters)
        self.groups, self.chosen = found.groups, found.chosen
        for patterns in (*[patterns for patterns, _ in self.groups], self.chosen or ()):
            for pattern in patterns:
                if not any(_fits(pattern, name) for name in parameters):
                    raise MlaotError(f"optimizer: no parameter is called {pattern!r}; known are {sorted(parameters)}")
        parameters = {name: parameter for name, parameter in parameters.items() if self.trains(name)}
        state: dict[str, np.ndarray[Any, Any]] = {}
        for name, parameter in parameters.items():
            options = self.options_of(name)
            for slot in self.slots_of(options):
                start = np.asarray(parameter)
                shape = () if slot in self.numbers else start.shape
                state[f"{slot}.{name}"] = np.full(shape, self.start(slot, options), start.dtype)
        if self.counts_steps:
            state["step"] = np.array(0, np.int64)
        return state

    def update(
        self, parameters: Arrays, gradients: Arrays, state: Arrays, lr: Array | None = None
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return new parameters and new state. A parameter without a gradient is unchanged."""
        gradients = {name: gradients[name] for name in parameters if name in gradients and self.trains(name)}
        gradients = self._clipped(gradients)
        rate = self.lr if lr is None else lr
        step = state["step"] if self.counts_steps else None
        if self.schedule is not None:
            rate = rate * self.schedule(step)
        updated, kept = dict(parameters), dict(state)
        for name, gradient in gradients.items():
            options = self.options_of(name)
            own_rate = rate * (options["lr"] / self.first_lr) if "lr" in options else rate
            slots = {slot: state[f"{slot}.{name}"] for slot in self.slots_of(options)}
            x, descent = parameters[name], -gradient if self.maximize else gradient
            with part(f"{name}.update"):
                updated[name], slots = self.apply(x, descent, slots, options, own_rate, step)
            kept |= {f"{slot}.{name}": value for slot, value in slots.items()}
        if step is not None:
            kept["step"] = step + 1
        return updated, kept

    @property
    def counts_steps(self) -> bool:
        """Whether the state has the number of updates, as something depends on it."""
        return self.uses_step or self.schedule is not None

    def options_of(self, name: str) -> dict[str, Any]:
        """Return the options for one parameter, with "lr" if its group has its own rate."""
        for patterns, group in self.groups:
            if any(_fits(pattern, name) for pattern in patterns):
                return {**self.options, **group}
        return self.options

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ``MlaotError`` for invalid options."""
        for name, value in options.items():
            if name not in PAIRS and not isinstance(value, int | float):
                raise MlaotError(f"{type(self).__name__}: expected a number for {name}, got {shown(value)}")
            if name in POSITIVE and not value >= 0:
                raise MlaotError(f"{type(self).__name__}: expected {name} of at least 0, got {shown(value)}")
        for name in PAIRS & options.keys():
            pair = options[name]
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(v, int | float) for v in pair)):
                raise MlaotError(f"{type(self).__name__}: expected two numbers for {name}, got {shown(pair)}")
        betas = options.get("betas", (0, 0))
        if not all(0 <= beta < 1 for beta in betas):
            raise MlaotError(f"{type(self).__name__}: expected two betas from 0 to below 1, got {shown(betas)}")

    def slots_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the state arrays of a parameter."""
        return self.slots

    def start(self, slot: str, options: Mapping[str, Any]) -> float:
        """Return the initial value of a state array's elements."""
        return 0.0

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Return the new value and the new state arrays of one parameter; ``step`` is the number of earlier updates."""
        raise NotImplementedError

    def _check_shared(self, groups: Any) -> None:
        """Raise ``MlaotError`` for invalid shared options."""
        name = type(self).__name__
        if not isinstance(self.maximize, int):
            raise MlaotError(f"{name}: expected True or False for maximize, got {shown(self.maximize)}")
        for option in ("clip_grad_norm", "clip_grad_value"):
            value = getattr(self, option)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise MlaotError(f"{name}: expected {option} of at least 0, or None, got {shown(value)}")
        if self.schedule is not None and not callable(self.schedule):
            raise MlaotError(f"{name}: expected a function of the step as the schedule, got {shown(self.schedule)}")
        listed = isinstance(groups, list | tuple) and all(isinstance(group, Mapping) for group in groups)
        if groups is not None and not listed:
            raise MlaotError(f"{name}: expected a list of dicts, each with 'params', as groups, got {shown(groups)}")

    def _group(self, group: Mapping[str, Any]) -> tuple[tuple[Pattern, ...], dict[str, Any]]:
        options = _numbers({key: value for key, value in group.items() if key != "params"})
        unknown = sorted(set(options) - {*self.options, "lr"})
        if unknown or "params" not in group:
            raise MlaotError(
                f"{type(self).__name__}: a group has 'params' and any of {sorted({*self.options, 'lr'})}, "
                f"got {sorted(group)}"
            )
        if "lr" in options and self.lr == 0:
            raise MlaotError(f"{type(self).__name__}: a group's lr is relative to the optimizer's, which must not be 0")
        chosen = group["params"]
        chosen = [chosen] if isinstance(chosen, str | Parameter) or not np.iterable(chosen) else list(chosen)
        if not chosen:
            raise MlaotError(f"{type(self).__name__}: a group's 'params' names no parameter")
        return tuple(map(_pattern, chosen)), options

    def _clipped(self, gradients: dict[str, Array]) -> dict[str, Array]:
        if self.clip_grad_value is not None:
            gradients = clip_grad_value(gradients, self.clip_grad_value)
        if self.clip_grad_norm is not None:
            gradients, _ = clip_grad_norm(gradients, self.clip_grad_norm)
        return gradients


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """Return an optimizer's ``__init__`` whose errors name the argument, and which accepts NumPy's numbers.

    Its first argument may be the parameters to train, or a list of groups of them, as in PyTorch.
    """
    signature = inspect.signature(init)

    @wraps(init)
    def checked(self: Optimizer, *args: Any, **options: Any) -> None:
        name, params = type(self).__name__, options.pop("params", None)
        if params is None and args and not isinstance(number_of(args[0]), int | float):
            params, *args = args  # type: ignore[assignment]
        chosen, groups = _given(name, params)
        if groups:
            options["groups"] = [*groups, *(options.get("groups") or ())]
        binding = bound(name, signature, (self, *args), options, tuple(Shared.__annotations__))
        init(*map(number_of, binding.args), **{key: number_of(value) for key, value in binding.kwargs.items()})
        self.chosen = chosen

    return checked


def _given(name: str, params: Any) -> tuple[tuple[Pattern, ...] | None, list[Mapping[str, Any]]]:
    """Return the parameters that an optimizer trains, None for all, and the groups with options of their own."""
    if params is None:
        return None, []
    listed = list(params) if np.iterable(params) and not isinstance(params, str | Parameter) else []
    groups: list[Mapping[str, Any]] = []
    chosen: list[Pattern] = []
    for item in listed:
        if isinstance(item, Mapping) and "params" in item:
            own = item["params"]
            own = [own] if isinstance(own, str | Parameter) or not np.iterable(own) else list(own)
            groups += [{**item, "params": own}] if len(item) > 1 else []
            chosen += map(_pattern, own)
        else:
            one = item[1] if isinstance(item, tuple) and len(item) == 2 else item
            if not isinstance(one, str | Parameter):
                chosen = []
                break
            chosen.append(_pattern(one))
    if not chosen:
        raise MlaotError(
            f"{name}: expected the parameters to train, such as net.parameters() of a Module, got {shown(params)}; "
            f"without them it trains all of the model: {name}(lr=1e-3)"
        )
    return tuple(chosen), groups


def _numbers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert NumPy's numbers in options to Python's."""
    pairs = {key: number_of(value) for key, value in options.items()}
    for key in PAIRS & pairs.keys():
        if isinstance(pair := pairs[key], list | tuple | np.ndarray):
            pairs[key] = tuple(map(number_of, pair))
    return pairs


def clip_grad_norm(gradients: Arrays, max_norm: float, norm_type: float = 2.0) -> tuple[dict[str, Array], Array]:
    """Scale gradients so that the norm of all of them together is at most ``max_norm``; return the old norm too."""
    if not gradients:
        return {}, 0.0
    if norm_type == math.inf:
        norm = _reduced(np.maximum, [np.max(np.abs(g)) for g in gradients.values()])
    elif norm_type == 2:
        norm = np.sqrt(_reduced(np.add, [np.sum(g * g) for g in gradients.values()]))
    else:
        norm = _reduced(np.add, [np.sum(np.abs(g) ** norm_type) for g in gradients.values()]) ** (1.0 / norm_type)
    factor = np.minimum(max_norm / (norm + 1e-6), 1.0)
    return {name: g * scalar(factor, g) for name, g in gradients.items()}, norm


def clip_grad_value(gradients: Arrays, clip_value: float) -> dict[str, Array]:
    """Clamp each element of the gradients to the range from ``-clip_value`` to ``clip_value``."""
    return {name: np.minimum(np.maximum(g, -clip_value), clip_value) for name, g in gradients.items()}


def scalar(value: Array, like: Array) -> Array:
    """Return a number that does not change the dtype of ``like`` in arithmetic."""
    return value.astype(like.dtype) if hasattr(value, "astype") else value


def decayed(gradient: Array, x: Array, weight_decay: float) -> Array:
    """Add weight decay to a gradient."""
    return gradient + x * weight_decay if weight_decay else gradient


def mixed(old: Array, new: Array, keep: float) -> Array:
    """Return a running mean that keeps the share ``keep`` of its old value."""
    return old * keep + new * (1.0 - keep)


def _pattern(parameter: Any) -> Pattern:
    """Return a name or pattern, or a parameter object without a name."""
    if isinstance(parameter, Parameter):
        return parameter if parameter.name is None else _literal(parameter.name)
    if not isinstance(parameter, str):
        raise MlaotError(f"optimizer: 'params' are names, patterns, or parameters, got {shown(parameter)}")
    return parameter


def _literal(name: str) -> str:
    """Return a pattern that matches one name, with its brackets escaped."""
    return name.replace("[", "[[]")


def _fits(pattern: Pattern, name: str) -> bool:
    return isinstance(pattern, str) and fnmatchcase(name, pattern)


def _reduced(function: Callable[[Array, Array], Array], values: Sequence[Array]) -> Array:
    total = values[0]
    for value in values[1:]:
        total = function(total, value)
    return total
