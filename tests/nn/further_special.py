"""More of the cases of ``special.py``: patches, bags, margins, padding layers, transformers. Importing it adds them."""

from __future__ import annotations

import math

import numpy as np

from .special import (
    FUNCTIONS,
    LAYERS,
    ROWS,
    SIZE,
    Array,
    N,
    add,
    classes,
    constant,
    filled,
    layer,
    left,
    moderate,
    right,
    rows,
    shaped,
    signs,
    twice,
    values,
    with_spots,
)

__all__ = ["DRAWN", "FUNCTIONS", "LAYERS"]

DRAWN = {"gumbel_softmax"}  # always random: ``test_drawing.py`` has it


def labels(dtype: str) -> Array:
    """Three labels for each of the rows, up to a -1."""
    return np.resize(np.array([[0, 2, -1], [1, -1, 0], [-1, 0, 1], [2, 0, 1]]), (ROWS, 3))


def variances(dtype: str) -> Array:
    """Those of ``right`` that are no nan and not negative, else 0.5: PyTorch refuses others."""
    found = right(dtype)
    return np.where(found >= 0, found, np.array(0.5, dtype))


def activations() -> None:
    for name in ("softshrink", "tanhshrink", "rrelu"):
        add(name, values)
    add("threshold", values, threshold=0.5, value=20.0)
    add("softmin", rows, dim=-1)
    for name in ("alpha_dropout", "feature_alpha_dropout"):
        add(name, shaped(values, SIZE, 1), p=0.5, training=False)
        add(name, shaped(values, SIZE, 1), p=1.0, training=True)


def moves() -> None:
    x = with_spots(4, 6)
    add("unfold", x, kernel_size=(2, 3), padding=1)
    add("fold", lambda d: np.resize(values(d), (1, 4, 15)), output_size=(4, 6), kernel_size=2)
    add("pixel_shuffle", lambda d: np.resize(values(d), (1, 4, 3, 2)), upscale_factor=2)
    add("pixel_unshuffle", x, downscale_factor=2)
    add("channel_shuffle", lambda d: np.resize(values(d), (1, 4, 5)), groups=2)
    add("local_response_norm", shaped(rows, -1, 3, 1), size=2)


def vectors() -> None:
    ordinary = filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25))
    for p in (2.0, 1.0, math.inf):
        add("pairwise_distance", rows, ordinary, p=p)
    add("bilinear", shaped(values, SIZE, 1), filled(SIZE, 1, source=moderate), constant(0.5, shape=(1, 1, 1)))
    add("bilinear", rows, ordinary, constant(*[1.0, -0.5, 2.0] * 3, shape=(1, 3, 3)))
    for mode in ("sum", "mean"):
        add("embedding_bag", lambda d: np.arange(2 * SIZE).reshape(-1, 2) % SIZE, shaped(values, SIZE, 1), mode=mode)
    add("embedding_bag", classes(SIZE, SIZE), shaped(values, SIZE, 1), lambda d: np.arange(SIZE), mode="max")


def losses() -> None:
    both = (left, right)
    add("poisson_nll_loss", *both, reduction="none")
    add("poisson_nll_loss", *both, reduction="none", log_input=False)
    add("poisson_nll_loss", *both, reduction="none", full=True)
    add("gaussian_nll_loss", left, constant(*[0.5] * SIZE**2), variances, reduction="none")
    add("soft_margin_loss", twice, signs, reduction="none")
    add(
        "multilabel_soft_margin_loss", rows, lambda d: np.resize(np.array([0, 1, 1, 0], d), (ROWS, 3)), reduction="none"
    )
    add("multi_margin_loss", rows, classes(3, ROWS), reduction="none")
    add("multi_margin_loss", rows, classes(3, ROWS), reduction="none", p=2, extra={"weight": constant(1, 2, 3)})
    add("multilabel_margin_loss", rows, labels, reduction="none")
    ones = constant(*[1.0, -1.0, -1.0] * SIZE**2)
    add("margin_ranking_loss", *both, lambda d: ones(d)[: SIZE**2], reduction="none", margin=0.5)
    ordinary = filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25))
    targets = lambda d: np.resize(np.array([1, -1], d), ROWS)  # noqa: E731
    add("cosine_embedding_loss", rows, ordinary, targets, margin=0.1, reduction="none")
    add("triplet_margin_loss", rows, ordinary, lambda d: np.roll(ordinary(d), 2, axis=0), reduction="none")


