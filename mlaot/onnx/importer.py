"""Import of an ONNX graph: each node's inputs are looked up, and the operator's function is called with them.

Values that depend only on constants and shapes are computed here and are not part of the graph. The error for nodes
that cannot be compiled lists all of them, and comes before any other.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType, NoneType
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.indexing import in_range
from mlaot.frontend.trace.context import needed, part, tracing
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Dim, Node, Type
from mlaot.ir.dims import Expr, Unequal, dim, names, substitute
from mlaot.onnx.codes import MOVES, any_coded, move_codes
from mlaot.onnx.protos import (
    attribute_value,
    bind_attributes,
    constant,
    dense,
    domain_of,
    function_body,
    identifier,
    is_closed,
    line_of,
    part_of,
    schema_of,
    title,
)
from mlaot.onnx.registry import Function, Operator, find, parameters
from mlaot.onnx.texts import is_text, text_function
from mlaot.onnx.values import (
    Coded,
    Entries,
    MadeStrings,
    Maps,
    Refined,
    Strings,
    Unsupported,
    concrete,
    constant_value,
    dtype_of,
    extent_value,
    is_symbolic,
    lift,
)
from mlaot.tokenizers.text_steps import TextStep

Env = MutableMapping[str, Any]
MULTIPLES = range(2, 65)  # of what an open dim is tried to be one
KEEPING = {"Abs", "Cast", "CastLike", "Exp", "Identity", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh"}
ARITHMETIC = {"Add", "Div", "Mul", "Sub"}  # which keep the shape beside a number
ONE_MACHINE = ("com.microsoft.nchwc", "com.ms.internal.nhwc")  # domains of layouts that a machine likes
OWN = "mlaot"  # the domain of nodes that are functions of Python
# Functions of other operators whose second input names classes, along the second axis of the first.
LABELS = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")


class Missing:
    """A placeholder for the outputs of a node that cannot be imported."""


MISSING = Missing()


class Refused(Exception):
    """A node needs an output of a node that could not be imported."""


@dataclass(frozen=True)
class Use:
    """A node in the form that its operator's function gets."""

    node: onnx.NodeProto
    importer: Importer
    opset: int
    env: Env

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.node.op_type

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value.

        Tensors become arrays, and integers become bools if the default is one.

        A default with a fraction is a float32, as in a file, even for computations in double precision.
        """
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = attribute_value(attribute)
                return type(default)(value) if isinstance(default, bool | str) else value
        return float(np.float32(default)) if isinstance(default, float) else default

    def call(self, function: Function, *inputs: Any) -> Any:
        """Call an operator's function, with the attributes of this node that it names."""
        takes_use, defaults = parameters(function)
        attributes = {name: self.attribute(name, default) for name, default in defaults.items()}
        return function(self, *inputs, **attributes) if takes_use else function(*inputs, **attributes)

    def with_attributes(self, **values: Any) -> Use:
        """Return a use with further attributes, except those that are None."""
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        node.attribute.extend([onnx.helper.make_attribute(k, v) for k, v in values.items() if v is not None])
        return replace(self, node=node)

    def has(self, i: int) -> bool:
        """Tell whether output ``i`` is used."""
        return i < len(self.node.output) and bool(self.node.output[i])

    def declared(self, i: int = 0) -> Type | None:
        """Return the type that the file declares for output ``i``, if any."""
        return self.importer.types.get(self.node.output[i]) if self.has(i) else None

    def declared_strings(self, i: int = 0) -> tuple[Dim, ...] | None:
        """Return the shape that the file declares for output ``i`` of strings, if any."""
        return self.importer.string_shapes.get(self.node.output[i]) if self.has(i) else None

    def require(self, condition: Any, message: str) -> None:
        """Make calls fail whose inputs do not fulfil ``condition``, a computed truth value.

        In a branch, only calls that take the branch fail.
        """
        trace = needed()
        nodes = [trace.outside(as_node(value)) for value in (condition, *self.importer.branches)]
        if None in nodes:
            raise Unsupported(f"{message}, which cannot be checked in a compiled loop or branch; make it constant")
        holds: Any
        holds, *taken = [Tensor(node) for node in nodes if node is not None]
        with tracing(trace.root):
            for branch in taken:
                holds = np.logical_or(holds, np.logical_not(branch))
        if all(holds.node is not other.node for other, _ in self.importer.conditions):
            where = f"node {self.node.name or self.node.output[0]!r}"
            self.importer.conditions.append((holds, f"{message} ({where})"))

    def require_equal(self, extent: Dim, wanted: Dim, what: str) -> None:
        """Make calls fail in which two extents differ."""
        if extent == wanted:
            return
        message = f"{what} must be {wanted}, not {extent}"
        if isinstance(extent, int) and isinstance(wanted, int):
            raise MlaotError(message)
        self.require(np.equal(extent_value(extent), extent_value(wanted)), message)

    def settle(self, extent: Dim, wanted: Dim, what: str) -> None:
        """Require that two extents are equal: determine named dims if possible, and else check each call."""
        if extent != wanted and unify(extent, wanted) and not self.importer.branches:
            raise Unequal(f"{what} must be {wanted}, not {extent}", extent, wanted)
        self.require_equal(extent, wanted, what)

    def body(self, name: str) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a graph among the attributes as a function of its inputs, which can use the values around it."""
        graph = self.attribute(name)
        if not isinstance(graph, onnx.GraphProto):
            raise MlaotError(f"the attribute {name} is no graph")
        return lambda inputs: self.importer.subgraph(graph, inputs, self.env)


class Importer:
    """A model being imported: its opsets, functions, and the types that it declares.

    ``pinned`` has sizes of open dims, and ``meant`` the values that other dims must have. ``calls`` has the functions
    of operators of the domain ``mlaot`` by name. ``most`` has bounds of counted lengths. With ``wide``, operators of
    machine learning keep float64 where ONNX's definition returns float32. ``known`` has the texts among which inputs
    are looked up.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        pinned: Mapping[str, int],
        meant: Mapping[str, Dim],
        calls: Mapping[str, Callable[..., Any]] | None = None,
        known: tuple[str, ...] = (),
        most: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.calls = calls or {}
        self.known = known
        self.wide = False
        self.opsets = {domain_of(o): o.version for o in model.opset_import}
        self.functions = {(domain_of(f), f.name, f.overload): f for f in model.functions}
        self.types: dict[str, Type] = {}
        self.string_shapes: dict[str, tuple[Dim, ...]] = {}
        self.pinned = pinned
        self.meant = meant
        self.most = most
        self.counts: dict[str, Node] = {}  # of lengths, by the names of their dims
        self.lengths: dict[Node, Dim] = {}  # what each number of them is as an extent
        self.is_counting = False  # also what the file's shapes or inputs could have told
        self.refused: dict[str, type[Unsupported]] = {}  # why, and what kind of error that is
        self.path: list[str] = []
        self.weights: set[str] = set()
        self.ports: set[str] = set()  # names of inputs
        self.conditions: list[tuple[Any, str]] = []
        self.branches: list[Any] = []  # the conditions of the branches that are being imported
        self.imported: list[onnx.NodeProto] = []  # what is seen by the node that is being imported
        self.inner: dict[bytes, Any] = {}

    def new_name(self, name: str) -> str:
        """Return a new name for a weight."""
        while name in self.weights:
            name += "_"
        self.weights.add(name)
        return name

    def declare(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        """Record the types that the file declares."""
        infos = list(infos)
        for info in infos:
            kind = info.type.tensor_type
            if kind.elem_type == onnx.TensorProto.STRING and kind.HasField("shape"):
                extents = (self.extent(info.name, i, d) for i, d in enumerate(kind.shape.dim))
                self.string_shapes[info.name] = tuple(extents)
        self.types |= {info.name: type_ for info in infos if (type_ := self.type_of(info)) is not None}

    def made_input(self, name: str, step: TextStep, type_: Type, strings: bool) -> Tensor:
        """Return an input that a step computes from inputs that callers pass."""
        name = f"{identifier(name)}_made"
        while name in self.ports:
            name += "_"
        self.ports.add(name)
        notes = {"strings": self.known, "further": True} if strings else {}
        with tracing(needed().root):
            return Tensor(needed().graph.input(name, type_, made=step, **notes))

    def declare_backwards(self, graph: onnx.GraphProto) -> None:
        """Record the shapes of inputs of shape-preserving operators, given the shapes of their outputs."""
        numbers = {tensor.name for tensor in graph.initializer if not tensor.dims}
        for node in graph.node:
            if node.op_type == "Constant" and all(a.name == "value" and not a.t.dims for a in node.attribute):
                numbers.add(node.output[0])
        for node in reversed(graph.node):
            operands = [name for name in node.input if name not in numbers]
            operands = operands[:1] if node.op_type == "CastLike" else operands  # the other one gives its dtype only
            keeps = node.op_type in KEEPING or node.op_type in ARITHMETIC
            if keeps and len(operands) == 1 and node.output[0] in self.types:
                self.types.setdefault(operands[0], self.types[node.output[0]])

    def type_of(self, info: onnx.ValueInfoProto) -> Type | None:
        """Return the type of an array, if its shape is declared and mlaot has its dtype. Open dims get names."""
        kind = info.type.tensor_type
        if info.type.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
            return None
        try:
            shape = tuple(self.extent(info.name, i, d) for i, d in enumerate(kind.shape.dim))
            return Type(dtype_of(kind.elem_type), shape)
        except MlaotError:
            return None

    def extent(self, name: str, axis: int, extent: Any) -> Dim:
        """Return an extent of the file: a number, or the name of an open dim, unless settings pin it."""
        if extent.HasField("dim_value") and extent.dim_value >= 0:  # below that stands for an open one, too
            return int(extent.dim_value)
        is_named = any(letter.isalpha() for letter in extent.dim_param)  # "?" names none
        called = identifier(extent.dim_param if is_named else f"{name}_{axis}")
        if called in self.pinned:
            return self.pinned[called]
        return self.meant.get(called, dim(called))

    def initializers(self, graph: onnx.GraphProto) -> Env:
        """Return the constants of a graph: weights as parameters, all else as arrays."""
        weights = {t.name: constant(t, weight_name=self.new_name(t.name)) for t in graph.initializer}
        return weights | {sparse.values.name: dense(sparse) for sparse in graph.sparse_initializer}

    def inner_initializers(self, graph: onnx.GraphProto) -> Env:
        """Return the constants of a graph inside of a node. If it is imported again, as in a loop, they are shared."""
        key = hashlib.sha256(b"".join(t.SerializeToString() for t in graph.initializer)).digest()
        if key not in self.inner:
            self.inner[key] = self.initializers(graph)
        return {**self.inner[key]}

    @contextmanager
    def inside(self, name: str, **replaced: Any) -> Iterator[None]:
        """In the context, import the graph inside of a node with other attributes of this importer."""
        before = {key: getattr(self, key) for key in replaced}
        vars(self).update(replaced)
        self.path.append(name)
        try:
            yield
        finally:
            self.path.pop()
            vars(self).update(before)

    def run(self, graph: onnx.GraphProto, env: Env) -> list[Any]:
        """Return the outputs of a graph, whose inputs are in ``env``."""
        for node in graph.node:
            with part(part_of(node), line=line_of(node)):
                self.node(node, env)
        absent = [output.name for output in graph.output if output.name not in env]
        if absent:
            raise MlaotError(f"nothing computes the output {absent[0]!r}")
        return [env[output.name] for output in graph.output]

    def subgraph(self, graph: onnx.GraphProto, arguments: Sequence[Any], env: Env) -> list[Any]:
        """Return the outputs of a graph inside of a node."""
        if len(arguments) != len(graph.input):
            raise MlaotError(f"the graph {graph.name!r} takes {len(graph.input)} inputs, not {len(arguments)}")
        inputs: Env = {info.name: value for info, value in zip(graph.input, arguments, strict=True)}
        self.declare(info for info in (*graph.output, *graph.value_info) if is_closed(info))
        # Constants inside a subgraph, which may be imported repeatedly, are not weights; names inside it are local.
        with self.inside(f"the graph {graph.name}", imported=[*self.imported]):
            outputs = self.run(graph, ChainMap({**self.inner_initializers(graph), **inputs}, env))
        if any(value is MISSING for value in outputs):
            raise Refused
        return outputs

    def node(self, node: onnx.NodeProto, env: Env) -> None:
        """Compute one node. If that is not possible, record the reason."""
        missing = [name for name in node.input if name and name not in env]
        if missing:
            raise MlaotError(f"{title(node)}: nothing computes its input {missing[0]!r}")
        inputs = [env[name] if name else None for name in node.input]
        self.imported.append(node)
        outputs: Sequence[Any] = [MISSING] * len(node.output)
        try:
            if not any(value is MISSING for value in inputs):
                outputs = self.call(node, inputs, env)
        except Refused:
            pass
        except Unsupported as error:
            self.refused[f"{title(node)}: {error.message}"] = type(error)
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                env[name] = value

    def call(self, node: onnx.NodeProto, inputs: Sequence[Any], env: Env) -> Sequence[Any]:
        """Return the outputs of a node."""
        domain = domain_of(node)
        local = self.functions.get((domain, node.op_type, node.overload))
        if local is not None:
            return self.inline(node, local, inputs)
        if domain == OWN and node.op_type in self.calls:
            return list(self.calls[node.op_type](*inputs))
        opset = self.opsets.get(domain)
        if opset is None:
            raise MlaotError(f"{title(node)}: the file imports no opset of the domain {node.domain or 'ai.onnx'!r}")
        operator = find(domain, node.op_type, opset)
        if operator is None:
            return self.compose(node, opset, inputs)
        operands = inputs if operator.symbolic else [lift(value) for value in inputs]
        function = function_of(operator, node, operands)
        with named_errors(node):
            result = Use(node, self, opset, env).call(function, *operands)
        return [concrete(value) for value in (result if isinstance(result, tuple) else (result,))]

    def compose(self, node: onnx.NodeProto, opset: int, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs of an operator that ONNX itself composes of other operators."""
        body = function_body(node, opset, [proto_type(value) for value in inputs])
        if body is not None:
            return self.inline(node, body, check_labels(node, inputs) if node.op_type in LABELS else inputs)
        if domain_of(node) in ONE_MACHINE:
            way_out = "onnxruntime wrote it for one machine: save the model at the level ORT_ENABLE_EXTENDED"
        elif schema_of(node, opset) is None:
            way_out = "ONNX has none of that name: give the file a function of it"
        else:
            way_out = "export the model without it, or compute it outside"
        raise Unsupported(f"no such operator in opset {opset} can be compiled; {way_out}")

    def inline(self, node: onnx.NodeProto, function: onnx.FunctionProto, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs of a function of the model, or of one that ONNX itself composes of other operators."""
        name = f"{function.domain}.{function.name}"
        if name in self.path:
            raise MlaotError(f"{title(node)}: the function {name} calls itself")
        attributes = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
        env: Env = dict.fromkeys(function.input) | dict(zip(function.input, inputs, strict=False))
        opsets = self.opsets | {domain_of(o): o.version for o in function.opset_import}
        with self.inside(name, opsets=opsets, types={}, imported=[]):
            for inner in function.node:
                self.node(bind_attributes(inner, attributes), env)
        return [env.get(name) for name in function.output]


def function_of(operator: Operator, node: onnx.NodeProto, inputs: Sequence[Any]) -> Function:
    """Return an operator's function for these inputs.

    An operator that moves values also accepts codes and indices of texts.
    """
    function = operator.function if operator.coded or not any_coded(inputs) else move_codes(node, operator.function)
    chosen = any(isinstance(value, Strings | MadeStrings | Entries | Maps) for value in inputs)
    if node.op_type in MOVES:  # known texts at computed places
        is_computed = any(is_traced(value) or is_symbolic(value) for value in inputs)
        chosen = chosen or (is_computed and any(map(is_text, inputs)))
    if operator.labels or not chosen:
        return function
    return text_function(node, function, inputs)


@contextmanager
def named_errors(node: onnx.NodeProto) -> Iterator[None]:
    """Name the node in errors of its operator's function."""
    try:
        with np.errstate(all="ignore"):
            yield
    except MlaotError as error:
        if isinstance(error, Unsupported) or error.message.startswith("node "):
            raise
        message = f"{title(node)}: {error.message}"
        if isinstance(error, Unequal) and (meant := unify(*error.extents)):
            raise Refined(message, meant) from None
        raise MlaotError(message) from None
    except (TypeError, ValueError, IndexError, KeyError, ArithmeticError, np.linalg.LinAlgError) as error:
        raise MlaotError(f"{title(node)}: {' '.join(str(error).split())}") from error
    except AttributeError as error:
        if not isinstance(error.obj, NoneType):
            raise
        raise MlaotError(f"{title(node)}: an input that it needs is left out") from error
    except (MemoryError, RecursionError) as error:
        raise MlaotError(f"{title(node)}: too much for this machine ({type(error).__name__})") from None


def proto_type(value: Any) -> onnx.TypeProto:
    """Return the ONNX type of a value, for functions whose body depends on it."""
    proto = onnx.TypeProto()
    if value is None or isinstance(value, list | Entries | Maps) or value is MISSING:
        return proto
    if isinstance(value, Coded):
        proto.tensor_type.elem_type = value.elem_type
        return proto
    array = constant_value(value)
    name = "int64" if array is not None and array.dtype == object else str(value.dtype)
    name = "bfloat16" if name == "bf16" else name
    if name.startswith(("<U", "str")):
        proto.tensor_type.elem_type = onnx.TensorProto.STRING
    else:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        proto.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    for extent in value.shape:
        proto.tensor_type.shape.dim.add(**({"dim_value": extent} if isinstance(extent, int) else {}))
    return proto


def unify(one: Dim, other: Dim) -> dict[str, Dim]:
    """Solve for named dims that make two extents equal for all sizes of the others; return {} if that is unknown.

    One dim equals the other or a number, or dims are multiples. For example, a network that halves an image five times,
    doubles it again, and adds the two fits only images of ``32 * height``.
    """
    for left, right in ((other, one), (one, other)):
        if isinstance(left, Expr) and left == dim(min(names(left))) and names(left).isdisjoint(names(right)):
            return {min(names(left)): right}
    every = sorted(names(one) | names(other))
    return multiples(every, lambda own: substitute(one, own) == substitute(other, own))


def multiples(every: Sequence[str], holds: Callable[[dict[str, Dim]], bool]) -> dict[str, Dim]:
    """Return the multiples that named dims, one or all, must be so that a condition holds; {} if that is unknown.

    ``holds`` evaluates the condition, given the values of dims.
    """
    own: dict[str, Dim] = {name: dim(name) for name in every}
    for factor in MULTIPLES:
        for group in (*([name] for name in every), every):
            meant: dict[str, Dim] = {name: factor * dim(name) for name in group}
            if holds(own | meant):
                return meant
    return {}


def check_labels(node: onnx.NodeProto, inputs: Sequence[Any]) -> list[Any]:
    """Make calls of a loss fail whose labels are not classes."""
    ignored = next((a.i for a in node.attribute if a.name == "ignore_index"), None)
    scores, labels, *rest = inputs
    try:
        return [scores, in_range(lift(labels), lift(scores).shape[1], ignored=ignored), *rest]
    except MlaotError as error:
        raise MlaotError(f"{title(node)}: {error.message}") from None
