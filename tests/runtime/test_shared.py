"""Modules that share a runtime: what they give is what modules with a runtime of their own give."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlaot.binding.interface import render_interface
from mlaot.binding.shared import fits_limits, is_runtime, limits, render_runtime
from mlaot.ir.module import Generation
from mlaot.ir.ports import Port
from mlaot.lower.program import ExtensionModule, Slot

from .. import instrumented
from . import kinds, models
from .test_host import python

NAME = "shared_by_tests"
NAMES = ("affine", "fit", "shapes", "momentum", "mapped", "prepared", "counted")
SHARED = {name: (models.MODELS | kinds.MODELS)[name] for name in NAMES}


def sharing(module: ExtensionModule, runtime: str = NAME) -> ExtensionModule:
    """The module, its runtime in another one."""
    return replace(module, options=replace(module.options, runtime=runtime))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modules and their runtime beside each other."""
    folder = tmp_path_factory.mktemp("shared")
    for name, text in render_runtime(NAME).items():
        (folder / name).write_text(str(text))
    options = [*models.WARNINGS.split(), *instrumented.options(), *instrumented.FLAGS]
    command = [os.environ.get("CC", "cc"), *models.FLAGS.split(), *options, "-shared"]
    subprocess.run([*command, str(folder / f"{NAME}.c"), "-o", str(folder / f"{NAME}.abi3.so")], check=True)
    for module, kernels in SHARED.values():
        models.build(sharing(module), kernels, folder)
    return folder


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A namespace of the modules, imported afresh."""
    monkeypatch.syspath_prepend(str(folder))
    loaded = ModuleType("loaded")
    for name, (module, _) in SHARED.items():
        setattr(loaded, name, models.load(models.library(module, folder)))
    return loaded


def test_the_same_as_with_a_runtime_of_its_own(load: ModuleType, libraries: dict[str, Path]) -> None:
    """Selftests, results, gradients, a state that goes from one to the other, and refusals."""
    x, label = np.arange(12.0).reshape(4, 3) / 12, np.array([0, 1, 1, 0], np.int32)
    mine, other = load.fit.Model(), models.load(libraries["fit"]).Model()
    for _ in range(3):
        assert mine.train_step(x, label, lr=0.1) == other.train_step(x, label, lr=0.1)
    assert mine.fit(x, label, batch=2, epochs=3) == other.fit(x, label, batch=2, epochs=3)
    mine.set_input(x, label)
    other.set_input(x, label)
    assert mine.forward().tolist() == other.forward().tolist()
    mine.backward()
    other.backward()
    assert bytes(mine.flat_gradients) == bytes(other.flat_gradients)
    copy = load.fit.Model()
    copy.__setstate__(mine.__reduce__()[2])
    assert bytes(copy.flat_parameters) == bytes(other.flat_parameters)
    for module, name in ((load.affine, "affine"), (load.shapes, "shapes"), (load.momentum, "momentum")):
        own = models.load(libraries[name])
        assert {**module.info()} == {**own.info()}
        assert dir(module) == dir(own)
        for function in filter(str.isidentifier, dir(own)):
            assert getattr(getattr(module, function), "__doc__", "") == getattr(getattr(own, function), "__doc__", "")
        with pytest.raises(TypeError) as mine_says:
            module.Model().__setstate__(1)
        with pytest.raises(TypeError) as own_says:
            own.Model().__setstate__(1)
        assert str(mine_says.value) == str(own_says.value)
    assert load.counted.forward([1, -2, 3])[0].tolist() == [[1, 3], [1, 3]]
    assert load.prepared.forward(7).item() == load.prepared.Model().forward(7).item() == 14
    assert list(load.mapped.selftest()) == list(models.load(libraries["mapped"]).selftest())


def test_a_model_has_its_own_dims(load: ModuleType) -> None:
    """Expressions of dims are told from dims, though the tables have room for more of these."""
    assert load.shapes.odd([1, 2, 3]) is not None
    with pytest.raises(ValueError, match=r"odd: x: expected an extent of 2 \* n \+ 1, got 4"):
        load.shapes.odd([1, 2, 3, 4])


def test_only_the_runtime_grows(folder: Path, libraries: dict[str, Path]) -> None:
    """A module has its kernels, its table and little else."""
    assert is_runtime((folder / f"{NAME}.abi3.so").read_bytes())
    for name, (module, _) in SHARED.items():
        library = models.library(module, folder)
        assert not is_runtime(library.read_bytes())
        if name not in ("mapped", "prepared"):  # weights
            assert library.stat().st_size < 0.6 * libraries[name].stat().st_size, name


def test_a_runtime_that_is_not_there_or_of_another_build(folder: Path, tmp_path: Path) -> None:
    """An ImportError that says what to do; the same in each attempt."""
    (tmp_path / "fit.abi3.so").symlink_to(folder / "fit.abi3.so")
    code = """
