"""Calls that use several threads: the same bits, forks, many callers, no time spent idle, an end without a hang."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.errors import MlaotError
from mlaot.nn import functional as F

from ..projects import build_module, load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CPUS = len(os.sched_getaffinity(0))
batch = mlaot.dim("batch")
draw = np.random.default_rng(7)
WEIGHTS = [draw.normal(size=shape).astype(np.float32) / 16 for shape in ((256, 512), (512, 512), (512, 10))]
KERNELS = [draw.normal(size=shape).astype(np.float32) / 8 for shape in ((6, 1, 5, 5), (16, 6, 5, 5), (256, 10))]


@mlaot.model
def served(x: mlaot.f32[batch, 256]) -> Any:
    h = np.maximum(x @ WEIGHTS[0], 0)
    return F.softmax(np.maximum(h @ WEIGHTS[1], 0) @ WEIGHTS[2], 1)


@served.entry
def normalized(x: mlaot.f32[batch, 256]) -> Any:
    return F.layer_norm(np.exp(x), (256,))


@served.entry
def lenet(x: mlaot.f32[batch, 1, 28, 28]) -> Any:
    h = F.max_pool2d(F.relu(F.conv2d(x, KERNELS[0])), 2)
    return F.flatten(F.max_pool2d(F.relu(F.conv2d(h, KERNELS[1])), 2), 1) @ KERNELS[2]


@served.entry
def recurrent(x: mlaot.f32[batch, 256]) -> Any:
    def step(carry: Any, now: Any) -> Any:
        h, gate = carry
        gates = h @ WEIGHTS[0] + np.concatenate([x, x[:, ::-1]], axis=1)
        gate = mlaot.sigmoid(gates[:, :256]) * gate + now
        h = np.tanh(gates[:, 256:] * gate)
        return (h, gate), h.max(axis=1)

    return mlaot.scan(step, (x, x * 0.5), mlaot.arange(20, dtype="float32"))[1]


def loss(scores: Any, label: mlaot.i64[batch]) -> Any:
    return F.cross_entropy(scores, label)


NET = {"w": WEIGHTS[0], "v": WEIGHTS[2]}


@mlaot.model(loss=loss, parameters=NET, optimizer=mlaot.optim.Adam())
def trained(x: mlaot.f32[batch, 256]) -> Any:
    return np.tanh(x @ NET["w"]) @ NET["v"]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    site = tmp_path_factory.mktemp("threads")
    return {name: build_module(declared, name, site) for name, declared in (("served", served), ("trained", trained))}


@pytest.fixture
def nn(libraries: dict[str, Path]) -> Iterator[ModuleType]:
    module = load(libraries["served"])
    yield module
    module.set_threads(1)
    wait_until(lambda: helpers() == 0)


X = draw.normal(size=(200, 256)).astype(np.float32)
IMAGES = draw.normal(size=(40, 1, 28, 28)).astype(np.float32)


def helpers() -> int:
    """Threads of this process that block all signals, which no others here do."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            blocked = re.search(r"^SigBlk:\s*(\w+)", (task / "status").read_text(), re.MULTILINE)
        except OSError:  # it has just ended
            continue
        count += blocked is not None and int(blocked[1], 16).bit_count() > 50
    return count


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.001)


@pytest.mark.parametrize("count", [2, 3, 0, None])
def test_same_bits(nn: ModuleType, count: int | None) -> None:
    """Networks, rows, convolutions and loops: one thread's results, to the last bit."""
    entries = [(nn.forward, X), (nn.normalized, np.tile(X, (40, 1))), (nn.lenet, IMAGES), (nn.recurrent, X)]
    alone = [bytes(call(x)) for call, x in entries]
    assert nn.set_threads(count) == min(count or CPUS, CPUS)
    for _ in range(20):
        assert [bytes(call(x)) for call, x in entries] == alone
    wait_until(lambda: helpers() == min(count or CPUS, CPUS) - 1)


