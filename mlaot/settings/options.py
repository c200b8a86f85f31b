"""The settings of passes, lowering and rendering, as one value that is passed from pyproject.toml to the C."""

from __future__ import annotations

from dataclasses import dataclass

from mlaot.schedule.machine import MACHINES
from mlaot.settings.keys import choice, flag, key


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings by which a model is compiled. Their keys are in the same table as those of ``ModelSettings``.

    ``isas`` are all instruction sets to generate C for. ``threads`` is the default number of threads of a call, and
    ``runtime`` is the module with the runtime of all models. A project sets these three for all of its models. With
    ``egraph`` the pass of that name also runs; no project sets it.
    """

    c_library: bool = flag("also put a static library, its header and a CMake package for C and C++ into the wheel")
    deterministic: bool = flag("as in `[tool.mlaot]`, for this model", otherwise="what `[tool.mlaot]` says")
    winograd: str = choice(
        "the largest tiles in which 3x3 convolutions of fixed weights are computed",
        ("F2", "F4", "off"),
        default="F2",
        example="F4",
    )
    fast_division: bool = flag(
        "whether many numbers are divided by one as a product with its reciprocal: faster, but off by a last bit, and"
        " wrong where the reciprocal overflows; never with `deterministic`"
    )
    frozen: bool = flag(
        "whether the weights of a model without a loss are constants of the library; if not, `load` replaces them",
        default=True,
    )
    intermediates: bool = flag(
        "whether the module has a function `intermediates`, which returns the values that `mlaot.tap` names"
    )
    profile: bool = flag(
        "whether the module has a function `profile`, which times the kernels of a call: for finding out what takes"
        " time, as each kernel then reads a clock"
    )
    weights: str = choice(
        "where the weights are: `inside` the extension module, or in a `file` beside it; `auto` is `file` above 64 MB",
        ("auto", "inside", "file"),
        default="auto",
        example="file",
    )
    weights_dtype: str = choice(
        "`float16` or `bfloat16`: frozen float32 weights of products, and tables, are rounded to that dtype and stored"
        " in it; `int8` or `int4`: weights of dense layers only, with a scale for each group of 32",
        ("float16", "bfloat16", "int8", "int4"),
        default="",
        otherwise="that of the model",
        example="float16",
    )
    quantize: str = choice(
        "`int8`: products with frozen float32 weights are computed in bytes where that is faster; the ranges come from"
        " `sample`, or else from each call; `int8-all`: also where bytes only save memory",
        ("int8", "int8-all"),
        default="",
        otherwise="none",
        example="int8",
    )
    unchecked: str = key(
        "the reason why the module has no golden vectors: for a model that amplifies rounding beyond their bounds;"
        " `info()` shows it",
        default="",
        otherwise="none: the module has golden vectors",
        expected="a reason",
        example="its steps amplify rounding",
    )
    isas: tuple[str, ...] = tuple(MACHINES)
    threads: int = 1
    runtime: str = ""
    egraph: bool = False


DEFAULTS = Options()
