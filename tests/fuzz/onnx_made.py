"""Random ONNX models: operators of the registry one after the other, each on values that it takes.

Values are known while a model grows, so that shapes and indices fit; what is drawn depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
OPSETS = (11, 13, 17, 18, 21)
FLOATS, INTEGERS = ("float32", "float64"), ("int64", "int32", "int8", "uint8")
MOST = 400  # elements of a value
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-40, 3e38, 1.0, -1.0)


class Unfit(Exception):
    """No value that is there fits an operator."""


@dataclass
class Model:
    """A model that was drawn, with two inputs to call it with: the second has special numbers."""

    seed: int
    opset: int
    nodes: list[onnx.NodeProto]
    trials: list[dict[str, Array]]
    constants: dict[str, Array]
    outputs: list[str]
    failures: list[str] = field(default_factory=list)


Draw = Callable[["Maker", str], None]
DRAWS: dict[str, Draw] = {}


def draws(*ops: str) -> Callable[[Draw], Draw]:
    """Enter how nodes of some operators are drawn."""

    def enter(draw: Draw) -> Draw:
        DRAWS.update(dict.fromkeys(ops, draw))
        return draw

    return enter


class Maker:
    """A model in the making: its nodes, its values on the first trial, and ``run``, which computes a node."""

    def __init__(self, seed: int, run: Callable[[onnx.NodeProto, int, dict[str, Array]], list[Array]]) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.run = run
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}

    # Numbers.

    def choice(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def number(self, low: int, high: int) -> int:
        """One of low, .., high."""
        return int(self.rng.integers(low, high + 1))

    def array(self, shape: Any, dtype: Any = "float32", special: float = 0.0) -> Array:
        kind = np.dtype(dtype)
        if kind.kind == "f":
            found = (self.rng.standard_normal(shape) * self.choice(0.3, 1.0, 4.0)).astype(kind)
            found = np.rint(found) if self.chance(0.2) else found
            places = self.rng.random(shape) < special
            return np.where(places, self.rng.choice(np.array(SPECIAL, kind), shape), found).astype(kind)
        if kind.kind == "b":
            return self.rng.random(shape) < 0.5
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        found = self.rng.integers(max(low, -9), 10, shape)
        places = self.rng.random(shape) < special
        return np.where(places, self.rng.choice(np.array([low, high, 0, 1], kind), shape), found).astype(kind)

    def shape(self, ranks: tuple[int, int] = (0, 4)) -> tuple[int, ...]:
        return tuple(self.number(1, 5) for _ in range(self.number(*ranks)))

    # Values.

    def pick(self, kinds: str = "f", ranks: tuple[int, int] = (0, 6), fits: Any = None, dtypes: Any = None) -> str:
        """The name of a value of certain kinds of dtype."""
        names = [
            name
            for name, v in self.values.items()
            if v.size
            and v.dtype.kind in kinds
            and ranks[0] <= v.ndim <= ranks[1]
            and (dtypes is None or str(v.dtype) in dtypes)
            and (fits is None or fits(v))
        ]
        if not names:
            raise Unfit
        return names[int(len(names) * self.rng.random() ** 0.6)]  # rather a later one

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = np.asarray(value, dtype)
        return name

    def beside(self, name: str, special: float = 0.1) -> str:
        """A value that broadcasts with another one: one that is there, or a constant."""
        value = self.values[name]
        if self.chance(0.5):
            others = [n for n, v in self.values.items() if v.dtype == value.dtype and broadcasts(v.shape, value.shape)]
            if not others:
                raise Unfit
            return self.choice(*others)
        shape = [self.choice(n, 1) for n in value.shape][self.number(0, value.ndim) :]
        return self.constant(self.array(tuple(shape), value.dtype, special))

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> None:
        """A node, if it can be computed and gives something to compare."""
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, made, **{k: v for k, v in attributes.items() if v is not None})
        found = self.run(node, self.opset, {n: self.values[n] for n in inputs if n})
        if any(not 0 < value.size <= MOST or value.ndim > 6 for value in found):
            raise Unfit
        self.nodes.append(node)
        self.values |= dict(zip(made, found, strict=True))

    def axis(self, value: Array) -> int:
        if not value.ndim:
            raise Unfit
        return self.number(-value.ndim, value.ndim - 1)


def broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(*shapes))) <= MOST
    except ValueError:
        return False


def make(seed: int, run: Any) -> Model:
    """The random model of a seed."""
    maker = Maker(seed, run)
    for i in range(maker.number(1, 3)):
        dtype = maker.choice("float32", "float32", "float32", "float64", *INTEGERS, "bool")
        maker.inputs[f"x{i}"] = maker.values[f"x{i}"] = maker.array(maker.shape(), dtype, maker.choice(0, 0, 0.1))
    names, wanted = sorted(DRAWS), maker.number(2, 8)
    for _ in range(20 * wanted):
        if len(maker.nodes) == wanted:
            break
        op = maker.choice(*names)
        before = dict(maker.constants)
        try:
            DRAWS[op](maker, op)
        except Unfit:
            for name in set(maker.constants) - set(before):
                del maker.constants[name], maker.values[name]
    used = {name for node in maker.nodes for name in node.input}
    outputs = [name for node in maker.nodes for name in node.output if name not in used or maker.chance(0.2)]
    second = {name: maker.array(v.shape, v.dtype, 0.25) for name, v in maker.inputs.items()}
    constants = {name: value for name, value in maker.constants.items() if name in used}
    return Model(seed, maker.opset, maker.nodes, [maker.inputs, second], constants, outputs)


def info(name: str, array: Array) -> onnx.ValueInfoProto:
    """What a file says of an array."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def proto(model: Model, values: dict[str, Array]) -> onnx.ModelProto:
    """The file of a model; ``values`` say the types of its outputs."""

    graph = helper.make_graph(
        model.nodes,
        "g",
        [info(name, array) for name, array in model.trials[0].items()],
        [info(name, values[name]) for name in model.outputs],
        [numpy_helper.from_array(array, name) for name, array in model.constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", model.opset)], ir_version=8)


# Operators.


UNARY = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log"),
    *("Reciprocal", "Round", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
)


@draws(*UNARY, "IsNaN")
def unary(m: Maker, op: str) -> None:
    m.add(op, m.pick("f", dtypes=("float32",) if op == "Erf" else None))  # the package onnx has it in float32 only


@draws("Elu", "LeakyRelu", "ThresholdedRelu", "Selu", "Celu", "HardSigmoid", "Shrink", "Gelu", "Mish", "HardSwish")
def activation(m: Maker, op: str) -> None:
    if m.opset < {"Celu": 12, "Gelu": 20, "Mish": 18, "HardSwish": 14}.get(op, 0):
        raise Unfit
    attributes: dict[str, Any] = {}
    if op in ("Elu", "LeakyRelu", "ThresholdedRelu", "Celu", "HardSigmoid") and m.chance(0.7):
        attributes["alpha"] = m.choice(0.5, 0.25, 1.5)
    if op == "Shrink":
        attributes = {"bias": m.choice(0.0, 0.5), "lambd": m.choice(0.5, 1.0)}
    if op == "Gelu":
        attributes = {"approximate": m.choice("none", "tanh")}
    m.add(op, m.pick("f", dtypes=("float32",)), **attributes)


@draws("Abs", "Neg", "Sign", "Relu", "Identity", "Dropout", "Not", "IsInf")
def simple(m: Maker, op: str) -> None:
    kinds = {"Neg": "fi", "Relu": "f", "Identity": "fiub", "Dropout": "f", "Not": "b", "IsInf": "f"}.get(op, "fiu")
    more = {"detect_negative": m.choice(0, 1), "detect_positive": m.choice(0, 1)} if op == "IsInf" else {}
    m.add(op, m.pick(kinds), **more)


@draws("Add", "Sub", "Mul", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod")
def arithmetic(m: Maker, op: str) -> None:
    if op.endswith("OrEqual") and m.opset < 12:
        raise Unfit
    x = m.pick("fi", dtypes=("float32", "float64", "int32", "int64"))
    pair = (x, m.beside(x)) if m.chance(0.7) else (m.beside(x), x)
    m.add(op, *pair, **({"fmod": 1 if m.values[x].dtype.kind == "f" else m.choice(0, 1)} if op == "Mod" else {}))


@draws("Pow")
def power(m: Maker, op: str) -> None:
    x = m.pick("f")
    exponent = m.constant(m.choice(0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -0.5, 1.7), m.values[x].dtype)
    m.add(op, x, exponent if m.chance(0.6) else m.beside(x))


@draws("And", "Or", "Xor")
def logic(m: Maker, op: str) -> None:
    x = m.pick("b")
    m.add(op, x, m.beside(x))


@draws("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
def bits(m: Maker, op: str) -> None:
    if m.opset < 18 and op != "BitShift":
        raise Unfit
    x = m.pick("u" if op == "BitShift" else "iu")
    if op == "BitwiseNot":
        return m.add(op, x)
    if op == "BitShift":
        by = m.constant(m.rng.integers(0, 8, m.values[x].shape), m.values[x].dtype)
        return m.add(op, x, by, direction=m.choice("LEFT", "RIGHT"))
    return m.add(op, x, m.beside(x))


@draws("Max", "Min", "Sum", "Mean")
def variadic(m: Maker, op: str) -> None:
    x = m.pick("f" if op in ("Sum", "Mean") or m.opset < 12 else "fi", dtypes=(*FLOATS, "int32", "int64"))
    others = [m.beside(x) for _ in range(m.number(0, 2))]
    if not broadcasts(*[m.values[name].shape for name in (x, *others)]):
        raise Unfit
    m.add(op, x, *others)


@draws("Where")
def where(m: Maker, op: str) -> None:
    condition, x = m.pick("b"), m.pick("fi", dtypes=(*FLOATS, "int64", "int32"))
    if not broadcasts(m.values[condition].shape, m.values[x].shape):
        raise Unfit
    m.add(op, condition, x, m.constant(m.array((), m.values[x].dtype, 0.3)))


@draws("Clip")
def clip(m: Maker, op: str) -> None:
    x = m.pick("f")
    ends = [m.constant(v, m.values[x].dtype) if m.chance(0.8) else "" for v in m.choice((-1, 1), (0, 6), (2, -2))]
    m.add(op, x, *ends)


@draws("PRelu")
def prelu(m: Maker, op: str) -> None:
    x = m.pick("f", (1, 4), dtypes=("float32",))
    slope = m.array(tuple(m.choice(n, 1) for n in m.values[x].shape[-m.number(1, m.values[x].ndim) :]), "float32")
    m.add(op, x, m.constant(slope))


@draws("Cast")
def cast(m: Maker, op: str) -> None:
    to = m.choice("float32", "float64", "int64", "int32", "bool", "uint8", "float32")
    m.add(op, m.pick("fiub"), to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
)


@draws(*REDUCTIONS)
def reduction(m: Maker, op: str) -> None:
    x = m.pick("f" if op != "ReduceSum" else "fi", (1, 5), dtypes=(*FLOATS, "int32", "int64"))
    rank = m.values[x].ndim
    axes = sorted({int(a) for a in m.rng.integers(0, rank, m.number(1, 2))})
    axes = [a - rank if m.chance(0.3) else a for a in axes]
    keep = m.choice(0, 1)
    if m.chance(0.2):
        m.add(op, x, keepdims=keep)
    elif m.opset >= (13 if op == "ReduceSum" else 18):
        m.add(op, x, m.constant(axes, "int64"), keepdims=keep)
    else:
        m.add(op, x, axes=axes, keepdims=keep)


@draws("ArgMax", "ArgMin")
def arg_extreme(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 5), dtypes=("float32", "int32"))
    more = {"select_last_index": m.choice(0, 1)} if m.opset >= 12 else {}
    m.add(op, x, axis=m.axis(m.values[x]), keepdims=m.choice(0, 1), **more)


@draws("Softmax", "LogSoftmax", "Hardmax")
def normalized(m: Maker, op: str) -> None:
    x = m.pick("f", (1, 4), dtypes=("float32",))
    m.add(op, x, axis=m.axis(m.values[x]))


@draws("CumSum")
def cumulative(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 4), dtypes=(*FLOATS, "int32", "int64"))
    m.add(op, x, m.constant(m.axis(m.values[x]), "int64"), exclusive=m.choice(0, 1), reverse=m.choice(0, 1))


@draws("TopK")
def top_k(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 4), dtypes=("float32", "float64", "int64"))
    axis = m.axis(m.values[x])
    count = m.constant([m.number(1, m.values[x].shape[axis])], "int64")
    m.add(op, x, count, axis=axis, largest=m.choice(0, 1), outputs=2)


@draws("Transpose")
def transpose(m: Maker, op: str) -> None:
    x = m.pick("fiub", (1, 5))
    m.add(op, x, perm=None if m.chance(0.2) else [int(i) for i in m.rng.permutation(m.values[x].ndim)])


@draws("Reshape")
def reshape(m: Maker, op: str) -> None:
    x = m.pick("fiub")
    left, target = m.values[x].size, []
    while left > 1 and len(target) < 4:
        part = m.choice(*[d for d in range(1, left + 1) if left % d == 0])
        target.append(part)
        left //= part
    target += [left] if left > 1 or not target else []
    if m.chance(0.4):
        target[m.number(0, len(target) - 1)] = -1
    m.add(op, x, m.constant(target, "int64"))


@draws("Flatten")
def flatten(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 5))
    m.add(op, x, axis=m.number(0, m.values[x].ndim))


