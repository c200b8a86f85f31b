"""Write ``docs/ops.md`` from the registry of ops and the tables of the front end: ``python -m tests.docs.make_ops``.

The dtypes that an op takes are found by asking its type rule, with the arguments that the tests use. Gradients are told
by the VJP's docstring; where there is none, the VJP of an elementwise op is traced and written as a formula.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

import mlaot
import mlaot.nn
import mlaot.ops
import mlaot.optim
from mlaot.errors import MlaotError
from mlaot.frontend.numpy import namespace
from mlaot.frontend.numpy.ufuncs import UFUNCS
from mlaot.frontend.trace import protocols
from mlaot.frontend.trace.protocols import Operators
from mlaot.ir import DType, Graph, Node, Type
from mlaot.ir.types import BY_NUMPY, DTYPES, boolean, f64
from mlaot.ops import OPS, Op
from mlaot.ops.base import no_gradient

from ..lower.accuracy import ULP
from ..ops.samples import SAMPLES, Sample, samples
from ..projects import ROOT

PAGE = ROOT / "docs" / "ops.md"
COMMAND = "python -m tests.docs.make_ops"
HEAD = f"""\
# Ops and functions

<!-- written by {COMMAND} -->

What models are made of. The first part has the ops of the graph, each with all its rules in one object; the second part
has the functions that models are written with, which trace to these ops.

## How to read the tables

Every op has a type rule, which says what it takes and gives, and a NumPy reference, which is its meaning.

