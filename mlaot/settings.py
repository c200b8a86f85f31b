"""``[tool.mlaot]`` of pyproject.toml as dataclasses: the first thing the compiler reads.

    [tool.mlaot]
    isa = ["base", "v3"]

    [tool.mlaot.models.nn]
    model = "model:digits"

A key is a field of ``Settings`` or ``Model`` made by ``key``, and nothing else: reading it, checking it, its JSON
Schema and its line in docs/settings.md come from there. ``python -m tests.docs.make_settings`` writes the last two.
"""

from __future__ import annotations

import difflib
import importlib
import json
import keyword
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from mlaot.errors import MlaotError, writing
from mlaot.interpreter import undisturbed
from mlaot.schedule.machine import CHOICES, MACHINES

EXPECTED_ISAS = f"a list out of {', '.join(map(repr, CHOICES))}"
OTHERS = " and ".join(f"`{name}` ({MACHINES[name].doc})" for name in CHOICES if MACHINES[name].needs)
WINOGRAD = ("F2", "F4", "off")
SDISTS = ("frozen", "live")
PLACES = ("auto", "inside", "file")
HALVES = ("float16", "bfloat16")
BYTES = ("int8",)
FILE = "pyproject.toml"
TUNED = "mlaot-tuned.json"  # what `mlaot tune` writes beside it
WEIGHTS = "weights.bin"  # beside the C of a module that embeds them
FACTS = "model.json"  # there, too
SOURCES = "sources.json"  # beside the modules' folders: the SHA-256 of each file that tracing read
NAME = r"[^\W\d]\w*"
MODEL = rf"^{NAME}(\.{NAME})*:{NAME}(\.{NAME})*$"
KINDS = ("model", "onnx", "sklearn", "torch")  # keys, one of which says what the model is
# What turns a model of each kind into ONNX and reads it, besides what `requires` has.
READERS = {
    "model": (),
    "onnx": ("onnx>=1.19",),
    "sklearn": ("onnx>=1.19", "skl2onnx>=1.19"),
    "torch": ("onnx>=1.19", "onnxscript>=0.5"),
}
ONNX = r"^.*\.onnx$"
SKLEARN = rf"{MODEL}|^.*\.skops$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"  # ASCII: the last part names C functions
# What Windows takes for a device, also in front of an extension.
PROJECT = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?"  # PEP 508
LONGEST = 200  # characters of a file's name, so that there is room for what is added to it
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
# A name, extras, versions or an address, a marker: PEP 508 but for the insides of these.
REQUIREMENT = r"^ *[A-Za-z0-9][A-Za-z0-9._-]*( *\[[^\]]*\])?( *\(?(===|==|~=|!=|<=|>=|<|>)[^;]+| *@.+)?( *;.+)?$"
SCHEMA_TYPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "str": {"type": "string"},
    "tuple[str, ...]": {"type": "array", "items": {"type": "string"}},
    "int | None": {"type": "integer"},
    "float | None": {"type": "number"},
    "tuple[str, ...] | None": {"type": "array", "items": {"type": "string"}},
}


def key(doc: str, *, example: Any, expected: str, default: Any = MISSING, otherwise: str = "", **schema: Any) -> Any:
    """A field that is a key of TOML.

    ``doc`` is its line in the documentation, ``expected`` what errors say of the value. A key without ``default`` must
    be given, unless ``otherwise`` says in words what holds where it is not. ``schema`` is what JSON Schema says of the
    value, besides its type.
    """
    said = {"doc": doc, "example": example, "expected": expected, "otherwise": otherwise, "schema": schema}
    return field(default=default, metadata=said)


@dataclass(frozen=True)
class Budget:
    """``budget`` of a model: what it may take at most. None: no limit."""

    workspace_kb: int | None = key(
        "memory of a call besides its arguments and results, for as many rows as are computed at a time, other named"
        " dimensions being 1",
        default=None,
        otherwise="no limit",
        expected="a number of KB (1000 bytes)",
        example=64,
        minimum=0,
    )
    error: float | None = key(
        "error of the golden vectors on any instruction set of the machine that builds, relative to the largest answer",
        default=None,
        otherwise="no limit",
        expected="a number, such as 1e-5",
        example=1e-5,
        minimum=0,
    )
    latency_us: float | None = key(
        "median time of a call of any function with one example on the machine that builds",
        default=None,
        otherwise="no limit",
        expected="a number of microseconds",
        example=50.0,
        minimum=0,
    )
    ops: tuple[str, ...] | None = key(
        "the only ops that the model may have, by the names that `mlaot passes` prints last",
        default=None,
        otherwise="all",
        expected="a list of names of ops such as ['contract', 'add', 'relu']",
        example=("contract", "add", "relu"),
    )
    isa: tuple[str, ...] = key(
        "instruction sets on which the golden vectors must have been replayed, by a machine that has them",
        default=(),
        otherwise="none",
        expected=EXPECTED_ISAS,
        example=("base", "v3"),
        items={"enum": CHOICES},
    )


