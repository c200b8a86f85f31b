"""``fit``: a loop over ``train_step`` in one call, to the bit; in any order, with callbacks, interrupts and threads."""

from __future__ import annotations

import array
import io
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from examples.scale.training import orders
from mlaot import nn, optim
from mlaot.binding.fit import make_fit
from mlaot.binding.interface import render_interface
from mlaot.errors import MlaotError
from mlaot.lower.program import Entry, ExtensionModule, Port, Slot
from mlaot.nn import functional as F
from mlaot.settings.options import Options

from .. import projects
from .test_host import python

Array = np.ndarray[Any, Any]
Build = Callable[[str, Any], ModuleType]
BATCH, N = mlaot.dim("batch"), mlaot.dim("n")
EPOCHS = 10**9  # more than any test waits for


def examples(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Examples for the hand-made module."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)), rng.integers(0, 2, count, dtype=np.int32)


def loop(model: Any, data: tuple[Array, ...], batch: int, epochs: int, seed: int | None, **rates: float) -> float:
    """What fit does, step by step; without a seed in the order of the data."""
    count = len(data[0])
    shuffled = None if seed is None else orders(count, seed)
    for _ in range(epochs):
        order = range(count) if shuffled is None else next(shuffled)
        total = 0.0
        for i in range(0, count, batch):
            rows = list(order[i : i + batch])
            total += model.train_step(*[x[rows] for x in data], **rates) * len(rows)
    return total / count


def state(model: Any) -> dict[str, bytes]:
    """The parameters and the buffers."""
    kinds = (getattr(model, kind, {}) for kind in ("parameters", "buffers"))
    return {name: memoryview(value).tobytes() for kind in kinds for name, value in kind.items()}


@pytest.mark.parametrize("batch", [1, 7, 32, 100, 1000])
@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1])
def test_is_the_loop(fit: ModuleType, batch: int, seed: int | None) -> None:
    """Parameters and loss to the bit, also where the last batch is smaller, or the only one."""
    x, label = examples(100)
    by_hand, model = fit.Model(), fit.Model()
    expected = loop(by_hand, (x, label), batch, 3, seed, lr=0.05)
    shuffle = {"shuffle": False} if seed is None else {"seed": seed}
    found = model.fit(x, label, batch=batch, epochs=3, lr=0.05, **shuffle)
    assert type(found) is float
    assert (found, state(model)) == (expected, state(by_hand))


def test_defaults(fit: ModuleType) -> None:
    """The module's function, by position and by name: batches of 32, one epoch, shuffled by seed 0, the step's rate."""
    x, label = examples(100)
    model = fit.Model()
    expected = loop(model, (x, label), 32, 1, 0)
    assert fit.fit(x, label) == expected
    assert state(fit) == state(model)
    named = fit.Model()
    assert named.fit(label=label, x=x, lr=0.1, batch=32, epochs=1, shuffle=True, seed=0, callback=None) == expected
    assert fit.Model().fit(x, label, 0.1) == expected
    assert fit.fit.__text_signature__ == (
        "($module, /, x, label, lr=0.1, *, batch=32, epochs=1, shuffle=True, seed=0, progress=False, callback=None)"
    )


def test_epochs_go_on(fit: ModuleType) -> None:
    """Two calls in the order of the data are one of two epochs; shuffled, every epoch has an order of its own."""
    x, label = examples(50)
    once, twice = fit.Model(), fit.Model()
    once.fit(x, label, epochs=2, shuffle=False)
    for _ in range(2):
        twice.fit(x, label, shuffle=False)
    assert state(once) == state(twice)
    first, second = (order for order, _ in zip(orders(50, 3), range(2), strict=False))
    assert sorted(first) == sorted(second) == list(range(50)) and first != second


def test_buffers_and_optimizer(momentum: ModuleType) -> None:
    """Whatever a step writes: a buffer's count, the optimizer's moments."""
    x = np.random.default_rng(0).normal(size=(21, 2)).astype(np.float32)
    model = momentum.Model()
    expected = loop(model, (x,), 4, 2, 9)
    assert momentum.fit(x, batch=4, epochs=2, seed=9) == expected
    assert momentum.seen() == model.seen() == 12
    assert state(momentum) == state(model)


