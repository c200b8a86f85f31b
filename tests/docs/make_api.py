"""Write ``docs/api.md`` from signatures and docstrings: ``python -m tests.docs.make_api``.

What needs a package that tests do without, such as PyTorch, is read from its source; all else is imported, since many
layers are made while ``mlaot.nn`` is.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import mlaot
import mlaot.eager
import mlaot.micrograd
import mlaot.nn
import mlaot.optim
from mlaot import f64, nn, tokenizers
from mlaot.binding.fit import make_fit
from mlaot.binding.interface import attributes
from mlaot.binding.methods import Method, methods
from mlaot.generate import compile_model
from mlaot.ir import DType
from mlaot.nn import stateless
from mlaot.settings.options import Options

from ..projects import ROOT
from .make_ops import first_sentence, own_parameters, shown_parameters, table

PAGE = ROOT / "docs" / "api.md"
COMMAND = "python -m tests.docs.make_api"
WIDTH = 100  # of a signature on one line
UNTOLD = ("", "Any", "Array", "NdArray", "_Data", "typing.Any")  # types that say no more than the page's head
HEAD = f"""\
# API

<!-- written by {COMMAND} -->

Every public name with its arguments, their types and defaults. Arguments without a type are arrays, traced ones or
NumPy's, or numbers.

