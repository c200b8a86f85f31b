"""The table of a module: the rows of C that differ from module to module."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod

from mlaot.binding.extents import Extents, longest_row, shown
from mlaot.binding.fit import Fit
from mlaot.binding.literals import c_dtype, c_lines, c_text, c_type
from mlaot.binding.methods import HIDDEN, gives_numbers, is_scalar, model_doc, module_doc, port_text, type_text
from mlaot.binding.shared import fits_limits, shared_defines
from mlaot.binding.state import (
    base_of,
    flat_region,
    has_gradients,
    in_file,
    needed,
    of_kind,
    saved,
    scalar_offsets,
    scalar_runs,
    slot_row,
    tensors_head,
)
from mlaot.binding.weights import Packed, Weights, alone, in_order, rows_of, steps_of, vectorizers_of, weights_parts
from mlaot.ir.dims import parse
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP, PHASES, PREPARE, READ_TEXTS, SEEN, TEXTS
from mlaot.ir.ports import SUMS
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import c_expression, dim_name
from mlaot.lower.program import Cost, Entry, ExtensionModule, Port
from mlaot.schedule.machine import MACHINES, Condition, condition
from mlaot.tokenizers.text_packing import KINDS
from mlaot.tokenizers.text_steps import TextStep

# What ONNX calls arrays of a dtype.
ONNX_NAMES = {
    **{"f16": "float16", "f32": "float", "f64": "double", "bool": "bool"},
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}


# Entries that also serve what set_input() keeps, and how the C calls that.
LONGEST_DOC = 2000  # characters of what a kernel computes, in a profile
HELD = {"forward": "FORWARD_HELD", "loss": "LOSS_HELD"}


def session(module: ExtensionModule) -> dict[str, object]:
    """Return the names, types and shapes that a session reports.

    Nothing for models that do not come from an ONNX file.
    """
    names = module.info.get("file_names")
    if not isinstance(names, dict):
        return {}
    (entry,) = (entry for entry in module.entries if entry.name == "forward")

    return {
        "ports": [{"name": c_text(names[port.name])} for port in (*entry.asked, *entry.results)],
        "inputs": "\n    ".join(c_lines(onnx_ports(entry.asked, names))),
        "outputs": "\n    ".join(c_lines(onnx_ports(entry.results, names))),
    }


def onnx_ports(ports: Iterable[Port], names: Mapping[str, str]) -> str:
    """Format the inputs or the outputs of an ONNX file as JSON: their ``names`` in the file, shapes and types."""
    rows = []
    for port in ports:
        shape = [] if port.map else list(port.seen)
        rows.append({"name": names[port.name], "shape": shape, "type": onnx_type(port)})
    return json.dumps(rows)


def onnx_type(port: Port) -> str:
    """Return the ONNX type of a port as callers see it."""
    if port.map:
        return f"map({onnx_name(port)},tensor({ONNX_NAMES[port.map]}))"
    return f"tensor({onnx_name(port)})"


def onnx_name(port: Port) -> str:
    """Return the ONNX name of a port's element type as callers see it."""
    return "string" if port.is_text else ONNX_NAMES[port.dtype]


