"""``mlaot report``: make a page that shows what a model becomes, and what takes how long."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlaot.commands.bench import available
from mlaot.commands.modules import modules_of, read_wheel
from mlaot.commands.output import Data, size
from mlaot.commands.project import TARGET, is_built, project_of
from mlaot.errors import MlaotError, writing
from mlaot.probe import BuiltModule
from mlaot.schedule.machine import Machine
from mlaot.settings import Settings
from mlaot.stages import GENERATE, PRINTING, TIMING, stage

STAGES = (*GENERATE[:-1], TIMING, PRINTING)
HELP = "make a page that shows a model's graph, kernels, times and memory"
DESCRIPTION = """\
Compile each model of a project for this machine, time every kernel within calls of
its functions, and write one HTML file that needs no network: the graph by layers,
what each pass rewrote, every kernel with its loop nest, C and instructions, its
share of what the machine can do, and the workspace over a call. Of a built wheel or
module: what its functions take, and its kernels if it has a profile. Nothing else
should run meanwhile.
"""
EXAMPLES = """\
  mlaot report                              report.html of the project in this folder
  mlaot report model.onnx -o model.html     an ONNX file
  mlaot report model:digits                 one function, without a pyproject.toml
  mlaot report digits-1.0-cp311-abi3-linux_x86_64.whl
                                            a built wheel
  mlaot report -o new.html --against old.html
                                            with what has changed since an earlier report
  mlaot report --trace trace.json           the kernels of each call for Perfetto or chrome://tracing
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("target", nargs="?", default=".", help=f"{TARGET}; or a wheel, a module's file or its name")
    parser.add_argument("-o", "--out", default="report.html", help="the file to write (default: report.html)")
    parser.add_argument("--against", metavar="REPORT", help="an earlier report of the same model to compare with")
    parser.add_argument("--trace", metavar="FILE", help="write the kernels of each call as a Chrome trace (JSON), too")


def run(options: argparse.Namespace) -> int:
    """Write a page for each model: ``report.html``, or ``report-nn.html`` where there are several."""
    from mlaot.page.changes import read_report

    before = read_report(Path(options.against)) if options.against else []
    if is_built(options.target):
        with modules_of(options.target, required=True) as modules:
            for module in modules:
                _write(describe_module(module, options.target), before, options, is_only=len(modules) == 1)
        return 0
    with project_of(options.target) as (_, settings):
        if not settings.models:
            raise MlaotError(f"{options.target} declares no model; expected one to report on")
        for data in _describe_models(settings):
            _write(data, before, options, is_only=len(settings.models) == 1)
    return 0


def _describe_models(settings: Settings) -> Iterator[Data]:
    """Yield what the page of each model of a project shows."""
    from mlaot.build.toolchain import find_compiler
    from mlaot.page.describe import describe
    from mlaot.tune import machines_here

    command = find_compiler()

    def machines(words: bool) -> list[Machine]:
        return machines_here(settings.isas, command, words=words)

    for model in settings.models:
        yield describe(settings, model, machines, command)


def describe_module(module: BuiltModule, target: str) -> Data:
    """Return what the page of a built module shows, of a wheel with the sizes of its files."""
    from mlaot.page.built import describe_built

    files = read_wheel(Path(target))["files"] if target.endswith(".whl") else []
    isas = [*available(module)]
    with stage(TIMING):
        return describe_built(module, isas, Path(target).name, {file["path"]: file["bytes"] for file in files})


def _write(data: Data, before: Sequence[Data], options: argparse.Namespace, *, is_only: bool) -> None:
    """Write the page of a model, and its trace if one is asked for."""
    files = {Path(options.out): page(data, before)}
    if options.trace:
        files[Path(options.trace)] = json.dumps(chrome_trace(data))
    for file, text in files.items():
        path = file if is_only else file.with_stem(f"{file.stem}-{data['module'].rpartition('.')[2]}")
        with writing(path):
            path.write_text(text, encoding="utf-8")
        print(f"{path}  {size(path.stat().st_size)}", flush=True)


