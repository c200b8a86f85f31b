"""Whether a word was said. The word's network is made up: it is what each program brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 6


def make(folder: Path) -> None:
    """Write a recording, and the network of a word: two dense layers over the last 16 embeddings."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from sounds import speech

    np.save(folder / "16000.npy", speech(16000, SECONDS, seed=2))
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(0, 16**-0.5 / 96, (16 * 96, 32)),
        "b1": rng.normal(0, 0.1, 32),
        "w2": rng.normal(0, 1, (32, 1)),
        "b2": np.zeros(1),
    }
    nodes = [
        helper.make_node("Flatten", ["embeddings"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w1", "b1"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "w2", "b2"], ["score"]),
        helper.make_node("Sigmoid", ["score"], ["probability"]),
    ]
    graph = helper.make_graph(
        nodes,
        "word",
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", 16, 96])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "word.onnx")


def steps(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the scores of windows of 2 seconds, a new one every 0.25 seconds, and the embeddings of all."""
    import numpy as np
    from livekit.wakeword import WakeWordModel

    audio = np.load(folder / "16000.npy")
    model = WakeWordModel(models=[folder / "word.onnx"])
    for begin in range(0, (SECONDS - 2) * 16000 + 1, 4000):
        yield f"window {begin}", model.predict(audio[begin : begin + 32000])
    frames = model._mel_frontend(audio)
    yield "embeddings", model._speech_embedding.extract_embeddings(frames).tolist()
