"""Small models written by hand: what lowering would hand to the templates, and kernels in plain C."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from mlaot.binding.interface import render_interface
from mlaot.ir.indices import IndexRange
from mlaot.ir.module import PREPARE
from mlaot.lower.program import Entry, ExtensionModule, Port, Slot
from mlaot.settings.options import Options

from .. import instrumented

ISAS = ("base", "v3", "v4")
FLAGS = "-std=gnu11 -O1 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fPIC -fvisibility=hidden"
WARNINGS = "-Wall -Wextra -Wconversion -Werror"
ISA_FLAGS = {
    "base": "",
    "v3": "-mavx2 -mfma",
    "v4": "-mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512",
}


def floats(*values: float) -> bytes:
    return struct.pack(f"{len(values)}f", *values)


# y = x @ w + b for x of 2 and y of 3 numbers.
AFFINE = ExtensionModule(
    name="shop.affine",
    dims=("batch", "width"),
    entries=(
        Entry(
            "forward",
            (Port("x", "f32", ("batch", 2)),),
            (Port("y", "f32", ("batch", 3)),),
            "64 + batch * 16",
            "batch * 12",
            doc='Affine: "x @ w + b".',
        ),
        Entry(
            "pick",
            (
                Port("table", "f64", ("batch", "width")),
                Port("index", "i64", ("batch",), ranges=(IndexRange(4),)),
                Port("flag", "bool", ()),
            ),
            (Port("picked", "f64", ("batch",)), Port("bytes", "u8", ("batch", 2))),
            "0",
            "batch",
        ),
        Entry("half", (Port("n", "i32", (3,)),), (Port("h", "i32", ()),), "0", "3"),
        *(
            Entry(
                name,
                (Port("n", "i32", (3,)),),
                (Port("total", "i32", ()), Port("n2", "i32", (3,)), Port("mean", "f64", ()), Port("odd", "bool", ())),
                "0",
                "3",
                named=name == "named",
            )
            for name in ("several", "named")
        ),
        Entry(
            "take",
            (Port("x", "f32", ("batch", 2), converts=True), Port("n", "i16", ("batch",), converts=True)),
            (Port("y", "f32", ("batch", 2)), Port("m", "i16", ("batch",))),
            "0",
            "batch",
        ),
        Entry("slow", (Port("x", "f32", ("batch", 2)),), (Port("y", "f32", ("batch", 2)),), "8 * batch", "1000000"),
    ),
    slots=(),
    state_bytes=0,
    constants=floats(1, 2, 3, 4, 5, 6, 0.5, 0.25, 0.125),
    initial=b"",
    options=Options(isas=ISAS),
    info={"version": "1.2.3", "note": 'quote " and \\ and é'},
    version="1.2.3",
)
AFFINE_KERNELS = """
#include <stdint.h>
#include <string.h>
#include "affine.h"

void shop_affine_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    const float *x = (const float *)p[0], *w = (const float *)p[3];
    float *y = (float *)p[1], *work = (float *)p[4];
    for (ptrdiff_t i = 0; i < dim[0]; i++) {
        for (ptrdiff_t j = 0; j < 3; j++) {
            work[16 + i * 4 + j] = x[2 * i] * w[j] + x[2 * i + 1] * w[3 + j];
            y[3 * i + j] = work[16 + i * 4 + j] + w[6 + j];
        }
    }
}

void shop_affine_pick_ISA(char *const *p, const ptrdiff_t *dim)
{
    const double *table = (const double *)p[0];
    const int64_t *index = (const int64_t *)p[1];
    double *picked = (double *)p[3];
    uint8_t *bytes = (uint8_t *)p[4];
    for (ptrdiff_t i = 0; i < dim[0]; i++) {
        picked[i] = table[i * dim[1] + index[i]] * (*p[2] != 0 ? -1 : 1);
        bytes[2 * i] = (uint8_t)index[i];
        bytes[2 * i + 1] = (uint8_t)dim[1];
    }
}

void shop_affine_half_ISA(char *const *p, const ptrdiff_t *dim)
{
    const int32_t *n = (const int32_t *)p[0];
    (void)dim;
    *(int32_t *)p[1] = (n[0] + n[1] + n[2]) / 2;
}

void shop_affine_several_ISA(char *const *p, const ptrdiff_t *dim)
{
    const int32_t *n = (const int32_t *)p[0];
    (void)dim;
    *(int32_t *)p[1] = n[0] + n[1] + n[2];
    memcpy(p[2], n, 12);
    *(double *)p[3] = (n[0] + n[1] + n[2]) / 3.0;
    *p[4] = n[0] % 2 != 0;
}

void shop_affine_named_ISA(char *const *p, const ptrdiff_t *dim)
{
    shop_affine_several_ISA(p, dim);
}

void shop_affine_take_ISA(char *const *p, const ptrdiff_t *dim)
{
    memcpy(p[2], p[0], (size_t)dim[0] * 8);
    memcpy(p[3], p[1], (size_t)dim[0] * 2);
}

