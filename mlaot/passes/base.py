"""Passes: each is a function of graphs or of a module, with the passes that must run before, and its options.

@pass_over("graphs", after=("contract",))
def sink_reshapes(graph: Graph) -> None: ..
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, ParamSpec

from mlaot.frontend.trace.declaration import Traced
from mlaot.ir.module import Module
from mlaot.passes.subgraphs import everywhere
from mlaot.settings.options import Options

P = ParamSpec("P")
# What ``run`` calls a pass with: each graph of a module and each of its subgraphs; each graph without its subgraphs;
# the graph of a scalar model; the module; the module and the traced model.
Scope = Literal["graphs", "entries", "scalars", "module", "declaration"]


@dataclass(frozen=True)
class Pass(Generic[P]):
    """A pass, which has its file's name. Calling it calls its function."""

    function: Callable[P, None]
    scope: Scope
    after: tuple[str, ...]
    when: Callable[[Options], bool]

    @property
    def name(self) -> str:
        """The name in reports, in errors and in ``MLAOT_DUMP``."""
        return self.function.__name__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        self.function(*args, **kwargs)

    def run(self, module: Module, traced: Traced) -> None:
        """Run the pass on everything in its scope, if the options of the module ask for it."""
        if not self.when(module.options):
            return
        call: Callable[..., None] = self.function
        match self.scope:
            case "module":
                call(module)
            case "declaration":
                call(module, traced)
            case "scalars":
                if traced.counts:
                    everywhere(call, module.graphs["model"])
            case "entries":
                for graph in module.graphs.values():
                    call(graph)
            case "graphs":
                for graph in module.graphs.values():
                    everywhere(call, graph)


def pass_over(
    scope: Scope, *, after: tuple[str, ...] = (), when: Callable[[Options], bool] = lambda options: True
) -> Callable[[Callable[P, None]], Pass[P]]:
    """Return a decorator that makes a function a pass; ``after`` names the passes that must have run before it."""
    return lambda function: Pass(function, scope, after, when)


def check_order(pipeline: Iterable[Pass[...]]) -> None:
    """Raise an error for a pipeline in which a pass runs before one that it needs."""
    names: set[str] = set()
    for step in pipeline:
        for name in step.after:
            assert name in names, f"bug in mlaot: the pass {step.name} needs {name}, which has not run before it"
        names.add(step.name)
