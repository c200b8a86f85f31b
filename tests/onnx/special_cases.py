"""Models of one operator each, and special numbers for their inputs; ``make_special.py`` stores what they give.

Those written here take every pair of special numbers, the ends of integers and each attribute in its forms. Those of
ONNX's own tests follow, their numbers replaced by special ones, one input and one number at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mlaot.onnx.registry import MICROSOFT, ML, OPERATORS, TRAINING

Array = np.ndarray[Any, Any]
OPSET = 21
F32, F64, F16 = np.dtype("float32"), np.dtype("float64"), np.dtype("float16")
SIGNED = tuple(map(np.dtype, ("int8", "int16", "int32", "int64")))
UNSIGNED = tuple(map(np.dtype, ("uint8", "uint16", "uint32", "uint64")))
INTEGERS = SIGNED + UNSIGNED
WIDE = tuple(map(np.dtype, ("int32", "int64")))
NAN, INF = float("nan"), float("inf")
MOST = 800  # numbers that an input of ONNX's own tests may have
# Operators, and tests, where ONNX does not say what nan and infinities give: their numbers stay.
AS_THEY_ARE = {
    *("Attention", "ConvTranspose", "Det", "DFT", "MelWeightMatrix", "NonMaxSuppression", "QuantizeLinear", "Range"),
    *("RoiAlign", "STFT", "Upsample", "node/test_resize_tf_crop_and_resize_extrapolation_value"),
}
ENDING_IN_DIFFERENCES = {"Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Swish"}
DTYPES = (
    "bool",
    "float16",
    "float32",
    "float64",
    *[f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)],
)
TESTS = 4  # of ONNX's own, for each operator, that are taken


@dataclass(frozen=True)
class Case:
    """A model and the inputs that it is called with, one after the other: arrays by name."""

    name: str
    model: onnx.ModelProto
    sets: tuple[dict[str, Array], ...]
    answer: Callable[..., Any] | None = None  # where neither reference has the operator, or both lose nan

    @property
    def operators(self) -> set[tuple[str, str]]:
        return {(node.domain, node.op_type) for node in self.model.graph.node}

    @property
    def scaled(self) -> bool:
        """Whether numbers are sums, whose error is one of their largest terms."""
        return self.name.startswith(("node/", "com.microsoft", "ai.onnx.preview"))

    @property
    def tiny(self) -> float:
        """A difference that is none: what is left where a formula ends in 1 - 1."""
        return (
            1e-6 if {op for _, op in self.operators} & {"Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Swish"} else 0.0
        )


# Numbers.


def special(dtype: Any = F32) -> Array:
    """nan, infinities, zeros, subnormals, the smallest normal number and the largest, of both signs."""
    info = np.finfo(dtype)
    positive = [0.0, info.smallest_subnormal, info.smallest_normal / 4, info.smallest_normal, info.max, INF]
    return np.array([NAN, *positive, *[-v for v in positive]], dtype)


def ordinary(dtype: Any = F32) -> Array:
    values = [1, 0.5, 1.5, 2, 2.5, 3, 0.001, 7.25, 20.5, 60, 80, 1000]
    return np.array([*values, *[-v for v in values]], dtype)


def floats(dtype: Any = F32) -> Array:
    return np.concatenate([special(dtype), ordinary(dtype)])


def few(dtype: Any = F32) -> Array:
    """The special numbers that differ in kind, and some between."""
    info = np.finfo(dtype)
    return np.array([NAN, INF, -INF, 0.0, -0.0, info.smallest_subnormal, info.max, -info.max, 1, -1, 2.5, -3], dtype)


def ends(dtype: Any) -> Array:
    """Integers at the ends and around 0."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = {low, low + 1, -2, -1, 0, 1, 2, 3, 7, high - 1, high, high // 2}
    return np.array(sorted(v for v in values if v >= low), dtype)