@draws("Squeeze", "Unsqueeze")
def squeeze(m: Maker, op: str) -> None:
    if op == "Squeeze":
        x = m.pick("fiub", (1, 6), lambda v: 1 in v.shape)
        axes = [m.choice(*[i for i, n in enumerate(m.values[x].shape) if n == 1])]
    else:
        x = m.pick("fiub", (0, 4))
        axes = [m.number(-m.values[x].ndim - 1, m.values[x].ndim)]
    if m.opset >= 13:
        m.add(op, x, m.constant(axes, "int64"))
    else:
        m.add(op, x, axes=[a % (m.values[x].ndim + (op == "Unsqueeze")) for a in axes])


@draws("Concat")
def concat(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 4))
    value, axis = m.values[x], m.axis(m.values[x])
    shape = list(value.shape)
    shape[axis] = m.number(1, 3)
    y = m.constant(m.array(tuple(shape), value.dtype, 0.1))
    m.add(op, *m.choice((x, x), (x, y), (y, x, x)), axis=axis)


@draws("Split")
def split(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 4), lambda v: max(v.shape) > 1)
    value = m.values[x]
    axis = m.choice(*[i for i, n in enumerate(value.shape) if n > 1])
    first = m.number(1, value.shape[axis] - 1)
    sizes = [first, value.shape[axis] - first]
    if m.opset >= 13:
        m.add(op, x, m.constant(sizes, "int64"), axis=axis, outputs=2)
    else:
        m.add(op, x, axis=axis, split=sizes, outputs=2)


