"""Stands in for mlaot/generate.py in the tests of the doors: a "model" is an integer, and its module gives it back.

What the doors must get right is all here: files of every kind, a translation unit per instruction set, bytes embedded
by the assembler, the user's module imported.
"""

from __future__ import annotations

import struct
from pathlib import Path

from mlaot.build.cmake import cmake_files
from mlaot.settings import Settings, load_model

NN_C = r"""
#include <stddef.h>
#include "nn.h"
typedef struct object PyObject;
typedef PyObject *(*function)(PyObject *, PyObject *);
typedef struct { const char *name; function run; int flags; const char *doc; } PyMethodDef;
typedef struct {
    ptrdiff_t refcount; void *type; void *init; ptrdiff_t index; PyObject *copy;
    const char *name; const char *doc; ptrdiff_t size; PyMethodDef *methods; void *slots, *traverse, *clear, *free;
} PyModuleDef;
PyObject *PyModule_Create2(PyModuleDef *, int);
PyObject *PyLong_FromLong(long);
__asm__(".section .rodata\n.balign 64\nnn_weights:\n.incbin \"weights.bin\"\n.byte 0\n.text\n");
extern const int nn_weights[] __attribute__((visibility("hidden")));

static PyObject *value(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromLong(nn_weights[0]);
}

static PyObject *isas(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return PyLong_FromLong(0 CALLS);
}

static PyMethodDef methods[] = {{"value", value, 4, 0}, {"isas", isas, 4, 0}, {0, 0, 0, 0}};
static PyModuleDef definition = {1, 0, 0, 0, 0, "STEM", 0, -1, methods, 0, 0, 0, 0};

__attribute__((visibility("default"))) PyObject *PyInit_STEM(void) { return PyModule_Create2(&definition, 3); }
"""

ISA_C = """
#include "nn.h"
#if NUMBER == 2 && !defined(__AVX2__) || NUMBER == 4 && !defined(__AVX512VL__) || NUMBER == 1 && defined(__AVX__)
#error "wrong flags for this instruction set"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math"
#endif
int STEM_isa_ISA(void) { return NUMBER; }
"""

NUMBERS = {"base": 1, "v3": 2, "v4": 4}


def generate(settings: Settings, project: Path, out: Path) -> None:
    for model in settings.models:
        value = load_model(settings, model)
        value = value() if callable(value) else value
        assert value != -1, "negative"
        folder = out / model.module
        folder.mkdir(parents=True)
        stem = model.stem
        calls = "".join(f" + {stem}_isa_{isa}()" for isa in settings.isa)
        (folder / f"{stem}.c").write_text(NN_C.replace("CALLS", calls).replace("STEM", stem))
        (folder / "nn.h").write_text("".join(f"int {stem}_isa_{isa}(void);\n" for isa in settings.isa))
        for isa in settings.isa:
            text = ISA_C.replace("NUMBER", str(NUMBERS[isa])).replace("ISA", isa).replace("STEM", stem)
            (folder / f"{stem}_{isa}.c").write_text(text)
        (folder / f"{stem}.pyi").write_text("def value() -> int: ...\ndef isas() -> int: ...\n")
        (folder / "weights.bin").write_bytes(struct.pack("=i", value))
    for name, text in cmake_files(settings).items():
        (out / name).write_text(text)


def pass_report(settings: Settings, project: Path) -> str:
    return "".join(f"{model.module}: trace {load_model(settings, model)}\n" for model in settings.models)
