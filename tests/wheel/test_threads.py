"""Many threads at once: no answer is ever wrong."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

COUNT = 24


@pytest.fixture(autouse=True)
def eager_switches() -> Iterator[None]:
    """Let the interpreter change threads a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def run_threads(work: Callable[[int], int]) -> int:
    """Run ``work(0)`` .. ``work(COUNT - 1)`` side by side; the sum of what they return. The first error is raised."""
    results: list[int] = []
    errors: list[BaseException] = []
    start = threading.Barrier(COUNT)

    def guarded(number: int) -> None:
        try:
            start.wait()
            results.append(work(number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(results)


def pixels(number: int, rows: int) -> memoryview:
    """Different images for each thread."""
    return memoryview(bytes((number * 7 + i * 5 + i // 64) % 17 for i in range(rows * 64))).cast("B", (rows, 64))


def test_frozen_module(serving: ModuleType) -> None:
    """480,000 calls of one module, with and without memory of the caller's own, and some long enough to run at once."""

    def work(number: int) -> int:
        x = array("f", [float(v) for v in pixels(number, 1).tobytes()])
        many = memoryview(array("f", list(x) * 600)).cast("B").cast("f", (600, 64))
        expected, long = bytes(serving.forward(x)), bytes(serving.forward(many))
        out = array("f", bytes(40))
        forward, wrong = serving.forward, 0
        for call in range(20_000):
            if call % 2:
                wrong += bytes(forward(x)) != expected
            else:
                forward(x, out=out)
                wrong += out.tobytes() != expected
            if call % 4000 == 0:
                wrong += bytes(forward(many)) != long
        return wrong

    assert run_threads(work) == 0


def test_models_of_their_own(training: ModuleType) -> None:
    """Models trained side by side end where one trained alone ends."""

    def train(number: int, steps: int) -> tuple[list[float], bytes]:
        model = training.Model()
        x, labels = pixels(number, 4), array("q", [number % 10, 1, 2, 3])
        losses = [model.train_step(x, labels, lr=0.01) for _ in range(steps)]
        return losses, bytes(model.flat_parameters)

    alone = [train(number, 2000) for number in range(COUNT)]
    assert run_threads(lambda number: train(number, 2000) != alone[number]) == 0


def test_one_training_model(training: ModuleType) -> None:
    """One model, used by all: readers see it before or after a step, never in between, and no step is lost."""
    shared, single = training.Model(), training.Model()
    x, labels = pixels(1, 400), array("q", [i % 10 for i in range(400)])
    losses = [single.train_step(x, labels, lr=0.05) for _ in range(50 * COUNT // 2)]
    known = {*losses, single.loss(x, labels)}
    seen: list[float] = []

    def work(number: int) -> int:
        if number % 2:
            seen.extend([shared.train_step(x, labels, lr=0.05) for _ in range(50)])
            return 0
        short, one = pixels(number, 1), array("q", [1])
        wrong = sum(shared.loss(x, labels) not in known for _ in range(50))
        wrong += sum(not 0 <= shared.loss(short, one) < 100 for _ in range(2000))
        return wrong

    assert run_threads(work) == 0
    assert sorted(seen) == sorted(losses)
    assert bytes(shared.flat_parameters) == bytes(single.flat_parameters)
