"""ONNX's own interface to a backend, over compiled C: ``Backend.prepare(model).run(inputs)``.

Each model is compiled for the best instruction set of this machine into a library of its own, which is called through
ctypes. This file makes the checks of a module's interface, and the kernels are those of a module.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from mlaot.binding.extents import Extents, shown
from mlaot.build.toolchain import compile_kernels, find_toolchain
from mlaot.generate import compile_model
from mlaot.interpret import aligned, output_shapes, settle
from mlaot.ir import DTYPES
from mlaot.ir.dims import parse, substitute
from mlaot.lower.program import Port, Program
from mlaot.onnx.codes import from_ml_dtype, to_ml_dtype
from mlaot.onnx.deciding import pinnable, pins
from mlaot.onnx.declare import declare, element_type, graph_inputs, port_name
from mlaot.onnx.values import Computed, Unsupported, numpy_dtype
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.settings.options import Options
from mlaot.tokenizers.text_steps import Column, TextStep, made
from mlaot.tune import machines_here

Array = np.ndarray[Any, Any]

# In place of a module's header: everything on one thread.
HEADER = """\
#pragma GCC visibility push(default)
#include <stddef.h>
typedef void Task(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end);
static void onnx_share(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                       ptrdiff_t step, ptrdiff_t work) __attribute__((unused));
static void onnx_share(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                       ptrdiff_t step, ptrdiff_t work)
{
    (void)threads, (void)step, (void)work;
    if (extent > 0) {
        task(p, dim, 0, extent);
    }
}

