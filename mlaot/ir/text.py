"""The text form of a graph, which can be printed and parsed: one node on each line, subgraphs after their graph.

::

    graph forward:
      v0 = input(name=x) : f32[batch,64]
      v1 = scan(v0, body=<body 1: 2 nodes>, length=4) : (f32[64], f32[4])
      return y=v1
        graph body 1(a0):
          ...

Attributes are expressions of Python, in which a name is a dtype or a dim. A string in ``STRINGS`` that is a word has no
quotes. Up to ``INLINE`` numbers of a constant are printed. A larger constant is a type and a digest: ``numbers(
'f32[9,9]', '8f14e45fceea167a')``. When it is parsed, it becomes numbers drawn with the digest as seed, or integers 0,
which are valid indices. These print as the same text. ``text(graph, inline=None)`` prints all numbers. An input that no
node reads is a line ``unused``. ``inputs`` lists all inputs if the order of the lines differs. ``str`` of a graph that
is not a subgraph leaves both out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from mlaot.errors import MlaotError, did_you_mean
from mlaot.ir import dims
from mlaot.ir.graph import OPS, Graph, Node
from mlaot.ir.subgraph import Subgraph
from mlaot.ir.types import DTYPES, DType, Literal, TupleType, Type

INLINE = 64  # numbers of a constant that are printed
STRINGS = ("name", "spec", "mode", "aggregate")  # attributes whose words are strings
QUOTED = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
NAME = r"[^\W\d]\w*(?: [^\W\d]\w*)*"
WORD = r"(?! )(?:[\w.>/:-]|[, ](?=[\w.>/:,-]))+"  # no comma with a space behind it
BARE = re.compile(rf"{QUOTED}|(?<!\w)({'|'.join(STRINGS)})=({WORD})|<({NAME}) ([\d.]+): \d+ nodes>")
HEAD = re.compile(rf"graph ({QUOTED}|{NAME})(?: ([\d.]+))?(?:\((.*)\))?:")
NODE = re.compile(r"(v\d+) = (\w+)\((.*)\) : (.+)")
UNUSED = re.compile(r"unused input\((.*)\) : (.+)")
PAIR = re.compile(rf"({QUOTED}|{WORD})=(v\d+)(?:, |$)")
ITEM = re.compile(rf"({QUOTED}|{WORD})(?:, |$)")
TYPE = re.compile(r"(\w+)\[([^\]]*)\]")

RECORDS: dict[str, type] = {}  # by their names in the text: dataclasses of constants, which an op takes as an attribute


class Unknown(Literal):
    """A constant of which a text gives only the type and a digest. Its numbers are drawn with the digest as seed."""

    __slots__ = ("digest",)

    def __init__(self, type_: Type, digest: str) -> None:
        shape = tuple(int(d) for d in type_.shape if isinstance(d, int))
        numbers = np.random.default_rng(int(digest, 16))
        is_integer = type_.dtype.kind in "iu"
        super().__init__(np.zeros(shape) if is_integer else numbers.standard_normal(shape), type_.dtype)
        self.digest = digest
        self.key = (type_.dtype.name, shape, digest.encode())


# Printing.


def text(graph: Graph, inline: int | None = INLINE, *, brief: bool = False, sources: bool = False) -> str:
    """Format a graph. A constant of more than ``inline`` numbers is a type and a digest.

    ``brief`` leaves out inputs that no node reads and the order of inputs, which no pass uses. ``sources`` adds the
    user's line behind each node, for people.
    """
    return "\n".join(_lines(graph, "", inline, brief, sources))


Graph.text_form = partial(text, brief=True)


def _lines(graph: Graph, number: str, inline: int | None, brief: bool, sources: bool) -> Iterator[str]:
    nodes = graph.nodes()
    names = {node: f"v{i}" for i, node in enumerate(nodes)}
    inner: dict[Subgraph, str] = {}
    used = {node.attrs["name"]: None for node in nodes if node.op.name == "input"}
    unused = {name: node for name, node in graph.inputs.items() if name not in used and not brief}
    order = ", ".join(map(_word, graph.inputs))
    name = graph.name if re.fullmatch(NAME, graph.name) else repr(graph.name)
    yield f"graph {name} {number}({order}):" if number else f"graph {name}:"
    for node, name in names.items():
        inside = [names[a.find()] for a in node.args]
        for key, value in node.attrs.items():
            if isinstance(value, Subgraph):
                at = inner.setdefault(value, f"{number}{number and '.'}{len(inner) + 1}")
                inside.append(f"{key}=<{value.graph.name} {at}: {len(value.graph.nodes())} nodes>")
            elif key != "type":
                dtype = node.type.dtype if key == "value" and isinstance(node.type, Type) else DTYPES["i64"]
                inside.append(f"{key}={_value(key, value, dtype, inline)}")
        source = f"  # {node.line}" if sources and node.line else ""
        yield f"  {name} = {node.op.name}({', '.join(inside)}) : {node.type}{source}"
    for node in unused.values():
        attrs = {key: value for key, value in node.attrs.items() if key != "type"}
        notes = [f"{key}={_value(key, value, DTYPES['i64'], inline)}" for key, value in attrs.items()]
        yield f"  unused input({', '.join(notes)}) : {node.type}"
    yield "  return " + ", ".join(f"{_word(k)}={names[v.find()]}" for k, v in graph.outputs.items())
    for slot, node in graph.writes.items():
        yield f"  write {_word(slot)}={names[node.find()]}"
    if not (brief or number or list(graph.inputs) == [*used, *unused]):
        yield f"  inputs {order}"
    for subgraph, at in inner.items():
        yield from (f"    {line}" for line in _lines(subgraph.graph, at, inline, brief=False, sources=sources))


def _word(name: str) -> str:
    return name if re.fullmatch(WORD, name) else repr(name)


def _value(key: str, value: Any, dtype: DType, inline: int | None) -> str:
    if isinstance(value, Literal):
        return _literal(value, dtype, inline)
    if isinstance(value, str):
        return _word(value) if key in STRINGS else repr(value)
    if record := next((name for name, kind in RECORDS.items() if isinstance(value, kind)), None):
        return f"{record}({', '.join(_literal(getattr(value, f.name), None, inline) for f in fields(value))})"
    return str(value)


def _literal(value: Literal, dtype: DType | None, inline: int | None) -> str:
    array, type_ = value.array, Type(value.dtype, value.array.shape)
    if isinstance(value, Unknown):
        return f"numbers('{type_}', '{value.digest}')"
    if inline is not None and array.size > inline:
        bits = np.ascontiguousarray(array).tobytes()
        return f"numbers('{type_}', '{blake2b(bits, digest_size=8).hexdigest()}')"
    plain = np.array(array.tolist(), array.dtype)
    if array.dtype.kind == "f":
        plain[np.isnan(plain)] = np.nan
    if Literal(plain, value.dtype) != value:  # a nan with bits of its own, or a shape that no list has
        return f"bits('{type_}', '{array.tobytes().hex()}')"
    numbers = str(array.tolist())
    return numbers if value.dtype is dtype else f"{value.dtype}({numbers})"


# Reading.


@dataclass
class Line:
    """A line of a text, and its number."""

    number: int
    text: str

    def wrong(self, expected: str) -> MlaotError:
        return MlaotError(f"line {self.number}: expected {expected}, got {self.text[:200]!r}")


@dataclass
class Block:
    """The lines of one graph. ``inputs`` are the names of its inputs in order, if its head lists them."""

    name: str
    inputs: list[str] | None
    head: Line
    lines: list[Line]


def parse(source: str) -> Graph:
    """Parse a graph. An error names the line and what was expected there."""
    graphs = parse_all(source)
    if len(graphs) != 1:
        raise MlaotError(f"expected the text of one graph, got {len(graphs)}")
    return graphs[0]


def parse_all(source: str) -> list[Graph]:
    """Parse the graphs of a text such as ``MLAOT_DUMP`` prints. Empty lines and lines that begin with # are skipped."""
    graphs: list[dict[str, Block]] = []
    block: Block | None = None
    for number, source_line in enumerate(source.splitlines(), 1):
        line = Line(number, source_line.strip())
        if not line.text or line.text.startswith("#"):
            continue
        if line.text.startswith("graph "):
            match = HEAD.fullmatch(line.text)
            if match is None:
                raise line.wrong("graph NAME: or graph NAME NUMBER(INPUTS):")
            name, at, inputs = match.groups()
            block = Block(_unquote(name), None if inputs is None else _names(inputs, line), line, [])
            if not at:
                graphs.append({})
            elif not graphs:
                raise line.wrong("a graph without a number, to which subgraphs belong")
            graphs[-1][at or ""] = block
        elif block is None:
            raise line.wrong("graph NAME: before its nodes")
        else:
            block.lines.append(line)
    return [_graph(blocks, "", blocks[""].name) for blocks in graphs]


