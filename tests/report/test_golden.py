"""Golden vectors: made from the graph before it is optimized, replayed by compiled code that knows nothing of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.build.replay import replay, runs_here
from mlaot.build.toolchain import find_toolchain
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.generate import compile_model
from mlaot.ir.indices import IndexRange
from mlaot.ir.ports import numbers
from mlaot.loading import trace
from mlaot.lower.program import Port
from mlaot.nn import functional as F
from mlaot.settings.options import Options

from .. import projects
from ..compiled import AVAILABLE

ALL = ("base", "v3", "v4")
LENGTH, WIDTH = mlaot.dim("length"), mlaot.dim("width")


class Classifier(nn.Module):
    def __init__(self, dtype: Any) -> None:
        self.a, self.b = nn.Linear(30, 50, rng=0), nn.Linear(50, 10, rng=1)
        for p in self.parameters():
            p.array = p.array.astype(dtype.numpy)

    def forward(self, x: Any) -> Any:
        return self.b(F.relu(self.a(x)))


def classifier(dtype: Any = mlaot.f32) -> Any:
    net = Classifier(dtype)

    def loss(scores: Any, label: mlaot.i64) -> Any:
        return F.cross_entropy(scores, label)

    def classify(x: Any) -> Any:
        return net(x)

    classify.__annotations__ = {"x": dtype[30]}
    return mlaot.model(loss=loss, parameters=net)(classify)


@pytest.mark.parametrize("dtype", [mlaot.f32, mlaot.f64], ids=str)
def test_every_function_on_every_instruction_set(dtype: Any, tmp_path: Path) -> None:
    golden = compile_model(classifier(dtype), "nn", Options(isas=ALL), golden=True).module.golden
    assert [(call.entry, [len(output) for output in call.outputs]) for call in golden] == [
        ("forward", [65]),
        ("loss", [2]),
        ("train_step", [2]),
    ]
    module = projects.load(projects.build_module(classifier(dtype), "golden", tmp_path, ALL, golden=True))
    before = bytes(module.flat_parameters)
    shares = module.selftest()
    assert list(shares) == [isa for isa in ALL if isa in AVAILABLE]
    assert all(0 < share < 0.2 for share in shares.values())
    assert bytes(module.flat_parameters) == before  # models of its own have been trained


def test_loss_is_that_of_a_training_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes the last kernel for one without effect leaves a loss of 0."""
    library = projects.build_module(classifier(), "loss", tmp_path, AVAILABLE, golden=True)
    for isa in AVAILABLE:
        monkeypatch.setenv("MLAOT_ISA", isa)
        module = projects.load(library)
        for rows in (1, 2, 5, 17):
            rng = np.random.default_rng(rows)
            x, label = rng.normal(size=(rows, 30)).astype(np.float32), rng.integers(0, 10, rows)
            loss = module.loss(x, label)
            assert loss > 1 and loss == pytest.approx(module.Model().train_step(x, label), rel=1e-6)


def test_a_wrong_weight_is_found(tmp_path: Path) -> None:
    library = projects.build_module(classifier(), "nn", tmp_path, ("base",), golden=True)
    folder = tmp_path.with_name(f"{tmp_path.name}-c") / "nn.nn"
    replay("nn", library, *find_toolchain())
    source = folder / "nn.c"
    text = source.read_text()
    (line,) = re.findall(r"^static const double ANSWERS\[\] = \{\n(    .*)\n", text, re.MULTILINE)
    bound, first, *_ = map(float, line.rstrip(",").split(", "))
    source.write_text(text.replace(line, line.replace(repr(first), repr(first + 2 * bound))))
    projects.compile_module(folder, "nn", ("base",), library, find_toolchain())
    with pytest.raises(MlaotError, match=r"^nn, as compiled by cc, does not give the model's answers: RuntimeError: "):
        replay("nn", library, *find_toolchain())
    module = projects.load(library)
    expected = rf"expected {first + 2 * bound:.9g} within .*, got {first:.4f}"
    with pytest.raises(RuntimeError, match=f"selftest: out of forward on base: element 0 and others, .*: {expected}"):
        module.selftest()


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i8", "u8", "i64", "bool"])
def test_numbers_are_exact_and_spread(dtype: str) -> None:
    made = numbers(Port("x", dtype, (40, 50), ranges=(IndexRange(5),) if dtype == "i64" else ()), 3, {})
    assert made.shape == (40, 50)
    if dtype in ("f64", "f32", "f16", "bf16"):
        assert -1 <= made.min() < -0.95 and 0.95 < made.max() < 1 and abs(made.mean()) < 0.05
        assert (made == mlaot.ir.types.DTYPES[dtype].array(made)).all()
    else:
        assert set(made.ravel().tolist()) == set(range({"i64": 5, "bool": 2}.get(dtype, 8)))
    assert (made != numbers(Port("x", dtype, (40, 50), ranges=(IndexRange(5),) if dtype == "i64" else ()), 4, {})).any()


