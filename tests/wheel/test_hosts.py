"""The wheels in other hosts than the one that built them: Python versions, CPUs, floating-point modes, children."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Site, Wheel, alone_python, answers, python_of

PYTHON = Path(sys.executable).resolve()
QEMU = shutil.which("qemu-x86_64")
X86_64 = platform.machine() == "x86_64"


@pytest.fixture(scope="session")
def base(site: Site) -> dict[str, Any]:
    """The answers of the path that every CPU can take."""
    return answers(site, PYTHON, MLAOT_ISA="base")


def assert_right(found: dict[str, Any], base: dict[str, Any]) -> None:
    """The digits are recognized, xor is learned, and all numbers are those of ``base`` but for the last digits."""
    assert found["learned"] == [0, 1, 1, 0]
    assert sum(map(int.__eq__, found["digits"], found["labels"])) >= 38
    assert not found["numpy"]
    for kind, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        for name, expected in base[kind].items():
            assert flat(found[kind][name]) == pytest.approx(flat(expected), rel=tolerance, abs=tolerance), name


def flat(values: Any) -> list[float]:
    return [v for row in values for v in flat(row)] if isinstance(values, list) else [values]


def test_base(base: dict[str, Any]) -> None:
    """Without NumPy, and without any other package."""
    assert base["isa"] == ["base"] * 3
    assert_right(base, base)


@pytest.mark.parametrize("minor", [11, 12, 13, 14, 15])
def test_python_versions(wheel: Wheel, site: Site, base: dict[str, Any], tmp_path: Path, minor: int) -> None:
    """Installed alone, with all of its dependencies: none. Each version computes the same bits."""
    interpreter = python_of(minor)
    if interpreter is None:
        pytest.skip(f"no CPython 3.{minor} here")
    alone_python(interpreter, "-I", "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    wheels = [wheel(name) for name in ("xor", "train", "serve")]
    # By this interpreter's pip: an older one does not run on every later Python.
    site_packages = python.parent.parent / "lib" / f"python3.{minor}" / "site-packages"
    target = ("--target", site_packages, "--python-version", f"3.{minor}", "--only-binary", ":all:")
    alone_python(sys.executable, "-m", "pip", "install", "-q", "--no-index", *target, *wheels)
    names = "from importlib import metadata as m; print(sorted(d.metadata['Name'] for d in m.distributions()))"
    assert alone_python(python, "-I", "-c", names) == "['digits', 'digits-train', 'xor']\n"
    assert alone_python(python, "-I", "-c", "from digits import nn; print(nn.__file__)").startswith(str(tmp_path))
    assert answers(site, interpreter, MLAOT_ISA="base") == base


@pytest.mark.skipif(not X86_64, reason="instruction sets of x86-64")
@pytest.mark.parametrize("isa", ["v3", "v4"])
def test_instruction_sets(site: Site, base: dict[str, Any], isa: str) -> None:
    """The other two paths agree with the first."""
    try:
        found = answers(site, PYTHON, MLAOT_ISA=isa)
    except AssertionError as error:
        if "expected MLAOT_ISA to be one of" in str(error):
            pytest.skip(f"this CPU has no {isa}")
        raise
    assert found["isa"] == [isa] * 3
    assert_right(found, base)


@pytest.mark.skipif(not X86_64 or QEMU is None, reason="no qemu-x86_64 here")
@pytest.mark.parametrize(("cpu", "isa"), [("Nehalem", "base"), ("Haswell", "v3")])
def test_other_cpus(site: Site, base: dict[str, Any], cpu: str, isa: str) -> None:
    """A CPU without AVX imports the module, trains and serves; one with AVX2 takes the path for it."""
    assert QEMU is not None
    found = answers(site, QEMU, "-cpu", cpu, PYTHON)
    assert found["isa"] == [isa] * 3
    assert_right(found, base)
    if isa == "base":
        assert found["float64"] == base["float64"] and found["float32"] == base["float32"]


MODES = """
import ctypes, struct, sys
sys.path[:0] = sys.argv[1:]
fenv = ctypes.create_string_buffer(64)
libm = ctypes.CDLL("libm.so.6")
def modes():
    libm.fegetenv(fenv)
    return struct.unpack_from("<H", fenv)[0], struct.unpack_from("<I", fenv, 28)[0] & ~0x3f  # not the sticky flags
def denormals():
    smallest, normal = 5e-324, 2.2250738585072014e-308
    return repr(smallest), smallest * 1.0 > 0, normal / 4 > 0, smallest + smallest
before = modes(), denormals()
from xor import nn
assert (modes(), denormals()) == before, "import"
nn.train_step([[0, 1]] * 5000, [1] * 5000, lr=0.1)
nn.forward([[1e-310, 5e-324]])
assert (modes(), denormals()) == before, "use"
print(*before)
"""


@pytest.mark.skipif(not X86_64 or sys.platform != "linux", reason="reads the registers through glibc")
@pytest.mark.parametrize("isa", ["base", ""])
def test_floating_point_modes(site: Site, isa: str) -> None:
    """Neither import nor use changes rounding, exceptions or denormals."""
    shown = alone_python(PYTHON, "-I", "-S", "-c", MODES, site("xor"), MLAOT_ISA=isa)
    assert shown == "(895, 8064) ('5e-324', True, True, 1e-323)\n"


FORKS = """
import os, sys
sys.path[:0] = sys.argv[1:]
from digits import nn as serving
from digits_train import nn as training
x = bytes(range(16)) * 4
def work():
    model = training.Model()
    return serving.forward([float(v) for v in x]).tolist(), [model.train_step(x, 3) for _ in range(3)]
expected = work()
serving.set_threads(2), training.set_threads(2)
training.train_step(memoryview(x * 20000).cast("B", (20000, 64)), [3] * 20000)
for _ in range(200):
    child = os.fork()
    if child == 0:
        os._exit(work() != expected or not 0 < training.train_step(x, 3) < 10)
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks(site: Site) -> None:
    """200 children made after first use compute the same, threads or not."""
    assert alone_python(PYTHON, "-I", "-S", "-c", FORKS, site("serve"), site("train")) == "done\n"


INTERRUPT = """
import os, sys, threading, time
sys.path[:0] = sys.argv[1:]
from digits_train import nn
model, rows = nn.Model(), 1 << 19
x = memoryview(bytes(range(16)) * 4 * rows).cast("B", (rows, 64))
y = memoryview(bytes(8 * rows)).cast("q")
first = model.loss(x, y)
interrupted = False
try:
    threading.Timer(0.05, os.kill, (os.getpid(), 2)).start()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        model.train_step(x, y, lr=0.0)
except KeyboardInterrupt:
    interrupted = True
assert interrupted
assert abs(model.loss(x, y) - first) < 1e-6
assert model.train_step(x, y, lr=0.1) > model.loss(x, y)
print("done")
"""


def test_interrupt(site: Site) -> None:
    """Ctrl-C in a long call is not lost, and the model can be used afterwards."""
    assert alone_python(PYTHON, "-I", "-S", "-c", INTERRUPT, site("train")) == "done\n"