void shop_affine_slow_ISA(char *const *p, const ptrdiff_t *dim)
{
    const float *x = (const float *)p[0];
    float *y = (float *)p[1];
    volatile float *work = (volatile float *)p[4];
    for (ptrdiff_t round = 0; round < 20000; round++) {
        for (ptrdiff_t i = 0; i < 2 * dim[0]; i++) {
            work[i] = x[i];
        }
    }
    for (ptrdiff_t i = 0; i < 2 * dim[0]; i++) {
        y[i] = work[i];
    }
}
"""

# Scores s = x @ w (2 classes), loss = mean over the batch of (s[label] - 1) ** 2; w is stored transposed and padded.
FIT = ExtensionModule(
    name="fit",
    dims=("batch",),
    entries=(
        Entry("forward", (Port("x", "f64", ("batch", 3)),), (Port("s", "f64", ("batch", 2)),), "0", "batch * 12"),
        Entry(
            "loss",
            (Port("x", "f64", ("batch", 3)), Port("label", "i32", ("batch",), ranges=(IndexRange(2),))),
            (Port("loss", "f64", ()),),
            "batch * 16",
            "batch * 20",
        ),
        Entry(
            "train_step",
            (
                Port("x", "f64", ("batch", 3)),
                Port("label", "i32", ("batch",), ranges=(IndexRange(2),)),
                Port("lr", "f64", (), default=0.1),
            ),
            (Port("loss", "f64", ()),),
            "batch * 16",
            "batch * 40",
        ),
        Entry(
            "phases",
            (Port("x", "f64", ("batch", 3)), Port("label", "i32", ("batch",), ranges=(IndexRange(2),))),
            (Port("s", "f64", ("batch", 2)), Port("loss", "f64", ())),
            "batch * 16",
            "batch * 40",
            split=True,
        ),
        Entry("update", (Port("lr", "f64", (), default=0.1),), (), "0", "24"),
    ),
    slots=(
        Slot("w", "f64", (3, 2), (1, 4), 0, 128),
        Slot("scale", "f64", (), (), 64, 192),
    ),
    state_bytes=256,
    constants=b"",
    initial=struct.pack("9d", 0.1, 0.2, 0.3, 0.0, 0.4, 0.5, 0.6, 0.0, 1.0),
    options=Options(isas=ISAS),
    info={"scalars": (0, 8, 16, 32, 40, 48, 64)},
)

FIT_KERNELS = """
#include <stdint.h>
#include <string.h>
#include "fit.h"

static void scores_ISA(const double *state, const double *x, double *s, ptrdiff_t batch)
{
    for (ptrdiff_t i = 0; i < batch; i++) {
        for (ptrdiff_t c = 0; c < 2; c++) {
            const double *w = state + 4 * c;
            s[2 * i + c] = (x[3 * i] * w[0] + x[3 * i + 1] * w[1] + x[3 * i + 2] * w[2]) * state[8];
        }
    }
}

static double loss_ISA(const double *s, const int32_t *label, ptrdiff_t batch)
{
    double loss = 0;
    for (ptrdiff_t i = 0; i < batch; i++) {
        const double e = s[2 * i + label[i]] - 1;
        loss += e * e / (double)batch;
    }
    return loss;
}

static void gradients_ISA(double *state, const double *x, const int32_t *label, const double *s, ptrdiff_t batch)
{
    double *g = state + 16;
    for (ptrdiff_t i = 0; i < batch; i++) {
        const double e = 2 * (s[2 * i + label[i]] - 1) / (double)batch;
        for (ptrdiff_t k = 0; k < 3; k++) {
            g[4 * label[i] + k] += e * x[3 * i + k] * state[8];
            g[8] += e * x[3 * i + k] * state[4 * label[i] + k];
        }
    }
}

void fit_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    scores_ISA((const double *)p[2], (const double *)p[0], (double *)p[1], dim[0]);
}

void fit_loss_ISA(char *const *p, const ptrdiff_t *dim)
{
    scores_ISA((const double *)p[3], (const double *)p[0], (double *)p[5], dim[0]);
    *(double *)p[2] = loss_ISA((const double *)p[5], (const int32_t *)p[1], dim[0]);
}

void fit_update_ISA(char *const *p, const ptrdiff_t *dim)
{
    double *state = (double *)p[1];
    (void)dim;
    for (ptrdiff_t k = 0; k < 9; k++) {
        state[k] -= *(const double *)p[0] * state[16 + k];
    }
}

void fit_train_step_ISA(char *const *p, const ptrdiff_t *dim)
{
    double *state = (double *)p[4], kept[9], *s = (double *)p[6];
    memcpy(kept, state + 16, sizeof kept);
    memset(state + 16, 0, sizeof kept);
    scores_ISA(state, (const double *)p[0], s, dim[0]);
    *(double *)p[3] = loss_ISA(s, (const int32_t *)p[1], dim[0]);
    gradients_ISA(state, (const double *)p[0], (const int32_t *)p[1], s, dim[0]);
    for (ptrdiff_t k = 0; k < 9; k++) {
        state[k] -= *(const double *)p[2] * state[16 + k];
    }
    memcpy(state + 16, kept, sizeof kept);
}

