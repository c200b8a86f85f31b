"""The compiled module in its host: Python versions, threads, forks, interpreters, memory, CPUs, the stub."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mlaot.render import template_text

from .. import instrumented

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and ELF files")


def other_pythons() -> list[str]:
    """Interpreters of the versions that one wheel serves."""
    found = [sys.executable]
    for minor in {11, 12, 13, 14, 15} - {sys.version_info.minor}:
        path = shutil.which(f"python3.{minor}")
        real = [str(p) for p in (Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python")]
        found += real[:1] or ([path] if path else [])
    return found


def python(code: str, library: Path, *, executable: str = sys.executable, **environment: str) -> str:
    """Run code in a fresh interpreter that can import the module, and has no NumPy in it."""
    setup = f"import sys; sys.path.insert(0, {str(library.parent)!r})\n"
    result = subprocess.run(
        [executable, "-I", "-c", setup + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "Error" not in result.stderr, result.stderr
    return result.stdout.strip()


EVERYTHING = """
import array, fit
x, label = array.array("d", [1, 2, 3]), array.array("i", [1])
m = fit.Model()
losses = [m.train_step(x, 1, lr=0.01) for _ in range(50)]
assert losses[-1] < losses[0]
m.set_input(memoryview(x).cast("b").cast("d", [1, 3]), label)
m.forward(), m.loss(), m.backward(), m.update(lr=0.01), m.zero_grad()
m.save("w.tmp"), fit.load("w.tmp")
assert m.forward(x).tolist() == fit.forward([1, 2, 3]).tolist()
assert list(m.parameters) == ["w", "scale"] and memoryview(m.parameters["w"]).tolist()
assert "numpy" not in sys.modules
print(fit.info()["isa"])
"""


@pytest.mark.parametrize("executable", other_pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_python_versions(libraries: dict[str, Path], executable: str, tmp_path: Path) -> None:
    """One binary for every CPython from 3.11 on, without NumPy."""
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + EVERYTHING
    assert python(code, libraries["fit"], executable=executable) in ("base", "v3", "v4")


def symbols(library: Path, which: str) -> str:
    """What nm says."""
    return subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout


@LINUX
@instrumented.unless
def test_stable_abi(libraries: dict[str, Path]) -> None:
    """abi3audit agrees, and PyInit is the only symbol that others see."""
    for name, library in libraries.items():
        exported = symbols(library, "--defined-only")
        assert [line.split()[-1] for line in exported.splitlines()] == [f"PyInit_{name}"]
        needed = symbols(library, "--undefined-only")
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", needed)}
        assert max(versions) <= (2, 17), needed
    pytest.importorskip("abi3audit")
    audit = [sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.11"]
    result = subprocess.run([*audit, *libraries.values()], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def headers() -> list[Path]:
    """The include folders of real Pythons."""
    folders = [Path(sysconfig.get_path("include"))]
    folders += [folder for p in other_pythons()[1:] for folder in Path(p).parent.parent.glob("include/python3.*")]
    return [folder for folder in dict.fromkeys(folders) if (folder / "Python.h").exists()]


@pytest.mark.parametrize("abi", ["abi3", "abi3t"])
@pytest.mark.parametrize("folder", headers(), ids=lambda folder: folder.name)
def test_header_agrees(folder: Path, abi: str, tmp_path: Path) -> None:
    """Numbers, layouts and prototypes of mlaot_abi3.h are those of the real headers."""
    is_new = abi == "abi3t"
    if is_new and not (folder / "slots.h").exists():
        pytest.skip("abi3t came with 3.15")
    (tmp_path / "mlaot_abi3.h").write_text(template_text("mlaot_abi3.h"))
    own = ["-DMLAOT_ABI3T"] if is_new else []
    expand = ["cc", "-E", "-P", *own, "mlaot_abi3.h"]
    text = subprocess.run(expand, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    values = re.findall(r"\b(\w+) = (0x[0-9a-f]+|\d+ << \d+|\d+)", text)
    # Slots of modules have new numbers there; those of types keep the old ones, which are taken as well.
    newer = ("Py_bf_getbuffer", "Py_mp_ass_subscript", "Py_mp_length") if is_new else ("Py_mod_multiple_interpreters",)
    lines = [f'_Static_assert({name} == ({value}), "{name}");' for name, value in values if name not in newer]
    assert len(lines) > 30
    sizes = ["Py_buffer", "PyType_Spec", "PyType_Slot", "PyMethodDef", "PyMemberDef", "PyGetSetDef"]
    sizes += ["PySlot", "PyABIInfo"] if is_new else ["PyModuleDef", "PyModuleDef_Slot"]
    layout = "\n".join(f'printf("%zu ", sizeof({name}));' for name in sizes)
    layout += "".join(f'printf("%zu ", offsetof(Py_buffer, {name}));' for name in ("ndim", "format", "internal"))
    main = f"#include <stdio.h>\n#include <stddef.h>\nint main(void) {{ {layout} return 0; }}\n"
    include = f"#define {'Py_TARGET_ABI3T 0x030f0000' if is_new else 'Py_LIMITED_API 0x030b0000'}\n#include <Python.h>"
    real = [include, "#include <structmember.h>", *lines, main]
    (tmp_path / "real.c").write_text("\n".join(real))
    (tmp_path / "ours.c").write_text('#include "mlaot_abi3.h"\n' + main)
    outputs = []
    for name in ("real", "ours"):
        command = ["cc", "-std=gnu11", *own, f"-I{folder}", str(tmp_path / f"{name}.c"), "-o", str(tmp_path / name)]
        subprocess.run(command, check=True)
        outputs.append(subprocess.run([str(tmp_path / name)], check=True, capture_output=True).stdout)
    assert outputs[0] == outputs[1]
    calls = sorted(set(re.findall(r"\b(_?Py\w+)\(", text.partition("PyObject _Py_NoneStruct")[2])))
    assert len(calls) > 60
    uses = "\n".join(f"(void *){name}," for name in calls)
    (tmp_path / "names.c").write_text(f"{include}\nvoid *const names[] = {{{uses}}};\n")
    subprocess.run(["cc", "-std=gnu11", f"-I{folder}", "-fsyntax-only", str(tmp_path / "names.c")], check=True)


@pytest.mark.parametrize("isa", ["base", "v3", "v4"])
def test_forced_isa(libraries: dict[str, Path], isa: str) -> None:
    """MLAOT_ISA picks a path, or says what this CPU has."""
    code = """
