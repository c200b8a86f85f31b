"""Store what onnxruntime makes of strings, in texts.json: ``python -m tests.onnx.make_texts``."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("texts.json")


def main() -> None:
    """Ask onnxruntime for each call of each case; what it refuses is None."""
    onnxruntime = import_module("onnxruntime")  # before the cases, which then name a locale that every machine has
    onnxruntime.set_default_logger_severity(4)
    cases = import_module("tests.onnx.text_cases").cases()
    answers = list[Any]()
    for case in cases:
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        for call in case.calls:
            try:
                answers.append([[[*value.shape], value.ravel().tolist()] for value in session.run(None, call)])
            except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:
                answers.append(None)
    STORED.write_text(json.dumps(answers, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
