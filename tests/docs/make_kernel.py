"""Write ``docs/kernel.md``, one kernel from a line of a model to machine code: ``python -m tests.docs.make_kernel``.

Needs gcc and objdump on x86-64; the page says which gcc made it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import mlaot
from mlaot import passes
from mlaot.files import program_files, write
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.nest.text import nest_text
from mlaot.printing.file import kernels_file
from mlaot.schedule.contraction import contraction_of
from mlaot.schedule.cost import schedule
from mlaot.schedule.machine import V4
from mlaot.schedule.nests import schedule_nest

from ..projects import ROOT

PAGE = ROOT / "docs" / "kernel.md"
COMMAND = "python -m tests.docs.make_kernel"
CC = os.environ.get("CC", "gcc")
LINE = "mlaot.relu(x @ w + b)"
PAGE_TEXT = """\
# How mlaot works: from a line of a model to machine code

<!-- written by {command} -->

This page follows one line of a model, `{line}`, through all stages of the compiler. The line is
a layer with frozen weights. An example has 64 numbers, and `w` has 64 x 48.

[A drawing](packages.svg) shows the packages that take part, and which package imports which.

## 1. The graph

Tracing records the line as nodes. The passes (`mlaot/passes/`) add the batch and find the product:

```
{graph}
```

`MLAOT_DUMP=all` prints the graph after every pass.

## 2. The program

Fusion (`mlaot/lower/fuse.py`) makes one kernel of product, bias and relu. The weights are stored in panels (`Panels` in
`mlaot/nest/expressions.py`), so that the kernel reads them in one ascending stream:

```
{program}
```

The kernel is a loop nest (`mlaot/nest/`), a value that mlaot verifies, compares with the nests of other layers, and
prints. `mlaot/lower/contraction.py` makes a nest that computes single numbers, and decides nothing about a machine.
`tiled` marks the loop that a schedule puts along the lanes of vectors:

```
{built}
```

## 3. The schedule

`mlaot/schedule/cost.py` estimates the cycles of every tile that fits the registers, and takes the best tile. On AVX-512
this is a tile of {rows} examples by {columns} vectors of 16 outputs. A step of the sum loads {loads} values for
{accumulators} accumulators. The remaining examples of a batch have tiles of their own. `mlaot/schedule/traffic.py`
counts the cache lines that each order of the loops fetches from farther caches, and takes the order with the least
waiting.

`mlaot/schedule/tiles.py` makes a new nest from the tile. `x[i:16]` is 16 neighbouring elements:

```
{nest}
```

## 4. C

One template, `templates/kernels/nest.c.j2`, prints all nests. This is the first tile:

```c
{c}
```

The entry finds each array in memory, and calls the kernels in order. `w_product_v4` runs the parts of the batch on the
threads of the call, if the call has threads. A kernel is named after the layer that it computes. A kernel that equal
layers share has no number in its name, and a comment at each call names the layer:

```c
{entry}
```

## 5. Machine code

This is the inner loop that {compiler} makes. A step has {fma} multiply-adds and {others} other instructions.

```
{assembly}
```

The compiler flags are `{flags}`.
"""
FLAGS = ("-O2", "-fno-tree-vectorize", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", *V4.flags)


def declared() -> Any:
    """The model of the page."""
    draw = np.random.default_rng(0)
    w = mlaot.Parameter("w", draw.normal(size=(64, 48)).astype(np.float32))
    b = mlaot.Parameter("b", np.zeros(48, np.float32))

    @mlaot.model
    def layer(x: mlaot.f32[64]) -> Any:  # type: ignore[valid-type]
        return mlaot.relu(x @ w + b)

    return layer


def inner_loop(program: Program) -> list[str]:
    """The instructions of the loop with the most multiply-adds, by way of the compiler and objdump."""
    with tempfile.TemporaryDirectory() as name:
        write(program_files(program), Path(name))
        subprocess.run([CC, *FLAGS, "-c", "layer_v4.c", "-o", "layer.o"], check=True, cwd=name)
        listing = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", "layer.o"], check=True, cwd=name, capture_output=True, text=True
        ).stdout
    found = re.findall(r"^ *([0-9a-f]+):\t(.*?) *$", listing, re.MULTILINE)
    addresses = {address: i for i, (address, _) in enumerate(found)}
    loops = []
    for i, (_, instruction) in enumerate(found):
        jump = re.match(r"j\w+ +([0-9a-f]+) ", instruction)
        if jump and addresses.get(jump[1], i) < i:
            loops.append([re.sub(r" +<.*>$", "", text) for _, text in found[addresses[jump[1]] : i + 1]])
    return max((loop for loop in loops if len(loop) < 80), key=lambda loop: sum("vfmadd" in line for line in loop))


def first_tile(text: str) -> str:
    """A nest up to the second accumulator's epilogue, without its comments."""
    lines = [line for line in text.splitlines() if not line.startswith("    #")]
    ends = [i for i, line in enumerate(lines) if line.endswith("with block:")]
    return "\n".join([*lines[: ends[1]], f"{lines[ends[1]].partition('with')[0]}.."])


def main() -> None:
    module = passes.run("layer", declared().trace())
    program = lower(module)
    text = kernels_file(program, "layer", V4)
    (kernel,) = program.procedures[0].kernels
    plan = schedule(contraction_of(kernel.nest), V4)
    rows, columns = plan.counts["i"], plan.counts["j"]
    start, entry = text.index("static void w_product_part_v4"), text.index("// The outputs of the model")
    end = [found.start() for found in re.finditer(r"\n +\{\n", text[start:])][1] + start  # the second one's turn
    loop = inner_loop(program)
    fma = sum("vfmadd" in line for line in loop)
    version = subprocess.run([CC, "--version"], check=True, capture_output=True, text=True).stdout
    compiler = f"gcc {re.search(r'[0-9]+[.][0-9.]+', version)[0]}"  # type: ignore[index]
    page = PAGE_TEXT.format(
        command=COMMAND,
        line=LINE,
        graph=module.graphs["forward"],
        built=nest_text(kernel.nest).rstrip(),
        nest=first_tile(nest_text(schedule_nest(kernel.nest, V4))),
        program=str(program).rstrip(),
        rows=rows,
        columns=columns,
        accumulators=rows * columns,
        loads=rows + columns,
        c=text[start:end] + "\n        ..",
        entry=text[entry : text.index("\n}\n", entry) + 2],
        compiler=compiler,
        flags=" ".join(FLAGS),
        fma=fma,
        others=len(loop) - fma,
        assembly="\n".join(loop),
    )
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