* **computes**: for indices also what becomes of those out of range that a model computes. Those that a caller gives, in
  an input that is only moved before, are a `ValueError` of the call ([Indices](module.md#indices)).
* **dtypes**: what the type rule takes. Floats are f16, bf16, f32, f64; integers i8 to i64 and u8 to u64; numbers are
  both; any is numbers and bool. Indices are of any integer dtype.
* **gradient**: what the VJP gives for each argument, `ct` being the cotangent of the result `out`. *None*: the op is
  flat wherever it is smooth, or its result is no real number. *Missing*: differentiating it is an error.
* **batching**: *elementwise* and *own rule* are how an op gets a leading batch dimension.
* **C**: an *expression* within a loop that other ops share, a *view* of its argument, or a *kernel* of its own.
"""
GROUPS = {"floats": "f", "integers": "iu", "bool": "b"}
WORDS = {
    ("floats", "integers", "bool"): "any",
    ("floats", "integers"): "numbers",
    ("integers", "bool"): "integers, bool",
}
SOURCES = ("input", "const", "size", "iota")  # ops without arguments: nothing to differentiate or to batch
INFIX = {"add": " + ", "sub": " - ", "mul": " * ", "div": " / "}


def family_modules() -> list[ModuleType]:
    """The files of families: what ``base`` and the IR define, one of these passes on."""
    names = sorted(module.name for module in pkgutil.iter_modules(mlaot.ops.__path__) if module.name != "base")
    return [importlib.import_module(f"mlaot.ops.{name}") for name in names]


def defined(module: ModuleType) -> list[Op]:
    """The ops that a file assigns to names of its own, or passes on (``import sum_ as sum_``), in their order."""
    names: list[str] = []
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.ImportFrom):
            names += [alias.name for alias in statement.names if alias.name == alias.asname]
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    values = [getattr(module, name, None) for name in names]
    return [value for value in values if isinstance(value, Op)]


def first_sentence(text: str | None) -> str:
    """The first sentence or line of a docstring, without its marks of code and its full stop."""
    line = inspect.cleandoc(text or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
    sentence, stop, rest = line.partition(". ")
    return (sentence if stop and rest[:1].isupper() else line).removesuffix(".").replace("|", "\\|")


# Dtypes.


def main_dtype(sample: Sample) -> Any:
    """The dtype of the arguments that are values: those that are no indices and no conditions."""
    kinds = [a.dtype for a in sample.args]
    return next((k for k in kinds if k.kind == "f"), kinds[-1] if kinds else None)


def takes(op: Op, sample: Sample, dtype: DType) -> bool:
    """Whether the type rule takes the arguments of ``sample`` when its values are of ``dtype``."""
    main = main_dtype(sample)
    types = [Type(dtype if a.dtype == main else BY_NUMPY[str(a.dtype)], a.shape) for a in sample.args]
    try:
        op.type_rule(*types, **sample.attrs)
    except MlaotError:
        return False
    return True


def dtypes(op: Op) -> str:
    """In words, the dtypes that an op takes."""
    tried = samples(op.name)[3:8] if op.name in SAMPLES else []
    if not tried or not tried[0].args:
        return "any"
    if "dtype" in tried[0].attrs:  # what it gives
        tried = [Sample(s.args, {**s.attrs, "dtype": d}) for s in tried for d in DTYPES.values()]
    taken = [d for d in DTYPES.values() if any(takes(op, sample, d) for sample in tried)]
    whole = {group: [d for d in DTYPES.values() if d.kind in kinds] for group, kinds in GROUPS.items()}
    groups = tuple(group for group, members in whole.items() if set(members) <= set(taken))
    rest = [d.name for d in taken if not any(d in whole[group] for group in groups)]
    return ", ".join([*([WORDS.get(groups, ", ".join(groups))] if groups else []), *rest])


# Gradients.


def gradient(op: Op) -> str:
    """In words or as formulas, what the VJP gives."""
    if op.name in SOURCES:
        return ""
    if op.vjp is None:
        return "missing"
    if op.vjp is no_gradient:
        return "none"
    if op.vjp.__doc__:
        return first_sentence(op.vjp.__doc__)
    return formulas(op) if op.elementwise and not samples(op.name)[3].attrs else "yes"


def formulas(op: Op) -> str:
    """The VJP of an elementwise op of floats, traced: a formula for each argument."""
    kinds = [f64 if a.dtype.kind == "f" else boolean for a in samples(op.name)[3].args]
    names = "x" if len(kinds) == 1 else parameter_names(op, len(kinds))
    graph = Graph("vjp")
    ct = graph.input("ct", Type(f64))
    args = [graph.input(name, Type(kind)) for name, kind in zip(names, kinds, strict=True)]
    assert op.vjp is not None
    found = op.vjp(ct, graph.input("out", Type(f64)), *args)
    each = [f"`{formula(g)}`" if g is not None else "none" for g in found]
    return each[0] if len(set(each)) == 1 else ", ".join(each)


def parameter_names(op: Op, count: int) -> list[str]:
    """What the VJP calls its arguments."""
    assert op.vjp is not None
    parameters = list(inspect.signature(op.vjp).parameters.values())[2:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return [f"x{i}" for i in range(count)]
    return [p.name for p in parameters]


def formula(node: Node, inside: str = "") -> str:
    """A node as a formula; ``inside`` is the op that it is an argument of."""
    node = node.find()
    if node.op.name == "input":
        return str(node.attrs["name"])
    if node.op.name == "const":
        return f"{float(node.attrs['value'].array):.6g}"
    sign = INFIX.get(node.op.name)
    if node.op.name == "neg":
        text = f"-{formula(node.arg(0), 'neg')}"
    elif sign is None:
        return f"{node.op.name}({', '.join(formula(a) for a in node.args)})"
    else:
        text = sign.join(formula(a, node.op.name if i else node.op.name + " first") for i, a in enumerate(node.args))
    loose = node.op.name in ("add", "sub", "neg") and inside not in ("", "add", "add first", "sub first")
    return f"({text})" if loose or inside == "div" else text


# The tables.


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def code(op: Op) -> str:
    """How C computes an op."""
    if op.name in ("input", "const", "result"):
        return ""
    return "view" if op.view is not None else "expression" if op.c is not None else "kernel"


def batching(op: Op) -> str:
    if op.name in SOURCES:
        return ""
    if op.axes is None and op.batch is None:
        return "missing"
    return "elementwise" if op.elementwise else "by its axes" if op.axes is not None else "own rule"


def meaning(op: Op) -> str:
    """What an op computes, and of which indices."""
    return op.doc if op.index is None else f"{op.doc}; indices out of range: {op.index.out_of_range}"


def ops_part() -> Iterator[str]:
    """A section a family."""
    yield "## Ops\n"
    for module in family_modules():
        ops = defined(module)
        if ops:
            path = f"mlaot/ops/{module.__name__.rpartition('.')[2]}.py"
            yield f"### {module.__name__.rpartition('.')[2].capitalize()}\n"
            yield f"{first_sentence(module.__doc__)}. In [{path}](../{path}).\n"
            rows = [(f"`{op.name}`", meaning(op), dtypes(op), gradient(op), batching(op), code(op)) for op in ops]
            yield table(("op", "computes", "dtypes", "gradient", "batching", "C"), rows)


def accuracy_part() -> Iterator[str]:
    yield "## Accuracy\n"
    yield (
        "The table has the largest errors of the vector functions, in units of the last place, on all instruction\n"
        "sets. [tests/lower/ulp.py](../tests/lower/ulp.py) measures them: in f32 for every number if the function has\n"
        "one argument, and in f64 at random points. Gradients, softmax and losses are made of these functions. Three\n"
        "of them have a slower and closer form in f32 for models that are `deterministic`.\n"
    )
    rows = [
        (f"`{name}`", *(f"{worst.get(grade, worst['f32']):.2f}" for grade in ("f32", "deterministic", "f64")))
        for name, worst in ULP.items()
    ]
    yield table(("function", "f32", "f32, deterministic", "f64"), rows)


def as_layer(value: Any) -> Any:
    """The function that a layer of ``mlaot.nn.stateless`` is made of, else None."""
    return getattr(value, "function", None) if isinstance(value, type) else None


def shown_parameters(
    given: Iterable[inspect.Parameter], annotation: Callable[[inspect.Parameter], str] = lambda p: ""
) -> list[str]:
    """Parameters with their defaults, and with what ``annotation`` makes of their types."""
    marks: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown: list[str] = []
    for p in given:
        if p.kind is p.KEYWORD_ONLY and not any(q.startswith("*") for q in shown):
            shown.append("*")
        kind = annotation(p)
        default = "" if p.default is p.empty else getattr(p.default, "__name__", None) or repr(p.default)
        sign = "" if p.default is p.empty else " = " if kind else "="
        shown.append(f"{marks.get(p.kind, '')}{p.name}{kind}{sign}{default}")
    return shown


def signature(value: Any) -> str:
    """The parameters with their defaults, without annotations."""
    if isinstance(value, np.ufunc):
        return f"({', '.join('xy'[: value.nin])})"
    if isinstance(value, type) and issubclass(value, Exception | dict):  # Python's own parameters
        return ""
    return f"({', '.join(shown_parameters(own_parameters(value)))})"


def own_parameters(value: Any) -> list[inspect.Parameter]:
    """The parameters of a function or a class; of a layer that a function is made into, those after its inputs."""
    skipped = getattr(value, "inputs", 0) if as_layer(value) else 0
    made = as_layer(value) if skipped else value
    return [] if isinstance(made, np.ufunc) else list(inspect.signature(made).parameters.values())[skipped:]


def own_doc(value: Any) -> str:
    """The first sentence of a docstring that is not inherited."""
    if isinstance(value, np.ufunc):
        return f"`np.{value.__name__}`"
    return first_sentence(vars(value).get("__doc__") if isinstance(value, type) else value.__doc__)


def listed(prefix: str, members: Mapping[str, Any]) -> str:
    """A table of functions or classes."""
    rows = [(f"`{prefix}{name}{signature(value)}`", own_doc(value)) for name, value in sorted(members.items())]
    return table(("name", "meaning"), rows)


def is_dtype(name: str, module: Any) -> bool:
    return isinstance(getattr(module, name), DType)


def public(module: Any) -> dict[str, Any]:
    """The functions and classes that a module offers."""
    return {n: getattr(module, n) for n in module.__all__ if callable(getattr(module, n)) and not is_dtype(n, module)}


def mlaot_functions() -> dict[str, Any]:
    """Those of mlaot itself, beside NumPy's and SciPy's."""
    return {n: v for n, v in namespace.OWN.items() if v.__doc__} | public(mlaot)


def words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def numpy_rows() -> Iterator[tuple[str, str]]:
    """NumPy's functions by the file that has their traced meaning, then ufuncs and methods."""
    by_file: dict[str, list[str]] = {}
    for name, function in protocols.FUNCTIONS.items():
        by_file.setdefault(inspect.unwrap(function).__module__, []).append(name)
    special = vars(namespace.SPECIAL)
    yield "NumPy's ufuncs", words(name for name in UFUNCS if name not in special)
    for module, names in by_file.items():
        yield first_sentence(importlib.import_module(module).__doc__), words(names)
    yield "ufuncs of `scipy.special`", words(name for name in UFUNCS if name in special)
    yield "methods and attributes of arrays", words(name for name in vars(Operators) if not name.startswith("_"))


def functions_part() -> Iterator[str]:
    yield "## Functions\n"
    yield (
        "All of these take traced arrays; given plain NumPy arrays, they compute at once. So do Python's operators,\n"
        "and indexing by integers, slices, `...`, `None`, arrays of integers and constant masks.\n"
    )
    yield "### mlaot\n"
    yield "Every function of NumPy's below is one of `mlaot` as well: `mlaot.where`, `mlaot.einsum`.\n"
    yield listed("mlaot.", mlaot_functions())
    yield "### NumPy and SciPy\n"
    yield table(("what", "names"), numpy_rows())
    for name in (
        "mlaot.random",
        "mlaot.nn",
        "mlaot.nn.functional",
        "mlaot.nn.init",
        "mlaot.optim",
        "mlaot.optim.lr_scheduler",
    ):
        module = importlib.import_module(name) if name != "mlaot.random" else mlaot.random
        yield f"### {name}\n"
        yield f"{first_sentence(module.__doc__)}.\n"
        yield listed("", public(module))


def page() -> str:
    """The whole text."""
    return "\n".join([HEAD, *ops_part(), *accuracy_part(), *functions_part()])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {len(OPS)} ops")
