"""More of the tables of ``test_arguments.py``: the arguments of patches, bags, margins, transformers and optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlaot import nn

from .cases import numbers

Options = dict[str, Any]


def single(*shape: int, seed: int = 0) -> Any:
    return numbers(shape, seed).astype(np.float32)


X, Y, WEIGHTS = single(4, 6), single(4, 6, seed=1), np.abs(single(6, seed=5)) + 0.25
LABELS = np.array([0, 5, 2, 1])
SIGNS = np.array([1, -1, 1, -1])
IMAGE, COLUMNS = single(1, 4, 4, 6), single(1, 8, 9)
BAGS = np.array([[0, 5], [2, 1]])
PATCH: Options = {"kernel_size": 2, "dilation": 1, "padding": 1, "stride": 2}
ALIKE: Options = {"input": X, "target": Y, "reduction": "sum"}
BITS = {"input": X, "target": (Y > 0).astype(np.float32), "reduction": "sum"}
FUNCTIONS: dict[str, Options] = {
    "softmin": {"input": X, "dim": 0},
    "softshrink": {"input": X, "lambd": 0.25},
    "tanhshrink": {"input": X},
    "threshold": {"input": X, "threshold": 0.25, "value": 20.0},
    "rrelu": {"input": X, "lower": 0.25, "upper": 0.5, "training": False},
    "alpha_dropout": {"input": X, "p": 0.0, "training": False},
    "feature_alpha_dropout": {"input": X, "p": 0.0, "training": False},
    "unfold": {"input": IMAGE, **PATCH},
    "fold": {"input": single(1, 8, 12), "output_size": (4, 6), **PATCH},
    "pixel_shuffle": {"input": IMAGE, "upscale_factor": 2},
    "pixel_unshuffle": {"input": IMAGE, "downscale_factor": 2},
    "channel_shuffle": {"input": IMAGE, "groups": 2},
    "local_response_norm": {"input": IMAGE, "size": 2, "alpha": 0.5, "beta": 0.5, "k": 2.0},
    "pairwise_distance": {"x1": X, "x2": Y, "p": 3.0, "eps": 0.5, "keepdim": True},
    "bilinear": {"input1": X, "input2": Y, "weight": single(2, 6, 6, seed=2), "bias": single(2, seed=3)},
    "embedding_bag": {
        **{"input": BAGS, "weight": single(6, 2), "offsets": None, "mode": "sum", "per_sample_weights": single(2, 2)},
        **{"include_last_offset": False, "padding_idx": 2},
    },
    "poisson_nll_loss": {**ALIKE, "log_input": False, "full": True, "eps": 2.5},
    "gaussian_nll_loss": {**ALIKE, "var": np.abs(Y) + 0.25, "full": True, "eps": 0.5},
    "soft_margin_loss": ALIKE,
    "multilabel_soft_margin_loss": {**BITS, "weight": WEIGHTS},
    "multi_margin_loss": {"input": X, "target": LABELS, "p": 2, "margin": 0.5, "weight": WEIGHTS, "reduction": "sum"},
    "multilabel_margin_loss": {"input": X, "target": np.tile([3, 0, -1, 1, 1, 1], (4, 1)), "reduction": "sum"},
    "margin_ranking_loss": {"input1": X, "input2": Y, "target": np.sign(Y), "margin": 0.5, "reduction": "sum"},
    "cosine_embedding_loss": {"input1": X, "input2": Y, "target": SIGNS, "margin": 0.5, "reduction": "sum"},
    "triplet_margin_loss": {
        **{"anchor": X, "positive": Y, "negative": single(4, 6, seed=2), "margin": 0.5, "p": 3.0, "eps": 0.5},
        **{"swap": True, "reduction": "sum"},
    },
}
SMALL: Options = {"d_model": 6, "nhead": 2, "dim_feedforward": 4, "dropout": 0.0, "activation": "gelu"}
SMALL |= {"layer_norm_eps": 0.5, "batch_first": True, "norm_first": True, "bias": True}
SOURCE, TARGET = single(2, 3, 6), single(2, 4, 6, seed=1)
ENCODED: Options = {"src": SOURCE, "src_key_padding_mask": single(2, 3), "is_causal": False}
DECODED: Options = {
    **{"tgt": TARGET, "memory": SOURCE, "tgt_mask": single(4, 4, seed=2), "memory_mask": single(4, 3, seed=3)},
    **{"tgt_key_padding_mask": single(2, 4), "memory_key_padding_mask": single(2, 3, seed=1)},
    **{"tgt_is_causal": False, "memory_is_causal": False},
}
ENCODER = nn.TransformerEncoderLayer(**SMALL, rng=0)
DECODER = nn.TransformerDecoderLayer(**SMALL, rng=0)
OWN: dict[str, tuple[Options, Options]] = {
    "Bilinear": (
        {"in1_features": 6, "in2_features": 6, "out_features": 2, "bias": False},
        {"input1": X, "input2": Y},
    ),
    "EmbeddingBag": (
        {"num_embeddings": 6, "embedding_dim": 2, "mode": "sum", "include_last_offset": False, "padding_idx": 1},
        {"input": BAGS, "offsets": None, "per_sample_weights": single(2, 2)},
    ),
    "Unflatten": ({"dim": 1, "unflattened_size": (2, 3)}, {"input": X}),
    "Softmax2d": ({}, {"input": IMAGE}),
    "RReLU": ({"lower": 0.25, "upper": 0.5}, {"input": X}),
    "UpsamplingNearest2d": ({"size": None, "scale_factor": 2}, {"input": IMAGE}),
    "UpsamplingBilinear2d": ({"size": (5, 7), "scale_factor": None}, {"input": IMAGE}),
    "AlphaDropout": ({"p": 0.5}, {"input": X}),
    "FeatureAlphaDropout": ({"p": 0.5}, {"input": X}),
    "TransformerEncoderLayer": (SMALL, {**ENCODED, "src_mask": single(3, 3, seed=2)}),
    "TransformerDecoderLayer": (SMALL, DECODED),
    "TransformerEncoder": (
        {"encoder_layer": ENCODER, "num_layers": 2, "norm": None},
        {**ENCODED, "mask": single(3, 3, seed=2)},
    ),
    "TransformerDecoder": ({"decoder_layer": DECODER, "num_layers": 2, "norm": nn.LayerNorm(6)}, DECODED),
    "Transformer": (
        {**SMALL, "num_encoder_layers": 1, "num_decoder_layers": 1},
        {
            **{"src": SOURCE, "src_mask": single(3, 3, seed=2), "src_key_padding_mask": single(2, 3)},
            **{name: value for name, value in DECODED.items() if name != "memory"},
            "src_is_causal": False,
        },
    ),
}


def padding_layers() -> Iterator[tuple[str, tuple[Options, Options]]]:
    for n in (1, 2, 3):
        x = {"input": single(1, 2, *(4, 5, 3)[:n])}
        for kind in ("Circular", "Reflection", "Replication", "Zero"):
            yield f"{kind}Pad{n}d", ({"padding": (1, 2, 1, 0, 1, 1)[: 2 * n]}, x)
        yield f"ConstantPad{n}d", ({"padding": 1, "value": 2.5}, x)


OWN |= dict(padding_layers())
RATES: Options = {"lr": 0.25, "weight_decay": 0.5}
ADAM: Options = {**RATES, "betas": (0.5, 0.75), "eps": 0.5}
OPTIMIZERS: dict[str, Options] = {
    "Adadelta": {**RATES, "rho": 0.5, "eps": 0.5},
    "Adamax": ADAM,
    "NAdam": {**ADAM, "momentum_decay": 0.5, "decoupled_weight_decay": True},
    "RAdam": {**ADAM, "decoupled_weight_decay": True},
    "ASGD": {**RATES, "lambd": 0.5, "alpha": 0.5, "t0": 1.0},
    "Rprop": {"lr": 0.25, "etas": (0.25, 1.5), "step_sizes": (0.125, 2.0)},
}