@dataclass(frozen=True)
class ProjectBudget(Budget):
    """``[tool.mlaot.budget]``: also what each model's budget is unless its table says otherwise."""

    wheel_kb: int | None = key(
        "size of the wheel",
        default=None,
        otherwise="no limit",
        expected="a number of KB (1000 bytes)",
        example=200,
        minimum=1,
    )


@dataclass(frozen=True)
class Model:
    """One ``[tool.mlaot.models.<name>]``: where the model is declared and which extension module it becomes."""

    name: str
    model: str = key(
        "the model as `module:attribute`, imported when the wheel is built",
        default="",
        otherwise="there is a key `onnx`, `sklearn` or `torch`",
        expected="'module:attribute', such as 'model:digits'",
        example="model:digits",
        pattern=MODEL,
    )
    module: str = key(
        "the extension module to make",
        default="",
        otherwise="the project's name, a dot, the name of the table",
        expected="a dotted module name, such as 'digits.nn'",
        example="digits.nn",
        pattern=MODULE,
    )
    deterministic: bool = key(
        "as in `[tool.mlaot]`, for this model",
        default=False,
        otherwise="what `[tool.mlaot]` says",
        expected="true or false",
        example=True,
    )
    onnx: str = key(
        "an ONNX file of the project that is the model, in place of `model`",
        default="",
        otherwise="there is a key `model`",
        expected="the path of an ONNX file, such as 'model.onnx'",
        example="model.onnx",
        pattern=ONNX,
    )
    sklearn: str = key(
        "a fitted estimator or pipeline of scikit-learn that is the model, in place of `model`: `module:attribute`, or"
        " a file of the project that skops wrote",
        default="",
        otherwise="there is a key `model`",
        expected="'module:attribute' or the path of a skops file, such as 'model:pipeline'",
        example="model:pipeline",
        pattern=SKLEARN,
    )
    torch: str = key(
        "a module of PyTorch that is the model, in place of `model`, as `module:attribute`",
        default="",
        otherwise="there is a key `model`",
        expected="'module:attribute', such as 'model:net'",
        example="model:net",
        pattern=MODEL,
    )
    sample: str = key(
        "inputs as the model is given them, as `module:attribute`: an array, or a tuple or a dict of arrays",
        default="",
        otherwise="made up by a seed",
        expected="'module:attribute', such as 'model:sample'",
        example="model:sample",
        pattern=MODEL,
    )
    winograd: str = key(
        "the largest tiles in which 3x3 convolutions of fixed weights are computed",
        default="F2",
        expected="'F2', 'F4' or 'off'",
        example="F4",
        enum=WINOGRAD,
    )
    fast_division: bool = key(
        "whether quotients of many numbers by one are products with its reciprocal: faster, but off by a last bit, and"
        " wrong where the reciprocal overflows; never with `deterministic`",
        default=False,
        expected="true or false",
        example=True,
    )
    frozen: bool = key(
        "whether the weights of a model without a loss are constants of the library; if not, `load` replaces them",
        default=True,
        expected="true or false",
        example=False,
    )
    intermediates: bool = key(
        "whether the module has a function `intermediates`, which gives what the model names by `mlaot.tap`",
        default=False,
        expected="true or false",
        example=True,
    )
    weights: str = key(
        "where the weights lie: `inside` the extension module, or in a `file` beside it, as `auto` has more than 64 MB",
        default="auto",
        expected="'auto', 'inside' or 'file'",
        example="file",
        enum=PLACES,
    )
    weights_dtype: str = key(
        "`float16` or `bfloat16`: frozen float32 weights of products, and tables, are rounded to it and stored so",
        default="",
        otherwise="that of the model",
        expected="'float16' or 'bfloat16'",
        example="float16",
        enum=HALVES,
    )
    quantize: str = key(
        "`int8`: products with frozen float32 weights are computed with bytes, of ranges that `sample` shows, or else"
        " of those of each call",
        default="",
        otherwise="in the model's own dtype",
        expected="'int8'",
        example="int8",
        enum=BYTES,
    )
    c_library: bool = key(
        "put a static library, its header and a CMake package for C and C++ into the wheel, too",
        default=False,
        expected="true or false",
        example=True,
    )
    dims: tuple[tuple[str, int], ...] = ()
    budget: Budget = Budget()

    @property
    def declared(self) -> str:
        """Where it is declared, as the settings say it."""
        return str(getattr(self, self.kind))

    @property
    def kind(self) -> str:
        """The key that says what the model is."""
        return next((kind for kind in KINDS if getattr(self, kind)), "model")

    @property
    def package(self) -> str:
        """``digits`` of ``digits.nn``."""
        return self.module.rpartition(".")[0]

    @property
    def stem(self) -> str:
        """``nn`` of ``digits.nn``: the name of the C files and the prefix of their functions."""
        return self.module.rpartition(".")[2]

    @property
    def weights_file(self) -> str:
        """``nn.weights``: what lies beside the extension module where the weights are not inside."""
        return f"{self.stem}.weights"


