"""What layers hold and how it is named, initial values, named dims, and what is refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import MlaotError, nn
from mlaot.evaluate import evaluate
from mlaot.frontend.numpy import random
from mlaot.frontend.trace.context import Trace, tracing, training
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Buffer, Parameter, Tensor
from mlaot.ir import Graph, Type
from mlaot.ir.types import f64, i64
from mlaot.nn import functional as F
from mlaot.nn import init

from .cases import numbers

Array = np.ndarray[Any, Any]


class Net(nn.Module):
    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 2, 3, rng=0)
        self.layers = [nn.Linear(4, 3, rng=1), (nn.Linear(3, 3, bias=False, rng=2),)]
        self.heads = {"a": nn.Linear(3, 2, rng=3)}
        self.body = nn.Sequential(nn.Linear(3, 3, rng=4), nn.ReLU(), nn.BatchNorm1d(3))
        self.again = self.layers[0]
        self.scale = Parameter(None, np.ones(1, np.float32))
        self.cache = Buffer(np.zeros(2, np.float32))
        self.width = 3

    def forward(self, x: Any) -> Any:
        return x * self.scale


STATE = [
    "scale",
    "cache",
    "conv1.weight",
    "conv1.bias",
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.0.weight",
    "heads.a.weight",
    "heads.a.bias",
    "body.0.weight",
    "body.0.bias",
    "body.2.weight",
    "body.2.bias",
    "body.2.running_mean",
    "body.2.running_var",
    "body.2.num_batches_tracked",
    "again.weight",
    "again.bias",
]


def test_names_are_paths_of_attributes() -> None:
    net = Net()
    assert list(net.state_dict()) == STATE
    buffers = [name for name, _ in net.named_buffers()]
    assert buffers == ["cache", "body.2.running_mean", "body.2.running_var", "body.2.num_batches_tracked"]
    shared = {"again.weight", "again.bias"}
    assert [name for name, _ in net.named_parameters()] == [n for n in STATE if n not in {*buffers, *shared}]
    assert len(list(net.parameters())) == len(STATE) - 6
    assert len(list(net.buffers())) == 4
    np.testing.assert_array_equal(net(np.full(2, 5.0)), 5.0)


def test_state_can_be_loaded() -> None:
    source, target = Net(), Net()
    state = {name: np.asarray(value + 1, np.float64) for name, value in source.state_dict().items()}
    target.load_state_dict(state)
    for name, value in target.state_dict().items():
        np.testing.assert_array_equal(value, state[name])
        assert value.dtype == source.state_dict()[name].dtype
    x = np.ones((1, 1, 3, 3), np.float32)
    assert np.any(target.conv1(x) != source.conv1(x))


def test_state_that_does_not_fit_is_refused() -> None:
    net = nn.Linear(2, 3)
    good = net.state_dict()
    with pytest.raises(MlaotError, match=r"missing \['bias'\], unexpected \['b'\]"):
        net.load_state_dict({"weight": good["weight"], "b": good["bias"]})
    with pytest.raises(MlaotError, match=r"'weight': expected shape \[3, 2\], got \[2, 3\]"):
        net.load_state_dict({"weight": good["weight"].T, "bias": good["bias"] + 1})
    np.testing.assert_array_equal(net.bias, good["bias"])
    net.load_state_dict({"bias": np.zeros(3), "other": np.zeros(1)}, strict=False)
    np.testing.assert_array_equal(net.bias, 0)


def test_an_array_that_is_assigned_is_the_new_value() -> None:
    """It stays a parameter: as a plain array it would be a constant, and nothing would learn."""
    net, tied = nn.Linear(2, 3), nn.Linear(2, 3)
    tied.weight = weight = net.weight
    net.weight = np.arange(6.0).reshape(3, 2)
    assert net.weight is weight is tied.weight and list(dict(net.named_parameters())) == ["weight", "bias"]
    assert np.asarray(weight).tolist() == [[0, 1], [2, 3], [4, 5]] and np.asarray(weight).dtype == np.float32
    with pytest.raises(MlaotError, match=r"Linear.weight: expected shape \[3, 2\], got \[2, 3\]"):
        net.weight = np.zeros((2, 3))
    norm = nn.BatchNorm1d(2)
    norm.running_mean = np.ones(2)
    assert np.asarray(dict(norm.named_buffers())["running_mean"]).tolist() == [1, 1]
    net.bias = None
    assert list(dict(net.named_parameters())) == ["weight"]


def test_sequential() -> None:
    net = nn.Sequential(nn.Linear(2, 3, rng=0), np.tanh, nn.Dropout(0.9))
    x = np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(net(x), np.tanh(net[0](x)))
    assert len(net) == 3
    named = nn.Sequential({"first": nn.Linear(2, 3), "last": nn.Linear(3, 1)})
    assert list(named.state_dict()) == ["first.weight", "first.bias", "last.weight", "last.bias"]


def test_containers() -> None:
    net = nn.Module()
    net.list = nn.ModuleList([nn.Linear(1, 1, bias=False)])  # type: ignore[attr-defined]
    net.list.append(nn.Linear(1, 1, bias=False))  # type: ignore[attr-defined]
    net.dict = nn.ModuleDict({"a": nn.Linear(1, 1, bias=False)})  # type: ignore[attr-defined]
    assert list(net.state_dict()) == ["list.0.weight", "list.1.weight", "dict.a.weight"]
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        net()


def test_every_layer_takes_seeds() -> None:
    """The same seed gives the same values, and so does the default generator started anew."""
    makers: list[Callable[..., nn.Module]] = [
        lambda **o: nn.Linear(3, 4, **o),
        lambda **o: nn.Conv1d(2, 4, 3, groups=2, **o),
        lambda **o: nn.ConvTranspose2d(2, 4, 3, **o),
        lambda **o: nn.Embedding(5, 3, **o),
        lambda **o: nn.LSTM(3, 4, num_layers=2, **o),
        lambda **o: nn.GRUCell(3, 4, **o),
        lambda **o: nn.MultiheadAttention(4, 2, **o),
    ]
    for make in makers:
        first, second, other = [make(rng=seed).state_dict() for seed in (1, 1, 2)]
        assert all(np.array_equal(first[name], second[name]) for name in first)
        assert any(not np.array_equal(first[name], other[name]) for name in first)
        init.seed(7)
        third = make().state_dict()
        init.seed(7)
        assert all(np.array_equal(third[name], value) for name, value in make().state_dict().items())
        assert {value.dtype for value in make(dtype=mlaot.f64).state_dict().values()} == {np.dtype(np.float64)}
        assert {value.dtype for value in first.values()} == {np.dtype(np.float32)}


def is_uniform(values: Any, bound: float) -> None:
    x = np.asarray(values, np.float64).ravel()
    assert np.abs(x).max() <= bound
    assert abs(x.mean()) < 5 * bound / math.sqrt(3 * x.size)
    assert x.std() == pytest.approx(bound / math.sqrt(3), rel=3 / math.sqrt(x.size))


def test_layers_start_as_in_pytorch() -> None:
    """Uniform within one over the root of what PyTorch takes for the number of inputs."""
    for made, fan in (
        (nn.Linear(64, 300, rng=0), 64),
        (nn.Conv2d(8, 60, 5, groups=2, rng=0), 4 * 25),
        (nn.ConvTranspose2d(64, 8, 5, groups=2, rng=0), 4 * 25),
    ):
        is_uniform(made.weight, 1 / math.sqrt(fan))
        if made.bias is not None and made.bias.size > 50:
            is_uniform(made.bias, 1 / math.sqrt(fan))
    for held in nn.LSTM(20, 25, bidirectional=True, rng=0).parameters():
        is_uniform(held, 0.2)
    attention = nn.MultiheadAttention(32, 4, rng=0)
    is_uniform(attention.in_proj_weight, math.sqrt(6 / (96 + 32)))
    is_uniform(attention.out_proj.weight, 1 / math.sqrt(32))
    assert not np.any(np.asarray(attention.in_proj_bias)) and not np.any(np.asarray(attention.out_proj.bias))
    table = np.asarray(nn.Embedding(100, 50, padding_idx=-1, rng=0).weight)
    assert table[:-1].std() == pytest.approx(1, rel=0.05) and not table[-1].any()


def test_initial_values() -> None:
    shape = (40, 30, 3)
    is_uniform(init.xavier_uniform_(shape, gain=2.0, rng=0), 2 * math.sqrt(6 / (90 + 120)))
    is_uniform(init.kaiming_uniform_(shape, rng=0, nonlinearity="relu"), math.sqrt(6 / 90))
    is_uniform(init.kaiming_uniform_(shape, a=math.sqrt(5), rng=0), 1 / math.sqrt(90))
    is_uniform(init.uniform_(1000, -0.5, 0.5, rng=0), 0.5)
    for values, std in (
        (init.xavier_normal_(shape, rng=0), math.sqrt(2 / 210)),
        (init.kaiming_normal_(shape, mode="fan_out", nonlinearity="relu", rng=0), math.sqrt(2 / 120)),
        (init.normal_(shape, 0.0, 0.3, rng=0), 0.3),
    ):
        assert values.dtype == np.float32 and values.shape == shape
        assert values.std() == pytest.approx(std, rel=0.05) and abs(values.mean()) < std / 10
        assert np.abs(values).max() > 2.5 * std
    assert init.zeros_((2, 3)).tolist() == [[0.0] * 3] * 2
    assert init.ones_(2, dtype=np.float64).dtype == np.float64
    assert init.constant_(2, 0.5).tolist() == [0.5, 0.5]


def test_truncated_normal() -> None:
    values = init.trunc_normal_(20000, 1.0, 2.0, 0.0, 2.0, rng=0)
    assert values.min() >= 0 and values.max() <= 2
    assert values.mean() == pytest.approx(1, abs=0.02)
    tail = math.erf(0.25 / math.sqrt(2)) / math.erf(0.5 / math.sqrt(2))  # share within half of the range
    assert np.mean(np.abs(values - 1) < 0.5) == pytest.approx(tail, abs=0.02)
    with pytest.raises(MlaotError, match="within two std of the mean"):
        init.trunc_normal_(3, 0.0, 1.0, 5.0, 6.0)


def test_orthogonal() -> None:
    for shape, rows in (((4, 9), True), ((9, 4), False), ((4, 3, 3), True)):
        x = init.orthogonal_(shape, gain=2.0, rng=0, dtype=np.float64).reshape(shape[0], -1)
        product = x @ x.T if rows else x.T @ x
        np.testing.assert_allclose(product, 4 * np.eye(4), atol=1e-12)


def test_initial_value_errors() -> None:
    for call, message in (
        (lambda: init.xavier_uniform_((3,)), "two axes or more"),
        (lambda: init.orthogonal_((3,)), "two axes or more"),
        (lambda: init.kaiming_normal_((3, 2), mode="fan"), "mode: expected one of 'fan_in', 'fan_out', got 'fan'"),
        (lambda: init.calculate_gain("gelu"), "expected one of .*, got 'gelu'"),
        (lambda: init.zeros_(3, dtype=np.int64), "expected a floating-point dtype, got int64"),
    ):
        with pytest.raises(MlaotError, match=message):
            call()


def test_dropout() -> None:
    random.seed(3)
    x = np.ones((200, 50), np.float32)
    layer = nn.Dropout(0.2)
    np.testing.assert_array_equal(layer(x), x)
    with training():
        y = layer(x)
    assert y.dtype == np.float32 and set(np.unique(y)) == {np.float32(0), np.float32(1.25)}
    assert np.mean(y == 0) == pytest.approx(0.2, abs=0.02)
    with training():
        channels = nn.Dropout2d(0.5)(np.ones((40, 10, 3, 3)))
        assert np.all(nn.Dropout(1.0)(x) == 0)
    assert np.all(channels == channels[:, :, :1, :1]) and 0.4 < np.mean(channels == 0) < 0.6
    with pytest.raises(MlaotError, match="probability from 0 to 1"):
        nn.Dropout(1.5)


def test_dropout_drops_no_nan() -> None:
    """As in PyTorch, which multiplies by 0."""
    x = np.full((40, 10), np.nan, np.float32)
    with training():
        assert np.isnan(F.dropout(x, 0.5)).all() and np.isnan(F.dropout(x, 1.0)).all()


def test_dropout_within_recurrent_and_attention_layers() -> None:
    x = numbers((5, 3, 4), 0)
    lstm = nn.LSTM(4, 6, num_layers=2, dropout=0.5, rng=0, dtype=np.float64)
    attention = nn.MultiheadAttention(4, 2, dropout=0.5, rng=0, dtype=np.float64)
    calls: list[Callable[[], Any]] = [lambda: lstm(x)[0], lambda: attention(x, x, x)[0]]
    for call in calls:
        still = call()
        with training():
            assert np.any(call() != still)
        np.testing.assert_array_equal(call(), still)


def test_grouped_heads_are_repeated_heads() -> None:
    """Shared heads of key and value give what as many equal heads would."""
    few = nn.MultiheadAttention(12, 4, num_kv_heads=2, rng=0, dtype=np.float64)
    many = nn.MultiheadAttention(12, 4, dtype=np.float64)
    weight = np.asarray(few.in_proj_weight)
    assert weight.shape == (12 + 6 + 6, 12)
    parts = [weight[:12], *[weight[i : i + 6].reshape(2, 3, 12).repeat(2, 0).reshape(12, 12) for i in (12, 18)]]
    state = few.state_dict() | {"in_proj_weight": np.concatenate(parts), "in_proj_bias": np.zeros(36)}
    many.load_state_dict(state)
    x = numbers((5, 2, 12), 0)
    for found, expected in zip(few(x, x, x, is_causal=True), many(x, x, x, is_causal=True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.all(np.triu(np.asarray(few(x, x, x, is_causal=True)[1])[0], 1) == 0)


def test_nothing_to_attend_to_gives_zeros() -> None:
    q = numbers((3, 4), 0)
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    y = F.scaled_dot_product_attention(q, q, q, mask)
    assert np.all(y[1] == 0) and np.all(np.isfinite(y))
    with pytest.raises(MlaotError, match="not both"):
        F.scaled_dot_product_attention(q, q, q, mask, is_causal=True)


def test_running_statistics_of_plain_arrays() -> None:
    x, mean, var = numbers((6, 3), 0), np.zeros(3), np.ones(3)
    F.batch_norm(x, mean, var, training=True, momentum=0.5)
    np.testing.assert_allclose(mean, x.mean(0) / 2)
    np.testing.assert_allclose(var, 0.5 + x.var(0, ddof=1) / 2)
    with pytest.raises(MlaotError, match="expected a mlaot Buffer or a NumPy array"):
        F.batch_norm(x, Parameter("m", mean), None, training=True)


def test_infinite_logits_do_no_harm() -> None:
    x = np.array([[0.0, -np.inf, 1.0]])
    assert np.isfinite(F.cross_entropy(x, np.array([2])))
    assert F.cross_entropy(x, np.array([1])) == np.inf
    two = np.concatenate([x, x])
    assert np.isfinite(F.cross_entropy(two, np.array([-100, 2])))
    assert np.isfinite(F.cross_entropy(two, np.array([1, 2]), ignore_index=1))


def test_hinge_loss() -> None:
    x, y = np.array([0.5, -2.0, 3.0]), np.array([1, 1, -1])
    assert F.hinge_loss(x, y, reduction="none").tolist() == [0.5, 3.0, 4.0]
    assert F.hinge_loss(x.astype(np.float32), y).dtype == np.float32
    assert F.hinge_loss(x, y, margin=0.0, reduction="sum") == 5.0


def test_unsigned_labels() -> None:
    """No unsigned label is the -100 that would be ignored, not even 156."""
    x = numbers((2, 200), 0)
    y = np.array([156, 3], np.uint8)
    assert F.cross_entropy(x, y) == F.cross_entropy(x, y.astype(np.int64))


def test_global_pools() -> None:
    x = numbers((2, 3, 4, 5), 0)
    np.testing.assert_allclose(F.global_avg_pool(x)[:, :, 0, 0], x.mean((2, 3)))
    np.testing.assert_array_equal(F.global_max_pool(x)[:, :, 0, 0], x.max((2, 3)))


def traced(function: Callable[..., Any], arrays: list[Array], shapes: list[tuple[Any, ...]]) -> list[Array]:
    """``function`` traced for ``shapes`` with named dims, run with ``arrays``."""
    graph = Graph("traced")
    trace = Trace(graph, temporary=True)
    kinds = {"f": f64, "i": i64}
    inputs = [
        graph.input(f"x{i}", Type(kinds[a.dtype.kind], s)) for i, (a, s) in enumerate(zip(arrays, shapes, strict=True))
    ]
    with tracing(trace):
        results = function(*map(Tensor, inputs))
        results = results if isinstance(results, tuple | list) else [results]
        graph.outputs = {str(i): as_node(r) for i, r in enumerate(results)}
    given = {f"x{i}": a for i, a in enumerate(arrays)} | {k: held.array for k, held in trace.held.items()}
    return list(evaluate(graph, {k: v for k, v in given.items() if k in graph.inputs}).values())


N, T = mlaot.dim("batch"), mlaot.dim("time")
ATTENTION = nn.MultiheadAttention(4, 2, num_kv_heads=1, dtype=np.float64)
LSTM = nn.LSTM(3, 4, 2, bidirectional=True, dtype=np.float64)
DIMS: dict[str, tuple[Callable[..., Any], list[Array], list[tuple[Any, ...]]]] = {
    "linear": (nn.Linear(3, 4, dtype=np.float64), [numbers((5, 2, 3), 0)], [(N, T, 3)]),
    "conv": (nn.Conv2d(2, 4, 3, groups=2, padding=1, dtype=np.float64), [numbers((2, 2, 4, 5), 0)], [(N, 2, T, 5)]),
    "reflect": (
        nn.Conv1d(2, 3, 3, padding=1, padding_mode="reflect", dtype=np.float64),
        [numbers((2, 2, 5), 0)],
        [(N, 2, T)],
    ),
    "transposed": (
        nn.ConvTranspose1d(2, 3, 3, 2, padding=3, dtype=np.float64),
        [numbers((2, 2, 6), 0)],
        [(N, 2, T)],
    ),
    "max_pool": (nn.MaxPool2d(2), [numbers((2, 3, 4, 6), 0)], [(N, 3, T, 6)]),
    "avg_pool": (nn.AvgPool1d(3, 2, 1), [numbers((2, 3, 7), 0)], [(N, 3, T)]),
    "adaptive": (nn.AdaptiveAvgPool2d((1, 4)), [numbers((2, 3, 4, 6), 0)], [(N, 3, T, 6)]),
    "layer_norm": (nn.LayerNorm(4, dtype=np.float64), [numbers((2, 3, 4), 0)], [(N, T, 4)]),
    "layer_norm_named": (lambda x: F.layer_norm(x, x.shape[1:]), [numbers((2, 3, 4), 0)], [(N, T, 4)]),
    "masked": (
        lambda q, mask: F.scaled_dot_product_attention(q, q, q, attn_mask=mask),
        [numbers((2, 3, 5, 4), 0), numbers((5, 5), 1)],
        [(N, 3, T, 4), (T, T)],
    ),
    "weighted": (
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w[:1]),
        [numbers((4, 5), 0), numbers((4, 5), 1), np.abs(numbers((4, 5), 2))],
        [(N, T), (N, T), (N, T)],
    ),
    "group_norm": (nn.GroupNorm(2, 4, dtype=np.float64), [numbers((2, 4, 3), 0)], [(N, 4, T)]),
    "instance_norm": (nn.InstanceNorm1d(4, dtype=np.float64), [numbers((2, 4, 3), 0)], [(N, 4, T)]),
    "batch_norm": (
        lambda x: F.batch_norm(x, None, None, training=True),
        [numbers((3, 4, 3), 0)],
        [(N, 4, T)],
    ),
    "flatten": (nn.Flatten(), [numbers((3, 4, 2), 0)], [(N, 4, 2)]),
    "embedding": (nn.Embedding(9, 2, dtype=np.float64), [np.arange(6).reshape(2, 3)], [(N, T)]),
    "upsample": (nn.Upsample(scale_factor=2), [numbers((2, 3, 4), 0)], [(N, 3, 4)]),
    "causal": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        [numbers((2, 3, 5, 4), 0)],
        [(N, 3, T, 4)],
    ),
    "heads": (
        lambda x: ATTENTION(x, x, x, is_causal=True),
        [numbers((5, 3, 4), 0)],
        [(T, N, 4)],
    ),
    "lstm": (
        lambda x: LSTM(x)[0],
        [numbers((5, 2, 3), 0)],
        [(T, N, 3)],
    ),
    "gru": (nn.GRU(3, 4, batch_first=True, dtype=np.float64), [numbers((2, 5, 3), 0)], [(N, T, 3)]),
    "cross_entropy": (F.cross_entropy, [numbers((4, 3), 0), np.array([0, -100, 2, 1])], [(N, 3), (N,)]),
    "smoothed": (
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        [numbers((4, 3, 2), 0), np.arange(8).reshape(4, 2) % 3],
        [(N, 3, T), (N, T)],
    ),
    "mse": (F.mse_loss, [numbers((4, 3), 0), numbers((4, 3), 1)], [(N, T), (N, T)]),
    "kl_div": (
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        [numbers((4, 3), 0), np.abs(numbers((4, 3), 1))],
        [(N, 3), (N, 3)],
    ),
    "cosine": (F.cosine_similarity, [numbers((4, 3), 0), numbers((4, 3), 1)], [(N, 3), (N, 3)]),
}


@pytest.mark.parametrize("name", DIMS)
def test_named_dims(name: str) -> None:
    """Traced for any batch, and where it can be for any length, a function gives what it gives for arrays."""
    function, arrays, shapes = DIMS[name]
    expected = function(*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, wanted in zip(traced(function, arrays, shapes), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_dropout_of_named_dims() -> None:
    (found,) = traced(lambda x: F.dropout(x, 0.5), [np.ones((40, 9))], [(N, 9)])
    assert set(np.unique(found)) == {0.0, 2.0}


def test_a_state_is_written_when_training() -> None:
    layer = nn.BatchNorm1d(2)
    x = numbers((4, 2), 0).astype(np.float32)
    layer(x)
    assert int(layer.num_batches_tracked or 0) == 0
    with training():
        assert layer.training
        layer(x)
        layer(x)
    assert int(layer.num_batches_tracked or 0) == 2
    np.testing.assert_allclose(np.asarray(layer.running_mean), x.mean(0) * 0.19, rtol=1e-5)


ONE = np.zeros((1, 2, 5, 5))
ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: F.linear(np.ones((2, 3)), np.ones((4, 2))), r"a weight \[4, 2\] does not fit an input \[2, 3\]"),
    (lambda: F.conv2d(np.ones((2, 3)), np.ones((4, 2, 1, 1))), r"conv2d: expected \[batch, channel, h, w\] or one"),
    (lambda: F.conv2d(ONE, np.ones((4, 3, 1, 1))), r"a kernel \[4, 3, 1, 1\] .* an input with 2 channels"),
    (lambda: F.conv2d(ONE, np.ones((4, 2, 1))), "expected a kernel of 4 dimensions"),
    (lambda: F.conv2d(ONE, np.ones((4, 2, 3, 3)), padding="same", stride=2), "padding 'same' needs stride 1"),
    (lambda: F.conv2d(ONE, np.ones((4, 2, 3, 3)), padding="full"), r"padding \('same' and 'valid' are known too\)"),
    (lambda: F.conv2d(ONE, np.ones((4, 2, 3, 3)), stride=(1, 2, 3)), "stride: expected a number or 2 of them"),
    (lambda: F.conv_transpose2d(ONE, np.ones((2, 2, 3, 3)), output_padding=1), "smaller than stride or dilation"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "3 and 4 channels do not divide into 2 groups"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "padding_mode: expected one of 'zeros'"),
    (lambda: F.max_pool2d(ONE, 2, padding=2), "padding 2 is more than half of the window 2"),
    (lambda: nn.MaxPool2d(2, strides=2), "MaxPool2d has no argument 'strides'; did you mean 'stride'"),
    (lambda: nn.MaxPool2d(), "MaxPool2d: missing a required argument: 'kernel_size'"),
    (lambda: F.glu(np.ones((2, 3))), "axis -1 of .* cannot be halved"),
    (lambda: F.gelu(np.ones(2), "erf"), "gelu: approximate: expected one of 'none', 'tanh', got 'erf'"),
    (lambda: F.prelu(np.ones((2, 3)), np.ones(2)), "2 slopes do not fit the channels"),
    (lambda: F.layer_norm(np.ones((2, 3)), 4), r"last axes are \[4\], got \[2, 3\]"),
    (lambda: F.group_norm(np.ones((2, 3)), 2), "3 channels do not divide into 2 groups"),
    (lambda: nn.GroupNorm(2, 3), "3 channels do not divide into 2 groups"),
    (lambda: F.batch_norm(np.ones((1, 3)), None, None, training=True), "more than one value per channel"),
    (lambda: F.batch_norm(np.ones((2, 3)), None, None), "without running statistics"),
    (lambda: nn.BatchNorm2d(3)(np.ones((2, 3))), r"BatchNorm2d: expected 4 dimensions, got \[2, 3\]"),
    (lambda: F.mse_loss(np.ones(3), np.ones((3, 1))), r"input and target of one shape, got \[3\], \[3, 1\]"),
    (lambda: F.mse_loss(np.ones(3), np.ones(3), reduction="avg"), "reduction: expected one of .*, got 'avg'"),
    (
        lambda: F.cross_entropy(np.ones((2, 3)), np.array([[0], [1]])),
        r"integer targets \[2, 1\] do not fit",
    ),
    (lambda: F.cross_entropy(np.ones((2, 3)), np.array([0, 1]), label_smoothing=2.0), "label_smoothing from 0 to 1"),
    (lambda: F.huber_loss(np.ones(3), np.ones(3), delta=0.0), "delta above 0"),
    (lambda: F.smooth_l1_loss(np.ones(3), np.ones(3), beta=-1.0), "beta of at least 0"),
    (lambda: F.pad(np.ones((2, 3)), (1, 2, 3)), "two numbers per axis"),
    (lambda: F.pad(np.ones((2, 3)), (1, -1), "reflect"), "mode 'reflect' cannot cut off"),
    (lambda: F.pad(np.ones((2, 3)), (3, 0), "reflect"), "3 is too much for mode 'reflect' and an axis of 3"),
    (lambda: F.pad(np.ones((2, 3)), (4, 0), "circular"), "4 is too much for mode 'circular' and an axis of 3"),
    (lambda: F.interpolate(ONE, 3, mode="linear"), "mode 'linear' cannot resize"),
    (lambda: F.interpolate(ONE, 3, 2.0), "give either size or scale_factor"),
    (lambda: F.interpolate(ONE, 3, align_corners=True), "align_corners has no meaning for mode 'nearest'"),
    (lambda: nn.LSTM(3, 4)(np.ones((5, 2, 2))), "expected an input of two or three axes, the last 3"),
    (lambda: nn.RNN(3, 4, nonlinearity="gelu"), "nonlinearity: expected one of 'tanh', 'relu'"),
    (lambda: nn.MultiheadAttention(6, 4), "must divide one another"),
    (lambda: nn.MultiheadAttention(8, 4, num_kv_heads=3), "must divide one another"),
    (lambda: nn.Embedding(3, 2, padding_idx=3), "padding_idx 3 is not the number of one of 3 rows"),
    (lambda: F.dropout(np.ones(3), -0.1), "probability from 0 to 1"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, message = ERRORS[number]
    with pytest.raises(MlaotError, match=message):
        call()


def test_sizes_that_must_be_numbers() -> None:
    for function, shape in (
        (lambda x: F.max_pool1d(x, 2, ceil_mode=True), (2, 3, T)),
        (lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False), (2, 3, T)),
        (lambda x: F.adaptive_avg_pool1d(x, 2), (2, 3, T)),
        (lambda x: F.interpolate(x, 2), (2, 3, T)),
        (lambda x: F.one_hot(x), (T,)),
    ):
        with pytest.raises(MlaotError, match=r"the size of an open axis|give num_classes"):
            traced(function, [np.zeros((2, 3, 4))], [shape])


@pytest.mark.parametrize(("n", "axes"), [(1, "l"), (2, "h, w"), (3, "d, h, w")])
def test_functions_by_rank_have_names_of_their_own(n: int, axes: str) -> None:
    for name in ("conv", "conv_transpose", "max_pool", "lp_pool", "adaptive_avg_pool", "dropout"):
        function = getattr(F, f"{name}{n}d")
        assert function.__name__ == f"{name}{n}d"
        assert next(iter(inspect.signature(function).parameters)) == "input"
        assert "*spatial" not in function.__doc__
    assert f"[(n,) c, {axes}]" in getattr(F, f"conv{n}d").__doc__
    assert f"[(n,) c, {axes}]" in getattr(nn, f"Conv{n}d").__doc__


def test_layers_are_classes_to_build_on() -> None:
    class Same(nn.Conv2d):
        def __init__(self, channels: int) -> None:
            super().__init__(channels, channels, 3, padding=1, rng=0)

    class Leaky(nn.LeakyReLU):
        """With a slope of its own."""

        def __init__(self) -> None:
            super().__init__(0.5)

    same, leaky = Same(2), Leaky()
    assert isinstance(same, nn.Conv2d) and not isinstance(same, nn.Conv1d)
    assert same(np.ones((1, 2, 4, 5), np.float32)).shape == (1, 2, 4, 5)
    np.testing.assert_array_equal(leaky(np.array([-2.0, 2.0])), [-1.0, 2.0])
    assert Leaky.__doc__ == "With a slope of its own." and "functional.leaky_relu" in str(nn.LeakyReLU.__doc__)
