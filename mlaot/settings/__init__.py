"""``[tool.mlaot]`` of pyproject.toml as dataclasses, which the compiler reads first.

    [tool.mlaot]
    isa = ["base", "v3"]

    [tool.mlaot.models.nn]
    model = "model:digits"

Each key is a field of ``Settings``, ``ModelSettings`` or ``Options`` that ``key`` or a similar function declares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from mlaot.schedule.machine import CHOICES, MACHINES
from mlaot.settings.keys import choice, flag, key, keys_of, limit
from mlaot.settings.options import Options

EXPECTED_ISAS = f"a list out of {', '.join(map(repr, CHOICES))}"
OTHERS = " and ".join(f"`{name}` ({MACHINES[name].doc})" for name in CHOICES if MACHINES[name].needs)
FILE = "pyproject.toml"
WEIGHTS = "weights.bin"  # beside the C of a module that embeds them
METADATA = "model.json"  # there, too
FROZEN = Path("_mlaot")  # what an sdist holds of the models
ONNX_FILES = "onnx_files.json"  # beside the modules' folders: the files of [tool.mlaot.onnxruntime]
SOURCES = "sources.json"  # beside the modules' folders: the SHA-256 of each file that tracing read
NAME = r"[^\W\d]\w*"
MODEL = rf"^{NAME}(\.{NAME})*:{NAME}(\.{NAME})*$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"  # ASCII: the last part names C functions
ONNX = r"^.*\.onnx$"
PATH = r"^([A-Za-z]:[\\/])?[^:]+$"  # no module:attribute
SKLEARN = rf"{MODEL}|^.*\.skops$"
LICENCE = r"^[A-Za-z0-9.+:() -]+$"  # whether it is an expression, its parser knows
MARKDOWN = r"^.+\.(md|markdown)$"
# A name, extras, versions or an address, a marker: PEP 508 but for the insides of these.
REQUIREMENT = r"^ *[A-Za-z0-9][A-Za-z0-9._-]*( *\[[^\]]*\])?( *\(?(===|==|~=|!=|<=|>=|<|>)[^;]+| *@.+)?( *;.+)?$"
KINDS = ("model", "llm", "onnx", "sklearn", "torch")  # keys, one of which says what the model is
# The packages that turn a model of each kind into ONNX and read it, besides those of `requires`.
READERS = {
    "model": (),
    "llm": (),
    "onnx": ("onnx>=1.19",),
    "sklearn": ("onnx>=1.19", "skl2onnx>=1.19"),
    "torch": ("onnx>=1.19", "onnxscript>=0.5"),
}


@dataclass(frozen=True)
class AtMost:
    """``{ most = 100 }`` in ``dims``: the bound of a length that is counted when the model runs."""

    most: int


Size = int | AtMost


@dataclass(frozen=True)
class Budget:
    """``budget`` of a model: upper limits of its sizes, errors and times. None stands for no limit."""

    workspace_kb: int | None = limit(
        "memory of a call besides its arguments and results, for the rows that are computed together, with all other"
        " named dimensions 1",
        "a number of KB (1000 bytes)",
        example=64,
    )
    error: float | None = limit(
        "error of the golden vectors, relative to the largest element, on any instruction set of the building machine",
        "a number, such as 1e-5",
        example=1e-5,
    )
    latency_us: float | None = limit(
        "median time of a call of any function with one example on the machine that builds",
        "a number of microseconds",
        example=50.0,
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
    """``[tool.mlaot.budget]``: the default of each model's budget, and a limit of the wheel's size."""

    wheel_kb: int | None = limit("size of the wheel", "a number of KB (1000 bytes)", example=200, minimum=1)


@dataclass(frozen=True)
class Lora:
    """``lora`` of a model: the low-rank adapters that it trains in place of its weights."""

    rank: int = key(
        "the rank of an adapter: the number of values between its two matrix products",
        expected="a whole number of at least 1",
        example=8,
        minimum=1,
    )
    alpha: float | None = key(
        "the scale of an adapter's output is `alpha / rank`",
        default=None,
        otherwise="the rank",
        expected="a positive number, such as 16",
        example=16.0,
        exclusiveMinimum=0,
    )
    targets: tuple[str, ...] | None = key(
        "the weights that have adapters, by name or pattern",
        default=None,
        otherwise="all matrices that are factors of products and nothing else",
        expected="a list of names or patterns such as ['*.query.weight']",
        example=("*.query.weight", "*.value.weight"),
    )


def attribute(doc: str, *, example: str, otherwise: str) -> Any:
    """Declare a key that is a ``module:attribute``."""
    expected = f"'module:attribute', such as {example!r}"
    return key(doc, default="", otherwise=otherwise, expected=expected, example=example, pattern=MODEL)


@dataclass(frozen=True)
class ModelSettings(Options):
    """One ``[tool.mlaot.models.<name>]``: where the model is declared, which extension module it becomes, and how."""

    name: str
    model: str = attribute(
        "the model as `module:attribute`, imported when the wheel is built",
        example="model:digits",
        otherwise="none; required without a key `llm`, `onnx`, `sklearn` or `torch`",
    )
    module: str = key(
        "the extension module to make",
        default="",
        otherwise="the project's name, a dot, the name of the table",
        expected="a dotted module name, such as 'digits.nn'",
        example="digits.nn",
        pattern=MODULE,
    )
    llm: str = key(
        "a language model, in place of `model`: a folder with config.json and safetensors, a GGUF"
        " file, or a checkpoint of llama2.c; an sdist includes only files of the project",
        default="",
        otherwise="none",
        expected="the path of a folder or of a file, such as 'llama' or 'model.gguf'",
        example="llama",
        pattern=PATH,
    )
    tokenizer: str = key(
        "the tokenizer of a model of `llm`, or of an ONNX file, which then takes texts in place of"
        " `input_ids`, `attention_mask` and `token_type_ids`. It is tokenizer.json, tokenizer.model or tokenizer.bin,"
        " or a folder that has one",
        default="",
        otherwise="the tokenizer that the model's folder or GGUF file has, if any; an ONNX file takes tokens",
        expected="the path of a file or of a folder, such as 'tokenizer.json'",
        example="tokenizer.json",
        pattern=PATH,
    )
    slides: bool = flag(
        "let a model of `llm` continue a text beyond its context: it reads the latter half again, as the start of a new"
        " text"
    )
    onnx: str = key(
        "an ONNX file of the project, in place of `model`",
        default="",
        otherwise="none",
        expected="the path of an ONNX file, such as 'model.onnx'",
        example="model.onnx",
        pattern=ONNX,
    )
    sklearn: str = key(
        "a fitted estimator or pipeline of scikit-learn, in place of `model`: `module:attribute`, or"
        " a file of the project that skops wrote",
        default="",
        otherwise="none",
        expected="'module:attribute' or the path of a skops file, such as 'model:pipeline'; load what joblib or pickle"
        " stored in model.py, or store it by skops.io.dump",
        example="model:pipeline",
        pattern=SKLEARN,
    )
    torch: str = attribute(
        "a module of PyTorch, in place of `model`, as `module:attribute`",
        example="model:net",
        otherwise="none",
    )
    sample: str = attribute(
        "example inputs of the model, as `module:attribute`: an array, or a tuple or a dict of arrays",
        example="model:sample",
        otherwise="seeded random numbers",
    )
    license: str = key(
        "the licence of the model as an SPDX expression, which `license` of `[project]` must cover",
        default="",
        otherwise="that of the project",
        expected="an SPDX licence expression such as 'Apache-2.0' or 'MIT AND CC-BY-4.0', or 'LicenseRef-NAME' for a"
        " licence that SPDX does not list",
        example="Apache-2.0",
        pattern=LICENCE,
    )
    license_files: tuple[str, ...] = key(
        "files with the licences and notices of the model: paths or patterns, relative to the project;"
        " `license-files` of `[project]` must list them as well",
        default=(),
        otherwise="none",
        expected="a list of paths or patterns such as ['model/LICENSE*']",
        example=("model/LICENSE*",),
        spelling="license-files",
        items={"type": "string", "pattern": "^.+$"},
    )
    model_card: str = key(
        "a model card in Markdown, which the wheel contains in `.dist-info/model-cards`",
        default="",
        otherwise="none",
        expected="the path of a Markdown file, such as 'model/README.md'",
        example="model/README.md",
        spelling="model-card",
        pattern=MARKDOWN,
    )
    dims: tuple[tuple[str, Size], ...] = ()
    budget: Budget = Budget()
    lora: Lora | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Return the dims that have sizes."""
        return {name: size for name, size in self.dims if isinstance(size, int)}

    @property
    def declared(self) -> str:
        """Return the place of the model's declaration in the form of the settings."""
        return str(getattr(self, self.kind))

    @property
    def kind(self) -> str:
        """Return the key that names the model: ``model``, ``onnx`` and so on."""
        return next((kind for kind in KINDS if getattr(self, kind)), "model")

    @property
    def package(self) -> str:
        """Return ``digits`` for ``digits.nn``."""
        return self.module.rpartition(".")[0]

    @property
    def stem(self) -> str:
        """Return ``nn`` for ``digits.nn``: the name of the C files and the prefix of their functions."""
        return self.module.rpartition(".")[2]

    @property
    def weights_file(self) -> str:
        """Return ``nn.weights``, the file beside the extension module if it does not contain the weights."""
        return f"{self.stem}.weights"


