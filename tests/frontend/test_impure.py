"""What is frozen unasked is told with the user's line, by every command that traces; what is meant is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..commands.conftest import Cli, cli

__all__ = ["cli"]

HEAD = """\
import datetime, json, logging, os, random, secrets, time, uuid, warnings
from datetime import datetime as moment
from random import gauss
from time import perf_counter
from pathlib import Path

import numpy as np

import mlaot

made = np.random.default_rng(1)
old = np.random.RandomState(1)
own = random.Random(1)
weights = made.normal(size=3) + np.random.rand(3) + random.random() + time.time() % 1
here = json.loads((Path(__file__).parent / "data.json").read_text()), os.environ.get("HOME")


class Net:
    def __init__(self):
        self.made = np.random.Generator(np.random.PCG64(3))


net = Net()


@mlaot.model
def model(x: mlaot.f32[3]):
    asked = 0
"""
LINE = HEAD.count("\n") + 1
RANDOM = "random numbers are drawn while the model is traced, and become constants"
ASKED = {
    RANDOM: (
        "made.normal()",
        "made.integers(0, 2)",
        "made.permutation(3)[0]",
        "net.made.uniform()",
        "np.random.rand()",
        "np.random.default_rng().normal()",
        "old.standard_normal()",
        "random.random()",
        "random.randint(0, 3)",
        "random.choice([1, 2])",
        "own.gauss(0, 1)",
        "gauss(0, 1)",
        "secrets.randbelow(3)",
        "secrets.token_bytes(3)[0]",
        "os.urandom(2)[0]",
        "uuid.uuid4().int % 2",
    ),
    "time.time is called while": ("time.time()",),
    "time.perf_counter is called while": ("perf_counter()",),
    "time.monotonic_ns is called while": ("time.monotonic_ns()",),
    "datetime.now is called while": ("datetime.datetime.now().hour", "moment.now(datetime.UTC).hour"),
    "date.today is called while": ("datetime.date.today().day",),
    "the file data.json is read while": (
        "os.read(os.open(Path(__file__).parent / 'data.json', os.O_RDONLY), 1)[0]",
        "json.loads((Path(__file__).parent / 'data.json').read_text())",
        "np.fromfile(Path(__file__).parent / 'data.json', np.uint8)[0]",
    ),
    "the environment variable HOME is read while": (
        "len(os.environ['HOME'])",
        "len(os.environ.get('HOME'))",
        "len(os.getenv('HOME'))",
    ),
}
MEANT = (
    "mlaot.random.uniform(())",
    "np.sum(weights)",
    "here[0]",
    "datetime.timedelta(days=1).days",
    "random.Random",
    "print('a model that talks')",
    "logging.getLogger('a').warning('b')",  # which asks for the time
    "__import__('wave')",  # which reads a file
    "(Path(__file__).parent / 'written').write_text('1')",
    "mlaot.nn.functional.dropout(x, 0.5)",
)


def told(cli: Cli, folder: Path, asked: str, command: str = "passes") -> list[str]:
    """The lines on stderr of a command on a model that asks so."""
    (folder / "data.json").write_text("1")
    (folder / f"{folder.name}.py").write_text(f"{HEAD}    asked = {asked}\n    return x + weights\n")
    result = cli(command, f"{folder.name}:model", *(("--out", "c") if command == "emit" else ()))
    assert result.status == 0, result
    return [line for line in result.err.splitlines() if line.startswith("mlaot: ")]


@pytest.mark.parametrize(("message", "asked"), [(message, asked) for message, some in ASKED.items() for asked in some])
def test_what_is_frozen_is_said(
    message: str, asked: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = told(cli, tmp_path, asked)
    assert line.startswith(f"mlaot: {tmp_path.name}.py:{LINE}: warning: {message}")


@pytest.mark.parametrize("asked", MEANT)
def test_what_is_meant_is_not(asked: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(cli, tmp_path, asked) == []


@pytest.mark.parametrize("command", ["inspect", "emit"])
def test_each_command_that_traces_says_it_once(
    command: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(told(cli, tmp_path, "[random.random() for _ in range(3)]", command)) == 1


def test_the_line_is_that_of_a_helper(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another file of the project, called by a layer, inside of a function that is differentiated."""
    (tmp_path / "noises.py").write_text("import numpy as np\n\n\ndef noise():\n    return np.random.rand(3)\n")
    text = "import mlaot, noises\n\ndef square(x):\n    return ((x + noises.noise()) ** 2).sum()\n\n"
    text += "@mlaot.model\ndef model(x: mlaot.f32[3]):\n    return mlaot.grad(square)(x)\n"
    (tmp_path / "layered.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    (line,) = cli("passes", "layered:model").err.splitlines()
    assert line.startswith("mlaot: noises.py:5: warning: random numbers")


ALL = "sum(v.sum() for v in w.values()) + y.sum()"
TRAINED = """\
import numpy as np
import mlaot
w = mlaot.parameters({{name: np.ones(2, np.float32) for name in "abcde"}})
other = mlaot.Buffer(np.ones(2, np.float32), "other")
{values}

@mlaot.model(loss=lambda y: {loss}, parameters=w)
def model(x: mlaot.f32[2]):
    return x * w["a"] + other
"""


@pytest.mark.parametrize(
    ("loss", "values", "message"),
    [
        (ALL, "", None),
        (
            "y.sum() + w['b'].sum() + w['c'].sum() + w['d'].sum()",
            "",
            "the loss does not depend on the parameter 'e', which is never trained",
        ),
        ("y.sum()", "", "the loss does not depend on the parameters 'b', 'c', 'd' and 1 more, which are never trained"),
        (
            "sum(v.sum() for v in w.values()) + y.sum()",
            "w['b'].array[1] = np.nan",
            "nan or inf in 1 of 2 numbers of 'b'",
        ),
        (
            "sum(v.sum() for v in w.values()) + y.sum()",
            "w['c'].array[:] = -np.inf",
            "nan or inf in 2 of 2 numbers of 'c'",
        ),
        (ALL, "other.array[1] = np.inf", None),
        (ALL, "other.array[1] = np.nan", "nan in 1 of 2 numbers of 'other'"),
        (
            f"(y + np.array([np.nan, 1], np.float32) + np.array([np.inf, 1], np.float32)).sum() + {ALL}",
            "",
            "nan in 1 of 2 numbers of a constant float32[2]",
        ),
    ],
)
def test_parameters_that_cannot_be_meant(
    loss: str, values: str, message: str | None, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"trained{tmp_path.name}"
    Path(f"{name}.py").write_text(TRAINED.format(loss=loss, values=values))
    result = cli("inspect", f"{name}:model")
    lines = result.err.splitlines()
    assert result.status == 0 and lines == ([f"mlaot: {name}.py:7: warning: {message}"] if message else [])


def test_a_scalar_that_is_no_number(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from mlaot.micrograd import MLP\nnet = MLP(2, [3, 1])\nnet.parameters()[4].data = float('nan')\n"
    Path("nowhere.py").write_text(text)
    (line,) = cli("inspect", "nowhere:net").err.splitlines()
    assert line == "mlaot: model.nn: warning: nan or inf in 1 of 6 numbers of 'layers.0.neurons.w'"
