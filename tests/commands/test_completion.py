"""``mlaot completion``: the scripts complete what the parser knows."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mlaot.cli import COMMANDS
from mlaot.commands.completion import SHELLS

from .conftest import Cli

NAMES = [command.__name__.rpartition(".")[2] for command in COMMANDS]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_there(shell: str, cli: Cli) -> None:
    out = cli("completion", shell).out
    assert all(name in out for name in (*NAMES, "base neon v3 v4 all"))
    if found := shutil.which(shell):
        assert subprocess.run([found, "-n"], input=out, text=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", [*NAMES, "--help"]),
        ("in", ["init", "inspect"]),
        ("bench --isa ", ["base", "neon", "v3", "v4", "all"]),
        ("bench --isa v", ["v3", "v4"]),
        ("inspect --g", ["--graph"]),
        ("inspect digits.nn --j", ["--json"]),
        ("completion z", ["zsh"]),
        ("emit --out ", []),  # bash itself offers files
        ("inspect di", []),
    ],
)
def test_bash(line: str, offered: list[str], cli: Cli) -> None:
    words = " ".join(f"'{word}'" for word in f"mlaot {line}".split(" "))
    script = f"{cli('completion', 'bash').out}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_mlaot\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}echo "${{COMPREPLY[@]}}"'], capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")