import sys
for _ in range(2):
    try:
        import fit
    except ImportError as error:
        print(error)
"""
    expected = "fit: cannot import its runtime shared_by_tests: {}; install the package again"
    library = tmp_path / "fit.abi3.so"
    assert python(code, library).splitlines() == [expected.format("No module named 'shared_by_tests'")] * 2
    (tmp_path / f"{NAME}.py").write_text("functions = None\n")
    assert f"cannot import its runtime {NAME}: " in python(code, library)
    (tmp_path / f"{NAME}.py").unlink()
    source = (folder / f"{NAME}.c").read_text()
    digest = source.partition('#define RUNTIME_DIGEST "')[2][:16]
    (tmp_path / f"{NAME}.c").write_text(source.replace(digest, digest[::-1]))
    shutil.copy(folder / "mlaot_abi3.h", tmp_path)
    command = [os.environ.get("CC", "cc"), *models.FLAGS.split(), "-shared", str(tmp_path / f"{NAME}.c")]
    subprocess.run([*command, "-o", str(tmp_path / f"{NAME}.abi3.so")], check=True)
    other = f"fit: its runtime {NAME} is of another build; install the package again"
    assert python(code, library).splitlines() == [other] * 2


def test_interpreters_and_threads(folder: Path) -> None:
    """Each interpreter has modules of its own; two models of two modules use threads at once."""
    code = """
import threading
import affine, fit
models = [fit.Model() for _ in range(4)]
def train(model):
    model.set_threads(2)
    for _ in range(50):
        model.train_step([[1, 2, 3]] * 500, [1] * 500, lr=0.01)
threads = [threading.Thread(target=train, args=(model,)) for model in models]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert len({bytes(model.flat_parameters) for model in models}) == 1
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import sys
for _ in range(2):
    interpreter = interpreters.create()
    code = f"import sys; sys.path[:] = {sys.path!r}; import fit; fit.selftest(); fit.Model()"
    interpreters.run_string(interpreter, code)
    interpreters.destroy(interpreter)
print(sorted(affine.info()["entries"]))
"""
    assert python(code, folder / "fit.abi3.so").startswith("[")


def test_the_library_for_c_shares_nothing() -> None:
    affine, _ = models.MODELS["affine"]
    module = replace(affine, options=replace(affine.options, c_library=True))
    shared, own = map(render_interface, (sharing(module), module))
    assert "#define IS_SHARED 1" in str(shared["affine.c"])
    assert shared["affine_c.c"] == own["affine_c.c"]


def test_a_module_beyond_the_limits_has_its_own() -> None:
    """Nothing is too large to be built, and texts are in no shared runtime."""
    module, _ = models.MODELS["affine"]
    entry = module.entries[0]
    inputs = tuple(Port(f"x{i}", "f32", (2,)) for i in range(limits()["MAX_INPUTS"] + 1))
    many = replace(module, golden=(), entries=(replace(entry, inputs=inputs),))
    slots = tuple(
        Slot(name, dtype, shape, strides, offset, kind="buffer")
        for name, dtype, shape, strides, offset in (
            *(("place", "i64", (), (), 0), ("length", "i64", (), (), 8)),
            ("text", "i32", (9,), (1,), 64),
        )
    )
    texts = replace(
        module, golden=(), slots=slots, state_bytes=128, generation=Generation(entry.name, 9, 5, False, (), b"")
    )
    for candidate, shares in ((module, True), (many, False), (texts, False)):
        files = render_interface(sharing(candidate))
        text = str(files[f"{candidate.stem}.c"])
        assert ("#define IS_SHARED 1" in text) == shares
        assert ("RUNTIME_NAME" in text) == shares
    assert fits_limits(limits())
    assert not fits_limits({**limits(), "MAX_RANK": limits()["MAX_RANK"] + 1})
