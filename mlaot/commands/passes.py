"""``mlaot passes``: print how each pass changes the graph, or the result of one pass on a graph read as text."""

from __future__ import annotations

import argparse
import sys

from mlaot.commands.project import TARGET, project_of
from mlaot.stages import GENERATE, PASSES

STAGES = GENERATE[: GENERATE.index(PASSES) + 1]
HELP = "print node counts per pass, or what one pass makes of a graph"
DESCRIPTION = """\
Print the number of nodes of the graph after each pass that changed it. With --egraph,
rewrite by an e-graph of all rules, too, and print which rules made what of what.
With --only, read graphs from the standard input, in the form that MLAOT_DUMP prints,
and print what that pass alone makes of them; inputs noted as parameters hold random
numbers.
"""
EXAMPLES = """\
  mlaot passes                                 each model of the project in this folder
  mlaot passes model:digits                    one function, without a pyproject.toml
  MLAOT_DUMP=raise_tensors mlaot passes        the graphs after that pass as well
  mlaot passes --egraph model:digits           with the cheapest of all forms, and its proof
  mlaot passes --only simplify < graph.txt     the graph of a text, after one pass
  mlaot passes --only lower < graph.txt        its program: buffers and loop nests

In graph.txt:
  graph f:
    v0 = input(name=x) : f32[2]
    v1 = neg(v0) : f32[2]
    v2 = neg(v1) : f32[2]
    return y=v2
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("target", nargs="?", default=".", help=TARGET)
    parser.add_argument("--egraph", action="store_true", help="rewrite by an e-graph, too, and print its proof")
    parser.add_argument("--only", metavar="NAME", help="run this pass on graphs read from the standard input")


def run(options: argparse.Namespace) -> int:
    """Print a block of lines for each model, or the graphs after one pass."""
    if options.only is not None:
        run_only(options.only, sys.stdin.read())
        return 0
    with project_of(options.target) as (_, settings):
        from mlaot.report.passes import pass_report

        print(pass_report(settings, egraph=options.egraph).rstrip())
    return 0


def run_only(name: str, source: str) -> None:
    """Print the result of the pass ``name`` on each graph in a text."""
    from mlaot import passes
    from mlaot.errors import MlaotError
    from mlaot.ir.text import parse_all, text

    graphs = parse_all(source)
    if not graphs:
        raise MlaotError("no graph on the standard input; expected the text of one, such as MLAOT_DUMP prints")
    if name == passes.LOWERING:
        from mlaot.lower.lower import lower
        from mlaot.lower.text import program_text

        for graph in graphs:
            print(program_text(lower(passes.module_of(graph, graph.name)[0])))
        return
    for graph in graphs:
        for result in passes.run_one(name, graph).values():
            print(f"{text(result)}\n")
