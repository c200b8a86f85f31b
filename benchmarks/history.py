"""How fast each commit was: the same rows for some commits, in turns; kept in ``history``, compared, drawn.

    MLAOT_ISA=v3 python benchmarks/history.py                   # measure HEAD and keep its figures: a few minutes
    MLAOT_ISA=v3 python benchmarks/history.py 065e9dc HEAD      # several commits in turns
    MLAOT_ISA=v3 python benchmarks/history.py --compare 065e9dc # this tree beside a commit: the rows that got slower
    python benchmarks/history.py --plot history.svg             # all that is kept; nothing is measured

The rows are the workloads (``workloads.py``), and every ``THIN``-th case of the sweep (``sweep.py``) through mlaot.nn.
The code of each commit builds them in a process of its own, by its own benchmarks where it has them; what a commit
cannot build it has no figure of. Then one process loads the modules of all and times a row after the other, on one
core, the commits taking turns (``sweep.times``). A row got slower if it takes 10 % longer in most of ``PASSES``.

Figures of one run can be compared; those of others only as far as the machine was the same, and as quiet.
"""

from __future__ import annotations

import argparse
import datetime
import io
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT, KEPT = HERE.parent, HERE / "history"
THIN = 50  # of the cases of the sweep, one is a row
PASSES, SLOWER = 3, 1.1
TREE = "this tree"  # in the place of a commit
Figures = list[dict[str, dict[str, float]]]  # of each pass, by row and commit: microseconds
Row = tuple[str, Callable[[], Any], list[Any], dict[str, Any]]  # its name, the model, its inputs, what peers.py reads


# ------------------------------------------------------------------------------- building, by the code of a commit


def rows() -> Iterator[Row]:
    """All rows that the mlaot on the path may know."""
    from workloads import LEARNING_RATE, WORKLOADS, declare, inputs

    for name, work in WORKLOADS.items():
        facts = {"batch": work.batch if work.examples else 0, "rate": LEARNING_RATE, "rows": bool(work.rows_of)}
        yield name, lambda name=name: declare(name), inputs(name), facts
    from networks import seeded_weights
    from sweep import cases, declared_in_nn

    import mlaot.nn

    for case in [case for case in cases() if "nn" in case.doors][::THIN]:
        state = case.network(mlaot.nn).state_dict()
        weights = seeded_weights({key: value.shape for key, value in state.items()})
        yield case.name, lambda case=case, w=weights: declared_in_nn(case, w), [case.input()], {"batch": 0, "rows": 0}


def make(folder: Path) -> None:
    """Compile the rows, each into a folder of its own."""
    from common import build

    from mlaot.schedule.machine import MACHINES

    isas = ("base", os.environ["MLAOT_ISA"]) if os.environ.get("MLAOT_ISA") else tuple(MACHINES)
    try:
        for number, (name, declare, arrays, facts) in enumerate(rows()):
            place = folder / str(number)
            try:
                build(declare(), "nn", place, isas)
                np.savez(place / "inputs.npz", *arrays)
                (place / "workload.json").write_text(json.dumps({"name": name, "parameters": [], **facts}))
            except Exception as error:
                print(f"  {name}: {type(error).__name__}: {error}", file=sys.stderr)
    except ImportError as error:  # of a sweep that is newer than this mlaot
        print(f"  no further rows: {error}", file=sys.stderr)


def build_all(commit: str, folder: Path) -> dict[str, Path]:
    """The folders of a commit's rows, by their names."""
    tree, made = ROOT, folder / "made"
    made.mkdir(parents=True)
    if commit != TREE:
        tree = folder / "tree"
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
    # Without site: an editable install would bring another tree's mlaot.
    packages = dict.fromkeys(sysconfig.get_path(key) for key in ("purelib", "platlib"))
    paths = os.pathsep.join(map(str, (tree / "benchmarks", HERE, tree, *packages)))
    command = [sys.executable, "-S", "-P", __file__, "--make", str(made)]
    print(f"building {commit}", file=sys.stderr)
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths})
    return {json.loads(file.read_text())["name"]: file.parent for file in made.glob("*/workload.json")}


# ----------------------------------------------------------------------------------------------------- measuring


def call_of(place: Path, arrays: list[Any]) -> Callable[[], Any]:
    """A call of what was made in a folder."""
    from peers import mlaot

    work = json.loads((place / "workload.json").read_text())
    turns = [[a[i : i + 1] for a in arrays] for i in range(len(arrays[0]))] if work["rows"] else [arrays]
    run, given = mlaot(place, work), itertools.cycle(turns)
    return lambda: run(*next(given))


