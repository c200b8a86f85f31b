"""Options of the whole test-suite."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cmake import CMAKE_BIN_DIR

import mlaot
from mlaot.nn import init

from . import instrumented, verified

# Tests start thousands of interpreters: as for users, none compiles what another has compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Jobs in the background ignore Ctrl-C, and so do the processes that they start: tests press it as on a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# NumPy and scikit-learn start a thread a core in each process; these wait in busy loops, for products that are small.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
# Most of what an isolated build installs it never imports.
os.environ["PIP_NO_COMPILE"] = "1"
# The program itself, not the script of the package cmake that starts Python to start it.
os.environ["PATH"] = os.pathsep.join([CMAKE_BIN_DIR, os.environ["PATH"]])
# On a slow machine, too, commands print what tests expect.
os.environ["MLAOT_PATIENCE"] = "inf"
verified.install()
# Graphs and nests are many objects that live long: the collector need not look at them after every 700 of them.
gc.set_threshold(200_000, 10, 10)
instrumented.install()
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


GENERATORS = pytest.StashKey[list[tuple[Any, Any]]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note where the generators of the tests' modules start."""
    for module in {item.getparent(pytest.Module) for item in session.items}:
        if module is not None:
            found = [value for value in vars(module.obj).values() if isinstance(value, np.random.Generator)]
            module.stash[GENERATORS] = [(each.bit_generator, each.bit_generator.state) for each in found]
    gc.freeze()  # thousands of tests are there to the end: the collector need not look at them again and again


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test draws the same numbers, whatever ran before it: which that is depends on how busy the workers are."""
    random.seed(0)
    np.random.seed(0)
    mlaot.random.seed(0)
    init.seed(init.DEFAULT_SEED)
    module = item.getparent(pytest.Module)
    for generator, state in module.stash[GENERATORS] if module is not None else ():
        generator.state = state


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After a module's last test, keep from the collector what caches hold: it is there to the end, too."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what one test process makes and the others of the run use, too."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in ``tests/golden``."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.exists(), f"no {path}; make it by pytest --update-golden"
        assert text == path.read_text(), f"{path} differs; look at it, then pytest --update-golden"

    return check
