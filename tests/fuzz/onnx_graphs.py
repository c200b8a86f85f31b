"""Random ONNX models, compiled, against onnxruntime where it is installed and the package onnx.

    python -m tests.fuzz.onnx_graphs --count 5000 --seed 0
    python -m tests.fuzz.onnx_graphs --count 50 --seed 0 --reference    # without onnxruntime

Each model (``onnx_made.py``) is run on ordinary and on special numbers. The answer is computed node by node. How far
from it a right one may be is measured: the nodes are computed again, each result moved by some units in its last place,
or for sums in that of its largest, and zeros given another sign. What moves integers, or nan and infinities, cannot be
compared and is counted. A model that fails is made smaller: to its one wrong node, if that is wrong alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mlaot.errors import MlaotError
from mlaot.generate import compile_model
from mlaot.lower.program import Program
from mlaot.onnx.declare import REFUSED, declare, port_name
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, Library
from .onnx_made import REDUCTIONS, Array, Model, Unfit, info, make, proto

PER_FILE = 50
MOVED = 3  # times that the nodes are computed again
FLAGS = ("-Wno-tautological-compare", "-Wno-type-limits")
Values = dict[str, Array]
Run = Callable[[onnx.NodeProto, int, Values], list[Array]]

# Where onnxruntime departs from ONNX's text, or loses nan: the package onnx is asked.
BY_REFERENCE = {
    *("ArgMax", "ArgMin", "Clip", "Hardmax", "InstanceNormalization", "LayerNormalization", "ReduceMax"),
    *("Sigmoid", "ReduceMin", "ReduceProd", "ReduceSum", "ScatterND", "Shrink", "Where", "MeanVarianceNormalization"),
}
# Sums, whose error is one of their largest terms.
SUMS = {
    *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm", "GlobalAveragePool"),
    *("GRU", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization", "LogSoftmax", "LpNormalization", "LpPool"),
    *("MatMul", "MeanVarianceNormalization", "RNN", "Resize", "Softmax", "Gelu", "Selu", "Celu", "Elu", "Mish"),
    *REDUCTIONS,
} - {"ReduceMax", "ReduceMin"}
# Sums in which a number that is not finite, or too large to square, spreads as far as each runtime's order takes it.
FINITE = SUMS - set(REDUCTIONS) - {"Softmax", "CumSum", "Selu", "Celu", "Elu", "MatMul"} | {"MaxPool", "GlobalMaxPool"}
# Where the package onnx is known to be wrong: always, and for what is not finite.
WRONG = {"LRN", "LpNormalization"}
WRONG_BEYOND = {"AveragePool", "LpPool", "PRelu", "QuantizeLinear", "ReduceLogSumExp"}
# What ends in functions that onnxruntime approximates, or in 1 - 1.
ROUGH = {"RNN", "GRU", "LSTM", "Celu", "Elu", "Gelu", "Mish", "Selu"}
LARGE = 1e15
OFF = {"float32": 2e-6, "float64": 1e-13}


class Open(Exception):
    """ONNX does not say what a node gives for these inputs."""


# The references.


class References:
    """Nodes computed by onnxruntime or by the package onnx; what is prepared is kept for the next inputs."""

    def __init__(self, only_onnx: bool) -> None:
        self.only_onnx = only_onnx
        self.counts: Counter[str] = Counter()
        self.runs: dict[bytes, Callable[[Values], list[Array]]] = {}

    def __call__(self, node: onnx.NodeProto, opset: int, given: Values) -> list[Array]:
        check_open(node, opset, given, self.only_onnx)
        shapes = [(name, str(value.dtype), value.shape) for name, value in given.items()]
        key = node.SerializeToString() + repr((opset, shapes)).encode()
        if key not in self.runs:
            self.runs[key] = self._prepared(node, opset, given)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(value) for value in self.runs[key](given)]

    def _prepared(self, node: onnx.NodeProto, opset: int, given: Values) -> Callable[[Values], list[Array]]:
        model = model_of_node(node, opset, given)
        doubles = any(value.dtype == np.float64 for value in given.values())
        if not self.only_onnx and node.op_type not in BY_REFERENCE and not (doubles and node.op_type in FINITE):
            try:
                run = by_onnxruntime(model)
                run(given)
                self.counts["nodes by onnxruntime"] += 1
                return run
            except Exception:  # of many kinds: it has no such operator for this dtype
                pass
        from onnx.reference import ReferenceEvaluator

        self.counts["nodes by onnx.reference"] += 1
        evaluator = ReferenceEvaluator(model)
        return partial(reference_run, evaluator, model)


def reference_run(evaluator: Any, model: onnx.ModelProto, given: Values) -> list[Array]:
    found = evaluator.run(None, given)
    kinds = [output.type.tensor_type.elem_type for output in model.graph.output]
    return [np.asarray(v).astype(helper.tensor_dtype_to_np_dtype(k)) for k, v in zip(kinds, found, strict=True)]


def by_onnxruntime(model: onnx.ModelProto) -> Callable[[Values], list[Array]]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)  # type: ignore[no-any-return]


@cache
def schema(op: str, opset: int) -> Any:
    return onnx.defs.get_schema(op, opset, "")


def model_of_node(node: onnx.NodeProto, opset: int, given: Values) -> onnx.ModelProto:
    """A model of one node, whose inputs that must be known are still inputs."""
    infos = [info(name, value) for name, value in given.items()]
    types = {each.name: each.type for each in infos}
    found = onnx.shape_inference.infer_node_outputs(schema(node.op_type, opset), node, types)
    outputs = [
        helper.make_tensor_value_info(name, found[name].tensor_type.elem_type, None) for name in node.output if name
    ]
    graph = helper.make_graph([node], "g", infos, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check_open(node: onnx.NodeProto, opset: int, given: Values, only_onnx: bool) -> None:
    """Raise where ONNX does not say, or where all references are known to be wrong."""
    op, values = node.op_type, [given[name] for name in node.input if name]
    x = values[0]
    finite = all(np.isfinite(v).all() and (np.abs(v) < LARGE).all() for v in values if v.dtype.kind == "f")
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if op in FINITE and not finite:
        raise Open
    is_whole = op in ("Div", "Mod") and x.dtype.kind == "i"
    if is_whole and ((values[1] == 0) | ((values[1] == -1) & (x == np.iinfo(x.dtype).min))).any():
        raise Open
    target = helper.tensor_dtype_to_np_dtype(attributes["to"]) if op == "Cast" and x.dtype.kind == "f" else x.dtype
    if op == "Cast" and x.dtype.kind == "f" and target.kind in "iu":
        low, high = float(np.iinfo(target).min), float(np.iinfo(target).max)
        if not ((x >= low) & (x < high)).all():
            raise Open
    if op in ("QuantizeLinear", "ReduceLogSumExp") and np.isnan(x).any():  # the latter can lose it in onnxruntime
        raise Open
    if op in ("ReduceSum", "ReduceMean") and not finite and (np.abs(x) > LARGE).any():
        raise Open
    is_old = op in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13
    if is_old and attributes["axis"] % x.ndim != x.ndim - 1 and (only_onnx or op == "Hardmax"):
        raise Open  # the package onnx takes the axis as newer opsets do
    if only_onnx and (op in WRONG or (op in WRONG_BEYOND and not finite)):
        raise Open


# The answer and its bounds.


def evaluated(model: Model, run: Run, given: Values, rng: Any = None) -> Values:
    """Every value of a model; with ``rng``, each moved by what a right runtime may be off."""
    values = {**given, **model.constants}
    for node in model.nodes:
        found = run(node, model.opset, {name: values[name] for name in node.input if name})
        if rng is not None:
            found = [moved(value, node.op_type, rng) for value in found]
        values |= dict(zip(node.output, found, strict=False))
    return values


def moved(value: Array, op: str, rng: Any) -> Array:
    """A value with an error such as its operator's may be, and zeros of any sign."""
    if value.dtype.kind != "f" or op in ("Identity", "Transpose", "Reshape"):
        return value
    with np.errstate(all="ignore"):
        size = np.abs(value)
        if op in SUMS:
            least = 1.0 if op in ROUGH else 0.0
            size = size + np.max(size, where=np.isfinite(size), initial=least)
        found = value + (size * OFF[str(value.dtype)] * rng.uniform(-1, 1, value.shape)).astype(value.dtype)
        found = np.where(np.isfinite(value), found, value)
        found = np.where(value == 0, np.copysign(found, rng.uniform(-1, 1, value.shape)), found)
    return found.astype(value.dtype)


