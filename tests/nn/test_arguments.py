"""Every argument in each of its forms: traced, a constant, a list, a number, None; and what is said of wrong ones.

The tables say how arguments are filled; an argument that they do not have fails the tests.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError, nn, optim
from mlaot.ir import Type
from mlaot.ir.types import BY_NUMPY
from mlaot.nn import functional as F
from mlaot.nn.module import Layer
from mlaot.nn.stateless import Function
from mlaot.optim.base import Shared

from ..frontend.tracing import graph_of, run
from . import further_arguments
from .cases import leaves, make_constant, numbers
from .further_special import DRAWN
from .special import FORMULAS

Array = np.ndarray[Any, Any]
Options = dict[str, Any]


def single(*shape: int, seed: int = 0) -> Array:
    return numbers(shape, seed).astype(np.float32)


def probabilities(*shape: int, seed: int = 0) -> Array:
    return (single(*shape, seed=seed) + 2) / 4


X, WEIGHTS = single(4, 6), np.abs(single(6, seed=5)) + 0.25
LABELS = np.array([0, 5, 2, 1])
NUMBERS: dict[str, Options] = {
    "celu": {"alpha": 0.75},
    "elu": {"alpha": 0.75},
    "gelu": {"approximate": "tanh"},
    "glu": {"dim": 0},
    "hardtanh": {"min_val": -0.5, "max_val": 0.75},
    "leaky_relu": {"negative_slope": 0.25},
    "log_softmax": {"dim": 0},
    "softmax": {"dim": 0},
    "softplus": {"beta": 2.0, "threshold": 3.0},
    "dropout": {"p": 0.0, "training": False},
    "flatten": {"start_dim": 0, "end_dim": 1},
    "normalize": {"p": 3.0, "dim": 0, "eps": 0.5},
}
PLAIN = (
    "hardsigmoid",
    "hardswish",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softsign",
    "tanh",
)
PAIR = {"input": X, "target": single(4, 6, seed=1)}
STATISTICS = {"running_mean": single(6, seed=2), "running_var": WEIGHTS, "weight": single(6, seed=3), "bias": WEIGHTS}
CLASSES = {"input": X, "target": LABELS, "weight": WEIGHTS, "ignore_index": 2, "reduction": "sum"}
# All arguments of each function; those that have a default may be left out.
FUNCTIONS: dict[str, Options] = {
    **{name: {"input": X} for name in PLAIN},
    **{name: {"input": X} | options for name, options in NUMBERS.items()},
    **{name: {"input": X} | options for name, (options, _) in FORMULAS.items()},
    "prelu": {"input": X, "weight": WEIGHTS},
    "linear": {"input": X, "weight": single(3, 6, seed=1), "bias": single(3, seed=2)},
    "embedding": {"input": LABELS, "weight": single(6, 2), "padding_idx": 2},
    "one_hot": {"tensor": LABELS, "num_classes": 7},
    "pad": {"input": X, "pad": (1, 2), "mode": "constant", "value": 0.5},
    "cosine_similarity": {"x1": X, "x2": single(4, 6, seed=1), "dim": 0, "eps": 0.5},
    "batch_norm": {"input": X, **STATISTICS, "training": False, "momentum": 0.25, "eps": 0.5},
    "layer_norm": {"input": X, "normalized_shape": 6, "weight": WEIGHTS, "bias": single(6, seed=2), "eps": 0.5},
    "rms_norm": {"input": X, "normalized_shape": (6,), "weight": WEIGHTS, "eps": 0.5},
    "group_norm": {"input": X, "num_groups": 2, "weight": WEIGHTS, "bias": single(6, seed=2), "eps": 0.5},
    "instance_norm": {"input": single(2, 6, 4), **STATISTICS, "use_input_stats": False, "momentum": 0.25, "eps": 0.5},
    "mse_loss": {**PAIR, "reduction": "sum", "weight": probabilities(4, 6)},
    "l1_loss": {**PAIR, "reduction": "sum", "weight": probabilities(4, 6)},
    "huber_loss": {**PAIR, "reduction": "sum", "weight": probabilities(4, 6), "delta": 0.5},
    "smooth_l1_loss": {**PAIR, "reduction": "sum", "beta": 0.5},
    "hinge_loss": {**PAIR, "reduction": "sum", "margin": 0.5},
    "hinge_embedding_loss": {**PAIR, "reduction": "sum", "margin": 0.5},
    "kl_div": {**PAIR, "reduction": "sum", "log_target": True},
    "binary_cross_entropy": {
        **{"input": probabilities(4, 6), "target": probabilities(4, 6, seed=1)},
        **{"weight": WEIGHTS, "reduction": "sum"},
    },
    "binary_cross_entropy_with_logits": {
        **{"input": X, "target": probabilities(4, 6), "weight": WEIGHTS, "pos_weight": WEIGHTS, "reduction": "sum"}
    },
    "nll_loss": CLASSES,
    "cross_entropy": {**CLASSES, "label_smoothing": 0.25},
    "scaled_dot_product_attention": {
        **{"query": single(2, 3, 4), "key": single(2, 5, 4, seed=1), "value": single(2, 5, 4, seed=2)},
        **{"attn_mask": single(3, 5), "dropout_p": 0.0, "is_causal": False, "scale": 0.25, "enable_gqa": False},
    },
    "interpolate": {
        **{"input": single(1, 2, 5), "size": None, "scale_factor": 1.5, "mode": "linear", "align_corners": True},
        **{"recompute_scale_factor": True},
    },
    "global_avg_pool": {"input": single(1, 2, 4)},
    "global_max_pool": {"input": single(1, 2, 4)},
}


def windowed() -> Iterator[tuple[str, Options]]:
    for n in (1, 2, 3):
        x = {"input": single(1, 2, *(6, 5, 4)[:n])}
        kernel = {"weight": single(2, 2, *(2,) * n, seed=1), "bias": single(2, seed=2), "stride": 2, "padding": 1}
        yield f"conv{n}d", {**x, **kernel, "dilation": 2, "groups": 1}
        yield f"conv_transpose{n}d", {**x, **kernel, "dilation": 2, "groups": 1, "output_padding": 1}
        window = {**x, "kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True}
        yield f"max_pool{n}d", {**window, "dilation": 2}
        yield f"avg_pool{n}d", {**window, "count_include_pad": False} | ({"divisor_override": 3} if n > 1 else {})
        yield f"lp_pool{n}d", {**x, "norm_type": 2.0, "kernel_size": 2, "stride": 2, "ceil_mode": False}
        for kind in ("avg", "max"):
            yield f"adaptive_{kind}_pool{n}d", {**x, "output_size": 2}
        yield f"dropout{n}d", {**x, "p": 0.0, "training": False}


FUNCTIONS |= dict(windowed())
FUNCTIONS |= further_arguments.FUNCTIONS


def test_every_argument_of_every_function_is_filled() -> None:
    assert set(FUNCTIONS) == set(F.__all__) - DRAWN
    for name, options in FUNCTIONS.items():
        assert set(options) == set(inspect.signature(getattr(F, name)).parameters), name


FILLED = [(name, key) for name, options in FUNCTIONS.items() for key in options]


def forms(value: Any) -> Iterator[Any]:
    """What a caller may give in place of an array or a number."""
    if isinstance(value, np.ndarray):
        yield value.tolist()
        yield tuple(value.tolist())
    elif isinstance(value, tuple):
        yield list(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield np.asarray(value)[()]
        yield np.asarray(value)


@pytest.mark.parametrize(("name", "key"), FILLED)
def test_forms(name: str, key: str) -> None:
    """The same answer in the same dtype, whatever the form of an argument, on plain arrays and traced."""
    function, options = getattr(F, name), FUNCTIONS[name]
    expected = function(**options)
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    others = {k: v for k, v in options.items() if k not in arrays}

    def compare(found: Any) -> None:
        sets_dtype = key == next(iter(options)) or (name, key) in (("embedding", "weight"), ("embedding_bag", "weight"))
        assert sets_dtype or np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def traced(**given: Any) -> Any:
        names = [k for k in arrays if k not in given]
        return run(
            lambda *xs: function(**others | given | dict(zip(names, xs, strict=True))), *[arrays[k] for k in names]
        )

    compare(traced())
    for form in forms(options[key]):
        compare(function(**options | {key: form}))
        if key != next(iter(options)):
            compare(traced(**{key: form}))
    if key in arrays and len(arrays) > 1:
        compare(traced(**{key: options[key]}))


REAL = [(n, k) for n, k in FILLED if isinstance(FUNCTIONS[n][k], float)]
# Numbers that decide what is computed; each is refused in one line where it is traced.
DECIDES = {"lower", "upper", "p", "label_smoothing", "beta", "delta", "scale_factor", "dropout_p"}
TAKES_PART = {("softplus", "beta"), ("local_response_norm", "beta")}


@pytest.mark.parametrize(("name", "key"), REAL)
def test_traced_numbers(name: str, key: str) -> None:
    """A number that only takes part may be traced: a slope that is learned, a margin that is an argument."""
    function, options = getattr(F, name), FUNCTIONS[name]

    def call() -> Any:
        return run(lambda number: function(**options | {key: number}), np.float32(options[key]))

    if key in DECIDES and (name, key) not in TAKES_PART:
        with pytest.raises(MlaotError):
            call()
    else:
        np.testing.assert_allclose(call(), function(**options), rtol=1e-5, atol=1e-6)


WRONG = (
    2.0,
    -1,
    np.float32(0.5),
    np.array(1),
    [],
    [0.5, 2.0],
    [[1], [2, 3]],
    "text",
    None,
    np.zeros((2, 0)),
    {},
    [None],
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "key"), FILLED)
def test_forms_without_a_meaning(name: str, key: str) -> None:
    """A number for an array, an array for a number, a text: an answer, or an error of ours; NumPy's of shapes alone."""
    function, options = getattr(F, name), FUNCTIONS[name]
    kind = inspect.signature(function).parameters[key].annotation
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray) and k != key}
    others = {k: v for k, v in options.items() if k not in arrays}
    for form in WRONG:
        given = others | {key: form}

        def traced(*tensors: Any, given: Options = given) -> Any:
            return function(**given, **dict(zip(arrays, tensors, strict=True)))

        try:
            function(**given, **arrays)
        except MlaotError as error:
            assert "\n" not in str(error) and len(str(error)) < 250
        except (ValueError, IndexError) as error:
            if str(error).startswith("index["):  # as the plain array's own would be
                continue
            assert kind == "Array" and not isinstance(form, str | dict | None), (name, key, form)
        if arrays:
            with contextlib.suppress(MlaotError):
                graph_of(traced, *[Type(BY_NUMPY[str(a.dtype)], a.shape) for a in arrays.values()])


