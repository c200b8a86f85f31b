"""Channel-blocked layout: the form of small graphs, and their values against the graph as it was traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, passes
from mlaot.evaluate import evaluate
from mlaot.ir import DType, Graph
from mlaot.ir.module import Module
from mlaot.lower.lower import lower
from mlaot.ops import structure as st
from mlaot.passes.layout.blocked_layout import convert_move
from mlaot.passes.layout.blocks import UNKNOWN, ZERO, Blocked, in_blocks, put_back, put_in_blocks
from tests.compiled import AVAILABLE, Library

BATCH = mlaot.dim("n")
Net = Callable[[Any], Any]


def randomized(net: Any, seed: int = 0) -> Any:
    """Weights and statistics as after some training, none of them zero."""
    rng = np.random.default_rng(seed)
    for _, buffer in net.named_buffers():
        if buffer.array.dtype.kind == "f":
            buffer.array = (np.abs(rng.normal(size=buffer.array.shape)) + 0.5).astype(buffer.array.dtype)
    for _, parameter in net.named_parameters():
        parameter.array = rng.normal(size=parameter.array.shape).astype(parameter.array.dtype)
    return net


def served(net: Any, *shape: Any, dtype: DType = mlaot.f64, forward: Net | None = None) -> tuple[Module, Graph, Any]:
    """The module of a net without training, its graph as it was traced, and the values of its weights."""

    def function(x: Any) -> Any:
        return (forward or net)(x)

    function.__annotations__ = {"x": dtype[shape]}
    traced = mlaot.model(function, parameters=net).trace()
    weights = {**traced.parameters, **traced.buffers}
    inputs = {name: weights[name] for name in traced.graph.inputs if name in weights}
    return passes.run("m", traced), mlaot.model(function, parameters=net).trace().graph, inputs


def body(net: Any, *shape: Any, forward: Net | None = None) -> str:
    graph = served(net, *shape, dtype=mlaot.f32, forward=forward)[0].graphs["forward"]
    return "\n".join(line.strip() for line in str(graph).splitlines()[1:])


def check(net: Any, *shape: Any, forward: Net | None = None, blocks: bool = True) -> None:
    """What a net gives is what it gave; with ``blocks`` some of its convolutions are in blocks."""
    module, graph, weights = served(randomized(net), *shape, forward=forward)
    x = np.random.default_rng(1).normal(size=[2 if d is BATCH else d for d in shape])
    expected = evaluate(graph, {"x": x, **weights})["out"]
    if BATCH not in shape:  # declared on one example
        x, expected = x[None], expected[None]
    found = evaluate(module.graphs["forward"], {"x": x, **module.slots})["out"]
    assert found.shape == expected.shape and np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    specs = [node.attrs["spec"] for node in module.graphs["forward"].nodes() if node.op.name == "contract"]
    assert any(len(spec.split("->")[1]) >= 4 for spec in specs) == blocks, specs


F64: Any = {"dtype": mlaot.f64}


def conv(n: int, *args: Any, **kwargs: Any) -> Any:
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1](*args, **kwargs, **F64)


def linear(*args: int) -> Any:
    return nn.Linear(*args, **F64)


chain = nn.Sequential


def test_form() -> None:
    """The first reads plain windows; bias and clip are in blocks; padding stays outside of the windows."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3, bias=False), nn.ReLU6(), nn.Conv2d(32, 48, 3, stride=2, padding=1))
    assert (
        body(net, BATCH, 3, 8, 8)
        == """\
v0 = input(name=x) : f32[n,3,8,8]
v1 = window(v0, axes=(2, 3), sizes=(3, 3), strides=(1, 1), dilations=(1, 1)) : f32[n,3,6,6,3,3]
v2 = input(name=folded0, parameter=True) : f32[2,3,3,3,16]
v3 = contract(v1, v2, spec=afcdgh,bfghe->abcde) : f32[n,2,6,6,16]
v4 = relu(v3) : f32[n,2,6,6,16]
v5 = const(value=6.0) : f32[]
v6 = broadcast(v5, shape=(n, 2, 6, 6, 16), axes=()) : f32[n,2,6,6,16]
v7 = minimum(v4, v6) : f32[n,2,6,6,16]
v8 = const(value=0.0) : f32[]
v9 = pad(v7, v8, low=(0, 0, 1, 1, 0), high=(0, 0, 1, 1, 0), interior=(0, 0, 0, 0, 0)) : f32[n,2,8,8,16]
v10 = window(v9, axes=(2, 3), sizes=(3, 3), strides=(2, 2), dilations=(1, 1)) : f32[n,2,3,3,16,3,3]
v11 = input(name=folded1, parameter=True) : f32[3,2,3,3,16,16]
v12 = contract(v10, v11, spec=afcdghi,bfhige->abcde) : f32[n,3,3,3,16]
v13 = input(name=folded2, parameter=True) : f32[3,16]
v14 = broadcast(v13, shape=(n, 3, 3, 3, 16), axes=(1, 4)) : f32[n,3,3,3,16]
v15 = add(v12, v14) : f32[n,3,3,3,16]
v16 = transpose(v15, perm=(0, 1, 4, 2, 3)) : f32[n,3,16,3,3]
v17 = reshape(v16, shape=(n, 48, 3, 3)) : f32[n,48,3,3]
return out=v17"""
    )