def tables(module: ExtensionModule, fit: Fit | None, weights: Weights) -> dict[str, object]:
    """Return the tables of the C file, row by row as C initialisers."""
    served = module if fit is None else fit.added_to(module)
    extents = Extents(served)
    needs = {isa: m.condition(words=module.words) for isa, m in MACHINES.items() if isa in module.isas}
    own = features(module, fit, served, weights) | sizes(module, fit, extents, needs.values())
    runtime, base = module.options.runtime if fits_limits(own) else "", base_of(module)
    return {
        "runtime": runtime,
        "dims": list(map(dim_name, extents.dims)),
        "expressions": list(enumerate(map(c_expression, extents.all)))[len(extents.dims) :],
        "extent_names": [f'"{shown(extent)}"' for extent in extents.all],
        "degrees": ", ".join(map(str, extents.degrees)),
        "unused": " ".join(f"(void){dim_name(name)};" for name in extents.dims),
        "index_dtypes": list(map(index_dtype_row, index_dtypes(served))),
        "entries": [entry_row(module, extents, entry) for entry in served.entries],
        "entry_names": ", ".join(f"ENTRY_{entry.name}" for entry in served.entries),
        "strings": list(map(strings_rows, strings_of(served))),
        "isas": [
            {
                "name": isa,
                "needs": needs[isa],
                "condition": condition(isa, module.isas),
                "kernels": [f"{module.prefix}_{kernel}_{isa}" for kernel in kernel_names(module)],
            }
            for isa in needs
        ],
        "info": c_lines(json.dumps(describe(module))),
        "golden": golden_rows(module, extents.dims),
        "slots": [slot_row(slot) for slot in saved(module)],
        "tensors": c_lines(tensors_head(saved(module), base)) if module.slots else (),
        "file_tensors": () if in_file(module) == saved(module) else c_lines(tensors_head(in_file(module), base)),
        "profiled": [profile_row(cost) for cost in module.costs],
        "profile_dims": module.c_dims,
        "profile_unused": " ".join(["(void)_values;", *(f"(void){name};" for name in module.c_dims)]),
        "fit_table": fit_table(fit, extents),
        "text_table": text_table(module, extents.dims),
        "table": table(module, extents, weights, served, has_fit=fit is not None),
        "defines": {
            "MODULE_NAME": f'"{module.name}"',
            **symbols(module),
            "MODULE_DOC": f'"{module_doc(module)}"',
            "IS_STATEFUL": int(bool(module.slots)),
            "IS_SESSION": int(bool(session(module))),
            "IS_TEXT": int(module.generation is not None),
            **(shared_defines(runtime) if runtime else {"IS_SHARED": 0, **own}),
        },
    }


def table(
    module: ExtensionModule, extents: Extents, weights: Weights, served: ExtensionModule, *, has_fit: bool
) -> dict[str, object]:
    """Return the fields of the ``Table`` of templates/runtime/types.h. A field that is left out is 0."""
    numbers = {entry.name: number for number, entry in enumerate(served.entries)}
    known = ("forward", PHASES, "train_step", "fit", FIT_BEGIN, FIT_STEP, FIT_END)
    return {
        "name": "MODULE_NAME",
        "array_name": 'MODULE_NAME ".Array"',
        "model_name": 'MODULE_NAME ".Model"',
        "model_doc": f'"Model()\\n--\\n\\n{model_doc(module)}"',
        "info": "INFO",
        **({"version": f'"{c_text(module.version)}"'} if module.version else {}),
        "dims": len(extents.dims),
        "batch": extents.number("batch"),
        "extent_names": "EXTENT_NAMES",
        "degrees": "DEGREES",
        "extent_value": "extent_value",
        "entries": "ENTRIES",
        **{name: numbers.get(name, -1) for name in known},
        "isas": "ISAS",
        "isa_count": "sizeof ISAS / sizeof *ISAS",
        "threads": module.options.threads,
        **({"session": "&SESSION"} if session(module) else {}),
        **({"fit_table": "&FIT_TABLE"} if has_fit else {}),
        **({"text": "&TEXT"} if module.generation is not None else {}),
        **state_fields(module),
        "golden": "GOLDEN",
        "golden_calls": len(module.golden),
        "sums": SUMS,
        "draws": "DRAWS",
        "contents": "CONTENTS",
        "answers": "ANSWERS",
        **weights_fields(weights),
        "prepare": numbers.get(PREPARE, -1),
        **({"prepared_bytes": module.state_bytes} if module.is_prepared else {}),
    }


def weights_fields(weights: Weights) -> dict[str, object]:
    """Return the fields that locate the weights."""
    if not weights.file:
        return {"weights": "(const char *)WEIGHTS"}
    return {
        "weights_file": f'"{weights.file}"',
        "weights_digest": f'"{weights.digest}"',
        "weights_bytes": weights.size,
    }


