"""Indices out of range from a caller: a ValueError that names argument, place and bound, and a model as it was.

One module has an entry for each way in which an index can come in; each is called with indices one too large, one too
small and as far out as the dtype goes, at the first, a middle and the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim
from mlaot.micrograd import MLP, Label, Value, declare
from mlaot.nn import functional as F

from .. import projects

Array = np.ndarray[Any, Any]
BATCH, N = mlaot.dim("batch"), mlaot.dim("n")
X = np.random.default_rng(0).normal(size=(5, 3))
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Way:
    """What a model does with indices ``i`` [4, 2] (or another shape) and ``x`` [5, 3]; what they may be.

    ``places`` are those elements of ``i`` that are indices; all of them if none are given.
    """

    function: Callable[[Any, Any], Any]
    low: int
    high: int
    ignored: int | None = None
    shape: tuple[int, ...] = (4, 2)
    dtype: str = "int64"
    places: tuple[tuple[int, ...], ...] = ()

    @property
    def checked(self) -> list[tuple[int, ...]]:
        return list(self.places or np.ndindex(*self.shape))

    @property
    def expected(self) -> str:
        return f"expected values from {self.low} to {self.high}" + (f" or {self.ignored}" if self.ignored else "")


def scores(x: Any, i: Any) -> Any:
    """Of five classes for each example of ``i`` [4, ...]."""
    return np.broadcast_to(np.reshape(x[:, 0], (1, 5, *[1] * (i.ndim - 1))), (i.shape[0], 5, *i.shape[1:]))


def rows(x: Any, i: Any) -> Any:
    """``x`` and its indices in a scan."""
    return mlaot.scan(lambda carry, j: (carry + x[j].sum(), ()), 0.0, i)[0]


COLUMN = tuple((k, 1) for k in range(4))
WAYS: dict[str, Way] = {
    "index": Way(lambda x, i: x[i], -5, 4),
    "number": Way(lambda x, i: x[i], -5, 4, shape=()),
    "index_axis": Way(lambda x, i: x[:, i], -3, 2),
    "index_two": Way(lambda x, i: x[i, i], -3, 2),
    "index_column": Way(lambda x, i: x[i[:, 1]], -5, 4, places=COLUMN),
    "index_transposed": Way(lambda x, i: x[i.T[::-1]], -5, 4),
    "take": Way(lambda x, i: np.take(x, i, axis=0), -5, 4),
    "take_flat": Way(lambda x, i: np.take(x, i), -15, 14),
    "along": Way(lambda x, i: np.take_along_axis(x[:, :2], i, axis=0), -5, 4),
    "gather": Way(lambda x, i: mlaot.gather(x, i), -5, 4),
    "gather_lead": Way(lambda x, i: mlaot.gather(x[:4], i, lead=1), -3, 2),
    "scatter": Way(lambda x, i: mlaot.scatter(x, i, 1.0, mode="add"), -5, 4),
    "put_along": Way(lambda x, i: mlaot.put_along_axis(x[:, :2], i, 1.0, axis=0), -5, 4),
    "at_set": Way(lambda x, i: x.at[i].set(1.0), -5, 4),
    "at_max": Way(lambda x, i: x.at[:, i].max(1.0), -3, 2),
    "at_two": Way(lambda x, i: x.at[i, 0].add(1.0), -5, 4),
    "choose": Way(lambda x, i: np.choose(i, [0.0, 1.0, 2.0]), 0, 2),
    "scan": Way(rows, -5, 4),
    "vmap": Way(lambda x, i: mlaot.vmap(lambda j: x[j])(i), -5, 4),
    "embedding": Way(lambda x, i: F.embedding(i, x), 0, 4),
    "embedding_padded": Way(lambda x, i: F.embedding(i, x, padding_idx=0), 0, 4),
    "one_hot": Way(lambda x, i: mlaot.one_hot(i, 7), 0, 6),
    "nn_one_hot": Way(lambda x, i: F.one_hot(i, 7), 0, 6),
    "cross_entropy": Way(lambda x, i: F.cross_entropy(scores(x, i), i), 0, 4, -100),
    "cross_entropy_one": Way(lambda x, i: F.cross_entropy(x[:, 0], i), 0, 4, -100, shape=()),
    "cross_entropy_ignoring": Way(lambda x, i: F.cross_entropy(scores(x, i), i, ignore_index=255), 0, 4, 255),
    "cross_entropy_smoothed": Way(lambda x, i: F.cross_entropy(scores(x, i), i, label_smoothing=0.1), 0, 4, -100),
    "cross_entropy_weighted": Way(lambda x, i: F.cross_entropy(scores(x, i), i, x[:, 1]), 0, 4, -100),
    "nll_loss": Way(lambda x, i: F.nll_loss(scores(x, i), i, reduction="sum"), 0, 4, -100),
    "layer": Way(lambda x, i: nn.CrossEntropyLoss(ignore_index=-1)(scores(x, i), i), 0, 4, -1),
    "floats": Way(lambda x, i: mlaot.one_hot(i.astype(np.int64), 7), 0, 6, dtype="float32"),
    **{f"index_{d}": Way(lambda x, i: x[i], -5 if d[0] == "i" else 0, 4, dtype=d) for d in DTYPES},
    **{f"label_{d}": Way(lambda x, i: F.embedding(i, x), 0, 4, dtype=d) for d in DTYPES},
}


def declared() -> Any:
    """All ways as entries of one model."""

    @mlaot.model
    def model(x: mlaot.f64[5, 3]) -> Any:
        return x

    for name, way in WAYS.items():
        model.entry(named(name, way))
    return model


def named(name: str, way: Way) -> Callable[..., Any]:
    """The function of a way as that of an entry."""

    def function(x: Any, i: Any) -> Any:
        return way.function(x, i)

    kind = getattr(mlaot, way.dtype.replace("float", "f").replace("uint", "u").replace("int", "i"))
    function.__name__ = name
    function.__annotations__ = {"x": mlaot.f64[5, 3], "i": kind[way.shape] if way.shape else kind}
    return function


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indices")


@pytest.fixture(scope="module")
def module(site: Path) -> ModuleType:
    return projects.load(projects.build_module(declared(), "ways", site, ("base",), golden=True))


def outside(way: Way) -> list[Any]:
    """One too large, one too small, and the ends of the dtype, as far as they are out of range."""
    if way.dtype[0] == "f":
        return [7.0, -1.0, np.inf, -np.inf, np.nan, 1e30]
    info = np.iinfo(way.dtype)
    numbers = {way.high + 1, way.low - 1, info.min, info.max, 2**62, -(2**62)} - {way.ignored}
    inside = range(way.low, way.high + 1)
    return sorted(k for k in numbers if info.min <= k <= info.max and k not in inside)


@pytest.mark.parametrize("name", WAYS)
def test_every_way_in(module: ModuleType, name: str) -> None:
    way, call = WAYS[name], getattr(module, name)
    model = getattr(module.Model(), name)
    dtype = np.dtype(way.dtype)
    for allowed in (way.low, way.high, *([way.ignored] if way.ignored is not None else [])):
        call(X, np.full(way.shape, allowed, dtype))
    free = [place for place in np.ndindex(*way.shape) if place not in way.checked]
    places = [way.checked[k] for k in (0, len(way.checked) // 2, -1)]
    for bad in outside(way):
        for place in places:
            given = np.zeros(way.shape, dtype)
            given[place] = bad
            for other in free:  # no index
                given[other] = 77
            at = f"[{', '.join(map(str, place))}]" if place else ""
            for function in (call, model):
                with pytest.raises(ValueError) as caught:
                    function(X, given)
                shown = float(given[place]) if dtype.kind == "f" else int(bad)
                assert str(caught.value) == f"{name}: i{at}: {way.expected}, got {shown}"
            given[place] = way.high
            call(X, given)


def test_documentation_says_the_range(module: ModuleType, site: Path) -> None:
    stub = (site.with_name(f"{site.name}-c") / "ways.nn" / "nn.pyi").read_text()
    for name, way in WAYS.items():
        shown = "i[:, :, 1]" if way.places else "i"  # of a batch
        line = f"{shown}: {way.expected.removeprefix('expected ')}."
        assert getattr(module, name).__doc__.endswith(f"\n\n{line}")
        assert line in stub


def test_golden_vectors_are_within(module: ModuleType) -> None:
    assert set(module.selftest()) == {"base"}


def test_views_are_seen_as_the_caller_sees_them(module: ModuleType) -> None:
    """Places count in the array that was given: strided, in lists, and far behind in a large one."""
    wide = np.zeros((4, 4), np.int64)
    wide[2, 2] = 9
    with pytest.raises(ValueError, match=r"^index: i\[2, 1\]: expected values from -5 to 4, got 9$"):
        module.index(X, wide[:, ::2])
    with pytest.raises(ValueError, match=r"^index: i\[3, 0\]: expected values from -5 to 4, got -6$"):
        module.index(X, [[0, 0], [0, 0], [0, 0], [-6, 0]])


# Inside a graph: the documented rule.


def test_eager_calls_are_refused() -> None:
    """As by the namesakes; constants of a model when it is traced."""
    logits = np.zeros((2, 5))
    for label in (5, -1, 2**62):
        for call in (
            lambda i: F.cross_entropy(logits, i),
            lambda i: F.cross_entropy(logits, i, label_smoothing=0.1),
            lambda i: F.nll_loss(logits, i),
            lambda i: F.embedding(i, X),
            lambda i: nn.Embedding(5, 3, rng=0)(i),
            lambda i: mlaot.one_hot(i, 5),
            lambda i: F.one_hot(i, 5),
        ):
            with pytest.raises(IndexError, match=rf"^index\[1\]: expected values from 0 to 4.*, got {label}$"):
                call(np.array([0, label]))
    F.cross_entropy(logits, np.array([0, -100]))

    @mlaot.model
    def frozen_labels(x: mlaot.f64[2, 5]) -> Any:
        return F.cross_entropy(x, np.array([0, 5]))

    with pytest.raises(mlaot.MlaotError, match=r"index\[1\]: expected values from 0 to 4 or -100, got 5"):
        frozen_labels.trace()


# What trains: nothing changes.


class Net(nn.Module):
    """With everything that a step changes: weights, running statistics, the optimizer's state, random numbers."""

    def __init__(self) -> None:
        self.names = nn.Embedding(12, 4, rng=0)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(4, 5, rng=1)

    def forward(self, x: Any) -> Any:
        return self.out(self.drop(self.norm(self.names(x))))


