"""``@mlaot.model``: a function of annotated arrays becomes graphs, with the parameters and buffers that it uses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mlaot.errors import MlaotError, warn
from mlaot.frontend.trace import draws
from mlaot.frontend.trace.context import Trace, locate_node, located, place_of, tracing, training
from mlaot.frontend.trace.declaration import Declaration, Optimizer, Traced
from mlaot.frontend.trace.impure import watched
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.strings import Labels, StringsType
from mlaot.frontend.trace.tensor import Held, Parameter, Tensor
from mlaot.frontend.trace.text import Text
from mlaot.frontend.trace.tokens import TokensType
from mlaot.ir import DType, Graph, Node, Type
from mlaot.ir.dims import Expr
from mlaot.ir.graph import topological
from mlaot.ir.module import Generation
from mlaot.ir.names import identifier
from mlaot.ir.types import i64
from mlaot.ops import elementwise as ew

Function = Callable[..., Any]
LabelsOf = dict[tuple[str, str], tuple[str, ...]]  # the strings of outputs, by entry and name
PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic, type, DType, Type)


def model(
    function: Function | None = None,
    *,
    loss: Function | None = None,
    optimizer: Optimizer | None = None,
    parameters: Any = None,
    learning_rate: float = 0.1,
    text: Text | None = None,
) -> Any:
    """Declare a function of annotated arrays as a model: ``def net(x: mlaot.f32[64]): ...``.

    Without a named dim in the annotations, the function is for one example, and the module accepts any batch. ``loss``
    is a function of the outputs and of further annotated inputs. It gets the outputs of a tuple one by one, and a dict
    as a whole. With a loss the module trains ``parameters`` by ``optimizer``, by default by stochastic gradient
    descent. ``parameters`` is a dict of arrays, or any object whose attributes hold ``Parameter``s and ``Buffer``s,
    which are named by their paths of attributes. The default is all parameters that the function uses. With ``text``
    the module generates texts.

    A declaration that cannot be compiled raises ``MlaotError`` in the build.
    """
    if function is None:
        return lambda f: Model(f, loss, optimizer, parameters, learning_rate, text)
    return Model(function, loss, optimizer, parameters, learning_rate, text)


class Model(Declaration):
    """A function that can be compiled, and still be called in plain NumPy."""

    function: Function
    entries: dict[str, Function]
    text: Text | None

    def __init__(
        self,
        function: Function,
        loss: Function | None,
        optimizer: Optimizer | None,
        parameters: Any,
        learning_rate: float,
        text: Text | None,
    ) -> None:
        entries: dict[str, Function] = {}
        _check_options(function, loss, optimizer, learning_rate)

        def trace() -> Traced:
            with located(function), watched():
                return _trace(function, loss, optimizer, parameters, learning_rate, entries, text)

        super().__init__(trace, place_of(function))
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "text", text)

    def __call__(self, *args: Any, **options: Any) -> Any:
        with draws.entry():
            found = self.function(*args, **options)
        if self.text is not None and self.text.entry == "forward":
            self.text.advance(*map(np.asarray, (*args, *options.values())))
        return found

    def entry(self, function: Function) -> Function:
        """Declare a further function of the module, with the same parameters and buffers."""
        if function.__name__ in self.entries or function.__name__ in RESERVED:
            raise MlaotError(f"the module has an entry called {function.__name__!r} already; choose another name")
        self.entries[function.__name__] = function
        return function


def _check_options(function: Any, loss: Any, optimizer: Any, learning_rate: Any) -> None:
    for what, value in (("mlaot.model", function), ("loss", function if loss is None else loss)):
        if isinstance(value, type) or not callable(value):
            raise MlaotError(f"{what}: expected a function, got {value!r}")
    if not isinstance(learning_rate, int | float | np.number):
        raise MlaotError(f"learning_rate: expected a number, got {learning_rate!r}")
    check_optimizer(optimizer, loss, "give the decorator a function loss=")


def check_optimizer(optimizer: Any, loss: Any, advice: str) -> None:
    """Raise ``MlaotError`` unless ``optimizer`` is None, or an optimizer of a model with a loss.

    ``advice`` is the hint for an optimizer without a loss.
    """
    is_one = hasattr(optimizer, "init") and hasattr(optimizer, "update") and not isinstance(optimizer, type)
    if optimizer is not None and not is_one:
        raise MlaotError(f"optimizer: expected one such as mlaot.optim.Adam(lr=1e-3), got {optimizer!r}")
    if optimizer is not None and loss is None:
        raise MlaotError(f"the model has an optimizer but no loss to train by; {advice}")


RESERVED = (
    *("forward", "loss", "train_step", "accumulate", "update", "backward"),
    *("phases", "fit_begin", "fit_step", "fit_end", "prepare_weights"),
    *("model", "training", "tile"),  # the graphs of which entries are made
)


def _trace(
    function: Function,
    loss: Function | None,
    optimizer: Optimizer | None,
    parameters: Any,
    learning_rate: float,
    entries: Mapping[str, Function],
    text: Text | None,
) -> Traced:
    declared = _walk(parameters)
    held: dict[str, Held] = {}
    labels: LabelsOf = {}
    graph, arguments, taps, is_dict = _model_graph(function, loss, declared, held, text, labels)
    trained = None
    if loss is not None:
        with training():
            trained, *_ = _model_graph(function, loss, declared, held, text, labels)
        if str(trained) == str(graph):
            trained = None
    dicts = {"forward"} if is_dict else set[str]()
    further = {name: _entry_graph(name, f, declared, held, dicts, text, labels) for name, f in entries.items()}
    graphs = [graph, *([trained] if trained else []), *further.values()]
    per_example = not _named_dims(graph)
    _check_writes(function, graphs, per_example)
    _check_entries(function, further, per_example)
    named = getattr(optimizer, "named", None)
    optimizer = optimizer if named is None else named(held)
    wanted = _trained(held, declared if parameters is not None and loss is not None else None, optimizer)
    if loss is not None:
        _warn_of_untrained(function, trained or graph, wanted)
    return Traced(
        graph,
        {name: value.array for name, value in held.items() if name in wanted},
        per_example=per_example,
        learning_rate=learning_rate if optimizer is None else float(optimizer.lr),
        arguments=arguments,
        training=trained,
        buffers={name: value.array for name, value in held.items() if name not in wanted},
        entries=further,
        optimizer=optimizer,
        docs={name: _summary(f) for name, f in {"forward": function, **entries}.items()},
        taps=taps,
        dicts=frozenset(dicts),
        generation=None if text is None else _generation(text, {"forward": graph, **further}),
        labels=labels,
    )


def _generation(text: Text, graphs: Mapping[str, Graph]) -> Generation:
    """Return how the module generates texts. Raise ``MlaotError`` if the entry does not exist."""
    if text.entry not in graphs:
        raise MlaotError(f"Text: entry: the model has {', '.join(graphs)}, got {text.entry!r}")
    return text.facts(graphs[text.entry])


def _summary(function: Function) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0].strip()


def _trained(held: Mapping[str, Held], declared: Mapping[str, Held] | None, optimizer: Any) -> set[str]:
    """Return the names of the trained parameters: those given, or all with ``requires_grad``."""
    names = {name for name, value in held.items() if isinstance(value, Parameter) and value.requires_grad}
    names = {name for name in names if not hasattr(optimizer, "trains") or optimizer.trains(name)}
    return names if declared is None else names & set(declared)


def _warn_of_untrained(function: Function, graph: Graph, wanted: set[str]) -> None:
    """Warn of parameters that the loss does not depend on."""
    met = {node.attrs["name"] for node in topological([graph.outputs["loss"]]) if node.op.name == "input"}
    if unmet := [name for name in graph.inputs if name in wanted - met]:
        names, more = ", ".join(map(repr, unmet[:3])), f" and {len(unmet) - 3} more" * (len(unmet) > 3)
        what = f"parameter {names}, which is" if len(unmet) == 1 else f"parameters {names}{more}, which are"
        warn(f"the loss does not depend on the {what} never trained", place_of(function))


def _model_graph(
    function: Function,
    loss: Function | None,
    declared: Mapping[str, Held],
    held: dict[str, Held],
    text: Text | None,
    labels: LabelsOf,
) -> tuple[Graph, tuple[str, ...], dict[str, Node], bool]:
    """Trace a model and its loss; return the graph, the arguments' names, its taps, and whether it returns a dict."""
    trace = _root("model", declared, held)
    graph = trace.graph
    with tracing(trace):
        for value in declared.values():
            if isinstance(value, Parameter):
                value.local_node()
        arguments = _arguments(graph, function, 0)
        outputs = function(*arguments)
        _set_outputs(trace, outputs, labels)
        _check_outputs(graph)
        taps, trace.taps = trace.taps, {}
        if loss is not None:
            results = outputs if isinstance(outputs, tuple) else (outputs,)
            graph.outputs["loss"] = _loss_node(graph, loss(*results, *_arguments(graph, loss, len(results))))
        if text is not None and text.entry == "forward":
            text.advance(*arguments)
        _finish(trace)
    names = tuple(argument.node.attrs["name"] for argument in arguments)
    return graph, names, {tap.name: node for tap, node in taps.items()}, isinstance(outputs, Mapping)


