"""``mlaot report``: make a page that shows what a model becomes, and what takes how long."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlaot.commands.output import Data, size
from mlaot.commands.project import TARGET, project_of
from mlaot.errors import MlaotError, writing
from mlaot.schedule.machine import Machine
from mlaot.stages import GENERATE, PRINTING, TIMING

STAGES = (*GENERATE[:-1], TIMING, PRINTING)
HELP = "make a page that shows a model's graph, kernels, times and memory"
DESCRIPTION = """\
Compile each model of a project for this machine, time every kernel within calls of
its functions, and write one HTML file that needs no network: the graph by layers,
what each pass rewrote, every kernel with its loop nest, C and instructions, its
share of what the machine can do, and the workspace over a call. Nothing else should
run meanwhile.
"""
EXAMPLES = """\
  mlaot report                              report.html of the project in this folder
  mlaot report model.onnx -o model.html     an ONNX file
  mlaot report model:digits                 one function, without a pyproject.toml
  mlaot report -o new.html --against old.html
                                            with what has changed since an earlier report
  mlaot report --trace trace.json           the kernels of each call for Perfetto or chrome://tracing
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("target", nargs="?", default=".", help=TARGET)
    parser.add_argument("-o", "--out", default="report.html", help="the file to write (default: report.html)")
    parser.add_argument("--against", metavar="REPORT", help="an earlier report of the same model to compare with")
    parser.add_argument("--trace", metavar="FILE", help="write the kernels of each call as a Chrome trace (JSON), too")


def run(options: argparse.Namespace) -> int:
    """Write a page for each model: ``report.html``, or ``report-nn.html`` where there are several."""
    from mlaot.build.toolchain import find_compiler
    from mlaot.page.changes import read_report
    from mlaot.tune import machines_here

    out = Path(options.out)
    before = read_report(Path(options.against)) if options.against else []
    with project_of(options.target) as (_, settings):
        from mlaot.page.describe import describe

        if not settings.models:
            raise MlaotError(f"{options.target} declares no model; expected one to report on")
        command = find_compiler()

        def machines(words: bool) -> list[Machine]:
            return machines_here(settings.isas, command, words=words)

        for model in settings.models:
            data = describe(settings, model, machines, command)
            files = {out: page(data, before)}
            if options.trace:
                files[Path(options.trace)] = json.dumps(chrome_trace(data))
            for file, text in files.items():
                path = file if len(settings.models) == 1 else file.with_stem(f"{file.stem}-{model.stem}")
                with writing(path):
                    path.write_text(text, encoding="utf-8")
                print(f"{path}  {size(path.stat().st_size)}", flush=True)
    return 0


def chrome_trace(data: Data) -> Data:
    """Return the kernels of each entry in the order of a call, as the Trace Event Format of Chrome has them (in us)."""
    isa = data["machines"][-1]["isa"] if data["machines"] else ""
    events = []
    for number, entry in enumerate(data["entries"]):
        common = {"ph": "X", "pid": 1, "tid": number}
        at = 0.0
        for kernel in entry["kernels"] if isa in entry["seconds"] else ():
            duration = 1e6 * kernel["seconds"][isa]
            details = {"computes": kernel["computes"], "rounds": kernel["rounds"], "bytes": kernel["bytes"]}
            what = {"name": _title(kernel), "cat": kernel["origin"], "args": details}
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
            limit = 100 * least / seconds
        share = 100 * seconds / together if together else 0.0
        kernels.append({**kernel, "title": _title(kernel), "share": share, "limit": limit})
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


def _title(kernel: Data) -> str:
    """Return the ops of a kernel and the type of the last: ``contract, add, relu : f64[batch,4]``."""
    ops = [match[1] for line in kernel["computes"] if (match := re.search(r" = (\w+)\(", line))]
    lines = kernel["computes"]
    type_ = lines[-1].rpartition(" : ")[2] if lines else ""
    names = ", ".join(dict.fromkeys(op for op in ops if op != "rounded"))
    return f"{names} : {type_}" if names else (lines[-1] if lines else kernel["kind"])


def _slim(kernel: Data) -> dict[str, Any]:
    """Return what the graph needs of a kernel."""
    return {key: kernel[key] for key in ("origin", "title", "share", "seconds", "reads", "writes")}


def time_text(seconds: float) -> str:
    """Format a time with three digits: ``12.3 us``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
