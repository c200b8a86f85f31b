"""Models in which the data decide a length: a detector's head, and random uses of what was counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

Inputs = dict[str, Any]
SEEDS = range(14)
ROWS = (0, 1, 2, 7, 30)


class Maker:
    """Nodes in a row, with names of their own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[bytes, str] = {}

    def add(self, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; inputs that are no names become constants."""
        names = [name if isinstance(name, str) else self.constant(np.asarray(name)) for name in inputs]
        given = [f"{op.lower()}{len(self.nodes)}{'abcd'[i] if outputs > 1 else ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, given, name=f"{op}{len(self.nodes)}", **attributes))
        return given if outputs > 1 else given[0]

    def constant(self, array: Any) -> str:
        """Return the name of a constant."""
        proto = numpy_helper.from_array(array)
        key = proto.SerializeToString()
        if key not in self.constants:
            self.constants[key] = f"constant{len(self.constants)}"
            self.nodes.append(helper.make_node("Constant", [], [self.constants[key]], value=proto))
        return self.constants[key]

    def model(self, inputs: dict[str, list[Any]], outputs: dict[str, tuple[int, list[Any]]]) -> onnx.ModelProto:
        """Return the model; all inputs are float32."""
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        wanted = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()]
        graph = helper.make_graph(self.nodes, "counted", given, wanted)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def detector(classes: int = 3, kept: int = 5) -> onnx.ModelProto:
    """Scores over a threshold, boxes that are not too small, those that overlap suppressed class by class, the best."""
    m, first, second = Maker(), np.array([0]), np.array([1])
    scores = m.add("Reshape", m.add("Softmax", "logits", axis=1), np.array([-1]))
    places = m.add("Squeeze", m.add("NonZero", m.add("Greater", scores, np.float32(0.3))), first)
    rows, labels = m.add("Div", places, np.array(classes)), m.add("Mod", places, np.array(classes))
    scores = m.add("Gather", scores, places)
    boxes = m.add("Clip", m.add("Gather", "boxes", rows), np.float32(0), np.float32(100))
    x0, y0, x1, y1 = m.add("Split", boxes, np.ones(4, np.int64), outputs=4, axis=1)
    wide, tall = (m.add("GreaterOrEqual", m.add("Sub", b, a), np.float32(0.01)) for a, b in ((x0, x1), (y0, y1)))
    large = m.add("Squeeze", m.add("NonZero", m.add("Squeeze", m.add("And", wide, tall), second)), first)
    boxes, scores, labels = (m.add("Gather", value, large) for value in (boxes, scores, labels))
    step = m.add("Add", m.add("ReduceMax", boxes, keepdims=0), np.float32(1))
    offsets = m.add("Mul", m.add("Cast", labels, to=TensorProto.FLOAT), step)
    apart = m.add("Unsqueeze", m.add("Add", boxes, m.add("Unsqueeze", offsets, second)), first)
    batched, overlap = m.add("Unsqueeze", scores, np.array([0, 1])), np.array([0.5], np.float32)
    chosen = m.add("NonMaxSuppression", apart, batched, np.array([2**40]), overlap)
    places = m.add("Squeeze", m.add("Slice", chosen, np.array([2]), np.array([3]), second), second)
    best = m.add("Slice", places, first, np.array([kept]), first)
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64)
    found = [m.add("Gather", value, best) for value in (boxes, scores, labels)]
    shapes = (["kept", 4], ["kept"], ["kept"])
    outputs = dict(zip(found, zip(kinds, shapes, strict=True), strict=True))
    return m.model({"logits": ["n", classes], "boxes": ["n", 4]}, outputs)


def detector_inputs(rows: int, classes: int = 3) -> Inputs:
    """Return boxes of which many overlap, and scores."""
    rng = np.random.default_rng(rows)
    corner, size = rng.uniform(0, 90, (rows, 2)), rng.uniform(0, 30, (rows, 2))
    boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
    return {"logits": (rng.normal(size=(rows, classes)) * 2).astype(np.float32), "boxes": boxes}


def _nonzero(m: Maker) -> str:
    places = m.add("NonZero", m.add("Greater", "s", np.float32(0.2)))
    return str(m.add("Gather", "x", m.add("Squeeze", places, np.array([0])), axis=0))


def _places(m: Maker) -> str:
    places = m.add("Transpose", m.add("NonZero", m.add("Greater", "x", np.float32(0.8))), perm=[1, 0])
    column = m.add("Unsqueeze", m.add("GatherND", "x", places), np.array([1]))
    return str(m.add("Mul", column, np.arange(1, 5, dtype=np.float32)))


def _compress(m: Maker) -> str:
    return str(m.add("Compress", "x", m.add("Greater", "s", np.float32(-0.3)), axis=0))


def _unique(m: Maker) -> str:
    rounded = m.add("Cast", m.add("Mul", "s", np.float32(3)), to=TensorProto.INT64)
    _, first, _, counts = m.add("Unique", rounded, outputs=4, sorted=len(m.nodes) % 2)
    counts = m.add("Unsqueeze", m.add("Cast", counts, to=TensorProto.FLOAT), np.array([1]))
    return str(m.add("Mul", m.add("Gather", "x", first, axis=0), counts))


SOURCES: tuple[Callable[[Maker], str], ...] = (_nonzero, _places, _compress, _unique)
WEIGHTS = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
ROW, FAR = np.array([0]), np.array([2**40])


def _total(m: Maker, y: str) -> Any:
    return m.add("ReduceSum", y, np.array([1]), keepdims=0)


def _best(m: Maker, y: str, k: Any) -> Any:
    return m.add("Gather", y, m.add("TopK", _total(m, y), k(m.add("Shape", _total(m, y))), outputs=2)[1], axis=0)


# What keeps rows of four numbers, and what ends a chain of these.
STEPS: dict[str, Callable[[Maker, str], Any]] = {
    "relu": lambda m, y: m.add("Relu", y),
    "product": lambda m, y: m.add("MatMul", y, WEIGHTS),
    "gemm": lambda m, y: m.add("Gemm", y, WEIGHTS, np.arange(4, dtype=np.float32), transB=1),
    "softmax of all": lambda m, y: m.add("Softmax", y, axis=0),
    "softmax of a row": lambda m, y: m.add("Softmax", y, axis=1),
    "norm": lambda m, y: m.add("LayerNormalization", y, np.ones(4, np.float32)),
    "first three": lambda m, y: m.add("Slice", y, ROW, np.array([3]), ROW),
    "last three but one": lambda m, y: m.add("Slice", y, np.array([-3]), np.array([-1]), ROW),
    "every other": lambda m, y: m.add("Slice", y, np.array([1]), FAR, ROW, np.array([2])),
    "turned": lambda m, y: m.add("Slice", y, np.array([-1]), -FAR, ROW, np.array([-1])),
    "again": lambda m, y: m.add("Compress", y, m.add("Greater", _total(m, y), np.float32(0)), axis=0),
    "twice": lambda m, y: m.add("Concat", y, y, axis=0),
    "sums": lambda m, y: m.add("CumSum", y, np.array(0)),
    "best": lambda m, y: _best(m, y, lambda shape: m.add("Min", shape, np.array([4]))),
    "sorted": lambda m, y: _best(m, y, lambda shape: shape),
    "chosen": lambda m, y: m.add("Where", m.add("Greater", y, np.float32(0)), y, np.float32(-7)),
    "sum of all added": lambda m, y: m.add("Add", y, m.add("ReduceSum", y, ROW, keepdims=1)),
    "padded": lambda m, y: m.add("Pad", y, np.array([1, 0, 2, 0]), np.float32(9)),
}
ENDS: dict[str, Callable[[Maker, str], Any]] = {
    "all pairs": lambda m, y: m.add("MatMul", y, m.add("Transpose", y, perm=[1, 0])),
    "flat": lambda m, y: m.add("Reshape", y, np.array([-1])),
    "halves": lambda m, y: m.add("Reshape", y, np.array([-1, 2, 2])),
    "sum": lambda m, y: m.add("ReduceSum", y, ROW, keepdims=0),
    "mean": lambda m, y: m.add(
        "Div", m.add("ReduceSum", y, keepdims=0), m.add("Cast", m.add("Size", y), to=TensorProto.FLOAT)
    ),
    "shape": lambda m, y: m.add("Mul", m.add("Shape", y), np.array([3])),
    "spread": lambda m, y: m.add("Expand", m.add("Unsqueeze", y, ROW), np.array([3, 1, 1])),
    "tiles": lambda m, y: m.add("Tile", y, np.array([2, 1])),
    "places": lambda m, y: m.add("ArgMax", y, axis=1, keepdims=0),
    "numbers": lambda m, y: m.add("Range", np.array(0), m.add("Gather", m.add("Shape", y), np.array(0)), np.array(1)),
}


def random_model(seed: int) -> onnx.ModelProto:
    """Return a model of rows that are counted, of open or of fixed inputs, and of what is computed of them."""
    rng, m = random.Random(seed), Maker()
    rows = [SOURCES[seed % len(SOURCES)](m)]
    rows += [STEPS[step](m, rng.choice(rows)) for step in rng.sample([*STEPS], 4)]
    ends = [ENDS[end](m, rng.choice(rows)) for end in rng.sample([*ENDS], 2)]
    outputs = [*dict.fromkeys((*ends, rows[0], rows[-1]))]
    n = "n" if seed % 3 else ROWS[-1]
    empty = m.model({"x": [n, 4], "s": [n]}, {})
    empty.graph.output.extend([onnx.ValueInfoProto(name=name) for name in outputs])
    run = onnx.reference.ReferenceEvaluator(empty)
    types = {}
    for name, found in zip(outputs, run.run(None, next(inputs_of(seed))), strict=True):
        types[name] = helper.np_dtype_to_tensor_dtype(found.dtype), [f"{name}_{i}" for i in range(found.ndim)]
    return m.model({"x": [n, 4], "s": [n]}, types)


def inputs_of(seed: int) -> Iterator[Inputs]:
    """Yield inputs of a random model: all rows are counted, then some of more and fewer, then none."""
    rng = np.random.default_rng(seed)
    for rows in reversed(ROWS) if seed % 3 else (ROWS[-1],) * 2:
        x, s = rng.normal(size=(rows, 4)).astype(np.float32), rng.normal(size=rows).astype(np.float32)
        yield {"x": np.abs(x) + 1, "s": np.abs(s) + 1} if rows == ROWS[-1] else {"x": x, "s": s}
        if rows == ROWS[-1]:
            yield {"x": -np.abs(x), "s": -9 - np.abs(s)}
            yield {"x": x, "s": s}