def functions_as_layers() -> None:
    for name in ("Softshrink", "Tanhshrink", "RReLU", "AlphaDropout"):
        layer(name, inputs=values)
    layer("Threshold", 0.5, 20.0, inputs=values)
    layer("Softmin", dim=1, inputs=rows)
    layer("Softmax2d", inputs=shaped(rows, -1, 3, 1, 1))
    layer("FeatureAlphaDropout", inputs=shaped(values, SIZE, 1))
    layer("PairwiseDistance", inputs=(rows, filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25))))
    layer("LocalResponseNorm", 2, inputs=shaped(rows, -1, 3, 1))
    layer("Unflatten", 1, (3, 1), inputs=rows)
    square = lambda d: np.resize(values(d), (1, 4, 2, 2))  # noqa: E731
    layer("PixelShuffle", 2, inputs=square)
    layer("PixelUnshuffle", 2, inputs=square)
    layer("ChannelShuffle", 2, inputs=square)
    layer("Unfold", 2, inputs=square)
    layer("Fold", (2, 3), 2, inputs=lambda d: np.resize(values(d), (1, 8, 2)))
    layer("UpsamplingNearest2d", scale_factor=2, inputs=square)
    layer("UpsamplingBilinear2d", scale_factor=2, inputs=with_spots(4, 3))
    for n in (1, 2, 3):
        x = lambda d, n=n: np.resize(values(d), (1, 1, *(3, 3, 3)[:n]))  # noqa: E731
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            layer(f"{kind}Pad{n}d", 1, inputs=x)
        layer(f"ConstantPad{n}d", 1, -2.0, inputs=x)
    both = {"inputs": (left, right), "reduction": "none"}
    layer("PoissonNLLLoss", **both)
    layer("SoftMarginLoss", reduction="none", inputs=(twice, signs))
    layer("GaussianNLLLoss", reduction="none", inputs=(left, right, variances))
    layer("MultiLabelSoftMarginLoss", reduction="none", inputs=(rows, lambda d: np.ones((ROWS, 3), d)))
    layer("MultiLabelMarginLoss", reduction="none", inputs=(rows, labels))
    layer("MultiMarginLoss", reduction="none", inputs=(rows, classes(3, ROWS)))
    layer("MarginRankingLoss", reduction="none", inputs=(left, right, constant(*[1.0] * SIZE**2)))
    ordinary = filled(ROWS, 3, source=constant(0.5, -1.0, 2.0, 0.25))
    layer("CosineEmbeddingLoss", reduction="none", inputs=(rows, ordinary, constant(*[1.0] * ROWS)))
    layer("TripletMarginLoss", reduction="none", inputs=(rows, ordinary, filled(ROWS, 3, source=constant(2.0, 0.5))))


def layers_with_parameters() -> None:
    layer("Bilinear", 1, 1, 2, inputs=(shaped(values, SIZE, 1), constant(*[0.5] * SIZE, shape=(SIZE, 1))))
    layer("EmbeddingBag", 4, 2, inputs=shaped(classes(4, 8), 2, 4))
    x = filled(2, N, 2, source=moderate)
    y = filled(3, N, 2, source=constant(0.5, -1.0, 2.0))
    small = {"d_model": 2, "nhead": 1, "dim_feedforward": 3}
    layer("TransformerEncoderLayer", **small, inputs=x)
    layer("TransformerDecoderLayer", **small, inputs=(x, y))
    layer("Transformer", **small, num_encoder_layers=1, num_decoder_layers=1, inputs=(y, x))


for fill in (activations, moves, vectors, losses, functions_as_layers, layers_with_parameters):
    fill()
