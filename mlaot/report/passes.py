"""Report how each pass changes the graphs of a model, and show the graphs after the last pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from mlaot import passes
from mlaot.ir.module import Module
from mlaot.isolation import pause_collection
from mlaot.loading import open_model, trace
from mlaot.settings import ModelSettings, Settings
from mlaot.settings.options import DEFAULTS, Options


def final_graphs(settings: Settings, model: ModelSettings) -> Module:
    """Return the module of a model after all passes, which is the input of lowering."""
    with open_model(settings, model) as (declared, options, sample), pause_collection():
        return passes.run(model.module, trace(declared), options, sample=sample)


def pass_report(settings: Settings, *, egraph: bool = False) -> str:
    """Return node counts of every model after every pass. With ``egraph`` that pass runs too, and its proof follows."""
    lines = []
    for model in settings.models:
        with open_model(settings, model) as (declared, options, sample):
            counts = report(declared, model.module, replace(options, egraph=egraph), sample)
            lines += [f"{model.module} ({model.declared})", *counts]
    return "\n".join(lines)


def report(declared: Any, module: str, options: Options = DEFAULTS, sample: Any = None) -> list[str]:
    """Return a line for each graph after each pass that changed its counts, and the proof that ``egraph`` notes."""
    traced = trace(declared)
    lines: list[str] = []
    last_counts: dict[str, Counter[str]] = {}
    if traced.counts:
        lines.append(_line("declared", "values", Counter(traced.counts)))

    def count(step: str, module: Module) -> None:
        for name, graph in module.graphs.items():
            counts = Counter(node.op.name for node in graph.nodes())
            if last_counts.get(name) != counts:
                last_counts[name] = counts
                lines.append(_line(step, name, counts))

    proof = passes.run(module, traced, options, sample=sample, watch=count).proof
    return [*lines, *(f"  {line}" for line in proof)]


def _line(step: str, name: str, counts: Counter[str]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{op or 'leaf'} {n:,}" for op, n in ordered)
    return f"  {step:<24}{name:<12}{sum(counts.values()):>8,} nodes: {text}"
