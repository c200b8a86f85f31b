"""Parameters of scalar models come out as they were declared: names, order, shapes, values, gradients."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.frontend.scalar.parameters import parameter_arrays
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.micrograd import MLP, Neuron, Value, declare
from mlaot.settings.options import Options

from ..compiled import Library, State
from ..projects import build_module, load

Formula = Callable[[Any, list[Any]], list[Any]]
COUNT, INPUTS = 12, 5
X = np.random.default_rng(5).normal(size=(3, INPUTS))


def tanh(x: Any) -> Any:
    return x.tanh() if isinstance(x, Value) else math.tanh(x)


def like(thing: Any, leaf: Callable[[Any], Any]) -> Any:
    """Nested dicts and lists with other leaves."""
    if isinstance(thing, Mapping):
        return {key: like(part, leaf) for key, part in thing.items()}
    if isinstance(thing, np.ndarray):
        return np.vectorize(leaf, [object])(thing)
    return [like(part, leaf) for part in thing] if isinstance(thing, list | tuple) else leaf(thing)


def flat(thing: Any) -> Iterator[Any]:
    if isinstance(thing, Mapping | list):
        for part in thing.values() if isinstance(thing, Mapping) else thing:
            yield from flat(part)
    else:
        yield thing


def arrays(thing: Any, name: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """What a declaration says: an array of each name, of numbers."""
    if isinstance(thing, Mapping) or (isinstance(thing, list) and not is_even(thing)):
        parts = thing.items() if isinstance(thing, Mapping) else enumerate(thing)
        return {k: a for key, part in parts for k, a in arrays(part, f"{name}.{key}".strip(".")).items()}
    return {name: np.array(thing)}


def is_even(thing: Any) -> bool:
    try:
        return np.array(thing).dtype != object
    except ValueError:
        return False


class Random:
    """A declaration and a formula over it, by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.parameters: dict[str, Any] = {}
        self.steps: list[Formula] = []
        for _ in range(self.rng.randint(1, 4)):
            step = self.rng.choice([self.layer, self.rows, self.places, self.tied, self.network, self.window])
            self.steps.append(step(f"s{len(self.steps)}"))
        self.parameters["spare"] = self.numbers(self.rng.choice([(), (2,), (2, 3)]))
        names = list(self.parameters)
        self.rng.shuffle(names)
        self.parameters = {name: self.parameters[name] for name in names}

    def numbers(self, shape: tuple[int, ...]) -> Any:
        return [self.numbers(shape[1:]) for _ in range(shape[0])] if shape else self.rng.gauss(0, 0.7)

    def mix(self, count: int) -> Callable[[list[Any]], list[Any]]:
        """One order of so many terms, on every call."""
        order = list(range(count))
        if self.rng.random() < 0.7:
            self.rng.shuffle(order)
        return lambda terms: [terms[i] for i in order]

    def product(self, rows: int, columns: int) -> Callable[[Any, Any, list[Any]], list[Any]]:
        orders = [self.mix(columns + 1) for _ in range(rows)]

        def apply(w: Any, b: Any, x: list[Any]) -> list[Any]:
            found = [
                order([wi * xi for wi, xi in zip(row, x, strict=False)] + [bi])
                for order, row, bi in zip(orders, w, b, strict=True)
            ]
            return [sum(terms[1:], terms[0]) for terms in found]

        return apply

    def layer(self, key: str) -> Formula:
        """A matrix as it is or transposed, its inputs in some order, a skip connection."""
        rows, turned = self.rng.randint(2, 7), self.rng.random() < 0.4
        self.parameters |= {
            key + "W": self.numbers((INPUTS, rows) if turned else (rows, INPUTS)),
            key + "b": self.numbers((rows,)),
        }
        product, mix, skip = self.product(rows, INPUTS), self.mix(INPUTS), self.rng.random() < 0.5

        def step(p: Any, x: list[Any]) -> list[Any]:
            w = list(zip(*p[key + "W"], strict=True)) if turned else p[key + "W"]
            out = [tanh(h) for h in product(w, p[key + "b"], mix(x))]
            return x + [a * b for a, b in zip(out, x, strict=False)] if skip else out

        return step

    def rows(self, key: str) -> Formula:
        """The rows of a matrix by names of their own, or in nested dicts with their biases."""
        rows, nested = self.rng.randint(2, 5), self.rng.random() < 0.5
        self.parameters |= {f"{key}{i}": self.numbers((INPUTS,)) for i in range(rows)}
        self.parameters[key] = (
            {"b": self.numbers((rows,)), "more": {"c": self.numbers(())}} if nested else self.numbers((rows,))
        )
        product = self.product(rows, INPUTS)

        def step(p: Any, x: list[Any]) -> list[Any]:
            bias = [b * p[key]["more"]["c"] for b in p[key]["b"]] if nested else p[key]
            return [tanh(h) for h in product([p[f"{key}{i}"] for i in range(rows)], bias, x)]

        return step

    def places(self, key: str) -> Formula:
        """Single numbers of an uneven list of lists, several times and in any place."""
        self.parameters[key] = [self.numbers((self.rng.randint(1, 9),)) for _ in range(3)]
        count = len(list(flat(self.parameters[key])))
        picks = [(self.rng.randrange(count), self.rng.randrange(count), self.rng.randrange(INPUTS)) for _ in range(12)]

        def step(p: Any, x: list[Any]) -> list[Any]:
            w = list(flat(p[key]))
            return [w[a] * x[i] * w[b] + w[a] if a % 2 else tanh(w[b] * x[i]) for a, b, i in picks]

        return step

    def tied(self, key: str) -> Formula:
        """One matrix for two layers, the second time transposed, and a penalty on all of it."""
        self.parameters[key] = {"w": self.numbers((INPUTS, INPUTS)), "b": self.numbers((INPUTS,))}
        first, second = self.product(INPUTS, INPUTS), self.product(INPUTS, INPUTS)

        def step(p: Any, x: list[Any]) -> list[Any]:
            w, b = p[key]["w"], p[key]["b"]
            hidden = [tanh(h) for h in first(w, b, x)]
            return [*second(list(zip(*w, strict=True)), b, hidden), sum((v * v for v in flat(w)), b[0])]

        return step

    def network(self, key: str) -> Formula:
        """Two layers; the second is declared before the first."""
        rows = self.rng.randint(2, 6)
        self.parameters |= {
            key + "2": self.numbers((3, rows)),
            key + "1": self.numbers((rows, INPUTS)),
            key + "c": [self.numbers((rows,)), self.numbers((3,))],
        }
        first, second = self.product(rows, INPUTS), self.product(3, rows)

        def step(p: Any, x: list[Any]) -> list[Any]:
            hidden = [tanh(h) for h in first(p[key + "1"], p[key + "c"][0], x)]
            return second(p[key + "2"], p[key + "c"][1], hidden)

        return step

    def window(self, key: str) -> Formula:
        """A kernel that slides over the inputs."""
        channels = self.rng.randint(1, 3)
        self.parameters |= {key + "k": self.numbers((channels, 3)), key + "b": self.numbers((channels,))}

        def step(p: Any, x: list[Any]) -> list[Any]:
            return [
                tanh(b + k[0] * x[i] + k[1] * x[i + 1] + k[2] * x[i + 2])
                for k, b in zip(p[key + "k"], p[key + "b"], strict=True)
                for i in range(INPUTS - 2)
            ]

        return step

    def __call__(self, p: Any, x: list[Any]) -> list[Any]:
        found = [out for step in self.steps for out in step(p, x)]
        return [*found[:4], sum(found[1:], found[0])]