@dataclass(frozen=True)
class Settings:
    """What the project asks for. ``name`` is its package, ``backend`` its ``build-backend``.

    ``version`` is the project's, where its pyproject.toml says one: a build backend may find it elsewhere, and later.
    """

    name: str
    source: str = key(
        "the folder that holds the model module, and the project's package where it has one",
        otherwise="`src` if there is such a folder, else `.`",
        expected="a folder of the project such as 'src'",
        example="src",
    )
    requires: tuple[str, ...] = key(
        "packages that importing the model needs, besides mlaot and NumPy; installed for the build only",
        default=(),
        expected="a list of requirements such as ['torch>=2']",
        example=("torch>=2",),
        items={"type": "string", "pattern": REQUIREMENT},
    )
    isa: tuple[str, ...] = key(
        f"instruction sets to compile for on x86-64: `base`, and any of {OTHERS}",
        default=CHOICES,
        expected=f"{EXPECTED_ISAS} with 'base' in it",
        example=("base", "v3"),
        items={"enum": CHOICES},
        contains={"const": "base"},
    )
    models: tuple[Model, ...] = ()
    backend: str = "mlaot.build"
    deterministic: bool = key(
        "the same bits on every instruction set, with every compiler; a model's table may say otherwise",
        default=False,
        expected="true or false",
        example=True,
    )
    threads: int = key(
        "how many threads one call may use, unless `set_threads` says otherwise; 0: as many as there are CPUs",
        default=1,
        expected="a number of threads, or 0 for as many as there are CPUs",
        example=4,
        minimum=0,
        maximum=2**31 - 1,
    )
    sdist: str = key(
        "what an sdist holds of the models: `frozen`, the generated C, or `live`, only what they are traced from",
        default="frozen",
        expected="'frozen' or 'live'",
        example="live",
        enum=SDISTS,
    )
    budget: ProjectBudget = ProjectBudget()
    project: Path = field(default=Path(), compare=False)
    version: str = ""

    @property
    def needed(self) -> tuple[str, ...]:
        """Packages that tracing needs, besides mlaot and NumPy."""
        readers = [name for model in self.models for name in READERS[model.kind]]
        readers += ["skops>=0.11" for model in self.models if model.sklearn.endswith(".skops")]
        return tuple(dict.fromkeys([*self.requires, *readers]))

    @property
    def isas(self) -> tuple[str, ...]:
        """All instruction sets that C is made for, the best last: ARM has but one, which nobody chooses."""
        return tuple(name for name in MACHINES if name in self.isa or name not in CHOICES)

    def packages(self, project: Path) -> tuple[str, ...]:
        """The project's own packages that belong into the wheel, as folders relative to the project."""
        tops = dict.fromkeys([self.name, *(model.module.partition(".")[0] for model in self.models)])
        folders = ((Path(self.source) / top).as_posix() for top in tops)
        return tuple(folder for folder in folders if is_package(project / folder))

    def missing_packages(self, project: Path) -> tuple[str, ...]:
        """Packages of modules (``digits``, ``a/b``) that the project lacks: the wheel gets an empty __init__.py there.

        Folders above them get none: as namespaces (PEP 420) they can be shared with other wheels.
        """
        wanted = dict.fromkeys(model.package.replace(".", "/") for model in self.models)
        return tuple(folder for folder in wanted if not is_package(project / self.source / folder))


