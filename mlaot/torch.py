"""Modules of PyTorch as models: ``mlaot.torch.load(module, sample)``. It needs the packages torch and onnxscript.

``torch.export`` exports the module for the shapes and dtypes of ``sample``; only ``quantize`` uses its numbers. The
exported program is converted to ONNX in memory, and read like an ONNX file. The build compares the answers with those
of the module itself.
"""

from __future__ import annotations

import inspect
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from mlaot.attributes import load_attribute
from mlaot.errors import MlaotError, did_you_mean
from mlaot.frontend.trace.context import user_line
from mlaot.frontend.trace.declaration import Arrays, Declaration, Traced
from mlaot.ir import DTYPES, Dim, DType, Type
from mlaot.ir.dims import Expr, dim, names, substitute
from mlaot.settings import FILE, ModelSettings, Settings
from mlaot.settings.tables import table_of

try:
    import onnxscript as _  # noqa: F401
    import torch
    from onnx_ir.passes.common import NameFixPass  # which comes with onnxscript
    from torch._subclasses import FakeTensorMode
    from torch.utils import _pytree as pytree
except ModuleNotFoundError as error:
    raise MlaotError(f"mlaot.torch needs the packages torch and onnxscript: pip install {error.name}") from None

from mlaot.onnx.declare import declare, port_name

BATCH = "batch"
# Sizes of open dimensions during the export, unlikely to equal fixed ones. A network may halve an image six times, and
# no size may become 1, which broadcasts; but tables of positions and what loops unroll may be short.
LARGE = (192, 384, 576, 960, 1344, 2112, 2496, 3264)
SMALL = (7, 11, 13, 17, 19, 23, 29, 31)
TO_TORCH = {d: torch.bfloat16 if d.name == "bf16" else getattr(torch, d.numpy) for d in DTYPES.values()}
FROM_TORCH = {dtype: d for d, dtype in TO_TORCH.items()}


def load(module: torch.nn.Module, sample: Any, dims: Mapping[str, int] | None = None) -> Declaration:
    """Declare a module of PyTorch, which is put into evaluation mode.

    ``sample`` has the inputs of ``forward``: a tuple of its arguments, a dict of arguments by name, or its only
    argument. Arrays whose first axis is as long as that of the first array get an open first axis ``batch``. Types such
    as ``mlaot.f32[batch, 3, height, width]`` name their open dimensions themselves. ``dims`` gives sizes of open
    dimensions. A module that cannot be compiled raises ``MlaotError``.
    """
    return _declare(module, sample, dims or {}, f"{type(module).__name__}: ")


def declare_from_settings(settings: Settings, model: ModelSettings, sample: Any = None) -> Declaration:
    """Declare the module that a project's settings name."""
    if sample is None:
        raise MlaotError(
            f"no key 'sample' in {table_of(model.name)} of {FILE}; PyTorch follows a module by inputs as it"
            " takes them: sample = 'model:sample', with sample = torch.zeros(1, 3, 224, 224) in model.py"
        )
    declaration = _declare(load_attribute(settings, model, "torch"), sample, model.sizes, f"{model.torch}: ")
    # Only quantization reads the numbers of a sample.
    return declaration if model.quantize else replace(declaration, sample=None)


