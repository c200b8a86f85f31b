"""Networks of the families that people have, as modules of PyTorch with random weights.

``FAMILIES`` has what makes each, the shape of its input, and which axes of it are open.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Family:
    """A network, and the input it is timed on; ``open``: the axes of the input that are named dims."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    open: tuple[int, ...] = ()
    integers: int = 0  # the input has indices below this


class Around(nn.Module):
    """Layers, and around them their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return x + self.layers(x)


class Transposed(nn.Module):
    """Layers on the input with its last two axes exchanged."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x.transpose(1, 2)).transpose(1, 2)


def convolution(i: int, o: int, k: int, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> nn.Sequential:
    """A convolution without bias, batch normalization, an activation."""
    conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o), *([act()] if act else []))


class Excite(nn.Module):
    """Squeeze and excite (Hu et al., 2018)."""

    def __init__(self, c: int, r: int, act: Any = nn.ReLU, gate: Any = nn.Sigmoid) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, r, 1), act(), nn.Conv2d(r, c, 1), gate())

    def forward(self, x: Any) -> Any:
        return x * self.layers(x)


def inverted(i: int, o: int, e: int, k: int, stride: int, r: int, act: Any, gate: Any) -> nn.Module:
    """An inverted residual with squeeze and excite where ``r``."""
    squeeze = [Excite(e, r, nn.SiLU if act is nn.SiLU else nn.ReLU, gate)] if r else []
    layers = (
        *([convolution(i, e, 1, act=act)] if e != i else []),
        convolution(e, e, k, stride, e, act),
        *squeeze,
        convolution(e, o, 1, act=None),
    )
    return Around(*layers) if stride == 1 and i == o else nn.Sequential(*layers)


def head(c: int, *layers: nn.Module, classes: int = 1000) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers, nn.Linear(c, classes)]


def mobilenet_v3() -> nn.Module:
    """MobileNetV3-Small (Howard et al., 2019)."""
    table = (  # kernel, expanded, output, squeezed, hard swish, stride
        *((3, 16, 16, 8, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 24, 1, 2)),
        *((5, 240, 40, 64, 1, 1), (5, 240, 40, 64, 1, 1), (5, 120, 48, 32, 1, 1), (5, 144, 48, 40, 1, 1)),
        *((5, 288, 96, 72, 1, 2), (5, 576, 96, 144, 1, 1), (5, 576, 96, 144, 1, 1)),
    )
    layers, c = [convolution(3, 16, 3, 2, act=nn.Hardswish)], 16
    for k, e, o, r, hard, stride in table:
        layers.append(inverted(c, o, e, k, stride, r, nn.Hardswish if hard else nn.ReLU, nn.Hardsigmoid))
        c = o
    layers.append(convolution(c, 576, 1, act=nn.Hardswish))
    return nn.Sequential(*layers, *head(1024, nn.Linear(576, 1024), nn.Hardswish()))