def test_an_image_that_is_scaled_first() -> None:
    """Its batch of one stays an axis until the first windows, which then lie behind a reshape."""
    net = randomized(chain(conv(2, 3, 32, 3), nn.ReLU(), conv(2, 32, 32, 1), nn.ReLU(), conv(2, 32, 32, 3, groups=32)))

    @mlaot.model(parameters=net)
    def model(x: mlaot.f64[1, 3, 8, 8], scale: mlaot.f64[BATCH]):
        return net(x / 255 - 0.5), scale

    graph = passes.run("m", model.trace()).graphs["forward"]
    shapes = [node.type.shape for node in graph.nodes() if node.op.name == "contract"]
    assert shapes == [(2, 6, 6, 16), (2, 6, 6, 16), (2, 4, 4, 16)]


def test_depthwise_pooling_and_dense_layers() -> None:
    """Nothing is put back: the mean's channels are in order as they are, and the dense weights are permuted."""
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=16, bias=False), nn.MaxPool2d(2), nn.Flatten()),
        nn.Linear(64, 5, bias=False),
    )
    text = body(net, BATCH, 3, 8, 8)
    assert "spec=abcdefg,bfge->abcde" in text
    assert "reshape(" in text and text.count("transpose(") == 1, "of the windows that are reduced"
    assert "f32[n,64]" in text and "spec=ac,bc->ab" in text
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5, bias=False))
    text = body(net, BATCH, 3, 8, 8)
    assert "sum(" in text and "axes=(2, 3)) : f32[n,2,16]" in text and "transpose" not in text


def test_few_channels_stay_plain() -> None:
    """As in LeNet: 6 of them would be more than half zeros; the next convolution reads plain and makes blocks."""
    layers = nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Flatten(), nn.Linear(1024, 10)
    text = body(nn.Sequential(*layers), BATCH, 1, 28, 28)
    assert "f32[n,6,24,24]" in text and "spec=afcdgh,bfghe->abcde) : f32[n,1,8,8,16]" in text


def test_where_transforms_win_a_value_starts() -> None:
    """A lone convolution of 3x3 whose products Winograd's transforms save; others alone read and make plain maps."""
    for padding in (0, 1):
        text = body(nn.Conv2d(32, 48, 3, padding=padding), BATCH, 32, 28, 28)
        assert text.count("winograd_input(") == 1 and text.count("transpose(") == 2
    others = (
        *(nn.Conv2d(32, 48, 3, stride=2), nn.Conv2d(32, 48, 3, dilation=2), nn.Conv2d(32, 48, 3, groups=2)),
        *(nn.Conv2d(32, 48, 5), nn.Conv2d(32, 32, 3, groups=32)),
    )
    for net in others:
        text = body(net, BATCH, 32, 28, 28)
        assert ",16] " not in text and "winograd" not in text, net


