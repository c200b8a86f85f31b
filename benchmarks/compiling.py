"""From a declared model to an importable training module: seconds, memory, size.

    python benchmarks/compiling.py

The scalar graph of the seed's network, in float64 and float32, and examples/lenet. Runs in child processes on one core.
The yardsticks for the first are those of "Compiling ML models to C for fun": 17 to over 987 seconds, 1 to 6 GB, 4.8 to
28 MB with clang or gcc.
"""

from __future__ import annotations

import argparse
import re
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import build, load, one_core, out
from seed import declared

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODELS = {
    "float64": lambda: declared("float64"),
    "float32": lambda: declared("float32"),
    "lenet": lambda: runpy.run_path(str(EXAMPLES / "lenet" / "model.py"))["lenet"],
}


def peak() -> float:
    """MB that this process had at most; ``ru_maxrss`` counts what the process had that started it."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def measure(name: str) -> None:
    started = time.perf_counter()
    model = MODELS[name]()
    built = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library = build(model, "nn", Path(folder))
        compiled = time.perf_counter()
        module = load(library)
        size, weights = library.stat().st_size, module.flat_parameters.nbytes
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        memory = max(peak(), children.ru_maxrss / 1024)
        out(
            f"{name}: declared {built - started:.2f} s, to C and compiled {compiled - built:.2f} s wall; "
            f"{cpu:.2f} s CPU in all"
        )
        out(
            f"  peak memory {memory:.0f} MB; module {size / 1000:.0f} KB = "
            f"weights {weights / 1000:.0f} + {(size - weights) / 1000:.0f} KB"
        )
        out(f"  isa {module.info()['isa']}, {module.info()['parameter_count']:,} parameters")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=MODELS, help="measure this one, in this process")
    chosen = parser.parse_args().model
    if chosen:
        one_core()
        measure(chosen)
        return
    for name in MODELS:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main()