try:
    import affine
    print(affine.info()["isa"], affine.forward([1, 2]).tolist())
except ImportError as error:
    print(error)
"""
    shown = python(code, libraries["affine"], MLAOT_ISA=isa)
    assert shown in (f"{isa} [9.5, 12.25, 15.125]",) or re.fullmatch(
        rf"shop.affine: expected MLAOT_ISA to be one of base.* on this CPU, got '{isa}'", shown
    )
    assert isa != "base" or shown.startswith("base [")


def test_unknown_isa(libraries: dict[str, Path]) -> None:
    """An unknown name is an error, an empty one is not."""
    code = "\ntry:\n    import affine\nexcept ImportError as error:\n    print(error)"
    assert "expected MLAOT_ISA to be one of base" in python(code, libraries["affine"], MLAOT_ISA="sse9")
    assert python(code, libraries["affine"], MLAOT_ISA="") == ""
    assert "got 'v3'" in python(code.replace("affine", "large"), libraries["large"], MLAOT_ISA="v3")


GOOD_AND_BAD = """
import array, os, sys
import {name} as nn
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4
def good():
    {good}
def bad():
    try:
        {bad}
    except (TypeError, ValueError, IndexError, BufferError):
        return
    raise SystemExit("accepted")
x = array.array("{kind}", [1, 2, 3][:{width}])
o = array.array("f", [0, 0, 0])
for warm in range(2):
    for _ in range(2000):
        good(), bad()
    before = resident(), sys.getrefcount(x), sys.getrefcount(None), sys.getrefcount(nn.Array)
for _ in range(100000):
    good()
for _ in range(100000):
    bad()
