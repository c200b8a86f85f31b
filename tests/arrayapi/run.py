"""The special cases of the array API test suite against mlaot, by the oracle or as compiled C.

    git clone --recurse-submodules https://github.com/data-apis/array-api-tests SUITE
    pip install -r SUITE/requirements.txt
    python -m tests.arrayapi.run --suite SUITE                        # the oracle
    python -m tests.arrayapi.run --suite SUITE --compiled --isa v3    # compiled C; every instruction set without --isa

Prints how many passed, failed and do not apply, with their names. Where NumPy decides otherwise, as the standard lets a
library do that follows Python (``inf // 1`` is nan), cases count apart: mlaot's functions are NumPy's.
``test_special_cases.py`` holds these to NumPy's results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..compiled import AVAILABLE
from . import adapter
from .engines import Compiled, Engine, oracle

CASES = Path(__file__).parent / "cases.json"
FUNCTIONS = {f"__{word}__": name for word, name in (adapter.OPERATORS | adapter.COMPARISONS | adapter.UNARY).items()}
FUNCTIONS |= {f"__i{word}__": name for word, name in adapter.OPERATORS.items()}


class Recorder:
    """A plugin of pytest: leaves out what does not apply, and writes down how the rest went."""

    def __init__(self) -> None:
        self.results: dict[str, list[str]] = {"passed": [], "failed": [], "as NumPy": []}
        self.absent: Counter[str] = Counter()
        self.numpys = numpys()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = []
        for item in items:
            reason = not_applicable(getattr(item, "callspec", None))
            if reason:
                self.absent[reason] += 1
            else:
                kept.append(item)
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        name = report.nodeid.rpartition("::")[2]
        kind = "passed" if report.passed else "as NumPy" if self._is_numpys(name) else "failed"
        self.results[kind].append(name)

    def _is_numpys(self, name: str) -> bool:
        """Whether NumPy is known to decide the case ``test_binary[pow(condition) -> result]`` otherwise."""
        function, _, rest = name.partition("[")[2].rstrip("]").partition("(")
        return (FUNCTIONS.get(function, function), rest) in self.numpys


def numpys() -> set[tuple[str, str]]:
    """Functions and cases in which NumPy departs from the standard."""
    cases = json.loads(CASES.read_text())["cases"] if CASES.exists() else []
    return {(c["function"], "{condition}) -> {result}".format(**c)) for c in cases if "numpy" in c}


def not_applicable(callspec: Any) -> str:
    """Why a test does not concern mlaot, or nothing."""
    parameters = callspec.params if callspec else {}
    if getattr(parameters.get("case"), "is_complex", False):
        return "complex numbers"
    name = parameters.get("func_name") or parameters.get("iop_name") or ""
    return "" if hasattr(adapter, FUNCTIONS.get(name, name)) else f"no function {name}"


def run(suite: Path, engine: Engine, options: Sequence[str]) -> Recorder:
    """Run the suite's special cases by ``engine``."""
    adapter.use(engine)
    recorder = Recorder()
    files = str(suite / "array_api_tests" / "test_special_cases.py")
    # Nothing of this project's own settings: the suite is run by its own.
    own = ["--rootdir", str(suite), "-c", str(suite / "pytest.ini"), "-p", "no:cacheprovider", "--disable-deadline"]
    pytest.main([*own, "-q", "--no-header", "-W", "ignore", "--tb=line", *options, files], plugins=[recorder])
    return recorder


def report(title: str, recorder: Recorder) -> None:
    """Counts, then names."""
    results, absent = recorder.results, recorder.absent
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in results.items())
    print(f"\n{title}: {counts}, {sum(absent.values())} not applicable")
    for kind in ("failed", "as NumPy"):
        for name in results[kind]:
            print(f"  {kind}: {name}")
    for reason, count in sorted(absent.items()):
        print(f"  not applicable: {reason} ({count})")


def main() -> int:
    """Every engine asked for; 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True, help="checkout of array-api-tests with its submodule")
    parser.add_argument("--compiled", action="store_true", help="run compiled C instead of the oracle")
    parser.add_argument("--isa", choices=AVAILABLE, action="append", help="instruction set; every one unless given")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "mlaot-arrayapi", help="libraries")
    given, options = parser.parse_known_args()
    suite = given.suite.resolve()
    os.environ["ARRAY_API_TESTS_MODULE"] = adapter.__name__
    sys.path.insert(0, str(suite))
    engines: dict[str, Engine] = {"oracle": oracle}
    if given.compiled:
        engines = {f"compiled {isa}": Compiled(isa, given.cache) for isa in given.isa or AVAILABLE}
    recorders = {title: run(suite, engine, options) for title, engine in engines.items()}
    for title, recorder in recorders.items():
        report(title, recorder)
    return int(any(r.results["failed"] or not r.results["passed"] for r in recorders.values()))


if __name__ == "__main__":
    raise SystemExit(main())