# Layers: each argument of the constructor, and those of the call.
OWN: dict[str, tuple[Options, Options]] = {
    "Linear": ({"in_features": 6, "out_features": 3, "bias": False}, {"input": X}),
    "Embedding": ({"num_embeddings": 6, "embedding_dim": 2, "padding_idx": 1}, {"input": LABELS}),
    "PReLU": ({"num_parameters": 6, "init": 0.5}, {"input": X}),
    "LayerNorm": ({"normalized_shape": 6, "eps": 0.5, "elementwise_affine": True, "bias": False}, {"input": X}),
    "RMSNorm": ({"normalized_shape": 6, "eps": 0.5, "elementwise_affine": True}, {"input": X}),
    "GroupNorm": ({"num_groups": 2, "num_channels": 6, "eps": 0.5, "affine": True, "bias": False}, {"input": X}),
    "Flatten": ({"start_dim": 0, "end_dim": 1}, {"input": X}),
    "Dropout": ({"p": 0.5}, {"input": X}),
    "Identity": ({}, {"input": X}),
    "MultiheadAttention": (
        {
            **{"embed_dim": 6, "num_heads": 2, "dropout": 0.0, "bias": True, "kdim": 4, "vdim": 3},
            **{"batch_first": True, "num_kv_heads": 1},
        },
        {
            **{"query": single(2, 3, 6), "key": single(2, 5, 4, seed=1), "value": single(2, 5, 3, seed=2)},
            **{"key_padding_mask": single(2, 5), "need_weights": True, "attn_mask": single(3, 5, seed=3)},
            **{"average_attn_weights": False, "is_causal": False},
        },
    ),
}


