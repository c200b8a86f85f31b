"""A failing graph made smaller, and printed as Python that makes it again.

What is computed before the fault becomes an input with the values it had; what comes after it is left out, a node is
replaced by an argument of its type, arguments of sums are dropped, and extents become smaller.
A smaller graph counts if it fails in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import DType, Graph, Literal, Node, Subgraph, TupleType, Type
from mlaot.ir import dims as dims_
from mlaot.ir.types import f32
from mlaot.ops import structure as st

from .bounds import Analysis
from .tensor_graphs import Made

ROUNDS = 24
FEW = 8  # operations of a graph whose extents are made smaller
SHAPES = ("shape", "size")  # attributes that are extents
Check = Callable[[Sequence[Any]], None]  # runs cases and notes their failures in them


def symptom(failures: Sequence[str]) -> str:
    """In which way a case failed."""
    if not failures:
        return ""
    first = failures[0]
    if "refused" in first:
        return first
    for sign in ("crash", "error:", "warning:", ", trial"):
        if sign in first:
            return sign
    return first.strip().splitlines()[-1]


def shrunk(case: Any, check: Check) -> Any:
    """The smallest case found that fails like ``case``."""
    wanted, best = symptom(case.failures), _forward_only(case)
    check([best])
    if symptom(best.failures) != wanted:
        return case
    for _ in range(ROUNDS):
        smaller = [c for c in _smaller(best) if _cost(c) < _cost(best)]
        candidates = [replace(c, seed=case.seed * 1000 + i) for i, c in enumerate(smaller)]
        check(candidates)
        failing = [c for c in candidates if symptom(c.failures) == wanted]
        if not failing:
            break
        best = min(failing, key=_cost)
    return best


def _cost(case: Any) -> tuple[int, int, int, int]:
    """Operations, what they take, trials, and numbers of the inputs."""
    nodes = case.reference.nodes()
    taken = sum(len(n.args) for n in nodes) + len(case.reference.inputs) + len(case.reference.outputs)
    numbers = sum(np.size(value) for _, inputs in case.trials for value in inputs.values())
    return sum(n.op is not st.input_ for n in nodes), taken, len(case.trials), numbers


def _forward_only(case: Any) -> Any:
    """Slots as inputs, writes as outputs; the first trial and the compilation that failed."""
    outputs = [*case.reference.outputs.values(), *case.reference.writes.values()]
    told = [t for f in case.failures for t in re.findall(r"trial (\d)", f)]
    trials = [case.trials[int(told[0])]] if told else case.trials
    kinds = [k for k in case.kinds if case.failures[0].startswith(k)] or case.kinds
    return _rebuilt(replace(case, trials=trials, kinds=tuple(kinds)), outputs)


@dataclass(frozen=True)
class Edit:
    """What is another in a copy: inputs in place of nodes, nodes of others, other arguments, other extents."""

    cuts: Sequence[Node] = ()
    instead: Mapping[Node, Node] = field(default_factory=dict)
    args: Mapping[Node, Sequence[Node]] = field(default_factory=dict)
    sizes: Mapping[int | str, int] = field(default_factory=dict)


def _smaller(case: Any) -> Iterator[Any]:
    """One output alone, an earlier node as the output, and all that an ``Edit`` can do."""
    outputs = [node.find() for node in case.reference.outputs.values()]
    nodes = [n for n in case.reference.nodes() if n.op is not st.input_ and not isinstance(n.type, TupleType)]
    for node in nodes if len(nodes) <= 60 else nodes[:: len(nodes) // 60 + 1]:
        if outputs != [node]:
            yield _rebuilt(case, [node])
        if node not in outputs and not _is_constant(node):
            yield _rebuilt(case, outputs, Edit(cuts=(node,)))
        yield from _simpler(case, outputs, node)
    if len(outputs) > 1:
        for i in range(len(outputs)):
            yield _rebuilt(case, outputs[:i] + outputs[i + 1 :])
    if len(case.trials) > 1:
        for trial in case.trials:
            yield replace(_rebuilt(case, outputs), trials=[trial])
    if len(nodes) <= FEW:
        yield from _resized(case, outputs)


def _simpler(case: Any, outputs: Sequence[Node], node: Node) -> Iterator[Any]:
    """A node replaced by an argument, or without one."""
    args = [a.find() for a in node.args]
    for i, arg in enumerate(args):
        if arg.type == node.type:
            yield _rebuilt(case, outputs, Edit(instead={node: arg}))
        rest = args[:i] + args[i + 1 :]
        if len(args) > 2 and _type_of(node, rest) == node.type:
            yield _rebuilt(case, outputs, Edit(args={node: rest}))


def _type_of(node: Node, args: Sequence[Node]) -> object:
    """The type of a node on other arguments; None where it takes no such."""
    try:
        return node.op.type_rule(*[a.type for a in args], **node.attrs)
    except (MlaotError, TypeError, ValueError, LookupError):
        return None


def _resized(case: Any, outputs: Sequence[Node]) -> Iterator[Any]:
    """Every axis of one extent, and every use of one named dim, smaller."""
    nodes = case.reference.nodes()
    shapes = [n.type.shape for n in case.reference.inputs.values()]
    shapes += [value for n in nodes for key, value in n.attrs.items() if key in SHAPES and isinstance(value, tuple)]
    extents = {d for shape in shapes for d in shape if isinstance(d, int)}
    named = {name: size for dims, _ in case.trials for name, size in dims.items()}
    for key, size in [*((d, d) for d in sorted(extents)), *named.items()]:
        for new in sorted({1, 2, size // 2, size * 3 // 4} - {0}):
            if new < size:
                try:
                    made = _rebuilt(case, outputs, Edit(sizes={key: new}))
                    for dims, inputs in made.trials:
                        evaluate(made.reference, inputs, dims=dims)
                except (MlaotError, AssertionError, TypeError, ValueError, LookupError):
                    continue  # the extents do not go together
                yield made


def _is_constant(node: Node) -> bool:
    return node.op is st.const or (node.op is st.broadcast and node.arg(0).op is st.const)


def _rebuilt(case: Any, outputs: Sequence[Node], edit: Edit = Edit()) -> Any:
    """A case with a new graph for ``outputs``."""
    graph = Graph("forward")
    free = (name for i in range(1000) if (name := f"c{i}") not in case.reference.inputs)
    copies = {node: graph.input(next(free), _sized_type(node.type, edit.sizes)) for node in edit.cuts}

    def copy(node: Node) -> Node:
        node = node.find()
        if node not in copies:
            if node in edit.instead:
                copies[node] = copy(edit.instead[node])
            elif node.op is st.input_:
                copies[node] = graph.input(node.attrs["name"], _sized_type(node.type, edit.sizes))
            else:
                args = [copy(a) for a in edit.args.get(node, node.args)]
                copies[node] = graph.add(node.op, args, _sized_attrs(node.attrs, edit.sizes))
        return copies[node]

    graph.outputs = {f"y{i}": copy(node) for i, node in enumerate(outputs)}
    missing = _dims_of(graph) - {d for n in graph.inputs.values() for s in n.type.shape for d in dims_.names(s)}
    for name in sorted(missing):
        graph.input(f"told_{name}", Type(f32, (dims_.dim(name),)))
    trials = []
    for dims, inputs in case.trials:
        analysis = Analysis(inputs, dims, grained=True)
        values = {copies[n].attrs["name"]: n.type.dtype.array(analysis.of(n).value) for n in edit.cuts}
        values |= {f"told_{name}": np.zeros(dims[name], np.float32) for name in missing}
        known = {name: edit.sizes.get(name, size) for name, size in dims.items()}
        given = {name: values[name] if name in values else inputs[name] for name in graph.inputs}
        trials.append((known, {name: _cut(value, graph.inputs[name], known) for name, value in given.items()}))
    return replace(case, made=Made(graph), reference=graph, entry="forward", trials=trials, failures=[])


def _sized_type(type_: Type, sizes: Mapping[int | str, int]) -> Type:
    return type_.with_shape(tuple(sizes.get(d, d) if isinstance(d, int) else d for d in type_.shape))


def _sized_attrs(attrs: Mapping[str, Any], sizes: Mapping[int | str, int]) -> dict[str, Any]:
    """Attributes that are extents, of other extents."""
    shapes = {key: value for key, value in attrs.items() if key in SHAPES and isinstance(value, tuple)}
    new = {key: tuple(sizes.get(d, d) if isinstance(d, int) else d for d in value) for key, value in shapes.items()}
    return {**attrs, **new}


def _cut(value: Any, node: Node, dims: Mapping[str, int]) -> Any:
    """The first elements of an input, as many as its type has now."""
    shape = tuple(dims_.substitute(d, dims) for d in node.type.shape)
    if any(new > old for new, old in zip(shape, np.shape(value), strict=True)):
        raise ValueError("an extent grows")
    return np.ascontiguousarray(value[tuple(map(slice, shape))]).reshape(shape) if shape != np.shape(value) else value


def _dims_of(graph: Graph) -> set[str]:
    found: set[str] = set()
    for node in graph.nodes():
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        found |= {n for d in (*(d for t in types for d in t.shape), node.attrs.get("dim", 0)) for n in dims_.names(d)}
        for value in node.attrs.values():
            if isinstance(value, Subgraph):
                found |= _dims_of(value.graph)
    return found


# As Python.


def source(case: Any) -> str:
    """Python that makes the graph of a case and the inputs of its first trial."""
    lines: list[str] = []
    _write_graph(case.reference, "g", lines)
    dims, inputs = case.trials[0] if case.trials else ({}, {})
    lines += [
        f"g.outputs = {{{', '.join(f'{k!r}: {_name(case.reference, v)}' for k, v in case.reference.outputs.items())}}}"
    ]
    lines += ["inputs = {", *[f"    {k!r}: {array_source(v)}," for k, v in inputs.items()], "}", f"dims = {dims!r}"]
    return "\n".join(lines)


def _name(graph: Graph, node: Node) -> str:
    return f"v{graph.nodes().index(node.find())}"


def _write_graph(graph: Graph, name: str, lines: list[str]) -> None:
    lines.append(f"{name} = Graph({graph.name!r})")
    prefix = "v" if name == "g" else f"{name}_"
    nodes = graph.nodes()
    names = {node: f"{prefix}{i}" for i, node in enumerate(nodes)}
    for key, node in graph.inputs.items():  # in this order: it is that of the arguments of a subgraph
        target = f"{names[node]} = " if node in names else ""
        lines.append(f"{target}{name}.input({key!r}, {_type(node.type)})")
    for node in nodes:
        if node.op is st.input_:
            continue
        attrs = []
        for key, value in node.attrs.items():
            if isinstance(value, Subgraph):
                inner = f"{name}_{key}_{names[node].replace('_', '')}"
                _write_graph(value.graph, inner, lines)
                found = value.graph.nodes()
                roots = ", ".join(f"{k!r}: {inner}_{found.index(v.find())}" for k, v in value.graph.outputs.items())
                lines.append(f"{inner}.outputs = {{{roots}}}")
                attrs.append(f"{key!r}: Subgraph({inner})")
            else:
                attrs.append(f"{key!r}: {_value(value)}")
        args = ", ".join(names[a.find()] for a in node.args)
        lines.append(f"{names[node]} = {name}.add(OPS[{node.op.name!r}], [{args}], {{{', '.join(attrs)}}})")


def _type(type_: Type) -> str:
    return f"Type({'boolean' if type_.dtype.name == 'bool' else type_.dtype}, {_value(type_.shape)})"


def _value(value: Any) -> str:
    if isinstance(value, Literal):
        return f"Literal({array_source(value.array)}, {_value(value.dtype)})"
    if isinstance(value, DType):
        return "boolean" if value.name == "bool" else value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dims_.Expr):
        return str(value).replace("/", "//")
    return repr(value)


def array_source(value: Any) -> str:
    array = np.asarray(value)
    text = re.sub(r"\b(nan|inf)\b", r"np.\1", repr(array.tolist()))
    return (
        f"np.array({text}, {array.dtype.name!r}).reshape({array.shape})"
        if array.size == 0
        else f"np.array({text}, {array.dtype.name!r})"
    )
