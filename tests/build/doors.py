"""A project behind each door: the files that docs/doors.md tells a user to write, beside ``src/digits/model.py``."""

from __future__ import annotations

import re

from .conftest import PYPROJECT, ROOT

PAGE = ROOT / "docs" / "doors.md"


def documented(language: str, word: str = "") -> str:
    """The one block of the page in that language that holds a word."""
    found: list[str] = re.findall(rf"```{language}\n([^`]*)```", PAGE.read_text(encoding="utf-8"))
    (text,) = (block for block in found if word in block)
    return text


MESON_PYPROJECT = """\
[build-system]
requires = ["meson-python", "mlaot"]
build-backend = "mesonpy"

[project]
name = "digits"
version = "1.0"

[tool.meson-python]
limited-api = true
"""

SETUPTOOLS = PYPROJECT.format(
    requires='"setuptools>=77", "mlaot"', backend="setuptools.build_meta", model="digits.model:build"
)

FAST_C = """\
#include <Python.h>
static PyObject *twice(PyObject *self, PyObject *x) { return PyNumber_Add(x, x); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, 0}, {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fast", 0, -1, methods};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&definition); }
"""
SETUP_PY = """\
from setuptools import Extension, setup
setup(ext_modules=[Extension("digits.fast", ["src/digits/fast.c"], **{options})])
"""

DOORS = {
    "mlaot.build": {
        "pyproject.toml": PYPROJECT.format(requires='"mlaot"', backend="mlaot.build", model="digits.model:build"),
    },
    "setuptools": {"pyproject.toml": SETUPTOOLS},
    "setuptools, with C of its own": {
        "pyproject.toml": SETUPTOOLS,
        "setup.py": SETUP_PY.format(options={}),
        "src/digits/fast.c": FAST_C,
    },
    "CMake": {
        "pyproject.toml": documented("toml", "scikit_build_core"),
        "CMakeLists.txt": documented("cmake", "project("),
    },
    "meson": {"pyproject.toml": MESON_PYPROJECT, "meson.build": documented("meson")},
}