def _entry_graph(
    name: str,
    function: Function,
    declared: Mapping[str, Held],
    held: dict[str, Held],
    dicts: set[str],
    text: Text | None,
    labels: LabelsOf,
) -> Graph:
    """Trace a further function, and add its name to ``dicts`` if it returns a dict."""
    trace = _root(name, declared, held)
    with located(function), tracing(trace):
        arguments = _arguments(trace.graph, function, 0)
        outputs = function(*arguments)
        if text is not None and text.entry == name:
            text.advance(*arguments)
        if outputs is not None:
            _set_outputs(trace, outputs, labels)
        if isinstance(outputs, Mapping):
            dicts.add(name)
        _finish(trace)
        if not trace.graph.outputs and not trace.graph.writes:
            raise MlaotError(f"the entry {name} has no output and assigns no buffer")
    return trace.graph


def _root(name: str, declared: Mapping[str, Held], held: dict[str, Held]) -> Trace:
    graph = Graph(name)
    graph.locate = locate_node
    return Trace(graph, names={id(value): key for key, value in declared.items()}, held=held)


def _finish(trace: Trace) -> None:
    """Record the writes of an entry. An entry that drew random numbers advances their counter."""
    if trace.sites:
        draws.advance()
    trace.graph.writes = {name: node for name, node in trace.writes.items() if node is not trace.graph.inputs[name]}


