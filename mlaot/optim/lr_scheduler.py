"""Schedulers with PyTorch's names, each of which sets the schedule of its optimizer.

optimizer = SGD(net.parameters(), lr=0.1)
StepLR(optimizer, step_size=30)

A schedule is the factor of the rate at every update. It follows the optimizer's updates by itself, as if
``scheduler.step()`` were called after each update, so steps are updates and not epochs. The factors of several
schedulers of one optimizer are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlaot.errors import MlaotError
from mlaot.nn.absent import absent
from mlaot.nn.arguments import check_choice
from mlaot.optim import schedules
from mlaot.optim.base import Optimizer
from mlaot.optim.schedules import Schedule

__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR"]
__all__ += ["ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR"]
__all__ += ["ReduceLROnPlateau", "SequentialLR", "StepLR"]


class LRScheduler:
    """Base class. It multiplies the schedule of an optimizer by another one."""

    def __init__(self, optimizer: Optimizer, schedule: Schedule) -> None:
        self.optimizer, self.schedule, self.earlier = _optimizer(type(self).__name__, optimizer), schedule, None
        self.earlier = optimizer.schedule
        optimizer.schedule = schedule if self.earlier is None else schedules.chained_lr([self.earlier, schedule])

    def step(self) -> None:
        """Refuse the call, which programs of PyTorch make: the rate follows the updates by itself."""
        raise MlaotError(
            f"{type(self).__name__}: the rate follows the updates by itself; leave scheduler.step() out, and give its "
            "arguments in updates, not in epochs"
        )


class ConstantLR(LRScheduler):
    """Start with ``factor`` for the first steps, then 1."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        super().__init__(optimizer, schedules.constant_lr(factor, total_iters))


class StepLR(LRScheduler):
    """Multiply by ``gamma`` every ``step_size`` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(optimizer, schedules.step_lr(step_size, gamma))


class MultiStepLR(LRScheduler):
    """Multiply by ``gamma`` at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        super().__init__(optimizer, schedules.multistep_lr(milestones, gamma))


class ExponentialLR(LRScheduler):
    """Multiply by ``gamma`` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, schedules.exponential_lr(gamma))


class LinearLR(LRScheduler):
    """Interpolate linearly from ``start_factor`` to ``end_factor``: a warmup."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        super().__init__(optimizer, schedules.linear_lr(start_factor, end_factor, total_iters))


class PolynomialLR(LRScheduler):
    """Go from 1 to 0 along a power of the steps left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        super().__init__(optimizer, schedules.polynomial_lr(total_iters, power))


class CosineAnnealingLR(LRScheduler):
    """Go down to ``eta_min`` at step ``T_max`` along half a period of the cosine, and up again after it."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        least = _share("CosineAnnealingLR", optimizer, eta_min)
        super().__init__(optimizer, schedules.cosine_annealing_lr(T_max, least))


class CosineAnnealingWarmRestarts(LRScheduler):
    """Repeat half a period of the cosine: first ``T_0`` steps, then each ``T_mult`` times as long as the one before."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        least = _share("CosineAnnealingWarmRestarts", optimizer, eta_min)
        super().__init__(optimizer, schedules.cosine_annealing_warm_restarts_lr(T_0, T_mult, least))


class OneCycleLR(LRScheduler):
    """Go up to ``max_lr``, which becomes the optimizer's rate, then far down. See ``one_cycle_lr``."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        _cycle_alone("OneCycleLR", optimizer, cycle_momentum).lr = max_lr
        shape = (total_steps, pct_start, anneal_strategy, div_factor, final_div_factor, three_phase)
        super().__init__(optimizer, schedules.one_cycle_lr(*shape))


