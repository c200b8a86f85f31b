"""The state of a module: its slots, their places in memory, and their order in files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import prod

from mlaot.binding.literals import c_dtype, c_text
from mlaot.ir.module import BASE
from mlaot.ir.types import DTYPES
from mlaot.lower.program import ExtensionModule, Slot

# What the state's kinds of arrays are called in docstrings.
KINDS = {"parameter": "the parameters", "buffer": "the buffers", "optimizer": "the optimizer's state"}


def of_kind(module: ExtensionModule, kind: str) -> list[Slot]:
    """Return the slots of one kind."""
    return [slot for slot in module.slots if slot.kind == kind]


def has_gradients(module: ExtensionModule) -> bool:
    """Tell whether the module trains: its parameters have gradients."""
    return any(slot.gradient_offset >= 0 for slot in module.slots)


def saved(module: ExtensionModule) -> list[Slot]:
    """Return the slots in the order of a file: parameters, buffers, optimizer state, then slots that no file has."""
    return sorted((s for kind in KINDS for s in of_kind(module, kind)), key=lambda slot: not slot.in_file)


def in_file(module: ExtensionModule) -> list[Slot]:
    """Return the slots that ``save`` writes."""
    return [slot for slot in saved(module) if slot.in_file]


def needed(module: ExtensionModule) -> int:
    """Return the number of leading slots that a file must have. If a file has none of the others, they start anew."""
    return sum(slot.kind != "optimizer" for slot in in_file(module))


def state_name(slot: Slot) -> str:
    """Return the name of a slot in a file."""
    return f"optimizer.{slot.name}" if slot.kind == "optimizer" else slot.name


def flat_region(module: ExtensionModule) -> dict[str, int | str]:
    """Return the region of all parameters, padding included, and that of their gradients, which has the same order."""
    slots = of_kind(module, "parameter")
    start = min(slot.offset for slot in slots)
    end = max(slot.offset + byte_extent(slot) for slot in slots)
    distances = {slot.gradient_offset - slot.offset for slot in slots}
    assert len(distances) == 1, "bug in mlaot: gradients do not lie in the order of their parameters"
    (distance,) = distances
    last = max(slot.offset + byte_extent(slot) for slot in module.slots)
    assert start + distance >= last, "bug in mlaot: slots overlap"
    assert end + distance <= module.state_bytes, "bug in mlaot: the state is shorter than its slots"
    same = len({slot.dtype for slot in slots}) == 1
    dtype = slots[0].dtype if same else "u8"
    return {
        "dtype": c_dtype(dtype),
        "count": (end - start) // DTYPES[dtype].itemsize,
        "parameters_at": start,
        "gradients_at": start + distance,
    }


def byte_extent(slot: Slot) -> int:
    """Return the bytes from a slot's first number to the end of its last."""
    if 0 in slot.shape:
        return 0
    steps = sum((n - 1) * stride for n, stride in zip(slot.shape, slot.strides, strict=True))
    return (steps + 1) * DTYPES[slot.dtype].itemsize


def slot_row(slot: Slot) -> str:
    """Format a slot as a C initialiser."""
    size = DTYPES[slot.dtype].itemsize
    shape = ", ".join(str(extent) for extent in slot.shape) or "0"
    strides = ", ".join(str(stride * size) for stride in slot.strides) or "0"
    return (
        f'{{"{c_text(state_name(slot))}", {slot.kind.upper()}, {c_dtype(slot.dtype)}, {len(slot.shape)}, '
        f"{{{shape}}}, {{{strides}}}, {slot.offset}, {slot.gradient_offset}}}"
    )


def tensors_head(slots: Iterable[Slot], base: str = "") -> str:
    """Return the JSON head of a safetensors file, padded so that the data start on a multiple of 8.

    ``base`` is the digest of the frozen weights if the file holds adapters.
    """
    head: dict[str, object] = {"__metadata__": {BASE: base}} if base else {}
    at = 0
    for slot in slots:
        end = at + prod(slot.shape) * DTYPES[slot.dtype].itemsize
        head[state_name(slot)] = {"dtype": c_dtype(slot.dtype), "shape": list(slot.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(head, separators=(",", ":"))
    return text.ljust((len(text) + 7) // 8 * 8)


def base_of(module: ExtensionModule) -> str:
    """Return the digest of the frozen weights of a module that trains adapters, or "" for other modules."""
    return str(module.info.get(BASE, ""))


def scalar_offsets(module: ExtensionModule) -> list[int]:
    """Return the offset in the flat parameters of each scalar parameter of the source model, in the model's order."""
    offsets = module.info.get("scalars", ())
    assert isinstance(offsets, tuple | list)
    if not offsets:
        return []
    region = flat_region(module)
    size = DTYPES[of_kind(module, "parameter")[0].dtype].itemsize
    assert region["dtype"] != "U8", "bug in mlaot: a scalar model has parameters of several types"
    return [(int(offset) - int(region["parameters_at"])) // size for offset in offsets]


def scalar_runs(module: ExtensionModule) -> list[tuple[int, int, int]]:
    """Group the offsets of scalars into runs: the first scalar of a run, its offset, and the step between offsets."""
    runs: list[tuple[int, int, int]] = []
    length = 0
    for i, element in enumerate(scalar_offsets(module)):
        if length == 1:
            first, start, _ = runs[-1]
            runs[-1] = first, start, element - start
            length = 2
        elif length and element == runs[-1][1] + runs[-1][2] * length:
            length += 1
        else:
            runs.append((i, element, 0))
            length = 1
    return runs
