"""The package with onnxruntime and the one with its model compiled: ``python compare.py [FOLDER OF FILES]``.

Each is installed into an empty environment. Sizes are what lies in site-packages besides pip; times are the best of
some runs; the labels of all files must be the same.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 300  # files
OLD = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "filekind"
version = "0.9"
dependencies = ["onnxruntime"]

[tool.setuptools]
packages = ["filekind"]
package-data = { filekind = ["*.json", "*.onnx"] }
"""
USE = """\
import json, sys, time
begun = time.perf_counter()
import filekind
names = json.load(sys.stdin)
filekind.label(names[0])
first = time.perf_counter() - begun
labels, each = [], []
for name in names:
    begun = time.perf_counter()
    labels.append(filekind.label(name))
    each.append(time.perf_counter() - begun)
print(json.dumps([first, sorted(each)[len(each) // 2], labels]))
"""


def before(folder: Path) -> Path:
    """The project as it was: the model beside the code, onnxruntime as a dependency."""
    shutil.copytree(HERE / "filekind", folder / "filekind", ignore=shutil.ignore_patterns("__pycache__"))
    code = folder / "filekind" / "__init__.py"
    code.write_text(code.read_text().replace("from filekind import nn as onnxruntime", "import onnxruntime"))
    shutil.copy(HERE / "model.onnx", folder / "filekind")
    (folder / "pyproject.toml").write_text(OLD)
    return folder


def installed(project: Path, folder: Path) -> tuple[Path, float]:
    """The Python of an environment with the project in it, and the MB that came with it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    pip = size(site)
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels)]
    isolated = [] if project != HERE else ["--no-build-isolation"]
    subprocess.run([*command, *isolated, str(project)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", *map(str, wheels.glob("*.whl"))], check=True)
    return python, (size(site) - pip) / 1e6


def size(folder: Path) -> int:
    """The bytes of all files below a folder, but for compiled Python, which pip makes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")


def main() -> None:
    if not (HERE / "model.onnx").is_file():
        sys.exit("there is no model.onnx yet: python fetch.py")
    where = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("stdlib"))
    found = sorted(path for path in where.rglob("*") if path.is_file() and path.stat().st_size > 100)
    names = [str(path) for path in found[:: max(1, len(found) // LIMIT)]]
    results = {}
    with tempfile.TemporaryDirectory(prefix="filekind-") as name:
        old = Path(name, "project")
        for title, project in {"onnxruntime": before(old), "mlaot": HERE}.items():
            begun = time.perf_counter()
            python, megabytes = installed(project, Path(name, title))
            print(f"{title}: built and installed in {time.perf_counter() - begun:.0f} s", flush=True)
            runs = []
            for _ in range(5):
                command = [str(python), "-I", "-c", USE]
                done = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, check=True)
                runs.append(json.loads(done.stdout))
            first, each = (min(run[i] for run in runs) * 1e3 for i in (0, 1))
            results[title] = megabytes, first, each, runs[0][2]
    print(f"\n{'':20}{'onnxruntime':>14}{'mlaot':>10}")
    for i, (what, digits) in enumerate({"installed, MB": 1, "first answer, ms": 1, "each file, ms": 2}.items()):
        print(f"{what:20}{results['onnxruntime'][i]:14.{digits}f}{results['mlaot'][i]:10.{digits}f}")
    same = sum(a == b for a, b in zip(results["onnxruntime"][3], results["mlaot"][3], strict=True))
    kinds = len(set(results["mlaot"][3]))
    print(f"the same label for {same} of {len(names)} files of {kinds} kinds")
    if same < len(names):
        sys.exit("labels differ")


if __name__ == "__main__":
    main()
