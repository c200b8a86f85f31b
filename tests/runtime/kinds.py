"""More models written by hand: every dtype, shapes of expressions, every kind of state."""

from __future__ import annotations

import struct

from mlaot.ir.indices import IndexRange
from mlaot.lower.program import Counted, Entry, ExtensionModule, Port, Slot
from mlaot.settings.options import Options

from .models import ISAS, floats

# dtype: its name in Python, its C type, and struct's letter.
DTYPES = {
    "f16": ("float16", "uint16_t", "e"),
    "f32": ("float32", "float", "f"),
    "f64": ("float64", "double", "d"),
    "i8": ("int8", "int8_t", "b"),
    "i16": ("int16", "int16_t", "h"),
    "i32": ("int32", "int32_t", "i"),
    "i64": ("int64", "int64_t", "q"),
    "u8": ("uint8", "uint8_t", "B"),
    "u16": ("uint16", "uint16_t", "H"),
    "u32": ("uint32", "uint32_t", "I"),
    "u64": ("uint64", "uint64_t", "Q"),
    "bool": ("bool", "uint8_t", "?"),
}


def same(dtype: str, name: str, shape: tuple[str, ...]) -> Entry:
    """An entry that gives its input back."""
    return Entry(name, (Port("x", dtype, shape),), (Port("y", dtype, shape),), "0", "n" if shape else "1")


def labels(dtype: str) -> Port:
    """An input of classes."""
    return Port("x", dtype, ("n",), ranges=(IndexRange(3),))


TYPES = ExtensionModule(
    name="dtypes",
    dims=("n",),
    entries=tuple(
        entry
        for dtype, (name, _, _) in DTYPES.items()
        for entry in (
            same(dtype, f"same_{name}", ("n",)),
            same(dtype, f"one_{name}", ()),
            Entry(f"rest_{name}", (labels(dtype),), (Port("y", dtype, ("n",)),), "0", "n"),
        )
        if dtype[0] in "iu" or not entry.name.startswith("rest")
    ),
    slots=(),
    state_bytes=0,
    constants=b"",
    initial=b"",
    options=Options(isas=("base",)),
)


def copy_kernel(entry: Entry) -> str:
    """A kernel that copies the input."""
    port = entry.inputs[0]
    count = "(size_t)dim[0]" if port.shape else "1"
    return f"""
void dtypes_{entry.name}_ISA(char *const *p, const ptrdiff_t *dim)
{{
    (void)dim;
    memcpy(p[1], p[0], {count} * sizeof({DTYPES[port.dtype][1]}));
}}
"""


TYPES_KERNELS = '#include <stdint.h>\n#include <string.h>\n#include "dtypes.h"\n' + "".join(
    map(copy_kernel, TYPES.entries)
)


def vector(name: str, *shape: int | str) -> Port:
    return Port(name, "f32", shape)


SHAPES = ExtensionModule(
    name="shapes",
    dims=("batch", "m", "n"),
    entries=(
        Entry("dot", (vector("x", "n"), vector("y", "n")), (vector("s"),), "0", "n"),
        Entry("odd", (vector("x", "2 * n + 1"),), (vector("y", "n"),), "0", "n"),
        Entry("both", (vector("y", "2 * n + 1"), vector("x", "n")), (vector("z", "n * 2 + 1"),), "0", "n"),
        Entry("join", (vector("x", "n + m"), vector("y", "m")), (vector("z", "n"),), "0", "n"),
        Entry("grid", (vector("x", "n * m"), vector("y", "n")), (vector("z", "n", "m"),), "n * m * 4", "n * m"),
        Entry("trace", (vector("x", "n", "n"),), (vector("s"),), "n * n * 4", "n * n"),
        Entry("windows", (vector("x", "n"),), (vector("y", "n + -2"), vector("z", "(n + -3) / 2 + 1")), "0", "n"),
        Entry("tail", (vector("x", "n"), vector("y", "m")), (vector("z", "n + m * -1"),), "0", "n"),
        Entry("inner", (vector("x", "n"),), (vector("s"),), "0", "n", extents=("n + -5", "n + n")),
        Entry("cut", (vector("x", "batch", "n + 1"),), (vector("y", "batch", "n"),), "0", "n"),
        Entry("power", (vector("x", "n"), vector("y", "m")), (vector("z", "n * n * n * m", 0),), "n * n * n * m", "n"),
        Entry(
            "three",
            (Port("x", "i32", ("n",)),),
            (Port("total", "i64", ()), Port("y", "i32", ("n",)), Port("negative", "bool", ("n",))),
            "0",
            "n",
        ),
        Entry("largest", (Port("x", "u64", ("n",)),), (Port("y", "u64", ()),), "0", "n"),
        Entry("any_of", (Port("x", "bool", ("n",)),), (Port("y", "bool", ()),), "0", "n"),
        Entry("answer", (), (Port("y", "i32", ()),), "0", "1"),
        Entry("forward", (vector("x", "batch", 2),), (vector("s"),), "0", "batch * 2"),
        Entry(
            "Forward",
            (vector("x", "batch", 2),),
            (vector("y", "batch", 2),),
            "batch * 8",
            "batch",
            tile=4,
            rows="batch",
        ),
        Entry("loss", (vector("x", "batch", "n"),), (vector("s"),), "0", "batch"),
    ),
    slots=(),
    state_bytes=0,
    constants=b"",
    initial=b"",
    options=Options(isas=("base",)),
)

