"""What onnxruntime gives for models that count, stored for the tests. Needs onnxruntime.

python -m tests.onnx.make_counted
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .counted_cases import ROWS, SEEDS, Inputs, detector, detector_inputs, inputs_of, random_model

STORED = Path(__file__).parent / "counted.npz"


def answers(model: onnx.ModelProto, calls: Iterable[Inputs]) -> list[list[Any]]:
    """Return what onnxruntime gives for each of some inputs; nothing where it fails."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = []
    for inputs in calls:
        try:
            found.append(session.run(None, inputs))
        except Exception as error:
            print(" ".join(str(error).split())[:200])
            found.append([])
    return found


def main() -> None:
    """Store all answers."""
    arrays: dict[str, Any] = {}
    models = {"detector": (detector(), [detector_inputs(rows) for rows in ROWS])}
    models |= {f"random{seed}": (random_model(seed), [*inputs_of(seed)]) for seed in SEEDS}
    for name, (model, calls) in models.items():
        for i, outputs in enumerate(answers(model, calls)):
            arrays |= {f"{name}/{i}/{k}": output for k, output in enumerate(outputs)}
    np.savez_compressed(STORED, **arrays)


if __name__ == "__main__":
    main()
