"""Train in several processes, with MPI or with PyTorch's gloo.

    python -m examples.scale train              # losses of 1, 2 and 4 processes, then how 2 processes scale
    python -m examples.scale train --kill       # a process is killed at a random step; the job starts again
    mpiexec -n 4 python -m examples.scale train --engine mpi --folder FOLDER
    torchrun --nproc-per-node 4 -m examples.scale train --engine gloo --folder FOLDER

The first two start processes as the others do. A run goes on from the last checkpoint in FOLDER.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from examples.scale import wheels
from examples.scale.training import ENGINES, Array, Group, checkpoints, load_checkpoint, take_step, train

ROWS = 64  # of a piece, where speed is measured
SHAPES = {"mlp": (784,), "lenet": (1, 28, 28)}
ENDS_WITHIN = 30  # seconds


def digits() -> tuple[Array, ...]:
    """Return pixels and labels of the digits to train with."""
    sys.path.append(str(wheels.EXAMPLES / "digits"))
    images, _ = importlib.import_module("data").load()
    pixels = np.frombuffer(b"".join(image for image, _ in images), np.uint8).reshape(-1, 64)
    return pixels, np.array([digit for _, digit in images])


def work(options: argparse.Namespace) -> None:
    """Do the part of one process."""
    group = ENGINES[options.engine]()
    if options.measure:
        speed = rows_per_second(
            options.measure, group, options.batch, options.piece, threads=options.threads, fused=options.fused
        )
        if group.rank == 0:
            print(f"rows per second: {speed}")
        return

    def after(step: int) -> None:
        if options.die == f"{group.rank}@{step}":
            os.kill(os.getpid(), signal.SIGKILL)

    model = importlib.import_module("scale_net.digits").Model()
    _, losses = train(
        model,
        digits(),
        group,
        steps=options.steps,
        batch=options.batch,
        piece=options.piece,
        ordered=options.ordered,
        folder=options.folder,
        after=after,
    )
    if group.rank == 0:
        print(f"{len(losses)} steps, {group.size} processes, last loss {losses[-1]!r}")


def rows_per_second(name: str, group: Group, batch: int, piece: int, *, threads: int, fused: bool) -> float:
    """Train on random rows, and return how many rows all processes do in a second, in the fastest step.

    With ``fused``, a step is one call of ``train_step``.
    """
    module = importlib.import_module("lenet.nn" if name == "lenet" else f"scale_net.{name}")
    model, rng = module.Model(), np.random.default_rng(0)
    model.set_threads(threads)
    kind = np.uint8 if name == "lenet" else np.float32
    data = rng.integers(0, 256, (batch, *SHAPES[name])).astype(kind), rng.integers(0, 10, batch)
    best = 0.0
    for _ in range(300):  # other programs disturb some of them
        group.share(None)  # all begin together
        begun = time.perf_counter()
        if fused:
            model.train_step(*data)
        else:
            take_step(model, group, data, list(range(batch)), piece, ordered=False)
        best = max(best, batch / (time.perf_counter() - begun))
    return best


# What starts the processes.


def launcher(engine: str, processes: int) -> list[str]:
    """Return the command in front of ``-m MODULE``."""
    if engine == "mpi":
        beside = Path(sys.executable).with_name("mpiexec")
        return [str(beside) if beside.exists() else "mpiexec", "-n", str(processes), sys.executable]
    if engine == "gloo":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable]


def start(engine: str, processes: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run this program in several processes, and return what they print."""
    command = [*launcher(engine, processes), "-m", "examples.scale", "train", "--engine", engine, *map(str, arguments)]
    environ = {"OMP_NUM_THREADS": "1"} | wheels.environ(wheels.NET, wheels.LENET)
    return subprocess.run(
        command,
        cwd=wheels.EXAMPLES.parent,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def run(engine: str, processes: int, *arguments: str | Path) -> str:
    """The same for a run that must succeed."""
    done = start(engine, processes, *arguments)
    if done.returncode:
        raise SystemExit(f"{engine}, {processes} processes: status {done.returncode}\n{done.stdout}")
    return done.stdout


def installed() -> list[str]:
    """Return the engines that are here."""
    found = [name for name, module in (("mpi", "mpi4py"), ("gloo", "torch")) if importlib.util.find_spec(module)]
    if not found:
        raise SystemExit('examples.scale train: needs mpi4py and an MPI, or torch; run: pip install -e ".[scale]"')
    return found


def state(folder: Path) -> tuple[list[float], bytes]:
    """Return the losses and the weights of the last checkpoint."""
    return load_checkpoint(folder, Blank()), (checkpoints(folder)[-1] / "weights.safetensors").read_bytes()


class Blank:
    """A model that needs no weights."""

    def load(self, path: Path) -> None:
        """Read nothing."""


def compare(folder: Path, steps: int) -> None:
    """Print how the losses of several processes differ from those of one."""
    print(f"{steps} steps of Adam, joint batches of 100 rows, the last of an epoch of 37, in pieces of 16:")
    common = ("--steps", str(steps), "--batch", "100", "--piece", "16")
    run("alone", 1, *common, "--ordered", "--folder", folder / "alone")
    losses, weights = state(folder / "alone")
    print(f"  one process                 loss {losses[0]!r} to {losses[-1]!r}")
    for engine in installed():
        for processes in (1, 2, 4):
            for mode in ("ordered", "all-reduce"):
                place = folder / f"{engine}-{processes}-{mode}"
                run(engine, processes, *common, *(["--ordered"] if mode == "ordered" else []), "--folder", place)
                other, others_weights = state(place)
                furthest = max(abs(a - b) / abs(b) for a, b in zip(other, losses, strict=True))
                same = "same bits" if (other, others_weights) == (losses, weights) else "other bits"
                print(
                    f"  {engine:4} {processes} x {mode:10}   {same:10}, losses differ by at most {furthest:.1e}",
                    flush=True,
                )
                if mode == "ordered" and same != "same bits":
                    raise SystemExit("the sum in order is not that of one process")


def scale(processes: int, rounds: int) -> None:
    """Print how many rows a second one process trains on, and several."""
    print(f"rows per second, best of {rounds} runs; in brackets the share of {processes} times one process:")
    count = {
        "each process 64 rows": (processes, 1),
        "64 rows in all": (1, 1),
        "each process 4 x 64 rows": (processes, 4),
    }
    for name in SHAPES:
        for title, (times, pieces) in count.items():
            batch = ROWS * times * pieces
            piece = ROWS if times > 1 else ROWS // processes
            alone = ("--batch", batch // times, "--piece", ROWS)
            jobs: dict[str, tuple[Any, ...]] = {"one": ("alone", 1, *alone)}
            jobs |= {engine: (engine, processes, "--batch", batch, "--piece", piece) for engine in installed()}
            jobs["threads"] = ("alone", 1, *alone, "--threads", processes)
            jobs["train_step, one"] = ("alone", 1, *alone, "--fused")
            best = dict.fromkeys(jobs, 0.0)
            for _ in range(rounds):
                for label, (engine, number, *how) in jobs.items():
                    said = run(engine, number, "--measure", name, *map(str, how))
                    best[label] = max(best[label], float(said.partition("rows per second: ")[2].split()[0]))
            one, fused = best.pop("one"), best.pop("train_step, one")
            others = ", ".join(f"{label} {speed:,.0f} ({speed / one / processes:.0%})" for label, speed in best.items())
            print(f"  {name:5} {title:24} one {one:,.0f} (train_step {fused:,.0f}), {others}", flush=True)


def kill(folder: Path, steps: int) -> None:
    """Kill one process at a random step, start again, and compare with a run that nothing disturbed."""
    common = ("--steps", str(steps), "--batch", "100", "--piece", "16")
    for engine in installed():
        whole, killed = folder / f"{engine}-whole", folder / f"{engine}-killed"
        run(engine, 2, *common, "--folder", whole)
        step, rank = random.randrange(1, steps), random.randrange(2)
        begun = time.perf_counter()
        done = start(engine, 2, *common, "--folder", killed, "--die", f"{rank}@{step}")
        seconds = time.perf_counter() - begun
        if done.returncode == 0 or seconds > ENDS_WITHIN:
            raise SystemExit(f"{engine}: status {done.returncode} after {seconds:.0f} s\n{done.stdout}")
        kept = checkpoints(killed)
        reason = next(line.strip() for line in done.stdout.splitlines() if "signal 9" in line.lower())
        print(
            f"{engine}: rank {rank} killed after step {step}; the job ended {seconds:.1f} s after its start: {reason}"
        )
        print(f"  it goes on from {kept[-1].name if kept else 'the start'}", flush=True)
        run(engine, 2, *common, "--folder", killed)
        if state(killed) != state(whole):
            raise SystemExit(f"{engine}: the losses or weights differ from those of the undisturbed run")
        print(f"  all {steps} losses and the weights have the bits of the undisturbed run: {state(whole)[0][-1]!r}")


def main(arguments: list[str]) -> None:
    """Be one process of an engine, or start several and compare."""
    parser = argparse.ArgumentParser(prog="python -m examples.scale train", description="Train in several processes.")
    parser.add_argument("--engine", choices=ENGINES, help="be one of the processes that this engine started")
    parser.add_argument("--folder", type=Path, help="for checkpoints; the last one there is the start")
    parser.add_argument("--steps", type=int, default=200, help="steps in all (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="rows of a joint batch (default: %(default)s)")
    parser.add_argument("--piece", type=int, default=16, help="rows of a forward pass (default: %(default)s)")
    parser.add_argument("--ordered", action="store_true", help="the same bits for any number of processes")
    parser.add_argument("--kill", action="store_true", help="kill a process, start again, compare")
    parser.add_argument("--rounds", type=int, default=3, help="runs of which the fastest counts (default: %(default)s)")
    for hidden in ("--die", "--measure"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--fused", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.engine:
        if not options.folder and not options.measure:
            parser.error("--engine needs --folder")
        work(options)
        return
    folder = options.folder or wheels.WORK / "train"
    shutil.rmtree(folder, ignore_errors=True)
    if options.kill:
        kill(folder, options.steps)
    else:
        compare(folder, options.steps)
        scale(2, options.rounds)
