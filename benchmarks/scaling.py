"""How the cost of a call grows with the width, depth and batch of a network and the number of trees, against the work.

    python benchmarks/scaling.py [--series width,batch] [--plot scaling.svg]

Perceptrons with ReLU and trees of depth 6 for 64 rows, in float32, frozen, on one core, in CPU seconds: of a call the
best of many, of compiling all of it. Of trees an operation is a question, and all 63 of a tree count; they have no
limit here, and their numbers are part of the code. The exponent is the slope of log time over log operations, fitted to
the points of 20 times an empty call and more: 1 is linear.
With ``--plot`` a picture, which needs matplotlib (``pip install -e ".[bench]"``).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import build, load, one_core, out, table
from limits import Machine, cost, measure
from networks import networks, seeded_trees, seeded_weights

import mlaot
from mlaot import nn

batch = mlaot.dim("batch")
DEPTH = 6  # of trees
EMPTY = 20  # calls that are this many times an empty one are all work
LINEAR = 1.05  # an exponent up to this is linear, within what a machine's noise makes of it


@dataclass(frozen=True)
class Point:
    """One network at one batch: what it does and what that takes."""

    size: int
    flops: int
    seconds: float
    limit: float
    compile_seconds: float
    code: int


def perceptron(sizes: tuple[int, ...]) -> Any:
    """A frozen perceptron of those layer sizes, for any batch."""
    net = networks(nn, np)["mlp"](*sizes)
    net.load_state_dict(seeded_weights({name: array.shape for name, array in net.state_dict().items()}))

    @mlaot.model(parameters=net)
    def forward(x: mlaot.f32[batch, sizes[0]]) -> Any:
        return net(x)

    return forward


def forest(sizes: tuple[int, ...]) -> Any:
    """So many trees that ask about so many features, for any batch."""
    features, trees = sizes
    ensemble = nn.TreeEnsemble(**seeded_trees(trees, DEPTH, features))

    @mlaot.model
    def forward(x: mlaot.f32[batch, features]) -> Any:
        return ensemble(x)

    return forward


# The model of a series, and of the size that it changes the model's sizes and the batch.
SERIES: dict[
    str, tuple[Callable[..., Any], Callable[[int], tuple[int, ...]], Callable[[int], int], tuple[int, ...]]
] = {
    "width": (perceptron, lambda n: (n,) * 4, lambda n: 64, (16, 32, 64, 128, 256, 512, 1024)),
    "depth": (perceptron, lambda n: (128,) * (n + 1), lambda n: 64, (1, 2, 4, 8, 16, 32, 64)),
    "batch": (perceptron, lambda n: (256,) * 4, lambda n: n, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)),
    "trees": (forest, lambda n: (30, n), lambda n: 64, (1, 4, 16, 64, 256, 1024)),
}


def measured(series: str, machine: Machine, folder: Path) -> Iterator[Point]:
    """The points of a series; one library serves all that differ in the batch only."""
    make, layers, batch_of, sizes = SERIES[series]
    known: dict[tuple[int, ...], tuple[Any, Any, float, int]] = {}
    for size in sizes:
        shape, rows = layers(size), batch_of(size)
        if shape not in known:
            declared, started = make(shape), _cpu_seconds()
            library = build(declared, "nn", folder / series / str(size))
            known[shape] = declared, load(library), _cpu_seconds() - started, library.stat().st_size
        declared, module, compiling, whole = known[shape]
        x = np.random.default_rng(size).standard_normal((rows, shape[0]), np.float32)
        y = module.forward(x)
        price = cost(declared, {"batch": rows})
        limit, _ = price.limit(machine, x.nbytes + memoryview(y).nbytes)
        work = price.flops
        if make is forest:
            work, limit = rows * size * (2**DEPTH - 1), float("nan")
        yield Point(size, work, _best(module, x, y), limit, compiling, whole - price.weights)


def _best(module: Any, x: Any, y: Any) -> float:
    """The least CPU seconds of a call into ``y``, of 20 blocks of a millisecond or one call."""
    clock, best, count = time.process_time, float("inf"), 1
    for _ in range(20):
        started = clock()
        for _ in range(count):
            module.forward(x, out=y)
        seconds = (clock() - started) / count
        best, count = min(best, seconds), max(1, int(1e-3 / seconds))
    return best


def _cpu_seconds() -> float:
    """Of this process and its children."""
    return sum(os.times()[:4])


def exponent(points: list[Point], machine: Machine) -> float:
    """The slope of log seconds over log operations, where the work outweighs the call."""
    counted = [point for point in points if point.seconds > EMPTY * machine.call]
    if len(counted) < 2:
        return float("nan")
    flops, seconds = np.log([p.flops for p in counted]), np.log([p.seconds for p in counted])
    return float(np.polyfit(flops, seconds, 1)[0])


def show(series: str, points: list[Point], machine: Machine) -> None:
    rows = [
        [
            str(p.size),
            f"{p.flops / 1e6:,.3f}",
            f"{p.seconds * 1e6:,.2f}",
            f"{p.flops / p.seconds / 1e9:,.1f}",
            "-" if np.isnan(p.limit) else f"{p.seconds / p.limit:.1f}",
            f"{p.compile_seconds:.1f}",
            f"{p.code / 1000:,.0f}",
        ]
        for p in points
    ]
    table([series, "MFLOP", "us", "GFLOP/s", "time / limit", "compile s", "code KB"], rows)
    slope = exponent(points, machine)
    out(
        f"{series}: time grows as work to the power {slope:.2f}: {'linear or better' if slope <= LINEAR else 'worse'}\n"
    )


def plot(found: dict[str, list[Point]], path: Path) -> None:
    """Microseconds over operations, a line a series, and the limits."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(4.5 * len(found), 4), squeeze=False, layout="constrained")
    for (series, points), axis in zip(found.items(), axes[0], strict=True):
        work = [p.flops / 1e6 for p in points]
        axis.loglog(work, [p.seconds * 1e6 for p in points], "o-", color="#0072b2", label="mlaot")
        if not np.isnan(points[0].limit):
            axis.loglog(work, [p.limit * 1e6 for p in points], "--", color="#d55e00", label="limit of the machine")
        axis.set(title=f"by {series}", xlabel="work of a call (MFLOP)", ylabel="time of a call (µs)")
        axis.legend()
    figure.suptitle("Time of a call, by its work")
    figure.savefig(path)
    out(f"plot: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", default=",".join(SERIES), help="of %(default)s")
    parser.add_argument("--plot", type=Path, help="file for a picture, such as scaling.svg")
    options = parser.parse_args()
    wanted = options.series.split(",")
    if unknown := set(wanted) - set(SERIES):
        raise SystemExit(f"no series is called {', '.join(sorted(unknown))}; there are {', '.join(SERIES)}")
    one_core()
    machine = measure()
    found: dict[str, list[Point]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for series in wanted:
            found[series] = []
            for point in measured(series, machine, Path(folder)):
                found[series].append(point)
                out(f"{series} {point.size}: {point.seconds * 1e6:,.2f} us")
            show(series, found[series], machine)
    if options.plot:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