@dataclass(frozen=True)
class OnnxRuntime:
    """``[tool.mlaot.onnxruntime]``: the name of a package that stands in for onnxruntime, for ``files``.

    In ``Settings`` the files are those that were found, as paths relative to the project.
    """

    files: tuple[str, ...] = key(
        "the ONNX files for which the package has sessions: paths or patterns, relative to the project; each becomes a"
        " model, as by a table of its own with a key `onnx`, which may be there",
        expected="a list of paths or patterns such as ['models/*.onnx']",
        example=("models/*.onnx",),
        items={"type": "string", "pattern": "^.+$"},
        contains={"type": "string"},
    )
    module: str = key(
        "the package to make",
        default="",
        otherwise="the project's name, a dot, `ort`",
        expected="a dotted module name, such as 'digits.ort'",
        example="digits.ort",
        pattern=MODULE,
    )


@dataclass(frozen=True)
class Settings:
    """The settings of a project. ``name`` is its package, ``backend`` its ``build-backend``.

    ``version`` is the project's, if its pyproject.toml has one, as a build backend may compute it later.
    """

    name: str
    source: str = key(
        "the folder of the model's module, and of the project's package if there is one",
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
    models: tuple[ModelSettings, ...] = ()
    backend: str = "mlaot.build"
    deterministic: bool = flag(
        "the same bits on every instruction set, with every compiler; a model's table may say otherwise"
    )
    threads: int = key(
        "how many threads one call may use, unless `set_threads` says otherwise; 0: as many as there are CPUs",
        default=1,
        expected="a number of threads, or 0 for as many as there are CPUs",
        example=4,
        minimum=0,
        maximum=2**31 - 1,
    )
    runtime: str = key(
        "the extension module that the models share: one copy of the code that talks to Python, checks inputs and runs"
        " threads",
        default="",
        otherwise="each model has its own",
        expected="a dotted module name, such as 'digits.runtime'",
        example="digits.runtime",
        pattern=MODULE,
    )
    sdist: str = choice(
        "what an sdist holds of the models: `frozen`, the generated C, or `live`, only what they are traced from",
        ("frozen", "live"),
        default="frozen",
        example="live",
    )
    budget: ProjectBudget = ProjectBudget()
    onnxruntime: OnnxRuntime | None = None
    project: Path = field(default=Path(), compare=False)
    version: str = ""

    @property
    def tracing_packages(self) -> tuple[str, ...]:
        """Return the packages that tracing needs, besides mlaot and NumPy."""
        readers = [name for model in self.models for name in READERS[model.kind]]
        readers += ["skops>=0.11" for model in self.models if model.sklearn.endswith(".skops")]
        return tuple(dict.fromkeys([*self.requires, *readers]))

    @property
    def isas(self) -> tuple[str, ...]:
        """Return all instruction sets to generate C for, the best last.

        ARM has only one, which is no choice of the user.
        """
        return tuple(name for name in MACHINES if name in self.isa or name not in CHOICES)

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the names of all modules to make: the shared runtime, the module of sessions, and the models."""
        besides = (self.runtime, self.onnxruntime.module if self.onnxruntime else "")
        return (*filter(None, besides), *(model.module for model in self.models))

    @property
    def onnx_models(self) -> dict[str, ModelSettings]:
        """Return the models of the files of ``onnxruntime``."""
        models = {PurePath(model.onnx).as_posix(): model for model in self.models if model.onnx and not model.tokenizer}
        return {file: models[file] for file in self.onnxruntime.files} if self.onnxruntime else {}

    def options(self, model: ModelSettings) -> Options:
        """Return the options of passes and lowering for a model of the project."""
        keys = {name: getattr(model, name) for name in keys_of(Options)}
        return Options(**keys, isas=self.isas, threads=self.threads, runtime=self.runtime)

    def packages(self, project: Path) -> tuple[str, ...]:
        """Return the project's own packages that belong into the wheel, as folders relative to the project."""
        tops = dict.fromkeys([self.name, *(module.partition(".")[0] for module in self.modules)])
        folders = ((Path(self.source) / top).as_posix() for top in tops)
        return tuple(folder for folder in folders if is_package(project / folder))

    def missing_packages(self, project: Path) -> tuple[str, ...]:
        """Return packages (``digits``, ``a/b``) that the project lacks, which get an empty __init__.py in the wheel.

        Their parent folders get none, so that they are namespaces (PEP 420), which other wheels can share.
        """
        packages = dict.fromkeys(module.rpartition(".")[0].replace(".", "/") for module in self.modules)
        return tuple(folder for folder in packages if not is_package(project / self.source / folder))


DIM = {"type": "integer", "minimum": 1}
BUDGET = "[tool.mlaot.budget]"
ONNXRUNTIME = "[tool.mlaot.onnxruntime]"
TABLES = {
    Settings: "[tool.mlaot]",
    ModelSettings: "[tool.mlaot.models.<name>]",
    Budget: "[tool.mlaot.models.<name>.budget]",
    Lora: "[tool.mlaot.models.<name>.lora]",
    ProjectBudget: BUDGET,
    OnnxRuntime: ONNXRUNTIME,
}


def is_package(folder: Path) -> bool:
    """Tell whether a folder or its subfolders have Python code. A folder with only data is not a package."""
    return folder.is_dir() and any(folder.rglob("*.py"))
