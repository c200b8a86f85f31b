"""What all commands of ``mlaot`` have in common: help, exit statuses, Ctrl-C, closed pipes."""

from __future__ import annotations

import re
import signal
import time
from importlib import metadata
from pathlib import Path

import pytest

from mlaot.cli import COMMANDS, main, parser

from .commands.conftest import Cli, cli, complaint, start

__all__ = ["cli"]

NAMES = [command.__name__.rpartition(".")[2] for command in COMMANDS]


def test_help_lists_commands_and_exit_statuses(cli: Cli) -> None:
    status, out, _ = cli("--help")
    assert status == 0
    assert re.findall(r"^    (\w+)\b", out, re.MULTILINE) == NAMES
    assert re.findall(r"^  (\d+) ", out, re.MULTILINE) == ["0", "1", "2", "130"]


@pytest.mark.parametrize("name", NAMES)
def test_help_of_each_command_has_examples_that_parse(name: str, cli: Cli) -> None:
    status, out, _ = cli(name, "--help")
    examples = re.findall(rf"^  .*?\bmlaot ({name}\b.*?)(?:  |$)", out.partition("\nexamples:\n")[2], re.MULTILINE)
    assert status == 0 and examples
    for example in examples:
        parser().parse_args(re.split(" [<>]", example)[0].split())


def test_wrong_usage_is_2(cli: Cli) -> None:
    assert cli().status == cli("compile").status == cli("emit").status == 2


def test_without_a_command_it_helps(cli: Cli) -> None:
    assert cli().out == cli("--help").out


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"mlaot {metadata.version('mlaot')}\n", "")


def test_a_wrong_project_is_1(cli: Cli, tmp_path: Path) -> None:
    assert complaint(cli("passes", tmp_path)) == f"mlaot: no pyproject.toml in {tmp_path}"


def test_a_file_that_cannot_be_written_is_1(cli: Cli, tmp_path: Path) -> None:
    long = tmp_path / ("a" * 300)
    assert complaint(cli("init", long)) == f"mlaot: {long / 'pyproject.toml'}: File name too long"


@pytest.mark.parametrize("command", ["passes slow:model", "inspect slow"])  # in this process, and in one of its own
def test_ctrl_c_is_quiet(command: str, tmp_path: Path) -> None:
    text = "import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(60)\n"
    (tmp_path / "slow.py").write_text(text)
    with start(*command.split(), cwd=tmp_path) as process:
        while not (tmp_path / "here").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_quiet(unbuffered: str, tmp_path: Path) -> None:
    model = "import mlaot\n\n@mlaot.model\ndef model(x: mlaot.f32[2]):\n    return x + 1\n"
    (tmp_path / "quick.py").write_text(model)
    with start("passes", "quick:model", cwd=tmp_path, PYTHONUNBUFFERED=unbuffered) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_main_returns_the_status(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "digits")]) == 0
