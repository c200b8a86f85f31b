"""More of the cases of ``cases.py``: patches, bags, margins, padding layers, transformers. Importing it adds them."""

from __future__ import annotations

import math

from .cases import FUNCTIONS, LAYERS, Of, add, layer, of

__all__ = ["FUNCTIONS", "LAYERS"]


def activations() -> None:
    for name in ("softshrink", "tanhshrink", "rrelu"):
        add(name, Of("wide", (40,)))
    add("softshrink", of(20), lambd=0.75)
    add("threshold", of(20), threshold=0.25, value=-3.0)
    add("rrelu", of(20), lower=0.25, upper=0.5)
    add("softmin", of(3, 4), dim=-1)
    for name in ("alpha_dropout", "feature_alpha_dropout"):
        add(name, of(3, 4), p=0.5, training=False)
        add(name, of(3, 4), p=1.0, training=True)


def patches() -> None:
    add("unfold", of(2, 3, 5, 6), kernel_size=2)
    add("unfold", of(3, 5, 6), kernel_size=(2, 3), dilation=(1, 2), padding=(0, 2), stride=(2, 1))
    add("fold", of(2, 12, 20), output_size=(5, 6), kernel_size=2)
    add("fold", of(18, 12), output_size=(5, 6), kernel_size=(2, 3), dilation=(1, 2), padding=(0, 2), stride=(2, 1))
    add("pixel_shuffle", of(2, 12, 2, 3), upscale_factor=2)
    add("pixel_shuffle", of(9, 2, 3), upscale_factor=3)
    add("pixel_unshuffle", of(2, 3, 4, 6), downscale_factor=2)
    add("channel_shuffle", of(2, 6, 3, 2), groups=3)
    add("local_response_norm", of(2, 5, 3), size=2)
    add("local_response_norm", of(2, 5, 2, 3), size=3, alpha=0.5, beta=0.5, k=2.0)


def vectors() -> None:
    for p in (2.0, 1.0, 3.0, math.inf):
        add("pairwise_distance", of(4, 3), of(4, 3), p=p)
    add("pairwise_distance", of(4, 3), of(3), eps=0.5, keepdim=True)
    add("bilinear", of(4, 3), of(4, 2), of(5, 3, 2), extra={"bias": of(5)})
    add("bilinear", of(2, 4, 3), of(2, 4, 2), of(5, 3, 2))
    rows, table = Of("integer", (3, 4), 6), of(6, 2)
    for mode in ("mean", "sum", "max"):
        add("embedding_bag", rows, table, mode=mode)
        add("embedding_bag", rows, table, mode=mode, padding_idx=2)
        add("embedding_bag", Of("integer", (9,), 6), table, mode=mode, extra={"offsets": Of("starts", (5,), 9)})
    add("embedding_bag", rows, table, mode="sum", extra={"per_sample_weights": of(3, 4)})
    ends = {"offsets": Of("starts", (4,), 9)}
    add("embedding_bag", Of("integer", (9,), 6), table, include_last_offset=True, extra=ends, padding_idx=-1)


def losses() -> None:
    a, b, signs = of(4, 3), of(4, 3), Of("sign", (4, 3))
    weight = {"weight": Of("positive", (3,))}
    for reduction in ("none", "mean", "sum"):
        add("poisson_nll_loss", a, Of("positive", (4, 3)), reduction=reduction)
        add("poisson_nll_loss", Of("positive", (4, 3)), Of("positive", (4, 3)), log_input=False, reduction=reduction)
        add("poisson_nll_loss", a, Of("positive", (4, 3)), full=True, reduction=reduction)
        add("gaussian_nll_loss", a, b, Of("positive", (4, 3)), reduction=reduction)
        add("gaussian_nll_loss", a, b, Of("positive", (4,)), full=True, eps=0.75, reduction=reduction)
        add("gaussian_nll_loss", a, b, Of("positive", (4, 1)), reduction=reduction)
        add("soft_margin_loss", a, signs, reduction=reduction)
        add("multilabel_soft_margin_loss", a, Of("bit", (4, 3)), reduction=reduction)
        add("multilabel_soft_margin_loss", a, Of("bit", (4, 3)), reduction=reduction, extra=weight)
        add("multi_margin_loss", a, Of("integer", (4,), 3), reduction=reduction)
        add("multi_margin_loss", a, Of("integer", (4,), 3), p=2, margin=0.5, reduction=reduction, extra=weight)
        add("multilabel_margin_loss", of(4, 5), Of("labels", (4, 5), 5), reduction=reduction)
        add("margin_ranking_loss", a, b, signs, margin=0.25, reduction=reduction)
        add("cosine_embedding_loss", a, b, Of("sign", (4,)), margin=0.25, reduction=reduction)
        add("triplet_margin_loss", a, b, of(4, 3), reduction=reduction)
        add("triplet_margin_loss", a, b, of(4, 3), margin=0.5, p=1.0, swap=True, reduction=reduction)
    add("multi_margin_loss", of(3), Of("integer", (), 3))
    add("multilabel_margin_loss", of(5), Of("labels", (5,), 5))
    add("cosine_embedding_loss", of(3), of(3), Of("sign", ()))