@dataclass(frozen=True)
class ForwardCall:
    """The arguments of a call of ``forward``, by position or by name, as a tree of ``leaves``.

    ``types`` has the types of leaves that are arrays, and None for other leaves, which are constants.
    """

    leaves: tuple[Any, ...]
    types: tuple[Type | None, ...]
    tree: Any

    def arguments(self, arrays: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with these arrays."""
        rest = iter(arrays)
        leaves = [leaf if kind is None else next(rest) for leaf, kind in zip(self.leaves, self.types, strict=True)]
        values = pytree.tree_unflatten(leaves, self.tree)
        return (values, {}) if isinstance(values, tuple) else ((), values)

    @property
    def arrays(self) -> list[Type]:
        """Return the types of the arrays."""
        return [kind for kind in self.types if kind is not None]

    @property
    def dims(self) -> list[str]:
        """Return the names of open dimensions."""
        return sorted({name for kind in self.arrays for extent in kind.shape for name in names(extent)})

    def pin(self, sizes: Mapping[str, int]) -> ForwardCall:
        """Return the call with sizes for some open dimensions."""

        def extent(declared: Dim) -> Dim:
            return substitute(declared, sizes) if names(declared) and names(declared) <= sizes.keys() else declared

        return replace(
            self,
            types=tuple(kind and kind.with_shape(tuple(map(extent, kind.shape))) for kind in self.types),
        )


def _call(module: torch.nn.Module, sample: Any) -> tuple[ForwardCall, int]:
    """Return the call of a module with a sample, and the size of its batch, or 0 without a batch."""
    if isinstance(sample, dict):  # in the order of the signature, as torch.export takes them
        ordered = [name for name in inspect.signature(module.forward).parameters if name in sample]
        sample = {name: sample[name] for name in (*ordered, *sample)}
    leaves, tree = pytree.tree_flatten(sample if isinstance(sample, tuple | dict) else (sample,))
    shapes = [leaf.shape for leaf in leaves if hasattr(leaf, "shape") and leaf.shape]
    is_typed = any(isinstance(leaf, Type | DType) for leaf in leaves)
    rows = 0 if is_typed or not shapes else int(shapes[0][0])
    return ForwardCall(tuple(leaves), tuple(_type(leaf, rows) for leaf in leaves), tree), rows


def _type(leaf: Any, rows: int) -> Type | None:
    """Return the type of an input that is an array or a type; ``rows`` is the length of an open first axis."""
    if isinstance(leaf, Type | DType):
        return leaf if isinstance(leaf, Type) else Type(leaf)
    if not hasattr(leaf, "shape"):
        return None
    dtype = FROM_TORCH.get(torch.as_tensor(leaf).dtype)
    if dtype is None:
        raise MlaotError(f"an array of the sample is {leaf.dtype}, which mlaot has not")
    shape: tuple[Dim, ...] = tuple(map(int, leaf.shape))
    return Type(dtype, (dim(BATCH), *shape[1:]) if shape and shape[0] == rows else shape)


def _declare(module: Any, sample: Any, sizes: Mapping[str, int], place: str) -> Declaration:
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        hint = "; call it to make a module" if isinstance(module, type) else ""
        if isinstance(module, Mapping):
            hint = "; make the module, and give it these by its load_state_dict"
        raise MlaotError(f"{place}expected a torch.nn.Module, got {type(module).__name__}{hint}")
    module.eval()
    call, rows = _call(module, sample)
    if unknown := sorted(sizes.keys() - set(call.dims)):
        open_dims = ", ".join(call.dims) or "none"
        raise MlaotError(
            f"{place}no dimension is called {unknown[0]!r}{did_you_mean(unknown[0], call.dims)}; open: {open_dims}"
        )
    call = call.pin(sizes)
    call, program = _export_call(module, call, rows, place)
    model, outputs = _convert(program, place)
    graph = model.graph
    _name_dims(graph, call)
    inputs = [port_name(info.name) for info in graph.input]

    def run(values: Arrays) -> Arrays:
        device = next(module.parameters(), torch.empty(0)).device
        tensors = [
            torch.tensor(values[name]).to(device, TO_TORCH[kind.dtype])
            for name, kind in zip(inputs, call.arrays, strict=True)
        ]
        args, kwargs = call.arguments(tensors)
        with torch.no_grad():
            leaves = pytree.tree_leaves(module(*args, **kwargs))
        results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return {port_name(name): _numpy(tensor) for name, tensor in zip(outputs, results, strict=True)}

    shapes = {info.name: kind.shape for info, kind in zip(graph.input, call.arrays, strict=True)}
    declaration = declare(model, {}, place, shapes=shapes)
    arrays = [leaf for leaf, kind in zip(call.leaves, call.types, strict=True) if kind is not None]
    numbers = None  # a sample of types has no numbers
    if not any(isinstance(leaf, Type | DType) for leaf in arrays):
        numbers = {name: _numpy(torch.as_tensor(leaf)) for name, leaf in zip(inputs, arrays, strict=True)}
    spec = program.call_spec.out_spec
    gives_dict = issubclass(spec.type or tuple, dict) and list(spec.context) == outputs

    def trace() -> Traced:
        return replace(declaration.trace(), dicts=frozenset({"forward"} if gives_dict else ()))

    return replace(declaration, trace=trace, references={"torch": run, **declaration.references}, sample=numbers)


def _numpy(tensor: torch.Tensor) -> Any:
    """Return a tensor's numbers as an array, with bfloat16, which NumPy lacks, as float32."""
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).detach().cpu().numpy()


