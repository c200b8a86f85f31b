"""Training in several processes: here they are threads, and the engine is a barrier."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mlaot
from examples.scale.training import (
    Group,
    accumulate,
    alone,
    batches,
    checkpoints,
    load_checkpoint,
    orders,
    save_checkpoint,
    train,
)
from mlaot import nn, optim
from mlaot.nn import functional as F

from .. import projects

RNG = np.random.default_rng(3)
DATA = RNG.standard_normal((11, 3)).astype("float32"), RNG.integers(0, 3, 11)
JOB: dict[str, Any] = {"steps": 8, "batch": 5, "piece": 2, "seed": 7}  # an epoch is of 5, 5 and 1 rows


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A compiled model: 3-4-3, with Adam."""
    return build(tmp_path_factory, nn.Tanh())


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The same with dropout."""
    return build(tmp_path_factory, nn.Tanh(), nn.Dropout(0.3))


def build(tmp_path_factory: pytest.TempPathFactory, *between: nn.Module) -> ModuleType:
    rng = np.random.default_rng(1)
    layers = nn.Sequential(nn.Linear(3, 4, rng=rng), *between, nn.Linear(4, 3, rng=rng))

    def loss(out: Any, y: mlaot.i64) -> Any:
        return F.cross_entropy(out, y)

    @mlaot.model(loss=loss, optimizer=optim.Adam(lr=0.1), parameters=layers)
    def tiny(x: mlaot.f32[3]) -> Any:
        return layers(x)

    return projects.load(projects.build_module(tiny, "tiny", tmp_path_factory.mktemp("net") / "site", ("base",)))


def train_on(module: ModuleType, size: int, folder: Path, ordered: bool) -> list[tuple[Any, list[float]]]:
    """What ``train`` returns on each of ``size`` ranks; ``add_up`` adds the last rank first."""
    barrier, slots = threading.Barrier(size), [None] * size

    def exchange(rank: int, made: Any) -> list[Any]:
        slots[rank] = copy.deepcopy(made)
        barrier.wait()
        everything = list(slots)
        barrier.wait()
        return everything

    def add_up(rank: int, array: np.ndarray[Any, Any]) -> None:
        array[...] = sum(reversed(exchange(rank, array)), np.zeros_like(array))

    def work(rank: int) -> tuple[Any, list[float]]:
        group = Group(
            rank,
            size,
            lambda array: np.stack(exchange(rank, array)),
            lambda array: add_up(rank, array),
            lambda made: copy.deepcopy(exchange(rank, made)[0]),
        )
        try:
            return train(module.Model(), DATA, group, ordered=ordered, folder=folder, **JOB)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))


def test_order_is_that_of_fit_and_of_the_seed_alone(net: ModuleType) -> None:
    """Each epoch has all examples once; steps by hand in this order are ``fit`` with this seed."""
    first, second = islice(orders(11, 7), 2)
    assert sorted(first) == sorted(second) == list(range(11)) and first != second
    assert list(islice(batches(11, 5, 7), 4)) == [first[:5], first[5:10], first[10:], second[:5]]
    by_hand, fitted = net.Model(), net.Model()
    for rows in islice(batches(11, 5, 7), 6):
        by_hand.train_step(DATA[0][rows], DATA[1][rows])
    fitted.fit(*DATA, batch=5, epochs=2, seed=7)
    assert bytes(by_hand.flat_parameters) == bytes(fitted.flat_parameters)


def test_ordered_sums_have_the_same_bits_for_any_number_of_ranks(net: ModuleType, tmp_path: Path) -> None:
    """Losses and parameters on every rank, also where some ranks have no rows."""
    one, losses = train_on(net, 1, tmp_path / "1", True)[0]
    for size in (2, 3, 4):
        for model, others in train_on(net, size, tmp_path / str(size), True):
            assert others == losses
            assert bytes(model.flat_parameters) == bytes(one.flat_parameters)


@pytest.mark.parametrize("ordered", [True, False])
def test_ranks_train_as_one_process_on_the_joint_batch(net: ModuleType, tmp_path: Path, ordered: bool) -> None:
    """The mean over a batch is right for pieces and shares of unequal size."""
    whole = net.Model()
    losses = [whole.train_step(DATA[0][rows], DATA[1][rows]) for rows in islice(batches(11, 5, 7), JOB["steps"])]
    for size in (1, 2, 4):
        for model, others in train_on(net, size, tmp_path / str(size), ordered):
            np.testing.assert_allclose(others, losses, rtol=1e-6)
            np.testing.assert_allclose(model.flat_parameters, whole.flat_parameters, rtol=1e-5, atol=1e-6)


def test_random_numbers_belong_to_pieces(dropping: ModuleType, tmp_path: Path) -> None:
    """Dropout gives the same bits for any number of ranks, all along a training with a restart; no two pieces share."""
    one, losses = train_on(dropping, 1, tmp_path / "1", True)[0]
    train(dropping.Model(), DATA, alone(), ordered=True, folder=tmp_path / "2", **JOB | {"steps": 3})
    for model, others in train_on(dropping, 2, tmp_path / "2", True):
        assert others == losses
        assert bytes(model.flat_parameters) == bytes(one.flat_parameters)
    for model, others in train_on(dropping, 2, tmp_path / "by engine", False):
        np.testing.assert_allclose(others, losses, rtol=1e-5)
        np.testing.assert_allclose(model.flat_parameters, one.flat_parameters, rtol=1e-4, atol=1e-6)
    same = [1, 1, 1, 1], dropping.Model()
    first, second, again = (accumulate(same[1], DATA, number, same[0]) for number in (3, 4, 3))
    assert first == again != second


def test_parameters_of_several_types_are_refused(tmp_path: Path) -> None:
    """Their gradients are bytes, which no engine can add up."""
    mixed = SimpleNamespace(flat_gradients=np.zeros(12, np.uint8))
    with pytest.raises(ValueError, match="several types"):
        train(mixed, DATA, alone(), ordered=False, folder=tmp_path, **JOB)


def test_training_goes_on_from_a_checkpoint(net: ModuleType, tmp_path: Path) -> None:
    """With the optimizer's state, the same bits as without an interruption, on another number of ranks, too."""
    whole, losses = train(net.Model(), DATA, alone(), ordered=True, folder=tmp_path / "whole", **JOB)
    train(net.Model(), DATA, alone(), ordered=True, folder=tmp_path / "two", **JOB | {"steps": 4})
    for model, others in train_on(net, 2, tmp_path / "two", True):
        assert others == losses
        assert bytes(model.flat_parameters) == bytes(whole.flat_parameters)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from examples.scale import training
