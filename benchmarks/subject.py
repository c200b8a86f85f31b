"""Each workload as the wheel a user would build, installed into an environment; and a table of where its function is.

    python benchmarks/subject.py --python VENV/bin/python --out subject.json [--data FOLDER] [--work w2,t1]

VENV needs NumPy and nothing else. FOLDER holds ``weights_<network>.npz`` by PyTorch's names; without it the weights are
seeded. The table is ``{workload: {"python": .., "module": .., "function": ..}}``: the function takes the workload's
inputs as NumPy arrays and gives its outputs. One of a workload that trains takes images and labels, does an epoch in
order and gives the parameters in PyTorch's order; its first call starts from the given weights.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from common import out
from workloads import LEARNING_RATE, WORKLOADS, Array, chosen, network, weights_of

HERE = Path(__file__).resolve().parent
PROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "{package}"
version = "1.0"

[tool.mlaot]
source = "src"

[tool.mlaot.models.nn]
model = "model:declared"
module = "{package}.nn"
"""
MODEL = """\
from pathlib import Path

from workloads import declare

declared = declare("{name}", Path(__file__).with_name("weights.npz"))
"""
TRAINING = '''\
import numpy as np

from . import nn

PARAMETERS = {parameters}


def run(x, label):
    """One epoch in order; the parameters after it."""
    nn.fit(x, label, batch={batch}, lr={rate}, shuffle=False)
    return [np.array(nn.parameters[name]) for name in PARAMETERS]
'''


def write_project(name: str, weights: Mapping[str, Array], folder: Path) -> dict[str, str]:
    """A project of a workload; the module and the function of it that do the work."""
    work, package, source = WORKLOADS[name], f"nn_{name}", folder / "src"
    source.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(package=package))
    (source / "model.py").write_text(MODEL.format(name=name))
    for file in ("networks.py", "workloads.py"):
        shutil.copy(HERE / file, source)
    np.savez(source / "weights.npz", **weights)
    if not work.examples:
        return {"module": f"{package}.nn", "function": "forward"}
    (source / package).mkdir()
    (source / package / "__init__.py").touch()
    names = [parameter for parameter, _ in network(name, weights).named_parameters()]
    text = TRAINING.format(parameters=names, batch=work.shapes[0][0], rate=LEARNING_RATE)
    (source / package / "training.py").write_text(text)
    return {"module": f"{package}.training", "function": "run"}


def build_wheel(project: Path) -> Path:
    """The project's wheel, by pip and with the mlaot of this environment."""
    command = ("wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", project / "dist")
    subprocess.run([sys.executable, "-m", "pip", *command, project], check=True)
    return next((project / "dist").glob("*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="interpreter of the environment to install into")
    parser.add_argument("--out", type=Path, required=True, help="file for the table")
    parser.add_argument("--data", type=Path, help="folder with weights_<network>.npz")
    parser.add_argument("--work", default="", help="workloads by the start of their names, such as w2,t1")
    options = parser.parse_args()
    python = str(options.python.absolute())  # not resolved: the link is what makes it the environment's
    table = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in chosen(options.work):
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            place = write_project(name, weights_of(name, options.data), Path(folder, name))
            wheel = build_wheel(Path(folder, name))
            command = ("install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", wheel)
            subprocess.run([sys.executable, "-m", "pip", "--python", python, *command], check=True)
            size = wheel.stat().st_size / 1000
        table[name] = {"python": python, **place}
        options.out.write_text(json.dumps(table, indent=1))
        out(f"{name:16} {time.perf_counter() - started:6.1f} s {size:10,.0f} KB  {place['module']}.{place['function']}")


if __name__ == "__main__":
    main()
