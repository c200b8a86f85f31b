"""The stored answers for special numbers: how they lie in a file, and when two answers are the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from .special_cases import Case

Array = np.ndarray[Any, Any]
STORED = Path(__file__).parent / "special.npz"
MICROSOFT = Path(__file__).parent / "microsoft.npz"
TOLERANCE = {"float64": 2e-12, "float32": 8e-6, "float16": 4e-3}
EITHER = "the sign of 0 is open"


class Answer(NamedTuple):
    """What the outputs are for one set of inputs, whose answer that is, and why his."""

    outputs: list[Array]
    whose: str
    why: str


def store(path: Path, answers: Sequence[tuple[Case, Sequence[tuple[list[Array], str, str]]]]) -> None:
    """All arrays one after the other, equal ones once, and where each is."""
    index: list[Any] = []
    data, places = bytearray(), dict[bytes, int]()

    def put(content: bytes) -> list[int]:
        if content not in places:
            places[content] = len(data)
            data.extend(content)
        return [places[content], len(content)]

    def array(value: Array) -> list[Any]:
        return [str(value.dtype), list(value.shape), *put(np.ascontiguousarray(value).tobytes())]

    for case, rows in answers:
        first = case.sets[0]  # what other sets have in common with it is not said again
        sets = [{n: array(a) for n, a in s.items() if i == 0 or a is not first[n]} for i, s in enumerate(case.sets)]
        found = [[[array(o) for o in outputs], whose, why] for outputs, whose, why in rows]
        index.append([case.name, put(case.model.SerializeToString()), sets, found])
    text = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(path, index=text, data=np.frombuffer(bytes(data), np.uint8))


def stored(path: Path = STORED) -> list[tuple[Case, list[Answer]]]:
    """What ``store`` wrote."""
    with np.load(path) as file:
        index, data = json.loads(file["index"].tobytes()), file["data"].tobytes()

    def array(dtype: str, shape: list[int], start: int, size: int) -> Array:
        return np.frombuffer(data[start : start + size], dtype).reshape(shape)

    found = []
    for name, (start, size), sets, rows in index:
        model = onnx.ModelProto.FromString(data[start : start + size])
        first = {n: array(*a) for n, a in sets[0].items()}
        inputs = tuple(first | {n: array(*a) for n, a in given.items()} for given in sets)
        answers = [Answer([array(*o) for o in outputs], whose, why) for outputs, whose, why in rows]
        found.append((Case(name, model, inputs), answers))
    return found


def agree(
    got: Array, wanted: Array, tolerance: float = 0.0, *, scaled: bool = False, zeros: bool = True, tiny: float = 0.0
) -> str:
    """What differs: the kind of a number (nan, which infinity, which zero), an integer, or more than the tolerance.

    ``scaled``: the tolerance is of the largest finite number, not of each; ``tiny``: a difference that is none.
    """
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        off = np.asarray(got != wanted)
    else:
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            size = np.max(np.abs(b), where=np.isfinite(b), initial=0.0) if scaled else np.abs(b)
            least = max(tiny, 8 * float(np.finfo(wanted.dtype).smallest_subnormal))
            close = np.abs(a - b) <= (tolerance or TOLERANCE[str(wanted.dtype)]) * size + least
            off = ~((a == b) | (close & np.isfinite(b)) | (np.isnan(a) & np.isnan(b)))
            if zeros and not scaled:
                off |= (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not off.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(off)))
    return f"{int(off.sum())} of {off.size}, {list(at)}: {np.atleast_1d(got)[at]!r} for {np.atleast_1d(wanted)[at]!r}"
