"""Weights that a module makes of smaller ones when it is first used: where they are, and that the entry makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.errors import MlaotError
from mlaot.generate import compile_model
from mlaot.interpret import Interpreter
from mlaot.ir.module import PREPARE
from mlaot.lower.program import Program
from mlaot.nn import functional as F
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library, State

BATCH = mlaot.dim("batch")
FILTERS = np.random.default_rng(0).standard_normal((2, 32, 32, 3, 3), np.float32)
PLACES = {"F2": 16, "F4": 36}
DTYPES = {"f32": np.float32, "f64": np.float64}


def program(dtype: str = "f32", **options: Any) -> Program:
    """Two convolutions of maps of 16x16."""
    net = {name: w.astype(DTYPES[dtype]) for name, w in zip("vw", FILTERS, strict=True)}

    def model(x: Any) -> Any:
        return F.conv2d(F.relu(F.conv2d(x, net["v"], padding=1)), net["w"], padding=1)

    model.__annotations__ = {"x": getattr(mlaot, dtype)[BATCH, 32, 16, 16]}
    return compile_model(mlaot.model(parameters=net)(model), "m.nn", Options(isas=tuple(MACHINES), **options))


def test_it_takes_no_room_in_the_wheel() -> None:
    for winograd, places in PLACES.items():
        module = program(winograd=winograd).module
        assert module.is_prepared and len(module.constants) == FILTERS.nbytes
        size = 4 * FILTERS.size // 9 * places
        assert size <= module.state_bytes <= size + 128 * places


def test_where_it_is_stored() -> None:
    """For C, which has no memory for it; in 16 bits, which take less room than the weights."""
    for options in ({"c_library": True}, {"weights_dtype": "float16"}):
        module = program(**options).module
        assert not module.is_prepared and module.state_bytes == 0
        assert len(module.constants) == FILTERS.size // 9 * 16 * (2 if "weights_dtype" in options else 4)
    assert len(program(winograd="off").module.constants) == FILTERS.nbytes


def test_a_module_with_a_state_stores_it() -> None:
    """Its models have memory of their own, which they begin with."""
    count = mlaot.Buffer(np.zeros((), np.float32), "count")
    net = dict(zip("vw", FILTERS, strict=True))

    @mlaot.model(parameters=net)
    def model(x: mlaot.f32[BATCH, 32, 16, 16]) -> Any:
        count.assign(count + 1)
        return F.conv2d(F.relu(F.conv2d(x, net["v"], padding=1)), net["w"], padding=1) * count

    module = compile_model(model, "m.nn", Options(isas=("base",))).module
    assert module.slots and not module.is_prepared and len(module.constants) > FILTERS.nbytes


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("winograd", PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_entry_makes_what_the_build_computed(dtype: str, winograd: str, isa: str, tmp_path: Path) -> None:
    """In float64, rounded once: the same bits for F2, whose products are exact."""
    made = program(dtype, winograd=winograd)
    state = State(made)
    expected = state.state.copy()
    state.state[:] = 0
    Library({"m": made}, isa, tmp_path).call("m", PREPARE, {}, state=state)
    found, exact = (array.view(DTYPES[dtype]) for array in (state.state, expected))
    if winograd == "F2":
        assert found.tobytes() == exact.tobytes()
    else:
        assert np.abs(found - exact).max() <= {"f32": 2**-24, "f64": 2**-52}[dtype] * np.abs(exact).max()
    assert np.count_nonzero(exact) == FILTERS.size // 9 * PLACES[winograd]


def test_without_a_compiler() -> None:
    made = program()
    state = State(made)
    expected = state.state.tobytes()
    state.state[:] = 0
    interpreter = Interpreter(made, MACHINES["base"])
    interpreter.run(PREPARE, [state.state, state.constants, np.empty(0, np.uint8)], {})
    assert state.state.tobytes() == expected


def test_no_other_entry_has_its_name() -> None:
    @mlaot.model
    def model(x: mlaot.f32[2]) -> Any:
        return x

    def prepare_weights(x: mlaot.f32[2]) -> Any:
        return x

    with pytest.raises(MlaotError, match="an entry called 'prepare_weights' already; choose another name"):
        model.entry(prepare_weights)
