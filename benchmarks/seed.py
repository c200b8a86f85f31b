"""The seed's network, 784-50-10 of scalars with the stable softmax and -log(p + 0.0001), as benchmarks take it."""

from __future__ import annotations

import random
from typing import Any

from mlaot.micrograd import MLP, Bytes, Label, Sparse, Value, cross_entropy, declare


def declared(dtype: str, *, loss: bool = True, pixels: bool = True, sparse: bool = False) -> Any:
    """The declaration; with ``pixels`` the inputs are bytes divided by 255; ``sparse`` says that most are zero.

    Weights: random.seed(1337).
    """
    random.seed(1337)
    net = MLP(784, [50, 10])
    x = [Value(0.0) for _ in range(784)]
    label = [Value(0.0) for _ in range(10)]
    outputs = net(x)
    image: Any = Bytes(x) if pixels else x
    inputs: dict[str, Any] = {"pixels": Sparse(image) if sparse else image}
    if not loss:
        return declare(outputs, inputs=inputs, parameters=net, dtype=dtype)
    return declare(
        outputs,
        inputs={**inputs, "label": Label(label)},
        parameters=net,
        loss=cross_entropy(outputs, label),
        dtype=dtype,
    )