@dataclass
class Case:
    """A model to be trained, the same to serve with other weights, and the Values that they are made of."""

    formula: Random
    trained: Program
    served: Program
    values: Any
    x: list[Value]
    loss: Value


def case(seed: int) -> Case:
    formula = Random(seed)
    values, x = like(formula.parameters, Value), [Value(0.0) for _ in range(INPUTS)]
    out = formula(values, x)
    loss = sum((v * v for v in out[1:]), out[0] * 0.3)
    inputs, names = {"x": x}, {"parameters": values}
    trained = compile_model(declare(out, inputs=inputs, loss=loss, **names), f"t{seed}.nn", Options(isas=("base",)))
    served = compile_model(declare(out, inputs=inputs, **names), f"s{seed}.nn", Options(isas=("base",), frozen=False))
    return Case(formula, trained, served, values, x, loss)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case(seed) for seed in range(COUNT)]


@pytest.fixture(scope="module")
def library(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Library:
    programs = {f"t{i}": case.trained for i, case in enumerate(cases)} | {
        f"s{i}": case.served for i, case in enumerate(cases)
    }
    return Library(programs, "base", tmp_path_factory.mktemp("declared"), ("-O0",))


def parameters_of(state: State) -> dict[str, np.ndarray[Any, Any]]:
    return {slot.name: state.slot(slot.name) for slot in state.program.module.slots if slot.kind == "parameter"}


def changed(array: Any) -> Any:
    """Another number for each element, which depends on its place."""
    return 0.9 * array + 0.01 * np.arange(array.size).reshape(array.shape)


def filled(declared: Any, numbers: Iterable[np.ndarray[Any, Any]]) -> Any:
    """A declaration with the numbers of arrays in its order."""
    rest = (float(v) for array in numbers for v in np.ravel(array))
    return like(declared, lambda _: next(rest))


def gradients(case: Case) -> list[float]:
    """The mean of micrograd's gradients over the rows of X, by each Value."""
    values = list(flat(case.values))
    totals = np.zeros(len(values))
    for row in X.tolist():
        for leaf, number in zip(case.x, row, strict=True):
            leaf.data = number
        case.loss.forward()
        for node in case.loss.topo():
            node.grad = 0
        case.loss.backward()
        totals += [v.grad if v in set(case.loss.topo()) else 0.0 for v in values]
    return list(totals / len(X))


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_declarations(seed: int, cases: list[Case], library: Library) -> None:
    case = cases[seed]
    declared, state = case.formula.parameters, State(case.trained)

    def check(stem: str, state: State, numbers: Any) -> None:
        got = library.call(stem, "forward", {"x": X}, {"batch": len(X)}, state)["out"]
        wanted = [case.formula(numbers, row) for row in X.tolist()]
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)

    found, wanted = parameters_of(state), arrays(declared)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    check(f"t{seed}", state, declared)

    library.call(f"t{seed}", "accumulate", {"x": X}, {"batch": len(X)}, state)
    for name, array in arrays(filled(declared, [np.array(gradients(case))])).items():
        np.testing.assert_allclose(state.gradient(name), array, rtol=1e-8, atol=1e-10)

    numbers = {name: changed(array) for name, array in wanted.items()}
    serving = State(case.served)
    for one in (state, serving):
        for name, array in parameters_of(one).items():
            array[...] = numbers[name]
    assert found.keys() - parameters_of(serving).keys() <= {"spare"}  # nothing reads that
    check(f"t{seed}", state, filled(declared, numbers.values()))
    check(f"s{seed}", serving, filled(declared, numbers.values()))