@pytest.mark.parametrize("dtype", [mlaot.f16, mlaot.bf16, mlaot.u8, mlaot.i32, mlaot.bool], ids=str)
def test_inputs_of_other_dtypes(dtype: Any, tmp_path: Path) -> None:
    def model(x: Any, y: mlaot.f32[3]) -> Any:
        return mlaot.astype(x, mlaot.f32) * 3 + y, x

    model.__annotations__["x"] = dtype[4, 3]
    module = projects.load(projects.build_module(mlaot.model(model), "kinds", tmp_path, golden=True))
    assert "base" in module.selftest()


def random(x: mlaot.f32[3]) -> Any:
    return F.dropout(x, 0.5, training=True)


def infinite(x: mlaot.f32[3]) -> Any:
    return x / 0


def undecided(x: mlaot.f32[30]) -> Any:
    return mlaot.astype(x * 1e9 + 0.5, mlaot.i64)


def empty(x: mlaot.f32[3]) -> Any:
    return x[3:]


def long(x: mlaot.f32[LENGTH, WIDTH]) -> Any:
    return x[20_000:]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (random, "draws random numbers"),
        (infinite, "gives numbers that are not finite for generated inputs (out)"),
        (undecided, "gives integers that a rounding decides (out)"),
        (empty, "gives nothing for generated inputs"),
        (long, "fits no sizes of length and width up to 16,384 that were tried; give a `sample`"),
    ],
)
def test_functions_without(function: Any, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = compile_model(mlaot.model(function), "nn", Options(isas=("base",)), golden=True).module
    assert module.golden == () and module.info["unchecked"] == f"forward {reason}"
    assert capsys.readouterr().out == f"mlaot: nn has no golden vectors: forward {reason}\n"


def doubled(x: mlaot.f32[WIDTH]) -> Any:
    return 2 * x


def test_a_model_that_shall_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The user's reason stands where a generated one would."""
    options = Options(isas=("base",), unchecked="its steps amplify rounding")
    module = compile_model(mlaot.model(doubled), "nn", options, golden=True).module
    assert module.golden == () and module.info["unchecked"] == "its steps amplify rounding"
    assert capsys.readouterr().out == "mlaot: nn has no golden vectors: its steps amplify rounding\n"


@pytest.mark.parametrize(("operations", "evaluations"), [(10**9, 15), (25_000, 6), (1, 2)])
def test_few_evaluations(operations: int, evaluations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where answers cannot be compared, no sizes are tried twice, and not many calls; heavy ones are not moved."""
    calls = []
    monkeypatch.setattr(
        "mlaot.report.golden.evaluate", lambda *args, **rest: calls.append(1) or evaluate(*args, **rest)
    )
    monkeypatch.setattr("mlaot.report.golden.MAX_OPERATIONS", operations)
    compile_model(mlaot.model(infinite), "nn", Options(isas=("base",)), golden=True)
    assert len(calls) == evaluations


def cut(x: mlaot.f32[LENGTH, WIDTH]) -> Any:
    return x[40:, 3:]


def added(x: mlaot.f32[LENGTH, WIDTH]) -> Any:
    return np.sum(x[3:], axis=0)


@pytest.mark.parametrize(("function", "sizes"), [(cut, (48, 5)), (added, (17, 5))])
def test_each_dim_has_a_size_of_its_own(
    function: Any, sizes: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a size leaves nothing of a value, the next is taken."""
    (call,) = compile_model(mlaot.model(function), "nn", Options(isas=("base",)), golden=True).module.golden
    assert call.dims == sizes
    assert capsys.readouterr().out == ""


def rows(x: mlaot.f32[LENGTH, WIDTH]) -> Any:
    return mlaot.tanh(x)


def pairs(x: mlaot.f32[LENGTH, 3 * WIDTH + 2]) -> Any:
    return mlaot.tanh(x)


@pytest.mark.parametrize(("function", "sizes"), [(long, (20_001, 5)), (rows, (17, 5)), (pairs, (17, 1))])
def test_sizes_of_a_sample(function: Any, sizes: tuple[int, ...]) -> None:
    """They are tried first, with no more rows than are needed."""
    sample = np.zeros((20_001, 5), np.float32)
    program = compile_model(mlaot.model(function), "nn", Options(isas=("base",)), sample={"x": sample}, golden=True)
    assert [call.dims for call in program.module.golden] == [sizes]


def test_dims_and_their_expressions(tmp_path: Path) -> None:
    n = mlaot.dim("n")

    def model(x: Any, y: Any) -> Any:
        return np.sum(x) * y[1:]

    model.__annotations__ = {"x": mlaot.f32[n], "y": mlaot.f32[2 * n + 1]}
    module = projects.load(projects.build_module(mlaot.model(model), "dims", tmp_path, ("base",), golden=True))
    assert module.selftest().keys() == {"base"}
    lowered = compile_model(mlaot.model(model), "nn", Options(isas=("base",)), golden=True).module
    (call,) = lowered.golden
    assert dict(zip(lowered.dims, call.dims, strict=True)) == {"n": 5} and len(call.outputs[0]) == 11


class Images(nn.Module):
    shape = (3, 9, 7)

    def __init__(self) -> None:
        self.a, self.b = nn.Conv2d(3, 8, 3, rng=0), nn.Linear(8, 4, rng=1)

    def forward(self, x: Any) -> Any:
        return self.b(np.mean(F.relu(self.a(x)), axis=(2, 3)))


class Texts(nn.Module):
    shape = (5, 16)

    def __init__(self) -> None:
        self.a, self.b = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, rng=0)

    def forward(self, x: Any) -> Any:
        x = self.a(x)
        return x + self.b(x, x, x, need_weights=False)[0]


class Sounds(nn.Module):
    shape = (6, 10)

    def __init__(self) -> None:
        self.a, self.b = nn.GRU(10, 12, batch_first=True, rng=0), nn.Linear(12, 3, rng=1)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.b(self.a(x)[0]), -1)


