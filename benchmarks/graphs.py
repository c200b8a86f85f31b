"""What large graphs cost: seconds of passes and lowering, and of the compiler for one instruction set.

    python benchmarks/graphs.py                   # chains of 175, 2,000 and 100,000 steps, sums of 500 to 10,000
    python benchmarks/graphs.py --graphs chain,sum --sizes 1000,2000

CPU seconds of this process, and of the compiler. Files of kernels that are too long to be optimized are marked.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import one_core, table

import mlaot
from mlaot import passes
from mlaot.files import program_files
from mlaot.interpreter import no_collection
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.printing.cmake import unit_flags
from mlaot.report.build import long_files

ISA = "base"


def chain(n: int) -> Any:
    """A chain of ``y * c + d``."""

    @mlaot.model
    def model(x: mlaot.f64[3]) -> Any:
        y = x
        for i in range(n):
            y = y * 0.999 + (0.001 if i % 2 else -0.001)
        return y

    return model


def functions(n: int) -> Any:
    """A chain of sines."""

    @mlaot.model
    def model(x: mlaot.f64[3]) -> Any:
        for _ in range(n):
            x = np.sin(x)
        return x

    return model


def terms(n: int) -> Any:
    """A sum of hyperbolic tangents."""

    @mlaot.model
    def model(x: mlaot.f64[3]) -> Any:
        return sum(np.tanh(x * (1 + i * 1e-3)) for i in range(n))

    return model


def products(n: int) -> Any:
    """A chain of products with matrices."""

    @mlaot.model
    def model(x: mlaot.f64[3, 4]) -> Any:
        for i in range(n):
            x = np.tanh(x @ (np.eye(4) * (i + 1)))
        return x

    return model


GRAPHS: dict[str, tuple[Callable[[int], Any], tuple[int, ...]]] = {
    "chain": (chain, (175, 2_000, 100_000)),
    "functions": (functions, (175, 2_000, 20_000)),
    "sum": (terms, (500, 5_000, 10_000)),
    "products": (products, (100, 1_000, 3_000)),
}


def measure(name: str, size: int) -> list[str]:
    """A row of the table."""
    started = time.process_time()
    with no_collection():
        graphs = passes.run("m", trace(GRAPHS[name][0](size)))
        program = lower(graphs)
        nodes = sum(len(graph.nodes()) for graph in graphs.graphs.values())
        passed = time.process_time() - started
        files = program_files(program)
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            Path(folder, file).write_bytes(content.encode() if isinstance(content, str) else content)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        flags = unit_flags("m", (ISA,), deterministic=False)[f"m_{ISA}"]
        subprocess.run(["cc", *flags, "-fPIC", "-c", f"m_{ISA}.c", "-o", "m.o"], cwd=folder, check=True)
        compiled = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    kernels = files[f"m_{ISA}.c"]
    assert isinstance(kernels, str)
    how = "-O1" if long_files("m", files) else "-O2"
    lines = f"{kernels.count(chr(10)):,}"
    per_thousand = f"{1000 * passed / nodes:.2f}"
    return [name, f"{size:,}", f"{nodes:,}", f"{passed:.1f}", per_thousand, lines, f"{compiled:.1f}", how]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS), help=f"out of {', '.join(GRAPHS)}")
    parser.add_argument("--sizes", help="such as 100,1000; each graph's own unless given")
    options = parser.parse_args()
    one_core()
    rows = []
    for name in options.graphs.split(","):
        for size in map(int, options.sizes.split(",")) if options.sizes else GRAPHS[name][1]:
            rows.append(measure(name, size))
            print(*rows[-1], flush=True)
    heads = ["graph", "size", "nodes", "passes s", "a 1,000 nodes", "lines of C", "cc s", "at"]
    table(heads, rows)


if __name__ == "__main__":
    main()
