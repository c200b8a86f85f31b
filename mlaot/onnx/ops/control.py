"""Import ONNX's If, Loop, Scan and SequenceMap, whose bodies are graphs among the attributes of the node.

The importer calls the functions under ``@operator``. If a condition is a constant of the file, If is decided while
importing; otherwise it becomes ``control.cond``. ``_Loop.run`` describes how a loop is compiled. Importing a body has
side effects on the importer: records of nodes that cannot be imported, checks of calls (``Use.require``), and numbers
of random draws. A failed attempt must undo them all (``_Loop.attempt``), and an additional trace must not draw
(``trace_body``).

``Unsupported`` tells the user what in a valid file cannot be compiled. Other errors tell what is wrong with the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.trace import control, tree
from mlaot.frontend.trace.context import needed
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.subtrace import subtrace
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Type
from mlaot.ir.dims import Expr
from mlaot.ir.graph import topological
from mlaot.onnx.importer import Refused, Use
from mlaot.onnx.protos import inner_graphs
from mlaot.onnx.registry import operator
from mlaot.onnx.texts import as_strings, is_text, places_in
from mlaot.onnx.values import Computed, Refined, Unsupported, as_traced, concrete, constant_value, is_symbolic, lift

UNROLLED_FIRST = 64  # nodes, at most, to which a loop is unrolled that could be compiled as a loop
UNROLLED_LAST = 4096  # nodes, at most, to which a loop is unrolled that could not
MAX_ROUNDS = 2**48  # as good as no limit: nobody waits for so many

# One round: a function of its number, the carried values and the slices of the scanned arrays. It returns whether to go
# on, the new carried values, and the values to stack.
Step = Callable[[Any, Sequence[Any], Sequence[Any]], tuple[Any, list[Any], list[Any]]]


@operator("If")
def if_(use: Use, condition: Any) -> Any:
    constant = constant_value(condition)
    if constant is not None:
        return tuple(use.body("then_branch" if constant.reshape(()) else "else_branch")([]))
    branches: dict[str, list[Any]] = {}
    taken = np.reshape(condition, ())
    conditions = {"then_branch": taken, "else_branch": np.logical_not(taken)}

    def branch(name: str) -> Callable[[], Any]:
        def run() -> Any:
            use.importer.branches.append(conditions[name])
            try:
                branches[name] = use.body(name)([])
            finally:
                use.importer.branches.pop()
            leaves, structure = tree.flatten(branches[name])
            places = [places_in(use.importer.known, leaf) if is_text(leaf) else lift(leaf) for leaf in leaves]
            return tree.unflatten(structure, list(map(as_traced, places)))

        return run

    try:
        merged = control.cond(taken, branch("then_branch"), branch("else_branch"))
    except MlaotError as error:
        if len(branches) < 2 and not isinstance(error, Unsupported):
            # One branch fits no call with these shapes: the other one is taken, and calls that want the first refused.
            impossible, other = ("else_branch", "then_branch") if branches else ("then_branch", "else_branch")
            use.require(conditions[other], f"its {impossible} does not fit shapes that are fixed: {error.message}")
            return tuple(use.body(other)([]))
        if len(branches) < 2 or isinstance(error, Unsupported) or error.message.startswith("node "):
            raise
        if fitting := _branch_as_declared(use, taken, branches):
            use.require(conditions[fitting], f"its condition must take the {fitting}")
            return tuple(use.body(fitting)([]))
        kinds = " and ".join(_kinds(branches[name]) for name in ("then_branch", "else_branch"))
        raise Computed(
            f"its condition is computed when the model runs, but its branches give {kinds}; if it asks for an open "
            "dimension, pin that in [..dims]"
        ) from None
    return tuple(_chosen(use, *values) for values in zip(*branches.values(), merged, strict=True))


def _chosen(use: Use, a: Any, b: Any, value: Any) -> Any:
    """Merge the branches' results: a known value if they are the same, and texts by their indices."""
    if isinstance(a, list):
        return [_chosen(use, *values) for values in zip(a, b, value, strict=True)]
    if is_text(a) != is_text(b):
        raise Unsupported("one branch gives strings, the other numbers")
    if is_text(a):
        return as_strings(use.importer.known, value, [a, b])
    return a if _same(a, b) else value


