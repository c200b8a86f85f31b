"""Answer a question about a compiled module, in a process of its own: ``python -P script.py``.

The question comes on stdin and the answer goes to stdout, both as JSON. The script imports only the standard library
and NumPy besides the module.
"""

from __future__ import annotations

import importlib
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

from mlaot.probe.beside import load_file

Arrays = dict[str, np.ndarray[Any, Any]]

TYPE = re.compile(r"(\w+)(?:\[(.*)\])?")  # float32[batch, 2 * n + 1]
SIZE = 8  # of named dims other than the batch
LIMITS = (256, 10, 2, 1)  # integers are drawn below the first that the module accepts: classes, indices
ROUNDS, SECONDS = 15, 0.002  # of a measurement
PROFILES = 50  # calls that are traced
MIN_ROUNDS, MAX_SECONDS = 3, 1.0  # rounds of calls that take so many seconds in all


def main() -> None:
    """Answer one question."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the module's own output out of the answer
    question = json.load(sys.stdin)
    module = load(question["name"], question["file"])
    json.dump(QUESTIONS[question["ask"]](module, question), answers)


def load(name: str, file: str | None) -> ModuleType:
    """Import the module from its file, without its package, or else by its name."""
    if file is None:
        sys.path.insert(0, "")
        module = importlib.import_module(name)
    else:
        module = load_file(name, Path(file))
    if not is_made_by_mlaot(module):
        raise ImportError(f"{name} was not made by mlaot")
    return module


def is_made_by_mlaot(module: ModuleType) -> bool:
    """Tell whether ``info`` of a module is that of a module of mlaot, as other modules may also have an ``info``."""
    try:
        return "entries" in module.info()
    except Exception:  # another module's `info` may be anything
        return False


def selftest(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's errors as shares of their bounds, or a description of the failure."""
    try:
        return {"shares": module.selftest()}
    except RuntimeError as error:
        return {"missed": str(error)}