def expected(model: Model, run: Run, given: Values) -> tuple[Values, Values]:
    """The outputs, and how far from them a right runtime may be: infinitely far, where it cannot be told."""
    right = evaluated(model, run, given)
    rng = np.random.default_rng(model.seed)
    bounds = {}
    others = [evaluated(model, run, given, rng) for _ in range(MOVED)]
    for name in model.outputs:
        value, bound = right[name], np.zeros(right[name].shape)
        with np.errstate(all="ignore"):
            for other in others:
                if other[name].shape != value.shape:
                    raise Open
                far = np.abs(value.astype(np.float64) - other[name].astype(np.float64))
                same = (value == other[name]) | ((value != value) & (other[name] != other[name]))
                far = np.where(same, 0.0, np.where(np.isfinite(far), far, np.inf))
                bound = np.maximum(bound, far if value.dtype.kind == "f" else np.where(far > 0, np.inf, 0.0))
            if value.dtype.kind == "f":
                own = OFF[str(value.dtype)] * np.abs(np.where(np.isfinite(value), value, 0))
                jumps = bound > 0.01 * np.max(np.abs(value), where=np.isfinite(value), initial=0)  # as Mod does
                bound = np.where(jumps, np.inf, 6 * bound + own + 4 * np.finfo(value.dtype).tiny)
        bounds[name] = bound
    return {name: right[name] for name in model.outputs}, bounds


