"""What ``[tool.mlaot]`` may say, and what a user reads who says something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlaot.build.child import main
from mlaot.errors import MlaotError
from mlaot.settings import Budget, ModelSettings, ProjectBudget, Settings
from mlaot.settings.reading import load_module, load_settings, settings_of

NAME = '[project]\nname = "My-Digits"\n'
MODEL = '[tool.mlaot.models.nn]\nmodel = "model:digits"\n'


def load(folder: Path, text: str) -> Settings:
    (folder / "pyproject.toml").write_text(text)
    return load_settings(folder)


def test_defaults(tmp_path: Path) -> None:
    models = (ModelSettings("nn", "model:digits", "my_digits.nn"),)
    expected = Settings("my_digits", ".", (), ("base", "v3", "v4"), models, "setuptools.build_meta:__legacy__")
    assert load(tmp_path, NAME + MODEL) == expected
    assert expected.missing_packages(tmp_path) == ("my_digits",)
    assert expected.packages(tmp_path) == ()


def test_version(tmp_path: Path) -> None:
    """The project's own; none where a build backend finds it."""
    assert load(tmp_path, NAME.replace("]\n", ']\nversion = "1.2"\n') + MODEL).version == "1.2"
    assert load(tmp_path, NAME.replace("]\n", ']\ndynamic = ["version"]\n') + MODEL).version == ""


def test_everything_said(tmp_path: Path) -> None:
    text = (
        '[build-system]\nbuild-backend = "mlaot.build"\n[project]\nname = "d"\n[tool.mlaot]\nsource = "lib"\n'
        'requires = ["torch>=2"]\nisa = ["v3", "base"]\nthreads = 0\n'
        '[tool.mlaot.models.a]\nmodel = "m.n:o.p"\nmodule = "x.y.z"\nwinograd = "F4"\n'
        'weights = "file"\nweights_dtype = "float16"\n'
    )
    (tmp_path / "lib" / "x").mkdir(parents=True)
    (tmp_path / "lib" / "x" / "__init__.py").touch()
    settings = load(tmp_path, text)
    models = (ModelSettings("a", "m.n:o.p", "x.y.z", winograd="F4", weights="file", weights_dtype="float16"),)
    assert settings == Settings("d", "lib", ("torch>=2",), ("base", "v3"), models, "mlaot.build", threads=0)
    assert (models[0].package, models[0].stem) == ("x.y", "z")
    assert settings.packages(tmp_path) == ("lib/x",)
    assert settings.missing_packages(tmp_path) == ("x/y",)


def test_deterministic_is_for_all_models_unless_one_says_otherwise(tmp_path: Path) -> None:
    text = NAME + "[tool.mlaot]\ndeterministic = true\n" + MODEL + MODEL.replace("nn", "b") + "deterministic = false\n"
    assert [model.deterministic for model in load(tmp_path, text).models] == [True, False]
    assert not load(tmp_path, NAME + MODEL).models[0].deterministic


def test_budget_is_for_all_models_unless_one_says_otherwise(tmp_path: Path) -> None:
    text = MODEL + MODEL.replace("nn", "b") + "budget = {error = 1, ops = []}\n"
    settings = load(tmp_path, NAME + text + "[tool.mlaot.budget]\nwheel_kb = 9\nerror = 1e-5\nlatency_us = 2\n")
    assert settings.budget == ProjectBudget(error=1e-5, latency_us=2, wheel_kb=9)
    assert [m.budget for m in settings.models] == [
        Budget(error=1e-5, latency_us=2),
        Budget(error=1, latency_us=2, ops=()),
    ]


def test_source_folder_and_capitals_are_found(tmp_path: Path) -> None:
    (tmp_path / "src" / "My_Digits").mkdir(parents=True)
    (tmp_path / "src" / "My_Digits" / "__init__.py").touch()
    settings = load(tmp_path, NAME + MODEL)
    assert (settings.source, settings.models[0].module) == ("src", "My_Digits.nn")


def test_folder_of_data_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "my_digits").mkdir()
    (tmp_path / "my_digits" / "weights.bin").touch()
    assert load(tmp_path, NAME + MODEL).missing_packages(tmp_path) == ("my_digits",)


def test_folders_above_a_package_are_namespaces_unless_the_project_says_otherwise(tmp_path: Path) -> None:
    text = NAME + MODEL + "module = 'company.digits.nn'\n"
    assert load(tmp_path, text).missing_packages(tmp_path) == ("company/digits",)
    (tmp_path / "company" / "digits").mkdir(parents=True)
    (tmp_path / "company" / "digits" / "model.py").touch()
    assert load(tmp_path, text).missing_packages(tmp_path) == ()


def test_settings_of_a_bare_target() -> None:
    assert settings_of("model:digits").models == (ModelSettings("", "model:digits", "model.nn"),)
    with pytest.raises(MlaotError, match="expected module:attribute or an ONNX file, got 'model'"):
        settings_of("model")


