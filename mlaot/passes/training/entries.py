"""Derive the entries of a module from one model graph: inference, loss, training. Differentiates by exact rules.

    model: x, label -> out, loss        =>    forward: x -> out
                                              loss: x, label -> loss
                                              train_step: x, label, lr -> loss, writes p - lr * dp for every parameter
                                              accumulate: x, label -> loss, writes gradient(p) + dp
                                              phases: x, label -> out, loss, writes gradient(p) + dp
                                              update: lr -> writes p - lr * gradient(p)

The loss of a batch is the mean over its examples. A model without a loss has only ``forward``. Unused inputs are kept:
``forward`` takes the arguments of the model's function, and the other entries take all inputs. If the model behaves
differently in training (dropout, normalization), ``train_step``, ``accumulate`` and ``phases`` come from the graph
``training``. ``phases`` is for ``forward()`` and ``backward()``: it gives the outputs, so it has no microbatches. An
optimizer other than stochastic gradient descent is a Python function of arrays. It is traced into both entries that
update parameters, and has its state in further slots.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.declaration import Optimizer, Traced
from mlaot.frontend.trace.updating import update_traced
from mlaot.ir import Graph, Node, Type, topological
from mlaot.ir.module import FIT_STEP, OPTIMIZER, PHASES, Module, gradient_of
from mlaot.ir.types import BY_NUMPY
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.base import pass_over
from mlaot.passes.training import microbatch
from mlaot.transforms.differentiate import differentiate

Parts = tuple[Graph, dict[Node, Node]]


@pass_over("declaration", after=("split_parameters", "add_batch", "contract"))
def entries(module: Module, traced: Traced) -> None:
    """Derive the entries of a module: ``forward``, and those for training."""
    derive(module, traced.arguments, traced.optimizer)


def derive(module: Module, arguments: Iterable[str] = (), optimizer: Optimizer | None = None) -> None:
    """Replace the graphs ``model`` and ``training`` of ``module`` by its entries.

    ``forward`` keeps the inputs ``arguments``. Without an ``optimizer`` training is stochastic gradient descent.
    """
    model = module.graphs.pop("model")
    training = module.graphs.pop("training", model)
    tile, one = module.graphs.pop("tile", None), module.graphs.pop(FIT_STEP, None)
    remaining = dict(module.graphs)
    module.graphs.clear()
    outputs = _results(model)
    module.graphs["forward"] = _forward(model, outputs, tuple(arguments))
    if module.trains:
        if not module.parameters:
            raise MlaotError("a model with a loss trains, but this one has no parameters")
        if optimizer is not None:
            state = optimizer.init(module.trained)
            module.state |= {OPTIMIZER + name: np.asarray(value) for name, value in state.items()}
        module.graphs["loss"] = _loss(module, model, model.outputs["loss"].find())
        module.graphs["train_step"] = _train_step(module, training, tile, optimizer)
        module.graphs["accumulate"] = _accumulate(module, training, tile)
        module.graphs[PHASES] = _phases(module, training)
        module.graphs["update"] = _update(module, training, optimizer)
        if one is not None:
            module.graphs[FIT_STEP] = _train_step(module, one, None, optimizer, FIT_STEP)
    module.graphs |= remaining


def _results(model: Graph) -> dict[str, Node]:
    return {k: v.find() for k, v in model.outputs.items() if k != "loss"}


def copy_into(graph: Graph, roots: Iterable[Node], name: str, *, keep: Iterable[str] = ()) -> Parts:
    """Copy the nodes that ``roots`` depend on and the inputs ``keep`` to a new graph.

    Return it and each node's copy.
    """
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
            copies[node] = new.copy(node, [copies[a.find()] for a in node.args])
    return new, copies


def _forward(model: Graph, outputs: dict[str, Node], arguments: tuple[str, ...]) -> Graph:
    graph, copies = copy_into(model, [*outputs.values(), *_written(model)], "forward", keep=(*arguments, *model.writes))
    graph.outputs = {k: copies[v] for k, v in outputs.items()}
    graph.writes = {k: copies[v.find()] for k, v in model.writes.items()}
    return graph


def _written(model: Graph) -> list[Node]:
    return [v.find() for v in model.writes.values()]


def _mean(loss: Node) -> Node:
    """Compute the mean over a leading batch dim; return a scalar loss unchanged."""
    if loss.type.shape == ():
        return loss
    if loss.type.rank != 1:
        raise MlaotError(f"a loss must be a scalar, or one number an example, got {loss.type}")
    total = red.sum_(loss, axes=(0,))
    return ew.div(total, loss.graph.add(st.size, (), {"dim": loss.type.shape[0], "dtype": loss.type.dtype}))


def _loss(module: Module, model: Graph, loss: Node) -> Graph:
    inputs = [name for name in model.inputs if name not in module.slots]
    graph, copies = copy_into(model, [loss], "loss", keep=inputs)
    graph.outputs["loss"] = _mean(copies[loss])
    return graph


def _differentiate(module: Module, model: Graph, name: str) -> tuple[Graph, dict[Node, Node], Node, dict[str, Node]]:
    """Copy ``model`` with its writes; return the copies, the mean loss, and each parameter's gradient."""
    loss = model.outputs["loss"].find()
    roots = [*_results(model).values(), *_written(model), loss] if name == PHASES else [*_written(model), loss]
    inputs = [key for key in model.inputs if key not in module.state or key in model.writes]
    graph, copies = copy_into(model, roots, name, keep=inputs)
    graph.writes = {k: copies[v.find()] for k, v in model.writes.items()}
    mean = _mean(copies[loss])
    wanted = {key: graph.inputs[key] for key in module.trained}
    return graph, copies, mean, dict(zip(wanted, differentiate(mean, [*wanted.values()]), strict=True))


