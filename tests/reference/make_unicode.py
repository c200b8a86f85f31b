"""Write unicode.json: what tokenizers know of characters, as ranges. Tokenizers of others know Unicode 16.

    python -m tests.reference.make_unicode

Needs the package unicodedata2 of that version, and tokenizers for what its own, older tables have; what is read of the
file is the same in every Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import unicodedata2 as unicodedata
from tokenizers import Regex, normalizers, pre_tokenizers

from mlaot.tokenizers import unicode

VERSION = "16.0.0"
SCRIPTS = (  # each by its short and its long name
    *("Arab Arabic", "Armn Armenian", "Beng Bengali", "Bopo Bopomofo", "Cyrl Cyrillic", "Deva Devanagari"),
    *("Ethi Ethiopic", "Geor Georgian", "Grek Greek", "Gujr Gujarati", "Guru Gurmukhi", "Hang Hangul", "Hani Han"),
    *("Hebr Hebrew", "Hira Hiragana", "Kana Katakana", "Khmr Khmer", "Knda Kannada", "Laoo Lao", "Latn Latin"),
    *("Mlym Malayalam", "Mong Mongolian", "Mymr Myanmar", "Orya Oriya", "Sinh Sinhala", "Taml Tamil", "Telu Telugu"),
    *("Thai", "Tibt Tibetan", "Zinh Inherited", "Zyyy Common"),
)
CODES = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def ranges(value: Callable[[int], int]) -> list[int]:
    """Return the runs of codes whose value is not zero: the gap before each, its length, and its value."""
    found, end = list[int](), 0
    for kind, codes in groupby(CODES, value):
        if kind:
            run = [*codes]
            # A run may go around the surrogates, which are no characters.
            found += [run[0] - end, run[-1] + 1 - run[0], kind]
            end = run[-1] + 1
    return found


def changes(becomes: dict[int, str]) -> list[int]:
    """Return what characters become: how far each is from the one before, how many it becomes, and these."""
    found, last = list[int](), 0
    for code, text in becomes.items():
        found += [code - last, len(text), *map(ord, text)]
        last = code
    return found


def main() -> None:
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"needs Unicode {VERSION}, got {unicodedata.unidata_version}")
    parts: dict[int, str] = {code: unicodedata.decomposition(chr(code)) for code in CODES}
    canonical = {code: [int(c, 16) for c in text.split()] for code, text in parts.items() if text and text[0] != "<"}
    kinds = {code: unicodedata.category(chr(code)) for code in CODES}
    names = sorted({*kinds.values()} - {"Cn"})
    off = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), False)
    cleans, accents = (normalizers.BertNormalizer(**{**off, name: True}) for name in ("clean_text", "strip_accents"))
    cuts, strips, lower = pre_tokenizers.Punctuation(), normalizers.StripAccents(), normalizers.Lowercase()
    wide, narrow = normalizers.NFKD(), normalizers.NFD()

    def later(code: int) -> int:
        """Return 1 for what the library's categories do not have yet, and 2 for what ``StripAccents`` does not."""
        text, kind = f"a{chr(code)}", kinds[code]
        if kind[0] == "P":
            return int(len(cuts.pre_tokenize_str(text)) == 1)
        is_later = kind == "Cf" and cleans.normalize_str(text) != "a"
        is_later |= kind == "Mn" and accents.normalize_str(text) != "a"
        return is_later + 2 * (kind[0] == "M" and strips.normalize_str(text) != "a")

    def changed(one: Any, plain: Callable[[str], str]) -> dict[int, str]:
        found = {code: one.normalize_str(chr(code)) for code in CODES}
        return {code: text for code, text in found.items() if text != plain(chr(code))}

    def script(code: int) -> int:
        return next((i for i, found in enumerate(members, 1) if code in found), 0)

    whole = "".join(map(chr, CODES))
    outside = (normalizers.Replace(Regex(rf"[^\p{{{names.split()[0]}}}]"), "") for names in SCRIPTS)
    members = [{*map(ord, one.normalize_str(whole))} for one in outside]
    content = {
        "version": VERSION,
        "names": names,
        "script names": SCRIPTS,
        "scripts": ranges(script),
        "categories": ranges(lambda c: names.index(kinds[c]) + 1 if kinds[c] in names else 0),
        "later": ranges(later),
        "combining": ranges(lambda c: unicodedata.combining(chr(c))),
        "decompositions": [number for code, of in canonical.items() for number in (code, of[0], (*of, 0)[1])],
        "not composed": [code for code in canonical if unicodedata.normalize("NFC", chr(code)) != chr(code)],
        "compatible": changes(changed(wide, narrow.normalize_str)),
        "lower": changes(changed(lower, str)),
    }
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in content.items())
    Path(unicode.__file__).with_name("unicode.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
