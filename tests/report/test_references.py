"""Others who compute a model: what is said of their answers, and whose answer counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.loading import trace
from mlaot.lower.lower import lower
from mlaot.report.golden import golden_vectors
from mlaot.report.references import compare_references


def doubled(x: mlaot.f32[mlaot.dim("n")]) -> Any:
    return 2 * x


def right(inputs: Any) -> Any:
    return {"out": 2 * inputs["x"]}


def wrong(inputs: Any) -> Any:
    return {"out": 3 * inputs["x"]}


def broken(inputs: Any) -> Any:
    raise NotImplementedError("no such operator")


SAME = "gives the same answer to 1e-09 of the largest element"
OTHER = "gives another answer, off by 0.3 of the largest element"


@pytest.mark.parametrize(
    ("references", "lines"),
    [
        ({"onnx.reference": right, "onnxruntime": right}, [f"onnx.reference {SAME}", f"onnxruntime {SAME}"]),
        (
            {"onnx.reference": wrong, "onnxruntime": right},
            [f"onnx.reference {OTHER}; onnxruntime's counts, which is the same", f"onnxruntime {SAME}"],
        ),
        ({"onnx.reference": wrong}, [f"onnx.reference {OTHER}"]),
        (
            {"onnx.reference": broken, "onnxruntime": right},
            ["onnx.reference cannot compute it (no such operator)", f"onnxruntime {SAME}"],
        ),
        ({"onnx.reference": right, "onnxruntime": wrong}, "onnxruntime gives another answer than the compiled model"),
        (
            {"torch": wrong, "onnx.reference": wrong},
            "torch and onnx.reference give another answer than the compiled model",
        ),
    ],
    ids=["all right", "one off", "alone and off", "broken", "onnxruntime off", "both off"],
)
def test_who_is_off(references: Any, lines: Any) -> None:
    module = passes.run("nn", trace(mlaot.model(doubled)))
    lowered = lower(module).module
    vectors, _ = golden_vectors(module, lowered)
    found = compare_references(references, module, lowered, vectors)
    if isinstance(lines, str):
        with pytest.raises(MlaotError, match=lines):
            list(found)
    else:
        assert list(found) == lines
    assert not list(compare_references(references, module, lowered, ()))
    assert np.isfinite(vectors[0].largest[0])
