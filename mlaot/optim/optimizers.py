"""The optimizers: the update of one parameter by each. ``base`` has the options of all optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from mlaot.errors import MlaotError
from mlaot.optim.base import Optimizer, Shared, decayed, mixed, scalar
from mlaot.optim.schedules import Array, as_float

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Lion", "RMSprop"]


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum or Nesterov's momentum."""

    def __init__(
        self,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        options = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(lr, options, **shared)

    def check(self, options: Mapping[str, Any]) -> None:
        super().check(options)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise MlaotError("SGD: nesterov needs a momentum above 0 and no dampening")

    @property
    def counts_steps(self) -> bool:
        dampened = any(o.get("dampening") for o in (self.options, *[group for _, group in self.groups]))
        return super().counts_steps or dampened

    def slots_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if options["momentum"] else ()

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        gradient = decayed(gradient, x, options["weight_decay"])
        momentum = options["momentum"]
        if momentum:
            previous = slots["momentum_buffer"] * momentum
            buffer = previous + gradient
            if options["dampening"]:  # not yet at the first step
                buffer = np.where(step == 0, gradient, previous + gradient * (1.0 - options["dampening"]))
            slots = {"momentum_buffer": buffer}
            gradient = gradient + buffer * momentum if options["nesterov"] else buffer
        return x - gradient * scalar(rate, x), slots


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), with ``weight_decay`` times the parameter added to the gradient."""

    decoupled = False
    uses_step = True

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        options = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(lr, options, **shared)

    def slots_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if options["amsgrad"] else []))

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        beta1, beta2 = options["betas"]
        if self.decoupled:
            x = x * scalar(1.0 - rate * options["weight_decay"], x) if options["weight_decay"] else x
        else:
            gradient = decayed(gradient, x, options["weight_decay"])
        mean = mixed(slots["exp_avg"], gradient, beta1)
        square = mixed(slots["exp_avg_sq"], gradient * gradient, beta2)
        kept = {"exp_avg": mean, "exp_avg_sq": square}
        if options["amsgrad"]:
            kept["max_exp_avg_sq"] = square = np.maximum(slots["max_exp_avg_sq"], square)
        exponent = as_float(step + 1)
        correction1, correction2 = 1.0 - beta1**exponent, np.sqrt(1.0 - beta2**exponent)
        scale = np.sqrt(square) / scalar(correction2, x) + options["eps"]
        return x - mean / scale * scalar(rate / correction1, x), kept


class AdamW(Adam):
    """Adam with decoupled weight decay, ``lr * weight_decay`` of a parameter in a step (Loshchilov, Hutter, 2019)."""

    decoupled = True

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, amsgrad, **shared)


class RMSprop(Optimizer):
    """Gradients divided by the root of their running mean square, or if ``centered`` by their standard deviation."""

    def __init__(
        self,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        options = {"alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered}
        super().__init__(lr, options, **shared)

    def slots_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        centered = ["grad_avg"] if options["centered"] else []
        return ("square_avg", *centered, *(["momentum_buffer"] if options["momentum"] else []))

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        gradient = decayed(gradient, x, options["weight_decay"])
        square = mixed(slots["square_avg"], gradient * gradient, options["alpha"])
        kept = {"square_avg": square}
        if options["centered"]:
            kept["grad_avg"] = mean = mixed(slots["grad_avg"], gradient, options["alpha"])
            square = square - mean * mean
        descent = gradient / (np.sqrt(square) + options["eps"])
        if options["momentum"]:
            kept["momentum_buffer"] = descent = slots["momentum_buffer"] * options["momentum"] + descent
        return x - descent * scalar(rate, x), kept


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of their squares (Duchi et al., 2011)."""

    slots = ("sum",)

    def __init__(
        self,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **shared: Unpack[Shared],
    ) -> None:
        options = {
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        super().__init__(lr, options, **shared)

    @property
    def counts_steps(self) -> bool:
        decaying = any(o.get("lr_decay") for o in (self.options, *[group for _, group in self.groups]))
        return super().counts_steps or decaying

    def start(self, slot: str, options: Mapping[str, Any]) -> float:
        return float(options["initial_accumulator_value"])

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        gradient = decayed(gradient, x, options["weight_decay"])
        total = slots["sum"] + gradient * gradient
        if options["lr_decay"]:
            rate = rate / (1.0 + as_float(step) * options["lr_decay"])
        return x - gradient / (np.sqrt(total) + options["eps"]) * scalar(rate, x), {"sum": total}


class Lion(Optimizer):
    """Lion (Chen et al., 2023): each element moves by ``lr`` in the direction of a sign. Weight decay is decoupled."""

    slots = ("exp_avg",)

    def __init__(
        self,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **shared: Unpack[Shared],
    ) -> None:
        options = {"betas": betas, "weight_decay": weight_decay}
        super().__init__(lr, options, **shared)

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        beta1, beta2 = options["betas"]
        direction = decayed(np.sign(mixed(slots["exp_avg"], gradient, beta1)), x, options["weight_decay"])
        return x - direction * scalar(rate, x), {"exp_avg": mixed(slots["exp_avg"], gradient, beta2)}