def difference(name: str, got: Array, right: Array, bound: Array, counts: Counter[str]) -> str:
    """The first element that is out of its bound."""
    if got.shape != right.shape or got.dtype != right.dtype:
        return f"{name}: {got.dtype}{list(got.shape)}, expected {right.dtype}{list(right.shape)}"
    counts["numbers"] += right.size
    counts["not comparable"] += int(np.isinf(bound).sum())
    with np.errstate(all="ignore"):
        far = np.abs(got.astype(np.float64) - right.astype(np.float64))
        off = ~((got == right) | ((got != got) & (right != right)) | (far <= bound) | np.isinf(bound))
    if not off.any():
        return ""
    at = np.unravel_index(int(np.argmax(off)), off.shape)
    where = [int(i) for i in at]
    return f"{name}{where}: got {got[at]!r}, expected {right[at]!r} within {bound[at]:.3g}; {off.sum()} of {off.size}"


# Many of them.


def compiled(models: Sequence[Model], files: dict[int, onnx.ModelProto], isa: str, counts: Counter[str]) -> Any:
    """A library of models, and for each the names of its ports."""
    programs: dict[str, Program] = {}
    ports: dict[int, dict[str, Any]] = {}
    for model in models:
        ports[model.seed] = {}
        try:
            declared = declare(files[model.seed], {}, ports=ports[model.seed])
            programs[f"g{model.seed}"] = compile_model(declared, f"fuzz.g{model.seed}", Options(isas=("base", isa)))
        except MlaotError as error:
            counts["refused"] += 1
            model.failures.append(f"refused: {error}")
        except Exception:
            model.failures.append(traceback.format_exc(limit=-4))
    if not programs:
        return None, ports
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        return Library(programs, isa, Path(folder), FLAGS), ports


def run_models(models: Sequence[Model], isa: str, run: Run, counts: Counter[str]) -> None:
    """Compile models into one file and compare; what is wrong is noted with each."""
    files, answers = {}, {}
    for model in models:
        try:
            answers[model.seed] = [None if trial is None else answer(model, run, trial) for trial in model.trials]
        except Exception:
            model.failures.append("reference: " + traceback.format_exc(limit=-3))
            continue
        known = next((a for a in answers[model.seed] if a), None)
        if known is None:
            counts["models without an answer"] += 1
            continue
        files[model.seed] = proto(model, known[0])
    whole = [model for model in models if model.seed in files]
    library, ports = compiled(whole, files, isa, counts)
    for model in whole:
        if model.failures:
            continue
        counts["models"] += 1
        counts["nodes"] += len(model.nodes)
        for trial, right in zip(model.trials, answers[model.seed], strict=True):
            if right is None:
                counts["trials that ONNX leaves open"] += 1
                continue
            named = {port_name(name): value for name, value in trial.items()}
            found = library.call(f"g{model.seed}", "forward", named)
            if REFUSED in found and int(found[REFUSED]):
                counts["calls refused"] += 1
                continue
            for name in model.outputs:
                said = difference(name, found[ports[model.seed][name]], right[0][name], right[1][name], counts)
                model.failures += [said] if said else []


