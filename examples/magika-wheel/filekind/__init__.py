"""What kind of file is this? ``filekind.label(path)`` gives magika's name for it, such as ``python`` or ``pdf``."""

import json
from importlib.resources import files
from pathlib import Path

from filekind import nn as onnxruntime  # was: import onnxruntime

ENDS, BLOCK, NOTHING = 1024, 4096, 256
LABELS = json.loads((files("filekind") / "labels.json").read_text())
session = onnxruntime.InferenceSession(str(Path(__file__).parent / "model.onnx"), providers=["CPUExecutionProvider"])


def features(path: str | Path) -> list[int]:
    """The first and the last 1,024 bytes without white space around them, filled up with 256."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        first = file.read(BLOCK).lstrip()[:ENDS]
        file.seek(max(size - BLOCK, 0))
        last = file.read(BLOCK).rstrip()[-ENDS:]
    return [*first, *[NOTHING] * (ENDS - len(first)), *[NOTHING] * (ENDS - len(last)), *last]


def label(path: str | Path) -> str:
    """The likeliest kind of a file."""
    (answers,) = session.run(["target_label"], {"bytes": [features(path)]})
    scores = list(answers[0])
    return LABELS[scores.index(max(scores))]
