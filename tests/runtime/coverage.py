"""How many lines of the runtime's C ran: python -m tests.runtime.coverage FOLDER [LEAST].

FOLDER is where instrumented modules were built and ran. A line counts as run where any of them ran it. Fails where less
than LEAST per cent did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

RUNTIME = Path(__file__).parents[2] / "templates" / "runtime"


def lines_of(folder: Path) -> dict[str, dict[int, bool]]:
    """By file of the runtime, its lines with code, and whether they ran."""
    files: dict[str, dict[int, bool]] = defaultdict(dict)
    for counts in sorted(folder.rglob("*.gcda")):
        command = [os.environ.get("GCOV", "gcov"), "--json-format", "--stdout", counts.name]
        report = subprocess.run(command, cwd=counts.parent, capture_output=True, check=True).stdout
        for text in filter(None, report.splitlines()):
            for file in json.loads(text)["files"]:
                if Path(counts.parent, file["file"]).resolve().parent == RUNTIME:
                    lines = files[Path(file["file"]).name]
                    for line in file["lines"]:
                        number = line["line_number"]
                        lines[number] = lines.get(number, False) or line["count"] > 0
    return files


def ranges(numbers: list[int]) -> str:
    """``3, 7-9``"""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def main(folder: Path, least: float = 0) -> None:
    """Print a line for each file, with what did not run, and the total."""
    files = lines_of(folder)
    for name, lines in sorted(files.items()):
        missing = ranges(sorted(number for number, ran in lines.items() if not ran))
        print(f"{name:<14} {sum(lines.values()):5} of {len(lines):5} lines{f', not {missing}' if missing else ''}")
    ran, count = (sum(f(lines) for lines in files.values()) for f in (lambda lines: sum(lines.values()), len))
    percent = 100 * ran / max(count, 1)
    print(f"{ran} of {count} lines of the runtime ran: {percent:.1f} %")
    if percent < least:
        raise SystemExit(f"expected at least {least:g} %")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0)
