"""What is wrong around a project ends in one line too: compilers, disks, interpreters, the rest of pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from mlaot.build.platforms import ABI3, ABI3T
from mlaot.build.toolchain import check_interpreter, own_abi
from mlaot.errors import MlaotError, writing

from .conftest import PYPROJECT, ROOT, Project, Python, last_line, smallest_project

BACKENDS = ("mlaot.build", "setuptools.build_meta")
MLAOT = PYPROJECT.format(requires="", backend="mlaot.build", model="model:digits")
ABOVE = "scikit-build-core refuses an option, of -C, SKBUILD_* or [tool.scikit-build]; its message is above"


def gcc_headers() -> str:
    """The folder of the headers that are the compiler's own: all but the C library's."""
    command = ["cc", "-print-file-name=include"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


COMPILERS = {
    "blank": ({"CC": "  "}, "no C compiler: CC is '  ', which is not on PATH"),
    "misspelt": ({"CC": "no/such/gc -m64"}, "no C compiler: CC is 'no/such/gc -m64', which is not on PATH"),
    **{
        f"no compiler but {command}": (
            {"CC": command},
            f"the C compiler {command!r} does not work: it made no library of a few lines of C, and gave no error;"
            " mlaot needs gcc or clang",
        )
        for command in ("true", "echo -n", "sh -c :", "sh -c 'head -c 999 /dev/urandom; head -c 999 /dev/urandom >&2'")
    },
    "false": ({"CC": "false"}, "the C compiler 'false' does not work: exit status 1"),
    "one that waits for its input": (
        {"CC": "sh -c cat"},
        "the C compiler 'sh -c cat' does not work: it made no library of a few lines of C, and gave no error; mlaot"
        " needs gcc or clang",
    ),
    "one that says nothing": (
        {"CC": "sh -c 'cc \"$@\" >/dev/null' cc"},
        "the C compiler ... does not work: it does not list its macros with -dM -E -x c /dev/null; mlaot needs gcc or"
        " clang",
    ),
    "a folder": ({"CC": "/usr/bin"}, "no C compiler: CC is '/usr/bin', which is not on PATH"),
    "quotes": ({"CC": 'cc "'}, "the environment variable CC is 'cc \"': no closing quotation"),
    "quotes in flags": ({"CFLAGS": "-D'"}, 'the environment variable CFLAGS is "-D\'": no closing quotation'),
    "no such flag": (
        {"CC": "cc", "CFLAGS": "--no-such"},
        "the C compiler 'cc' does not work with CFLAGS='--no-such': ...error...--no-such...",
    ),
    "no such library": (
        {"CC": "cc", "LDFLAGS": "-lno-such"},
        "the C compiler 'cc' does not work with LDFLAGS='-lno-such': ...-lno-such...",
    ),
    "C++": (
        {"CC": "c++"},
        "the C compiler 'c++' does not work: trial.c:2:2: error: ...this compiles C++; CC must be a C compiler",
    ),
    "no headers": (
        {"CC": f"cc -nostdinc -isystem {gcc_headers()}"},
        f"the C compiler 'cc -nostdinc -isystem {gcc_headers()}' does not work: trial.c:5:10: ...string.h...; install"
        " the C library's headers (Debian: apt install libc6-dev, Alpine: apk add musl-dev)",
    ),
    "not a program": ({"CC": str(Path(__file__))}, f"no C compiler: CC is '{__file__}', which is not on PATH"),
}


FEW = ("blank", "quotes in flags", "no such flag")  # both backends ask one function for the compiler


@pytest.mark.parametrize(
    ("backend", "case"), [*product(BACKENDS[:1], COMPILERS), *product(BACKENDS[1:], FEW)], ids=lambda value: value
)
def test_compiler(project: Project, python: Python, backend: str, case: str) -> None:
    environ, message = COMPILERS[case]
    if case == "C++" and not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    result = python.hook(project, "build_wheel", str(project.path), **environ, LC_ALL="C")
    # What the compiler says is its own: ... stands for it.
    assert re.fullmatch(".*".join(map(re.escape, f"mlaot: {message}".split("..."))), last_line(result))
    assert result.returncode == 1
    assert not list(project.path.glob("*.whl"))


def test_compiler_for_another_machine(project: Project, python: Python, tmp_path: Path) -> None:
    (tmp_path / "cc").write_bytes(b"\x7fELF no program")
    (tmp_path / "cc").chmod(0o755)
    message = last_line(python.hook(project, "build_wheel", str(project.path), CC=str(tmp_path / "cc")))
    cc = tmp_path / "cc"
    assert message == f"mlaot: the C compiler '{cc}' does not work: {cc}: Exec format error"


VERSION = 'version = "1.0"\n'
PROJECT_TABLES = {
    "no version": (
        MLAOT.replace(VERSION, ""),
        'pyproject.toml: Field "project.version" missing and \'version\' not specified in "project.dynamic"',
    ),
    "no such version": (
        MLAOT.replace("1.0", "one"),
        "pyproject.toml: Field \"project.version\" is an invalid PEP 440 version string (got 'one')",
    ),
    "missing README": (
        MLAOT.replace(VERSION, VERSION + 'readme = "README.md"\n'),
        "pyproject.toml: Readme file not found ('README.md')",
    ),
    "missing license": (
        MLAOT.replace(VERSION, VERSION + 'license-files = ["LICENCE"]\n'),
        "pyproject.toml: Every pattern in \"project.license-files\" must match at least one file: 'LICENCE' did not"
        " match any",
    ),
    "unknown key": (
        MLAOT.replace(VERSION, VERSION + "dependancies = []\n"),
        "pyproject.toml: Extra keys present in \"project\": 'dependancies'",
    ),
    "version from nowhere": (
        MLAOT.replace(VERSION, 'dynamic = ["version"]\n'),
        "pyproject.toml: project.version is not specified, must be statically present or tool.scikit-build"
        " metadata.version.provider configured when dynamic",
    ),
    "no such tag": (
        MLAOT + '[tool.scikit-build]\nwheel.py-api = "cp3"\n',
        "pyproject.toml: Unexpected py-api, must be abi3 (e.g. cp39), abi3t (e.g. cp315t), or Pythonless (e.g."
        " py2.py3), not cp3",
    ),
    "future scikit-build-core": (
        MLAOT + '[tool.scikit-build]\nminimum-version = "99"\n',
        f"scikit-build-core version {metadata.version('scikit-build-core')} is too old. Minimum required version is"
        " 99.",
    ),
    "two mistakes": (
        MLAOT.replace(VERSION, 'readme = "README.md"\n'),
        'pyproject.toml: Field "project.version" missing and \'version\' not specified in "project.dynamic";'
        " Readme file not found ('README.md')",
    ),
    "unknown key of scikit-build": (MLAOT + '[tool.scikit-build]\ncmake.verison = "3"\n', ABOVE),
    "wrong type for scikit-build": (
        MLAOT + '[tool.scikit-build]\nwheel.packages = "digits"\n',
        "pyproject.toml: Expected typing.Union[list[str], dict[str, str], NoneType], got str"
        " Field tool.scikit-build.wheel.packages",
    ),
}


@pytest.mark.parametrize(
    ("hook", "case"),
    [
        *product(("build_wheel", "prepare_metadata_for_build_wheel"), PROJECT_TABLES),
        *product(["build_sdist"], ("two mistakes", "unknown key of scikit-build")),  # it checks as build_wheel does
    ],
    ids=lambda value: value,
)
def test_other_tables_are_checked_before_tracing(project: Project, python: Python, hook: str, case: str) -> None:
    text, message = PROJECT_TABLES[case]
    project.write("pyproject.toml", text)
    project.write("model.py", "raise SystemExit('traced')\n")
    result = python.hook(project, hook, str(project.path))
    assert last_line(result) == f"mlaot: {message}"
    assert result.returncode == 1


def test_misspelt_option(project: Project, python: Python) -> None:
    result = python.hook(project, "build_wheel", str(project.path), {"cmake.verison": "3"})
    assert last_line(result) == f"mlaot: {ABOVE}"
    assert "cmake.verison -> Did you mean: cmake.version" in result.stdout + result.stderr


def test_a_wheel_is_never_without_its_module(project: Project, python: Python) -> None:
    for option in ("wheel.cmake = true", 'wheel.exclude = ["**.so"]', 'wheel.exclude = ["digits/*"]'):
        project.write("pyproject.toml", f"{MLAOT}[tool.scikit-build]\n{option}\n")
        with zipfile.ZipFile(python.wheel(project)) as wheel:
            assert "digits/nn.abi3.so" in wheel.namelist()


def test_wheels_that_cannot_be_written(project: Project, python: Python) -> None:
    project.write("wheels", "")
    result = python.hook(project, "build_wheel", "wheels")
    wheel = f"digits-1.0-cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}.whl"
    assert last_line(result) == f"mlaot: the build failed: [Errno 20] Not a directory: 'wheels/{wheel}'"


def test_misspelt_variable_of_scikit_build(project: Project, python: Python) -> None:
    result = python.hook(project, "build_wheel", str(project.path), SKBUILD_CMAKE_VERBOSE="1")
    assert last_line(result) == f"mlaot: {ABOVE}"


@pytest.mark.parametrize(
    ("backend", "said"), [("mlaot.buld", "mlaot.buld"), ("mlaot", "prepare_metadata_for_build_wheel")]
)
def test_pip_names_a_misspelt_backend(project: Project, python: Python, backend: str, said: str) -> None:
    project.write("pyproject.toml", MLAOT.replace('"mlaot.build"', f'"{backend}"'))
    result = python.run("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", ".", cwd=project.path)
    assert result.returncode
    assert said in result.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_file_in_the_way_of_the_generated_c(project: Project, python: Python, backend: str) -> None:
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    project.write("build/mlaot", "")
    result = python.hook(project, "build_wheel", str(project.path))
    folder = f"{project.path}/" if backend.startswith("setuptools") else ""
    assert last_line(result) == f"mlaot: cannot write {folder}build/mlaot: File exists"
    assert result.returncode == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_full_disk(project: Project, python: Python, backend: str) -> None:
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    (project.path / "build" / "mlaot").mkdir(parents=True)
    (project.path / "build" / "mlaot" / ".gitignore").symlink_to("/dev/full")
    result = python.hook(project, "build_wheel", str(project.path))
    assert last_line(result) == "mlaot: cannot write build/mlaot: No space left on device"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="root may write everywhere")
def test_read_only_folder(project: Project, python: Python) -> None:
    project.path.chmod(0o555)
    code = "import mlaot.build as b; b.build_wheel('wheels')"
    powerless = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    command = [*powerless, str(python.executable), "-P", "-c", code]
    result = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert last_line(result) == "mlaot: cannot write build: Permission denied"
    assert result.returncode == 1


def test_disk_that_fills_up_while_the_c_is_written(tmp_path: Path) -> None:
    """A limit on the size of files stands in for it."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    code += "; import sys; from mlaot.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-B", "-c", code, "emit", str(ROOT / "examples" / "xor"), "--out", str(tmp_path / "c")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert last_line(result) == f"mlaot: cannot write {tmp_path}/c/xor.nn/nn.c: File too large"
    assert result.returncode == 1