def padding_layers() -> None:
    amounts = {1: (2, 1), 2: (1, 2, 0, 3), 3: (1, 0, 2, 1, 1, 1)}
    for n, shape in ((1, (2, 3, 5)), (2, (2, 3, 5, 4)), (3, (2, 3, 4, 5))):
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            layer(f"{kind}Pad{n}d", 1, inputs=of(*shape))
            layer(f"{kind}Pad{n}d", amounts[n], inputs=of(*shape))
        layer(f"ConstantPad{n}d", amounts[n], 1.5, inputs=of(*shape))
    layer("ZeroPad2d", (-1, 2, 1, -2), inputs=of(2, 3, 5, 4))


def simple_layers() -> None:
    layer("Bilinear", 3, 2, 4, inputs=(of(5, 3), of(5, 2)))
    layer("Bilinear", 3, 2, 4, bias=False, inputs=(of(5, 3), of(5, 2)))
    layer("EmbeddingBag", 6, 3, padding_idx=1, inputs=Of("integer", (2, 4), 6))
    layer("EmbeddingBag", 6, 3, mode="max", inputs=(Of("integer", (7,), 6), Of("starts", (3,), 7)))
    layer("Unflatten", 1, (2, 3), inputs=of(2, 6, 3))
    layer("Unflatten", -1, (3, -1), inputs=of(2, 6))
    layer("Softmax2d", inputs=of(2, 3, 2, 2))
    layer("UpsamplingNearest2d", scale_factor=2, inputs=of(1, 2, 3, 3))
    layer("UpsamplingBilinear2d", size=(5, 4), inputs=of(1, 2, 3, 3))
    layer("PixelShuffle", 2, inputs=of(1, 8, 2, 3))
    layer("Fold", (4, 5), 2, stride=2, padding=(0, 1), inputs=of(2, 8, 6))
    layer("Threshold", 0.5, 20.0, inputs=of(9))
    layer("LocalResponseNorm", 2, inputs=of(2, 5, 3))
    layer("RReLU", inputs=of(9))
    layer("TripletMarginLoss", margin=0.5, swap=True, inputs=(of(4, 3), of(4, 3), of(4, 3)))


def transformers() -> None:
    small = {"d_model": 6, "nhead": 2, "dim_feedforward": 8}
    x, memory = of(5, 2, 6), of(4, 2, 6)
    masks = {"src_mask": Of("bars", (5, 5)), "src_key_padding_mask": Of("bars", (2, 5))}
    layer("TransformerEncoderLayer", **small, inputs=x)
    layer("TransformerEncoderLayer", **small, inputs=x, call=masks)
    layer("TransformerEncoderLayer", **small, norm_first=True, activation="gelu", batch_first=True, inputs=of(2, 5, 6))
    layer("TransformerEncoderLayer", **small, bias=False, layer_norm_eps=0.1, inputs=of(5, 6))
    cross = {"memory_mask": of(5, 4), "memory_key_padding_mask": of(2, 4), "tgt_mask": of(5, 5)}
    layer("TransformerDecoderLayer", **small, inputs=(x, memory))
    layer("TransformerDecoderLayer", **small, norm_first=True, activation="gelu", inputs=(x, memory), call=cross)
    layer("TransformerDecoderLayer", **small, batch_first=True, inputs=(of(2, 5, 6), of(2, 4, 6)))
    layer("Transformer", **small, num_encoder_layers=2, num_decoder_layers=1, inputs=(memory, x))
    layer(
        *("Transformer", 6, 2, 1, 2, 8),
        inputs=(memory, x),
        call={"tgt_mask": of(5, 5), "src_key_padding_mask": of(2, 4), "memory_mask": of(5, 4)},
    )


for fill in (activations, patches, vectors, losses, padding_layers, simple_layers, transformers):
    fill()
