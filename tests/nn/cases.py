"""Cases that PyTorch and mlaot compute alike.

``tests/reference/make_nn.py`` runs them with the one, the tests with the other. Inputs are made from nothing but
integers, so only PyTorch's results need to be kept.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def words(shape: tuple[int, ...], seed: int) -> Array:
    """Well-mixed 32-bit integers."""
    x = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(seed * 7919 + 1)
    for factor in (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35):
        x = x * np.uint64(factor) & np.uint64(0xFFFFFFFF)
        x ^= x >> np.uint64(15)
    return x.reshape(shape)


def numbers(shape: tuple[int, ...], seed: int) -> Array:
    """Multiples of 1/64 from -2 to below 2."""
    return (words(shape, seed) % np.uint64(256)).astype(np.float64) / 64 - 2


def seed_of(text: str) -> int:
    return zlib.crc32(text.encode()) % 100_003


@dataclass(frozen=True)
class Of:
    """An input: ``kind`` says which numbers a ``shape`` of it holds."""

    kind: str
    shape: tuple[int, ...]
    limit: int = 0

    def make(self, seed: int) -> Array:
        return np.asarray(self._values(seed))

    def _values(self, seed: int) -> Any:
        x = numbers(self.shape, seed)
        match self.kind:
            case "float":
                return x
            case "wide":
                return x * 16
            case "positive":
                return np.abs(x) + 0.25
            case "probability":
                return (x + 2) / 4
            case "distribution":  # along axis 1, or the only one
                e = np.exp(x)
                return e / e.sum(axis=1 if x.ndim > 1 else 0, keepdims=True)
            case "integer":
                return (words(self.shape, seed) % np.uint64(self.limit)).astype(np.int64)
            case "sign":
                return np.where(x < 0, -1.0, 1.0)
            case "bit":
                return np.where(x < 0, 0.0, 1.0)
            case "ignored":  # classes, some of them -100
                return np.where(x > 1, -100, (words(self.shape, seed) % np.uint64(self.limit)).astype(np.int64))
            case "starts":  # where bags begin, or end: from 0 to the limit
                inner = np.sort(words(self.shape, seed) % np.uint64(self.limit + 1)).astype(np.int64)
                return np.concatenate([[0], inner[1:-1], [self.limit]])
            case "labels":  # classes, each once, up to a -1
                order = np.argsort(words(self.shape, seed), axis=-1)
                return np.where(np.arange(self.shape[-1]) == 1 + seed % (self.limit - 1), -1, order)
            case "infinite":
                return np.where(x > 1, -np.inf, x)
            case "mask":
                return x > -1
            case "bars":  # True where not allowed, never in the first column
                return (x > 1) & (np.arange(self.shape[-1]) > 0)
        raise AssertionError(self.kind)


def of(*shape: int) -> Of:
    return Of("float", shape)


@dataclass
class Case:
    """``function`` of ``inputs`` with ``options``; those named in ``extra`` are arrays."""

    name: str
    function: str
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Of] = field(default_factory=dict)

    def arrays(self) -> tuple[list[Any], dict[str, Array]]:
        start = seed_of(self.name)
        inputs = [x.make(start + i) if isinstance(x, Of) else x for i, x in enumerate(self.inputs)]
        return inputs, {k: x.make(start + 50 + i) for i, (k, x) in enumerate(self.extra.items())}


FUNCTIONS: list[Case] = []


def add(function: str, *inputs: Any, extra: dict[str, Of] | None = None, **options: Any) -> None:
    number = sum(case.function == function for case in FUNCTIONS)
    FUNCTIONS.append(Case(f"{function}.{number}", function, inputs, options, extra or {}))


def convolutions() -> None:
    spatial = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
    for n, size in spatial.items():
        kernel = (3, 2, 3)[:n]
        x, one, w = of(2, 4, *size), of(4, *size), of(6, 4, *kernel)
        conv, transposed = f"conv{n}d", f"conv_transpose{n}d"
        add(conv, x, w, extra={"bias": of(6)})
        add(conv, one, w, extra={"bias": of(6)}, padding=1)
        add(conv, x, w, stride=2, padding=(1, 0, 2)[:n])
        add(conv, x, w, stride=(2, 1, 3)[:n], padding=2, dilation=2)
        add(conv, x, of(6, 2, *kernel), extra={"bias": of(6)}, groups=2, padding=1, stride=2)
        add(conv, x, of(4, 1, *kernel), groups=4, dilation=(1, 2, 1)[:n], padding=1)
        add(conv, x, w, padding="same")
        add(conv, x, w, padding="valid", dilation=2)
        small = (4, 3, 2)[:n]
        x, one = of(2, 4, *small), of(4, *small)
        add(transposed, x, of(4, 3, *kernel), extra={"bias": of(3)})
        add(transposed, one, of(4, 3, *kernel), stride=2, padding=1)
        add(transposed, x, of(4, 3, *kernel), stride=(2, 3, 2)[:n], padding=1, output_padding=1)
        add(
            transposed,
            x,
            of(4, 2, *kernel),
            extra={"bias": of(4)},
            groups=2,
            stride=2,
            dilation=2,
            output_padding=(1, 0, 1)[:n],
        )
        add(transposed, x, of(4, 1, *kernel), groups=4, padding=(2, 1, 2)[:n], stride=3)
    add("conv2d", of(2, 4, 6, 5), of(3, 4, 4, 2), padding="same", dilation=(1, 3))
    add("conv_transpose1d", of(1, 2, 6), of(2, 3, 2), padding=3)  # cuts off more than it adds


def pools() -> None:
    spatial = {1: (9,), 2: (7, 8), 3: (5, 6, 5)}
    for n, size in spatial.items():
        x, one = of(2, 3, *size), of(3, *size)
        for pool in ("max", "avg"):
            name = f"{pool}_pool{n}d"
            add(name, x, kernel_size=2)
            add(name, one, kernel_size=(3, 2, 2)[:n], stride=1)
            add(name, x, kernel_size=3, stride=2, padding=1)
            add(name, x, kernel_size=2, stride=3, ceil_mode=True)
            add(name, x, kernel_size=3, stride=2, padding=1, ceil_mode=True)
        add(f"max_pool{n}d", x, kernel_size=2, stride=1, dilation=2)
        add(f"max_pool{n}d", x, kernel_size=3, stride=2, dilation=2, padding=1, ceil_mode=True)
        add(f"max_pool{n}d", Of("infinite", (1, 2, *size)), kernel_size=2, stride=2, padding=1)
        add(f"avg_pool{n}d", x, kernel_size=3, stride=2, padding=1, count_include_pad=False)
        add(f"avg_pool{n}d", x, kernel_size=2, stride=3, padding=1, ceil_mode=True, count_include_pad=False)
        if n > 1:
            add(f"avg_pool{n}d", x, kernel_size=2, divisor_override=3)
        positive = Of("positive", (2, 3, *size))
        add(f"lp_pool{n}d", x, norm_type=2, kernel_size=2)
        add(f"lp_pool{n}d", positive, norm_type=3, kernel_size=(3, 2, 2)[:n] if n > 1 else 3, stride=2)
        add(f"lp_pool{n}d", positive, norm_type=1.5, kernel_size=2, stride=3, ceil_mode=True)
        for pool in ("max", "avg"):
            add(f"adaptive_{pool}_pool{n}d", x, output_size=1)
            add(f"adaptive_{pool}_pool{n}d", x, output_size=4)
            add(f"adaptive_{pool}_pool{n}d", one, output_size=(7, 2, 8)[:n])
    add("adaptive_avg_pool2d", of(2, 3, 6, 8), output_size=(3, None))
    add("adaptive_max_pool2d", of(2, 3, 6, 8), output_size=(None, 4))


def activations() -> None:
    plain = "relu elu selu celu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish relu6 logsigmoid tanh"
    for name in [*plain.split(), "sigmoid", "leaky_relu"]:
        add(name, Of("wide", (40,)))
        add(name, of(3, 5))
    add("gelu", of(30), approximate="tanh")
    add("leaky_relu", of(9), negative_slope=0.3)
    add("elu", of(9), alpha=0.7)
    add("celu", of(9), alpha=0.7)
    add("softplus", Of("wide", (30,)), beta=2.0, threshold=3.0)
    add("hardtanh", of(20), min_val=-0.5, max_val=1.25)
    add("prelu", of(2, 3, 4), of(1))
    add("prelu", of(2, 3, 4), of(3))
    add("prelu", of(5), of(1))
    for name in ("glu", "softmax", "log_softmax"):
        add(name, of(3, 4, 6), dim=-1)
        add(name, of(2, 4, 3), dim=1)
    add("softmax", Of("wide", (3, 50)), dim=-1)
    add("log_softmax", Of("wide", (3, 50)), dim=0)


def norms() -> None:
    for shape in ((5, 3), (4, 3, 5), (2, 3, 4, 3), (2, 3, 2, 3, 2)):
        statistics = (of(3), Of("positive", (3,)))
        affine = {"weight": of(3), "bias": of(3)}
        add("batch_norm", of(*shape), *statistics)
        add("batch_norm", of(*shape), *statistics, extra=affine, eps=1e-3)
        add("batch_norm", of(*shape), None, None, extra=affine, training=True)
        if len(shape) > 2:
            add("instance_norm", of(*shape))
            add("instance_norm", of(*shape), *statistics, extra=affine, use_input_stats=False)
        add("layer_norm", of(*shape), normalized_shape=shape[-1:])
        add(
            "layer_norm",
            of(*shape),
            normalized_shape=shape[1:],
            eps=1e-2,
            extra={"weight": of(*shape[1:]), "bias": of(*shape[1:])},
        )
        add("rms_norm", of(*shape), normalized_shape=shape[-1:])
        add("rms_norm", of(*shape), normalized_shape=shape[1:], eps=1e-2, extra={"weight": of(*shape[1:])})
    add("group_norm", of(2, 6, 5), num_groups=3, extra={"weight": of(6), "bias": of(6)})
    add("group_norm", of(2, 6, 3, 2), num_groups=2, eps=1e-3)
    add("group_norm", of(3, 4), num_groups=2)


def attentions() -> None:
    name = "scaled_dot_product_attention"
    q, k, v = of(2, 4, 5, 6), of(2, 4, 7, 6), of(2, 4, 7, 3)
    add(name, q, k, v)
    add(name, q, k, v, scale=0.3)
    add(name, q, k, v, is_causal=True)
    add(name, q, of(2, 4, 3, 6), of(2, 4, 3, 6), is_causal=True)
    add(name, q, k, v, extra={"attn_mask": Of("mask", (5, 7))})
    add(name, q, k, v, extra={"attn_mask": Of("mask", (2, 1, 5, 7))})
    add(name, q, k, v, extra={"attn_mask": of(2, 4, 5, 7)})
    add(name, q, k, v, extra={"attn_mask": Of("infinite", (4, 5, 7))})
    add(name, q, of(2, 2, 7, 6), of(2, 2, 7, 3), enable_gqa=True)
    add(name, q, of(2, 1, 7, 6), of(2, 1, 7, 3), enable_gqa=True, is_causal=True)
    add(name, of(5, 6), of(7, 6), of(7, 6))
    add(name, of(3, 2, 6), of(3, 2, 6), of(3, 2, 6), extra={"attn_mask": Of("infinite", (2, 2))})


def others() -> None:
    add("linear", of(3, 4), of(5, 4), extra={"bias": of(5)})
    add("linear", of(2, 3, 4), of(5, 4))
    add("linear", of(4), of(5, 4), extra={"bias": of(5)})
    add("linear", of(3, 4), of(4))
    add("embedding", Of("integer", (2, 5), 7), of(7, 3))
    add("embedding", Of("integer", (4,), 7), of(7, 3), padding_idx=-2)
    add("one_hot", Of("integer", (2, 5), 4), num_classes=6)
    add("one_hot", Of("integer", (9,), 4))
    for mode in ("constant", "reflect", "replicate", "circular"):
        add("pad", of(2, 3, 5), pad=(2, 1), mode=mode)
        add("pad", of(2, 3, 4, 5), pad=(0, 3, 2, 1), mode=mode)
        add("pad", of(1, 2, 3, 4, 3), pad=(1, 2, 1, 0, 2, 1), mode=mode)
    add("pad", of(3, 4), pad=(-1, 2, 1, -2), value=1.5)
    add("pad", of(3, 4), pad=(1, 1))
    for p in (2.0, 1.0, 3.0, math.inf):
        add("normalize", of(3, 4, 2), p=p, dim=1)
    add("normalize", of(3, 4), dim=-1, eps=5.0)
    add("cosine_similarity", of(3, 4, 2), of(3, 4, 2))
    add("cosine_similarity", of(3, 4), of(3, 4), dim=0, eps=2.5)


def resizes() -> None:
    one, two, three = of(2, 3, 5), of(1, 2, 5, 4), of(1, 2, 3, 4, 3)
    for mode in ("nearest", "nearest-exact", "area"):
        add("interpolate", one, size=8, mode=mode)
        add("interpolate", two, size=(3, 9), mode=mode)
        add("interpolate", three, scale_factor=2, mode=mode)
    add("interpolate", two, scale_factor=(1.7, 0.6), mode="nearest")
    add("interpolate", two, scale_factor=(1.7, 0.6), mode="nearest", recompute_scale_factor=True)
    for x, mode in ((one, "linear"), (two, "bilinear"), (three, "trilinear"), (two, "bicubic")):
        for align in (False, True):
            add("interpolate", x, size=(7, 3, 6)[: len(x.shape) - 2], mode=mode, align_corners=align)
            add("interpolate", x, scale_factor=1.6, mode=mode, align_corners=align)
        add("interpolate", x, scale_factor=1.6, mode=mode, recompute_scale_factor=True)
        add("interpolate", x, size=1, mode=mode, align_corners=True)


def losses() -> None:
    a, b = of(4, 3), of(4, 3)
    for reduction in ("none", "mean", "sum"):
        for name in ("mse_loss", "l1_loss", "huber_loss"):
            add(name, a, b, reduction=reduction)
            add(name, a, b, reduction=reduction, extra={"weight": Of("positive", (4, 3))})
        add("huber_loss", a, b, reduction=reduction, delta=0.6)
        add("smooth_l1_loss", a, b, reduction=reduction)
        add("smooth_l1_loss", a, b, reduction=reduction, beta=0.6)
        add("smooth_l1_loss", a, b, reduction=reduction, beta=0.0)
        add("hinge_embedding_loss", a, Of("sign", (4, 3)), reduction=reduction)
        add("hinge_embedding_loss", a, Of("sign", (4, 3)), margin=0.7, reduction=reduction)
        weight = {"weight": Of("positive", (4, 3))}
        add("binary_cross_entropy", Of("probability", (4, 3)), Of("probability", (4, 3)), reduction=reduction)
        add("binary_cross_entropy", Of("bit", (4, 3)), Of("bit", (4, 3)), reduction=reduction, extra=weight)
        logits = "binary_cross_entropy_with_logits"
        add(logits, Of("wide", (4, 3)), Of("probability", (4, 3)), reduction=reduction)
        add(logits, a, Of("bit", (4, 3)), reduction=reduction, extra=weight | {"pos_weight": Of("positive", (3,))})
        class_losses(reduction)
        add("kl_div", of(4, 3), Of("distribution", (4, 3)), reduction=reduction)
        add("kl_div", of(4, 3), Of("bit", (4, 3)), reduction=reduction)
        add("kl_div", of(4, 3), of(4, 3), reduction=reduction, log_target=True)
    add("kl_div", of(4, 3), Of("distribution", (4, 3)), reduction="batchmean")


def class_losses(reduction: str) -> None:
    weight = {"weight": Of("positive", (5,))}
    for shape in ((5,), (6, 5), (2, 5, 3), (2, 5, 2, 3)):
        target = shape[:0] if len(shape) == 1 else (shape[0], *shape[2:])
        x, classes, some = of(*shape), Of("integer", target, 5), Of("ignored", target, 5)
        add("nll_loss", x, classes, reduction=reduction)
        add("cross_entropy", x, classes, reduction=reduction, label_smoothing=0.1)
        if len(shape) > 1:
            add("nll_loss", x, some, reduction=reduction, extra=weight)
            add("cross_entropy", x, some, reduction=reduction)
            add("cross_entropy", x, some, reduction=reduction, extra=weight, label_smoothing=0.2)
            add("cross_entropy", x, classes, reduction=reduction, extra=weight, ignore_index=2)
        probabilities = Of("distribution", shape)
        add("cross_entropy", x, probabilities, reduction=reduction)
        add("cross_entropy", x, probabilities, reduction=reduction, extra=weight, label_smoothing=0.2)


for fill in (convolutions, pools, activations, norms, attentions, others, resizes, losses):
    fill()


@dataclass
class LayerCase:
    """A layer made of ``args`` and ``options``, its state filled with ``numbers``, called with ``inputs``."""

    name: str
    layer: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    inputs: tuple[Any, ...]
    call: dict[str, Any]
    training: bool

    def arrays(self) -> tuple[list[Any], dict[str, Any]]:
        start = seed_of(self.name)

        def make(x: Any, i: int) -> Any:
            if isinstance(x, tuple):
                return tuple(make(part, i + 20 + j) for j, part in enumerate(x))
            return x.make(start + i) if isinstance(x, Of) else x

        inputs = [make(x, i) for i, x in enumerate(self.inputs)]
        if len(set(map(id, self.inputs))) < len(inputs):  # the same array several times
            inputs = [inputs[[x is y for y in self.inputs].index(True)] for x in self.inputs]
        return inputs, {k: make(x, 10 + i) for i, (k, x) in enumerate(self.call.items())}


def filling(name: str, shape: tuple[int, ...]) -> Array:
    """What a parameter or buffer of a layer is filled with."""
    if name.endswith("num_batches_tracked"):
        return np.array(3)
    x = numbers(shape, seed_of(name)) / 2
    return np.abs(x) + 0.25 if name.endswith("running_var") else x


LAYERS: list[LayerCase] = []


def layer(
    kind: str, *args: Any, inputs: Any, call: dict[str, Any] | None = None, training: bool = False, **options: Any
) -> None:
    number = sum(case.layer == kind for case in LAYERS)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    LAYERS.append(LayerCase(f"{kind}.{number}", kind, args, options, inputs, call or {}, training))


def simple_layers() -> None:
    layer("Linear", 4, 3, inputs=of(5, 4))
    layer("Linear", 4, 3, bias=False, inputs=of(4))
    layer("Embedding", 6, 3, padding_idx=1, inputs=Of("integer", (2, 4), 6))
    layer("PReLU", inputs=of(2, 3))
    layer("PReLU", 3, inputs=of(2, 3, 2))
    for n in (1, 2, 3):
        size = (6, 5, 4)[:n]
        layer(f"Conv{n}d", 4, 6, 3, stride=2, padding=1, groups=2, inputs=of(2, 4, *size))
        layer(f"Conv{n}d", 2, 3, (3, 2, 3)[:n], bias=False, padding="same", inputs=of(2, *size))
        for mode in ("reflect", "replicate", "circular"):
            layer(f"Conv{n}d", 2, 3, (3, 2, 3)[:n], padding=(1, 2, 1)[:n], padding_mode=mode, inputs=of(1, 2, *size))
        layer(f"Conv{n}d", 2, 3, (3, 2, 4)[:n], padding="same", padding_mode="circular", inputs=of(1, 2, *size))
        layer(f"ConvTranspose{n}d", 4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, inputs=of(2, 4, *size))
        layer(f"ConvTranspose{n}d", 2, 3, (3, 2, 3)[:n], dilation=2, inputs=of(2, *size))
    layer("MaxPool2d", 3, 2, 1, inputs=of(1, 2, 6, 7))
    layer("AvgPool1d", 2, ceil_mode=True, inputs=of(2, 2, 5))
    layer("AdaptiveAvgPool2d", (2, 3), inputs=of(2, 3, 5, 5))
    layer("LPPool2d", 2, 3, inputs=of(1, 2, 6, 7))
    layer("Flatten", inputs=of(2, 3, 4))
    layer("Flatten", 2, inputs=of(2, 3, 4, 2))
    layer("Upsample", scale_factor=2, mode="bilinear", inputs=of(1, 2, 3, 3))
    layer("Softmax", dim=1, inputs=of(2, 3))
    layer("LeakyReLU", 0.2, inputs=of(7))
    layer("GELU", approximate="tanh", inputs=of(7))
    layer("Hardtanh", -0.5, 0.75, inputs=of(20))
    layer("CosineSimilarity", dim=0, inputs=(of(4, 2), of(4, 2)))
    layer("CrossEntropyLoss", label_smoothing=0.1, inputs=(of(4, 3), Of("integer", (4,), 3)))
    layer("HuberLoss", "sum", 0.5, inputs=(of(4, 3), of(4, 3)))


def norm_layers() -> None:
    shapes = {1: (4, 3, 5), 2: (2, 3, 4, 3), 3: (2, 3, 2, 3, 2)}
    for n, shape in shapes.items():
        for training in (False, True):
            layer(f"BatchNorm{n}d", 3, inputs=of(*shape), training=training)
            layer(f"BatchNorm{n}d", 3, eps=1e-2, momentum=0.3, affine=False, inputs=of(*shape), training=training)
            layer(f"BatchNorm{n}d", 3, momentum=None, inputs=of(*shape), training=training)
            layer(f"BatchNorm{n}d", 3, track_running_stats=False, inputs=of(*shape), training=training)
            layer(f"InstanceNorm{n}d", 3, inputs=of(*shape), training=training)
            layer(f"InstanceNorm{n}d", 3, affine=True, track_running_stats=True, inputs=of(*shape), training=training)
        layer(f"InstanceNorm{n}d", 3, affine=True, inputs=of(*shape[1:]))
    layer("BatchNorm1d", 3, inputs=of(6, 3), training=True)
    layer("LayerNorm", 5, inputs=of(2, 3, 5))
    layer("LayerNorm", (3, 5), bias=False, inputs=of(2, 3, 5))
    layer("LayerNorm", (3, 5), elementwise_affine=False, inputs=of(2, 3, 5))
    layer("RMSNorm", 5, inputs=of(2, 3, 5))
    layer("RMSNorm", (3, 5), eps=0.1, elementwise_affine=False, inputs=of(2, 3, 5))
    layer("GroupNorm", 2, 4, inputs=of(2, 4, 3))
    layer("GroupNorm", 4, 4, affine=False, inputs=of(2, 4, 3, 2))


def recurrent_layers() -> None:
    for kind in ("RNN", "GRU", "LSTM"):
        state = (of(1, 2, 4), of(1, 2, 4)) if kind == "LSTM" else of(1, 2, 4)
        deep = (of(4, 2, 3), of(4, 2, 3)) if kind == "LSTM" else of(4, 2, 3)
        layer(kind, 3, 4, inputs=of(5, 2, 3))
        layer(kind, 3, 4, bias=False, inputs=(of(5, 2, 3), state))
        layer(kind, 3, 3, num_layers=2, bidirectional=True, inputs=(of(5, 2, 3), deep))
        layer(kind, 3, 4, num_layers=3, batch_first=True, inputs=of(2, 5, 3))
        layer(kind, 3, 4, bidirectional=True, inputs=of(5, 3))
        cell = (of(2, 4), of(2, 4)) if kind == "LSTM" else of(2, 4)
        layer(f"{kind}Cell", 3, 4, inputs=(of(2, 3), cell))
        layer(f"{kind}Cell", 3, 4, bias=False, inputs=of(2, 3))
        layer(f"{kind}Cell", 3, 4, inputs=of(3))
    layer("RNN", 3, 4, nonlinearity="relu", inputs=of(5, 2, 3))
    layer("RNNCell", 3, 4, nonlinearity="relu", inputs=of(2, 3))
    layer("LSTM", 3, 4, proj_size=2, num_layers=2, bidirectional=True, inputs=of(5, 2, 3))
    layer("LSTM", 3, 4, proj_size=2, inputs=(of(5, 2, 3), (of(1, 2, 2), of(1, 2, 4))))


def attention_layers() -> None:
    kind, x = "MultiheadAttention", of(5, 2, 6)
    q, k = of(3, 2, 6), of(5, 2, 6)
    layer(kind, 6, 2, inputs=(x, x, x))
    layer(kind, 6, 3, inputs=(q, k, k), call={"average_attn_weights": False})
    layer(kind, 6, 2, bias=False, inputs=(q, k, of(5, 2, 6)), call={"need_weights": False})
    layer(kind, 6, 2, kdim=4, vdim=3, inputs=(q, of(5, 2, 4), of(5, 2, 3)))
    layer(kind, 6, 2, batch_first=True, inputs=(of(2, 3, 6), of(2, 5, 6), of(2, 5, 6)))
    layer(kind, 6, 2, inputs=(of(3, 6), of(5, 6), of(5, 6)))
    layer(kind, 6, 2, inputs=(q, k, k), call={"key_padding_mask": Of("bars", (2, 5))})
    layer(kind, 6, 2, inputs=(q, k, k), call={"attn_mask": Of("bars", (3, 5))})
    layer(kind, 6, 2, inputs=(q, k, k), call={"attn_mask": of(4, 3, 5), "key_padding_mask": of(2, 5)})
    layer(
        kind, 6, 2, inputs=(q, k, k), call={"attn_mask": Of("bars", (4, 3, 5)), "key_padding_mask": Of("bars", (2, 5))}
    )
    layer(kind, 6, 2, inputs=(of(3, 6), of(5, 6), of(5, 6)), call={"key_padding_mask": Of("bars", (5,))})


for fill in (simple_layers, norm_layers, recurrent_layers, attention_layers):
    fill()


def make_constant(layer: Any) -> None:
    """Arrays in place of parameters, so that the graph of a layer is a function of its inputs."""
    for name, value in vars(layer).items():
        if hasattr(value, "array"):  # a parameter or a buffer, of which an array that is assigned would be the value
            vars(layer)[name] = value.array
        for part in value if isinstance(value, list) else [value]:
            if hasattr(part, "forward"):
                make_constant(part)


def leaves(value: Any) -> list[Any]:
    """The arrays in nested tuples, without None."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


