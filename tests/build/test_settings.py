"""What ``[tool.mlaot]`` may say, and what a user reads who says something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlaot.errors import MlaotError
from mlaot.settings import Model, Settings, load_module, load_settings, settings_of

NAME = '[project]\nname = "My-Digits"\n'
MODEL = '[tool.mlaot.models.nn]\nmodel = "model:digits"\n'


def load(folder: Path, text: str) -> Settings:
    (folder / "pyproject.toml").write_text(text)
    return load_settings(folder)


def test_defaults(tmp_path: Path) -> None:
    models = (Model("nn", "model:digits", "my_digits.nn"),)
    expected = Settings("my_digits", ".", (), ("base", "v3", "v4"), models, "setuptools.build_meta:__legacy__")
    assert load(tmp_path, NAME + MODEL) == expected
    assert expected.missing_packages(tmp_path) == ("my_digits",)
    assert expected.packages(tmp_path) == ()


def test_everything_said(tmp_path: Path) -> None:
    text = (
        '[build-system]\nbuild-backend = "mlaot.build"\n[project]\nname = "d"\n[tool.mlaot]\nsource = "lib"\n'
        'requires = ["torch>=2"]\nisa = ["v3", "base"]\nthreads = 0\n'
        '[tool.mlaot.models.a]\nmodel = "m.n:o.p"\nmodule = "x.y.z"\nwinograd = "F4"\n'
    )
    (tmp_path / "lib" / "x").mkdir(parents=True)
    (tmp_path / "lib" / "x" / "__init__.py").touch()
    settings = load(tmp_path, text)
    models = (Model("a", "m.n:o.p", "x.y.z", winograd="F4"),)
    assert settings == Settings("d", "lib", ("torch>=2",), ("base", "v3"), models, "mlaot.build", threads=0)
    assert (models[0].package, models[0].stem) == ("x.y", "z")
    assert settings.packages(tmp_path) == ("lib/x",)
    assert settings.missing_packages(tmp_path) == ("x/y",)


def test_deterministic_is_for_all_models_unless_one_says_otherwise(tmp_path: Path) -> None:
    text = NAME + "[tool.mlaot]\ndeterministic = true\n" + MODEL + MODEL.replace("nn", "b") + "deterministic = false\n"
    assert [model.deterministic for model in load(tmp_path, text).models] == [True, False]
    assert not load(tmp_path, NAME + MODEL).models[0].deterministic


def test_source_folder_and_capitals_are_found(tmp_path: Path) -> None:
    (tmp_path / "src" / "My_Digits").mkdir(parents=True)
    (tmp_path / "src" / "My_Digits" / "__init__.py").touch()
    settings = load(tmp_path, NAME + MODEL)
    assert (settings.source, settings.models[0].module) == ("src", "My_Digits.nn")


def test_folder_of_data_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "my_digits").mkdir()
    (tmp_path / "my_digits" / "weights.bin").touch()
    assert load(tmp_path, NAME + MODEL).missing_packages(tmp_path) == ("my_digits",)


def test_settings_of_a_bare_target() -> None:
    assert settings_of("model:digits").models == (Model("nn", "model:digits", "model.nn"),)
    with pytest.raises(MlaotError, match="expected module:attribute, got 'model'"):
        settings_of("model")


def test_one_module_on_a_command_line(tmp_path: Path) -> None:
    """Without a pyproject.toml; with the table that makes it, which may be overruled; with tables that make others."""
    settings, model = load_module(tmp_path, "digits.nn", model="a:b", others=["digits.other"])
    assert model == Model("", "a:b", "digits.nn")
    assert (settings.name, settings.source, [each.module for each in settings.models]) == (
        *("digits", "."),
        ["digits.other", "digits.nn"],
    )
    text = "[tool.mlaot]\ndeterministic = true\nisa = ['base']\n" + MODEL + "winograd = 'off'\n"
    (tmp_path / "pyproject.toml").write_text(NAME + text)
    settings, model = load_module(tmp_path, "my_digits.nn")
    assert (model, settings.models) == (load_settings(tmp_path).models[0], (model,))
    settings, model = load_module(tmp_path, "my_digits.nn", model="a:b")
    assert (model, settings.isa) == (Model("", "a:b", "my_digits.nn", True, "off"), ("base",))
    settings, model = load_module(tmp_path, "zoo.nn", model="a:b")
    assert model == Model("", "a:b", "zoo.nn", True)
    (tmp_path / "lib").mkdir()
    assert load_module(tmp_path, "zoo.nn", model="a:b", source=str(tmp_path / "lib"))[0].source == "lib"


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        ("nn", {}, "--module must be a dotted module name, such as 'digits.nn'; got 'nn'"),
        ("a.nn", {"model": "b"}, "--model must be 'module:attribute', such as 'model:digits'; got 'b'"),
        ("a.nn", {"model": "b:c", "source": "no"}, "--source-dir must be a folder inside FOLDER; got 'no'"),
        ("a.nn", {"model": "b:c", "source": ".."}, "--source-dir must be a folder inside FOLDER; got '..'"),
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


ERRORS = {
    NAME: "no [tool.mlaot] in pyproject.toml; expected a table [tool.mlaot.models.<name>] with a key 'model'",
    NAME + "[tool.mlaot]": "no model in pyproject.toml; expected a table [tool.mlaot.models.<name>] with a key 'model'",
    NAME + "[tool.mlaot.models.nn]\nmodle = 'model:digits'": (
        "unknown key 'modle' in [tool.mlaot.models.nn] of pyproject.toml; did you mean 'model'?"
    ),
    NAME + "[tool.mlaot]\nmodel = 'model:digits'": (
        "unknown key 'model' in [tool.mlaot] of pyproject.toml; did you mean 'models'?"
    ),
    NAME + "[tool.mlaot]\nzzz = 1\n" + MODEL: (
        "unknown key 'zzz' in [tool.mlaot] of pyproject.toml;"
        " the keys are source, requires, isa, deterministic, threads, models"
    ),
    NAME + "[tool.mlaot.models.nn]": (
        "no key 'model' in [tool.mlaot.models.nn] of pyproject.toml;"
        " expected 'module:attribute', such as 'model:digits'"
    ),
    NAME + "[tool.mlaot.models.nn]\nmodel = 'model.digits'": (
        "key 'model' in [tool.mlaot.models.nn] of pyproject.toml must be"
        " 'module:attribute', such as 'model:digits'; got 'model.digits'"
    ),
    NAME + "[tool.mlaot.models.nn]\nmodel = 5": (
        "key 'model' in [tool.mlaot.models.nn] of pyproject.toml must be"
        " 'module:attribute', such as 'model:digits'; got 5"
    ),
    NAME + MODEL + "module = 'nn'": (
        "key 'module' in [tool.mlaot.models.nn] of pyproject.toml must be"
        " a dotted module name, such as 'digits.nn'; got 'nn'"
    ),
    NAME + MODEL + "winograd = 4": (
        "key 'winograd' in [tool.mlaot.models.nn] of pyproject.toml must be 'F2', 'F4' or 'off'; got 4"
    ),
    NAME + "[tool.mlaot.models.class]\nmodel = 'a:b'": (
        "key 'module' in [tool.mlaot.models.class] of pyproject.toml must be"
        " a dotted module name, such as 'digits.nn'; got 'my_digits.class'"
    ),
    NAME + "[tool.mlaot]\nisa = ['avx2']\n" + MODEL: (
        "key 'isa' in [tool.mlaot] of pyproject.toml must be"
        " a list out of 'base', 'v3', 'v4' with 'base' in it; got ['avx2']"
    ),
    NAME + "[tool.mlaot]\nisa = 'base'\n" + MODEL: (
        "key 'isa' in [tool.mlaot] of pyproject.toml must be"
        " a list out of 'base', 'v3', 'v4' with 'base' in it; got 'base'"
    ),
    NAME + "[tool.mlaot]\nthreads = -1\n" + MODEL: (
        "key 'threads' in [tool.mlaot] of pyproject.toml must be"
        " a number of threads, or 0 for as many as there are CPUs; got -1"
    ),
    NAME + "[tool.mlaot]\nthreads = true\n" + MODEL: (
        "key 'threads' in [tool.mlaot] of pyproject.toml must be"
        " a number of threads, or 0 for as many as there are CPUs; got True"
    ),
    NAME + "[tool.mlaot]\nrequires = 'torch'\n" + MODEL: (
        "key 'requires' in [tool.mlaot] of pyproject.toml must be"
        " a list of requirements such as ['torch>=2']; got 'torch'"
    ),
    NAME + "[tool.mlaot]\ndeterministic = 1\n" + MODEL: (
        "key 'deterministic' in [tool.mlaot] of pyproject.toml must be true or false; got 1"
    ),
    NAME + MODEL + "deterministic = 'yes'": (
        "key 'deterministic' in [tool.mlaot.models.nn] of pyproject.toml must be true or false; got 'yes'"
    ),
    NAME + "[tool.mlaot]\nsource = 'lib'\n" + MODEL: (
        "key 'source' in [tool.mlaot] of pyproject.toml must be a folder of the project such as 'src'; got 'lib'"
    ),
    NAME + "[tool.mlaot]\nsource = '..'\n" + MODEL: (
        "key 'source' in [tool.mlaot] of pyproject.toml must be a folder of the project such as 'src'; got '..'"
    ),
    NAME + "[tool.mlaot]\nmodels = 1\n": "[tool.mlaot.models] of pyproject.toml must be a table, got 1",
    NAME + "[tool.mlaot.models]\nmodel = 'model:digits'\n": (
        "[tool.mlaot.models.model] of pyproject.toml must be a table, got 'model:digits'"
    ),
    MODEL: "no key 'name' in [project] of pyproject.toml; expected the project's name, such as 'digits'",
    NAME + MODEL + "[tool.mlaot.models.b]\nmodel = 'a:b'\nmodule = 'my_digits.nn'": (
        "[tool.mlaot.models.nn] and [tool.mlaot.models.b] of pyproject.toml both make the module 'my_digits.nn'"
    ),
    NAME + MODEL + "module = 'pkg.there'": (
        "[tool.mlaot.models.nn] of pyproject.toml makes the module 'pkg.there', but pkg/there.py is there already;"
        " give the model another name with the key 'module'"
    ),
}


@pytest.mark.parametrize(("text", "message"), ERRORS.items(), ids=[text.replace("\n", " ")[28:] for text in ERRORS])
def test_mistake(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "there.py").touch()
    with pytest.raises(MlaotError) as error:
        load(tmp_path, text)
    assert str(error.value) == message


def test_no_file_and_bad_file(tmp_path: Path) -> None:
    with pytest.raises(MlaotError, match=f"^no pyproject.toml in {tmp_path}$"):
        load_settings(tmp_path)
    with pytest.raises(MlaotError, match=r"^pyproject.toml is not valid TOML: .*line 1, column 5\)$"):
        load(tmp_path, "name\n")