@draws("Slice")
def slice_(m: Maker, op: str) -> None:
    x = m.pick("fiub", (1, 4))
    rank = m.values[x].ndim
    axes = [int(a) for a in m.rng.permutation(rank)[: m.number(1, rank)]]
    steps = [m.choice(1, 1, 2, -1, -2, -1) for _ in axes]
    starts = [m.choice(0, 1, -1, -9, 9, -2) for _ in axes]
    ends = [m.choice(2**31 - 1, 9, -1, 3) if s > 0 else m.choice(-(2**31), -9, 0, 1) for s in steps]
    m.add(op, x, *[m.constant(v, "int64") for v in (starts, ends, axes, steps)])


@draws("Gather", "GatherElements")
def gather(m: Maker, op: str) -> None:
    x = m.pick("fiu", (1, 4))
    axis = m.axis(m.values[x])
    length = m.values[x].shape[axis]
    if op == "Gather":
        shape = m.shape((0, 2))
    else:
        shape = tuple(m.number(1, 4) if i == axis % m.values[x].ndim else n for i, n in enumerate(m.values[x].shape))
    m.add(op, x, m.constant(m.rng.integers(-length, length, shape), "int64"), axis=axis)


@draws("GatherND")
def gather_nd(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 4))
    depth = m.number(1, m.values[x].ndim)
    columns = [m.rng.integers(-n, n, 3) for n in m.values[x].shape[:depth]]
    m.add(op, x, m.constant(np.stack(columns, -1), "int64"))