def symbols(module: ExtensionModule) -> dict[str, object]:
    """Return the global symbols of a module, hidden ones included."""
    return {
        "MODULE_INIT": f"PyInit_{module.stem}",
        "MODULE_EXPORT": f"PyModExport_{module.stem}",
        "SHARE": f"{module.prefix}_share",
        "SHARE_APART": f"{module.prefix}_share_apart",
        **({"MARK": f"{module.prefix}_mark"} if module.options.profile else {}),
    }


def features(module: ExtensionModule, fit: Fit | None, served: ExtensionModule, weights: Weights) -> dict[str, int]:
    """Return the features of a module. The C of other features is left out."""
    entries = module.entries
    present = {
        "HAS_STATE": bool(module.slots),
        "HAS_GRADIENTS": has_gradients(module),
        "HAS_SCALARS": bool(scalar_offsets(module)),
        "HAS_PHASES": module.phases is not None,
        "HAS_NAMED": any(entry.named for entry in entries),
        "HAS_REFUSALS": any(entry.refusals for entry in entries),
        "HAS_COUNTS": any(entry.counts for entry in entries),
        "HAS_INDICES": bool(index_dtypes(served)),
        "HAS_STRINGS": bool(strings_of(module) or vectorizers_of(module) or rows_of(module) or steps_of(module)),
        "HAS_ROWS": bool(vectorizers_of(module) or rows_of(module)),
        "HAS_VECTORIZER": bool(vectorizers_of(module)),
        "HAS_TOKENS": bool(rows_of(module)),
        "HAS_STEPS": bool(steps_of(module)),
        "HAS_DATES": any(port.dates for entry in entries for port in entry.inputs),
        "HAS_SESSION": bool(session(module)),
        "HAS_FIT": fit is not None,
        "HAS_PROFILE": module.options.profile,
        "HAS_WEIGHTS_FILE": weights.file != "",
        "HAS_PREPARED": module.is_prepared,
        "HAS_TEXT": module.generation is not None,
        "HAS_TEXTS": bool(module.texts),
        "HAS_TOKENIZER": module.generation is not None and module.generation.tokenizer != b"",
    }
    return {name: int(value) for name, value in present.items()}


def sizes(
    module: ExtensionModule, fit: Fit | None, extents: Extents, conditions: Iterable[Condition]
) -> dict[str, int]:
    """Return the sizes of the tables, and of the arrays of a call."""
    ports = [port for entry in module.entries for port in (*entry.inputs, *entry.outputs)]
    ranks = [len(port.shape) for port in ports] + [len(slot.shape) for slot in module.slots]
    # At least 2, since gcc warns of arrays of one element that a loop walks.
    return {
        "DIMS": len(extents.dims),
        "MAX_RANK": max([2, *ranks]),
        "MAX_INPUTS": max([2, *(len(entry.inputs) for entry in module.entries)]),
        "MAX_OUTPUTS": max([2, *(len(entry.outputs) for entry in module.entries)]),
        "MAX_COUNTS": max(len(entry.counts) for entry in module.entries),
        "MAX_LATE": len(fit.ahead) if fit is not None and not fit.refusal else 0,
        "CPUID_COUNT": max([1, *(len(condition.bits) for condition in conditions)]),
    }


def state_fields(module: ExtensionModule) -> dict[str, object]:
    """Return the byte offsets of the parts of the state and of the weights."""
    if not module.slots:
        return {}
    _, initial_at, scalars_at, *_ = weights_parts(module)
    file_tensors = "TENSORS" if in_file(module) == saved(module) else "FILE_TENSORS"
    fields: dict[str, object] = {
        "slots": "SLOTS",
        "slot_count": len(module.slots),
        "tensors": "TENSORS",
        "tensors_bytes": "sizeof TENSORS - 1",
        "needed_slots": needed(module),
        "file_slots": len(in_file(module)),
        "file_tensors": file_tensors,
        "file_tensors_bytes": f"sizeof {file_tensors} - 1",
        "state_bytes": module.state_bytes,
        "initial_at": initial_at,
        "initial_bytes": len(module.initial),
        **({"base": f'"{base_of(module)}"'} if base_of(module) else {}),
        "is_split": str(module.phases is not None and module.phases.split).lower(),
    }
    if has_gradients(module):
        flat = flat_region(module)
        fields |= {
            "flat_dtype": flat["dtype"],
            "flat_count": flat["count"],
            "parameters_at": flat["parameters_at"],
            "gradients_at": flat["gradients_at"],
        }
    if scalars := scalar_offsets(module):
        fields |= {"scalars": len(scalars), "scalar_runs": len(scalar_runs(module)), "scalars_at": scalars_at}
    return fields


