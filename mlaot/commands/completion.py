"""``mlaot completion``: render a shell's completion script from the parser and ``templates/completion``."""

from __future__ import annotations

import argparse
from typing import Any

HELP = "print a script that completes commands and options"
DESCRIPTION = "Print a script with which a shell completes commands, options and their values."
EXAMPLES = """\
  mlaot completion bash >> ~/.bashrc
  mlaot completion zsh >> ~/.zshrc                                   behind compinit
  mlaot completion fish > ~/.config/fish/completions/mlaot.fish
"""
SHELLS = ("bash", "zsh", "fish")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(options: argparse.Namespace) -> int:
    """Print the template of the shell."""
    from mlaot.render import render

    print(render(f"completion/{options.shell}.j2", commands=commands_of(options.parser())), end="")
    return 0


def commands_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Describe the commands and their options for the templates."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in commands._choices_actions}
    return [
        {
            "name": name,
            "help": escape_help(helps[name]),
            "options": [option(action) for action in command._actions if action.option_strings],
            **values([action for action in command._actions if not action.option_strings]),
        }
        for name, command in commands.choices.items()
    ]


def option(action: argparse.Action) -> dict[str, Any]:
    """Describe an option: its long form, whether it takes a value, and which."""
    choices = list(action.choices or ())
    takes = action.nargs != 0
    return {
        "flag": action.option_strings[-1],
        "help": escape_help(action.help or ""),
        "choices": choices,
        "zsh": f":{action.dest}:{zsh_values(choices)}" * takes,
        "fish": (f"-x -a '{' '.join(choices)}' " if choices else "-r ") * takes,
    }


def values(positionals: list[argparse.Action]) -> dict[str, Any]:
    """Describe the positional arguments of a command: one of a few words, or files."""
    choices = [choice for action in positionals for choice in action.choices or ()]
    return {"choices": choices, "zsh": f"*:value:{zsh_values(choices)}"}


def zsh_values(choices: list[str]) -> str:
    """Return an action of zsh's ``_arguments``."""
    return f"({' '.join(choices)})" if choices else "_files"


def escape_help(text: str) -> str:
    """Escape a help text for single quotes; zsh puts it into brackets."""
    return text.replace("'", r"'\''").replace("[", "(").replace("]", ")")