def layers() -> Iterator[tuple[str, tuple[Options, Options]]]:
    for n in (1, 2, 3):
        x = {"input": single(2, 2, *(6, 5, 4)[:n])}
        kernel = {"in_channels": 2, "out_channels": 2, "kernel_size": 2, "stride": 2, "padding": 1, "dilation": 2}
        yield f"Conv{n}d", ({**kernel, "groups": 1, "bias": True, "padding_mode": "zeros"}, x)
        yield f"ConvTranspose{n}d", ({**kernel, "groups": 1, "bias": True, "output_padding": 1}, x)
        norm = {"num_features": 2, "eps": 0.5, "momentum": 0.5, "affine": True, "track_running_stats": True}
        yield f"BatchNorm{n}d", ({**norm, "bias": True}, x)
        yield f"InstanceNorm{n}d", ({**norm, "bias": True}, x)
        yield f"Dropout{n}d", ({"p": 0.5}, x)
    cell = {"input_size": 6, "hidden_size": 3, "bias": True}
    deep = {"num_layers": 1, "batch_first": True, "dropout": 0.0, "bidirectional": False}
    state, several = single(4, 3, seed=1), single(1, 4, 3, seed=1)
    for kind in ("RNN", "GRU", "LSTM"):
        more: Options = {"nonlinearity": "relu"} if kind == "RNN" else {}
        hx = [(s, s) if kind == "LSTM" else s for s in (state, several)]
        yield f"{kind}Cell", ({**cell, **more}, {"input": X, "hx": hx[0]})
        more |= {"proj_size": 0} if kind == "LSTM" else {}
        yield kind, ({**cell, **deep, **more}, {"input": single(4, 5, 6), "hx": hx[1]})


