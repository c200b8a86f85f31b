"""A compiled module, asked in a process of its own: ``python -P script.py``.

The question comes on stdin, the answer goes to stdout, both as JSON. A script of the standard library and NumPy, so
nothing else is imported beside the module.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]

TYPE = re.compile(r"(\w+)(?:\[(.*)\])?")  # float32[batch, 2 * n + 1]
SIZE = 8  # of named dims other than the batch
LIMITS = (256, 10, 2, 1)  # integers are drawn below the first that the module accepts: classes, indices
ROUNDS, SECONDS = 15, 0.002  # of a measurement
FEWEST, LONG = 3, 1.0  # rounds of calls that take so many seconds in all


def main() -> None:
    """Answer one question."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the module itself prints is no answer
    question = json.load(sys.stdin)
    module = load(question["name"], question["file"])
    json.dump(QUESTIONS[question["ask"]](module, question), answers)


def load(name: str, file: str | None) -> ModuleType:
    """The module from its file, without its package, or else by its name as Python finds it."""
    if file is None:
        sys.path.insert(0, "")
        module = importlib.import_module(name)
    else:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{Path(file).name} is no extension module of this platform")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if not is_made_by_mlaot(module):
        raise ImportError(f"{name} was not made by mlaot")
    return module


def is_made_by_mlaot(module: ModuleType) -> bool:
    """Whether a module says of itself what all of mlaot's do; others have an ``info``, too."""
    try:
        return "entries" in module.info()
    except Exception:  # whatever such a name is elsewhere
        return False