STEPS = 20
SHAPES = {"w": (2, 3), "b": (3,)}
# Those that whole trainings are compared with, too (``tests/reference/curves.py``), and all.
COMMON_OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.05}),
    ("Adam", {"lr": 0.1, "betas": (0.5, 0.6), "amsgrad": True}),
    ("Adam", {"lr": 0.1, "maximize": True, "weight_decay": 0.05}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.2, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.2, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.05}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.1, "centered": True}),
    ("RMSprop", {"lr": 0.1, "centered": True, "momentum": 0.7, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.05}),
    ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3, "maximize": True}),
]
OPTIMIZERS = [
    *COMMON_OPTIMIZERS,
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.05}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.05, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.1, "betas": (0.8, 0.95), "momentum_decay": 0.1, "weight_decay": 0.05}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.05}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.01, "alpha": 0.5, "t0": 5.0, "weight_decay": 0.05}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.6, 1.3), "step_sizes": (1e-3, 0.5), "maximize": True}),
]


def optimizer_arrays(step: int) -> dict[str, Array]:
    """The parameters at first (step -1), or the gradients of a step."""
    return {name: numbers(shape, 1000 * (step + 2) + i) for i, (name, shape) in enumerate(SHAPES.items())}


RATES = 60


# mlaot's function and its options; PyTorch's class and its options, for a rate of 0.5
def inverse_root(step: Any) -> Any:
    return 1.0 / (1.0 + step) ** 0.5