def measure(commits: Sequence[str]) -> Figures:
    """Build the rows of each commit, and time them in turns."""
    from common import one_core
    from sweep import times

    with tempfile.TemporaryDirectory(prefix="history-") as name:
        made = {commit: build_all(commit, Path(name, str(i))) for i, commit in enumerate(commits)}
        one_core()
        figures: Figures = []
        for i in range(PASSES):  # each loads the modules anew, in another order: where their memory lies matters, too
            order = [*made.items()][:: -1 if i % 2 else 1]
            figures.append({})
            for row, place in {row: place for places in made.values() for row, place in places.items()}.items():
                arrays = [*np.load(place / "inputs.npz").values()]  # for all commits the same, as vectors lie in them
                figures[-1][row] = times({c: call_of(own[row], arrays) for c, own in order if row in own})
        return figures


def best(figures: Figures, row: str, commit: str) -> float | None:
    """The best time of a row."""
    return min((found[row][commit] for found in figures if commit in found.get(row, {})), default=None)


def slower(figures: Figures, old: str, new: str) -> dict[str, float]:
    """The rows that take longer than before in most passes, and how many times as long."""
    both = [row for row, found in figures[0].items() if {old, new} <= found.keys()]
    ratios = {row: statistics.median(found[row][new] / found[row][old] for found in figures) for row in both}
    return {row: ratio for row, ratio in ratios.items() if ratio >= SLOWER}


# ------------------------------------------------------------------------------------------------------- keeping


def git(*words: str) -> str:
    """What git says of this repository."""
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()


def circumstances() -> dict[str, str]:
    """What figures depend on besides the code."""
    from mlaot.build.toolchain import find_compiler

    cpus = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(": ")[2] for line in cpus if line.startswith("model name")), platform.processor())
    version = subprocess.run([*find_compiler(), "--version"], check=True, capture_output=True, text=True).stdout
    return {
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "machine": f"{model}, {platform.machine()}, Python {platform.python_version()}",
        "compiler": version.splitlines()[0],
        "isa": os.environ.get("MLAOT_ISA", "best"),
    }


def keep(commit: str, figures: Figures, around: dict[str, str]) -> Path:
    """Write the figures of a commit."""
    found = {row: us for row in figures[0] if (us := best(figures, row, commit)) is not None}
    facts = {"commit": commit, "date": git("show", "-s", "--format=%cI", commit), **around}
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{commit}.json"
    path.write_text(json.dumps({**facts, "rows": {row: round(us, 3) for row, us in found.items()}}, indent=1) + "\n")
    return path


def draw(kept: Sequence[dict[str, Any]], path: Path) -> None:
    """A picture: for each row its microseconds over the commits, in the order of their dates."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    kept = sorted(kept, key=lambda one: datetime.datetime.fromisoformat(one["date"]))
    names, columns = [*dict.fromkeys(row for one in kept for row in one["rows"])], 6
    lines = -(-len(names) // columns)
    size = (3 * columns, 2 * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, sharex=True, squeeze=False, layout="constrained")
    for panel in axes.flat[len(names) :]:
        panel.axis("off")
    for panel, name in zip(axes.flat, names, strict=False):
        us = [one["rows"].get(name, float("nan")) for one in kept]
        panel.plot(us, marker="o", markersize=3, color="#0072b2", label="best time of a call")
        panel.set(title=name, ylim=(0, 1.2 * float(np.nanmax(us))), xlim=(-0.5, len(kept) - 0.5))
        panel.title.set_fontsize(8)
        panel.set_xticks(range(len(kept)), [one["commit"] for one in kept], rotation=90)
    for panel in axes.flat[max(len(names) - columns, 0) : len(names)]:  # the last of each column
        panel.tick_params(labelbottom=True)
    figure.suptitle("Time of a call, by commit")
    figure.supxlabel("commit, in the order of their dates")
    figure.supylabel("time of a call (µs)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="whose figures to measure and keep")
    parser.add_argument("--compare", metavar="COMMIT", help="name the rows that are slower in this tree; keep nothing")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw an SVG of what is kept; measure nothing")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(options.make)
    elif options.plot:
        draw([json.loads(file.read_text()) for file in KEPT.glob("*.json")], options.plot)
    elif options.compare:
        found = slower(measure([options.compare, TREE]), options.compare, TREE)
        print(*(f"{row}: {ratio:.2f} times as long" for row, ratio in found.items()), sep="\n")
        raise SystemExit(bool(found))
    else:
        commits = [git("rev-parse", "--short=7", f"{commit}^{{commit}}") for commit in options.commits]
        figures, around = measure(commits), circumstances()
        for commit in commits:
            print(keep(commit, figures, around))


if __name__ == "__main__":
    main()
