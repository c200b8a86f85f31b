"""Functions and layers on special values against PyTorch's answers: on plain arrays, traced, and as compiled C.

``special.py`` has the cases, ``tests/reference/make_nn.py`` stored the answers. What differs knowingly is in
``DIFFERS`` and ``STEEP``, and in the docstring of the function.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn
from mlaot.evaluate import evaluate
from mlaot.ir import Graph, Type
from mlaot.ir.types import BY_NUMPY
from mlaot.lower.lower import lower
from mlaot.nn import functional as F
from mlaot.nn.stateless import Function

from ..arrayapi.engines import passed
from ..compiled import AVAILABLE, Library
from ..frontend.tracing import graph_of, run
from . import further_special
from .cases import filling, leaves, make_constant, numbers
from .special import FLOATS, FORMULAS, INTEGERS, Special, cotangent, values

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).parents[1] / "reference" / "special.npz"))


def by_formula(names: dict[str, str]) -> list[Special]:
    """Cases of functions or layers, by the names of functions."""
    return [
        Special(f"{names[name]}.0", names[name], (values,), options, formula=formula)
        for name, (options, formula) in FORMULAS.items()
    ]


LAYER_OF = {c.function.__name__: c.__name__ for c in vars(nn).values() if hasattr(c, "function")}
FUNCTIONS = [*further_special.FUNCTIONS, *by_formula({name: name for name in FORMULAS})]
LAYERS = [*further_special.LAYERS, *by_formula(LAYER_OF)]
CASES = [(case, dtype) for case in (*FUNCTIONS, *LAYERS) for dtype in case.dtypes]
# Not layers that are functions, nor those that update statistics, which ``test_reference.py`` has.
TRACED = [
    (case, dtype)
    for case, dtype in CASES
    if case in FUNCTIONS or (not case.training and not issubclass(getattr(nn, case.function), Function))
]


def each(cases: list[tuple[Special, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("case", "dtype"), cases, ids=lambda x: x.name if isinstance(x, Special) else x)


# Names of ``nn`` that compute nothing themselves, and one that PyTorch has not, compared with scikit-learn.
NO_LAYERS = {"Module", "ModuleDict", "ModuleList", "Sequential", "functional", "init", "TreeEnsemble"}
NO_LAYERS |= {"TransformerDecoder", "TransformerEncoder"}  # of which Transformer is made
NO_LAYERS |= {"Buffer", "Parameter", "ParameterDict", "ParameterList"}


def test_every_function_and_layer_has_answers() -> None:
    assert {case.function for case in FUNCTIONS} == set(F.__all__) - further_special.DRAWN
    assert {case.function for case in LAYERS} == set(nn.__all__) - NO_LAYERS
    stored = {f"{case.name}.{dtype}" for case, dtype in CASES if case.formula is None}
    assert {key.partition(":")[0] for key in DATA} == stored


def function_of(case: Special, dtype: str) -> Callable[..., list[Any]]:
    """The function, or a layer whose parameters are filled, of the inputs and the arrays by name; a list of outputs."""
    if case in FUNCTIONS:
        function, options = getattr(F, case.function), case.options
    else:
        function, options = layer_of(case, dtype), {}
        if not case.training:
            make_constant(function)
    names = list(case.extra)

    def call(*arrays: Any) -> list[Any]:
        parts = iter(arrays)
        inputs = [packed(x, parts) for x in case.inputs]
        return leaves(function(*inputs, **dict(zip(names, parts, strict=True)), **options))

    return call


def packed(value: Any, parts: Iterator[Any]) -> Any:
    """An input of a case, its arrays taken from ``parts``."""
    if isinstance(value, tuple):
        return tuple(packed(part, parts) for part in value)
    return next(parts) if callable(value) else value


def layer_of(case: Special, dtype: str) -> Any:
    try:
        layer = getattr(nn, case.function)(*case.args, dtype=dtype, **case.options)
    except mlaot.MlaotError:  # it has no parameters
        layer = getattr(nn, case.function)(*case.args, **case.options)
    layer.load_state_dict({k: filling(k, v.shape) for k, v in layer.state_dict().items()})
    return layer


def arrays_of(case: Special, dtype: str) -> list[Array]:
    inputs, extra = case.arrays(dtype)
    return [*leaves(inputs), *extra.values()]


@cache
def graph(number: int) -> Graph:
    """The outputs of a case, and the gradients that are stored for it."""
    case, dtype = TRACED[number]
    function, places = function_of(case, dtype), case.differentiable(dtype)

    def total(*arrays: Any) -> Any:
        return sum(np.sum(y * cotangent(y.shape, dtype)) for y in function(*arrays))

    def both(*arrays: Any) -> list[Any]:
        slopes = mlaot.grad(total, argnums=places)(*arrays) if places else []
        return [*function(*arrays), *slopes]

    traced, _ = graph_of(both, *[Type(BY_NUMPY[str(a.dtype)], a.shape) for a in arrays_of(case, dtype)])
    return traced


def test_the_answers_are_many() -> None:
    assert len(CASES) > 500
    assert sum(value.size for value in DATA.values()) > 250_000


# What is a sum of terms of both signs, to be compared by absolute errors too.
SUMS = {
    *("gelu", "interpolate", "log_softmax", "cross_entropy"),
    *("cosine_embedding_loss", "triplet_margin_loss", "CosineEmbeddingLoss", "TripletMarginLoss"),
    *("batch_norm", "instance_norm", "group_norm", "layer_norm"),
    *("GELU", "LogSoftmax", "CrossEntropyLoss", "RNN", "GRU", "GRUCell", "LSTM", "LSTMCell", "MultiheadAttention"),
}


# Activations that keep the sign of zeros; relu makes +0 of -0, as NumPy's maximum with 0 may, PyTorch's keeps it.
SIGNED = {
    *(
        "celu",
        "elu",
        "gelu",
        "hardswish",
        "hardtanh",
        "leaky_relu",
        "mish",
        "prelu",
        "selu",
        "silu",
        "softsign",
        "tanh",
    ),
}


def is_large(x: Array) -> Array:
    """Infinite, or so large that a sum or a square overflows, or does not, by the order of the work."""
    return np.isinf(x) | (np.abs(np.nan_to_num(x)) > 1e30)


def channels(x: Array, values: Array) -> Array:
    return np.broadcast_to(values.reshape(-1, *(1,) * (x.ndim - 2)), x.shape)


# What differs knowingly: where, of the arrays of a case and PyTorch's answer.
Where = Callable[[list[Array], Array], Array]
DIFFERS: dict[str, Where] = {
    # oneDNN's GELU of float32 alone gives nan at infinity; in float64 PyTorch gives infinity, too.
    "gelu.0": lambda arrays, _: is_large(arrays[0]),
    "GELU.0": lambda arrays, _: is_large(arrays[0]),
    # (x - mean) / sqrt(var + eps) * weight + bias as it is written; PyTorch's x * scale + shift meets inf - inf.
    "batch_norm.0": lambda arrays, _: is_large(arrays[0]) | channels(arrays[0], is_large(arrays[1])),
    "batch_norm.2": lambda arrays, _: channels(arrays[0], is_large(arrays[3])),
    "group_norm.2": lambda arrays, _: channels(arrays[0], is_large(arrays[1])),
    "instance_norm.1": lambda arrays, _: channels(arrays[0], is_large(arrays[1])),
    # A barred key counts nothing, whatever its score; PyTorch adds minus infinity to the score, which may be nan.
    "scaled_dot_product_attention.7": lambda _, expected: np.isnan(expected),
}
# The same of gradients, by function.
STEEP: dict[str, Where] = {
    # min(relu(x), 6): half of it passes at 6, nothing in PyTorch; and its product with an infinity.
    "hardsigmoid": lambda arrays, _: arrays[0] == 3,
    "hardswish": lambda arrays, _: (arrays[0] == 3) | np.isinf(arrays[0]),
    # A logarithm below -100 counts as -100, so it is flat; PyTorch limits the slope. It refuses what is no probability.
    "binary_cross_entropy": lambda arrays, _: ~((arrays[0] > 1e-10) & (arrays[0] < 1)),
    # Of what is left out for small targets, whose gradient is nan in PyTorch.
    "poisson_nll_loss": lambda arrays, expected: ~np.isfinite(expected),
    # Of x log x at 0.
    "kl_div": lambda arrays, expected: ~np.isfinite(expected),
}
STEEP |= {
    name: STEEP[function]
    for name, function in {
        "Hardsigmoid": "hardsigmoid",
        "Hardswish": "hardswish",
        "BCELoss": "binary_cross_entropy",
        "KLDivLoss": "kl_div",
    }.items()
}


def spoiled(arrays: list[Array], like: Array) -> Array:
    """Where an example has numbers at which the parts of a gradient are infinite: they are compared by value only."""
    found = np.zeros(like.shape, bool)
    for x in arrays:
        if x.shape == like.shape and x.dtype.kind == "f":
            bad = np.isnan(x) if x.ndim == 1 and len(arrays) == 1 else np.isnan(x) | is_large(x)
            longest = int(np.argmax(x.shape))
            found |= bad.any(axis=tuple(i for i in range(x.ndim) if i != longest), keepdims=True)
    return found


def check(case: Special, key: str, found: Any, expected: Array, arrays: list[Array]) -> None:
    """Whether an output or a gradient is PyTorch's."""
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), key
    skipped = np.zeros(expected.shape, bool)
    relative, absolute = 0.0, 0.0
    if expected.dtype.kind == "f":
        limits = np.finfo(expected.dtype)
        relative, absolute = 32 * float(limits.eps), 2 * float(limits.smallest_normal)
        if key.startswith("x"):
            relative, absolute = 1000 * relative, 100 * float(limits.eps)
            skipped |= spoiled(arrays, expected)
            skipped |= STEEP.get(case.function, lambda *_: skipped)(arrays, expected)
        elif case.function in SUMS:
            usual = np.abs(expected[np.isfinite(expected) & ~is_large(expected)])
            absolute = 4 * float(limits.eps) * float(usual.max(initial=0))
        skipped |= DIFFERS.get(case.name, lambda *_: skipped)(arrays, expected)
    f, e = (x[~skipped].astype(np.longdouble) for x in (found, expected))
    with np.errstate(invalid="ignore"):
        near = np.abs(f - e) <= relative * np.abs(e) + absolute
        same = (f == e) | (np.isnan(f) & np.isnan(e)) | near
    if case.function in SIGNED and key.isdigit():
        same &= (f != 0) | (e != 0) | (np.signbit(f) == np.signbit(e))
    if not same.all():
        at = tuple(np.argwhere(~skipped)[~same][0])
        given = [
            x[at] if x.shape == expected.shape else x[at[0]] if x.ndim and x.shape[0] == len(expected) else ""
            for x in arrays
        ]
        raise AssertionError(
            f"{case.name} {key} {at}: {found[at]}, not {expected[at]}, of {given}; {(~same).sum()} of {same.size}"
        )
    return int(same.size)