def test_chains_of_pointwise_convolutions() -> None:
    """The first starts the layout, and the maximum over points keeps it; nothing is put back in between."""
    net = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.ReLU())

    def with_unit_axes(x: Any) -> Any:
        y = net[1](net[0](x)).reshape(x.shape[0], 32, 50, 1)
        return mlaot.max(net[3](net[2](y[..., 0])), -1)

    for forward in (lambda x: mlaot.max(net(x), -1), with_unit_axes):
        text = body(net, BATCH, 3, 50, forward=forward)
        assert "transpose" not in text and "f32[n,2,50,16]" in text and "f32[n,4,50,16]" in text


class Mixer(nn.Module):
    """Products along the points, and others along the channels (Tolstikhin et al., 2021)."""

    def __init__(self) -> None:
        self.points, self.channels, self.norm = conv(1, 32, 32, 1), linear(16, 16), nn.LayerNorm(16, **F64)

    def forward(self, x: Any) -> Any:
        return self.channels(self.norm(x + self.points(mlaot.relu(self.points(x)))))


def test_products_along_other_axes_start_nothing() -> None:
    check(Mixer(), BATCH, 32, 16, blocks=False)


class Padded(nn.Module):
    """Channels that are padded by zeros behind a function that makes something else of zeros."""

    def __init__(self) -> None:
        self.first, self.second = conv(2, 3, 24, 3), conv(2, 32, 16, 3)

    def forward(self, x: Any) -> Any:
        return self.second(np.pad(mlaot.sigmoid(self.first(x)), ((0, 0), (0, 8), (0, 0), (0, 0))))


def test_padded_channels_are_zeros() -> None:
    check(Padded(), BATCH, 3, 8, 8)


def test_one_image_behind_a_reshape() -> None:
    """The axis of the image is dropped behind the windows, wherever the lanes are: the transforms are there, too."""
    first, second = conv(2, 3, 32, 3, padding=1), conv(2, 32, 48, 3, padding=1)
    net = randomized(nn.Sequential(first, second))

    @mlaot.model(parameters=net)
    def model(x: mlaot.f64[1, 3, 28, 28], scale: mlaot.f64[BATCH]):
        groups = first(x).reshape(1, 8, 4 * 28 * 28)
        centered = (groups - groups.mean(axis=2, keepdims=True)).reshape(1, 32, 28, 28)
        return second(np.tanh(centered * np.linspace(1, 2, 32)[:, None, None])), scale

    module = passes.run("m", model.trace())
    graph = module.graphs["forward"]
    assert "winograd_input" in {node.op.name for node in graph.nodes()}
    rng = np.random.default_rng(1)
    inputs = {"x": rng.normal(size=(1, 3, 28, 28)), "scale": rng.normal(size=3)}
    found = evaluate(graph, {**inputs, **module.slots})
    expected = evaluate(model.trace().graph, {**inputs, **module.slots})
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-10)


def test_products_behind_a_convolution_read_blocks() -> None:
    """Through any op between them; what only a part of the results reaches counts as well."""
    first, second = nn.Conv2d(3, 16, 5), nn.Conv2d(16, 16, 1)

    def forward(x: Any) -> Any:
        y = np.tanh(first(x))
        return np.concatenate([y, second(y)], axis=1)

    net = nn.Sequential(first, second)
    assert "f32[n,1,8,8,16]" in body(net, BATCH, 3, 12, 12, forward=forward)
    check(net, BATCH, 3, 12, 12, forward=forward)
    assert ",16] " not in body(net, BATCH, 3, 12, 12, forward=first)


@pytest.mark.parametrize(
    ("channels", "whole"),
    [(6, None), (11, None), (12, 16), (16, 16), (17, None), (23, None), (24, 32), (32, 32), (36, 48), (0, None)],
)
def test_at_most_a_third_is_added(channels: int, whole: int | None) -> None:
    assert in_blocks(channels) == whole


