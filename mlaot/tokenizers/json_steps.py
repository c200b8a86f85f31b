"""The normalizer and the pre-tokenizer of a ``tokenizer.json``, as steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from string import punctuation
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.tokenizers import charsmap, patterns, unicode
from mlaot.tokenizers import pattern_syntax as syntax
from mlaot.tokenizers.automaton import Automaton
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.pattern_syntax import One, PatternError, Set, Times, category, characters, empty, spaces, words
from mlaot.tokenizers.steps import BEHAVIORS, MARK, Change, Cut, Form, Map, Prefix, Prepend, Replace, Strip

Part = Mapping[str, Any]
BLANK = {"String": " "}
MAX_PARTS, MAX_DEPTH, MAX_GROWTH = 12, 8, 1 << 12
# What the normalizer of BERT takes for Chinese.
CHINESE = (
    *((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2A6E0), (0x2A700, 0x2B820)),
    *((0x2B920, 0x2CEB0), (0x2F800, 0x2FA20)),
)
# What the normalizer of nmt leaves out, and what becomes a space.
NMT_OUT = (*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F)
NMT_SPACE = (*(0x09, 0x0A, 0x0C, 0x0D, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD),)
ONCE_PUNCTUATION = "\N{CANADIAN SYLLABICS CHI SIGN}\N{SHARADA SANDHI MARK}"  # and something else today
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def refuse(path: Path, what: str, got: object, supported: str) -> MlaotError:
    """Return the error for an unsupported part of a tokenizer."""
    return MlaotError(f"{path}: {what}: expected {supported}, got {str(got)[:200]}")


def utf8(path: Path, text: str) -> bytes:
    """Return the bytes of a token."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MlaotError(f"{path}: the token {text[:40]!r} is no Unicode text") from None


@cache
def byte_of() -> dict[str, int]:
    """Return the byte of each character of byte-level vocabularies: the same one for printable characters."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(b): b for b in printed} | {chr(0x100 + i): b for i, b in enumerate(others)}


def flat(path: Path, part: Any, name: str, depth: int = 0) -> Iterator[Part]:
    """Yield the parts of a normalizer or similar object, with sequences, lists with this ``name``, flattened."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > MAX_DEPTH:
        raise refuse(path, name, part, "an object with a type")
    if part.get("type") != "Sequence":
        yield part
        return
    if not isinstance(part.get(name), list) or len(part[name]) > MAX_PARTS:
        raise refuse(path, name, part.get(name), f"a list of objects, at most {MAX_PARTS}")
    for one in part[name]:
        yield from flat(path, one, name, depth + 1)


def prepend_scheme(part: Part) -> Any:
    """Return the parts of a text before which a Metaspace puts a space: always, first or never."""
    return part.get("prepend_scheme", "always") if part.get("add_prefix_space", True) else "never"


def known(found: Set, table: int = 1) -> Set:
    """Return the characters that one of the library's older tables has, that of categories or of accents."""
    result: Set = found & (np.frombuffer(unicode.later(), np.uint8) & table == 0)
    return result


@cache
def word_characters() -> Automaton:
    """Return the pattern of the characters of words."""
    return patterns.of_set(words() | characters(JOINERS))


@cache
def punctuation_marks() -> Set:
    """Return the characters that count as punctuation in cuts."""
    return known(category(("P",))) | characters(punctuation + ONCE_PUNCTUATION)


def _chinese() -> Set:
    found = empty()
    for begin, end in CHINESE:
        found[begin:end] = True
    return found


@cache
def _bert(cleans: bool, chinese: bool, accents: bool, lower: bool) -> tuple[Change, ...]:
    """Return the steps of the normalizer of BERT."""
    controls = known(category(("Cc", "Cf", "Co"))) | characters("\ufffd")
    controls &= ~characters("\t\n\r")
    blanks = spaces() & ~controls & ~characters(" ")
    found = list[Change]()
    if cleans:
        found += (Replace(patterns.of_set(controls), ""), Replace(patterns.of_set(blanks), " "))
    if chinese:
        found.append(Replace(patterns.of_set(_chinese()), " ", " ", keeps=True))
    if accents:
        found += (Form(composes=False), Replace(patterns.of_set(known(category(("Mn",)))), ""))
    return (*found, small_letters()) if lower else (*found,)


