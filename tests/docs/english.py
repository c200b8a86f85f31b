"""A linter of English, for pages and docstrings: ``python -m tests.docs.english [FILES]``.

It prints ``file:line: rule: sentence`` for each sentence that a reader may have to read twice, and exits with 1.

A sentence ends at a full stop, a question mark or an exclamation mark, and at the end of a paragraph, a heading, a list
item or a table's cell. A colon and a semicolon do not end it: a reader holds both sides in mind at once. Inline code is
one word, a link is its text, and two dots or more are no full stop. Blocks of code, comments and images are left out.
In docstrings, indented blocks are left out, too, and so are paragraphs that are a formula, a graph or columns.

A heading, a list item, a cell or a paragraph of a docstring may be a phrase: without a full stop at its end, it needs
no capital. Nor does a name: a word with a sign of code in it, one before a colon, or one of ``NAMES``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..projects import ROOT

PAGES = ("*.md", "docs/**/*.md", "examples/*.md", "examples/*/*.md")
CODE = ("mlaot/**/*.py", "examples/**/*.py", "benchmarks/**/*.py", "tests/docs/*.py")
LONGEST = 35  # words
NAMES = re.compile(  # in lower case at the start of a sentence, too
    r"(?:bfloat16|cibuildwheel|clang|conda|conda-forge|float16|float32|float64|gcc|int4|int8|jax|meson|meson-python"
    r"|emlearn|microgpt|micrograd|mlaot|mljs|nan|ninja|onnx|onnxruntime|pandas|pip|pytest|ruff|safetensors|scikit-build-core"
    r"|scikit-learn|setuptools|tiktoken|tl2cgen|tokenizers|torch|transformers|uint8|uv|zig|zlib)\b|\S+\s*:|\S*(?:[./_(]\w|[A-Z])"
)
FILLERS = "actually|basically|clearly|easily|extremely|just|obviously|of course|quite|really|simply|very"
FENCE = re.compile(r"^[ >]*(```+|~~~+).*?^[ >]*\1[`~]* *$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
ITEM = re.compile(r"\s*(?:[*+-]|\d+\.) +")
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
IMAGE = r"!\[[^]]*\]\([^)]*\)"
MARKUP = re.compile(rf"{IMAGE}|\]\([^)]*\)|(?<!\w)\[(?=[^]]*\]\()|\*+(?=\S)|(?<=\S)\*+|</?[a-z][^<>]*>")
ADDRESS = re.compile(r"https?://\S*[\w/]")
STOP = re.compile(r"(?<!\.)[.!?][\"')\]]*(?=\s|$)")
FORMULA = re.compile(r"=>|^>>> |^\w+ = |^ {4}|\S {2,}\S", re.MULTILINE)


@dataclass(frozen=True)
class Passage:
    """What ends a sentence with it: a paragraph, a heading, a list item or a cell."""

    line: int
    text: str
    may_be_phrase: bool


@dataclass(frozen=True)
class Sentence:
    """A sentence; ``plain`` is its text with digits for code, and without markup."""

    line: int
    text: str
    plain: str
    is_phrase: bool

    @property
    def words(self) -> list[str]:
        """What has a letter or a digit in it, between spaces."""
        return [word for word in self.plain.split() if any(map(str.isalnum, word))]


def blanks(found: re.Match[str]) -> str:
    """Spaces in place of what was found; line breaks stay."""
    return re.sub(r"[^\n]", " ", found[0])


def digits(found: re.Match[str]) -> str:
    """One word without letters, as long as the code that was found."""
    return f"`{'0' * (len(found[0]) - 2)}`"


def plain(text: str) -> str:
    """A text of the same length, with one word for each piece of code, and without markup."""
    return MARKUP.sub(blanks, ADDRESS.sub(digits, CODE_SPAN.sub(digits, text)))


def passages(text: str) -> Iterator[Passage]:
    """The passages of a Markdown text, in order."""
    pending: list[str] = []
    start, is_item = 1, False
    for number, line in enumerate([*COMMENT.sub(blanks, FENCE.sub(blanks, text)).split("\n"), ""], 1):
        line = line.lstrip("> ") if line.startswith(">") else line
        item = ITEM.match(line)
        starts_anew = not line.strip() or item or line.lstrip().startswith("|") or re.match("#+ ", line)
        if starts_anew and pending:
            yield Passage(start, "\n".join(pending), is_item)
            pending = []
        if not line.strip():
            continue
        if line.lstrip().startswith("|"):
            cells = re.split(
                r"(?<!\\)\|", CODE_SPAN.sub(lambda code: code[0].replace("|", "/"), line.strip()).strip("|")
            )
            yield from (Passage(number, cell.strip(), True) for cell in cells if cell.strip(" -:"))
        elif heading := re.match("#+ ", line):
            yield Passage(number, line[heading.end() :], True)
        else:
            if not pending:
                start, is_item = number, item is not None
            pending.append(line[item.end() :] if item else line)


def docstring_passages(source: str) -> Iterator[Passage]:
    """The passages of all docstrings of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if doc := ast.get_docstring(node):
            for passage in passages(doc):
                if not FORMULA.search(passage.text):
                    yield Passage(node.body[0].lineno + passage.line - 1, passage.text, True)


