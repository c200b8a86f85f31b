"""ONNX's interface to a backend, in the hands of ONNX's own runner."""

from __future__ import annotations

import re
import unittest
import warnings
from pathlib import Path

import onnx.backend.test
import pytest

from mlaot.onnx import Backend, backend

DOCKERFILE = Path(__file__).parents[2] / "benchmarks" / "scoreboard" / "Dockerfile"


def test_the_module_is_a_backend() -> None:
    """Some of the tests, as the scoreboard of ONNX's backends runs them; those for other devices are skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of those who made the tests' data
        runner = onnx.backend.test.BackendTest(backend, __name__)  # type: ignore[arg-type]
        cases = runner.include("^test_(abs|split_to_sequence_1|if_opt|affine_grid_2d_expanded)_").test_cases
        suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases.values())
        result = unittest.TestResult()
        suite.run(result)
    assert not result.failures and not result.errors
    passed = result.testsRun - len(result.skipped)
    assert passed == 4, (result.testsRun, len(result.skipped))


def test_other_devices_are_refused() -> None:
    assert not backend.supports_device("CUDA")
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> m (float x) => (float y) { y = Abs(x) }')
    with pytest.raises(NotImplementedError, match="no device 'CUDA'"):
        Backend.prepare(model, "CUDA")


def test_the_dockerfile_names_the_module() -> None:
    assert re.findall('ONNX_BACKEND="(.*)"', DOCKERFILE.read_text()) == [backend.__name__]