def test_error_without_a_file_name_tells_what_was_written(tmp_path: Path) -> None:
    with pytest.raises(MlaotError, match=f"^cannot write {tmp_path}: No space left on device$"), writing(tmp_path):
        raise OSError(28, "No space left on device")


COMMANDS = {
    "folder that is not there": (["emit", "typo", "--out", "c"], "no pyproject.toml in typo"),
    "file for a folder": (
        ["emit", ".", "--out", "model.py/c"],
        "cannot write model.py/c/digits.nn: Not a directory",
    ),
    "module that is not there": (
        ["passes", "modle:digits"],
        "no module 'modle' in folder '.'; the model asked for is 'modle:digits'; did you mean 'model'?",
    ),
    "no module:attribute": (["passes", "model:a:b"], "expected module:attribute or an ONNX file, got 'model:a:b'"),
    "nothing to tune": (["tune", "typo"], "no pyproject.toml in typo"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_command(project: Project, case: str) -> None:
    arguments, message = COMMANDS[case]
    project.write("model.py", "from mlaot.micrograd import MLP\ndigits = MLP(2, [1])\n")
    command = [sys.executable, "-m", "mlaot", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=project.path, env=env, capture_output=True, text=True, check=False)
    assert last_line(result) == f"mlaot: {message}"
    assert result.returncode == 1


def test_misspelt_pass(project: Project) -> None:
    project.write("model.py", "from mlaot.micrograd import MLP\ndigits = MLP(2, [1])\n")
    env = os.environ | {"PYTHONPATH": str(ROOT), "MLAOT_DUMP": "simplfy"}
    command = [sys.executable, "-m", "mlaot", "passes", "."]
    result = subprocess.run(command, cwd=project.path, env=env, capture_output=True, text=True, check=False)
    assert last_line(result) == (
        "mlaot: the environment variable MLAOT_DUMP is 'simplfy', which is no pass; did you mean 'simplify'?"
    )


def test_broken_toml_where_a_command_runs(project: Project, python: Python) -> None:
    """scikit-build-core reads that file when it is imported."""
    project.write("pyproject.toml", "tool = 3\n")
    message = "mlaot: [tool] of pyproject.toml must be a table, got 3"
    for hook in ("build_wheel", "get_requires_for_build_wheel"):
        assert last_line(python.hook(project, hook, *[str(project.path)] * (hook == "build_wheel"))) == message
    result = python.run("-P", "-m", "mlaot", "emit", ".", "--out", "c", cwd=project.path)
    assert last_line(result) == message


class Version(NamedTuple):
    """What is asked of sys.version_info."""

    major: int
    minor: int


def test_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this Python is decides which one the wheel is for, or that there is none for it."""
    check_interpreter()
    assert own_abi() == ABI3
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    monkeypatch.setattr(sys, "version_info", Version(3, 14))
    with pytest.raises(MlaotError) as error:
        check_interpreter()
    assert str(error.value) == (
        "a compiled model needs CPython with the GIL, or free-threaded CPython 3.15 or later;"
        f" {sys.executable} is free-threaded 3.14: build with another Python"
    )
    monkeypatch.setattr(sys, "version_info", Version(3, 15))
    check_interpreter()
    assert own_abi() == ABI3T
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    with pytest.raises(MlaotError, match=f"a compiled model needs CPython; {sys.executable} is pypy: build with"):
        check_interpreter()


@pytest.fixture(scope="module")
def sdist(python: Python, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the smallest project."""
    project = smallest_project(tmp_path_factory.mktemp("sdist") / "project")
    result = python.hook(project, "build_sdist", str(project.path.parent))
    assert result.returncode == 0, result.stderr
    return project.path.parent / "digits-1.0.tar.gz"


@pytest.fixture
def unpacked(sdist: Path, tmp_path: Path) -> Project:
    """An sdist, unpacked."""
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    return Project(tmp_path / "digits-1.0")


@pytest.mark.parametrize(
    ("name", "text", "state"),
    [
        ("digits.nn/nn.c", "", "changed"),
        ("digits.nn/nn_base.c", None, "lost"),
        ("digits.nn/weights.bin", "\0", "changed"),
        ("CMakeLists.txt", "", "changed"),
        ("SHA256SUMS", None, "lost"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_damaged_sdist(
    unpacked: Project, python: Python, backend: str, name: str, text: str | None, state: str
) -> None:
    unpacked.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    (unpacked.path / "_mlaot" / name).unlink()
    if text is not None:
        unpacked.write(f"_mlaot/{name}", text)
    result = python.hook(unpacked, "build_wheel", str(unpacked.path))
    assert last_line(result) == (
        f"mlaot: _mlaot/{name}, which came with the sdist, is {state}; unpack the sdist anew, or delete _mlaot to trace"
        " the model again"
    )
    assert result.returncode == 1