class Residual(nn.Module):  # type: ignore[misc]
    """Blocks of ResNet's kind: a strided shortcut, an identity, a squeeze and excitation in the second."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        c = channels
        self.stem, self.norm = conv(2, 3, c, 3, padding=1), nn.BatchNorm2d(c, **F64)
        self.a, self.b = conv(2, c, 2 * c, 3, stride=2, padding=1), conv(2, 2 * c, 2 * c, 3, padding=1, bias=False)
        self.short, self.norm2 = conv(2, c, 2 * c, 1, stride=2), nn.BatchNorm2d(2 * c, **F64)
        self.squeeze, self.excite = nn.Linear(2 * c, 4, **F64), nn.Linear(4, 2 * c, **F64)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(np.maximum(self.norm(self.stem(x)), 0), 3, 2, 1)
        y = self.norm2(self.b(np.maximum(self.a(x), 0))) + self.short(x)
        gate = nn.functional.sigmoid(self.excite(np.maximum(self.squeeze(mlaot.mean(y, (2, 3))), 0)))
        return y * gate[:, :, None, None]


class Branches(nn.Module):  # type: ignore[misc]
    """Concatenation, upsampling, channel softmax, a split of channels, an average pool that counts its elements."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(2, 3, c, 3, padding=1), conv(2, 3, c, 5, padding=2), conv(2, 2 * c, c, 1)

    def forward(self, x: Any) -> Any:
        y = np.concatenate([self.a(x), self.b(x)], axis=1)
        y = self.c(y)
        y = nn.functional.interpolate(y, scale_factor=2.0, mode="nearest")
        y = nn.functional.interpolate(y, scale_factor=1.5, mode="bilinear")
        half = y.shape[1] // 2
        y = y * nn.functional.softmax(y, 1)
        y = nn.functional.avg_pool2d(y, 3, 2, 1, count_include_pad=False)
        return y[:, :half] * y[:, half:]


