"""What callers get wrong: an error that says what was expected and what came, and a model as it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

PIXELS = np.random.default_rng(0).integers(0, 17, (6, 64), dtype=np.uint8)
IMAGES = PIXELS.astype(np.float32)
LABELS = np.arange(6, dtype=np.int64)
X = "expected float32[batch, 64], got "
BYTES = "expected uint8[batch, 64], got "
LABEL = "expected int64[batch], got "
LIMIT = "expected values from 0 to 9, got "


def huge(dtype: type, rows: int, step: int = 0) -> Any:
    """A view of many rows that are one and the same."""
    return as_strided(np.zeros(64, dtype), (rows, 64), (step, np.dtype(dtype).itemsize), writeable=False)


def readonly() -> Any:
    out = np.empty((6, 10), np.float32)
    out.flags.writeable = False
    return out


INPUTS: dict[str, tuple[Any, type[Exception], str]] = {
    "float64": (IMAGES.astype(np.float64), TypeError, X + "float64[6, 64]"),
    "int32": (IMAGES.astype(np.int32), TypeError, X + "int32[6, 64]"),
    "bytes": (bytes(64), TypeError, X + "uint8[64]"),
    "float16": (IMAGES.astype(np.float16), TypeError, X + "float16[6, 64]"),
    "complex": (IMAGES.astype(np.complex64), TypeError, X + "buffer format 'Zf'[6, 64]"),
    "record": (np.zeros(64, "i4,i4"), TypeError, X + "buffer format"),
    "byte order": (IMAGES.astype(">f4"), TypeError, X + "big-endian float32[6, 64]"),
    "narrow": (IMAGES[:, :63], ValueError, X + "float32[6, 63]"),
    "wide": (np.zeros((6, 65), np.float32), ValueError, X + "float32[6, 65]"),
    "rank 3": (IMAGES[None], ValueError, X + "float32[1, 6, 64]"),
    "rank 0": (np.zeros((), np.float32), ValueError, X + "float32"),
    "rank 40": (np.zeros((1,) * 40, np.float32), ValueError, X + "float32["),
    "empty rows": (np.zeros((6, 0), np.float32), ValueError, X + "float32[6, 0]"),
    "str": ("01", TypeError, X + "str"),
    "None": (None, TypeError, X + "NoneType"),
    "number": (3.0, TypeError, X + "float"),
    "iterator": (iter([0.0] * 64), TypeError, X + "list_iterator"),
    "short list": ([0.0] * 63, ValueError, X + "list[63]"),
    "ragged list": ([[0.0] * 64, [0.0] * 63], ValueError, X + "lists of unequal length"),
    "list of str": (["0"] * 64, TypeError, "expected float32, got str"),
    "2**40 rows": (huge(np.float32, 2**40), ValueError, "expected an array of its own, got a broadcast view of"),
    "2**31 rows": (huge(np.float32, 2**31), ValueError, "expected an array of its own, got a broadcast view of"),
    "2**45 rows": (huge(np.float32, 2**45), ValueError, "batch is too large: expected at most 1099511627776, got 3518"),
}

OUTPUTS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "dtype": (lambda: np.empty((6, 10)), TypeError, "got float64[6, 10]"),
    "shape": (lambda: np.empty((5, 10), np.float32), ValueError, "got float32[5, 10]"),
    "rank": (lambda: np.empty(60, np.float32), ValueError, "got float32[60]"),
    "readonly": (readonly, ValueError, "got a read-only one"),
    "strided": (lambda: np.empty((6, 20), np.float32)[:, ::2], ValueError, "got one that is not C-contiguous"),
    "byte order": (lambda: np.empty((6, 10), ">f4"), TypeError, "got big-endian float32[6, 10]"),
    "bytes": (lambda: bytes(240), TypeError, "got uint8[240]"),
    "list": (lambda: [0.0] * 60, TypeError, "got list"),
    "misaligned": (lambda: np.frombuffer(bytearray(241), "f4", 60, 1).reshape(6, 10), ValueError, "is not aligned"),
}

BATCHES: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "label -1": (PIXELS, LABELS - 1, ValueError, LIMIT + "-1"),
    "label 10": (PIXELS, LABELS + 5, ValueError, LIMIT + "10"),
    "label 10**7": (PIXELS, LABELS + 10**7, ValueError, LIMIT + "10000000"),
    "smallest label": (PIXELS, np.full(6, -(2**63)), ValueError, LIMIT + "-9223372036854775808"),
    "label 10 in a list": (PIXELS, [0, 1, 2, 3, 4, 10], ValueError, LIMIT + "10"),
    "label 10**30": (PIXELS, [10**30] * 6, ValueError, "expected int64, got 10000"),
    "one bad label in a number": (PIXELS[0], 10, ValueError, LIMIT + "10"),
    "float labels": (PIXELS, LABELS / 1, TypeError, LABEL + "float64[6]"),
    "int32 labels": (PIXELS, LABELS.astype(np.int32), TypeError, LABEL + "int32[6]"),
    "uint64 labels": (PIXELS, LABELS.astype(np.uint64), TypeError, LABEL + "uint64[6]"),
    "bool labels": (PIXELS, LABELS > 2, TypeError, LABEL + "bool[6]"),
    "float label": (PIXELS[0], 1.0, TypeError, "expected int64, got float"),
    "labels of another byte order": (PIXELS, LABELS.astype(">i8"), TypeError, LABEL + "big-endian int64[6]"),
    "one-hot labels": (PIXELS, np.eye(6, 10, dtype=np.int64), ValueError, LABEL + "int64[6, 10]"),
    "too few labels": (PIXELS, LABELS[:5], ValueError, "batch is 5 here, but 6 in x"),
    "no label": (PIXELS, None, TypeError, "expected int64, got NoneType"),
    "signed pixels": (PIXELS.astype(np.int8), LABELS, TypeError, BYTES + "int8[6, 64]"),
    "float pixels": (IMAGES, LABELS, TypeError, BYTES + "float32[6, 64]"),
    "pixel 256": ([256] * 64, 1, ValueError, "expected uint8, got 256"),
    "pixel -1": ([-1] * 64, 1, ValueError, "expected uint8, got -1"),
    "pixel 0.5": ([0.5] * 64, 1, TypeError, "expected uint8, got float"),
    "63 pixels": (bytes(63), 1, ValueError, BYTES + "uint8[63]"),
    "empty batch": (PIXELS[:0], LABELS[:0], ValueError, "expected batch of at least 1, got 0"),
    "empty lists": ([], [], ValueError, BYTES + "list[0]"),
    "2**40 rows": (huge(np.uint8, 2**40), LABELS, ValueError, "expected an array of its own, got a broadcast view of"),
    "2**31 rows": (huge(np.uint8, 2**31), LABELS, ValueError, "expected an array of its own, got a broadcast view of"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_bad_inputs(serving: ModuleType, case: str) -> None:
    """Inputs of the module that serves."""
    x, error, message = INPUTS[case]
    with pytest.raises(error, match=re.escape(message)) as caught:
        serving.forward(x)
    assert str(caught.value).startswith("forward: x: ")


@pytest.mark.parametrize("case", OUTPUTS)
def test_bad_outputs(serving: ModuleType, case: str) -> None:
    """Places for the results, which stay as they were."""
    make, error, message = OUTPUTS[case]
    out = make()
    before = bytes(out) if case != "list" else b""
    with pytest.raises(error, match=re.escape(message)) as caught:
        serving.forward(IMAGES, out=out)
    assert str(caught.value).startswith("forward: out: expected ")
    assert case == "list" or bytes(out) == before


@pytest.mark.parametrize("function", ["train_step", "loss", "set_input"])
@pytest.mark.parametrize("case", BATCHES)
def test_bad_batches(training: ModuleType, case: str, function: str) -> None:
    """A training model is as it was: its parameters, its gradients, and the batch it holds."""
    x, label, error, message = BATCHES[case]
    model = training.Model()
    model.set_input(PIXELS, LABELS)
    model.forward()
    model.backward()
    held, state = model.loss(), (bytes(model.flat_parameters), bytes(model.flat_gradients))
    with pytest.raises(error, match=re.escape(message)) as caught:
        getattr(model, function)(x, label)
    assert re.match(rf"{function}: ((x|label)(\[\d\])?: )?(expected|batch)", str(caught.value))
    assert (bytes(model.flat_parameters), bytes(model.flat_gradients)) == state
    assert model.loss() == held == model.loss(PIXELS, LABELS)


def test_bad_calls(training: ModuleType) -> None:
    """Names, counts and rates that are not there."""
    model = training.Model()
    before = bytes(model.flat_parameters)
    calls: dict[Callable[[], Any], str] = {
        (lambda: model.train_step(PIXELS)): "train_step() is missing argument 'label'",
        (lambda: model.train_step(SimpleNamespace(columns="x"))): "by their names: **frame",
        (lambda: model.train_step(PIXELS, LABELS, 0.1, 1)): "train_step() takes 3 positional arguments, got 4",
        (lambda: model.train_step(PIXELS, LABELS, rate=1)): "unexpected keyword argument 'rate'",
        (lambda: model.train_step(PIXELS, LABELS, x=PIXELS)): "train_step() got more than one argument 'x'",
        (lambda: model.train_step(PIXELS, LABELS, lr="1")): "train_step: lr: expected float32, got str",
        (lambda: model.train_step(PIXELS, LABELS, out=before)): "unexpected keyword argument 'out'",
        (lambda: training.Model(1)): "Model() takes no arguments",
    }
    for call, message in calls.items():
        with pytest.raises(TypeError, match=re.escape(message)):
            call()
    assert bytes(model.flat_parameters) == before


def test_empty_batch_is_served(serving: ModuleType, training: ModuleType) -> None:
    """No rows in, no rows out."""
    assert serving.forward(IMAGES[:0]).shape == (0, 10)
    assert training.Model().forward(PIXELS[:0]).shape == (0, 10)


STRIDED: dict[str, Any] = {
    "every second row": lambda x: np.repeat(x, 2, 0)[::2],
    "every third column": lambda x: np.repeat(x, 3, 1)[:, ::3],
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "Fortran order": np.asfortranarray,
    "transposed": lambda x: x.T.copy().T,
    "misaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "memoryview": memoryview,
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "little-endian": lambda x: x.astype(x.dtype.newbyteorder("<")),
}


@pytest.mark.parametrize("form", STRIDED)
def test_forms_of_an_array(serving: ModuleType, training: ModuleType, form: str) -> None:
    """The same numbers, however they lie in memory."""
    change = STRIDED[form]
    assert serving.forward(change(IMAGES)).tolist() == serving.forward(IMAGES).tolist()
    expected, model = training.Model(), training.Model()
    loss = expected.train_step(PIXELS, np.ascontiguousarray(LABELS[::-1]))
    assert model.train_step(change(PIXELS), LABELS[::-1]) == loss
    assert bytes(model.flat_parameters) == bytes(expected.flat_parameters)


def test_broadcast_rows(serving: ModuleType) -> None:
    """A view of one row a thousand times is served as a copy would be."""
    rows = np.broadcast_to(IMAGES[1], (1000, 64))
    assert serving.forward(rows).tolist() == serving.forward(rows.copy()).tolist()