def _export_call(module: torch.nn.Module, call: ForwardCall, rows: int, place: str) -> tuple[ForwardCall, Any]:
    """Export a module for a call, or for a call with ``rows`` if the batch cannot be open; also return the call.

    If ``torch.export`` fails by running the module, as for ``len(x)``, it is tried again by analysing the code.
    """
    ways = [(call, LARGE, False), (call, SMALL, False), (call, SMALL, True), (call, LARGE, True)]
    if rows and BATCH in call.dims:
        pinned = call.pin({BATCH: rows})
        ways += [(pinned, LARGE, False), (pinned, SMALL, False)]
    errors: list[MlaotError] = []
    closed: list[tuple[ForwardCall, bool]] = []
    for candidate, sizes, strict in ways:
        if (candidate, strict) in closed:  # whatever the sizes are
            continue
        try:
            program = _export(module, candidate, sizes, place, strict=strict)
        except MlaotError as error:
            errors.append(error)
            if "cannot be open" in error.message:
                closed.append((candidate, strict))
            continue
        if candidate is not call:
            print(f"mlaot: {place}for batches of {rows} only, as the sample has: {errors[0].message}", flush=True)
        return candidate, program
    raise errors[0]


def _export(module: torch.nn.Module, call: ForwardCall, sizes: Sequence[int], place: str, *, strict: bool) -> Any:
    if len(sizes) < len(call.dims):
        raise MlaotError(f"{place}{len(call.dims)} dimensions are open; there can be {len(sizes)}")
    values = dict(zip(call.dims, sizes, strict=False))
    device = next(module.parameters(), torch.empty(0)).device
    shapes = torch.export.ShapesCollection()
    arrays = []
    with FakeTensorMode():  # which have no memory
        for kind in call.arrays:
            extents = [substitute(extent, values) for extent in kind.shape]
            arrays.append(torch.empty(extents, dtype=TO_TORCH[kind.dtype], device=device))
    for array, kind in zip(arrays, call.arrays, strict=True):
        if axes := {i: torch.export.Dim.DYNAMIC for i, extent in enumerate(kind.shape) if isinstance(extent, Expr)}:
            shapes[array] = axes
    args, kwargs = call.arguments(arrays)
    with _quiet(), _one_line_errors(place):
        dynamic_shapes = shapes.dynamic_shapes(module, args, kwargs) if values else None
        program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
        _check_open(program)
        return program


def _check_open(program: Any) -> None:
    """Raise ``MlaotError`` for a program that is valid only for the sizes of its export.

    Sizes that it assumes equal then differ for twice these sizes. Such programs use a part of an open size as a number,
    or rely on a part that is 1.
    """
    twice: dict[Any, int] = {}
    axes: dict[Any, tuple[str, int, int]] = {}
    guards: list[Any] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            for i, size in enumerate(getattr(node.meta["val"], "shape", ())):
                if isinstance(size, torch.SymInt):
                    for symbol in size.node.expr.free_symbols:
                        axes.setdefault(symbol, (node.name, i, size.node.hint))
                    if size.node.expr.is_Symbol:
                        twice[size.node.expr] = 2 * size.node.hint
                    guards = size.node.shape_env.guards
    for guard in guards:
        if guard.expr.func.__name__ == "Equality" and guard.expr.subs(twice) == False:  # noqa: E712  of sympy
            name, axis, size = next(axes[symbol] for symbol in axes if symbol in guard.expr.free_symbols)
            raise MlaotError(_closed(name, axis, size))


def _closed(name: str, axis: str | int, size: str | int) -> str:
    return f"axis {axis} of {name} cannot be open: forward, or a layer of torch, takes {size} for its size"


def _convert(program: Any, place: str) -> tuple[Any, list[str]]:
    """Convert an exported module to ONNX; return the model and the names of its outputs."""
    outputs = _output_names(program, place)
    with _quiet(), _one_line_errors(place, program):
        own = {**(AVERAGES if _has_averages(program) else {}), **(DISTANCES if _has_distances(program) else {})}
        program = program.run_decompositions(own) if own else program
        exported = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, output_names=outputs)
        NameFixPass()(exported.model)  # a buffer may have the name of an operator's result
        _check_open(exported.exported_program)
    if written := sorted(exported.exported_program.graph_signature.buffers_to_mutate.values()):
        raise MlaotError(f"{place}forward writes the buffer {written[0]!r}; make it an argument and a result")
    return exported.model_proto, outputs


def _average(x: Any, sizes: Sequence[int]) -> Any:
    """Average parts of the last axes, as adaptive pooling does, which ``torch.onnx`` supports only for known sizes."""
    for axis, size in enumerate(sizes, x.ndim - len(sizes)):
        length = x.shape[axis]
        place, part = torch.arange(length, device=x.device), torch.arange(size, device=x.device)[:, None]
        # Part i begins at i * length / size, rounded down, and ends at (i + 1) * length / size, rounded up.
        inside = ((place + 1) * size > part * length) & (place * size < (part + 1) * length)
        weights = inside.to(x.dtype) / inside.sum(-1, keepdim=True).to(x.dtype)
        x = (x.movedim(axis, -1) @ weights.T).movedim(-1, axis)
    return x


