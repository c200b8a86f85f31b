"""Layers, losses and initial values, with PyTorch's names and defaults.

``functional`` has the functions, which take NumPy arrays and traced arrays alike. The classes here hold the parameters.
Each file offers the layers that its ``__all__`` names.

Shapes are written [n, c, h, w], with a letter or name for each axis: n examples, c channels, then spatial axes. ``..``
stands for any number of axes, and an axis in parentheses, ``(n,)``, may be missing. ``*spatial`` stands for one, two or
three axes: l, or h and w, or d, h and w.

An argument that does not fit raises ``MlaotError``, whose message names the function, the argument, and what it
expected and got.
"""
# ruff: noqa: F403

from typing import Any

from mlaot.nn import (
    attention,
    convolution,
    functional,
    init,
    module,
    normalization,
    padding,
    parametric,
    recurrent,
    stateless,
    transformer,
    trees,
)
from mlaot.nn.absent import absent
from mlaot.nn.attention import *
from mlaot.nn.convolution import *
from mlaot.nn.module import *
from mlaot.nn.normalization import *
from mlaot.nn.padding import *
from mlaot.nn.parametric import *
from mlaot.nn.recurrent import *
from mlaot.nn.stateless import *
from mlaot.nn.transformer import *
from mlaot.nn.trees import *

__all__ = ["functional", "init"]
__all__ += attention.__all__
__all__ += convolution.__all__
__all__ += module.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parametric.__all__
__all__ += recurrent.__all__
__all__ += stateless.__all__
__all__ += transformer.__all__
__all__ += trees.__all__


def __getattr__(name: str) -> Any:
    absent(__name__, name, __all__, {"mlaot.nn.functional": functional.__all__, "mlaot.nn.init": init.__all__})
