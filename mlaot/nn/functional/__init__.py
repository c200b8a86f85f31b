"""Functions with the names and defaults of PyTorch's ``torch.nn.functional``, for NumPy arrays and traced arrays alike.

Each file offers the functions that its ``__all__`` names.
"""
# ruff: noqa: F403

from __future__ import annotations

from typing import Any

from mlaot.nn.absent import absent
from mlaot.nn.arguments import checked
from mlaot.nn.functional import (
    activations,
    attention,
    convolution,
    drawing,
    losses,
    margins,
    normalization,
    patches,
    pooling,
    resizing,
    vectors,
)
from mlaot.nn.functional.activations import *
from mlaot.nn.functional.attention import *
from mlaot.nn.functional.convolution import *
from mlaot.nn.functional.drawing import *
from mlaot.nn.functional.losses import *
from mlaot.nn.functional.margins import *
from mlaot.nn.functional.normalization import *
from mlaot.nn.functional.patches import *
from mlaot.nn.functional.pooling import *
from mlaot.nn.functional.resizing import *
from mlaot.nn.functional.vectors import *

__all__: list[str] = []
__all__ += activations.__all__
__all__ += attention.__all__
__all__ += convolution.__all__
__all__ += drawing.__all__
__all__ += losses.__all__
__all__ += margins.__all__
__all__ += normalization.__all__
__all__ += patches.__all__
__all__ += pooling.__all__
__all__ += resizing.__all__
__all__ += vectors.__all__

for _name in __all__:  # here the arguments come from users
    globals()[_name] = checked(globals()[_name])


def __getattr__(name: str) -> Any:
    absent(__name__, name, __all__, {})