def _unquote(name: str) -> str:
    return str(ast.literal_eval(name)) if name[:1] in ("'", '"') else name


def _names(listed: str, line: Line) -> list[str]:
    names, at = [], 0
    while at < len(listed):
        match = ITEM.match(listed, at)
        if match is None:
            raise line.wrong("names of inputs, separated by commas")
        names.append(_unquote(match[1]))
        at = match.end()
    return names


def _graph(blocks: dict[str, Block], number: str, name: str) -> Graph:
    block = blocks[number]
    graph = Graph(name)
    values: dict[str, Node] = {}
    is_done = False
    for line in block.lines:
        keyword, _, rest = line.text.partition(" ")
        if keyword == "return" and not is_done:
            graph.outputs, is_done = _pairs(rest, values, line), True
        elif keyword == "write" and is_done:
            graph.writes |= _pairs(rest, values, line)
        elif keyword == "inputs" and is_done:
            block.inputs = _names(rest, line)
        elif is_done:
            raise line.wrong("write SLOT=vN, or another graph")
        elif match := UNUSED.fullmatch(line.text):
            _input(graph, _arguments(match[1], {}, blocks, line)[1], _read_type(match[2], line), line)
        elif match := NODE.fullmatch(line.text):
            values[match[1]] = _read_node(graph, match, values, blocks, line)
        else:
            raise line.wrong("vN = OP(ARGUMENTS) : TYPE, or return NAME=vN")
    if not is_done:
        raise (block.lines or [block.head])[-1].wrong("a line with return behind it")
    if block.inputs is not None:
        if set(block.inputs) != set(graph.inputs):
            raise block.head.wrong(f"the inputs {', '.join(graph.inputs)}")
        graph.inputs = {key: graph.inputs[key] for key in block.inputs}
    return graph