@draws("ScatterElements", "ScatterND")
def scatter(m: Maker, op: str) -> None:
    x = m.pick("f", (1, 3), dtypes=("float32",))
    value = m.values[x]
    mode = {"reduction": m.choice("none", "add", "mul")} if m.opset >= 16 else {}
    if op == "ScatterND":
        rows = m.rng.permutation(value.shape[0])[: m.number(1, value.shape[0])]
        updates = m.array((len(rows), *value.shape[1:]), value.dtype, 0.1)
        return m.add(op, x, m.constant(rows[:, None], "int64"), m.constant(updates), **mode)
    axis = m.axis(value)
    rows = np.argsort(m.rng.random(value.shape), axis=axis)
    updates = m.array(value.shape, value.dtype, 0.1)
    return m.add(op, x, m.constant(rows, "int64"), m.constant(updates), axis=axis, **mode)


@draws("Expand", "Tile")
def expand(m: Maker, op: str) -> None:
    x = m.pick("fiu", (1, 3) if op == "Tile" else (0, 3))
    shape = m.values[x].shape
    if op == "Tile":
        return m.add(op, x, m.constant([m.number(1, 3) for _ in shape], "int64"))
    target = [m.number(1, 3) for _ in range(m.number(0, 1))] + [m.number(1, 4) if n == 1 else n for n in shape]
    return m.add(op, x, m.constant(target, "int64"))


