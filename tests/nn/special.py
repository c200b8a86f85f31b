"""Cases on the values where arithmetic ends or a rule for real numbers fails, as PyTorch computes them.

``tests/reference/make_nn.py`` stores PyTorch's values and gradients, ``test_special.py`` holds mlaot's against them. An
input is a function of a dtype; where a function takes two arrays, every value meets every other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Input = Callable[[str], Array]  # the array of a dtype
FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int32", "int64")
ORDINARY = [1.0, -1.0, 0.5, -0.75, 3.0, -3.25, 20.5, -80.0]


def values(dtype: str) -> Array:
    """Zeros, nan, infinities, the ends of the dtype, and ordinary numbers."""
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return np.array([0, 1, -1, 3, -4, limits.min, limits.min + 1, limits.max, limits.max - 1], dtype)
    info = np.finfo(dtype)
    ends = [s * float(x) for x in (info.smallest_subnormal, info.smallest_normal, info.max) for s in (1, -1)]
    return np.array([0.0, -0.0, math.nan, math.inf, -math.inf, *ends, *ORDINARY], dtype)


def moderate(dtype: str) -> Array:
    """``values`` without the largest finite ones, whose sums and squares overflow or not by the order of the work."""
    found = values(dtype)
    return np.asarray(found[~(np.isfinite(found) & (np.abs(found) > 1e30))])


def finite(dtype: str) -> Array:
    found = moderate(dtype)
    return np.asarray(found[np.isfinite(found)])


def left(dtype: str) -> Array:
    """The first of all pairs of values, of which ``right`` is the second."""
    return np.repeat(values(dtype), values(dtype).size)


def right(dtype: str) -> Array:
    return np.tile(values(dtype), values(dtype).size)


def rows(dtype: str) -> Array:
    """[n, 3]: two values, all pairs of them, and an ordinary number."""
    pairs = list(itertools.product(moderate(dtype), repeat=2))
    return np.array([(a, b, 0.25) for a, b in pairs], dtype)


def shaped(source: Input, *shape: int) -> Input:
    return lambda dtype: np.reshape(source(dtype), shape)


def filled(*shape: int, source: Input = values, start: int = 0) -> Input:
    """An array of a shape that the values go round and round in."""
    return lambda dtype: np.resize(np.roll(source(dtype), -start), shape)


def with_spots(*shape: int) -> Input:
    """[1, 1, *shape]: ordinary numbers, with an infinity first and a nan last."""

    def array(dtype: str) -> Array:
        found = np.resize(np.array(ORDINARY, dtype), (1, 1, *shape))
        found.flat[0], found.flat[-1] = math.inf, math.nan
        return found

    return array


def constant(*numbers: Any, shape: tuple[int, ...] = (-1,)) -> Input:
    """Ordinary numbers."""
    return lambda dtype: np.reshape(np.array(numbers, dtype), shape)


def classes(count: int, size: int, dtype: str = "int64", ignored: int | None = None) -> Input:
    """``size`` labels in turn, every fifth of them ``ignored``."""

    def labels(_: str) -> Array:
        found = (np.arange(size) % count).astype(dtype)
        if ignored is not None:
            found[::5] = ignored
        return found

    return labels


def signs(dtype: str) -> Array:
    """1 and -1 in turn, one for each of the values, then the other way round."""
    size = values(dtype).size
    return np.array([1.0, -1.0] * size, dtype)


def probabilities(dtype: str) -> Array:
    """``right``, brought to between 0 and 1: what PyTorch takes as the target of a binary cross entropy."""
    return np.clip(np.nan_to_num(right(dtype), nan=0.25), 0.0, 1.0).astype(dtype)


def twice(dtype: str) -> Array:
    return np.repeat(values(dtype), 2)


@dataclass(frozen=True)
class Special:
    """``function`` (or layer, made with ``args``) of ``inputs`` and arrays by name in ``extra``.

    PyTorch's answers are stored, unless there is a ``formula`` of NumPy's.
    """

    name: str
    function: str
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Input] = field(default_factory=dict)
    dtypes: tuple[str, ...] = FLOATS
    args: tuple[Any, ...] = ()
    training: bool = False
    formula: Callable[..., Array] | None = None

    def arrays(self, dtype: str) -> tuple[list[Any], dict[str, Array]]:
        inputs = [made(x, dtype) for x in self.inputs]
        return inputs, {name: make(dtype) for name, make in self.extra.items()}

    def differentiable(self, dtype: str) -> list[int]:
        """The inputs that gradients are compared of, in single precision.

        Running statistics have none, and of equal maxima PyTorch gives the first all of it, mlaot each its share.
        """
        is_shared = "max_pool" in self.function or "MaxPool" in self.function
        if dtype != FLOATS[0] or self.training or self.formula or is_shared:
            return []
        floats = [i for i, x in enumerate(self.arrays(dtype)[0]) if isinstance(x, np.ndarray) and x.dtype == dtype]
        return floats[:1] if self.function in ("batch_norm", "soft_margin_loss", "SoftMarginLoss") else floats


def cotangent(shape: tuple[int, ...], dtype: str) -> Array:
    """What the outputs are multiplied by before they are summed for a gradient: small numbers, one third each."""
    return np.reshape(np.resize(np.array([0.5, 1.0, 2.0], dtype), math.prod(shape)), shape)


def made(value: Any, dtype: str) -> Any:
    if isinstance(value, tuple):
        return tuple(made(part, dtype) for part in value)
    return value(dtype) if callable(value) else value


# Functions of one array that are also layers, which a formula answers for instead of PyTorch: their options, and it.
FORMULAS: dict[str, tuple[dict[str, Any], Callable[..., Array]]] = {
    "hardshrink": ({"lambd": 0.25}, lambda x, lambd: np.where(np.abs(x) <= lambd, 0, x)),
}
FUNCTIONS: list[Special] = []
LAYERS: list[Special] = []


def add(function: str, *inputs: Any, extra: Any = None, dtypes: tuple[str, ...] = FLOATS, **options: Any) -> None:
    number = sum(case.function == function for case in FUNCTIONS)
    FUNCTIONS.append(Special(f"{function}.{number}", function, inputs, options, extra or {}, dtypes))


def layer(kind: str, *args: Any, inputs: Any, training: bool = False, **options: Any) -> None:
    number = sum(case.function == kind for case in LAYERS)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    LAYERS.append(Special(f"{kind}.{number}", kind, inputs, options, {}, FLOATS[:1], args, training))


SIZE = values("float32").size
ROWS = rows("float32").shape[0]
N = moderate("float32").size


def activations() -> None:
    plain = "relu elu selu celu gelu silu mish softplus softsign hardtanh hardsigmoid hardswish relu6 logsigmoid tanh"
    for name in [*plain.split(), "sigmoid", "leaky_relu"]:
        add(name, values)
    for name in ("relu", "relu6", "hardtanh"):
        add(name, values, dtypes=INTEGERS)
    add("gelu", values, approximate="tanh")
    add("leaky_relu", values, negative_slope=-0.5)
    add("elu", values, alpha=0.7)
    add("celu", values, alpha=0.7)
    add("softplus", values, beta=2.0, threshold=3.0)
    add("hardtanh", values, min_val=-0.5, max_val=1.25)
    add("prelu", shaped(left, SIZE, SIZE), values)
    add("prelu", values, constant(-0.5))
    add("glu", lambda d: np.stack([left(d), right(d)], axis=1))
    for name in ("softmax", "log_softmax"):
        add(name, rows, dim=-1)
        add(name, lambda d: rows(d).T, dim=0)
        add(name, shaped(values, SIZE, 1), dim=1)


def losses() -> None:
    both = (left, right)
    for reduction in ("none", "mean", "sum"):
        for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "hinge_loss", "hinge_embedding_loss"):
            add(name, filled(0, 3), filled(0, 3), reduction=reduction)
        for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"):
            add(name, filled(0, 3), filled(0, 3), reduction=reduction)
        for name in ("nll_loss", "cross_entropy"):
            add(name, filled(0, 3), classes(3, 0), reduction=reduction)
            add(name, filled(2, 3, source=finite), classes(3, 2, ignored=0), reduction=reduction, ignore_index=0)
            add(name, filled(0, 3), classes(3, 0), reduction=reduction, extra={"weight": constant(1, 2, 3)})
    for name in ("mse_loss", "l1_loss", "huber_loss"):
        add(name, *both, reduction="none")
        add(name, left, constant(*[0.5] * SIZE**2), reduction="none", extra={"weight": right})
        add(name, twice, filled(2 * SIZE, source=finite), extra={"weight": constant(*[0.5] * 2 * SIZE)})
    add("huber_loss", *both, reduction="none", delta=0.6)
    add("smooth_l1_loss", *both, reduction="none")
    add("smooth_l1_loss", *both, reduction="none", beta=0.6)
    add("smooth_l1_loss", *both, reduction="none", beta=0.0)
    add("hinge_loss", *both, reduction="none")
    add("hinge_loss", twice, signs, reduction="none", margin=0.3)
    add("hinge_embedding_loss", *both, reduction="none")
    add("hinge_embedding_loss", twice, signs, reduction="none", margin=0.3)
    add("binary_cross_entropy", left, probabilities, reduction="none")
    add("binary_cross_entropy_with_logits", *both, reduction="none")
    for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
        add(name, left, constant(*[0.5] * SIZE**2), reduction="none", extra={"weight": right})
    add(
        "binary_cross_entropy_with_logits",
        left,
        right,
        reduction="none",
        extra={"pos_weight": filled(1, source=constant(3.0))},
    )
    add(
        "binary_cross_entropy_with_logits",
        left,
        constant(*[0.5] * SIZE**2),
        reduction="none",
        extra={"pos_weight": right},
    )
    add("kl_div", *both, reduction="none")
    add("kl_div", *both, reduction="none", log_target=True)
    add("kl_div", rows, filled(ROWS, 3, source=finite), reduction="batchmean")
    for name in ("nll_loss", "cross_entropy"):
        some, ignored = classes(3, ROWS), classes(3, ROWS, ignored=-100)
        add(name, rows, some, reduction="none")
        add(name, rows, ignored, reduction="none")
        add(name, rows, classes(3, ROWS, "uint8"), reduction="none")
        add(name, rows, ignored, reduction="none", extra={"weight": constant(0.0, 2.0, 0.5)})
        weighted = lambda d: np.resize(finite(d), (SIZE, SIZE))  # noqa: E731
        add(name, weighted, classes(SIZE, SIZE), reduction="none", extra={"weight": values})
        add(name, weighted, classes(SIZE, SIZE), reduction="sum", extra={"weight": filled(SIZE, source=finite)})
    add("cross_entropy", rows, classes(3, ROWS, ignored=-100), reduction="none", label_smoothing=0.1)
    add("cross_entropy", rows, rows, reduction="none")
    add("cross_entropy", rows, filled(ROWS, 3, source=constant(0.5, 0.0, 0.25, 1.0)), reduction="none")
    add("cross_entropy", filled(ROWS, 3, source=finite), rows, reduction="none", label_smoothing=0.1)


def windows() -> None:
    for n in (1, 2, 3):
        x = shaped(rows, -1, 1, *(1,) * (n - 1), 3)
        kernel, ones = (1,) * (n - 1) + (2,), (1,) * n
        add(f"conv{n}d", x, constant(1.0, -0.5, shape=(1, 1, *kernel)))
        add(f"conv{n}d", shaped(values, SIZE, 1, *ones), shaped(values, SIZE, 1, *ones))
        add(f"conv{n}d", x, constant(1.0, shape=(1, 1, *ones)), extra={"bias": filled(1, source=constant(math.inf))})
        add(f"conv_transpose{n}d", x, constant(1.0, -0.5, shape=(1, 1, *kernel)))
        add(f"conv_transpose{n}d", shaped(values, SIZE, 1, *ones), shaped(values, 1, SIZE, *ones))
        for pool in ("max", "avg"):
            add(f"{pool}_pool{n}d", x, kernel_size=kernel, stride=1)
            add(f"{pool}_pool{n}d", x, kernel_size=kernel, stride=2, padding=(0,) * (n - 1) + (1,), ceil_mode=True)
            add(f"adaptive_{pool}_pool{n}d", x, output_size=ones)
            add(f"adaptive_{pool}_pool{n}d", x, output_size=(1,) * (n - 1) + (2,))
            add(f"adaptive_{pool}_pool{n}d", x, output_size=(1,) * (n - 1) + (3,))
        add(f"lp_pool{n}d", x, norm_type=2, kernel_size=kernel if n > 1 else 2, stride=1)
        add(f"lp_pool{n}d", x, norm_type=3, kernel_size=kernel if n > 1 else 2, stride=1)
    for pool in ("max", "avg"):
        add(f"global_{pool}_pool", shaped(rows, -1, 1, 1, 3))
    add("max_pool2d", lambda d: np.reshape(np.resize(values(d), 24), (1, 1, 4, 6)), kernel_size=2, dtypes=INTEGERS)


def norms() -> None:
    x, halves, zeros, ones = shaped(left, SIZE, SIZE), *[constant(*[c] * SIZE) for c in (0.5, 0.0, 1.0)]
    add("batch_norm", x, values, halves)
    add("batch_norm", x, halves, values)
    for name in ("weight", "bias"):
        add("batch_norm", x, zeros, ones, extra={name: values})
    add("batch_norm", lambda d: rows(d).T, None, None, training=True)  # each pair is a channel
    add("instance_norm", shaped(rows, -1, 1, 3))
    add("layer_norm", rows, normalized_shape=(3,))
    add("layer_norm", rows, normalized_shape=(3,), eps=0.0)
    add("rms_norm", rows, normalized_shape=(3,))
    add("group_norm", shaped(rows, -1, 3), num_groups=1)
    add("group_norm", shaped(rows, -1, 3, 1), num_groups=3, eps=0.5)
    ordinary = filled(N, N, source=constant(0.5, 2.0, -1.0, 0.25))
    add("group_norm", ordinary, num_groups=1, extra={"weight": moderate, "bias": constant(*[0.5] * N)})
    for name in ("weight", "bias"):
        add("layer_norm", ordinary, normalized_shape=(N,), extra={name: moderate})
        add("instance_norm", lambda d: ordinary(d)[..., None] * np.array([1, 2], d), extra={name: moderate})
    add("rms_norm", ordinary, normalized_shape=(N,), extra={"weight": moderate})


def others() -> None:
    add("linear", shaped(values, SIZE, 1), shaped(values, SIZE, 1))
    add("linear", shaped(values, SIZE, 1), constant(0.5, shape=(1, 1)), extra={"bias": filled(1, source=constant(1.0))})
    add(
        "linear",
        constant(*[1.0] * SIZE, shape=(SIZE, 1)),
        constant(*[0.5] * SIZE, shape=(SIZE, 1)),
        extra={"bias": values},
    )
    add("linear", rows, constant(1.0, -0.5, 2.0, shape=(1, 3)))
    add("embedding", classes(SIZE, 2 * SIZE), shaped(values, SIZE, 1))
    add("embedding", classes(SIZE, 2 * SIZE), shaped(values, SIZE, 1), padding_idx=2)
    add("one_hot", classes(7, 20), num_classes=7, dtypes=("int64",))
    for mode in ("constant", "reflect", "replicate", "circular"):
        add("pad", shaped(values, 1, 1, SIZE), pad=(2, 1), mode=mode)
    for value in (math.nan, math.inf, -0.0):
        add("pad", values, pad=(2, 1), value=value)
    add("pad", values, pad=(2, 1), value=-3, dtypes=INTEGERS)
    add("flatten", shaped(values, 1, SIZE, 1))
    add("flatten", values, dtypes=INTEGERS)
    for p in (2.0, 1.0, 3.0, math.inf):
        add("normalize", rows, p=p, dim=1)
    add("cosine_similarity", rows, filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25)))
    add("cosine_similarity", filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25)), rows)
    add("cosine_similarity", rows, rows)
    for n, name in enumerate(("dropout", "dropout1d", "dropout2d", "dropout3d")):
        x = shaped(values, 1, SIZE, *(1,) * n)
        add(name, x, p=0.5, training=False)
        add(name, x, p=0.0, training=True)
        add(name, x, p=1.0, training=True)


def attentions() -> None:
    name = "scaled_dot_product_attention"
    few = lambda d: np.concatenate([moderate(d), np.ones(1, d)]).reshape(-1, 2)  # noqa: E731
    ordinary = filled(4, 2, source=constant(0.5, -1.0, 2.0))
    add(name, few, ordinary, ordinary)
    add(name, ordinary, few, filled((N + 1) // 2, 2, source=constant(0.5, -1.0, 2.0)))
    add(name, ordinary, ordinary, filled(4, 2, source=values))
    mask = lambda d: np.resize(np.concatenate([moderate(d), [-math.inf] * 8]), (4, 4)).astype(d)  # noqa: E731
    add(name, ordinary, ordinary, ordinary, extra={"attn_mask": mask})
    add(name, ordinary, ordinary, ordinary, extra={"attn_mask": filled(4, 4, source=constant(-math.inf))})
    bars = lambda d: np.arange(16).reshape(4, 4) % 5 > 1  # noqa: E731
    add(name, ordinary, ordinary, ordinary, extra={"attn_mask": bars})
    add(name, ordinary, ordinary, ordinary, extra={"attn_mask": lambda d: np.arange(16).reshape(4, 4) > 5})
    add(name, ordinary, filled(4, 2, source=moderate), ordinary, is_causal=True)
    add(name, few, ordinary, ordinary, scale=0.3)


def resizes() -> None:
    one, two, three = shaped(values, 1, 1, SIZE), filled(1, 1, 5, 5), filled(1, 1, 3, 3, 3)
    for mode in ("nearest", "nearest-exact", "area"):
        for x in (one, two, three):
            add("interpolate", x, scale_factor=2, mode=mode)
    spots = (with_spots(9), with_spots(7, 8), with_spots(4, 3, 5), with_spots(7, 8))
    for x, mode in zip(spots, ("linear", "bilinear", "trilinear", "bicubic"), strict=True):
        add("interpolate", x, scale_factor=1.6, mode=mode, align_corners=False)
        add("interpolate", x, scale_factor=2, mode=mode, align_corners=True)


for fill in (activations, losses, windows, norms, others, attentions, resizes):
    fill()


def functions_as_layers() -> None:
    """Layers that have no parameters."""
    plain = "ReLU LeakyReLU ELU SELU CELU GELU SiLU Mish Softplus Softsign Tanh Sigmoid Hardtanh Hardsigmoid Hardswish"
    for name in [*plain.split(), "ReLU6", "LogSigmoid", "Identity", "Dropout"]:
        layer(name, inputs=values)
    for n in (1, 2, 3):
        layer(f"Dropout{n}d", inputs=shaped(values, 1, SIZE, *(1,) * n))
    layer("Flatten", inputs=shaped(values, 1, SIZE, 1))
    layer("GLU", inputs=lambda d: np.stack([left(d), right(d)], axis=1))
    layer("Softmax", dim=1, inputs=rows)
    layer("LogSoftmax", dim=1, inputs=rows)
    layer("CosineSimilarity", inputs=(rows, filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25))))
    layer("Upsample", scale_factor=2, inputs=shaped(values, 1, 1, SIZE))
    for n in (1, 2, 3):
        x, kernel = shaped(rows, -1, 1, *(1,) * (n - 1), 3), (1,) * (n - 1) + (2,)
        for pool in ("MaxPool", "AvgPool"):
            layer(f"{pool}{n}d", kernel, 1, inputs=x)
            layer(f"Adaptive{pool}{n}d", kernel, inputs=x)
        layer(f"LPPool{n}d", 2, kernel if n > 1 else 2, inputs=x)
    for name in ("MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss", "HingeEmbeddingLoss"):
        layer(name, reduction="none", inputs=(left, right))
    layer("BCELoss", reduction="none", inputs=(left, probabilities))
    layer("BCEWithLogitsLoss", reduction="none", inputs=(left, right))
    layer("KLDivLoss", reduction="none", inputs=(left, right))
    layer("CrossEntropyLoss", reduction="none", inputs=(rows, classes(3, ROWS, ignored=-100)))
    layer("NLLLoss", reduction="none", inputs=(rows, classes(3, ROWS, ignored=-100)))


def layers_with_parameters() -> None:
    layer("Linear", 3, 2, inputs=rows)
    layer("Embedding", 4, 2, inputs=classes(4, 9))
    layer("PReLU", inputs=values)
    for n in (1, 2, 3):
        x, kernel = shaped(rows, -1, 1, *(1,) * (n - 1), 3), (1,) * (n - 1) + (2,)
        layer(f"Conv{n}d", 1, 2, kernel, inputs=x)
        layer(f"ConvTranspose{n}d", 1, 2, kernel, inputs=x)
        deep = lambda d, n=n: rows(d).T.reshape(1, 3, *(1,) * (n - 1), -1)  # noqa: E731
        layer(f"BatchNorm{n}d", 3, inputs=deep)
        layer(f"BatchNorm{n}d", 1, inputs=shaped(rows, 1, 1, *(1,) * (n - 1), -1), training=True)
        layer(f"InstanceNorm{n}d", 1, inputs=x)
    layer("LayerNorm", 3, inputs=rows)
    layer("RMSNorm", 3, inputs=rows)
    layer("GroupNorm", 1, 3, inputs=rows)
    for kind in ("RNN", "GRU", "LSTM"):
        state = (rows, rows) if kind == "LSTM" else rows
        layer(kind, 3, 2, inputs=shaped(rows, 1, -1, 3))
        layer(f"{kind}Cell", 3, 3, inputs=(filled(ROWS, 3, source=constant(0.5, -1.0)), state))
    layer("RNNCell", 3, 2, nonlinearity="relu", inputs=rows)
    x = lambda d: np.concatenate([moderate(d), np.ones(1, d)]).reshape(1, -1, 2)  # noqa: E731
    layer("MultiheadAttention", 2, 1, inputs=(x, x, x))


for fill in (functions_as_layers, layers_with_parameters):
    fill()


UPDATES = 2
LION = ("Lion", {"lr": 0.1, "weight_decay": 0.2})  # by its paper: PyTorch has none
CLIP_NORMS = (1.0, 2.0, 3.0, math.inf)
LATE = (10**6, 2**31, 2**53)  # steps far beyond what the other tests count to


def gradients_of(value: float, dtype: str = "float32") -> dict[str, Array]:
    """Gradients to be clipped, with a special value among them."""
    return {"w": np.array([value, 1.0, -2.0], dtype), "b": np.array([0.5], dtype)}