static void onnx_share_apart(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                             ptrdiff_t work, int own, ptrdiff_t at, ptrdiff_t bytes) __attribute__((unused));
static void onnx_share_apart(void *threads, Task *task, char *const *p, const ptrdiff_t *dim, ptrdiff_t extent,
                             ptrdiff_t work, int own, ptrdiff_t at, ptrdiff_t bytes)
{
    (void)threads, (void)work, (void)bytes;
    char *mine[own + 1];
    for (int i = 0; i < own; i++) {
        mine[i] = p[i];
    }
    mine[own] = p[own - 2] + at;
    task(mine, dim, 0, extent);
}
"""


@cache
def compiler(words: bool) -> tuple[list[str], Machine]:
    """Find the C compiler and the best machine of this computer; ``words``: for a module that multiplies bytes."""
    command = find_toolchain().command
    return command, machines_here(MACHINES, command, words=words)[-1]


class CompiledModel:
    """A compiled model. ``run`` takes and returns arrays in the order of the graph's inputs and outputs.

    ``shapes`` has the shapes of inputs, as lists for sequences. ``ports`` has the port of each output, or the ports of
    a sequence.
    """

    def __init__(self, program: Program, graph: onnx.GraphProto, shapes: dict[str, Any], ports: dict[str, Any]) -> None:
        self.inputs, self.outputs = _dtypes(graph.input, shapes), _dtypes(graph.output, ports)
        self.module, self.ports = program.module, [ports[info.name] for info in graph.output]
        (self.entry,) = (p.entry for p in program.procedures if p.entry.name == "forward")
        self.extents = Extents(self.module)
        tables = (port.strings for port in (*self.entry.inputs, *self.entry.outputs) if port.further or port.then)
        self.known = next(tables, ())
        self.count = len(self.known)
        folder = Path(tempfile.mkdtemp(prefix="mlaot-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        command, isa = compiler(program.module.words)
        source, library = folder / "onnx.c", folder / "onnx.so"
        source.write_text(kernels_file(program, "onnx", isa), encoding="utf-8")
        (folder / f"{self.module.stem}.h").write_text(HEADER, encoding="utf-8")
        compile_kernels(source, isa, library, command)
        self.function = getattr(ctypes.CDLL(str(library)), f"onnx_forward_{isa.name}")
        self.constants = aligned(self.module.constants)
        self.state = aligned(bytes(self.module.initial).ljust(self.module.state_bytes, b"\0"))

    def run(self, inputs: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        """Return the outputs for ``inputs``, which are only read."""
        asked = self.entry.asked
        if len(inputs) != len(asked):
            raise ValueError(f"expected {len(asked)} inputs, got {len(inputs)}")
        known = {text: place for place, text in enumerate(self.known)}
        keys = [_keys(port, x) if port.map else x for port, x in zip(asked, inputs, strict=True)]
        arrays = [self._checked(port, np.asarray(x), known) for port, x in zip(asked, keys, strict=True)]
        values = {port.name: [*x.values()] for port, x in zip(asked, inputs, strict=True) if port.map}
        given = {port.name: array for port, array in zip(asked, arrays, strict=True)}
        makers: dict[TextStep, Column] = {}
        texts = [*known]

        def column_of(of: str | int, numbers: bool) -> Column:
            return _column(given[str(of)], None if numbers else texts)

        for port in self.entry.inputs[len(asked) :]:
            assert port.made is not None, "bug in mlaot: an input that nobody gives"
            if port.made.kind == "values":
                arrays.append(np.array(values[str(port.made.of[0])], DTYPES[port.dtype].numpy))
                continue
            column = made(port.made, column_of, makers)
            arrays.append(_array(column, None if port.strings else DTYPES[port.dtype].numpy, known))
        sizes = self._sizes(arrays)
        for bound in self.extents.bounds(self.entry):
            extent = self.extents.all[bound.extent]
            if (value := int(substitute(extent, sizes))) < bound.least:
                raise ValueError(f"expected {shown(extent)} of at least {bound.least}, got {value}")

        def shape(port: Port) -> tuple[int, ...]:
            return tuple(int(substitute(parse(extent), sizes)) for extent in port.shape)

        for port, array in zip(self.entry.inputs, arrays, strict=True):
            if array.shape != shape(port):
                raise ValueError(f"{port.name}: expected the shape {list(shape(port))}, got {list(array.shape)}")
            for range_ in port.ranges:
                if message := range_.refusal(array, sizes):
                    raise ValueError(f"{port.name}{message}")
        outputs = [np.empty(size, DTYPES[port.dtype].numpy) for port, size in output_shapes(self.entry, sizes)]
        workspace = aligned(bytes(int(substitute(parse(self.entry.workspace), sizes))))
        memory = [*arrays, *outputs, self.state, self.constants, workspace]
        p = (ctypes.c_void_p * (len(memory) + 1))(*[array.ctypes.data for array in memory], 0)
        dims = (ctypes.c_ssize_t * max(len(self.module.dims), 1))(*[sizes.get(d, 0) for d in self.module.dims])
        self.function(p, dims)
        found = settle(self.entry, outputs, sizes)
        if self.entry.refusals and (refused := int(outputs[-1])):
            raise ValueError(self.entry.refusals[refused - 1])
        for port in self.entry.outputs:
            if port.then is not None:
                found[port.name] = _made_of(port.then, found[port.name], known)
        further = list(known)[self.count :]
        results = {port.name: self._result(port, found[port.name], further) for port in self.entry.outputs}
        return tuple(_outputs(port, results) for port in self.ports)

    def _result(self, port: Port, array: Array, texts: list[str]) -> Array:
        """Return an output in the form that the file declares; ``texts`` are the further strings of the call."""
        if not port.strings:
            return to_ml_dtype(array, self.outputs.get(port.name))  # type: ignore[no-any-return]
        return np.asarray(np.array([*port.strings, *texts], object)[array], object)

    def _checked(self, port: Port, array: Array, known: dict[str, int]) -> Array:
        """Check the dtype and the rank of an input, and lay it out for C; ``known`` has the indices of strings."""
        dtype = np.dtype(np.int64) if port.map else self.inputs.get(port.name)
        if port.strings and array.dtype.kind in "OU":
            array = _places(port, array, known)
        elif dtype is None or array.dtype != dtype or port.strings:
            raise TypeError(f"{port.name}: expected {'strings' if port.strings else dtype}, got {array.dtype}")
        if array.ndim != len(port.shape):
            raise ValueError(f"{port.name}: expected {len(port.shape)} axes, got {array.ndim}")
        return np.asarray(from_ml_dtype(array), order="C")

    def _sizes(self, arrays: Sequence[Array]) -> dict[str, int]:
        """Return the sizes of named dims."""
        ports = self.entry.inputs
        sizes: dict[str, int] = {}
        for port, array in zip(ports, arrays, strict=True):
            for length, name in zip(array.shape, map(str, port.shape), strict=True):
                if name in self.module.dims and sizes.setdefault(name, length) != length:
                    raise ValueError(f"{port.name}: {name} is {sizes[name]}, got {length}")
        for step in self.extents.solves(self.entry):
            if step.dim >= 0:  # an extent that is linear in a dim which is not known yet
                name, extent = self.module.dims[step.dim], parse(ports[step.input].shape[step.axis])
                none, one = (substitute(extent, sizes | {name: size}) for size in (0, 1))
                sizes[name] = int((arrays[step.input].shape[step.axis] - none) // (one - none))
        return sizes


class DeferredModel:
    """A model that is compiled when it is run, as the file does not describe all inputs.

    These are sequences, optionals, and arrays without a shape. It is compiled for their lengths and shapes. It is
    compiled for the numbers in an input too, as if settings pinned them, if the shapes of outputs depend on these.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.compiled: dict[str, CompiledModel | None] = {}

    def run(self, inputs: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        """Return the outputs for ``inputs``."""
        infos = graph_inputs(self.model.graph)
        if len(inputs) != len(infos):
            raise ValueError(f"expected {len(infos)} inputs, got {len(inputs)}")
        shapes = {info.name: _shape(x) for info, x in zip(infos, inputs, strict=True)}
        return self._compiled(shapes, self._numbers(inputs)).run(_flatten(inputs))

    def _compiled(self, shapes: dict[str, Any], numbers: dict[str, int]) -> CompiledModel:
        """Compile the model, if possible for any numbers, and cache it."""
        for pinned in ({}, numbers):
            key = str((shapes, pinned))
            if key not in self.compiled:
                try:
                    self.compiled[key] = _compile(self.model, shapes, pinned)
                except NotImplementedError as error:
                    if pinned == numbers or not isinstance(error.__cause__, Computed):
                        raise
                    self.compiled[key] = None
            if (model := self.compiled[key]) is not None:
                return model
        raise AssertionError("bug in mlaot: a model is neither compiled nor refused")

    def _numbers(self, inputs: Sequence[Any]) -> dict[str, int]:
        """Return the settings that pin inputs of one or a few numbers."""
        found: dict[str, int] = {}
        small = pinnable(self.model.graph)
        for info, x in zip(graph_inputs(self.model.graph), inputs, strict=True):
            if info.name in small and np.shape(x) == small[info.name]:
                found |= dict(zip(pins(info.name, small[info.name]), np.ravel(x).astype(int).tolist(), strict=True))
        return found


def _has_shape(info: onnx.ValueInfoProto) -> bool:
    """Tell whether the file describes an input well enough to compile it, which it does for arrays only."""
    kind = info.type.WhichOneof("value")
    return kind not in ("tensor_type", "sequence_type", "optional_type") or info.type.tensor_type.HasField("shape")


def _shape(value: Any) -> Any:
    """Return the shape of an array, a list of them for a sequence."""
    return None if value is None else list(map(_shape, value)) if isinstance(value, list) else np.shape(value)


def _flatten(values: Sequence[Any]) -> list[Any]:
    """Return the arrays in ``values``."""
    parts = ([] if v is None else _flatten(v) if isinstance(v, list) else [v] for v in values)
    return [array for part in parts for array in part]


def _places(port: Port, array: Array, known: dict[str, int]) -> Array:
    """Return the indices of strings. Unknown strings get further indices, which all inputs of a call share."""
    texts = array.ravel().tolist()
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{port.name}: expected strings, got {next(t for t in texts if not isinstance(t, str))!r:.40}")
    return np.array([known.setdefault(text, len(known)) for text in texts], np.int64).reshape(array.shape)


def _keys(port: Port, entries: Any) -> Array:
    """Return the keys of a dict."""
    if not isinstance(entries, dict):
        raise TypeError(f"{port.name}: expected dict, got {type(entries).__name__}")
    return np.array([*entries], object if port.strings else np.int64)


def _column(array: Array, texts: Sequence[str] | None) -> Column:
    """Return an array as steps take it; ``texts`` are the strings whose indices it holds."""
    values = array.ravel().tolist()
    if texts is not None:
        values = [texts[place].encode(errors="surrogatepass") for place in values]
    return Column(array.shape, values)


def _array(column: Column, dtype: str | None, known: dict[str, int]) -> Array:
    """Return a step's result as an array of numbers or of indices; new strings get further indices."""
    values = column.values
    if dtype is None:
        texts = [value.decode(errors="surrogatepass") for value in values]
        values = [known.setdefault(text, len(known)) for text in texts]
    return np.array(values, dtype or np.int64).reshape(column.shape)


def _made_of(step: TextStep, array: Array, known: dict[str, int]) -> Array:
    """Return the indices of strings that steps make from an output."""
    texts, parts = [*known], [array] if step.columns == 1 else [array[..., i] for i in range(step.columns)]
    column = made(step, lambda i, numbers: _column(parts[int(i)], None if numbers else texts), {})
    return _array(column, None, known)


def _outputs(port: Any, arrays: dict[str, Array]) -> Any:
    if port is None:
        return None
    return [_outputs(p, arrays) for p in port] if isinstance(port, list) else arrays[port]


def _compile(
    model: onnx.ModelProto, shapes: dict[str, Any], pinned: Mapping[str, int] = MappingProxyType({})
) -> CompiledModel:
    ports: dict[str, Any] = {}
    declaration = declare(model, pinned, shapes=shapes, ports=ports)
    try:
        program = compile_model(declaration, "onnx.model", Options(isas=tuple(MACHINES)))
    except Unsupported as error:
        raise NotImplementedError(str(error)) from error
    return CompiledModel(program, model.graph, shapes, ports)


def _dtypes(infos: Sequence[onnx.ValueInfoProto], parts: dict[str, Any]) -> dict[str, np.dtype[Any]]:
    """Return the dtypes that a file declares. Dtypes that only ``ml_dtypes`` has are computed in others."""
    kinds = {info.name: element_type(info.type).tensor_type.elem_type for info in infos}
    names = {name: _names(name, parts.get(name)) for name in kinds}
    return {port_name(part): numpy_dtype(kind) for name, kind in kinds.items() if kind for part in names[name]}


def _names(name: str, part: Any) -> list[str]:
    """Return the name of an array, or the names of those of a sequence."""
    if not isinstance(part, list):
        return [name]
    return [inner for i, each in enumerate(part) for inner in _names(f"{name}_{i}", each)]


class Backend:
    """The interface of ``onnx.backend.base.Backend``. What mlaot does not support raises ``NotImplementedError``."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether mlaot compiles for a device: only for the CPU."""
        return device == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Tell whether the model may be tried."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> CompiledModel | DeferredModel:
        """Compile a model, or defer that to its first run if the file describes the inputs incompletely."""
        if not cls.supports_device(device):
            raise NotImplementedError(f"there is no device {device!r}; mlaot compiles for the CPU")
        if all(map(_has_shape, graph_inputs(model.graph))):
            try:
                return _compile(model, {})
            except NotImplementedError as error:
                if not isinstance(error.__cause__, Computed) or not pinnable(model.graph):
                    raise
        return DeferredModel(model)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Sequence[Any], device: str = "CPU", **options: Any) -> Any:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **options).run(inputs)


# A module can stand in for the class, as ONNX's list of backends names it.
is_compatible, prepare = Backend.is_compatible, Backend.prepare
run_model, supports_device = Backend.run_model, Backend.supports_device