def profile_row(cost: Cost) -> dict[str, object]:
    """A kernel that a profile times: the fields of the ``Profiled`` of the template, and its costs in C."""
    computes = "\n".join(cost.doc)
    computes = computes if len(computes) <= LONGEST_DOC else f"{computes[:LONGEST_DOC]}..."
    texts = (cost.title, cost.origin, cost.line, computes)
    strings = ", ".join(f'"{c_text(text)}"' for text in texts)
    return {"row": f"{{ENTRY_{cost.entry}, {strings}}}", "operations": cost.operations, "bytes": cost.bytes}


def fit_table(fit: Fit | None, extents: Extents) -> dict[str, object]:
    """Return the fields of the ``FitTable`` of templates/runtime/types.h."""
    if fit is None:
        return {}
    if fit.refusal:
        return {"refusal": f'"{c_text(fit.refusal)}"'}
    fields: dict[str, object] = {
        "batch": fit.batch,
        "rows": extents.number(fit.rows),
        "examples": extents.number(fit.examples),
    }
    if fit.block:
        fields |= {
            "block": fit.block,
            "block_inputs": len(fit.block_inputs),
            "step_inputs": len(fit.step_inputs),
            "late_weights": len(fit.ahead),
            "block_input": c_array("int", fit.block_inputs),
            "step_input": c_array("int", fit.step_inputs),
            "ahead_bytes": c_array("ptrdiff_t", fit.ahead),
            "like_bytes": c_array("ptrdiff_t", fit.like),
        }
    return fields


def text_table(module: ExtensionModule, dims: Sequence[str]) -> dict[str, object]:
    """Return the fields of the ``Text`` of templates/runtime/types.h."""
    generation = module.generation
    if generation is None:
        return {}
    at = {slot.name: slot.offset for slot in module.slots}
    *_, tokenizer_at, _ = weights_parts(module)
    return {
        "type_name": 'MODULE_NAME ".Generation"',
        "entry": f"ENTRY_{generation.entry}",
        "update": "ENTRY_update" if any(entry.name == "update" for entry in module.entries) else -1,
        "context": generation.context,
        "seen": dims.index(SEEN) if SEEN in dims else -1,
        "tokens": generation.tokens,
        "slides": str(generation.slides).lower(),
        "rereads": str(generation.rereads).lower(),
        **{"place_at": at["place"], "length_at": at["length"], "tokens_at": at["text"]},
        "tokenizer_at": tokenizer_at if generation.tokenizer else -1,
        **({"ends": c_array("int", generation.ends), "end_count": len(generation.ends)} if generation.ends else {}),
        **(rows_table(module, dims, at) if module.texts else {}),
    }


def rows_table(module: ExtensionModule, dims: Sequence[str], at: Mapping[str, int]) -> dict[str, object]:
    """Return the fields of ``Text`` for several texts. ``at`` holds the offsets of the slots of one text."""
    sizes = {slot.name: slot.strides[0] * DTYPES[slot.dtype].itemsize for slot in module.texts}
    parts = [f"{{{at[slot.name]}, {slot.offset}, {sizes[slot.name]}}}" for slot in module.texts]
    return {
        "all_type_name": 'MODULE_NAME ".Generations"',
        "texts": module.texts[0].shape[0],
        "texts_entry": f"ENTRY_{READ_TEXTS}",
        "texts_dim": dims.index(str(TEXTS)),
        "parts": c_array("RowPart", parts),
        "part_count": len(parts),
        "rows_bytes": module.memory_bytes - module.state_bytes,
    }


