"""Pickles and copies: of a Model what save() writes, of an Array its numbers."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from . import models
from .test_host import other_pythons, python

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"protocol {n}": lambda thing, n=n: pickle.loads(pickle.dumps(thing, n)) for n in PROTOCOLS},
}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, libraries: dict[str, Path]) -> None:
    """Pickles find the modules by their names, as they do in a wheel."""
    for name in ("fit", "cache", "momentum", "dtypes"):
        monkeypatch.setitem(sys.modules, name, models.load(libraries[name]))


def saved(model: Any, path: Path) -> bytes:
    """The file of a model."""
    model.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_state_of_a_model(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    """Parameters, buffers and the optimizer's state, in memory of the copy's own; training goes on bit by bit."""
    momentum = sys.modules["momentum"]
    model = momentum.Model()
    model.train_step([1, 2])
    other = copied(model)
    assert type(other) is momentum.Model and other is not model
    assert saved(other, tmp_path / "other") == saved(model, tmp_path / "one")
    model.train_step([3, 4])
    assert (model.seen(), other.seen(), other.buffers["count"].item()) == (2, 1, 1)
    assert saved(other, tmp_path / "other") != saved(model, tmp_path / "one")
    other.train_step([3, 4])
    assert saved(other, tmp_path / "other") == saved(model, tmp_path / "one")


def test_the_state_is_a_file(tmp_path: Path) -> None:
    """A pickle holds the class by its name, and the bytes that save() writes."""
    model = sys.modules["momentum"].Model()
    model.train_step([1, 2])
    kind, arguments, state = model.__reduce__()
    assert (kind, arguments, state) == (type(model), (), saved(model, tmp_path / "file"))
    held = copy.deepcopy({"a": model, "b": model})
    assert held["a"] is held["b"] is not model


def test_gradients_start_anew() -> None:
    """What backward() added up, and what set_input() kept, stays behind."""
    model = sys.modules["fit"].Model()
    model.set_input([1, 2, 3], 1), model.forward(), model.backward()
    other = copy.copy(model)
    assert np.any(np.asarray(model.gradients["w"])) and not np.any(np.asarray(other.gradients["w"]))
    with pytest.raises(ValueError, match=r"^backward: call set_input and forward first$"):
        other.backward()


def test_other_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of another version of the model is refused as its file is; the instance stays as it was."""
    cut = pickle.dumps(sys.modules["cache"].Model().__reduce__()[2][:5])
    state = pickle.dumps(sys.modules["fit"].Model())
    monkeypatch.setitem(sys.modules, "fit", sys.modules["momentum"])
    with pytest.raises(ValueError, match=r"^load: w: expected F32\[2\], got"):
        pickle.loads(state)
    model = sys.modules["momentum"].Model()
    with pytest.raises(ValueError, match=r"^load: not a safetensors file, or cut short: 5 bytes$"):
        model.__setstate__(pickle.loads(cut))
    with pytest.raises(TypeError, match="expected bytes"):
        model.__setstate__({})
    assert model.parameters["w"].tolist() == [1, 2]