@draws("Pad")
def pad(m: Maker, op: str) -> None:
    x = m.pick("fi", (1, 4), dtypes=(*FLOATS, "int64", "int32"))
    value, mode = m.values[x], m.choice("constant", "constant", "edge", "reflect")
    most = [2 if mode != "reflect" else min(2, n - 1) for n in value.shape]
    low = 0 if mode != "constant" else -1 if min(value.shape) > 2 else 0
    amounts = [m.number(min(low, k), k) for k in (*most, *most)]
    fill = [m.constant(m.array((), value.dtype, 0.3))] if mode == "constant" and m.chance(0.6) else []
    m.add(op, x, m.constant(amounts, "int64"), *fill, mode=mode)


@draws("MatMul")
def matmul(m: Maker, op: str) -> None:
    x = m.pick("f", (1, 4))
    value = m.values[x]
    w = m.array((value.shape[-1], m.number(1, 6)), value.dtype)
    m.add(op, x, m.constant(w if m.chance(0.8) else w[:, 0]))


@draws("Gemm")
def gemm(m: Maker, op: str) -> None:
    x = m.pick("f", (2, 2))
    (rows, inner), dtype = m.values[x].shape, m.values[x].dtype
    turned, other = m.choice(0, 1), m.choice(0, 1)
    rows, inner = (inner, rows) if turned else (rows, inner)
    columns = m.number(1, 5)
    w = m.constant(m.array((columns, inner) if other else (inner, columns), dtype))
    bias = [m.constant(m.array(m.choice((), (columns,), (rows, 1), (rows, columns)), dtype))] if m.chance(0.7) else []
    alpha, beta = m.choice(1.0, 0.5, 2.0), m.choice(1.0, 0.25)
    m.add(op, x, w, *bias, alpha=alpha, beta=beta, transA=turned, transB=other)