@cache
def answers() -> dict[str, dict[str, Array]]:
    """PyTorch's, by case and dtype."""
    found: dict[str, dict[str, Array]] = {}
    for name, value in DATA.items():
        case, _, key = name.partition(":")
        found.setdefault(case, {})[key] = value
    return found


def expected_of(case: Special, dtype: str) -> dict[str, Array]:
    if case.formula is None:
        return answers()[f"{case.name}.{dtype}"]
    with np.errstate(all="ignore"):
        return {"0": case.formula(*arrays_of(case, dtype), **case.options).astype(dtype)}


@pytest.mark.parametrize("name", FORMULAS)
def test_gradient_of_a_formula(name: str) -> None:
    options, formula = FORMULAS[name]
    x, step = numbers((40,), 0), 1e-6
    slope = (formula(x + step, **options) - formula(x - step, **options)) / (2 * step)
    gradient = mlaot.grad(lambda x: np.sum(getattr(F, name)(x, **options)))
    np.testing.assert_allclose(run(gradient, x), slope, atol=1e-6)


@each(CASES)
def test_plain(case: Special, dtype: str) -> None:
    arrays = arrays_of(case, dtype)
    with warnings.catch_warnings(), mlaot.training(case.training):
        warnings.simplefilter("ignore")
        outputs = function_of(case, dtype)(*arrays)
    expected = [value for key, value in expected_of(case, dtype).items() if key.isdigit()]
    for i, (found, value) in enumerate(zip(outputs, expected, strict=True)):
        check(case, str(i), found, value, arrays)


