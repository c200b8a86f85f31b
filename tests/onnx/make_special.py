"""What onnxruntime and the package onnx give for special numbers, stored for the tests. Needs onnxruntime.

    python -m tests.onnx.make_special

Where both answer and differ, the text of ONNX decides (``BY_TEXT`` says where), else onnxruntime. Each answer is stored
with whose it is; all that the two disagree on is printed.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from .special import EITHER, STORED, agree, store
from .special_cases import Case, all_cases

Run = Callable[[dict[str, Any]], Any]

NAN_SPREADS = "nan spreads, as in Max and Min; whether it does in onnxruntime depends on where in a row it stands"
NAN_LOST = "onnxruntime's activations lose nan"
FORMULA = "the formula of ONNX's text, of which onnxruntime computes another form: inf - inf where that has none"
WRAPS = "integers wrap; onnxruntime computes them in floats"
MOVES = "a number is moved as it is; onnxruntime loses the sign of 0"

# Operators where the package onnx answers by ONNX's text and onnxruntime does not, and why.
BY_TEXT = {
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "Hardmax", "MaxPool", "GlobalMaxPool"), NAN_SPREADS),
    **dict.fromkeys(("ScatterND", "Unique", "Sign"), NAN_SPREADS),
    "Clip": "equivalent to Min(max, Max(input, min)), and nan spreads in these",
    **dict.fromkeys(("RNN", "GRU", "LSTM"), NAN_LOST),
    **dict.fromkeys(("LRN", "InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization"), FORMULA),
    **dict.fromkeys(("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"), WRAPS),
    "Shrink": "onnxruntime computes doubles and integers in float32",
    "Where": MOVES,
    "MaxUnpool": "onnxruntime takes the places for those of the shape that output_shape says",
    "ReduceMean": "the mean of nothing is nan",
    "TreeEnsembleRegressor": "nan goes where nodes_missing_value_tracks_true says, whatever the mode",
    "TreeEnsembleClassifier": "labels are those of the model; onnxruntime gives 0 and 1",
    "Normalizer": "the largest number by its size, as in scikit-learn; onnxruntime takes it with its sign",
}
# Operators of which ONNX says nothing where the two differ: what they agree on is stored.
UNSAID = {"Attention", "BatchNormalization", "DeformConv", "GridSample", "QLinearMatMul"}
# Operators in which the sign of a zero is that of one of several zeros, or of a sum that starts with one.
OPEN_ZEROS = {
    *("Clip", "Max", "Min", "Relu", "Sum", "Mean", "MatMul", "Gemm", "Einsum", "LpNormalization", "CumSum", "TopK"),
    *("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd"),
    *("MaxPool", "GlobalMaxPool", "AveragePool", "MaxRoiPool", "ScatterND", "ScatterElements"),
}


def by_onnxruntime(case: Case) -> Run:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)


def by_reference(case: Case) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(case.model)
    return lambda given: evaluator.run(None, given)


def plain(outputs: Any) -> list[Any]:
    """The rows of maps as arrays."""
    return [
        np.array([list(row.values()) for row in o], np.float32) if isinstance(o, list) else np.asarray(o)
        for o in outputs
    ]


def _answers(start: Any, cases: Sequence[Case], pipe: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for case in cases:
        run: Any = None
        for given in case.sets:
            try:
                run = run or start(case)
                pipe.send(typed(case, plain(run(given))))
            except Exception as error:
                pipe.send(f"{type(error).__name__}: {error}")


def answers(start: Any, cases: Sequence[Case]) -> list[list[Any]]:
    """The outputs of each case for each of its sets, or why there are none.

    In a process of its own, and in another one after what ended it, as a division of integers can.
    """
    context, found = multiprocessing.get_context("fork"), list[list[Any]]()
    while len(found) < len(cases):
        read, write = context.Pipe(False)
        process = context.Process(target=_answers, args=(start, cases[len(found) :], write))
        process.start()
        write.close()
        try:
            for case in cases[len(found) :]:
                found.append([])
                for _ in case.sets:
                    found[-1].append(read.recv())
        except EOFError:
            found[-1] += ["it died"] * (len(cases[len(found) - 1].sets) - len(found[-1]))
        process.join()
    return found


def typed(case: Case, outputs: list[Any]) -> list[Any]:
    """The outputs, of the element types that ONNX says; the package onnx computes some in doubles."""
    found = []
    for info, output in zip(case.model.graph.output, outputs, strict=True):
        kind = info.type.tensor_type.elem_type
        wanted = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else output.dtype
        if output.dtype != wanted and (output.dtype.kind, np.dtype(wanted).kind) != ("f", "f"):
            raise TypeError(f"{output.dtype} for {wanted}")
        found.append(output.astype(wanted))
    return found


def chosen(case: Case, first: Any, second: Any) -> tuple[Any, str, str]:
    """Whose outputs are right, which these are, and why; nothing where ONNX leaves it open."""
    if isinstance(first, str) or isinstance(second, str):
        if isinstance(first, str) and isinstance(second, str):
            return None, "neither", f"{first[:120]} | {second[:120]}"
        if {op for _, op in case.operators} & UNSAID:
            return None, "neither", "ONNX does not say"
        return (second, "onnx.reference", "") if isinstance(first, str) else (first, "onnxruntime", "")
    pairs = list(zip(first, second, strict=True))
    if not any(agree(a, b, scaled=case.scaled) for a, b in pairs):
        return second, "both", ""
    if not any(agree(a, b, scaled=case.scaled, zeros=False) for a, b in pairs):
        moves = next((why for op, why in BY_TEXT.items() if why is MOVES and ("", op) in case.operators), "")
        return second, "onnx.reference" if moves else "both", moves or EITHER
    if not any(agree(a, b, 1e-3, zeros=False, tiny=1e-7) for a, b in pairs):
        return second, "onnx.reference", "the more exact one"
    names = {op for _, op in case.operators}
    if names & UNSAID:
        return None, "neither", "ONNX does not say"
    text = next((why for op, why in BY_TEXT.items() if op in names), "")
    is_old = (
        names == {"Hardmax"} and case.model.opset_import[0].version < 13
    )  # whose axis the package onnx takes as new
    text = "" if is_old or (any(a.shape != b.shape for a, b in pairs) and names != {"Unique"}) else text
    return (second, "onnx.reference", text) if text else (first, "onnxruntime", "")


def by_hand(case: Case, given: dict[str, Any]) -> list[Any]:
    found = case.answer(**given)  # type: ignore[misc]
    return typed(case, [np.asarray(o) for o in (found if isinstance(found, tuple) else (found,))])


def declared(case: Case, outputs: list[Any]) -> Case:
    """A case whose model says of what type its outputs are, where ONNX does not infer it."""
    for info, output in zip(case.model.graph.output, outputs, strict=True):
        if not info.type.WhichOneof("value"):
            kind = onnx.helper.np_dtype_to_tensor_dtype(output.dtype)
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, kind, output.shape))
    return case


def main() -> None:
    import mlaot.onnx.ops  # noqa: F401  fills the registry

    kept, counts, cases = [], Counter[str](), all_cases()
    for case, *both in zip(cases, answers(by_onnxruntime, cases), answers(by_reference, cases), strict=True):
        rows: list[Any] = []
        for given, first, second in zip(case.sets, *both, strict=True):
            outputs, whose, why = chosen(case, first, second)
            if ("", "MaxPool") in case.operators and any(
                np.isnan(a).any() for a in given.values() if a.dtype.kind == "f"
            ):
                outputs, whose, why = None, "neither", "both lose nan"
            if case.answer:
                outputs, whose, why = by_hand(case, given), "NumPy", ""
            counts[whose] += 1
            if outputs is None or (rows and any(a.shape != b.shape for a, b in zip(rows[0][1], outputs, strict=True))):
                print(f"{case.name}: {why or 'another shape'}")
                continue
            if whose == "onnxruntime" and not isinstance(second, str):
                differs = [agree(a, b, zeros=False) for a, b in zip(first, second, strict=True)]
                print(f"{case.name}: onnxruntime, not onnx.reference: {next(d for d in differs if d)}")
            rows.append((given, outputs, whose, EITHER if {op for _, op in case.operators} & OPEN_ZEROS else why))
        if rows:
            case = declared(replace(case, sets=tuple(row[0] for row in rows)), rows[0][1])
            kept.append((case, [row[1:] for row in rows]))
    store(STORED, kept)
    print(f"{len(kept)} models", dict(counts), STORED.stat().st_size)


if __name__ == "__main__":
    main()
