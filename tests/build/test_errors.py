"""What goes wrong in a build ends in one line, the last, without a traceback of mlaot."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from .conftest import PYPROJECT, Project, Python, last_line

MLAOT = PYPROJECT.format(requires="", backend="mlaot.build", model="model:digits")
SETUPTOOLS = PYPROJECT.format(requires="", backend="setuptools.build_meta", model="model:digits")
WHERE = "key 'model' in [tool.mlaot.models.nn] of pyproject.toml is"

MODELS = {
    "missing package": (
        "import numpy\n\nimport a_framework.nn\n",
        "mlaot: model.py:3: No module named 'a_framework'; add it to `requires` in [tool.mlaot] of pyproject.toml",
    ),
    "missing module of the project": (
        "import helpers.digits\n",
        "mlaot: model.py:1: No module named 'helpers.digits'; 'helpers' is not a package",
    ),
    "missing attribute": (
        "digit = 1\n",
        f"mlaot: 'model' has no attribute 'digits'; {WHERE} 'model:digits'; did you mean 'digit'?",
    ),
    "raises": (
        "def f(x):\n    return 1 / x\n\ndigits = f(0)\n",
        "mlaot: model.py:2: ZeroDivisionError: division by zero",
    ),
    "raises several lines": ("raise ValueError('one\\ntwo')\n", "mlaot: model.py:1: ValueError: one two"),
    "raises inside a library": (
        "import json\ndigits = json.loads('')\n",
        "mlaot: model.py:2: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ),
    "raises in the compiled function": (
        "def digits():\n    raise KeyError('w1')\n",
        "mlaot: model.py:2: KeyError: 'w1'",
    ),
    "mlaot's own error": (
        "from mlaot.errors import MlaotError\ndef digits():\n    raise MlaotError('cannot do that')\n",
        "mlaot: model.py:3: cannot do that",
    ),
    "misspelt name": ("digits = nmupy.zeros(3)\n", "mlaot: model.py:1: NameError: name 'nmupy' is not defined"),
    "misspelt function": (
        "import json\njson.lods('')\n",
        "mlaot: model.py:2: AttributeError: module 'json' has no attribute 'lods'",
    ),
    "missing file": (
        "digits = open('w.bin')\n",
        "mlaot: model.py:1: FileNotFoundError: [Errno 2] No such file or directory: 'w.bin'",
    ),
    "relative import without a package": (
        "from . import weights\n",
        "mlaot: model.py:1: ImportError: attempted relative import with no known parent package",
    ),
    "imports itself": (
        "import model\ndigits = model.other\n",
        "mlaot: model.py:2: AttributeError: partially initialized module 'model' has no attribute 'other' (most likely"
        " due to a circular import)",
    ),
    "endless recursion": (
        "import sys\nsys.setrecursionlimit(100)\ndef f(): return f()\ndigits = f()\n",
        "mlaot: model.py:3: RecursionError: maximum recursion depth exceeded",
    ),
    "out of memory": ("digits = ' ' * 2**62\n", "mlaot: model.py:1: MemoryError"),
    "raises in another file": ("from helpers import f\ndigits = f()\n", "mlaot: helpers.py:2: ValueError: helpless"),
    "empty file": ("", f"mlaot: 'model' has no attribute 'digits'; {WHERE} 'model:digits'"),
    "indentation": ("digits = 1\n  x = 2\n", "mlaot: model.py:2: IndentationError: unexpected indent"),
    "uses the package not yet built": (
        "import digits.nn\n",
        "mlaot: model.py:1: No module named 'digits'; 'digits' is what this build makes, and the model cannot use it",
    ),
    "syntax error": ("digits = (\n", "mlaot: model.py:1: SyntaxError: '(' was never closed"),
    "exits": ("import sys\nsys.exit(3)\n", "mlaot: model.py:2: SystemExit: 3"),
    "exits without a word": ("raise SystemExit\n", "mlaot: model.py:1: SystemExit"),
    "interrupts itself": ("raise KeyboardInterrupt\n", "mlaot: model.py:1: KeyboardInterrupt"),
    "is no Exception": ("class E(BaseException): pass\nraise E('a\\nb')\n", "mlaot: model.py:2: E: a b"),
    "an error without a text": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E\n",
        "mlaot: model.py:3: E",
    ),
    "closes where errors go": (
        "import sys\nsys.stderr.close()\n1 / 0\n",
        "mlaot: model.py:3: ZeroDivisionError: division by zero",
    ),
    "closes it for all": ("import os\nos.close(2)\n1 / 0\n", "mlaot: model.py:3: ZeroDivisionError: division by zero"),
    "has nowhere to print": (
        "import sys\nsys.stdout = sys.stderr = None\n1 / 0\n",
        "mlaot: model.py:3: ZeroDivisionError: division by zero",
    ),
    "breaks built-in functions": (
        "import builtins\nbuiltins.print = builtins.len = None\nbuiltins.isinstance = lambda *_: True\n1 / 0\n",
        "mlaot: model.py:4: ZeroDivisionError: division by zero",
    ),
    "forgets all modules": (
        "import sys\nsys.modules.clear()\n",
        f"mlaot: the module 'model' took itself out of sys.modules; {WHERE} 'model:digits'",
    ),
    "assertion": ("assert 1 > 2\n", "mlaot: model.py:1: AssertionError"),
    "uses the module not yet built": (
        "from digits import nn\ndigits = nn.forward(1)\n",
        "mlaot: model.py:2: digits.nn.forward is used while digits.nn is being built",
    ),
    "reads the module not yet built": (
        "from digits import nn\ndigits = nn.parameters['w']\n",
        "mlaot: model.py:2: digits.nn.parameters is used while digits.nn is being built",
    ),
}


@pytest.mark.parametrize(("text", "message"), MODELS.values(), ids=MODELS)
def test_mistake_in_the_model(project: Project, python: Python, text: str, message: str) -> None:
    project.write("model.py", text)
    project.write("helpers.py", "def f():\n    raise ValueError('helpless')\n")
    if "digits import nn" in text:
        project.write("digits/__init__.py", "")
    result = python.run("-P", "-m", "mlaot.build.child", project.path, project.path / "out", cwd=project.path.parent)
    assert last_line(result) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [("'text'", "error: required argument is not an integer"), ("-1", "bug in mlaot: AssertionError: negative")],
)
def test_fault_of_mlaot_keeps_its_traceback(project: Project, python: Python, value: str, message: str) -> None:
    project.write("model.py", f"digits = {value}\n")
    result = python.hook(project, "build_wheel", str(project.path))
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert result.stderr.endswith(f"\nmlaot: {message}\n")


@pytest.mark.parametrize("name", ["json", "mlaot", "sys", "random"])
def test_a_model_file_whose_name_another_module_has(project: Project, python: Python, name: str) -> None:
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend="mlaot.build", model=f"{name}:digits"))
    project.write(f"{name}.py", "digits = 1\n")
    result = python.run("-P", "-m", "mlaot.build.child", project.path, project.path / "out", cwd=project.path)
    assert last_line(result) == (
        f"mlaot: {WHERE} '{name}:digits', but {name}.py is hidden by another module of that name;"
        " give the file another name"
    )


def test_missing_module(project: Project, python: Python) -> None:
    (project.path / "model.py").unlink()
    message = last_line(python.hook(project, "build_wheel", str(project.path)))
    assert message == f"mlaot: no module 'model' in folder '.'; {WHERE} 'model:digits'"


@pytest.mark.parametrize("model", ["model.py:digits", "src.model:digits"])
def test_path_for_a_module(project: Project, python: Python, model: str) -> None:
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend="mlaot.build", model=model))
    project.write("src/model.py", "")
    result = python.run("-P", "-m", "mlaot.build.child", project.path, project.path / "out", cwd=project.path)
    missing = model.partition(":")[0] if ".py" in model else "src"
    hint = "did you mean 'model:digits'?"
    assert last_line(result) == f"mlaot: no module {missing!r} in folder 'src'; {WHERE} {model!r}; {hint}"


def test_requirement_that_is_listed_but_not_installed(project: Project, python: Python) -> None:
    project.write("pyproject.toml", MLAOT + '[tool.mlaot]\nrequires = ["A-Framework>=2"]\n')
    project.write("model.py", "import a_framework\n")
    assert last_line(python.hook(project, "build_wheel", str(project.path))) == (
        "mlaot: model.py:1: No module named 'a_framework'; `requires` in [tool.mlaot] of pyproject.toml has it: without"
        " build isolation, install it yourself"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os._exit(0)", "tracing ended with status 0 and no message; the model must not call os._exit"),
        ("os._exit(3)", "tracing ended with status 3 and no message; the model must not call os._exit"),
        ("os.kill(os.getpid(), 9)", "tracing was killed by signal 9, perhaps because memory ran out"),
        ("os.kill(os.getpid(), 11)", "tracing was killed by signal 11"),
    ],
)
@pytest.mark.parametrize("hook", ["build_wheel", "build_sdist"])
def test_tracing_that_ends_without_a_word(project: Project, python: Python, hook: str, code: str, message: str) -> None:
    project.write("model.py", f"import os\n{code}\n")
    assert last_line(python.hook(project, hook, str(project.path))) == f"mlaot: {message}"


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable", "build_sdist"])
@pytest.mark.parametrize("pyproject", [None, SETUPTOOLS], ids=["mlaot", "setuptools"])
def test_each_hook_ends_with_the_line(project: Project, python: Python, hook: str, pyproject: str | None) -> None:
    project.write("model.py", "import atexit, os\natexit.register(os.write, 2, b'noise')\nimport a_framework\n")
    if pyproject:
        project.write("pyproject.toml", pyproject)
        project.write("digits/__init__.py", "")
    table = "[build-system]" if pyproject else "[tool.mlaot]"
    message = last_line(python.hook(project, hook, str(project.path)))
    hint = f"add it to `requires` in {table} of pyproject.toml"
    assert message == f"mlaot: model.py:3: No module named 'a_framework'; {hint}"
    assert not list((project.path / "build" / "mlaot").glob("c*"))


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_sdist", "build_wheel"])
@pytest.mark.parametrize("backend", ["mlaot.build", "setuptools.build_meta"])
def test_mistake_in_the_settings(project: Project, python: Python, hook: str, backend: str) -> None:
    text = PYPROJECT.format(requires="", backend=backend, model="model:digits").replace("\nmodel =", "\nmodle =")
    project.write("pyproject.toml", text)
    message = last_line(python.hook(project, hook, *([str(project.path)] if hook == "build_wheel" else [])))
    assert message == "mlaot: unknown key 'modle' in [tool.mlaot.models.nn] of pyproject.toml; did you mean 'model'?"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with everything that a build needs, but no compiler."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("ld", "as", "sh"):
        if found := shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/bin:/bin"):
            (folder / name).symlink_to(Path(found).resolve())
    return folder


@pytest.mark.parametrize("backend", ["mlaot.build", "setuptools.build_meta"])
def test_no_compiler(project: Project, python: Python, tools: Path, no_zig: str, backend: str) -> None:
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    message = last_line(python.hook(project, "build_wheel", str(project.path), PATH=str(tools), PYTHONPATH=no_zig))
    assert message.startswith("mlaot: no C compiler: looked for $CC, cc, gcc and clang on PATH; install one")
    assert message.endswith("pip install 'ziglang>=0.17,<0.18'")
    message = last_line(python.hook(project, "build_wheel", str(project.path), CC="/no/such/cc -m64"))
    assert message == "mlaot: no C compiler: CC is '/no/such/cc -m64', which is not on PATH"


def test_broken_compiler(project: Project, python: Python, tools: Path) -> None:
    (tools / "cc").write_text("#!/bin/sh\necho 'cc: fatal error: cannot execute cc1' >&2\nexit 1\n")
    (tools / "cc").chmod(0o755)
    message = last_line(python.hook(project, "build_wheel", str(project.path), PATH=str(tools)))
    assert message == "mlaot: the C compiler 'cc' does not work: cc: fatal error: cannot execute cc1"


@pytest.mark.parametrize("backend", ["mlaot.build", "setuptools.build_meta"])
def test_c_that_does_not_compile(project: Project, python: Python, backend: str) -> None:
    project.write("pyproject.toml", PYPROJECT.format(requires="", backend=backend, model="model:digits"))
    message = last_line(python.hook(project, "build_wheel", str(project.path), CFLAGS="-Dvalue=+"))
    assert message.startswith("mlaot: ")


def test_entry_point_config_switched_off(project: Project, python: Python) -> None:
    message = last_line(python.hook(project, "build_wheel", str(project.path), SKBUILD_NO_ENTRYPOINT_CONFIG="1"))
    assert message == "mlaot: mlaot.build cannot work while SKBUILD_NO_ENTRYPOINT_CONFIG is set; unset it"


def test_setuptools_editable_install_without_a_package(project: Project, python: Python) -> None:
    project.write("pyproject.toml", SETUPTOOLS)
    message = last_line(python.hook(project, "build_editable", str(project.path)))
    assert message == "mlaot: an editable install with setuptools needs the folder digits with an __init__.py"


def test_pip_shows_the_line(project: Project, python: Python, tmp_path: Path) -> None:
    project.write("model.py", "import a_framework\n")
    result = python.run("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", ".", cwd=project.path)
    assert result.returncode
    shown = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    end = next(number for number, line in enumerate(shown) if line == "[end of output]")
    hint = "add it to `requires` in [tool.mlaot] of pyproject.toml"
    assert shown[end - 1] == f"mlaot: model.py:1: No module named 'a_framework'; {hint}"
