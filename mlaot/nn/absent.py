"""Errors for names that a module does not have: where the name is, which one was meant, or what to use instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from mlaot.errors import did_you_mean

INDICES = "the places of maxima are not kept; use Upsample or ConvTranspose2d"
SPLIT = "one process computes, with threads of its own: the setting threads"
SAMPLED = "use interpolate, or np.take with places that are computed"
SCANNED = "write it with mlaot.scan over the axis of time"
# Names of PyTorch's that mlaot lacks or has under another name, and what to use instead.
ADVICE = {
    **{f"Lazy{kind}": f"give {kind} the number of its inputs" for kind in ("Linear", "Conv1d", "Conv2d", "Conv3d")},
    **{f"LazyBatchNorm{n}d": f"give BatchNorm{n}d the number of its channels" for n in (1, 2, 3)},
    "SyncBatchNorm": "use BatchNorm1d, BatchNorm2d or BatchNorm3d",
    "DataParallel": SPLIT,
    "FractionalMaxPool2d": "its windows are drawn; use AdaptiveMaxPool2d",
    "FractionalMaxPool3d": "its windows are drawn; use AdaptiveMaxPool3d",
    **dict.fromkeys(("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "max_unpool2d"), INDICES),
    **dict.fromkeys(("CTCLoss", "ctc_loss"), SCANNED),
    **dict.fromkeys(("grid_sample", "affine_grid"), SAMPLED),
    "multi_head_attention_forward": "use mlaot.nn.MultiheadAttention, or scaled_dot_product_attention",
    "AdaptiveLogSoftmaxWithLoss": "use Linear and cross_entropy",
    "utils": "gradients are clipped by an optimizer: SGD(lr=0.1, clip_grad_norm=1.0)",
    "LBFGS": "it evaluates the loss several times an update; use Adam",
    "SparseAdam": "gradients are dense; use Adam",
    "Adafactor": "use AdamW",
    "Muon": "use AdamW, or write it as a subclass of Optimizer",
    "MultiplicativeLR": "use LambdaLR with the product as a function of the step",
    "multiplicative_lr": "use lambda_lr with the product as a function of the step",
    "SWALR": "use SequentialLR",
    "no_grad": "nothing is recorded outside of a loss; leave it out, or use mlaot.stop_gradient",
}


def absent(module: str, name: str, names: Iterable[str], elsewhere: Mapping[str, Iterable[str]]) -> NoReturn:
    """Raise ``AttributeError`` for a name that a module lacks, and say where it is, or what to use instead."""
    hint = ""
    if not name.startswith("__"):  # Python itself asks, not a user
        places = {other: f"; it is {place}.{other}" for place, there in elsewhere.items() for other in there}
        alike = [place for other, place in places.items() if _alike(other, name)]
        advice = f"; {ADVICE[name]}" if name in ADVICE else ""
        hint = places.get(name) or advice or did_you_mean(name, names) or next(iter(alike), "")
        hint = (
            hint
            or did_you_mean(name, places)
            or "; what is missing can be written in Python, as a Module or a function"
        )
    raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def _alike(name: str, other: str) -> bool:
    return name.replace("_", "").lower() == other.replace("_", "").lower()
