"""Budgets: what [tool.mlaot.budget] allows at most, held against what was made. Whatever is over ends the build."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlaot.build.sbom import read_facts
from mlaot.errors import MlaotError, did_you_mean
from mlaot.probe import Module, ask
from mlaot.settings import FILE, Model, Settings

PYPI_LIMIT = 100_000_000  # bytes of a file, unless a project has asked for more
SHOWN = 3  # parts of a wheel that is too large


def hold_facts(model: Model, facts: Mapping[str, Any]) -> None:
    """What is known before anything is compiled: ops and workspace."""
    budget = model.budget
    for entry, ops in facts["ops"].items() if budget.ops is not None else ():
        for op in ops:
            if op not in (budget.ops or ()):
                raise MlaotError(
                    f"{model.module}: {entry} of {model.model} has the op {op!r} ({ops[op]} times), which"
                    f" {said(model, 'ops')} does not allow{did_you_mean(op, budget.ops or ())};"
                    " `mlaot inspect --graph` shows where it is"
                )
    for entry, needed in facts["workspace"].items() if budget.workspace_kb is not None else ():
        if needed > 1000 * (budget.workspace_kb or 0):
            raise MlaotError(
                f"{model.module}: a call of {entry} needs {kilobytes(needed)} of workspace, more than"
                f" {said(model, 'workspace_kb')}; `mlaot inspect` shows what its kernels hold in between"
            )


def hold_replayed(
    model: Model, facts: Mapping[str, Any], library: Path, shares: Mapping[str, float] | None, isas: Sequence[str]
) -> None:
    """What only a run shows: instruction sets, errors, times.

    ``shares`` are of the instruction sets on which the golden vectors were replayed; None: the module does not run
    here. ``isas`` are those that it has code for: the first is what every CPU has, ``base`` or what stands for that.
    """
    budget, module = model.budget, Module(model.module, library)
    needed = [isa for isa in isas if isa in budget.isa or (budget.isa and isa == isas[0])]
    if missing := [isa for isa in needed if isa not in (shares or {})]:
        has = f"was replayed on {', '.join(shares)} only" if shares else "was not replayed"
        raise MlaotError(
            f"{model.module} {has}, but {said(model, 'isa')} asks for {', '.join(missing)}; build where these run"
        )
    if budget.error is None and budget.latency_us is None:
        return
    if shares is None:
        print(f"mlaot: error and latency of {model.module} are not held against its budget: it does not run here")
        return
    if budget.error is not None:
        hold_error(model, facts, module, shares)
    if budget.latency_us is not None:
        hold_latency(model, module)


def hold_error(model: Model, facts: Mapping[str, Any], module: Module, isas: Mapping[str, float]) -> None:
    """The largest error of each output on each instruction set."""
    if not facts["golden"]:
        raise MlaotError(
            f"{model.module} has no golden vectors to hold against {said(model, 'error')}; delete that key"
        )
    for isa in isas:
        for row in ask(module, "golden", isa=isa, calls=facts["golden"])["rows"]:
            if not row["error"] <= (model.budget.error or 0):
                raise MlaotError(
                    f"{model.module}: {row['output']} of {row['entry']} is off by {row['error']:.2g} of its largest"
                    f" value on {isa}, more than {said(model, 'error')}; float64 loses less, and 3x3 convolutions lose"
                    " less with winograd = 'off'"
                )


def hold_latency(model: Model, module: Module) -> None:
    """The median time of each function that takes random inputs."""
    timed = ask(module, "bench", batches=[1])
    for row in timed["rows"]:
        if (took := 1e6 * row["median"]) > (model.budget.latency_us or 0):
            raise MlaotError(
                f"{model.module}: a call of {row['entry']} takes {took:.2f} us on this machine ({timed['isa']}), more"
                f" than {said(model, 'latency_us')}; `mlaot inspect` shows its kernels, `mlaot tune` finds faster ones"
            )
    for entry, why in timed["refused"].items():
        print(f"mlaot: {entry} of {model.module} was not timed, it refuses random inputs: {why}")


def hold_wheel(settings: Settings, generated: Path, wheel: Path) -> None:
    """The size of a finished wheel, which is deleted where it is over its budget."""
    size, most = wheel.stat().st_size, settings.budget.wheel_kb
    if size > PYPI_LIMIT:
        limit = f"{PYPI_LIMIT // 1_000_000} MB"
        print(f"mlaot: warning: the wheel is {size / 1e6:.1f} MB; PyPI takes {limit} unless a project asks for more")
    if most is None or size <= 1000 * most:
        return
    parts = ", ".join(largest_parts(settings, generated, wheel))
    wheel.unlink()
    smaller = [f"fewer instruction sets (isa = {list(settings.isa)})"] if len(settings.isa) > 1 else []
    if any(not model.weights_dtype for model in settings.models):
        smaller.append("weights in 16 bits (weights_dtype)")
    hint = f"; {' or '.join(smaller)} would make it smaller" if smaller else ""
    raise MlaotError(
        f"the wheel is {kilobytes(size)}, {kilobytes(size - 1000 * most)} over budget.wheel_kb = {most} in {FILE}; its"
        f" largest parts are {parts}{hint}"
    )


def largest_parts(settings: Settings, generated: Path, wheel: Path) -> list[str]:
    """``digits/nn.abi3.so 180.2 KB (its weights are 150.0 KB)``: compressed files, weights as they are."""
    weights = {
        model.module.replace(".", "/"): read_facts(generated, model)["weights"]["bytes"] for model in settings.models
    }
    with zipfile.ZipFile(wheel) as file:
        entries = sorted(file.infolist(), key=lambda entry: entry.compress_size, reverse=True)[:SHOWN]
    found = []
    for entry in entries:
        stem, _, suffix = entry.filename.partition(".")
        own = f" (its weights are {kilobytes(weights[stem])})" if stem in weights and suffix != "pyi" else ""
        found.append(f"{entry.filename} {kilobytes(entry.compress_size)}{own}")
    return found


def said(model: Model, key: str) -> str:
    """A limit as errors name it."""
    value = getattr(model.budget, key)
    return f"budget.{key} = {list(value) if isinstance(value, tuple) else value} in {FILE}"


def kilobytes(count: int) -> str:
    """``93.1 KB``"""
    return f"{count / 1000:,.1f} KB"
