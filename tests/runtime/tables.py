"""Tables for every part of the runtime's C, to be read by compilers: python -m tests.runtime.tables FOLDER.

Writes the interface of each hand-made model, and of some that have what those lack, without kernels, and a runtime that
modules share. The C includes ``templates/runtime``; ``nn`` is the model with the most. FOLDER/table.h is its table
alone, which clangd puts in front of a file of the runtime (.clangd).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from mlaot.binding.interface import render_interface
from mlaot.binding.shared import render_runtime
from mlaot.files import write
from mlaot.ir.module import FIT_BEGIN, FIT_END, FIT_STEP
from mlaot.lower.program import Entry, Port

from .kinds import MODELS as KINDS
from .models import FIT, MODELS

X, LABEL = Port("x", "f64", (16, 3)), Port("label", "i32", (16,))
AHEAD, LIKE, CHANGES = (Port(name, "f64", (16, 2)) for name in ("ahead", "like", "changes"))


def example(port: Port) -> Port:
    """One example of a block."""
    return replace(port, shape=port.shape[1:])


# Examples in blocks, as fit() of a model with large weights takes them; a session, refusals and results by name.
NN = replace(
    FIT,
    name="everything.nn",
    entries=(
        replace(
            FIT.entries[0],
            named=True,
            outputs=(*FIT.entries[0].outputs, Port("refused", "i64", ())),
            refusals=("too large",),
        ),
        *(replace(entry, split=False) for entry in FIT.entries[1:]),
        Entry(FIT_BEGIN, (X, LABEL), (AHEAD, LIKE), "64", "100"),
        Entry(
            FIT_STEP,
            (example(X), example(LABEL), Port("lr", "f64", ()), example(AHEAD), example(LIKE), CHANGES),
            (Port("loss", "f64", ()), replace(example(AHEAD), name="change")),
            "64",
            "100",
        ),
        Entry(FIT_END, (X, LABEL, CHANGES), (), "64", "100"),
    ),
    info={**FIT.info, "file_names": {"x": "in:0", "s": "out:0"}},
    version="1.0",
)
# A model whose examples cannot be put into batches.
UNEVEN = replace(
    FIT,
    name="uneven",
    dims=("batch", "n", "m"),
    entries=tuple(
        replace(e, inputs=(replace(e.inputs[0], shape=("n", 3)), replace(e.inputs[1], shape=("m",)), *e.inputs[2:]))
        if e.name == "train_step"
        else e
        for e in FIT.entries
    ),
)
RUNTIME = "everything.runtime"
# A module that shares a runtime.
REMOTE = replace(NN, name="everything.remote", options=replace(NN.options, runtime=RUNTIME))
TABLES = {name: module for name, (module, _) in (MODELS | KINDS).items()} | {
    "nn": NN,
    "uneven": UNEVEN,
    "remote": REMOTE,
}


def main(folder: Path) -> None:
    """Write the files, and print which are to be compiled."""
    for name, module in TABLES.items():
        files = render_interface(module, complete=False)
        write(files, folder / name)
        print(folder / name / f"{module.stem}.c")
        if module is NN:
            table = str(files["nn.c"]).replace('#include "nn.h"', '#include "nn/nn.h"')
            write({"table.h": table.partition('#include "runtime/own.c"')[0]}, folder)
    write(render_runtime(RUNTIME, complete=False), folder / "runtime")
    print(folder / "runtime" / "runtime.c")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
