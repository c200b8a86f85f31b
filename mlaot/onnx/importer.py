"""An ONNX graph to a graph of mlaot: each node's inputs are looked up, and its function is called on them.

What depends on constants and shapes alone is computed here and leaves no trace. Nodes that cannot be compiled are all
named at once, before anything else happens.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.indexing import in_range
from mlaot.frontend.trace.context import needed, part, tracing
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Parameter, Tensor
from mlaot.ir import Dim, Type
from mlaot.ir.dims import Expr, Unequal, dim, names, substitute
from mlaot.onnx.codes import moved, whether_coded
from mlaot.onnx.registry import find
from mlaot.onnx.values import Coded, Maps, Strings, Unsupported, dtype_of, kind_of, known, lifted, of_dims, settled

Env = MutableMapping[str, Any]
MULTIPLE = 64  # the most that an open dim is found to be a multiple of
FIRST = 1  # elements of a weight; a single number is a constant
MOVING = {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
KEEPING = {"Abs", "Cast", "Exp", "Identity", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh"}
ARITHMETIC = {"Add", "Div", "Mul", "Sub"}  # which keep the shape beside a number
ALIASES = {"ai.onnx": ""}
OWN = "mlaot"  # the domain of nodes that are functions of Python


class Missing:
    """In place of the outputs of a node that cannot be imported."""


MISSING = Missing()


@dataclass(frozen=True)
class Use:
    """A node, as its operator's function sees it."""

    node: onnx.NodeProto
    importer: Importer
    opset: int
    env: Env

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value: int, float, str, bytes stay as such, tensors become arrays.

        A default with a fraction is a float32, as it is in a file, also where doubles are computed.
        """
        for found in self.node.attribute:
            if found.name == name:
                return _attribute(found)
        return float(np.float32(default)) if isinstance(default, float) else default

    def string(self, name: str, default: str) -> str:
        """An attribute that is text."""
        found = self.attribute(name, default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)

    def has(self, i: int) -> bool:
        """Whether somebody wants output ``i``."""
        return i < len(self.node.output) and bool(self.node.output[i])

    def declared(self, i: int = 0) -> Type | None:
        """What the file says of output ``i``, if it does."""
        return self.importer.types.get(self.node.output[i]) if self.has(i) else None

    def require(self, condition: Any, message: str) -> None:
        """Let calls be refused whose inputs do not fulfil ``condition``, a truth value that is computed.

        In a branch, only those calls that take it.
        """
        trace = needed()
        found: list[Any] = [trace.outside(as_node(each)) for each in (condition, *self.importer.branches)]
        if None in found:
            raise Unsupported(f"{message}, which cannot be checked in a compiled loop or branch; make it constant")
        holds: Any
        holds, *taken = map(Tensor, found)
        with tracing(trace.root):
            for each in taken:
                holds = np.logical_or(holds, np.logical_not(each))
        if all(holds.node is not known.node for known, _ in self.importer.conditions):
            where = f"node {self.node.name or self.node.output[0]!r}"
            self.importer.conditions.append((holds, f"{message} ({where})"))

    def require_equal(self, extent: Dim, wanted: Dim, what: str) -> None:
        """Let calls be refused in which two extents differ."""
        if extent == wanted:
            return
        message = f"{what} must be {wanted}, not {extent}"
        if isinstance(extent, int) and isinstance(wanted, int):
            raise MlaotError(message)
        self.require(np.equal(*[lifted(of_dims([value]))[0] for value in (extent, wanted)]), message)

    def settle(self, extent: Dim, wanted: Dim, what: str) -> None:
        """Let an extent be another one: for all calls, if that says what named dims are, else each is checked."""
        if extent != wanted and settling(extent, wanted) and not self.importer.branches:
            raise Unequal(f"{what} must be {wanted}, not {extent}", extent, wanted)
        self.require_equal(extent, wanted, what)

    def body(self, name: str) -> Callable[[Sequence[Any]], list[Any]]:
        """A graph among the attributes as a function of its inputs; it sees the values around it."""
        graph = self.attribute(name)
        if not isinstance(graph, onnx.GraphProto):
            raise MlaotError(f"the attribute {name} is no graph")

        def run(arguments: Sequence[Any]) -> list[Any]:
            return self.importer.subgraph(graph, arguments, self.env)

        return run


class Importer:
    """A model being imported: its opsets, functions, and the types that it declares.

    ``pinned``: sizes of open dims, and ``meant``: what others were found to be. ``calls``: what nodes of the domain
    ``mlaot`` compute, by their operators' names. ``wide``: what is float64 stays so where ONNX's operators of machine
    learning give float32.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        pinned: Mapping[str, int],
        meant: Mapping[str, Dim],
        calls: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.calls = calls or {}
        self.wide = False
        self.opsets = {ALIASES.get(o.domain, o.domain): o.version for o in model.opset_import}
        self.functions = {(ALIASES.get(f.domain, f.domain), f.name, f.overload): f for f in model.functions}
        self.types: dict[str, Type] = {}
        self.pinned = pinned
        self.meant = meant
        self.refused: dict[str, None] = {}
        self.path: list[str] = []
        self.weights: set[str] = set()
        self.ports: set[str] = set()  # names of inputs
        self.conditions: list[tuple[Any, str]] = []
        self.branches: list[Any] = []  # the conditions of the branches that are being imported
        self.imported: list[onnx.NodeProto] = []  # what is seen by the node that is being imported
        self.inner: dict[bytes, Any] = {}

    def new_name(self, name: str) -> str:
        """A name for a weight that no other has."""
        while name in self.weights:
            name += "_"
        self.weights.add(name)
        return name

    def declare(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        """Note the types that the file gives."""
        for info in infos:
            found = self.type_of(info)
            if found is not None:
                self.types[info.name] = found

    def declare_backwards(self, graph: onnx.GraphProto) -> None:
        """Note the shapes of what goes through operators that keep them, by those of their outputs."""
        numbers = {tensor.name for tensor in graph.initializer if not tensor.dims}
        for node in graph.node:
            if node.op_type == "Constant" and all(a.name == "value" and not a.t.dims for a in node.attribute):
                numbers.add(node.output[0])
        for node in reversed(graph.node):
            given = [name for name in node.input if name not in numbers]
            keeps = node.op_type in KEEPING or node.op_type in ARITHMETIC
            if keeps and len(given) == 1 and node.output[0] in self.types:
                self.types.setdefault(given[0], self.types[node.output[0]])

    def type_of(self, info: onnx.ValueInfoProto) -> Type | None:
        """The type of an array, if its shape is given and mlaot has its dtype; open dims have names."""
        kind = info.type.tensor_type
        if info.type.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
            return None
        try:
            shape = tuple(self.extent(info.name, i, d) for i, d in enumerate(kind.shape.dim))
            return Type(dtype_of(kind.elem_type), shape)
        except MlaotError:
            return None

    def extent(self, name: str, axis: int, given: Any) -> Dim:
        """An extent of the file: a number, or the name of an open dim, unless settings pin it."""
        if given.HasField("dim_value") and given.dim_value >= 0:  # below that stands for an open one, too
            return int(given.dim_value)
        is_named = any(letter.isalpha() for letter in given.dim_param)  # "?" names none
        called = identifier(given.dim_param if is_named else f"{name}_{axis}")
        if called in self.pinned:
            return self.pinned[called]
        return self.meant.get(called, dim(called))

    def initializers(self, graph: onnx.GraphProto) -> Env:
        """The constants of a graph: weights as parameters, all else as arrays."""
        found: Env = {}
        for tensor in graph.initializer:
            found[tensor.name] = constant(tensor, weight_name=self.new_name(tensor.name))
        for sparse in graph.sparse_initializer:
            found[sparse.values.name] = dense(sparse)
        return found

    def inner_initializers(self, graph: onnx.GraphProto) -> Env:
        """The constants of a graph inside of a node; one that is imported again, as a loop's, has them once."""
        key = hashlib.sha256(b"".join(t.SerializeToString() for t in graph.initializer)).digest()
        if key not in self.inner:
            self.inner[key] = self.initializers(graph)
        return {**self.inner[key]}

    def run(self, graph: onnx.GraphProto, env: Env) -> list[Any]:
        """The outputs of a graph, whose inputs are in ``env``."""
        for node in graph.node:
            with part(_part(node)):
                self.node(node, env)
        absent = [output.name for output in graph.output if output.name not in env]
        if absent:
            raise MlaotError(f"nothing computes the output {absent[0]!r}")
        return [env[output.name] for output in graph.output]

    def subgraph(self, graph: onnx.GraphProto, arguments: Sequence[Any], env: Env) -> list[Any]:
        """The outputs of a graph inside of a node."""
        if len(arguments) != len(graph.input):
            raise MlaotError(f"the graph {graph.name!r} takes {len(graph.input)} inputs, not {len(arguments)}")
        inner: Env = {info.name: value for info, value in zip(graph.input, arguments, strict=True)}
        self.declare(info for info in (*graph.output, *graph.value_info) if is_closed(info))
        self.path.append(f"the graph {graph.name}")  # constants in it, which may be met often, are no weights
        imported, self.imported = self.imported, [*self.imported]  # names inside are nobody else's
        try:
            found = self.run(graph, ChainMap({**self.inner_initializers(graph), **inner}, env))
        finally:
            self.path.pop()
            self.imported = imported
        if any(value is MISSING for value in found):
            raise Refused
        return found

    def node(self, node: onnx.NodeProto, env: Env) -> None:
        """Compute one node; where that cannot be done, note why."""
        missing = [name for name in node.input if name and name not in env]
        if missing:
            raise MlaotError(f"{title(node)}: nothing computes its input {missing[0]!r}")
        inputs = [env[name] if name else None for name in node.input]
        self.imported.append(node)
        outputs: Sequence[Any]
        try:
            if any(value is MISSING for value in inputs):
                raise Refused
            outputs = self.call(node, inputs, env)
        except Refused:
            outputs = [MISSING] * len(node.output)
        except Unsupported as error:
            self.refused[f"{title(node)}: {error.message}"] = None
            outputs = [MISSING] * len(node.output)
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                env[name] = value

    def call(self, node: onnx.NodeProto, inputs: Sequence[Any], env: Env) -> Sequence[Any]:
        """The outputs of a node."""
        domain = ALIASES.get(node.domain, node.domain)
        opset = self.opsets.get(domain)
        local = self.functions.get((domain, node.op_type, node.overload))
        if local is not None:
            return self.inlined(node, local, inputs)
        if domain == OWN and node.op_type in self.calls:
            return list(self.calls[node.op_type](*inputs))
        if opset is None:
            raise MlaotError(f"{title(node)}: the file imports no opset of the domain {node.domain or 'ai.onnx'!r}")
        found = find(domain, node.op_type, opset)
        if found is None:
            body = function_body(node, domain, opset, [self.proto_type(value) for value in inputs])
            if body is None:
                raise Unsupported(f"no such operator in opset {opset} can be compiled" + way_out(node, domain, opset))
            return self.inlined(node, body, noted(node, inputs) if node.op_type in LABELS else inputs)
        given = inputs if found.symbolic else [lifted(value) for value in inputs]
        function = found.function if found.coded or not whether_coded(given) else moved(node, found.function)
        if not found.labels and any(isinstance(value, Strings | Maps) for value in inputs):
            if domain or node.op_type not in MOVING or any(isinstance(value, Maps) for value in inputs):
                raise Unsupported("it takes strings or maps that are computed when the model runs; use integer labels")
            function = texts_moved(function)
        try:
            with np.errstate(all="ignore"):
                result = function(Use(node, self, opset, env), *given)
        except MlaotError as error:
            if isinstance(error, Unsupported) or error.message.startswith("node "):
                raise
            message = f"{title(node)}: {error.message}"
            if isinstance(error, Unequal) and (meant := settling(*error.extents)):
                raise Settled(message, meant) from None
            raise MlaotError(message) from None
        except (TypeError, ValueError, IndexError, KeyError, ArithmeticError, np.linalg.LinAlgError) as error:
            raise MlaotError(f"{title(node)}: {' '.join(str(error).split())}") from error
        except (MemoryError, OverflowError, RecursionError) as error:
            raise MlaotError(f"{title(node)}: too much for this machine ({type(error).__name__})") from None
        outputs = result if isinstance(result, tuple) else (result,)
        return [settled(value) for value in outputs]

    def inlined(self, node: onnx.NodeProto, function: onnx.FunctionProto, inputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs of a function of the model, or of one that ONNX itself composes of other operators."""
        name = f"{function.domain}.{function.name}"
        if name in self.path:
            raise MlaotError(f"{title(node)}: the function {name} calls itself")
        given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
        env: Env = dict(zip(function.input, [*inputs, *[None] * (len(function.input) - len(inputs))], strict=False))
        opsets, types, self.types = self.opsets, self.types, {}
        imported, self.imported = self.imported, []
        self.opsets = opsets | {ALIASES.get(o.domain, o.domain): o.version for o in function.opset_import}
        self.path.append(name)
        try:
            for inner in function.node:
                self.node(referred(inner, given), env)
        finally:
            self.opsets, self.types, self.imported = opsets, types, imported
            self.path.pop()
        return [env.get(name) for name in function.output]

    def proto_type(self, value: Any) -> onnx.TypeProto:
        """ONNX's type of a value, for functions whose body depends on it."""
        found = onnx.TypeProto()
        if value is None or isinstance(value, list | Maps) or value is MISSING:
            return found
        if isinstance(value, Coded):
            found.tensor_type.elem_type = value.elem_type
            return found
        array = known(value)
        name = "int64" if array is not None and array.dtype == object else str(value.dtype)
        name = "bfloat16" if name == "bf16" else name
        if name.startswith(("<U", "str")):
            found.tensor_type.elem_type = onnx.TensorProto.STRING
        else:
            import ml_dtypes

            kind = np.dtype(getattr(ml_dtypes, name, name))
            found.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(kind)
        for extent in value.shape:
            found.tensor_type.shape.dim.add(**({"dim_value": extent} if isinstance(extent, int) else {}))
        return found


def is_closed(info: onnx.ValueInfoProto) -> bool:
    """Whether all extents are numbers; names of dimensions inside of a node say nothing outside."""
    return all(extent.HasField("dim_value") for extent in info.type.tensor_type.shape.dim)


class Settled(Exception):
    """The operators of a file fit only if dims are something more definite: ``meant``. Import it again with that."""

    def __init__(self, message: str, meant: dict[str, Dim]) -> None:
        super().__init__(message)
        self.message = message
        self.meant = meant


def settling(one: Dim, other: Dim) -> dict[str, Dim]:
    """What named dims must be that two extents are equal for all sizes that are left; nothing if that is not known.

    One is the other or a number, or they are multiples: a network that halves an image five times, doubles it again
    and adds the two fits images of ``32 * height`` only.
    """
    for left, right in ((other, one), (one, other)):
        if isinstance(left, Expr) and left == dim(min(names(left))) and names(left).isdisjoint(names(right)):
            return {min(names(left)): right}
    every = sorted(names(one) | names(other))
    own = {name: dim(name) for name in every}
    for factor in range(2, MULTIPLE + 1):
        for some in (*([name] for name in every), every):
            meant = {name: factor * dim(name) for name in some}
            if substitute(one, own | meant) == substitute(other, own | meant):
                return meant
    return {}


def texts_moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an operator that moves values, for texts: their places in one table are moved."""

    def run(use: Use, *inputs: Any) -> Any:
        tables: list[Any] = []
        moved = []
        for value in inputs:
            if isinstance(value, Strings):
                moved.append(value.index + sum(map(len, tables)))
                tables.append(value.table)
            else:
                moved.append(value)
        return Strings(function(use, *moved), np.concatenate(tables))

    return run


class Refused(Exception):
    """A node needs what a node before it could not give."""


def title(node: onnx.NodeProto) -> str:
    """How messages name a node."""
    called = node.name or next((name for name in node.output if name), "")
    domain = f"{node.domain}." if node.domain else ""
    return f"node {called!r} ({domain}{node.op_type})"


def identifier(name: str) -> str:
    """A name of ONNX, which can be any text, as one of Python and C."""
    import keyword
    import re

    found = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "x"
    found = f"x{found}" if found[0].isdigit() else found
    return f"{found}_" if keyword.iskeyword(found) else found


def constant(tensor: onnx.TensorProto, weight_name: str = "") -> Any:
    """A tensor of the file; numbers with a fraction as a parameter if it is to have a name."""
    if tensor.data_type == onnx.TensorProto.STRING:
        texts = [text.decode("utf-8", "replace") for text in tensor.string_data]
        return np.array(texts, np.str_).reshape(tuple(tensor.dims))
    try:
        array = np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise MlaotError(f"the tensor {tensor.name!r} is damaged: {' '.join(str(error).split())}") from None
    if weight_name and kind_of(array) == "f" and array.size > FIRST and array.dtype.itemsize <= 8:
        return Parameter(weight_name, array)
    return array


def dense(sparse: onnx.SparseTensorProto) -> Any:
    """A sparse constant with its zeros."""
    values, places = constant(sparse.values), constant(sparse.indices)
    result = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        result.reshape(-1)[places] = values
    else:
        result[tuple(places.T)] = values
    return result


def _attribute(found: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(found)
    if isinstance(value, onnx.TensorProto):
        return constant(value)
    if isinstance(value, onnx.SparseTensorProto):
        return dense(value)
    return list(value) if found.type in (found.INTS, found.FLOATS, found.STRINGS) else value


def referred(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function, its attributes taken from those of the call where it refers to them."""
    if not any(a.ref_attr_name or a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                result.attribute.add().CopyFrom(given[attribute.ref_attr_name])
                result.attribute[-1].name = attribute.name
            continue
        kept = result.attribute.add()
        kept.CopyFrom(attribute)
        for graph in [kept.g] if kept.type == kept.GRAPH else kept.graphs:
            inner = [referred(n, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return result


def function_body(
    node: onnx.NodeProto, domain: str, opset: int, types: Sequence[onnx.TypeProto]
) -> onnx.FunctionProto | None:
    """What ONNX composes an operator of, where it does."""
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    data: Any = None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        data = schema.get_function_with_opset_version(versions[-1]) if versions else schema.function_body
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            data = schema.get_context_dependent_function_with_opset_version(
                versions[-1], node.SerializeToString(), [t.SerializeToString() for t in types]
            )
    if not data:
        return None
    found = onnx.FunctionProto()
    found.CopyFrom(data if isinstance(data, onnx.FunctionProto) else onnx.FunctionProto.FromString(data))
    for name, attribute in schema.attributes.items():  # what a call leaves out
        if attribute.default_value.type:
            found.attribute_proto.add().CopyFrom(attribute.default_value)
            found.attribute_proto[-1].name = name
    return found


# Functions of other operators whose second input names classes, along the second axis of the first.
LABELS = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")


def noted(node: onnx.NodeProto, inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a loss, whose labels are classes."""
    ignored = next((a.i for a in node.attribute if a.name == "ignore_index"), None)
    scores, labels, *rest = inputs
    try:
        return [scores, in_range(lifted(labels), lifted(scores).shape[1], ignored=ignored), *rest]
    except MlaotError as error:
        raise MlaotError(f"{title(node)}: {error.message}") from None


def way_out(node: onnx.NodeProto, domain: str, opset: int) -> str:
    """What can be done about an operator that is not known."""
    try:
        onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return "; ONNX has none of that name: give the file a function of it"
    return "; export the model without it, or compute it outside"


def _part(node: onnx.NodeProto) -> str:
    """The part of a model that a node is: ``encoder.fc1`` of ``/encoder/fc1/Gemm``."""
    *path, last = node.name.strip("/").split("/")
    return ".".join(path) if path and last.startswith(node.op_type) else ".".join([*path, last or node.op_type])