def check_all(case: Special, dtype: str, outputs: list[Any]) -> None:
    expected = expected_of(case, dtype)
    assert list(expected) == [*[k for k in expected if k.isdigit()], *[f"x{i}" for i in case.differentiable(dtype)]]
    for (key, value), found in zip(expected.items(), outputs, strict=True):
        check(case, key, found, value, arrays_of(case, dtype))


@each(TRACED)
def test_traced(case: Special, dtype: str) -> None:
    inputs = {f"x{i}": a for i, a in enumerate(arrays_of(case, dtype))}
    outputs = evaluate(graph(TRACED.index((case, dtype))), inputs)
    check_all(case, dtype, list(outputs.values()))


# Instruction sets, optimization levels, and the dtypes that are compiled so.
COMPILED = {AVAILABLE[0]: ("-O0", ("float32",)), AVAILABLE[-1]: ("-O1", (*FLOATS, *INTEGERS))}


def libraries(folder: Path) -> dict[str, Library]:
    programs = {f"c{i}": lower(passed(graph(i))) for i in range(len(TRACED))}
    found = {}
    for isa, (level, dtypes) in COMPILED.items():
        chosen = {f"c{i}": programs[f"c{i}"] for i, (_, dtype) in enumerate(TRACED) if dtype in dtypes}
        flags = [level, "-Wno-unused-variable"]  # rows of empty arrays
        found[isa] = Library(chosen, isa, folder / isa, flags)
    return found


def test_compiled(tmp_path: Path) -> None:
    """All cases in one test: the libraries of all of them are made once."""
    wrong = []
    for isa, library in libraries(tmp_path).items():
        for number, (case, dtype) in enumerate(TRACED):
            if dtype in COMPILED[isa][1]:
                inputs = {f"x{i}": a for i, a in enumerate(arrays_of(case, dtype))}
                outputs = library.call(f"c{number}", "forward", inputs)
                try:
                    check_all(case, dtype, list(outputs.values()))
                except AssertionError as error:
                    wrong.append(f"{case.name}, {dtype}, {isa}: {error}")
    assert not wrong, "\n".join(wrong)
