"""Entries in C: where each array lies, and a list of calls that are named for the parts of the model."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.generate import compile_model
from mlaot.nn import functional as F
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

BATCH = mlaot.dim("batch")


class Net(nn.Module):
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.layers = [nn.Linear(24, 24, rng=rng) for _ in range(3)]
        self.head = nn.Linear(24, 5, rng=rng)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return F.softmax(self.head(x), -1)


def entry(model: Any, name: str = "forward", machine: str = "v3") -> str:
    """The C of an entry."""
    text = kernels_file(compile_model(model, "m.nn", Options(isas=(machine,))), "m_nn", MACHINES[machine])
    found = re.search(rf"^void m_nn_{name}_{machine}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def declared() -> Any:
    net = Net()

    def forward(x: Any) -> Any:
        return net(x)

    forward.__annotations__ = {"x": mlaot.f32[BATCH, 24]}
    return mlaot.model(parameters=net)(forward)


def test_calls_are_named_for_layers() -> None:
    text = entry(declared())
    calls = re.findall(r"^    (\w+_v3)\(.*?\);(?:  // (.*))?$", text, re.MULTILINE)
    assert calls == [
        ("layers_v3", "layers.0"),  # whose input has no padding
        ("layers2_v3", "layers.1"),
        ("layers2_v3", "layers.2"),
        ("head_v3", ""),
        ("softmax_v3", ""),
    ]


def test_arrays_are_declared_once_with_their_shapes() -> None:
    text = entry(declared())
    declared_ = re.findall(r"^    (?:const )?float \*const (\w+) = .*;  // (.*)$", text, re.MULTILINE)
    names = [name for name, _ in declared_]
    assert len(set(names)) == len(names)
    known = dict(declared_)
    assert known["x"] == "[batch, 24]" and known["out"] == "[batch, 5]"
    assert known["layers_1_weight"] == "[24, 24]"
    assert known["layers_0"] == "[batch, 24]"


@pytest.mark.parametrize("name", ["m_nn_forward", "evil\n#error boom\\", '/enc.0/"*/ ??/', "é漢\\", "0", "", "int"])
def test_a_part_may_be_called_anything(name: str) -> None:
    """Its function has a name of its own, and the comment at the call is one line."""
    from mlaot.frontend.trace.context import part

    def forward(x: Any) -> Any:
        with part(name):
            y = np.exp(x)
        with part(f"{name}.1"):
            return np.cumsum(y, axis=1)

    forward.__annotations__ = {"x": mlaot.f32[BATCH, 4]}
    text = entry(mlaot.model(forward))
    calls = [line for line in text.splitlines()[2:] if "_v3(" in line]
    assert calls and all(re.fullmatch(r"    [A-Za-z_]\w*_v3\([^\\\n]*\);(  // [^\\?*]*)?", call) for call in calls)
    assert not any(call.strip().startswith("m_nn_forward_v3(") for call in calls)