def trained() -> Any:
    net = Net()

    def loss(scores: Any, y: mlaot.i64[BATCH]) -> Any:
        return F.cross_entropy(scores, y)

    @mlaot.model(loss=loss, parameters=net, optimizer=optim.Adam(lr=0.01))
    def model(x: mlaot.i32[BATCH]) -> Any:
        return net(x)

    @model.entry
    def accuracy(x: mlaot.i32[BATCH], y: mlaot.i64[BATCH]) -> Any:
        return (mlaot.one_hot(y, 5) * net(x)).sum()

    @model.entry
    def open_axis(x: mlaot.f64[N, 3], i: mlaot.i64[BATCH, 3]) -> Any:
        return x[i[:, 1:]]

    return model


@pytest.fixture(scope="module")
def training(site: Path) -> ModuleType:
    return projects.load(projects.build_module(trained(), "trained", site, ("base",)))


def saved(model: Any, path: Path) -> bytes:
    model.save(path)
    return path.read_bytes() + bytes(model.flat_gradients)


LONG = 1000  # examples: more than a batch of fit, and than a block of the check
BAD = [(place, bad) for place in (0, 1, 31, 32, 500, 999) for bad in (5, -1, 2**62, -(2**63))]


def calls(model: Any, x: Array, y: Array) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "train_step", lambda: model.train_step(x, y)
    yield "fit", lambda: model.fit(x, y, batch=32)
    yield "fit", lambda: model.fit(x, y, shuffle=False)
    yield "loss", lambda: model.loss(x, y)
    yield "set_input", lambda: model.set_input(x, y)
    yield "accuracy", lambda: model.accuracy(x, y)