void fit_phases_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    double *s = (double *)p[6];
    scores_ISA((const double *)p[4], (const double *)p[0], s, dim[0]);
    memcpy(p[2], s, (size_t)dim[0] * 16);
    *(double *)p[3] = loss_ISA(s, (const int32_t *)p[1], dim[0]);
}

void fit_phases_backward_ISA(char *const *p, const ptrdiff_t *dim)
{
    gradients_ISA((double *)p[4], (const double *)p[0], (const int32_t *)p[1], (const double *)p[6], dim[0]);
    memset(p[6], 255, (size_t)dim[0] * 16);  // the residuals are used up
}
"""

# The same with an `phases` in one piece.
WHOLE = replace(
    FIT,
    name="whole",
    entries=tuple(replace(entry, split=False) for entry in FIT.entries if entry.name != "train_step"),
)

WHOLE_KERNELS = FIT_KERNELS.replace("fit", "whole").replace("void whole_phases_", "static void whole_phases_")
WHOLE_KERNELS += """
void whole_phases_ISA(char *const *p, const ptrdiff_t *dim)
{
    whole_phases_forward_ISA(p, dim);
    whole_phases_backward_ISA(p, dim);
}
"""

# A model whose weights are too large for text, and no dims at all.
LARGE = ExtensionModule(
    name="large",
    dims=(),
    entries=(Entry("forward", (Port("i", "i32", ()),), (Port("y", "f32", ()),), "0", "1"),),
    slots=(),
    state_bytes=0,
    constants=struct.pack("30000f", *range(30000)),
    initial=b"",
    options=Options(isas=("base",)),
)

LARGE_KERNELS = """
#include <stdint.h>
#include "large.h"

void large_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    (void)dim;
    *(float *)p[1] = ((const float *)p[3])[*(const int32_t *)p[0]];
}
"""

# What it reads is twice its constants: made once, without the GIL.
PREPARED = replace(
    LARGE,
    name="prepared",
    entries=(*LARGE.entries, Entry(PREPARE, (), (), "0", "1000000")),
    state_bytes=len(LARGE.constants),
    initial=struct.pack("30000f", *range(0, 60000, 2)),
)
PREPARED_KERNELS = """
#include <stdint.h>
#include "prepared.h"

void prepared_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    (void)dim;
    *(float *)p[1] = ((const float *)p[2])[*(const int32_t *)p[0]];
}

void prepared_prepare_weights_ISA(char *const *p, const ptrdiff_t *dim)
{
    (void)dim;
    for (int i = 0; i < 30000; i++) {
        ((float *)p[0])[i] = 2 * ((const float *)p[1])[i];
    }
}
"""

MODELS = {
    "affine": (AFFINE, AFFINE_KERNELS),
    "fit": (FIT, FIT_KERNELS),
    "whole": (WHOLE, WHOLE_KERNELS),
    "large": (LARGE, LARGE_KERNELS),
    "prepared": (PREPARED, PREPARED_KERNELS),
    "mapped": (
        replace(LARGE, name="mapped", options=replace(LARGE.options, weights="file")),
        LARGE_KERNELS.replace("large", "mapped"),
    ),
    "apart": (
        replace(FIT, name="apart", options=replace(FIT.options, weights="file")),
        FIT_KERNELS.replace("fit", "apart"),
    ),
}


def write_files(module: ExtensionModule, kernels: str, folder: Path, abi: str = "abi3") -> list[list[str]]:
    """Write a model's files; the compiler commands that build it."""
    stem = module.name.rpartition(".")[2]
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in render_interface(module).items():
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    compiler = [os.environ.get("CC", "cc"), *FLAGS.split(), *WARNINGS.split(), "-c", f"-I{folder}"]
    options = [*instrumented.options(), f"-DMLAOT_{abi.upper()}"]
    commands = [[*compiler, *options, str(folder / f"{stem}.c"), "-o", str(folder / f"{stem}.{abi}.o")]]
    for isa in module.isas:
        source = folder / f"{stem}_{isa}.c"
        source.write_text(kernels.replace("ISA", isa))
        flags = [*instrumented.FLAGS, *ISA_FLAGS[isa].split()]
        commands.append([*compiler, *flags, str(source), "-o", str(source.with_suffix(".o"))])
    objects = [command[-1] for command in commands]
    stripped = instrumented.FLAGS or ["-s"]
    return [*commands, [compiler[0], "-shared", *stripped, *objects, "-o", str(folder / f"{stem}.{abi}.so")]]


def build(module: ExtensionModule, kernels: str, folder: Path, abi: str = "abi3") -> Path:
    """Compile a model into ``folder``."""
    for command in write_files(module, kernels, folder, abi):
        subprocess.run(command, check=True)
    return library(module, folder, abi)


def library(module: ExtensionModule, folder: Path, abi: str = "abi3") -> Path:
    """Where a model's shared library is."""
    return folder / f"{module.name.rpartition('.')[2]}.{abi}.so"


def load(library: Path, name: str = "") -> ModuleType:
    """Import a compiled model afresh."""
    stem = name or library.name.partition(".")[0]
    loader = importlib.machinery.ExtensionFileLoader(stem, str(library))
    spec = importlib.util.spec_from_file_location(stem, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
