"""Write unicode.json: what tokenizers know of characters, as ranges. Tokenizers of others know Unicode 16.

    python3.14 -m mlaot.tokenizers.make_unicode

Needs the one Python whose ``unicodedata`` has that version; what is read of the file is the same in every Python.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

VERSION = "16.0.0"
CLASSES = {"letters": "L", "numbers": "N", "marks": "M", "upper": ("Lu", "Lt"), "lower": "Ll"}
CODES = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def ranges(value: Callable[[int], int]) -> list[int]:
    """Return the runs of codes whose value is not zero: the gap before each, its length, and its value if not one."""
    found, end = list[int](), 0
    for kind, codes in groupby(CODES, value):
        if kind:
            run = [*codes]
            # A run may go around the surrogates, which are no characters.
            found += [run[0] - end, run[-1] + 1 - run[0], kind]
            end = run[-1] + 1
    return found


def main() -> None:
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"needs Unicode {VERSION}, that of Python 3.14, got {unicodedata.unidata_version}")
    parts: dict[int, str] = {code: unicodedata.decomposition(chr(code)) for code in CODES}
    canonical = {code: [int(c, 16) for c in text.split()] for code, text in parts.items() if text and text[0] != "<"}
    categories = {code: unicodedata.category(chr(code)) for code in CODES}
    content = {
        "version": VERSION,
        **{name: ranges(lambda c, of=of: int(categories[c].startswith(of))) for name, of in CLASSES.items()},  # type: ignore[misc]
        "combining": ranges(lambda c: unicodedata.combining(chr(c))),
        "decompositions": [number for code, of in canonical.items() for number in (code, of[0], (*of, 0)[1])],
        "not composed": [code for code in canonical if unicodedata.normalize("NFC", chr(code)) != chr(code)],
    }
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in content.items())
    Path(__file__).with_name("unicode.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
