"""The runtime's C under the thread sanitizer: python -m tests.runtime.races FOLDER.

Compiles some models with it, then runs threads that share them in a Python of its own, into which the sanitizer is
loaded first. Nothing else is in that process, so that every report is of the runtime.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from .. import instrumented
from . import models

FLAGS = ["-fsanitize=thread"]
CODE = """
import array, sys, threading
sys.path[:0] = sys.argv[1:]
import affine, fit, prepared

errors = []

def run(*works):
    def guarded(work):
        try:
            for _ in range(40):
                work()
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def first():  # several threads make what all models read
    assert prepared.forward(29999).item() == 59998.0

run(*[first] * 4)

model = affine.Model()
rows = [[float(i), 2.0] for i in range(64)]
expected = model.forward(rows).tolist()

def serve():
    assert model.forward(rows).tolist() == expected

def serve_long():  # without the GIL
    assert model.slow(rows).tolist() == rows

def count():
    model.set_threads(2), model.set_threads(1)

run(*[serve] * 4, *[serve_long] * 3, count)

trained = fit.Model()
x, label = array.array("d", range(90)), array.array("i", [0, 1] * 15)
x = memoryview(x).cast("b").cast("d", [30, 3])
many = memoryview(array.array("d", [0.5] * 120000)).cast("b").cast("d", [40000, 3])
labels = array.array("i", [0, 1] * 20000)

def train():
    trained.train_step(x, label, 1e-9)

def train_long():
    trained.train_step(many, labels, 1e-9)

def fit_all():
    trained.fit(x, label, 1e-9, batch=7, epochs=3)

def verbs():
    trained.set_input(x, label), trained.forward(), trained.loss()
    try:
        trained.backward()
    except ValueError:  # another thread has set an input meanwhile
        pass
    trained.update(1e-9), trained.zero_grad()

def state():
    trained.__setstate__(trained.__reduce__()[2])
    trained.set_threads(2)

run(train, train, train_long, fit_all, verbs, verbs, state, lambda: trained.forward(x), lambda: trained.data(3))
if errors:
    raise errors[0]
print("no races")
"""


def main(folder: Path) -> None:
    """Build, run, and fail where the sanitizer reports anything."""
    instrumented.FLAGS[:] = FLAGS
    instrumented.install()
    libraries = []
    for name in ("affine", "fit", "prepared"):
        module, kernels = models.MODELS[name]
        base = replace(module, options=replace(module.options, isas=("base",)))
        libraries.append(models.build(base, kernels, folder / name))
    compiler = os.environ.get("CC", "cc")
    found = subprocess.run([compiler, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    environ = os.environ | {"LD_PRELOAD": found.stdout.strip(), "TSAN_OPTIONS": "exitcode=66"}
    command = [sys.executable, "-I", "-c", CODE, *(str(library.parent) for library in libraries)]
    raise SystemExit(subprocess.run(command, env=environ, check=False).returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