def _in_one_call(module: Module, model: Graph, tile: Graph | None, name: str) -> tuple[Graph, dict[str, Node]]:
    """Make a graph with the mean loss, in microbatches if there is a ``tile``; return each parameter's gradient."""
    if tile is None:
        graph, _, mean, gradients = _differentiate(module, model, name)
    else:
        graph, _ = copy_into(model, (), name, keep=[key for key in model.inputs if key not in module.state])
        mean, gradients = microbatch.gradients(module, tile, graph.inputs)
    graph.outputs["loss"] = mean
    return graph, gradients


def _train_step(
    module: Module, model: Graph, tile: Graph | None, optimizer: Optimizer | None, name: str = "train_step"
) -> Graph:
    graph, gradients = _in_one_call(module, model, tile, name)
    if optimizer is None:
        for name, gradient in gradients.items():
            if gradient.op is not st.broadcast or gradient.arg(0).op is not st.const:
                graph.writes[name] = _descend(module, graph, graph.inputs[name], gradient)
    else:
        _optimize(module, graph, gradients, optimizer)
    _rate(module, graph)
    return graph


def _accumulate(module: Module, model: Graph, tile: Graph | None) -> Graph:
    graph, gradients = _in_one_call(module, model, tile, "accumulate")
    _add_gradients(graph, gradients)
    return graph


def _phases(module: Module, model: Graph) -> Graph:
    graph, copies, mean, gradients = _differentiate(module, model, PHASES)
    _add_gradients(graph, gradients)
    graph.outputs = {k: copies[v] for k, v in _results(model).items()} | {"loss": mean}
    return graph


def _add_gradients(graph: Graph, gradients: dict[str, Node]) -> None:
    for name, gradient in gradients.items():
        slot = gradient_of(name)
        graph.writes[slot] = ew.add(graph.input(slot, gradient.type, parameter=True), gradient)


def _update(module: Module, model: Graph, optimizer: Optimizer | None) -> Graph:
    graph = Graph("update")
    gradients = {}
    for name in module.trained:
        node = graph.input(name, model.inputs[name].type, parameter=True)
        gradients[name] = graph.input(gradient_of(name), node.type, parameter=True)
        if optimizer is None:
            graph.writes[name] = _descend(module, graph, node, gradients[name])
    if optimizer is not None:
        _optimize(module, graph, gradients, optimizer)
    return graph


def _descend(module: Module, graph: Graph, parameter: Node, gradient: Node) -> Node:
    """Write a step of stochastic gradient descent: p - lr * dp."""
    rate = _rate(module, graph)
    graph.origin = f"{parameter.attrs['name']}.update"
    if rate.type.dtype is not parameter.type.dtype:
        rate = ew.cast(rate, dtype=parameter.type.dtype)
    step = st.broadcast(rate, shape=parameter.type.shape, axes=())
    descended = ew.sub(parameter, ew.mul(gradient, step))
    graph.origin = ""
    return descended


def _optimize(module: Module, graph: Graph, gradients: dict[str, Node], optimizer: Optimizer) -> None:
    """Write the optimizer's new parameters and new state to their slots."""
    slots = {name: array for name, array in module.state.items() if name.startswith(OPTIMIZER)}
    state = {
        name.removeprefix(OPTIMIZER): graph.input(name, Type(BY_NUMPY[str(a.dtype)], a.shape), parameter=True)
        for name, a in slots.items()
    }
    parameters = {name: graph.inputs[name] for name in module.trained}
    written, kept = update_traced(optimizer, graph, parameters, gradients, state, _rate(module, graph))
    graph.writes |= written
    graph.writes |= {OPTIMIZER + name: node for name, node in kept.items()}


def _rate(module: Module, graph: Graph) -> Node:
    """Return the input ``lr``, of the widest dtype among the parameters."""
    kind = BY_NUMPY[str(np.result_type(*[p.dtype for p in module.trained.values()]))]
    return graph.input("lr", Type(kind), default=module.learning_rate)
