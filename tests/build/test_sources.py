"""Which files count as read by a trace, and that these are read anew."""

from __future__ import annotations

import ast
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import mlaot
from mlaot.build.sources import depfile, digest, imported_modules
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.settings.options import Options

from .conftest import Project, Python, last_line

MODEL = """\
import json
import os

from digits.numbers import digits
import mlaot.frontend.trace.files

here = os.path.dirname(__file__)
open(here + "/read.txt").close()
open(here + "/written.txt", "w").close()
open(here + "/written.txt").close()
try:
    open(here + "/missing.txt")
except FileNotFoundError:
    pass
mlaot.frontend.trace.files.load("../../../weights.safetensors")
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "a project")
    made.write("src/digits/__init__.py", "from . import app\n")
    made.write("src/digits/app.py", "from . import deep\n")
    made.write("src/digits/deep.py", "")
    made.write("src/digits/numbers.py", "def f():\n    from .late import x\n\nfrom . import late\ndigits = 1\n")
    made.write("src/digits/late.py", "")
    made.write("src/digits/read.txt", "")
    made.write("src/digits/model.py", MODEL)
    made.write("pyproject.toml", '[project]\nname = "digits"\n[tool.mlaot.models.nn]\nmodel = "digits.model:digits"\n')
    safetensors.numpy.save_file({"w": np.ones(3)}, tmp_path / "weights.safetensors")
    return made


def test_depfile_lists_all_that_was_read(project: Project, python: Python, tmp_path: Path) -> None:
    python.check("-P", "-m", "mlaot", "emit", project.path, "--out", "c", "--depfile", "a b.d", cwd=tmp_path)
    python.check("-P", "-m", "mlaot", "emit", project.path, "--out", "c", "--depfile", "a b.d", cwd=tmp_path)
    target, *files = (tmp_path / "a b.d").read_text().removesuffix("\n").split(" \\\n  ")
    assert target == "a\\ b:"
    assert "a\\ project" in files[0]
    names = sorted(Path(file.replace("\\ ", " ")).name for file in files)
    sources = ["__init__.py", "app.py", "deep.py", "late.py", "model.py", "numbers.py"]
    assert names == [*sources, "read.txt", "weights.safetensors"]


def test_digests_leave_out_what_the_model_does_not_import(project: Project, python: Python, tmp_path: Path) -> None:
    python.check("-P", "-m", "mlaot.build.child", project.path, "c", "digests.json", cwd=tmp_path)
    digests = json.loads((tmp_path / "digests.json").read_text())
    names = ["late.py", "model.py", "numbers.py", "read.txt", "weights.safetensors"]
    assert sorted(Path(path).name for path in digests) == names
    assert all(len(value) == 64 for value in digests.values())


def test_digest_of_a_file_edited_meanwhile_fits_nothing(tmp_path: Path) -> None:
    before = time.time_ns()
    (tmp_path / "file").write_text("text")
    assert digest(tmp_path / "file", before - 10**9) == ""
    assert len(digest(tmp_path / "file", time.time_ns() + 10**9)) == 64


def test_depfile_escapes() -> None:
    assert depfile("nn.c", [Path("/a b/$c#d")]) == "nn.c: \\\n  /a\\ b/$$c\\#d\n"


def test_imported() -> None:
    code = ast.parse("import a.b, z\ndef f():\n    from . import c, d\nfrom ..e import g\nfrom .. import h\n")
    assert imported_modules(code, "p.q", {"a", "a.b", "p", "p.q", "p.q.c", "p.e", "p.h"}) == {
        "a.b",
        "p.q",
        "p.q.c",
        "p.e",
        "p.h",
    }


def test_edit_of_the_same_second_and_size(project: Project, python: Python, tmp_path: Path) -> None:
    """The compiled form that Python keeps of a module, and believes by second and size, is not used."""
    numbers = project.path / "src" / "digits" / "numbers.py"
    python.check("-c", "import digits.numbers", cwd=project.path / "src", PYTHONDONTWRITEBYTECODE="")
    assert list(numbers.parent.glob("__pycache__/numbers.*"))
    stat = numbers.stat()
    numbers.write_text(numbers.read_text().replace("digits = 1", "digits = 0"))
    os.utime(numbers, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    python.check("-P", "-m", "mlaot", "emit", project.path, "--out", "c", cwd=tmp_path)
    assert (tmp_path / "c" / "digits.nn" / "weights.bin").read_bytes() == bytes(4)


def test_other_large_weights_are_other_c() -> None:
    """A build tool that knows nothing of .incbin compiles again."""

    def c_file(value: float) -> str | bytes:
        weights = np.full((200, 200), value, "f")

        @mlaot.model
        def product(x: mlaot.f32[200]):  # type: ignore[no-untyped-def,valid-type]
            return weights @ x

        return program_files(compile_model(product, "digits.nn", Options(isas=("base",))))["nn.c"]

    assert c_file(1.5) == c_file(1.5) != c_file(2.5)


def test_what_says_how_one_module_is_made_needs_its_name(project: Project, python: Python, tmp_path: Path) -> None:
    for options in (["--list"], ["--out", "c", "--model", "a:b"], ["--out", "c", "--deterministic"]):
        message = last_line(python.run("-P", "-m", "mlaot", "emit", project.path, *options, cwd=tmp_path))
        assert (
            message == "mlaot: --list and the options that describe a module need --module, such as --module digits.nn"
        )
