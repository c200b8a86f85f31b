"""Train one model in several processes: each has a part of every batch, and all make the same update.

A joint batch is cut into pieces of fixed size, whatever the number of processes: piece k belongs to process k % size.
The gradient of the batch is the mean over its examples, so a piece counts by its number of examples. The pieces of all
steps are numbered, and random numbers depend on the number of the piece, not on the process.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Piece = tuple[int, list[int]]  # its number, and its examples
KEPT = 2  # checkpoints
RANDOM = "random"  # the buffer of what dropout draws from: a key of two words, and a counter


@dataclass(frozen=True)
class Group:
    """The processes that train together, and what their engine does for them."""

    rank: int
    size: int
    gather: Callable[[Array], Array]  # the arrays of all processes, along a new first axis, in order of rank
    add_up: Callable[[Array], None]  # replaces an array by the sum over all processes, in an order of the engine's
    share: Callable[[Any], Any]  # the object of rank 0


def alone() -> Group:
    """One process, without an engine."""
    return Group(0, 1, lambda array: array[None], lambda array: None, lambda made: made)


def mpi() -> Group:
    """The processes that ``mpiexec`` started; when one dies, it ends the others."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def gather(array: Array) -> Array:
        everything = np.empty((comm.size, *array.shape), array.dtype)
        comm.Allgather(array, everything)
        return everything

    def add_up(array: Array) -> None:
        comm.Allreduce(MPI.IN_PLACE, array)

    return Group(comm.rank, comm.size, gather, add_up, comm.bcast)


def gloo(seconds: float = 25) -> Group:
    """The processes that ``torchrun`` started; a call raises when another process died, or does not answer in time."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    atexit.register(dist.destroy_process_group)  # its threads must not outlive the interpreter

    def gather(array: Array) -> Array:
        everything = np.empty((dist.get_world_size(), *array.shape), array.dtype)
        dist.all_gather([*torch.from_numpy(everything)], torch.from_numpy(array))
        return everything

    def share(made: Any) -> Any:
        box = [made]
        dist.broadcast_object_list(box)
        return box[0]

    return Group(
        dist.get_rank(), dist.get_world_size(), gather, lambda array: dist.all_reduce(torch.from_numpy(array)), share
    )


ENGINES: dict[str, Callable[[], Group]] = {"alone": alone, "gloo": gloo, "mpi": mpi}


def orders(examples: int, seed: int) -> Iterator[list[int]]:
    """Yield the order of the examples in each epoch, which is that of ``fit``: it depends on the seed alone."""
    order, state = list(range(examples)), seed
    while True:
        for i in range(examples):
            state = (state + 0x9E3779B97F4A7C15) % 2**64
            z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
            z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
            k = i + ((z ^ z >> 31) * (examples - i) >> 64)
            order[i], order[k] = order[k], order[i]
        yield list(order)


def batches(examples: int, batch: int, seed: int) -> Iterator[list[int]]:
    """Yield the examples of one step after the other; the last batch of an epoch may be smaller."""
    for order in orders(examples, seed):
        for start in range(0, examples, batch):
            yield order[start : start + batch]


def take_step(
    model: Any, group: Group, data: tuple[Array, ...], rows: list[int], piece: int, ordered: bool, first: int = 0
) -> float:
    """Do one update with the mean gradient of the joint batch ``rows``; ``first`` is the number of its first piece.

    Return the loss of the batch from before the update: with ``ordered`` all of it, else what this process's rows add
    to it. So the engine adds up the losses of many steps at once.
    """
    pieces = [(first + k, rows[start : start + piece]) for k, start in enumerate(range(0, len(rows), piece))]
    loss = add_in_order(model, group, data, pieces) if ordered else add_by_engine(model, group, data, pieces)
    model.update()
    return loss


def add_by_engine(model: Any, group: Group, data: tuple[Array, ...], pieces: list[Piece]) -> float:
    """Add up the gradients of this process's pieces, then let the engine add up those of all, in the model's memory."""
    gradient, loss = np.asarray(model.flat_gradients), 0.0
    piece, count = len(pieces[0][1]), sum(len(rows) for _, rows in pieces)
    model.zero_grad()
    for number, own in reversed(pieces[group.rank :: group.size]):
        loss += accumulate(model, data, number, own)
        if len(own) < piece:  # the last piece of all, and the first one here
            gradient *= len(own) / piece
    gradient *= piece / count
    group.add_up(gradient)
    return loss / count


def add_in_order(model: Any, group: Group, data: tuple[Array, ...], pieces: list[Piece]) -> float:
    """Get the gradients of all pieces to every process, which adds them in order: its bits are those of one process."""
    gradient, loss = np.asarray(model.flat_gradients), np.zeros(1)
    total, count = np.zeros_like(gradient), sum(len(rows) for _, rows in pieces)
    for first in range(0, len(pieces), group.size):
        model.zero_grad()
        part = np.zeros(1)
        for number, own in pieces[first : first + group.size][group.rank : group.rank + 1]:
            part += accumulate(model, data, number, own)
            gradient *= len(own)
        for one in group.gather(gradient):
            total += one
        for value in group.gather(part):
            loss += value
    np.divide(total, count, out=gradient)
    return float(loss[0]) / count


def accumulate(model: Any, data: tuple[Array, ...], number: int, rows: list[int]) -> float:
    """Add the mean gradient of a piece to the model's gradients, and return the sum of its losses."""
    if RANDOM in getattr(model, "buffers", ()):
        np.asarray(model.buffers[RANDOM])[2] = number % 2**32
    return float(model.accumulate(*(array[rows] for array in data))) * len(rows)


