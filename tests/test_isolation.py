"""What a user's code does to the interpreter is undone, and what is no model is said to be none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest

import mlaot
from mlaot.errors import MlaotError
from mlaot.loading import locate_errors, trace
from mlaot.settings import ModelSettings

HOSTILE = (
    "sys.stdout.close()",
    "sys.stderr.close()",
    "sys.stdout = sys.stderr = None",
    "os.close(1); os.close(2)",
    "sys.modules.clear()",
    "sys.modules = {}",
    "sys.path.clear(); sys.meta_path.clear()",
    "sys.path = sys.meta_path = None",
    "sys.setrecursionlimit(60)",
    "os.chdir('/')",
    "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)",
    "builtins.len = builtins.open = builtins.print = None; builtins.isinstance = lambda *_: True",
    "raise SystemExit",
    "raise KeyboardInterrupt",
)
SCRIPT = """
import builtins, json, os, sys, tempfile
import mlaot.isolation
from mlaot.isolation import isolate

def deep(n):
    return n and deep(n - 1)

folder = os.getcwd()
for number, line in enumerate(json.loads(sys.argv[1])):
    try:
        with isolate():
            exec(compile(line, "model", "exec"), {"builtins": builtins, "os": os, "sys": sys, "tempfile": tempfile})
    except (SystemExit, KeyboardInterrupt):
        pass
    assert os.getcwd() == folder and deep(200) == 0 and len(open(__file__).read()) > 9 and not isinstance(1, str)
    assert sys.modules["mlaot.isolation"] is mlaot.isolation
    import fractions
    del sys.modules["fractions"]
    print("out", number, flush=True)
    print("err", number, file=sys.stderr, flush=True)
"""


def test_the_interpreter_is_as_before(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), json.dumps(HOSTILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    numbers = range(len(HOSTILE))
    assert done.stdout.split("\n") == [*(f"out {n}" for n in numbers), ""]
    assert done.stderr.split("\n") == [*(f"err {n}" for n in numbers), ""]


class Anything:
    """An object that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return self


class Numbers:
    """One whose every attribute is a number."""

    def __getattr__(self, name: str) -> int:
        return 1


class Placed:
    """One with a place of its own."""

    place = np.place
    layers = (SimpleNamespace(neurons=[SimpleNamespace(w=3)]),)


NO_MODELS = [
    *(np, mlaot, Mock(), MagicMock(), Anything(), Numbers(), Placed(), Placed, Anything, mlaot.micrograd.Value),
    *(None, 5, 1.5, "net", b"net", ..., {}, [], [1, 2], (), len, lambda x: x, ValueError("x"), np.zeros(3), mlaot.f32),
    *(mlaot.f32[3], mlaot.dim("n"), mlaot.model, mlaot.Parameter("w", [1.0]), (i for i in ()), type, object(), {1, 2}),
]


@pytest.mark.parametrize("thing", NO_MODELS, ids=lambda thing: type(thing).__name__)
def test_what_is_no_model_is_said_to_be_none(thing: Any) -> None:
    model = ModelSettings("nn", module="digits.nn", model="model:net")
    with pytest.raises(MlaotError) as caught, locate_errors(thing, model):
        trace(thing)
    assert str(caught.value).startswith("model:net: ") and str(caught.value).isprintable()
    assert "expected" in str(caught.value)


def test_a_thread_of_the_model_does_not_keep_the_build(tmp_path: Path) -> None:
    """Nor does anything else that it does to the process."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "digits"\n[tool.mlaot]\nisa = ["base"]\n[tool.mlaot.models.nn]\nmodel = "model:net"\n'
    )
    lines = [line for line in HOSTILE if "raise" not in line and "builtins" not in line]
    (tmp_path / "model.py").write_text(
        "import builtins, os, sys, tempfile, threading\nimport numpy as np, mlaot\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "@mlaot.model\ndef net(x: mlaot.f32[3]):\n    y = np.tanh(x)\n"
        + "".join(f"    {line}\n" for line in lines)
        + "    return y\n"
    )
    command = [sys.executable, "-P", "-m", "mlaot.build.child", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "out" / "digits.nn" / "nn.c").is_file()
