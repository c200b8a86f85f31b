"""A failing graph made smaller, and printed as Python that makes it again.

What is computed before the fault becomes an input with the values it had; what comes after it is left out. A smaller
graph counts if it fails in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlaot.ir import DType, Graph, Literal, Node, Subgraph, TupleType, Type
from mlaot.ir import dims as dims_
from mlaot.ir.types import f32
from mlaot.ops import structure as st

from .bounds import Analysis
from .tensor_graphs import Made

ROUNDS = 12
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
        candidates = [replace(c, seed=case.seed * 1000 + i) for i, c in enumerate(_smaller(best))]
        check(candidates)
        failing = [c for c in candidates if symptom(c.failures) == wanted]
        if not failing:
            break
        best = min(failing, key=_cost)
    return best


def _cost(case: Any) -> tuple[int, int]:
    nodes = case.reference.nodes()
    return sum(n.op is not st.input_ for n in nodes), len(nodes)


def _forward_only(case: Any) -> Any:
    """Slots as inputs, writes as outputs; the first trial and the compilation that failed."""
    outputs = [*case.reference.outputs.values(), *case.reference.writes.values()]
    told = [t for f in case.failures for t in re.findall(r"trial (\d)", f)]
    trials = [case.trials[int(told[0])]] if told else case.trials
    kinds = [k for k in case.kinds if case.failures[0].startswith(k)] or case.kinds
    return _rebuilt(replace(case, trials=trials, kinds=tuple(kinds)), outputs, ())


def _smaller(case: Any) -> Iterator[Any]:
    """One output alone, an earlier node as the output, a node replaced by an input."""
    outputs = [node.find() for node in case.reference.outputs.values()]
    nodes = [n for n in case.reference.nodes() if n.op is not st.input_ and not isinstance(n.type, TupleType)]
    for node in nodes if len(nodes) <= 60 else nodes[:: len(nodes) // 60 + 1]:
        if outputs != [node]:
            yield _rebuilt(case, [node], ())
        if node not in outputs and not _is_constant(node):
            yield _rebuilt(case, outputs, (node,))
    if len(outputs) > 1:
        for i in range(len(outputs)):
            yield _rebuilt(case, outputs[:i] + outputs[i + 1 :], ())
    if len(case.trials) > 1:
        for trial in case.trials:
            yield replace(_rebuilt(case, outputs, ()), trials=[trial])


def _is_constant(node: Node) -> bool:
    return node.op is st.const or (node.op is st.broadcast and node.arg(0).op is st.const)


def _rebuilt(case: Any, outputs: Sequence[Node], cuts: Sequence[Node]) -> Any:
    """A case with a new graph for ``outputs``, in which ``cuts`` are inputs."""
    graph = Graph("forward")
    free = (name for i in range(1000) if (name := f"c{i}") not in case.reference.inputs)
    copies: dict[Node, Node] = {node: graph.input(next(free), node.type) for node in cuts}

    def copy(node: Node) -> Node:
        node = node.find()
        if node not in copies:
            if node.op is st.input_:
                copies[node] = graph.input(node.attrs["name"], node.type)
            else:
                copies[node] = graph.add(node.op, [copy(a) for a in node.args], node.attrs)
        return copies[node]

    graph.outputs = {f"y{i}": copy(node) for i, node in enumerate(outputs)}
    missing = _dims_of(graph) - {d for n in graph.inputs.values() for s in n.type.shape for d in dims_.names(s)}
    for name in sorted(missing):
        graph.input(f"told_{name}", Type(f32, (dims_.dim(name),)))
    trials = []
    for dims, inputs in case.trials:
        analysis = Analysis(inputs, dims, grained=True)
        values = {copies[n].attrs["name"]: n.type.dtype.array(analysis.of(n).value) for n in cuts}
        values |= {f"told_{name}": np.zeros(dims[name], np.float32) for name in missing}
        trials.append((dims, {name: values[name] if name in values else inputs[name] for name in graph.inputs}))
    return replace(case, made=Made(graph), reference=graph, entry="forward", trials=trials, failures=[])


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
