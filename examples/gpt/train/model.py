"""The GPT as it trains: AdamW, a rate that warms up and then falls in half a wave, gradients of limited length."""

from typing import Any

import numpy as np
from network import CONTEXT, GPT, LETTERS, SETTINGS

import mlaot
import mlaot.nn.functional as F
from mlaot.optim import AdamW

batch = mlaot.dim("batch")
net = GPT()


def rate(step: Any) -> Any:
    """The learning rate at a step, as a share of the largest."""
    warm, last, least = SETTINGS["warmup"], SETTINGS["steps"], SETTINGS["least_rate"] / SETTINGS["rate"]
    progress = np.clip((step - warm) / max(last - warm, 1), 0.0, 1.0)
    return np.where(step < warm, (step + 1) / (warm + 1), least + (1 - least) * (1 + np.cos(np.pi * progress)) / 2)


def loss(scores: Any, following: mlaot.i64[batch, CONTEXT]) -> Any:
    """The mean surprise at the letters that follow, in nats."""
    return F.cross_entropy(scores.reshape(-1, LETTERS), following.reshape(-1))


optimizer = AdamW(
    lr=SETTINGS["rate"],
    betas=tuple(SETTINGS["betas"]),
    weight_decay=SETTINGS["weight_decay"],
    groups=[{"params": ["*norm*"], "weight_decay": 0.0}],
    schedule=rate,
    clip_grad_norm=1.0,
)


@mlaot.model(loss=loss, optimizer=optimizer, parameters=net)
def gpt(tokens: mlaot.i64[batch, CONTEXT]) -> Any:
    """Scores of the letter after each of a text."""
    return net(tokens)