def c_array(ctype: str, values: Iterable[int | str]) -> str:
    """Format numbers as a C array without a name."""
    return f"(const {ctype}[]){{{', '.join(map(str, values))}}}"


def index_dtypes(module: ExtensionModule) -> list[str]:
    """Return the dtypes of the indices that callers pass."""
    return sorted({port.dtype for entry in module.entries for port in entry.inputs if port.ranges})


def index_dtype_row(dtype: str) -> str:
    """Return the row of a dtype of indices: its C type, and the comparison of its elements."""
    kind = "HALF" if dtype == "f16" else "FLOAT" if dtype[0] == "f" else "INTEGER"
    return f"{c_dtype(dtype)}, {c_type(dtype)}, {kind}"


def golden_rows(module: ExtensionModule, dims: tuple[str, ...]) -> list[dict[str, object]]:
    """Return the rows of the golden calls, and the answers as lines of C.

    A row has the values of the dims, how the inputs are drawn, and where the answers begin.
    """
    rows, at, drawn, content = [], 0, 0, 0
    for call in module.golden:
        values = dict(zip(module.dims, call.dims, strict=True))
        lines = [line for output in call.outputs for line in textwrap.wrap(", ".join(map(repr, output)) + ",", 116)]
        draws, contents = [], b""
        for draw in call.draws:
            at_bytes = content + len(contents) if draw.content else -1
            draws.append(f"{{{draw.low!r}, {draw.width!r}, {draw.seed}, {at_bytes}}}")
            contents += draw.content
        rows.append(
            {
                **{"entry": call.entry, "dims": [values.get(name, 1) for name in dims], "at": at, "lines": lines},
                **{"draw": drawn, "draws": draws},
                "contents": textwrap.wrap(", ".join(map(str, contents)) + ",", 116) if contents else [],
            }
        )
        at += sum(map(len, call.outputs))
        drawn += len(draws)
        content += len(contents)
    return rows


def kernel_names(module: ExtensionModule) -> list[str]:
    """Return the kernels of one instruction set, in the order of the function table."""
    names = []
    for entry in module.entries:
        names += [f"{entry.name}_forward", f"{entry.name}_backward"] if entry.split else [entry.name]
    return names


def entry_row(module: ExtensionModule, extents: Extents, entry: Entry) -> dict[str, object]:
    """Describe an entry for the template. C has no empty arrays, so an empty table holds a zero."""
    solves = [f"{{{s.input}, {s.axis}, {s.extent}, {s.dim}}}" for s in extents.solves(entry)]
    bounds = [f"{{{bound.extent}, {bound.least}}}" for bound in extents.bounds(entry)]
    blocks_at = weights_parts(module)[-1]
    kernel = {"fit": "train_step"}.get(entry.name, f"{entry.name}_forward" if entry.split else entry.name)
    return {
        "name": entry.name,
        "ports": port_rows(extents, entry, strings_of(module), blocks_at) or ["{0}"],
        "ranges": [range_row(extents, range_) for port in entry.inputs for range_ in port.ranges],
        "inputs": len(entry.inputs),
        "steps": step_rows(entry, blocks_at),
        **step_fields(module, entry),
        "outputs": len(entry.results),
        "refusals": [c_text(text) for text in entry.refusals],
        **counts_rows(extents, entry),
        "solves": ", ".join(solves) or "{0}",
        "solve_count": len(solves),
        "bounds": ", ".join(bounds) or "{0}",
        "bound_count": len(bounds),
        "tile": entry.tile,
        "rows": extents.number(entry.rows or "batch"),
        "scalar": "true" if is_scalar(entry) else "false",
        "numbers": "true" if gives_numbers(entry) else "false",
        "named": entry.named,
        "held": HELD.get(entry.name) if module.phases is not None else None,
        "kernel": kernel_names(module).index(kernel),
        "workspace": c_expression(entry.workspace),
        "work": c_expression(entry.work),
    }