def kinds_of_arrays() -> list[Any]:
    """The same examples as every kind of argument."""
    x, label = examples(40)
    wide = np.zeros((80, 6))
    wide[::2, ::2] = x
    bytes_of_x = bytearray(1 + x.nbytes)
    bytes_of_x[1:] = x.tobytes()
    backwards = label[::-1].copy()
    return [
        (x.tolist(), label.tolist()),
        (tuple(map(tuple, x.tolist())), array.array("i", label.tolist())),
        (wide[::2, ::2], backwards[::-1]),
        (np.asfortranarray(x), label),
        (memoryview(x), memoryview(label)),
        (memoryview(x.tobytes()).cast("d", (40, 3)), memoryview(label.tobytes()).cast("i")),
        (np.frombuffer(bytes_of_x, np.float64, offset=1).reshape(40, 3), label),
    ]


@pytest.mark.parametrize("kind", range(len(kinds_of_arrays())))
def test_kinds_of_arrays(fit: ModuleType, kind: int) -> None:
    """What train_step takes, fit takes: lists, any strides, read-only memory, unaligned."""
    expected = fit.Model()
    expected.fit(*examples(40), batch=7)
    fit.fit(*kinds_of_arrays()[kind], batch=7)
    assert state(fit) == state(expected)


def test_a_view_of_the_model_is_copied_first(fit: ModuleType) -> None:
    """Parameters as examples: those from before the first step."""
    view = np.asarray(fit.flat_parameters).reshape(3, 3)
    model, data = fit.Model(), (view.copy(), np.array([0, 1, 0], np.int32))
    expected = loop(model, data, 1, 2, None)
    assert fit.fit(view, data[1], batch=1, epochs=2, shuffle=False) == expected
    assert state(fit) == state(model)


def test_nan_is_allowed(fit: ModuleType) -> None:
    """As in train_step."""
    x, label = examples(10)
    x[3, 1] = np.nan
    assert np.isnan(fit.fit(x, label))


def test_callback(fit: ModuleType) -> None:
    """The end of each epoch is told, with its mean loss; the last one is the result."""
    x, label = examples(70)
    model = fit.Model()
    means = [loop(model, (x, label), 32, 1, None) for _ in range(3)]
    told: list[Any] = []
    found = fit.fit(x, label, epochs=3, shuffle=False, callback=lambda *args: told.append(args))
    assert told == [(70, 210, means[0]), (140, 210, means[1]), (210, 210, means[2])]
    assert found == means[2]


