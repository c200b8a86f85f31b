"""The extension module of a program: all files of a compiled model except its kernels.

``render_interface`` returns the module's C, its header, the stable-ABI header, the typed stub and the weights. The
templates walk tables, which this file prepares.
"""

from __future__ import annotations

import keyword
from collections import Counter
from dataclasses import dataclass, replace

from mlaot.binding.c_library import render_library
from mlaot.binding.fit import make_fit
from mlaot.binding.literals import c_text
from mlaot.binding.methods import is_scalar, methods, model_doc, module_doc, render_stub
from mlaot.binding.state import KINDS, byte_extent, has_gradients, of_kind, scalar_offsets, state_name
from mlaot.binding.tables import kernel_names, session, tables
from mlaot.binding.weights import DIGEST_BYTES, placed_weights, rows_of
from mlaot.errors import MlaotError
from mlaot.ir.module import PHASES
from mlaot.lower.program import Entry, ExtensionModule
from mlaot.render import render, template_text, with_runtime
from mlaot.schedule.machine import MACHINES
from mlaot.settings import WEIGHTS

# What a module has besides its entries, and the names that its stub uses.
RESERVED = (
    *("backward", "set_input", "zero_grad", "data", "grad", "save", "load", "info", "selftest", "Model", "Array"),
    *("InferenceSession", "run", "get_inputs", "get_outputs", "get_providers"),
    *("generate", "generate_all", "rewind", "encode", "decode"),
    *("fit", "profile", "set_threads", "parameters", "gradients", "flat_parameters", "flat_gradients", "buffers"),
    *(
        "Any",
        "Buffer",
        "Callable",
        "EllipsisType",
        "Iterator",
        "Mapping",
        "MappingProxyType",
        "PathLike",
        "Protocol",
        "Sequence",
        "SupportsIndex",
        "TypeAlias",
        "TypeVar",
    ),
    *(
        "bool",
        "bytes",
        "dict",
        "final",
        "float",
        "int",
        "memoryview",
        "object",
        "overload",
        "property",
        "slice",
        "str",
        "tuple",
    ),
)


@dataclass(frozen=True)
class Attribute:
    """An attribute of the module and of ``Model``, with its type in the stub and its docstring."""

    name: str
    type: str
    doc: str


PARAMETERS = (
    Attribute(
        "parameters",
        "MappingProxyType[str, Array]",
        "Name -> Array that looks into this model's parameters.",
    ),
)
TRAINED = (
    Attribute(
        "gradients",
        "MappingProxyType[str, Array]",
        "Name -> Array that looks into this model's gradients.",
    ),
    Attribute(
        "flat_parameters",
        "Array",
        "All parameters as they lie in memory, padding included.",
    ),
    Attribute(
        "flat_gradients",
        "Array",
        "All gradients as they lie in memory, padding included.",
    ),
)
BUFFERS = (
    Attribute(
        "buffers",
        "MappingProxyType[str, Array]",
        "Name -> Array that looks into this model's buffers: state that is not trained.",
    ),
)


def render_interface(module: ExtensionModule, *, complete: bool = True) -> dict[str, str | bytes]:
    """Return the files of a module except its kernels, by name. Its options may add the files of a C library.

    With ``complete`` the C contains the runtime. Otherwise it includes the runtime's files, which the compiler must
    find.
    """
    check(module)
    stem, fit, weights = module.stem, make_fit(module), placed_weights(module)
    prototypes = [f"{module.prefix}_{kernel}_{isa}" for isa in module.isas for kernel in kernel_names(module)]
    functions = methods(module, fit, bool(scalar_offsets(module)))
    context = {
        "module": module.name,
        "stem": stem,
        "prefix": module.prefix,
        "stateful": bool(module.slots),
        "attributes": attributes(module),
        "converts": any(port.converts for entry in module.entries for port in entry.inputs),
        "takes_strings": any(port.is_text for entry in module.entries for port in entry.inputs),
        "fit": fit,
        "profile": module.options.profile,
        "session": session(module),
        "generation": module.generation,
        "has_tokenizer": bool(rows_of(module) or (module.generation and module.generation.tokenizer)),
        "module_doc": module_doc(module),
        "model_doc": model_doc(module),
        "version": c_text(module.version),
        "weights_text": weights.text,
        "weights_bytes": weights.size,
        "weights_file": weights.file,
        "weights_digest": weights.digest,
        "digest_bytes": DIGEST_BYTES,
    }
    table = render(
        "nn_table.c.j2",
        **context,
        **tables(module, fit, weights),
        methods=functions,
        c_text=c_text,
    )
    has_library = module.options.c_library
    library = render_library(module, context | tables(alone(module), None, weights)) if has_library else {}
    dim_list = "the values of " + ", ".join(module.dims) if module.dims else "not used"
    return {
        f"{stem}.c": with_runtime(table) if complete else table,
        f"{stem}.h": render("nn.h.j2", **context, prototypes=prototypes, dim_list=dim_list, guard=f"{stem.upper()}_H"),
        "mlaot_abi3.h": template_text("mlaot_abi3.h"),
        f"{stem}.pyi": render_stub(functions, context),
        weights.file or WEIGHTS: weights.content,
        **library,
    }