@pytest.mark.parametrize("count", [2, 3])
def test_same_training(libraries: dict[str, Path], count: int) -> None:
    """Losses and parameters after some steps: fused, in verbs, and by fit."""
    module, labels = load(libraries["trained"]), np.arange(200) % 10

    def train(threads: int) -> list[Any]:
        model = module.Model()
        model.set_threads(threads)
        losses = [model.train_step(X, labels) for _ in range(5)]
        model.set_input(X, labels)
        outputs = bytes(model.forward())
        model.backward()
        gradients = bytes(model.flat_gradients)
        model.update()
        fitted = model.fit(X, labels, batch=150, epochs=3, seed=1)
        return [losses, outputs, gradients, fitted, bytes(model.flat_parameters)]

    assert train(count) == train(1)


def test_short_calls_start_nothing(nn: ModuleType) -> None:
    before = len(os.listdir("/proc/self/task"))
    nn.set_threads(0)
    nn.forward(X[:1])
    assert len(os.listdir("/proc/self/task")) == before


def test_each_model_has_its_own(nn: ModuleType) -> None:
    """Threads come with the first long call, and leave with the Model."""
    one, two = nn.Model(), nn.Model()
    one.set_threads(2), two.set_threads(2)
    one.forward(X), two.forward(X)
    nn.forward(X)
    wait_until(lambda: helpers() == 2 * (min(2, CPUS) - 1))
    del one
    wait_until(lambda: helpers() == min(2, CPUS) - 1)
    two.set_threads(1)
    wait_until(lambda: helpers() == 0)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("2", TypeError, "set_threads: n: expected an int or None, got str"),
        (2.0, TypeError, "set_threads: n: expected an int or None, got float"),
        (-1, ValueError, "set_threads: n: expected a number of threads, or 0 for as many as CPUs"),
        (-(10**30), ValueError, "set_threads: n: expected a number of threads, or 0 for as many as CPUs"),
    ],
)
def test_mistakes(nn: ModuleType, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        nn.set_threads(value)
    assert nn.set_threads(10**30) == CPUS


def test_set_threads_is_no_name_for_an_entry(tmp_path: Path) -> None:
    @mlaot.model
    def model(x: mlaot.f32[batch, 2]) -> Any:
        return x

    @model.entry
    def set_threads(x: mlaot.f32[batch, 2]) -> Any:
        return x

    with pytest.raises(MlaotError, match="cannot be called 'set_threads'"):
        build_module(model, "names", tmp_path)


def test_idle_threads_take_no_time(nn: ModuleType) -> None:
    nn.set_threads(2)
    nn.forward(X)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.005


def test_many_callers(nn: ModuleType) -> None:
    """Python threads share one Model's threads, while another changes how many there are."""
    expected, wrong = [bytes(nn.forward(X[k:])) for k in range(6)], []
    nn.set_threads(2)

    def work(k: int) -> None:
        wrong.extend(k for _ in range(60) if bytes(nn.forward(X[k:])) != expected[k])

    callers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for caller in callers:
        caller.start()
    while any(caller.is_alive() for caller in callers):
        nn.set_threads(1 + len(wrong) % 2)
        nn.set_threads(2)
        time.sleep(0.001)
    assert not wrong


def child_exit(work: Callable[[], bool]) -> int:
    """The exit status of a forked child: 0 where ``work`` is true; it must end within 30 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fork(nn: ModuleType) -> None:
    """A child finds no threads and starts its own, also while another thread of the parent computes."""
    nn.set_threads(2)
    expected = bytes(nn.forward(X))

    def work() -> bool:
        same = all(bytes(nn.forward(X)) == expected for _ in range(3))
        wait_until(lambda: helpers() == min(2, CPUS) - 1)
        return same

    assert [child_exit(work) for _ in range(10)] == [0] * 10
    stop = threading.Event()
    caller = threading.Thread(target=lambda: [nn.forward(X) for _ in iter(stop.is_set, True)])
    caller.start()
    statuses = [child_exit(work) for _ in range(20)]
    stop.set()
    caller.join()
    assert statuses == [0] * 20
    assert child_exit(lambda: child_exit(work) == 0) == 0
    assert bytes(nn.forward(X)) == expected


def test_fork_while_training(libraries: dict[str, Path]) -> None:
    """What another thread of the parent holds is no lock for the child."""
    model, labels, stop = load(libraries["trained"]).Model(), np.arange(200) % 10, threading.Event()
    model.set_threads(2)
    caller = threading.Thread(target=lambda: [model.train_step(X, labels) for _ in iter(stop.is_set, True)])
    caller.start()
    statuses = [child_exit(lambda: model.train_step(X, labels) > 0) for _ in range(20)]
    stop.set()
    caller.join()
    assert statuses == [0] * 20


def test_multiprocessing(nn: ModuleType) -> None:
    global called
    called = nn
    nn.set_threads(2)
    expected = bytes(nn.forward(X))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(call, range(8)).get(60) == [expected] * 8


called: ModuleType


def call(_: int) -> bytes:
    return bytes(called.forward(X))


def python(code: str, library: Path, timeout: float = 60, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter with the module as ``nn``."""
    setup = f"""
import importlib.util, os, signal, sys, threading, time
spec = importlib.util.spec_from_file_location("nn", {str(library)!r})
nn = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nn)
x = memoryview(bytes(200 * 256 * 4)).cast("f", (200, 256))
"""
    return subprocess.run(
        [sys.executable, "-I", "-c", setup + code],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize(
    "code",
    {
        "at once": "nn.set_threads(2); nn.forward(x)",
        "helpers asleep": "nn.set_threads(2); nn.forward(x); time.sleep(0.1)",
        "many models": "models = [nn.Model() for _ in range(50)]\nfor m in models: m.set_threads(2); m.forward(x)",
        "in a daemon": "nn.set_threads(2)\ndef work():\n    while True: nn.forward(x)\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)",
        "in a cycle": "nn.set_threads(2); nn.forward(x); nn.itself = nn; del nn",
        "_exit": "nn.set_threads(2); nn.forward(x); os._exit(0)",
    }.items(),
    ids=lambda item: item[0],
)
def test_interpreter_ends(libraries: dict[str, Path], code: tuple[str, str]) -> None:
    for _ in range(5):
        done = python(code[1], libraries["served"])
        assert (done.returncode, done.stderr) == (0, "")


def test_interrupt(libraries: dict[str, Path]) -> None:
    """Ctrl-C ends a long call between two tiles, and the next one is right."""
    code = """
many = memoryview(bytes(40000 * 256 * 4)).cast("b").cast("f", (40000, 256))
nn.set_threads(2)
expected = nn.forward(x).tolist()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        nn.forward(many)
except KeyboardInterrupt:
    assert nn.forward(x).tolist() == expected
    print("interrupted")
"""
    done = python(code, libraries["served"])
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_affinity(libraries: dict[str, Path]) -> None:
    """One CPU, one thread, whatever the settings; counted when the threads start."""
    code = """
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print(nn.set_threads(0), nn.set_threads(4))
nn.forward(x)
print(len(os.listdir("/proc/self/task")))
"""
    assert python(code, libraries["served"]).stdout == "1 1\n1\n"


def test_default_of_the_settings(tmp_path: Path) -> None:
    """``threads`` of the settings holds for the module and for new Models."""
    library = build_module(served, "default", tmp_path, threads=2)
    module = load(library)
    one = bytes(module.forward(X))
    wait_until(lambda: helpers() == min(2, CPUS) - 1)
    model = module.Model()
    assert bytes(model.forward(X)) == one
    wait_until(lambda: helpers() == 2 * (min(2, CPUS) - 1))
    model.set_threads(1), module.set_threads(1)
    wait_until(lambda: helpers() == 0)
