"""``profile``: the kernels of a call with their costs, on the thread that asks, in a module that was built with it."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.build.toolchain import find_compiler
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.nn import functional as F
from mlaot.settings.options import Options

from ..projects import build_module, load, plain_module
from . import models

batch = mlaot.dim("batch")
ROWS, STEPS = 300, 4
X = np.random.default_rng(3).normal(size=(ROWS, 256)).astype(np.float32)
LABELS = np.arange(ROWS) % 10


class Net(nn.Module):
    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self.hidden, self.last = nn.Linear(256, 300, rng=rng), nn.Linear(300, 10, rng=rng)

    def forward(self, x: Any) -> Any:
        return self.last(F.relu(self.hidden(x)))


net = Net()


def loss(scores: Any, label: mlaot.i64[batch]) -> Any:
    return F.cross_entropy(scores, label)


@mlaot.model(parameters=net, loss=loss, optimizer=optim.SGD(lr=0.1))
def model(x: mlaot.f32[batch, 256]) -> Any:
    return net(x)


@model.entry
def named(x: mlaot.f64[mlaot.dim("rows"), 2 * mlaot.dim("k") + 1]) -> Any:
    return np.exp(x).sum(axis=1)


@model.entry
def looped(x: mlaot.f32[batch, 256]) -> Any:
    return mlaot.scan(lambda carry, _: (np.tanh(carry @ net.hidden.weight[:256]),) * 2, x, np.zeros(STEPS, np.float32))[
        0
    ]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("profile")
    return load(build_module(model, "profiled", folder, ("base",), profile=True, threads=2, c_library=True))


def kernels(trace: dict[str, Any]) -> list[dict[str, Any]]:
    assert json.loads(json.dumps(trace)) == trace
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def line_of(text: str) -> str:
    before = Path(__file__).read_text(encoding="utf-8").partition(text)[0]
    return f"{Path(__file__).name}:{before.count(chr(10)) + 1}"


def test_tells_what_kernels_are_and_cost(built: ModuleType) -> None:
    trace = built.profile(X)
    threads = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert threads == ["forward"] and trace["otherData"]["module"] == "profiled.nn"
    hidden, last = kernels(trace)
    assert [hidden["cat"], last["cat"]] == ["hidden", "last"]
    assert hidden["name"] == "contract, add, relu : f32[batch,300]"
    assert {event["args"]["line"] for event in (hidden, last)} == {line_of("return self.last")}
    assert hidden["args"]["rounds"] * hidden["args"]["operations"] >= 2 * ROWS * 256 * 300
    assert "contract(" in hidden["args"]["computes"]
    one = built.profile(X[:1])
    sizes = [event["args"] for event in kernels(one)]
    assert [args["operations"] for args in sizes] == [2 * 256 * 300, 2 * 300 * 10]
    assert 4 * (256 + 256 * 300 + 300 + 300) <= sizes[0]["bytes"] <= 1.1 * 4 * (256 + 256 * 304 + 300 + 304)
    assert all(event["dur"] >= 0 for event in kernels(one)) and one["otherData"]["seconds"] > 0


def test_dims_have_their_own_names(built: ModuleType) -> None:
    (kernel,) = kernels(built.profile(built.named, np.ones((5, 7))))
    assert kernel["name"].endswith(" : f64[rows]") and "f64[rows,k * 2 + 1]" in kernel["args"]["computes"]
    assert kernel["args"]["bytes"] >= 8 * (5 * 7 + 5)


def test_calls_any_function(built: ModuleType) -> None:
    mine, other = built.Model(), built.Model()
    assert len(kernels(mine.profile(x=X))) == 2
    expected = other.train_step(X, LABELS)
    steps = kernels(mine.profile(mine.train_step, X, label=LABELS))
    assert {"hidden.grad", "last.grad"} <= {event["cat"] for event in steps}
    assert bytes(mine.flat_parameters) == bytes(other.flat_parameters) and np.isfinite(expected)
    fit = kernels(mine.profile(mine.fit, X, LABELS, epochs=2, batch=100))
    assert {event["args"]["rounds"] for event in fit if event["cat"] == "last"} == {6}
    rounds = {event["args"]["rounds"] for event in kernels(built.profile(built.looped, X[:8]))}
    assert STEPS in rounds


def test_records_its_own_thread_and_call(built: ModuleType) -> None:
    def elsewhere() -> None:
        thread = threading.Thread(target=built.forward, args=(X,))
        thread.start()
        thread.join()

    assert kernels(built.profile(elsewhere)) == []
    inner: list[Any] = []
    outer = built.profile(lambda: (inner.append(built.profile(X)), built.forward(X[:5])))
    assert [len(kernels(each)) for each in (inner[0], outer)] == [2, 2]
    assert kernels(outer)[0]["args"]["operations"] == 2 * 5 * 256 * 300
    assert len(kernels(built.profile(X))) == 2


def test_shared_work_is_of_one_thread_and_gives_the_same(built: ModuleType) -> None:
    rows = np.tile(X, (20, 1))
    expected = bytes(built.forward(rows))
    given: list[bytes] = []
    found = kernels(built.profile(lambda: given.append(bytes(built.forward(rows)))))
    total = [event["args"]["rounds"] * event["args"]["operations"] for event in found]
    assert given == [expected] and total[0] >= 2 * len(rows) * 256 * 300


def test_mistakes(built: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"forward: x: expected float32\[batch, 256\], got int"):
        built.profile(1)
    with pytest.raises(ZeroDivisionError):
        built.profile(lambda: 1 // 0)
    assert len(kernels(built.profile(X))) == 2


def test_compiles_without_warnings(built: ModuleType) -> None:
    library = Path(str(built.__file__)).parent.parent
    folder = library.with_name(f"{library.name}-c") / "profiled.nn"
    command = [*find_compiler(), *models.FLAGS.split(), *models.WARNINGS.split(), "-fsyntax-only"]
    for name in ("nn.c", "nn_c.c", "nn_base.c"):
        subprocess.run([*command, str(folder / name)], check=True)


def test_costs_nothing_where_it_is_off() -> None:
    files = [program_files(compile_model(model, "m.nn", Options(isas=("base",), profile=on))) for on in (False, True)]
    off, on = (str(each["nn_base.c"]) for each in files)
    assert re.sub(r"^ *mark\(\d+\);\n", "", on, flags=re.MULTILINE) == off != on


def test_plain_python_has_no_kernels(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="cProfile"):
        plain_module(model, "plain", tmp_path, profile=True).profile(X)