The functions of NumPy, and those of `mlaot.nn.functional`, are listed with [Ops and functions](ops.md#functions).
[The module](module.md) shows by examples what a compiled model does.
"""


@dataclass(frozen=True)
class Entry:
    """A name with what is said of it. ``call`` is what follows the name; ``parts`` are lines about methods."""

    name: str
    call: str
    doc: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Entries that a reader looks for together, and a sentence about them."""

    title: str
    about: str
    entries: tuple[Entry, ...]


Parts = dict[str, list[Group]]


# What an entry says.


def prose(text: str | None) -> str:
    """Return a docstring as Markdown."""
    return inspect.cleandoc(text or "").replace("``", "`")


def docstring(value: Any) -> str | None:
    """Return the docstring that is a value's own, not inherited."""
    found = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    return str(found) if found else None


def typed(given: Iterable[inspect.Parameter]) -> list[str]:
    """Return parameters with their types; those that are traced arrays, or anything, say no type."""
    return shown_parameters(given, annotation)


def annotation(parameter: inspect.Parameter) -> str:
    """Return the type of a parameter, if it says more than that it is an array."""
    kind = parameter.annotation
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return "" if kind is parameter.empty or text in UNTOLD else f": {text}"


def call(name: str, value: Any) -> str:
    """Return what follows a name, on several lines where one is too long."""
    given = typed(own_parameters(value))
    kind = "" if isinstance(value, type) else inspect.signature(value).return_annotation
    end = f") -> {kind}" if isinstance(kind, str) and kind not in (*UNTOLD, "None") else ")"
    line = f"({', '.join(given)}{end}"
    return line if len(name) + len(line) <= WIDTH else "(\n" + "".join(f"    {part},\n" for part in given) + end


def called(name: str, arguments: str) -> str:
    """Return what follows a name, of a function that there is in text only: ``(x: int) -> int``."""
    namespace: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef function{arguments}: ...", namespace)
    return call(name, namespace["function"])


def own_methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class offers beyond calling it; what its bases have too is said there."""
    for name, value in vars(kind).items():
        is_new = not name.startswith("_") and not any(hasattr(base, name) for base in kind.__mro__[1:])
        is_method = isinstance(value, FunctionType | property | classmethod)
        if is_new and is_method and name not in ("forward", "function"):
            yield name, value


def method_line(name: str, value: Any) -> str:
    """Return a line about a method or a property."""
    if isinstance(value, property):
        return f"* `.{name}`: {first_paragraph(value.fget)}"
    function = value.__func__ if isinstance(value, classmethod) else value
    given = typed(list(inspect.signature(function).parameters.values())[1:])
    return f"* `.{name}({', '.join(given)})`: {first_paragraph(function)}"


def first_paragraph(value: Any) -> str:
    return prose(value.__doc__).partition("\n\n")[0].replace("\n", " ")


def entry(prefix: str, name: str, value: Any) -> Entry:
    """Return what there is to say of a value."""
    full = f"{prefix}.{name}"
    if not isinstance(value, type):
        return Entry(full, call(full, value), prose(value.__doc__))
    is_made = value is tokenizers.Tokenizer or issubclass(value, Exception | dict | mlaot.micrograd.Table)
    lines = tuple(method_line(*each) for each in own_methods(value))
    return Entry(full, "" if is_made else call(full, value), prose(docstring(value)), lines)


def entries(module: Any, names: Iterable[str], prefix: str = "") -> tuple[Entry, ...]:
    """Return the entries of names of a module."""
    return tuple(entry(prefix or module.__name__, name, getattr(module, name)) for name in names)


def from_source(name: str, path: str) -> Entry:
    """Return the entry of a function in a file that is not imported."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    function = name.rpartition(".")[2]
    (node,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    return Entry(name, called(name, f"({ast.unparse(node.args)})"), prose(ast.get_docstring(node)))


def dtypes() -> Entry:
    """Return the one entry of all dtypes."""
    names = [name for name in mlaot.__all__ if isinstance(getattr(mlaot, name), DType)]
    listed = ", ".join(f"`{name}`" for name in names)
    return Entry("mlaot.f32", "[batch, 784]", f"{prose(DType.__doc__)}\n\nThere are {listed}.")


# The module that a build makes: that of a small model which trains.


def compiled() -> tuple[Entry, ...]:
    """Return the functions of a compiled module, whose text is that of its own docstrings."""
    layer = nn.Linear(3, 2)

    def net(x: Any) -> Any:
        return layer(x)

    def loss(y: Any, target: Any) -> Any:
        return ((y - target) ** 2).mean()

    net.__annotations__, loss.__annotations__ = {"x": f64[3]}, {"target": f64[2]}
    declared = mlaot.model(net, loss=loss, parameters=layer)
    module = compile_model(declared, "package.nn", Options(isas=("base",))).module
    fit = make_fit(module)
    found = [Entry(f"nn.{m.name}", stub(m), listed(m.doc)) for m in methods(module, fit, scalars=False)]
    found += [Entry(f"nn.{each.name}", f": {each.type}", prose(each.doc)) for each in attributes(module)]
    return tuple(found)


def stub(method: Method) -> str:
    """Return the signature in the lines of a stub, the first one where there are several."""
    line = next(line for line in method.lines if line.startswith("def "))
    return called(f"nn.{method.name}", line.removeprefix(f"def {method.name}").removesuffix(" ...").removesuffix(":"))


def listed(doc: str) -> str:
    """Return a docstring whose last lines are about one argument each, as a list of these."""
    return "\n\n".join(
        re.sub(r"^", "* ", part, flags=re.MULTILINE) if "\n" in part else part for part in doc.split("\n\n")
    )


# The page.


def of_nn(file: str) -> tuple[Entry, ...]:
    """Return the layers of a file of ``mlaot.nn``."""
    return entries(nn, importlib.import_module(f"mlaot.nn.{file}").__all__)


def models() -> list[Group]:
    """Return the groups of what models are declared with."""
    loaders = {"onnx": "onnx/declare", "torch": "torch", "sklearn": "sklearn/declare", "llm": "llm/declare"}
    return [
        Group(
            "Declare a model",
            "A declaration is what a [project](settings.md#toolmlaotmodelsname) names as its model.",
            (
                *entries(mlaot, ("model", "parameters", "load", "lora", "dim", "tap", "is_training", "training")),
                entry("mlaot", "MlaotError", mlaot.MlaotError),
            ),
        ),
        Group(
            "Types and weights",
            "What the arguments of a model are, and what it holds.",
            (dtypes(), *entries(mlaot, ("Parameter", "Buffer", "Strings", "Text", "Tokens"))),
        ),
        Group(
            "Loops and branches",
            "What the data decide while the model runs; see [What is traced](traced.md).",
            entries(mlaot, ("cond", "scan", "fori_loop", "while_loop")),
        ),
        Group(
            "Derivatives and batches",
            "Functions of functions, for use within a model.",
            entries(mlaot, ("grad", "value_and_grad", "jvp", "vmap", "stop_gradient")),
        ),
        Group(
            "Functions of arrays",
            "Those of mlaot. All that NumPy has are in [a list](ops.md#numpy-and-scipy), and so are\n"
            "[random numbers](ops.md#mlaotrandom).",
            entries(mlaot, ("relu", "gelu", "sigmoid", "softmax", "log_softmax", "logsumexp"))
            + entries(mlaot, ("arange", "one_hot", "pad", "sparse", "top_k", "tree_ensemble")),
        ),
        Group(
            "Models of other libraries",
            "In Python what the keys `onnx`, `torch`, `sklearn` and `llm` of the [settings](settings.md) do.",
            tuple(from_source(f"mlaot.{name}.load", f"mlaot/{path}.py") for name, path in loaders.items()),
        ),
        Group("Tokenizers", "Text to tokens, and back.", entries(tokenizers, tokenizers.__all__)),
    ]


def scalars() -> list[Group]:
    """Return the groups of single numbers."""
    values = ("Value", "Neuron", "Layer", "MLP", "Module", "where", "cross_entropy", "stable_softmax")
    declared = ("declare", "compile", "Bytes", "Index", "Label", "Length", "Sparse", "images")
    graphs = ("count", "draw_dot", "pretty", "trace", "find", "make_equal_to", "optimize", "fma_chances")
    found = {
        "Values and networks": (
            "The API of micrograd, and what compiled graphs need besides; see [Scalars](micrograd.md).",
            (*values, "Max", "Min", "Dot", "Array", "Table"),
        ),
        "Declarations": ("A graph of values as a model.", declared),
        "Graphs": ("Look at a graph, count it, rewrite it.", graphs),
    }
    groups = [Group(title, about, entries(mlaot.micrograd, names)) for title, (about, names) in found.items()]
    about = "The objects of the second [post](posts.md), computed at once."
    return [*groups, Group("Eager tensors", about, entries(mlaot.eager, mlaot.eager.__all__))]


# Layers without parameters by what they are for; all others are activations.
SHAPES = (
    "ChannelShuffle",
    "CosineSimilarity",
    "Flatten",
    "Fold",
    "Identity",
    "PairwiseDistance",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unflatten",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
)
KINDS: dict[str, Callable[[str], bool]] = {
    "loss": lambda name: name.endswith("Loss"),
    "pooling": lambda name: "Pool" in name,
    "dropout": lambda name: "Dropout" in name,
    "shape": SHAPES.__contains__,
    "normalization": lambda name: name.endswith("Norm"),
    "activation": lambda name: True,
}


def plain_layers(kind: str) -> tuple[Entry, ...]:
    """Return the layers without parameters of a kind."""
    found = {name: next(kind for kind, holds in KINDS.items() if holds(name)) for name in stateless.__all__}
    return entries(nn, [name for name in found if found[name] == kind])


def layers() -> list[Group]:
    """Return the groups of layers, and of what their weights start with."""
    about = "What holds parameters and parts. The functions behind layers are in [a list](ops.md#mlaotnnfunctional)."
    return [
        Group("Modules", about, of_nn("module")),
        Group("Linear and lookup", "Products and tables.", of_nn("parametric")),
        Group("Convolution", "Over one, two and three axes.", of_nn("convolution")),
        Group("Pooling", "Over one, two and three axes.", plain_layers("pooling")),
        Group("Padding", "Around the spatial axes.", of_nn("padding")),
        Group("Normalization", "By statistics of the data.", of_nn("normalization") + plain_layers("normalization")),
        Group("Activations", "Element by element, or along an axis.", plain_layers("activation")),
        Group("Dropout", "Only where a model trains.", plain_layers("dropout")),
        Group("Recurrent layers", "Along time.", of_nn("recurrent")),
        Group("Attention", "And transformers, which are made of it.", of_nn("attention") + of_nn("transformer")),
        Group("Shapes and distances", "Axes rearranged, images resized, vectors compared.", plain_layers("shape")),
        Group("Losses", "What training makes small.", plain_layers("loss")),
        Group("Trees", "Forests that were trained elsewhere.", of_nn("trees")),
        Group("Initial values", "Arrays to make parameters of.", entries(nn.init, nn.init.__all__)),
    ]


def training() -> list[Group]:
    """Return the groups of optimizers."""
    optim = mlaot.optim
    shared = "For `optimizer=` of `mlaot.model` and `declare`. `**shared` are the named arguments of `Optimizer`."
    names = [*optim.base.__all__, *optim.optimizers.__all__, *optim.adaptive.__all__]
    about = "Functions of the step, for `schedule=` of an optimizer."
    return [
        Group("Optimizers", shared, entries(optim, names)),
        Group("Schedules", about, entries(optim, optim.schedules.__all__)),
        Group("Schedulers", "The same, as PyTorch has it.", entries(optim.lr_scheduler, optim.lr_scheduler.__all__)),
    ]


def parts() -> Parts:
    """Return all groups in the order of the page."""
    about = (
        "What the module `nn` has of a model that trains, here one that takes `x` and `target`. `nn.Model()` is an\n"
        "instance with parameters of its own and has the same as methods. [The module](module.md) tells more."
    )
    return {
        "Models": models(),
        "Scalars": scalars(),
        "Layers": layers(),
        "Training": training(),
        "Compiled modules": [Group("Functions of a module", about, compiled())],
    }


def anchor(heading: str) -> str:
    """Return the name of a heading, as GitHub and MkDocs make it."""
    return heading.lower().replace(".", "").replace(" ", "-")


def section(group: Group) -> Iterator[str]:
    """Yield a group: its table, then its entries."""
    yield f"### {group.title}\n"
    yield f"{group.about}\n"
    names = [each.name.rpartition(".")[2] for each in group.entries]
    shown = names if len({*names}) == len(names) else [each.name for each in group.entries]
    links = [f"[`{name}`](#{anchor(each.name)})" for name, each in zip(shown, group.entries, strict=True)]
    rows = zip(links, (first_sentence(each.doc) for each in group.entries), strict=True)
    yield table(("name", "what it is"), rows)
    for each in group.entries:
        yield f"#### `{each.name}`\n"
        yield f"```py\n{each.name}{each.call}\n```\n"
        yield f"{each.doc}\n"
        if each.parts:
            yield "\n".join(each.parts) + "\n"


def lines() -> Iterator[str]:
    """Yield the page."""
    yield HEAD
    found = parts()
    links = {part: ", ".join(f"[{g.title}](#{anchor(g.title)})" for g in groups) for part, groups in found.items()}
    yield table(("part", "groups"), links.items())
    for part, groups in found.items():
        yield f"## {part}\n"
        for group in groups:
            yield from section(group)


def page() -> str:
    """Return the whole text."""
    return "\n".join(lines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {sum(len(group.entries) for groups in parts().values() for group in groups)} names")
