"""Schedules: functions from the step (0 at the first update) to a factor of the optimizer's ``lr``.

The formulas are those of PyTorch's schedulers of the same names. As the result is a factor, ``min_factor`` replaces
PyTorch's ``eta_min`` (it is ``eta_min / lr``), and the ``lr`` of a one-cycle schedule is its ``max_lr``. Any other
function of the step, written with NumPy, can also be a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.nn.arguments import check_choice

__all__ = ["chained_lr", "constant_lr", "cosine_annealing_lr", "cosine_annealing_warm_restarts_lr", "cyclic_lr"]
__all__ += [
    "exponential_lr",
    "lambda_lr",
    "linear_lr",
    "multistep_lr",
    "one_cycle_lr",
    "polynomial_lr",
    "sequential_lr",
    "step_lr",
]

Array = Any  # a NumPy array, or a traced one
Schedule = Callable[[Array], Array]


def constant_lr(factor: float = 1 / 3, total_iters: int = 5) -> Schedule:
    """Start with ``factor`` for the first steps, then 1."""
    return lambda step: np.where(step < total_iters, factor, 1.0)


def step_lr(step_size: int, gamma: float = 0.1) -> Schedule:
    """Multiply by ``gamma`` every ``step_size`` steps."""
    return lambda step: gamma ** as_float(step // step_size)


def multistep_lr(milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """Multiply by ``gamma`` at each milestone."""

    def factor(step: Array) -> Array:
        rate: Array = 1.0
        for count, milestone in enumerate(sorted(milestones), 1):
            rate = np.where(step >= milestone, gamma**count, rate)
        return rate

    return factor


def exponential_lr(gamma: float) -> Schedule:
    """Multiply by ``gamma`` every step."""
    return lambda step: gamma ** as_float(step)


def linear_lr(start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5) -> Schedule:
    """Interpolate linearly from ``start_factor`` to ``end_factor``: a warmup."""
    return lambda step: start_factor + (end_factor - start_factor) * _progress(step, total_iters)


def polynomial_lr(total_iters: int = 5, power: float = 1.0) -> Schedule:
    """Go from 1 to 0 along a power of the steps left."""
    return lambda step: (1.0 - _progress(step, total_iters)) ** power


def cosine_annealing_lr(T_max: int, min_factor: float = 0.0) -> Schedule:
    """Go from 1 down to ``min_factor`` at step ``T_max`` along half a period of the cosine, and up again after it."""
    return lambda step: _cosine(1.0, min_factor, as_float(step) / T_max)


def cosine_annealing_warm_restarts_lr(T_0: int, T_mult: int = 1, min_factor: float = 0.0) -> Schedule:
    """Repeat half a period of the cosine: first ``T_0`` steps, then each ``T_mult`` times as long as the one before."""
    if T_0 < 1 or T_mult < 1:
        raise MlaotError(
            f"cosine_annealing_warm_restarts_lr: expected T_0 and T_mult of at least 1, got {T_0}, {T_mult}"
        )

    def factor(step: Array) -> Array:
        if T_mult == 1:
            return _cosine(1.0, min_factor, as_float(step % T_0) / T_0)
        # Before wave n come T_0 * (T_mult**n - 1) / (T_mult - 1) steps.
        waves = np.log(as_float(step) * ((T_mult - 1) / T_0) + 1.0) / math.log(T_mult)
        growth = float(T_mult) ** np.floor(waves + 1e-9)  # an integer may come out a little too small
        start = (growth - 1.0) * (T_0 / (T_mult - 1))
        return _cosine(1.0, min_factor, (as_float(step) - start) / (growth * T_0))

    return factor


def one_cycle_lr(
    total_steps: int,
    pct_start: float = 0.3,
    anneal_strategy: str = "cos",
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
    three_phase: bool = False,
) -> Schedule:
    """Go up from ``1 / div_factor`` to 1, then far down (Smith and Topin, 2018).

    The way up takes the share ``pct_start`` of the steps.

    With ``three_phase``, first go back down to the start in as many steps as up.
    """
    check_choice(anneal_strategy, ("cos", "linear"), "one_cycle_lr: anneal_strategy")
    between = _cosine if anneal_strategy == "cos" else _line
    first, last = 1.0 / div_factor, 1.0 / div_factor / final_div_factor
    peak, end = pct_start * total_steps - 1, float(total_steps - 1)
    phases = [(0.0, peak, first, 1.0), (peak, end, 1.0, last)]
    if three_phase:
        phases[1:] = [(peak, 2 * peak, 1.0, first), (2 * peak, end, first, last)]

    def factor(step: Array) -> Array:
        now = np.minimum(as_float(step), end)
        rate: Array = None
        for start, stop, low, high in reversed(phases):
            value = between(low, high, (now - start) / (stop - start))
            rate = value if rate is None else np.where(now <= stop, value, rate)
        return rate

    return factor


def cyclic_lr(
    base_factor: float,
    step_size_up: int = 2000,
    step_size_down: int | None = None,
    mode: str = "triangular",
    gamma: float = 1.0,
) -> Schedule:
    """Go from ``base_factor`` up to 1 and back in cycles (Smith, 2017).

    ``mode`` is "triangular", "triangular2", which halves the height in each cycle, or "exp_range", which multiplies the
    height by ``gamma`` in each step. PyTorch's ``base_lr`` and ``max_lr`` correspond to ``base_factor * lr`` and
    ``lr``.
    """
    check_choice(mode, ("triangular", "triangular2", "exp_range"), "cyclic_lr: mode")
    total = step_size_up + (step_size_up if step_size_down is None else step_size_down)
    rise = step_size_up / total

    def factor(step: Array) -> Array:
        cycle = np.floor(as_float(step) / total)
        place = as_float(step) / total - cycle
        share = np.where(place <= rise, place / rise, (place - 1.0) / (rise - 1.0))
        height = {"triangular2": 0.5**cycle, "exp_range": gamma ** as_float(step)}.get(mode, 1.0)
        return base_factor + (1.0 - base_factor) * share * height

    return factor


def lambda_lr(lr_lambda: Schedule) -> Schedule:
    """Return the factor that a function of the step returns. Any such function is itself a schedule."""
    return lambda step: lr_lambda(step)


def sequential_lr(schedules: Sequence[Schedule], milestones: Sequence[int]) -> Schedule:
    """Use one schedule after another, each from its step 0, with changes at the milestones."""
    if len(schedules) != len(milestones) + 1:
        raise MlaotError(f"sequential_lr: {len(schedules)} schedules need {len(schedules) - 1} milestones between them")

    def factor(step: Array) -> Array:
        rate = schedules[0](step)
        for schedule, milestone in zip(schedules[1:], milestones, strict=True):
            rate = np.where(step < milestone, rate, schedule(np.maximum(step - milestone, 0)))
        return rate

    return factor


def chained_lr(schedules: Sequence[Schedule]) -> Schedule:
    """Multiply schedules."""

    def factor(step: Array) -> Array:
        rate: Array = 1.0
        for schedule in schedules:
            rate = rate * schedule(step)
        return rate

    return factor


def as_float(step: Array) -> Array:
    """Convert a step to float64, so that it can be divided."""
    return step.astype(np.float64) if hasattr(step, "astype") else float(step)


def _progress(step: Array, total: int) -> Array:
    return np.minimum(as_float(step), float(total)) / total


def _cosine(start: float, end: float, share: Array) -> Array:
    return end + (start - end) / 2 * (np.cos(share * math.pi) + 1.0)


def _line(start: float, end: float, share: Array) -> Array:
    return start + (end - start) * share