def test_one_module_on_a_command_line(tmp_path: Path) -> None:
    """Without a pyproject.toml; with the table that makes it, which may be overruled; with tables that make others."""
    settings, model = load_module(tmp_path, "digits.nn", model="a:b", others=["digits.other"])
    assert model == ModelSettings("", "a:b", "digits.nn", weights="inside")  # files are known before weights are
    assert (settings.name, settings.source, [each.module for each in settings.models]) == (
        *("digits", "."),
        ["digits.other", "digits.nn"],
    )
    text = "[tool.mlaot]\ndeterministic = true\nisa = ['base']\n" + MODEL + "winograd = 'off'\nweights = 'file'\n"
    (tmp_path / "pyproject.toml").write_text(NAME + text)
    settings, model = load_module(tmp_path, "my_digits.nn")
    assert (model, settings.models) == (load_settings(tmp_path).models[0], (model,))
    settings, model = load_module(tmp_path, "my_digits.nn", model="a:b")
    assert (model, settings.isa) == (
        ModelSettings("", "a:b", "my_digits.nn", deterministic=True, winograd="off", weights="file"),
        ("base",),
    )
    settings, model = load_module(tmp_path, "zoo.nn", model="a:b")
    assert model == ModelSettings("", "a:b", "zoo.nn", deterministic=True, weights="inside")
    (tmp_path / "lib").mkdir()
    assert load_module(tmp_path, "zoo.nn", model="a:b", source=str(tmp_path / "lib"))[0].source == "lib"


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        ("nn", {}, "--module must be a dotted module name, such as 'digits.nn'; got 'nn'"),
        (
            "a.nn",
            {"model": "b"},
            "--model must be 'module:attribute', such as 'model:digits', or an ONNX file; got 'b'",
        ),
        ("a.nn", {"model": "b:c", "source": "no"}, "--source-dir must be a folder inside FOLDER; got 'no'"),
        ("a.nn", {"model": "b:c", "source": ".."}, "--source-dir must be a folder inside FOLDER; got '..'"),
        ("a.class", {"model": "b:c"}, "--module makes the module 'a.class', but 'class' is a keyword of Python;"),
        ("a.there", {"model": "b:c"}, "--module makes the module 'a.there', but a/there.py is there already;"),
        (
            "my_digit.nn",
            {},
            "no --model is given, and no [tool.mlaot.models.<name>] of pyproject.toml makes 'my_digit.nn';"
            " did you mean 'my_digits.nn'?",
        ),
    ],
)
def test_mistake_about_one_module(tmp_path: Path, module: str, given: dict[str, Any], message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(NAME + MODEL)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "there.py").touch()
    with pytest.raises(MlaotError) as error:
        load_module(tmp_path, module, **given)
    assert str(error.value).replace(str(tmp_path), "FOLDER").startswith(message)


def cases(text: str) -> dict[str, str]:
    """Each pyproject.toml of ``settings_errors.txt`` with the line that a user reads."""
    found = {}
    for case in text.strip().split("\n\n"):
        toml, _, line = f"\n{case}".rpartition("\n")
        found[toml.lstrip() + ("\n" if "project" in toml else "\n" + NAME)] = line
    return found


ERRORS = cases(Path(__file__).with_name("settings_errors.txt").read_text(encoding="utf-8"))
IDS = [" ".join(text.removesuffix(NAME).split()) for text in ERRORS]


def said(project: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of the process that traces."""
    assert main([str(project), str(project / "out")]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    return shown.err.rstrip()


@pytest.mark.parametrize(("text", "line"), ERRORS.items(), ids=IDS)
def test_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str) -> None:
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    (tmp_path / "pkg" / "there.py").touch()
    (tmp_path / "pkg" / "sub" / "__init__.py").touch()
    (tmp_path / "nets" / "more").mkdir(parents=True)
    for name in ("a.onnx", "a.bin", "x-y.onnx", "x_y.onnx", "more/a.onnx"):
        (tmp_path / "nets" / name).touch()
    (tmp_path / "nets" / "outside.onnx").symlink_to(__file__)
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert said(tmp_path, capsys) == line


UNREADABLE = {
    "byte order mark": (
        b"\xef\xbb\xbf" + (NAME + MODEL).encode(),
        "mlaot: pyproject.toml begins with a byte order mark; save it as UTF-8 without one",
    ),
    "UTF-16": (
        (NAME + MODEL).encode("utf-16-le"),
        "mlaot: pyproject.toml is not valid TOML: Invalid initial character for a key part (at line 1, column 2)",
    ),
    "UTF-16 with its mark": (
        b"\xff\xfe" + (NAME + MODEL).encode("utf-16-le"),
        "mlaot: pyproject.toml is not UTF-8: byte 0xff at 0; save it as UTF-8",
    ),
    "Latin-1": (
        b"# caf\xe9\n" + (NAME + MODEL).encode(),
        "mlaot: pyproject.toml is not UTF-8: byte 0xe9 at 5; save it as UTF-8",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    data, message = UNREADABLE[case]
    (tmp_path / "pyproject.toml").write_bytes(data)
    assert said(tmp_path, capsys) == message


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, capsys) == f"mlaot: no pyproject.toml in {tmp_path}"
    assert said(tmp_path / "typo", capsys) == f"mlaot: no pyproject.toml in {tmp_path / 'typo'}"
    (tmp_path / "pyproject.toml").mkdir()
    assert said(tmp_path, capsys) == "mlaot: cannot read pyproject.toml: Is a directory"


JSON = "is not valid JSON: "
TUNED_ERRORS = {
    "{": JSON + "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    "\xff": JSON + "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    "[]": "holds no schedules by instruction set",
    '{"v3": 1}': "holds no schedules by instruction set",
    '{"v3": {"a": 1}}': "holds no schedules by instruction set",
}


@pytest.mark.parametrize("text", TUNED_ERRORS)
def test_broken_schedules(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(NAME + MODEL)
    (tmp_path / "mlaot-tuned.json").write_text(text, encoding="latin-1")
    wrong = TUNED_ERRORS[text]
    assert said(tmp_path, capsys) == f"mlaot: mlaot-tuned.json {wrong}; rewrite it with mlaot tune, or delete it"


def test_schedules_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text(NAME + MODEL)
    (tmp_path / "mlaot-tuned.json").mkdir()
    assert said(tmp_path, capsys) == "mlaot: cannot read mlaot-tuned.json: Is a directory"