def golden(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the largest error of each output of the golden ``calls``, relative to its largest expected element.

    The error of a sum is divided by the root of its number of elements.
    """
    from mlaot.ir.ports import Draw, numbers, port_of, signed_sums

    rows = []
    for call in question["calls"]:
        ports = [port_of(*fields) for fields in call["inputs"]]
        draws = [Draw(low, width, seed, bytes.fromhex(content)) for low, width, seed, content in call["draws"]]
        inputs = [
            numbers(port, n, call["dims"], draw)
            for n, (port, draw) in enumerate(zip(ports, draws, strict=True))
            if port.default is None
        ]
        results = getattr(module.Model(), call["entry"])(*inputs)
        for output, result in zip(call["outputs"], results if len(call["outputs"]) > 1 else [results], strict=True):
            sums, expected = signed_sums(array(result)), np.asarray(output["sums"])
            added = -(-array(result).size // max(expected.size, 1))
            largest = output["largest"] * added**0.5
            error = np.abs(sums - expected).max(initial=0) / (largest if largest > 0 else 1)
            rows.append({"entry": call["entry"], "output": output["name"], "error": float(error)})
    return {"rows": rows}


def info(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's ``info``."""
    answer: dict[str, Any] = module.info()
    return answer


def values(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``info``; write state and answers to seeded inputs into the file ``arrays``.

    ``limits`` are bounds of the integers that are drawn for an entry. ``refused`` has the entries that raise an error
    for the inputs.
    """
    arrays: dict[str, Any] = state(module)
    limits, refused = dict[str, int](), dict[str, str]()
    for name, entry in module.info()["entries"].items():
        dims = dict.fromkeys(module.info()["dims"], SIZE)
        allowed = LIMITS if name not in question["limits"] else (question["limits"][name],)
        try:
            inputs, limits[name] = find_inputs(module, name, entry["inputs"], dims, allowed)
            model = module.Model()
            results = getattr(model, name)(**inputs)
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"
            continue
        if not isinstance(results, dict):
            items = results if len(entry["outputs"]) > 1 else [results] * len(entry["outputs"])
            results = dict(zip(entry["outputs"], items, strict=True))
        arrays |= {f"{name}: {key}": array(value) for key, value in results.items()}
        after = state(model)
        arrays |= {f"{name}: {key} afterwards": after[key] for key in after if not same(after[key], arrays[key])}
    np.savez(question["arrays"], **arrays)
    return {"info": module.info(), "limits": limits, "refused": refused}


def state(model: Any) -> Arrays:
    """Return parameters and buffers by name."""
    kinds = [getattr(model, kind, {}) for kind in ("parameters", "buffers")]
    return {name: array(value).copy() for kind in kinds for name, value in kind.items()}


def array(value: Any) -> np.ndarray[Any, Any]:
    """Return an array of the module, or a number, as a NumPy array."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # bfloat16 has no buffer format
        return np.asarray(value.tolist())


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Compare bit by bit."""
    return a.tobytes() == b.tobytes()


def find_inputs(
    module: ModuleType, name: str, types: Mapping[str, str], dims: Mapping[str, int], limits: tuple[int, ...]
) -> tuple[Arrays, int]:
    """Return seeded inputs that the entry accepts, and the bound of their integers."""
    call = getattr(module.Model(), name)
    parameters = inspect.signature(call).parameters  # `...` is a default, too: what set_input() left
    required = [key for key in types if not isinstance(parameters[key].default, int | float)]
    for limit in limits:
        rng = np.random.default_rng(0)
        inputs = {key: draw(types[key], dims, limit, rng) for key in required}
        try:
            call(**inputs)
        except ValueError:
            if limit == limits[-1]:
                raise
        else:
            break
    return inputs, limit


def draw(text: str, dims: Mapping[str, int], limit: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draw random numbers of a type such as ``float32[batch, 2 * n + 1]``."""
    from mlaot.ir.dims import parse, substitute

    match = TYPE.fullmatch(text)
    assert match is not None, f"bug in mlaot: info() speaks of {text}"
    dtype = np.dtype(match[1])
    shape = [substitute(parse(extent), dims) for extent in (match[2] or "").split(",") if extent]
    if dtype.kind == "f":
        return np.asarray(rng.uniform(-1, 1, shape)).astype(dtype)
    bound = 2 if dtype.kind == "b" else min(limit, np.iinfo(dtype).max)
    numbers = rng.geometric(0.25, shape) - 1  # small numbers more often: some are classes, of which there may be two
    return np.asarray(numbers % bound).astype(dtype)


def bench(module: ModuleType, question: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the seconds of a call of each entry at each of ``batches``: median and extremes of interleaved rounds.

    With ``profile``, add the events of the fastest traced call, if the module has a profile.
    """
    about = module.info()
    calls: dict[tuple[str, int | None], Callable[[], object]] = {}
    refused: dict[str, str] = {}
    for name, entry in about["entries"].items():
        batched = any(re.search(r"\bbatch\b", text) for text in entry["inputs"].values())
        for batch in question["batches"] if batched else (None,):
            dims = dict.fromkeys(about["dims"], SIZE) | {"batch": batch or 1}
            try:
                calls[name, batch] = bind_call(module, name, entry["inputs"], dims)
            except Exception as error:
                refused[name] = f"{type(error).__name__}: {error}"
    repeats = {key: max(1, int(SECONDS / max(time_calls(call, 2) / 2, 1e-7))) for key, call in calls.items()}
    times: dict[tuple[str, int | None], list[float]] = {key: [] for key in calls}
    for number in range(ROUNDS):
        for key, call in calls.items():
            if number < MIN_ROUNDS or sum(times[key]) < MAX_SECONDS:
                times[key].append(time_calls(call, repeats[key]) / repeats[key])
    rows = []
    for (name, batch), row in times.items():
        seconds = {"median": statistics.median(row), "least": min(row), "most": max(row)}
        is_profiled = question.get("profile") and hasattr(module, "profile")
        trace = {"trace": fastest_trace(module, calls[name, batch], min(row))} if is_profiled else {}
        rows.append({"entry": name, "batch": batch, **seconds, **trace})
    return {"module": about["name"], "isa": about["isa"], "rows": rows, "refused": refused}


def fastest_trace(module: Any, call: Callable[[], object], seconds: float) -> list[dict[str, Any]]:
    """Return the events of the fastest of some calls, which take so many seconds each, by the module's ``profile``."""
    count = max(MIN_ROUNDS, min(PROFILES, int(MAX_SECONDS / max(seconds, 1e-7))))
    traces: list[list[dict[str, Any]]] = [module.profile(call)["traceEvents"] for _ in range(count)]
    return min(traces, key=lambda events: sum(event.get("dur", 0) for event in events))


def bind_call(module: ModuleType, name: str, types: Mapping[str, str], dims: Mapping[str, int]) -> Callable[[], object]:
    """Return a call of an entry, on an instance of its own."""
    inputs, _ = find_inputs(module, name, types, dims, LIMITS)
    call = getattr(module.Model(), name)
    return lambda: call(**inputs)


def time_calls(call: Callable[[], object], repeats: int) -> float:
    """Return the seconds of ``count`` calls."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - started


QUESTIONS = {"info": info, "selftest": selftest, "golden": golden, "values": values, "bench": bench}

if __name__ == "__main__":
    main()