def counts_rows(extents: Extents, entry: Entry) -> dict[str, object]:
    """Return the rows of the dims that an entry counts, and their bounds.

    A row has the number of bounds that are checked before the dim is counted.
    """
    counts: list[str] = []
    bounds: list[str] = []
    for count in entry.counts:
        bounds += [f"{{{extents.all.index(parse(need))}, 0}}" for need in count.needs]
        counts.append(f"{{{extents.dims.index(count.dim)}, {extents.number(count.most)}, {len(bounds)}}}")
    return {"counts": ", ".join(counts), "count_bounds": ", ".join(bounds) or "{0}", "count_count": len(counts)}


def port_rows(
    extents: Extents, entry: Entry, strings: Sequence[tuple[str, ...]], blocks_at: Mapping[Packed, int]
) -> list[str]:
    """Return the rows of an entry's ports, inputs first.

    ``strings`` holds all tables of strings, and ``blocks_at`` the offsets of the packed tables of texts.
    """
    rows, at, steps = [], 0, step_places(entry)
    for port in (*entry.inputs, *entry.results):
        ranges = f", .ranges = ranges_of_{entry.name} + {at}, .range_count = {len(port.ranges)}" if port.ranges else ""
        rows.append(
            port_row(extents, port, texts_row(entry, port, blocks_at) + steps.get(port.name, "") + ranges, strings)
        )
        at += len(port.ranges)
    return rows


def texts_row(entry: Entry, port: Port, blocks_at: Mapping[Packed, int]) -> str:
    """Return the fields of a port of texts."""
    if not port.takes_texts:
        return ""
    size, most = sum(vectorizer.size for vectorizer in port.vectorizers), 0
    if port.rows:
        size, most = len(port.rows.tokenizer.tokens), longest_row(entry, port)
    at = blocks_at[port.rows or port.vectorizers]
    return f", .has_texts = true, .texts_at = {at}, .texts_size = {size}, .texts_most = {most}"


def steps_in(entry: Entry) -> tuple[list[TextStep], list[tuple[Port, list[TextStep]]]]:
    """Return the steps that make inputs, and for each output the steps that make it.

    Each step is listed once, after the steps whose results it takes.
    """
    before = dict.fromkeys(step for port in entry.inputs if port.made for step in in_order(port.made))
    return list(before), [(port, in_order(port.then)) for port in entry.results if port.then]


def step_places(entry: Entry) -> dict[str, str]:
    """Return the fields of ports that name the steps that make them."""
    before, behind = steps_in(entry)
    rows = {port.name: f", .step_end = {before.index(port.made) + 1}" for port in entry.inputs if port.made}
    count = len(before)
    for port, steps in behind:
        assert port.then is not None, "bug in mlaot: an output that is not made"
        end = count + len(steps)
        rows[port.name] = f", .step_begin = {count}, .step_end = {end}, .columns = {port.then.columns}"
        count = end
    return rows


def step_rows(entry: Entry, blocks_at: Mapping[Packed, int]) -> list[str]:
    """Format the steps of an entry as C initialisers."""
    before, behind = steps_in(entry)
    ports = [port.name for port in entry.inputs]
    results = [port.name for port in entry.results]
    rows = list[str]()
    for port, steps in ((None, before), *behind):
        begin = len(rows)
        for step in steps:
            places = [-1 - begin - steps.index(of) if isinstance(of, TextStep) else of for of in step.of]
            columns = [str(ports.index(place) if isinstance(place, str) else place) for place in places]
            names = [ports.index(of) for one in in_order(step) for of in one.of if isinstance(of, str)]
            named = (*names, 0)[0] if port is None else len(ports) + results.index(port.name)
            taken = ", ".join([*columns, "NO_COLUMN", "NO_COLUMN"][:2])
            dtype = c_dtype(step.dtype) if step.dtype else "I64"
            rows.append(f"{{{KINDS.index(step.kind)}, {dtype}, {{{taken}}}, {named}, {blocks_at[alone(step)]}}}")
    return rows