@pytest.mark.parametrize("net", [Images, Texts, Sounds])
def test_weights_that_are_one_percent_off_are_found(net: Any) -> None:
    """Whichever array they are in, answers move much further than the bound."""

    def answers(change: str = "") -> tuple[float, ...]:
        model = net()
        for name, parameter in model.named_parameters():
            parameter.array = parameter.array + np.float32(0.1 if "bias" in name else 0)  # some are zero
            parameter.array *= np.float32(1.01 if name == change else 1)

        def forward(x: Any) -> Any:
            return model(x)

        forward.__annotations__["x"] = mlaot.f32[LENGTH, *net.shape]
        declared = mlaot.model(forward, parameters=model)
        (call,) = compile_model(declared, "nn", Options(isas=("base",)), golden=True).module.golden
        return call.outputs[0]

    bound, *right = answers()
    for name, _ in net().named_parameters():
        _, *wrong = answers(name)
        assert np.abs(np.subtract(wrong, right)).max() > 4 * bound, name


def test_one_row_of_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LIGHT", "MAX_OPERATIONS"):
        monkeypatch.setattr(f"mlaot.report.candidates.{limit}", 100)
    golden = compile_model(classifier(), "nn", Options(isas=("base",)), golden=True).module.golden
    assert {call.dims for call in golden} == {(1,)}


def test_declared_entries_are_kept() -> None:
    module = passes.run("nn", trace(classifier()))
    assert {"forward", "loss", "train_step"} <= set(module.declared)
    assert str(module.declared["train_step"]) != str(module.graphs["train_step"])


def test_other_machines_are_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, platform = find_toolchain()
    assert platform is None and runs_here(command, None)
    cross = tmp_path / "cross"
    cross.write_text("#!/bin/sh\necho riscv64-linux-gnu\n")
    cross.chmod(0o755)
    assert not runs_here([str(cross)], None)
    replay("digits.nn", Path("/no/such/file"), [str(cross)], None)
    words = "mlaot: digits.nn was not replayed: it is for another machine; run `mlaot check` on the wheel there\n"
    assert capsys.readouterr().out == words


def inference(x: mlaot.f32[3]) -> Any:
    return mlaot.tanh(x)


def test_command(tmp_path: Path) -> None:
    library = projects.build_module(mlaot.model(inference), "checked", tmp_path, golden=True)
    command = [sys.executable, "-m", "mlaot", "check", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1].split()[:2] == ["nn", "base"]
    assert done.stdout.rstrip().endswith("% of the bound")