def numbers(dtype: Any, count: int = 0) -> Array:
    """Of a dtype all there are here, or few."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    return ends(dtype) if dtype.kind in "iu" else few(dtype) if count else floats(dtype)


def pairs(dtype: Any, other: Any = None) -> tuple[Array, Array]:
    """All pairs, as a matrix of the first and one of the second."""
    first, second = np.meshgrid(numbers(dtype), numbers(other or dtype), indexing="ij")
    return first, second


def triples(dtype: Any = F32, values: Any = None) -> Array:
    """All triples of few numbers: [n, 3]."""
    if values is None:
        kind = np.dtype(dtype).kind
        values = [NAN, INF, -INF, 0.0, -0.0, 1, -2.5] if kind == "f" else numbers(dtype)[[0, 1, -6, -1]]
    return np.array(list(product(values, repeat=3)), dtype)


# Models.


def first(op: str) -> int:
    """The opset that an operator is in from, if it is a newer one."""
    return min(int(s.since_version) for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == ("", op))


def info(name: str, array: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Array], held: dict[str, Array], outputs: Any, opset: int
) -> onnx.ModelProto:
    """A model; ``outputs``: names, with their element type and shape where these cannot be inferred."""
    typed = [
        helper.make_tensor_value_info(o[0], o[1], o[2]) if isinstance(o, tuple) else onnx.ValueInfoProto(name=o)
        for o in outputs
        if o
    ]
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info(name, array) for name, array in inputs.items()],
        typed,
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(ML, 3)]
    opsets += [helper.make_opsetid("ai.onnx.preview.training", 1)]
    if any(node.domain == ML and node.op_type in ("TreeEnsemble", "LabelEncoder") for node in nodes):
        opsets[2].version = 5
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


class Cases(list[Case]):
    """The list, and how one is added to it."""

    def add(
        self,
        op: str,
        *inputs: Any,
        domain: str = "",
        opset: int = 0,
        held: Sequence[int] = (),
        outputs: Any = 1,
        more: Sequence[Sequence[Any]] = (),
        answer: Callable[..., Any] | None = None,
        **attributes: Any,
    ) -> None:
        """One node: ``held`` of its inputs are constants, ``more`` the others again with other numbers."""
        arrays = [None if value is None else np.asarray(value) for value in inputs]
        names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
        made = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        given = {n: a for i, (n, a) in enumerate(zip(names, arrays, strict=True)) if a is not None and i not in held}
        constants = {f"x{i}": arrays[i] for i in held}
        at = opset or max(OPSET, 0 if domain else first(op))
        node = helper.make_node(
            op, names, [o if isinstance(o, str) else o[0] for o in made], domain=domain, **attributes
        )
        model = model_of([node], given, constants, made, at)
        sets = [given, *[dict(zip(given, map(np.asarray, row), strict=True)) for row in more]]
        self.append(Case(f"{domain}.{op} {len(self)}", model, tuple(sets), answer))

    def together(self, name: str, nodes: Any, inputs: dict[str, Array], held: dict[str, Array], opset: int) -> None:
        """Many small nodes of one operator in one model, an output each."""
        outputs = [o for node in nodes for o in node.output]
        self.append(Case(f".{name} {len(self)}", model_of(nodes, inputs, held, outputs, opset), (inputs,)))


UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log"),
    *("Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
    *("Mish", "HardSwish", "Reciprocal", "Elu", "Celu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid"),
    *("Shrink", "Gelu", "Swish", "IsNaN", "IsInf", "Identity"),
)
FORMS: dict[str, list[dict[str, Any]]] = {
    "IsInf": [{"detect_positive": p, "detect_negative": n} for p, n in ((0, 1), (1, 0), (0, 0))],
    "Elu": [{"alpha": 0.5}, {"alpha": -2.0}],
    "Celu": [{"alpha": 0.5}],
    "Selu": [{"alpha": 2.0, "gamma": 3.0}],
    "LeakyRelu": [{"alpha": 0.5}, {"alpha": -1.0}, {"alpha": 0.0}],
    "ThresholdedRelu": [{"alpha": 0.0}, {"alpha": -1.5}, {"alpha": 2.5}],
    "HardSigmoid": [{"alpha": 0.5, "beta": 0.25}, {"alpha": 0.0, "beta": 0.5}, {"alpha": -1.0}],
    "Shrink": [{"bias": 1.5, "lambd": 1.5}, {"bias": 0.0, "lambd": 0.0}, {"lambd": -1.0}],
    "Gelu": [{"approximate": "tanh"}],
    "Swish": [{"alpha": 1.5}, {"alpha": 0.0}],
}
BINARY = {
    "Add": (F32, F64, *INTEGERS),
    "Sub": (F32, F64, *INTEGERS),
    "Mul": (F32, F64, *INTEGERS),
    "Div": (F32, F64, *INTEGERS),
    "Pow": (F32, F64, *WIDE),
    "Equal": (F32, F64, np.dtype(bool), *WIDE, np.dtype("uint8")),
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual"), (F32, F64, *INTEGERS)),
    **dict.fromkeys(("And", "Or", "Xor"), (np.dtype(bool),)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), INTEGERS),
    **dict.fromkeys(("Max", "Min"), (F32, F64, F16, *INTEGERS)),
    "PRelu": (F32,),
    "Sum": (F32, F64),
    "Mean": (F32, F64),
}


def elementwise(cases: Cases) -> None:
    for op in UNARY:
        cases.add(op, floats(F32))
        if op not in ("Erf", "Gelu"):  # which the package onnx computes in float32
            cases.add(op, floats(F64))
        for form in FORMS.get(op, []):
            cases.add(op, floats(F32), **form)
    for op in ("Abs", "Neg", "Relu", "Sqrt", "Exp", "Tanh", "Sigmoid", "Floor", "Sign", "IsNaN", "Elu", "Softplus"):
        cases.add(op, floats(F16))
    for op, kinds in {"Abs": INTEGERS, "Neg": SIGNED, "Sign": INTEGERS, "Relu": SIGNED, "BitwiseNot": INTEGERS}.items():
        for kind in kinds:
            cases.add(op, ends(kind))
    cases.add("Shrink", ends("int32"), bias=1.0, lambd=2.0)
    cases.add("ThresholdedRelu", floats(F32), opset=10)
    cases.add("Not", [False, True])
    for op, dtypes in BINARY.items():
        for dtype in dtypes:
            first, second = pairs(dtype)
            if op == "Div" and dtype.kind in "iu":  # ONNX leaves x / 0 and the overflow of min / -1 open
                second = np.where(second == 0, 1, second)
                if dtype.kind == "i":
                    second = np.where((second == -1) & (first == np.iinfo(dtype).min), 1, second)
                second = second.astype(dtype)
            if op == "Pow" and dtype.kind == "i":
                first, second = np.meshgrid(np.array([-3, -1, 0, 1, 2, 7], dtype), np.array([0, 1, 2, 3, 5], dtype))
            cases.add(op, first, second)
    for op in ("Max", "Min", "Sum", "Mean"):
        cases.add(op, floats())
        cases.add(op, *triples().T)
        cases.add(op, numbers(F32).reshape(-1, 1), few())
    for dtype in (F32, F64, F16):
        cases.add("Mod", *pairs(dtype), fmod=1)
    for dtype in INTEGERS:
        first, second = pairs(dtype)
        second = np.where(second == 0, 3, second)
        if dtype.kind == "i":
            second = np.where((second == -1) & (first == np.iinfo(dtype).min), 1, second)
        cases.add("Mod", first, second.astype(dtype))
        cases.add("Mod", first, second.astype(dtype), fmod=1)
    cases.add("Mod", *pairs(F32), opset=28)
    for dtype in UNSIGNED:
        x, by = np.meshgrid(ends(dtype), np.arange(dtype.itemsize * 8, dtype=dtype))
        cases.add("BitShift", x, by, direction="LEFT")
        cases.add("BitShift", x, by, direction="RIGHT")
    for exponent in (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, -0.5, -0.0, NAN, INF, -INF, 1e30, 1.0 / 3):
        cases.add("Pow", floats(F32), np.array(exponent, F32), held=[1])
    for base in (0.0, 1.0, -1.0, 2.0, -2.0, NAN, INF, -INF):
        cases.add("Pow", np.array(base, F32), floats(F32), held=[0])
    for kind in ("int32", "int64", "float64"):
        cases.add("Pow", floats(F32).reshape(-1, 1), np.array([-2, -1, 0, 1, 2, 3], kind))
    cases.add("Pow", np.array([4, 0, 1, 3], "int32").reshape(-1, 1), np.array([0, 0.5, 1, 2], F32))
    for divisor in (3.0, 49.0, 0.0, -0.0, INF, NAN, 1e-40, 3e38):
        cases.add("Div", floats(F32), np.array(divisor, F32), held=[1])
    cases.add("Div", floats(F32).reshape(1, -1), floats(F32).reshape(-1, 1))
    for divisor in (3, -7, 1):
        cases.add("Div", ends("int32"), np.array(divisor, "int32"), held=[1])
    cases.add("Where", np.array([True, False]).reshape(2, 1, 1), *pairs(F32))
    cases.add("Where", np.array([True, False]).reshape(2, 1, 1), *pairs("int64"))
    clipping(cases)
    casting(cases)


def clipping(cases: Cases) -> None:
    x = floats()
    for low, high in product((None, -1.0, 0.0, -0.0, NAN, -INF, 2.5), (None, 1.0, 0.0, NAN, INF, -3.0)):
        bounds = [None if v is None else np.array(v, F32) for v in (low, high)]
        cases.add("Clip", x, *bounds, held=[i + 1 for i, v in enumerate(bounds) if v is not None])
    cases.add("Clip", x, np.array(-1, F32), np.array(1, F32), more=[(x, F32.type(3), F32.type(-3))])
    cases.add("Clip", x, opset=6, min=-1.0, max=2.0)
    cases.add("Clip", x, opset=6)
    for kind in ("int8", "uint8", "int32", "int64"):
        cases.add("Clip", ends(kind), np.array(1, kind), np.array(2, kind))
        cases.add("Clip", ends(kind), None, np.array(2, kind))


def casting(cases: Cases) -> None:
    """What ONNX leaves open, floats beyond the range of integers, is left out."""
    kinds = (F32, F64, F16, np.dtype(bool), *INTEGERS)
    for source, target in product(kinds, kinds):
        x = numbers(source)
        if source.kind == "f" and target.kind in "iu":
            low, high = (float(v) for v in (np.iinfo(target).min, np.iinfo(target).max))
            with np.errstate(invalid="ignore"):
                whole = np.trunc(x.astype("f8"))
                x = x[(whole >= low) & (whole < high) & np.isfinite(x)]
        to = helper.np_dtype_to_tensor_dtype(target)
        cases.add("Cast", x, to=to)
        if source in (F32, WIDE[0]):
            cases.add("CastLike", x, np.zeros(1, target))
    cases.add("BitCast", floats(F32), to=TensorProto.INT32, opset=26)
    cases.add("BitCast", ends("int64"), to=TensorProto.DOUBLE, opset=26)
    cases.add("BitCast", ends("int16"), to=TensorProto.UINT16, opset=26)


REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
    *("ReduceLogSum", "ReduceLogSumExp"),
)


def reductions(cases: Cases) -> None:
    x = triples()
    for op in REDUCTIONS:
        for opset in (OPSET, 11):
            by: dict[str, Any] = {"opset": opset}

            def over(value: Any, axes: Any, by: dict[str, Any] = by, op: str = op, **attributes: Any) -> None:
                if axes is None or by["opset"] == 11:
                    cases.add(op, value, **attributes, **by, **({} if axes is None else {"axes": axes}))
                else:
                    cases.add(op, value, np.array(axes, np.int64), held=[1], **attributes, **by)

            over(x, [1])
            over(x, [-1], keepdims=0)
            over(x.T.copy(), [0])
        cases.add(op, triples(F64), np.array([1]), held=[1])
        cases.add(op, x.reshape(-1, 7, 3), np.array([0, -1]), held=[1], keepdims=0)
        cases.add(op, x[:1], more=[[row[None]] for row in x[1:40]])
        cases.add(op, floats().reshape(1, -1), noop_with_empty_axes=1)
        cases.add(op, x, np.zeros(0, np.int64), held=[1], noop_with_empty_axes=1)
        cases.add(op, np.zeros((0, 2), F32), np.array([0]), held=[1])
        for kind in WIDE if op not in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean") else ():
            values = numbers(kind) if op in ("ReduceMax", "ReduceMin", "ReduceSum") else [-3, -1, 0, 2]
            cases.add(op, triples(kind, values), np.array([1]), held=[1])
    for op in ("ReduceMax", "ReduceMin"):
        for kind in ("int8", "uint8"):
            cases.add(op, triples(kind), np.array([1]), held=[1])
        cases.add(op, triples(bool, [False, True]), np.array([1]), held=[1])
    for op, last, keep in product(("ArgMax", "ArgMin"), (0, 1), (0, 1)):
        cases.add(op, x, axis=1, select_last_index=last, keepdims=keep)
        cases.add(op, x.T.copy(), axis=0, select_last_index=last, keepdims=keep)
        cases.add(op, triples("int32"), axis=-1, select_last_index=last, keepdims=keep)
    for op in ("ArgMax", "ArgMin"):
        cases.add(op, triples(F64), axis=1)
        cases.add(op, np.tile(x, (1, 7)), axis=1)
        cases.add(op, x, axis=1, opset=11)
    for op, reverse, exclusive in product(("CumSum", "CumProd"), (0, 1), (0, 1)):
        opset = OPSET if op == "CumSum" else 26
        by = {"reverse": reverse, "exclusive": exclusive, "opset": opset, "held": [1]}
        cases.add(op, x, np.array(1, np.int32), **by)
        cases.add(op, x[:, :2].copy(), np.array(-1), **by)
        cases.add(op, x[:, :1].copy(), np.array(1), **by)
        cases.add(op, x.T.copy(), np.array(0), **by)
        cases.add(op, triples(F64), np.array(1), **by)
        cases.add(op, triples("int32"), np.array(1), **by)
        cases.add(op, triples("int64"), np.array(1), **by)
        cases.add(op, np.tile(x, (1, 7))[:, 3:], np.array(1), **by)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        cases.add(op, x)
        cases.add(op, x.T.copy(), axis=0)
        values = [-INF, 0.0, 1, -2.5, 700] if op == "LogSoftmax" else None
        cases.add(op, triples(F64, values), axis=-1)
        cases.add(op, np.tile(x, (1, 7)), axis=1)
        old = x[~np.isnan(x).any(axis=1)][:, None, :].copy()
        cases.add(op, old, opset=11, axis=1)
        cases.add(op, old, opset=11)
        cases.add(op, triples(F32, [3.3e38, -3.3e38, 0, 1e-45, 88.0]), axis=-1)
    for largest, k in product((0, 1), (1, 2, 3)):
        by = {"held": [1], "largest": largest, "outputs": 2}
        cases.add("TopK", x, np.array([k]), **by)
        cases.add("TopK", x.T.copy(), np.array([k]), axis=0, **by)
        cases.add("TopK", triples("int64"), np.array([k]), **by)
        cases.add("TopK", triples(F64), np.array([k]), **by)
        cases.add("TopK", np.tile(x, (1, 7)), np.array([k]), **by)
    cases.add("TopK", x, k=2, opset=1, outputs=2)


SLICES = (-(2**63), -5, -4, -3, -1, 0, 1, 2, 3, 5, 2**63 - 1)


def moving(cases: Cases) -> None:
    x = np.arange(6, dtype=F32).reshape(3, 2)
    for step in (1, 2, 5, 2**31, -1, -2, -5, -(2**31)):
        nodes, held = [], {"axes": np.array([0]), "steps": np.array([step])}
        held |= {f"v{i}": np.array([v]) for i, v in enumerate(SLICES)}
        for i, j in product(range(len(SLICES)), range(len(SLICES) - (step < 0))):  # "to the end" has a sign, too
            nodes.append(helper.make_node("Slice", ["x", f"v{i}", f"v{j}", "axes", "steps"], [f"y{i}_{j}"]))
        cases.together("Slice", nodes, {"x": x}, held, OPSET)
    nodes = [
        helper.make_node("Slice", ["x"], [f"y{i}"], starts=[a], ends=[b], axes=[0])
        for i, (a, b) in enumerate(product(SLICES, repeat=2))
    ]
    cases.together("Slice", nodes, {"x": x}, {}, 9)
    for first, last, step, length in ((0, 2, 1, 2), (-1, -3, -1, 2), (-9, 9, 2, 2), (-9, -10, -1, 1), (9, -9, -2, 2)):
        cases.add("Slice", x, [first], [last], [0], [step], outputs=[("y", TensorProto.FLOAT, [length, 2])])
    for k in (-(2**63), -4, -1, 0, 1, 4, 2**63 - 1):
        for upper in (0, 1):
            cases.add("Trilu", floats()[:9].reshape(3, 3), np.array(k), held=[1], upper=upper)
    for k in (-5, -1, 0, 2, 5):
        cases.add("EyeLike", x, k=k)
    for start, limit, delta in ((0, 5, 2), (5, 0, -2), (0, 5, -1), (3, 3, 1), (1, 2, 0.25)):
        kind = F32 if delta == 0.25 else np.dtype("int64")
        cases.add("Range", *[np.array(v, kind) for v in (start, limit, delta)], held=[0, 1, 2])
    table = few().reshape(3, 4)
    cases.add("Gather", table, np.array([[2, -3], [0, -1]]))
    cases.add("Gather", table, np.array([3, -4, 0], "int32"), axis=1)
    cases.add("GatherElements", table, np.array([[2, -3, 0, -1]]))
    cases.add("GatherElements", table, np.array([[3, -4], [0, -1], [1, 1]]), axis=-1)
    cases.add("GatherND", table, np.array([[2, -1], [-3, 0]]))
    cases.add("GatherND", table, np.array([[-1], [0], [-4]]), batch_dims=1)
    for mode in ("none", "add", "mul", "max", "min"):
        x_, y_ = pairs(F32)
        x_, y_ = (x_[1:, 1:], y_[1:, 1:]) if mode in ("max", "min") else (x_, y_)
        at = np.arange(x_.shape[1])[None, :].repeat(x_.shape[0], 0) - x_.shape[1]
        cases.add("ScatterElements", x_, at, y_, axis=1, reduction=mode)
        x_, y_ = pairs(F32)
        cases.add("ScatterND", x_, np.arange(x_.shape[0])[:, None], y_, reduction=mode)
        if mode != "none":  # of several for one place any may stay
            values = triples()[-49:]
            values = values[~np.isnan(values).any(axis=1)].T.copy()
            again, ones = np.zeros(values.shape, np.int64), np.ones((1, values.shape[1]), F32)
            cases.add("ScatterElements", ones, again, values, axis=0, reduction=mode)
        for kind in WIDE:
            a, b = pairs(kind)
            cases.add("ScatterND", a, np.arange(a.shape[0])[:, None] - a.shape[0], b, reduction=mode)
    cases.add("Scatter", table, np.array([[2, -3, 0, -1]]), few()[:4][None], opset=10)
    depth, values = np.array([3]), np.array([NAN, -0.0], F32)
    for axis in (-1, 0, 1):
        cases.add("OneHot", np.array([0, 2, 3, -1, -3, -4, 100]), depth, values, held=[1], axis=axis)
    cases.add("OneHot", np.array([0.0, 1.7, -0.5, -1.0, 2.5, 3.0], F32), depth, values, held=[1])
    cases.add("OneHot", ends("int32"), depth, values, held=[1])
    for mode, fill in (("constant", NAN), ("constant", -0.0), ("constant", INF), ("reflect", 0), ("edge", 0)):
        pads = np.array([1, 2, 0, 1])
        cases.add("Pad", table, pads, np.array(fill, F32), held=[1, 2], mode=mode)
    cases.add("Pad", table, np.array([0, 1, 2, 3]), mode="wrap", held=[1])
    cases.add("Pad", table, np.array([-1, 1, 0, -2]), np.array(NAN, F32), held=[1])
    cases.add("Pad", ends("int32"), np.array([2, 1]), np.array(-(2**31), "int32"), held=[1, 2])
    for kind in ("float32", "int64"):
        cases.add("Unique", numbers(kind, 1)[[0, 1, 2, 1, 2]], outputs=4, held=[0])
    flags = np.array([NAN, INF, 0, -0.0, 1e-45, 1], F32)
    cases.add("NonZero", flags, outputs=[("y", TensorProto.INT64, [1, 4])])
    cases.add("Compress", few()[:6], np.array([1, 0, 1, 1, 0, 0], bool), held=[1])
    sequences(cases)


def sequences(cases: Cases) -> None:
    """Sequences inside of a model: what is made of them is put together again."""
    one, other = few()[None, :6], few()[None, 6:]
    make, given = helper.make_node, {"a": one, "b": other}
    construct = make("SequenceConstruct", ["a", "b"], ["s"])
    joined = make("ConcatFromSequence", ["s"], ["y"], axis=0)
    place = {"i": np.array(-1)}

    def add(op: str, nodes: Any, held: dict[str, Array], kind: int = TensorProto.FLOAT, shape: Any = (2, 6)) -> None:
        model = model_of(nodes, given, held, [("y", kind, list(shape))], OPSET)
        cases.append(Case(f".{op} {len(cases)}", model, (given, {"a": other, "b": one})))

    add("SequenceConstruct", [construct, joined], {})
    add("ConcatFromSequence", [construct, make("ConcatFromSequence", ["s"], ["y"], axis=1)], {}, shape=(1, 12))
    new = make("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=1)
    add("ConcatFromSequence", [construct, new], {}, shape=(1, 6, 2))
    add("SequenceAt", [construct, make("SequenceAt", ["s", "i"], ["y"])], place, shape=(1, 6))
    erase = make("SequenceErase", ["s", "i"], ["t"])
    add("SequenceErase", [construct, erase, make("ConcatFromSequence", ["t"], ["y"], axis=0)], place, shape=(1, 6))
    add("SequenceLength", [construct, make("SequenceLength", ["s"], ["y"])], {}, TensorProto.INT64, ())
    empty = make("SequenceEmpty", [], ["e"])
    insert = [make("SequenceInsert", ["e", "a"], ["t"]), make("SequenceInsert", ["t", "b", "i"], ["u"])]
    add("SequenceInsert", [empty, *insert, make("ConcatFromSequence", ["u"], ["y"], axis=0)], place)
    add("SequenceEmpty", [empty, make("SequenceLength", ["e"], ["y"])], {}, TensorProto.INT64, ())
    get = make("OptionalGetElement", ["o"], ["y"])
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 6])
    add("Optional", [make("Optional", ["a"], ["o"], type=kind), get], {}, shape=(1, 6))
    has = make("OptionalHasElement", ["o"], ["y"])
    add("OptionalHasElement", [make("Optional", ["a"], ["o"], type=kind), has], {}, TensorProto.BOOL, ())

    split = [make("SplitToSequence", ["a", "i"], ["s"], axis=1), make("SequenceAt", ["s", "j"], ["y"])]
    add("SplitToSequence", split, {"i": np.array([1, 5]), "j": np.array(1)}, shape=(1, 5))
    add("SplitToSequence", split, {"i": np.array(4), "j": np.array(-1)}, shape=(1, 2))
    body = helper.make_graph(
        [make("Add", ["p", "q"], ["r"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6]) for name in "pq"],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 6])],
    )
    mapped = make("SequenceMap", ["s", "b"], ["t"], body=body)
    add("SequenceMap", [construct, mapped, make("ConcatFromSequence", ["t"], ["y"], axis=0)], {})


def windows(cases: Cases) -> None:
    """Pooling of special numbers by windows that overlap, and products of them."""
    row = np.concatenate([triples().reshape(-1)[:600], floats()])[None, None]
    whole = row[row > -INF][None, None]  # what a window of -inf or nan alone gives is each runtime's
    cases.add("MaxPool", row, kernel_shape=[2], answer=lambda x0: np.maximum(x0[..., 1:], x0[..., :-1]))
    corner = triples()[:, None, :]
    cases.add("GlobalMaxPool", corner, answer=lambda x0: np.max(x0, axis=-1, keepdims=True))
    for op in ("MaxPool", "AveragePool"):
        for form in ({}, {"pads": [1, 1]}, {"strides": [2], "ceil_mode": 1}, {"pads": [1, 0], "dilations": [2]}):
            cases.add(op, whole if op == "MaxPool" else row, kernel_shape=[2], **form)
    cases.add("MaxPool", whole, kernel_shape=[3], pads=[1, 1], outputs=2)
    cases.add("MaxPool", ends("int8")[None, None], kernel_shape=[2], pads=[1, 1])
    cases.add("AveragePool", row, kernel_shape=[2], pads=[1, 1], count_include_pad=1)
    for p in (1, 2, 3):
        cases.add("LpPool", row, kernel_shape=[2], p=p)
    corners = triples()[:, None, :]
    cases.add("GlobalMaxPool", corners[(corners > -INF).all(axis=(1, 2))])
    cases.add("GlobalAveragePool", corners)
    cases.add("GlobalLpPool", corners)
    cases.add("GlobalLpPool", corners, p=3)
    boxes = np.array([[0, 0, 0, 3, 3], [0, 2, 1, 5, 5]], F32)
    image = np.resize(few()[1:], (1, 1, 6, 6)).astype(F32)
    cases.add("MaxRoiPool", image, boxes, pooled_shape=[2, 2], spatial_scale=1.0)
    cases.add("MatMul", few()[:, None], few()[None])
    x, y = triples()[:, None, :], triples()[::-1, :, None].copy()
    cases.add("MatMul", x, y)
    cases.add("MatMul", x.astype(F64), y.astype(F64))
    cases.add("MatMul", *[v.astype("int32") for v in (triples("int32")[:, None, :], triples("int32")[::-1, :, None])])
    for alpha, beta in ((1.0, 1.0), (0.0, 1.0), (2.0, 0.0), (-1.0, 0.5)):
        cases.add("Gemm", few()[:, None], few()[None], few()[::-1].copy(), alpha=alpha, beta=beta)
    cases.add("Einsum", triples(), triples()[::-1].copy(), equation="ij,ij->i")
    for n in (1, 2, 3):
        cases.add("Det", np.resize(np.array([1, 2.5, -3, NAN, 0.5, 4, -1, 0, 7, 2, 1, -2, 3], F32), (40, n, n)))
    columns, block = np.resize(few(), (1, 8, 4)), np.array([2, 2])
    cases.add("Col2Im", columns, np.array([3, 3]), block, held=[1, 2])
    cases.add("Col2Im", columns[:, :4], np.array([2, 2]), block, held=[1, 2], pads=[1, 0, 0, 1])
    codes = {kind: ends(kind) for kind in ("uint8", "int8", "uint16", "int16", "int32")}
    for kind in ("uint8", "int8", "uint16", "int16"):
        for zero, scale in ((codes[kind][0], 0.5), (codes[kind][-1], 3.0), (codes[kind][2], 1e-40)):
            x = np.concatenate([ordinary(), np.array([INF, -INF, 0, -0.0, 3e38, -3e38, 0.25, -0.25, 63.75], F32)])
            cases.add("QuantizeLinear", x, np.array(scale, F32), np.array(zero, kind))
            cases.add("DequantizeLinear", codes[kind], np.array(scale, F32), np.array(zero, kind))
    cases.add("DequantizeLinear", codes["int32"], np.array(0.5, F32))
    for scale in (NAN, INF, 0.0, -1.0):
        cases.add("DequantizeLinear", codes["int8"], np.array(scale, F32), np.array(3, "int8"))
    for a, b in product(("uint8", "int8"), repeat=2):
        left, right = np.resize(codes[a], (5, 8)), np.resize(codes[b], (8, 6))
        zeros = np.array(codes[a][-1], a), np.array(codes[b][0], b)
        cases.add("MatMulInteger", left, right)
        cases.add("MatMulInteger", left, right, *zeros)
    weird = few()[:, None].repeat(3, 1)[:, :, None] * np.ones((1, 1, 2), F32)
    ones = np.ones(3, F32)
    for var in (ones, np.array([0, INF, NAN], F32), np.array([-1, 1e-45, 3e38], F32)):
        cases.add("BatchNormalization", weird, ones, ones, ones, var)
    for op in ("LpNormalization",):
        for p, axis in product((1, 2), (0, -1)):
            cases.add(op, triples(), p=p, axis=axis)
    cases.add("LayerNormalization", triples(), ones, ones)
    cases.add("RMSNormalization", triples(), ones, opset=23)
    cases.add("InstanceNormalization", triples()[:, None, :], ones[:1], ones[:1])
    cases.add("GroupNormalization", triples()[:, :, None], ones, ones, num_groups=1)
    cases.add("MeanVarianceNormalization", triples()[None], axes=[2])
    cases.add("LRN", np.resize(triples()[np.isfinite(triples())], (5, 3, 4, 2)), size=3)
    image, scales = np.resize(few(), (1, 1, 3, 5)), np.array([1, 1, 2, 3], F32)
    for how in ("asymmetric", "half_pixel", "align_corners"):
        cases.add("Resize", image, None, scales, held=[2], mode="nearest", coordinate_transformation_mode=how)
    cases.add("Dropout", floats(), outputs=2)


def learning(cases: Cases) -> None:
    """The operators of classical machine learning."""

    def add(op: str, *inputs: Any, kinds: Any = (TensorProto.FLOAT,), shapes: Any = None, **attributes: Any) -> None:
        shape = np.shape(inputs[0])
        shapes = shapes or [shape] * len(kinds)
        outputs = [(f"y{i}", kind, list(shape)) for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))]
        cases.add(op, *inputs, domain=ML, outputs=outputs, **attributes)

    x, integer = floats()[:36].reshape(-1, 3), TensorProto.INT64
    n = len(x)
    add("Scaler", x, offset=[0.0, INF, -1.0], scale=[1.0, 2.0, 0.0])
    add("Scaler", triples("int64"), offset=[0.5, 1.0, -1.0], scale=[1.0, 2.0, 3.0])
    for norm in ("MAX", "L1", "L2"):
        add("Normalizer", triples(), norm=norm)
    add("Imputer", x, imputed_value_floats=[7.0], replaced_value_float=NAN)
    add("Imputer", x, imputed_value_floats=[1.0, 2.0, NAN], replaced_value_float=0.0)
    add("Imputer", triples("int64"), kinds=[integer], imputed_value_int64s=[9], replaced_value_int64=-(2**63))
    for threshold in (0.0, -1.5, INF):
        add("Binarizer", x, threshold=threshold)
    add("ArrayFeatureExtractor", x, np.array([2, 0, 1, 2]), shapes=[(n, 4)], held=[1])
    add("FeatureVectorizer", x, x[:, :1], inputdimensions=[3, 1], shapes=[(n, 4)])
    add("OneHotEncoder", ends("int64"), cats_int64s=[0, -1, 2**63 - 1], shapes=[(len(ends("int64")), 3)])
    add("LabelEncoder", floats(), kinds=[integer], keys_floats=[0.0, 1.0, INF, NAN], values_int64s=[1, 2, 3, 4])
    add("LabelEncoder", ends("int64"), keys_int64s=[0, -1, -(2**63)], values_floats=[NAN, INF, -0.0], default_float=1.5)
    add("LinearRegressor", x, coefficients=[1.0, 0.0, -2.0], intercepts=[0.5], shapes=[(n, 1)])
    for post in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"):
        coefficients = [1.0, 0.5, -1.0, 0.25, 0.0, 2.0]
        data = ordinary().reshape(-1, 3) if post in ("SOFTMAX_ZERO", "PROBIT") else x
        if post != "PROBIT":
            add(
                "LinearClassifier",
                *(data,),
                kinds=[integer, TensorProto.FLOAT],
                shapes=[(len(data),), (len(data), 2)],
                coefficients=coefficients,
                intercepts=[0.0, 1.0],
                classlabels_ints=[5, 7],
                multi_class=1,
                post_transform=post,
            )
    vectors = {"support_vectors": [0.5, 1.0, -1.0, 2.0, 0.0, 1.0], "coefficients": [1.0, -0.5], "n_supports": 2}
    for kernel in ("LINEAR", "RBF", "SIGMOID", "POLY"):
        parameters = [0.25, 0.5, 2.0]
        # The support vectors of a linear kernel are added before anything is multiplied: infinities meet no others.
        rows = ordinary().reshape(-1, 3) if kernel == "LINEAR" else x
        options = {"kernel_type": kernel, "kernel_params": parameters, "rho": [0.125], **vectors}
        add("SVMRegressor", rows, shapes=[(len(rows), 1)], **options)
    classes = {"support_vectors": vectors["support_vectors"], "vectors_per_class": [1, 1], "classlabels_ints": [0, 1]}
    add(
        *("SVMClassifier", ordinary().reshape(-1, 3)),
        kinds=[integer, TensorProto.FLOAT],
        shapes=[(8,), (8, 2)],
        kernel_type="RBF",
        kernel_params=[0.25, 0.0, 3.0],
        coefficients=[1.0, -1.0],
        rho=[0.125],
        **classes,
    )
    trees(add)
    texts = {"cats_strings": ["a", "b"], "cats_int64s": [0, -1]}
    to_text = helper.make_node("CategoryMapper", ["x"], ["t"], domain=ML, default_string="?", **texts)
    to_number = helper.make_node("CategoryMapper", ["t"], ["y"], domain=ML, default_int64=-7, **texts)
    given = {"x": ends("int64")}
    outputs = [("y", integer, [len(given["x"])])]
    cases.append(Case(".CategoryMapper", model_of([to_text, to_number], given, {}, outputs, OPSET), (given,)))
    zipped = helper.make_node("ZipMap", ["x"], ["y"], domain=ML, classlabels_int64s=[4, 5, 6])
    model = model_of([zipped], {"x": triples()}, {}, [("y", TensorProto.FLOAT, [])], OPSET)
    maps = helper.make_map_type_proto(integer, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.output[0].CopyFrom(helper.make_value_info("y", helper.make_sequence_type_proto(maps)))
    cases.append(Case(".ZipMap", model, ({"x": triples()},)))
    gradients(cases)
    cases.add("Momentum", *step_inputs(3), domain="ai.onnx.preview.training", outputs=2, alpha=0.9, beta=0.5,
              mode="nesterov", norm_coefficient=0.01)  # fmt: skip
    cases.add("Adam", *step_inputs(4), domain="ai.onnx.preview.training", outputs=3)
    cases.add("Adagrad", *step_inputs(3), domain="ai.onnx.preview.training", outputs=2, epsilon=1e-3)


def gradients(cases: Cases) -> None:
    """The gradient of a product by its factors is each of them times what is in front."""
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["y"]),
        helper.make_node("Gradient", ["a", "b"], ["da", "db"], domain=TRAINING, xs=["a", "b"], y="y"),
    ]
    a, b = np.meshgrid(few(), few())
    outputs = [(name, TensorProto.FLOAT, list(a.shape)) for name in ("da", "db")]
    model = model_of(nodes, {"a": a, "b": b}, {}, outputs, OPSET)
    cases.append(Case(".Gradient", model, ({"a": a, "b": b},), lambda a, b: (b, a)))


def step_inputs(kinds: int) -> list[Array]:
    """A rate, a count, and a tensor with its gradient and states, of special numbers."""
    first, second = np.meshgrid(few(), few())
    return [np.array(0.1, F32), np.array(2), first, second, *[np.abs(first)] * (kinds - 2)]


def trees(add: Any) -> None:
    """A tree of two splits on numbers at, below and above their thresholds, nan and infinities."""
    x = np.concatenate([floats()[:36].reshape(-1, 2), [[NAN, 0.5], [0.5, NAN], [1.0, 0.5]]]).astype(F32)
    n = len(x)
    for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"):
        for missing in (0, 1):
            nodes: dict[str, Any] = {
                "nodes_treeids": [0] * 5,
                "nodes_nodeids": [0, 1, 2, 3, 4],
                "nodes_featureids": [0, 1, 0, 0, 0],
                "nodes_values": [1.0, 0.5, 0.0, 0.0, 0.0],
                "nodes_modes": [mode, mode, "LEAF", "LEAF", "LEAF"],
                "nodes_truenodeids": [1, 2, 0, 0, 0],
                "nodes_falsenodeids": [4, 3, 0, 0, 0],
                "nodes_missing_value_tracks_true": [missing] * 5,
            }
            add(
                *("TreeEnsembleRegressor", x),
                shapes=[(n, 1)],
                target_treeids=[0] * 3,
                target_nodeids=[2, 3, 4],
                target_ids=[0] * 3,
                target_weights=[1.0, 2.0, 4.0],
                n_targets=1,
                **nodes,
            )
    add(
        *("TreeEnsembleClassifier", x),
        kinds=[TensorProto.INT64, TensorProto.FLOAT],
        shapes=[(n,), (n, 2)],
        class_treeids=[0] * 3,
        class_nodeids=[2, 3, 4],
        class_ids=[0, 1, 0],
        class_weights=[1.0, 2.0, 4.0],
        classlabels_int64s=[3, 8],
        **nodes,
    )


def microsoft(cases: Cases) -> None:
    """onnxruntime's own operators, their numbers replaced by special ones."""
    from .test_microsoft import CASES, node

    for op in CASES:
        model, given = node(op, *CASES[op])
        cases.append(Case(f"{MICROSOFT}.{op}", model, (given,) if "Dynamic" in op else tuple(varied(given, 4))))
    for op in ("Gelu", "QuickGelu"):
        cases.add(op, floats(), domain=MICROSOFT, outputs=[("y", TensorProto.FLOAT, [len(floats())])])
    outputs = [("y", TensorProto.FLOAT, [len(floats()), 1])]
    for op in ("BiasGelu", "FastGelu"):
        cases.add(op, floats()[:, None], np.zeros(1, F32), domain=MICROSOFT, outputs=outputs)
    for kind in ("uint8", "int8"):
        scale, zero = np.array(0.25, F32), np.array(ends(kind)[2], kind)
        number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        made = [("y", number, [24])]
        cases.add("QuantizeLinear", ordinary(), scale, zero, domain=MICROSOFT, outputs=made)
        made = [("y", TensorProto.FLOAT, [len(ends(kind))])]
        cases.add("DequantizeLinear", ends(kind), scale, zero, domain=MICROSOFT, outputs=made)
        a, b = pairs(kind)
        made = [("y", number, list(a.shape))]
        for op in ("QLinearAdd", "QLinearMul"):
            inputs = (a, scale, zero, b, np.array(0.5, F32), zero, np.array(0.75, F32), zero)
            cases.add(op, *inputs, domain=MICROSOFT, outputs=made, held=[1, 2, 4, 5, 6, 7])
    matrix = np.array([[2, 1, 0], [0, 4, 1], [1, 0, 2]], F32)
    made = [("y", TensorProto.FLOAT, [3, 12])]
    solve = lambda x1: np.linalg.inv(matrix) @ x1  # noqa: E731
    cases.add("Solve", matrix, np.resize(few(), (3, 12)), domain=MICROSOFT, outputs=made, held=[0], answer=solve)


