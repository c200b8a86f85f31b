"""``mlaot bench``: every function of a module is timed, with the instruction sets that are asked for."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mlaot.commands.bench import BATCHES
from mlaot.commands.modules import modules_of
from mlaot.probe import ask

from ..compiled import AVAILABLE
from .conftest import Cli, complaint


def runs(cli: Cli, *arguments: str | Path) -> list[dict[str, Any]]:
    result = cli("bench", *arguments, "--json")
    assert (result.status, result.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(result.out)["runs"]
    return found


def test_a_wheel(cli: Cli, wheel: Path) -> None:
    (run,) = runs(cli, wheel)
    assert (run["module"], run["isa"], run["refused"]) == ("small.nn", [i for i in AVAILABLE if i != "v4"][-1], {})
    timed = [(row["entry"], row["batch"]) for row in run["rows"]]
    batched = ("forward", "loss", "train_step", "accumulate")
    assert timed == [(name, b) for name in batched for b in BATCHES] + [("update", None)]
    assert all(0 < row["least"] <= row["median"] <= row["most"] < 0.1 for row in run["rows"])


def test_every_instruction_set_of_a_file(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    lines = cli("bench", tmp_path / "small" / "nn.abi3.so", "--isa", "all").out.splitlines()
    assert lines[0].split() == ["module", "isa", "function", "batch", "median", "(us)", "fastest", "slowest"]
    assert [line.split()[:4] for line in lines[1:]][::13] == [
        ["small.nn", isa, "forward", "1"] for isa in AVAILABLE if isa != "v4"
    ]


def test_an_instruction_set_that_the_module_lacks(cli: Cli, wheel: Path) -> None:
    line = complaint(cli("bench", wheel, "--isa", "v4"))
    assert line.startswith("mlaot: small.nn cannot be imported here: ImportError: small.nn: expected MLAOT_ISA to be")


def test_nothing_to_time(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "empty.whl"
    zipfile.ZipFile(path, "w").close()
    assert complaint(cli("bench", path)) == f"mlaot: {path} holds no extension module"
    assert complaint(cli("bench", tmp_path)).startswith(f"mlaot: {tmp_path} is a folder; expected a wheel")


ODD = """\
import os, sys
print("a line of the module's own")
class Model:
    calls = []
    def pick(self, x, index, *, out=None):
        assert x.shape == (8, 17) and x.dtype == "float16"
        if index.max() >= 2:
            raise ValueError("pick: index must be in 0..1")
        return x[0] * 2
    pick.__defaults__ = None
    def never(self, x):
        raise ValueError("never: no")
def info():
    entries = {
        "pick": {"inputs": {"x": "float16[n, 2 * n + 1]", "index": "int64[n]"}, "outputs": {"out": "float16[n]"}},
        "never": {"inputs": {"x": "bool"}, "outputs": {}},
    }
    return {"name": "odd", "dims": ["n"], "entries": entries, "isa": "base", "isas": ["base"], **REST}
REST = {"deterministic": False, "parameters": {}, "buffers": {}, "optimizer_state": {}, "parameter_count": 0}
REST["bytes"] = {"constants": 0, "state": 0}
"""


def test_the_probe_draws_what_a_module_takes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named dims other than the batch, expressions, a limit of integers, an entry that refuses everything."""
    (tmp_path / "odd.py").write_text(ODD)
    monkeypatch.chdir(tmp_path)
    (run,) = runs(cli, "odd")
    assert [(row["entry"], row["batch"]) for row in run["rows"]] == [("pick", None)]
    assert run["refused"] == {"never": "ValueError: never: no"}
    assert "odd: never was not timed, it refuses random inputs: ValueError: never: no" in cli("bench", "odd").out
    with modules_of("odd") as (module,):
        found = ask(module, "values", arrays=str(tmp_path / "odd.npz"), limits={})
        assert (found["limits"], found["refused"]) == ({"pick": 2}, {"never": "ValueError: never: no"})


def test_a_module_that_crashes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crash.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.chdir(tmp_path)
    assert complaint(cli("bench", "crash")) == "mlaot: crash: the process that imported it was killed by signal 11"