def answer(model: Model, run: Run, trial: Values) -> tuple[Values, Values] | None:
    try:
        return expected(model, run, trial)
    except Open:
        return None


def run_seeds(first: int, count: int, references: References, isas: Sequence[str] = AVAILABLE) -> Any:
    """The models of ``count`` seeds that failed, and what was compared."""
    counts: Counter[str] = Counter()
    failed: list[Model] = []
    for start in range(first, first + count, PER_FILE):
        references.runs.clear()
        models = [make(seed, drawn(references)) for seed in range(start, min(start + PER_FILE, first + count))]
        models = [model for model in models if model.nodes]
        isa = isas[start // PER_FILE % len(isas)]
        run_models(models, isa, references, counts)
        failed += [model for model in models if model.failures]
        if sys.stderr.isatty():
            print(f"\r{counts['models']:,} models, {len(failed)} failed", end="", file=sys.stderr, flush=True)
    return failed, counts + references.counts


def drawn(run: Run) -> Run:
    """How nodes are computed while a model is drawn: what cannot be is another draw."""

    def attempt(node: onnx.NodeProto, opset: int, given: Values) -> list[Array]:
        try:
            return run(node, opset, given)
        except Exception:
            raise Unfit from None

    return attempt


# Made smaller.


def smallest(model: Model, isa: str, run: Run) -> Model:
    """One node that is wrong alone, or as few as are wrong together."""

    def fails(part: Model) -> Model | None:
        part = replace(part, failures=[])
        run_models([part], isa, run, Counter())
        return part if part.failures else None

    for trial in model.trials:
        try:
            values = evaluated(model, run, trial)
        except Open:
            continue
        for node in model.nodes:
            given = {name: values[name] for name in node.input if name and name not in model.constants}
            held = {name: model.constants[name] for name in node.input if name in model.constants}
            outputs = [name for name in node.output if name]
            if found := fails(Model(model.seed, model.opset, [node], [given], held, outputs)):
                return found
    best = model
    for node in model.nodes:
        for name in node.output:
            part = without_rest(replace(model, outputs=[name]))
            if len(part.nodes) < len(best.nodes) and (found := fails(part)):
                best = found
    return best


def without_rest(model: Model) -> Model:
    """Only what the outputs need."""
    needed, nodes = set(model.outputs), []
    for node in reversed(model.nodes):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(node.input)
    constants = {name: value for name, value in model.constants.items() if name in needed}
    trials = [{name: value for name, value in trial.items() if name in needed} for trial in model.trials]
    return replace(model, nodes=nodes[::-1], constants=constants, trials=trials)


def source(model: Model) -> str:
    """A model as text, with the numbers that it is called with."""
    lines = [f"opset {model.opset}, outputs {', '.join(model.outputs)}"]
    lines += [onnx.printer.to_text(node) for node in model.nodes]
    lines += [f"{name} = np.{value!r}" for name, value in model.constants.items()]
    return "\n".join([*lines, *[f"{name} = np.{v!r}" for trial in model.trials for name, v in trial.items()]])


def report(failed: Sequence[Model], counts: Counter[str], run: Run, most: int = 8) -> str:
    """A summary, and the models that failed."""
    lines = [", ".join(f"{n:,} {what}" for what, n in counts.items())]
    for model in failed[:most]:
        lines += [f"\nseed {model.seed}", *model.failures[:2]]
        if not model.failures[0].startswith(("refused", "reference")):
            small = smallest(model, AVAILABLE[-1], run)
            lines += ["made smaller:", *small.failures[:2], source(small)]
    return "\n".join([*lines, f"{len(failed)} models failed: {[model.seed for model in failed]}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference", action="store_true", help="ask the package onnx alone")
    options = parser.parse_args()
    started = time.monotonic()
    references = References(options.reference)
    failed, counts = run_seeds(options.seed, options.count, references)
    print(report(failed, counts, references), f"in {time.monotonic() - started:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
