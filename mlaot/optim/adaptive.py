"""Further optimizers: variants of Adam, running averages of the parameters, and steps by signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from mlaot.errors import MlaotError
from mlaot.optim.base import Optimizer, Shared, decayed, mixed, scalar
from mlaot.optim.schedules import Array, as_float

__all__ = ["ASGD", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop"]


class Adadelta(Optimizer):
    """Steps scaled by the ratio of the root mean squares of earlier steps and of gradients (Zeiler, 2012)."""

    slots = ("square_avg", "acc_delta")

    def __init__(
        self, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, **shared: Unpack[Shared]
    ) -> None:
        super().__init__(lr, {"rho": rho, "eps": eps, "weight_decay": weight_decay}, **shared)

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        gradient = decayed(gradient, x, options["weight_decay"])
        square = mixed(slots["square_avg"], gradient * gradient, options["rho"])
        scale = np.sqrt(slots["acc_delta"] + options["eps"]) / np.sqrt(square + options["eps"])
        delta = scale * gradient
        kept = {"square_avg": square, "acc_delta": mixed(slots["acc_delta"], delta * delta, options["rho"])}
        return x - delta * scalar(rate, x), kept


class Adamax(Optimizer):
    """Adam with a decaying maximum of gradients instead of their mean square (Kingma and Ba, 2015)."""

    slots = ("exp_avg", "exp_inf")
    uses_step = True

    def __init__(
        self,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(lr, {"betas": betas, "eps": eps, "weight_decay": weight_decay}, **shared)

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        beta1, beta2 = options["betas"]
        gradient = decayed(gradient, x, options["weight_decay"])
        mean = mixed(slots["exp_avg"], gradient, beta1)
        largest = np.maximum(slots["exp_inf"] * beta2, np.abs(gradient) + options["eps"])
        correction = 1.0 - beta1 ** as_float(step + 1)
        return x - mean / largest * scalar(rate / correction, x), {"exp_avg": mean, "exp_inf": largest}


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    slots = ("exp_avg", "exp_avg_sq", "mu_product")
    numbers = ("mu_product",)
    uses_step = True

    def __init__(
        self,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        options = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        super().__init__(lr, {**options, "decoupled_weight_decay": decoupled_weight_decay}, **shared)

    def start(self, slot: str, options: Mapping[str, Any]) -> float:
        return 1.0 if slot == "mu_product" else 0.0

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        beta1, beta2 = options["betas"]
        x, gradient = _decayed_as_chosen(x, gradient, rate, options)
        exponent = as_float(step + 1)
        now, then = (beta1 * (1.0 - 0.5 * 0.96 ** (t * options["momentum_decay"])) for t in (exponent, exponent + 1.0))
        product = slots["mu_product"] * scalar(now, x)
        mean = mixed(slots["exp_avg"], gradient, beta1)
        square = mixed(slots["exp_avg_sq"], gradient * gradient, beta2)
        scale = np.sqrt(square / scalar(1.0 - beta2**exponent, x)) + options["eps"]
        share = scalar(rate * (1.0 - now), x) / (1.0 - product)
        ahead = scalar(rate * then, x) / (1.0 - product * scalar(then, x))
        kept = {"exp_avg": mean, "exp_avg_sq": square, "mu_product": product}
        return x - gradient / scale * share - mean / scale * ahead, kept


class RAdam(Optimizer):
    """Adam that divides by the mean square only once its variance is small (Liu et al., 2020)."""

    slots = ("exp_avg", "exp_avg_sq")
    uses_step = True

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        options = {"betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(lr, {**options, "decoupled_weight_decay": decoupled_weight_decay}, **shared)

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        beta1, beta2 = options["betas"]
        x, gradient = _decayed_as_chosen(x, gradient, rate, options)
        mean = slots["exp_avg"] + (gradient - slots["exp_avg"]) * (1.0 - beta1)
        square = mixed(slots["exp_avg_sq"], gradient * gradient, beta2)
        exponent = as_float(step + 1)
        correction, most = 1.0 - beta2**exponent, 2.0 / (1.0 - beta2) - 1.0
        length = most - 2.0 * exponent * beta2**exponent / correction
        settled = length > 5.0
        long = np.where(settled, length, 6.0)
        variance = (long - 4.0) * (long - 2.0) * most / ((most - 4.0) * (most - 2.0) * long)
        scale = scalar(np.sqrt(variance * correction), x) / (np.sqrt(square) + options["eps"])
        factor = np.where(settled, scale, np.ones_like(scale))
        descent = mean / scalar(1.0 - beta1**exponent, x) * scalar(rate, x)
        return x - descent * factor, {"exp_avg": mean, "exp_avg_sq": square}


class ASGD(Optimizer):
    """Averaged gradient descent with a decaying rate (Polyak and Juditsky, 1992).

    The state ``ax`` is the mean of the parameters from step ``t0`` on.
    """

    slots = ("ax",)
    uses_step = True

    def __init__(
        self,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(lr, {"lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}, **shared)

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        gradient = decayed(gradient, x, options["weight_decay"])
        number, lambd = as_float(step), options["lambd"]
        falling = rate / (1.0 + lambd * rate * number) ** options["alpha"]
        x = x * scalar(1.0 - lambd * falling, x) - gradient * scalar(falling, x)
        share = scalar(1.0 / np.maximum(number - options["t0"], 1.0), x)
        return x, {"ax": slots["ax"] + (x - slots["ax"]) * share}


class Rprop(Optimizer):
    """Steps by the signs of gradients; each element's step grows while its sign is constant (Riedmiller, 1993).

    ``lr`` is the size of the first step. A schedule and a rate at run time have no effect.
    """

    slots = ("prev", "step_size")

    def __init__(
        self,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(lr, {"etas": etas, "step_sizes": step_sizes}, **shared)

    def check(self, options: Mapping[str, Any]) -> None:
        super().check(options)
        if not 0 < options["etas"][0] < 1 < options["etas"][1]:
            raise MlaotError(f"Rprop: expected etas below and above 1, got {options['etas']}")

    def start(self, slot: str, options: Mapping[str, Any]) -> float:
        return float(options.get("lr", self.lr)) if slot == "step_size" else 0.0

    def apply(
        self, x: Array, gradient: Array, slots: dict[str, Array], options: dict[str, Any], rate: Array, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        turned = gradient * slots["prev"]
        shrink, grow = options["etas"]
        factor = np.where(turned > 0, grow, np.where(turned < 0, shrink, 1.0))
        size = np.minimum(
            np.maximum(slots["step_size"] * scalar(factor, x), options["step_sizes"][0]), options["step_sizes"][1]
        )
        gradient = np.where(turned < 0, np.zeros_like(gradient), gradient)
        sign = np.where(gradient > 0, 1.0, np.where(gradient < 0, -1.0, np.zeros_like(gradient)))  # 0 for nan
        return x - sign * size, {"prev": gradient, "step_size": size}


def _decayed_as_chosen(x: Array, gradient: Array, rate: Array, options: Mapping[str, Any]) -> tuple[Array, Array]:
    """Apply weight decay to the parameter itself if it is decoupled, or add it to the gradient."""
    decay = options["weight_decay"]
    if decay and options["decoupled_weight_decay"]:
        return x * scalar(1.0 - rate * decay, x), gradient
    return x, decayed(gradient, x, decay)