after = resident(), sys.getrefcount(x), sys.getrefcount(None), sys.getrefcount(nn.Array)
assert after[0] - before[0] < 1024, (before, after)
assert all(abs(a - b) < 10 for a, b in zip(after[1:], before[1:])), (before, after)
"""

CALLS = [
    ("affine", "nn.forward(x); nn.forward(x, out=o)", "nn.forward(o)"),
    ("affine", "nn.forward([[1, 2], [3, 4]])[0]", "nn.forward(x, out=x)"),
    ("affine", "nn.pick([1., 2.], 1, True)", "nn.pick([1., 2.], 9, True)"),
    ("affine", "nn.several([1, 2, 3]), nn.named([1, 2, 3])", "nn.named([1, 2, 3], out={})"),
    ("affine", "y = nn.forward([[1, 2]] * 3); y[1:, ::2][:] = y[0, :2]; repr(y)", "nn.forward([1, 2])[1:] = [1, 'x']"),
    ("affine", "nn.take([[1, 2]], [3]); nn.take(x[:2], x.__class__('i', [1])[0])", "nn.take(x, [1e9])"),
    ("affine", "nn.Array._restore('int8', (1,), b'1').__reduce__()", "nn.Array._restore('int8', (2,), b'1')"),
    ("affine", "nn.forward([[1, 2]] * 100)", "nn.forward([[1, 2]] * 100 + [[1]])"),
    ("fit", "nn.train_step(x, 1, lr=0.001)", "nn.train_step(x, 2)"),
    ("fit", "nn.set_input(x, 1); nn.forward(); nn.loss(); nn.backward()", "nn.set_input([x], 1)"),
    ("fit", "nn.Model().parameters['w'][0].tolist()", "nn.data(7)"),
    ("fit", "nn.forward(x).__dlpack__(); repr(nn.forward(x)); memoryview(nn.forward(x))", "nn.update(None)"),
    ("dtypes", "nn.same_float16([1, 2]); nn.one_uint64(2**64 - 1); nn.same_int8([1, 2])", "nn.same_uint16([1, -1])"),
    ("dtypes", "nn.rest_uint64([1, 2])", "nn.rest_uint64([1, 3])"),
    ("shapes", "nn.odd([1, 2, 3]); nn.three([1, 2]); nn.answer(); nn.grid([], [1])", "nn.both([1, 2, 3, 4], [1])"),
    ("shapes", "nn.windows([1, 2, 3])", "nn.windows([1])"),
    ("cache", "nn.push([1, 2]); nn.Model().buffers['table'].tolist(); nn.clear()", "memoryview(nn.buffers['table'])"),
    ("fit", "nn.fit([[1, 2, 3]] * 3, [0, 1, 0], batch=2, callback=max)", "nn.fit([[1, 2, 3]], [0], callback=[].index)"),
    ("fit", "nn.fit([[1, 2, 3]] * 90, [1] * 90, shuffle=False)", "nn.fit([[1, 2, 3]] * 90, [1] * 89 + [2])"),
    ("momentum", "nn.set_input([1, 2]); nn.forward(); nn.backward(); nn.update(); nn.seen()", "nn.train_step([[]])"),
]


@LINUX
@instrumented.unless
@pytest.mark.parametrize(("name", "good", "bad"), CALLS)
def test_no_leaks(libraries: dict[str, Path], name: str, good: str, bad: str) -> None:
    """1e5 good and 1e5 bad calls leave memory and reference counts as they were."""
    kind, width = ("f", 2) if name == "affine" else ("d", 3)
    python(GOOD_AND_BAD.format(name=name, good=good, bad=bad, kind=kind, width=width), libraries[name])


@LINUX
@instrumented.unless
def test_unload(libraries: dict[str, Path]) -> None:
    """A module that is imported and dropped gives its memory back."""
    code = """
import gc, importlib.util, importlib.machinery
def once():
    loader = importlib.machinery.ExtensionFileLoader("fit", PATH)
    spec = importlib.util.spec_from_file_location("fit", PATH, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.Model().train_step([1, 2, 3], 1)
    module.keep = module.parameters["w"]
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4
for _ in range(100):
    once()
before = resident()
for _ in range(1000):
    once()
assert resident() - before < 1024, resident() - before
assert not [o for o in gc.get_objects() if type(o).__name__ == "Model"]
"""
    python(code.replace("PATH", repr(str(libraries["fit"]))), libraries["fit"])


NO_MEMORY = """
import array, importlib.machinery, importlib.util
try:
    import _testcapi
except ImportError:
    raise SystemExit
def load(name):
    path = PATHS[name]
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path, loader=loader))
    loader.exec_module(module)
    return module
