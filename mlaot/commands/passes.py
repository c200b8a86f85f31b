"""``mlaot passes``: how the graph shrinks, and what one pass does to a graph that is given as text."""

from __future__ import annotations

import argparse
import sys

from mlaot.commands.project import TARGET, project_of

HELP = "print node counts per pass, or what one pass makes of a graph"
DESCRIPTION = """\
Print the number of nodes of the graph after each pass that changed it. With --only,
read graphs from the standard input, in the form that MLAOT_DUMP prints, and print
what that pass alone makes of them; inputs noted as parameters hold random numbers.
"""
EXAMPLES = """\
  mlaot passes                                 each model of the project in this folder
  mlaot passes model:digits                    one function, without a pyproject.toml
  MLAOT_DUMP=raise_tensors mlaot passes        the graphs after that pass as well
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
    """The arguments."""
    parser.add_argument("target", nargs="?", default=".", help=TARGET)
    parser.add_argument("--only", metavar="NAME", help="run this pass on graphs read from the standard input")


def run(options: argparse.Namespace) -> int:
    """One block of lines for a model, or the graphs after one pass."""
    if options.only is not None:
        only(options.only, sys.stdin.read())
        return 0
    with project_of(options.target) as (_, settings):
        from mlaot.report.passes import pass_report

        print(pass_report(settings).rstrip())
    return 0


def only(name: str, source: str) -> None:
    """Print what the pass ``name`` makes of each graph of a text."""
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
        for made in passes.run_one(name, graph).values():
            print(f"{text(made)}\n")