@pytest.mark.parametrize("on_terminal", [False, True])
def test_progress(fit: ModuleType, on_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line comes in any case; on a terminal it is rewritten, and ended where the training fails, too."""
    x, label = examples(70)
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: on_terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    mean = fit.fit(x, label, epochs=3, progress=True)
    line = f"fit: epoch 3 of 3, loss {mean:.4g}, 0 s left"
    assert stderr.getvalue() == (f"\r{line}\033[K\n" if on_terminal else f"{line}\n")
    stderr.seek(0)
    stderr.truncate()
    with pytest.raises(ZeroDivisionError):
        fit.fit(x, label, epochs=3, progress=True, callback=lambda *_: 1 / 0)
    assert stderr.getvalue() == ("\n" if on_terminal else "")
    monkeypatch.setattr(sys, "stderr", None)
    assert fit.fit(x, label, epochs=3, progress=True) > 0


def test_callback_ends_the_training(fit: ModuleType) -> None:
    """After the step that it was told of."""
    x, label = examples(50)

    def callback(done: int, total: int, loss: float) -> None:
        if done == 100:
            raise StopIteration

    with pytest.raises(StopIteration):
        fit.fit(x, label, epochs=EPOCHS, callback=callback)
    model = fit.Model()
    loop(model, (x, label), 32, 2, 0)
    assert state(fit) == state(model)


def test_callback_may_train(fit: ModuleType) -> None:
    """The model's lock is free while the callback runs: even fit can be called."""
    x, label = examples(50)
    fit.fit(x, label, epochs=2, shuffle=False, callback=lambda *_: fit.fit(x, label, shuffle=False))
    model = fit.Model()
    model.fit(x, label, epochs=4, shuffle=False)
    assert state(fit) == state(model)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_interrupt(fit: ModuleType) -> None:
    """A signal is answered long before the end, and the model can be trained further."""
    x, label = examples(1000)
    rung: list[object] = []

    def handler(*_: object) -> None:
        rung.append(_)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            fit.fit(x, label, lr=1e-6, epochs=EPOCHS)
        assert len(rung) == 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert 0 < fit.fit(x, label) < 10


class Background:
    """fit() without an end in another thread; ``with`` ends it."""

    def __init__(self, model: Any, *data: Any) -> None:
        self.started, self.stopped = threading.Event(), threading.Event()
        self.calls = 0  # of its callback
        self.thread = threading.Thread(target=self.run, args=(model, data))

    def run(self, model: Any, data: Any) -> None:
        with suppress(StopIteration):
            model.fit(*data, lr=1e-9, epochs=EPOCHS, callback=self.callback)

    def callback(self, *_: object) -> None:
        self.calls += 1
        self.started.set()
        if self.stopped.is_set():
            raise StopIteration

    def __enter__(self) -> Background:
        self.thread.start()
        self.started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()


def test_gil_is_free(fit: ModuleType) -> None:
    """Another thread computes while fit does, and not only while that calls back."""
    counted: dict[int, int] = {}
    with Background(fit, *examples(200_000)) as background:
        while len(counted) < 4:
            counted[background.calls] = counted.get(background.calls, 0) + 1
    assert max(counted.values()) > 10_000


def test_others_have_their_turn(libraries: dict[str, Path]) -> None:
    """Calls of the same model from another thread do not wait for the end of fit, since it has none."""
    code = f"""
import array, fit, os, threading, time
x, label = memoryview(array.array("d", [0.5] * 60_000)).cast("b").cast("d", (20_000, 3)), array.array("i", [1] * 20_000)
rates = {{"lr": 1e-9, "epochs": {EPOCHS}}}
threading.Thread(target=fit.fit, args=(x, label), kwargs=rates, daemon=True).start()
for _ in range(30):
    time.sleep(0.02)
    fit.forward([1, 2, 3])
print("served", flush=True)
os._exit(0)  # nothing else ends it
"""
    assert python(code, libraries["fit"]) == "served"


def test_threads_train_one_model(fit: ModuleType) -> None:
    """Steps of two fits do not interleave: with a rate of 0 nothing changes."""
    x, label = examples(5000)
    threads = [threading.Thread(target=fit.fit, args=(x, label, 0.0), kwargs={"epochs": 50}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state(fit) == state(fit.Model())


X, LABEL = examples(10)
MISTAKES = [
    ({"label": LABEL[:9]}, ValueError, "fit: label: examples is 9 here, but 10 in x"),
    ({"x": X[:, :2]}, ValueError, r"fit: x: expected float64\[examples, 3\], got float64\[10, 2\]"),
    ({"x": X[0]}, ValueError, r"fit: x: expected float64\[examples, 3\], got float64\[3\]"),
    ({"x": X.astype(np.float32)}, TypeError, r"fit: x: expected float64\[examples, 3\], got float32\[10, 3\]"),
    ({"x": X.astype(">f8")}, TypeError, "fit: x: expected float64.*, got big-endian float64"),
    ({"label": LABEL.astype(np.int64)}, TypeError, r"fit: label: expected int32\[examples\], got int64\[10\]"),
    ({"label": LABEL + 1}, ValueError, r"fit: label\[\d\]: expected values from 0 to 1, got 2"),
    ({"x": "x"}, TypeError, "fit: x: expected .*, got str"),
    ({"x": [[1, 2, 3], [1, 2]], "label": [0, 1]}, ValueError, "fit: x: expected .*, got lists of unequal length"),
    ({"x": X[:0], "label": LABEL[:0]}, ValueError, "fit: expected examples of at least 1, got 0"),
    ({"lr": "x"}, TypeError, "fit: lr: expected float64, got str"),
    ({"batch": 0}, ValueError, "fit: batch: expected at least 1, got 0"),
    ({"batch": -3}, ValueError, "fit: batch: expected at least 1, got -3"),
    ({"batch": 2.0}, TypeError, "fit: batch: expected int64, got float"),
    ({"batch": None}, TypeError, "fit: batch: expected int64, got NoneType"),
    ({"batch": 2**63}, ValueError, "fit: batch: expected int64, got 9223372036854775808"),
    ({"epochs": 0}, ValueError, "fit: epochs: expected at least 1, got 0"),
    ({"epochs": 2**62}, ValueError, "fit: epochs: expected at most 922337203685477580, got 4611686018427387904"),
    ({"shuffle": 1}, TypeError, "fit: shuffle: expected bool, got int"),
    ({"seed": -1}, ValueError, "fit: seed: expected uint64, got -1"),
    ({"seed": 2**64}, ValueError, "fit: seed: expected uint64, got 18446744073709551616"),
    ({"seed": "a"}, TypeError, "fit: seed: expected uint64, got str"),
    ({"callback": 3}, TypeError, "fit: callback: expected a callable, got int"),
    ({"epoch": 3}, TypeError, r"fit\(\) got an unexpected keyword argument 'epoch'"),
]


@pytest.mark.parametrize(("change", "error", "message"), MISTAKES, ids=lambda value: str(value)[:30])
def test_mistakes(fit: ModuleType, change: dict[str, Any], error: type[Exception], message: str) -> None:
    """One clear line, and nothing has changed."""
    before = state(fit)
    with pytest.raises(error, match=f"^{message}"):
        fit.fit(**({"x": X, "label": LABEL} | change))
    assert state(fit) == before


def test_mistakes_in_arguments(fit: ModuleType) -> None:
    """Too many, too few, twice."""
    with pytest.raises(TypeError, match=r"^fit\(\) takes 3 positional arguments, got 4$"):
        fit.fit(X, LABEL, 0.1, 32)
    with pytest.raises(TypeError, match=r"^fit\(\) is missing argument 'label'$"):
        fit.fit(X)
    with pytest.raises(TypeError, match=r"^fit\(\) got more than one argument 'x'$"):
        fit.fit(X, LABEL, x=X)


def test_a_bad_label_is_found_before_the_first_step(fit: ModuleType) -> None:
    """However far behind it is."""
    x, label = examples(1000)
    label[-1] = 7
    before = state(fit)
    with pytest.raises(ValueError, match=r"got 7$"):
        fit.fit(x, label, shuffle=False)
    assert state(fit) == before


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build(name, declared)`` is the extension module."""
    site = tmp_path_factory.mktemp("fit") / "site"
    return lambda name, declared: projects.load(projects.build_module(declared, name, site, ("base",)))


@pytest.fixture(scope="module")
def adam(build: Build) -> ModuleType:
    """A network with random numbers, running statistics, moments and a schedule."""
    layers = nn.Linear(6, 16, rng=0), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3, rng=1)
    net = nn.Sequential(*layers)

    def loss(scores: Any, label: mlaot.i64[BATCH]) -> Any:  # type: ignore[valid-type]
        return F.cross_entropy(scores, label)

    def classify(x: mlaot.f32[BATCH, 6]) -> Any:  # type: ignore[valid-type]
        return net(x)

    optimizer = optim.Adam(lr=0.01, schedule=optim.cosine_annealing_lr(100))
    return build("adam", mlaot.model(classify, loss=loss, optimizer=optimizer, parameters=net))


def test_dropout_normalization_adam(adam: ModuleType, tmp_path: Path) -> None:
    """The same bits as the loop's in all that is kept, the optimizer's state too."""
    x = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    label = x[:, :3].argmax(1)
    by_hand, model = adam.Model(), adam.Model()
    expected = loop(by_hand, (x, label), 16, 3, 5)
    assert model.fit(x, label, batch=16, epochs=3, seed=5) == expected
    by_hand.save(tmp_path / "a")
    model.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert np.asarray(model.buffers["random"])[-1] == 3 * 13


def test_callback_within_an_epoch(adam: ModuleType) -> None:
    """Told several times, with the mean so far; the model can be used meanwhile, and its state is a step's."""
    x = np.tile(np.random.default_rng(0).normal(size=(1000, 6)).astype(np.float32), (2000, 1))
    label = x[:, :3].argmax(1)
    model, told = adam.Model(), []

    def callback(done: int, total: int, loss: float) -> None:
        assert total == 2 * len(x)
        model.loss(x[:2], label[:2])
        told.append((done, loss, state(model)))
        if len(told) == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        model.fit(x, label, batch=2, epochs=2, shuffle=False, callback=callback)
    assert state(model) == told[-1][2]
    dones = [done for done, _, _ in told]
    assert 0 < dones[0] < dones[1] < dones[2] < len(x)
    again = adam.Model()
    assert again.fit(x[: dones[0]], label[: dones[0]], batch=2, shuffle=False) == told[0][1]
    assert state(again) == told[0][2]


def regression(name: str, x: Any, y: Any, more: Any = None) -> Any:
    """``x * w``, to be ``y``: a model with these types, and ``more`` as a further input of the loss."""
    w = mlaot.Parameter("w", np.array([0.5, -0.5, 0.25], np.float32))

    def forward(x: Any) -> Any:
        return x * w

    def loss(out: Any, y: Any) -> Any:
        return ((out - y) ** 2).mean()

    def loss_with_more(out: Any, y: Any, more: Any) -> Any:
        return (((out - y) * more.mean()) ** 2).mean()

    forward.__annotations__["x"] = x
    chosen = loss if more is None else loss_with_more
    chosen.__annotations__ |= {"y": y} | ({} if more is None else {"more": more})
    forward.__name__ = name
    return mlaot.model(forward, loss=chosen, parameters={"w": w})


def test_fixed_batch(build: Build) -> None:
    """A step that takes four examples exactly takes four in fit, too."""
    module = build("fixed", regression("fixed", mlaot.f32[4, N, 3], mlaot.f32[4, N, 3]))
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(12, 5, 3)).astype(np.float32) for _ in range(2))
    model = module.Model()
    assert module.fit(x, y, epochs=2, seed=1) == loop(model, (x, y), 4, 2, 1)
    assert state(module) == state(model)
    assert module.fit(x, y, batch=4) > 0
    assert "batch=4" in module.fit.__text_signature__
    with pytest.raises(ValueError, match=r"^fit: batch: expected 4, got 3$"):
        module.fit(x, y, batch=3)
    with pytest.raises(ValueError, match=r"^fit: expected examples in a multiple of 4, got 10$"):
        module.fit(x[:10], y[:10])
    with pytest.raises(ValueError, match=r"^fit: y: n is 4 here, but 5 in x$"):
        module.fit(x, y[:, :4])


def test_other_dims_and_shared_inputs(build: Build) -> None:
    """The examples lie along n where it is the only first axis with a name; what has it not is in every step whole."""
    declared = regression("shared", mlaot.f32[N, mlaot.dim("m"), 3], mlaot.f32[N, mlaot.dim("m"), 3], mlaot.f32[2])
    module = build("shared", declared)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(12, 5, 3)).astype(np.float32) for _ in range(2))
    more = np.array([1, 2], np.float32)
    model = module.Model()
    for i in (0, 5, 10):
        model.train_step(x[i : i + 5], y[i : i + 5], more, 0.2)
    module.fit(x, y, more, 0.2, batch=5, shuffle=False)
    assert state(module) == state(model)