SHAPES_KERNELS = """
#include <stdint.h>
#include <string.h>
#include "shapes.h"

#define KERNEL(name) void shapes_##name##_ISA(char *const *p, const ptrdiff_t *dim)
#define X ((const float *)p[0])
#define Y ((const float *)p[1])

KERNEL(dot)
{
    float s = 0;
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        s += X[i] * Y[i];
    }
    *(float *)p[2] = s;
}

KERNEL(odd)
{
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        ((float *)p[1])[i] = X[2 * i + 1];
    }
}

KERNEL(both)
{
    for (ptrdiff_t i = 0; i < 2 * dim[2] + 1; i++) {
        ((float *)p[2])[i] = X[i] + (i < dim[2] ? Y[i] : 0);
    }
}

KERNEL(join)
{
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        ((float *)p[2])[i] = X[i + dim[1]];
    }
}

KERNEL(grid)
{
    for (ptrdiff_t i = 0; i < dim[2] * dim[1]; i++) {
        ((float *)p[2])[i] = X[i] + Y[i / dim[1]];
    }
}

KERNEL(trace)
{
    float s = 0;
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        s += X[i * dim[2] + i];
    }
    *(float *)p[1] = s;
}

KERNEL(windows)
{
    for (ptrdiff_t i = 0; i < dim[2] - 2; i++) {
        ((float *)p[1])[i] = X[i] + X[i + 1] + X[i + 2];
    }
    for (ptrdiff_t i = 0; 2 * i + 2 < dim[2]; i++) {
        ((float *)p[2])[i] = ((const float *)p[1])[2 * i];
    }
}

KERNEL(tail)
{
    for (ptrdiff_t i = dim[1]; i < dim[2]; i++) {
        ((float *)p[2])[i - dim[1]] = X[i];
    }
}

KERNEL(inner)
{
    *(float *)p[1] = X[dim[2] - 5];
}

KERNEL(cut)
{
    for (ptrdiff_t i = 0; i < dim[0] * dim[2]; i++) {
        ((float *)p[1])[i] = X[i + i / dim[2]];
    }
}

KERNEL(power)
{
    (void)p, (void)dim;
}

KERNEL(three)
{
    const int32_t *x = (const int32_t *)p[0];
    int64_t total = 0;
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        total += x[i];
        ((int32_t *)p[2])[i] = -x[i];
        p[3][i] = x[i] < 0;
    }
    memcpy(p[1], &total, 8);
}

KERNEL(largest)
{
    uint64_t y = 0;
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        y = ((const uint64_t *)p[0])[i] > y ? ((const uint64_t *)p[0])[i] : y;
    }
    *(uint64_t *)p[1] = y;
}

KERNEL(any_of)
{
    *p[1] = 0;
    for (ptrdiff_t i = 0; i < dim[2]; i++) {
        *p[1] = (char)(*p[1] | p[0][i]);
    }
}

KERNEL(answer)
{
    (void)dim;
    *(int32_t *)p[0] = 42;
}

KERNEL(forward)
{
    float s = 0;
    for (ptrdiff_t i = 0; i < 2 * dim[0]; i++) {
        s += X[i];
    }
    *(float *)p[1] = s;
}

KERNEL(Forward)
{
    for (ptrdiff_t i = 0; i < 2 * dim[0]; i++) {
        ((float *)p[1])[i] = 10 * X[i];
    }
}

KERNEL(loss)
{
    *(float *)p[1] = (float)(dim[0] * dim[2]);
}
"""