def test_frozen_model(affine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without state a pickle is the class, and nothing more."""
    model = affine.Model()
    assert model.__reduce__() == (affine.Model, ())
    assert copy.deepcopy(model).forward([1, 2]).tolist() == model.forward([1, 2]).tolist()
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.affine", affine)
    data = pickle.dumps(model)
    assert type(pickle.loads(data)) is affine.Model and b"shop.affine" in data and len(data) < 60


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_arrays(copied: Callable[[Any], Any]) -> None:
    """An Array of its own with the same numbers, of any dtype and shape; views come out dense."""
    dtypes, fit, cache = (sys.modules[name] for name in ("dtypes", "fit", "cache"))
    results = [dtypes.same_float16([1, 2]), dtypes.same_uint64([2**64 - 1]), dtypes.same_bool([True, False])]
    arrays = [*results, dtypes.same_int8([]), fit.parameters["w"], fit.parameters["scale"], cache.buffers["table"]]
    for array in [*arrays, fit.parameters["w"][1], fit.forward([[1, 2, 3]])]:
        other = copied(array)
        assert type(other) is type(array)
        assert (other.dtype, other.shape, other.tolist()) == (array.dtype, array.shape, array.tolist())
    other = copied(fit.parameters["w"])
    other[0, 0] = 7
    assert fit.parameters["w"][0, 0] == 0.1
    assert memoryview(other).contiguous


@pytest.mark.parametrize(
    "made_up",
    [("float32", (2,), b"1234"), ("float31", (1,), b"1234"), ("int8", (-1,), b""), ("int8", (2**62, 4), b"")],
)
def test_made_up_arrays(affine: ModuleType, made_up: tuple[Any, ...]) -> None:
    """Bytes that do not fit are refused."""
    with pytest.raises(ValueError, match=r"^Array: expected the numbers of"):
        affine.Array._restore(*made_up)
    for wrong in ((), (1, 2, 3), ("int8", "a", b""), ("int8", (), "a")):
        with pytest.raises(TypeError):
            affine.Array._restore(*wrong)
    with pytest.raises(IndexError, match="too many extents"):
        affine.Array._restore("int8", (1,) * 9, b"1")


SPAWN = """
import multiprocessing, sys
import fit
context = multiprocessing.get_context("spawn")
if __name__ == "__main__":
    model = fit.Model()
    model.train_step([1, 2, 3], 1)
    inputs = [[1, 2, 3], [4, 5, 6]]
    with context.Pool(1) as pool:
        assert [a.tolist() for a in pool.map(model.forward, inputs)] == [model.forward(x).tolist() for x in inputs]
        assert pool.apply(fit.forward, ([1, 2, 3],)).tolist() != model.forward([1, 2, 3]).tolist()
    print("done")
"""


def test_spawned_processes(libraries: dict[str, Path], tmp_path: Path) -> None:
    """A pool of new processes gets a model's method, and gives Arrays back."""
    script = tmp_path / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(libraries['fit'].parent)!r})\n{SPAWN}")
    assert python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", libraries["fit"]) == "done"


EVERYWHERE = """
import copy, pickle, fit
model = fit.Model()
model.train_step([1, 2, 3], 1)
for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
    other = pickle.loads(pickle.dumps(model, protocol))
    assert other.forward([1, 2, 3]).tolist() == model.forward([1, 2, 3]).tolist()
    assert pickle.loads(pickle.dumps(model.parameters["w"], protocol)).tolist() == model.parameters["w"].tolist()
assert copy.deepcopy(model).__reduce__() == model.__reduce__()
"""
INTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
for k in range(3):
    interpreter = interpreters.create()
    assert interpreters.run_string(interpreter, SETUP + CODE) is None
    interpreters.destroy(interpreter)
"""


def test_reference_counts() -> None:
    """A pickle more or less keeps nothing alive."""
    momentum = sys.modules["momentum"]
    model = momentum.Model()

    def counts() -> list[int]:
        return [sys.getrefcount(thing) for thing in (momentum.Model, momentum.Array, model, None)]

    before = counts()
    for _ in range(200):
        model.__setstate__(model.__reduce__()[2])
        model.parameters["w"].__reduce__()
        with pytest.raises(ValueError, match="load"):
            model.__setstate__(b"")
    assert all(abs(a - b) < 20 for a, b in zip(counts(), before, strict=True))


@pytest.mark.parametrize("executable", other_pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_python_versions_and_interpreters(libraries: dict[str, Path], executable: str) -> None:
    """Every CPython, and interpreters within one."""
    setup = f"import sys; sys.path.insert(0, {str(libraries['fit'].parent)!r})\n"
    inner = INTERPRETER.replace("SETUP", repr(setup)).replace("CODE", repr(EVERYWHERE))
    python(EVERYWHERE + inner, libraries["fit"], executable=executable)