class Groups(nn.Module):  # type: ignore[misc]
    """Each channel by the largest number of its group, in one image and in all."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = conv(2, 3, c, 3, padding=1), conv(2, c, 16, 3)

    def forward(self, x: Any) -> Any:
        y = self.a(x)
        groups = y.reshape(y.shape[0], 4, -1, *y.shape[2:])
        groups = groups / (1 + groups.max(axis=(2, 3, 4), keepdims=True))
        groups = groups - groups.max(axis=(2, 4), keepdims=True)
        rows = groups.reshape(y.shape[0], y.shape[2] * y.shape[3], y.shape[1])  # whose first axis is none of groups
        rows = rows - rows.sum(axis=2, keepdims=True)
        return self.b(rows.reshape(y.shape))


CASES: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "dilation": (lambda: chain(conv(2, 3, 16, 3, dilation=2), conv(2, 16, 32, 3, dilation=(1, 2))), (3, 12, 11)),
    "one dimension": (
        lambda: chain(conv(1, 4, 16, 5, stride=2, padding=2), nn.Tanh(), conv(1, 16, 24, 3), nn.Flatten()),
        (4, 20),
    ),
    "three dimensions": (
        lambda: chain(conv(3, 2, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), conv(3, 16, 16, 2)),
        (2, 6, 6, 6),
    ),
    "padded channels": (
        lambda: chain(conv(2, 3, 24, 3), nn.Sigmoid(), conv(2, 24, 12, 3, padding=1), nn.Flatten(), linear(300, 4)),
        (3, 7, 7),
    ),
    "padded channels that become infinite": (
        lambda: chain(conv(2, 3, 24, 3), nn.MaxPool2d(3, 2, 1), conv(2, 24, 16, 1)),
        (3, 9, 9),
    ),
    "groups of blocks": (lambda: chain(conv(2, 3, 32, 3), conv(2, 32, 64, 3, groups=2), conv(2, 64, 32, 1)), (3, 8, 8)),
    "small groups": (lambda: chain(conv(2, 3, 32, 3), conv(2, 32, 32, 3, groups=8), nn.ReLU()), (3, 8, 8)),
    "depthwise multiplier": (
        lambda: chain(conv(2, 3, 16, 3), conv(2, 16, 32, 3, groups=16), conv(2, 32, 16, 1)),
        (3, 8, 8),
    ),
    "depthwise of padded channels": (
        lambda: chain(conv(2, 3, 24, 3), conv(2, 24, 24, 3, groups=24, padding=1), nn.Hardswish(), conv(2, 24, 16, 1)),
        (3, 8, 8),
    ),
    "transposed": (
        lambda: chain(conv(2, 3, 16, 3), nn.ConvTranspose2d(16, 32, 3, stride=2, **F64), conv(2, 32, 16, 1)),
        (3, 6, 6),
    ),
    "flattened": (
        lambda: chain(conv(2, 3, 24, 3, padding=1), nn.AvgPool2d(2), nn.Flatten(), linear(216, 10)),
        (3, 6, 6),
    ),
    "global pools": (lambda: chain(conv(2, 3, 48, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten(), linear(48, 7)), (3, 6, 6)),
    "few classes": (
        lambda: chain(conv(2, 3, 32, 3), nn.ReLU(), conv(2, 32, 10, 1), nn.AdaptiveAvgPool2d(1)),
        (3, 6, 6),
    ),
    "residual": (lambda: Residual(16), (3, 13, 12)),
    "residual of padded channels": (lambda: Residual(12), (3, 9, 9)),
    "branches": (lambda: Branches(16), (3, 6, 6)),
    "branches of padded channels": (lambda: Branches(24), (3, 4, 5)),
    "norm of groups": (
        lambda: chain(conv(2, 3, 32, 3), nn.GroupNorm(8, 32, **F64), nn.SiLU(), conv(2, 32, 16, 3), nn.Tanh()),
        (3, 6, 7),
    ),
    "norm of groups with padded channels": (
        lambda: chain(conv(1, 3, 24, 3), nn.GroupNorm(3, 24, **F64), nn.SiLU(), conv(1, 24, 16, 3), nn.Tanh()),
        (3, 11),
    ),
    "largest of groups": (lambda: Groups(24), (3, 6, 6)),
    "layer norm over channels": (
        lambda: chain(conv(2, 3, 32, 2), nn.GroupNorm(1, 32, **F64), conv(2, 32, 16, 2), nn.InstanceNorm2d(16)),
        (3, 6, 6),
    ),
}


COMPILED = ("one dimension", "three dimensions", "padded channels", "transposed", "residual of padded channels")


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    make, shape = CASES[name]
    check(make(), BATCH, *shape)


def test_norms_of_groups_read_blocks() -> None:
    """Nothing is put back: what is normalized, and what the next convolution reads, ends with the lanes."""
    net = nn.Sequential(conv(2, 3, 32, 3), nn.GroupNorm(8, 32, **F64), nn.SiLU(), conv(2, 32, 16, 3))
    graph = served(net, BATCH, 3, 8, 8)[0].graphs["forward"]
    (result,) = graph.outputs.values()
    whole = [node for node in graph.nodes() if node.op.elementwise and node.type.rank >= 4 and node is not result]
    assert len(whole) > 5 and all(node.type.shape[-1] == 16 for node in whole)


def test_one_image() -> None:
    """Without a batch, and with one of 1."""
    check(nn.Sequential(conv(2, 3, 16, 3), nn.ReLU(), conv(2, 16, 32, 3)), 1, 3, 8, 8)
    check(nn.Sequential(conv(2, 3, 16, 3), nn.ReLU(), conv(2, 16, 32, 3)), 3, 8, 8)


def test_infinities_do_not_meet_zeros() -> None:
    """The logarithm of added channels is -inf: times a weight of zero it would be nan."""
    net = nn.Sequential(conv(2, 3, 24, 3), conv(2, 24, 16, 1))
    for function in (lambda y: np.log(y * y), lambda y: 1.0 / y, lambda y: np.exp(-1.0 / (y * y))):
        check(net, BATCH, 3, 6, 6, forward=lambda x, f=function: net[1](f(net[0](x))))


def test_sums_of_padded_channels() -> None:
    """What a function makes of zeros is not added up with the others."""
    net = conv(2, 3, 24, 3)
    check(net, BATCH, 3, 6, 6, forward=lambda x: np.sum(np.exp(net(x)), axis=1))
    check(net, BATCH, 3, 6, 6, forward=lambda x: np.sum(np.tanh(net(x)), axis=(1, 2)))
    check(net, BATCH, 3, 6, 6, forward=lambda x: np.max(-np.exp(net(x)), axis=1))


def random_net(seed: int) -> tuple[Any, tuple[int, ...]]:
    """Some convolutions one after the other, of any kind that nn has."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    size = int(rng.integers(5, 9))
    channels = int(rng.choice([1, 3, 16]))
    shape = (channels, *[size + int(d) for d in rng.integers(0, 3, n)])
    layers: list[Any] = []
    for _ in range(int(rng.integers(2, 5))):
        groups = int(rng.choice([1, 1, 1, 2, channels])) if channels % 2 == 0 else 1
        out = groups * int(rng.choice([6, 12, 16, 24, 32])) if groups < 3 else channels * int(rng.integers(1, 3))
        kernel = tuple(int(k) for k in rng.integers(1, 4, n))
        dilation = int(rng.integers(1, 3))
        padding = tuple((k - 1) * dilation // 2 + int(rng.integers(0, 2)) for k in kernel)
        stride = tuple(int(s) for s in rng.integers(1, 3, n)) if size > 6 else 1
        layers.append(conv(n, channels, out, kernel, stride, padding, dilation, groups, bool(rng.integers(2))))
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[n - 1](out, **F64)
        layers += [[], [nn.ReLU()], [nn.Sigmoid()], [norm]][int(rng.integers(4))]
        channels = out
        size = size if stride == 1 else 4
    return nn.Sequential(*layers), shape


@pytest.mark.parametrize("seed", range(25))
def test_random_nets(seed: int) -> None:
    net, shape = random_net(seed)
    module, graph, weights = served(randomized(net, seed), BATCH, *shape)
    x = np.random.default_rng(seed).normal(size=(2, *shape))
    expected = evaluate(graph, {"x": x, **weights})["out"]
    found = evaluate(module.graphs["forward"], {"x": x, **module.slots})["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.fixture(scope="module", params=AVAILABLE)
def compiled(request: pytest.FixtureRequest, shared_folder: Path) -> Any:
    """Some cases for one instruction set, with what they should give for some input."""
    programs, cases = {}, {}
    for i, (make, shape) in enumerate(CASES[name] for name in COMPILED):
        module, graph, weights = served(randomized(make()), BATCH, *shape)
        programs[f"case{i}"] = lower(module)
        x = np.random.default_rng(1).normal(size=(2, *shape))
        cases[f"case{i}"] = x, evaluate(graph, {"x": x, **weights})["out"]
    return Library(programs, request.param, shared_folder / "blocked"), cases


def test_compiled(compiled: Any) -> None:
    library, cases = compiled
    for stem, (x, expected) in cases.items():
        found = library.call(stem, "forward", {"x": x}, {"n": 2})["out"]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max(), err_msg=stem)


def trained(net: Any, *shape: Any) -> Module:
    """A net with a loss, through all passes."""

    def function(x: Any) -> Any:
        return net(x)

    function.__annotations__ = {"x": mlaot.f64[shape]}
    return passes.run("m", mlaot.model(function, parameters=net, loss=lambda out: (out * out).mean()).trace())


ACT = nn.Tanh()
TRAINED: dict[str, Any] = {
    "strided": nn.Sequential(conv(2, 3, 16, 3, stride=2, padding=1), ACT, conv(2, 16, 24, 3), ACT),
    "norm": nn.Sequential(conv(2, 3, 16, 3, bias=False), nn.BatchNorm2d(16, **F64), ACT, conv(2, 16, 32, 1), ACT),
    "norm of groups": nn.Sequential(conv(2, 3, 32, 3), nn.GroupNorm(4, 32, **F64), ACT, conv(2, 32, 16, 3), ACT),
    "depthwise": nn.Sequential(conv(2, 3, 16, 3), ACT, conv(2, 16, 16, 3, groups=16), ACT, conv(2, 16, 16, 1), ACT),
    "groups": nn.Sequential(conv(2, 3, 32, 3), ACT, conv(2, 32, 32, 3, groups=2, padding=1), ACT),
    "pooling": nn.Sequential(conv(2, 3, 16, 3), nn.MaxPool2d(2), conv(2, 16, 16, 3), nn.AdaptiveAvgPool2d(1)),
    "rows": nn.Sequential(conv(2, 4, 36, (1, 3)), ACT, conv(2, 36, 16, (1, 2)), ACT),
    "transposed": nn.Sequential(
        *(conv(2, 3, 16, 4, stride=2), ACT, nn.ConvTranspose2d(16, 32, 4, 2, 1, **F64), ACT, conv(2, 32, 16, 1)),
    ),
    "residual": Residual(16),
}


@pytest.mark.parametrize("name", [*TRAINED])
def test_what_trains_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss, the gradients and new parameters are those of the plain layout."""
    net = randomized(TRAINED[name])
    shape = (BATCH, 4 if name == "rows" else 3, 1 if name == "rows" else 10, 10)
    net = nn.Sequential(net, nn.Flatten(), Ending())
    module = trained(net, *shape)
    monkeypatch.setattr("mlaot.passes.layout.blocked_layout.BLOCKED_GROWTH", 0)
    plain = trained(net, *shape)
    inputs = {"x": np.random.default_rng(1).normal(size=[2 if d is BATCH else d for d in shape]), **module.slots}
    for entry in ("forward", "loss", "train_step"):
        blocked = module.graphs[entry]
        products = [node.type.shape for node in blocked.nodes() if node.op.name == "contract"]
        assert any(len(product) >= 4 and product[-1] == 16 for product in products)
        given = inputs | ({"lr": np.float64(0.1)} if entry == "train_step" else {})
        found, expected = evaluate(blocked, given), evaluate(plain.graphs[entry], given)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-9 * np.abs(value).max(), err_msg=key)


class Ending(nn.Module):  # type: ignore[misc]
    """A dense layer of any number of inputs: a mean of them, scaled."""

    def __init__(self) -> None:
        self.scale = nn.Linear(1, 3, **F64)

    def forward(self, x: Any) -> Any:
        return self.scale((x * x).mean(axis=1, keepdims=True))


@pytest.mark.parametrize("filling", [ZERO, frozenset({1.0})])
def test_a_fold_of_blocks(filling: frozenset[float]) -> None:
    """It is that of the plain value, and adds up what added channels hold, which is known of zeros alone."""
    graph = Graph("f")
    y = graph.input("y", mlaot.f64[2, 24, 3, 3, 2, 2])
    windows = {"axes": (2, 3), "sizes": (2, 2), "strides": (1, 1), "dilations": (1, 1)}
    fold = st.fold(y, **windows, shape=(2, 24, 4, 4))
    form = convert_move(fold, Blocked(put_in_blocks(y, 1), 1, 6, 24, filling))
    assert isinstance(form, Blocked) and form.filling == (ZERO if filling == ZERO else UNKNOWN)
    graph.outputs = {"plain": fold, "blocked": put_back(form)}
    found = evaluate(graph, {"y": np.random.default_rng(0).normal(size=y.type.shape)})
    np.testing.assert_allclose(found["blocked"], found["plain"], rtol=1e-12)