from mlaot.probe.beside import load_file

flush, calls = training.flush, 0
def kill(path):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    flush(path)
training.flush = kill
model = load_file("tiny.nn", Path(sys.argv[1])).Model()
for losses in ([1.0], [1.0, 2.0]):
    model.flat_parameters[0] = float(len(losses))
    training.save_checkpoint(Path(sys.argv[2]), model, losses)
"""


# Of the second checkpoint: its first file is written, all is written, all is renamed.
@pytest.mark.parametrize("call, whole", [(5, 1), (7, 1), (8, 2)])
def test_a_kill_leaves_a_whole_checkpoint(net: ModuleType, tmp_path: Path, call: int, whole: int) -> None:
    """The one before, or the new one; what was begun does not disturb the next."""
    folder, model = tmp_path / "out", net.Model()
    command = [sys.executable, "-c", KILLED, str(net.__file__), folder, str(call)]
    done = subprocess.run(command, cwd=projects.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert load_checkpoint(folder, model) == [1.0, 2.0][:whole]
    assert model.flat_parameters[0] == whole
    for steps in range(whole + 1, 5):
        save_checkpoint(folder, model, [0.0] * steps)
    assert [path.name for path in checkpoints(folder)] == ["step-00000003", "step-00000004"]
    assert len(list(folder.iterdir())) == 2