def test_no_batches(build: Build) -> None:
    """A model whose examples lie along two axes cannot be given a part of them."""
    square = regression("square", mlaot.f32[BATCH, 3], mlaot.f32[BATCH, 3], mlaot.f32[BATCH, BATCH])
    module = build("square", square)
    assert module.train_step([[1, 2, 3]], [[1, 2, 3]], [[1]]) > 0
    message = r"^fit: this model has no batches: batch is not only the first axis of more\[batch, batch\]"
    for model in (module, module.Model()):
        with pytest.raises(TypeError, match=message):
            model.fit([[1, 2, 3]], [[1, 2, 3]], [[1]])


def training(*inputs: Port, dims: tuple[str, ...] = ()) -> ExtensionModule:
    """A module whose train_step has these inputs."""
    entry = Entry("train_step", inputs, (Port("loss", "f32", ()),), "0", "1")
    return ExtensionModule(
        "m", dims, (entry,), (Slot("w", "f32", (), (), 0, 64),), 128, b"", b"", Options(isas=("base",))
    )


@pytest.mark.parametrize(
    ("inputs", "rows", "refusal"),
    [
        ((Port("x", "f32", ("batch", 2)), Port("t", "f32", ("n",))), "batch", ""),
        ((Port("x", "f32", ("n", 2)), Port("t", "f32", (2,)), Port("lr", "f32", (), default=0.1)), "n", ""),
        ((Port("x", "f32", (8, "n")), Port("t", "f32", (8,))), 8, ""),
        ((Port("x", "f32", (8, "n")), Port("t", "f32", (4,))), "batch", "no common axis: x[8, n], t[4]"),
        ((Port("x", "f32", ("m",)), Port("t", "f32", ("n",))), "batch", "no common axis: x[m], t[n]"),
        ((Port("x", "f32", ("n",)), Port("t", "f32", ("2 * n + 1",))), "n", "not only the first axis of t[2 * n + 1]"),
        ((Port("lr", "f32", (), default=0.1),), "batch", "no arrays"),
    ],
)
def test_where_the_examples_lie(inputs: tuple[Port, ...], rows: int | str, refusal: str) -> None:
    """Along the batch, along the only name, along a fixed size that all share."""
    found = make_fit(training(*inputs))
    assert found is not None
    assert found.rows == rows
    assert refusal in found.refusal and bool(refusal) == bool(found.refusal)


def test_names_that_are_taken() -> None:
    """An input cannot be called as an option of fit; a dim can be called examples."""
    message = r"^m: an input that trains cannot be called 'batch': fit has such an argument$"
    with pytest.raises(MlaotError, match=message):
        render_interface(training(Port("batch", "f32", ("batch",))))
    found = make_fit(training(Port("x", "f32", ("batch", "examples")), dims=("batch", "examples")))
    assert found is not None and found.entry.inputs[0].shape == ("examples_", "examples")