def efficientnet() -> nn.Module:
    """EfficientNet-B0 (Tan and Le, 2019)."""
    table = (  # expansion, output, repeats, stride, kernel
        *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
        *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
    )
    layers, c = [convolution(3, 32, 3, 2, act=nn.SiLU)], 32
    for e, o, repeats, stride, k in table:
        for i in range(repeats):
            layers.append(inverted(c, o, c * e, k, 1 if i else stride, max(1, c // 4), nn.SiLU, nn.Sigmoid))
            c = o
    return nn.Sequential(*layers, convolution(c, 1280, 1, act=nn.SiLU), *head(1280))


class Shuffle(nn.Module):
    """A unit of ShuffleNetV2 (Ma et al., 2018)."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        half, self.stride = o // 2, stride
        own = i if stride == 2 else half
        self.right = nn.Sequential(
            convolution(own, half, 1), convolution(half, half, 3, stride, half, None), convolution(half, half, 1)
        )
        if stride == 2:
            self.left = nn.Sequential(convolution(i, i, 3, 2, i, None), convolution(i, half, 1))

    def forward(self, x: Any) -> Any:
        if self.stride == 2:
            y = torch.cat([self.left(x), self.right(x)], 1)
        else:
            a, b = x.chunk(2, 1)
            y = torch.cat([a, self.right(b)], 1)
        n, c, h, w = y.shape
        return y.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    layers: list[nn.Module] = [convolution(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    c = 24
    for o, repeats in ((116, 4), (232, 8), (464, 4)):
        layers += [Shuffle(c, o, 2), *(Shuffle(o, o, 1) for _ in range(repeats - 1))]
        c = o
    return nn.Sequential(*layers, convolution(c, 1024, 1), *head(1024))


class Dense(nn.Module):
    """A layer of a DenseNet: what it makes stands beside its input."""

    def __init__(self, c: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(c), nn.ReLU(), convolution(c, 4 * growth, 1),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.layers(x)], 1)


def densenet() -> nn.Module:
    """DenseNet-121 (Huang et al., 2017)."""
    layers, c = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for number, repeats in enumerate((6, 12, 24, 16)):
        for _ in range(repeats):
            layers.append(Dense(c, 32))
            c += 32
        if number < 3:
            layers += [nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c // 2, 1, bias=False), nn.AvgPool2d(2)]
            c //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(c), nn.ReLU(), *head(c))


class Fire(nn.Module):
    def __init__(self, i: int, s: int, e: int) -> None:
        super().__init__()
        self.squeeze, self.a, self.b = nn.Conv2d(i, s, 1), nn.Conv2d(s, e, 1), nn.Conv2d(s, e, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.a(x)), F.relu(self.b(x))], 1)


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1 (Iandola et al., 2016)."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool, Fire(64, 16, 64), Fire(128, 16, 64), pool, Fire(128, 32, 128),
        Fire(256, 32, 128), pool, Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
        nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


class Attention(nn.Module):
    """Self-attention with one product for queries, keys and values."""

    def __init__(self, width: int, heads: int, mask: Any = None) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", mask)

    def forward(self, x: Any) -> Any:
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, self.mask)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


def feed_forward(width: int, act: Any = nn.GELU) -> nn.Module:
    return Around(nn.LayerNorm(width), nn.Linear(width, 4 * width), act(), nn.Linear(4 * width, width))


def block(width: int, heads: int) -> nn.Module:
    return nn.Sequential(Around(nn.LayerNorm(width), Attention(width, heads)), feed_forward(width))


class ViT(nn.Module):
    """A vision transformer, tiny: 12 blocks of 192 on patches of 16 x 16 (Dosovitskiy et al., 2021)."""

    def __init__(self, width: int = 192, heads: int = 3, layers: int = 12) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 197, width))
        self.blocks = nn.Sequential(*(block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Windows(nn.Module):
    """Attention in windows of 7 x 7, which may be shifted (Liu et al., 2021)."""

    def __init__(self, width: int, heads: int, shift: int) -> None:
        super().__init__()
        self.norm, self.attention, self.shift = nn.LayerNorm(width), Attention(width, heads), shift
        self.bias = nn.Parameter(torch.randn(1, heads, 49, 49))

    def forward(self, x: Any) -> Any:
        n, h, w, c = x.shape
        y = self.norm(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.reshape(n, h // 7, 7, w // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)
        a, heads = self.attention, self.attention.heads
        q, k, v = a.qkv(y).reshape(-1, 49, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        y = a.out(F.scaled_dot_product_attention(q, k, v, self.bias).transpose(1, 2).reshape(-1, 49, c))
        y = y.reshape(n, h // 7, w // 7, 7, 7, c).transpose(2, 3).reshape(n, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + y


class Merge(nn.Module):
    """Patches of 2 x 2 become one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Any) -> Any:
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.linear(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.patches, layers = nn.Conv2d(3, width, 4, 4), list[nn.Module]()
        for number, repeats in enumerate((2, 2, 2, 2)):
            for i in range(repeats):
                shift = 3 * (i % 2) * (number < 3)
                layers += [Windows(width, width // 32, shift), feed_forward(width)]
            if number < 3:
                layers.append(Merge(width))
                width *= 2
        self.layers, self.head = nn.Sequential(*layers, nn.LayerNorm(width)), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))


class ChannelNorm(nn.Module):
    """A layer norm of the channels of an image."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c, eps=1e-6)

    def forward(self, x: Any) -> Any:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.dw, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c, eps=1e-6)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.gamma = nn.Parameter(torch.rand(c))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """ConvNeXt-Tiny (Liu et al., 2022)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    c = 96
    for number, repeats in enumerate((3, 3, 9, 3)):
        if number:
            layers += [ChannelNorm(c), nn.Conv2d(c, 2 * c, 2, 2)]
            c *= 2
        layers += [ConvNeXtBlock(c) for _ in range(repeats)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(c), nn.Linear(c, 1000))


class Bert(nn.Module):
    """BERT-Mini: 4 layers of 256 (Devlin et al., 2019; Turc et al., 2019)."""

    def __init__(self, width: int = 256, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Any) -> Any:
        return self.layers(self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]]))


