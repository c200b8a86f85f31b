"""Reports in a browser: every control used, what the console says, and pictures of the page.

::

    python -m tests.page.walk FILE.html... [--pictures FOLDER]
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
WIDTHS = (1280, 390)
# Chromium's window is never narrower than this; a page of a phone's width is shown in a frame.
NARROWEST, HEIGHT = 500, 1600
TOLD = ("errors", "unused", "links", "overflow", "width", "ground", "rows", "dots")
LISTEN = """<script>
window.walkedErrors = [];
addEventListener("error", (event) => walkedErrors.push(event.message || "a resource is missing"), true);
for (const kind of ["error", "warn"]) console[kind] = (...words) => walkedErrors.push(words.join(" "));
</script>"""


def walk(page: Path, *, width: int = WIDTHS[0], dark: bool = False) -> dict[str, Any]:
    """Use each control of a report, and return what ``walk.js`` found."""
    text = page.read_text(encoding="utf-8")
    script = Path(__file__).with_name("walk.js").read_text(encoding="utf-8")
    text = text.replace("<head>", f"<head>{LISTEN}", 1).replace("</body>", f"<script>{script}</script></body>")
    found = re.search(r'<pre id="walked">(.*?)</pre>', _show(text, "--dump-dom", width=width, dark=dark), re.DOTALL)
    assert found is not None, "the walk did not come to its end"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


def picture(page: Path, out: Path, *, width: int = WIDTHS[0], dark: bool = False) -> None:
    """Take a picture of the beginning of a page."""
    _show(page.read_text(encoding="utf-8"), f"--screenshot={out.resolve()}", width=width, dark=dark)


def _show(text: str, option: str, *, width: int, dark: bool) -> str:
    """Show a page in a frame of a browser of its own, and return what that prints."""
    text = text.replace("(prefers-color-scheme: dark)", "all") if dark else text  # no option of Chromium does it
    style = "border:0;margin:0"
    frame = f'<iframe srcdoc="{html.escape(text)}" width="{width}" height="{HEIGHT}" style="{style}"></iframe>'
    with tempfile.TemporaryDirectory(prefix="mlaot-", ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "page.html"
        page.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">{frame}</body>', encoding="utf-8")
        size = f"--window-size={max(width, NARROWEST)},{HEIGHT}"
        command = [str(CHROMIUM), *FLAGS, size, option, f"--user-data-dir={folder}/profile", page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def main() -> None:
    """Walk through reports at two widths, light and dark, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.page.walk", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path, metavar="FILE.html")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where pictures of the pages go")
    options = parser.parse_args()
    for page in options.pages:
        for width in WIDTHS:
            for dark in (False, True):
                found = walk(page, width=width, dark=dark)
                told = {
                    key: found[key]
                    for key in ("errors", "unused", "links", "overflow", "width", "ground", "rows", "dots")
                }
                print(page.name, f"{page.stat().st_size / 1e6:.2f} MB", len(found["entries"]), "functions", told)
                if options.pictures is not None:
                    options.pictures.mkdir(exist_ok=True)
                    name = f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
                    picture(page, options.pictures / name, width=width, dark=dark)


if __name__ == "__main__":
    main()