OWN |= dict(layers())
OWN |= further_arguments.OWN
SHARED = {"self", "dtype", "rng", "args", "options"}


def test_every_argument_of_every_layer_is_filled() -> None:
    found = [getattr(nn, name) for name in nn.__all__]
    own = [c for c in found if isinstance(c, type) and issubclass(c, Layer) and not issubclass(c, Function)]
    assert set(OWN) == {c.__name__ for c in own}
    for c in own:
        for options, method in zip(OWN[c.__name__], (c.__init__, c.forward), strict=True):
            assert set(options) == set(inspect.signature(method).parameters) - SHARED, c.__name__


def layer_of(name: str, made: Options) -> nn.Module:
    """A layer whose initial values are always the same."""
    takes_rng = "rng" in inspect.signature(getattr(nn, name)).parameters
    layer: nn.Module = getattr(nn, name)(**made, **({"rng": 0} if takes_rng else {}))
    return layer


def outputs(name: str, made: Options, given: Options) -> list[Array]:
    return [np.asarray(x) for x in leaves(layer_of(name, made)(**given))]


def forms_of(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple) and isinstance(value[0], np.ndarray):
        yield [part.tolist() for part in value]
    else:
        yield from forms(value)


@pytest.mark.parametrize("name", OWN)
def test_forms_of_layers(name: str) -> None:
    made, given = OWN[name]
    expected = outputs(name, made, given)
    for key, value in made.items():
        for form in forms(value):
            for found, array in zip(outputs(name, made | {key: form}, given), expected, strict=True):
                np.testing.assert_array_equal(found, array)
                assert found.dtype == array.dtype
    for key, value in given.items():
        for form in forms_of(value):
            for found, array in zip(outputs(name, made, given | {key: form}), expected, strict=True):
                np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OWN)