# A frozen model with a cache: two numbers a call, four calls.
CACHE = ExtensionModule(
    name="cache",
    dims=(),
    entries=(
        Entry("push", (vector("x", 2),), (Port("position", "i64", ()),), "0", "2"),
        Entry("forward", (), (vector("y", 2),), "0", "8"),
        Entry("clear", (), (), "0", "8", doc="Start anew."),
    ),
    slots=(
        Slot("rows", "f32", (4, 2), (1, 4), 0, kind="buffer"),
        Slot("position", "i64", (), (), 64, kind="buffer"),
        Slot("table", "bf16", (3,), (1,), 128, kind="buffer"),
        Slot("half", "f16", (2, 2), (4, 2), 192, kind="buffer"),
    ),
    state_bytes=256,
    constants=b"",
    initial=bytes(128) + struct.pack("3H", 0x3F80, 0xC040, 0x7F80) + bytes(58) + struct.pack("7e", 1, 0, 2, 0, 3, 0, 4),
    options=Options(isas=("base",)),
)

CACHE_KERNELS = """
#include <stdint.h>
#include <string.h>
#include "cache.h"

void cache_push_ISA(char *const *p, const ptrdiff_t *dim)
{
    int64_t *position = (int64_t *)(p[2] + 64);
    float *rows = (float *)p[2];
    (void)dim;
    rows[*position % 4] = ((const float *)p[0])[0];
    rows[*position % 4 + 4] = ((const float *)p[0])[1];
    *position += 1;
    memcpy(p[1], position, 8);
}

void cache_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    const float *rows = (const float *)p[1];
    (void)dim;
    ((float *)p[0])[0] = rows[0] + rows[1] + rows[2] + rows[3];
    ((float *)p[0])[1] = rows[4] + rows[5] + rows[6] + rows[7];
}

void cache_clear_ISA(char *const *p, const ptrdiff_t *dim)
{
    (void)dim;
    memset(p[0], 0, 72);
}
"""

# Parameters w, a buffer that counts, and an optimizer with a moment: each step adds x to the moment, the moment to w.
MOMENTUM = ExtensionModule(
    name="momentum",
    dims=("batch",),
    entries=(
        Entry("forward", (vector("x", "batch", 2),), (vector("y", "batch", 2),), "0", "batch"),
        Entry("loss", (vector("x", "batch", 2),), (vector("s"),), "0", "batch"),
        Entry("train_step", (vector("x", "batch", 2),), (vector("s"),), "0", "batch"),
        Entry("phases", (vector("x", "batch", 2),), (vector("y", "batch", 2), vector("s")), "0", "batch"),
        Entry("update", (), (), "0", "2"),
        Entry("seen", (), (Port("count", "u32", ()),), "0", "1"),
    ),
    slots=(
        Slot("w", "f32", (2,), (1,), 0, 256),
        Slot("m.w", "f32", (2,), (1,), 128, kind="optimizer"),
        Slot("count", "u32", (), (), 64, kind="buffer"),
        Slot("step", "i64", (), (), 192, kind="optimizer"),
    ),
    state_bytes=320,
    constants=b"",
    initial=floats(1, 2) + bytes(120) + floats(0.5, 0.25) + bytes(56) + struct.pack("q", 7),
    options=Options(isas=("base",)),
)