def alone(module: ExtensionModule) -> ExtensionModule:
    """Return the module for its C library, which does not share a runtime."""
    return replace(module, options=replace(module.options, runtime=""))


def attributes(module: ExtensionModule) -> tuple[Attribute, ...]:
    """Return the attributes of the module and of ``Model`` that are not functions."""
    return (
        *(PARAMETERS if of_kind(module, "parameter") else ()),
        *(TRAINED if has_gradients(module) else ()),
        *(BUFFERS if of_kind(module, "buffer") else ()),
    )


# -------------------------------------------------------------------------------------------------------------- checks


def check(module: ExtensionModule) -> None:
    """Raise ``MlaotError`` for what the user can mend, and assert what lowering guarantees."""
    for entry in module.entries:
        check_entry(module, entry)
    name, count = Counter(kernel_names(module)).most_common(1)[0]
    if count > 1:
        raise MlaotError(f"{module.name}: several entries lead to a kernel called {name!r}; rename one")
    if module.slots:
        check_state(module)
    else:
        assert module.is_prepared or module.state_bytes == 0, "bug in mlaot: state without slots"
    assert any(not MACHINES[isa].needs for isa in module.isas), "bug in mlaot: a module that not every CPU can run"


def check_entry(module: ExtensionModule, entry: Entry) -> None:
    """Check the name and the ports of an entry."""
    name = entry.name
    if name in RESERVED:
        raise MlaotError(f"{module.name}: an entry cannot be called {name!r}: every module has that attribute")
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name) or name.startswith("__"):
        raise MlaotError(f"{module.name}: an entry cannot be called {name!r}: expected an identifier of ASCII letters")
    for port in entry.inputs:
        if port.name == "out":
            raise MlaotError(f"{module.name}: an input of {name} cannot be called 'out': methods have such an argument")
        if port.name in ("self", "module"):
            raise MlaotError(
                f"{module.name}: an input of {name} cannot be called {port.name!r}: methods have such an argument"
            )
        assert port.default is None or port.shape == (), f"bug in mlaot: {port.name} has a default but is no scalar"
    for port in (*entry.inputs, *entry.outputs):
        assert port.dtype != "bf16", f"bug in mlaot: {name}: {port.name} is bfloat16, which no buffer can be"
    if name in ("accumulate", PHASES):
        assert of_kind(module, "parameter"), f"bug in mlaot: the entry {name} needs parameters"
    if name in ("loss", "train_step", "accumulate"):
        assert is_scalar(entry), f"bug in mlaot: {name} does not give one number"


def check_state(module: ExtensionModule) -> None:
    """Check the layout of the state: parameters, the other slots, gradients."""
    assert len(module.initial) <= module.state_bytes, "bug in mlaot: the start of the state is longer than the state"
    names = Counter(state_name(slot) for slot in module.slots)
    assert max(names.values()) == 1, f"bug in mlaot: several slots are called {names.most_common(1)[0][0]}"
    end = max((slot.offset + byte_extent(slot) for slot in of_kind(module, "parameter")), default=0)
    for slot in module.slots:
        is_parameter = slot.kind == "parameter"
        assert slot.kind in KINDS, f"bug in mlaot: {slot.name} is of an unknown kind {slot.kind!r}"
        assert is_parameter or slot.gradient_offset < 0, f"bug in mlaot: {slot.name}: only parameters have gradients"
        inside = slot.offset + byte_extent(slot) <= len(module.initial)
        assert inside or slot.offset >= len(module.initial), f"bug in mlaot: {slot.name} has half a start"
        assert is_parameter or slot.offset >= end, f"bug in mlaot: {slot.name} does not lie after the parameters"