AVERAGES = {
    torch.ops.aten.adaptive_avg_pool1d.default: _average,
    torch.ops.aten.adaptive_avg_pool2d.default: _average,
    torch.ops.aten.adaptive_avg_pool3d.default: _average,
}


def _has_averages(program: Any) -> bool:
    """Tell whether a program averages parts of open axes."""
    return any(
        any(isinstance(length, torch.SymInt) for length in node.args[0].meta["val"].shape[-len(node.args[1]) :])
        for node in program.graph.nodes
        if node.target in AVERAGES and any(size != 1 for size in node.args[1])
    )


def _distances(x: Any, y: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """Compute the distances of all pairs of rows from differences, as ``torch.onnx`` supports only p = 2."""
    differences = x.unsqueeze(-2) - y.unsqueeze(-3)
    if p == 2:
        return (differences * differences).sum(-1).sqrt()
    if p == 0:
        return (differences != 0).to(x.dtype).sum(-1)
    sizes = differences.abs()
    if p == float("inf"):
        return sizes.amax(-1)
    return sizes.sum(-1) if p == 1 else (sizes**p).sum(-1) ** (1 / p)


DISTANCES = {torch.ops.aten.cdist.default: _distances, torch.ops.aten._cdist_forward.default: _distances}


def _has_distances(program: Any) -> bool:
    return any(node.target in DISTANCES for node in program.graph.nodes)


def _output_names(program: Any, place: str) -> list[str]:
    """Return names of outputs: ``output``, ``output_0`` for tuples, the keys of dicts, the names of named fields."""
    kinds = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    tree = pytree.tree_unflatten(kinds, program.call_spec.out_spec)
    used = set(program.graph_signature.user_inputs)
    result = []
    for path, kind in pytree.tree_leaves_with_path(tree):
        parts = [str(getattr(key, word)) for key in path for word in ("idx", "key", "name") if hasattr(key, word)]
        name = "_".join(parts if parts and not parts[0].isdigit() else ["output", *parts])
        while name in used:
            name += "_"
        used.add(name)
        constant = getattr(kind, "value", None)
        if constant is not None:
            raise MlaotError(f"{place}forward gives the constant {constant!r} besides arrays; leave it out")
        if type(kind).__name__ != "ConstantArgument":
            result.append(name)
    return result


def _name_dims(graph: Any, call: ForwardCall) -> None:
    """Name open dimensions as the sample does, and remove all other names."""
    declared = {
        axis.dim_param: str(extent)
        for info, kind in zip(graph.input, call.arrays, strict=True)
        for axis, extent in zip(info.type.tensor_type.shape.dim, kind.shape, strict=True)
        if isinstance(extent, Expr) and axis.dim_param
    }
    for info in (*graph.input, *graph.output):
        for axis in info.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = declared.get(axis.dim_param, "")
    del graph.value_info[:]  # the importer infers them itself


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress and the warnings of exporters, which are for their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)


@contextmanager
def _one_line_errors(place: str, program: Any = None) -> Iterator[None]:
    """Shorten the errors of exporters to one line."""
    try:
        yield
    except MlaotError:
        raise
    except Exception as error:
        refusal = MlaotError(_reason(error))
        refusal.place = user_line(error.__traceback__) or _line_of(error, program) or place
        raise refusal from None


def _reason(error: Exception) -> str:
    text = str(error)
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return "an `if`, a loop or a shape depends on computed numbers; choose by torch.where or torch.cond"
    if match := re.search(r"marked L\['(.*)'\]\.size\(\)\[(\d+)\] .* specialized it to be a constant \((\d+)\)", text):
        return _closed(*match.groups())
    if match := re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", text):
        return f"torch.onnx has no {match[1]}; compute it by other operations"
    summary = text.partition("## Exception summary")[2]
    lines = [line.strip() for line in (summary or text).splitlines() if line.strip()]
    return f"torch cannot export it: {lines[0] if lines else type(error).__name__}"[:300]


def _line_of(error: Exception, program: Any) -> str:
    """Return ``model.py:12: ``, the line of the node that an exporter names."""
    operator = re.search(r"op='\w+\.(\w+)'", str(error))
    if program is None or operator is None:
        return ""
    for node in program.graph.nodes:
        lines = re.findall(r'File "(.*)", line (\d+)', node.meta.get("stack_trace") or "")
        if operator[1] in str(node.target) and lines:
            return f"{Path(lines[-1][0]).name}:{lines[-1][1]}: "
    return ""
