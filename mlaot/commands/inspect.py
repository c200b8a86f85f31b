"""``mlaot inspect``: show the kernels and files that a model is compiled to, or the contents of a built module."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlaot.commands.modules import modules_of, open_wheel, read_wheel
from mlaot.commands.output import Data, add_json, report, size, table
from mlaot.commands.project import is_built, project_of
from mlaot.commands.sbom import licence_of, provenance_of, read_sbom
from mlaot.errors import MlaotError
from mlaot.probe import BuiltModule, ask
from mlaot.settings import FILE, ModelSettings, Settings
from mlaot.stages import GENERATE

if TYPE_CHECKING:
    from mlaot.lower.program import Kernel, Program

STAGES = GENERATE
HELP = "show what a model becomes, or what a wheel holds"
DESCRIPTION = f"""\
Of a project (a folder with a {FILE}, or module:attribute): the entries of
each model, its kernels, memory and generated C, without compiling anything.
Of a built wheel, an extension module's file or its name: what it holds.
"""
EXAMPLES = """\
  mlaot inspect                             the project in this folder
  mlaot inspect model:digits --graph        one function, with its graphs after the passes
  mlaot inspect model.onnx                  an ONNX file
  mlaot inspect digits-1.0-cp311-abi3-linux_x86_64.whl
  mlaot inspect digits.nn --json            an installed module, as data
"""
OP = re.compile(r" = (\w+)\(")  # in a line of a graph: v1 = add(v0, b) : f32[4]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "target",
        nargs="?",
        default=".",
        help="project folder (default: this one), module:attribute, ONNX file, wheel, extension module or its name",
    )
    parser.add_argument("--graph", action="store_true", help="with the graphs after the passes, of a project")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Report on the target."""
    target = options.target
    if not is_built(target):
        with project_of(target) as (_, settings):
            data = {"models": [describe_model(settings, model, options.graph) for model in settings.models]}
    elif options.graph:
        raise MlaotError(f"--graph needs a project or module:attribute: no graph is left in {target}")
    else:
        data = describe_built(target)
    report(data, show, options)
    return 0


def describe_model(settings: Settings, model: ModelSettings, graph: bool) -> Data:
    """Describe what a model of a project becomes."""
    from mlaot.generate import compile_for
    from mlaot.report.passes import final_graphs

    data: Data = {"model": model.declared, **compile_for(settings, model, describe_program)}
    if graph:
        data["graphs"] = {name: str(final) for name, final in final_graphs(settings, model).graphs.items()}
    return data


def describe_program(program: Program) -> Data:
    """Return the module's ``info``, and the kernels and files, which only the uncompiled program knows."""
    from mlaot.binding.extents import shown
    from mlaot.binding.tables import describe
    from mlaot.files import program_files

    entries = [procedure.entry for procedure in program.procedures]
    return {
        "module": program.module.name,
        "info": {**describe(program.module), "isas": list(program.module.isas)},
        "work": [
            {"entry": e.name, "flops": shown(e.work), "workspace": shown(e.workspace), "tile": e.tile} for e in entries
        ],
        "kernels": [
            {"entry": procedure.entry.name, **describe_kernel(kernel, program.module.dims)}
            for procedure in program.procedures
            for kernel in procedure.kernels
        ],
        "generated": {name: len(content) for name, content in program_files(program).items()},
    }


def describe_kernel(kernel: Kernel, dims: Sequence[str]) -> Data:
    """Describe a kernel: its kind, the lines of the graph that it computes, its work and its memory traffic.

    The bytes are those of all arrays that the kernel reads or writes, each counted once. Operations are counted for
    contractions only.
    """
    from mlaot.binding.extents import shown
    from mlaot.lower.costs import cost_of
    from mlaot.lower.identifiers import with_own_dims

    cost = cost_of(kernel, dims)
    flops, traffic = (with_own_dims(shown(each), dims) for each in (cost.operations, cost.bytes))
    is_counted = kernel.contraction is not None
    return {
        "kind": kernel.template,
        "computes": list(cost.doc),
        "flops": flops if is_counted else None,
        "bytes": traffic,
    }


def describe_built(target: str) -> Data:
    """Describe a wheel, or a module that can be imported."""
    about: Data = {}
    if target.endswith(".whl"):
        with open_wheel(Path(target)) as wheel:
            about = {**read_wheel(Path(target)), "sbom": read_sbom(wheel)}
    with modules_of(target) as modules:
        if not about:
            return {"modules": [{"module": module.name, "info": ask(module, "info")} for module in modules]}
        return {**about, "modules": [describe_module(module) for module in modules]}


