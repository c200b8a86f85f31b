"""Check a build against the limits of [tool.mlaot.budget]. A build that exceeds a limit fails."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlaot.build.sbom import read_metadata
from mlaot.errors import MlaotError, did_you_mean
from mlaot.probe import BuiltModule, ask
from mlaot.settings import FILE, ModelSettings, Settings

PYPI_LIMIT = 100_000_000  # bytes of a file, unless a project has asked for more
PARTS_SHOWN = 3  # parts of a wheel that is too large


def check_metadata(model: ModelSettings, metadata: Mapping[str, Any]) -> None:
    """Check the limits on ops and workspace, which are known after tracing, before anything is compiled."""
    budget = model.budget
    for entry, ops in metadata["ops"].items() if budget.ops is not None else ():
        for op in ops:
            if op not in (budget.ops or ()):
                raise MlaotError(
                    f"{model.module}: {entry} of {model.model} has the op {op!r} ({ops[op]} times), which"
                    f" {limit_of(model, 'ops')} does not allow{did_you_mean(op, budget.ops or ())};"
                    " `mlaot inspect --graph` shows where it is"
                )
    for entry, needed in metadata["workspace"].items() if budget.workspace_kb is not None else ():
        if needed > 1000 * (budget.workspace_kb or 0):
            raise MlaotError(
                f"{model.module}: a call of {entry} needs {kilobytes(needed)} of workspace, more than"
                f" {limit_of(model, 'workspace_kb')}; `mlaot inspect` shows what its kernels hold in between"
            )


def check_replay(
    model: ModelSettings,
    metadata: Mapping[str, Any],
    library: Path,
    shares: Mapping[str, float] | None,
    isas: Sequence[str],
) -> None:
    """Check the limits on instruction sets, errors and times, which are known after a run.

    ``shares`` has the instruction sets on which the golden vectors were replayed. It is None if the module does not run
    on this machine. ``isas`` are the instruction sets that the module has code for. The first, ``base`` or its
    equivalent, runs on every CPU.
    """
    budget, module = model.budget, BuiltModule(model.module, library)
    required = [isa for isa in isas if isa in budget.isa or (budget.isa and isa == isas[0])]
    if missing := [isa for isa in required if isa not in (shares or {})]:
        has = f"was replayed on {', '.join(shares)} only" if shares else "was not replayed"
        raise MlaotError(
            f"{model.module} {has}, but {limit_of(model, 'isa')} asks for {', '.join(missing)}; build where these run"
        )
    if budget.error is None and budget.latency_us is None:
        return
    if shares is None:
        print(f"mlaot: error and latency of {model.module} are not checked against its budget: it does not run here")
        return
    if budget.error is not None:
        check_error(model, metadata, module, shares)
    if budget.latency_us is not None:
        check_latency(model, module)


def check_error(
    model: ModelSettings, metadata: Mapping[str, Any], module: BuiltModule, isas: Mapping[str, float]
) -> None:
    """Check the largest error of each output on each instruction set."""
    if not metadata["golden"]:
        raise MlaotError(
            f"{model.module} has no golden vectors, which {limit_of(model, 'error')} is checked by; delete that key"
        )
    for isa in isas:
        for row in ask(module, "golden", isa=isa, calls=metadata["golden"])["rows"]:
            if not row["error"] <= (model.budget.error or 0):
                raise MlaotError(
                    f"{model.module}: {row['output']} of {row['entry']} is off by {row['error']:.2g} of its largest"
                    f" value on {isa}, more than {limit_of(model, 'error')}; float64 loses less, and 3x3 convolutions"
                    " lose less with winograd = 'off'"
                )


def check_latency(model: ModelSettings, module: BuiltModule) -> None:
    """Check the median time of each function that takes random inputs."""
    answer = ask(module, "bench", batches=[1])
    for row in answer["rows"]:
        if (time_us := 1e6 * row["median"]) > (model.budget.latency_us or 0):
            raise MlaotError(
                f"{model.module}: a call of {row['entry']} takes {time_us:.2f} us on this machine ({answer['isa']}),"
                f" more than {limit_of(model, 'latency_us')}; `mlaot inspect` shows its kernels, `mlaot tune` finds"
                " faster ones"
            )
    for entry, why in answer["refused"].items():
        print(f"mlaot: {entry} of {model.module} was not timed, it refuses random inputs: {why}")


def check_wheel(settings: Settings, generated: Path, wheel: Path) -> None:
    """Check the size of a finished wheel, and delete the wheel if it exceeds its budget."""
    size, limit = wheel.stat().st_size, settings.budget.wheel_kb
    if size > PYPI_LIMIT:
        pypi_limit = f"{PYPI_LIMIT // 1_000_000} MB"
        print(
            f"mlaot: warning: the wheel is {size / 1e6:.1f} MB; PyPI takes {pypi_limit} unless a project asks for more"
        )
    if limit is None or size <= 1000 * limit:
        return
    parts = ", ".join(largest_parts(settings, generated, wheel))
    wheel.unlink()
    smaller = [f"fewer instruction sets (isa = {list(settings.isa)})"] if len(settings.isa) > 1 else []
    if any(not model.weights_dtype for model in settings.models):
        smaller.append("weights in fewer bits (weights_dtype)")
    hint = f"; {' or '.join(smaller)} would make it smaller" if smaller else ""
    raise MlaotError(
        f"the wheel is {kilobytes(size)}, {kilobytes(size - 1000 * limit)} over budget.wheel_kb = {limit} in {FILE};"
        f" its largest parts are {parts}{hint}"
    )


def largest_parts(settings: Settings, generated: Path, wheel: Path) -> list[str]:
    """Describe files by compressed size: ``digits/nn.abi3.so 180.2 KB (its weights are 150.0 KB)``."""
    weights = {
        model.module.replace(".", "/"): read_metadata(generated, model)["weights"]["bytes"] for model in settings.models
    }
    with zipfile.ZipFile(wheel) as file:
        entries = sorted(file.infolist(), key=lambda entry: entry.compress_size, reverse=True)[:PARTS_SHOWN]
    parts = []
    for entry in entries:
        stem, _, suffix = entry.filename.partition(".")
        own = f" (its weights are {kilobytes(weights[stem])})" if stem in weights and suffix != "pyi" else ""
        parts.append(f"{entry.filename} {kilobytes(entry.compress_size)}{own}")
    return parts


def limit_of(model: ModelSettings, key: str) -> str:
    """Return the name of a limit in errors."""
    value = getattr(model.budget, key)
    return f"budget.{key} = {list(value) if isinstance(value, tuple) else value} in {FILE}"


def kilobytes(count: int) -> str:
    """Format a number of bytes: ``93.1 KB``."""
    return f"{count / 1000:,.1f} KB"
