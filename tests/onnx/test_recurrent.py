"""RNN, GRU and LSTM, compiled, against loops in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import mlaot.onnx
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.loading import trace
from mlaot.onnx import Backend
from mlaot.passes import run
from mlaot.settings.options import Options

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6
Function = Callable[[Any], Any]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# Of each activation a function of its alpha and beta, and their defaults.
FUNCTIONS: dict[str, tuple[Callable[[Any, float, float], Any], float | None, float | None]] = {
    "Relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "Tanh": (lambda x, a, b: np.tanh(x), None, None),
    "Sigmoid": (lambda x, a, b: sigmoid(x), None, None),
    "Affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "LeakyRelu": (lambda x, a, b: np.where(x < 0, a * x, x), 0.01, None),
    "ThresholdedRelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "Elu": (lambda x, a, b: np.where(x < 0, a * np.expm1(x), x), 1.0, None),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "Softplus": (lambda x, a, b: np.log1p(np.exp(x)), None, None),
}


def functions(names: list[str], alphas: list[float], betas: list[float]) -> list[Function]:
    """Activations, which take their numbers one after the other."""
    alphas, betas, found = list(alphas), list(betas), []
    for name in names:
        function, alpha, beta = FUNCTIONS[name]
        a = alphas.pop(0) if alpha is not None and alphas else alpha
        b = betas.pop(0) if beta is not None and betas else beta
        found.append(lambda x, f=function, a=a, b=b: f(x, a, b))
    return found


def step(
    kind: str, attrs: dict[str, Any], fs: list[Function], gates: Any, r: Any, bias: Any, p: Any, state: Any
) -> Any:
    """The state behind one step of one example."""
    n, clip = HIDDEN, attrs.get("clip")
    z = (lambda x: x) if clip is None else (lambda x: np.clip(x, -clip, clip))
    h = state[0]
    if kind == "RNN":
        return (fs[0](z(gates + r @ h + bias)),)
    if kind == "GRU":
        zr = fs[0](z(gates[: 2 * n] + r[: 2 * n] @ h + bias[: 2 * n]))
        update, reset = zr[:n], zr[n:]
        if attrs.get("linear_before_reset"):
            inner = reset * (r[2 * n :] @ h + bias[2 * n :])
        else:
            inner = r[2 * n :] @ (reset * h) + bias[2 * n :]
        return ((1 - update) * fs[1](z(gates[2 * n :] + inner)) + update * h,)
    c = state[1]
    i, o, f, g = np.split(gates + r @ h + bias, 4)
    into = fs[0](z(i + p[:n] * c))
    keep = 1 - into if attrs.get("input_forget") else fs[0](z(f + p[2 * n :] * c))
    cell = keep * c + into * fs[1](z(g))
    return fs[0](z(o + p[n : 2 * n] * cell)) * fs[2](cell), cell


def expected(kind: str, attrs: dict[str, Any], given: dict[str, Any]) -> list[Any]:
    """All outputs in float64, in the layout of opset 7."""
    x, w, r = (given[name].astype(np.float64) for name in "XWR")
    turns = w.shape[0]
    names = attrs.get("activations", DEFAULTS[kind] * turns)
    fs = functions(names, attrs.get("activation_alpha", []), attrs.get("activation_beta", []))
    steps, batch = x.shape[:2]
    width = GATES[kind] * HIDDEN
    b = given.get("B", np.zeros((turns, 2 * width))).astype(np.float64)
    p = given.get("P", np.zeros((turns, 3 * HIDDEN))).astype(np.float64)
    states = 2 if kind == "LSTM" else 1
    y = np.zeros((steps, turns, batch, HIDDEN))
    ends = np.zeros((states, turns, batch, HIDDEN))
    for d in range(turns):
        own = fs[d * len(DEFAULTS[kind]) : (d + 1) * len(DEFAULTS[kind])]
        for e in range(batch):
            length = given["sequence_lens"][e] if "sequence_lens" in given else steps
            state = tuple(
                given[name][d, e].astype(np.float64) if name in given else np.zeros(HIDDEN)
                for name in ("initial_h", "initial_c")[:states]
            )
            backwards = d == 1 or attrs.get("direction") == "reverse"
            for t in reversed(range(length)) if backwards else range(length):
                gates = w[d] @ x[t, e] + b[d, :width]
                state = step(kind, attrs, own, gates, r[d], b[d, width:], p[d], state)
                y[t, d, e] = state[0]
            for k, value in enumerate(state):
                ends[k, d, e] = value
    return [y, *ends]


def inputs(kind: str, turns: int, optional: str, dtype: Any = np.float32) -> dict[str, Any]:
    """Random inputs; ``optional`` names which of those that may be left out are there: b, l, h, c, p."""
    rng = np.random.default_rng(len(kind) + turns)
    width = GATES[kind] * HIDDEN

    def some(*shape: int) -> Any:
        return rng.uniform(-0.6, 0.6, shape).astype(dtype)

    found = {"X": some(STEPS, BATCH, SIZE) * 3, "W": some(turns, width, SIZE), "R": some(turns, width, HIDDEN)}
    if "b" in optional:
        found["B"] = some(turns, 2 * width)
    if "l" in optional:
        found["sequence_lens"] = np.array([STEPS, 2, 0], np.int32)
    if "h" in optional:
        found["initial_h"] = some(turns, BATCH, HIDDEN)
    if "c" in optional:
        found["initial_c"] = some(turns, BATCH, HIDDEN)
    if "p" in optional:
        found["P"] = some(turns, 3 * HIDDEN)
    return found


def compiled(kind: str, given: dict[str, Any], attrs: dict[str, Any], constant: str = "", **options: Any) -> Any:
    """What the model of one node computes."""
    model = file_of(kind, given, attrs, constant=constant, **options)
    return Backend.prepare(model).run([value for name, value in given.items() if name not in constant.split()])


def file_of(
    kind: str, given: dict[str, Any], attrs: dict[str, Any], opset: int = 22, constant: str = "", steps: Any = STEPS
) -> onnx.ModelProto:
    """A model of one node; inputs in ``constant`` are initializers, X has ``steps``."""
    order = ["X", "W", "R", "B", "sequence_lens", "initial_h", *(["initial_c", "P"] if kind == "LSTM" else [])]
    names = [name if name in given else "" for name in order]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, names, outputs, hidden_size=HIDDEN, **attrs)
    infos = []
    for name, value in given.items():
        shape = [steps, *value.shape[1:]] if name == "X" and not attrs.get("layout") else value.shape
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    kept = [info for info in infos if info.name not in constant.split()]
    weights = [onnx.numpy_helper.from_array(given[name], name) for name in constant.split()]
    element = infos[0].type.tensor_type.elem_type
    out = [helper.make_tensor_value_info(o, element, [None] * (4 if o == "Y" else 3)) for o in outputs]
    graph = helper.make_graph([node], "m", kept, out, weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def check(kind: str, attrs: dict[str, Any], optional: str = "", **options: Any) -> None:
    turns = 2 if attrs.get("direction") == "bidirectional" else 1
    given = inputs(kind, turns, optional)
    got = compiled(kind, given, attrs, **options)
    for a, b in zip(got, expected(kind, attrs, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_every_direction_with_all_inputs(kind: str, direction: str) -> None:
    check(kind, {"direction": direction}, "blhcp" if kind == "LSTM" else "blh")


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("opset", [1, 7, 14])
def test_opsets(kind: str, opset: int) -> None:
    attrs: dict[str, Any] = {"output_sequence": 1} if opset == 1 else {}
    check(kind, attrs, "b", opset=opset, constant="W R B")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_activation(name: str) -> None:
    check("RNN", {"activations": [name]}, "bh")


def test_numbers_of_activations_go_to_those_that_take_them() -> None:
    names = ["Sigmoid", "LeakyRelu", "ScaledTanh", "HardSigmoid", "Tanh", "Affine"]
    attrs = {
        "direction": "bidirectional",
        "activations": names,
        "activation_alpha": [0.3, 0.7, 0.25, 0.9],
        "activation_beta": [1.2, 0.4, 0.1],
    }
    check("LSTM", attrs, "bhc")


@pytest.mark.parametrize("kind", GATES)
def test_clip(kind: str) -> None:
    check(kind, {"clip": 0.4}, "bh")


def test_linear_before_reset() -> None:
    check("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, "blh")


def test_input_and_forget_coupled() -> None:
    check("LSTM", {"input_forget": 1}, "bhcp")


@pytest.mark.parametrize("kind", GATES)
def test_batch_first(kind: str) -> None:
    attrs = {"direction": "bidirectional", "layout": 1}
    given = inputs(kind, 2, "blhc" if kind == "LSTM" else "blh")
    turned = {
        name: np.swapaxes(value, 0, 1).copy() if name in ("X", "initial_h", "initial_c") else value
        for name, value in given.items()
    }
    y, *ends = expected(kind, attrs, given)
    got = compiled(kind, turned, attrs)
    np.testing.assert_allclose(got[0], np.transpose(y, (2, 0, 1, 3)), rtol=2e-5, atol=2e-6)
    for a, b in zip(got[1:], ends, strict=True):
        np.testing.assert_allclose(a, np.swapaxes(b, 0, 1), rtol=2e-5, atol=2e-6)


def test_lengths_with_an_open_number_of_steps() -> None:
    check("GRU", {"direction": "bidirectional"}, "bl", steps="steps", constant="W R B")


def test_lengths_that_are_constant() -> None:
    check("LSTM", {}, "bl", constant="W R B sequence_lens")


def test_an_infinite_value_beyond_the_end_is_not_seen() -> None:
    given = inputs("RNN", 1, "l")
    given["X"][3:, 1] = np.inf
    attrs = {"activations": ["Relu"]}
    got = compiled("RNN", given, attrs)
    assert np.isfinite(got[0]).all() and np.isfinite(got[1]).all()


def test_float64() -> None:
    given = inputs("LSTM", 1, "bhcp", np.float64)
    for a, b in zip(compiled("LSTM", given, {}), expected("LSTM", {}, given), strict=True):
        assert a.dtype == np.float64
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("attrs", "match"),
    [
        ({"activations": ["Swish"]}, "unknown activation 'Swish'"),
        ({"activations": ["Tanh", "Tanh"]}, "expected 1 activations, got 2"),
        ({"direction": "bidirectional"}, "does not fit weights of 1 directions"),
    ],
)
def test_errors(attrs: dict[str, Any], match: str) -> None:
    with pytest.raises(MlaotError, match=match):
        compiled("RNN", inputs("RNN", 1, ""), attrs)


@pytest.mark.parametrize(("kind", "before"), [("RNN", 0), ("GRU", 0), ("GRU", 1), ("LSTM", 0)])
def test_products_with_bytes(kind: str, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both products of each direction, within bounds that need no sample; off by 3 % of the largest answer."""
    monkeypatch.setitem(globals(), "HIDDEN", 48)
    monkeypatch.setitem(globals(), "SIZE", 40)
    attrs: dict[str, Any] = {"direction": "bidirectional"} | ({"linear_before_reset": 1} if before else {})
    given = inputs(kind, 2, "b")
    for name in "WR":
        given[name] /= 4
    weights = "W R B"
    model = mlaot.onnx.load(file_of(kind, given, attrs, constant=weights))
    module = run("nn", trace(model), Options(quantize="int8"))
    states = 4 if kind == "GRU" else 2  # the weights of the candidate are apart
    assert [product.range for product in module.quantized] == [(-1, 1)] * states + [None] * 2
    assert not module.unquantized and "contract(" not in str(module.graphs["forward"])
    found = evaluate(module.graphs["forward"], {**module.slots, "X": given["X"]})
    for a, b in zip(found.values(), expected(kind, attrs, given), strict=True):
        assert np.abs(a - b).max() < 0.03 * np.abs(b).max()