def _branch_as_declared(use: Use, taken: Any, branches: dict[str, list[Any]]) -> str:
    """Choose between branches whose results differ in rank; return an empty string if nothing tells which is meant.

    It is the branch with the ranks that the file declares for the outputs of the node. If that does not decide, and the
    condition depends only on extents, it is ``then_branch``, as exporters write "if the axis is 1 long, remove it".
    """
    wanted = [use.declared(i) for i in range(len(use.node.output))]
    fitting = [
        name
        for name, values in branches.items()
        if all(t is not None and t.rank == _rank(v) for t, v in zip(wanted, values, strict=True))
    ]
    if len(fitting) == 1:
        return fitting[0]
    condition = needed().outside(as_node(taken))
    ranks = {tuple(map(_rank, values)) for values in branches.values()}
    is_of_extents = condition is not None and all(node.op.name != "input" for node in topological([condition]))
    return "then_branch" if is_of_extents and len(ranks) == 2 else ""


def _rank(value: Any) -> int | None:
    """Return the number of axes of an array, or None for any other value."""
    return len(value.shape) if hasattr(value, "shape") else None


def _kinds(values: Any) -> str:
    """Return the types of values, for messages."""

    def shown(value: Any) -> str:
        if isinstance(value, list):
            return f"a sequence of {len(value)}"
        return "nothing" if value is None else f"{value.dtype}[{', '.join(map(str, value.shape))}]"

    return ", ".join(map(shown, values)) or "nothing"


def _same(a: Any, b: Any) -> bool:
    """Tell whether two values are known and equal."""
    one, other = constant_value(a), constant_value(b)
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return list(one.ravel()) == list(other.ravel()) if one.dtype == object else one.tobytes() == other.tobytes()