def chrome_trace(data: Data) -> Data:
    """Return the kernels of each entry in the order of a call, as the Trace Event Format of Chrome has them (in us)."""
    isa = data["machines"][-1]["isa"] if data["machines"] else ""
    events = []
    for number, entry in enumerate(data["entries"]):
        common = {"ph": "X", "pid": 1, "tid": number}
        at = 0.0
        for kernel in entry["kernels"] if isa in entry["seconds"] else ():
            duration = 1e6 * kernel["seconds"][isa]
            told = ("line", "rounds", "operations", "bytes")
            details = {"computes": "\n".join(kernel["computes"]), **{key: kernel[key] for key in told}}
            what = {"name": kernel["title"], "cat": kernel["origin"], "args": details}
            events.append({**common, **what, "ts": at, "dur": duration})
            at += duration
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": entry["name"]}})
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"module": data["module"], "isa": isa}}


def page(data: Data, before: Sequence[Data] = ()) -> str:
    """Return the page of what ``describe`` tells, compared with the entries of an earlier one."""
    from mlaot.page.changes import list_changes
    from mlaot.page.pictures import memory, roofline, short
    from mlaot.render import render, template_text

    data = {**data, "mlaot": importlib.metadata.version("mlaot"), "cpu": platform.processor() or platform.machine()}
    best = data["machines"][-1] if data["machines"] else {"isa": ""}
    golden = {vector["entry"]: vector["outputs"] for vector in data["golden"]}
    entries = [_entry(entry, best, golden.get(entry["name"], [])) for entry in data["entries"]]
    _link_equal(entries)
    shown = {**data, "entries": [{**e, "roofline": roofline(e, best), "picture": memory(e)} for e in entries]}
    slim = [{**{k: e[k] for k in ("name", "seconds")}, "kernels": [*map(_slim, e["kernels"])]} for e in entries]
    lines: dict[str, int] = {}
    steps = [{**step, "graphs": _numbered(step["graphs"], lines)} for step in data["passes"]]
    content = json.dumps({"entries": slim, "passes": steps, "lines": [*lines]}, separators=(",", ":"))
    return render(
        "report.html.j2",
        title=f"{data['module']}: report",
        data=shown,
        best=best["isa"],
        changes=list_changes(before, slim) if before else [],
        time=time_text,
        short=short,
        json=content.replace("</", "<\\/").replace("<!--", "<\\u0021--"),
        dagre=template_text("report/dagre.min.js"),
        script=template_text("report/report.js"),
    )


def _entry(entry: Data, best: Data, outputs: list[Data]) -> Data:
    """Add to an entry what its table shows: shares of the call and of the machine's limit, by the best machine."""
    isa = best["isa"]
    together = sum(kernel["seconds"].get(isa, 0.0) for kernel in entry["kernels"])
    kernels = []
    for kernel in entry["kernels"]:
        seconds = kernel["seconds"].get(isa, 0.0)
        limit = 0.0
        if kernel["width"] and seconds:
            rate = best["operations"] * 4 / kernel["width"]  # which is measured in float32
            least = max(kernel["operations"] / rate, kernel["bytes"] / best["near"])
            limit = 100 * least * kernel["rounds"] / seconds
        share = 100 * seconds / together if together else 0.0
        kernels.append({**kernel, "share": share, "limit": limit})
    bound = max((output["bound"] / (output["largest"] or 1) for output in outputs), default=None)
    text = "" if bound is None else f"{bound:.1e} of the largest element"
    return {**entry, "kernels": kernels, "together": together, "golden": text}


def _numbered(graphs: Data, numbers: dict[str, int]) -> Data:
    """Return graphs with the numbers of their lines, most of which are those of other graphs, too."""
    return {name: [numbers.setdefault(line, len(numbers)) for line in graph["lines"]] for name, graph in graphs.items()}


def _link_equal(entries: list[Data]) -> None:
    """Replace the C of a function that is shown already by the place where it is: ``forward-3``."""
    places: dict[str, str] = {}
    for entry in entries:
        for number, kernel in enumerate(entry["kernels"]):
            own = f"{entry['name']}-{number}"
            place = places.setdefault(kernel["function"], own) if kernel["function"] else own
            kernel["same"] = "" if place == own else place


def _slim(kernel: Data) -> dict[str, Any]:
    """Return what the graph needs of a kernel."""
    return {key: kernel[key] for key in ("origin", "line", "title", "share", "seconds", "reads", "writes")}


def time_text(seconds: float) -> str:
    """Format a time with three digits: ``12.3 us``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
