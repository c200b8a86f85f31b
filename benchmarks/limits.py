"""The least time that a workload can take on this machine: its arithmetic, its bytes, and a call.

    python benchmarks/limits.py

This command prints the peak of one core, the bandwidths of some footprints, and the cost of a call.
"""

import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from common import load, one_core, out

from mlaot.build.toolchain import find_compiler
from mlaot.ir import Dim, Graph, Node
from mlaot.ir.dims import substitute
from mlaot.ir.subgraph import subgraphs
from mlaot.loading import trace
from mlaot.ops import reduction
from mlaot.passes.algebra.simplify import simplify
from mlaot.passes.raising.contract import contract
from mlaot.passes.subgraphs import everywhere

SOURCE = Path(__file__).with_name("limits.c")


@dataclass
class Machine:
    """One core: operations a second, seconds of a call, and bytes a second by footprint, measured when asked for."""

    module: Any
    peak: float
    call: float
    bandwidths: dict[int, float] = field(default_factory=dict)

    def bandwidth(self, footprint: int) -> float:
        """Bytes a second, read again and again from a block of ``footprint`` bytes."""
        size = max(1 << (footprint - 1).bit_length() >> 2, 4096)  # within a third above what is asked for
        size *= -(-footprint // size)
        if size not in self.bandwidths:
            block = np.ones(size + 4096, np.uint8)  # zeros would all be one page of memory
            block = block[-block.ctypes.data % 4096 :][:size]
            total = self.module.read(block)
            self.bandwidths[size] = total / _best(lambda: self.module.read(block))
        return self.bandwidths[size]


@dataclass(frozen=True)
class Cost:
    """What a workload cannot do without: floating-point operations, and bytes of weights, inputs and outputs.

    ``weights`` are bytes once; ``traffic`` counts those of a recurrence at every step, and a step of training reads and
    writes them.
    """

    flops: int
    weights: int
    traffic: int

    def limit(self, machine: Machine, arrays: int, steps: int = 1) -> tuple[float, str]:
        """Seconds of so many evaluations in a call, and what they are bound by; ``arrays``: bytes in and out."""
        parts = {
            "flops": steps * self.flops / machine.peak,
            "bytes": (steps * self.traffic + arrays) / machine.bandwidth(self.weights + arrays),
            "call": machine.call,
        }
        return max(parts["flops"], parts["bytes"]) + machine.call, max(parts, key=lambda name: parts[name])


def measure() -> Machine:
    """Compile ``limits.c`` for this machine, or for what ``MLAOT_ISA`` keeps mlaot to, and ask it."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "limits.abi3.so")
        include = f"-I{files('mlaot') / 'templates'}", f"-I{SOURCE.parents[1] / 'templates'}"  # a wheel; a clone
        isa = os.environ.get("MLAOT_ISA", "")
        march = {"base": "x86-64", "v3": "x86-64-v3", "v4": "x86-64-v4"}.get(isa, "native")
        options = ("-O2", f"-march={march}", "-ffp-contract=fast", "-fno-strict-aliasing", "-fPIC", "-shared")
        subprocess.run([*find_compiler(), *options, *include, SOURCE, "-o", library], check=True)
        module = load(library)
    flops = module.multiply_add(1 << 18)
    array, calls = np.zeros((1, 784), np.float32), range(10000)

    def call() -> None:
        for _ in calls:
            module.call(array)

    def empty() -> None:
        for _ in calls:
            pass

    return Machine(module, flops / _best(lambda: module.multiply_add(1 << 18)), (_best(call) - _best(empty)) / 10000)


def _best(work: Callable[[], object], rounds: int = 30) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def cost(declared: Any, dims: Mapping[str, int]) -> Cost:
    """Of one evaluation of a declared model, or one step of training, as its user wrote it.

    Convolutions count directly, of causal attention all scores do.
    """
    traced = trace(declared)
    graph = traced.graph
    for graph_pass in (simplify, contract):
        everywhere(graph_pass, graph)
    weights = sum(array.nbytes for array in traced.parameters.values())
    flops, again = _counted(graph, dims, traced.trains)
    flops *= dims["batch"] if traced.per_example else 1
    return Cost(flops, weights, 2 * weights if traced.trains else weights + again)


def _counted(graph: Graph, dims: Mapping[str, int], trains: bool) -> tuple[int, int]:
    """Operations of the contractions; bytes that loops read in all rounds but the first.

    To train, each operand that depends on a parameter has a gradient, which is a contraction of the same size.
    """
    flops = again = 0
    trained: set[Node] = set()
    for node in graph.nodes():
        args = [a.find() for a in node.args]
        if node.attrs.get("parameter") or trained.intersection(args):
            trained.add(node)
        if node.op is reduction.contract:
            first, second, _ = reduction.parse_spec(node.attrs["spec"])
            extents = dict(zip(first + second, (*args[0].type.shape, *args[1].type.shape), strict=True))
            times = 1 + sum(a in trained for a in args) if trains else 1
            flops += 2 * times * _product(extents.values(), dims)
        for body in subgraphs(node.attrs).values():
            rounds = substitute(node.attrs.get("length", 1), dims)
            inner, more = _counted(body.graph, dims, False)
            constants = args[: node.attrs.get("consts", 0)]
            size = sum(_product(a.type.shape, dims) * a.type.dtype.itemsize for a in constants)
            flops, again = flops + rounds * inner, again + rounds * more + (rounds - 1) * size
    return flops, again


def _product(extents: Iterable[Dim], dims: Mapping[str, int]) -> int:
    return math.prod(int(substitute(d, dims)) for d in extents)


def main() -> None:
    one_core()
    machine = measure()
    out(f"peak {machine.peak / 1e9:.1f} GFLOP/s, call {machine.call * 1e9:.0f} ns")
    for kib in (16, 32, 64, 256, 512, 1024, 2048, 8192, 16384, 32768, 65536):
        out(f"{kib:6} KiB {machine.bandwidth(kib << 10) / 1e9:7.1f} GB/s")


if __name__ == "__main__":
    main()