@operator("Loop", symbolic=True)
def loop(use: Use, count: Any = None, condition: Any = None, *carried: Any) -> Any:
    body, n = use.body("body"), len(carried)

    def step(i: Any, values: Sequence[Any], slices: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        outputs = body([i, np.array(True), *values])  # inside, the condition has been met
        return np.array(True) if condition is None else outputs[0], outputs[1 : n + 1], outputs[n + 1 :]

    limit = None if count is None else concrete(count).reshape(())
    if limit is not None and constant_value(limit) is not None:
        limit = limit.item()
        limit = limit if isinstance(limit, Expr) else max(int(limit), 0) if limit < MAX_ROUNDS else None
    first = np.array(True) if condition is None else condition.reshape(())
    if len(use.node.output) > n:
        limit, first = _declared_rounds(use, n, limit, first)
    return _Loop(use, step, list(carried), [], limit, first).run()


def _declared_rounds(use: Use, n: int, limit: Any, condition: Any) -> tuple[Any, Any]:
    """Return the limit and the condition of a loop, which are constants if the file declares the length of a stack.

    Calls in which they differ fail. ``n`` is the number of outputs before the stacked ones.
    """
    shapes = [type_.shape for i in range(n, len(use.node.output)) if (type_ := use.declared(i)) is not None]
    rounds = next((shape[0] for shape in shapes if isinstance(shape[0], int)), None)
    if limit is None or rounds is None:
        return limit, condition
    if not isinstance(limit, int | Expr):
        use.require(np.equal(np.maximum(limit, 0), rounds), f"its trip count must be {rounds}")
        limit = rounds
    if rounds and constant_value(condition) is None:
        use.require(condition, "its condition must be true")
        condition = np.array(True)
    return limit, condition


@operator("Scan", since=9)
def scan(use: Use, *inputs: Any, num_scan_inputs: int = 0) -> Any:
    n = len(inputs) - num_scan_inputs
    axes = use.attribute("scan_input_axes", [0] * num_scan_inputs)
    items = [np.moveaxis(item, axis, 0) for item, axis in zip(inputs[n:], axes, strict=True)]
    directions = use.attribute("scan_input_directions", [0] * num_scan_inputs)
    outputs = list(_scan_along(use, list(inputs[:n]), items, directions, use.attribute("scan_output_directions", [])))
    for i, axis in enumerate(use.attribute("scan_output_axes", []), n):
        outputs[i] = np.moveaxis(outputs[i], 0, axis)
    return tuple(outputs)


@operator("Scan")
def scan_of_batch(use: Use, lengths: Any, *inputs: Any, num_scan_inputs: int = 0) -> Any:
    """Compile the Scan of opset 8: each example of the batch, the first axis, is scanned along its own first axis."""
    directions, n = use.attribute("directions", [0] * num_scan_inputs), len(inputs) - num_scan_inputs

    def example(values: Sequence[Any], length: Any) -> tuple[Any, ...]:
        return _scan_along(use, list(values[:n]), list(values[n:]), directions, [], length)

    if isinstance(inputs[0].shape[0], int) and inputs[0].shape[0] == 1:
        outputs = example([x[0] for x in inputs], None if lengths is None else lengths[0])
        return tuple(np.expand_dims(value, 0) for value in outputs)
    operands = tuple(map(as_traced, inputs))
    if lengths is None:
        return control.scan(lambda _, values: ((), example(values, None)), (), operands)[1]
    return control.scan(lambda _, values: ((), example(values[1:], values[0])), (), (as_traced(lengths), *operands))[1]


def _scan_along(
    use: Use,
    states: list[Any],
    items: list[Any],
    input_directions: list[int],
    output_directions: list[int],
    length: Any = None,
) -> tuple[Any, ...]:
    """Scan along the first axes of ``items``, those of direction 1 backwards.

    After ``length`` rounds the states no longer change, and zeros are stacked.
    """
    body, n, rounds = use.body("body"), len(states), items[0].shape[0]

    def step(i: Any, values: Sequence[Any], slices: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        outputs = body([*values, *slices])
        new, outs = outputs[:n], outputs[n:]
        if length is not None:
            new = [np.where(i < length, a, b) for a, b in zip(new, values, strict=True)]
            outs = [np.where(i < length, out, np.zeros_like(out)) for out in outs]
        return np.array(True), new, outs

    scanned = [np.flip(x, 0) if back else x for x, back in zip(items, input_directions, strict=True)]
    outputs = list(_Loop(use, step, states, scanned, rounds, np.array(True)).run())
    for i, back in enumerate(output_directions, n):
        outputs[i] = np.flip(outputs[i], 0) if back else outputs[i]
    return tuple(outputs)


@operator("SequenceMap", symbolic=True)
def sequence_map(use: Use, first: Any, *operands: Any) -> Any:
    body = use.body("body")
    if any(isinstance(other, list) and len(other) != len(first) for other in operands):
        raise MlaotError(f"its sequences have {len(first)} and other numbers of elements")
    results = [body([x, *[o[i] if isinstance(o, list) else o for o in operands]]) for i, x in enumerate(first)]
    return tuple([each[k] for each in results] for k in range(len(use.node.output)))


@dataclass(frozen=True)
class _Traits:
    """The properties of the body that one trace with unknown values shows."""

    types: list[Type]  # of the new carried values
    outs: list[Type]  # of what a round gives to be stacked
    kept: list[bool]  # which carried values it hands on unchanged: they stay outside of the compiled loop
    endless: bool  # whether it always says to go on


@dataclass
class _Failure:
    """The reason of a failed attempt: an error, or nodes that cannot be imported."""

    error: Exception
    refused: dict[str, type[Unsupported]]


@dataclass(frozen=True)
class _Loop:
    """A Loop or Scan, before the decision how to compile it.

    ``items`` are scanned along their first axes. ``limit`` is the largest number of rounds: a number, an expression of
    dims, a traced value, or None for no limit. ``condition`` says whether there is a first round.
    """

    use: Use
    step: Step
    carried: list[Any]
    items: list[Any]
    limit: Any
    condition: Any

    def run(self) -> tuple[Any, ...]:
        """Compile the loop; return the last carried values, then the stacked ones.

        The first of these ways that is possible is used:

        1. Nothing, if it is known that there is no round (``skip``).
        2. Few rounds of a small body are unrolled.
        3. A ``scan``, if the number of rounds is a number or an expression of dims, and no round ends the loop.
        4. A ``while_loop``, if nothing is stacked, as the size of that would not be known.
        5. More rounds are unrolled. This serves what no loop of fixed types can be: carried values that change their
           types or are sequences, and bodies that must know a value, such as the number of the round.
        """
        constant, count = constant_value(self.condition), self.limit if isinstance(self.limit, int) else None
        if count == 0 or (constant is not None and not constant):
            return self.skip()
        size = _nodes(self.use.attribute("body"))
        result: Any
        failure: _Failure | None = None
        if constant is not None and count is not None and count * size <= UNROLLED_FIRST:
            result = self.attempt(lambda: self.unroll(UNROLLED_FIRST, size))
            if not isinstance(result, _Failure):
                return tuple(result)
        if all(not isinstance(value, list) and value is not None for value in self.carried):
            traits = self.attempt(self.trace_body)
            if isinstance(traits, _Failure):
                failure = traits
            elif traits.types == [_type(value) for value in self.carried]:
                if constant is not None and traits.endless:
                    if self.limit is None:
                        raise MlaotError("it never ends: no trip count, and a condition that is always true")
                    if isinstance(self.limit, int | Expr):
                        return self.as_scan(traits)
                if not traits.outs:
                    return self.as_while(traits)
        if constant is not None and (self.limit is None or count is not None):
            result = self.attempt(lambda: self.unroll(UNROLLED_LAST, size))
            if not isinstance(result, _Failure):
                return tuple(result)
            failure = result
        if failure is None:
            raise Computed(self.reason())
        self.use.importer.refused.update(failure.refused)
        raise failure.error

    def reason(self) -> str:
        """Return the reason why a loop with an unknown number of rounds cannot be compiled."""
        if len(self.use.node.output) > len(self.carried):
            return "how many rounds it takes is computed when the model runs, and so is the size of what it stacks"
        return (
            "how many rounds it takes is computed when the model runs, and its carried values are sequences or change "
            "their shapes; make the number constant"
        )

    def attempt(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` and return its result.

        If it fails, undo its effects on the importer, and return the reason.
        """
        refused, conditions = self.use.importer.refused, self.use.importer.conditions
        before, draws, checks = dict(refused), needed().root.sites, len(conditions)
        counts, lengths = dict(self.use.importer.counts), dict(self.use.importer.lengths)
        try:
            return function()
        except (Refused, Refined, MlaotError, TypeError, ValueError, IndexError) as error:
            new = {reason: kind for reason, kind in refused.items() if reason not in before}
            refused.clear()
            refused.update(before)
            del conditions[checks:]
            self.use.importer.counts, self.use.importer.lengths = counts, lengths
            needed().root.sites = draws
            return _Failure(error, new)

    def trace_body(self) -> _Traits:
        """Trace the body once with values of which only the types are known, and discard the graph."""
        n, endless = len(self.carried), False
        kept: list[bool] = []

        def once(*values: Tensor) -> list[Any]:
            nonlocal endless
            on, new, outs = self.step(values[-1], values[:n], values[n:-1])
            answer = constant_value(on)
            endless = answer is not None and bool(answer.reshape(()))
            nodes = [as_traced(lift(value)) for value in (*new, *outs)]
            kept[:] = [value.node is old.node for value, old in zip(nodes[:n], values[:n], strict=True)]
            return nodes

        slices = [Type(t.dtype, t.shape[1:]) for t in map(_type, self.items)]
        root = needed().root
        draws = root.sites
        types = subtrace(
            once, [*map(_type, self.carried), *slices, _type(np.int64(0))], "look", read_only="a loop"
        ).types
        root.sites = draws
        return _Traits(list(types[:n]), list(types[n:]), kept, endless)

    def skip(self) -> tuple[Any, ...]:
        """Return the results of a loop without rounds: the initial carried values, and empty stacks."""
        traits = self.trace_body() if len(self.use.node.output) > len(self.carried) else None
        empty = [F.zeros((0, *out.shape), dtype=out.dtype.numpy) for out in traits.outs] if traits else []
        return (*self.carried, *empty)

    def unroll(self, most: int, size: int) -> tuple[Any, ...]:
        """Import the body for each round until its condition is false: at most ``most`` nodes, ``size`` per round."""
        values, stacks, i, on = list(self.carried), [], 0, True
        while on and (self.limit is None or i < self.limit):
            if (i + 1) * size > most:
                raise Unsupported(
                    f"its carried values change their types, or its rounds have to be counted; {i} rounds are as many "
                    "as can be written out"
                )
            answer, values, outs = self.step(np.array(i, np.int64), values, [item[i] for item in self.items])
            stacks.append(outs)
            flag = constant_value(answer)
            if flag is None:
                raise Computed(self.reason())
            on, i = bool(flag.reshape(())), i + 1
        if any(isinstance(out, list) or out is None for outs in stacks for out in outs):
            raise MlaotError("what a loop stacks are sequences")
        stacked = [np.stack([lift(out) for out in outs]) for outs in zip(*stacks, strict=True)]
        return (*values, *stacked)

    def as_scan(self, traits: _Traits) -> tuple[Any, ...]:
        """Compile a loop whose number of rounds is known when the module is called."""

        def body(state: Any, item: Any) -> Any:
            _, new, outs = self.step(item[0], self.with_kept(traits, state), item[1:])
            return self.changing(traits, new), tuple(as_traced(lift(out)) for out in outs)

        numbers = F.arange(self.limit, dtype=np.int64)
        items = tuple(as_traced(lift(item)) for item in self.items)
        last, outs = control.scan(body, self.changing(traits, self.carried), (numbers, *items))
        return (*self.with_kept(traits, last), *outs)

    def as_while(self, traits: _Traits) -> tuple[Any, ...]:
        """Compile a loop that tests its condition before each round."""
        limit = self.limit

        def test(state: Any) -> Any:
            i, on, _ = state
            return on if limit is None else np.logical_and(on, i < as_traced(limit))

        def body(state: Any) -> Any:
            i, _, values = state
            on, new, _ = self.step(i, self.with_kept(traits, values), [])
            return i + np.int64(1), np.reshape(as_traced(on), ()), self.changing(traits, new)

        start = as_traced(np.int64(0)), as_traced(self.condition), self.changing(traits, self.carried)
        bound = limit if isinstance(limit, int | Expr) else MAX_ROUNDS
        return self.with_kept(traits, control.while_loop(test, body, start, bound=bound)[2])

    def changing(self, traits: _Traits, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the carried values that the body changes."""
        return tuple(as_traced(lift(v)) for v, kept in zip(values, traits.kept, strict=True) if not kept)

    def with_kept(self, traits: _Traits, changing: Sequence[Any]) -> tuple[Any, ...]:
        """Return all carried values: ``changing``, and the unchanged initial ones."""
        new = iter(changing)
        return tuple(old if kept else next(new) for old, kept in zip(self.carried, traits.kept, strict=True))


def _type(value: Any) -> Type:
    return as_node(value if not is_symbolic(value) else np.zeros(value.shape, np.int64)).type


def _nodes(graph: onnx.GraphProto) -> int:
    """Count the nodes of a graph and of the graphs inside of it; at least 1."""
    return max(len(graph.node), 1) + sum(_nodes(inner) for node in graph.node for inner in inner_graphs(node))