affine, fit, cache, momentum, shapes = map(load, ("affine", "fit", "cache", "momentum", "shapes"))
x, d = array.array("f", [1, 2]), array.array("d", [1, 2, 3])
def verbs():
    m = fit.Model()
    m.set_input([[1, 2, 3]] * 100, [1] * 100), m.forward(), m.backward(), m.update()
calls = [
    lambda: affine.forward(x), lambda: affine.forward([[1, 2]] * 300), lambda: affine.forward([[1, 2]] * 9)[1].tolist(),
    lambda: affine.pick([1.0], 1, True), lambda: affine.forward([1, "x"]), lambda: affine.forward(d), verbs,
    lambda: repr(fit.forward(d)), lambda: fit.train_step(d, 1), lambda: fit.forward(d).__dlpack__(copy=True), fit.info,
    lambda: load("fit"), lambda: load("affine"), lambda: load("cache"), lambda: load("mapped"),
    lambda: cache.push([1, 2]), lambda: affine.several([1, 2, 3]), lambda: affine.named([1, 2, 3]),
    lambda: shapes.three([1, 2]), lambda: shapes.both([1], [1]), lambda: shapes.answer(),
    lambda: momentum.save("state.tmp"), lambda: momentum.load("state.tmp"),
    lambda: momentum.Model().__setstate__(momentum.Model().__reduce__()[2]), affine.Model().__reduce__,
    lambda: affine.Array._restore(*affine.forward(x).__reduce__()[1]),
    lambda: affine.forward([[1, 2]] * 9)[1:, ::-1], lambda: momentum.parameters["w"].__setitem__(slice(1), [2]),
    lambda: fit.fit([[1, 2, 3]] * 300, [1] * 300, batch=100, callback=max),
]
failed = 0
for call in calls:
    for n in range(300):
        _testcapi.set_nomemory(n, n + 1)
        try:
            call()
        except MemoryError:
            failed, wrong = failed + 1, ""
        except (TypeError, ValueError, RuntimeError) as error:  # the last one is io's, when it gets no lock
            wrong = str(error)
        else:
            wrong = ""
        finally:
            _testcapi.remove_mem_hooks()
        assert not wrong.startswith("load:"), wrong  # nothing is wrong with the file
assert failed > 300, failed
assert os.listdir() == ["state.tmp"], os.listdir()
"""


def test_out_of_memory(libraries: dict[str, Path], tmp_path: Path) -> None:
    """Whichever allocation fails: MemoryError, never a crash."""
    paths = {name: str(path) for name, path in libraries.items()}
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + NO_MEMORY.replace("PATHS", repr(paths))
    python(code, libraries["fit"])


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0) .. work(count - 1) in threads; the first error is raised here."""
    errors: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_share_an_inference_model(affine: ModuleType) -> None:
    """24 threads, one Model, no wrong answer, also while the GIL is free."""

    def work(i: int) -> None:
        x = np.full((4 + i, 2), i, np.float32)
        expected = np.asarray(affine.forward(x)).copy()
        for _ in range(500):
            np.testing.assert_array_equal(np.asarray(affine.forward(x)), expected)
        for _ in range(5):
            np.testing.assert_array_equal(np.asarray(affine.slow(x)), x)

    run_threads(24, work)


def test_threads_share_a_training_model(fit: ModuleType) -> None:
    """24 threads on one Model: steps do not interleave, so the sum of updates is exact."""
    x = np.ones((20000, 3))
    label = np.zeros(20000, np.int32)

    def work(i: int) -> None:
        if i % 2:
            fit.set_input(x[:5000], label[:5000])
            assert fit.forward().shape in ((5000, 2), (6000, 2))
        else:
            fit.set_input(x[:6000], label[:6000])
            fit.loss()
        for _ in range(5):
            fit.train_step(x, label, lr=0.0)
            fit.loss(x, label)

    run_threads(24, work)
    assert fit.parameters["w"].tolist() == fit.Model().parameters["w"].tolist()


