"""Optimizers and learning rates: PyTorch's names, formulas and defaults, as pure functions of arrays.

optimizer = AdamW(lr=1e-3, groups=[{"params": ["*.bias", "norm*"], "weight_decay": 0.0}])
state = optimizer.init(parameters)
parameters, state = optimizer.update(parameters, gradients, state, lr)
"""

from typing import Any

from mlaot.nn.arguments import absent
from mlaot.optim.base import Optimizer, clip_grad_norm, clip_grad_value
from mlaot.optim.optimizers import SGD, Adagrad, Adam, AdamW, Lion, RMSprop
from mlaot.optim.schedules import (
    chained_lr,
    constant_lr,
    cosine_annealing_lr,
    cosine_annealing_warm_restarts_lr,
    exponential_lr,
    linear_lr,
    multistep_lr,
    one_cycle_lr,
    polynomial_lr,
    sequential_lr,
    step_lr,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "Optimizer",
    "RMSprop",
    "chained_lr",
    "clip_grad_norm",
    "clip_grad_value",
    "constant_lr",
    "cosine_annealing_lr",
    "cosine_annealing_warm_restarts_lr",
    "exponential_lr",
    "linear_lr",
    "multistep_lr",
    "one_cycle_lr",
    "polynomial_lr",
    "sequential_lr",
    "step_lr",
]


def __getattr__(name: str) -> Any:
    absent(__name__, name, __all__, {"mlaot.optim": __all__})
