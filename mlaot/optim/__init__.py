"""Optimizers and learning-rate schedules with PyTorch's names, formulas and defaults, as pure functions of arrays.

optimizer = AdamW(lr=1e-3, groups=[{"params": ["*.bias", "norm*"], "weight_decay": 0.0}])
state = optimizer.init(parameters)
parameters, state = optimizer.update(parameters, gradients, state, lr)
"""
# ruff: noqa: F403

from typing import Any

from mlaot.nn.absent import absent
from mlaot.optim import adaptive, base, lr_scheduler, optimizers, schedules
from mlaot.optim.adaptive import *
from mlaot.optim.base import *
from mlaot.optim.optimizers import *
from mlaot.optim.schedules import *

__all__ = ["lr_scheduler"]
__all__ += adaptive.__all__
__all__ += base.__all__
__all__ += optimizers.__all__
__all__ += schedules.__all__


def __getattr__(name: str) -> Any:
    absent(__name__, name, __all__, {"mlaot.optim.lr_scheduler": lr_scheduler.__all__, "mlaot.optim": __all__})