def test_threads_with_own_models(fit: ModuleType) -> None:
    """24 Models trained at once end where one trained alone ends."""
    x, label = np.arange(6.0).reshape(2, 3) / 10, np.array([0, 1], np.int32)

    def train(model: Any) -> list[float]:
        return [model.train_step(x, label, lr=0.1) for _ in range(300)]

    expected = train(fit.Model())

    def work(i: int) -> None:
        assert train(fit.Model()) == expected

    run_threads(24, work)


def test_gil_is_free_in_long_calls(affine: ModuleType) -> None:
    """Another thread goes on while a long call runs."""
    x = np.ones((2000, 2), np.float32)
    counted = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    affine.slow(x)
    after = counted[0]
    stop.set()
    thread.join()
    assert after - before > 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(libraries: dict[str, Path]) -> None:
    """Children of a process that has used the module can use it."""
    code = """
import os, fit
fit.train_step([1, 2, 3], 1)
expected = fit.forward([1, 2, 3]).tolist()
for _ in range(50):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if fit.forward([1, 2, 3]).tolist() == expected and fit.train_step([1, 2, 3], 1) >= 0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
"""
    python(code, libraries["fit"])


INTERPRETERS = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
import sys; sys.path.insert(0, FOLDER)
import fit
m = fit.Model()
assert m.train_step([1, 2, 3], 1) > 0 and fit.forward([1, 2, 3]).shape == (2,)
keep = fit.parameters["w"]
'''
import fit
for k in range(50):
    interpreter = interpreters.create()
    assert interpreters.run_string(interpreter, code) is None
    interpreters.destroy(interpreter)
print(fit.forward([1, 2, 3]).shape)
"""


@pytest.mark.parametrize("executable", other_pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_subinterpreters(libraries: dict[str, Path], executable: str) -> None:
    """50 interpreters, with a GIL of their own from 3.12 on, are made, used and destroyed."""
    code = INTERPRETERS.replace("FOLDER", repr(str(libraries["fit"].parent)))
    assert python(code, libraries["fit"], executable=executable) == "(2,)"


def test_stub(libraries: dict[str, Path], tmp_path: Path) -> None:
    """mypy accepts the stubs, and a program that uses them."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("no mypy here")
    use = tmp_path / "use.py"
    use.write_text(
        """
import array

from types import MappingProxyType

import affine
import cache
import fit
import momentum
import shapes

y: affine.Array = affine.forward(array.array("f", [1, 2]))
out = affine.forward([[1, 2.0]], out=bytearray(12))
out.append(1)
picked, narrow = affine.pick([1.0], index=0, flag=True)
loss: float = fit.train_step([1, 2, 3], 1, lr=0.5) + fit.Model().loss() + fit.data(0)
loss += fit.fit([[1, 2, 3]], [1], batch=1, epochs=2, seed=3, callback=lambda done, total, loss: print(done / total))
loss = fit.Model().fit([[1, 2, 3]], [1], 0.5, shuffle=False)
fit.forward().tolist(), fit.Model().forward([1, 2, 3]).shape[0]
fit.set_input([1, 2, 3], 0)
fit.update()
w: fit.Array = fit.parameters["w"]
fit.Model().save("x")
answer: int = shapes.answer() + shapes.Model().largest([1])
flag: bool = shapes.any_of([True])
total, negated, negative = shapes.three([1, -2])
whole: int = total + affine.several([1, 2, 3])[0]
mixed: int | affine.Array | float = affine.named([1, 2, 3])["mean"]

class Frame:
    def __array__(self, dtype: object = None, copy: bool | None = None) -> object: ...

affine.take(Frame(), [1])
z: shapes.Array = shapes.windows([1, 2, 3])[1]
out = shapes.odd([1, 2, 3], out=bytearray(4))
buffers: MappingProxyType[str, cache.Array] = cache.buffers
cache.clear()
position: int = cache.Model().push([1, 2])
count: momentum.Array = momentum.Model().buffers["count"]
step: float = momentum.train_step([1, 2])
cache.Model().load("x")
"""
    )
    names = ("affine", "fit", "shapes", "cache", "momentum")
    paths = ":".join(str(libraries[name].parent) for name in names)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull, str(use)]
    environment = {**os.environ, "MYPYPATH": paths}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