def _loss_node(graph: Graph, value: Any) -> Node:
    if "lr" in graph.inputs:
        raise MlaotError("an input of a model that trains cannot be called 'lr', train_step's learning rate")
    node = _output("loss", value)
    if node.type.dtype.kind != "f":
        raise MlaotError(f"the loss must be a floating-point number, got {node.type}")
    batched = _named_dims(graph)
    if node.type.rank > (1 if batched else 0):
        number = "one number, or one an example" if batched else "one number"
        raise MlaotError(f"the loss must be {number}, got {node.type}; end it with .mean() or .sum()")
    return node


def _arguments(graph: Graph, function: Function, skip: int) -> list[Tensor]:
    """Return a traced array for each annotated argument after the first ``skip``."""
    with located(function):
        return _annotated(graph, function, skip)


def _annotated(graph: Graph, function: Function, skip: int) -> list[Tensor]:
    tensors = []
    name = getattr(function, "__name__", type(function).__name__)
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except MlaotError:
        raise
    except Exception as error:
        raise MlaotError(f"the annotations of {name}: {error}") from None
    signature = inspect.signature(function).parameters
    positional = [p for p in signature.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < skip and not any(p.kind is p.VAR_POSITIONAL for p in signature.values()):
        outputs = "output" if skip == 1 else f"{skip} outputs"
        raise MlaotError(
            f"{name} must take the model's {outputs} first, then further inputs; it takes {len(positional)}"
        )
    for argument, details in list(signature.items())[skip:]:
        if details.kind in (details.VAR_POSITIONAL, details.VAR_KEYWORD):
            stars = "*" if details.kind is details.VAR_POSITIONAL else "**"
            raise MlaotError(f"argument {stars}{argument} of {name}: a model's arguments must each have a name")
        hint = hints.get(argument)
        if hint is None and details.default is not details.empty:
            continue
        if details.kind is details.KEYWORD_ONLY:
            raise MlaotError(f"argument {argument!r} of {name}: a keyword-only argument cannot be an input")
        notes: dict[str, Any] = {}
        if isinstance(hint, StringsType):
            notes["strings"] = hint.known
            hint = hint.type
        if isinstance(hint, TokensType):
            notes["rows"] = hint.rows
            hint = hint.type
        if isinstance(hint, DType):
            hint = Type(hint)
        if not isinstance(hint, Type):
            got = "none" if hint is None else repr(hint)
            raise MlaotError(
                f"argument {argument!r} of {name}: expected an annotation such as mlaot.f32[64], got {got}"
            )
        tensors.append(Tensor(_shared(graph, name, argument, hint) or graph.input(argument, hint, **notes)))
    return tensors


def _shared(graph: Graph, name: str, argument: str, hint: Type) -> Node | None:
    """Return the model's input of this name, if the loss also takes it."""
    input_ = graph.inputs.get(argument)
    if input_ is None or (input_.type == hint and not input_.attrs.get("parameter")):
        return input_
    if input_.attrs.get("parameter"):
        raise MlaotError(f"argument {argument!r} of {name} is the name of a parameter; rename it")
    raise MlaotError(f"argument {argument!r} of {name} is {hint}, but the model's input of that name is {input_.type}")


def _named(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, Mapping):
        return {identifier(name, "an output"): value for name, value in outputs.items()}
    if isinstance(outputs, tuple | list):
        return {f"out{i}": value for i, value in enumerate(outputs)}
    return {"out": outputs}


def _set_outputs(trace: Trace, outputs: Any, labels: LabelsOf) -> None:
    """Set the outputs of a graph to the function's results.

    For strings they are indices, with the strings in ``labels``.
    """
    for name, value in _named(outputs).items():
        is_label = isinstance(value, Labels)
        if is_label:
            labels[trace.entry, name] = value.known
            value = value.places
        node = _output(name, value)
        trace.graph.outputs[name] = ew.cast(node, dtype=i64) if is_label and node.type.dtype is not i64 else node


def _output(name: str, value: Any) -> Node:
    if is_traced(value) or _is_array(value) or isinstance(value, Expr):
        return as_node(value)
    what = "the loss" if name == "loss" else f"output {name!r}"
    if value is None:
        raise MlaotError(f"{what} is None; is its `return` missing?")
    wanted = "a number" if name == "loss" else "an array, a tuple or a dict of arrays"
    raise MlaotError(f"{what} is a {type(value).__name__}; expected {wanted}")


def _check_outputs(graph: Graph) -> None:
    if not graph.outputs:
        raise MlaotError("the model has no output")
    if "loss" in graph.outputs:
        raise MlaotError("an output cannot be called 'loss'; to train, pass a function to the decorator as loss=")


def _named_dims(graph: Graph) -> bool:
    return any(not isinstance(d, int) for n in graph.inputs.values() for d in n.type.shape)


def _check_writes(function: Function, graphs: list[Graph], per_example: bool) -> None:
    """Raise ``MlaotError`` if a model for one example updates state, as a batch has no single new value."""
    for graph in graphs:
        written = [name for name in graph.writes if name != draws.NAME]
        arrays = [name for name, node in graph.inputs.items() if not node.attrs.get("parameter")]
        if per_example and written and arrays:
            raise MlaotError(
                f"{function.__name__} is for one example and cannot assign the buffer {written[0]!r}; name the batch "
                f"in its annotations: batch = mlaot.dim('batch'), {arrays[0]}: mlaot.f32[batch, ...]"
            )


def _check_entries(function: Function, entries: Mapping[str, Graph], per_example: bool) -> None:
    for name, graph in entries.items():
        if per_example and _named_dims(graph):
            raise MlaotError(
                f"{function.__name__} is for one example, but its entry {name} has named dims; "
                "name the batch in the annotations of both"
            )


def _walk(parameters: Any) -> dict[str, Held]:
    """Return parameters and buffers by name: those in a dict, or those in an object's attributes."""
    if isinstance(parameters, Mapping):
        named = {str(key): value for key, value in parameters.items()}
        holder = {key: Parameter(key, v) if _is_array(v) and not isinstance(v, Held) else v for key, v in named.items()}
    else:
        holder = parameters
    result: dict[str, Held] = {}
    seen: set[int] = set()
    for path, value in _leaves(holder, "", seen):
        name = value.name if value.name is not None else path
        if result.setdefault(name, value) is not value:
            raise MlaotError(f"two parameters or buffers are called {name!r}; give one of them another name")
    return result


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float)


def _leaves(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Held]]:
    """Yield each parameter and buffer below an object once, by attributes, keys and positions."""
    if isinstance(thing, PLAIN) or id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Held):
        yield path or thing.kind, thing
        return
    parts: list[tuple[Any, Any]] = []
    if isinstance(thing, Mapping):
        parts += thing.items()
    elif isinstance(thing, list | tuple | set):
        parts += enumerate(thing)
    if hasattr(thing, "__dict__") and not inspect.ismodule(thing) and not inspect.isroutine(thing):
        parts += vars(thing).items()
    for key, part in parts:
        yield from _leaves(part, f"{path}.{key}" if path else str(key), seen)