class CyclicLR(LRScheduler):
    """Go from ``base_lr`` up to ``max_lr``, which becomes the optimizer's rate, and back. See ``cyclic_lr``."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        cycle_momentum: bool = True,
    ) -> None:
        _cycle_alone("CyclicLR", optimizer, cycle_momentum).lr = max_lr
        least = _share("CyclicLR", optimizer, base_lr)
        super().__init__(optimizer, schedules.cyclic_lr(least, step_size_up, step_size_down, mode, gamma))


class LambdaLR(LRScheduler):
    """Multiply the rate by a function of the step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Schedule) -> None:
        super().__init__(optimizer, schedules.lambda_lr(lr_lambda))


class SequentialLR(LRScheduler):
    """Use one scheduler after another, each from its step 0, with changes at the milestones."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        _replace(optimizer, schedulers)
        super().__init__(optimizer, schedules.sequential_lr([s.schedule for s in schedulers], milestones))


class ChainedScheduler(LRScheduler):
    """Multiply the factors of schedulers, which is also the default for several schedulers of one optimizer."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        chosen = schedulers[0].optimizer if optimizer is None else optimizer
        _replace(chosen, schedulers)
        super().__init__(chosen, schedules.chained_lr([s.schedule for s in schedulers]))


class ReduceLROnPlateau:
    """Multiply the rate by ``factor`` after a measure has not improved for more than ``patience`` steps.

    ``step(measure)`` returns the new rate, which is also ``optimizer.lr``. Pass it to a compiled module, as in
    ``train_step(x, y, lr=plateau.step(loss))``.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        check_choice(mode, ("min", "max"), "ReduceLROnPlateau: mode")
        check_choice(threshold_mode, ("rel", "abs"), "ReduceLROnPlateau: threshold_mode")
        if not factor < 1:
            raise MlaotError(f"ReduceLROnPlateau: expected a factor below 1, got {factor}")
        self.optimizer = _optimizer("ReduceLROnPlateau", optimizer)
        self.sign, self.factor, self.patience = 1.0 if mode == "min" else -1.0, factor, patience
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lr, self.eps = min_lr, eps
        self.best, self.bad, self.waiting = self.sign * math.inf, 0, 0

    def step(self, metrics: Any) -> float:
        """Record a measure, and return the rate."""
        measure = float(metrics)
        self.bad = 0 if self._is_better(measure) else self.bad + 1
        self.best = self.best if self.bad else measure
        if self.waiting:
            self.waiting, self.bad = self.waiting - 1, 0
        if self.bad > self.patience:
            self.waiting, self.bad = self.cooldown, 0
            rate = max(self.optimizer.lr * self.factor, self.min_lr)
            self.optimizer.lr = rate if self.optimizer.lr - rate > self.eps else self.optimizer.lr
        return self.optimizer.lr

    def _is_better(self, measure: float) -> bool:
        if math.isinf(self.best):
            return self.sign * measure < self.sign * self.best
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1.0)
        return self.sign * measure < self.sign * self.best - margin


def _optimizer(name: str, optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise MlaotError(f"{name}: expected an optimizer such as mlaot.optim.SGD(lr=0.1), got {optimizer!r}")
    return optimizer


def _share(name: str, optimizer: Optimizer, rate: float) -> float:
    """Return a rate as a factor of the optimizer's rate."""
    return rate / _optimizer(name, optimizer).lr if rate else 0.0


def _cycle_alone(name: str, optimizer: Optimizer, cycle_momentum: bool) -> Optimizer:
    if cycle_momentum:
        raise MlaotError(f"{name}: the momentum of an optimizer is constant here; give cycle_momentum=False")
    if any("lr" in own for _, own in _optimizer(name, optimizer).groups):
        raise MlaotError(f"{name}: expected one rate for all groups, which is max_lr at the most")
    return optimizer


def _replace(optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
    """Remove the schedules of schedulers from their optimizer, which each set when it was made."""
    for scheduler in schedulers:
        if not isinstance(scheduler, LRScheduler) or scheduler.optimizer is not optimizer:
            raise MlaotError(f"expected schedulers of one optimizer, got {scheduler!r}")
    optimizer.schedule = schedulers[0].earlier


def __getattr__(name: str) -> Any:
    absent(__name__, name, __all__, {"mlaot.optim": schedules.__all__})