MOMENTUM_KERNELS = """
#include <stdint.h>
#include "momentum.h"

static void outputs_ISA(const float *x, float *y, const float *w, ptrdiff_t batch)
{
    for (ptrdiff_t i = 0; i < 2 * batch; i++) {
        y[i] = x[i] * w[i % 2];
    }
}

static void update_ISA(char *state, const float *gradient)
{
    float *w = (float *)state, *m = (float *)(state + 128);
    for (ptrdiff_t k = 0; k < 2; k++) {
        m[k] += gradient[k];
        w[k] += m[k];
    }
    *(int64_t *)(state + 192) += 1;
}

void momentum_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    outputs_ISA((const float *)p[0], (float *)p[1], (const float *)p[2], dim[0]);
}

void momentum_loss_ISA(char *const *p, const ptrdiff_t *dim)
{
    *(float *)p[1] = (float)dim[0];
}

void momentum_train_step_ISA(char *const *p, const ptrdiff_t *dim)
{
    *(float *)p[1] = (float)dim[0];
    *(uint32_t *)(p[2] + 64) += 1;
    update_ISA(p[2], (const float *)p[0]);
}

void momentum_phases_ISA(char *const *p, const ptrdiff_t *dim)
{
    float *gradient = (float *)(p[3] + 256);
    outputs_ISA((const float *)p[0], (float *)p[1], (const float *)p[3], dim[0]);
    *(float *)p[2] = (float)dim[0];
    for (ptrdiff_t i = 0; i < 2 * dim[0]; i++) {
        gradient[i % 2] += ((const float *)p[0])[i];
    }
    *(uint32_t *)(p[3] + 64) += 1;
}

void momentum_update_ISA(char *const *p, const ptrdiff_t *dim)
{
    (void)dim;
    update_ISA(p[0], (const float *)(p[0] + 256));
}

void momentum_seen_ISA(char *const *p, const ptrdiff_t *dim)
{
    (void)dim;
    *(uint32_t *)p[0] = *(const uint32_t *)(p[1] + 64);
}
"""

# The numbers over 0, twice; their sum; two numbers fewer, and a rest, which the first of them says.
COUNTED = ExtensionModule(
    name="counted",
    dims=("found", "n", "rest"),
    entries=(
        Entry(
            "forward",
            (Port("x", "f32", ("n",)),),
            (
                Port("twice", "f32", (2, "found"), room="2 * n"),
                Port("total", "f64", ()),
                Port("behind", "i16", ("found - 2 + rest",), room="n + 3"),
                Port("found_", "i64", ()),
                Port("rest_", "i64", ()),
                Port("refused_", "i64", ()),
            ),
            "8 * n",
            "n",
            refusals=("a number is 13",),
            counts=(Counted("found", "n", ("found - 2",)), Counted("rest", "3")),
        ),
        Entry("plain", (Port("x", "f32", ("n",)),), (Port("y", "f32", ("n",)),), "0", "n"),
    ),
    slots=(),
    state_bytes=0,
    constants=b"",
    initial=b"",
    options=Options(isas=ISAS),
)
COUNTED_KERNELS = """
#include <stdint.h>
#include <string.h>
#include "counted.h"

void counted_forward_ISA(char *const *p, const ptrdiff_t *dim)
{
    const float *x = (const float *)p[0];
    float *twice = (float *)p[1], *work = (float *)p[9];
    int64_t found = 0, refused = 0, *const counted = (int64_t *)p[4], *const rest = (int64_t *)p[5];
    double total = 0;
    for (ptrdiff_t i = 0; i < dim[1]; i++) {
        refused |= x[i] == 13;
        if (x[i] > 0) {
            work[found++] = x[i];
            total += (double)x[i];
        }
    }
    *(double *)p[2] = total;
    *(int64_t *)p[6] = refused;
    *counted = found;
    if (found >= 2) {
        memcpy(twice, work, (size_t)found * 4);
        memcpy(twice + found, work, (size_t)found * 4);
        *rest = (int64_t)work[0];
        for (int64_t i = 0; *rest <= 3 && i < found - 2 + *rest; i++) {
            ((int16_t *)p[3])[i] = (int16_t)i;
        }
    }
}

void counted_plain_ISA(char *const *p, const ptrdiff_t *dim)
{
    memcpy(p[1], p[0], (size_t)dim[1] * 4);
}
"""

MODELS = {
    "counted": (COUNTED, COUNTED_KERNELS),
    "dtypes": (TYPES, TYPES_KERNELS),
    "shapes": (SHAPES, SHAPES_KERNELS),
    "cache": (CACHE, CACHE_KERNELS),
    "momentum": (MOMENTUM, MOMENTUM_KERNELS),
}
