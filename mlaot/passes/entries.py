"""From one model graph to the entries of a module: inference, loss, training. Differentiates; exact rules.

    model: x, label -> out, loss        =>    forward: x -> out
                                              loss: x, label -> loss
                                              train_step: x, label, lr -> loss, writes p - lr * dp for every parameter
                                              accumulate: x, label -> out, loss, writes gradient(p) + dp
                                              update: lr -> writes p - lr * gradient(p)

The loss of a batch is the mean over its examples. A model without a loss has ``forward`` only. An input that nothing
needs stays: ``forward`` takes the arguments of the model's function, the others take all inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Graph, Node, Type, topological
from mlaot.ir.module import Module, gradient_of
from mlaot.ir.types import BY_NUMPY
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.transforms.differentiate import differentiate

Parts = tuple[Graph, dict[Node, Node]]


def entries(module: Module, arguments: Iterable[str] = ()) -> None:
    """Replace the graph ``model`` of ``module`` by its entries; ``forward`` keeps the inputs ``arguments``."""
    model = module.graphs.pop("model")
    outputs = {k: v for k, v in model.outputs.items() if k != "loss"}
    module.graphs["forward"] = _forward(model, outputs, tuple(arguments))
    if not module.trains:
        return
    loss = model.outputs["loss"].find()
    module.graphs["loss"] = _loss(module, model, loss)
    if not module.parameters:
        raise MlaotError("a model with a loss trains, but this one has no parameters")
    module.graphs["train_step"] = _train_step(module, model, loss)
    module.graphs["accumulate"] = _accumulate(module, model, outputs, loss)
    module.graphs["update"] = _update(module, model)


def copy_into(graph: Graph, roots: Iterable[Node], name: str, *, keep: Iterable[str] = ()) -> Parts:
    """A new graph with what ``roots`` need, and the inputs ``keep``; the copy of each node."""
    new = Graph(name)
    order = topological(roots)
    needed = set(order)
    copies: dict[Node, Node] = {}
    for key, node in graph.inputs.items():
        if node in needed or key in keep:
            attrs = {k: v for k, v in node.attrs.items() if k not in ("name", "type")}
            copies[node] = new.input(key, node.type, **attrs)
    for node in order:
        if node not in copies:
            copies[node] = new.add(node.op, [copies[a.find()] for a in node.args], node.attrs)
    return new, copies


def _forward(model: Graph, outputs: dict[str, Node], arguments: tuple[str, ...]) -> Graph:
    graph, copies = copy_into(model, [v.find() for v in outputs.values()], "forward", keep=arguments)
    graph.outputs = {k: copies[v.find()] for k, v in outputs.items()}
    return graph


def _mean(loss: Node) -> Node:
    """The mean over a leading batch dim; a scalar loss stays."""
    if loss.type.shape == ():
        return loss
    if loss.type.rank != 1:
        raise MlaotError(f"a loss must be a scalar, or one number an example, got {loss.type}")
    total = red.sum_(loss, axes=(0,))
    return ew.div(total, loss.graph.add(st.size, (), {"dim": loss.type.shape[0], "dtype": loss.type.dtype}))


def _loss(module: Module, model: Graph, loss: Node) -> Graph:
    inputs = [name for name in model.inputs if name not in module.parameters]
    graph, copies = copy_into(model, [loss], "loss", keep=inputs)
    graph.outputs["loss"] = _mean(copies[loss])
    return graph


def _train_step(module: Module, model: Graph, loss: Node) -> Graph:
    graph, copies = copy_into(model, [loss], "train_step", keep=model.inputs)
    mean = _mean(copies[loss])
    wanted = [graph.inputs[name] for name in module.parameters]
    for node, gradient in zip(wanted, differentiate(mean, wanted), strict=True):
        if gradient.op is not st.broadcast or gradient.arg(0).op is not st.const:
            graph.writes[node.attrs["name"]] = _descend(module, graph, node, gradient)
    _rate(module, graph)
    graph.outputs["loss"] = mean
    return graph


def _accumulate(module: Module, model: Graph, outputs: dict[str, Node], loss: Node) -> Graph:
    graph, copies = copy_into(model, [*[v.find() for v in outputs.values()], loss], "accumulate", keep=model.inputs)
    mean = _mean(copies[loss])
    wanted = [graph.inputs[name] for name in module.parameters]
    for node, gradient in zip(wanted, differentiate(mean, wanted), strict=True):
        slot = gradient_of(node.attrs["name"])
        graph.writes[slot] = ew.add(graph.input(slot, node.type, parameter=True), gradient)
    graph.outputs = {k: copies[v.find()] for k, v in outputs.items()} | {"loss": mean}
    return graph


def _update(module: Module, model: Graph) -> Graph:
    graph = Graph("update")
    for name in module.parameters:
        node = graph.input(name, model.inputs[name].type, parameter=True)
        gradient = graph.input(gradient_of(name), node.type, parameter=True)
        graph.writes[name] = _descend(module, graph, node, gradient)
    return graph


def _descend(module: Module, graph: Graph, parameter: Node, gradient: Node) -> Node:
    """Stochastic gradient descent: p - lr * dp."""
    rate = _rate(module, graph)
    if rate.type.dtype is not parameter.type.dtype:
        rate = ew.cast(rate, dtype=parameter.type.dtype)
    step = st.broadcast(rate, shape=parameter.type.shape, axes=())
    return ew.sub(parameter, ew.mul(gradient, step))


def _rate(module: Module, graph: Graph) -> Node:
    """The input ``lr``, of the parameters' type: the widest, where they have several."""
    kind = BY_NUMPY[str(np.result_type(*[p.dtype for p in module.parameters.values()]))]
    return graph.input("lr", Type(kind), default=module.learning_rate)