@cache
def small_letters() -> Map:
    """Return the step that converts to lower case."""
    return Map({key.encode(): text.encode() for key, text in unicode.lower().items()})


@cache
def _form(name: str) -> tuple[Change, ...]:
    """Return a normal form, such as NFKC."""
    form = Form(composes=name[-1] == "C")
    wide = Map({key.encode(): text.encode() for key, text in unicode.compatible().items()})
    return (wide, form) if "K" in name else (form,)


def _growth(change: Change) -> int:
    """Return the largest factor by which a change may lengthen a text."""
    if isinstance(change, Map):
        return max(map(len, change.of.values()), default=1)
    return max(1, len(change.before + change.after)) + change.keeps if isinstance(change, Replace) else 1


@dataclass
class Shape:
    """The steps and properties of the normalizer and the pre-tokenizer of a file."""

    path: Path
    normalizer: Normalizer = field(default_factory=Normalizer)
    byte_level: bool = False
    cuts: tuple[Cut | Prefix, ...] = ()
    marks: bool = False  # no text has spaces any more, and a space stands for a mark

    def normalize(self, part: Part | None, keeps_marks: bool) -> None:
        """Add the steps of a normalizer.

        One that ends with replacing spaces by marks may be represented by a flag instead.
        """
        parts = [*flat(self.path, part, "normalizers")]
        prefix, blanks = {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": BLANK, "content": MARK}
        marks = prefixes = False
        if keeps_marks:
            last = [parts[-i] if len(parts) >= i else {} for i in (1, 2)]
            marks = blanks in last and (last[0] == blanks or last[0] == prefix)
            prefixes = marks and prefix in last
            parts = parts[: len(parts) - marks - prefixes]
        changes = [change for one in parts for change in self._changes(one)]
        if prod(map(_growth, changes)) > MAX_GROWTH:
            raise refuse(self.path, "normalizer", part, f"one that makes a text at most {MAX_GROWTH} times as long")
        self.marks = marks
        self.normalizer = Normalizer(changes=(*changes,), prefixes=prefixes, marks=marks)

    def _changes(self, part: Part) -> tuple[Change, ...]:
        kind = part.get("type")
        if kind in ("NFC", "NFD", "NFKC", "NFKD"):
            return _form(kind)
        if kind == "Lowercase":
            return (small_letters(),)
        if kind == "Strip":
            return (Strip(bool(part.get("strip_left")), bool(part.get("strip_right"))),)
        if kind == "StripAccents":
            return (Replace(patterns.of_set(known(category(("M",)), 2)), ""),)
        if kind == "BertNormalizer":
            lower, accents = part.get("lowercase", True), part.get("strip_accents")
            flags = part.get("clean_text", True), part.get("handle_chinese_chars", True)
            return _bert(*map(bool, flags), bool(lower if accents is None else accents), bool(lower))
        if kind == "Nmt":
            out, blank = (patterns.of_set(characters(map(chr, codes))) for codes in (NMT_OUT, NMT_SPACE))
            return Replace(out, ""), Replace(blank, " ")
        if kind == "Prepend" and isinstance(part.get("prepend"), str):
            return (Prepend(self._text(part["prepend"])),)
        if kind == "Replace" and isinstance(part.get("content"), str):
            return (Replace(self._pattern(part), self._text(part["content"])),)
        if kind == "Precompiled" and isinstance(part.get("precompiled_charsmap"), str):
            return (Map(charsmap.from_base64(self.path, part["precompiled_charsmap"])),)
        supported = "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, BertNormalizer"
        raise refuse(self.path, "normalizer", part, f"{supported}, Nmt, Precompiled")

    def _text(self, text: str) -> str:
        if len(text) > 1000 or any("\ud800" <= c < "\ue000" for c in text):
            raise refuse(self.path, "a step", repr(text[:40]), "Unicode text of at most 1000 characters")
        return text

    def _pattern(self, part: Part) -> Automaton:
        pattern = part.get("pattern")
        kind, text = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else ("", "")
        if kind not in ("String", "Regex") or not isinstance(text, str) or not text:
            raise refuse(self.path, "pattern", pattern, "a String or a Regex")
        try:
            return patterns.of_literal(self._text(text)) if kind == "String" else patterns.of_text(text)
        except PatternError as error:
            supported = "sets, groups, alternatives, repetitions, and a look at the next character"
            raise refuse(self.path, "pattern", f"{error} in {text!r}", supported) from None

    def pre_tokenize(self, parts: Iterable[Part]) -> None:
        """Add the steps of the parts of a pre-tokenizer."""
        for one in parts:
            if one.get("type") == "ByteLevel" and not (self.byte_level or self.marks):
                self.cuts += (Prefix(),) if one.get("add_prefix_space") else ()
                if one.get("use_regex", True):
                    self._cut(patterns.of_text(patterns.GPT2))
                self.byte_level = True
            elif one.get("type") == "Metaspace" and one.get("replacement") == MARK and not self.byte_level:
                self._metaspace(one)
            else:
                self._split(one)
            if len(self.cuts) > MAX_PARTS:
                raise refuse(self.path, "pre_tokenizer", f"{len(self.cuts)} steps", f"at most {MAX_PARTS}")

    def _metaspace(self, part: Part) -> None:
        scheme = prepend_scheme(part)
        if scheme not in ("always", "first", "never"):
            raise refuse(self.path, "prepend_scheme", scheme, "always, first or never")
        self.marks = True
        self.cuts += (Prefix(scheme != "never", scheme == "first", marks=True),)
        if part.get("split", True) is not False:
            self.cuts += (Cut(patterns.of_literal(" "), "merged with next"),)

    def _split(self, part: Part) -> None:
        kind = part.get("type")
        if kind == "Split":
            if part.get("pattern") != BLANK or not self.marks:  # else there are no spaces left
                self._cut(self._pattern(part), self._behavior(part.get("behavior")), bool(part.get("invert")))
        elif kind == "Digits":
            numbers = One(category(("N",)))
            is_one = bool(part.get("individual_digits"))
            self._cut(patterns.automaton(numbers if is_one else Times(numbers, 1, None, True)))
        elif kind == "Punctuation":
            self._cut(patterns.of_set(punctuation_marks()), self._behavior(part.get("behavior", "Isolated")))
        elif kind == "WhitespaceSplit":
            self._cut(patterns.of_set(spaces()), "removed")
        elif kind == "BertPreTokenizer":
            self._cut(patterns.of_set(spaces()), "removed")
            self._cut(patterns.of_set(punctuation_marks()))
        elif kind == "Whitespace":
            inside = words() | characters(JOINERS)
            self._cut(
                patterns.automaton(
                    syntax.Any(tuple(Times(One(one), 1, None, True) for one in (inside, ~inside & ~spaces())))
                ),
                "removed",
                True,
            )
        elif kind == "CharDelimiterSplit" and isinstance(part.get("delimiter"), str) and len(part["delimiter"]) == 1:
            self._cut(patterns.of_set(characters(part["delimiter"])), "removed")
        else:
            supported = "Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer"
            raise refuse(self.path, "pre_tokenizer", part, f"{supported}, CharDelimiterSplit, Metaspace with {MARK!r}")

    def _behavior(self, name: Any) -> str:
        found = "".join(f" {c.lower()}" if c.isupper() else c for c in str(name)).strip()
        if found not in BEHAVIORS:
            raise refuse(self.path, "behavior", name, ", ".join(BEHAVIORS))
        return found

    def _cut(self, find: Automaton, behavior: str = "isolated", inverted: bool = False) -> None:
        if self.byte_level:
            spelled = {byte: ord(character) for character, byte in byte_of().items()}
            find = patterns.on_bytes(find, [spelled[byte] for byte in range(256)])
        elif self.marks:
            find = patterns.on_marks(find)
        self.cuts += (Cut(find, behavior, inverted, self.byte_level),)
