"""The English of pages and docstrings keeps the rules of ``english.py``, and each rule finds what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..projects import ROOT
from . import english

WORDS = " ".join(map(str, range(1, 36)))
RULES = {  # a sentence that breaks each, and one that does not
    "more than 35 words": (f"{WORDS} one.", f"{WORDS[:-3]}; `a b`."),
    "doubled word": ("It is in the\nthe file.", "It is `the` the file, and 3 3, and a * a * a."),
    "filler": ("It is simply a file.", "It has simplicity and `just` code."),
    "who for whoever": ("Done. Who builds it needs a compiler.", "Whoever builds it knows who needs it. Who does?"),
    "abbreviated Latin": ("Files, e.g. `two`.", "An egg, `etc` and eig."),
    "no capital": (
        "One is done. the other is not.",
        "One. `two` is. (Three is.) mlaot is. a.py is. two: it is. 4 .. x is.",
    ),
}


def rules(text: str) -> list[str]:
    """The rules that a page breaks."""
    return [rule for _, rule, _ in english.faults(english.passages(text))]


def test_every_rule_has_samples() -> None:
    assert RULES.keys() == english.RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_rule_fires(rule: str) -> None:
    assert rules(RULES[rule][0]) == [rule]


def test_a_list_of_names_may_be_long() -> None:
    names = ", ".join(f"`name{number}`" for number in range(50))
    assert rules(f"{names}.") == [] and rules(f"They are {names}.") == ["more than 35 words"]


def test_who_is_found_behind_a_semicolon() -> None:
    assert rules("This is so; who builds it needs a compiler.") == ["who for whoever"]


@pytest.mark.parametrize("rule", RULES)
def test_rule_does_not_fire(rule: str) -> None:
    assert rules(RULES[rule][1]) == []


def texts(page: str) -> list[tuple[int, str]]:
    """The sentences of a page with their lines."""
    return [(s.line, s.text) for passage in english.passages(page) for s in english.sentences(passage)]


def test_sentences_of_a_page() -> None:
    page = """# A heading

One. Two goes on
over lines: all of it; `x. Y` and 1.5 ...  Three? (Four!) Five
<!-- Hidden. -->
* first item
  goes on
1. Second. Item

| head | `a|b` c |
|---|---|
| cell | Cell one. Cell \\| two |
```
Code. Code.
```
Last [link](https://a.b/c. D) here. ![Picture. Text](x.svg)
"""
    assert texts(page) == [
        (1, "A heading"),
        (3, "One."),
        (3, "Two goes on over lines: all of it; `x. Y` and 1.5 ... Three?"),
        (4, "(Four!)"),
        (4, "Five"),
        (6, "first item goes on"),
        (8, "Second."),
        (8, "Item"),
        (10, "head"),
        (10, "`a/b` c"),
        (12, "cell"),
        (12, "Cell one."),
        (12, "Cell \\| two"),
        (16, "Last [link](https://a.b/c. D) here."),
    ]


@pytest.mark.parametrize(("text", "is_wrong"), [("a phrase", False), ("a phrase.", True), ("One. a phrase", False)])
def test_phrases_need_no_capital(text: str, is_wrong: bool) -> None:
    for form in ("# {}", "* {}", "| {} |"):
        assert rules(form.format(text)) == ["no capital"] * is_wrong
    assert rules(text) == ["no capital"]


def test_docstrings_are_read() -> None:
    source = '''"""Of a module.

    it just is code.

it is simply => a formula.
"""

class A:
    def f(self):
        """a phrase"""

        async def g():
            """Is

            just a function.
            """
            "No. docstring"
'''
    found = english.faults(english.docstring_passages(source))
    assert sorted(found) == [(15, "filler", "just a function."), (15, "no capital", "just a function.")]


def test_files_are_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Good.\n\nThis is very good.\n", encoding="utf-8")
    assert english.check(page) == [f"{page}:3: filler: This is very good."]


def test_pages_are_found() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in english.files(english.PAGES)}
    assert {"README.md", "docs/ops.md", "examples/gpt/README.md", "examples/flagships/magika.md"} <= names


PAGES = [path.relative_to(ROOT).as_posix() for path in english.files(english.PAGES)]


@pytest.mark.parametrize("page", PAGES)
def test_page_keeps_the_rules(page: str) -> None:
    assert not english.check(ROOT / page)


@pytest.mark.parametrize("pattern", english.CODE)
def test_docstrings_keep_the_rules(pattern: str) -> None:
    assert not [line for path in english.files([pattern]) for line in english.check(path)]