def test_layers_traced_with_constants(name: str) -> None:
    """Only the first input is traced, all others are constants or lists."""
    made, given = OWN[name]
    first, *rest = given
    for others in ({k: given[k] for k in rest}, {k: next(forms_of(given[k]), given[k]) for k in rest}):
        layer, expected = layer_of(name, made), outputs(name, made, given)
        make_constant(layer)
        found = leaves(run(lambda x, layer=layer, others=others: layer(x, **others), given[first]))
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-6)


# Optimizers.
OPTIMIZERS: dict[str, Options] = {
    "SGD": {"lr": 0.25, "momentum": 0.5, "dampening": 0.25, "weight_decay": 0.5, "nesterov": False},
    "Adam": {"lr": 0.25, "betas": (0.5, 0.75), "eps": 0.5, "weight_decay": 0.5, "amsgrad": True},
    "AdamW": {"lr": 0.25, "betas": (0.5, 0.75), "eps": 0.5, "weight_decay": 0.5, "amsgrad": True},
    "RMSprop": {"lr": 0.25, "alpha": 0.5, "eps": 0.5, "weight_decay": 0.5, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.25, "lr_decay": 0.5, "weight_decay": 0.5, "initial_accumulator_value": 0.5, "eps": 0.5},
    "Lion": {"lr": 0.25, "betas": (0.5, 0.75), "weight_decay": 0.5},
}
OPTIMIZERS |= further_arguments.OPTIMIZERS
OF_ALL: Options = {
    **{"maximize": True, "groups": ({"params": ["b"], "lr": 0.5},), "schedule": optim.linear_lr()},
    **{"clip_grad_norm": 2.0, "clip_grad_value": 0.75},
}


def test_every_argument_of_every_optimizer_is_filled() -> None:
    makers = {name: getattr(optim, name) for name in optim.__all__}
    own = {n for n, c in makers.items() if isinstance(c, type) and c is not optim.Optimizer}
    assert set(OPTIMIZERS) == own
    assert set(OF_ALL) == set(Shared.__annotations__)
    for name, options in OPTIMIZERS.items():
        assert set(options) == set(inspect.signature(getattr(optim, name)).parameters) - {"shared"}


