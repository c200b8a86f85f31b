"""Stands in for mlaot/generate.py in the tests of the doors: a "model" is an integer, and its module gives it back.

What the doors must get right is all here: files of every kind, a translation unit per instruction set, bytes embedded
by the assembler, the user's module imported.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from mlaot.attributes import load_attribute
from mlaot.printing.cmake import cmake_files, flag_files
from mlaot.schedule.machine import condition
from mlaot.settings import ModelSettings, Settings

NN_C = r"""
#include <stddef.h>
#include "STEM.h"
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
#include "STEM.h"
#if CONDITION
#if NUMBER == 2 && !defined(__AVX2__) || NUMBER == 4 && !defined(__AVX512VL__) || NUMBER == 1 && defined(__AVX__)
#error "wrong flags for this instruction set"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math"
#endif
int STEM_isa_ISA(void) { return NUMBER; }
#endif
"""

FACTS = """\
{"elements": {}, "golden": [], "graph": "", "info": {"entries": {}, "parameter_count": 0}, "mlaot": "0",
 "ops": {}, "weights": {"bytes": 4, "sha256": "%064d"}, "workspace": {}}
"""

NEEDY = 7919  # a model that imports Pillow

NUMBERS = {"base": 1, "neon": 1, "v3": 2, "v4": 4}


def generate(settings: Settings, project: Path, out: Path, *, python: bool = False) -> None:
    for model in settings.models:
        generate_module(settings, model, project, out / model.module)
    write(cmake_files(settings), out)


def generate_module(settings: Settings, model: ModelSettings, project: Path, out: Path) -> None:
    value = load_attribute(settings, model, "model")
    value = value() if callable(value) else value
    assert value != -1, "negative"
    stem = model.stem
    conditions = {isa: condition(isa, settings.isas) for isa in settings.isas}
    calls = "".join(f"\n#if {conditions[isa]}\n+ {stem}_isa_{isa}()\n#endif\n" for isa in settings.isas)
    kernels = {
        f"{stem}_{isa}.c": ISA_C.replace("CONDITION", conditions[isa])
        .replace("NUMBER", str(NUMBERS[isa]))
        .replace("ISA", isa)
        .replace("STEM", stem)
        for isa in settings.isas
    }
    files = {
        f"{stem}.c": NN_C.replace("CALLS", calls).replace("STEM", stem) + f"// weights.bin: {value}\n",
        f"{stem}.h": "".join(f"int {stem}_isa_{isa}(void);\n" for isa in settings.isas),
        "mlaot_abi3.h": "",
        f"{stem}.pyi": "def value() -> int: ...\ndef isas() -> int: ...\n",
        **kernels,
        "model.json": FACTS % 0 if value != NEEDY else FACTS.replace("{", '{"requires": ["pillow"], ', 1) % 0,
        **flag_files(model, settings.isas),
    }
    write(files, out)
    write({"weights.bin": struct.pack("=i", value)}, out)


def write(files: Mapping[str, str | bytes], out: Path) -> None:
    for name, content in files.items():
        path = out / name
        data = content.encode() if isinstance(content, str) else content
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def pass_report(settings: Settings, *, egraph: bool) -> str:
    return "".join(f"{model.module}: trace {load_attribute(settings, model, 'model')}\n" for model in settings.models)