class Conformer(nn.Module):
    """A block of a Conformer (Gulati et al., 2020)."""

    def __init__(self, width: int = 144, heads: int = 4, kernel: int = 31) -> None:
        super().__init__()

        def half() -> nn.Module:
            up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            return nn.Sequential(nn.LayerNorm(width), up, nn.SiLU(), down)

        self.a, self.b = half(), half()
        self.attention = Around(nn.LayerNorm(width), Attention(width, heads))
        self.convolution = Around(
            nn.LayerNorm(width),
            Transposed(
                nn.Conv1d(width, 2 * width, 1), nn.GLU(1),
                nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width), nn.BatchNorm1d(width), nn.SiLU(),
                nn.Conv1d(width, width, 1),
            ),
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        x = x + 0.5 * self.a(x)
        x = self.convolution(self.attention(x))
        return self.norm(x + 0.5 * self.b(x))


class UNet(nn.Module):
    """Three levels down and up (Ronneberger et al., 2015)."""

    def __init__(self, c: int = 16, classes: int = 2) -> None:
        super().__init__()

        def pair(i: int, o: int) -> nn.Module:
            return nn.Sequential(convolution(i, o, 3), convolution(o, o, 3))

        self.down = nn.ModuleList([pair(3, c), pair(c, 2 * c), pair(2 * c, 4 * c)])
        self.middle = pair(4 * c, 8 * c)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * k * c, k * c, 2, 2) for k in (4, 2, 1)])
        self.after = nn.ModuleList([pair(2 * k * c, k * c) for k in (4, 2, 1)])
        self.last = nn.Conv2d(c, classes, 1)

    def forward(self, x: Any) -> Any:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, after, beside in zip(self.up, self.after, reversed(kept), strict=True):
            x = after(torch.cat([beside, up(x)], 1))
        return self.last(x)


def wav2vec() -> nn.Module:
    """The shape of wav2vec 2.0 (Baevski et al., 2020), small: convolutions on samples, then a transformer."""
    c, layers = 1, list[nn.Module]()
    for o, k, s in ((128, 10, 5), (128, 3, 2), (128, 3, 2), (128, 3, 2), (128, 3, 2), (128, 2, 2), (128, 2, 2)):
        layers += [nn.Conv1d(c, o, k, s, bias=False), *([nn.GroupNorm(o, o)] if c == 1 else []), nn.GELU()]
        c = o
    inner = (nn.LayerNorm(c), nn.Linear(c, 256), *(block(256, 4) for _ in range(4)))

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.context = nn.Sequential(*layers), nn.Sequential(*inner)

        def forward(self, x: Any) -> Any:
            return self.context(self.features(x).transpose(1, 2))

    return Speech()


