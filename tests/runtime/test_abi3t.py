"""The same models for free-threaded Python: the stable ABI abi3t of CPython 3.15, where no GIL keeps threads apart."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mlaot.settings.options import Options

from .. import instrumented
from . import kinds, models
from .test_host import EVERYTHING, INTERPRETERS, LINUX, python, run_threads, symbols

NAMES = ("affine", "fit", "momentum", "prepared")
PYTHONS = [path for name in ("python3.15", "python3.15t") if (path := shutil.which(name))]
HOSTS = pytest.mark.parametrize("executable", PYTHONS, ids=lambda path: Path(path).name)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Some of the hand-made models, in one folder."""
    folder = tmp_path_factory.mktemp("abi3t")
    both = models.MODELS | kinds.MODELS
    made = []
    for name in NAMES:
        module, kernels = both[name]
        made.append(models.build(replace(module, options=Options(isas=("base",))), kernels, folder / name, "abi3t"))
    return {name: path.rename(folder / path.name) for name, path in zip(NAMES, made, strict=True)}


def test_objects_are_opaque() -> None:
    """No cast makes an Array or a Model of an object: what is ours begins elsewhere in each interpreter."""
    templates = Path(__file__).parents[2] / "templates" / "runtime"
    casts = re.compile(r"\((?:const )?(?:Array|Model) \*\)(?!PY_BODY)")
    assert [line for path in templates.iterdir() for line in path.read_text().splitlines() if casts.search(line)] == []


@LINUX
@instrumented.unless
def test_symbols(libraries: dict[str, Path]) -> None:
    """PyModExport is the only symbol that others see, and of abi3 nothing is left that knows how objects lie."""
    for name, library in libraries.items():
        exported = symbols(library, "--defined-only")
        assert [line.split()[-1] for line in exported.splitlines()] == [f"PyModExport_{name}"]
        needed = symbols(library, "--undefined-only").split()
        assert "PyObject_GetTypeData" in needed
        assert not {"PyModuleDef_Init", "_PyObject_GC_NewVar", "Py_Version"} & set(needed)


@LINUX
@instrumented.unless
@pytest.mark.parametrize("name", NAMES)
def test_nothing_static_is_written(libraries: dict[str, Path], name: str) -> None:
    """The interface has no data that can change: interpreters and threads share none."""
    objects = libraries[name].parent / name / f"{name}.abi3t.o"
    listed = subprocess.run(["nm", objects], capture_output=True, text=True, check=True).stdout.splitlines()
    writable = [line for line in listed if line.split()[-2] in "bBdDC"]
    # Tables with addresses in them are constant, which nm calls `d` too: they lie in a section of their own.
    sections = subprocess.run(["objdump", "-t", objects], capture_output=True, text=True, check=True).stdout
    lying = {line.split()[-1]: line.split()[-3] for line in sections.splitlines() if len(line.split()) >= 5}
    assert [line for line in writable if not lying[line.split()[-1]].startswith(".data.rel.ro")] == []


@HOSTS
def test_everything(libraries: dict[str, Path], executable: str, tmp_path: Path) -> None:
    """One binary for CPython with a GIL and without; importing it does not turn a GIL on."""
    code = f"import os; os.chdir({str(tmp_path)!r})\ngil = getattr(sys, '_is_gil_enabled', bool)\nbefore = gil()\n"
    code += EVERYTHING + "assert gil() == before\n"
    assert python(code, libraries["fit"], executable=executable) == "base"


@HOSTS
def test_subinterpreters(libraries: dict[str, Path], executable: str) -> None:
    code = INTERPRETERS.replace("FOLDER", repr(str(libraries["fit"].parent)))
    assert python(code, libraries["fit"], executable=executable) == "(2,)"


THREADS = (
    f"""
import array, os, threading, affine, fit, momentum
from collections.abc import Callable

{inspect.getsource(run_threads)}
"""
    + """
def array_of(kind, rows, width, value):
    return memoryview(array.array(kind, [value] * rows * width)).cast("b").cast(kind, [rows, width])

many, label = array_of("d", 20000, 3, 1), array.array("i", [0] * 20000)

def frozen(i):
    x = array_of("f", 300, 2, i)
    expected = bytes(affine.forward(x))
    for k in range(300):
        assert bytes(affine.forward(x)) == expected
        if k % 50 == 0:
            affine.set_threads(k // 50 % 3), affine.slow(x), affine.forward(x).__dlpack__()

def verbs(i):
    for k in range(60):
        fit.set_input([[1, 2, 3]] * (9 + i), [0] * (9 + i))
        fit.forward(), fit.loss(), fit.data(0), fit.zero_grad(), repr(fit.Model().flat_parameters)
        if k % 20 == 0:
            fit.train_step(many, label, lr=0.0), fit.fit([[1, 2, 3]] * 9, [0] * 9, lr=0.0), fit.set_threads(k // 20)

single, shared = fit.Model(), fit.Model()
expected = [single.train_step([1, 2, 3], 1, lr=0.01) for _ in range(6 * 300)]
seen = []

def steps(i):
    seen.extend([shared.train_step([1, 2, 3], 1, lr=0.01) for _ in range(300)])

run_threads(6, frozen), run_threads(6, verbs), run_threads(6, steps)
assert fit.parameters["w"].tolist() == fit.Model().parameters["w"].tolist()
assert sorted(seen) == sorted(expected) and bytes(shared.flat_parameters) == bytes(single.flat_parameters)

done = False
def busy(i):
    while not done:
        fit.train_step([1, 2, 3], 1, lr=0.0), fit.train_step(many, label, lr=0.0), affine.forward([[1, 2]] * 300)

import warnings
warnings.simplefilter("ignore")  # of forks beside threads
fit.set_threads(2)
threads = [threading.Thread(target=busy, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
try:
    for _ in range(20):
        child = os.fork()
        if child == 0:
            import signal
            signal.alarm(60)
            fit.train_step([1, 2, 3], 1, lr=0.0), fit.train_step(many, label, lr=0.0), affine.forward([[1, 2]] * 300)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
finally:
    done = True
print("done")
"""
)


@HOSTS
def test_threads_and_forks(libraries: dict[str, Path], executable: str) -> None:
    """No answer is wrong, no step is lost, whatever threads do at once; children of busy processes work."""
    assert python(THREADS, libraries["fit"], executable=executable) == "done"