@pytest.mark.parametrize("level", ["Model", "module"])
def test_training_leaves_all_as_it_was(training: ModuleType, level: str, tmp_path: Path) -> None:
    model = training.Model() if level == "Model" else training
    x, y = np.arange(LONG, dtype=np.int32) % 12, np.arange(LONG) % 5
    model.train_step(x, y)
    model.set_input(x, y)
    model.forward()
    model.backward()
    before, held = saved(model, tmp_path / "a"), model.loss()
    for place, bad in BAD:
        labels, names = y.copy(), x.copy()
        labels[place], names[place] = bad, min(max(bad, -(2**31)), 2**31 - 1) if bad != 5 else 12
        for function, call in calls(model, x, labels):
            expected = "0 to 4" + (" or -100" if function != "accuracy" else "")
            with pytest.raises(ValueError) as caught:
                call()
            assert str(caught.value) == f"{function}: y[{place}]: expected values from {expected}, got {bad}"
        for function, call in calls(model, names, y):
            with pytest.raises(ValueError) as caught:
                call()
            assert str(caught.value) == f"{function}: x[{place}]: expected values from 0 to 11, got {names[place]}"
        with pytest.raises(ValueError, match=rf"^forward: x\[{place}\]: expected values from 0 to 11, got"):
            model.forward(names)
    assert saved(model, tmp_path / "b") == before and model.loss() == held
    with pytest.raises(ValueError, match=r"^forward: x: expected values from 0 to 11, got 12$"):
        model.forward(12)
    ignored = y.copy()
    ignored[7] = -100
    model.train_step(x, ignored)
    assert saved(model, tmp_path / "c") != before