class Causal(nn.Module):
    """A block of a temporal convolutional network (Bai et al., 2018)."""

    def __init__(self, i: int, o: int, k: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d(((k - 1) * dilation, 0), 0.0)
        self.a, self.b = nn.Conv1d(i, o, k, dilation=dilation), nn.Conv1d(o, o, k, dilation=dilation)
        self.down = nn.Conv1d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = F.relu(self.b(self.pad(F.relu(self.a(self.pad(x))))))
        return F.relu(y + self.down(x))


def tcn() -> nn.Module:
    sizes = (8, 25, 25, 25, 25, 25, 25, 25, 25)
    return nn.Sequential(*(Causal(i, o, 7, 2**n) for n, (i, o) in enumerate(pairwise(sizes))))


class CRNN(nn.Module):
    """Convolutions over a line of text, then a bidirectional LSTM (Shi et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            convolution(1, 32, 3), nn.MaxPool2d(2), convolution(32, 64, 3), nn.MaxPool2d(2), convolution(64, 128, 3),
            nn.MaxPool2d((2, 1)), convolution(128, 128, 3), nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.rnn, self.last = nn.LSTM(128, 128, 2, bidirectional=True, batch_first=True), nn.Linear(256, 37)

    def forward(self, x: Any) -> Any:
        return self.last(self.rnn(self.convs(x).squeeze(2).transpose(1, 2))[0])


class Bottle(nn.Module):
    """A bottleneck of YOLO with what stands beside it."""

    def __init__(self, i: int, o: int, repeats: int) -> None:
        super().__init__()
        half = o // 2
        self.first = convolution(i, o, 1, act=nn.SiLU)
        self.last = convolution(half * (repeats + 2), o, 1, act=nn.SiLU)
        pairs = [[convolution(half, half, 3, act=nn.SiLU) for _ in range(2)] for _ in range(repeats)]
        self.inner = nn.ModuleList([Around(*pair) for pair in pairs])

    def forward(self, x: Any) -> Any:
        parts = list(self.first(x).chunk(2, 1))
        for layer in self.inner:
            parts.append(layer(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """The backbone and heads of a small detector with two scales."""

    def __init__(self, c: int = 16, classes: int = 20) -> None:
        super().__init__()

        def down(i: int, o: int) -> nn.Module:
            return nn.Sequential(convolution(i, o, 3, 2, act=nn.SiLU), Bottle(o, o, 1))

        self.stem, self.a, self.b = convolution(3, c, 3, 2, act=nn.SiLU), down(c, 2 * c), down(2 * c, 4 * c)
        self.c, self.merge = down(4 * c, 8 * c), Bottle(12 * c, 4 * c, 1)
        self.heads = nn.ModuleList([nn.Conv2d(4 * c, 5 + classes, 1), nn.Conv2d(8 * c, 5 + classes, 1)])

    def forward(self, x: Any) -> Any:
        b = self.b(self.a(self.stem(x)))
        c = self.c(b)
        fine = self.merge(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        return torch.cat([layer(y).flatten(2) for layer, y in zip(self.heads, (fine, c), strict=True)], 2).sigmoid()


class Faces(nn.Module):
    """A detector with plain and depthwise convolutions, and boxes from two scales."""

    def __init__(self) -> None:
        super().__init__()

        def separable(i: int, o: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(convolution(i, i, 3, stride, i), convolution(i, o, 1))

        self.a = nn.Sequential(convolution(3, 16, 3, 2), separable(16, 32), separable(32, 32, 2), separable(32, 64))
        self.b = nn.Sequential(separable(64, 64, 2), separable(64, 128), separable(128, 128))
        self.boxes = nn.ModuleList([nn.Conv2d(c, 3 * 6, 3, padding=1) for c in (64, 128)])

    def forward(self, x: Any) -> Any:
        a = self.a(x)
        y = [layer(v).permute(0, 2, 3, 1).flatten(1, 2) for layer, v in zip(self.boxes, (a, self.b(a)), strict=True)]
        y = torch.cat([v.reshape(v.shape[0], -1, 6) for v in y], 1)
        return torch.cat([y[..., :4], y[..., 4:].softmax(-1)], -1)


IMAGE = (1, 3, 224, 224)
FAMILIES = {
    "mobilenetv3": Family(mobilenet_v3, IMAGE),
    "efficientnet": Family(efficientnet, IMAGE),
    "shufflenetv2": Family(shufflenet, IMAGE),
    "densenet121": Family(densenet, IMAGE),
    "squeezenet": Family(squeezenet, IMAGE),
    "vit": Family(ViT, IMAGE),
    "swin": Family(Swin, IMAGE),
    "convnext": Family(convnext, IMAGE),
    "bert": Family(Bert, (1, 128), integers=30522),
    "conformer": Family(Conformer, (1, 200, 144)),
    "unet": Family(UNet, (1, 3, 128, 128)),
    "wav2vec": Family(wav2vec, (1, 1, 16000)),
    "tcn": Family(tcn, (1, 8, 400)),
    "crnn": Family(CRNN, (1, 1, 32, 128)),
    "yolo": Family(Yolo, (1, 3, 256, 320), open=(2, 3)),
    "faces": Family(Faces, (1, 3, 240, 320), open=(2, 3)),
}