def image(m: Maker, channels: int = 1) -> str:
    return m.pick("f", (3, 4), lambda v: v.shape[1] % channels == 0, dtypes=("float32",))


@draws("Conv", "ConvTranspose")
def conv(m: Maker, op: str) -> None:
    groups = m.choice(1, 1, 2)
    x = image(m, groups)
    value = m.values[x]
    n, inputs = value.ndim - 2, value.shape[1]
    kernel = [m.number(1, min(3, k)) for k in value.shape[2:]]
    filters = groups * m.number(1, 3)
    shape = (filters, inputs // groups) if op == "Conv" else (inputs, filters // groups)
    pads = [m.number(0, (k - 1) // 2) for k in kernel] * 2
    strides, dilations = [m.number(1, 2) for _ in range(n)], [1] * n
    bias = [m.constant(m.array((filters,)))] if m.chance(0.6) else []
    w = m.constant(m.array((*shape, *kernel)))
    m.add(op, x, w, *bias, group=groups, kernel_shape=kernel, pads=pads, strides=strides, dilations=dilations)


@draws("MaxPool", "AveragePool", "LpPool")
def pool(m: Maker, op: str) -> None:
    x = image(m)
    spatial = m.values[x].shape[2:]
    kernel = [m.number(1, min(3, k)) for k in spatial]
    more: dict[str, Any] = {}
    if op == "AveragePool":
        more["count_include_pad"] = m.choice(0, 1)
    if op == "LpPool":
        more["p"] = m.choice(1, 2)
    pads = [m.number(0, (k - 1) // 2) for k in kernel] * 2
    m.add(op, x, kernel_shape=kernel, pads=pads, strides=[m.number(1, 2) for _ in spatial], **more)


@draws("GlobalAveragePool", "GlobalMaxPool")
def whole_pool(m: Maker, op: str) -> None:
    m.add(op, m.pick("f", (4, 4), dtypes=("float32",)))


@draws("BatchNormalization", "InstanceNormalization")
def channel_norm(m: Maker, op: str) -> None:
    x = image(m)
    count = m.values[x].shape[1]
    scale, bias, mean = (m.constant(m.array((count,))) for _ in range(3))
    epsilon = m.choice(1e-5, 1e-2)
    if op == "InstanceNormalization":
        return m.add(op, x, scale, bias, epsilon=epsilon)
    return m.add(op, x, scale, bias, mean, m.constant(np.abs(m.array((count,))) + 0.1, "float32"), epsilon=epsilon)


@draws("LayerNormalization")
def layer_norm(m: Maker, op: str) -> None:
    if m.opset < 17:
        raise Unfit
    x = m.pick("f", (1, 4), dtypes=("float32",))
    axis = m.axis(m.values[x])
    shape = m.values[x].shape[axis % m.values[x].ndim :]
    m.add(op, x, m.constant(m.array(shape)), *([m.constant(m.array(shape))] if m.chance(0.6) else []), axis=axis)


@draws("LpNormalization", "MeanVarianceNormalization", "LRN")
def norm(m: Maker, op: str) -> None:
    x = m.pick("f", (4, 4) if op != "LpNormalization" else (1, 4), dtypes=("float32",))
    if op == "LpNormalization":
        m.add(op, x, axis=m.axis(m.values[x]), p=m.choice(1, 2))
    elif op == "LRN":
        m.add(op, x, size=m.choice(1, 3), alpha=0.1, bias=1.5)
    else:
        m.add(op, x, axes=m.choice([0, 2, 3], [2, 3], [1]))


@draws("OneHot")
def one_hot(m: Maker, op: str) -> None:
    x = m.pick("i", (0, 3), dtypes=("int64",))
    depth, values = m.constant([m.number(1, 4)], "int64"), m.constant(m.array((2,), "float32", 0.2))
    m.add(op, x, depth, values, axis=m.number(-1, m.values[x].ndim))


@draws("Trilu", "EyeLike")
def triangle(m: Maker, op: str) -> None:
    if op == "Trilu" and m.opset < 14:
        raise Unfit
    x = m.pick("f", (2, 4) if op == "Trilu" else (2, 2), dtypes=(*FLOATS, "int64"))
    k = m.choice(0, 1, -1, 3, -3, 9)
    if op == "EyeLike":
        m.add(op, x, k=k)
    else:
        m.add(op, x, m.constant(k, "int64"), upper=m.choice(0, 1))


@draws("Shape", "Size")
def shape_of(m: Maker, op: str) -> None:
    x = m.pick("fiub", (1, 6))
    more = {"start": m.choice(0, 1, -1), "end": m.choice(1, 9, -1)} if op == "Shape" and m.opset >= 15 else {}
    m.add(op, x, **more)


@draws("DepthToSpace", "SpaceToDepth")
def depth(m: Maker, op: str) -> None:
    fits = (lambda v: v.shape[1] == 4) if op == "DepthToSpace" else (lambda v: v.shape[2] % 2 == v.shape[3] % 2 == 0)
    x = m.pick("f", (4, 4), fits, dtypes=("float32",))
    m.add(op, x, blocksize=2, **({"mode": m.choice("DCR", "CRD")} if op == "DepthToSpace" else {}))


@draws("Resize")
def resize(m: Maker, op: str) -> None:
    x = m.pick("f", (3, 4), dtypes=("float32",))
    scales = m.constant([1, 1, *[m.choice(1, 2, 3) for _ in m.values[x].shape[2:]]], "float32")
    how = m.choice("half_pixel", "asymmetric", "align_corners")
    m.add(op, x, "", scales, mode=m.choice("nearest", "linear"), coordinate_transformation_mode=how)


@draws("Einsum")
def einsum(m: Maker, op: str) -> None:
    if m.opset < 12:
        raise Unfit
    x = m.pick("f", (2, 2))
    y = m.constant(m.array((m.values[x].shape[1], m.number(1, 4)), m.values[x].dtype))
    m.add(op, x, y, equation=m.choice("ij,jk->ik", "ij,jk->ki", "ij,jk->i", "ij,jk"))


@draws("ReverseSequence")
def reverse_sequence(m: Maker, op: str) -> None:
    x = m.pick("f", (2, 4))
    time, batch = m.choice((0, 1), (1, 0))
    value = m.values[x]
    lengths = m.rng.integers(1, value.shape[time] + 1, value.shape[batch])
    m.add(op, x, m.constant(lengths, "int64"), time_axis=time, batch_axis=batch)


@draws("QuantizeLinear", "DequantizeLinear")
def quantize(m: Maker, op: str) -> None:
    scale = m.constant(m.choice(0.1, 0.5, 0.03), "float32")
    if op == "QuantizeLinear":
        kind = m.choice("uint8", "int8")
        m.add(op, m.pick("f", dtypes=("float32",)), scale, m.constant(m.number(0, 100), kind))
    else:
        x = m.pick("iu", dtypes=("uint8", "int8"))
        m.add(op, x, scale, m.constant(m.number(0, 100), m.values[x].dtype))


@draws("RNN", "GRU", "LSTM")
def recurrent(m: Maker, op: str) -> None:
    x = m.pick("f", (3, 3), dtypes=("float32",))
    gates, hidden, inputs = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], m.number(1, 3), m.values[x].shape[2]
    direction = m.choice("forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    w, r = m.array((d, gates * hidden, inputs)), m.array((d, gates * hidden, hidden))
    bias = [m.constant(m.array((d, 2 * gates * hidden)))] if m.chance(0.7) else []
    more = {"linear_before_reset": m.choice(0, 1)} if op == "GRU" else {}
    arguments = (x, m.constant(w), m.constant(r), *bias)
    m.add(op, *arguments, outputs=3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction, **more)
