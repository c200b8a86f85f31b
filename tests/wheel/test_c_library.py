"""C and C++ programs that find the library of a wheel, or of a CMake build, and call it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import EXAMPLES, Project, Python, Site, copy_project, load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiles with gcc")

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
LANGUAGES = {"main.c": ("gcc", "-std=c11"), "main.cpp": ("g++", "-std=c++17")}
SANITIZE = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FIXED = "0 xor 0 = 0\n0 xor 1 = 1\n1 xor 0 = 1\n1 xor 1 = 0\n"
ADD_MODULE = """\
cmake_minimum_required(VERSION 3.21)
project(gates LANGUAGES C)
find_package(mlaot CONFIG REQUIRED)
mlaot_add_module(fixed MODEL model:fixed C_LIBRARY)
add_executable(program main.c)
target_link_libraries(program PRIVATE gates::fixed)
"""
# Eight threads, each with a workspace and a state of its own, must all come to the same numbers.
THREADS = """\
#include <gates_fixed.h>
#include <gates_learning.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const float X[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
static const double D[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, Y[4] = {0, 1, 1, 0};

static void *work(void *given)
{
    double *answers = given, loss;
    float fixed[4];
    void *state = aligned_alloc(64, GATES_LEARNING_STATE_BYTES);
    void *few = malloc(gates_fixed_forward_workspace(4)), *many = malloc(gates_learning_train_step_workspace(4));
    void *some = malloc(gates_learning_forward_workspace(4));
    int bad = gates_learning_state_init(state);
    for (int k = 0; k < 2000; k++) {
        bad |= gates_fixed_forward(gates_fixed_select(NULL), 4, X[0], fixed, few);
        bad |= fixed[0] != 0 || fixed[1] != 1 || fixed[2] != 1 || fixed[3] != 0;
        bad |= gates_learning_train_step(gates_learning_select(NULL), state, 4, D[0], Y, 0.1, &loss, many);
    }
    bad |= gates_learning_forward(gates_learning_select(NULL), state, 4, D[0], answers, some);
    free(state), free(few), free(many), free(some);
    return bad ? given : NULL;
}

int main(void)
{
    pthread_t threads[8];
    double answers[8][4];
    for (int i = 0; i < 8; i++) {
        pthread_create(&threads[i], NULL, work, answers[i]);
    }
    for (int i = 0; i < 8; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        if (bad != NULL || memcmp(answers[i], answers[0], sizeof answers[0]) != 0) {
            return 1;
        }
    }
    return 0;
}
"""


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def library_of(site: Path, model: str) -> tuple[str, Path]:
    return f"-I{site}/gates/include", site / "gates" / "lib" / f"libgates_{model}.a"


def learned(site: Path) -> str:
    """What main.cpp must print, by the Python module of the same wheel."""
    model, lines = load(site, "gates.learning").Model(), []
    inputs, targets, done, step = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0], False, 0
    while not done:
        loss = model.train_step(inputs, targets, lr=0.1)
        answers = model.forward(inputs).tolist()
        done = all(abs(answer - target) < 0.1 for answer, target in zip(answers, targets, strict=True))
        if done or step % 20 == 0:
            lines.append(f"step {step:3}   loss {loss:.17g}\n")
        step += 1
    return "".join(
        [*lines, *(f"{a} xor {b} = {answer:.17g}\n" for (a, b), answer in zip(inputs, answers, strict=True))]
    )


def test_programs_of_the_example(site: Site, tmp_path: Path) -> None:
    """Compiled as strictly as can be; their answers are the Python module's to the last bit."""
    found = site("gates")
    for (source, compiler), (model, expected) in zip(
        LANGUAGES.items(), {"fixed": FIXED, "learning": learned(found)}.items(), strict=True
    ):
        include, library = library_of(found, model)
        run(*compiler, *STRICT, EXAMPLES / "c" / source, include, library, "-o", model, cwd=tmp_path)
        assert run(tmp_path / model, cwd=tmp_path) == expected


def test_find_package(site: Site, tmp_path: Path) -> None:
    """From the folder of the package, as its page says, and from site-packages, where scikit-build-core looks."""
    found = shutil.copytree(site("gates"), tmp_path / "moved")
    run("cmake", "-S", EXAMPLES / "c", "-B", "build", f"-Dgates_ROOT={found / 'gates'}", cwd=tmp_path)
    run("cmake", "build", "-Ugates_*", f"-DCMAKE_PREFIX_PATH={found}", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    assert run(tmp_path / "build" / "fixed", cwd=tmp_path) == FIXED
    assert run(tmp_path / "build" / "learning", cwd=tmp_path) == learned(found)


def test_threads_and_two_models_in_a_program(site: Site, tmp_path: Path) -> None:
    (tmp_path / "threads.c").write_text(THREADS)
    include, fixed = library_of(site("gates"), "fixed")
    libraries = (fixed, library_of(site("gates"), "learning")[1])
    run("gcc", "-std=c11", *STRICT, "threads.c", include, *libraries, "-pthread", "-o", "threads", cwd=tmp_path)
    run(tmp_path / "threads", cwd=tmp_path)


def test_sanitizers(builder: Python, site: Site, tmp_path: Path) -> None:
    """The programs and all of the generated C below them, from an sdist's worth of files."""
    project = copy_project(EXAMPLES / "c", tmp_path / "project")
    text = (project.path / "pyproject.toml").read_text()
    project.write("pyproject.toml", f'{text}\n[tool.mlaot]\nisa = ["base"]\n')
    builder.check("-m", "mlaot", "emit", ".", "--out", "c", cwd=project.path)
    for (source, compiler), model in zip(LANGUAGES.items(), ("fixed", "learning"), strict=True):
        folder = project.path / "c" / f"gates.{model}"
        objects = []
        for unit in (f"{model}_c", f"{model}_base"):
            objects.append(f"{unit}.o")
            run("gcc", f"@{unit}.flags", "-O1", *SANITIZE, "-w", "-c", f"{unit}.c", "-o", objects[-1], cwd=folder)
        run(*compiler, *SANITIZE, EXAMPLES / "c" / source, "-I.", *objects, "-o", "program", cwd=folder)
        run(folder / "program", cwd=folder)


def test_cmake_target(builder: Python, tmp_path: Path) -> None:
    """``mlaot_add_module(.. C_LIBRARY)``: the same name as an installed wheel's."""
    project = copy_project(EXAMPLES / "c", tmp_path / "project")
    (project.path / "pyproject.toml").unlink()
    project.write("CMakeLists.txt", ADD_MODULE)
    root = builder.check("-P", "-m", "mlaot", "--cmake-dir", cwd=tmp_path).strip()
    options = (f"-Dmlaot_ROOT={root}", f"-DPython_EXECUTABLE={builder.executable}", "-DMLAOT_WERROR=ON")
    run("cmake", "-S", ".", "-B", "build", *options, cwd=project.path)
    run("cmake", "--build", "build", cwd=project.path)
    assert run(project.path / "build" / "program", cwd=project.path) == FIXED


def test_ar_is_needed(builder: Python, tmp_path: Path) -> None:
    """A compiler without ar makes modules, and says in one line what it lacks for this."""
    project = Project(tmp_path / "project")
    project.write("cc", '#!/bin/sh\ncase "$*" in *print-prog-name=ar*) echo no-such-ar;; *) exec gcc "$@";; esac\n')
    (project.path / "cc").chmod(0o755)
    code = "from mlaot.build.toolchain import *; archiver(find_toolchain())"
    done = builder.run("-c", code, cwd=project.path, CC=str(project.path / "cc"))
    assert "c_library needs ar, and" in done.stderr.splitlines()[-1]
    assert "knows none: got 'no-such-ar'; install binutils" in done.stderr.splitlines()[-1]