def selftest(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """The module's errors as shares of their bounds, or what it missed."""
    try:
        return {"shares": module.selftest()}
    except RuntimeError as error:
        return {"missed": str(error)}


def golden(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """The largest error of each output of the golden ``calls``, relative to its largest expected element."""
    from mlaot.ir.ports import numbers, port_of

    rows = []
    for asked in question["calls"]:
        ports = [port_of(*fields) for fields in asked["inputs"]]
        given = [numbers(port, n, asked["dims"]) for n, port in enumerate(ports) if port.default is None]
        results = getattr(module.Model(), asked["entry"])(*given)
        for output, result in zip(asked["outputs"], results if len(asked["outputs"]) > 1 else [results], strict=True):
            flat, expected = array(result).ravel().astype(float), np.asarray(output["elements"])
            found = flat[np.arange(expected.size) * flat.size // max(expected.size, 1)]
            largest = np.abs(expected).max(initial=0)
            error = np.abs(found - expected).max(initial=0) / (largest if largest > 0 else 1)
            rows.append({"entry": asked["entry"], "output": output["name"], "error": float(error)})
    return {"rows": rows}


def info(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """What the module says about itself."""
    found: dict[str, Any] = module.info()
    return found


def values(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Its ``info``; its state, and what each entry gives for seeded inputs, as arrays in the file ``arrays``.

    ``limits``: below which number the integers of an entry are drawn. Entries that refuse the inputs are ``refused``.
    """
    arrays: dict[str, Any] = state(module)
    limits, refused = dict[str, int](), dict[str, str]()
    for name, entry in module.info()["entries"].items():
        dims = dict.fromkeys(module.info()["dims"], SIZE)
        allowed = LIMITS if name not in question["limits"] else (question["limits"][name],)
        try:
            given, limits[name] = accepted(module, name, entry["inputs"], dims, allowed)
            model = module.Model()
            results = getattr(model, name)(**given)
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"
            continue
        if not isinstance(results, dict):
            some = results if len(entry["outputs"]) > 1 else [results] * len(entry["outputs"])
            results = dict(zip(entry["outputs"], some, strict=True))
        arrays |= {f"{name}: {key}": array(value) for key, value in results.items()}
        after = state(model)
        arrays |= {f"{name}: {key} afterwards": after[key] for key in after if not same(after[key], arrays[key])}
    np.savez(question["arrays"], **arrays)
    return {"info": module.info(), "limits": limits, "refused": refused}


def state(model: Any) -> Arrays:
    """Parameters and buffers by name."""
    kinds = [getattr(model, kind, {}) for kind in ("parameters", "buffers")]
    return {name: array(value).copy() for kind in kinds for name, value in kind.items()}


def array(value: Any) -> np.ndarray[Any, Any]:
    """An array of the module, or a number, as NumPy's."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # bfloat16 has no buffer format
        return np.asarray(value.tolist())


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Bit by bit."""
    return a.tobytes() == b.tobytes()


def accepted(
    module: ModuleType, name: str, types: Mapping[str, str], dims: Mapping[str, int], limits: tuple[int, ...]
) -> tuple[Arrays, int]:
    """Seeded inputs that the entry takes, and the limit of their integers."""
    call = getattr(module.Model(), name)
    known = inspect.signature(call).parameters  # `...` is a default, too: what set_input() left
    required = [key for key in types if not isinstance(known[key].default, int | float)]
    for limit in limits:
        rng = np.random.default_rng(0)
        given = {key: draw(types[key], dims, limit, rng) for key in required}
        try:
            call(**given)
        except ValueError:
            if limit == limits[-1]:
                raise
        else:
            break
    return given, limit


def draw(text: str, dims: Mapping[str, int], limit: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random numbers of a type such as ``float32[batch, 2 * n + 1]``."""
    from mlaot.ir.dims import parse, substitute

    match = TYPE.fullmatch(text)
    assert match is not None, f"bug in mlaot: info() speaks of {text}"
    dtype = np.dtype(match[1])
    shape = [substitute(parse(extent), dims) for extent in (match[2] or "").split(",") if extent]
    if dtype.kind == "f":
        return np.asarray(rng.uniform(-1, 1, shape)).astype(dtype)
    most = 2 if dtype.kind == "b" else min(limit, np.iinfo(dtype).max)
    drawn = rng.geometric(0.25, shape) - 1  # small ones more often: some are classes, of which there may be two
    return np.asarray(drawn % most).astype(dtype)


def bench(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of a call of each entry, at each of ``batches``: median and extremes of several rounds, in turn."""
    about = module.info()
    calls: dict[tuple[str, int | None], Callable[[], object]] = {}
    refused: dict[str, str] = {}
    for name, entry in about["entries"].items():
        batched = any(re.search(r"\bbatch\b", text) for text in entry["inputs"].values())
        for batch in question["batches"] if batched else (None,):
            dims = dict.fromkeys(about["dims"], SIZE) | {"batch": batch or 1}
            try:
                calls[name, batch] = bound(module, name, entry["inputs"], dims)
            except Exception as error:
                refused[name] = f"{type(error).__name__}: {error}"
    times = {key: max(1, int(SECONDS / max(seconds(call, 2) / 2, 1e-7))) for key, call in calls.items()}
    found: dict[tuple[str, int | None], list[float]] = {key: [] for key in calls}
    for number in range(ROUNDS):
        for key, call in calls.items():
            if number < FEWEST or sum(found[key]) < LONG:
                found[key].append(seconds(call, times[key]) / times[key])
    rows = [
        {"entry": name, "batch": batch, "median": statistics.median(some), "least": min(some), "most": max(some)}
        for (name, batch), some in found.items()
    ]
    return {"module": about["name"], "isa": about["isa"], "rows": rows, "refused": refused}


def bound(module: ModuleType, name: str, types: Mapping[str, str], dims: Mapping[str, int]) -> Callable[[], object]:
    """A call of an entry of an instance of its own."""
    given, _ = accepted(module, name, types, dims, LIMITS)
    call = getattr(module.Model(), name)
    return lambda: call(**given)


def seconds(call: Callable[[], object], times: int) -> float:
    """What so many calls take."""
    started = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - started


QUESTIONS = {"info": info, "selftest": selftest, "golden": golden, "values": values, "bench": bench}

if __name__ == "__main__":
    main()