DIM = {"type": "integer", "minimum": 1}
BUDGET = "[tool.mlaot.budget]"
TABLES = {
    Settings: "[tool.mlaot]",
    Model: "[tool.mlaot.models.<name>]",
    Budget: "[tool.mlaot.models.<name>.budget]",
    ProjectBudget: BUDGET,
}


def is_package(folder: Path) -> bool:
    """A folder with Python code somewhere in it; one with data only is not a package."""
    return folder.is_dir() and any(folder.rglob("*.py"))


Tuned = Mapping[str, Mapping[str, str]]  # by instruction set and contraction: the schedule that was the fastest


def read_tuned(project: Path) -> Tuned:
    """The schedules beside the project's pyproject.toml, if there are any."""
    try:
        found = json.loads((project / TUNED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise MlaotError(f"cannot read {TUNED}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise MlaotError(f"{TUNED} is not valid JSON: {error}; make it anew with mlaot tune, or delete it") from None
    parts = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(part, dict) and all(isinstance(v, str) for v in part.values()) for part in parts):
        raise MlaotError(f"{TUNED} holds no schedules by instruction set; make it anew with mlaot tune, or delete it")
    return {str(isa): dict(part) for isa, part in found.items()}


def write_tuned(project: Path, tuned: Tuned) -> None:
    """Store schedules beside the project's pyproject.toml."""
    with writing(project / TUNED):
        (project / TUNED).write_text(json.dumps(tuned, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_settings(project: Path) -> Settings:
    """Read and check ``[tool.mlaot]`` of the project; every mistake is a ``MlaotError`` of one line."""
    pyproject = read_pyproject(project)
    tool = check_table(pyproject.get("tool", {}), "[tool]").get("mlaot")
    if tool is None:
        near = difflib.get_close_matches("mlaot", pyproject.get("tool", {}), n=1)
        only = f", only [tool.{near[0]}]" if near else ", only [mlaot]" if "mlaot" in pyproject else ""
        raise MlaotError(
            f"no [tool.mlaot] in {FILE}{only}; expected a table [tool.mlaot.models.<name>] with a key 'model'"
        )
    settings = read_settings(pyproject, tool, project)
    if not settings.models:
        raise MlaotError(f"no model in {FILE}; expected a table [tool.mlaot.models.<name>] with a key 'model'")
    check_modules(settings, project)
    return settings


def load_module(
    project: Path,
    module: str,
    *,
    model: str | None = None,
    source: str | None = None,
    deterministic: bool = False,
    c_library: bool = False,
    others: Iterable[str] = (),
) -> tuple[Settings, Model]:
    """Settings and model of one extension module, for those who say on a command line what makes it.

    What is given goes before ``[tool.mlaot]``, and the project need not have that, nor a pyproject.toml. ``others`` are
    modules that something else makes. Such models have no ``name``.
    """
    if not fits(module, schema_of(keys_of(Model)["module"])):
        raise MlaotError(f"--module must be a dotted module name, such as 'digits.nn'; got {module!r}")
    if model is not None and not re.fullmatch(f"{MODEL}|{ONNX}", model):
        raise MlaotError(f"--model must be 'module:attribute', such as 'model:digits', or an ONNX file; got {model!r}")
    pyproject = read_pyproject(project) if (project / FILE).is_file() else {}
    pyproject.setdefault("project", {}).setdefault("name", module.partition(".")[0])
    tool = check_table(pyproject.setdefault("tool", {}), "[tool]").setdefault("mlaot", {})
    if source is not None:
        folder = (project / source).resolve()
        if not folder.is_dir() or not folder.is_relative_to(project.resolve()):
            raise MlaotError(f"--source-dir must be a folder inside {project.resolve()}; got {source!r}")
        check_table(tool, "[tool.mlaot]")["source"] = source
    settings = read_settings(pyproject, tool, project)
    found = next((found for found in settings.models if found.module == module), None)
    if found is None and model is None:
        hint = did_you_mean(module, [other.module for other in settings.models])
        raise MlaotError(f"no --model is given, and no [tool.mlaot.models.<name>] of {FILE} makes {module!r}{hint}")
    found = found or Model("", module=module, deterministic=settings.deterministic)
    weights = "inside" if found.weights == "auto" else found.weights  # a build tool must know all files beforehand
    chosen = replace(
        found,
        deterministic=found.deterministic or deterministic,
        c_library=found.c_library or c_library,
        weights=weights,
    )
    if model is not None:
        chosen = replace(chosen, name="", **{**dict.fromkeys(KINDS, ""), **declaration(model)})
    models = {other: Model("", module=other) for other in others} | {other.module: other for other in settings.models}
    settings = replace(settings, models=tuple((models | {module: chosen}).values()))
    check_modules(settings, project)
    return settings, chosen


def read_settings(pyproject: dict[str, Any], tool: Any, project: Path) -> Settings:
    """``[tool.mlaot]`` of a pyproject.toml, checked but for whether it has models, and which modules they make."""
    source = "src" if (project / "src").is_dir() else "."
    values = read_table(Settings, tool, "[tool.mlaot]", besides=("models", "budget"), source=source)
    values["isa"] = tuple(isa for isa in CHOICES if isa in values["isa"])
    values["source"] = inside(project, values["source"])
    values["name"] = read_name(pyproject, project / values["source"])
    tables = check_table(tool.get("models", {}), "[tool.mlaot.models]")
    build = check_table(pyproject.get("build-system", {}), "[build-system]")
    budget = ProjectBudget(**read_table(ProjectBudget, tool.get("budget", {}), BUDGET))
    return Settings(
        **values,
        models=tuple(read_model(name, table, values, budget) for name, table in tables.items()),
        budget=budget,
        project=project,
        backend=build.get("build-backend", "setuptools.build_meta:__legacy__"),
        version=str(pyproject.get("project", {}).get("version", "")),
    )


def settings_of(target: str) -> Settings:
    """Settings for one bare ``module:attribute`` or ONNX file in the current folder.

    Modules are looked for where the project there has them, if there is one.
    """
    if not re.fullmatch(f"{MODEL}|{ONNX}", target):
        raise MlaotError(f"expected module:attribute or an ONNX file, got {target!r}")
    project = Path()
    pyproject = read_pyproject(project) if (project / FILE).is_file() else {}
    pyproject = {**pyproject, "project": {"name": "model", **check_table(pyproject.get("project", {}), "[project]")}}
    tool = check_table(check_table(pyproject.get("tool", {}), "[tool]").get("mlaot", {}), "[tool.mlaot]")
    settings = read_settings(pyproject, {**tool, "models": {}}, project)
    top = re.split(r"[.:]", target)[0]
    homes = (home for home in (settings.source, ".") for name in (f"{top}.py", top) if (project / home / name).exists())
    settings = replace(settings, source=next(homes, settings.source))
    model = Model("", module="model.nn", deterministic=settings.deterministic, **declaration(target))
    return replace(settings, models=(model,))


def declaration(target: str) -> dict[str, Any]:
    """The key ``model`` of what is a ``module:attribute``, or the key ``onnx`` of a file."""
    return {"onnx" if re.fullmatch(ONNX, target) else "model": target}


def load_model(settings: Settings, model: Model) -> Any:
    """The declared model: an attribute of a module, or what a file or another library's model becomes.

    The source folder must be on ``sys.path``.
    """
    if model.kind == "model":
        return attribute(settings, model, "model")
    sample = attribute(settings, model, "sample") if model.sample else None
    return importlib.import_module(f"mlaot.{model.kind}").declared(settings, model, sample)


def attribute(settings: Settings, model: Model, name: str) -> Any:
    """What a key of a model names by ``module:attribute``."""
    target = getattr(model, name)
    module_name, _, path = target.partition(":")
    key = f"key {name!r} in {table_of(model.name)} of {FILE}" if model.name else "the model asked for"
    where = f"{key} is {target!r}"
    try:
        with undisturbed():
            found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        likely = target.replace(".py:", ":").removeprefix(f"{settings.source.replace('/', '.')}.")
        hint = f"; did you mean {likely!r}?" if likely != target else did_you_mean_module(error.name, settings)
        raise MlaotError(f"no module {error.name!r} in folder {settings.source!r}; {where}{hint}") from None
    except KeyError as error:
        if error.args != (module_name,) or module_name in sys.modules:
            raise
        raise MlaotError(f"the module {module_name!r} took itself out of sys.modules; {where}") from None
    if hidden := is_hidden(found, module_name, settings.project / settings.source):
        raise MlaotError(f"{where}, but {hidden} is hidden by another module of that name; give the file another name")
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            hint = did_you_mean(part, known)
            raise MlaotError(f"{module_name!r} has no attribute {part!r}; {where}{hint}")
        found = getattr(found, part)
    return found


def is_hidden(module: Any, name: str, source: Path) -> str:
    """The file of the project that Python would have taken for a module, had another not come first."""
    for path in (Path(*name.split(".")).with_suffix(".py"), Path(*name.split("."), "__init__.py")):
        if (source / path).is_file():
            origin = getattr(module, "__file__", None)
            is_it = isinstance(origin, str) and Path(origin).exists() and Path(origin).samefile(source / path)
            return "" if is_it else path.as_posix()
    return ""


def did_you_mean_module(name: str, settings: Settings) -> str:
    """A hint at a module of the project beside the one of that name, which there is none of."""
    *packages, last = name.split(".")
    folder = settings.project.joinpath(settings.source, *packages)
    found = folder.iterdir() if folder.is_dir() else ()
    known = [path.stem for path in found if path.suffix == ".py" or is_package(path)]
    return did_you_mean(last, known)


# The values come from TOML: their types are whatever the user wrote.


def read_pyproject(project: Path) -> dict[str, Any]:
    """The project's pyproject.toml."""
    try:
        text = (project / FILE).read_text(encoding="utf-8")
        if text.startswith("\ufeff"):
            raise MlaotError(f"{FILE} begins with a byte order mark; save it as UTF-8 without one")
        return dict(tomllib.loads(text))
    except FileNotFoundError:
        raise MlaotError(f"no {FILE} in {project}") from None
    except OSError as error:
        raise MlaotError(f"cannot read {FILE}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise MlaotError(f"{FILE} is not UTF-8: byte 0x{byte:02x} at {error.start}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise MlaotError(f"{FILE} is not valid TOML: {error}") from None


def read_name(pyproject: dict[str, Any], source: Path) -> str:
    """The project's name as a package name: ``My-Digits`` is ``my_digits``, unless the folder keeps its capitals."""
    name = check_table(pyproject.get("project", {}), "[project]").get("name")
    if name is None:
        raise MlaotError(f"no key 'name' in [project] of {FILE}; expected the project's name, such as 'digits'")
    if not isinstance(name, str) or not re.fullmatch(PROJECT, name):
        raise MlaotError(f"key 'name' in [project] of {FILE} must be a name such as 'digits'; got {name!r}")
    package = re.sub(r"[-_.]+", "_", name)
    return package if is_package(source / package) else package.lower()


def inside(project: Path, source: str) -> str:
    """The source folder relative to the project, in which it must lie."""
    root = project.resolve()
    try:
        folder = (project / source).resolve()
        if folder.is_dir() and folder.is_relative_to(root):
            return folder.relative_to(root).as_posix()
    except (OSError, ValueError):  # what no file can be called
        pass
    raise wrong(keys_of(Settings)["source"], "[tool.mlaot]", source)


def read_model(name: str, table: Any, project: Mapping[str, Any], budget: Budget) -> Model:
    """One ``[tool.mlaot.models.<name>]``; a key that ``[tool.mlaot]`` has too is what that says unless it is given.

    So are the keys of its budget.
    """
    inherited = {key: project[key] for key in keys_of(Model) if key in project}
    where = table_of(name)
    default = f"{project['name']}.{name}"
    values = read_table(Model, table, where, besides=("budget", "dims"), module=default, **inherited)
    general = {key: getattr(budget, key) for key in keys_of(Budget)}
    own = read_table(Budget, table.get("budget", {}), table_of(name, "budget"), **general)
    kinds = [kind for kind in KINDS if values[kind]]
    if not kinds:
        wanted, others = keys_of(Model)["model"].metadata["expected"], " or ".join(map(repr, KINDS[1:]))
        raise MlaotError(f"no key 'model' in {where} of {FILE}; expected {wanted}, or a key {others}")
    if len(kinds) > 1:
        given = " and ".join(f"a key {kind!r}" for kind in kinds)
        raise MlaotError(f"{where} of {FILE} has {given}; a model is declared by one")
    dims = read_dims(table.get("dims", {}), name, kind=kinds[0])
    if lacking := [isa for isa in own["isa"] if isa not in project["isa"]]:
        raise MlaotError(
            f"budget.isa of {where} in {FILE} has {lacking[0]!r}, for which nothing is compiled: key 'isa' in"
            f" [tool.mlaot] is {list(project['isa'])}"
        )
    return Model(name, **values, dims=dims, budget=Budget(**own))


def read_dims(table: Any, model: str, *, kind: str) -> tuple[tuple[str, int], ...]:
    """``[tool.mlaot.models.<name>.dims]``: sizes of dimensions that another library's model leaves open."""
    place = table_of(model, "dims")
    for name, size in check_table(table, place).items():
        if kind == "model":
            raise MlaotError(
                f"{place} of {FILE} is for models of {', '.join(KINDS[1:])}; give {name!r} its size in the model itself"
            )
        if not fits(size, DIM):
            raise MlaotError(f"key {name!r} in {place} of {FILE} must be a size such as 1; got {size!r}")
    return tuple(table.items())


def read_table(kind: Any, table: Any, where: str, besides: Iterable[str] = (), **defaults: Any) -> dict[str, Any]:
    """The values of all keys of ``kind``, checked. ``defaults`` are those that the fields cannot know.

    ``besides`` are keys for the caller to read.
    """
    keys = keys_of(kind)
    check_keys(check_table(table, where), (*keys, *besides), where)
    values = {}
    for name, key in keys.items():
        if name in table:
            if not fits(table[name], schema_of(key)):
                raise wrong(key, where, table[name])
            values[name] = tuple(table[name]) if isinstance(table[name], list) else table[name]
        elif name in defaults or key.default is not MISSING:
            values[name] = defaults.get(name, key.default)
        else:
            raise MlaotError(f"no key {name!r} in {where} of {FILE}; expected {key.metadata['expected']}")
    return values


def keys_of(kind: Any) -> dict[str, Field[Any]]:
    """The fields of a dataclass that are keys of its table."""
    return {key.name: key for key in fields(kind) if key.metadata}


def schema_of(key: Field[Any]) -> dict[str, Any]:
    """What the value of a key must be, as JSON Schema."""
    return {**SCHEMA_TYPES[str(key.type)], **key.metadata["schema"]}


# The words of JSON Schema that keys use. ``True`` is no integer in TOML.
PYTHON_TYPES = {"array": (list,), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,)}
CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda value, name: type(value) in PYTHON_TYPES[name],
    "const": lambda value, only: bool(value == only),
    "enum": lambda value, known: value in known,
    "pattern": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "minimum": lambda value, least: bool(value >= least),
    "maximum": lambda value, most: bool(value <= most),
    "items": lambda values, schema: all(fits(value, schema) for value in values),
    "contains": lambda values, schema: any(fits(value, schema) for value in values),
}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is what ``schema`` asks for, its type first."""
    return all(CHECKS[word](value, argument) for word, argument in schema.items())


def json_schema(tool: str = "mlaot") -> dict[str, Any]:
    """JSON Schema of ``[tool.mlaot]``; entry point ``validate_pyproject.tool_schema``."""
    top, model = table_schema(Settings), table_schema(Model)
    model["properties"]["budget"] = table_schema(Budget)
    model["oneOf"] = [{"required": [kind]} for kind in KINDS]
    model["properties"]["dims"] = {
        "type": "object",
        "description": "sizes of dimensions that the ONNX file leaves open",
        "additionalProperties": DIM,
    }
    top["properties"]["budget"] = table_schema(ProjectBudget)
    top["properties"]["models"] = {
        "type": "object",
        "description": "one table for each model",
        "minProperties": 1,
        "additionalProperties": model,
    }
    found = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": f"urn:{tool}:settings",
        "description": f"[tool.{tool}] of {FILE}",
        **top,
        "required": ["models"],
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))  # tuples become lists
    return plain


def table_schema(kind: Any) -> dict[str, Any]:
    """JSON Schema of the table that becomes a ``kind``."""
    properties = {}
    for name, key in keys_of(kind).items():
        said = {"description": key.metadata["doc"], "examples": [key.metadata["example"]]}
        default = {} if key.metadata["otherwise"] or key.default is MISSING else {"default": key.default}
        properties[name] = schema_of(key) | default | said
    required = [name for name, key in keys_of(kind).items() if is_required(key)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def is_required(key: Field[Any]) -> bool:
    """Whether the key must be given."""
    return key.default is MISSING and not key.metadata["otherwise"]


def check_modules(settings: Settings, project: Path) -> None:
    """No two extension modules in one place, none where a Python file of the project is, and names that can be."""
    taken: dict[str, str] = {}
    spelled: dict[str, str] = {}
    made = [model.module for model in settings.models]
    for model in settings.models:
        where = table_of(model.name)
        place = f"{where} of {FILE}" if model.name else "--module"
        if (source := model.model.partition(":")[0]) and source in made:
            raise MlaotError(
                f"key 'model' in {where} of {FILE} is {model.model!r}, but {source!r} is a module to be made;"
                " declare the model in another one"
            )
        if other := taken.get(model.module):
            raise MlaotError(f"{other} and {where} of {FILE} both make the module {model.module!r}")
        taken[model.module] = where
        path = Path(settings.source, *model.module.split("."))
        files = () if bad_name(model.module) else (path.with_suffix(".py"), path / "__init__.py")
        existing = next(filter(lambda file: (project / file).is_file(), files), None)
        parent = next((module for module in made if model.module.startswith(f"{module}.")), None)
        names = accumulate(model.module.split("."), "{}.{}".format)
        twin = next((spelled[name.lower()] for name in names if spelled.setdefault(name.lower(), name) != name), None)
        if reason := (
            bad_name(model.module)
            or (existing and f"{existing.as_posix()} is there already")
            or (parent and f"{parent!r} is to be a module, not a package")
            or (twin and f"{twin!r} of another model differs in capitals only, which not every system tells apart")
        ):
            raise MlaotError(
                f"{place} makes the module {model.module!r}, but {reason};"
                f" give the model another name with the key 'module'"
            )


def bad_name(module: str) -> str:
    """Why no module can have this name; nothing if one can."""
    for part in module.split("."):
        if len(part) > LONGEST:
            return f"its name is longer than the {LONGEST} characters that every file system takes"
        if keyword.iskeyword(part):
            return f"{part!r} is a keyword of Python"
        if part.lower() in DEVICES:
            return f"Windows has no files named {part!r}"
        if not (part.isascii() and part.isidentifier()):
            return f"{part!r} is no name: it takes ASCII letters, digits and _"
    return ""


def table_of(model: str, *below: str) -> str:
    """How messages name the table of a model, or one below that: ``[tool.mlaot.models.nn]``."""
    name = model if re.fullmatch(r"[\w-]+", model) else repr(model)
    return f"[{'.'.join(('tool.mlaot.models', name, *below))}]"


def check_table(value: Any, where: str) -> dict[str, Any]:
    """A TOML table where one must be."""
    if isinstance(value, dict):
        return value
    raise MlaotError(f"{where} of {FILE} must be a table, got {value!r}")


def check_keys(table: Iterable[str], known: tuple[str, ...], where: str) -> None:
    """No key but the known ones."""
    for key in table:
        if key not in known:
            home = next((home for kind, home in TABLES.items() if key in keys_of(kind)), None)
            hint = home and f"; it belongs in {home}"
            hint = hint or did_you_mean(key, known) or f"; the keys are {', '.join(known)}"
            raise MlaotError(f"unknown key {key!r} in {where} of {FILE}{hint}")


def wrong(key: Field[Any], where: str, got: Any) -> MlaotError:
    """The error for a value that is not what the key expects."""
    schema = schema_of(key)
    known = schema.get("enum") or schema.get("items", {}).get("enum", ())
    bad = [word for word in (got if isinstance(got, list) else [got]) if isinstance(word, str) and word not in known]
    hint = did_you_mean(bad[0], known) if bad else ""
    return MlaotError(f"key {key.name!r} in {where} of {FILE} must be {key.metadata['expected']}; got {got!r}{hint}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'model'?`` where something known is close enough, else nothing."""
    known = list(known)
    close = [name for name in known if name.lower() == word.lower()] or difflib.get_close_matches(word, known)
    close.sort(key=lambda name: sorted(name) != sorted(word))  # swapped letters are the likeliest slip
    return f"; did you mean {close[0]!r}?" if close else ""
