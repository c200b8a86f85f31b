"""ONNX's own interface to a backend, over compiled C: ``Backend.prepare(model).run(inputs)``.

Each model is compiled for the best instruction set of this machine into a library of its own and called through ctypes:
what a module's interface checks is checked here, and what its kernels compute they compute here.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mlaot.binding.extents import Extents
from mlaot.build.toolchain import compile_kernels, find_toolchain
from mlaot.generate import compile_model
from mlaot.ir import DTYPES
from mlaot.ir.dims import parse, substitute
from mlaot.lower.program import Program
from mlaot.onnx.codes import from_ml_dtype, to_ml_dtype
from mlaot.onnx.declare import declare, element_type, port_name
from mlaot.onnx.values import Unsupported, numpy_dtype
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.settings.options import Options
from mlaot.tune import this_machine

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
    """The C compiler, and the best instruction set of this machine; ``words``: for a module that multiplies bytes."""
    command = find_toolchain().command
    return command, this_machine(MACHINES, command, words=words)[-1]


class Model:
    """A compiled model; ``run`` takes and gives arrays in the order of the graph's inputs and outputs.

    ``given`` has the shapes of inputs that are sequences as lists; ``made`` says of each output which port it is, or of
    a sequence, which ports.
    """

    def __init__(self, program: Program, graph: onnx.GraphProto, given: dict[str, Any], made: dict[str, Any]) -> None:
        self.inputs, self.outputs = _dtypes(graph.input, given), _dtypes(graph.output, made)
        self.module, self.ports = program.module, [made[info.name] for info in graph.output]
        (self.entry,) = (p.entry for p in program.procedures if p.entry.name == "forward")
        folder = Path(tempfile.mkdtemp(prefix="mlaot-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        command, isa = compiler(program.module.words)
        source, library = folder / "onnx.c", folder / "onnx.so"
        source.write_text(kernels_file(program, "onnx", isa), encoding="utf-8")
        (folder / f"{self.module.stem}.h").write_text(HEADER, encoding="utf-8")
        compile_kernels(source, isa, library, command)
        self.function = getattr(ctypes.CDLL(str(library)), f"onnx_forward_{isa.name}")
        self.constants = _aligned(self.module.constants)
        self.state = _aligned(bytes(self.module.initial).ljust(self.module.state_bytes, b"\0"))

    def run(self, inputs: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        """The outputs for ``inputs``, which are only read."""
        ports = self.entry.inputs
        if len(inputs) != len(ports):
            raise ValueError(f"expected {len(ports)} inputs, got {len(inputs)}")
        known: dict[str, int] = {}
        arrays = []
        for port, value in zip(ports, inputs, strict=True):
            array = np.asarray(value)
            wanted_dtype = self.inputs.get(port.name)
            if wanted_dtype is None or array.dtype != wanted_dtype:
                raise TypeError(f"{port.name}: expected {wanted_dtype}, got {array.dtype}")
            array = from_ml_dtype(array)
            if array.ndim != len(port.shape):
                raise ValueError(f"{port.name}: expected {len(port.shape)} axes, got {array.ndim}")
            for extent, wanted in zip(array.shape, port.shape, strict=True):
                if wanted in self.module.dims and known.setdefault(str(wanted), extent) != extent:
                    raise ValueError(f"{port.name}: {wanted} is {known[str(wanted)]}, got {extent}")
            arrays.append(np.asarray(array, order="C"))
        for step in Extents(self.module).solves(self.entry):
            if step.dim >= 0:  # an extent that is linear in a dim which is not known yet
                name, extent = self.module.dims[step.dim], parse(ports[step.input].shape[step.axis])
                none, one = (substitute(extent, known | {name: size}) for size in (0, 1))
                known[name] = (arrays[step.input].shape[step.axis] - none) // (one - none)
        for port, array in zip(ports, arrays, strict=True):
            shape = tuple(substitute(parse(extent), known) for extent in port.shape)
            if array.shape != shape:
                raise ValueError(f"{port.name}: expected the shape {list(shape)}, got {list(array.shape)}")
            for range_ in port.ranges:
                if message := range_.refusal(array, known):
                    raise ValueError(f"{port.name}{message}")
        outputs = []
        for port in self.entry.outputs:
            shape = tuple(substitute(parse(extent), known) for extent in port.shape)
            outputs.append(np.empty(shape, DTYPES[port.dtype].numpy))
        workspace = _aligned(bytes(int(substitute(parse(self.entry.workspace), known))))
        memory = [*arrays, *outputs, self.state, self.constants, workspace]
        p = (ctypes.c_void_p * (len(memory) + 1))(*[array.ctypes.data for array in memory], 0)
        dims = (ctypes.c_ssize_t * max(len(self.module.dims), 1))(*[known.get(d, 0) for d in self.module.dims])
        self.function(p, dims)
        if self.entry.refusals and (refused := int(outputs[-1])):
            raise ValueError(self.entry.refusals[refused - 1])
        named = zip(self.entry.outputs, outputs, strict=False)
        found = {port.name: to_ml_dtype(array, self.outputs.get(port.name)) for port, array in named}
        return tuple(_outputs(port, found) for port in self.ports)


class Later:
    """A model of whose inputs the file does not say all, compiled for what it is run with: sequences, optionals, and
    arrays without a shape. Only their lengths and shapes count, never their numbers."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.compiled: dict[str, Model] = {}

    def run(self, inputs: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        """The outputs for ``inputs``."""
        known = {tensor.name for tensor in self.model.graph.initializer}
        infos = [info for info in self.model.graph.input if info.name not in known]
        if len(inputs) != len(infos):
            raise ValueError(f"expected {len(infos)} inputs, got {len(inputs)}")
        given = {info.name: _shape(x) for info, x in zip(infos, inputs, strict=True)}
        if str(given) not in self.compiled:
            self.compiled[str(given)] = _compiled(self.model, given)
        return self.compiled[str(given)].run(_flat(inputs))


def _is_said(info: onnx.ValueInfoProto) -> bool:
    """Whether the file says all of an input that compiling it takes; of other types than arrays it never does."""
    kind = info.type.WhichOneof("value")
    return kind not in ("tensor_type", "sequence_type", "optional_type") or info.type.tensor_type.HasField("shape")


def _shape(value: Any) -> Any:
    """The shape of an array, a list of them for a sequence."""
    return None if value is None else list(map(_shape, value)) if isinstance(value, list) else np.shape(value)


def _flat(values: Sequence[Any]) -> list[Any]:
    """The arrays in ``values``."""
    found: list[Any] = []
    for value in values:
        found += [] if value is None else _flat(value) if isinstance(value, list) else [value]
    return found


def _outputs(port: Any, found: dict[str, Array]) -> Any:
    if port is None:
        return None
    return [_outputs(p, found) for p in port] if isinstance(port, list) else found[port]


def _compiled(model: onnx.ModelProto, given: dict[str, Any]) -> Model:
    """A model, compiled."""
    made: dict[str, Any] = {}
    declared = declare(model, {}, given=given, made=made)
    try:
        program = compile_model(declared, "onnx.model", Options(isas=tuple(MACHINES)))
    except Unsupported as error:
        raise NotImplementedError(str(error)) from None
    return Model(program, model.graph, given, made)


def _dtypes(infos: Sequence[onnx.ValueInfoProto], parts: dict[str, Any]) -> dict[str, np.dtype[Any]]:
    """The dtypes that a file declares; those that only ``ml_dtypes`` has are computed with as others."""
    found: dict[str, np.dtype[Any]] = {}
    for info in infos:
        kind = element_type(info.type).tensor_type.elem_type
        if kind:
            found |= {port_name(name): numpy_dtype(kind) for name in _names(info.name, parts.get(info.name))}
    return found


def _names(name: str, part: Any) -> list[str]:
    """The name of an array, or the names of those of a sequence."""
    if not isinstance(part, list):
        return [name]
    return [inner for i, each in enumerate(part) for inner in _names(f"{name}_{i}", each)]


def _aligned(data: bytes | bytearray) -> Array:
    """A copy on a boundary of 64 bytes."""
    raw = np.zeros(len(data) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    found = raw[start : start + len(data)]
    found[:] = np.frombuffer(data, np.uint8)
    return found


class Backend:
    """``onnx.backend.base.Backend`` in its shape: what is not supported raises ``NotImplementedError``."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU."""
        return device == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Whether the model may be tried."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Model | Later:
        """Compile a model; where the file says too little of the inputs, once they are there."""
        if not cls.supports_device(device):
            raise NotImplementedError(f"there is no device {device!r}; mlaot compiles for the CPU")
        known = {tensor.name for tensor in model.graph.initializer}
        if all(_is_said(info) for info in model.graph.input if info.name not in known):
            return _compiled(model, {})
        return Later(model)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Sequence[Any], device: str = "CPU", **options: Any) -> Any:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **options).run(inputs)