@pytest.mark.parametrize(
    ("declared", "shapes"),
    [
        ({"w": [1, 2], "b": 3}, {"w": (2,), "b": ()}),
        ({"c": [1]}, {"c": (1,)}),
        ({"W": [[1, 2], [3, 4], [5, 6]]}, {"W": (3, 2)}),
        ({"k": [[[1, 2]], [[3, 4]]]}, {"k": (2, 1, 2)}),
        ({"w": [[1], [2, 3]]}, {"w.0": (1,), "w.1": (2,)}),
        ({"w": [1, [2, 3]]}, {"w.0": (), "w.1": (2,)}),
        ({"enc": {"w": [1], "b": 2}, "b": 3}, {"enc.w": (1,), "enc.b": (), "b": ()}),
        ({"layers": [{"w": [1]}, {"w": [2]}]}, {"layers.0.w": (1,), "layers.1.w": (1,)}),
        ({1: [1, 2], "two words": 3}, {"1": (2,), "two words": ()}),
        ({"a": np.array([[1, 2]], object)}, {"a": (1, 2)}),
        ([1, 2, 3], {"p": (3,)}),
        ((1, [2, 3]), {"p.0": (), "p.1": (2,)}),
        ([], {}),
        ({}, {}),
    ],
    ids=str,
)
def test_names_and_shapes(declared: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    values, found = parameter_arrays(like(declared, Value))
    assert {name: ids.shape for name, ids in found.items()} == shapes
    assert [v.data for v in values] == sorted(v.data for v in values)
    assert [int(i) for ids in found.values() for i in ids.flat] == list(range(len(values)))


def test_an_iterator_of_values() -> None:
    values, found = parameter_arrays(Value(i) for i in range(3))
    assert [v.data for v in values] == [0, 1, 2] and found["p"].tolist() == [0, 1, 2]


def test_networks() -> None:
    net = MLP(2, [3, 1])
    values, found = parameter_arrays(net)
    assert values == net.parameters()
    got = {
        name: [[v.data for v in np.array(values, object)[row]] for row in np.atleast_2d(ids)]
        for name, ids in found.items()
    }
    first, (last,) = net.layers[0].neurons, net.layers[1].neurons
    assert got == {
        "layers.0.neurons.w": [[w.data for w in n.w] for n in first],
        "layers.0.neurons.b": [[n.b.data for n in first]],
        "layers.1.neurons.0.w": [[w.data for w in last.w]],
        "layers.1.neurons.0.b": [[last.b.data]],
    }
    assert [ids.shape for ids in found.values()] == [(3, 2), (3,), (3,), ()]
    _, inner = parameter_arrays({"net": net, "scale": Value(1.0)})
    assert list(inner) == [f"net.{name}" for name in found] + ["scale"]


class Own:
    """A network with whatever attributes."""

    def __init__(self, trained: list[Value], **attributes: Any) -> None:
        self.trained = lambda: trained
        vars(self).update(attributes)

    def parameters(self) -> list[Value]:
        return self.trained()


def test_networks_of_ones_own() -> None:
    a, b, c, d, e = (Value(i) for i in range(5))

    def names(trained: list[Value], **attributes: Any) -> dict[str, Any]:
        values, found = parameter_arrays(Own(trained, **attributes))
        assert values == trained
        return {name: [values[i].data for i in ids.flat] for name, ids in found.items()}

    assert names([c, a, b], w=[a, b], b=c, name="x", rate=0.1) == {
        "b": [2],
        "w": [0, 1],
    }  # in the order of parameters()
    assert names([a, c], w=[a, b], b=c) == {"w.0": [0], "b": [2]}  # b is not trained
    assert names([a, b, c], w=[a, b]) == {"w": [0, 1], "p": [2]}  # c is no attribute
    assert names([a, b], w=[a, b], all=[b, a]) == {"w": [0, 1]}
    assert names([a, b], w=[a, a], v=b) == {"w.0": [0], "v": [1]}  # one value in two places
    assert names([a, b], out=a * b, w=[a, b]) == {"w": [0, 1]}
    assert names([a, b, c, d], dense=[Own([], W=[[a, b]]), Own([], W=[[c, d]])]) == {
        "dense.0.W": [0, 1],
        "dense.1.W": [2, 3],
    }
    web = [Own([]) for _ in range(40)]  # each of which knows all others
    for one in web:
        one.others = web  # type: ignore[attr-defined]
    assert names([a, b], web=web, w=[a, b]) == {"w": [0, 1]}
    own = Own([a, b], w=[a, b])
    own.self = own  # type: ignore[attr-defined]
    assert list(parameter_arrays(own)[1]) == ["w"]
    assert list(parameter_arrays({"n": [Neuron(2), Neuron(2)], "e": e})[1]) == ["n.w", "n.b", "e"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Value(1.0), "parameters: expected a dict of names to Values, a list of Values or a network, got Value"),
        ("w", "parameters: expected a dict of names to Values, a list of Values or a network, got str 'w'"),
        (MLP, "got type"),
        (3, "parameters: expected a Value, a (nested) list of Values or a network, got int 3"),
        ({"w": 0.5}, "parameters['w']: expected a Value, a (nested) list of Values or a network, got float 0.5"),
        ({"w": [Value(1), 0.5]}, "parameters['w'][1]: expected a Value"),
        (
            {"w": np.ones(2)},
            "parameters['w']: expected a Value, a (nested) list of Values or a network, got an array of float64",
        ),
        ({"w": []}, "parameters['w']: expected a Value, a (nested) list of Values or a network, got an empty list"),
        ({"w": Value(1) * 2}, "parameter w: expected a leaf Value, got the result of '*'"),
        ({"a": {"b": Value(1)}, "a.b": Value(2)}, "two parameters are called 'a.b'"),
        (Own([1.0]), "Own.parameters()[0]: expected a Value, got float 1.0"),  # type: ignore[list-item]
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_what_is_no_parameter(declared: Any, message: str) -> None:
    with pytest.raises(MlaotError) as error:
        parameter_arrays(declared)
    assert message in str(error.value)


def test_listed_twice() -> None:
    v = Value(1.0)
    for declared in ({"a": v, "b": [v]}, {"a": [v, v]}, [v, v], Own([v, v], a=v)):
        with pytest.raises(MlaotError, match=r"a parameter is listed twice: in (a and in b|a|p)$"):
            parameter_arrays(declared)


def test_a_module(tmp_path: Path) -> None:
    """Shuffled, transposed and picked from: what is saved is what was declared, and an element set counts."""
    rng = random.Random(3)
    w, v, c = [[Value(rng.random()) for _ in range(4)] for _ in range(3)], [Value(0.5), Value(0.25)], [Value(2.0)] * 1
    x, y = [Value(0.0) for _ in range(4)], Value(0.0)

    def formula(w: Any, v: Any, c: Any, x: Any) -> Any:
        hidden = [row[2] * x[2] + row[0] * x[3] + row[3] * x[0] + row[1] * x[1] for row in w]
        return tanh(hidden[1] * v[1] + hidden[0] * c[0] + hidden[2] * v[0])

    out = formula(w, v, c, x)
    parameters = {"two words": w, "v": v, "c": c}
    train = declare(out, inputs={"x": x, "y": y}, parameters=parameters, loss=(out - y) ** 2)
    serve = declare(out, inputs={"x": x}, parameters=parameters)
    nn = load(build_module(train, "named_train", tmp_path / "site", ("base",)))
    served = load(build_module(serve, "named_serve", tmp_path / "site", ("base",), frozen=False))
    start = {name: np.asarray(array).tolist() for name, array in nn.parameters.items()}
    assert start == {"two words": [[p.data for p in row] for row in w], "v": [0.5, 0.25], "c": [2.0]}
    assert list(start) == list(nn.gradients) == list(served.parameters) == list(nn.info()["parameters"])
    assert nn.info()["parameters"] == {"two words": "float64[3, 4]", "v": "float64[2]", "c": "float64[1]"}

    data = [0.3, -1.0, 0.7, 2.0]
    nn.train_step([data], [0.1], lr=0.5)
    nn.save(tmp_path / "w.safetensors")
    saved = read_safetensors(tmp_path / "w.safetensors")
    assert [(k, a.shape) for k, a in saved.items()] == [("two words", (3, 4)), ("v", (2,)), ("c", (1,))]
    wanted = formula(*(a.tolist() for a in saved.values()), data)
    assert nn.forward(data).item() == pytest.approx(wanted, rel=1e-13)
    served.load(tmp_path / "w.safetensors")
    assert served.forward(data).item() == pytest.approx(wanted, rel=1e-13)

    for model in (nn.Model(), served.Model()):
        model.parameters["two words"][1, 3] = -0.4
        np.asarray(model.parameters["v"])[1] = 4.0
        changed = {name: array.tolist() for name, array in model.parameters.items()}
        assert changed["two words"][1][3] == -0.4 and changed["v"][1] == 4.0
        assert model.forward(data).item() == pytest.approx(formula(*changed.values(), data), rel=1e-13)
    model = nn.Model()
    assert [model.data(i) for i in range(15)] == [p.data for row in w for p in row] + [0.5, 0.25, 2.0]
    model.set_input([data], [0.1])
    model.forward()
    model.backward()
    assert [model.grad(i) for i in range(15)] == [g for a in model.gradients.values() for g in np.asarray(a).flat]


def read_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What any reader of the format makes of a file."""
    from safetensors.numpy import load_file

    found: dict[str, np.ndarray[Any, Any]] = load_file(path)
    return {name: found[name] for name in ("two words", "v", "c")}