def updated(name: str, options: Options) -> list[Array]:
    optimizer = getattr(optim, name)(**options)
    parameters, state = {"a": single(3), "b": single(2, seed=1)}, None
    for _ in range(2):
        state = optimizer.init(parameters) if state is None else state
        parameters, state = optimizer.update(parameters, {"a": single(3, seed=2), "b": single(2, seed=3)}, state)
    return [*parameters.values(), *state.values()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_forms_of_optimizers(name: str) -> None:
    """Numbers of NumPy, lists and None give what Python's numbers and leaving it out give, in single precision."""
    options = OPTIMIZERS[name] | OF_ALL
    expected = updated(name, options)
    for key, value in options.items():
        for form in (*forms(value), *([np.array(value)] if key == "betas" else [])):
            for found, array in zip(updated(name, options | {key: form}), expected, strict=True):
                np.testing.assert_array_equal(found, array)
                assert found.dtype == array.dtype
    for key in ("groups", "schedule", "clip_grad_norm", "clip_grad_value"):
        without = updated(name, {k: v for k, v in options.items() if k != key})
        for found, array in zip(updated(name, options | {key: None}), without, strict=True):
            np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_options_without_a_meaning(name: str) -> None:
    for key in OPTIMIZERS[name] | OF_ALL:
        for form in ("text", {"a": 1}, [[1], [2, 3]], [None], np.zeros((2, 0)), lambda: 0):
            if key == "schedule" and callable(form):
                continue
            with pytest.raises(MlaotError) as raised:
                getattr(optim, name)(**{key: form})
            assert "\n" not in str(raised.value)


# What is said of names that there are not.
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: optim.Adam(params=[], lr=0.1), "Adam: expected the parameters to train"),
    (lambda: optim.Adam(learning_rate=0.1), "Adam has no argument 'learning_rate'; did you mean 'lr'"),
    (lambda: optim.Adam(1e-3, foreach=True), "Adam has no argument 'foreach'; it has lr, betas, eps"),
    (lambda: nn.ReLU(inplace=True), "ReLU has no argument 'inplace': nothing is changed in place here; leave it out"),
    (lambda: nn.Dropout(0.5, inplace=True), "Dropout has no argument 'inplace'"),
    (lambda: nn.Linear(2), "Linear: missing a required argument: 'out_features'; its arguments are in_features"),
    (lambda: nn.Linear(2, "3"), "Linear: out_features: expected a whole number, got '3'"),
    (lambda: nn.Linear(2, 3, device="cpu"), "Linear has no argument 'device': modules run on the CPU"),
    (lambda: nn.Linear(2, 3)(X[:, :2], 1), "Linear: too many positional arguments; its arguments are input"),
    (lambda: nn.LSTMCell(6, 3)(X, np.zeros((2, 2))), "LSTMCell: hx: expected a pair of arrays, got"),
    (lambda: F.softmax(X, axis=0), "softmax has no argument 'axis'; did you mean 'dim'"),
    (lambda: F.elu(X, alpha=[1.0, 2.0]), r"elu: alpha: expected a number, got \[1.0, 2.0\]"),
    (lambda: F.cross_entropy(X, LABELS, weight=[1.0, 2.0]), r"weight: expected one number for each of 6 classes"),
    (lambda: F.relu([[1], [2, 3]]), "relu: input: expected an array or a list of numbers"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes(number: int) -> None:
    call, message = MISTAKES[number]
    with pytest.raises(MlaotError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (nn, "LazyConv2d", "give Conv2d the number of its inputs"),
        (nn, "MaxUnpool2d", "the places of maxima are not kept; use Upsample or ConvTranspose2d"),
        (nn, "NonsenseOfMine", "what is missing can be written in Python, as a Module or a function"),
        (nn, "Conv2D", "did you mean 'Conv2d'"),
        (nn, "TransformerEncoderLayr", "did you mean 'TransformerEncoderLayer'"),
        (nn, "kaiming_uniform_", "it is mlaot.nn.init.kaiming_uniform_"),
        (mlaot, "Linear", "it is mlaot.nn.Linear"),
        (mlaot, "SGD", "it is mlaot.optim.SGD"),
        (mlaot, "cross_entropy", "it is mlaot.nn.functional.cross_entropy"),
        (mlaot, "sofmax", "did you mean 'softmax'"),
        (nn, "one_hot", "it is mlaot.nn.functional.one_hot"),
        (nn.init, "kaiming_normal", "did you mean 'kaiming_normal_'"),
        (F, "foo", "what is missing can be written in Python"),
        (F, "cross_entrop", "did you mean 'cross_entropy'"),
        (optim, "LBFGS", "it evaluates the loss several times an update; use Adam"),
        (optim, "adam", "did you mean 'Adam'"),
        (optim, "StepLR", "it is mlaot.optim.lr_scheduler.StepLR"),
        (optim, "multiplicative_lr", "use lambda_lr with the product as a function of the step"),
        (optim.lr_scheduler, "step_lr", "it is mlaot.optim.step_lr"),
    ],
)
def test_names_that_there_are_not(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"module {module.__name__!r} has no attribute {name!r}; {hint}"):
        getattr(module, name)
    assert not hasattr(module, "__wrapped__")
