"""The storage of a module: parameters, further state, gradients and constants, which all its entries share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mlaot.ir import DTYPES, Dim, DType, Graph, Type
from mlaot.ir.module import OPTIMIZER, RANDOM, READ_TEXTS, Module, Transformed, gradient_of, texts_of
from mlaot.ir.types import Literal
from mlaot.lower.layout import panel_strides, panels_of, slot_buffer, slots_beside, storage_strides
from mlaot.lower.prepare import Prepared, filters_buffer, stored_filters, transformed_buffer
from mlaot.lower.program import Buffer, Slot
from mlaot.nest.expressions import Panels, round_up
from mlaot.schedule.machine import whole_lines

Array = np.ndarray[Any, Any]
Ids = np.ndarray[Any, np.dtype[np.int64]]


class Storage:
    """The buffers of all slots and constants, their offsets, and the bytes of the constants and of the initial state.

    Frozen parameters are constants, and so are buffers in a module without state. In such a module transformed
    parameters are the state, ``prepared`` from constants. A module that C calls has no memory for these.
    """

    def __init__(self, model: Module) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.literals: dict[Literal, Buffer] = {}
        self.offsets: dict[Buffer, int] = {}
        self.constants = bytearray()
        self.initial = bytearray()
        self.slots: tuple[Slot, ...] = ()
        self.state_bytes = 0
        self.prepared: list[Prepared] = []
        graphs = list(model.graphs.values())
        self.beside = slots_beside(graphs)
        texts = {texts_of(name): name for name in model.state if texts_of(name) in model.state}
        zeros = [
            name for name, value in model.state.items() if not np.any(value)
        ]  # they come last, as no file need hold them
        for name in sorted([name for name in model.slots if name not in texts], key=lambda name: name in zeros):
            self._place(model, graphs, name, model.slots[name])
        if model.is_stateful:
            self._make_slots(model, zeros)
        self.texts: tuple[Slot, ...] = ()
        end = self.state_bytes
        for name, one in texts.items():
            shape = model.graphs[READ_TEXTS].inputs[name].type.shape
            end = self._place_texts(self.buffers[one], name, shape, len(model.state[name]), end)

    def _place(self, model: Module, graphs: list[Graph], name: str, value: Array) -> None:
        """Choose the layout of a slot or a frozen weight, and store its value."""
        node = next((g.inputs[name] for g in graphs if name in g.inputs), None)
        if node is None:
            assert name not in model.trained, f"bug in mlaot: no entry has the parameter {name}"
            return  # nothing reads it
        made_of = model.transformed.get(name)
        if made_of is not None and not (model.is_stateful or model.options.c_library or name in model.narrow):
            self._prepare(name, node.type, value, made_of)
            return
        is_state = not model.is_frozen or name in model.trained or (model.is_stateful and name in model.state)
        where = "state" if is_state else "constant"
        panels = None if is_state else panels_of(graphs, name)
        dtype = model.narrow.get(name, node.type.dtype)
        if panels is None:
            buffer = slot_buffer(graphs, name, self.beside.get(name, ()), dtype.name, where)
        else:
            axis, layout = panels
            strides = panel_strides(axis, value.shape)
            buffer = Buffer(name, dtype.name, node.type.shape, strides, where, panels=layout, panel_axis=axis)
        self.buffers[name] = buffer
        region = self.initial if is_state else self.constants
        self.offsets[buffer] = _append(region, value, buffer)

    def _place_texts(self, one: Buffer, name: str, shape: tuple[Dim, ...], texts: int, at: int) -> int:
        """Place a slot's copies for several texts after the state, each laid out like ``one``; return the end.

        Callers do not see these slots.
        """
        assert isinstance(one.bytes, int), f"bug in mlaot: {one.name} has no fixed size"
        strides = (one.bytes // DTYPES[one.dtype].itemsize, *one.strides)
        buffer = replace(one, name=name, shape=shape, strides=strides)
        self.buffers[name], self.offsets[buffer] = buffer, at
        self.texts += (Slot(one.name, one.dtype, (texts, *map(int, one.shape)), tuple(map(int, strides)), at),)
        return at + one.bytes * texts

    def _prepare(self, name: str, type_: Type, value: Array, made_of: Transformed) -> None:
        """Place a weight in memory that is filled when a module is first used, and store the weight's source."""
        filters = stored_filters(made_of)
        source, target = filters_buffer(f"{name}.filters", type_, filters), transformed_buffer(name, type_)
        self.buffers[name] = target
        self.offsets[source] = _append(self.constants, filters, source)
        self.offsets[target] = _append(self.initial, value, target)
        self.state_bytes = len(self.initial)
        self.prepared.append(Prepared(source, target, made_of.m))

    def _make_slots(self, model: Module, zeros: list[str]) -> None:
        """Describe the state: parameters, further slots, and then gradients with the layouts of their parameters."""
        variable = model.trained if model.is_frozen else model.parameters
        parameters = [self.buffers[name] for name in variable if name in self.buffers]
        size = len(self.initial)
        slots = []
        for buffer in [self.buffers[name] for name in model.slots if name in self.buffers]:
            if buffer.where == "state" and buffer not in parameters:
                kind = "optimizer" if buffer.name.startswith(OPTIMIZER) else "buffer"
                slots.append(self._slot(buffer, kind, -1))
        if model.adapters:
            learnt = model.graphs["train_step"].writes.keys() - {RANDOM}  # such as running statistics
            slots = [replace(slot, in_file=slot.kind == "buffer" and slot.name in learnt) for slot in slots]
        end = max((self.offsets[b] + int(b.bytes) for b in parameters), default=0)
        for buffer in parameters if model.trains else ():
            gradient = replace(buffer, name=gradient_of(buffer.name))
            self.buffers[gradient.name] = gradient
            self.offsets[gradient] = size + self.offsets[buffer]
        parameter_slots = [self._slot(b, "parameter", -1) for b in parameters]
        if model.named:
            parameter_slots = list(self._named_views(model))
        if model.trains:
            parameter_slots = [replace(slot, gradient_offset=size + slot.offset) for slot in parameter_slots]
        self.slots = (*parameter_slots, *slots)
        self.state_bytes = size + (end if model.trains else 0)
        kept = [self.offsets[b] + int(b.bytes) for b in self.offsets if b.where == "state" and b.name not in zeros]
        del self.initial[max((at for at in kept if at <= size), default=0) :]

    def _slot(self, buffer: Buffer, kind: str, gradient: int) -> Slot:
        name = buffer.name.removeprefix(OPTIMIZER) if kind == "optimizer" else buffer.name
        shape, strides = (tuple(int(d) for d in dims) for dims in (buffer.shape, buffer.strides))
        return Slot(name, buffer.dtype, shape, strides, self.offsets[buffer], gradient, kind)

    def constant(self, literal: Literal) -> Buffer:
        """Return the buffer of a constant array."""
        buffer = self.literals.get(literal)
        if buffer is None:
            strides, dense = storage_strides(literal.array.shape, literal.dtype.itemsize)
            name = f"constant{len(self.literals)}"
            buffer = Buffer(name, literal.dtype.name, literal.array.shape, strides, "constant", dense)
            self.literals[literal] = buffer
            self.offsets[buffer] = _append(self.constants, literal.array, buffer)
        return buffer

    def _named_views(self, model: Module) -> Iterator[Slot]:
        """Yield the arrays that the user declared for a scalar model's parameters, as views of what kernels read."""
        places = [(self.buffers.get(name), i) for name, i in model.scalars]
        offsets = self._scalar_offsets(model)
        for name, ids in model.named.items():
            buffer = places[int(ids.flat[0])][0]
            if buffer is not None:  # else nothing reads it
                itemsize = DTYPES[buffer.dtype].itemsize
                at = offsets[ids] // itemsize
                strides = tuple(int(np.diff(at, axis=axis).flat[0]) if n > 1 else 1 for axis, n in enumerate(at.shape))
                first = int(at.flat[0])
                affine = first + np.tensordot(strides, np.indices(at.shape), 1)
                assert (at == affine).all(), f"bug in mlaot: {name} is no view of {buffer.name}"
                yield Slot(name, buffer.dtype, at.shape, strides, first * itemsize)

    def scalar_offsets(self, model: Module) -> tuple[int, ...]:
        """Return the byte offset in the state of each scalar parameter of a scalar model."""
        return tuple(self._scalar_offsets(model).tolist())

    def _scalar_offsets(self, model: Module) -> Ids:
        """Return the byte offset in the state of each scalar parameter, -1 if nothing reads it."""
        tables: dict[str, Ids] = {}
        for name in dict.fromkeys(name for name, _ in model.scalars):
            buffer = self.buffers.get(name)
            if buffer is None:
                continue
            shape, strides = (tuple(map(int, dims)) for dims in (buffer.shape, buffer.strides))
            elements = np.tensordot(np.array(strides, np.int64), np.indices(shape), 1)
            tables[name] = self.offsets[buffer] + DTYPES[buffer.dtype].itemsize * elements.reshape(-1)
        return np.array([tables[name][i] if name in tables else -1 for name, i in model.scalars], np.int64)