# ONNX's own tests, with other numbers.


def varied(given: dict[str, Array], times: int = 1) -> Iterator[dict[str, Array]]:
    """Inputs as they are, and again with special numbers in one of them, at one place or at many."""
    yield given
    rng = np.random.default_rng(sum(array.size for array in given.values()))
    for name, array in given.items():
        if array.dtype.kind != "f" or not array.size or array.dtype.itemsize < 4:
            continue
        info = np.finfo(array.dtype)
        for value in (NAN, INF, -INF, -0.0, info.smallest_subnormal, 0.0)[: 2 + 2 * times]:
            changed = array.copy().reshape(-1)
            changed[rng.integers(array.size)] = value
            yield given | {name: changed.reshape(array.shape)}
        changed = array.copy().reshape(-1)
        places = rng.random(array.size) < 0.3
        changed[places] = rng.choice(np.array([NAN, INF, -INF, 0.0, -0.0], array.dtype), int(places.sum()))
        yield given | {name: changed.reshape(array.shape)}


def own_tests() -> Iterator[Case]:
    """Some of ONNX's own tests of each operator: those whose names are furthest apart."""
    from .conformance import cases, model_and_sets, passing

    by_operator: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for name in sorted(passing()):
        if not name.startswith("node/") or name.endswith("_expanded") or "_expanded_" in name:
            continue
        model, sets = model_and_sets(cases()[name])
        nodes = model.graph.node
        last = nodes[-1]
        if (len(nodes) != 1 and last.op_type != "Gradient") or (last.domain, last.op_type) not in OPERATORS:
            continue
        tensors = [*model.graph.input, *model.graph.output]
        if any(
            i.type.WhichOneof("value") != "tensor_type" or not i.type.tensor_type.HasField("shape") for i in tensors
        ):
            continue
        inputs, answers = sets[0]
        if not all(
            isinstance(v, np.ndarray) and str(v.dtype) in DTYPES and v.size <= MOST for v in (*inputs, *answers)
        ):
            continue
        names = [i.name for i in model.graph.input]
        given = dict(zip(names, inputs, strict=True))
        by_operator[last.domain, last.op_type].append(
            Case(name, model, (given,) if {last.op_type, name} & AS_THEY_ARE else tuple(varied(given)))
        )
    for found in by_operator.values():
        step = max(len(found) / TESTS, 1.0)
        yield from [found[int(i * step)] for i in range(min(TESTS, len(found)))]


def all_cases() -> list[Case]:
    found = Cases()
    for family in (elementwise, reductions, moving, windows, learning, microsoft):
        family(found)
    return [*found, *own_tests()]