def test_a_bound_that_is_known_when_called(training: ModuleType) -> None:
    """The extent of an axis; of one without elements nothing can be chosen."""
    assert training.open_axis.__doc__.endswith("\n\ni[:, 1:3]: values from -n to n - 1.")
    for n in (1, 2, 7):
        x, i = np.ones((n, 3)), np.full((9, 3), n - 1)
        i[:, 0] = 99
        training.open_axis(x, i)
        for place, bad in (((0, 1), n), ((4, 2), -n - 1), ((8, 2), 2**63 - 1), ((8, 1), -(2**63))):
            i[place] = bad
            with pytest.raises(ValueError) as caught:
                training.open_axis(x, i)
            message = f"open_axis: i[{place[0]}, {place[1]}]: expected values from {-n} to {n - 1}, got {bad}"
            assert str(caught.value) == message
            i[place] = -n
    message = r"^open_axis: i\[0, 1\]: expected no values, since there is nothing to choose from, got 0$"
    with pytest.raises(ValueError, match=message):
        training.open_axis(np.ones((0, 3)), np.zeros((2, 3), np.int64))
    assert training.open_axis(np.ones((0, 3)), np.zeros((0, 3), np.int64)).shape == (0, 2, 3)


def test_micrograd(site: Path) -> None:
    net, x, label = MLP(3, [4, 6]), [Value(0.0) for _ in range(3)], [Value(0.0) for _ in range(6)]
    out = net(x)
    loss = sum(((o - t) ** 2 for o, t in zip(out, label, strict=True)), Value(0.0))
    model = declare(out, loss=loss, inputs={"x": x, "t": Label(label)}, parameters=net)
    module = projects.load(projects.build_module(model, "scalars", site, ("base",)))
    before = bytes(module.flat_parameters)
    points, labels = np.zeros((100, 3)), np.zeros(100, np.int64)
    for place in (0, 50, 99):
        for bad in (6, -1, 2**63 - 1, -(2**63)):
            labels[:] = 0
            labels[place] = bad
            for name in ("train_step", "fit", "loss", "set_input"):
                with pytest.raises(ValueError) as caught:
                    getattr(module, name)(points, labels)
                assert str(caught.value) == f"{name}: t[{place}]: expected values from 0 to 5, got {bad}"
    assert bytes(module.flat_parameters) == before
