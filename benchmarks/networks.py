"""The networks that are timed, written once for ``mlaot.nn`` and ``torch.nn``: the names of layers are the same.

``networks(mlaot.nn, numpy)`` and ``networks(torch.nn, torch)`` give the same architectures, with the same names of
parameters; a network without PyTorch's extras needs no second spelling. Nothing here imports either of them.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

WIDTH, HEADS, LAYERS, VOCABULARY, CONTEXT = 384, 6, 6, 65, 256  # of the GPT
MOBILE = (  # MobileNetV2 (Sandler et al., 2018), table 2: expansion, channels, repeats, stride
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def networks(nn: Any, xp: Any) -> dict[str, Callable[[], Any]]:
    """What makes each network, by name; ``nn`` holds the layers, ``xp`` the functions of arrays."""
    F = nn.functional

    class MLP(nn.Module):
        """Linear layers with ReLU, or tanh and a sigmoid at the end, between them."""

        def __init__(self, *sizes: int, activation: Any = F.relu, last: Any = None) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
            self.activation, self.last = activation, last

        def forward(self, x: Any) -> Any:
            for i in range(len(self.layers) - 1):
                x = self.activation(self.layers[i](x))
            x = self.layers[len(self.layers) - 1](x)
            return x if self.last is None else self.last(x)

    class LeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1 = nn.Conv2d(1, 6, 5, padding=2)
            self.c2 = nn.Conv2d(6, 16, 5)
            self.flatten = nn.Flatten(-3)
            self.f1 = nn.Linear(400, 120)
            self.f2 = nn.Linear(120, 84)
            self.f3 = nn.Linear(84, 10)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.c1(x)), 2)
            x = F.max_pool2d(F.relu(self.c2(x)), 2)
            return self.f3(F.relu(self.f2(F.relu(self.f1(self.flatten(x))))))

    class Basic(nn.Module):
        """Two 3x3 convolutions and a way around them (He et al., 2015)."""

        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.c1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.b1 = nn.BatchNorm2d(outputs)
            self.c2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.b2 = nn.BatchNorm2d(outputs)
            same = stride == 1 and inputs == outputs
            projection = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            self.down = nn.Identity() if same else nn.Sequential(*projection)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.b1(self.c1(x)))
            return F.relu(self.b2(self.c2(y)) + self.down(x))

    class ResNet18(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn = nn.BatchNorm2d(64)
            blocks, inputs = [], 64
            for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                blocks += [Basic(inputs, outputs, stride), Basic(outputs, outputs, 1)]
                inputs = outputs
            self.blocks = nn.Sequential(*blocks)
            self.flatten = nn.Flatten()
            self.fc = nn.Linear(512, 1000)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.bn(self.stem(x))), 3, 2, 1)
            return self.fc(self.flatten(F.adaptive_avg_pool2d(self.blocks(x), 1)))

    def convolution(inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> Any:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())

    class InvertedResidual(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
            super().__init__()
            hidden = inputs * expansion
            expand = [] if expansion == 1 else [convolution(inputs, hidden, 1, 1)]
            project = [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
            self.body = nn.Sequential(*expand, convolution(hidden, hidden, 3, stride, hidden), *project)
            self.around = stride == 1 and inputs == outputs

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.around else self.body(x)

    class MobileNetV2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts, inputs = [convolution(3, 32, 3, 2)], 32
            for expansion, outputs, repeats, stride in MOBILE:
                for i in range(repeats):
                    parts.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expansion))
                    inputs = outputs
            self.body = nn.Sequential(*parts, convolution(inputs, 1280, 1, 1))
            self.flatten = nn.Flatten()
            self.fc = nn.Linear(1280, 1000)

        def forward(self, x: Any) -> Any:
            return self.fc(self.flatten(F.adaptive_avg_pool2d(self.body(x), 1)))

    class Block(nn.Module):
        def __init__(self, width: int, heads: int, causal: bool = True) -> None:
            super().__init__()
            self.count, self.causal = heads, causal
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.proj = nn.Linear(width, width, bias=False)
            self.fc = nn.Linear(width, 4 * width, bias=False)
            self.out = nn.Linear(4 * width, width, bias=False)

        def heads(self, x: Any) -> list[Any]:
            """Query, key and value: [n, heads, t, e]."""
            y, (n, t, width) = self.qkv(self.ln1(x)), x.shape
            parts = [y[..., i * width : (i + 1) * width] for i in range(3)]
            return [part.reshape(n, t, self.count, width // self.count).swapaxes(1, 2) for part in parts]

        def rest(self, x: Any, y: Any) -> Any:
            x = x + self.proj(y.swapaxes(1, 2).reshape(*x.shape))
            return x + self.out(F.gelu(self.fc(self.ln2(x))))

        def forward(self, x: Any) -> Any:
            q, k, v = self.heads(x)
            return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))

        def step(self, x: Any, keys: Any, values: Any) -> tuple[Any, Any, Any]:
            q, k, v = self.heads(x)
            keys, values = xp.concatenate([keys, k], axis=2), xp.concatenate([values, v], axis=2)
            return self.rest(x, F.scaled_dot_product_attention(q, keys, values)), k, v

    class GPT(nn.Module):
        """nanoGPT's character model: tied embedding, linear layers without biases. Tokens [n, t] to logits."""

        def __init__(
            self, width: int = WIDTH, heads: int = HEADS, layers: int = LAYERS, context: int = CONTEXT
        ) -> None:
            super().__init__()
            self.wte = nn.Embedding(VOCABULARY, width)
            self.wpe = nn.Embedding(context, width)
            self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
            self.lnf = nn.LayerNorm(width)

        def forward(self, tokens: Any) -> Any:
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.h:
                x = block(x)
            return F.linear(self.lnf(x), self.wte.weight)

    class GPTDecode(GPT):
        """The last token of a full context: cached keys and values [layers, n, heads, t - 1, e] in, new ones out."""

        def forward(self, tokens: Any, keys: Any, values: Any) -> Any:
            x = self.wte(tokens) + self.wpe.weight[CONTEXT - 1 : CONTEXT]
            new_keys, new_values = [], []
            for i, block in enumerate(self.h):
                x, k, v = block.step(x, keys[i], values[i])
                new_keys.append(k)
                new_values.append(v)
            return F.linear(self.lnf(x), self.wte.weight), xp.stack(new_keys), xp.stack(new_values)

    class ViT(nn.Module):
        """A vision transformer, tiny: 12 blocks of 192 on patches of 16 x 16 (Dosovitskiy et al., 2021)."""

        def __init__(self, width: int = 192, heads: int = 3, layers: int = 12) -> None:
            super().__init__()
            self.patches, self.flatten = nn.Conv2d(3, width, 16, 16), nn.Flatten(2)
            self.position = nn.Embedding(14 * 14, width)
            self.blocks = nn.Sequential(*[Block(width, heads, causal=False) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

        def forward(self, x: Any) -> Any:
            x = self.flatten(self.patches(x)).swapaxes(1, 2) + self.position.weight
            return self.head(self.norm(self.blocks(x)).mean(1))

    class LSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(64, 128)

        def forward(self, x: Any) -> Any:
            return self.rnn(x)[0]

    return {
        "xor": lambda: MLP(2, 4, 1, activation=xp.tanh, last=F.sigmoid),
        "mnist": lambda: MLP(784, 50, 10),
        "mlp512": lambda: MLP(784, 512, 512, 10),
        "lenet": LeNet,
        "resnet18": ResNet18,
        "mbv2": MobileNetV2,
        "gpt": GPT,
        "gptdec": GPTDecode,
        "lstm": LSTM,
        "mlp": MLP,
        "vit": ViT,
    }


def seeded_trees(trees: int = 100, depth: int = 6, features: int = 30) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of perfect trees with random thresholds, as ``mlaot.nn.TreeEnsemble`` takes them."""
    rng, nodes, leaves = np.random.default_rng(zlib.crc32(b"trees")), 2**depth - 1, 2**depth
    tree = np.arange(trees)[:, None]
    child = 2 * np.arange(nodes) + 1  # in one tree; those from `nodes` on are leaves

    def link(child: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(child < nodes, tree * nodes + child, ~(tree * leaves + child - nodes)).reshape(-1)

    return {
        "feature": rng.integers(0, features, trees * nodes),
        "threshold": rng.standard_normal(trees * nodes),
        "true": link(child),
        "false": link(child + 1),
        "roots": np.arange(trees) * nodes,
        "leaves": rng.standard_normal(trees * leaves) / math.sqrt(trees),
    }


def seeded_weights(shapes: Mapping[str, Iterable[int]]) -> dict[str, np.ndarray[Any, Any]]:
    """float32 weights by the names of a ``state_dict``, each from a generator that its name seeds."""
    return {name: _drawn(name, tuple(shape)) for name, shape in shapes.items() if "num_batches" not in name}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    rng, kind = np.random.default_rng(zlib.crc32(name.encode())), name.rpartition(".")[2]
    if kind == "running_var" or (kind == "weight" and len(shape) == 1):
        values = rng.uniform(0.8, 1.2, shape)
    elif kind == "running_mean" or "bias" in kind:
        values = rng.uniform(-0.1, 0.1, shape)
    elif name in ("wte.weight", "wpe.weight"):
        values = 0.05 * rng.standard_normal(shape)
    else:
        values = rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    return values.astype(np.float32)