def _read_node(
    graph: Graph, match: re.Match[str], values: dict[str, Node], blocks: dict[str, Block], line: Line
) -> Node:
    """Parse the node of a line, and check its type against the type in the line."""
    number, op, inside, type_text = match.groups()
    if number in values:
        raise line.wrong(f"a new name, as {number} stands above")
    args, attrs = _arguments(inside, values, blocks, line)
    type_ = _read_type(type_text, line)
    if op == "input":
        return _input(graph, attrs, type_, line)
    if "value" in attrs and op == "const" and not isinstance(attrs["value"], Literal) and isinstance(type_, Type):
        attrs["value"] = _constant(attrs["value"], type_.dtype, line)
    if "indices" in attrs and not isinstance(attrs["indices"], Literal):
        attrs["indices"] = _constant(attrs["indices"], DTYPES["i64"], line)
    node = _node(graph, op, args, attrs, line)
    if node.type != type_:
        raise line.wrong(f"the type {node.type}")
    return node


def _constant(value: Any, dtype: DType, line: Line) -> Literal:
    try:
        return Literal(value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise line.wrong(f"numbers of {dtype} ({error})") from None


def _pairs(rest: str, values: dict[str, Node], line: Line) -> dict[str, Node]:
    pairs, at = {}, 0
    while at < len(rest):
        match = PAIR.match(rest, at)
        if match is None or match[2] not in values:
            raise line.wrong("NAME=vN, with the number of a node above")
        pairs[_unquote(match[1])] = values[match[2]]
        at = match.end()
    return pairs


def _arguments(
    source: str, values: dict[str, Node], blocks: dict[str, Block], line: Line
) -> tuple[list[Node], dict[str, Any]]:
    """Parse the arguments and the attributes of a node."""

    def quoted(match: re.Match[str]) -> str:
        key, word, name, number = match.groups()
        return f"{key}={word!r}" if key else f"subgraph({name!r}, {number!r})" if name else match[0]

    def body(name: str, number: str) -> Subgraph:
        if number not in blocks:
            raise line.wrong(f"a graph {name} {number} below")
        return Subgraph(_graph(blocks, number, name))

    try:
        call = ast.parse(f"f({BARE.sub(quoted, source)})", mode="eval").body
        assert isinstance(call, ast.Call)
    except (SyntaxError, AssertionError):
        raise line.wrong("nodes and KEY=VALUE between the parentheses") from None
    args: list[Node] = []
    for arg in call.args:
        if not isinstance(arg, ast.Name) or arg.id not in values:
            raise line.wrong(f"a node above, in place of {ast.unparse(arg)}")
        args.append(values[arg.id])
    attrs = {}
    for item in call.keywords:
        try:
            attrs[str(item.arg)] = _read(item.value, body)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise line.wrong(f"a value for {item.arg} ({error})") from None
    return args, attrs


def _read(tree: ast.expr, body: Callable[[str, str], Subgraph]) -> Any:
    """Evaluate an attribute."""
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return float(name) if name in ("nan", "inf") else DTYPES[name] if name in DTYPES else dims.dim(name)
        case ast.Tuple(elts=items):
            return tuple([_read(item, body) for item in items])
        case ast.List(elts=items):
            return [_read(item, body) for item in items]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _read(operand, body)
            return value * -1 if isinstance(value, dims.Expr) else -value
        case ast.BinOp(left=left, op=operation, right=right):
            return _combine(operation, _read(left, body), _read(right, body))
        case ast.Call(func=ast.Name(id=name), args=items):
            return _call(name, [_read(item, body) for item in items], body)
    raise ValueError(f"{ast.unparse(tree)} is none")


def _combine(operation: ast.operator, left: Any, right: Any) -> Any:
    match operation:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() | ast.FloorDiv():
            return left // right
    raise ValueError("a dim is made by +, -, * and /")


def _call(name: str, args: list[Any], body: Callable[[str, str], Subgraph]) -> Any:
    """Parse ``f32([1.0, 2.0])`` and the other forms of constants, or a subgraph."""
    if name == "subgraph":
        return body(*args)
    if name in RECORDS:
        return RECORDS[name](*args)
    if name in DTYPES:
        return Literal(args[0], DTYPES[name])
    if name == "numbers":
        return Unknown(_type(args[0]), args[1])
    if name == "bits":
        type_ = _type(args[0])
        shape = tuple(int(d) for d in type_.shape if isinstance(d, int))
        return Literal(np.frombuffer(bytes.fromhex(args[1]), type_.dtype.numpy).reshape(shape), type_.dtype)
    raise ValueError(f"{name}() is none")


def _node(graph: Graph, name: str, args: list[Node], attrs: dict[str, Any], line: Line) -> Node:
    """Add a node with the type that its op's rule returns."""
    if name not in OPS:
        raise line.wrong(f"an op{did_you_mean(name, OPS)}")
    size = graph.size
    try:
        node = graph.add(OPS[name], args, attrs)
    except (MlaotError, AssertionError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise line.wrong(f"what {name} takes ({error})") from None
    if graph.size > size:
        return node
    return Node(graph, node.op, tuple(args), attrs, node.type)  # passes can leave two equal nodes: they stay two


def _input(graph: Graph, attrs: dict[str, Any], type_: Type | TupleType, line: Line) -> Node:
    name, notes = attrs.get("name"), {key: value for key, value in attrs.items() if key != "name"}
    if not isinstance(name, str) or name in graph.inputs or not isinstance(type_, Type):
        raise line.wrong("an input by a name of its own, and no tuple")
    return graph.input(name, type_, **notes)


def _read_type(source: str, line: Line) -> Type | TupleType:
    """Parse ``f32[batch,64]``, or several types in parentheses."""
    try:
        return _types(source)
    except (ValueError, KeyError, MlaotError):
        raise line.wrong("a type such as f32[batch,64] behind the colon") from None


def _types(source: str) -> Type | TupleType:
    if source.startswith("(") and source.endswith(")"):
        items = re.findall(TYPE, source)
        type_ = TupleType(tuple([_type(f"{name}[{shape}]") for name, shape in items]))
        if str(type_) != source:
            raise ValueError("types are separated by commas")
        return type_
    return _type(source)


def _type(source: str) -> Type:
    match = TYPE.fullmatch(source)
    if match is None:
        raise ValueError(f"{source!r} is no type")
    return Type(DTYPES[match[1]], tuple([dims.parse(d) for d in match[2].split(",") if match[2]]))