SCHEDULES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("constant_lr", {}, "ConstantLR", {}),
    ("constant_lr", {"factor": 0.2, "total_iters": 9}, "ConstantLR", {"factor": 0.2, "total_iters": 9}),
    ("step_lr", {"step_size": 7}, "StepLR", {"step_size": 7}),
    ("step_lr", {"step_size": 4, "gamma": 0.7}, "StepLR", {"step_size": 4, "gamma": 0.7}),
    ("multistep_lr", {"milestones": [3, 10, 11]}, "MultiStepLR", {"milestones": [3, 10, 11]}),
    ("exponential_lr", {"gamma": 0.93}, "ExponentialLR", {"gamma": 0.93}),
    ("cosine_annealing_lr", {"T_max": 17}, "CosineAnnealingLR", {"T_max": 17}),
    ("cosine_annealing_lr", {"T_max": 25, "min_factor": 0.1}, "CosineAnnealingLR", {"T_max": 25, "eta_min": 0.05}),
    ("linear_lr", {}, "LinearLR", {}),
    (
        "linear_lr",
        {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 20},
        "LinearLR",
        {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 20},
    ),
    ("polynomial_lr", {}, "PolynomialLR", {}),
    ("polynomial_lr", {"total_iters": 30, "power": 2.5}, "PolynomialLR", {"total_iters": 30, "power": 2.5}),
    ("one_cycle_lr", {"total_steps": 60}, "OneCycleLR", {"total_steps": 60}),
    ("one_cycle_lr", {"total_steps": 60, "three_phase": True}, "OneCycleLR", {"total_steps": 60, "three_phase": True}),
    (
        "one_cycle_lr",
        {"total_steps": 60, "pct_start": 0.2, "anneal_strategy": "linear", "div_factor": 5.0, "final_div_factor": 10.0},
        "OneCycleLR",
        {"total_steps": 60, "pct_start": 0.2, "anneal_strategy": "linear", "div_factor": 5.0, "final_div_factor": 10.0},
    ),
    ("cosine_annealing_warm_restarts_lr", {"T_0": 7}, "CosineAnnealingWarmRestarts", {"T_0": 7}),
    (
        "cosine_annealing_warm_restarts_lr",
        {"T_0": 5, "T_mult": 2, "min_factor": 0.1},
        "CosineAnnealingWarmRestarts",
        {"T_0": 5, "T_mult": 2, "eta_min": 0.05},
    ),
    (
        "cosine_annealing_warm_restarts_lr",
        {"T_0": 2, "T_mult": 3},
        "CosineAnnealingWarmRestarts",
        {"T_0": 2, "T_mult": 3},
    ),
    ("lambda_lr", {"lr_lambda": inverse_root}, "LambdaLR", {"lr_lambda": inverse_root}),
    ("cyclic_lr", {"base_factor": 0.2, "step_size_up": 4}, "CyclicLR", {"base_lr": 0.1, "step_size_up": 4}),
    *[
        (
            "cyclic_lr",
            {"base_factor": 0.2, "step_size_up": 4, "step_size_down": 7, "mode": mode, "gamma": 0.95},
            "CyclicLR",
            {"base_lr": 0.1, "step_size_up": 4, "step_size_down": 7, "mode": mode, "gamma": 0.95},
        )
        for mode in ("triangular2", "exp_range")
    ],
]
# Options of ReduceLROnPlateau.
PLATEAUS: list[dict[str, Any]] = [
    {"patience": 2},
    {"mode": "max", "factor": 0.5, "patience": 1, "threshold": 0.2, "cooldown": 3, "min_lr": 0.03},
    {"factor": 0.5, "patience": 0, "threshold": 0.5, "threshold_mode": "abs", "eps": 0.1},
    {"mode": "max", "patience": 3, "threshold": 0.01, "threshold_mode": "abs"},
]


def measures() -> Array:
    """What a training might measure: it falls, and stays for a while; once it is nan."""
    found = np.floor(numbers((60,), 7)) + 20.0 / (1.0 + np.arange(60) // 4)
    found[30] = np.nan
    return found