def _append(region: bytearray, value: Array, buffer: Buffer) -> int:
    """Append an array to a region in the layout of its buffer, with zeros in the padding; return its offset."""
    offset, size = len(region), buffer.bytes
    assert isinstance(size, int)
    array = in_memory(value, DTYPES[buffer.dtype])
    region.extend(bytes(whole_lines(size)))
    flat = np.frombuffer(region, array.dtype, size // array.itemsize, offset)  # no copy, as arrays may be large
    if buffer.panels is not None:
        columns_last = np.moveaxis(array, buffer.panel_axis, -1)
        _fill_panels(flat, columns_last.reshape(buffer.panels.rows, -1), buffer.panels)
    else:
        strides = [int(s) * array.itemsize for s in buffer.strides]
        np.lib.stride_tricks.as_strided(flat, array.shape, strides)[...] = array
    return offset


def _fill_panels(flat: Array, matrix: Array, panels: Panels) -> None:
    """Write the panels of a matrix one after the other, then each remainder column as a row."""
    start = 0
    for first in range(0, panels.columns, panels.width):
        part = matrix[:, first : min(first + panels.width, panels.columns)]
        end = start + panels.rows * panels.width
        flat[start:end].reshape(panels.rows, panels.width)[:, : part.shape[1]] = part
        start = end
    length = round_up(panels.rows, panels.width)
    for i, column in enumerate(matrix[:, panels.columns :].T):
        flat[start + i * length :][: panels.rows] = column


def in_memory(value: Array, dtype: DType) -> Array:
    """Return an array as it is stored: half-precision numbers as their bits."""
    array = np.asarray(value).astype(dtype.numpy, copy=False)
    if dtype.name == "bf16":
        return (dtype.array(array).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return array.view(np.uint16) if dtype.name == "f16" else array