def step_fields(module: ExtensionModule, entry: Entry) -> dict[str, object]:
    """Return the fields of an entry that describe its steps."""
    before, _ = steps_in(entry)
    known = next((port.strings for port in entry.inputs if port.strings), ())
    at = f"&STRINGS_{strings_of(module).index(known)}" if known else "NULL"
    return {"has_steps": bool(steps_of(module)), "asked": len(entry.asked), "before": len(before), "known": at}


def strings_of(module: ExtensionModule) -> list[tuple[str, ...]]:
    """Return the string tables of the ports."""
    ports = [port for entry in module.entries for port in (*entry.inputs, *entry.outputs)]
    return list(dict.fromkeys(port.strings for port in ports if port.strings))


def strings_rows(strings: tuple[str, ...]) -> dict[str, object]:
    """Describe a table of strings for the template: the concatenated bytes, the start of each, and the sorted order."""
    encoded = [text.encode(errors="surrogatepass") for text in strings]
    return {
        "text": c_lines("".join(strings)) or ['""'],
        "at": lines_of_numbers(accumulate(map(len, encoded), initial=0)),
        "order": lines_of_numbers(sorted(range(len(encoded)), key=encoded.__getitem__)),
        "count": len(encoded),
    }


def lines_of_numbers(numbers: Iterable[int]) -> list[str]:
    """Format numbers for a C initialiser, twelve on each line."""
    words = [f"{number}," for number in numbers]
    return [" ".join(words[i : i + 12]) for i in range(0, len(words), 12)]


def port_row(extents: Extents, port: Port, ranges: str, strings: Sequence[tuple[str, ...]]) -> str:
    """Format a port as a C initialiser, which ends with the start and end of its ``ranges``.

    ``strings`` holds all tables of strings.
    """
    shape = ", ".join(str(extents.number(extent)) for extent in port.shape or [0])
    default = "" if port.default is None else f", .has_default = true, .default_value = {float(port.default)!r}"
    converts = ", .converts = true" if port.converts else ""
    kind = f".dtype = {c_dtype(port.dtype)}, .rank = {len(port.shape)}, .shape = {{{shape}}}"
    table = f", .strings = &STRINGS_{strings.index(port.strings)}" if port.strings else ""
    table += ", .further = true" if port.further else ""
    table += ", .is_map = true" if port.map else ""
    table += f', .dates = "{port.dates}", .tick = {port.tick}' if port.dates else ""
    room = f", .counted = true, .room = {extents.number(port.room)}" if port.room else ""
    return f'{{.name = "{port.name}", {kind}{default}{converts}{table}{room}{ranges}}}'


def range_row(extents: Extents, range_: IndexRange) -> str:
    """Format a range of indices as a C initialiser."""
    spans = [(0, 0, 0) if s is None else (*[extents.number(str(n)) for n in s[:2]], s[2]) for s in range_.box]
    box = ", ".join(f"{{{', '.join(map(str, span))}}}" for span in spans) or "{0}"
    wraps, ignores = str(range_.wraps).lower(), str(range_.ignored is not None).lower()
    return f"{{{extents.number(str(range_.size))}, {wraps}, {ignores}, {range_.ignored or 0}, {{{box}}}}}"


def describe(module: ExtensionModule) -> dict[str, object]:
    """Return the content of ``info()``, except the instruction sets."""
    info = {key: value for key, value in module.info.items() if key not in ("scalars", "file_names")}
    info["name"] = module.name
    info["dims"] = list(module.dims)
    info["entries"] = {
        entry.name: {
            "inputs": {port.name: port_text(port) for port in entry.asked},
            "outputs": {port.name: port_text(port) for port in entry.results},
        }
        for entry in module.entries
        if entry.name not in HIDDEN
    }
    for key, kind in (("parameters", "parameter"), ("buffers", "buffer"), ("optimizer_state", "optimizer")):
        info[key] = {slot.name: type_text(slot.dtype, slot.shape) for slot in of_kind(module, kind)}
    info["parameter_count"] = sum(prod(slot.shape) for slot in of_kind(module, "parameter"))
    info["bytes"] = {"constants": len(module.constants), "state": module.state_bytes}
    info["deterministic"] = module.options.deterministic
    return info