def sentences(passage: Passage) -> Iterator[Sentence]:
    """The sentences of a passage."""
    masked = plain(passage.text)
    ends = [stop.end() for stop in STOP.finditer(masked)]
    is_phrase = passage.may_be_phrase and masked.rstrip() != masked[: max(ends, default=0)]
    for begin, end in zip([0, *ends], [*ends, len(masked)], strict=True):
        if text := masked[begin:end].strip():
            line = passage.line + passage.text.count("\n", 0, begin + masked[begin:].index(text))
            yield Sentence(line, " ".join(passage.text[begin:end].split()), text, is_phrase)


# Rules.


def too_long(sentence: Sentence) -> bool:
    """A list of names in code is no sentence."""
    return len(sentence.words) > LONGEST and any(word.strip(",.;:()").isalpha() for word in sentence.words)


def doubled_word(sentence: Sentence) -> bool:
    return bool(re.search(r"\b(a|[a-z]{2,})\s+\1\b", sentence.plain, re.IGNORECASE))


def filler(sentence: Sentence) -> bool:
    return bool(re.search(rf"\b(?:{FILLERS})\b", sentence.plain, re.IGNORECASE))


def who_as_subject(sentence: Sentence) -> bool:
    """``Who builds it needs a compiler``, for ``Whoever``."""
    return bool(re.search(r"^\W*Who\b|; who\b", sentence.plain)) and not sentence.plain.endswith("?")


def latin(sentence: Sentence) -> bool:
    return bool(re.search(r"\b(?:e\.g|i\.e|etc)\b", sentence.plain, re.IGNORECASE))


def no_capital(sentence: Sentence) -> bool:
    text = sentence.plain.lstrip("([ ")
    return text[:1].islower() and not sentence.is_phrase and not NAMES.match(text)


RULES: dict[str, Callable[[Sentence], bool]] = {
    "more than 35 words": too_long,
    "doubled word": doubled_word,
    "filler": filler,
    "who for whoever": who_as_subject,
    "abbreviated Latin": latin,
    "no capital": no_capital,
}


def faults(found: Iterable[Passage]) -> Iterator[tuple[int, str, str]]:
    """For each rule that a sentence breaks: the line, the rule and the sentence."""
    for passage in found:
        for sentence in sentences(passage):
            for name, breaks in RULES.items():
                if breaks(sentence):
                    yield sentence.line, name, sentence.text


def check(path: Path) -> list[str]:
    """What is wrong in a file, a line each."""
    text = path.read_text(encoding="utf-8")
    found = docstring_passages(text) if path.suffix == ".py" else passages(text)
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return [f"{name}:{line}: {rule}: {sentence}" for line, rule, sentence in sorted(faults(found))]


def files(patterns: Iterable[str]) -> list[Path]:
    """Those that match, in order."""
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


if __name__ == "__main__":
    paths = [Path(name).resolve() for name in sys.argv[1:]] or files([*PAGES, *CODE])
    wrong = [line for path in paths for line in check(path)]
    print("\n".join(wrong))
    raise SystemExit(bool(wrong))