def describe_module(module: BuiltModule) -> Data:
    """Describe a module of a wheel. Of a module for another platform only the file name is used."""
    try:
        return {"module": module.name, "info": ask(module, "info")}
    except MlaotError as error:
        return {"module": module.name, "info": None, "abi": module.abi, "error": str(error)}


def show(data: Data) -> None:
    """Print a report for people."""
    if "wheel" in data:
        show_wheel(data)
    for number, model in enumerate(data["models"] if "models" in data else data["modules"]):
        if number or "wheel" in data:
            print()
        if model["info"] is None:
            print(f"{model['module']} ({model['abi']}): {model['error']}")
        else:
            show_module(model)


def show_wheel(data: Data) -> None:
    """Print tags, metadata and files."""
    metadata = data["metadata"]
    print(f"{data['wheel']}: {metadata.get('Name')} {metadata.get('Version')}, {size(data['bytes'])}")
    print(f"  for {', '.join(data['tags'])}")
    if licence := metadata.get("License-Expression"):
        print(f"  licence {licence}")
    for part in data["sbom"].get("components", []):
        if part["type"] == "machine-learning-model" and (own := licence_of(part)) not in ("", licence):
            print(f"  {part['name']}: {own}")
    if requires := metadata.get("Requires-Dist"):
        print(f"  requires {requires}")
    if provenance := provenance_of(data["sbom"]):
        sources = [part["name"] for part in data["sbom"]["components"] if part["type"] == "file"]
        compiler = provenance.get("compiler", "an unknown compiler")
        print(f"  made by mlaot {provenance['mlaot']} and {compiler} from {', '.join(sources)}")
    if damaged := data["sbom"].get("damaged"):
        print(f"  what it was made with is unknown: {damaged}")
    table(("file", ">bytes"), [(file["path"], file["bytes"]) for file in data["files"]])


def show_module(model: Data) -> None:
    """Print a module's entries and memory, and, of a model that is not compiled yet, its kernels and files."""
    info = model["info"]
    uses = f", this machine uses {info['isa']}" if "isa" in info else ""
    print(f"{info['name']}" + (f" ({model['model']})" if "model" in model else ""))
    print(f"  instruction sets {', '.join(info['isas'])}{uses}" + ", deterministic" * info["deterministic"])
    entries = info["entries"].items()
    table(
        ("entry", "inputs", "outputs"),
        [(name, signature(entry["inputs"]), signature(entry["outputs"])) for name, entry in entries],
    )
    kinds = {"parameter": "parameters", "buffer": "buffers", "optimizer": "optimizer_state"}
    if slots := [(name, text, kind) for kind, key in kinds.items() for name, text in info[key].items()]:
        print()
        table(("state", "type", "kind"), slots)
    memory = info["bytes"]
    parameters = f"{info['parameter_count']:,} parameters, " if info["parameter_count"] else ""
    print(f"\n  {parameters}constants {size(memory['constants'])}, state {size(memory['state'])}")
    if "work" not in model:
        return
    print()
    table(
        ("entry", "operations", "bytes of workspace", ">rows at a time"),
        [(w["entry"], w["flops"], w["workspace"], w["tile"] or "all") for w in model["work"]],
    )
    print()
    table(
        ("entry", "kernel", "computes", "operations", "bytes"),
        [(k["entry"], k["kind"], ops_text(k["computes"]), k["flops"] or "", k["bytes"]) for k in model["kernels"]],
    )
    print()
    table(("generated", ">bytes"), list(model["generated"].items()))
    for text in model.get("graphs", {}).values():
        print(f"\n{text.rstrip()}")


def signature(ports: dict[str, str]) -> str:
    """Format ports: ``x: float64[batch, 2], lr: float64``."""
    return ", ".join(f"{name}: {text}" for name, text in ports.items())


def ops_text(lines: list[str]) -> str:
    """Format a kernel's ops and the type of the last: ``contract, add, relu : f64[batch,4]``."""
    if not lines:
        return ""
    ops = ", ".join(match[1] for line in lines if (match := OP.search(line)))
    return f"{ops} : {lines[-1].rpartition(' : ')[2]}" if ops else lines[-1]