def save_checkpoint(folder: Path, model: Any, losses: list[float]) -> None:
    """Write weights, the optimizer's state and the losses of all steps so far, as one folder that is whole or absent.

    Two checkpoints stay: this one, and the one before.
    """
    done = folder / f"step-{len(losses):08}"
    begun = folder / f".{done.name}"
    shutil.rmtree(begun, ignore_errors=True)  # of a process that was killed here
    begun.mkdir(parents=True)
    model.save(begun / "weights.safetensors")
    (begun / "losses.json").write_text(json.dumps(losses))
    for path in (*begun.iterdir(), begun):
        flush(path)
    begun.rename(done)
    flush(folder)
    for old in checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old)


def flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def checkpoints(folder: Path) -> list[Path]:
    """Return the whole checkpoints of a folder, the last one at the end."""
    return sorted(folder.glob("step-*"))


def load_checkpoint(folder: Path, model: Any) -> list[float]:
    """Give the model the state of the last checkpoint, if there is one, and return the losses of the steps so far."""
    found = checkpoints(folder)
    if not found:
        return []
    model.load(found[-1] / "weights.safetensors")
    losses: list[float] = json.loads((found[-1] / "losses.json").read_text())
    return losses


def train(
    model: Any,
    data: tuple[Array, ...],
    group: Group,
    *,
    steps: int,
    batch: int,
    piece: int,
    ordered: bool,
    folder: Path,
    seed: int = 0,
    every: int = 50,
    after: Callable[[int], None] = lambda step: None,
) -> tuple[Any, list[float]]:
    """Train up to step ``steps`` from the last checkpoint in ``folder``; return the model and the losses of all steps.

    Rank 0 alone reads and writes checkpoints, one in ``every`` steps and one at the end. The others get the start from
    it, so they need no common folder. ``after`` is called with the number of steps that are done.
    """
    if np.asarray(model.flat_gradients).dtype.kind != "f":
        raise ValueError(
            "the parameters have several types, so their gradients are no vector; declare them with one type"
        )
    running = [name for name in getattr(model, "buffers", ()) if name != RANDOM]
    if ordered and running:
        raise ValueError(f"ordered: buffers depend on the number of processes; this model has {', '.join(running)}")
    losses = load_checkpoint(folder, model) if group.rank == 0 else []
    model, losses = group.share((model, losses))
    own = list[float]()  # of the steps since the last checkpoint
    for step, rows in enumerate(batches(len(data[0]), batch, seed)):
        if step == steps:
            break
        if step < len(losses):
            continue
        own.append(take_step(model, group, data, rows, piece, ordered, step * math.ceil(batch / piece)))
        if (step + 1) % every == 0 or step + 1 == steps:
            added = np.array(own)
            if not ordered:
                group.add_up(added)
            losses += added.tolist()
            own.clear()
            if group.rank == 0:
                save_checkpoint(folder, model, losses)
        after(step + 1)
    return model, losses
