"""Draw ``docs/terminal.svg``, a session in a terminal that types itself: ``python -m tests.docs.make_terminal``.

With ``--record`` the session is held anew, and written to ``tests/docs/session.txt``: the quick start of README.md,
from its two files to the answers of the wheel in an environment that has nothing else. The drawing moves once, by CSS
alone, and stands still for readers who prefer that.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path

from ..projects import ROOT

SESSION = Path(__file__).with_name("session.txt")
PICTURE = ROOT / "docs" / "terminal.svg"
COMMAND = "python -m tests.docs.make_terminal"
PROMPTS = ("$ ", ">>> ")
COLUMNS, CHARACTER, LINE, MARGIN, BAR = 72, 8.0, 19, 16, 28  # of characters; in pixels
TYPING, THINKING = 0.012, 0.35  # seconds for a character, and before a command
TYPED = ["cat model.py", "mlaot build", "python -m venv empty", "empty/bin/pip install -q dist/xor-*.whl"]
LIST = "empty/bin/python -m pip list --format freeze"
STYLE = """\
text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dce5; white-space: pre }
.prompt { fill: #7fd1a8 }
.title { fill: #9aa5b8 }
.line { opacity: 0; animation: show 1ms linear forwards }
.typed { clip-path: inset(0 100% 0 0); animation: type 1s linear forwards }
@keyframes show { to { opacity: 1 } }
@keyframes type { to { clip-path: inset(0 0 0 0) } }
@media (prefers-reduced-motion: reduce) { .line, .typed { animation: none; opacity: 1; clip-path: none } }"""


def quick_start() -> dict[str, str]:
    """The two files of README.md, and what it then types into Python."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    (found[">>>"],) = re.findall(r"^```pycon\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


def typed_lines(pycon: str) -> list[str]:
    """What a session in Python types."""
    return [line.removeprefix(">>> ") for line in pycon.splitlines() if line.startswith(">>> ")]


def recorded() -> str:
    """A session, held in an empty folder."""
    files = quick_start()
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = Path(folder) / "bin"
        bin_folder.mkdir()
        (bin_folder / "mlaot").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlaot "$@"\n', encoding="utf-8")
        (bin_folder / "mlaot").chmod(0o755)
        for name in ("pyproject.toml", "model.py"):
            (Path(folder) / name).write_text(files[name], encoding="utf-8")
        path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        environ = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

        def run(command: str, said: str = "") -> str:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            done = subprocess.run(["sh", "-c", command], input=said, cwd=folder, env=environ, check=True, **pipes)
            return str(done.stdout)

        lines = [f"$ {command}\n{run(command)}" for command in TYPED]
        environ.pop("PYTHONPATH")
        lines += [f"$ {LIST}\n{run(LIST)}"]
        typed = typed_lines(files[">>>"])[:-1]  # without the file that it saves
        said = run("empty/bin/python -u -i -q", "".join(f"{line}\n" for line in typed)).split(">>> ")[1:]
        lines += ["$ empty/bin/python -q\n", *(f">>> {line}\n{a}" for line, a in zip(typed, said, strict=False))]
        return "".join(lines).rstrip("\n") + "\n"


def shown(session: str) -> list[str]:
    """The lines of the drawing: those of a session, the long ones of its output folded."""
    folded = [
        textwrap.wrap(line, COLUMNS, subsequent_indent="  ") or [""] if not line.startswith(PROMPTS) else [line]
        for line in session.splitlines()
    ]
    return [line for lines in folded for line in lines]


def drawing(session: str) -> str:
    """The whole picture."""
    body, now = [], THINKING
    lines = shown(session)
    for i, line in enumerate(lines):
        y = BAR + MARGIN + LINE * i + 10
        prompt = next((p for p in PROMPTS if line.startswith(p)), "")
        text, seconds = line.removeprefix(prompt), TYPING * len(line)
        if prompt:
            start = f'<text x="{MARGIN}" y="{y}" class="prompt">{escape(prompt.strip())}</text>'
            body.append(f'<g class="line" style="animation-delay: {now:.2f}s">{start}</g>')
            x = MARGIN + CHARACTER * len(prompt)
            style = f"animation-delay: {now:.2f}s; animation-duration: {seconds:.2f}s"
            body.append(f'<text x="{x:g}" y="{y}" class="typed" style="{style}">{escape(text)}</text>')
            now += seconds + THINKING
        elif text:
            style = f"animation-delay: {now - THINKING / 2:.2f}s"
            body.append(f'<text x="{MARGIN}" y="{y}" class="line" style="{style}">{escape(text)}</text>')
    width, height = 2 * MARGIN + CHARACTER * COLUMNS, BAR + 2 * MARGIN + LINE * len(lines)
    size = f'width="{width:g}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:g} {height}">',
            f"<!-- written by {COMMAND} -->",
            f"<style>\n{STYLE}\n</style>",
            f'<rect width="{width:g}" height="{height}" rx="8" fill="#1e2430"/>',
            *(f'<circle cx="{20 + 18 * i}" cy="16" r="5" fill="#4a556b"/>' for i in range(3)),
            f'<text x="{width / 2:g}" y="20" class="title" text-anchor="middle">from a declaration to a wheel</text>',
            *body,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="hold the session anew")
    if parser.parse_args().record:
        SESSION.write_text(recorded(), encoding="utf-8")
    PICTURE.write_text(drawing(SESSION.read_text(encoding="utf-8")), encoding="utf-8")
